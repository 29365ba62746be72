// SPDX-License-Identifier: Apache-2.0
// Saves at once, by way of state_save.h; loads tensor by tensor.
#include "state/training_state.h"

#include <string.h>

#include "base/text.h"
#include "files/disk.h"
#include "host/heap.h"
#include "runtime/model_files.h"
#include "state/file_relay.h"
#include "state/state_content.h"
#include "state/state_save.h"

void ot_position_advance(ot_position *position, int64_t sequences, int64_t tokens) {
  position->step++;
  position->next_sample += sequences;
  position->tokens += tokens;
}

ot_status ot_position_compare(const ot_position *a, const ot_position *b) {
  if (memcmp(a, b, sizeof *a) == 0) return OT_OK;
  return ot_fail(OT_FINDINGS,
                 "the audit of state found 1: two copies of the run's counters differ: step %lld "
                 "and %lld, next sample %lld and %lld, tokens %lld and %lld",
                 (long long)a->step, (long long)b->step, (long long)a->next_sample,
                 (long long)b->next_sample, (long long)a->tokens, (long long)b->tokens);
}

// ---- save ----

ot_status ot_training_state_save(ot_runtime *runtime, const ot_state_request *request) {
  ot_state_save *save = NULL;
  const ot_folder_access access = ot_folder_access_all(request->world);
  ot_status status = ot_state_save_create(runtime, request->world, &access, false, &save);
  status = ot_world_agree(request->world, status);
  if (status == OT_OK) status = ot_state_save_start(save, request);
  if (status == OT_OK) status = ot_state_save_wait(save);
  ot_state_save_destroy(&save);
  return status;
}

// ---- load ----

// The rounding of moments that the checkpoint has in a wider type; null: none.
static const char *find_rounding(const ot_state_view *v, const ot_checkpoint *checkpoint) {
  const ot_safetensors *const files = ot_checkpoint_tensors(checkpoint, OT_CHECKPOINT_OPTIMIZER);
  const ot_dtype kept = ot_runtime_copy_dtype(v->runtime, OT_COPY_MOMENT_1);
  for (int i = 0; i < ot_safetensors_count(files); i++) {
    const ot_safetensors_tensor *const found = ot_safetensors_tensor_at(files, i);
    ot_dtype dtype = kept;
    if (!ot_text_starts_with(found->name, "m.")) continue;
    if (!ot_safetensors_type_dtype(found->type, &dtype)) continue;
    if (ot_dtype_bytes(dtype) <= ot_dtype_bytes(kept)) continue;
    return ot_arena_format(v->arena, "moments in %s are rounded to %s (precision.moments)",
                           ot_dtype_name(dtype), ot_dtype_name(kept));
  }
  return NULL;
}

static ot_status load_notes(const ot_state_view *v, ot_checkpoint *checkpoint,
                            ot_state_request *request) {
  ot_checkpoint_text table = {.name = ot_state_table_name};
  OT_TRY(ot_checkpoint_read_text(checkpoint, v->arena, &table));
  const char *const rounding = find_rounding(v, checkpoint);
  const char *const algorithms =
      table.text
          ? ot_executor_read_algorithms(ot_runtime_executor(v->runtime), table.text, v->arena)
          : NULL;
  if (!(rounding || algorithms) || !ot_world_is_leader(request->world)) return OT_OK;
  const bool both = rounding && algorithms;
  request->note = strdup(ot_arena_format(v->arena, "%s%s%s", rounding ? rounding : "",
                                         both ? "\n" : "", algorithms ? algorithms : ""));
  OT_CHECK(request->note, OT_ENVIRONMENT, "out of memory (%s)", request->path);
  return OT_OK;
}

static ot_status load(const ot_state_view *v, ot_checkpoint *checkpoint,
                      ot_state_request *request) {
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
  for (int i = 0; i < OT_STATE_KINDS; i++) {
    const ot_state_kind *const kind = &ot_state_kinds[i];
    if (kind->set != OT_CHECKPOINT_OPTIMIZER || !ot_state_has(v, kind)) continue;
    const ot_weight_export state = ot_state_export(v, kind);
    OT_TRY(ot_weights_restore(v->arena, &state, checkpoint));
  }
  OT_TRY(ot_checkpoint_check_complete(checkpoint, OT_CHECKPOINT_OPTIMIZER));
  OT_TRY(load_notes(v, checkpoint, request));
  request->position = (ot_position){
      .step = manifest->step, .next_sample = manifest->next_sample, .tokens = manifest->tokens};
  return OT_OK;
}

// The files are those of `source`; null: of this machine.
static ot_status load_from(ot_runtime *runtime, ot_state_request *request, ot_arena *arena,
                           const ot_file_source *source) {
  ot_state_view v;
  ot_checkpoint *checkpoint = NULL;
  ot_status status = ot_state_view_build(runtime, request->run, arena, &v);
  if (status == OT_OK) status = ot_checkpoint_create_from(source, request->path, &checkpoint);
  if (status == OT_OK) status = load(&v, checkpoint, request);
  request->damaged = status != OT_OK && checkpoint && ot_checkpoint_damage(checkpoint);
  ot_checkpoint_destroy(&checkpoint);
  return status;
}

// Ranks that see the checkpoint first read for those that do not.
static ot_status load_relayed(ot_runtime *runtime, ot_state_request *request, ot_arena *arena,
                              ot_file_relay *relay) {
  const ot_file_source *const source = ot_file_relay_source(relay);
  if (!source) OT_TRY(ot_file_relay_answer(relay, request->path));
  const ot_status status = load_from(runtime, request, arena, source);
  if (source) (void)ot_file_relay_leave(relay);
  return status;
}

static ot_status load_seen(ot_runtime *runtime, ot_state_request *request, ot_arena *arena) {
  const char *const manifest = ot_disk_join(arena, request->path, "manifest.json");
  ot_folder_access access;
  ot_file_relay *relay = NULL;
  request->damaged = false;
  OT_TRY(ot_folder_access_find(request->world, manifest, arena, &access));
  OT_TRY(ot_world_agree(request->world, ot_file_relay_create(request->world, &access, &relay)));
  const ot_status status = relay ? load_relayed(runtime, request, arena, relay)
                                 : load_from(runtime, request, arena, NULL);
  ot_file_relay_destroy(&relay);
  return status;
}

ot_status ot_training_state_load(ot_runtime *runtime, ot_state_request *request) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_status status = load_seen(runtime, request, &arena);
  ot_heap_release(&heap);
  return ot_world_agree_on_damage(request->world, status, &request->damaged);
}
