// SPDX-License-Identifier: Apache-2.0
// Gradient norm, clipping and AdamW: one pass over memory each. Sums are accumulated in float64 by
// blocks of elements in the workspace and added in order.
#include <math.h>
#include <stddef.h>

#include "kernels/cpu_tables.h"
#include "kernels/tiles.h"
#include "kernels/update_sums.h"
#include "ops/optimizer.h"
#include "workspace/blocks.h"

static double block_sum_squares(const ot_tensor *g, int64_t begin, int64_t end) {
  ot_real scratch[OT_TILE];
  double sum = 0;
  for (int64_t first = begin; first < end; first += OT_TILE) {
    const int64_t n = end - first < OT_TILE ? end - first : OT_TILE;
    const ot_real *const x = ot_tile_in(g, first, n, scratch);
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
  }
  return sum;
}

static void sum_squares(const ot_kernel_call *call) {
  const int64_t elements = ot_type_elements(&call->in[0].type);
  const int64_t blocks = ot_flat_blocks(elements);
  double *const sums = call->workspace;
#pragma omp parallel for num_threads(ot_threads_for(call, elements)) schedule(static)
  for (int64_t block = 0; block < blocks; block++) {
    sums[block] = block_sum_squares(&call->in[0], ot_block_begin(elements, blocks, block),
                                    ot_block_begin(elements, blocks, block + 1));
  }
  double total = 0;
  for (int64_t block = 0; block < blocks; block++) total += sums[block];
  const double scale = call->attributes->scale;
  if (scale != 0) total *= scale * scale;
  double *const s = call->out[0].data;
  *s = call->attributes->accumulate ? *s + total : total;
}

static void clip_factor(const ot_kernel_call *call) {
  const double *const s = call->in[0].data;
  const double clip = call->attributes->clip;
  double total = 0;
  for (int64_t i = 0; i < call->in[0].type.dim[0]; i++) total += s[i];
  const double norm = sqrt(total);
  const double factor = clip / (norm + 1e-6);
  *(double *)call->out[0].data = norm;
  *(double *)call->out[1].data = !isfinite(norm) ? NAN : clip > 0 && factor < 1 ? factor : 1;
}

// ---- AdamW ----

typedef struct adamw_step {
  const ot_tensor *g, *p, *m, *v, *master;
  const ot_tensor *weight;  // source of p: master or p
  ot_real gradient_factor;  // from clipping
  ot_real beta1, rest1, beta2, rest2;
  ot_real step, correction2, epsilon, decay;
} adamw_step;

static adamw_step adamw_step_of(const ot_kernel_call *call) {
  const ot_op_attributes *const attributes = call->attributes;
  const double *const scalars = call->in[1].data;
  const double rate = scalars[OT_SCALAR_LEARNING_RATE] * attributes->learning_rate_factor;
  return (adamw_step){
      .g = &call->in[0],
      .p = &call->out[0],
      .m = &call->out[1],
      .v = &call->out[2],
      .master = &call->out[3],
      .weight = call->out[3].data ? &call->out[3] : &call->out[0],
      .gradient_factor = (ot_real)scalars[OT_SCALAR_CLIP_FACTOR],
      .beta1 = (ot_real)attributes->beta1,
      .rest1 = (ot_real)(1 - attributes->beta1),
      .beta2 = (ot_real)attributes->beta2,
      .rest2 = (ot_real)(1 - attributes->beta2),
      .step = (ot_real)(rate * scalars[OT_SCALAR_CORRECTION_1]),
      .correction2 = (ot_real)scalars[OT_SCALAR_CORRECTION_2],
      .epsilon = (ot_real)attributes->epsilon,
      .decay = (ot_real)(rate * attributes->weight_decay),
  };
}

// A tile of elements: m, v and w are read and written.
typedef struct adamw_tile {
  const ot_real *g;
  ot_real *m, *v, *w;
  int64_t n;
} adamw_tile;

// Adds d^2 and w^2 to `sums`.
static void adamw_elements(const adamw_step *s, const adamw_tile *tile, ot_update_sums *sums) {
  const ot_real *const g = tile->g;
  ot_real *const m = tile->m;
  ot_real *const v = tile->v;
  ot_real *const w = tile->w;
  double sum_update = 0;
  double sum_weight = 0;
#pragma omp simd reduction(+ : sum_update, sum_weight)
  for (int64_t i = 0; i < tile->n; i++) {
    const ot_real gradient = g[i] * s->gradient_factor;
    m[i] = s->beta1 * m[i] + s->rest1 * gradient;
    v[i] = s->beta2 * v[i] + s->rest2 * gradient * gradient;
    const ot_real update =
        s->step * m[i] / (ot_real_sqrt(v[i] * s->correction2) + s->epsilon) + s->decay * w[i];
    w[i] -= update;
    sum_update += (double)update * (double)update;
    sum_weight += (double)w[i] * (double)w[i];
  }
  sums->update += sum_update;
  sums->weight += sum_weight;
}

static ot_update_sums adamw_block(const adamw_step *s, int64_t begin, int64_t end) {
  ot_real scratch[4][OT_TILE];
  ot_update_sums sums = {0};
  for (int64_t first = begin; first < end; first += OT_TILE) {
    const int64_t n = end - first < OT_TILE ? end - first : OT_TILE;
    const adamw_tile tile = {.g = ot_tile_in(s->g, first, n, scratch[0]),
                             .m = ot_tile_both(s->m, first, n, scratch[1]),
                             .v = ot_tile_both(s->v, first, n, scratch[2]),
                             .w = ot_tile_both(s->weight, first, n, scratch[3]),
                             .n = n};
    adamw_elements(s, &tile, &sums);
    ot_tile_done(s->m, first, tile.m, n);
    ot_tile_done(s->v, first, tile.v, n);
    ot_tile_done(s->weight, first, tile.w, n);
    if (s->master->data) ot_store_row(s->p->data, s->p->type.dtype, first, tile.w, n);
  }
  return sums;
}

static void adamw(const ot_kernel_call *call) {
  if (ot_update_is_skipped(call, call->out[4].data)) return;
  const adamw_step step = adamw_step_of(call);
  const int64_t elements = ot_type_elements(&call->in[0].type);
  const int64_t blocks = ot_flat_blocks(elements);
  ot_update_sums *const sums = call->workspace;
#pragma omp parallel for num_threads(ot_threads_for(call, elements)) schedule(static)
  for (int64_t block = 0; block < blocks; block++) {
    sums[block] = adamw_block(&step, ot_block_begin(elements, blocks, block),
                              ot_block_begin(elements, blocks, block + 1));
  }
  ot_update_sums_total(sums, blocks, call->out[4].data);
}

const ot_kernel_entry OT_KERNEL(ot_optimizer_cpu)[] = {
    {OT_OP_SUM_SQUARES, sum_squares},
    {OT_OP_CLIP_FACTOR, clip_factor},
    {OT_OP_ADAMW, adamw},
    {OT_OP_COUNT, NULL},
};
