// SPDX-License-Identifier: Apache-2.0
// Where a row of a rank's piece lies in its sequence, when the sequence is cut over c ranks of cp.
// For a ring it is cut into 2c pieces, of which rank r has r and 2c-1-r one after the other
// (zig-zag: causal work is then the same on every rank); for Ulysses into c.
#pragma once

#include "ops/op.h"

// The place in the whole sequence of row `i` of attributes.sequence_length rows of this rank.
static inline int64_t ot_sequence_place(const ot_op_attributes *attributes, int64_t i) {
  const int64_t rows = attributes->sequence_length;
  const int64_t c = attributes->context_size;
  const int64_t r = attributes->context_index;
  if (c <= 1) return i;
  if (attributes->context == OT_CONTEXT_ULYSSES) return r * rows + i;
  const int64_t half = rows / 2;
  return i < half ? r * half + i : (2 * c - 1 - r) * half + (i - half);
}
