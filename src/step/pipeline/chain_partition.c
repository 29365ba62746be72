// SPDX-License-Identifier: Apache-2.0
// One chunk per rank: dynamic programming (the classic chain partition). With several chunks per
// rank, the cost of a rank sums distant chunks: a descent moves one block at a time, and restarts
// from random neighbours of the best partition until many restarts bring no gain (iterated local
// search), unless all layers are equal (even_partition.h). Costs are integers below 2^26, so that
// squares and sums are exact and equal blocks stay equal.
#include "pipeline/chain_partition.h"

#include <stdbool.h>
#include <string.h>

#include "base/rng.h"
#include "base/status.h"
#include "pipeline/even_partition.h"

// A descent costs about chunks^3 steps per moved block.
enum { SCALE = 1 << 26, MAX_STARTS = 100, START_BUDGET = 1 << 24, KICKS = 5, MET = 1 << 12 };

// Sums of costs, their counts relative to a limit, and their squares.
typedef struct tally {
  int count;
  int64_t *value;  // [count]
  int64_t limit;
  int above, equal;  // values above the limit, and at it
  int64_t squares;   // sum
} tally;

// Chunks and ranks of a partition.
typedef struct standing {
  tally chunk, rank;
} standing;

// Changes of a tally without its values.
typedef struct change {
  int above, equal;
  int64_t squares;
} change;

// Moves of the boundaries from one to another by `step`. Each chunk changes at most once, so its
// changes are known before a move: by `chunk` of the tally of chunks, by cost of its rank.
typedef struct moves {
  int step;
  int64_t *gained, *net;  // [chunks] of a chunk where a move ends; of one in between
  change *before, *end;   // [chunks] of the chunk before a move; where it ends
  change *between;        // [chunks + 1] of the chunks before, if they are in between
  tally rank;             // of the move at hand, without its end
} moves;

typedef struct cutter {
  int blocks, chunks, ranks;
  const int *rank_of;
  int64_t *sum;    // [blocks + 1] cost of the blocks before
  standing base;   // the current partition
  uint64_t *met;   // [MET] hashes of partitions
  int *trial;      // [chunks + 1]
  moves moves[2];  // to the left, to the right
} cutter;

static int64_t cost_between(const cutter *c, int from, int to) { return c->sum[to] - c->sum[from]; }

static void sum_costs(const ot_chain_request *request, cutter *c) {
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
  int *from;  // start of the last of them
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
    // Earlier starts cost more, and chunks before them no less.
    if (bound >= 0 ? cost > bound : cost >= *best) break;
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

// Compared lexicographically.
typedef struct score {
  int64_t rank, chunk, rank_squares, chunk_squares;
} score;

static int64_t largest(const tally *t) {
  int64_t most = t->value[0];
  for (int i = 1; i < t->count; i++) most = t->value[i] > most ? t->value[i] : most;
  return most;
}

static score score_of(const standing *t) {
  return (score){.rank = largest(&t->rank),
                 .chunk = largest(&t->chunk),
                 .rank_squares = t->rank.squares,
                 .chunk_squares = t->chunk.squares};
}

static void set_limit(tally *t, int64_t limit) {
  t->limit = limit;
  t->above = t->equal = 0;
  for (int i = 0; i < t->count; i++) {
    t->above += t->value[i] > limit;
    t->equal += t->value[i] == limit;
  }
}

static void add_cost(tally *t, int index, int64_t cost) {
  const int64_t before = t->value[index], after = before + cost;
  t->value[index] = after;
  t->squares += after * after - before * before;
  t->above += (after > t->limit) - (before > t->limit);
  t->equal += (after == t->limit) - (before == t->limit);
}

static void add_to_chunk(const cutter *c, standing *t, int chunk, int64_t cost) {
  add_cost(&t->chunk, chunk, cost);
  add_cost(&t->rank, c->rank_of[chunk], cost);
}

static void set_base(cutter *c, const int *first) {
  standing *const t = &c->base;
  t->chunk.squares = t->rank.squares = 0;
  memset(t->chunk.value, 0, (size_t)c->chunks * sizeof(int64_t));
  memset(t->rank.value, 0, (size_t)c->ranks * sizeof(int64_t));
  for (int k = 0; k < c->chunks; k++) {
    add_to_chunk(c, t, k, cost_between(c, first[k], first[k + 1]));
  }
}

static void copy_tally(const tally *from, tally *to) {
  int64_t *const value = to->value;
  memcpy(value, from->value, (size_t)from->count * sizeof *value);
  *to = *from;
  to->value = value;
}

static bool is_better(const score *a, const score *b) {
  if (a->rank != b->rank) return a->rank < b->rank;
  if (a->chunk != b->chunk) return a->chunk < b->chunk;
  if (a->rank_squares != b->rank_squares) return a->rank_squares < b->rank_squares;
  return a->chunk_squares < b->chunk_squares;
}

// Moves the boundaries [from, to] by `step`: one block goes from one end to the other, and each
// chunk in between passes one on.
static void shift(int *first, int from, int to, int step) {
  for (int k = from; k <= to; k++) first[k] += step;
}

static bool is_whole(const cutter *c, const int *first, int from, int to) {
  return first[from] > first[from - 1] && first[to] < first[to + 1] && to < c->chunks;
}

// Cost of the block that crosses boundary k when it moves by `step`, as the gain of the chunk after
// it.
static int64_t passed(const cutter *c, const int *first, int k, int step) {
  const int block = step > 0 ? first[k] : first[k] - 1;
  return -step * cost_between(c, block, block + 1);
}

typedef struct move {
  int from, to, step;
} move;

// Whether the chunks at the ends of the moved boundaries stay non-empty.
static bool leaves_blocks(const int *first, int from, int to, int step) {
  return step > 0 ? first[to] + 1 < first[to + 1] : first[from] - 1 > first[from - 1];
}

static change change_of(const tally *t, int index, int64_t cost) {
  const int64_t before = t->value[index], after = before + cost;
  return (change){.above = (after > t->limit) - (before > t->limit),
                  .equal = (after == t->limit) - (before == t->limit),
                  .squares = after * after - before * before};
}

static change sum_of(change a, change b) {
  return (change){a.above + b.above, a.equal + b.equal, a.squares + b.squares};
}

// The changes that moves in one direction make, for the limits of the base.
static void find_changes(const cutter *c, const int *first, moves *m) {
  for (int k = 0; k < c->chunks; k++) {
    const int64_t left = k > 0 ? passed(c, first, k, m->step) : 0;
    const int64_t right = k + 1 < c->chunks ? passed(c, first, k + 1, m->step) : 0;
    m->gained[k] = left;
    m->net[k] = k + 1 < c->chunks ? left - right : 0;
    m->before[k] = change_of(&c->base.chunk, k, -right);
    m->end[k] = change_of(&c->base.chunk, k, left);
    m->between[k + 1] = sum_of(m->between[k], change_of(&c->base.chunk, k, m->net[k]));
  }
}

// Whether the score, whose limits are those of `best`, improves by moving the boundaries [from,
// to]; without computing maxima.
static bool betters(const cutter *c, const moves *m, int from, int to, const score *best) {
  const change rank = change_of(&m->rank, c->rank_of[to], m->gained[to]);
  if (m->rank.above + rank.above > 0) return false;
  if (m->rank.equal + rank.equal == 0) return true;
  const tally *const base = &c->base.chunk;
  const change *const past = m->between;
  const change ends = sum_of(m->before[from - 1], m->end[to]);
  const change own = {.above = ends.above + past[to].above - past[from].above,
                      .equal = ends.equal + past[to].equal - past[from].equal,
                      .squares = ends.squares + past[to].squares - past[from].squares};
  if (base->above + own.above > 0) return false;
  if (base->equal + own.equal == 0) return true;
  const int64_t squares = m->rank.squares + rank.squares;
  if (squares != best->rank_squares) return squares < best->rank_squares;
  return base->squares + own.squares < best->chunk_squares;
}

static void set_limits(cutter *c, const int *first, const score *best) {
  set_limit(&c->base.rank, best->rank);
  set_limit(&c->base.chunk, best->chunk);
  for (int side = 0; side < 2; side++) {
    set_limit(&c->moves[side].rank, best->rank);
    find_changes(c, first, &c->moves[side]);
  }
}

// Takes a move as the best one.
static void keep_best(cutter *c, const int *first, const move *found, score *best) {
  int *const trial = c->trial;
  memcpy(trial, first, (size_t)(c->chunks + 1) * sizeof *first);
  shift(trial, found->from, found->to, found->step);
  set_base(c, trial);
  *best = score_of(&c->base);
  set_base(c, first);
  set_limits(c, first, best);
}

// Tries all moves of boundaries from `from` on; a better one replaces `found` and `best`. The chunk
// where a move ends only gains; chunks before have passed a block on, mostly of the same cost.
static void try_from(cutter *c, const int *first, int from, move *found, score *best) {
  for (int side = 0; side < 2; side++) {
    moves *const m = &c->moves[side];
    copy_tally(&c->base.rank, &m->rank);
    add_cost(&m->rank, c->rank_of[from - 1], -m->gained[from]);
  }
  for (int to = from; to < c->chunks; to++) {
    for (int side = 0; side < 2; side++) {
      moves *const m = &c->moves[side];
      if (betters(c, m, from, to, best) && leaves_blocks(first, from, to, m->step)) {
        *found = (move){from, to, m->step};
        keep_best(c, first, found, best);
      }
      if (m->net[to] != 0) add_cost(&m->rank, c->rank_of[to], m->net[to]);
    }
  }
}

// Makes the best move; false if no move is an improvement.
static bool improve(cutter *c, int *first, score *now) {
  move found = {0};
  set_base(c, first);
  set_limits(c, first, now);
  for (int from = 1; from < c->chunks; from++) try_from(c, first, from, &found, now);
  if (found.from == 0) return false;
  shift(first, found.from, found.to, found.step);
  return true;
}

// Whether `first` was met before; remembers it. A later partition may take its place.
static bool was_met(const cutter *c, const int *first) {
  uint64_t hash = 1;
  for (int k = 1; k < c->chunks; k++) {
    hash = (hash ^ (uint64_t)first[k]) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 29;
  }
  uint64_t *const place = &c->met[hash % MET];
  const bool known = *place == hash;
  *place = hash;
  return known;
}

// Makes the best moves as long as they are improvements; false as soon as an earlier descent came
// the same way, which has been compared with the best one.
static bool descend(cutter *c, int *first, score *now) {
  set_base(c, first);
  *now = score_of(&c->base);
  do {
    if (was_met(c, first)) return false;
  } while (improve(c, first, now));
  return true;
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

static void search(cutter *c, ot_arena *arena, int *first) {
  const size_t bytes = (size_t)(c->chunks + 1) * sizeof *first;
  int *const trial = ot_arena_take(arena, (int64_t)bytes);
  const int64_t affordable = START_BUDGET / ((int64_t)c->chunks * c->chunks * c->chunks);
  const int64_t starts = affordable < MAX_STARTS ? affordable : MAX_STARTS;
  score best, now;
  uint64_t drawn = 0;
  descend(c, first, &best);
  for (int64_t i = 0; i < starts; i++) {
    memcpy(trial, first, bytes);
    kick(c, trial, &drawn);
    if (!descend(c, trial, &now) || !is_better(&now, &best)) continue;
    best = now;
    memcpy(first, trial, bytes);
    i = 0;
  }
}

static tally create_tally(int count, ot_arena *arena) {
  return (tally){.count = count, .value = ot_arena_array(arena, count, sizeof(int64_t))};
}

static moves create_moves(const cutter *c, int step, ot_arena *arena) {
  return (moves){.step = step,
                 .gained = ot_arena_array(arena, c->chunks, sizeof(int64_t)),
                 .net = ot_arena_array(arena, c->chunks, sizeof(int64_t)),
                 .before = ot_arena_array(arena, c->chunks, sizeof(change)),
                 .end = ot_arena_array(arena, c->chunks, sizeof(change)),
                 .between = ot_arena_array(arena, c->chunks + 1, sizeof(change)),
                 .rank = create_tally(c->ranks, arena)};
}

// Handles equal layers, which most models have.
static bool cut_evenly(const cutter *c, ot_arena *arena, int *first) {
  const int last = c->blocks - 1;
  const int64_t layer = cost_between(c, 1, 2);
  for (int i = 2; i < last; i++) {
    if (cost_between(c, i, i + 1) != layer) return false;
  }
  const ot_even_partition_request request = {.num_layers = c->blocks - 2,
                                             .layer = layer,
                                             .first = cost_between(c, 0, 1),
                                             .last = cost_between(c, last, last + 1),
                                             .num_ranks = c->ranks,
                                             .num_chunks = c->chunks,
                                             .rank_of = c->rank_of};
  ot_even_partition(&request, arena, first);
  return true;
}

void ot_chain_partition(const ot_chain_request *request, ot_arena *arena, int *first) {
  cutter c = {.blocks = request->num_blocks,
              .chunks = request->num_chunks,
              .ranks = request->num_ranks,
              .rank_of = request->rank_of};
  OT_ASSERT(c.chunks >= 1 && c.chunks <= c.blocks);
  c.sum = ot_arena_array(arena, c.blocks + 1, sizeof *c.sum);
  c.met = ot_arena_array(arena, MET, sizeof *c.met);
  c.trial = ot_arena_array(arena, c.chunks + 1, sizeof *c.trial);
  c.base = (standing){create_tally(c.chunks, arena), create_tally(c.ranks, arena)};
  for (int side = 0; side < 2; side++) c.moves[side] = create_moves(&c, 2 * side - 1, arena);
  sum_costs(request, &c);
  const bool several = c.chunks > c.ranks && c.ranks > 1;
  if (several && c.blocks > 2 && cut_evenly(&c, arena, first)) return;
  cut_exactly(&c, arena, first);
  if (several) search(&c, arena, first);
}
