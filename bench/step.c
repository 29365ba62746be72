// SPDX-License-Identifier: Apache-2.0
// Speed of one training step, compared with the rate of the linked BLAS on the step's own GEMM
// shapes, measured in the same run, alternating: step, GEMMs, step, GEMMs, ... Model FLOPs are
// those of F and B (3 x forward, causal half of attention) without recompute.
#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "describe/run_keys.h"
#include "host/clock.h"
#include "host/cores.h"
#include "kernels/matrix.h"
#include "ops/op.h"
#include "support/bench_program.h"
#include "support/bench_step.h"

extern void openblas_set_num_threads(int threads) __attribute__((weak));

typedef struct settings {
  int batch, sequence, micro_batch, threads, repeats;
  ot_recompute recompute;
  bool phases, json;
} settings;

typedef struct shape {
  int64_t rows, columns, depth;
  bool a_transposed, b_transposed;
  double flops;  // of all GEMMs of this shape in a step
} shape;

enum { MAX_SHAPES = 64 };

typedef struct shape_list {
  shape shapes[MAX_SHAPES];
  int count;
} shape_list;

// ---- GEMMs of a step ----

static void add_shape(shape_list *list, shape s) {
  for (int i = 0; i < list->count; i++) {
    shape *const known = &list->shapes[i];
    if (known->rows == s.rows && known->columns == s.columns && known->depth == s.depth &&
        known->a_transposed == s.a_transposed && known->b_transposed == s.b_transposed) {
      known->flops += s.flops;
      return;
    }
  }
  if (list->count < MAX_SHAPES) list->shapes[list->count++] = s;
}

static void add_product(shape_list *list, int64_t m, int64_t n, int64_t k, int forms) {
  add_shape(list, (shape){m, n, k, (forms & 1) != 0, (forms & 2) != 0,
                          2.0 * (double)m * (double)n * (double)k});
}

// y = x w^T, dx = dy w, dw = dy^T x, in any op.
static void add_task(shape_list *list, const ot_task *task) {
  const int64_t R = task->in[0].type.dim[0], C = task->in[0].type.dim[1];
  const int64_t O = task->in[1].type.dim[0];
  switch ((int)task->op) {
    case OT_OP_LINEAR:
      add_product(list, R, O, C, 2);
      return;
    case OT_OP_LINEAR_DX:
      add_product(list, R, task->in[1].type.dim[1], C, 0);
      return;
    case OT_OP_LINEAR_DW:
      add_product(list, C, task->in[1].type.dim[1], R, 1);
      return;
    case OT_OP_HEAD_LOSS:
      add_product(list, R, O, C, 2);
      add_product(list, R, C, O, 0);
      add_product(list, O, C, R, 1);
      return;
    default:
      return;
  }
}

static void list_products(const ot_schedule *schedule, int order, shape_list *list) {
  *list = (shape_list){0};
  for (int i = 0; i < schedule->orders[order].num_entries; i++) {
    const ot_entry *const entry = &schedule->orders[order].entries[i];
    if (entry->phase == OT_PHASE_RECOMPUTE) continue;
    const ot_segment *const segment = &schedule->segments[entry->segment];
    for (int k = 0; k < segment->num_tasks; k++) add_task(list, &segment->tasks[k]);
  }
}

// Seconds of one GEMM of this shape, split into serial calls on our own threads as in the step.
static double time_cut_product(const shape *s, int threads, float *a, float *b, float *c) {
  const ot_gemm product = {
      .rows = s->rows,
      .columns = s->columns,
      .depth = s->depth,
      .a = {a, s->a_transposed ? s->rows : s->depth, s->a_transposed},
      .b = {b, s->b_transposed ? s->depth : s->columns, s->b_transposed},
      .c = c,
      .c_stride = s->columns,
      .alpha = 1,
  };
  const double start_s = ot_clock_s();
  ot_matrix_multiply_f32(&product, threads);
  return ot_clock_s() - start_s;
}

// Seconds of one GEMM of this shape on `threads` of the BLAS's own threads.
static double time_product(const shape *s, int threads, float *a, float *b, float *c) {
  if (openblas_set_num_threads) openblas_set_num_threads(threads);
  const int lda = (int)(s->a_transposed ? s->rows : s->depth);
  const int ldb = (int)(s->b_transposed ? s->depth : s->columns);
  const double start_s = ot_clock_s();
  cblas_sgemm(CblasRowMajor, s->a_transposed ? CblasTrans : CblasNoTrans,
              s->b_transposed ? CblasTrans : CblasNoTrans, (int)s->rows, (int)s->columns,
              (int)s->depth, 1, a, lda, b, ldb, 0, c, (int)s->columns);
  return ot_clock_s() - start_s;
}

// Time that the BLAS alone needs for all GEMMs of a step: each shape at its best of `tries`, on the
// library's threads or on ours, whichever is faster.
static double blas_seconds(const shape_list *list, int threads, int tries, float *memory,
                           int64_t stride) {
  double total_s = 0;
  for (int i = 0; i < list->count; i++) {
    const shape *const s = &list->shapes[i];
    double best_s = INFINITY;
    for (int k = 0; k < tries; k++) {
      float *const b = memory + stride, *const c = memory + 2 * stride;
      best_s = fmin(best_s, time_product(s, threads, memory, b, c));
      best_s = fmin(best_s, time_cut_product(s, threads, memory, b, c));
    }
    total_s += best_s * s->flops / (2.0 * (double)s->rows * (double)s->columns * (double)s->depth);
  }
  if (openblas_set_num_threads) openblas_set_num_threads(1);
  return total_s;
}

// ---- command line ----

static settings read_settings(const ot_options *o) {
  settings s = {.batch = (int)ot_options_integer(o, "batch"),
                .sequence = (int)ot_options_integer(o, "sequence"),
                .micro_batch = (int)ot_options_integer(o, "micro-batch"),
                .threads = (int)ot_options_integer(o, "threads"),
                .repeats = (int)ot_options_integer(o, "repeats"),
                .recompute = (ot_recompute)ot_options_choice(o, "recompute"),
                .phases = ot_options_flag(o, "phases"),
                .json = ot_options_json(o)};
  if (s.micro_batch == 0) s.micro_batch = s.batch;
  if (s.threads == 0) s.threads = ot_host_cores();
  return s;
}

typedef struct figures {
  double step_s, forward_backward_s, blas_s, model_flops;
  double forward_backward_ratio, step_ratio;  // medians of the paired ratios
  double blas_flops;
} figures;

static ot_status measure(ot_runtime *runtime, const settings *s, figures *out) {
  double step[OT_BENCH_REPEATS], fb[OT_BENCH_REPEATS], blas[OT_BENCH_REPEATS],
      fb_ratio[OT_BENCH_REPEATS], step_ratio[OT_BENCH_REPEATS];
  const ot_schedule *const schedule = ot_runtime_schedule(runtime);
  const int order = ot_schedule_find_order(schedule, OT_ORDER_STEP, 0);
  shape_list list;
  list_products(schedule, order, &list);
  int64_t stride = 0;
  double blas_flops = 0;
  for (int i = 0; i < list.count; i++) {
    const shape *const p = &list.shapes[i];
    const int64_t sizes[] = {p->rows * p->depth, p->depth * p->columns, p->rows * p->columns};
    for (int k = 0; k < 3; k++) stride = sizes[k] > stride ? sizes[k] : stride;
    blas_flops += p->flops;
  }
  float *const memory = malloc((size_t)stride * 3 * sizeof *memory);
  OT_CHECK(memory, OT_ENVIRONMENT, "out of memory");
  for (int64_t i = 0; i < 3 * stride; i++) memory[i] = (float)(i % 7) - 3;
  const double flops = ot_order_flops(schedule, order, true);
  const int repeats = s->repeats < OT_BENCH_REPEATS ? s->repeats : OT_BENCH_REPEATS;
  OT_TRY(ot_executor_run(ot_runtime_executor(runtime), order));
  for (int i = 0; i < repeats; i++) {
    OT_TRY(ot_executor_run(ot_runtime_executor(runtime), order));
    step[i] = ot_executor_timeline(ot_runtime_executor(runtime))->total_s;
    fb[i] = ot_bench_forward_backward_s(runtime);
    blas[i] = blas_seconds(&list, s->threads, 2, memory, stride);
    const double rate = blas_flops / blas[i];
    fb_ratio[i] = flops / fb[i] / rate;
    step_ratio[i] = flops / step[i] / rate;
  }
  if (s->phases) ot_bench_print_phases(runtime);
  free(memory);
  *out = (figures){.step_s = ot_bench_median(step, repeats),
                   .forward_backward_s = ot_bench_median(fb, repeats),
                   .blas_s = ot_bench_median(blas, repeats),
                   .model_flops = flops,
                   .forward_backward_ratio = ot_bench_median(fb_ratio, repeats),
                   .step_ratio = ot_bench_median(step_ratio, repeats),
                   .blas_flops = blas_flops};
  return OT_OK;
}

static void print_figures(const settings *s, const ot_schedule *schedule, const figures *f) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const int64_t *const classes = schedule->memory.class_bytes;
  const int64_t state =
      classes[OT_MEMORY_WEIGHTS] + classes[OT_MEMORY_GRADIENTS] + classes[OT_MEMORY_OPTIMIZER];
  const double tokens = (double)s->batch * s->sequence;
  if (s->json) {
    printf(
        "{\"model\":\"gpt2\",\"batch\":%d,\"sequence\":%d,\"micro_batch\":%d,\"threads\":%d,"
        "\"tokens\":%.0f,\"seconds_per_step\":%.6f,\"forward_backward_seconds\":%.6f,"
        "\"model_flops\":%.6g,\"blas_seconds\":%.6f,\"blas_flops_per_second\":%.6g,"
        "\"forward_backward_of_blas\":%.4f,\"step_of_blas\":%.4f,\"arena_bytes\":%lld,"
        "\"state_bytes\":%lld,\"beyond_state_bytes\":%lld}\n",
        s->batch, s->sequence, s->micro_batch, s->threads, tokens, f->step_s, f->forward_backward_s,
        f->model_flops, f->blas_s, f->blas_flops / f->blas_s, f->forward_backward_ratio,
        f->step_ratio, (long long)schedule->arena_bytes, (long long)state,
        (long long)(schedule->arena_bytes - state));
    return;
  }
  printf("GPT-2 124M, fp32, B=%d T=%d (micro-batch %d), %d threads, median of %d paired runs\n",
         s->batch, s->sequence, s->micro_batch, s->threads, s->repeats);
  printf("step              %9.3f s   %8.0f tokens/s\n", f->step_s, tokens / f->step_s);
  printf("forward+backward  %9.3f s   %8.1f GFLOP/s\n", f->forward_backward_s,
         f->model_flops / f->forward_backward_s * 1e-9);
  printf("BLAS, same shapes %9.3f s   %8.1f GFLOP/s\n", f->blas_s,
         f->blas_flops / f->blas_s * 1e-9);
  printf("forward+backward of the BLAS rate  %5.1f %%\n", 100 * f->forward_backward_ratio);
  printf("full step of the BLAS rate         %5.1f %%\n", 100 * f->step_ratio);
  printf(
      "arena %.1f MB, of it weights, gradients, moments %.1f MB, beyond %.1f MB; peak RSS of this "
      "process %.1f MB (BLAS operands included)\n",
      (double)schedule->arena_bytes * 1e-6, (double)state * 1e-6,
      (double)(schedule->arena_bytes - state) * 1e-6, (double)usage.ru_maxrss * 1024e-6);
}

static ot_status run(const settings *s, ot_arena *arena) {
  const ot_model model = ot_bench_gpt2();
  ot_run run_settings;
  OT_TRY(ot_run_defaults(&model, OT_F32, arena, &run_settings));
  run_settings.parallel.recompute[0] = s->recompute;
  const int micro_batches = s->batch / s->micro_batch;
  const ot_runtime_request request = {
      .rank = {.modes = 1u << OT_MODE_TRAIN,
               .graph = {.model = &model,
                         .micro_batch_size = s->micro_batch,
                         .sequence_length = s->sequence,
                         .compute = OT_F32,
                         .storage = OT_F32,
                         .threads = s->threads},
               .schedule = {
                   .run = &run_settings, .micro_batches = &micro_batches, .num_micro_batches = 1}}};
  ot_runtime *runtime = NULL;
  figures f = {0};
  OT_TRY(ot_runtime_create(&request, &runtime));
  ot_status status = ot_runtime_initialize(runtime, 1);
  ot_executor_set_trace(ot_runtime_executor(runtime), true);
  for (int m = 0; m < micro_batches; m++) ot_bench_load(runtime, m, model.vocab_size);
  ot_bench_set_scalars(runtime, (int64_t)s->batch * s->sequence, s->batch);
  if (status == OT_OK) status = measure(runtime, s, &f);
  if (status == OT_OK) print_figures(s, ot_runtime_schedule(runtime), &f);
  ot_runtime_destroy(&runtime);
  return status;
}

static ot_status run_program(const ot_options *options) {
  const settings s = read_settings(options);
  OT_CHECK(s.batch % s.micro_batch == 0, OT_USAGE, "--micro-batch %d does not divide --batch %d",
           s.micro_batch, s.batch);
  return run(&s, ot_options_arena(options));
}

static const ot_option options[] = {
    {"batch", OT_OPTION_INTEGER, "B", "4", 1, 65536, .help = "sequences of a step"},
    {"sequence", OT_OPTION_INTEGER, "T", "1024", 1, 1024, .help = "tokens of a sequence"},
    {"micro-batch", OT_OPTION_INTEGER, "M", NULL, 1, 65536,
     .help = "sequences per micro-batch; default: all"},
    {"threads", OT_OPTION_INTEGER, "N", NULL, 1, 4096,
     .help = "threads; default: the machine's cores"},
    {"repeats", OT_OPTION_INTEGER, "R", "3", 1, OT_BENCH_REPEATS, .help = "repetitions per median"},
    {"recompute", OT_OPTION_CHOICE, "none|selective|full", "none", .help = "recompute policy"},
    {"phases", OT_OPTION_FLAG, .help = "time of a step by operator"},
};

const ot_verb ot_bench_program = {
    .prefix = OT_BENCH_PREFIX,
    .name = "step",
    .summary = "a training step of GPT-2 124M compared with the BLAS rate on its GEMMs",
    .arguments = "",
    .options = options,
    .num_options = OT_COUNT(options),
    .json = true,
    .run = run_program,
};
