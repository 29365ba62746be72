// SPDX-License-Identifier: Apache-2.0
// HF directory to checkpoint and back. Both hold the same tensors under the same names, so a
// conversion is a copy, tensor by tensor, that changes types, spells names the one way, and fails
// unless the model that config.json describes accounts for every tensor of the files.
#pragma once

#include "base/dtype.h"
#include "checkpoint/weights.h"
#include "files/config_file.h"

typedef struct ot_convert_request {
  const char *from;         // HF directory, checkpoint, or run directory (its newest checkpoint)
  const char *to;           // directory to make; must not exist
  const ot_dtype *dtype;    // of the tensors made; null: as they are, each
  int64_t shard_bytes;      // most bytes of a tensor file; 0 = one file
  const char *const *sets;  // [num_sets] model.KEY=VALUE
  int num_sets;
  bool only_ours;  // nobody else will read it: models that HF has not are written, too
} ot_convert_request;

// What was done; text in the arena of the call.
typedef struct ot_convert_report {
  const char *from;  // the directory that was read
  const char *note;  // names newer checkpoints that are damaged; null: none are
  bool to_hf;        // a checkpoint became an HF directory, else the reverse
  int num_tensors;
  int64_t bytes;     // of tensors written
  bool from_master;  // taken from the full-precision copies of the checkpoint
  int num_left_out;  // tensors of the optimizer, which an HF directory has no place for
  int64_t left_out_bytes;
  ot_weight_notes notes;
  ot_config_notes config_notes;
} ot_convert_report;

// A directory with a manifest is a checkpoint and becomes an HF directory, without the optimizer's
// state; another becomes a checkpoint of step 0. With fp32 asked for, full-precision copies are
// taken where the checkpoint has them. `to` is complete or absent. OT_USAGE for a model that no
// software reading HF directories would run as it is.
ot_status ot_convert(ot_arena *arena, const ot_convert_request *request, ot_convert_report *report);
