// SPDX-License-Identifier: Apache-2.0
// Lowers composite ops. A composite is one op for placement and differentiation, but several when
// it runs. Attention over a group (attributes.group_size > 1, the ranks of cp) and its gradient
// stand for ring attention (Liu et al. 2023). Its backward is not the step-by-step transpose of its
// forward: it uses the log-sum-exp of all blocks (Dao et al. 2022). The other composites are
// overflow passes of experts (expand_overflow.h) and norms over the whole q and k when heads are
// sharded over tp (ops/head_norm.h), with an all-reduce before each. Only primitives reach a
// schedule.
//
// On rank r of c, with the keys and values of rank (r - j) mod c after j hops:
//   forward   block j merges its o and lse with those of earlier blocks; hop j + 1 starts before
//             block j, which does not depend on it
//   backward  the keys go around again, with their gradients; each rank adds its part, and after
//             c hops they are back; dq accumulates locally
#pragma once

#include "graph/program.h"

// Replaces the composites of `program` in place. Values keep their indices.
ot_status ot_program_expand(ot_program *program, ot_arena *arena);

// True for an op that must be lowered before it can run.
bool ot_op_is_composite(const ot_op *op);
