// SPDX-License-Identifier: Apache-2.0
// From a path to loaded weights.
#include "runtime/model_files.h"

#include "base/text.h"

typedef struct instance_copy {
  ot_runtime *runtime;
  ot_parameter_copy copy;
} instance_copy;

static ot_status read_copy(void *context, const ot_weight_slice *rows, void *to) {
  const instance_copy *const c = context;
  const ot_parameter_rows range = {rows->parameter, c->copy, rows->first_row, rows->rows};
  return ot_runtime_read_leader(c->runtime, &range, to);
}

static void write_copy(void *context, const ot_weight_slice *rows, const void *from) {
  const instance_copy *const c = context;
  const ot_parameter_rows range = {rows->parameter, c->copy, rows->first_row, rows->rows};
  ot_runtime_write(c->runtime, &range, from);
}

static bool holds(void *context, const ot_weight_slice *rows) {
  const instance_copy *const c = context;
  const ot_parameter_rows range = {rows->parameter, c->copy, rows->first_row, rows->rows};
  return ot_runtime_holds(c->runtime, &range);
}

ot_weight_access ot_weight_access_of(ot_arena *arena, ot_runtime *runtime, ot_parameter_copy copy) {
  instance_copy *const context = ot_arena_take(arena, sizeof *context);
  *context = (instance_copy){runtime, copy};
  return (ot_weight_access){.dtype = ot_runtime_copy_dtype(runtime, copy),
                            .read = read_copy,
                            .write = write_copy,
                            .context = context,
                            .holds = holds};
}

static ot_status find_files(ot_model_files *files) {
  ot_arena *const arena = files->arena;
  const ot_checkpoint_search search = {.hashes = files->hashes, .known = &files->damages};
  ot_checkpoint_found found;
  OT_TRY(ot_checkpoint_find(arena, files->given, &search, &found));
  files->path = found.path;
  files->note = found.note;
  files->step = found.manifest ? found.manifest->step : 0;
  ot_config_model *const read = ot_arena_take(arena, sizeof *read);
  OT_TRY(ot_config_load_model(found.path, &files->request, arena, read));
  files->model = read->model;
  files->notes = read->notes;
  ot_checkpoint *checkpoint = NULL;
  OT_TRY(ot_checkpoint_create(found.path, &checkpoint));
  const char *const tokenizer = ot_checkpoint_file(checkpoint, "tokenizer.json");
  files->tokenizer = tokenizer ? ot_arena_format(arena, "%s", tokenizer) : NULL;
  ot_checkpoint_destroy(&checkpoint);
  return OT_OK;
}

ot_status ot_model_files_open(const char *path, ot_checkpoint_hashes hashes,
                              const ot_config_request *request, ot_arena *arena,
                              ot_model_files *files) {
  *files = (ot_model_files){.arena = arena,
                            .given = ot_arena_text(arena, path, ot_text_length(path)),
                            .hashes = hashes,
                            .request = *request};
  return find_files(files);
}

ot_status ot_model_files_fall_back(ot_model_files *files) {
  const uint64_t model = ot_model_hash(&files->model);
  const char *const damaged = files->path;
  ot_checkpoint_damage_add(files->arena, &files->damages, files->step, ot_fail_message());
  OT_TRY(find_files(files));
  OT_CHECK(ot_model_hash(&files->model) == model, OT_ENVIRONMENT,
           "%s is damaged, and the model of %s is another one", damaged, files->path);
  return OT_OK;
}

ot_status ot_model_files_open_init(const ot_run *run, ot_checkpoint_hashes hashes, ot_arena *arena,
                                   ot_model_files *files) {
  *files = (ot_model_files){0};
  if (ot_text_equal(run->init, "random")) return OT_OK;
  const ot_config_request request = {.sets = run->sets, .num_sets = run->num_sets};
  return ot_model_files_open(run->init, hashes, &request, arena, files);
}

static ot_status import(ot_runtime *runtime, const ot_model *files, ot_checkpoint *checkpoint,
                        ot_arena *arena) {
  const ot_graph *const graph = ot_runtime_whole_graph(runtime);
  ot_weight_map map;
  OT_TRY(ot_weight_map_build(arena, graph->parameters, graph->num_parameters, &map));
  map.files = files;
  ot_weight_access access[2];
  int num_access = 0;
  access[num_access++] = ot_weight_access_of(arena, runtime, OT_COPY_WEIGHT);
  if (ot_runtime_has_copy(runtime, OT_COPY_MASTER)) {
    access[num_access++] = ot_weight_access_of(arena, runtime, OT_COPY_MASTER);
  }
  const ot_weight_import into = {.map = &map, .access = access, .num_access = num_access};
  ot_weight_notes notes;
  return ot_weights_import(arena, &into, checkpoint, &notes);
}

ot_status ot_runtime_load_weights(ot_runtime *runtime, const ot_model_files *files, bool *damaged) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_checkpoint *checkpoint = NULL;
  ot_status status = ot_checkpoint_create(files->path, &checkpoint);
  if (status == OT_OK) status = import(runtime, &files->model, checkpoint, &arena);
  *damaged = status != OT_OK && checkpoint && ot_checkpoint_damage(checkpoint);
  ot_checkpoint_destroy(&checkpoint);
  ot_heap_release(&heap);
  if (status == OT_OK) ot_runtime_zero_moments(runtime);
  return status;
}

ot_status ot_model_files_runtime(ot_model_files *files, const ot_runtime_request *request,
                                 ot_runtime **runtime) {
  ot_runtime_request wanted = *request;
  wanted.rank.graph.model = &files->model;
  OT_TRY(ot_runtime_create(&wanted, runtime));
  bool damaged = false;
  ot_status status = ot_runtime_load_weights(*runtime, files, &damaged);
  while (damaged) {
    status = ot_model_files_fall_back(files);
    if (status != OT_OK) break;
    status = ot_runtime_load_weights(*runtime, files, &damaged);
  }
  if (status != OT_OK) ot_runtime_destroy(runtime);
  return status;
}
