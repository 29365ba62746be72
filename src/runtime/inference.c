// SPDX-License-Identifier: Apache-2.0
// Prefill processes the prompt except its last token; decode starts with that one. Scoring needs
// one pass.
#include "runtime/inference.h"

#include <math.h>
#include <stdlib.h>

#include "base/math.h"
#include "base/rng.h"

enum { DRAW_STREAM = 0x67656e };

// ---- prefill ----

static ot_status prefill(ot_runtime *runtime, const ot_generate_request *request) {
  const ot_graph *const graph = ot_runtime_graph(runtime, OT_MODE_PREFILL);
  const int64_t rows = graph->request.sequence_length;
  const int64_t count = request->num_prompt - 1;
  OT_CHECK(count <= rows, OT_BUG, "generate: the prompt has %lld tokens, at most %lld fit",
           (long long)request->num_prompt, (long long)rows + 1);
  if (count == 0) return OT_OK;
  int32_t *const fields = calloc((size_t)rows * 3, sizeof *fields);
  OT_CHECK(fields, OT_ENVIRONMENT, "generate: out of memory");
  // Tokens after the prompt are padding: decode overwrites their cache entries.
  for (int64_t i = 0; i < rows; i++) {
    fields[i] = i < count ? request->prompt[i] : 0;
    fields[rows + i] = (int32_t)i;
  }
  const int64_t sample = 0;
  const int32_t length = 0;
  ot_runtime_load_batch(runtime, OT_MODE_PREFILL, 0, OT_BATCH_TOKENS, fields);
  ot_runtime_load_batch(runtime, OT_MODE_PREFILL, 0, OT_BATCH_POSITIONS, fields + rows);
  ot_runtime_load_batch(runtime, OT_MODE_PREFILL, 0, OT_BATCH_DOC_STARTS, fields + 2 * rows);
  ot_runtime_load_batch(runtime, OT_MODE_PREFILL, 0, OT_BATCH_SAMPLE_IDS, &sample);
  ot_runtime_load_batch(runtime, OT_MODE_PREFILL, 0, OT_BATCH_LENGTHS, &length);
  free(fields);
  return ot_runtime_run(runtime, OT_MODE_PREFILL, 0);
}

// ---- decode ----

// Work buffers of one generation.
typedef struct generation {
  ot_runtime *runtime;
  const ot_generate_request *request;
  void *raw;       // [vocabulary of the model] of the compute dtype
  double *logits;  // [vocabulary of the model]
} generation;

// Runs `token` at `position`; fills the logits.
static ot_status decode(const generation *g, int32_t token, int64_t position) {
  ot_runtime *const runtime = g->runtime;
  const int32_t at = (int32_t)position;
  const ot_graph_request *const shape = &ot_runtime_graph(runtime, OT_MODE_DECODE)->request;
  ot_runtime_load_batch(runtime, OT_MODE_DECODE, 0, OT_BATCH_TOKENS, &token);
  ot_runtime_load_batch(runtime, OT_MODE_DECODE, 0, OT_BATCH_POSITIONS, &at);
  ot_runtime_load_batch(runtime, OT_MODE_DECODE, 0, OT_BATCH_LENGTHS, &at);
  OT_TRY(ot_runtime_run(runtime, OT_MODE_DECODE, 0));
  const int64_t bytes = shape->model->vocab_size * ot_dtype_bytes(shape->compute);
  ot_runtime_read_result(runtime, OT_MODE_DECODE, OT_RESULT_LOGITS, g->raw, bytes);
  for (int64_t i = 0; i < shape->model->vocab_size; i++) {
    g->logits[i] = shape->compute == OT_F64 ? ((double *)g->raw)[i] : (double)((float *)g->raw)[i];
  }
  return OT_OK;
}

static int32_t most_probable(const double *logits, int64_t n) {
  int64_t best = 0;
  for (int64_t i = 1; i < n; i++) best = logits[i] > logits[best] ? i : best;
  return (int32_t)best;
}

// Draws from softmax(logits / temperature) by inverting the cumulative sum at a uniform number.
static int32_t draw(double *logits, int64_t n, double temperature, double uniform) {
  const double top = logits[most_probable(logits, n)];
  double sum = 0;
  for (int64_t i = 0; i < n; i++) {
    logits[i] = ot_exp((logits[i] - top) / temperature);
    sum += logits[i];
  }
  double left = uniform * sum;
  for (int64_t i = 0; i < n; i++) {
    left -= logits[i];
    if (left < 0) return (int32_t)i;
  }
  return (int32_t)(n - 1);
}

static ot_status generate(const generation *g, ot_generate_sink sink, void *context) {
  const ot_generate_request *const request = g->request;
  int32_t token = request->prompt[request->num_prompt - 1];
  for (int64_t i = 0; i < request->max_tokens; i++) {
    OT_TRY(decode(g, token, request->num_prompt - 1 + i));
    const double uniform = ot_rng_uniform(request->seed, DRAW_STREAM, (uint64_t)i);
    token = request->temperature > 0
                ? draw(g->logits, request->vocab_size, request->temperature, uniform)
                : most_probable(g->logits, request->vocab_size);
    if (token == request->stop || !sink(context, token)) return OT_OK;
  }
  return OT_OK;
}

ot_status ot_generate(ot_runtime *runtime, const ot_generate_request *request,
                      ot_generate_sink sink, void *context) {
  const int64_t vocab = ot_runtime_any_graph(runtime)->request.model->vocab_size;
  OT_CHECK(request->num_prompt > 0, OT_USAGE, "generate: the prompt has no token");
  for (int64_t i = 0; i < request->num_prompt; i++) {
    OT_CHECK(request->prompt[i] >= 0 && request->prompt[i] < vocab, OT_USAGE,
             "generate: token %d of the prompt is %d, but the vocabulary has %lld tokens", (int)i,
             request->prompt[i], (long long)vocab);
  }
  OT_TRY(prefill(runtime, request));
  const generation g = {.runtime = runtime,
                        .request = request,
                        .raw = malloc((size_t)vocab * sizeof(double)),
                        .logits = malloc((size_t)vocab * sizeof(double))};
  const ot_status status = g.raw && g.logits ? generate(&g, sink, context)
                                             : ot_fail(OT_ENVIRONMENT, "generate: out of memory");
  free(g.raw);
  free(g.logits);
  return status;
}

static ot_status check(const ot_runtime *runtime, const ot_score_request *request) {
  const ot_graph_request *const shape = &ot_runtime_graph(runtime, OT_MODE_SCORE)->request;
  OT_CHECK(request->count >= 1 && request->count <= shape->sequence_length, OT_BUG,
           "score: %ld tokens, at most %ld fit", request->count, shape->sequence_length);
  for (int64_t i = 0; i < request->count; i++) {
    OT_CHECK(request->tokens[i] >= 0 && request->tokens[i] < shape->model->vocab_size, OT_USAGE,
             "token %ld is %d, but the vocabulary has %ld tokens", i, request->tokens[i],
             shape->model->vocab_size);
  }
  return OT_OK;
}

static void load(ot_runtime *runtime, const ot_score_request *request, int64_t T, int32_t *fields) {
  const int64_t sample = 0;
  for (int64_t t = 0; t < T; t++) {
    fields[t] = t < request->count ? request->tokens[t] : 0;
    fields[T + t] = t + 1 < request->count ? request->tokens[t + 1] : -1;
    fields[2 * T + t] = (int32_t)t;
    fields[3 * T + t] = 0;
  }
  ot_runtime_load_batch(runtime, OT_MODE_SCORE, 0, OT_BATCH_TOKENS, fields);
  ot_runtime_load_batch(runtime, OT_MODE_SCORE, 0, OT_BATCH_TARGETS, fields + T);
  ot_runtime_load_batch(runtime, OT_MODE_SCORE, 0, OT_BATCH_POSITIONS, fields + 2 * T);
  ot_runtime_load_batch(runtime, OT_MODE_SCORE, 0, OT_BATCH_DOC_STARTS, fields + 3 * T);
  ot_runtime_load_batch(runtime, OT_MODE_SCORE, 0, OT_BATCH_SAMPLE_IDS, &sample);
}

static ot_status score(ot_runtime *runtime, const ot_score_request *request, double *logprobs,
                       bool *greedy, int32_t *fields) {
  const int64_t T = ot_runtime_graph(runtime, OT_MODE_SCORE)->request.sequence_length;
  load(runtime, request, T, fields);
  OT_TRY(ot_runtime_run(runtime, OT_MODE_SCORE, 0));
  logprobs[0] = NAN;
  greedy[0] = false;
  const int64_t scored = request->count - 1;
  ot_runtime_read_result(runtime, OT_MODE_SCORE, OT_RESULT_LOGPROBS, logprobs + 1, scored * 8);
  ot_runtime_read_result(runtime, OT_MODE_SCORE, OT_RESULT_GREEDY, fields, scored * 4);
  for (int64_t i = 0; i < scored; i++) greedy[i + 1] = fields[i] == request->tokens[i + 1];
  return OT_OK;
}

ot_status ot_score(ot_runtime *runtime, const ot_score_request *request, double *logprobs,
                   bool *greedy) {
  OT_TRY(check(runtime, request));
  const int64_t T = ot_runtime_graph(runtime, OT_MODE_SCORE)->request.sequence_length;
  int32_t *const fields = malloc((size_t)T * 4 * sizeof *fields);
  OT_CHECK(fields, OT_ENVIRONMENT, "score: out of memory");
  const ot_status status = score(runtime, request, logprobs, greedy, fields);
  free(fields);
  return status;
}
