// SPDX-License-Identifier: Apache-2.0
// A teacher is a model runtime in score mode on micro-batches of the run, or on a server.
#include "distill/teacher.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sort.h"
#include "base/text.h"
#include "distill/remote_teacher.h"
#include "files/content_hash.h"
#include "files/disk.h"

struct ot_teacher {
  ot_heap heap;
  ot_teacher_request request;
  ot_model_files files;
  ot_runtime *runtime;
  ot_remote_teacher *remote;  // in place of files and runtime, or null
  double *logprobs, *entropy;
  int32_t *ids;
  float *weights;
};

// ---- create ----

static ot_status open_files(const char *path, ot_arena *arena, ot_model_files *files) {
  static const ot_config_request no_settings = {0};
  return ot_model_files_open(path, OT_CHECKPOINT_HASH_HEADERS, &no_settings, arena, files);
}

static ot_status check_tokenizer(const ot_teacher *t, const ot_tokenizer *tokenizer) {
  if (!tokenizer || !t->files.tokenizer) return OT_OK;
  char own[OT_CONTENT_HASH_BYTES], wanted[OT_CONTENT_HASH_BYTES];
  ot_tokenizer *teachers = NULL;
  OT_TRY(ot_tokenizer_create(t->files.tokenizer, &teachers));
  ot_tokenizer_hash(teachers, own);
  ot_tokenizer_hash(tokenizer, wanted);
  ot_tokenizer_destroy(&teachers);
  if (ot_text_equal(own, wanted)) return OT_OK;
  ot_fail(OT_USAGE, "distill.teacher: its tokenizer has hash %s, that of data.tokenizer is %s (%s)",
          own, wanted, t->files.tokenizer);
  return ot_fail_hint(OT_USAGE, "a teacher and its student need the same tokens");
}

static ot_status check_model(const ot_teacher *t) {
  const ot_run *const run = t->request.run;
  const ot_model *const model = &t->files.model;
  OT_CHECK(model->vocab_size <= run->model.vocab_size, OT_USAGE,
           "distill.teacher: its vocab_size=%lld exceeds the model's %lld (%s)",
           (long long)model->vocab_size, (long long)run->model.vocab_size, t->files.path);
  OT_CHECK(run->data.sequence_length <= model->max_positions, OT_USAGE,
           "distill.teacher: data.sequence_length=%lld exceeds its max_position_embeddings=%lld "
           "(%s)",
           (long long)run->data.sequence_length, (long long)model->max_positions, t->files.path);
  return OT_OK;
}

int64_t ot_teacher_ids(const ot_run *run) {
  const ot_run_distill *const d = &run->distill;
  return d->objective == OT_DISTILL_REVERSE_KL ? 0 : d->targets - (d->alpha < 1);
}

static ot_runtime_request runtime_request_of(const ot_teacher_request *request) {
  const ot_run *const run = request->run;
  const ot_dtype wide = ot_run_compute(&run->precision);
  const bool sampled = run->distill.objective == OT_DISTILL_SAMPLED;
  return (ot_runtime_request){.rank = {.modes = 1u << OT_MODE_SCORE,
                                       .graph = {.micro_batch_size = run->batch.micro_batch_size,
                                                 .sequence_length = run->data.sequence_length,
                                                 .compute = wide,
                                                 .storage = wide,
                                                 .threads = request->threads,
                                                 .backend = request->backend,
                                                 .draw_ids = request->ids,
                                                 .draws = sampled ? run->distill.draws : 0}},
                              .ordinal = request->ordinal,
                              .may_fall_back = run->device == OT_DEVICE_AUTO};
}

static ot_status create(ot_teacher *t, const ot_tokenizer *tokenizer) {
  const ot_run *const run = t->request.run;
  const int64_t rows = run->batch.micro_batch_size * run->data.sequence_length;
  ot_arena arena = ot_heap_arena_create(&t->heap);
  t->logprobs = ot_arena_array(&arena, rows, sizeof *t->logprobs);
  t->entropy = ot_arena_array(&arena, rows, sizeof *t->entropy);
  t->ids = ot_arena_array(&arena, rows * t->request.ids + 1, sizeof *t->ids);
  t->weights = ot_arena_array(&arena, rows * t->request.ids + 1, sizeof *t->weights);
  if (run->distill.from == OT_DISTILL_SERVER) {
    return ot_remote_teacher_create(run, tokenizer, &t->remote);
  }
  OT_TRY(open_files(run->distill.teacher, &arena, &t->files));
  OT_TRY(check_tokenizer(t, tokenizer));
  OT_TRY(check_model(t));
  const ot_runtime_request request = runtime_request_of(&t->request);
  return ot_model_files_runtime(&t->files, &request, &t->runtime);
}

ot_status ot_teacher_create(const ot_teacher_request *request, const ot_tokenizer *tokenizer,
                            ot_teacher **out) {
  ot_teacher *teacher = calloc(1, sizeof *teacher);
  *out = NULL;
  OT_CHECK(teacher, OT_ENVIRONMENT, "out of memory (%s)", request->run->distill.teacher);
  teacher->request = *request;
  const ot_status status = create(teacher, tokenizer);
  if (status != OT_OK) ot_teacher_destroy(&teacher);
  *out = teacher;
  return status;
}

void ot_teacher_destroy(ot_teacher **teacher) {
  if (!teacher || !*teacher) return;
  ot_remote_teacher_destroy(&(*teacher)->remote);
  ot_runtime_destroy(&(*teacher)->runtime);
  ot_heap_release(&(*teacher)->heap);
  free(*teacher);
  *teacher = NULL;
}

ot_status ot_teacher_plan(const ot_teacher_request *request, ot_arena *arena, ot_schedule *schedule,
                          int64_t *parameters) {
  ot_model_files *const files = ot_arena_take(arena, sizeof *files);
  ot_graph *const graphs = ot_arena_array(arena, OT_MODES, sizeof *graphs);
  OT_TRY(open_files(request->run->distill.teacher, arena, files));
  ot_runtime_request own = runtime_request_of(request);
  own.rank.graph.model = &files->model;
  *parameters = ot_model_parameters(&files->model);
  return ot_runtime_plan(&own.rank, arena, graphs, schedule);
}

// ---- asking ----

static ot_status run_model(ot_teacher *teacher, const ot_micro_batch *rows, const int64_t *keys) {
  const ot_mode mode = OT_MODE_SCORE;
  const int64_t R = rows->B * rows->T, K = teacher->request.ids;
  ot_runtime *const runtime = teacher->runtime;
  const void *const fields[] = {[OT_BATCH_TOKENS] = rows->tokens,
                                [OT_BATCH_TARGETS] = rows->targets,
                                [OT_BATCH_POSITIONS] = rows->positions,
                                [OT_BATCH_DOC_STARTS] = rows->doc_starts,
                                [OT_BATCH_SAMPLE_IDS] = rows->sample_ids};
  for (int i = 0; i < OT_COUNT(fields); i++) {
    ot_runtime_load_batch(runtime, mode, 0, (ot_batch_field)i, fields[i]);
  }
  if (K > 0) ot_runtime_load_batch(runtime, mode, 0, OT_BATCH_KEYS, keys);
  OT_TRY(ot_runtime_run(runtime, mode, 0));
  ot_runtime_read_result(runtime, mode, OT_RESULT_LOGPROBS, teacher->logprobs, R * 8);
  if (K == 0) return OT_OK;
  ot_runtime_read_result(runtime, mode, OT_RESULT_ENTROPY, teacher->entropy, R * 8);
  ot_runtime_read_result(runtime, mode, OT_RESULT_IDS, teacher->ids, R * K * 4);
  ot_runtime_read_result(runtime, mode, OT_RESULT_WEIGHTS, teacher->weights, R * K * 4);
  return OT_OK;
}

ot_status ot_teacher_ask(ot_teacher *teacher, const ot_micro_batch *rows, const int64_t *keys,
                         ot_teacher_answer *answer) {
  const ot_lesson_places places = {teacher->logprobs, teacher->entropy, teacher->ids,
                                   teacher->weights};
  OT_TRY(teacher->remote ? ot_remote_teacher_ask(teacher->remote, rows, keys, &places)
                         : run_model(teacher, rows, keys));
  *answer = (ot_teacher_answer){.logprobs = teacher->logprobs};
  if (teacher->request.ids == 0) return OT_OK;
  answer->entropy = teacher->entropy;
  answer->ids = teacher->ids;
  answer->weights = teacher->weights;
  return OT_OK;
}

// ---- hash ----

static bool is_hashed(const char *name) {
  const bool weights = ot_text_ends_with(name, ".safetensors") && name[0] == 'm';
  return weights || ot_text_equal(name, "config.json");
}

static int by_name(const void *a, const void *b, const void *context) {
  (void)context;
  return strcmp(*(char *const *)a, *(char *const *)b);
}

static ot_status hash_file(const char *path, const char *name, ot_content_hash *hash) {
  int file;
  int64_t bytes = 0;
  OT_TRY(ot_disk_open(path, &file));
  ot_status status = ot_disk_size(file, path, INT64_MAX, &bytes);
  ot_content_hash_update(hash, name, ot_text_length(name));
  ot_content_hash_update(hash, &bytes, sizeof bytes);
  if (status == OT_OK) status = ot_content_hash_range(hash, file, path, 0, bytes);
  close(file);
  return status;
}

static ot_status hash_files(const char *directory, ot_arena *arena, ot_content_hash *hash) {
  ot_disk_names names;
  OT_TRY(ot_disk_list(arena, directory, &names));
  ot_sort(names.name, names.count, sizeof *names.name, (ot_ordering){by_name, NULL}, arena);
  for (int64_t i = 0; i < names.count; i++) {
    if (!is_hashed(names.name[i])) continue;
    OT_TRY(hash_file(ot_disk_join(arena, directory, names.name[i]), names.name[i], hash));
  }
  return OT_OK;
}

ot_status ot_teacher_hash(const char *path, char hex[OT_CONTENT_HASH_BYTES]) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_model_files files;
  ot_content_hash *hash = NULL;
  ot_status status = open_files(path, &arena, &files);
  if (status == OT_OK) status = ot_content_hash_create(&hash);
  if (status == OT_OK) status = hash_files(files.path, &arena, hash);
  if (status == OT_OK) ot_content_hash_print(hash, hex);
  ot_content_hash_destroy(&hash);
  ot_heap_release(&heap);
  return status;
}
