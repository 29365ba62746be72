// SPDX-License-Identifier: Apache-2.0
// Names in optimizer files: m.NAME and v.NAME (moments), master.NAME (master weights). The order of
// sources is that of the files.
#include "state/state_content.h"

#include <string.h>

#include "base/json_writer.h"
#include "base/text.h"
#include "data/data_record.h"
#include "runtime/model_files.h"

const ot_state_kind ot_state_kinds[OT_STATE_KINDS] = {
    {OT_CHECKPOINT_MODEL, "", OT_COPY_WEIGHT},
    {OT_CHECKPOINT_OPTIMIZER, "m.", OT_COPY_MOMENT_1},
    {OT_CHECKPOINT_OPTIMIZER, "v.", OT_COPY_MOMENT_2},
    {OT_CHECKPOINT_OPTIMIZER, "master.", OT_COPY_MASTER}};

const char ot_state_table_name[] = "gemm.table";

ot_status ot_state_view_build(ot_runtime *runtime, const ot_run *run, ot_arena *arena,
                              ot_state_view *view) {
  const ot_graph *const graph = ot_runtime_whole_graph(runtime);
  *view = (ot_state_view){.arena = arena, .runtime = runtime, .run = run};
  return ot_weight_map_build(arena, graph->parameters, graph->num_parameters, &view->map);
}

// Tensors of which the optimizer keeps one moment have no second one.
static const bool *selected(const ot_state_view *v, ot_parameter_copy copy) {
  if (copy != OT_COPY_MOMENT_2 || ot_run_moments(v->run, true) == 2) return NULL;
  bool *const keep = ot_arena_array(v->arena, v->map.num_tensors + 1, sizeof *keep);
  for (int i = 0; i < v->map.num_tensors; i++) {
    const int parameter = v->map.tensors[i].pieces[0].parameter;
    keep[i] = ot_run_moments(v->run, v->map.parameters[parameter].kind == OT_PARAMETER_MATRIX) == 2;
  }
  return keep;
}

bool ot_state_has(const ot_state_view *view, const ot_state_kind *kind) {
  return ot_runtime_has_copy(view->runtime, kind->copy);
}

ot_weight_export ot_state_export(const ot_state_view *view, const ot_state_kind *kind) {
  ot_weight_access *const access = ot_arena_take(view->arena, sizeof *access);
  *access = ot_weight_access_of(view->arena, view->runtime, kind->copy);
  return (ot_weight_export){.map = &view->map,
                            .access = access,
                            .prefix = kind->prefix,
                            .dtype = ot_runtime_copy_dtype(view->runtime, kind->copy),
                            .selected = selected(view, kind->copy)};
}

ot_weight_runs ot_state_runs(ot_arena *arena, const ot_slices *slices,
                             const ot_shard_memory *memory) {
  ot_slice slice;
  int64_t num = 0;
  for (ot_slices at = *slices; ot_slices_next(&at, &slice);) num++;
  ot_weight_run *const runs = ot_arena_array(arena, num + 1, sizeof *runs);
  ot_slices at = *slices;
  for (int64_t i = 0; ot_slices_next(&at, &slice); i++) {
    const int64_t offset = memory->begin + (slice.bucket - memory->held.first) * memory->size;
    runs[i] = (ot_weight_run){slice.whole, slice.count, offset};
  }
  return (ot_weight_runs){num, runs};
}

// ---- the leader's part ----

const char *ot_state_settings(ot_arena *arena, const ot_node *node) {
  ot_json_writer writer = ot_json_begin(arena, 2);
  ot_node_write_json(node, NULL, &writer);
  return writer.text;
}

static ot_manifest manifest_of(const ot_state_request *request, ot_arena *arena) {
  const ot_world *const world = request->world;
  const ot_mesh *const mesh = ot_world_mesh(world);
  return (ot_manifest){
      .step = request->position.step,
      .config = ot_state_settings(arena, request->settings),
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
      .record = request->loader
                    ? ot_data_record_print(request->loader, request->position.next_sample, arena)
                    : NULL,
      .state = request->state,
  };
}

static ot_status build_texts(ot_state_content *content, const ot_state_request *request,
                             const char *algorithms) {
  ot_arena *const arena = content->view.arena;
  const ot_dtype dtype = ot_runtime_copy_dtype(content->view.runtime, OT_COPY_WEIGHT);
  ot_hf_texts hf;
  OT_TRY(ot_hf_texts_build(arena, &request->run->model, dtype, request->tokenizer, &hf));
  memcpy(content->texts, hf.text, sizeof hf.text);
  int count = hf.count;
  if (algorithms) {
    const char *const table = ot_arena_text(arena, algorithms, ot_text_length(algorithms));
    content->texts[count++] =
        (ot_checkpoint_text){ot_state_table_name, table, ot_text_length(table)};
  }
  content->manifest = manifest_of(request, arena);
  content->files.texts = content->texts;
  content->files.num_texts = count;
  content->files.manifest = &content->manifest;
  return OT_OK;
}

// ---- all ranks ----

static void list_sources(ot_state_content *content) {
  const ot_state_view *const view = &content->view;
  const int n = view->map.num_tensors;
  ot_tensor_source *const model = ot_arena_array(view->arena, n, sizeof *model);
  ot_tensor_source *const optimizer =
      ot_arena_array(view->arena, (int64_t)n * (OT_STATE_KINDS - 1), sizeof *optimizer);
  ot_checkpoint_content *const files = &content->files;
  files->model = model;
  files->optimizer = optimizer;
  for (int i = 0; i < OT_STATE_KINDS; i++) {
    const ot_state_kind *const kind = &ot_state_kinds[i];
    if (!ot_state_has(view, kind)) continue;
    const bool weights = kind->set == OT_CHECKPOINT_MODEL;
    const int before = weights ? 0 : files->num_optimizer;
    const ot_weight_export what = ot_state_export(view, kind);
    int count = 0;
    content->places[i] = ot_arena_array(view->arena, n, sizeof **content->places);
    ot_weight_sources_build(view->arena, &what, weights ? model : optimizer + before, &count,
                            content->places[i]);
    *(weights ? &files->num_model : &files->num_optimizer) += count;
    for (int t = 0; t < n; t++)
      if (content->places[i][t].tensor >= 0) content->places[i][t].tensor += before;
  }
}

ot_status ot_state_content_build(ot_runtime *runtime, const ot_state_request *request,
                                 const char *algorithms, ot_arena *arena,
                                 ot_state_content *content) {
  *content = (ot_state_content){0};
  OT_TRY(ot_state_view_build(runtime, request->run, arena, &content->view));
  list_sources(content);
  return ot_world_is_leader(request->world) ? build_texts(content, request, algorithms) : OT_OK;
}
