// SPDX-License-Identifier: Apache-2.0
// A training run as files: weights, optimizer state and position, saved as a checkpoint and read
// back bit by bit.
#pragma once

#include "base/tree.h"
#include "checkpoint/checkpoint.h"
#include "data/data_loader.h"
#include "runtime/model_runtime.h"
#include "runtime/run_world.h"
#include "tokenizer/tokenizer.h"

// The position of a run between two steps.
typedef struct ot_position {
  int64_t step;         // completed steps
  int64_t next_sample;  // global index of the first sample not yet trained on
  int64_t tokens;       // trained on so far
} ot_position;

// To after a step.
void ot_position_advance(ot_position *position, int64_t sequences, int64_t tokens);

// OT_FINDINGS, with both, if two positions that must be equal are not. Pure.
ot_status ot_position_compare(const ot_position *a, const ot_position *b);

typedef struct ot_state_request {
  const char *path;  // the checkpoint's directory
  const ot_run *run;
  const ot_node *settings;        // resolved configuration (ot_config_load)
  const ot_tokenizer *tokenizer;  // or null
  const ot_data_loader *loader;   // of the data that the manifest records; null: none
  ot_position position;
  const char *state;    // further state, a JSON object for the manifest; null: none
  ot_world *world;      // null: one rank
  int64_t shard_bytes;  // of tensor files, to save; 0: 1 GiB
  char *note;           // set by a load, on the leader, to be freed; null: nothing to say
  bool damaged;         // set by a load: it failed because the files are not those that were saved
} ot_state_request;

// Saves (state_save.h). Collective over the world. Blocks until the checkpoint is complete.
ot_status ot_training_state_save(ot_runtime *runtime, const ot_state_request *request);

// Reads the checkpoint at `request->path`, which one rank has found (checkpoint_list.h), into
// `runtime`, moments and master weights included; every tensor is accounted for. Each rank reads
// the blocks of the files that hold elements of its own, and compares them with the manifest; after
// damage the state is undefined until another checkpoint is loaded. request->run tells which
// tensors have which state; its position is set to that of the checkpoint. Checkpoints are
// independent of the mesh. On a GPU it also takes over the algorithms of products; the note says if
// they cannot be, and if moments are rounded. Collective over the world.
ot_status ot_training_state_load(ot_runtime *runtime, ot_state_request *request);
