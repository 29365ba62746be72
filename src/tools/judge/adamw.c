// SPDX-License-Identifier: Apache-2.0
#include "judge/adamw.h"

#include <math.h>

// Errors that follow from inner products in float64 are known to half of its digits.
static const double half_digits = 1e-7;

enum { CHANGE, DIRECTION, WEIGHT, FIRST, GRADIENT };

static void measure_moments(const ot_adamw_settings *s, const ot_adamw_values *v, int64_t i,
                            ot_adamw_sums *sums) {
  const double before = v->second_before ? v->second_before[i] : 0;
  sums->first += v->first[i] * v->first[i];
  sums->second += v->second[i];
  sums->added += (v->second[i] - s->beta2 * before) / (1 - s->beta2);
}

void ot_adamw_measure(const ot_adamw_settings *s, const ot_adamw_values *v, int64_t count,
                      ot_adamw_sums *sums) {
  const double t = (double)s->step;
  const double one = 1 - pow(s->beta1, t), two = 1 - pow(s->beta2, t);
  sums->elements += count;
  sums->moments = s->step == 1 || (v->first_before && v->second_before);
  for (int64_t i = 0; i < count; i++) {
    const double before = v->first_before ? v->first_before[i] : 0;
    const double m = v->first[i] / one, root = sqrt(fmax(v->second[i], 0) / two);
    const double at[OT_ADAMW_VECTORS] = {
        [CHANGE] = v->after[i] - v->before[i],
        [DIRECTION] = m / (root + s->epsilon),
        [WEIGHT] = v->before[i],
        [FIRST] = (v->first[i] - s->beta1 * before) / (1 - s->beta1),
        [GRADIENT] = v->gradient[i],
    };
    for (int a = 0; a < OT_ADAMW_VECTORS; a++) {
      for (int b = 0; b < OT_ADAMW_VECTORS; b++) sums->products[a][b] += at[a] * at[b];
    }
    const double error = at[CHANGE] + s->rate * (at[DIRECTION] + s->decay * at[WEIGHT]);
    sums->error += error * error;
    sums->after += v->after[i] * v->after[i];
    measure_moments(s, v, i, sums);
  }
}

// The length of CHANGE + a DIRECTION + b WEIGHT.
static double error_of(const ot_adamw_sums *s, double a, double b) {
  const double(*const p)[OT_ADAMW_VECTORS] = s->products;
  const double square = p[CHANGE][CHANGE] + a * a * p[DIRECTION][DIRECTION] +
                        b * b * p[WEIGHT][WEIGHT] + 2 * a * p[CHANGE][DIRECTION] +
                        2 * b * p[CHANGE][WEIGHT] + 2 * a * b * p[DIRECTION][WEIGHT];
  return sqrt(fmax(square, 0));
}

// The factors of both vectors by least squares; of one where the other is zero.
static void fit(const ot_adamw_sums *s, double *a, double *b) {
  const double(*const p)[OT_ADAMW_VECTORS] = s->products;
  const double dd = p[DIRECTION][DIRECTION], ww = p[WEIGHT][WEIGHT], dw = p[DIRECTION][WEIGHT];
  const double determinant = dd * ww - dw * dw;
  *a = dd > 0 ? -p[CHANGE][DIRECTION] / dd : 0;
  *b = 0;
  if (!(determinant > 1e-10 * dd * ww)) return;
  *a = (-p[CHANGE][DIRECTION] * ww + p[CHANGE][WEIGHT] * dw) / determinant;
  *b = (-p[CHANGE][WEIGHT] * dd + p[CHANGE][DIRECTION] * dw) / determinant;
}

// The factor of a vector with the square `square` that has the length `length`.
static double factor_of_length(double length, double square) {
  return square > 0 ? length / sqrt(square) : INFINITY;
}

// The square of DIRECTION + decay WEIGHT.
static double square_of_move(const ot_adamw_sums *s, double decay) {
  const double(*const p)[OT_ADAMW_VECTORS] = s->products;
  return p[DIRECTION][DIRECTION] + 2 * decay * p[DIRECTION][WEIGHT] +
         decay * decay * p[WEIGHT][WEIGHT];
}

// The moments are rounded with the unit roundoff `unit`.
static void judge_moments(const ot_adamw_settings *settings, const ot_adamw_sums *s, double unit,
                          ot_adamw_result *out) {
  const double(*const p)[OT_ADAMW_VECTORS] = s->products;
  if (!(p[GRADIENT][GRADIENT] > 0) || !(p[FIRST][FIRST] > 0)) return;
  out->clip = p[FIRST][GRADIENT] / p[GRADIENT][GRADIENT];
  const double rest = p[FIRST][FIRST] - 2 * out->clip * p[FIRST][GRADIENT] +
                      out->clip * out->clip * p[GRADIENT][GRADIENT];
  out->clip_rest = sqrt(fmax(rest, 0) / p[FIRST][FIRST]);
  out->clip_noise = unit * sqrt(s->first / p[FIRST][FIRST]) / (1 - settings->beta1);
  const double square = out->clip * out->clip * p[GRADIENT][GRADIENT];
  out->square = sqrt(fmax(s->added, 0) / square);
  out->square_noise = unit * s->second / (1 - settings->beta2) / square;
}

ot_adamw_result ot_adamw_judge(const ot_adamw_settings *settings, const ot_adamw_sums *s,
                               const ot_adamw_units *units) {
  ot_adamw_result out = {.clip = NAN, .clip_rest = NAN, .square = NAN};
  const double rate = settings->rate;
  const double weights = units->weights * sqrt(s->after);
  const double moments = units->moments * rate * sqrt(s->products[DIRECTION][DIRECTION]);
  const double own = sqrt(weights * weights + moments * moments);
  const double known = half_digits * sqrt(s->products[CHANGE][CHANGE]);
  double a, b;
  fit(s, &a, &b);
  out.ratio = own > 0 ? sqrt(s->error) / own : 0;
  out.rest = own > 0 ? error_of(s, a, b) / fmax(own, known) : 0;
  out.rate = a;
  out.decay = rate != 0 ? b / rate : 0;
  out.rate_unit = factor_of_length(own, rate * rate * square_of_move(s, settings->decay));
  out.decay_unit = factor_of_length(own, rate * rate * s->products[WEIGHT][WEIGHT]);
  if (s->moments) judge_moments(settings, s, units->moments, &out);
  return out;
}
