// SPDX-License-Identifier: Apache-2.0
// Batches, scalars, spans and medians.
#include "support/bench_step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "ops/catalog.h"

enum { SEED = 7 };

ot_model ot_bench_gpt2(void) {
  return (ot_model){
      .family = OT_FAMILY_GPT2,
      .model_type = "gpt2",
      .architecture = "GPT2LMHeadModel",
      .vocab_size = 50257,
      .hidden_size = 768,
      .intermediate_size = 3072,
      .num_layers = 12,
      .num_heads = 12,
      .num_kv_heads = 12,
      .head_dim = 64,
      .max_positions = 1024,
      .activation = OT_ACTIVATION_GELU_TANH,
      .qkv_bias = true,
      .output_bias = true,
      .mlp_bias = true,
      .tie_word_embeddings = true,
      .norm = OT_NORM_LAYERNORM,
      .norm_epsilon = 1e-5,
      .embedding_scale = 1,
      .attention_scale = 0.125,
      .learned_positions = true,
      .initializer_range = 0.02,
  };
}

void ot_bench_load(ot_runtime *runtime, int micro_batch, int64_t vocab) {
  const ot_graph *const graph = ot_runtime_graph(runtime, OT_MODE_TRAIN);
  for (int field = 0; field < OT_BATCH_FIELDS; field++) {
    const ot_tensor_type type = ot_graph_batch_type(graph, (ot_batch_field)field);
    const int64_t n = ot_type_elements(&type);
    void *const values = calloc((size_t)n, (size_t)ot_dtype_bytes(type.dtype));
    if (!values) continue;
    for (int64_t i = 0; i < n && type.dtype == OT_I32; i++) {
      const bool ids = field == OT_BATCH_TOKENS || field == OT_BATCH_TARGETS;
      const uint64_t at = (uint64_t)(micro_batch * n + i);
      const int64_t place = i % graph->request.sequence_length;
      const int32_t id = (int32_t)ot_rng_below(SEED, (uint64_t)field, at, (uint64_t)vocab);
      ((int32_t *)values)[i] = ids ? id : field == OT_BATCH_POSITIONS ? (int32_t)place : 0;
    }
    ot_runtime_load_batch(runtime, OT_MODE_TRAIN, micro_batch, (ot_batch_field)field, values);
    free(values);
  }
}

void ot_bench_set_scalars(ot_runtime *runtime, int64_t targets, int64_t sequences) {
  ot_executor *const executor = ot_runtime_executor(runtime);
  ot_executor_set_scalar(executor, OT_SCALAR_LEARNING_RATE, 1e-4);
  ot_executor_set_scalar(executor, OT_SCALAR_CORRECTION_1, 1);
  ot_executor_set_scalar(executor, OT_SCALAR_CORRECTION_2, 1);
  ot_executor_set_scalar(executor, OT_SCALAR_TARGETS, (double)targets);
  ot_executor_set_scalar(executor, OT_SCALAR_INVERSE_SEQUENCES, 1 / (double)sequences);
}

static bool is_forward_backward(ot_phase phase) {
  return phase == OT_PHASE_FORWARD || phase == OT_PHASE_BACKWARD || phase == OT_PHASE_RECOMPUTE;
}

double ot_bench_forward_backward_s(ot_runtime *runtime) {
  const ot_timeline *const timeline = ot_executor_timeline(ot_runtime_executor(runtime));
  const ot_order *const order = &ot_runtime_schedule(runtime)->orders[timeline->order];
  double sum_s = 0;
  for (int64_t i = 0; i < timeline->num_spans; i++) {
    const ot_span *const span = &timeline->spans[i];
    if (is_forward_backward(order->entries[span->entry].phase)) {
      sum_s += span->end_s - span->start_s;
    }
  }
  return sum_s;
}

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double ot_bench_median(const double *values, int count) {
  double sorted[OT_BENCH_REPEATS];
  memcpy(sorted, values, (size_t)count * sizeof *sorted);
  qsort(sorted, (size_t)count, sizeof *sorted, by_value);
  return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

void ot_bench_print_phases(ot_runtime *runtime) {
  const ot_schedule *const schedule = ot_runtime_schedule(runtime);
  const ot_timeline *const timeline = ot_executor_timeline(ot_runtime_executor(runtime));
  const ot_order *const order = &schedule->orders[timeline->order];
  double seconds[OT_OP_COUNT] = {0}, flops[OT_OP_COUNT] = {0}, bytes[OT_OP_COUNT] = {0};
  for (int64_t i = 0; i < timeline->num_spans; i++) {
    const ot_span *const span = &timeline->spans[i];
    const ot_task *const task =
        &schedule->segments[order->entries[span->entry].segment].tasks[span->task];
    const ot_cost cost = ot_task_cost(task);
    seconds[task->op] += span->end_s - span->start_s;
    flops[task->op] += cost.matrix_flops;
    bytes[task->op] += cost.bytes_read + cost.bytes_written;
  }
  printf("%-18s %9s %7s %9s %8s\n", "op", "seconds", "share", "GFLOP/s", "GB/s");
  for (int i = 0; i < OT_OP_COUNT; i++) {
    if (seconds[i] == 0) continue;
    printf("%-18s %9.4f %6.2f%% %9.1f %8.1f\n", ot_op_info_of((ot_op_kind)i)->name, seconds[i],
           100 * seconds[i] / timeline->total_s, flops[i] / seconds[i] * 1e-9,
           bytes[i] / seconds[i] * 1e-9);
  }
}
