// SPDX-License-Identifier: Apache-2.0
// Layout copies of latent attention, row by row and head by head; a head fits on the stack.
#include <stddef.h>
#include <string.h>

#include "kernels/cpu_tables.h"
#include "kernels/latent_rotate.h"
#include "kernels/tiles.h"
#include "ops/latent.h"

// Columns from `column` on of a tensor.
typedef struct columns {
  const ot_tensor *tensor;
  int64_t column;
} columns;

// Copies n columns of a row.
static void copy_columns(columns from, columns to, int64_t row, int64_t n) {
  ot_real scratch[OT_TILE];
  const int64_t first = row * from.tensor->type.dim[1] + from.column;
  const int64_t target = row * to.tensor->type.dim[1] + to.column;
  for (int64_t i = 0; i < n; i += OT_TILE) {
    const int64_t count = n - i < OT_TILE ? n - i : OT_TILE;
    ot_load_row(scratch, from.tensor->data, from.tensor->type.dtype, first + i, count);
    ot_store_row(to.tensor->data, to.tensor->type.dtype, target + i, scratch, count);
  }
}

static void load_columns(const ot_tensor *tensor, int64_t row, int64_t column, ot_real *to,
                         int64_t n) {
  ot_load_row(to, tensor->data, tensor->type.dtype, row * tensor->type.dim[1] + column, n);
}

static void store_columns(const ot_tensor *tensor, int64_t row, int64_t column, const ot_real *from,
                          int64_t n) {
  ot_store_row(tensor->data, tensor->type.dtype, row * tensor->type.dim[1] + column, from, n);
}

// ---- latent | rotary ----

static void latent_split(const ot_kernel_call *call) {
  const int64_t rows = call->in[0].type.dim[0];
  const int64_t K = call->out[0].type.dim[1];
  const int threads = ot_threads_for(call, ot_type_elements(&call->in[0].type));
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t r = 0; r < rows; r++) {
    copy_columns((columns){&call->in[0], 0}, (columns){&call->out[0], 0}, r, K);
    copy_columns((columns){&call->in[0], K}, (columns){&call->out[1], 0}, r,
                 call->out[1].type.dim[1]);
  }
}

static void latent_join(const ot_kernel_call *call) {
  const int64_t rows = call->in[0].type.dim[0];
  const int64_t K = call->in[0].type.dim[1];
  const int threads = ot_threads_for(call, ot_type_elements(&call->out[0].type));
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t r = 0; r < rows; r++) {
    copy_columns((columns){&call->in[0], 0}, (columns){&call->out[0], 0}, r, K);
    copy_columns((columns){&call->in[1], 0}, (columns){&call->out[0], K}, r,
                 call->in[1].type.dim[1]);
  }
}

// ---- packed heads ----

typedef struct widths {
  int64_t H, N, P, D, V;
} widths;

static widths widths_of(const ot_op_attributes *a) {
  return (widths){.H = a->num_heads,
                  .N = a->head_dim - a->rotary_dim,
                  .P = a->rotary_dim,
                  .D = a->head_dim,
                  .V = a->value_dim};
}

static void pack_row(const ot_kernel_call *call, int64_t r) {
  const widths w = widths_of(call->attributes);
  const ot_real *const angles = ot_latent_angles(&call->in[3], &call->in[4], r);
  const ot_tensor *const qkv = &call->out[0];
  const int64_t keys = w.H * w.D;
  ot_real read[OT_TILE], head[OT_TILE], key[OT_TILE];
  load_columns(&call->in[2], r, 0, read, w.P);
  ot_latent_rotate(call->attributes, angles, read, key + w.N);
  for (int64_t h = 0; h < w.H; h++) {
    load_columns(&call->in[0], r, h * w.D, head, w.N);
    load_columns(&call->in[0], r, h * w.D + w.N, read, w.P);
    ot_latent_rotate(call->attributes, angles, read, head + w.N);
    store_columns(qkv, r, h * w.D, head, w.D);
    load_columns(&call->in[1], r, h * (w.N + w.V), key, w.N);
    store_columns(qkv, r, keys + h * w.D, key, w.D);
    load_columns(&call->in[1], r, h * (w.N + w.V) + w.N, head, w.V);
    memset(head + w.V, 0, (size_t)(w.D - w.V) * sizeof *head);
    store_columns(qkv, r, 2 * keys + h * w.D, head, w.D);
  }
}

static void latent_heads(const ot_kernel_call *call) {
  const int64_t rows = call->in[0].type.dim[0];
  const int threads = ot_threads_for(call, ot_type_elements(&call->out[0].type));
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t r = 0; r < rows; r++) pack_row(call, r);
}

static void unpack_row(const ot_kernel_call *call, int64_t r) {
  const widths w = widths_of(call->attributes);
  const ot_real *const angles = ot_latent_angles(&call->in[1], &call->in[2], r);
  const ot_tensor *const dqkv = &call->in[0];
  const int64_t keys = w.H * w.D;
  ot_real head[OT_TILE], back[OT_TILE], shared[OT_TILE];
  memset(shared, 0, (size_t)w.P * sizeof *shared);
  for (int64_t h = 0; h < w.H; h++) {
    load_columns(dqkv, r, h * w.D, head, w.D);
    ot_latent_rotate_back(call->attributes, angles, head + w.N, back);
    store_columns(&call->out[0], r, h * w.D, head, w.N);
    store_columns(&call->out[0], r, h * w.D + w.N, back, w.P);
    load_columns(dqkv, r, keys + h * w.D, head, w.D);
    store_columns(&call->out[1], r, h * (w.N + w.V), head, w.N);
    for (int64_t i = 0; i < w.P; i++) shared[i] += head[w.N + i];
    load_columns(dqkv, r, 2 * keys + h * w.D, head, w.V);
    store_columns(&call->out[1], r, h * (w.N + w.V) + w.N, head, w.V);
  }
  ot_latent_rotate_back(call->attributes, angles, shared, back);
  store_columns(&call->out[2], r, 0, back, w.P);
}

static void latent_heads_grad(const ot_kernel_call *call) {
  const int64_t rows = call->in[0].type.dim[0];
  const int threads = ot_threads_for(call, ot_type_elements(&call->in[0].type));
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t r = 0; r < rows; r++) unpack_row(call, r);
}

// ---- values ----

// Copies heads of `from` columns to heads of `to` columns, truncated or zero-padded.
static void resize_heads(const ot_kernel_call *call, int64_t from, int64_t to) {
  const int64_t heads = call->attributes->num_heads;
  const int64_t rows = call->in[0].type.dim[0];
  const int64_t both = from < to ? from : to;
#pragma omp parallel for num_threads(ot_threads_for(call, rows *heads *to)) schedule(static)
  for (int64_t unit = 0; unit < rows * heads; unit++) {
    ot_real head[OT_TILE];
    memset(head, 0, (size_t)to * sizeof *head);
    load_columns(&call->in[0], unit / heads, unit % heads * from, head, both);
    store_columns(&call->out[0], unit / heads, unit % heads * to, head, to);
  }
}

static void value_trim(const ot_kernel_call *call) {
  resize_heads(call, call->attributes->head_dim, call->attributes->value_dim);
}

static void value_pad(const ot_kernel_call *call) {
  resize_heads(call, call->attributes->value_dim, call->attributes->head_dim);
}

const ot_kernel_entry OT_KERNEL(ot_latent_cpu)[] = {
    {OT_OP_LATENT_SPLIT, latent_split},
    {OT_OP_LATENT_JOIN, latent_join},
    {OT_OP_LATENT_HEADS, latent_heads},
    {OT_OP_LATENT_HEADS_GRAD, latent_heads_grad},
    {OT_OP_VALUE_TRIM, value_trim},
    {OT_OP_VALUE_PAD, value_pad},
    {OT_OP_COUNT, NULL},
};
