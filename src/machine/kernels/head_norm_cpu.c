// SPDX-License-Identifier: Apache-2.0
// RMSNorm of the queries and keys of packed rows, and their rotation. A row is widened per group,
// in tiles; sums over rows use row blocks as in norm_cpu.c. A rotated group is one tile.
#include <stddef.h>
#include <string.h>

#include "kernels/cpu_tables.h"
#include "kernels/rotation.h"
#include "kernels/tiles.h"
#include "ops/head_norm.h"

static const ot_rotation no_rotation;

// The groups of one part (q or k) of the rows.
typedef struct head_part {
  int64_t groups, width;  // groups of a row, elements of a group
  int64_t first_column;   // of the part in the packed row
  int64_t first_group;    // of the part in a row of rstd and of means
  const ot_tensor *w;     // [width]
} head_part;

typedef struct head_call {
  const ot_kernel_call *call;
  head_part part[2];
  const ot_tensor *x, *dy;     // of gradients and means
  const ot_tensor *positions;  // followed by the table; null: no rotation
  int64_t rows, columns, groups, v_width;
  ot_real offset;
} head_call;

// A row and its rotation: the inverse for gradients, of no pairs without positions.
typedef struct head_row {
  int64_t row;
  ot_rotation rotation;
} head_row;

static void begin_row(const head_call *head, int64_t row, ot_real sign, head_row *r) {
  r->row = row;
  r->rotation.first = 0;
  r->rotation.n = head->positions ? head->positions[1].type.dim[1] : 0;
  if (head->positions) {
    ot_rotation_read(head->positions, head->positions + 1, row, sign, &r->rotation);
  }
}

static head_call head_call_of(const ot_kernel_call *call, const ot_tensor *wq,
                              const ot_tensor *wk) {
  const ot_head_groups groups = ot_head_groups_of(call->attributes);
  return (head_call){
      .call = call,
      .part = {{groups.q_groups, groups.q_width, 0, 0, wq},
               {groups.k_groups, groups.k_width, groups.q_groups * groups.q_width, groups.q_groups,
                wk}},
      .rows = call->in[0].type.dim[0],
      .columns = call->in[0].type.dim[1],
      .groups = groups.q_groups + groups.k_groups,
      .v_width = groups.v_width,
      .offset = (ot_real)call->attributes->norm_offset,
  };
}

static int64_t tile_size(int64_t c, int64_t width) {
  return width - c < OT_TILE ? width - c : OT_TILE;
}

// Copies the values of a row from input 0 to output 0.
static void copy_values(const head_call *head, int64_t row) {
  ot_real scratch[OT_TILE];
  const ot_tensor *const y = &head->call->out[0];
  const int64_t begin = (row + 1) * head->columns - head->v_width;
  for (int64_t c = 0; c < head->v_width; c += OT_TILE) {
    const int64_t n = tile_size(c, head->v_width);
    const ot_real *const x = ot_tile_in(&head->call->in[0], begin + c, n, scratch);
    ot_store_row(y->data, y->type.dtype, begin + c, x, n);
  }
}

// ---- forward ----

static ot_real sum_of_squares(const ot_tensor *x, int64_t first, int64_t width) {
  ot_real scratch[OT_TILE];
  ot_real sum = 0;
  for (int64_t c = 0; c < width; c += OT_TILE) {
    const int64_t n = tile_size(c, width);
    const ot_real *const values = ot_tile_in(x, first + c, n, scratch);
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += values[i] * values[i];
  }
  return sum;
}

// For a sharded row the mean is an input.
static ot_real group_rstd(const ot_kernel_call *call, const head_part *part, int64_t row,
                          int64_t first) {
  const ot_real *const means = call->in[3].data;
  const ot_real mean =
      means ? means[2 * row + part->first_group]
            : sum_of_squares(&call->in[0], first, part->width) / (ot_real)part->width;
  return 1 / ot_real_sqrt(mean + (ot_real)call->attributes->epsilon);
}

static void norm_group(const head_call *head, const head_part *part, const head_row *r,
                       int64_t group) {
  ot_real scratch[3][OT_TILE];
  const int64_t row = r->row, pairs = r->rotation.n;
  const ot_kernel_call *const call = head->call;
  const ot_tensor *const y = &call->out[0];
  const int64_t first = row * head->columns + part->first_column + group * part->width;
  const ot_real offset = head->offset;
  const ot_real rstd = group_rstd(call, part, row, first);
  ((ot_real *)call->out[1].data)[row * head->groups + part->first_group + group] = rstd;
  for (int64_t c = 0; c < part->width; c += OT_TILE) {
    const int64_t n = tile_size(c, part->width);
    const ot_real *const x = ot_tile_in(&call->in[0], first + c, n, scratch[0]);
    const ot_real *const w = ot_tile_in(part->w, c, n, scratch[1]);
    ot_real *const to = ot_tile_out(y, first + c, scratch[2]);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = x[i] * rstd * (w[i] + offset);
    ot_rotate(&r->rotation, to, to + pairs, to, to + pairs);
    ot_tile_done(y, first + c, to, n);
  }
}

static void head_norm(const ot_kernel_call *call) {
  head_call head = head_call_of(call, &call->in[1], &call->in[2]);
  if (call->in[4].data) head.positions = &call->in[4];
#pragma omp parallel for num_threads(ot_threads_for(call, head.rows *head.columns)) schedule(static)
  for (int64_t row = 0; row < head.rows; row++) {
    head_row r;
    begin_row(&head, row, 1, &r);
    for (int p = 0; p < 2; p++) {
      for (int64_t g = 0; g < head.part[p].groups; g++) norm_group(&head, &head.part[p], &r, g);
    }
    copy_values(&head, row);
  }
}

// ---- gradient ----

// Elements [first, first + n) of dy, rotated back; in `scratch` if that changes them.
static const ot_real *gradient_of(const head_call *head, const ot_rotation *r, int64_t first,
                                  int64_t n, ot_real *scratch) {
  const ot_real *const dy = ot_tile_in(head->dy, first, n, scratch);
  if (r->n == 0) return dy;
  ot_rotate(r, dy, dy + r->n, scratch, scratch + r->n);
  for (int64_t i = 2 * r->n; i < n; i++) scratch[i] = dy[i];
  return scratch;
}

// mean(g * h), g = dy * (w + offset), h = x * rstd, of the group that starts at element `first`.
static ot_real group_mean(const head_call *head, const head_part *part, const ot_rotation *r,
                          int64_t first, ot_real rstd) {
  ot_real scratch[3][OT_TILE];
  const ot_real offset = head->offset;
  ot_real sum = 0;
  for (int64_t c = 0; c < part->width; c += OT_TILE) {
    const int64_t n = tile_size(c, part->width);
    const ot_real *const dy = gradient_of(head, r, first + c, n, scratch[0]);
    const ot_real *const x = ot_tile_in(head->x, first + c, n, scratch[1]);
    const ot_real *const w = ot_tile_in(part->w, c, n, scratch[2]);
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += dy[i] * (w[i] + offset) * x[i];
  }
  return sum * rstd / (ot_real)part->width;
}

static void grad_group(const head_call *head, const head_part *part, const head_row *r,
                       int64_t group, ot_real *dw) {
  ot_real scratch[4][OT_TILE];
  const int64_t row = r->row;
  const ot_kernel_call *const call = head->call;
  const ot_tensor *const dx = &call->out[0];
  const int64_t first = row * head->columns + part->first_column + group * part->width;
  const ot_real offset = head->offset;
  const ot_real rstd =
      ((const ot_real *)call->in[4].data)[row * head->groups + part->first_group + group];
  const ot_real *const means = call->in[5].data;
  const ot_real mean = means ? means[2 * row + part->first_group]
                             : group_mean(head, part, &r->rotation, first, rstd);
  for (int64_t c = 0; c < part->width; c += OT_TILE) {
    const int64_t n = tile_size(c, part->width);
    const ot_real *const dy = gradient_of(head, &r->rotation, first + c, n, scratch[0]);
    const ot_real *const x = ot_tile_in(&call->in[1], first + c, n, scratch[1]);
    const ot_real *const w = ot_tile_in(part->w, c, n, scratch[2]);
    ot_real *const to = ot_tile_out(dx, first + c, scratch[3]);
    ot_real *const sums = dw + c;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
      const ot_real h = x[i] * rstd;
      sums[i] += dy[i] * h;
      to[i] = rstd * (dy[i] * (w[i] + offset) - h * mean);
    }
    ot_tile_done(dx, first + c, to, n);
  }
}

static void grad_block(const head_call *head, int64_t blocks, int64_t block) {
  const int64_t q_width = head->part[0].width;
  const int64_t stride = q_width + head->part[1].width;
  ot_real *const dw = (ot_real *)head->call->workspace + block * stride;
  const int64_t end = ot_block_begin(head->rows, blocks, block + 1);
  memset(dw, 0, (size_t)stride * sizeof *dw);
  for (int64_t row = ot_block_begin(head->rows, blocks, block); row < end; row++) {
    head_row r;
    begin_row(head, row, -1, &r);
    for (int p = 0; p < 2; p++) {
      const head_part *const part = &head->part[p];
      for (int64_t g = 0; g < part->groups; g++) {
        grad_group(head, part, &r, g, dw + (p == 0 ? 0 : q_width));
      }
    }
    copy_values(head, row);
  }
}

static void head_norm_grad(const ot_kernel_call *call) {
  head_call head = head_call_of(call, &call->in[2], &call->in[3]);
  head.dy = &call->in[0];
  head.x = &call->in[1];
  if (call->in[6].data) head.positions = &call->in[6];
  const int64_t blocks = ot_row_blocks(head.rows);
  const int64_t q_width = head.part[0].width;
#pragma omp parallel for num_threads(ot_threads_for(call, head.rows *head.columns)) schedule(static)
  for (int64_t block = 0; block < blocks; block++) grad_block(&head, blocks, block);
  for (int p = 0; p < 2; p++) {
    if (!call->out[1 + p].data) continue;
    const ot_block_sums sums = {.parts = (const ot_real *)call->workspace + (p == 0 ? 0 : q_width),
                                .blocks = blocks,
                                .stride = q_width + head.part[1].width,
                                .n = head.part[p].width,
                                .out = &call->out[1 + p],
                                .accumulate = call->attributes->accumulate};
    ot_block_sums_add(call, &sums);
  }
}

// ---- this rank's contribution to the means of whole rows ----

static ot_real part_of_mean(const head_call *head, const head_part *part, int64_t row) {
  const ot_kernel_call *const call = head->call;
  const int64_t first = row * head->columns + part->first_column;
  if (!call->in[1].data) {
    return sum_of_squares(&call->in[0], first, part->width) / (ot_real)part->width;
  }
  const ot_real rstd = ((const ot_real *)call->in[4].data)[2 * row + part->first_group];
  return group_mean(head, part, &no_rotation, first, rstd);
}

static void head_means(const ot_kernel_call *call) {
  head_call head = head_call_of(call, &call->in[2], &call->in[3]);
  head.x = &call->in[0];
  head.dy = &call->in[1];
  const ot_real ranks = (ot_real)call->attributes->group_size;
  ot_real *const means = call->out[0].data;
#pragma omp parallel for num_threads(ot_threads_for(call, head.rows *head.columns)) schedule(static)
  for (int64_t row = 0; row < head.rows; row++) {
    for (int p = 0; p < 2; p++) {
      means[2 * row + p] = part_of_mean(&head, &head.part[p], row) / ranks;
    }
  }
}

const ot_kernel_entry OT_KERNEL(ot_head_norm_cpu)[] = {
    {OT_OP_HEAD_NORM, head_norm},
    {OT_OP_HEAD_NORM_GRAD, head_norm_grad},
    {OT_OP_HEAD_MEANS, head_means},
    {OT_OP_COUNT, NULL},
};
