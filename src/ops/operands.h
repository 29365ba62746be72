// SPDX-License-Identifier: Apache-2.0
// What the pure half of every operator needs: making operand types, checking them with an error
// that names the operand, and counting the bytes that pass through them. Pure.
#pragma once

#include "ops/op.h"

enum { OT_SOFT_CAP_FLOPS = 12 };  // of a soft cap or its slope, for each number

// As ot_expected.dtype: any type that a tensor of activations or parameters may be stored in.
enum { OT_ANY_REAL = OT_DTYPE_COUNT };

// What an operand must be. A dim of 0 stands for any positive number.
typedef struct ot_expected {
  const char *op;       // name in the message
  const char *operand;  // name in the message, as in ot_op_kind's comment
  int dtype;            // an ot_dtype or OT_ANY_REAL
  int rank;
  int64_t dim[OT_MAX_DIMS];
} ot_expected;

// Says "op: operand is fp32 [4, 5], expected real [4, 6]" when `type` is not as `expected`.
ot_status ot_operand_check(const ot_tensor_type *type, ot_expected expected);

// As ot_operand_check, but an absent operand passes.
ot_status ot_operand_check_optional(const ot_tensor_type *type, ot_expected expected);

ot_tensor_type ot_type_vector(ot_dtype dtype, int64_t n);
ot_tensor_type ot_type_matrix(ot_dtype dtype, int64_t rows, int64_t columns);

// The cost of an op that touches every present operand of `info` once: inputs are read, outputs are
// written, and outputs that are added to (accumulators, effects) are read as well.
ot_cost ot_cost_of_traffic(const ot_op_info *info, const ot_op_attributes *attributes,
                           const ot_op_types *types, double other_flops);
