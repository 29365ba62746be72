// SPDX-License-Identifier: Apache-2.0
// From a path to loaded weights.
#include "runtime/model_files.h"

#include "base/text.h"
#include "checkpoint/checkpoint_list.h"

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

ot_status ot_model_files_open(const char *path, ot_checkpoint_hashes hashes,
                              const ot_config_request *request, ot_arena *arena,
                              ot_model_files *files) {
  *files = (ot_model_files){0};
  ot_checkpoint_found found;
  OT_TRY(ot_checkpoint_find(arena, path, &(ot_checkpoint_search){.hashes = hashes}, &found));
  files->path = found.path;
  files->note = found.note;
  ot_config_model *const read = ot_arena_take(arena, sizeof *read);
  OT_TRY(ot_config_load_model(found.path, request, arena, read));
  files->model = read->model;
  files->notes = read->notes;
  ot_checkpoint *checkpoint = NULL;
  OT_TRY(ot_checkpoint_create(found.path, false, &checkpoint));
  const char *const tokenizer = ot_checkpoint_file(checkpoint, "tokenizer.json");
  files->tokenizer = tokenizer ? ot_arena_format(arena, "%s", tokenizer) : NULL;
  ot_checkpoint_destroy(&checkpoint);
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

ot_status ot_runtime_load_weights(ot_runtime *runtime, const ot_model_files *files) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_checkpoint *checkpoint = NULL;
  ot_status status = ot_checkpoint_create(files->path, false, &checkpoint);
  if (status == OT_OK) status = import(runtime, &files->model, checkpoint, &arena);
  ot_checkpoint_destroy(&checkpoint);
  ot_heap_release(&heap);
  if (status == OT_OK) ot_runtime_zero_moments(runtime);
  return status;
}

ot_status ot_model_files_runtime(const ot_model_files *files, const ot_runtime_request *request,
                                 ot_runtime **runtime) {
  ot_runtime_request wanted = *request;
  wanted.model = &files->model;
  OT_TRY(ot_runtime_create(&wanted, runtime));
  const ot_status status = ot_runtime_load_weights(*runtime, files);
  if (status != OT_OK) ot_runtime_destroy(runtime);
  return status;
}
