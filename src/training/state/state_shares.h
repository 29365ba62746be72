// SPDX-License-Identifier: Apache-2.0
// This rank's share of the state of a run: the elements that it counts, in the memory of the model
// or in a copy of it, and their way into the files. Private to state_save.c.
#pragma once

#include "state/state_content.h"

typedef struct ot_state_shares ot_state_shares;

// With `snapshot`, allocates memory for a copy of the share. Keeps `runtime` until destroy.
ot_status ot_state_shares_create(ot_runtime *runtime, bool snapshot, ot_state_shares **out);
void ot_state_shares_destroy(ot_state_shares **shares);

// Copies the share, if this was made for that. Not during a step.
void ot_state_shares_take(ot_state_shares *shares);

// Writes the share to the created files of `plan`, and the headers of every size-th file from
// number `rank` on, counted over both sets. `writers` [OT_CHECKPOINT_SETS]. Local; without a
// snapshot, not during a step.
typedef struct ot_share_target {
  const ot_checkpoint_plan *plan;
  ot_safetensors_writer *const *writers;
  int rank, size;
} ot_share_target;
ot_status ot_state_shares_write(ot_state_shares *shares, const ot_state_content *content,
                                const ot_share_target *target);
