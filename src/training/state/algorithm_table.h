// SPDX-License-Identifier: Apache-2.0
// The algorithms of products that the ranks of a run have chosen, as one text: ranks of other
// stages have products of other shapes.
#pragma once

#include "base/arena.h"
#include "execute/execute.h"
#include "runtime/run_world.h"

// The rows of all ranks, each once, in the order of ranks, in `arena`; on the leader, null on the
// others and if there are none. Ranks on another kind of GPU than the leader's have no rows in it.
// Collective over the world. Blocks.
ot_status ot_algorithm_table_gather(const ot_executor *executor, ot_world *world, ot_arena *arena,
                                    const char **table);
