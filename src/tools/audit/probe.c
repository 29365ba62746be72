// SPDX-License-Identifier: Apache-2.0
// A model runtime in one mode, its batch and its results.
#include "audit/probe.h"

#include <stdlib.h>

#include "checkpoint/elements.h"
#include "ops/decode.h"
#include "runtime/model_files.h"

static ot_status read_instance(const char *path, const ot_runtime_request *wanted,
                               ot_runtime **out) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_model_files files;
  const ot_config_request no_settings = {0};
  ot_status status =
      ot_model_files_open(path, OT_CHECKPOINT_HASH_HEADERS, &no_settings, &arena, &files);
  if (status == OT_OK) status = ot_model_files_runtime(&files, wanted, out);
  ot_heap_release(&heap);
  return status;
}

ot_status ot_probe_create(const ot_probe_request *request, ot_runtime **out) {
  const int64_t pages = (request->tokens + OT_PAGE_SLOTS - 1) / OT_PAGE_SLOTS;
  const ot_runtime_request wanted = {.rank = {.modes = 1u << request->mode,
                                              .graph = {.model = request->model,
                                                        .micro_batch_size = request->sequences,
                                                        .sequence_length = request->tokens,
                                                        .cache = {1, pages * OT_PAGE_SLOTS, pages},
                                                        .compute = request->compute,
                                                        .storage = request->storage,
                                                        .threads = request->threads,
                                                        .backend = request->backend}}};
  *out = NULL;
  if (request->files) return read_instance(request->files, &wanted, out);
  return ot_runtime_create(&wanted, out);
}

static const ot_graph_request *shape_of(const ot_runtime *probe) {
  return &ot_runtime_any_graph(probe)->request;
}

// `count` rows of logits, as float64.
static ot_status run(ot_runtime *probe, int64_t count, double *logits) {
  const ot_graph_request *const shape = shape_of(probe);
  const int64_t n = count * shape->model->vocab_size;
  const int64_t bytes = n * ot_dtype_bytes(shape->compute);
  OT_TRY(ot_runtime_run(probe, shape->mode, 0));
  void *const raw = malloc((size_t)bytes);
  OT_CHECK(raw, OT_ENVIRONMENT, "out of memory for the logits of %lld tokens", (long long)count);
  ot_runtime_read_result(probe, shape->mode, OT_RESULT_LOGITS, raw, bytes);
  ot_elements_convert(shape->compute, raw, OT_F64, logits, n);
  free(raw);
  return OT_OK;
}

static void load(ot_runtime *probe, ot_batch_field field, const void *values) {
  ot_runtime_load_batch(probe, shape_of(probe)->mode, 0, field, values);
}

static ot_status decode(ot_runtime *probe, const ot_micro_batch *rows, double *logits) {
  const int32_t sequence = 0;
  const int64_t count = shape_of(probe)->cache.pages;
  int32_t *const pages = malloc((size_t)count * sizeof *pages);
  OT_CHECK(pages, OT_ENVIRONMENT, "out of memory");
  for (int64_t i = 0; i < count; i++) pages[i] = (int32_t)i;
  load(probe, OT_BATCH_SEQUENCES, &sequence);
  load(probe, OT_BATCH_PAGES, pages);
  free(pages);
  for (int64_t i = 0; i < rows->T; i++) {
    const int32_t at = (int32_t)i;
    load(probe, OT_BATCH_TOKENS, &rows->tokens[i]);
    load(probe, OT_BATCH_POSITIONS, &at);
    OT_TRY(run(probe, 1, logits + i * shape_of(probe)->model->vocab_size));
  }
  return OT_OK;
}

static void load_rows(ot_runtime *probe, const ot_micro_batch *rows) {
  load(probe, OT_BATCH_TOKENS, rows->tokens);
  load(probe, OT_BATCH_POSITIONS, rows->positions);
  load(probe, OT_BATCH_DOC_STARTS, rows->doc_starts);
  load(probe, OT_BATCH_SAMPLE_IDS, rows->sample_ids);
}

ot_status ot_probe_ask(ot_runtime *probe, const ot_micro_batch *rows, double *logits) {
  if (shape_of(probe)->mode == OT_MODE_DECODE) return decode(probe, rows, logits);
  load_rows(probe, rows);
  ot_executor_set_scalar(ot_runtime_executor(probe), OT_SCALAR_INVERSE_SEQUENCES,
                         1.0 / (double)rows->B);
  return run(probe, rows->B * rows->T, logits);
}

ot_status ot_probe_score(ot_runtime *probe, const ot_micro_batch *rows, double *logprobs) {
  const int64_t bytes = rows->B * rows->T * (int64_t)sizeof *logprobs;
  load_rows(probe, rows);
  load(probe, OT_BATCH_TARGETS, rows->targets);
  OT_TRY(ot_runtime_run(probe, OT_MODE_SCORE, 0));
  ot_runtime_read_result(probe, OT_MODE_SCORE, OT_RESULT_LOGPROBS, logprobs, bytes);
  return OT_OK;
}
