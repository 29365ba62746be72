// SPDX-License-Identifier: Apache-2.0
// Rates of the operators that run GEMMs, on the shapes of GPT-2 124M, compared with the rate of
// plain GEMMs of the same shapes in the same BLAS. "wall" is the median of the repeats; "cpu" is
// based on the processor time of all threads, which other programs on the machine disturb less.
// GFLOP/s count GEMMs only (visible keys in attention).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/kernels.h"
#include "kernels/matrix.h"
#include "ops/catalog.h"
#include "ops/operands.h"
#include "support/bench_program.h"
#include "workspace/workspace.h"

enum { MAX_REPEATS = 101, HEADS = 12, HEAD_DIM = 64, CHANNELS = 768, VOCABULARY = 50257 };

typedef struct rate {
  double wall_s, cpu_s;
} rate;

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a;
  const double y = *(const double *)b;
  return (x > y) - (x < y);
}

static double seconds(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *filled(int64_t bytes) {
  float *const data = aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64);
  if (!data) exit(3);
  for (int64_t i = 0; i < bytes / 4; i++) {
    data[i] = (float)((i * 2654435761u >> 7) % 1000) * 1e-3f - 0.5f;
  }
  return data;
}

// Median seconds of `repeats` runs after one warm-up run.
static rate measure(void (*run)(void *), void *context, int repeats) {
  double wall[MAX_REPEATS], cpu[MAX_REPEATS];
  run(context);
  for (int i = 0; i < repeats; i++) {
    const double wall_start = seconds(CLOCK_MONOTONIC);
    const double cpu_start = seconds(CLOCK_PROCESS_CPUTIME_ID);
    run(context);
    wall[i] = seconds(CLOCK_MONOTONIC) - wall_start;
    cpu[i] = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_start;
  }
  qsort(wall, (size_t)repeats, sizeof *wall, compare);
  qsort(cpu, (size_t)repeats, sizeof *cpu, compare);
  return (rate){wall[repeats / 2], cpu[repeats / 2]};
}

// ---- plain GEMMs ----

typedef struct products {
  ot_gemm product[3];
  int count, threads;
} products;

static void run_products(void *context) {
  const products *const p = context;
  for (int i = 0; i < p->count; i++) ot_matrix_multiply_f32(&p->product[i], p->threads);
}

// y = x w^T, dx = dy w or dw = dy^T x with x [R, C], w [O, C]; `form` is 'y', 'x' or 'w'.
static ot_gemm product_of(char form, int64_t R, int64_t C, int64_t O, float *memory) {
  ot_gemm p = {.alpha = 1, .a = {.data = memory}, .b = {.data = memory}, .c = NULL};
  p.rows = form == 'w' ? O : R;
  p.columns = form == 'y' ? O : C;
  p.depth = form == 'y' ? C : form == 'x' ? O : R;
  p.a.transposed = form == 'w';
  p.a.stride = form == 'w' ? O : p.depth;
  p.b.transposed = form == 'y';
  p.b.stride = C;
  p.c_stride = p.columns;
  return p;
}

// ---- operators ----

typedef struct op_run {
  ot_op_kind kind;
  ot_op_attributes attributes;
  ot_op_types types;
  ot_tensor in[OT_MAX_INPUTS], out[OT_MAX_OUTPUTS];
  void *workspace;
} op_run;

static void run_op(void *context) {
  op_run *const o = context;
  const ot_kernel_call call = {
      .attributes = &o->attributes, .in = o->in, .out = o->out, .workspace = o->workspace};
  ot_kernel_find(OT_BACKEND_CPU, o->kind, OT_F32)(&call);
}

static void create_op(op_run *o) {
  if (ot_op_infer(o->kind, &o->attributes, &o->types) != OT_OK) {
    fprintf(stderr, "%s\n", ot_fail_message());
    exit(70);
  }
  for (int i = 0; i < OT_MAX_INPUTS; i++) {
    o->in[i].type = o->types.in[i];
    if (!ot_type_present(&o->types.in[i])) continue;
    o->in[i].data = filled(ot_type_bytes(&o->types.in[i]));
    if (ot_dtype_is_real(o->types.in[i].dtype)) continue;
    memset(o->in[i].data, 0, (size_t)ot_type_bytes(&o->types.in[i]));
  }
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) {
    o->out[i].type = o->types.out[i];
    if (ot_type_present(&o->types.out[i])) o->out[i].data = filled(ot_type_bytes(&o->types.out[i]));
  }
  o->workspace = filled(ot_op_workspace(o->kind, &o->attributes, &o->types));
}

static void destroy_op(op_run *o) {
  for (int i = 0; i < OT_MAX_INPUTS; i++) free(o->in[i].data);
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) free(o->out[i].data);
  free(o->workspace);
}

typedef struct settings {
  int threads, repeats;
  int64_t tokens;
} settings;

// Prints one line: the op and the GEMMs to compare with.
static void report(const char *name, op_run *o, const products *bare, const settings *s) {
  create_op(o);
  const double flops = ot_op_cost(o->kind, &o->attributes, &o->types).matrix_flops;
  const rate op = measure(run_op, o, s->repeats);
  destroy_op(o);
  double bare_flops = 0;
  int64_t largest = 0;
  products p = *bare;
  for (int i = 0; i < p.count; i++) {
    const ot_gemm *const q = &p.product[i];
    bare_flops += 2.0 * (double)q->rows * (double)q->columns * (double)q->depth;
    const int64_t sizes[] = {q->rows * q->depth, q->depth * q->columns, q->rows * q->columns};
    for (int k = 0; k < 3; k++) largest = sizes[k] > largest ? sizes[k] : largest;
  }
  float *const a = filled(4 * largest), *const b = filled(4 * largest),
               *const c = filled(4 * largest);
  for (int i = 0; i < p.count; i++) {
    p.product[i].a.data = a;
    p.product[i].b.data = b;
    p.product[i].c = c;
  }
  const rate blas = measure(run_products, &p, s->repeats);
  free(a);
  free(b);
  free(c);
  const double giga = 1e-9;
  printf("%-28s %9.2f %8.1f %8.1f %8.1f %8.1f %7.3f %7.3f\n", name, op.wall_s * 1e3,
         flops / op.wall_s * giga, bare_flops / blas.wall_s * giga, flops / op.cpu_s * giga,
         bare_flops / blas.cpu_s * giga, flops / bare_flops * blas.wall_s / op.wall_s,
         flops / bare_flops * blas.cpu_s / op.cpu_s);
  fflush(stdout);
}

static void report_linear(const char *name, int64_t C, int64_t O, bool residual,
                          const settings *s) {
  const int64_t R = s->tokens;
  const ot_op_attributes attributes = {.threads = s->threads, .compute = OT_F32};
  const ot_tensor_type none = {0};
  op_run y = {
      .kind = OT_OP_LINEAR,
      .attributes = attributes,
      .types = {.in = {ot_type_matrix(OT_F32, R, C), ot_type_matrix(OT_F32, O, C),
                       ot_type_vector(OT_F32, O), residual ? ot_type_matrix(OT_F32, R, O) : none}}};
  op_run dx = {.kind = OT_OP_LINEAR_DX,
               .attributes = attributes,
               .types = {.in = {ot_type_matrix(OT_F32, R, O), ot_type_matrix(OT_F32, O, C)}}};
  op_run dw = {.kind = OT_OP_LINEAR_DW,
               .attributes = attributes,
               .types = {.in = {ot_type_matrix(OT_F32, R, O), ot_type_matrix(OT_F32, R, C)},
                         .out = {ot_type_matrix(OT_F32, O, C), ot_type_vector(OT_F32, O)}}};
  op_run *const ops[] = {&y, &dx, &dw};
  const char *const suffixes[] = {"", " dx", " dw, dbias"};
  for (int i = 0; i < 3; i++) {
    char label[64];
    snprintf(label, sizeof label, "%s%s", name, suffixes[i]);
    const products bare = {
        .product = {product_of("yxw"[i], R, C, O, NULL)}, .count = 1, .threads = s->threads};
    report(label, ops[i], &bare, s);
  }
}

static void report_attention(const settings *s) {
  const int64_t R = s->tokens;
  const int64_t T = R < 1024 ? R : 1024;
  const ot_op_attributes attributes = {.threads = s->threads,
                                       .compute = OT_F32,
                                       .sequence_length = T,
                                       .num_heads = HEADS,
                                       .num_kv_heads = HEADS,
                                       .head_dim = HEAD_DIM,
                                       .scale = 0.125};
  const ot_tensor_type qkv = ot_type_matrix(OT_F32, R, 3 * CHANNELS);
  const ot_tensor_type o = ot_type_matrix(OT_F32, R, CHANNELS);
  op_run forward = {.kind = OT_OP_ATTENTION, .attributes = attributes, .types = {.in = {qkv}}};
  forward.types.in[1] = ot_type_vector(OT_I32, R);
  forward.types.out[2] = ot_type_vector(OT_F64, 1);
  op_run backward = {
      .kind = OT_OP_ATTENTION_GRAD,
      .attributes = attributes,
      .types = {
          .in = {o, qkv, ot_type_vector(OT_I32, R), {0}, o, ot_type_matrix(OT_F32, R, HEADS)}}};
  const products bare = {
      .product = {product_of('y', R, CHANNELS, CHANNELS, NULL)}, .count = 1, .threads = s->threads};
  report("attention", &forward, &bare, s);
  report("attention_grad", &backward, &bare, s);
}

// With `targets` weighted targets of each token; 0: the one of plain training.
static void report_head(const char *title, int64_t targets, const settings *s) {
  const int64_t R = s->tokens;
  const int64_t chunk = R < 640 ? R : 640;
  op_run o = {.kind = OT_OP_HEAD_LOSS,
              .attributes = {.threads = s->threads, .compute = OT_F32},
              .types = {.in = {ot_type_matrix(OT_F32, R, CHANNELS),
                               ot_type_matrix(OT_F32, VOCABULARY, CHANNELS),
                               ot_type_vector(OT_I32, R), ot_type_vector(OT_F64, 1)},
                        .out = {[1] = ot_type_matrix(OT_F32, VOCABULARY, CHANNELS),
                                [2] = ot_type_vector(OT_F64, 1)}}};
  if (targets > 0) {
    o.types.in[4] = ot_type_matrix(OT_I32, R, targets);
    o.types.in[5] = ot_type_matrix(OT_F32, R, targets);
    o.types.out[3] = ot_type_vector(OT_F64, 1);
  }
  const products bare = {.product = {product_of('y', chunk, CHANNELS, VOCABULARY, NULL),
                                     product_of('x', chunk, CHANNELS, VOCABULARY, NULL),
                                     product_of('w', chunk, CHANNELS, VOCABULARY, NULL)},
                         .count = 3,
                         .threads = s->threads};
  report(title, &o, &bare, s);
}

// Argument `i`, or `fallback` if there are fewer.
static int argument(const ot_options *options, int i, int fallback) {
  return i < ot_options_num_arguments(options) ? atoi(ot_options_argument(options, i)) : fallback;
}

static ot_status run_program(const ot_options *options) {
  const settings s = {.threads = argument(options, 0, 2),
                      .tokens = argument(options, 1, 4096),
                      .repeats = argument(options, 2, 7)};
  OT_CHECK(s.threads >= 1 && s.tokens >= 1 && s.repeats >= 1 && s.repeats <= MAX_REPEATS, OT_USAGE,
           "THREADS, TOKENS and REPEATS must be at least 1, REPEATS at most %d", MAX_REPEATS);
  printf("%lld tokens, %d threads, median of %d\n", (long long)s.tokens, s.threads, s.repeats);
  printf("%-28s %9s %8s %8s %8s %8s %7s %7s\n", "", "wall ms", "GFLOP/s", "BLAS", "cpu: op", "BLAS",
         "wall", "cpu");
  report_attention(&s);
  report_linear("qkv 768 -> 2304", CHANNELS, 3 * CHANNELS, false, &s);
  report_linear("out 768 -> 768 + residual", CHANNELS, CHANNELS, true, &s);
  report_linear("up 768 -> 3072", CHANNELS, 4 * CHANNELS, false, &s);
  report_linear("down 3072 -> 768 + residual", 4 * CHANNELS, CHANNELS, true, &s);
  report_head("head_loss", 0, &s);
  report_head("head_loss, 24 targets", 24, &s);
  return OT_OK;
}

const ot_verb ot_bench_program = {
    .prefix = OT_BENCH_PREFIX,
    .name = "operators",
    .summary = "operators of GPT-2 124M compared with plain GEMMs of their shapes",
    .arguments = "[THREADS [TOKENS [REPEATS]]]",
    .max_arguments = 3,
    .details = "Defaults: 2 threads, 4096 tokens in sequences of 1024, medians of 7.",
    .run = run_program,
};
