// SPDX-License-Identifier: Apache-2.0
// HF directory to checkpoint and back. Both hold the same tensors under the same names, so a
// conversion copies tensor by tensor, changes dtypes, normalizes names, and fails unless the model
// of config.json accounts for every tensor of the files.
#pragma once

#include "base/dtype.h"
#include "checkpoint/weights.h"
#include "files/config_file.h"

typedef struct ot_convert_request {
  const char *from;         // HF directory, checkpoint, or run directory (its newest checkpoint)
  const char *to;           // output directory; must not exist
  const ot_dtype *dtype;    // of the output tensors; null: unchanged
  int64_t shard_bytes;      // maximum size of a tensor file; 0 = one file
  const char *const *sets;  // [num_sets] model.KEY=VALUE
  int num_sets;
  bool only_native;  // read only by this program: also writes models that HF lacks
} ot_convert_request;

// The result of a conversion; text in the arena of the call.
typedef struct ot_convert_report {
  const char *from;  // the directory that was read
  const char *note;  // names newer damaged checkpoints; null: none
  bool to_hf;        // true: checkpoint to HF directory; false: the reverse
  int num_tensors;
  int64_t bytes;     // of tensors written
  bool from_master;  // from the master weights of the checkpoint
  int num_left_out;  // optimizer tensors, for which an HF directory has no place
  int64_t left_out_bytes;
  ot_weight_notes notes;
  ot_config_notes config_notes;
} ot_convert_report;

// A directory with a manifest is a checkpoint and becomes an HF directory without optimizer state;
// any other becomes a checkpoint of step 0. If fp32 is requested, master weights are used where the
// checkpoint has them. `to` is complete or absent. OT_USAGE for a model that HF software could not
// run as it is.
ot_status ot_convert(ot_arena *arena, const ot_convert_request *request, ot_convert_report *report);
