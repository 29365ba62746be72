// SPDX-License-Identifier: Apache-2.0
// The pure table of operators, indexed by kind. Kernels are in kernels.h, so that the planner links
// without them.
#pragma once

#include "ops/op.h"

// The entry of `kind`; never null.
const ot_op_info *ot_op_info_of(ot_op_kind kind);

// Fills the output types of an op, or names the operand that does not fit and why.
ot_status ot_op_infer(ot_op_kind kind, const ot_op_attributes *attributes, ot_op_types *types);

ot_cost ot_op_cost(ot_op_kind kind, const ot_op_attributes *attributes, const ot_op_types *types);
