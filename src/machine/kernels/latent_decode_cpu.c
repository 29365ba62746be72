// SPDX-License-Identifier: Apache-2.0
// Latent attention against a paged latent cache: the projections of keys and values are absorbed
// into the query and the output. One thread computes one head of a token.
#include <omp.h>
#include <stddef.h>
#include <string.h>

#include "base/status.h"
#include "kernels/cpu_tables.h"
#include "kernels/latent_rotate.h"
#include "kernels/vector_math.h"
#include "ops/decode.h"
#include "ops/latent.h"

static void append_latent(const ot_kernel_call *call) {
  const ot_tensor *const latent = &call->in[0];
  const ot_tensor *const rotary = &call->in[1];
  const ot_tensor *const cache = &call->out[0];
  const int32_t *const position = call->in[2].data, *const sequence = call->in[4].data;
  const int64_t rows = latent->type.dim[0], K = latent->type.dim[1];
  const int64_t width = cache->type.dim[2], P = width - K;
#pragma omp parallel for num_threads(call->attributes->threads)
  for (int64_t r = 0; r < rows; r++) {
    if (sequence[r] < 0) continue;
    ot_real read[OT_TILE], turned[OT_TILE];
    const int64_t to = ot_page_row(&call->in[5], sequence[r], position[r]) * width;
    for (int64_t i = 0; i < K; i += OT_TILE) {
      const int64_t count = K - i < OT_TILE ? K - i : OT_TILE;
      ot_load_row(read, latent->data, latent->type.dtype, r * K + i, count);
      ot_store_row(cache->data, cache->type.dtype, to + i, read, count);
    }
    ot_load_row(read, rotary->data, rotary->type.dtype, r * P, P);
    ot_latent_rotate(call->attributes, ot_latent_angles(&call->in[2], &call->in[3], r), read,
                     turned);
    ot_store_row(cache->data, cache->type.dtype, to + K, turned, P);
  }
}

// One head of one token, with scratch of the thread.
typedef struct unit {
  const ot_kernel_call *call;
  int64_t r, h, K, P, N, V;
  int64_t seen;
  ot_real *query;   // [K + P] in cache coordinates
  ot_real *mean;    // [K + P] of the visible slots
  ot_real *scores;  // [slots]
} unit;

// query[K..] = rotated q_P; query[0..K) = w_k^T q_N
static void absorb_query(const unit *u) {
  const ot_op_attributes *const a = u->call->attributes;
  const ot_tensor *const q = &u->call->in[0];
  const ot_tensor *const w = &u->call->in[1];
  const ot_real *const angles = ot_latent_angles(&u->call->in[3], &u->call->in[4], u->r);
  ot_real head[OT_TILE], row[OT_TILE];
  ot_load_row(head, q->data, q->type.dtype, (u->r * a->num_heads + u->h) * a->head_dim,
              a->head_dim);
  ot_latent_rotate(a, angles, head + u->N, u->query + u->K);
  memset(u->query, 0, (size_t)u->K * sizeof *u->query);
  for (int64_t n = 0; n < u->N; n++) {
    const int64_t first = (u->h * (u->N + u->V) + n) * u->K;
    for (int64_t i = 0; i < u->K; i += OT_TILE) {
      const int64_t count = u->K - i < OT_TILE ? u->K - i : OT_TILE;
      const ot_real *const weights = ot_row_in(w->data, w->type.dtype, first + i, count, row);
      for (int64_t k = 0; k < count; k++) u->query[i + k] += head[n] * weights[k];
    }
  }
}

// First element of a slot of the token's sequence.
static int64_t slot_element(const unit *u, int64_t slot) {
  const int32_t *const sequence = u->call->in[5].data;
  return ot_page_row(&u->call->in[6], sequence[u->r], slot) * (u->K + u->P);
}

static ot_real score_of(const unit *u, int64_t slot) {
  const ot_tensor *const cache = &u->call->in[2];
  const int64_t width = u->K + u->P;
  ot_real scratch[OT_TILE];
  ot_real sum = 0;
  for (int64_t i = 0; i < width; i += OT_TILE) {
    const int64_t n = width - i < OT_TILE ? width - i : OT_TILE;
    const ot_real *const row =
        ot_row_in(cache->data, cache->type.dtype, slot_element(u, slot) + i, n, scratch);
#pragma omp simd reduction(+ : sum)
    for (int64_t k = 0; k < n; k++) sum += u->query[i + k] * row[k];
  }
  return sum * (ot_real)u->call->attributes->scale;
}

static void add_slot(const unit *u, int64_t slot, ot_real share) {
  const ot_tensor *const cache = &u->call->in[2];
  ot_real scratch[OT_TILE];
  for (int64_t i = 0; i < u->K; i += OT_TILE) {
    const int64_t n = u->K - i < OT_TILE ? u->K - i : OT_TILE;
    const ot_real *const row =
        ot_row_in(cache->data, cache->type.dtype, slot_element(u, slot) + i, n, scratch);
    for (int64_t k = 0; k < n; k++) u->mean[i + k] += share * row[k];
  }
}

static void attend(const unit *u) {
  ot_real largest = 0, sum = 0;
  for (int64_t j = 0; j < u->seen; j++) {
    u->scores[j] = score_of(u, j);
    largest = j == 0 || u->scores[j] > largest ? u->scores[j] : largest;
  }
  memset(u->mean, 0, (size_t)u->K * sizeof *u->mean);
  for (int64_t j = 0; j < u->seen; j++) {
    u->scores[j] = OT_KERNEL(ot_exp)(u->scores[j] - largest);
    sum += u->scores[j];
  }
  for (int64_t j = 0; j < u->seen; j++) add_slot(u, j, u->scores[j] / sum);
}

// o = w_v mean
static void project_value(const unit *u) {
  const ot_tensor *const w = &u->call->in[1];
  const ot_tensor *const o = &u->call->out[0];
  ot_real head[OT_TILE], scratch[OT_TILE];
  for (int64_t v = 0; v < u->V; v++) {
    const int64_t first = (u->h * (u->N + u->V) + u->N + v) * u->K;
    head[v] = 0;
    for (int64_t i = 0; i < u->K; i += OT_TILE) {
      const int64_t n = u->K - i < OT_TILE ? u->K - i : OT_TILE;
      const ot_real *const row = ot_row_in(w->data, w->type.dtype, first + i, n, scratch);
      ot_real sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t k = 0; k < n; k++) sum += row[k] * u->mean[i + k];
      head[v] += sum;
    }
  }
  ot_store_row(o->data, o->type.dtype, (u->r * u->call->attributes->num_heads + u->h) * u->V, head,
               u->V);
}

static void clear(const unit *u) {
  const ot_tensor *const o = &u->call->out[0];
  const int64_t size = u->V * ot_dtype_bytes(o->type.dtype);
  memset((char *)o->data + (u->r * u->call->attributes->num_heads + u->h) * size, 0, (size_t)size);
}

static void latent_decode(const ot_kernel_call *call) {
  const ot_op_attributes *const a = call->attributes;
  const int32_t *const position = call->in[3].data, *const sequence = call->in[5].data;
  const int64_t R = call->in[0].type.dim[0];
  const int64_t slots = ot_paged_slots(&call->in[6].type), width = call->in[2].type.dim[2];
#pragma omp parallel for schedule(dynamic, 1) num_threads(a->threads)
  for (int64_t i = 0; i < R * a->num_heads; i++) {
    unit u = {.call = call,
              .r = i / a->num_heads,
              .h = i % a->num_heads,
              .K = width - a->rotary_dim,
              .P = a->rotary_dim,
              .N = a->head_dim - a->rotary_dim,
              .V = a->value_dim,
              .seen = position[i / a->num_heads] + 1};
    u.query = (ot_real *)call->workspace + omp_get_thread_num() * (2 * width + slots);
    u.mean = u.query + width;
    u.scores = u.mean + width;
    if (sequence[u.r] < 0) {
      clear(&u);
      continue;
    }
    absorb_query(&u);
    attend(&u);
    project_value(&u);
  }
}

const ot_kernel_entry OT_KERNEL(ot_latent_decode_cpu)[] = {
    {OT_OP_APPEND_LATENT, append_latent},
    {OT_OP_LATENT_DECODE, latent_decode},
    {OT_OP_COUNT, NULL},
};
