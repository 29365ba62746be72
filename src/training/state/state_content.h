// SPDX-License-Identifier: Apache-2.0
// The content of a checkpoint of a run: the weights; moments and master weights of the optimizer;
// texts and manifest. The same on all ranks, but texts and manifest, which the leader has. Private
// to training_state.c and state_*.c.
#pragma once

#include "checkpoint/hf_texts.h"
#include "checkpoint/weights.h"
#include "state/training_state.h"

enum { OT_STATE_KINDS = 4, OT_STATE_TEXTS_MAX = OT_HF_TEXTS_MAX + 1 };

// A kind of value; the name of its tensors is `prefix` and the name of the weight.
typedef struct ot_state_kind {
  ot_checkpoint_set set;
  const char *prefix;
  ot_parameter_copy copy;
} ot_state_kind;
extern const ot_state_kind ot_state_kinds[OT_STATE_KINDS];

// The file of the algorithms of products (ot_kernel_algorithms_print), if a GPU wrote it.
extern const char ot_state_table_name[];

typedef struct ot_state_view {
  ot_arena *arena;
  ot_runtime *runtime;
  const ot_run *run;
  ot_weight_map map;
} ot_state_view;

ot_status ot_state_view_build(ot_runtime *runtime, const ot_run *run, ot_arena *arena,
                              ot_state_view *view);

// Whether the run keeps values of `kind`, and their tensors in files.
bool ot_state_has(const ot_state_view *view, const ot_state_kind *kind);
ot_weight_export ot_state_export(const ot_state_view *view, const ot_state_kind *kind);

// Where the elements of `slices`, of the shard `held`, are: one run for each that is contiguous in
// the parameter and in memory, whose offset counts from `begin`, where the shard begins.
typedef struct ot_shard_memory {
  ot_bucket_range held;
  int64_t size;   // bytes of an element
  int64_t begin;  // bytes
} ot_shard_memory;
ot_weight_runs ot_state_runs(ot_arena *arena, const ot_slices *slices,
                             const ot_shard_memory *memory);

typedef struct ot_state_content {
  ot_state_view view;
  ot_checkpoint_content files;  // sources without data; texts and manifest on the leader
  ot_weight_place *places[OT_STATE_KINDS];  // [view.map.num_tensors]; null: no such kind
  ot_manifest manifest;
  ot_checkpoint_text texts[OT_STATE_TEXTS_MAX];
} ot_state_content;

// The settings of a run as they stand in a manifest.
const char *ot_state_settings(ot_arena *arena, const ot_node *settings);

// `algorithms`: of all ranks, on the leader; null: none.
ot_status ot_state_content_build(ot_runtime *runtime, const ot_state_request *request,
                                 const char *algorithms, ot_arena *arena,
                                 ot_state_content *content);
