// SPDX-License-Identifier: Apache-2.0
// Finds sweeps by comparing all pairs of rows: there are only a few hundred rows.
#include "published_ranking.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double SAME = 0.04;  // relative difference below which measurements are equal

// One parallel configuration of a step, with the mean of its measurements.
typedef struct way {
  const ot_published_row *row;
  const ot_traits *traits;
  double measured_s, predicted_s;
  int64_t times;
} way;

static bool same_text(const char *a, const char *b) { return strcmp(a, b) == 0; }

static bool same_model(const ot_published_model *a, const ot_published_model *b) {
  return a->layers == b->layers && a->hidden == b->hidden && a->heads == b->heads &&
         a->kv_heads == b->kv_heads && a->ffn == b->ffn && a->vocab == b->vocab &&
         memcmp(&a->moe, &b->moe, sizeof a->moe) == 0;
}

static bool same_task(const ot_published_row *a, const ot_published_row *b) {
  return same_text(a->source, b->source) && same_model(&a->model, &b->model) &&
         same_text(a->gpu.name, b->gpu.name) && a->gpus == b->gpus && a->gbs == b->gbs &&
         a->seq_len == b->seq_len && same_text(a->dtype, b->dtype);
}

static bool same_way(const ot_published_row *a, const ot_published_row *b) {
  return a->tp == b->tp && a->pp == b->pp && a->cp == b->cp && a->ep == b->ep && a->vpp == b->vpp &&
         a->mbs == b->mbs && a->zero == b->zero && a->sp == b->sp && same_text(a->hsdp, b->hsdp) &&
         same_text(a->schedule, b->schedule) && same_text(a->recompute, b->recompute);
}

static bool counts(const ot_published_price *price) {
  return price->priced && ot_published_has_step(price->row);
}

// Adds the row of `price` to the configurations of its task; returns their number.
static int64_t add_way(way *ways, int64_t count, const ot_published_price *price) {
  int64_t i = 0;
  while (i < count && !same_way(ways[i].row, price->row)) i++;
  if (i == count) ways[count++] = (way){price->row, &price->traits, 0, price->step_s, 0};
  ways[i].measured_s = (ways[i].measured_s * (double)ways[i].times + price->row->step_time_s) /
                       (double)(ways[i].times + 1);
  ways[i].times++;
  return count;
}

// Adds the pairs of a sweep; shares are counts so far.
static void compare_pairs(const way *ways, int64_t count, ot_published_ranking *out) {
  ot_published_ranking sweep = {0};
  for (int64_t i = 0; i < count; i++) {
    for (int64_t k = i + 1; k < count; k++) {
      const double measured = ways[i].measured_s - ways[k].measured_s;
      const double smaller = fmin(ways[i].measured_s, ways[k].measured_s);
      if (fabs(measured) <= SAME * smaller) continue;
      const bool right = measured * (ways[i].predicted_s - ways[k].predicted_s) > 0;
      const bool told = !ot_traits_equal(ways[i].traits, ways[k].traits,
                                         ways[i].predicted_s / ways[k].predicted_s);
      sweep.pairs++;
      sweep.right_order += right;
      sweep.told += told;
      sweep.right_told += right && told;
    }
  }
  if (sweep.pairs == 0) return;
  out->pairs += sweep.pairs;
  out->right_order += sweep.right_order;
  out->told += sweep.told;
  out->right_told += sweep.right_told;
  out->right_sweeps += 100 * sweep.right_order / (double)sweep.pairs;
  out->sweeps_with_pairs++;
}

static void take_shares(ot_published_ranking *out) {
  if (out->pairs == 0) return;
  if (out->told > 0) out->right_told *= 100 / out->told;
  out->told *= 100 / (double)out->pairs;
  out->right_order *= 100 / (double)out->pairs;
  out->right_sweeps /= (double)out->sweeps_with_pairs;
}

static double regret_of(const way *ways, int64_t count) {
  int64_t first = 0;
  double best = ways[0].measured_s;
  for (int64_t i = 1; i < count; i++) {
    if (ways[i].predicted_s < ways[first].predicted_s) first = i;
    best = fmin(best, ways[i].measured_s);
  }
  return 100 * (ways[first].measured_s / best - 1);
}

static int compare_doubles(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

ot_published_ranking ot_published_ranking_of(const ot_published_prices *prices, ot_arena *arena) {
  ot_published_ranking out = {0};
  const int64_t n = prices->num_rows;
  bool *const seen = ot_arena_array(arena, n + 1, sizeof *seen);
  way *const ways = ot_arena_array(arena, n + 1, sizeof *ways);
  double *const regrets = ot_arena_array(arena, n + 1, sizeof *regrets);
  for (int64_t i = 0; i < n; i++) {
    if (seen[i] || !counts(&prices->price[i])) continue;
    int64_t count = 0;
    for (int64_t k = i; k < n; k++) {
      if (!counts(&prices->price[k])) continue;
      if (!same_task(prices->price[i].row, prices->price[k].row)) continue;
      seen[k] = true;
      count = add_way(ways, count, &prices->price[k]);
    }
    if (count < 2) continue;
    compare_pairs(ways, count, &out);
    regrets[out.sweeps++] = regret_of(ways, count);
  }
  take_shares(&out);
  qsort(regrets, (size_t)out.sweeps, sizeof *regrets, compare_doubles);
  for (int64_t i = 0; i < out.sweeps; i++) out.mean_regret += regrets[i] / (double)out.sweeps;
  if (out.sweeps > 0) out.worst_regret = regrets[out.sweeps - 1];
  if (out.sweeps > 0) out.median_regret = regrets[out.sweeps / 2];
  return out;
}
