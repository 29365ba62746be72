// SPDX-License-Identifier: Apache-2.0
// Row lookup in tables, and the sums of gradient rows by id: rows are sorted by (id, row), then one
// block adds the rows of an id in order, so no two threads add to one element.
#include "kernels/cuda/rows.cuh"

extern "C" {
#include "kernels/cuda/tables.h"
#include "ops/embedding.h"
}

namespace {

enum {
  THREADS = 128,
  SORT_THREADS = 256,
  ROWS_AT_ONCE = 8  // loads in flight of a thread that adds rows
};

// The ids that a table holds: `count` from `first` on.
struct id_window {
  int64_t first, count;

  __device__ bool holds(int64_t id) const { return id >= first && id - first < count; }
};

static id_window window_of(const ot_kernel_call *call, const ot_tensor *table) {
  const ot_op_attributes *const a = call->attributes;
  if (a->group_size <= 1) return {0, INT64_MAX};
  return {a->first_vocab, table->type.dim[0]};
}

template <class R>
static R factor_of(const ot_kernel_call *call) {
  return call->attributes->scale == 0 ? (R)1 : (R)call->attributes->scale;
}

template <int N, class R>
static __device__ __forceinline__ void store_table(const ot_any<R> &table, int64_t i,
                                                   const R (&from)[N]) {
  if (table.dtype == OT_BF16) {
    ot_store_pieces((ot_bf16 *)table.data + i, from);
  } else {
    ot_store_pieces((R *)table.data + i, from);
  }
}

// ---- lookup: threadIdx.y is a row of the block, threadIdx.x a vector of it ----

template <class R>
struct lookup {
  const int32_t *tokens, *positions;  // positions: or null
  ot_any<R> table, position_table;
  id_window ids;
  R factor;
  int64_t rows, columns;
};

template <class R, class S, int N>
static __global__ void __launch_bounds__(THREADS) embedding_kernel(lookup<R> l, S *y) {
  const int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
  if (row >= l.rows) return;
  const int64_t token = l.tokens[row];
  const bool held = l.ids.holds(token);
  const int64_t from = (token - l.ids.first) * l.columns;
  const int64_t at = l.positions ? l.positions[row] * l.columns : 0;
  for (int64_t c = (int64_t)threadIdx.x * N; c < l.columns; c += (int64_t)blockDim.x * N) {
    R x[N] = {};
    if (held) ot_load_any(l.table, from + c, x);
    if (held && l.positions) {
      R more[N];
      ot_load_any(l.position_table, at + c, more);
#pragma unroll
      for (int k = 0; k < N; k++) x[k] += more[k];
    } else {
#pragma unroll
      for (int k = 0; k < N; k++) x[k] *= l.factor;
    }
    ot_store(y + row * l.columns + c, x);
  }
}

template <class R>
static void embedding(const ot_kernel_call *call) {
  const ot_tensor *const in = call->in, *const y = &call->out[0];
  const lookup<R> l = {(const int32_t *)in[0].data,
                       (const int32_t *)in[2].data,
                       ot_any_of<R>(&in[1]),
                       ot_any_of<R>(&in[3]),
                       window_of(call, &in[1]),
                       factor_of<R>(call),
                       y->type.dim[0],
                       y->type.dim[1]};
  if (l.rows == 0) return;
  const auto launch = [&](auto s, auto width) {
    using S = decltype(s);
    constexpr int N = decltype(width)::value;
    const dim3 threads = ot_row_threads(l.columns / N, THREADS);
    OT_LAUNCH((embedding_kernel<R, S, N>), ot_blocks(l.rows, threads.y), threads, 0,
              ot_cuda_stream_of(call), l, (S *)y->data);
  };
  const void *const all[] = {in[1].data, in[3].data, y->data};
  const ot_dtype dtype = y->type.dtype;
  if (dtype == OT_F64 && sizeof(R) < sizeof(double)) {  // wider than the compute type
    launch(double{}, ot_width<1>{});
  } else {
    ot_for_storage<R>(dtype, ot_fits_vectors(dtype, l.columns, all, 3), launch);
  }
}

// ---- gradient ----

// Rows sorted by (id, row): sorted[i] is a row, keys[i] its id. The place of a row is the number of
// rows before it in that order, which each thread counts for its own row.
static __global__ void __launch_bounds__(SORT_THREADS)
    sort_kernel(const int32_t *ids, int64_t rows, int32_t *sorted, int32_t *keys) {
  __shared__ int32_t tile[SORT_THREADS];
  const int64_t first = (int64_t)blockIdx.x * SORT_THREADS;
  const int64_t row = first + threadIdx.x;
  const int32_t id = row < rows ? ids[row] : 0;
  int32_t place = 0;
  for (int64_t t = 0; t < rows; t += SORT_THREADS) {
    const int64_t other = t + threadIdx.x;
    tile[threadIdx.x] = other < rows ? ids[other] : INT32_MAX;
    __syncthreads();
    if (t == first) {
      for (int k = 0; k < SORT_THREADS; k++) {
        place += tile[k] < id || (tile[k] == id && k < (int)threadIdx.x);
      }
    } else {
      const int32_t equal_counts = t < first;
#pragma unroll 16
      for (int k = 0; k < SORT_THREADS; k++) place += tile[k] < id + equal_counts;
    }
    __syncthreads();
  }
  if (row >= rows) return;
  sorted[place] = (int32_t)row;
  keys[place] = id;
}

template <class R>
struct row_sums {
  const int32_t *sorted, *keys;
  id_window ids;
  R factor;
  int64_t rows, columns;
  ot_any<R> table;
  bool accumulate;
};

// One block for each row of dy and THREADS vectors of columns; only that of the first row of an id
// works.
template <class R, class S, int N>
static __global__ void __launch_bounds__(THREADS, OT_LEAST_BLOCKS)
    add_rows_kernel(row_sums<R> s, const S *dy) {
  const int64_t first = blockIdx.x;
  const int32_t id = s.keys[first];
  if (!s.ids.holds(id) || (first > 0 && s.keys[first - 1] == id)) return;
  const int64_t c = ((int64_t)blockIdx.y * THREADS + threadIdx.x) * N;
  if (c >= s.columns) return;
  R sum[N] = {};
  const int64_t to = (id - s.ids.first) * s.columns + c;
  if (s.accumulate) ot_load_any(s.table, to, sum);
  bool more = true;
  for (int64_t i = first; more; i += ROWS_AT_ONCE) {
    R x[ROWS_AT_ONCE][N] = {};
    bool same[ROWS_AT_ONCE];
#pragma unroll
    for (int k = 0; k < ROWS_AT_ONCE; k++) {
      same[k] = i + k < s.rows && s.keys[i + k] == id;
      if (same[k]) ot_load(dy + s.sorted[i + k] * s.columns + c, x[k]);
    }
#pragma unroll
    for (int k = 0; k < ROWS_AT_ONCE; k++) {
#pragma unroll
      for (int n = 0; n < N; n++) sum[n] = fma(s.factor, x[k][n], sum[n]);
    }
    more = same[ROWS_AT_ONCE - 1];
  }
  store_table<N>(s.table, to, sum);
}

template <class R>
static void add_rows(const ot_kernel_call *call, id_window ids) {
  const ot_tensor *const dy = &call->in[0], *const table = &call->out[0];
  const int64_t rows = dy->type.dim[0];
  int32_t *const sorted = (int32_t *)call->workspace, *const keys = sorted + rows;
  void *const stream = ot_cuda_stream_of(call);
  if (!call->attributes->accumulate) {
    (void)cudaMemsetAsync(table->data, 0, (size_t)ot_type_bytes(&table->type),
                          (cudaStream_t)stream);
  }
  if (rows == 0) return;
  OT_LAUNCH(sort_kernel, ot_blocks(rows, SORT_THREADS), SORT_THREADS, 0, stream,
            (const int32_t *)call->in[1].data, rows, sorted, keys);
  const row_sums<R> s = {sorted,
                         keys,
                         ids,
                         factor_of<R>(call),
                         rows,
                         dy->type.dim[1],
                         ot_any_of<R>(table),
                         call->attributes->accumulate};
  const void *const all[] = {dy->data, table->data};
  const ot_dtype dtype = dy->type.dtype;
  ot_for_storage<R>(dtype, ot_fits_vectors(dtype, s.columns, all, 2), [&](auto x, auto width) {
    using S = decltype(x);
    constexpr int N = decltype(width)::value;
    OT_LAUNCH((add_rows_kernel<R, S, N>),
              dim3((unsigned)rows, ot_blocks(s.columns, (int64_t)THREADS * N)), THREADS, 0, stream,
              s, (const S *)dy->data);
  });
}

template <class R>
static void embedding_grad(const ot_kernel_call *call) {
  add_rows<R>(call, window_of(call, &call->out[0]));
}

template <class R>
static void position_grad(const ot_kernel_call *call) {
  add_rows<R>(call, {0, INT64_MAX});
}

}  // namespace

extern "C" const ot_kernel_entry ot_embedding_cuda_f32[] = {
    {OT_OP_EMBEDDING, embedding<float>},
    {OT_OP_EMBEDDING_GRAD, embedding_grad<float>},
    {OT_OP_POSITION_GRAD, position_grad<float>},
    {}};

extern "C" const ot_kernel_entry ot_embedding_cuda_f64[] = {
    {OT_OP_EMBEDDING, embedding<double>},
    {OT_OP_EMBEDDING_GRAD, embedding_grad<double>},
    {OT_OP_POSITION_GRAD, position_grad<double>},
    {}};
