// SPDX-License-Identifier: Apache-2.0
// Draws without replacement, keyed by the source's name.
#include "published_calibrate.h"

#include <math.h>
#include <string.h>

#include "advise/calibrate.h"
#include "base/rng.h"
#include "base/text.h"

enum { DRAWS = 20 };

typedef struct drawing {
  const ot_published_price **price;  // [count] of one source
  int64_t count;
  int rows;
  ot_calibration calibration;
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

// Moves `rows` drawn prices to the front (Fisher and Yates), and calibrates by them.
static void draw(drawing *d, uint64_t seed, uint64_t number) {
  d->calibration.count = d->rows;
  for (int i = 0; i < d->rows; i++) {
    const uint64_t left = (uint64_t)(d->count - i);
    const int64_t at = i + (int64_t)ot_rng_below(seed, number, (uint64_t)i, left);
    const ot_published_price *const taken = d->price[at];
    d->price[at] = d->price[i];
    d->price[i] = taken;
    d->calibration.rows[i] =
        (ot_calibrating_row){.log_ratio = log(taken->row->step_time_s / taken->step_s),
                             .variance = taken->doubt.step_variance,
                             .traits = taken->traits};
  }
  ot_calibration_find(&d->calibration);
}

// Adds errors of the rows that were not drawn.
static ot_status add_errors(const drawing *d, ot_published_calibrated *out) {
  for (int64_t i = d->rows; i < d->count; i++) {
    const ot_published_price *const p = d->price[i];
    double step_s, variance;
    OT_TRY(ot_published_reprice(p, &d->calibration, &step_s, &variance));
    out->row[out->count] = p->row;
    out->error[out->count] = ot_published_error_of(p->row->source, step_s, p->row->step_time_s);
    out->error[out->count++].variance = variance;
  }
  return OT_OK;
}

ot_status ot_published_calibrate(const ot_published_prices *prices, int rows, ot_arena *arena,
                                 ot_published_calibrated *out) {
  const int64_t n = prices->num_rows;
  ot_published_error *const all = ot_arena_array(arena, n + 1, sizeof *all);
  const char **const sources = ot_arena_array(arena, n + 1, sizeof *sources);
  drawing *const d = ot_arena_take(arena, sizeof *d);
  *out = (ot_published_calibrated){
      .error = ot_arena_array(arena, DRAWS * n + 1, sizeof *out->error),
      .row = ot_arena_array(arena, DRAWS * n + 1, sizeof(ot_published_row *))};
  d->price = ot_arena_array(arena, n + 1, sizeof *d->price);
  d->rows = rows;
  const int64_t usable = ot_published_errors(prices, OT_PUBLISHED_ALL, NULL, all);
  const int64_t num_sources = ot_published_sources(all, usable, sources);
  for (int64_t k = 0; k < num_sources; k++) {
    d->count = take_source(prices, sources[k], d->price);
    if (d->count <= rows) continue;
    for (int number = 0; number < DRAWS; number++) {
      draw(d, ot_hash_text(OT_HASH_START, sources[k]), (uint64_t)number);
      OT_TRY(add_errors(d, out));
    }
  }
  return OT_OK;
}

ot_published_figures ot_published_calibrated_figures(const ot_published_calibrated *calibrated,
                                                     ot_published_group group, ot_arena *arena) {
  ot_published_error *const errors = ot_arena_array(arena, calibrated->count + 1, sizeof *errors);
  int64_t count = 0;
  for (int64_t i = 0; i < calibrated->count; i++) {
    if (ot_published_in_group(calibrated->row[i], group)) errors[count++] = calibrated->error[i];
  }
  ot_published_figures f = ot_published_figures_of(errors, count, arena);
  f.rows = count / DRAWS;
  return f;
}
