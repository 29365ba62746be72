// SPDX-License-Identifier: Apache-2.0
// The scratch that kernels of each back end need in addition to their operands, known without
// linking them: the planner places it in the arena. Pure.
#pragma once

#include "ops/op.h"

enum { OT_JOINED_MOST = 32 };  // calls that one launch runs, at most, on any back end

// Scratch bytes of one execution, a multiple of 64.
int64_t ot_op_workspace(ot_op_kind kind, const ot_op_attributes *attributes,
                        const ot_op_types *types);

// Calls of `kind` that one launch of a back end runs, at most (ot_joined_kernel); 0: one.
int ot_op_joined(ot_op_kind kind, ot_backend backend);
