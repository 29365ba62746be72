// SPDX-License-Identifier: Apache-2.0
// Speed of a MoE model compared with the dense model of equal active size, alternating: dense,
// experts, dense, experts... A token of the MoE model uses k experts of width F, one of the dense
// model an MLP of width k F; attention, embedding and head are the same. Compares the rate of
// forward and backward: model FLOPs per second (GEMMs of received tokens, router included). On a
// shared machine processor time is more reliable than wall time, so both are reported; processor
// time as the share of forward and backward in the process's time for a step
// (OMP_WAIT_POLICY=passive, so that waiting threads use none).
//   bench/experts [--experts E] [--per-token K] [--batch B] [--threads N] [--repeats R] [--phases]
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "files/config_file.h"
#include "host/cores.h"
#include "support/bench_program.h"
#include "support/bench_step.h"

enum { HIDDEN = 512, ACTIVE_WIDTH = 2048, VOCABULARY = 4096, SEQUENCE = 512, LAYERS = 4 };

typedef struct settings {
  int experts, per_token, batch, threads, repeats;
  bool phases, json;
} settings;

// One of the two models.
typedef struct subject {
  ot_runtime *runtime;
  int order;
  double model_flops;
  double seconds[OT_BENCH_REPEATS];    // of F, R and B
  double processor[OT_BENCH_REPEATS];  // the same as processor time of all threads
} subject;

static const char dense_model[] =
    "{\"model\":{\"model_type\":\"llama\",\"vocab_size\":%d,\"hidden_size\":%d,"
    "\"intermediate_size\":%d,\"num_hidden_layers\":%d,\"num_attention_heads\":8,"
    "\"num_key_value_heads\":4,\"head_dim\":64,\"max_position_embeddings\":%d}%s";

static const char expert_model[] =
    "{\"model\":{\"model_type\":\"mixtral\",\"vocab_size\":%d,\"hidden_size\":%d,"
    "\"intermediate_size\":%d,\"num_hidden_layers\":%d,\"num_attention_heads\":8,"
    "\"num_key_value_heads\":4,\"head_dim\":64,\"max_position_embeddings\":%d,"
    "\"num_local_experts\":%d,\"num_experts_per_tok\":%d,\"moe_balance\":\"bias\"}%s";

static ot_status create(const settings *s, const char *text, ot_arena *arena, subject *out) {
  ot_config *const config = ot_arena_take(arena, sizeof *config);
  const ot_config_request wanted = {.path = "bench", .text = text};
  OT_TRY(ot_config_load(&wanted, arena, config));
  const int micro_batches = 1;
  const ot_runtime_request request = {
      .rank = {.modes = 1u << OT_MODE_TRAIN,
               .graph = {.model = &config->run.model,
                         .micro_batch_size = s->batch,
                         .sequence_length = SEQUENCE,
                         .compute = OT_F32,
                         .storage = OT_F32,
                         .threads = s->threads,
                         .seed = 1},
               .schedule = {
                   .run = &config->run, .micro_batches = &micro_batches, .num_micro_batches = 1}}};
  OT_TRY(ot_runtime_create(&request, &out->runtime));
  OT_TRY(ot_runtime_initialize(out->runtime, 1));
  ot_executor_set_trace(ot_runtime_executor(out->runtime), true);
  ot_bench_load(out->runtime, 0, VOCABULARY);
  const ot_schedule *const schedule = ot_runtime_schedule(out->runtime);
  out->order = ot_schedule_find_order(schedule, OT_ORDER_STEP, 0);
  out->model_flops = ot_order_flops(schedule, out->order, true);
  return OT_OK;
}

static double processor_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static ot_status run_once(const settings *s, subject *which, int turn) {
  ot_executor *const executor = ot_runtime_executor(which->runtime);
  ot_bench_set_scalars(which->runtime, (int64_t)s->batch * SEQUENCE, s->batch);
  const double start_s = processor_s();
  OT_TRY(ot_executor_run(executor, which->order));
  const double used_s = processor_s() - start_s;
  which->seconds[turn] = ot_bench_forward_backward_s(which->runtime);
  which->processor[turn] = used_s * which->seconds[turn] / ot_executor_timeline(executor)->total_s;
  return OT_OK;
}

// The smallest number of tokens of an expert in any layer in the last step; the accumulator of the
// router bias sums the loads.
static ot_status least_rows(const settings *s, ot_runtime *runtime, double *rows) {
  const ot_graph *const graph = ot_runtime_whole_graph(runtime);
  float loads[OT_BENCH_REPEATS];
  *rows = INFINITY;
  for (int i = 0; i < graph->num_parameters; i++) {
    if (graph->parameters[i].kind != OT_PARAMETER_BUFFER) continue;
    const ot_parameter_rows range = {i, OT_COPY_GRADIENT, 0, s->experts};
    OT_TRY(ot_runtime_read(runtime, &range, loads));
    for (int e = 0; e < s->experts; e++) *rows = fmin(*rows, (double)loads[e]);
  }
  return OT_OK;
}

static ot_status take_turns(const settings *s, subject *dense, subject *experts) {
  OT_TRY(run_once(s, dense, 0));  // first touch of pages
  OT_TRY(run_once(s, experts, 0));
  for (int i = 0; i < s->repeats; i++) {
    OT_TRY(run_once(s, dense, i));
    OT_TRY(run_once(s, experts, i));
  }
  if (!s->phases) return OT_OK;
  ot_bench_print_phases(dense->runtime);
  ot_bench_print_phases(experts->runtime);
  return OT_OK;
}

// Median over pairs of the expert rate divided by the dense rate.
static double ratio_of(const settings *s, double work, const double *dense, const double *experts) {
  double ratios[OT_BENCH_REPEATS];
  for (int i = 0; i < s->repeats; i++) ratios[i] = work * dense[i] / experts[i];
  return ot_bench_median(ratios, s->repeats);
}

static void report(const settings *s, const subject *dense, const subject *experts, double rows) {
  const double work = experts->model_flops / dense->model_flops;
  const double ratio = ratio_of(s, work, dense->seconds, experts->seconds);
  const double processor = ratio_of(s, work, dense->processor, experts->processor);
  const double dense_s = ot_bench_median(dense->seconds, s->repeats);
  const double experts_s = ot_bench_median(experts->seconds, s->repeats);
  if (s->json) {
    printf(
        "{\"experts\": %d, \"experts_per_token\": %d, \"least_rows\": %.0f, \"threads\": %d, "
        "\"dense_seconds\": %.6g, \"experts_seconds\": %.6g, \"ratio\": %.4f, "
        "\"ratio_of_processor_time\": %.4f}\n",
        s->experts, s->per_token, rows, s->threads, dense_s, experts_s, ratio, processor);
    return;
  }
  printf("%d experts, top-%d; at least %.0f tokens per expert; %d threads, %d pairs\n", s->experts,
         s->per_token, rows, s->threads, s->repeats);
  printf("dense    %8.3f s  %8.1f GFLOP/s forward + backward\n", dense_s,
         dense->model_flops / dense_s * 1e-9);
  printf("experts  %8.3f s  %8.1f GFLOP/s\n", experts_s, experts->model_flops / experts_s * 1e-9);
  printf("experts rate / dense rate %6.3f (by processor time %.3f)\n", ratio, processor);
}

static ot_status compare(const settings *s, ot_arena *arena, subject *dense, subject *experts) {
  const char *const rest = ot_arena_format(
      arena,
      ",\"data\":{\"train\":\"unused\",\"sequence_length\":%d,\"format\":\"llmc\"},"
      "\"batch\":{\"global_batch_size\":%d,\"micro_batch_size\":%d},\"steps\":1,\"threads\":%d,"
      "\"output\":\"unused\"}",
      SEQUENCE, s->batch, s->batch, s->threads);
  OT_TRY(create(
      s,
      ot_arena_format(arena, dense_model, VOCABULARY, HIDDEN, ACTIVE_WIDTH, LAYERS, SEQUENCE, rest),
      arena, dense));
  OT_TRY(
      create(s,
             ot_arena_format(arena, expert_model, VOCABULARY, HIDDEN, ACTIVE_WIDTH / s->per_token,
                             LAYERS, SEQUENCE, s->experts, s->per_token, rest),
             arena, experts));
  OT_TRY(take_turns(s, dense, experts));
  double rows;
  OT_TRY(least_rows(s, experts->runtime, &rows));
  report(s, dense, experts, rows);
  return OT_OK;
}

static ot_status run_program(const ot_options *options) {
  settings s = {.experts = (int)ot_options_integer(options, "experts"),
                .per_token = (int)ot_options_integer(options, "per-token"),
                .batch = (int)ot_options_integer(options, "batch"),
                .threads = (int)ot_options_integer(options, "threads"),
                .repeats = (int)ot_options_integer(options, "repeats"),
                .phases = ot_options_flag(options, "phases"),
                .json = ot_options_json(options)};
  if (s.threads == 0) s.threads = ot_host_cores();
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  subject *const both = ot_arena_array(&arena, 2, sizeof *both);
  const ot_status status = compare(&s, &arena, &both[0], &both[1]);
  for (int i = 0; i < 2; i++) ot_runtime_destroy(&both[i].runtime);
  ot_heap_release(&heap);
  return status;
}

static const ot_option options[] = {
    {"experts", OT_OPTION_INTEGER, "E", "8", 1, OT_BENCH_REPEATS,
     .help = "routed experts per layer"},
    {"per-token", OT_OPTION_INTEGER, "K", "2", 1, OT_BENCH_REPEATS,
     .help = "experts per token, each of width 2048/K"},
    {"batch", OT_OPTION_INTEGER, "B", "4", 1, 65536, .help = "sequences of 512 tokens"},
    {"threads", OT_OPTION_INTEGER, "N", NULL, 1, 4096,
     .help = "threads; default: the machine's cores"},
    {"repeats", OT_OPTION_INTEGER, "R", "5", 1, OT_BENCH_REPEATS, .help = "repetitions per median"},
    {"phases", OT_OPTION_FLAG, .help = "time of a step by operator"},
};

const ot_verb ot_bench_program = {
    .prefix = OT_BENCH_PREFIX,
    .name = "experts",
    .summary = "forward and backward of a MoE model compared with a dense one",
    .arguments = "",
    .options = options,
    .num_options = OT_COUNT(options),
    .json = true,
    .run = run_program,
};
