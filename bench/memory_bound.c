// SPDX-License-Identifier: Apache-2.0
// Speed of every memory-bound operator compared with a plain copy on the same threads, in bytes
// that the op must access (ot_op_cost) per second. Each op iterates over several sets of operands
// that exceed the caches, alternating with the others; reports the best of the rounds.
//   bench/memory_bound [--rows R] [--columns C] [--threads N] [--rounds K] [--bf16] [--only OP]
//                     [--json]
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/kernels.h"
#include "ops/catalog.h"
#include "ops/operands.h"
#include "support/bench_program.h"
#include "workspace/workspace.h"

enum { NUM_SETS = 4, HEAD_DIM = 64, VOCABULARY = 50257, MAX_ROUNDS = 1000 };

typedef struct settings {
  int64_t rows, columns;
  int threads, rounds;
  ot_dtype storage;
  const char *only;  // name of one op, or null for all
  bool json;
} memory_bound_settings;

typedef struct subject {
  const char *name;
  ot_op_kind kind;
  ot_op_attributes attributes;
  ot_op_types types;
  void *data[NUM_SETS][OT_MAX_INPUTS + OT_MAX_OUTPUTS];
  void *workspace;
  double best_s;
} subject;

static double now_s(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void *memory_of(int64_t bytes) {
  void *const memory = aligned_alloc(64, (size_t)((bytes + 63) / 64 * 64));
  if (!memory) {
    fprintf(stderr, "error: cannot allocate %lld bytes\n", (long long)bytes);
    exit(3);
  }
  return memory;
}

// Values of the magnitude of activations; ids valid for every table.
static void fill(const ot_tensor_type *type, void *data, int64_t bound) {
  for (int64_t i = 0; i < ot_type_elements(type); i++) {
    const double value = (double)(i * 2654435761u % 65536) / 16384 - 2 + 0x1p-10;
    switch (type->dtype) {
      case OT_F32:
        ((float *)data)[i] = (float)value;
        break;
      case OT_F64:
        ((double *)data)[i] = 1e-3;
        break;
      case OT_BF16:
        ((uint16_t *)data)[i] = ot_bf16_from_float((float)value);
        break;
      case OT_I32:
        ((int32_t *)data)[i] = (int32_t)(i * 7919 % bound);
        break;
      default:
        memset(data, 0, (size_t)ot_type_bytes(type));
        return;
    }
  }
}

static void prepare(subject *s, int64_t bound) {
  if (ot_op_infer(s->kind, &s->attributes, &s->types) != OT_OK) {
    fprintf(stderr, "error: %s\n", ot_fail_message());
    exit(70);
  }
  for (int set = 0; set < NUM_SETS; set++) {
    for (int i = 0; i < OT_MAX_INPUTS + OT_MAX_OUTPUTS; i++) {
      const ot_tensor_type *const type =
          i < OT_MAX_INPUTS ? &s->types.in[i] : &s->types.out[i - OT_MAX_INPUTS];
      if (!ot_type_present(type)) continue;
      s->data[set][i] = memory_of(ot_type_bytes(type));
      fill(type, s->data[set][i], bound);
    }
  }
  s->workspace = memory_of(ot_op_workspace(s->kind, &s->attributes, &s->types) + 64);
  s->best_s = 1e30;
}

static void run(subject *s, int set) {
  ot_tensor in[OT_MAX_INPUTS] = {0};
  ot_tensor out[OT_MAX_OUTPUTS] = {0};
  for (int i = 0; i < OT_MAX_INPUTS; i++) {
    in[i] = (ot_tensor){s->data[set][i], s->types.in[i]};
  }
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) {
    out[i] = (ot_tensor){s->data[set][OT_MAX_INPUTS + i], s->types.out[i]};
  }
  const ot_kernel_call call = {
      .attributes = &s->attributes, .in = in, .out = out, .workspace = s->workspace};
  const ot_kernel kernel = ot_kernel_find(OT_BACKEND_CPU, s->kind, s->attributes.compute);
  const double start_s = now_s();
  kernel(&call);
  const double seconds = now_s() - start_s;
  if (seconds < s->best_s) s->best_s = seconds;
}

static double copy_s(const subject *s, int from, int to) {
  const char *const source = s->data[from][0];
  char *const target = s->data[to][1];
  const int64_t bytes = ot_type_bytes(&s->types.in[0]);
  const int64_t piece = 1 << 16;
  const double start_s = now_s();
#pragma omp parallel for num_threads(s->attributes.threads) schedule(static)
  for (int64_t first = 0; first < bytes; first += piece) {
    const int64_t n = bytes - first < piece ? bytes - first : piece;
    for (int64_t i = 0; i < n; i++) target[first + i] = source[first + i];
  }
  return now_s() - start_s;
}

static ot_op_attributes attributes_of(const memory_bound_settings *settings) {
  return (ot_op_attributes){.threads = settings->threads,
                            .compute = OT_F32,
                            .sequence_length = settings->rows,
                            .num_heads = settings->columns / HEAD_DIM,
                            .num_kv_heads = settings->columns / HEAD_DIM,
                            .head_dim = HEAD_DIM,
                            .norm_width = HEAD_DIM,
                            .rotary_dim = HEAD_DIM,
                            .epsilon = 1e-5,
                            .dropout = 0.1,
                            .beta1 = 0.9,
                            .beta2 = 0.95,
                            .weight_decay = 0.1,
                            .learning_rate_factor = 1};
}

// Prepares the requested ops of `all`; the first stays, because the copy uses its memory.
static int choose(const memory_bound_settings *settings, const subject *all, int num_all,
                  subject *subjects) {
  int count = 0;
  for (int i = 0; i < num_all; i++) {
    if (settings->only && strcmp(settings->only, all[i].name) != 0 && i > 0) continue;
    subject *const s = &subjects[count++];
    *s = all[i];
    s->attributes = attributes_of(settings);
    s->attributes.activation = all[i].attributes.activation;
    prepare(s, settings->rows);
  }
  return count;
}

// Every op of the table below, in the shapes of one layer.
static int describe(const memory_bound_settings *settings, subject *subjects) {
  const ot_dtype dtype = settings->storage;
  const int64_t rows = settings->rows;
  const int64_t columns = settings->columns;
  const ot_tensor_type x = ot_type_matrix(dtype, rows, columns);
  const ot_tensor_type wide = ot_type_matrix(dtype, rows, 4 * columns);
  const ot_tensor_type gated = ot_type_matrix(dtype, rows, 8 * columns);
  const ot_tensor_type qkv = ot_type_matrix(dtype, rows, 3 * columns);
  const ot_tensor_type w = ot_type_vector(dtype, columns);
  const ot_tensor_type dw = ot_type_vector(OT_F32, columns);
  const ot_tensor_type statistic = ot_type_vector(OT_F32, rows);
  const ot_tensor_type head = ot_type_vector(dtype, HEAD_DIM);
  const ot_tensor_type head_dw = ot_type_vector(OT_F32, HEAD_DIM);
  const ot_tensor_type head_rstd = ot_type_matrix(OT_F32, rows, columns / HEAD_DIM * 2);
  const ot_tensor_type ids = ot_type_vector(OT_I32, rows);
  const ot_tensor_type samples = ot_type_vector(OT_I64, 1);
  const ot_tensor_type table = {.dtype = OT_F32, .rank = 3, .dim = {rows, HEAD_DIM / 2, 2}};
  const ot_tensor_type tokens = ot_type_matrix(dtype, VOCABULARY, columns);
  const ot_tensor_type d_tokens = ot_type_matrix(OT_F32, VOCABULARY, columns);
  const ot_tensor_type scalars = ot_type_vector(OT_F64, OT_STEP_SCALARS);
  const ot_tensor_type weights = ot_type_vector(dtype, 8 * columns * columns);
  const ot_tensor_type state = ot_type_vector(OT_F32, 8 * columns * columns);
  const ot_tensor_type one = ot_type_vector(OT_F64, 1);
  const ot_tensor_type two = ot_type_vector(OT_F64, 2);
  const ot_tensor_type float32 = ot_type_matrix(OT_F32, rows, columns);
  const ot_tensor_type bf16 = ot_type_matrix(OT_BF16, rows, columns);
  const ot_tensor_type master = dtype == OT_BF16 ? state : (ot_tensor_type){0};
  const subject all[] = {
      {"add", OT_OP_ADD, .types = {.in = {x, x}}},
      {"rmsnorm", OT_OP_RMSNORM, .types = {.in = {x, w}}},
      {"rmsnorm_grad", OT_OP_RMSNORM_GRAD,
       .types = {.in = {x, x, w, statistic, x}, .out = {{0}, dw}}},
      {"layernorm", OT_OP_LAYERNORM, .types = {.in = {x, w, w}}},
      {"layernorm_grad", OT_OP_LAYERNORM_GRAD,
       .types = {.in = {x, x, w, statistic, statistic, x}, .out = {{0}, dw, dw}}},
      {"head_norm", OT_OP_HEAD_NORM, .types = {.in = {qkv, head, head}}},
      {"head_norm_grad", OT_OP_HEAD_NORM_GRAD,
       .types = {.in = {qkv, qkv, head, head, head_rstd}, .out = {{0}, head_dw, head_dw}}},
      {"rope", OT_OP_ROPE, .types = {.in = {qkv, ids, table}}},
      {"rope_grad", OT_OP_ROPE_GRAD, .types = {.in = {qkv, ids, table}}},
      {"gelu", OT_OP_ACTIVATION, .types = {.in = {wide}}},
      {"gelu_grad", OT_OP_ACTIVATION_GRAD, .types = {.in = {wide, wide}}},
      {"gelu_tanh", OT_OP_ACTIVATION, .attributes = {.activation = OT_ACTIVATION_GELU_TANH},
       .types = {.in = {wide}}},
      {"gelu_tanh_grad", OT_OP_ACTIVATION_GRAD,
       .attributes = {.activation = OT_ACTIVATION_GELU_TANH}, .types = {.in = {wide, wide}}},
      {"swiglu", OT_OP_GLU, .attributes = {.activation = OT_ACTIVATION_SILU},
       .types = {.in = {gated}}},
      {"swiglu_grad", OT_OP_GLU_GRAD, .attributes = {.activation = OT_ACTIVATION_SILU},
       .types = {.in = {wide, gated}}},
      {"dropout", OT_OP_DROPOUT, .types = {.in = {x, samples}}},
      {"absmax", OT_OP_ABSMAX, .types = {.in = {x}, .out = {one}}},
      {"cast to bf16", OT_OP_CAST, .types = {.in = {float32}, .out = {bf16}}},
      {"cast to fp32", OT_OP_CAST, .types = {.in = {bf16}, .out = {float32}}},
      {"zero", OT_OP_ZERO, .types = {.out = {x}}},
      {"embedding", OT_OP_EMBEDDING, .types = {.in = {ids, tokens}}},
      {"embedding_grad", OT_OP_EMBEDDING_GRAD, .types = {.in = {x, ids}, .out = {d_tokens}}},
      {"sum_squares", OT_OP_SUM_SQUARES, .types = {.in = {state}}},
      {"adamw", OT_OP_ADAMW,
       .types = {.in = {state, scalars}, .out = {weights, state, state, master, two}}},
  };
  return choose(settings, all, (int)(sizeof all / sizeof all[0]), subjects);
}

static void print_row(const subject *s, double copy_bytes_per_s, bool json, bool last) {
  const ot_cost cost = ot_op_cost(s->kind, &s->attributes, &s->types);
  const double bytes_per_s = (cost.bytes_read + cost.bytes_written) / s->best_s;
  if (json) {
    printf("{\"op\":\"%s\",\"seconds\":%.4g,\"bytes_per_second\":%.4g,\"of_copy\":%.3g}%s\n",
           s->name, s->best_s, bytes_per_s, bytes_per_s / copy_bytes_per_s, last ? "" : ",");
  } else {
    printf("%-16s %9.3f %9.2f %9.0f%%\n", s->name, 1e3 * s->best_s, 1e-9 * bytes_per_s,
           100 * bytes_per_s / copy_bytes_per_s);
  }
}

static void measure_and_print(const memory_bound_settings *settings, subject *subjects, int count) {
  double copy_best_s = 1e30;
  for (int round = 0; round < settings->rounds; round++) {
    const double seconds = copy_s(&subjects[0], round % NUM_SETS, (round + 1) % NUM_SETS);
    if (seconds < copy_best_s) copy_best_s = seconds;
    for (int i = 0; i < count; i++) run(&subjects[i], round % NUM_SETS);
  }
  const double copied = 2 * (double)ot_type_bytes(&subjects[0].types.in[0]) / copy_best_s;
  if (settings->json) {
    printf(
        "{\"rows\":%lld,\"columns\":%lld,\"threads\":%d,\"storage\":\"%s\","
        "\"copy_bytes_per_second\":%.4g,\"ops\":[\n",
        (long long)settings->rows, (long long)settings->columns, settings->threads,
        ot_dtype_name(settings->storage), copied);
  } else {
    printf("%lld rows of %lld, %s, %d threads; a copy moves %.2f GB/s\n", (long long)settings->rows,
           (long long)settings->columns, ot_dtype_name(settings->storage), settings->threads,
           1e-9 * copied);
    printf("%-16s %9s %9s %10s\n", "op", "ms", "GB/s", "of copy");
  }
  for (int i = 0; i < count; i++) {
    print_row(&subjects[i], copied, settings->json, i + 1 == count);
  }
  if (settings->json) printf("]}\n");
}

static ot_status run_program(const ot_options *options) {
  static subject subjects[64];
  const memory_bound_settings settings = {
      .rows = ot_options_integer(options, "rows"),
      .columns = ot_options_integer(options, "columns"),
      .threads = (int)ot_options_integer(options, "threads"),
      .rounds = (int)ot_options_integer(options, "rounds"),
      .storage = ot_options_flag(options, "bf16") ? OT_BF16 : OT_F32,
      .only = ot_options_text(options, "only"),
      .json = ot_options_json(options)};
  OT_CHECK(settings.columns % HEAD_DIM == 0, OT_USAGE, "--columns %lld is not a multiple of %d",
           (long long)settings.columns, HEAD_DIM);
  const int count = describe(&settings, subjects);
  OT_CHECK(count > 0, OT_USAGE, "--only %s is not an op of this benchmark", settings.only);
  measure_and_print(&settings, subjects, count);
  return OT_OK;
}

static const ot_option options[] = {
    {"rows", OT_OPTION_INTEGER, "R", "4096", 1, 1 << 24, .help = "rows of the tensors"},
    {"columns", OT_OPTION_INTEGER, "C", "768", HEAD_DIM, 1 << 20,
     .help = "columns of the tensors, a multiple of 64"},
    {"threads", OT_OPTION_INTEGER, "N", "2", 1, 4096, .help = "threads"},
    {"rounds", OT_OPTION_INTEGER, "K", "12", 1, MAX_ROUNDS, .help = "rounds; the best is reported"},
    {"bf16", OT_OPTION_FLAG, .help = "bf16 instead of fp32"},
    {"only", OT_OPTION_TEXT, "OP", .help = "one operator"},
};

const ot_verb ot_bench_program = {
    .prefix = OT_BENCH_PREFIX,
    .name = "memory_bound",
    .summary = "memory-bound operators compared with a copy",
    .arguments = "",
    .options = options,
    .num_options = OT_COUNT(options),
    .json = true,
    .run = run_program,
};
