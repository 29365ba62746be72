// SPDX-License-Identifier: Apache-2.0
// Rotation of query and key heads by position. The cosines and sines of a token are unpacked once
// for all its heads.
#include <stddef.h>

#include "base/math.h"
#include "kernels/cpu_tables.h"
#include "kernels/rotation.h"
#include "kernels/tiles.h"
#include "ops/rope.h"

// Pairs [first, first + n) of the table, given their frequencies in radians per position.
static void table_pairs(const ot_kernel_call *call, const double *frequency, int64_t first,
                        int64_t n) {
  const int64_t positions = call->out[0].type.dim[0];
  const int64_t pairs = call->out[0].type.dim[1];
  ot_real *const table = call->out[0].data;
  const double magnitude = ot_rope_magnitude(call->attributes);
#pragma omp parallel for num_threads(ot_threads_for(call, positions *n)) schedule(static)
  for (int64_t position = 0; position < positions; position++) {
    ot_real *const row = table + (position * pairs + first) * 2;
    for (int64_t i = 0; i < n; i++) {
      const double angle = (double)position * frequency[i];
      row[2 * i] = (ot_real)(magnitude * ot_cos(angle));
      row[2 * i + 1] = (ot_real)(magnitude * ot_sin(angle));
    }
  }
}

static void rope_table(const ot_kernel_call *call) {
  const int64_t pairs = call->out[0].type.dim[1];
  double frequency[OT_PAIRS];
  for (int64_t first = 0; first < pairs; first += OT_PAIRS) {
    const int64_t n = pairs - first < OT_PAIRS ? pairs - first : OT_PAIRS;
    for (int64_t i = 0; i < n; i++) {
      frequency[i] = ot_rope_frequency(call->attributes, first + i);
    }
    table_pairs(call, frequency, first, n);
  }
}

static void rotate_head(const ot_kernel_call *call, const ot_rotation *r, int64_t head_first) {
  ot_real scratch[4][OT_PAIRS];
  const ot_tensor *const x = &call->in[0];
  const ot_tensor *const y = &call->out[0];
  const int64_t low = head_first + r->first;
  const int64_t high = low + call->in[2].type.dim[1];
  const ot_real *const a = ot_tile_in(x, low, r->n, scratch[0]);
  const ot_real *const b = ot_tile_in(x, high, r->n, scratch[1]);
  ot_real *const to_a = ot_tile_out(y, low, scratch[2]);
  ot_real *const to_b = ot_tile_out(y, high, scratch[3]);
  ot_rotate(r, a, b, to_a, to_b);
  ot_tile_done(y, low, to_a, r->n);
  ot_tile_done(y, high, to_b, r->n);
}

static void copy_elements(const ot_kernel_call *call, int64_t first, int64_t n) {
  ot_real scratch[OT_TILE];
  const ot_tensor *const y = &call->out[0];
  for (int64_t c = 0; c < n; c += OT_TILE) {
    const int64_t count = n - c < OT_TILE ? n - c : OT_TILE;
    const ot_real *const x = ot_tile_in(&call->in[0], first + c, count, scratch);
    ot_store_row(y->data, y->type.dtype, first + c, x, count);
  }
}

// Copies unrotated elements when the result is not in place: the ends of the heads and the values.
static void copy_rest(const ot_kernel_call *call, int64_t row) {
  const ot_op_attributes *const attributes = call->attributes;
  const int64_t heads = attributes->num_heads + attributes->num_kv_heads;
  const int64_t head_dim = attributes->head_dim;
  const int64_t begin = row * call->in[0].type.dim[1];
  const int64_t rest = head_dim - attributes->rotary_dim;
  for (int64_t head = 0; head < heads && rest > 0; head++) {
    copy_elements(call, begin + head * head_dim + attributes->rotary_dim, rest);
  }
  copy_elements(call, begin + heads * head_dim, attributes->num_kv_heads * head_dim);
}

static void rotate_row(const ot_kernel_call *call, int64_t row, ot_real sign) {
  const ot_op_attributes *const attributes = call->attributes;
  const int64_t heads = attributes->num_heads + attributes->num_kv_heads;
  const int64_t pairs = attributes->rotary_dim / 2;
  const int64_t begin = row * call->in[0].type.dim[1];
  ot_rotation r;
  for (r.first = 0; r.first < pairs; r.first += OT_PAIRS) {
    r.n = pairs - r.first < OT_PAIRS ? pairs - r.first : OT_PAIRS;
    ot_rotation_read(&call->in[1], &call->in[2], row, sign, &r);
    for (int64_t head = 0; head < heads; head++) {
      rotate_head(call, &r, begin + head * attributes->head_dim);
    }
  }
  if (call->out[0].data != call->in[0].data) copy_rest(call, row);
}

static void rotate(const ot_kernel_call *call, ot_real sign) {
  const int64_t rows = call->in[0].type.dim[0];
  const int threads = ot_threads_for(call, ot_type_elements(&call->in[0].type));
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t row = 0; row < rows; row++) rotate_row(call, row, sign);
}

static void rope(const ot_kernel_call *call) { rotate(call, 1); }

static void rope_grad(const ot_kernel_call *call) { rotate(call, -1); }

const ot_kernel_entry OT_KERNEL(ot_rope_cpu)[] = {
    {OT_OP_ROPE_TABLE, rope_table},
    {OT_OP_ROPE, rope},
    {OT_OP_ROPE_GRAD, rope_grad},
    {OT_OP_COUNT, NULL},
};
