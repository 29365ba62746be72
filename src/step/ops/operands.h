// SPDX-License-Identifier: Apache-2.0
// Helpers of the pure half of every operator: operand types, checks with an error that names the
// operand, and bytes of traffic. Pure.
#pragma once

#include "ops/op.h"

enum { OT_SOFT_CAP_FLOPS = 12 };  // of a soft cap or its slope, per number

// For ot_expected.dtype: any dtype of activations and parameters.
enum { OT_ANY_REAL = OT_DTYPE_COUNT };

// Expected shape and dtype of an operand. A dim of 0 accepts any positive number.
typedef struct ot_expected {
  const char *op;       // name in the message
  const char *operand;  // name in the message, as in ot_op_kind's comment
  int dtype;            // an ot_dtype or OT_ANY_REAL
  int rank;
  int64_t dim[OT_MAX_DIMS];
} ot_expected;

// Fails with "op: operand is fp32 [4, 5], expected real [4, 6]" when `type` is not as `expected`.
ot_status ot_operand_check(const ot_tensor_type *type, ot_expected expected);

// Like ot_operand_check, but accepts an absent operand.
ot_status ot_operand_check_optional(const ot_tensor_type *type, ot_expected expected);

ot_tensor_type ot_type_vector(ot_dtype dtype, int64_t n);
ot_tensor_type ot_type_matrix(ot_dtype dtype, int64_t rows, int64_t columns);

// The cost of an op that accesses every present operand of `info` once: inputs are read, outputs
// are written, and accumulated outputs (accumulators, effects) are read as well.
ot_cost ot_cost_of_traffic(const ot_op_info *info, const ot_op_attributes *attributes,
                           const ot_op_types *types, double other_flops);
