// SPDX-License-Identifier: Apache-2.0
// Speed of inference of GPT-2 124M in float32: tokens generated per second by several sequences at
// once, compared with what reading the weights once per iteration allows, and prompt tokens per
// second, compared with the forward of training. Each figure and what it is compared with are
// measured in turns, and the median of their paired ratios is printed.
#include <stdio.h>
#include <stdlib.h>

#include "host/clock.h"
#include "host/cores.h"
#include "runtime/inference.h"
#include "runtime/model_files.h"
#include "support/bench_program.h"
#include "support/bench_step.h"

enum { MOST_SLOTS = 64 };

typedef struct settings {
  int64_t context, tokens, prompt, chunk;
  int threads, repeats;
  bool json;
  ot_model_files *files;  // of --weights, or null
} settings;

// One number of sequences.
typedef struct figure {
  int64_t slots;
  double tokens_per_s, bound_per_s, ratio;
} figure;

// Without files, weights of one value: speed does not depend on it, and random ones take longer
// than the rest.
static ot_status fill_weights(const settings *s, ot_runtime *runtime) {
  const ot_schedule *const schedule = ot_runtime_schedule(runtime);
  bool damaged = false;
  ot_executor_fill(ot_runtime_executor(runtime), 0, 0x3c, schedule->arena_bytes);
  return s->files ? ot_runtime_load_weights(runtime, s->files, &damaged) : OT_OK;
}

static ot_status create(const settings *s, const ot_model *model, ot_inference_shape shape,
                        ot_runtime **runtime, ot_inference **engine) {
  ot_runtime_request request = {
      .rank = {
          .graph = {.model = model, .compute = OT_F32, .storage = OT_F32, .threads = s->threads}}};
  ot_inference_complete(&shape, &request.rank);
  OT_TRY(ot_runtime_create(&request, runtime));
  OT_TRY(fill_weights(s, *runtime));
  return ot_inference_create(*runtime, model->vocab_size, engine);
}

// Prompts differ, so that nothing is found in the cache.
static void fill_prompt(int32_t *tokens, int64_t count, int64_t which) {
  for (int64_t i = 0; i < count; i++) tokens[i] = (int32_t)((i * 7919 + which * 104729) % 50257);
}

static ot_status add(ot_inference *engine, int64_t count, int64_t max_tokens, bool scores) {
  static int64_t which = 0;
  int32_t *const tokens = malloc((size_t)count * sizeof *tokens);
  OT_CHECK(tokens, OT_ENVIRONMENT, "out of memory");
  fill_prompt(tokens, count, which++);
  const ot_status status = ot_inference_add(
      engine,
      &(ot_sequence_request){
          .prompt = tokens, .num_prompt = count, .max_tokens = max_tokens, .scores = scores},
      NULL);
  free(tokens);
  return status;
}

// ---- generation ----

// Sums up `data` on the threads; its bytes are read as fast as they allow.
static double sum_of(const float *data, int64_t count, int threads) {
  double sum = 0;
#pragma omp parallel for num_threads(threads) reduction(+ : sum)
  for (int64_t block = 0; block < count / 4096; block++) {
    float lanes[64] = {0};
    const float *const from = data + block * 4096;
    for (int i = 0; i < 4096; i += 64) {
      for (int l = 0; l < 64; l++) lanes[l] += from[i + l];
    }
    for (int l = 0; l < 64; l++) sum += (double)lanes[l];
  }
  return sum;
}

// Iterations per second that read the weights once each, as often as tokens are generated.
static double reads_per_s(const settings *s, const float *data, int64_t count) {
  volatile double kept = 0;
  const double start_s = ot_clock_s();
  for (int64_t i = 0; i < s->tokens; i++) kept = kept + sum_of(data, count, s->threads);
  return (double)s->tokens / (ot_clock_s() - start_s);
}

// Tokens per second of `slots` sequences that have read their prompts.
static ot_status generate(ot_inference *engine, const settings *s, int64_t slots, double *rate) {
  for (int64_t i = 0; i < slots; i++) OT_TRY(add(engine, s->context, s->tokens + 2, false));
  while (ot_inference_count(engine).generated_tokens % ((s->tokens + 2) * slots) < slots) {
    OT_TRY(ot_inference_step(engine));
  }
  const int64_t before = ot_inference_count(engine).generated_tokens;
  const double start_s = ot_clock_s();
  for (int64_t i = 0; i < s->tokens; i++) OT_TRY(ot_inference_step(engine));
  const int64_t made = ot_inference_count(engine).generated_tokens - before;
  *rate = (double)made / (ot_clock_s() - start_s);
  return ot_inference_run(engine);
}

static ot_status measure_slots(const settings *s, const ot_model *model, figure *f) {
  const ot_inference_shape shape = {
      .slots = f->slots, .chunk = s->chunk, .positions = s->context + s->tokens + 2};
  ot_runtime *runtime = NULL;
  ot_inference *engine = NULL;
  OT_TRY(create(s, model, shape, &runtime, &engine));
  const int64_t weights = ot_runtime_schedule(runtime)->memory.class_bytes[OT_MEMORY_WEIGHTS];
  float *const copy = malloc((size_t)weights);
  for (int64_t i = 0; copy && i < weights / (int64_t)sizeof *copy; i++) copy[i] = 1;
  ot_status status = copy ? OT_OK : ot_fail(OT_ENVIRONMENT, "out of memory");
  double rates[OT_BENCH_REPEATS], bounds[OT_BENCH_REPEATS], ratios[OT_BENCH_REPEATS];
  for (int i = 0; status == OT_OK && i < s->repeats; i++) {
    status = generate(engine, s, f->slots, &rates[i]);
    bounds[i] = reads_per_s(s, copy, weights / (int64_t)sizeof *copy) * (double)f->slots;
    ratios[i] = rates[i] / bounds[i];
  }
  f->tokens_per_s = ot_bench_median(rates, s->repeats);
  f->bound_per_s = ot_bench_median(bounds, s->repeats);
  f->ratio = ot_bench_median(ratios, s->repeats);
  free(copy);
  ot_inference_destroy(&engine);
  ot_runtime_destroy(&runtime);
  return status;
}

// ---- prompts ----

// The forward of training scores the same number of tokens.
static ot_status create_forward(const settings *s, const ot_model *model, ot_runtime **runtime) {
  const ot_runtime_request request = {.rank = {.modes = 1u << OT_MODE_SCORE,
                                               .graph = {.model = model,
                                                         .micro_batch_size = 1,
                                                         .sequence_length = s->prompt,
                                                         .compute = OT_F32,
                                                         .storage = OT_F32,
                                                         .threads = s->threads}}};
  OT_TRY(ot_runtime_create(&request, runtime));
  OT_TRY(fill_weights(s, *runtime));
  int32_t *const values = calloc((size_t)s->prompt, sizeof *values);
  OT_CHECK(values, OT_ENVIRONMENT, "out of memory");
  const int64_t sample = 0;
  ot_runtime_load_batch(*runtime, OT_MODE_SCORE, 0, OT_BATCH_DOC_STARTS, values);
  fill_prompt(values, s->prompt, 0);
  ot_runtime_load_batch(*runtime, OT_MODE_SCORE, 0, OT_BATCH_TOKENS, values);
  ot_runtime_load_batch(*runtime, OT_MODE_SCORE, 0, OT_BATCH_TARGETS, values);
  for (int64_t i = 0; i < s->prompt; i++) values[i] = (int32_t)i;
  ot_runtime_load_batch(*runtime, OT_MODE_SCORE, 0, OT_BATCH_POSITIONS, values);
  ot_runtime_load_batch(*runtime, OT_MODE_SCORE, 0, OT_BATCH_SAMPLE_IDS, &sample);
  free(values);
  return OT_OK;
}

static ot_status measure_pairs(const settings *s, ot_inference *engine, ot_runtime *forward,
                               figure *f) {
  double rates[OT_BENCH_REPEATS], bounds[OT_BENCH_REPEATS], ratios[OT_BENCH_REPEATS];
  OT_TRY(ot_runtime_run(forward, OT_MODE_SCORE, 0));
  for (int i = 0; i < s->repeats; i++) {
    OT_TRY(add(engine, s->prompt, 0, true));
    const double start_s = ot_clock_s();
    OT_TRY(ot_inference_run(engine));
    const double middle_s = ot_clock_s();
    OT_TRY(ot_runtime_run(forward, OT_MODE_SCORE, 0));
    rates[i] = (double)s->prompt / (middle_s - start_s);
    bounds[i] = (double)s->prompt / (ot_clock_s() - middle_s);
    ratios[i] = rates[i] / bounds[i];
  }
  f->tokens_per_s = ot_bench_median(rates, s->repeats);
  f->bound_per_s = ot_bench_median(bounds, s->repeats);
  f->ratio = ot_bench_median(ratios, s->repeats);
  return OT_OK;
}

static ot_status measure_prompt(const settings *s, const ot_model *model, figure *f) {
  const ot_inference_shape shape = {.slots = 1, .chunk = s->chunk, .positions = s->prompt};
  ot_runtime *runtime = NULL, *forward = NULL;
  ot_inference *engine = NULL;
  ot_status status = create(s, model, shape, &runtime, &engine);
  if (status == OT_OK) status = create_forward(s, model, &forward);
  if (status == OT_OK) status = measure_pairs(s, engine, forward, f);
  ot_inference_destroy(&engine);
  ot_runtime_destroy(&runtime);
  ot_runtime_destroy(&forward);
  return status;
}

// ---- command line ----

static void print_decode(const settings *s, const figure *f) {
  const char *const format =
      s->json ? "{\"slots\":%lld,\"context\":%lld,\"tokens_per_second\":%.6g,"
                "\"bound_tokens_per_second\":%.6g,\"of_bound\":%.4f}\n"
              : "%3lld sequences after %lld tokens: %8.1f tokens/s; one read of the weights for "
                "each: %8.1f tokens/s; of it %5.3f\n";
  printf(format, (long long)f->slots, (long long)s->context, f->tokens_per_s, f->bound_per_s,
         f->ratio);
}

static void print_prefill(const settings *s, const figure *f) {
  const char *const format =
      s->json
          ? "{\"prompt\":%lld,\"chunk\":%lld,\"tokens_per_second\":%.6g,"
            "\"forward_tokens_per_second\":%.6g,\"of_forward\":%.4f}\n"
          : "prompt of %lld tokens, scored %lld at a time: %8.1f tokens/s; forward of training: "
            "%8.1f tokens/s; of it %5.3f\n";
  printf(format, (long long)s->prompt, (long long)s->chunk, f->tokens_per_s, f->bound_per_s,
         f->ratio);
}

static ot_status run_program(const ot_options *o) {
  settings s = {.context = ot_options_integer(o, "context"),
                .tokens = ot_options_integer(o, "tokens"),
                .prompt = ot_options_integer(o, "prompt"),
                .chunk = ot_options_integer(o, "chunk"),
                .threads = (int)ot_options_integer(o, "threads"),
                .repeats = (int)ot_options_integer(o, "repeats"),
                .json = ot_options_json(o)};
  if (s.threads == 0) s.threads = ot_host_cores();
  OT_CHECK(s.context + s.tokens + 2 <= 1024, OT_USAGE,
           "--context and --tokens make more than 1024 tokens");
  ot_model_files files;
  ot_model model = ot_bench_gpt2();
  const char *const weights = ot_options_text(o, "weights");
  if (weights) {
    const ot_config_request plain = {0};
    OT_TRY(ot_model_files_open(weights, OT_CHECKPOINT_HASH_HEADERS, &plain, ot_options_arena(o),
                               &files));
    s.files = &files;
    model = files.model;
  }
  figure prompt = {0};
  if (!ot_options_flag(o, "no-prompt")) {
    OT_TRY(measure_prompt(&s, &model, &prompt));
    print_prefill(&s, &prompt);
  }
  const int64_t most = ot_options_integer(o, "slots");
  for (int64_t slots = 1; slots <= most; slots *= 2) {
    figure f = {.slots = slots};
    OT_TRY(measure_slots(&s, &model, &f));
    print_decode(&s, &f);
  }
  return OT_OK;
}

static const ot_option options[] = {
    {"slots", OT_OPTION_INTEGER, "N", "16", 1, MOST_SLOTS, .help = "1, 2, 4 ... sequences up to N"},
    {"context", OT_OPTION_INTEGER, "T", "128", 1, 1000, .help = "tokens before the generated ones"},
    {"tokens", OT_OPTION_INTEGER, "N", "32", 1, 1000,
     .help = "tokens that each sequence generates"},
    {"prompt", OT_OPTION_INTEGER, "T", "1024", 2, 1024, .help = "tokens of the scored prompt"},
    {"chunk", OT_OPTION_INTEGER, "N", "256", MOST_SLOTS, 4096, .help = "tokens of an iteration"},
    {"weights", OT_OPTION_PATH, "DIR",
     .help =
         "a checkpoint or HF directory of GPT-2's vocabulary; default: GPT-2 124M of one value"},
    {"no-prompt", OT_OPTION_FLAG, .help = "generation only"},
    {"threads", OT_OPTION_INTEGER, "N", NULL, 1, 4096,
     .help = "threads; default: the machine's cores"},
    {"repeats", OT_OPTION_INTEGER, "R", "3", 1, OT_BENCH_REPEATS, .help = "repetitions per median"},
};

const ot_verb ot_bench_program = {
    .prefix = OT_BENCH_PREFIX,
    .name = "decode",
    .summary = "generation and prompts of GPT-2 124M, against the memory and the training forward",
    .arguments = "",
    .options = options,
    .num_options = OT_COUNT(options),
    .json = true,
    .run = run_program,
};
