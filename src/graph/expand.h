// SPDX-License-Identifier: Apache-2.0
// Takes composite ops apart. A composite is one op to place and to differentiate: attention over a
// group (attributes.group_size > 1, the ranks of cp) and its gradient. What it stands for is a ring
// (Liu et al. 2023), whose backward is no transpose of its forward step by step: it uses the
// log-sum-exp of all blocks (Dao et al. 2022). Rounds of experts are the other composites
// (expand_rounds.h), and so are norms of whole rows of q and k whose heads are cut over tp
// (ops/head_norm.h), with a sum over ranks before each. Only primitives reach a schedule.
//
// On rank r of c, with the keys and values of rank (r - j) mod c after j hops:
//   forward   block j joins o and lse to those of the blocks before; hop j + 1 is started before
//             block j, on which it does not depend
//   backward  the keys travel again; their gradients travel along, each rank adding its part, and
//             after c hops are home; dq adds up where it is
#pragma once

#include "graph/program.h"

// Replaces the composites of `program` in place. Values keep their numbers.
ot_status ot_program_expand(ot_program *program, ot_arena *arena);

// True for an op that does not run as it stands.
bool ot_op_is_composite(const ot_op *op);
