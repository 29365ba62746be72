// SPDX-License-Identifier: Apache-2.0
// What a probe is asked about, and a model on its way through files: one sequence of the run's
// training data, and the run's weights as Hugging Face files.
#pragma once

#include "audit/probe.h"
#include "train/trainer.h"

// The first training sequence as one document of at most `tokens` tokens, targets being the next
// tokens (the last is masked). To be released.
ot_status ot_probe_text_read(const ot_run *run, int64_t tokens, ot_rows *rows);

// Saves the trainer's state, converts it to HF files of full precision in a new folder of temporary
// files; `path` is that of the files on the leader, null on the others. Collective over the world.
ot_status ot_probe_export(ot_trainer *trainer, ot_team *team, ot_arena *arena, const char **path);

// Removes what ot_probe_export made; null: nothing.
void ot_probe_export_remove(const char *path);
