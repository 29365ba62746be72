// SPDX-License-Identifier: Apache-2.0
// The paged KV cache: appending rows, and attention of new tokens.
#include "kernels/cuda/decode_parts.cuh"

extern "C" {
#include "kernels/cuda/tables.h"
}

namespace {

enum { THREADS = 256 };

// A thread has one element. Idle rows are dropped.
template <class R>
static __global__ void __launch_bounds__(THREADS)
    append_kernel(ot_any<R> qkv, ot_any<R> cache, ot_page_places at, int64_t elements, int64_t row,
                  int64_t width) {
  const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (i >= elements) return;
  const int64_t r = i / width, c = i - r * width;
  if (at.sequences[r] < 0) return;
  cache.set(at.row(r, at.positions[r]) * width + c, qkv[(r + 1) * row - width + c]);
}

template <class R>
static void append_kv(const ot_kernel_call *call) {
  const ot_tensor *const qkv = &call->in[0], *const cache = &call->out[0];
  const int64_t rows = qkv->type.dim[0], width = cache->type.dim[2], elements = rows * width;
  if (elements == 0) return;
  OT_LAUNCH(append_kernel<R>, ot_blocks(elements, THREADS), THREADS, 0, ot_cuda_stream_of(call),
            ot_any_of<R>(qkv), ot_any_of<R>(cache), ot_page_places_of(call, 1, 2, 3), elements,
            qkv->type.dim[1], width);
}

template <class R>
static void attention_decode(const ot_kernel_call *call) {
  const ot_op_attributes *const a = call->attributes;
  const ot_tensor *const in = call->in;
  ot_decode<R> d = {};
  d.queries = ot_any_of<R>(&in[0]);
  d.query_row = in[0].type.dim[1];
  d.tokens = in[0].type.dim[0];
  d.cache = in[1];
  d.at = ot_page_places_of(call, 2, 3, 4);
  d.H = (int)a->num_heads;
  d.G = (int)a->num_kv_heads;
  d.key_width = d.value_width = (int)a->head_dim;
  d.first_value = d.G * d.key_width;
  d.window = a->window < ot_paged_slots(&in[4].type) ? (int)a->window : 0;
  d.scale = (R)a->scale;
  d.soft_cap = (R)a->soft_cap;
  d.sinks = ot_any_of<R>(&in[5]);
  d.first_sink = (int)a->first_sink;
  d.o = ot_any_of<R>(&call->out[0]);
  d.parts = (R *)call->workspace;
  ot_decode_run(call, d);
}

}  // namespace

extern "C" const ot_kernel_entry ot_decode_cuda_f32[] = {
    {OT_OP_APPEND_KV, append_kv<float>}, {OT_OP_ATTENTION_DECODE, attention_decode<float>}, {}};

extern "C" const ot_kernel_entry ot_decode_cuda_f64[] = {
    {OT_OP_APPEND_KV, append_kv<double>}, {OT_OP_ATTENTION_DECODE, attention_decode<double>}, {}};
