// SPDX-License-Identifier: Apache-2.0
// Explicit cuts as text, in the spirit of Megatron's pipeline layouts: chunks in the order of the
// model, set apart by '|', each a row of E (embedding), t (a layer), t*12 (twelve) and L (loss
// head): "Et*11|t*12|t*12|t*11L". Spaces mean nothing.
#pragma once

#include "base/arena.h"
#include "base/status.h"

// Reads the layout of a model of `layers` layers in `num_chunks` chunks. OT_USAGE naming the
// character and what is due there.
//   first  [num_chunks + 1] chunk c holds blocks [first[c], first[c + 1]); block 0 is the embedding
ot_status ot_stage_layout_read(const char *text, int layers, int num_chunks, int *first);
