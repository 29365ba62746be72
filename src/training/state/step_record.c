// SPDX-License-Identifier: Apache-2.0
// The file of tensors of a rank: its layout is known before the step, so that values go to it when
// they are there, without a copy of the state.
#include "state/step_record.h"

#include <stdlib.h>

#include "base/text.h"
#include "files/disk.h"
#include "state/step_record_parts.h"

// ---- kinds ----

static const struct {
  const char *name;
  ot_parameter_copy copy;
  bool after;
} kinds[] = {
    {"weight", OT_COPY_WEIGHT, false},      {"m_before", OT_COPY_MOMENT_1, false},
    {"v_before", OT_COPY_MOMENT_2, false},  {"master", OT_COPY_MASTER, false},
    {"grad", OT_COPY_GRADIENT, true},       {"after", OT_COPY_WEIGHT, true},
    {"m", OT_COPY_MOMENT_1, true},          {"v", OT_COPY_MOMENT_2, true},
    {"master_after", OT_COPY_MASTER, true},
};

enum { IDS, LABELS, POSITIONS, DOCUMENTS, FIELDS };
static const char *const field_names[FIELDS] = {"ids", "labels", "positions", "documents"};

// ---- the layout ----

static void add(ot_step_record *record, const ot_recorded_values *values,
                ot_safetensors_tensor *tensors, const ot_safetensors_tensor *tensor) {
  record->values[record->num_values] = *values;
  tensors[record->num_values] = *tensor;
  tensors[record->num_values++].name = values->key;
}

// The shape of the values in the file: that of their block, or a list.
static ot_safetensors_tensor stored_tensor(const ot_held_tensors *held, int tensor) {
  const ot_safetensors_tensor *const whole = &held->whole.tensors[tensor];
  int64_t offset[OT_SAFETENSORS_DIMS];
  ot_safetensors_tensor stored = {.type = whole->type, .rank = whole->rank};
  if (ot_held_block(&held->tensors[tensor], whole, offset, stored.dim)) return stored;
  stored.rank = 1;
  stored.dim[0] = held->tensors[tensor].elements;
  return stored;
}

static void add_kind(ot_step_record *record, int kind, ot_safetensors_tensor *tensors) {
  const ot_held_tensors *const held = &record->held[kinds[kind].copy];
  for (int i = 0; i < held->whole.num_tensors; i++) {
    if (held->tensors[i].elements == 0) continue;
    const ot_safetensors_tensor stored = stored_tensor(held, i);
    const char *const key =
        ot_arena_format(&record->arena, "%s/%s", kinds[kind].name, held->whole.tensors[i].name);
    const ot_recorded_values values = {
        .key = key, .held = held, .tensor = i, .after = kinds[kind].after};
    add(record, &values, tensors, &stored);
  }
}

static void add_batches(ot_step_record *record, ot_safetensors_tensor *tensors) {
  const ot_run *const run = record->request.run;
  const ot_safetensors_tensor stored = {
      .type = OT_SAFETENSORS_I32,
      .rank = 2,
      .dim = {run->batch.micro_batch_size, run->data.sequence_length}};
  for (int m = 0; m < record->request.micro_batches; m++) {
    for (int field = 0; field < FIELDS; field++) {
      const ot_recorded_values values = {
          .key = ot_arena_format(&record->arena, "batch/%d.%s", m, field_names[field]),
          .tensor = field,
          .micro_batch = m};
      add(record, &values, tensors, &stored);
    }
  }
}

static ot_status lay_out(ot_step_record *record) {
  ot_arena *const arena = &record->arena;
  const int world_rank = ot_world_rank(record->request.world);
  int64_t most = (int64_t)record->request.micro_batches * FIELDS;
  for (int i = 0; i < OT_COUNT(kinds); i++) most += record->held[kinds[i].copy].whole.num_tensors;
  ot_safetensors_tensor *const tensors = ot_arena_array(arena, most, sizeof *tensors);
  record->values = ot_arena_array(arena, most, sizeof *record->values);
  for (int i = 0; i < OT_COUNT(kinds); i++) add_kind(record, i, tensors);
  add_batches(record, tensors);
  const ot_safetensors_request request = {.stem = ot_arena_format(arena, "rank-%05d", world_rank),
                                          .num_tensors = record->num_values,
                                          .tensors = tensors};
  return ot_safetensors_layout_build(arena, &request, &record->file);
}

// ---- create ----

static ot_status create(ot_step_record *record) {
  const ot_step_record_request *const request = &record->request;
  const char *const directory = request->directory;
  ot_arena *const arena = &record->arena;
  record->text_path =
      ot_arena_format(arena, "%s/rank-%05d.json", directory, ot_world_rank(request->world));
  record->config_path = ot_disk_join(arena, directory, "config.json");
  OT_TRY(ot_state_view_build(request->runtime, request->run, arena, &record->view));
  ot_held_access_build(&record->view, &record->access);
  for (int copy = 0; copy < OT_COPIES; copy++) {
    if (!ot_runtime_has_copy(request->runtime, (ot_parameter_copy)copy)) continue;
    OT_TRY(ot_held_build(&record->access, (ot_parameter_copy)copy, &record->held[copy]));
  }
  OT_TRY(lay_out(record));
  OT_TRY(ot_safetensors_files_create(directory, &record->file));
  OT_TRY(ot_safetensors_writer_create(directory, &record->file, &record->writer));
  return ot_safetensors_write_header(record->writer, 0);
}

ot_status ot_step_record_create(const ot_step_record_request *request, ot_step_record **out) {
  ot_step_record *const record = calloc(1, sizeof *record);
  *out = record;
  OT_CHECK(record, OT_ENVIRONMENT, "out of memory for the record of a step");
  record->arena = ot_heap_arena_create(&record->heap);
  record->request = *request;
  return create(record);
}

void ot_step_record_destroy(ot_step_record **record) {
  if (!*record) return;
  ot_safetensors_writer_destroy(&(*record)->writer);
  ot_heap_release(&(*record)->heap);
  free(*record);
  *record = NULL;
}

// ---- values ----

typedef struct values_writing {
  ot_step_record *record;
  int index;  // of the values
} values_writing;

static ot_status write_range(void *context, int64_t first, int64_t count, const void *data) {
  const values_writing *const w = context;
  const ot_recorded_values *const values = &w->record->values[w->index];
  const int64_t position = ot_held_position(&values->held->tensors[values->tensor], first);
  return ot_safetensors_write(w->record->writer, (ot_safetensors_range){w->index, position, count},
                              data);
}

static ot_status write_state(ot_step_record *record, bool after) {
  for (int i = 0; i < record->num_values; i++) {
    const ot_recorded_values *const values = &record->values[i];
    if (!values->held || values->after != after) continue;
    values_writing writing = {record, i};
    const ot_held_receiver receiver = {write_range, &writing};
    OT_TRY(ot_held_read(values->held, values->tensor, &receiver));
  }
  return OT_OK;
}

ot_status ot_step_record_write_before(ot_step_record *record) { return write_state(record, false); }

ot_status ot_step_record_write_after(ot_step_record *record) { return write_state(record, true); }

ot_status ot_step_record_write_batch(ot_step_record *record, int micro_batch,
                                     const ot_micro_batch *rows) {
  const int32_t *const fields[FIELDS] = {[IDS] = rows->tokens,
                                         [LABELS] = rows->targets,
                                         [POSITIONS] = rows->positions,
                                         [DOCUMENTS] = rows->doc_starts};
  for (int i = 0; i < record->num_values; i++) {
    const ot_recorded_values *const values = &record->values[i];
    if (values->held || values->micro_batch != micro_batch) continue;
    OT_TRY(ot_safetensors_write_tensor(record->writer, i, fields[values->tensor]));
  }
  return OT_OK;
}

// ---- texts ----

static ot_status write_config(const ot_step_record *record, ot_arena *arena) {
  const ot_step_record_request *const request = &record->request;
  ot_hf_texts texts;
  OT_TRY(ot_hf_texts_build(arena, &request->run->model,
                           ot_runtime_copy_dtype(request->runtime, OT_COPY_WEIGHT),
                           request->tokenizer, &texts));
  for (int i = 0; i < texts.count; i++) {
    const ot_checkpoint_text *const text = &texts.text[i];
    if (!ot_text_equal(text->name, "config.json")) continue;
    return ot_disk_write(record->config_path, text->text, text->bytes);
  }
  OT_UNREACHABLE();
}

static ot_status write_texts(const ot_step_record *record, ot_arena *arena,
                             const ot_step_record_numbers *numbers) {
  const char *const text = ot_step_record_text(record, arena, numbers);
  OT_TRY(ot_disk_write(record->text_path, text, ot_text_length(text)));
  if (!ot_world_is_leader(record->request.world)) return OT_OK;
  return write_config(record, arena);
}

ot_status ot_step_record_finish(ot_step_record *record, const ot_step_record_numbers *numbers) {
  OT_TRY(ot_safetensors_writer_sync(record->writer));
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_status status = write_texts(record, &arena, numbers);
  ot_heap_release(&heap);
  return status;
}

void ot_step_record_remove(const ot_step_record *record) {
  char path[OT_PATH_BYTES];
  if (!record || !record->text_path) return;
  ot_text_format(path, sizeof path, "%s/rank-%05d.safetensors", record->request.directory,
                 ot_world_rank(record->request.world));
  (void)ot_disk_remove(path);
  (void)ot_disk_remove(record->text_path);
  if (ot_world_is_leader(record->request.world)) (void)ot_disk_remove(record->config_path);
}
