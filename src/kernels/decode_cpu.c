// SPDX-License-Identifier: Apache-2.0
// KV cache: appending rows, and attention of one query. A thread processes one key head of one
// sequence and reads its keys and values once for all query heads that share it; the order of a
// query's sums is independent of the number of threads.
#include <math.h>
#include <omp.h>
#include <stddef.h>
#include <string.h>

#include "base/status.h"
#include "kernels/attention_score.h"
#include "kernels/real.h"
#include "kernels/vector_math.h"
#include "ops/decode.h"

static void append_kv(const ot_kernel_call *call) {
  const ot_tensor *const qkv = &call->in[0];
  const int32_t *const length = call->in[1].data;
  const ot_tensor *const cache = &call->out[0];
  const int64_t B = cache->type.dim[0], P = cache->type.dim[1], width = cache->type.dim[2];
  const int64_t rows = qkv->type.dim[0];
  const int64_t n = rows / B;
  const int64_t skipped = call->attributes->num_heads * call->attributes->head_dim;
  for (int64_t b = 0; b < B; b++) OT_ASSERT(length[b] >= 0 && length[b] + n <= P);
#pragma omp parallel for num_threads(call->attributes->threads)
  for (int64_t r = 0; r < rows; r++) {
    ot_real scratch[OT_TILE];
    const int64_t from = r * qkv->type.dim[1] + skipped;
    const int64_t to = (r / n * P + length[r / n] + r % n) * width;
    for (int64_t i = 0; i < width; i += OT_TILE) {
      const int64_t count = width - i < OT_TILE ? width - i : OT_TILE;
      ot_load_row(scratch, qkv->data, qkv->type.dtype, from + i, count);
      ot_store_row(cache->data, cache->type.dtype, to + i, scratch, count);
    }
  }
}

typedef struct decode {
  const ot_kernel_call *call;
  int64_t G, D, heads;  // heads that share a key head
  int64_t P;
  const int32_t *length;  // [B]
} decode;

// One key head of one sequence.
typedef struct group {
  int64_t b, g;
  int64_t begin, end;  // visible slots
  ot_real *scores;     // [heads][P]
} group;

static int64_t tile_length(int64_t n, int64_t first) {
  return n - first < OT_TILE ? n - first : OT_TILE;
}

static ot_real dot(const ot_real *restrict a, const ot_real *restrict b, int64_t n) {
  ot_real sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
  return sum;
}

// Element offset of the key of slot `j` in the cache; the value is G D further.
static int64_t key_element(const decode *d, const group *u, int64_t j) {
  return ((u->b * d->P + j) * 2 * d->G + u->g) * d->D;
}

static int64_t query_element(const decode *d, const group *u, int64_t head) {
  return u->b * d->call->in[0].type.dim[1] + (u->g * d->heads + head) * d->D;
}

static void compute_scores(const decode *d, const group *u) {
  const ot_tensor *const qkv = &d->call->in[0];
  const ot_tensor *const cache = &d->call->in[1];
  ot_real query_scratch[OT_TILE], key_scratch[OT_TILE];
  for (int64_t i = 0; i < d->D; i += OT_TILE) {
    const int64_t n = tile_length(d->D, i);
    for (int64_t j = u->begin; j < u->end; j++) {
      const ot_real *const key =
          ot_row_in(cache->data, cache->type.dtype, key_element(d, u, j) + i, n, key_scratch);
      for (int64_t h = 0; h < d->heads; h++) {
        const ot_real *const query =
            ot_row_in(qkv->data, qkv->type.dtype, query_element(d, u, h) + i, n, query_scratch);
        ot_real *const score = u->scores + h * d->P + j;
        *score = (i > 0 ? *score : 0) + dot(query, key, n);
      }
    }
  }
}

// Softmax over the scores of one query and a sink (-inf: none).
static void softmax(ot_real *restrict score, int64_t n, ot_real sink) {
  ot_real largest = sink;
  for (int64_t j = 0; j < n; j++) largest = score[j] > largest ? score[j] : largest;
  ot_real sum = sink > -(ot_real)INFINITY ? OT_KERNEL(ot_exp)(sink - largest) : 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < n; j++) {
    score[j] = OT_KERNEL(ot_exp)(score[j] - largest);
    sum += score[j];
  }
  for (int64_t j = 0; j < n; j++) score[j] /= sum;
}

// Turns products q . k into probabilities.
static void normalise(const ot_kernel_call *call, ot_query_scores scores) {
  const ot_op_attributes *const a = call->attributes;
  for (int64_t j = 0; j < scores.n; j++) scores.data[j] *= (ot_real)a->scale;
  ot_transform_query_scores(a, scores);
  softmax(scores.data, scores.n, ot_sink_of(a, &call->in[3], scores.head));
}

static void add_values(const decode *d, const group *u) {
  const ot_tensor *const cache = &d->call->in[1];
  const ot_tensor *const o = &d->call->out[0];
  ot_real value_scratch[OT_TILE], sum[OT_TILE];
  for (int64_t h = 0; h < d->heads; h++) {
    const ot_real *const p = u->scores + h * d->P;
    for (int64_t i = 0; i < d->D; i += OT_TILE) {
      const int64_t n = tile_length(d->D, i);
      memset(sum, 0, sizeof sum);
      for (int64_t j = u->begin; j < u->end; j++) {
        const ot_real *const value =
            ot_row_in(cache->data, cache->type.dtype, key_element(d, u, j) + d->G * d->D + i, n,
                      value_scratch);
        for (int64_t k = 0; k < n; k++) sum[k] += p[j] * value[k];
      }
      const int64_t head = u->g * d->heads + h;
      ot_store_row(o->data, o->type.dtype, (u->b * d->G * d->heads + head) * d->D + i, sum, n);
    }
  }
}

static void attention_decode(const ot_kernel_call *call) {
  const ot_op_attributes *const a = call->attributes;
  const decode d = {.call = call,
                    .G = a->num_kv_heads,
                    .D = a->head_dim,
                    .heads = a->num_heads / a->num_kv_heads,
                    .P = call->in[1].type.dim[1],
                    .length = call->in[2].data};
  const int64_t B = call->in[0].type.dim[0];
  for (int64_t b = 0; b < B; b++) OT_ASSERT(d.length[b] >= 0 && d.length[b] < d.P);
#pragma omp parallel for schedule(dynamic, 1) num_threads(a->threads)
  for (int64_t unit = 0; unit < B * d.G; unit++) {
    group u = {.b = unit / d.G, .g = unit % d.G};
    u.end = d.length[u.b] + 1;
    u.begin = a->window > 0 && a->window < u.end ? u.end - a->window : 0;
    u.scores = (ot_real *)call->workspace + omp_get_thread_num() * d.heads * d.P;
    compute_scores(&d, &u);
    for (int64_t h = 0; h < d.heads; h++) {
      normalise(call, (ot_query_scores){.data = u.scores + h * d.P + u.begin,
                                        .n = u.end - u.begin,
                                        .head = u.g * d.heads + h});
    }
    add_values(&d, &u);
  }
}

const ot_kernel_entry OT_KERNEL(ot_decode_cpu)[] = {
    {OT_OP_APPEND_KV, append_kv},
    {OT_OP_ATTENTION_DECODE, attention_decode},
    {OT_OP_COUNT, NULL},
};
