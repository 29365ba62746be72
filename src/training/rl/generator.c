// SPDX-License-Identifier: Apache-2.0
#include "rl/generator.h"

#include <stdlib.h>

#include "base/extremes.h"
#include "checkpoint/elements.h"

enum { MOST_CHUNK = 2048 };

struct ot_rl_generator {
  ot_rl_generator_request request;
  ot_runtime *runtime;
  ot_inference *engine;
  char *scratch;  // of a parameter in its own type
};

// Weights on their way from a trainer.
typedef struct taking {
  ot_rl_generator *generator;
  ot_dtype dtype;
} taking;

static ot_status create(ot_rl_generator *g) {
  const ot_run *const run = g->request.run;
  const ot_dtype compute = ot_run_compute(&run->precision);
  const int64_t positions = g->request.prompt_tokens + g->request.max_tokens;
  // A step holds all prompts that begin in it, and with `recompute` all that is computed again.
  const int64_t rows =
      g->request.slots * (g->request.recompute ? positions : g->request.prompt_tokens);
  const ot_inference_shape shape = {
      .slots = g->request.slots,
      .chunk = ot_larger_whole(g->request.slots, ot_smaller_whole(rows, MOST_CHUNK)),
      .positions = positions};
  ot_runtime_request request = {
      .rank = {.graph = {.model = &run->model,
                         .compute = compute,
                         .storage = ot_run_storage(&run->precision),
                         .threads = run->threads,
                         .backend = ot_runtime_choose_device(run->device, 1),
                         .seed = (uint64_t)run->seed}},
      .may_fall_back = run->device == OT_DEVICE_AUTO};
  ot_inference_complete(&shape, &request.rank);
  OT_TRY(ot_runtime_create(&request, &g->runtime));
  const int64_t most = ot_graph_largest_parameter(ot_runtime_whole_graph(g->runtime));
  g->scratch = malloc((size_t)most * sizeof(double));
  OT_CHECK(g->scratch, OT_ENVIRONMENT, "out of memory for weights");
  return ot_inference_create(g->runtime, run->model.vocab_size, &g->engine);
}

ot_status ot_rl_generator_create(const ot_rl_generator_request *request, ot_rl_generator **out) {
  ot_rl_generator *const g = calloc(1, sizeof *g);
  *out = g;
  OT_CHECK(g, OT_ENVIRONMENT, "out of memory for a generator");
  g->request = *request;
  const ot_status status = create(g);
  if (status != OT_OK) ot_rl_generator_destroy(out);
  return status;
}

void ot_rl_generator_destroy(ot_rl_generator **generator) {
  if (!generator || !*generator) return;
  ot_inference_destroy(&(*generator)->engine);
  ot_runtime_destroy(&(*generator)->runtime);
  free((*generator)->scratch);
  free(*generator);
  *generator = NULL;
}

void ot_rl_generator_put(ot_rl_generator *generator, const ot_parameter *parameter, ot_dtype dtype,
                         const void *values, bool last) {
  ot_rl_generator *const g = generator;
  const ot_graph *const whole = ot_runtime_whole_graph(g->runtime);
  const ot_parameter_rows rows = {
      (int)(ot_graph_parameter(whole, parameter->name) - whole->parameters), OT_COPY_WEIGHT, 0,
      parameter->rows};
  ot_elements_convert(dtype, values, ot_runtime_copy_dtype(g->runtime, OT_COPY_WEIGHT), g->scratch,
                      ot_parameter_elements(parameter));
  ot_runtime_write(g->runtime, &rows, g->scratch);
  if (last) ot_inference_renew(g->engine, g->request.recompute);
}

static ot_status copy_parameter(void *context, const ot_parameter *parameter, const void *values,
                                bool last) {
  const taking *const t = context;
  ot_rl_generator_put(t->generator, parameter, t->dtype, values, last);
  return OT_OK;
}

ot_status ot_rl_generator_take(ot_rl_generator *generator, ot_rl_learner *from) {
  taking t = {generator, ot_runtime_copy_dtype(ot_rl_learner_runtime(from), OT_COPY_WEIGHT)};
  return ot_rl_learner_publish(from, &(ot_weight_taker){.take = copy_parameter, .context = &t});
}

static bool keep_token(void *context, const ot_token_event *event) {
  ot_rl_answer *const answer = context;
  answer->tokens[answer->count] = event->token;
  answer->behaviour[answer->count++] = event->score.logprob;
  answer->fresh = true;
  answer->ended = event->ends;
  return true;
}

static void finish(void *context, ot_finish how) {
  ot_rl_answer *const answer = context;
  answer->sequence = NULL;
  answer->done = true;
  answer->failed = how == OT_FINISH_NUMERIC;
}

ot_status ot_rl_generator_start(ot_rl_generator *generator, ot_rl_answer *answer) {
  const ot_rl_generator_request *const own = &generator->request;
  ot_sequence_request request = {
      .prompt = answer->prompt->tokens,
      .num_prompt = answer->prompt->num_tokens,
      .max_tokens = own->max_tokens,
      .draw = {.temperature = 1, .top_p = 1, .seed = own->seed, .choice = (uint64_t)answer->id},
      .token = keep_token,
      .finished = finish,
      .context = answer};
  ot_sequence_add_ends(&request, own->special.ends, own->special.num_ends);
  answer->count = 0;
  answer->ended = answer->done = answer->failed = answer->fresh = false;
  return ot_inference_add(generator->engine, &request, &answer->sequence);
}

void ot_rl_generator_cancel(ot_rl_generator *generator, ot_rl_answer *answer) {
  if (answer->sequence) ot_inference_cancel(generator->engine, answer->sequence);
}

ot_status ot_rl_generator_step(ot_rl_generator *generator, int64_t *rows) {
  const int64_t before = ot_inference_count(generator->engine).rows;
  OT_TRY(ot_inference_step(generator->engine));
  *rows = ot_inference_count(generator->engine).rows - before;
  return OT_OK;
}

bool ot_rl_generator_is_idle(const ot_rl_generator *generator) {
  return ot_inference_is_idle(generator->engine);
}

ot_runtime *ot_rl_generator_runtime(ot_rl_generator *generator) { return generator->runtime; }
