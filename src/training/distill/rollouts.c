// SPDX-License-Identifier: Apache-2.0
// The engine writes all sequences of a micro-batch at once.
#include "distill/rollouts.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 128 };  // tokens of an iteration of the engine

struct ot_rollouts {
  const ot_run *run;
  ot_special_tokens special;
  ot_runtime *runtime;
  ot_inference *engine;
};

// A sequence that is being written.
typedef struct sequence {
  ot_micro_batch *rows;
  int64_t first;  // its first row
  double *logprobs;
  int64_t end;  // rows with a token or a target
} sequence;

static ot_status create(ot_rollouts *r, int threads) {
  const ot_run *const run = r->run;
  const ot_dtype wide = ot_run_compute(&run->precision);
  const int64_t B = run->batch.micro_batch_size, T = run->data.sequence_length;
  const ot_inference_shape shape = {.slots = B, .chunk = B > CHUNK ? B : CHUNK, .positions = T + 1};
  ot_runtime_request request = {
      .rank = {
          .graph = {.model = &run->model, .compute = wide, .storage = wide, .threads = threads}}};
  ot_inference_complete(&shape, &request.rank);
  OT_TRY(ot_runtime_create(&request, &r->runtime));
  return ot_inference_create(r->runtime, run->model.vocab_size, &r->engine);
}

ot_status ot_rollouts_create(const ot_run *run, const ot_tokenizer *tokenizer, int threads,
                             ot_rollouts **out) {
  ot_rollouts *rollouts = calloc(1, sizeof *rollouts);
  *out = NULL;
  OT_CHECK(rollouts, OT_ENVIRONMENT, "out of memory (distill)");
  rollouts->run = run;
  if (tokenizer) rollouts->special = ot_special_tokens_of(tokenizer, &run->model);
  const ot_status status = create(rollouts, threads);
  if (status != OT_OK) ot_rollouts_destroy(&rollouts);
  *out = rollouts;
  return status;
}

void ot_rollouts_destroy(ot_rollouts **rollouts) {
  if (!rollouts || !*rollouts) return;
  ot_inference_destroy(&(*rollouts)->engine);
  ot_runtime_destroy(&(*rollouts)->runtime);
  free(*rollouts);
  *rollouts = NULL;
}

ot_status ot_rollouts_renew(ot_rollouts *rollouts, ot_runtime *student) {
  OT_TRY(ot_runtime_copy_weights(student, rollouts->runtime));
  ot_inference_renew(rollouts->engine, true);
  return OT_OK;
}

// Token `index` follows row index - 1 and, but for the last, is that of row `index`.
static bool keep_token(void *context, const ot_token_event *event) {
  sequence *const s = context;
  const int64_t T = s->rows->T, row = s->first + event->index;
  s->rows->targets[row - 1] = event->token;
  s->logprobs[row - 1] = event->score.logprob;
  if (event->index < T) s->rows->tokens[row] = event->token;
  s->end = event->index;
  return true;
}

static void finish(void *context, ot_finish how) {
  (void)context;
  (void)how;
}

static ot_status begin(ot_rollouts *r, sequence *s, int64_t sample) {
  const ot_run *const run = r->run;
  const int64_t prompt = run->distill.prompt_tokens;
  ot_sequence_request request = {.prompt = s->rows->tokens + s->first,
                                 .num_prompt = prompt,
                                 .max_tokens = s->rows->T + 1 - prompt,
                                 .draw = {.temperature = 1,
                                          .top_p = 1,
                                          .seed = (uint64_t)run->seed,
                                          .choice = (uint64_t)sample},
                                 .token = keep_token,
                                 .finished = finish,
                                 .context = s};
  ot_sequence_add_ends(&request, r->special.ends, r->special.num_ends);
  return ot_inference_add(r->engine, &request, NULL);
}

// Rows of a written sequence: one document, and after its end tokens that attend to themselves.
static void complete(const ot_run *run, const sequence *s) {
  ot_micro_batch *const rows = s->rows;
  const int64_t T = rows->T, prompt = run->distill.prompt_tokens;
  for (int64_t t = 0; t < T; t++) {
    const bool inside = t < s->end;
    rows->positions[s->first + t] = inside ? (int32_t)t : 0;
    rows->doc_starts[s->first + t] = inside ? 0 : (int32_t)t;
    if (!inside) rows->tokens[s->first + t] = 0;
    if (!inside) rows->targets[s->first + t] = -1;
    if (t < prompt - 1) {
      rows->targets[s->first + t] = run->distill.alpha < 1 ? rows->tokens[s->first + t + 1] : -1;
    }
  }
}

ot_status ot_rollouts_write(ot_rollouts *rollouts, ot_micro_batch *rows, double *logprobs) {
  const int64_t R = rows->B * rows->T;
  sequence *const sequences = calloc((size_t)rows->B, sizeof *sequences);
  OT_CHECK(sequences, OT_ENVIRONMENT, "out of memory (distill)");
  ot_status status = OT_OK;
  memset(logprobs, 0, (size_t)R * sizeof *logprobs);
  for (int64_t b = 0; b < rows->B && status == OT_OK; b++) {
    sequences[b] = (sequence){.rows = rows, .first = b * rows->T, .logprobs = logprobs};
    status = begin(rollouts, &sequences[b], rows->sample_ids[b]);
  }
  if (status == OT_OK) status = ot_inference_run(rollouts->engine);
  rows->num_targets = 0;
  for (int64_t b = 0; b < rows->B && status == OT_OK; b++) complete(rollouts->run, &sequences[b]);
  for (int64_t i = 0; i < R; i++) rows->num_targets += rows->targets[i] >= 0;
  free(sequences);
  return status;
}
