// SPDX-License-Identifier: Apache-2.0
// Builds one period at create: for each draw its source and its index among the draws of that
// source. Without a period, a tree: an inner node gives its draws to its two children in proportion
// to their weights, so a draw is found by descending, and no table is needed.
#include "data/blend.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

__extension__ typedef __int128 wide;

static const int64_t PART = INT64_C(1) << 62;

// Leaves [0, num_sources) are the sources, in order; inner nodes follow, the root is the last.
typedef struct node {
  int32_t child[2];  // of an inner node: the lighter, the heavier
  int64_t part;      // of the lighter child in the node's draws, in units of 1 / PART
} node;

struct ot_blend {
  int64_t num_sources;
  int64_t period;   // 0: the tree is used
  int64_t *shares;  // [num_sources] draws in a period
  int32_t *source;  // [period]
  int32_t *rank;    // [period]
  node *nodes;      // [2 * num_sources - 1]
};

static ot_status check_weights(const double *weights, int64_t count, double *sum) {
  OT_CHECK(count >= 1 && count <= OT_BLEND_SOURCES_MAX, OT_USAGE,
           "%lld data sources; allowed: 1 to %d", (long long)count, OT_BLEND_SOURCES_MAX);
  *sum = 0;
  for (int64_t i = 0; i < count; i++) {
    OT_CHECK(weights[i] > 0 && isfinite(weights[i]), OT_USAGE,
             "weight %g of data source %lld is not a number above 0", weights[i], (long long)i);
    *sum += weights[i];
  }
  OT_CHECK(isfinite(*sum), OT_USAGE, "the weights of the data sources are too large");
  return OT_OK;
}

// True when all weights have whole shares, at least 1, of a period of `period` draws.
static bool fits(const double *weights, int64_t count, double sum, int64_t period) {
  for (int64_t i = 0; i < count; i++) {
    const double exact = weights[i] / sum * (double)period;
    const double whole = floor(exact + 0.5);
    if (whole < 1 || fabs(exact - whole) > 1e-9) return false;
  }
  return true;
}

// The table of a period takes a step for each draw and source.
static int64_t longest_period(int64_t num_sources) {
  enum { TABLE_STEPS = 1 << 24, LONGEST = 1 << 20 };
  const int64_t fitting = TABLE_STEPS / num_sources;
  const int64_t longest = fitting < LONGEST ? fitting : LONGEST;
  return longest > OT_BLEND_PERIOD_MAX ? longest : OT_BLEND_PERIOD_MAX;
}

// Finds the shortest period in which all shares are whole; false if there is none.
static bool choose_shares(const double *weights, double sum, ot_blend *b) {
  const int64_t longest = longest_period(b->num_sources);
  for (b->period = b->num_sources; b->period <= longest; b->period++) {
    if (!fits(weights, b->num_sources, sum, b->period)) continue;
    for (int64_t i = 0; i < b->num_sources; i++) {
      b->shares[i] = (int64_t)floor(weights[i] / sum * (double)b->period + 0.5);
    }
    return true;
  }
  b->period = 0;
  return false;
}

// The source of draw `t` in the period, where `taken` counts previous draws: of the sources whose
// count would stay below their share of the draws plus one, the one with the earliest deadline for
// staying above its share minus one.
static int64_t choose_source(const ot_blend *b, int64_t t, const int32_t *taken) {
  int64_t best = -1;
  int64_t best_deadline = INT64_MAX;
  for (int64_t i = 0; i < b->num_sources; i++) {
    if (taken[i] * b->period >= (t + 1) * b->shares[i]) continue;
    const int64_t deadline = ((taken[i] + 1) * b->period + b->shares[i] - 1) / b->shares[i];
    if (deadline >= best_deadline) continue;
    best = i;
    best_deadline = deadline;
  }
  OT_ASSERT(best >= 0);
  return best;
}

static ot_status fill_period(ot_blend *b) {
  b->source = calloc((size_t)b->period, sizeof *b->source);
  b->rank = calloc((size_t)b->period, sizeof *b->rank);
  int32_t *const taken = calloc((size_t)b->num_sources, sizeof *taken);
  if (!b->source || !b->rank || !taken) {
    free(taken);
    return ot_fail(OT_ENVIRONMENT, "out of memory (%lld data sources)", (long long)b->num_sources);
  }
  for (int64_t t = 0; t < b->period; t++) {
    b->source[t] = (int32_t)choose_source(b, t, taken);
    b->rank[t] = taken[b->source[t]]++;
  }
  free(taken);
  return OT_OK;
}

// ---- the tree ----

// Removes the lightest of the roots [*count] and returns it; of equal ones, the first.
static int32_t remove_lightest(const double *weight, int32_t *roots, int64_t *count) {
  int64_t best = 0;
  for (int64_t i = 1; i < *count; i++) {
    if (weight[roots[i]] < weight[roots[best]]) best = i;
  }
  const int32_t lightest = roots[best];
  roots[best] = roots[--*count];
  return lightest;
}

// Joins the two lightest nodes until one is left (Huffman 1952): no inner node has more than two
// thirds of its parent, so what its count is off by fades in its parts.
static void join_nodes(ot_blend *b, double *weight, int32_t *roots) {
  int64_t count = b->num_sources;
  for (int64_t next = b->num_sources; count > 1; next++) {
    const int32_t light = remove_lightest(weight, roots, &count);
    const int32_t heavy = remove_lightest(weight, roots, &count);
    weight[next] = weight[light] + weight[heavy];
    const double part = weight[light] / weight[next];
    b->nodes[next] =
        (node){.child = {light, heavy}, .part = (int64_t)floor(part * (double)PART + 0.5)};
    roots[count++] = (int32_t)next;
  }
}

static ot_status fill_tree(const double *weights, ot_blend *b) {
  const int64_t num_nodes = 2 * b->num_sources - 1;
  b->nodes = calloc((size_t)num_nodes, sizeof *b->nodes);
  double *const weight = calloc((size_t)num_nodes, sizeof *weight);
  int32_t *const roots = calloc((size_t)b->num_sources, sizeof *roots);
  const bool room = b->nodes && weight && roots;
  for (int64_t i = 0; room && i < b->num_sources; i++) {
    weight[i] = weights[i];
    roots[i] = (int32_t)i;
  }
  if (room) join_nodes(b, weight, roots);
  free(weight);
  free(roots);
  OT_CHECK(room, OT_ENVIRONMENT, "out of memory (%lld data sources)", (long long)b->num_sources);
  return OT_OK;
}

// The number of the first `n` draws of an inner node that its first child has: n * part, rounded.
static int64_t first_part(const node *inner, int64_t n) {
  return (int64_t)(((wide)n * inner->part + PART / 2) / PART);
}

static ot_blend_draw descend(const ot_blend *b, int64_t draw) {
  int64_t at = 2 * b->num_sources - 2;
  while (at >= b->num_sources) {
    const node *const inner = &b->nodes[at];
    const int64_t first = first_part(inner, draw);
    const bool is_first = first_part(inner, draw + 1) > first;
    at = inner->child[is_first ? 0 : 1];
    draw = is_first ? first : draw - first;
  }
  return (ot_blend_draw){.source = at, .before = draw};
}

// Adds `n` draws of node `at` to the sums of the sources below it.
static void count_below(const ot_blend *b, int64_t at, int64_t n, const ot_blend_sums *sums) {
  if (at < b->num_sources) {
    sums->sum[sums->place[at]] += n;
    return;
  }
  const int64_t first = first_part(&b->nodes[at], n);
  count_below(b, b->nodes[at].child[0], first, sums);
  count_below(b, b->nodes[at].child[1], n - first, sums);
}

// ---- public ----

static ot_status fill(const double *weights, int64_t count, ot_blend *b) {
  double sum = 0;
  OT_TRY(check_weights(weights, count, &sum));
  b->num_sources = count;
  b->shares = calloc((size_t)count, sizeof *b->shares);
  OT_CHECK(b->shares, OT_ENVIRONMENT, "out of memory (%lld data sources)", (long long)count);
  return choose_shares(weights, sum, b) ? fill_period(b) : fill_tree(weights, b);
}

ot_status ot_blend_create(const double *weights, int64_t count, ot_blend **out) {
  *out = NULL;
  ot_blend *blend = calloc(1, sizeof *blend);
  OT_CHECK(blend, OT_ENVIRONMENT, "out of memory (data sources)");
  const ot_status status = fill(weights, count, blend);
  if (status != OT_OK) ot_blend_destroy(&blend);
  *out = blend;
  return status;
}

void ot_blend_destroy(ot_blend **blend) {
  if (!*blend) return;
  free((*blend)->shares);
  free((*blend)->source);
  free((*blend)->rank);
  free((*blend)->nodes);
  free(*blend);
  *blend = NULL;
}

ot_blend_draw ot_blend_at(const ot_blend *blend, int64_t i) {
  OT_ASSERT(i >= 0);
  if (blend->period == 0) return descend(blend, i);
  const int64_t slot = i % blend->period;
  const int64_t source = blend->source[slot];
  return (ot_blend_draw){.source = source,
                         .before = i / blend->period * blend->shares[source] + blend->rank[slot]};
}

void ot_blend_count(const ot_blend *blend, int64_t n, const ot_blend_sums *sums) {
  if (blend->period == 0) {
    count_below(blend, 2 * blend->num_sources - 2, n, sums);
    return;
  }
  for (int64_t k = 0; k < blend->num_sources; k++) {
    sums->sum[sums->place[k]] += n / blend->period * blend->shares[k];
  }
  for (int64_t t = 0; t < n % blend->period; t++) sums->sum[sums->place[blend->source[t]]]++;
}

int64_t ot_blend_period(const ot_blend *blend) { return blend->period; }
