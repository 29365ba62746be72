// SPDX-License-Identifier: Apache-2.0
// Floating-point formats as rules of rounding, and sums as they are made in them: what low
// precision does to a value can be run through for any format and any number of ranks, wherever
// the planned hardware is. Pure but for the C library's mathematics.
#pragma once

#include <stdint.h>

#include "base/dtype.h"

// Round to nearest, ties to even; what is too large becomes infinity, what is too small subnormal.
typedef struct ot_format {
  const char *name;
  int bits;          // of the significand, the leading one included
  int min_exponent;  // of the smallest normal number
  double smallest;   // normal number
  double largest;    // finite number
} ot_format;

extern const ot_format ot_format_fp64, ot_format_fp32, ot_format_fp16, ot_format_bf16,
    ot_format_e4m3, ot_format_e5m2;

// Of a type that gradients can have.
const ot_format *ot_format_of(ot_dtype dtype);

double ot_format_round(const ot_format *format, double value);

// Distance of the numbers of the format around |value|.
double ot_format_ulp(const ot_format *format, double value);

// How the contributions of ranks, or of micro-batches, are added up.
typedef enum ot_sum_kind {
  OT_SUM_RING,         // one after the other, each partial sum rounded
  OT_SUM_TREE,         // in pairs, pairs of pairs, ...; each rounded
  OT_SUM_EXACT_PARTS,  // exchanged as they are, added in float32, rounded once where it is kept
  OT_SUM_KINDS,
} ot_sum_kind;

const char *ot_sum_kind_name(ot_sum_kind kind);  // "ring", "tree", "float32"

// The sum of `values` [count], each rounded to `format` first. `values` is overwritten.
double ot_sum_replay(ot_sum_kind kind, const ot_format *format, double *values, int64_t count);

// The same without any rounding but that of `format` on each value (Neumaier 1974).
double ot_sum_exact(const ot_format *format, const double *values, int64_t count);
