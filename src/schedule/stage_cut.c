// SPDX-License-Identifier: Apache-2.0
// Dynamic programming for one chunk a rank (the classic partition of a chain). With several chunks
// a rank, sums over chunks far apart count: from the same cut a descent moves one block at a time,
// and starts again from random neighbours of the best until none of many leads further (iterated
// local search). Costs are whole numbers below 2^26, so that squares and sums are exact and equal
// blocks are equal.
#include "schedule/stage_cut.h"

#include <stdbool.h>
#include <string.h>

#include "base/rng.h"
#include "base/status.h"

// A descent costs about chunks^3 steps for each block that it moves.
enum { SCALE = 1 << 26, MAX_STARTS = 100, START_BUDGET = 1 << 24, KICKS = 5 };

typedef struct cutter {
  int blocks, chunks, ranks;
  const int *rank_of;
  int64_t *sum;   // [blocks + 1] cost of the blocks before
  int64_t *load;  // [ranks] scratch of a score
} cutter;

static int64_t cost_between(const cutter *c, int from, int to) { return c->sum[to] - c->sum[from]; }

static void sum_costs(const ot_cut_request *request, cutter *c) {
  double total = 0;
  for (int i = 0; i < c->blocks; i++) total += request->cost[i];
  const double unit = total > SCALE ? total / SCALE : 1;
  for (int i = 0; i < c->blocks; i++) {
    c->sum[i + 1] = c->sum[i] + (int64_t)(request->cost[i] / unit);
  }
}

// ---- one chunk a rank ----

typedef struct table {
  int64_t
      *best;  // [(chunks + 1) * (blocks + 1)] value of the first k chunks over the first i blocks
  int *from;  // where the last of them begins
} table;

static const int64_t IMPOSSIBLE = INT64_MAX;

// The best value of chunk k that ends before block i, given all of chunk k - 1: the largest cost
// without a bound, else the sum of squares of costs within `bound`. Ties go to the later start.
static void fill(const cutter *c, const table *t, int k, int i, int64_t bound) {
  const int64_t *const before = &t->best[(int64_t)(k - 1) * (c->blocks + 1)];
  int64_t *const best = &t->best[(int64_t)k * (c->blocks + 1) + i];
  *best = IMPOSSIBLE;
  for (int j = i - 1; j >= k - 1; j--) {
    const int64_t cost = cost_between(c, j, i);
    if (bound >= 0 && cost > bound) break;
    if (before[j] == IMPOSSIBLE) continue;
    const int64_t larger = cost > before[j] ? cost : before[j];
    const int64_t value = bound >= 0 ? before[j] + cost * cost : larger;
    if (value >= *best) continue;
    *best = value;
    t->from[(int64_t)k * (c->blocks + 1) + i] = j;
  }
}

static int64_t fill_all(const cutter *c, const table *t, int64_t bound) {
  const int width = c->blocks + 1;
  for (int i = 0; i < width; i++) t->best[i] = i == 0 ? 0 : IMPOSSIBLE;
  for (int k = 1; k <= c->chunks; k++) {
    for (int i = 0; i < width; i++) fill(c, t, k, i, bound);
  }
  return t->best[(int64_t)c->chunks * width + c->blocks];
}

static void cut_exactly(const cutter *c, ot_arena *arena, int *first) {
  const int64_t width = c->blocks + 1;
  const table t = {.best = ot_arena_array(arena, (c->chunks + 1) * width, sizeof(int64_t)),
                   .from = ot_arena_array(arena, (c->chunks + 1) * width, sizeof(int))};
  const int64_t bound = fill_all(c, &t, -1);
  fill_all(c, &t, bound);
  first[c->chunks] = c->blocks;
  for (int k = c->chunks; k > 0; k--) first[k - 1] = t.from[k * width + first[k]];
}

// ---- several chunks a rank ----

// Compared from the first on.
typedef struct score {
  int64_t rank, chunk, rank_squares, chunk_squares;
} score;

static score score_of(const cutter *c, const int *first) {
  score s = {0};
  memset(c->load, 0, (size_t)c->ranks * sizeof *c->load);
  for (int k = 0; k < c->chunks; k++) {
    const int64_t cost = cost_between(c, first[k], first[k + 1]);
    c->load[c->rank_of[k]] += cost;
    if (cost > s.chunk) s.chunk = cost;
    s.chunk_squares += cost * cost;
  }
  for (int r = 0; r < c->ranks; r++) {
    if (c->load[r] > s.rank) s.rank = c->load[r];
    s.rank_squares += c->load[r] * c->load[r];
  }
  return s;
}

static bool is_better(const score *a, const score *b) {
  if (a->rank != b->rank) return a->rank < b->rank;
  if (a->chunk != b->chunk) return a->chunk < b->chunk;
  if (a->rank_squares != b->rank_squares) return a->rank_squares < b->rank_squares;
  return a->chunk_squares < b->chunk_squares;
}

// Moves the cuts [from, to] by `step`: one block goes from one end to the other, and the chunks
// between pass one on.
static void shift(int *first, int from, int to, int step) {
  for (int k = from; k <= to; k++) first[k] += step;
}

static bool is_whole(const cutter *c, const int *first, int from, int to) {
  return first[from] > first[from - 1] && first[to] < first[to + 1] && to < c->chunks;
}

// Takes the best move there is; false when none is for the better.
static bool improve(const cutter *c, int *first, score *now) {
  score best = *now;
  int best_from = 0, best_to = 0, best_step = 0;
  for (int from = 1; from < c->chunks; from++) {
    for (int to = from; to < c->chunks; to++) {
      for (int step = -1; step <= 1; step += 2) {
        shift(first, from, to, step);
        const score s = is_whole(c, first, from, to) ? score_of(c, first) : *now;
        shift(first, from, to, -step);
        if (!is_better(&s, &best)) continue;
        best = s;
        best_from = from, best_to = to, best_step = step;
      }
    }
  }
  if (best_from == 0) return false;
  shift(first, best_from, best_to, best_step);
  *now = best;
  return true;
}

static score descend(const cutter *c, int *first) {
  score now = score_of(c, first);
  while (improve(c, first, &now)) continue;
  return now;
}

static int draw(uint64_t *drawn, int bound) {
  return (int)ot_rng_below(0, 0, (*drawn)++, (uint64_t)bound);
}

static void kick(const cutter *c, int *first, uint64_t *drawn) {
  for (int i = 0; i < KICKS; i++) {
    const int from = 1 + draw(drawn, c->chunks - 1);
    const int to = from + draw(drawn, c->chunks - from);
    const int step = draw(drawn, 2) == 0 ? -1 : 1;
    shift(first, from, to, step);
    if (!is_whole(c, first, from, to)) shift(first, from, to, -step);
  }
}

static void search(const cutter *c, ot_arena *arena, int *first) {
  const size_t bytes = (size_t)(c->chunks + 1) * sizeof *first;
  int *const trial = ot_arena_take(arena, (int64_t)bytes);
  const int64_t affordable = START_BUDGET / ((int64_t)c->chunks * c->chunks * c->chunks);
  const int64_t starts = affordable < MAX_STARTS ? affordable : MAX_STARTS;
  score best = descend(c, first);
  uint64_t drawn = 0;
  for (int64_t i = 0; i < starts; i++) {
    memcpy(trial, first, bytes);
    kick(c, trial, &drawn);
    const score s = descend(c, trial);
    if (!is_better(&s, &best)) continue;
    best = s;
    memcpy(first, trial, bytes);
    i = 0;
  }
}

void ot_stage_cut(const ot_cut_request *request, ot_arena *arena, int *first) {
  cutter c = {.blocks = request->num_blocks,
              .chunks = request->num_chunks,
              .ranks = request->num_ranks,
              .rank_of = request->rank_of};
  OT_ASSERT(c.chunks >= 1 && c.chunks <= c.blocks);
  c.sum = ot_arena_array(arena, c.blocks + 1, sizeof *c.sum);
  c.load = ot_arena_array(arena, c.ranks, sizeof *c.load);
  sum_costs(request, &c);
  cut_exactly(&c, arena, first);
  if (c.chunks > c.ranks && c.ranks > 1) search(&c, arena, first);
}
