// SPDX-License-Identifier: Apache-2.0
// Expert biases by token; their gradients by expert, so that one thread makes each sum.
#include <stddef.h>
#include <string.h>

#include "kernels/cpu_tables.h"
#include "kernels/tiles.h"
#include "ops/expert_bias.h"

static int64_t tile_length(int64_t n, int64_t first) {
  return n - first < OT_TILE ? n - first : OT_TILE;
}

static void add_times(ot_real *restrict sum, ot_real factor, const ot_real *restrict row,
                      int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) sum[i] += factor * row[i];
}

// ---- forward ----

// Columns [column, column + n) of a token.
static void bias_tile(const ot_kernel_call *call, int64_t token, int64_t column, int64_t n) {
  const ot_tensor *const bias = &call->in[2];
  const ot_tensor *const addend = &call->in[3];
  const ot_tensor *const y = &call->out[0];
  const int64_t S = call->in[1].type.dim[1], C = y->type.dim[1];
  const ot_real *const gates = (const ot_real *)call->in[0].data + token * S;
  const int32_t *const experts = (const int32_t *)call->in[1].data + token * S;
  ot_real sum[OT_TILE], scratch[OT_TILE];
  memset(sum, 0, (size_t)n * sizeof *sum);
  if (addend->data) ot_load_row(sum, addend->data, addend->type.dtype, token * C + column, n);
  for (int64_t j = 0; j < S; j++) {
    if (experts[j] < 0) continue;
    add_times(sum, gates[j], ot_tile_in(bias, experts[j] * C + column, n, scratch), n);
  }
  ot_store_row(y->data, y->type.dtype, token * C + column, sum, n);
}

static void expert_bias(const ot_kernel_call *call) {
  const int64_t tokens = call->out[0].type.dim[0], C = call->out[0].type.dim[1];
#pragma omp parallel for num_threads(ot_threads_for(call, tokens *C)) schedule(static)
  for (int64_t token = 0; token < tokens; token++) {
    for (int64_t c = 0; c < C; c += OT_TILE) bias_tile(call, token, c, tile_length(C, c));
  }
}

// ---- gradients ----

static ot_real gate_gradient(const ot_kernel_call *call, int64_t token, int64_t expert) {
  const ot_tensor *const dy = &call->in[0];
  const ot_tensor *const bias = &call->in[2];
  const int64_t C = dy->type.dim[1];
  ot_real scratch[2][OT_TILE];
  ot_real sum = 0;
  for (int64_t c = 0; c < C; c += OT_TILE) {
    const int64_t n = tile_length(C, c);
    const ot_real *const a = ot_tile_in(dy, token * C + c, n, scratch[0]);
    const ot_real *const b = ot_tile_in(bias, expert * C + c, n, scratch[1]);
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
  }
  return sum;
}

static void expert_bias_dx(const ot_kernel_call *call) {
  const int64_t tokens = call->out[0].type.dim[0], S = call->out[0].type.dim[1];
  const int32_t *const experts = call->in[1].data;
  const ot_real *const partial = call->in[3].data;
  ot_real *const dgates = call->out[0].data;
  const int64_t elements = ot_type_elements(&call->in[0].type);
#pragma omp parallel for num_threads(ot_threads_for(call, elements)) schedule(static)
  for (int64_t i = 0; i < tokens * S; i++) {
    const ot_real before = partial ? partial[i] : 0;
    dgates[i] = before + (experts[i] < 0 ? 0 : gate_gradient(call, i / S, experts[i]));
  }
}

// Columns [column, column + n) of dbias of one expert.
static void dbias_tile(const ot_kernel_call *call, int64_t expert, int64_t column, int64_t n) {
  const ot_tensor *const dy = &call->in[0];
  const ot_tensor *const dbias = &call->out[0];
  const int64_t C = dy->type.dim[1], S = call->in[1].type.dim[1];
  const ot_real *const gates = call->in[1].data;
  const int32_t *const experts = call->in[2].data;
  ot_real sum[OT_TILE], scratch[OT_TILE];
  memset(sum, 0, (size_t)n * sizeof *sum);
  if (call->attributes->accumulate) {
    ot_load_row(sum, dbias->data, dbias->type.dtype, expert * C + column, n);
  }
  for (int64_t i = 0; i < dy->type.dim[0] * S; i++) {
    if (experts[i] != expert) continue;
    add_times(sum, gates[i], ot_tile_in(dy, i / S * C + column, n, scratch), n);
  }
  ot_store_row(dbias->data, dbias->type.dtype, expert * C + column, sum, n);
}

static void expert_bias_dw(const ot_kernel_call *call) {
  const int64_t E = call->attributes->num_experts, C = call->in[0].type.dim[1];
#pragma omp parallel for num_threads(call->attributes->threads) schedule(dynamic, 1)
  for (int64_t expert = 0; expert < E; expert++) {
    for (int64_t c = 0; c < C; c += OT_TILE) dbias_tile(call, expert, c, tile_length(C, c));
  }
}

const ot_kernel_entry OT_KERNEL(ot_expert_bias_cpu)[] = {
    {OT_OP_EXPERT_BIAS, expert_bias},
    {OT_OP_EXPERT_BIAS_DX, expert_bias_dx},
    {OT_OP_EXPERT_BIAS_DW, expert_bias_dw},
    {OT_OP_COUNT, NULL},
};
