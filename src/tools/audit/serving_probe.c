// SPDX-License-Identifier: Apache-2.0
// The text, and two rotations of it as the others.
#include "audit/serving_probe.h"

#include <math.h>
#include <stdlib.h>

#include "runtime/inference.h"

enum { SEQUENCES = 3, CHUNK = 16 };

static bool keep_token(void *context, const ot_token_event *event) {
  double *const logprobs = context;
  if (event->index > 0) logprobs[event->index - 1] = event->score.logprob;
  return true;
}

// `rotated` [T]. The engine copies them.
static ot_status add(ot_inference *engine, const ot_serving_probe *p, int i, int32_t *rotated,
                     double *logprobs) {
  const int64_t T = p->rows->T;
  for (int64_t t = 0; t < T; t++) rotated[t] = p->rows->tokens[(t + i * T / SEQUENCES) % T];
  const ot_sequence_request request = {.prompt = rotated,
                                       .num_prompt = T,
                                       .scores = true,
                                       .token = i == 0 ? keep_token : NULL,
                                       .context = logprobs};
  return ot_inference_add(engine, &request, NULL);
}

static ot_status score(const ot_serving_probe *p, ot_inference *engine, double *logprobs) {
  int32_t *const rotated = malloc((size_t)p->rows->T * sizeof *rotated);
  OT_CHECK(rotated, OT_ENVIRONMENT, "out of memory");
  ot_status status = OT_OK;
  for (int i = 0; i < SEQUENCES && status == OT_OK; i++) {
    status = add(engine, p, i, rotated, logprobs);
  }
  free(rotated);
  return status == OT_OK ? ot_inference_run(engine) : status;
}

ot_status ot_serving_probe_ask(const ot_serving_probe *probe, double *logprobs, bool *serves) {
  const ot_moe *const moe = &probe->model->moe;
  const ot_inference_shape shape = {
      .slots = SEQUENCES, .chunk = CHUNK, .positions = probe->rows->T};
  ot_runtime_request request = {
      .rank = {
          .graph = {.model = probe->model, .compute = probe->compute, .storage = probe->compute}}};
  request.rank.graph.backend = ot_runtime_backend(probe->weights);
  *serves = moe->num_experts == 0 || moe->routing == OT_MOE_DROPLESS;
  if (!*serves) return OT_OK;
  ot_runtime *runtime = NULL;
  ot_inference *engine = NULL;
  ot_inference_complete(&shape, &request.rank);
  for (int64_t t = 0; t < probe->rows->T; t++) logprobs[t] = NAN;
  ot_status status = ot_runtime_create(&request, &runtime);
  if (status == OT_OK) status = ot_runtime_copy_weights(probe->weights, runtime);
  if (status == OT_OK) {
    status = ot_inference_create(runtime, probe->model->vocab_size, &engine);
  }
  if (status == OT_OK) status = score(probe, engine, logprobs);
  ot_inference_destroy(&engine);
  ot_runtime_destroy(&runtime);
  return status;
}
