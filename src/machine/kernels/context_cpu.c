// SPDX-License-Identifier: Apache-2.0
// Layout copies of context-parallel attention, row by row. All except qkv_join copy bytes and
// accept any type.
#include <string.h>

#include "kernels/cpu_tables.h"
#include "kernels/tiles.h"
#include "ops/context.h"

static int64_t bytes_of(const ot_tensor *tensor, int64_t elements) {
  return elements * ot_dtype_bytes(tensor->type.dtype);
}

static void kv_slice(const ot_kernel_call *call) {
  const ot_tensor *const qkv = &call->in[0];
  const ot_tensor *const kv = &call->out[0];
  const int64_t from = bytes_of(qkv, qkv->type.dim[1]);
  const int64_t to = bytes_of(kv, kv->type.dim[1]);
  const int threads = ot_threads_for(call, ot_type_elements(&kv->type));
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t row = 0; row < kv->type.dim[0]; row++) {
    memcpy((char *)kv->data + row * to, (const char *)qkv->data + (row + 1) * from - to,
           (size_t)to);
  }
}

static void qkv_join(const ot_kernel_call *call) {
  const ot_real *const dq = call->in[0].data;
  const ot_real *const dkv = call->in[1].data;
  const ot_tensor *const to = &call->out[0];
  const int64_t q = call->in[0].type.dim[1];
  const int64_t kv = call->in[1].type.dim[1];
  const int threads = ot_threads_for(call, ot_type_elements(&to->type));
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t row = 0; row < to->type.dim[0]; row++) {
    const int64_t first = row * (q + kv);
    ot_store_row(to->data, to->type.dtype, first, dq + row * q, q);
    ot_store_row(to->data, to->type.dtype, first + q, dkv + row * kv, kv);
  }
}

// ---- heads ----

// Bytes of the q, k and v parts of a row with all heads; a head shard has a part of each.
typedef struct head_parts {
  int64_t bytes[3], row;
  int ranks;
  bool scatter;  // from all heads to head shards, or back
} head_parts;

static head_parts head_parts_of(const ot_kernel_call *call, bool scatter) {
  const ot_op_attributes *const a = call->attributes;
  const int64_t head = bytes_of(&call->in[0], a->head_dim);
  const int64_t q = a->num_heads * head;
  const int64_t kv = a->num_kv_heads * head;
  return (head_parts){{q, kv, kv}, q + 2 * kv, a->context_size, scatter};
}

// Copies between a row with all heads and the head shard of `rank`.
static void copy_share(const head_parts *parts, int rank, char *whole, char *share) {
  for (int i = 0; i < 3; i++) {
    const int64_t bytes = parts->bytes[i] / parts->ranks;
    char *const place = whole + rank * bytes;
    memcpy(parts->scatter ? share : place, parts->scatter ? place : share, (size_t)bytes);
    whole += parts->bytes[i];
    share += bytes;
  }
}

static void exchange_heads(const ot_kernel_call *call, bool scatter) {
  const head_parts parts = head_parts_of(call, scatter);
  const ot_tensor *const whole = scatter ? &call->in[0] : &call->out[0];
  const ot_tensor *const shares = scatter ? &call->out[0] : &call->in[0];
  const int64_t rows = whole->type.dim[0];
  const int64_t share_row = parts.row / parts.ranks;
  const int threads = ot_threads_for(call, ot_type_elements(&whole->type));
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t row = 0; row < rows; row++) {
    for (int rank = 0; rank < parts.ranks; rank++) {
      copy_share(&parts, rank, (char *)whole->data + row * parts.row,
                 (char *)shares->data + (rank * rows + row) * share_row);
    }
  }
}

static void heads_scatter(const ot_kernel_call *call) { exchange_heads(call, true); }

static void heads_gather(const ot_kernel_call *call) { exchange_heads(call, false); }

// ---- sequences ----

// The row, in rank-ordered sequence blocks, of row `row` of whole sequences.
static int64_t row_in_pieces(const ot_op_attributes *a, int64_t rows, int64_t row) {
  const int64_t t = a->sequence_length;
  const int64_t whole = t * a->context_size;
  const int64_t place = row % whole;
  return place / t * (rows / a->context_size) + row / whole * t + place % t;
}

static void exchange_rows(const ot_kernel_call *call, bool join) {
  const ot_tensor *const from = &call->in[0];
  const int64_t rows = from->type.dim[0];
  const int64_t bytes = ot_type_bytes(&from->type) / rows;
  const int threads = ot_threads_for(call, ot_type_elements(&from->type));
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t row = 0; row < rows; row++) {
    const int64_t piece_row = row_in_pieces(call->attributes, rows, row);
    memcpy((char *)call->out[0].data + (join ? row : piece_row) * bytes,
           (const char *)from->data + (join ? piece_row : row) * bytes, (size_t)bytes);
  }
}

static void sequence_join(const ot_kernel_call *call) { exchange_rows(call, true); }

static void sequence_split(const ot_kernel_call *call) { exchange_rows(call, false); }

const ot_kernel_entry OT_KERNEL(ot_context_cpu)[] = {
    {OT_OP_KV_SLICE, kv_slice},
    {OT_OP_QKV_JOIN, qkv_join},
    {OT_OP_HEADS_SCATTER, heads_scatter},
    {OT_OP_HEADS_GATHER, heads_gather},
    {OT_OP_SEQUENCE_JOIN, sequence_join},
    {OT_OP_SEQUENCE_SPLIT, sequence_split},
    {OT_OP_COUNT, NULL},
};
