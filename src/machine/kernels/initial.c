// SPDX-License-Identifier: Apache-2.0
// Initial weights in host memory, in blocks that threads share.
#include "kernels/initial.h"

#include "base/rng.h"

enum { BLOCK = 1 << 12 };  // elements, on the stack

// Elements [first, first + n), row by row.
static void draw_normals(const ot_initial_draw *draw, int64_t first, int64_t n, double *values) {
  ot_rng_counters at = {.seed = draw->seed, .stream = draw->stream, .step = draw->column_step};
  for (int64_t done = 0, count; done < n; done += count) {
    const int64_t row = (first + done) / draw->columns, column = (first + done) % draw->columns;
    const int64_t left = draw->columns - column;
    count = left < n - done ? left : n - done;
    at.first =
        draw->counter + (uint64_t)row * draw->row_step + (uint64_t)column * draw->column_step;
    ot_rng_normals(&at, count, values + done);
  }
  for (int64_t i = 0; i < n; i++) values[i] *= draw->scale;
}

static void draw_block(const ot_initial_draw *draw, int64_t first, int64_t n, double *values) {
  if (draw->normal) {
    draw_normals(draw, first, n, values);
  } else {
    for (int64_t i = 0; i < n; i++) values[i] = draw->scale;
  }
}

static void store(const double *values, int64_t n, ot_dtype dtype, void *to) {
  for (int64_t i = 0; i < n; i++) {
    if (dtype == OT_F64) ((double *)to)[i] = values[i];
    if (dtype == OT_F32) ((float *)to)[i] = (float)values[i];
    if (dtype == OT_BF16) ((uint16_t *)to)[i] = ot_bf16_from_float((float)values[i]);
  }
}

// Stores what `target` has of elements [first, first + n).
static void store_part(const ot_initial_target *target, const double *values, int64_t first,
                       int64_t n, char *arena) {
  const int64_t begin = first > target->first ? first : target->first;
  const int64_t end = first + n < target->end ? first + n : target->end;
  const int64_t bytes = (begin - target->first) * ot_dtype_bytes(target->dtype);
  if (begin >= end) return;
  store(values + (begin - first), end - begin, target->dtype, arena + target->offset + bytes);
}

void ot_initial_draw_cpu(const ot_initial_draw *draw, int threads, void *arena) {
  int64_t from, to;
  ot_initial_draw_range(draw, &from, &to);
#pragma omp parallel for num_threads(threads)
  for (int64_t first = from; first < to; first += BLOCK) {
    const int64_t n = to - first < BLOCK ? to - first : BLOCK;
    double values[BLOCK];
    draw_block(draw, first, n, values);
    for (int i = 0; i < draw->num_targets; i++) {
      store_part(&draw->target[i], values, first, n, arena);
    }
  }
}
