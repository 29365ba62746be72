// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding (Su et al. 2021): pair i of a head is rotated by the angle
// position * frequency(i). Angles are products in the type of the computation, and cosines and
// sines are rounded like results: so does transformers.
#include "judge/plain_parts.h"

static const double two_pi = 6.28318530717958647692;

static double clamp(double x, double low, double high) {
  return x < low ? low : x > high ? high : x;
}

// Llama 3.1: pairs that turn often within the original positions stay, those that turn seldom are
// slowed by the factor, with a blend in between (transformers, _compute_llama3_parameters).
static double llama3_frequency(const ot_rope *rope, double frequency) {
  const double turns = (double)rope->original_positions * frequency / two_pi;
  const double low = rope->low_frequency_factor, high = rope->high_frequency_factor;
  const double kept = clamp((turns - low) / (high - low), 0, 1);
  return frequency * (kept + (1 - kept) / rope->factor);
}

// The pair, as a fraction, that turns `turns` times within the original positions.
static double pair_of_turns(const ot_rope *rope, int64_t dim, double turns) {
  const double positions = (double)rope->original_positions;
  return (double)dim / 2 * log(positions / two_pi / turns) / log(rope->theta);
}

// YaRN (Peng et al. 2023, sec. 3.2), with the ramp of transformers' _compute_yarn_parameters.
static double yarn_frequency(const ot_rope *rope, int64_t dim, double frequency, int64_t pair) {
  double begin = pair_of_turns(rope, dim, rope->beta_fast);
  double end = pair_of_turns(rope, dim, rope->beta_slow);
  if (!rope->exact_ramp) {
    begin = floor(begin);
    end = ceil(end);
  }
  begin = begin < 0 ? 0 : begin;
  end = end > (double)(dim - 1) ? (double)(dim - 1) : end;
  const double width = end == begin ? 0.001 : end - begin;
  const double slowed = clamp(((double)pair - begin) / width, 0, 1);
  return frequency * (1 - slowed + slowed / rope->factor);
}

static double frequency_of(const ot_rope *rope, int64_t dim, int64_t pair) {
  const double frequency = pow(rope->theta, -2 * (double)pair / (double)dim);
  switch (rope->type) {
    case OT_ROPE_DEFAULT:
      return frequency;
    case OT_ROPE_LINEAR:
      return frequency / rope->factor;
    case OT_ROPE_LLAMA3:
      return llama3_frequency(rope, frequency);
    case OT_ROPE_YARN:
      return yarn_frequency(rope, dim, frequency, pair);
  }
  OT_UNREACHABLE();
}

static double temperature(double factor, double mscale) {
  return factor > 1 ? 1 + 0.1 * mscale * log(factor) : 1;
}

// The factor of cosines and sines.
static double magnitude_of(const ot_rope *rope) {
  if (rope->type != OT_ROPE_YARN) return 1;
  if (rope->mscale > 0 && rope->mscale_all > 0) {
    return temperature(rope->factor, rope->mscale) / temperature(rope->factor, rope->mscale_all);
  }
  return temperature(rope->factor, 1);
}

static ot_real *build_table(const ot_plain_state *s, ot_arena *arena, const ot_rope *rope) {
  const int64_t dim = s->model->rotary_dim, pairs = dim / 2;
  ot_real *const table = ot_arena_array(arena, s->R * dim, sizeof(ot_real));
  const ot_real magnitude = (ot_real)magnitude_of(rope);
  for (int64_t i = 0; i < pairs; i++) {
    const ot_real frequency = (ot_real)frequency_of(rope, dim, i);
    for (int64_t r = 0; r < s->R; r++) {
      const ot_real angle = (ot_real)s->batch->positions[r] * frequency;
      table[(r * pairs + i) * 2] = ot_plain_keep(s, cos(angle) * magnitude);
      table[(r * pairs + i) * 2 + 1] = ot_plain_keep(s, sin(angle) * magnitude);
    }
  }
  return table;
}

void OT_KERNEL(ot_plain_rope_create)(ot_plain_state *s, ot_arena *arena) {
  if (s->model->rotary_dim == 0) return;
  s->table[0] = build_table(s, arena, &s->model->rope);
  const ot_rope *const local = &s->model->rope_local;
  s->table[1] = ot_rope_same(&s->model->rope, local) ? s->table[0] : build_table(s, arena, local);
}

// Rotates the elements of a head by the angles of its row times `sign`: 1, or -1 for the gradient.
static void turn(const ot_plain_state *s, const ot_plain_rotation *r, int64_t row, ot_real *head,
                 int sign) {
  const int64_t pairs = s->model->rotary_dim / 2;
  const int64_t step = r->interleaved ? 2 : 1, apart = r->interleaved ? 1 : pairs;
  const ot_real *const angle = r->table + row * pairs * 2;
  for (int64_t i = 0; i < pairs; i++) {
    ot_real *const at = head + r->first + i * step;
    const ot_real a = at[0], b = at[apart];
    const ot_real c = angle[2 * i], t = (ot_real)sign * angle[2 * i + 1];
    at[0] = ot_plain_keep(s, ot_plain_keep(s, a * c) - ot_plain_keep(s, b * t));
    at[apart] = ot_plain_keep(s, ot_plain_keep(s, b * c) + ot_plain_keep(s, a * t));
  }
}

static void turn_all(const ot_plain_state *s, const ot_plain_rotation *r, const ot_plain_value *v,
                     ot_real *data, int sign) {
#pragma omp parallel for num_threads(s->threads)
  for (int64_t at = 0; at < v->rows * v->width; at += r->width) {
    turn(s, r, at / v->width, data + at, sign);
  }
}

static void rotate_back(ot_plain_state *s, const ot_plain_op *op) {
  turn_all(s, op->settings, op->out, op->out->d, -1);
  OT_KERNEL(ot_plain_give)(s, op->in[0], op->out->d);
}

ot_plain_value *OT_KERNEL(ot_plain_rotate)(ot_plain_state *s, ot_plain_value *x,
                                           const ot_plain_rotation *r) {
  if (!r->table) return x;
  ot_plain_value *const y = OT_KERNEL(ot_plain_make)(s, x->rows, x->width);
  memcpy(y->x, x->x, (size_t)(x->rows * x->width) * sizeof(ot_real));
  turn_all(s, r, y, y->x, 1);
  OT_KERNEL(ot_plain_record)(s, (ot_plain_op){rotate_back, y, {x}, NULL}, r, sizeof *r);
  return y;
}
