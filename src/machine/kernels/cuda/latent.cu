// SPDX-License-Identifier: Apache-2.0
// Layout copies of latent attention: a thread makes one word or vector of a row. Only the sum over
// the heads of the shared rotated part has a kernel of its own.
#include "kernels/cuda/rows.cuh"

extern "C" {
#include "kernels/cuda/tables.h"
}

namespace {

enum { LANES = 32, ROWS = 8 };  // items and rows of a block

template <class Work>
__global__ void __launch_bounds__(LANES *ROWS) items_kernel(int64_t rows, int items, Work work) {
  const int64_t row = (int64_t)blockIdx.x * ROWS + threadIdx.y;
  const int item = (int)(blockIdx.y * LANES + threadIdx.x);
  if (row < rows && item < items) work(row, item);
}

// Runs work(row, item) for every item of every row.
template <class Work>
void for_items(const ot_kernel_call *call, int64_t items, const Work &work) {
  const int64_t rows = call->in[0].type.dim[0];
  const dim3 grid(ot_blocks(rows, ROWS), ot_blocks(items, LANES));
  OT_LAUNCH(items_kernel<Work>, grid, dim3(LANES, ROWS), 0, ot_cuda_stream_of(call), rows,
            (int)items, work);
}

// ---- latent | rotary ----

// A row of `whole` is a row of `left` and then one of `right`; lengths of rows in words.
template <class Word>
struct split_row {
  Word *whole, *left, *right;
  int left_words, right_words;
  bool join;  // whole from the parts

  __device__ void operator()(int64_t row, int i) const {
    Word *const one = whole + row * (left_words + right_words) + i;
    Word *const part =
        i < left_words ? left + row * left_words + i : right + row * right_words + (i - left_words);
    *(join ? one : part) = *(join ? part : one);
  }
};

void split_rows(const ot_kernel_call *call, const ot_tensor *whole, const ot_tensor *parts,
                bool join) {
  const int element = ot_dtype_bytes(whole->type.dtype);
  const int64_t left = parts[0].type.dim[1] * element, right = parts[1].type.dim[1] * element;
  const ot_tensor *const tensors[] = {whole, &parts[0], &parts[1]};
  ot_for_words(tensors, 3, left | right, [&](auto word) {
    using Word = decltype(word);
    const int64_t bytes = sizeof(Word);
    const split_row<Word> work = {(Word *)whole->data, (Word *)parts[0].data, (Word *)parts[1].data,
                                  (int)(left / bytes), (int)(right / bytes),  join};
    for_items(call, (left + right) / bytes, work);
  });
}

void latent_split(const ot_kernel_call *call) { split_rows(call, call->in, call->out, false); }

void latent_join(const ot_kernel_call *call) { split_rows(call, call->out, call->in, true); }

// ---- values ----

// Heads of `from_words` are truncated or zero-padded to `to_words`.
template <class Word>
struct resize_heads {
  const Word *from;
  Word *to;
  int heads, from_words, to_words;

  __device__ void operator()(int64_t row, int i) const {
    const int head = i / to_words, at = i - head * to_words;
    Word word = {};
    if (at < from_words) word = from[(row * heads + head) * from_words + at];
    to[row * heads * to_words + i] = word;
  }
};

void resize(const ot_kernel_call *call, int64_t from, int64_t to) {
  const int element = ot_dtype_bytes(call->in[0].type.dtype);
  const int64_t heads = call->attributes->num_heads;
  const ot_tensor *const tensors[] = {&call->in[0], &call->out[0]};
  ot_for_words(tensors, 2, (from | to) * element, [&](auto word) {
    using Word = decltype(word);
    const int64_t elements = (int64_t)sizeof(Word) / element;
    const resize_heads<Word> work = {(const Word *)call->in[0].data, (Word *)call->out[0].data,
                                     (int)heads, (int)(from / elements), (int)(to / elements)};
    for_items(call, heads * to / elements, work);
  });
}

void value_trim(const ot_kernel_call *call) {
  resize(call, call->attributes->head_dim, call->attributes->value_dim);
}

void value_pad(const ot_kernel_call *call) {
  resize(call, call->attributes->value_dim, call->attributes->head_dim);
}

// ---- packed heads ----

// A head has N elements without and P with rotation, D = N + P, and V values.
template <class R>
struct head_shape {
  int H, N, P, D, V;
  bool interleaved;
  const int32_t *positions;
  ot_any<R> table;  // [positions, P / 2, 2]

  // COUNT cosines and sines of a row from pair `first` on.
  template <int COUNT>
  __device__ __forceinline__ void angles(int64_t row, int first, R (&to)[2 * COUNT]) const {
    ot_load_any(table, (int64_t)positions[row] * P + 2 * first, to);
  }
};

// One element of a rotated pair (a, b); for the inverse with the negative sine.
template <class R>
__device__ __forceinline__ R turned(bool second, R a, R b, R cosine, R sine) {
  return second ? b * cosine + a * sine : a * cosine - b * sine;
}

template <class R, class S>
struct pack_heads {
  head_shape<R> shape;
  ot_any<R> q, kv, rotary;
  S *qkv;

  // Elements [i, i + COUNT) of a rotated part, in halves, from the part at `first` of x.
  template <int COUNT>
  __device__ __forceinline__ void rotate(const ot_any<R> &x, int64_t first, int64_t row, int i,
                                         R (&to)[COUNT]) const {
    const int half = shape.P / 2;
    const bool second = i >= half;
    const int pair = second ? i - half : i;
    R angle[2 * COUNT], a[COUNT], b[COUNT];
    shape.template angles<COUNT>(row, pair, angle);
    ot_load_any(x, first + (shape.interleaved ? 2 * pair : pair), a);
    ot_load_any(x, first + (shape.interleaved ? 2 * pair + COUNT : pair + half), b);
#pragma unroll
    for (int k = 0; k < COUNT; k++) {
      R low = a[k], high = b[k];
      if (shape.interleaved) {
        low = 2 * k < COUNT ? a[2 * k % COUNT] : b[2 * k % COUNT];
        high = 2 * k + 1 < COUNT ? a[(2 * k + 1) % COUNT] : b[(2 * k + 1) % COUNT];
      }
      to[k] = turned(second, low, high, angle[2 * k], angle[2 * k + 1]);
    }
  }
  // Elements [i, i + COUNT) of head h of q (part 0), k or v.
  template <int COUNT>
  __device__ __forceinline__ void make(int64_t row, int part, int h, int i, R (&to)[COUNT]) const {
    const head_shape<R> &s = shape;
    const int64_t head = row * s.H + h, key = head * (s.N + s.V);
    if (part == 2) {
#pragma unroll
      for (int k = 0; k < COUNT; k++) to[k] = 0;
      if (i < s.V) ot_load_any(kv, key + s.N + i, to);
    } else if (i < s.N) {
      ot_any<R> x = kv;
      if (part == 0) x = q;
      ot_load_any(x, (part == 0 ? head * s.D : key) + i, to);
    } else {
      ot_any<R> x = rotary;
      if (part == 0) x = q;
      rotate(x, part == 0 ? head * s.D + s.N : row * s.P, row, i - s.N, to);
    }
  }
};

// Item c: vector c of a row of q | k | v.
template <class R, class S, int COUNT>
struct pack_work {
  pack_heads<R, S> pack;

  __device__ void operator()(int64_t row, int c) const {
    const int D = pack.shape.D / COUNT, H = pack.shape.H;
    const int head = c / D, part = head / H;
    R x[COUNT];
    pack.make(row, part, head - part * H, (c - head * D) * COUNT, x);
    ot_store(pack.qkv + (row * 3 * H * D + c) * COUNT, x);
  }
};

template <class R>
head_shape<R> head_shape_of(const ot_op_attributes *a, const ot_tensor *positions,
                            const ot_tensor *table) {
  return {(int)a->num_heads,
          (int)(a->head_dim - a->rotary_dim),
          (int)a->rotary_dim,
          (int)a->head_dim,
          (int)a->value_dim,
          a->interleaved,
          (const int32_t *)positions->data,
          ot_any_of<R>(table)};
}

// True if vectors fit all parts of heads of the tensors.
template <class R>
bool fits(const head_shape<R> &s, ot_dtype dtype, const void *const *addresses, int count) {
  return ot_fits_vectors(dtype, s.N | s.P / 2 | s.V, addresses, count);
}

template <class R>
void latent_heads(const ot_kernel_call *call) {
  const ot_tensor *const in = call->in, *const out = call->out;
  const head_shape<R> shape = head_shape_of<R>(call->attributes, &in[3], &in[4]);
  const void *const all[] = {in[0].data, in[1].data, in[2].data, in[4].data, out[0].data};
  const ot_dtype dtype = out[0].type.dtype;
  ot_for_storage<R>(dtype, fits(shape, dtype, all, 5), [&](auto s, auto width) {
    using S = decltype(s);
    constexpr int COUNT = decltype(width)::value;
    const pack_work<R, S, COUNT> work = {{shape, ot_any_of<R>(&in[0]), ot_any_of<R>(&in[1]),
                                          ot_any_of<R>(&in[2]), (S *)out[0].data}};
    for_items(call, out[0].type.dim[1] / COUNT, work);
  });
}

// ---- their gradient ----

template <class R, class S>
struct unpack_heads {
  head_shape<R> shape;
  const S *dqkv;
  S *dq, *dkv, *drotary;

  // Elements [i, i + COUNT) of the part whose rotated form begins at `from`.
  template <int COUNT>
  __device__ __forceinline__ void rotate_back(const S *from, int64_t row, int i,
                                              R (&to)[COUNT]) const {
    constexpr int PAIRS = COUNT > 1 ? COUNT / 2 : 1;
    const int half = shape.P / 2;
    if (shape.interleaved) {
      R angle[2 * PAIRS], a[PAIRS], b[PAIRS];
      shape.template angles<PAIRS>(row, i / 2, angle);
      ot_load(from + i / 2, a);
      ot_load(from + half + i / 2, b);
#pragma unroll
      for (int k = 0; k < COUNT; k++) {
        const bool second = COUNT > 1 ? k % 2 == 1 : i % 2 == 1;
        to[k] = turned(second, a[k / 2], b[k / 2], angle[k / 2 * 2], -angle[k / 2 * 2 + 1]);
      }
    } else {
      const int pair = i < half ? i : i - half;
      R angle[2 * COUNT], a[COUNT], b[COUNT];
      shape.template angles<COUNT>(row, pair, angle);
      ot_load(from + pair, a);
      ot_load(from + half + pair, b);
#pragma unroll
      for (int k = 0; k < COUNT; k++) {
        to[k] = turned(i >= half, a[k], b[k], angle[2 * k], -angle[2 * k + 1]);
      }
    }
  }
};

// Item c: vector c of a row of dq, or after those a vector of dkv.
template <class R, class S, int COUNT>
struct unpack_work {
  unpack_heads<R, S> unpack;

  __device__ void operator()(int64_t row, int c) const {
    const head_shape<R> &s = unpack.shape;
    const int of_q = s.H * s.D / COUNT, of_kv = s.N + s.V;
    const int64_t begin = row * 3 * s.H * s.D;
    R x[COUNT];
    if (c < of_q) {
      const int head = c * COUNT / s.D, i = c * COUNT - head * s.D;
      const S *const from = unpack.dqkv + begin + head * s.D;
      if (i < s.N) {
        ot_load(from + i, x);
      } else {
        unpack.rotate_back(from + s.N, row, i - s.N, x);
      }
      ot_store(unpack.dq + (row * of_q + c) * COUNT, x);
      return;
    }
    const int at = (c - of_q) * COUNT, head = at / of_kv, i = at - head * of_kv;
    const S *const keys = unpack.dqkv + begin + (s.H + head) * s.D;
    ot_load(i < s.N ? keys + i : keys + s.H * s.D + (i - s.N), x);
    ot_store(unpack.dkv + row * s.H * of_kv + at, x);
  }
};

enum { THREADS = 256, WIDEST = 1024 };  // elements of a head, at most

// drotary of one row, by a block: sums over heads, some of them at once, and their rotation back.
template <class R, class S, int COUNT>
__global__ void __launch_bounds__(THREADS) rotary_kernel(unpack_heads<R, S> unpack) {
  __shared__ R sums[THREADS * COUNT > WIDEST ? THREADS * COUNT : WIDEST];
  const head_shape<R> &s = unpack.shape;
  const int64_t row = blockIdx.x;
  const S *const keys = unpack.dqkv + (row * 3 + 1) * s.H * s.D + s.N;
  const int vectors = s.P / COUNT, at_once = vectors < THREADS ? THREADS / vectors : 1;
  const int lane = (int)threadIdx.x / vectors;
  for (int c = (int)threadIdx.x - lane * vectors; lane < at_once && c < vectors; c += THREADS) {
    R sum[COUNT] = {};
#pragma unroll 4
    for (int h = lane; h < s.H; h += at_once) {
      R x[COUNT];
      ot_load(keys + h * s.D + c * COUNT, x);
#pragma unroll
      for (int k = 0; k < COUNT; k++) sum[k] += x[k];
    }
#pragma unroll
    for (int k = 0; k < COUNT; k++) sums[lane * s.P + c * COUNT + k] = sum[k];
  }
  __syncthreads();
  for (int i = (int)threadIdx.x; i < s.P; i += THREADS) {
    R total = sums[i];
    for (int n = 1; n < at_once; n++) total += sums[n * s.P + i];
    sums[i] = total;
  }
  __syncthreads();
  for (int i = (int)threadIdx.x; i < s.P; i += THREADS) {
    const int half = s.P / 2, pair = s.interleaved ? i / 2 : i % half;
    const bool second = s.interleaved ? i % 2 == 1 : i >= half;
    R angle[2];
    s.template angles<1>(row, pair, angle);
    ot_narrow(turned(second, sums[pair], sums[half + pair], angle[0], -angle[1]),
              unpack.drotary + row * s.P + i);
  }
}

template <class R>
void latent_heads_grad(const ot_kernel_call *call) {
  const ot_tensor *const in = call->in, *const out = call->out;
  const head_shape<R> shape = head_shape_of<R>(call->attributes, &in[1], &in[2]);
  const void *const all[] = {in[0].data, in[2].data, out[0].data, out[1].data, out[2].data};
  const ot_dtype dtype = in[0].type.dtype;
  ot_for_storage<R>(dtype, fits(shape, dtype, all, 5), [&](auto s, auto width) {
    using S = decltype(s);
    constexpr int COUNT = decltype(width)::value;
    const unpack_heads<R, S> unpack = {shape, (const S *)in[0].data, (S *)out[0].data,
                                       (S *)out[1].data, (S *)out[2].data};
    for_items(call, (out[0].type.dim[1] + out[1].type.dim[1]) / COUNT,
              unpack_work<R, S, COUNT>{unpack});
    OT_LAUNCH((rotary_kernel<R, S, COUNT>), (unsigned)in[0].type.dim[0], THREADS, 0,
              ot_cuda_stream_of(call), unpack);
  });
}

}  // namespace

extern "C" const ot_kernel_entry ot_latent_cuda_f32[] = {
    {OT_OP_LATENT_SPLIT, latent_split},
    {OT_OP_LATENT_JOIN, latent_join},
    {OT_OP_LATENT_HEADS, latent_heads<float>},
    {OT_OP_LATENT_HEADS_GRAD, latent_heads_grad<float>},
    {OT_OP_VALUE_TRIM, value_trim},
    {OT_OP_VALUE_PAD, value_pad},
    {}};

extern "C" const ot_kernel_entry ot_latent_cuda_f64[] = {
    {OT_OP_LATENT_SPLIT, latent_split},
    {OT_OP_LATENT_JOIN, latent_join},
    {OT_OP_LATENT_HEADS, latent_heads<double>},
    {OT_OP_LATENT_HEADS_GRAD, latent_heads_grad<double>},
    {OT_OP_VALUE_TRIM, value_trim},
    {OT_OP_VALUE_PAD, value_pad},
    {}};
