// SPDX-License-Identifier: Apache-2.0
// Floating-point formats as rounding rules, and reductions in them: emulates low precision for any
// format and number of ranks, independent of the planned hardware. Pure except for the C
// mathematics library.
#pragma once

#include <stdint.h>

#include "base/dtype.h"

// Rounds to nearest, ties to even; overflows to infinity, underflows to subnormals.
typedef struct ot_format {
  const char *name;
  int bits;          // of the significand, the leading one included
  int min_exponent;  // of the smallest normal number
  double smallest;   // normal number
  double largest;    // finite number
} ot_format;

extern const ot_format ot_format_fp64, ot_format_fp32, ot_format_fp16, ot_format_bf16,
    ot_format_e4m3, ot_format_e5m2;

// The format of a gradient dtype.
const ot_format *ot_format_of(ot_dtype dtype);

double ot_format_round(const ot_format *format, double value);

// Distance between adjacent numbers of the format at |value|.
double ot_format_ulp(const ot_format *format, double value);

// How the contributions of ranks or micro-batches are reduced.
typedef enum ot_reduction_kind {
  OT_SUM_RING,         // one by one, each partial sum rounded
  OT_SUM_TREE,         // pairwise; each partial sum rounded
  OT_SUM_EXACT_PARTS,  // all-to-all without rounding, added in float32, rounded once at the owner
  OT_SUM_KINDS,
} ot_reduction_kind;

const char *ot_reduction_kind_name(ot_reduction_kind kind);  // "ring", "tree", "float32"

// The sum of `values` [count], each rounded to `format` first. `values` is overwritten.
double ot_reduction_emulate(ot_reduction_kind kind, const ot_format *format, double *values,
                            int64_t count);

// The same, rounding only each value to `format` (Neumaier 1974).
double ot_reduction_exact(const ot_format *format, const double *values, int64_t count);
