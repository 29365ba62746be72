// SPDX-License-Identifier: Apache-2.0
// Permutation between tokens and expert rows, by token: different tokens have different rows, so
// tokens are divided among threads and one thread makes each sum.
#include <stddef.h>
#include <string.h>

#include "kernels/cpu_tables.h"
#include "kernels/tiles.h"
#include "ops/dispatch.h"
#include "ops/route.h"

// ---- dispatch ----

// The rows of a token's slots [S*P].
static const int32_t *places_of(const ot_tensor *place, int64_t token) {
  return (const int32_t *)place->data + token * place->type.dim[1];
}

static void dispatch_token(const ot_kernel_call *call, int64_t token) {
  const ot_tensor *const x = &call->in[0];
  const ot_tensor *const rows = &call->out[0];
  const int64_t S = ot_route_slots(call->attributes);
  const int64_t P = ot_route_copies(call->attributes);
  const int64_t bytes = x->type.dim[1] * ot_dtype_bytes(x->type.dtype);
  const int32_t *const place = places_of(&call->in[2], token);
  const ot_real *const gates = call->in[1].data;
  ot_real *const row_gates = call->out[1].data;
  for (int64_t i = 0; i < S * P; i++) {
    if (place[i] < 0) continue;
    memcpy((char *)rows->data + place[i] * bytes, (const char *)x->data + token * bytes,
           (size_t)bytes);
    if (gates) row_gates[place[i]] = gates[token * S + i / P];
  }
}

static void clear_unused(const ot_kernel_call *call) {
  const ot_tensor *const rows = &call->out[0];
  const int64_t used = ((const int32_t *)call->in[3].data)[call->attributes->num_experts];
  const int64_t P = ot_route_copies(call->attributes);
  const int64_t plane = rows->type.dim[0] / P;
  const int64_t bytes = rows->type.dim[1] * ot_dtype_bytes(rows->type.dtype);
  for (int64_t q = 0; q < P; q++) {
    const int64_t first = q * plane + used;
    memset((char *)rows->data + first * bytes, 0, (size_t)((plane - used) * bytes));
    if (!call->out[1].data) continue;
    memset((ot_real *)call->out[1].data + first, 0, (size_t)(plane - used) * sizeof(ot_real));
  }
}

static void dispatch(const ot_kernel_call *call) {
  const int64_t tokens = call->in[0].type.dim[0];
  const int64_t elements = ot_type_elements(&call->out[0].type);
#pragma omp parallel for num_threads(ot_threads_for(call, elements)) schedule(static)
  for (int64_t token = 0; token < tokens; token++) dispatch_token(call, token);
  if (call->in[3].data) clear_unused(call);
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
  const int64_t places = call->in[2].type.dim[1];
  const int32_t *const place = places_of(&call->in[2], token);
  ot_real sum[OT_TILE];
  ot_real scratch[OT_TILE];
  memset(sum, 0, (size_t)n * sizeof *sum);
  if (addend->data) ot_load_row(sum, addend->data, addend->type.dtype, token * C + column, n);
  for (int64_t i = 0; i < places; i++) {
    if (place[i] < 0) continue;
    add_row(sum, ot_tile_in(rows, place[i] * C + column, n, scratch), n);
  }
  ot_store_row(y->data, y->type.dtype, token * C + column, sum, n);
}

static void collect_gates(const ot_kernel_call *call, int64_t token) {
  const int64_t S = ot_route_slots(call->attributes);
  const int64_t P = ot_route_copies(call->attributes);
  const int32_t *const place = places_of(&call->in[2], token);
  const ot_real *const row_gates = call->in[1].data;
  ot_real *const gates = (ot_real *)call->out[1].data + token * S;
  for (int64_t j = 0; j < S; j++) {
    gates[j] = 0;
    for (int64_t q = 0; q < P && place[j * P] >= 0; q++) gates[j] += row_gates[place[j * P + q]];
  }
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
