// SPDX-License-Identifier: Apache-2.0
// Copies between tokens and rows, by token: the rows of different tokens are different rows, so
// tokens are shared out among threads and every sum is made by one of them.
#include <stddef.h>
#include <string.h>

#include "ops/dispatch.h"
#include "ops/route.h"
#include "ops/tiles.h"

// ---- dispatch ----

static void dispatch_token(const ot_kernel_call *call, int64_t token) {
  const ot_tensor *const x = &call->in[0];
  const ot_tensor *const rows = &call->out[0];
  const int64_t S = call->in[2].type.dim[1];
  const int64_t bytes = x->type.dim[1] * ot_dtype_bytes(x->type.dtype);
  const int32_t *const place = (const int32_t *)call->in[2].data + token * S;
  const ot_real *const gates = call->in[1].data;
  ot_real *const row_gates = call->out[1].data;
  for (int64_t j = 0; j < S; j++) {
    if (place[j] < 0) continue;
    memcpy((char *)rows->data + place[j] * bytes, (const char *)x->data + token * bytes,
           (size_t)bytes);
    if (gates) row_gates[place[j]] = gates[token * S + j];
  }
}

static void clear_unused(const ot_kernel_call *call) {
  const ot_tensor *const rows = &call->out[0];
  const int64_t used = ((const int32_t *)call->in[3].data)[ot_route_held(call->attributes)];
  const int64_t unused = rows->type.dim[0] - used;
  const int64_t bytes = rows->type.dim[1] * ot_dtype_bytes(rows->type.dtype);
  memset((char *)rows->data + used * bytes, 0, (size_t)(unused * bytes));
  if (!call->out[1].data) return;
  memset((ot_real *)call->out[1].data + used, 0, (size_t)unused * sizeof(ot_real));
}

static void dispatch(const ot_kernel_call *call) {
  const int64_t tokens = call->in[0].type.dim[0];
  const int64_t elements = ot_type_elements(&call->out[0].type);
#pragma omp parallel for num_threads(ot_threads_for(call, elements)) schedule(static)
  for (int64_t token = 0; token < tokens; token++) dispatch_token(call, token);
  clear_unused(call);
}

// ---- combine ----

static void add_row(ot_real *restrict sum, const ot_real *restrict row, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) sum[i] += row[i];
}

// Columns [column, column + n) of the sum of a token.
static void combine_tile(const ot_kernel_call *call, int64_t token, int64_t column, int64_t n) {
  const ot_tensor *const rows = &call->in[0];
  const ot_tensor *const addend = &call->in[4];
  const ot_tensor *const y = &call->out[0];
  const int64_t C = y->type.dim[1];
  const int64_t S = call->in[2].type.dim[1];
  const int32_t *const place = (const int32_t *)call->in[2].data + token * S;
  ot_real sum[OT_TILE];
  ot_real scratch[OT_TILE];
  memset(sum, 0, (size_t)n * sizeof *sum);
  if (addend->data) ot_load_row(sum, addend->data, addend->type.dtype, token * C + column, n);
  for (int64_t j = 0; j < S; j++) {
    if (place[j] < 0) continue;
    add_row(sum, ot_tile_in(rows, place[j] * C + column, n, scratch), n);
  }
  ot_store_row(y->data, y->type.dtype, token * C + column, sum, n);
}

static void collect_gates(const ot_kernel_call *call, int64_t token) {
  const int64_t S = call->in[2].type.dim[1];
  const int32_t *const place = (const int32_t *)call->in[2].data + token * S;
  const ot_real *const row_gates = call->in[1].data;
  ot_real *const gates = (ot_real *)call->out[1].data + token * S;
  for (int64_t j = 0; j < S; j++) gates[j] = place[j] >= 0 ? row_gates[place[j]] : 0;
}

static void combine(const ot_kernel_call *call) {
  const int64_t tokens = call->out[0].type.dim[0];
  const int64_t C = call->out[0].type.dim[1];
  const int64_t elements = ot_type_elements(&call->in[0].type);
#pragma omp parallel for num_threads(ot_threads_for(call, elements)) schedule(static)
  for (int64_t token = 0; token < tokens; token++) {
    for (int64_t c = 0; c < C; c += OT_TILE) {
      combine_tile(call, token, c, C - c < OT_TILE ? C - c : OT_TILE);
    }
    if (call->out[1].data) collect_gates(call, token);
  }
}

const ot_kernel_entry OT_KERNEL(ot_dispatch_cpu)[] = {
    {OT_OP_DISPATCH, dispatch},
    {OT_OP_COMBINE, combine},
    {OT_OP_COUNT, NULL},
};
