// SPDX-License-Identifier: Apache-2.0
// Explicit partitions as text, like Megatron's pipeline layouts: chunks in model order, separated
// by '|', each a sequence of E (embedding), t (a layer), t*12 (twelve layers) and L (loss head):
// "Et*11|t*12|t*12|t*11L". Spaces are ignored.
#pragma once

#include "base/arena.h"
#include "base/status.h"

// Reads the layout of a model of `layers` layers in `num_chunks` chunks. OT_USAGE names the
// character and what is expected there.
//   first  [num_chunks + 1] chunk c holds blocks [first[c], first[c + 1]); block 0 is the embedding
ot_status ot_stage_layout_read(const char *text, int layers, int num_chunks, int *first);
