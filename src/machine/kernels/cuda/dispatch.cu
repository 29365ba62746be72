// SPDX-License-Identifier: Apache-2.0
// Permutation between tokens and rows sorted by expert: some threads of a block for each token. A
// token is read once and written to all of its rows, or its rows are added in the order of slots.
#include "kernels/cuda/rows.cuh"

extern "C" {
#include "kernels/cuda/tables.h"
#include "ops/dispatch.h"
#include "ops/route.h"
}

namespace {

enum { THREADS = 128, CLEAR_BLOCKS = 264, CLEAR_THREADS = 256, ROWS_AT_ONCE = 4 };

// ---- dispatch: a thread moves words of 16 bytes where rows are multiples of that, else elements
// ----

template <class Word, class R>
struct dispatch_operands {
  const Word *x;         // [tokens, words]
  const R *gates;        // [tokens, places / copies] or absent
  const int32_t *place;  // [tokens, places]
  Word *rows;            // [N, words]
  R *row_gates;          // [N], present with gates
  int64_t tokens, words;
  int places, copies;
};

template <class Word, class R>
static __global__ void __launch_bounds__(THREADS) dispatch_kernel(dispatch_operands<Word, R> o) {
  const int64_t token = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
  if (token >= o.tokens) return;
  const int32_t *const place = o.place + token * o.places;
  for (int64_t w = threadIdx.x; w < o.words; w += blockDim.x) {
    const Word word = o.x[token * o.words + w];
    for (int i = 0; i < o.places; i++) {
      if (place[i] >= 0) o.rows[place[i] * o.words + w] = word;
    }
  }
  for (int i = threadIdx.x; i < o.places && o.gates; i += blockDim.x) {
    const int slot = i / o.copies, slots = o.places / o.copies;
    if (place[i] >= 0) o.row_gates[place[i]] = o.gates[token * slots + slot];
  }
}

// Clears the rows of each plane from *used on. blockIdx.y is the plane.
template <class Word, class R>
static __global__ void __launch_bounds__(CLEAR_THREADS)
    clear_kernel(dispatch_operands<Word, R> o, int64_t plane, const int32_t *used) {
  const int64_t first = blockIdx.y * plane + *used, end = (blockIdx.y + 1) * plane;
  const int64_t thread = (int64_t)blockIdx.x * CLEAR_THREADS + threadIdx.x;
  const int64_t step = (int64_t)CLEAR_BLOCKS * CLEAR_THREADS;
  for (int64_t w = first * o.words + thread; w < end * o.words; w += step) o.rows[w] = Word{};
  for (int64_t row = first + thread; row < end && o.gates; row += step) o.row_gates[row] = 0;
}

template <class Word, class R>
static void dispatch_words(const ot_kernel_call *call) {
  const ot_tensor *const in = call->in, *const out = call->out;
  const int64_t copies = ot_route_copies(call->attributes), plane = out[0].type.dim[0] / copies;
  const int64_t row_bytes = in[0].type.dim[1] * ot_dtype_bytes(in[0].type.dtype);
  const dispatch_operands<Word, R> o = {(const Word *)in[0].data,
                                        (const R *)in[1].data,
                                        (const int32_t *)in[2].data,
                                        (Word *)out[0].data,
                                        (R *)out[1].data,
                                        in[0].type.dim[0],
                                        row_bytes / (int64_t)sizeof(Word),
                                        (int)in[2].type.dim[1],
                                        (int)copies};
  const dim3 threads = ot_row_threads(o.words, THREADS);
  void *const stream = ot_cuda_stream_of(call);
  if (o.tokens > 0) {
    OT_LAUNCH((dispatch_kernel<Word, R>), ot_blocks(o.tokens, threads.y), threads, 0, stream, o);
  }
  if (!in[3].data || plane == 0) return;
  OT_LAUNCH((clear_kernel<Word, R>), dim3(CLEAR_BLOCKS, (unsigned)copies), CLEAR_THREADS, 0, stream,
            o, plane, (const int32_t *)in[3].data + call->attributes->num_experts);
}

template <class R>
static void dispatch(const ot_kernel_call *call) {
  const ot_tensor *const x = &call->in[0];
  const void *const all[] = {x->data, call->out[0].data};
  const int bytes = ot_dtype_bytes(x->type.dtype);
  if (ot_fits_vectors(x->type.dtype, x->type.dim[1], all, 2)) {
    dispatch_words<ot_vector<uint32_t, 4>, R>(call);
  } else if (bytes == 8) {
    dispatch_words<uint64_t, R>(call);
  } else if (bytes == 4) {
    dispatch_words<uint32_t, R>(call);
  } else {
    dispatch_words<uint16_t, R>(call);
  }
}

// ---- combine ----

template <class R, class S>
struct combine_operands {
  const S *rows;         // [N, columns]
  const R *row_gates;    // [N] or absent
  const int32_t *place;  // [tokens, places]
  ot_any<R> addend;      // [tokens, columns] or absent
  S *y;                  // [tokens, columns]
  R *gates;              // [tokens, places / copies], present with row_gates
  int64_t tokens;
  int columns, places, copies;
};

// Adds columns [c, c + N) of the rows of a token, some loads at once.
template <int N, class R, class S>
static __device__ __forceinline__ void add_rows(const combine_operands<R, S> &o,
                                                const int32_t *place, int c, R (&sum)[N]) {
  for (int first = 0; first < o.places; first += ROWS_AT_ONCE) {
    R x[ROWS_AT_ONCE][N];
    bool given[ROWS_AT_ONCE];
#pragma unroll
    for (int k = 0; k < ROWS_AT_ONCE; k++) {
      const int32_t row = first + k < o.places ? place[first + k] : -1;
      given[k] = row >= 0;
      if (given[k]) ot_load(o.rows + (int64_t)row * o.columns + c, x[k]);
    }
#pragma unroll
    for (int k = 0; k < ROWS_AT_ONCE; k++) {
#pragma unroll
      for (int n = 0; n < N; n++) sum[n] = given[k] ? sum[n] + x[k][n] : sum[n];
    }
  }
}

template <class R, class S, int N>
static __global__ void __launch_bounds__(THREADS) combine_kernel(combine_operands<R, S> o) {
  const int64_t token = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
  if (token >= o.tokens) return;
  const int32_t *const place = o.place + token * o.places;
  for (int c = threadIdx.x * N; c < o.columns; c += blockDim.x * N) {
    R sum[N] = {};
    if (o.addend.data) ot_load_any(o.addend, token * o.columns + c, sum);
    add_rows<N>(o, place, c, sum);
    ot_store(o.y + token * o.columns + c, sum);
  }
  const int slots = o.places / o.copies;
  for (int j = threadIdx.x; j < slots && o.row_gates; j += blockDim.x) {
    R gate = 0;
    for (int i = j * o.copies; i < (j + 1) * o.copies; i++) {
      if (place[i] >= 0) gate += o.row_gates[place[i]];
    }
    o.gates[token * slots + j] = gate;
  }
}

template <class R>
static void combine(const ot_kernel_call *call) {
  const ot_tensor *const in = call->in, *const out = call->out, *const y = &out[0];
  const int64_t columns = y->type.dim[1];
  const void *const all[] = {in[0].data, in[4].data, y->data};
  if (y->type.dim[0] == 0) return;
  ot_for_storage<R>(y->type.dtype, ot_fits_vectors(y->type.dtype, columns, all, 3),
                    [&](auto s, auto width) {
                      using S = decltype(s);
                      constexpr int N = decltype(width)::value;
                      const combine_operands<R, S> o = {(const S *)in[0].data,
                                                        (const R *)in[1].data,
                                                        (const int32_t *)in[2].data,
                                                        ot_any_of<R>(&in[4]),
                                                        (S *)y->data,
                                                        (R *)out[1].data,
                                                        y->type.dim[0],
                                                        (int)columns,
                                                        (int)in[2].type.dim[1],
                                                        (int)ot_route_copies(call->attributes)};
                      const dim3 threads = ot_row_threads(columns / N, THREADS);
                      OT_LAUNCH((combine_kernel<R, S, N>), ot_blocks(o.tokens, threads.y), threads,
                                0, ot_cuda_stream_of(call), o);
                    });
}

}  // namespace

extern "C" const ot_kernel_entry ot_dispatch_cuda_f32[] = {
    {OT_OP_DISPATCH, dispatch<float>}, {OT_OP_COMBINE, combine<float>}, {}};

extern "C" const ot_kernel_entry ot_dispatch_cuda_f64[] = {
    {OT_OP_DISPATCH, dispatch<double>}, {OT_OP_COMBINE, combine<double>}, {}};
