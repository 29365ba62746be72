// SPDX-License-Identifier: Apache-2.0
// Names in optimizer files: m.NAME and v.NAME (moments), master.NAME (master weights). gemm.table,
// if a GPU wrote the checkpoint: the algorithms of products (ot_kernel_algorithms_print).
#include "train/training_state.h"

#include <string.h>

#include "base/text.h"
#include "checkpoint/hf_texts.h"
#include "files/disk.h"
#include "runtime/model_files.h"
#include "train/algorithm_table.h"

typedef struct state_kind {
  const char *prefix;
  ot_parameter_copy copy;
} state_kind;

static const state_kind kinds[] = {
    {"m.", OT_COPY_MOMENT_1}, {"v.", OT_COPY_MOMENT_2}, {"master.", OT_COPY_MASTER}};
enum { NUM_KINDS = sizeof kinds / sizeof kinds[0] };

static const char table_name[] = "gemm.table";
enum { TABLE_BYTES_MAX = 1 << 24 };

// State shared by saving and loading.
typedef struct state_view {
  ot_arena *arena;
  ot_runtime *runtime;
  const ot_run *run;
  ot_weight_map map;
  const char *algorithms;  // of all ranks, to save; null: none
} state_view;

static ot_status view(ot_runtime *runtime, const ot_run *run, ot_arena *arena, state_view *out) {
  const ot_graph *const graph = ot_runtime_whole_graph(runtime);
  *out = (state_view){.arena = arena, .runtime = runtime, .run = run};
  return ot_weight_map_build(arena, graph->parameters, graph->num_parameters, &out->map);
}

// Tensors of which the optimizer keeps one moment have no second one.
static const bool *selected(const state_view *v, ot_parameter_copy copy) {
  if (copy != OT_COPY_MOMENT_2 || ot_run_moments(v->run, true) == 2) return NULL;
  bool *const keep = ot_arena_array(v->arena, v->map.num_tensors + 1, sizeof *keep);
  for (int i = 0; i < v->map.num_tensors; i++) {
    const int parameter = v->map.tensors[i].pieces[0].parameter;
    keep[i] = ot_run_moments(v->run, v->map.parameters[parameter].kind == OT_PARAMETER_MATRIX) == 2;
  }
  return keep;
}

static ot_weight_export export_of(const state_view *v, const char *prefix, ot_parameter_copy copy) {
  ot_weight_access *const access = ot_arena_take(v->arena, sizeof *access);
  *access = ot_weight_access_of(v->arena, v->runtime, copy);
  return (ot_weight_export){.map = &v->map,
                            .access = access,
                            .prefix = prefix,
                            .dtype = ot_runtime_copy_dtype(v->runtime, copy),
                            .selected = selected(v, copy)};
}

// ---- save ----

static const char *json_text(ot_arena *arena, const ot_node *node) {
  ot_json_writer writer = ot_json_begin(arena, 2);
  ot_node_write_json(node, NULL, &writer);
  return writer.text;
}

static ot_manifest manifest_of(const ot_state_request *request, ot_arena *arena) {
  const ot_world *const world = request->world;
  const ot_mesh *const mesh = ot_world_mesh(world);
  return (ot_manifest){
      .step = request->position.step,
      .config = json_text(arena, request->settings),
      .mesh = {.pp = ot_world_degree(world, OT_AXIS_PP),
               .vpp = mesh ? mesh->vpp : 1,
               .dp_replicate = ot_world_degree(world, OT_AXIS_DP_REPLICATE),
               .dp_shard = ot_world_degree(world, OT_AXIS_DP_SHARD),
               .cp = ot_world_degree(world, OT_AXIS_CP),
               .ep = ot_world_degree(world, OT_AXIS_EP),
               .tp = ot_world_degree(world, OT_AXIS_TP),
               .ranks = ot_world_size(world)},
      .next_sample = request->position.next_sample,
      .tokens = request->position.tokens,
  };
}

// `texts` has space for OT_HF_TEXTS_MAX + 1.
static ot_status build_texts(const state_view *v, const ot_state_request *request,
                             ot_checkpoint_text *texts, int *count) {
  const ot_dtype dtype = ot_runtime_copy_dtype(v->runtime, OT_COPY_WEIGHT);
  ot_hf_texts hf;
  OT_TRY(ot_hf_texts_build(v->arena, &request->run->model, dtype, request->tokenizer, &hf));
  memcpy(texts, hf.text, sizeof hf.text);
  *count = hf.count;
  const char *const table = v->algorithms;
  if (table) texts[(*count)++] = (ot_checkpoint_text){table_name, table, ot_text_length(table)};
  return OT_OK;
}

static ot_status save(state_view *v, const ot_state_request *request) {
  const int n = v->map.num_tensors;
  ot_tensor_source *const model = ot_arena_array(v->arena, n, sizeof *model);
  ot_tensor_source *const optimizer = ot_arena_array(v->arena, NUM_KINDS * n, sizeof *optimizer);
  int num_model = 0, num_optimizer = 0;
  ot_weight_export *const weights = ot_arena_take(v->arena, sizeof *weights);
  *weights = export_of(v, "", OT_COPY_WEIGHT);
  ot_weight_sources_build(v->arena, weights, model, &num_model);
  for (int i = 0; i < NUM_KINDS; i++) {
    if (!ot_runtime_has_copy(v->runtime, kinds[i].copy)) continue;
    ot_weight_export *const state = ot_arena_take(v->arena, sizeof *state);
    *state = export_of(v, kinds[i].prefix, kinds[i].copy);
    int count = 0;
    ot_weight_sources_build(v->arena, state, optimizer + num_optimizer, &count);
    num_optimizer += count;
  }
  const ot_manifest manifest = manifest_of(request, v->arena);
  ot_checkpoint_text texts[OT_HF_TEXTS_MAX + 1];
  int num_texts = 0;
  OT_TRY(build_texts(v, request, texts, &num_texts));
  const ot_checkpoint_content content = {.num_model = num_model,
                                         .model = model,
                                         .num_optimizer = num_optimizer,
                                         .optimizer = optimizer,
                                         .num_texts = num_texts,
                                         .texts = texts,
                                         .manifest = &manifest};
  return ot_checkpoint_write(request->path, &content);
}

static ot_status lead(ot_runtime *runtime, const ot_state_request *request,
                      const char *algorithms) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  state_view v;
  ot_status status = view(runtime, request->run, &arena, &v);
  v.algorithms = algorithms;
  if (status == OT_OK) status = save(&v, request);
  ot_heap_release(&heap);
  if (status == OT_OK) return ot_runtime_end_reads(runtime);
  (void)ot_runtime_end_reads(runtime);
  return status;
}

ot_status ot_training_state_save(ot_runtime *runtime, const ot_state_request *request) {
  ot_world *const world = request->world;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const char *table = NULL;
  ot_status status = ot_algorithm_table_gather(ot_runtime_executor(runtime), world, &arena, &table);
  if (status == OT_OK) {
    status =
        ot_world_is_leader(world) ? lead(runtime, request, table) : ot_runtime_serve_reads(runtime);
    status = ot_world_agree(world, status);
  }
  ot_heap_release(&heap);
  return status;
}

// ---- load ----

static ot_status load_table(const state_view *v, ot_checkpoint *checkpoint,
                            ot_state_request *request) {
  const char *const path = ot_checkpoint_file(checkpoint, table_name);
  char *text = NULL;
  int64_t bytes = 0;
  if (!path) return OT_OK;
  OT_TRY(ot_disk_read(v->arena, path, TABLE_BYTES_MAX, &text, &bytes));
  const char *const note =
      ot_executor_read_algorithms(ot_runtime_executor(v->runtime), text, v->arena);
  if (!note || !ot_world_is_leader(request->world)) return OT_OK;
  request->note = strdup(note);
  OT_CHECK(request->note, OT_ENVIRONMENT, "out of memory (%s)", path);
  return OT_OK;
}

static ot_status load(state_view *v, ot_checkpoint *checkpoint, ot_state_request *request) {
  const char *const path = request->path;
  const ot_manifest *const manifest = ot_checkpoint_manifest(checkpoint);
  OT_CHECK(manifest, OT_USAGE, "%s has no manifest.json: it is not a checkpoint of a run", path);
  OT_CHECK(ot_checkpoint_tensors(checkpoint, OT_CHECKPOINT_OPTIMIZER), OT_ENVIRONMENT,
           "%s has no optimizer state", path);
  ot_weight_access access = ot_weight_access_of(v->arena, v->runtime, OT_COPY_WEIGHT);
  const ot_weight_import into = {.map = &v->map, .access = &access, .num_access = 1};
  ot_weight_notes notes;
  OT_TRY(ot_weights_import(v->arena, &into, checkpoint, &notes));
  ot_runtime_zero_moments(v->runtime);
  for (int i = 0; i < NUM_KINDS; i++) {
    if (!ot_runtime_has_copy(v->runtime, kinds[i].copy)) continue;
    const ot_weight_export state = export_of(v, kinds[i].prefix, kinds[i].copy);
    OT_TRY(ot_weights_restore(v->arena, &state, checkpoint));
  }
  OT_TRY(ot_checkpoint_check_complete(checkpoint, OT_CHECKPOINT_OPTIMIZER));
  OT_TRY(load_table(v, checkpoint, request));
  request->position = (ot_position){
      .step = manifest->step, .next_sample = manifest->next_sample, .tokens = manifest->tokens};
  return OT_OK;
}

ot_status ot_training_state_load(ot_runtime *runtime, ot_state_request *request) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  state_view v;
  ot_checkpoint *checkpoint = NULL;
  ot_status status = view(runtime, request->run, &arena, &v);
  if (status == OT_OK) status = ot_checkpoint_create(request->path, false, &checkpoint);
  if (status == OT_OK) status = load(&v, checkpoint, request);
  ot_checkpoint_destroy(&checkpoint);
  ot_heap_release(&heap);
  return ot_world_agree(request->world, status);
}
