// SPDX-License-Identifier: Apache-2.0
// Compiled and run by test_tunings.sh for one compiler, instruction set and tuning, in both types.
// Tiles of every shape, and functions in vectors and alone, have the bits of the sum that their
// headers define, written out here in calls that the compiler cannot join. Prints each difference
// and exits with 1.
#include <stdio.h>
#include <stdlib.h>

#include "kernels/decode_cpu.c"
#include "workspace/cpu_workspace.h"

enum { DEPTH = 131, RUNS = 20, MOST = 40 };

static int differences = 0;

static uint64_t state = 1;

static ot_real drawn(void) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (ot_real)((double)(state >> 11) / 0x1p52 - 1);
}

static __attribute__((noinline)) void fill(ot_real *values, int64_t n) {
  for (int64_t i = 0; i < n; i++) values[i] = drawn();
}

static void expect(const char *what, int shape, ot_real got, ot_real wanted) {
  if (memcmp(&got, &wanted, sizeof got) == 0) return;
  differences++;
  printf("%s, %d: %a in place of %a\n", what, shape, (double)got, (double)wanted);
}

static __attribute__((noinline)) ot_real fused(ot_real a, ot_real b, ot_real c) {
  return OT_KERNEL(ot_fused)(a, b, c);
}

// The sum of dot_tile.h: lanes of depth, added by halves, then what fills no vector.
static __attribute__((noinline)) ot_real dot_of(const ot_real *a, const ot_real *b, int64_t depth) {
  ot_real lane[OT_VECTOR_LANES] = {0};
  const int64_t whole = depth / OT_VECTOR_LANES * OT_VECTOR_LANES;
  for (int64_t k = 0; k < whole; k++)
    lane[k % OT_VECTOR_LANES] = fused(a[k], b[k], lane[k % OT_VECTOR_LANES]);
  for (int half = OT_VECTOR_LANES / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; i++) lane[i] = lane[i] + lane[i + half];
  }
  ot_real sum = lane[0];
  for (int64_t k = whole; k < depth; k++) sum = fused(a[k], b[k], sum);
  return sum;
}

static void check_dots(int64_t depth) {
  static ot_real a[OT_DOT_ROWS][DEPTH], b[OT_DOT_COLUMNS][DEPTH];
  ot_dot_tile tile = {.depth = depth};
  for (int r = 0; r < OT_DOT_ROWS; r++) {
    fill(a[r], depth);
    tile.a[r] = a[r];
  }
  for (int c = 0; c < OT_DOT_COLUMNS; c++) {
    fill(b[c], depth);
    tile.b[c] = b[c];
  }
  for (int rows = 1; rows <= OT_DOT_ROWS; rows++) {
    ot_real dots[OT_DOT_ROWS][OT_DOT_COLUMNS];
    ot_dot_rows(&tile, rows, dots);
    for (int r = 0; r < rows; r++) {
      for (int c = 0; c < OT_DOT_COLUMNS; c++) {
        expect("dots of rows", rows, dots[r][c], dot_of(a[r], b[c], depth));
      }
    }
  }
}

// A register tile of one or two vectors of columns: each element is a chain over the depth.
static void check_tile(int vectors, ot_tile_start start) {
  static ot_real a[OT_TILE_ROWS][DEPTH];
  static _Alignas(64) ot_real b[DEPTH][OT_PANEL], c[OT_TILE_ROWS][OT_PANEL], scale[OT_PANEL];
  ot_real wanted[OT_TILE_ROWS][OT_PANEL];
  fill(&a[0][0], OT_TILE_ROWS * DEPTH);
  fill(&b[0][0], DEPTH * OT_PANEL);
  fill(scale, OT_PANEL);
  fill(&c[0][0], OT_TILE_ROWS * OT_PANEL);
  const int width = vectors * OT_VECTOR_LANES;
  for (int r = 0; r < OT_TILE_ROWS; r++) {
    for (int i = 0; i < width; i++) {
      wanted[r][i] = start == OT_TILE_ZERO  ? 0
                     : start == OT_TILE_ADD ? c[r][i]
                                            : c[r][i] * scale[i];
      for (int k = 0; k < DEPTH; k++) wanted[r][i] = fused(a[r][k], b[k][i], wanted[r][i]);
    }
  }
  const ot_register_tile tile = {.a = a[0],
                                 .a_row = DEPTH,
                                 .a_depth = 1,
                                 .b = b[0],
                                 .b_stride = OT_PANEL,
                                 .c = c[0],
                                 .c_stride = OT_PANEL,
                                 .depth = DEPTH};
  if (vectors == 1 && start == OT_TILE_ZERO) ot_tile_multiply(&tile, 1, OT_TILE_ZERO, scale);
  if (vectors == 1 && start == OT_TILE_ADD) ot_tile_multiply(&tile, 1, OT_TILE_ADD, scale);
  if (vectors == 1 && start == OT_TILE_SCALE) ot_tile_multiply(&tile, 1, OT_TILE_SCALE, scale);
  if (vectors == 2 && start == OT_TILE_ZERO) ot_tile_multiply(&tile, 2, OT_TILE_ZERO, scale);
  if (vectors == 2 && start == OT_TILE_ADD) ot_tile_multiply(&tile, 2, OT_TILE_ADD, scale);
  if (vectors == 2 && start == OT_TILE_SCALE) ot_tile_multiply(&tile, 2, OT_TILE_SCALE, scale);
  for (int r = 0; r < OT_TILE_ROWS; r++) {
    for (int i = 0; i < width; i++) {
      expect("register tile of vectors", vectors, c[r][i], wanted[r][i]);
    }
  }
}

// Sums of values for queries in groups of VALUE_ROWS and alone (decode_cpu.c).
static void check_values(int64_t queries) {
  static _Alignas(64) ot_real values[OT_DECODE_KEYS][OT_VECTOR_LANES], sums[MOST][OT_VECTOR_LANES];
  static ot_real scores[MOST][OT_DECODE_KEYS];
  const decode d = {.heads = 1, .layout = {.width = OT_VECTOR_LANES}};
  const unit u = {
      .d = &d, .rows = queries, .values = values[0], .scores = scores[0], .sums = sums[0]};
  fill(&values[0][0], OT_DECODE_KEYS * OT_VECTOR_LANES);
  fill(&scores[0][0], queries * OT_DECODE_KEYS);
  memset(sums, 0, sizeof sums);
  add_values(&u, (tile){0, OT_DECODE_KEYS});
  for (int64_t q = 0; q < queries; q++) {
    for (int i = 0; i < OT_VECTOR_LANES; i++) {
      ot_real wanted = 0;
      for (int j = 0; j < OT_DECODE_KEYS; j++) {
        wanted = fused(scores[q][j], values[j][i], wanted);
      }
      expect("values of queries", (int)queries, sums[q][i], wanted);
    }
  }
}

static __attribute__((noinline)) ot_real one_exp(ot_real x) { return OT_KERNEL(ot_exp)(x); }
static __attribute__((noinline)) ot_real one_log(ot_real x) { return OT_KERNEL(ot_log)(x); }
static __attribute__((noinline)) ot_real one_tanh(ot_real x) { return OT_KERNEL(ot_tanh)(x); }
static __attribute__((noinline)) ot_real one_erf(ot_real x) { return OT_KERNEL(ot_erf)(x); }
static __attribute__((noinline)) ot_real one_sigmoid(ot_real x) { return OT_KERNEL(ot_sigmoid)(x); }

// A function in a loop, whose length leaves elements over, and of one element alone.
static void check_functions(int n) {
  ot_real x[MOST], e[MOST], l[MOST], t[MOST], f[MOST], s[MOST];
  for (int i = 0; i < n; i++) x[i] = 8 * drawn();
#pragma omp simd
  for (int i = 0; i < n; i++) {
    e[i] = OT_KERNEL(ot_exp)(x[i]);
    l[i] = OT_KERNEL(ot_log)(x[i] * x[i]);
    t[i] = OT_KERNEL(ot_tanh)(x[i]);
    f[i] = OT_KERNEL(ot_erf)(x[i]);
    s[i] = OT_KERNEL(ot_sigmoid)(x[i]);
  }
  for (int i = 0; i < n; i++) {
    expect("exp of elements", n, e[i], one_exp(x[i]));
    expect("log of elements", n, l[i], one_log(x[i] * x[i]));
    expect("tanh of elements", n, t[i], one_tanh(x[i]));
    expect("erf of elements", n, f[i], one_erf(x[i]));
    expect("sigmoid of elements", n, s[i], one_sigmoid(x[i]));
  }
}

int main(void) {
  for (int run = 0; run < RUNS; run++) {
    for (int64_t depth = 1; depth <= DEPTH; depth += 13) check_dots(depth);
    for (int start = OT_TILE_ZERO; start <= OT_TILE_SCALE; start++) {
      check_tile(1, (ot_tile_start)start);
      check_tile(2, (ot_tile_start)start);
    }
    for (int64_t queries = 1; queries <= 9; queries++) check_values(queries);
    for (int n = 1; n <= MOST; n++) check_functions(n);
  }
  return differences > 0;
}
