// SPDX-License-Identifier: Apache-2.0
// Two instances with the same weights: one for whole sequences, one that decodes.
#include "audit/probe.h"

#include <stdlib.h>

#include "base/text.h"
#include "checkpoint/elements.h"
#include "runtime/model_files.h"

struct ot_probe {
  ot_model model;
  int64_t sequences, tokens;
  ot_dtype compute;
  ot_instance *forward, *decoder;  // decoder null: none was asked for
  void *raw;                       // logits as they are handed out
};

// ---- weights ----

static bool has_master(const ot_instance *instance) {
  return ot_instance_has_copy(instance, OT_COPY_MASTER);
}

static ot_status read_parameter(ot_instance *instance, ot_arena *arena, ot_probe_weights *out,
                                int index) {
  const ot_parameter *const p = &out->graph->parameters[index];
  if (p->tied_to >= 0) return OT_OK;
  const int64_t bytes = ot_parameter_elements(p) * ot_dtype_bytes(out->dtype);
  const ot_parameter_copy copy = has_master(instance) ? OT_COPY_MASTER : OT_COPY_WEIGHT;
  const ot_parameter_rows range = {.parameter = index, .copy = copy, .rows = p->rows};
  out->values[index] = ot_arena_take(arena, bytes);
  return ot_instance_lead_read(instance, &range, out->values[index]);
}

static ot_status read_all(ot_instance *instance, ot_arena *arena, ot_probe_weights *out) {
  for (int i = 0; i < out->graph->num_parameters; i++) {
    OT_TRY(read_parameter(instance, arena, out, i));
  }
  return OT_OK;
}

ot_status ot_probe_weights_read(ot_instance *instance, ot_team *team, ot_probe_weights *out) {
  const ot_parameter_copy copy = has_master(instance) ? OT_COPY_MASTER : OT_COPY_WEIGHT;
  *out = (ot_probe_weights){.graph = ot_instance_whole(instance),
                            .dtype = ot_instance_copy_dtype(instance, copy)};
  if (!ot_team_leads(team)) return ot_team_agree(team, ot_instance_serve(instance));
  ot_arena arena = ot_heap_arena_create(&out->heap);
  out->values = ot_arena_array(&arena, out->graph->num_parameters, sizeof *out->values);
  const ot_status read = read_all(instance, &arena, out);
  const ot_status dismissed = ot_instance_dismiss(instance);
  return ot_team_agree(team, read != OT_OK ? read : dismissed);
}

void ot_probe_weights_release(ot_probe_weights *weights) { ot_heap_release(&weights->heap); }

static int find_source(const ot_probe_weights *weights, const char *name) {
  for (int i = 0; i < weights->graph->num_parameters; i++) {
    if (ot_text_equal(weights->graph->parameters[i].name, name)) return i;
  }
  return -1;
}

static ot_status load_parameter(ot_instance *instance, const ot_probe_weights *weights, int index) {
  const ot_parameter *const p = &ot_instance_whole(instance)->parameters[index];
  if (p->tied_to >= 0) return OT_OK;
  const int source = find_source(weights, p->name);
  OT_CHECK(source >= 0, OT_BUG, "probe: no weights of %s", p->name);
  const ot_dtype dtype = ot_instance_copy_dtype(instance, OT_COPY_WEIGHT);
  const int64_t count = ot_parameter_elements(p);
  void *const converted = malloc((size_t)(count * ot_dtype_bytes(dtype)));
  OT_CHECK(converted, OT_ENVIRONMENT, "out of memory for %s", p->name);
  ot_elements_convert(weights->dtype, weights->values[source], dtype, converted, count);
  const ot_parameter_rows range = {.parameter = index, .copy = OT_COPY_WEIGHT, .rows = p->rows};
  ot_instance_write(instance, &range, converted);
  free(converted);
  return OT_OK;
}

ot_status ot_probe_weights_load(const ot_probe_weights *weights, ot_instance *instance) {
  const int count = ot_instance_whole(instance)->num_parameters;
  for (int i = 0; i < count; i++) OT_TRY(load_parameter(instance, weights, i));
  return has_master(instance) ? ot_instance_reset_optimizer(instance) : OT_OK;
}

// ---- create ----

static ot_status read_instance(const char *path, const ot_instance_request *wanted,
                               ot_instance **instance) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_model_files files;
  const ot_config_request no_settings = {0};
  ot_status status =
      ot_model_files_open(path, OT_CHECKPOINT_HASH_WEIGHTS, &no_settings, &arena, &files);
  if (status == OT_OK) status = ot_model_files_instance(&files, wanted, instance);
  ot_heap_release(&heap);
  return status;
}

static ot_status create_instance(const ot_probe_request *request, ot_mode mode,
                                 ot_instance **instance) {
  const bool decodes = mode == OT_MODE_DECODE;
  const ot_instance_request wanted = {.model = request->model,
                                      .modes = 1u << mode,
                                      .micro_batch_size = decodes ? 1 : request->sequences,
                                      .sequence_length = decodes ? 1 : request->tokens,
                                      .cache_positions = decodes ? request->tokens : 0,
                                      .compute = request->compute,
                                      .storage = request->storage,
                                      .threads = request->threads};
  if (request->files) return read_instance(request->files, &wanted, instance);
  OT_TRY(ot_instance_create(&wanted, instance));
  return ot_probe_weights_load(request->weights, *instance);
}

static ot_status create(const ot_probe_request *request, ot_probe *probe) {
  probe->model = *request->model;
  probe->sequences = request->sequences;
  probe->tokens = request->tokens;
  probe->compute = request->compute;
  const int64_t rows = request->sequences * request->tokens;
  probe->raw = malloc((size_t)(rows * probe->model.vocab_size * ot_dtype_bytes(probe->compute)));
  OT_CHECK(probe->raw, OT_ENVIRONMENT, "out of memory for the logits of %lld tokens",
           (long long)rows);
  OT_TRY(create_instance(request, OT_MODE_LOGITS, &probe->forward));
  return request->decodes ? create_instance(request, OT_MODE_DECODE, &probe->decoder) : OT_OK;
}

ot_status ot_probe_create(const ot_probe_request *request, ot_probe **out) {
  ot_probe *probe = calloc(1, sizeof *probe);
  OT_CHECK(probe, OT_ENVIRONMENT, "out of memory");
  const ot_status status = create(request, probe);
  if (status != OT_OK) ot_probe_destroy(&probe);
  *out = probe;
  return status;
}

void ot_probe_destroy(ot_probe **probe) {
  if (!probe || !*probe) return;
  ot_instance_destroy(&(*probe)->forward);
  ot_instance_destroy(&(*probe)->decoder);
  free((*probe)->raw);
  free(*probe);
  *probe = NULL;
}

// ---- change ----

ot_status ot_probe_reload(ot_probe *probe, const ot_probe_weights *weights) {
  return ot_probe_weights_load(weights, probe->forward);
}

// ---- ask ----

static void read_logits(ot_probe *probe, ot_instance *instance, ot_mode mode, int64_t rows,
                        double *logits) {
  const int64_t count = rows * probe->model.vocab_size;
  ot_instance_read_result(instance, mode, OT_RESULT_LOGITS, probe->raw,
                          count * ot_dtype_bytes(probe->compute));
  ot_elements_convert(probe->compute, probe->raw, OT_F64, logits, count);
}

ot_status ot_probe_forward(ot_probe *probe, const ot_rows *rows, double *logits) {
  const ot_mode mode = OT_MODE_LOGITS;
  ot_instance *const instance = probe->forward;
  OT_ASSERT(rows->B == probe->sequences && rows->T == probe->tokens);
  ot_instance_load_batch(instance, mode, 0, OT_BATCH_TOKENS, rows->tokens);
  ot_instance_load_batch(instance, mode, 0, OT_BATCH_POSITIONS, rows->positions);
  ot_instance_load_batch(instance, mode, 0, OT_BATCH_DOC_STARTS, rows->doc_starts);
  ot_instance_load_batch(instance, mode, 0, OT_BATCH_SAMPLE_IDS, rows->sample_ids);
  ot_executor_set_scalar(ot_instance_executor(instance), OT_SCALAR_INVERSE_SEQUENCES,
                         1.0 / (double)rows->B);
  OT_TRY(ot_instance_run(instance, mode, 0));
  read_logits(probe, instance, mode, rows->B * rows->T, logits);
  return OT_OK;
}

void ot_probe_expert_sums(const ot_probe *probe, double sums[OT_EXPERT_SUMS]) {
  ot_instance_expert_sums(probe->forward, sums);
}

ot_status ot_probe_decode(ot_probe *probe, const int32_t *tokens, int64_t count, double *logits) {
  const ot_mode mode = OT_MODE_DECODE;
  ot_instance *const instance = probe->decoder;
  OT_ASSERT(instance && count <= probe->tokens);
  for (int64_t i = 0; i < count; i++) {
    const int32_t at = (int32_t)i;
    ot_instance_load_batch(instance, mode, 0, OT_BATCH_TOKENS, &tokens[i]);
    ot_instance_load_batch(instance, mode, 0, OT_BATCH_POSITIONS, &at);
    ot_instance_load_batch(instance, mode, 0, OT_BATCH_LENGTHS, &at);
    OT_TRY(ot_instance_run(instance, mode, 0));
    read_logits(probe, instance, mode, 1, logits + i * probe->model.vocab_size);
  }
  return OT_OK;
}
