// SPDX-License-Identifier: Apache-2.0
// `audit ranks`: replicas compared around the steps of a run, by the command or within training.
#pragma once

#include "audit/replicas.h"
#include "train/loop.h"

// Compares before the trainer's next step, and after each of the `steps` that it then takes, to the
// first finding; then asks whether every tensor has moved and, where one rank has the memory for
// it, whether one rank would have made the same of the next step (reference.h). The report is that
// of the leader; of replicas it is the same on all ranks. Collective over the world. Blocks.
ot_status ot_audit_ranks(ot_trainer *trainer, ot_team *team, int steps, ot_arena *arena,
                         ot_audit_report *report);

// Compares within a training run: the look of an ot_loop_check, whose context is an ot_ranks_watch.
typedef struct ot_ranks_watch {
  ot_team *team;          // null: one rank
  ot_replicas *replicas;  // made at the first look; to be destroyed by the owner
} ot_ranks_watch;

ot_status ot_ranks_watch_look(void *watch, ot_trainer *trainer, ot_arena *arena,
                              ot_loop_findings *findings);
