// SPDX-License-Identifier: Apache-2.0
// Draws without replacement, keyed by the source's name.
#include "published_calibrate.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "base/text.h"
#include "plan/calibrate.h"

enum { DRAWS = 20 };

typedef struct drawing {
  const ot_published_price **price;  // [count] of one source
  int64_t count;
  int rows;
  ot_calibrating_row row[OT_MOST_CALIBRATING];
} drawing;

static int64_t take_source(const ot_published_prices *prices, const char *source,
                           const ot_published_price **out) {
  int64_t count = 0;
  for (int64_t i = 0; i < prices->num_rows; i++) {
    const ot_published_price *const p = &prices->price[i];
    if (!p->priced || !ot_published_has_step(p->row)) continue;
    if (strcmp(p->row->source, source) == 0) out[count++] = p;
  }
  return count;
}

// Moves `rows` drawn prices to the front (Fisher and Yates).
static void draw(drawing *d, uint64_t seed, uint64_t number) {
  for (int i = 0; i < d->rows; i++) {
    const uint64_t left = (uint64_t)(d->count - i);
    const int64_t at = i + (int64_t)ot_rng_below(seed, number, (uint64_t)i, left);
    const ot_published_price *const taken = d->price[at];
    d->price[at] = d->price[i];
    d->price[i] = taken;
    d->row[i] = (ot_calibrating_row){.log_ratio = log(taken->row->step_time_s / taken->step_s),
                                     .exposed = ot_calibrating_exposed(&taken->estimate)};
  }
}

// Errors of the rows that were not drawn; returns their number.
static int64_t add_errors(const drawing *d, const ot_calibration *calibration,
                          ot_published_group group, ot_published_error *out) {
  int64_t count = 0;
  for (int64_t i = d->rows; i < d->count; i++) {
    const ot_published_price *const p = d->price[i];
    if (!ot_published_in_group(p->row, group)) continue;
    const double x = ot_calibrating_exposed(&p->estimate);
    const double s = p->step_s * pow(calibration->compute, 1 - x) * pow(calibration->exposed, x);
    out[count] = ot_published_error_of(p->row->source, s, p->row->step_time_s);
    out[count++].variance = calibration->deviation * calibration->deviation;
  }
  return count;
}

ot_published_figures ot_published_calibrated(const ot_published_prices *prices,
                                             ot_published_group group, int rows, ot_arena *arena) {
  const int64_t n = prices->num_rows;
  ot_published_error *const errors = ot_arena_array(arena, DRAWS * n + 1, sizeof *errors);
  ot_published_error *const all = ot_arena_array(arena, n + 1, sizeof *all);
  const char **const sources = ot_arena_array(arena, n + 1, sizeof *sources);
  drawing d = {.price = ot_arena_array(arena, n + 1, sizeof *d.price), .rows = rows};
  const int64_t usable = ot_published_errors(prices, group, NULL, all);
  const int64_t num_sources = ot_published_sources(all, usable, sources);
  int64_t count = 0;
  for (int64_t k = 0; k < num_sources; k++) {
    d.count = take_source(prices, sources[k], d.price);
    if (d.count <= rows) continue;
    for (int number = 0; number < DRAWS; number++) {
      ot_calibration calibration;
      draw(&d, ot_hash_text(OT_HASH_START, sources[k]), (uint64_t)number);
      ot_calibration_find(d.row, rows, &calibration);
      count += add_errors(&d, &calibration, group, errors + count);
    }
  }
  ot_published_figures f = ot_published_figures_of(errors, count, arena);
  f.rows = count / DRAWS;
  return f;
}
