// SPDX-License-Identifier: Apache-2.0
// Layout copies of context-parallel attention: a thread moves one word, 16 bytes where pieces are
// multiples of that, else one element.
#include "kernels/cuda/rows.cuh"

extern "C" {
#include "kernels/cuda/tables.h"
}

namespace {

enum { THREADS = 256 };

struct copy_place {
  int64_t from, to;  // words
};

// place(i) is where word i of n comes from and goes to.
template <class Word, class Place>
static __global__ void __launch_bounds__(THREADS)
    copy_kernel(const Word *from, Word *to, int64_t n, Place place) {
  const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (i >= n) return;
  const copy_place at = place(i);
  to[at.to] = from[at.from];
}

template <class Word, class Place>
static void copy_words(const ot_kernel_call *call, int64_t bytes, Place place) {
  const int64_t n = bytes / (int64_t)sizeof(Word);
  OT_LAUNCH((copy_kernel<Word, Place>), ot_blocks(n, THREADS), THREADS, 0, ot_cuda_stream_of(call),
            (const Word *)call->in[0].data, (Word *)call->out[0].data, n, place);
}

// Copies `bytes` in words as long as `pieces`, the OR of the sizes of all pieces, allows.
// place_of(bytes of a word) returns the place function.
template <class PlaceOf>
static void copy(const ot_kernel_call *call, int64_t bytes, int64_t pieces, PlaceOf place_of) {
  const ot_tensor *const tensors[] = {&call->in[0], &call->out[0]};
  ot_for_words(tensors, 2, pieces, [&](auto word) {
    using Word = decltype(word);
    copy_words<Word>(call, bytes, place_of((int64_t)sizeof(Word)));
  });
}

// ---- keys and values ----

struct slice_place {
  int64_t from_row, to_row;
  __device__ copy_place operator()(int64_t i) const {
    const int64_t row = i / to_row;
    return {(row + 1) * from_row - to_row + i % to_row, i};
  }
};

static void kv_slice(const ot_kernel_call *call) {
  const int64_t element = ot_dtype_bytes(call->in[0].type.dtype);
  const int64_t from = call->in[0].type.dim[1] * element, to = call->out[0].type.dim[1] * element;
  copy(call, ot_type_bytes(&call->out[0].type), from | to, [&](int64_t word) {
    return slice_place{from / word, to / word};
  });
}

template <class R, class S, int N>
static __global__ void __launch_bounds__(THREADS)
    join_kernel(ot_any<R> dq, ot_any<R> dkv, S *y, int64_t n, int64_t q, int64_t kv) {
  const int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N;
  if (i >= n) return;
  const int64_t row = i / (q + kv), c = i - row * (q + kv);
  R x[N];
  if (c < q) {
    ot_load_any(dq, row * q + c, x);
  } else {
    ot_load_any(dkv, row * kv + c - q, x);
  }
  ot_store(y + i, x);
}

template <class R>
static void qkv_join(const ot_kernel_call *call) {
  const ot_tensor *const in = call->in, *const y = &call->out[0];
  const int64_t q = in[0].type.dim[1], kv = in[1].type.dim[1], n = ot_type_elements(&y->type);
  const void *const all[] = {in[0].data, in[1].data, y->data};
  ot_for_storage<R>(y->type.dtype, ot_fits_vectors(y->type.dtype, q | kv, all, 3),
                    [&](auto s, auto width) {
                      using S = decltype(s);
                      constexpr int N = decltype(width)::value;
                      OT_LAUNCH((join_kernel<R, S, N>), ot_blocks(n, THREADS * N), THREADS, 0,
                                ot_cuda_stream_of(call), ot_any_of<R>(&in[0]), ot_any_of<R>(&in[1]),
                                (S *)y->data, n, q, kv);
                    });
}

// ---- heads ----

// Words of the q part and of each of the k and v parts of a row with all heads; a head shard has a
// part of each.
struct heads_place {
  int64_t q, kv, rows, ranks;
  bool scatter;  // from all heads to head shards, or back
  __device__ copy_place operator()(int64_t i) const {
    const int64_t of_row = q + 2 * kv, row = i / of_row, word = i - row * of_row;
    const int64_t first = word < q ? 0 : word < q + kv ? q : q + kv;
    const int64_t share = (word < q ? q : kv) / ranks, rank = (word - first) / share;
    const int64_t in_share = first / ranks + (word - first) - rank * share;
    const int64_t at = (rank * rows + row) * (of_row / ranks) + in_share;
    return scatter ? copy_place{i, at} : copy_place{at, i};
  }
};

static void exchange_heads(const ot_kernel_call *call, bool scatter) {
  const ot_op_attributes *const a = call->attributes;
  const ot_tensor_type *const whole = scatter ? &call->in[0].type : &call->out[0].type;
  const int64_t head = a->head_dim * ot_dtype_bytes(whole->dtype), ranks = a->context_size;
  const int64_t q = a->num_heads * head, kv = a->num_kv_heads * head, rows = whole->dim[0];
  copy(call, ot_type_bytes(whole), q / ranks | kv / ranks, [&](int64_t word) {
    return heads_place{q / word, kv / word, rows, ranks, scatter};
  });
}

static void heads_scatter(const ot_kernel_call *call) { exchange_heads(call, true); }

static void heads_gather(const ot_kernel_call *call) { exchange_heads(call, false); }

// ---- sequences ----

struct sequence_place {
  int64_t of_row, rows, t, ranks;
  bool join;  // from pieces to whole sequences, or back
  __device__ copy_place operator()(int64_t i) const {
    const int64_t row = i / of_row, word = i - row * of_row;
    const int64_t sequence = row / (t * ranks), place = row - sequence * t * ranks;
    const int64_t piece = place / t * (rows / ranks) + sequence * t + place % t;
    const int64_t at = piece * of_row + word;
    return join ? copy_place{at, i} : copy_place{i, at};
  }
};

static void exchange_rows(const ot_kernel_call *call, bool join) {
  const ot_op_attributes *const a = call->attributes;
  const ot_tensor_type *const type = &call->in[0].type;
  const int64_t rows = type->dim[0], bytes = ot_type_bytes(type) / rows;
  copy(call, rows * bytes, bytes, [&](int64_t word) {
    return sequence_place{bytes / word, rows, a->sequence_length, a->context_size, join};
  });
}

static void sequence_join(const ot_kernel_call *call) { exchange_rows(call, true); }

static void sequence_split(const ot_kernel_call *call) { exchange_rows(call, false); }

}  // namespace

extern "C" const ot_kernel_entry ot_context_cuda_f32[] = {{OT_OP_KV_SLICE, kv_slice},
                                                          {OT_OP_QKV_JOIN, qkv_join<float>},
                                                          {OT_OP_HEADS_SCATTER, heads_scatter},
                                                          {OT_OP_HEADS_GATHER, heads_gather},
                                                          {OT_OP_SEQUENCE_JOIN, sequence_join},
                                                          {OT_OP_SEQUENCE_SPLIT, sequence_split},
                                                          {}};

extern "C" const ot_kernel_entry ot_context_cuda_f64[] = {{OT_OP_KV_SLICE, kv_slice},
                                                          {OT_OP_QKV_JOIN, qkv_join<double>},
                                                          {OT_OP_HEADS_SCATTER, heads_scatter},
                                                          {OT_OP_HEADS_GATHER, heads_gather},
                                                          {OT_OP_SEQUENCE_JOIN, sequence_join},
                                                          {OT_OP_SEQUENCE_SPLIT, sequence_split},
                                                          {}};
