// SPDX-License-Identifier: Apache-2.0
// Reads rows before and after the step; formula of Loshchilov and Hutter 2019.
#include <math.h>
#include <string.h>

#include "audit/rounding.h"
#include "audit/step_checks.h"
#include "audit/variant.h"
#include "base/math.h"
#include "base/rng.h"
#include "base/text.h"
#include "describe/learning_rate.h"
#include "describe/optimizer_rules.h"

enum {
  ROWS_OF_A_PARAMETER = 4,
  COLUMNS_OF_A_ROW = 64,
  STREAM_ROWS = 0x757064,
  MOST_FINDINGS = 5,
  BLOCK_ELEMENTS = 1 << 16
};

typedef enum moment_of_read { BEFORE, AFTER, MOMENTS } moment_of_read;

// One row of a parameter: `values` [COPIES][COLUMNS_OF_A_ROW] of each moment.
typedef struct sampled_row {
  int parameter;
  int64_t row, count;
  double *values[MOMENTS][OT_COPIES];
} sampled_row;

typedef struct update_check {
  ot_step_audit *audit;
  const ot_run *run;
  const ot_graph *whole;
  ot_arena *arena;
  int num_rows;
  sampled_row *rows;
  double *values;                      // a row, or a block of elements
  double kept[OT_COPIES];              // number of ranks that have a copy
  double rate, correction[2], factor;  // expected values of the step
  int findings;
} update_check;

// ---- reading ----

// The formula below is AdamW's.
static bool is_looked_at(const update_check *u, const ot_parameter *p) {
  const bool matrix = p->kind == OT_PARAMETER_MATRIX;
  const ot_optimizer_name name = ot_optimizer_rules_of(u->run, matrix)->name;
  return ot_parameter_is_trained(p) && name == OT_OPTIMIZER_ADAMW;
}

static void choose_rows(update_check *u) {
  const ot_graph *const whole = u->whole;
  u->rows = ot_arena_array(u->arena, (int64_t)whole->num_parameters * ROWS_OF_A_PARAMETER + 1,
                           sizeof *u->rows);
  for (int i = 0; i < whole->num_parameters; i++) {
    const ot_parameter *const p = &whole->parameters[i];
    const int64_t most = p->rank == 1 ? COLUMNS_OF_A_ROW : ROWS_OF_A_PARAMETER;
    const int64_t wanted = p->rows < most ? p->rows : most;
    if (!is_looked_at(u, p)) continue;
    if (p->rank == 1) {  // consecutive elements of a vector form a row here
      u->rows[u->num_rows++] = (sampled_row){.parameter = i, .count = wanted};
      continue;
    }
    for (int64_t k = 0; k < wanted; k++) {
      const int64_t row =
          (int64_t)ot_rng_permute(2, STREAM_ROWS + (uint64_t)i, (uint64_t)k, (uint64_t)p->rows);
      const int64_t count = p->cols < COLUMNS_OF_A_ROW ? p->cols : COLUMNS_OF_A_ROW;
      u->rows[u->num_rows++] = (sampled_row){.parameter = i, .row = row, .count = count};
    }
  }
}

static ot_status read_copy(update_check *u, sampled_row *r, moment_of_read when,
                           ot_parameter_copy copy) {
  const int64_t rows = u->whole->parameters[r->parameter].rank == 1 ? r->count : 1;
  const ot_parameter_rows range = {r->parameter, copy, r->row, rows};
  if (u->kept[copy] == 0) return OT_OK;
  OT_TRY(ot_variant_read(u->audit->runtime, range, u->values));
  r->values[when][copy] = ot_arena_array(u->arena, r->count, sizeof(double));
  memcpy(r->values[when][copy], u->values, (size_t)r->count * sizeof(double));
  return OT_OK;
}

static ot_status read_rows(update_check *u, moment_of_read when) {
  for (int i = 0; i < u->num_rows; i++) {
    for (int copy = 0; copy < OT_COPIES; copy++) {
      if (copy == OT_COPY_GRADIENT && when == BEFORE) continue;
      OT_TRY(read_copy(u, &u->rows[i], when, (ot_parameter_copy)copy));
    }
  }
  return OT_OK;
}

static ot_status add_squares(update_check *u, int parameter, const ot_parameter_part *part,
                             double *sum) {
  const ot_parameter *const p = &u->whole->parameters[parameter];
  const int64_t step = p->cols < BLOCK_ELEMENTS ? BLOCK_ELEMENTS / p->cols : 1;
  const int64_t end = part->first_row + part->rows;
  double squares = 0;
  for (int64_t row = part->first_row; row < end; row += step) {
    const int64_t rows = step < end - row ? step : end - row;
    const ot_parameter_rows range = {parameter, OT_COPY_GRADIENT, row, rows};
    OT_TRY(ot_variant_read(u->audit->runtime, range, u->values));
    for (int64_t i = 0; i < rows * p->cols; i++) squares += u->values[i] * u->values[i];
  }
  *sum += part->constant * part->constant * squares;
  return OT_OK;
}

static ot_status find_norm(update_check *u) {
  double sum = 0;
  for (int i = 0; i < u->whole->num_parameters; i++) {
    const ot_parameter *const p = &u->whole->parameters[i];
    for (int k = 0; k < p->num_parts && ot_parameter_is_trained(p); k++) {
      OT_TRY(add_squares(u, i, &p->parts[k], &sum));
    }
  }
  u->audit->norm = sqrt(sum);
  return OT_OK;
}

// ---- the formula ----

static const ot_parameter_part *part_at(const ot_parameter *p, int64_t row) {
  int k = 0;
  while (row >= p->parts[k].first_row + p->parts[k].rows) k++;
  return &p->parts[k];
}

// Learning rate and weight decay of a part.
static void rates_of(const update_check *u, const ot_parameter *p, const ot_parameter_part *part,
                     double rates[2]) {
  const ot_run_optimizer *const o = &u->run->optimizer;
  const bool matrices_differ = ot_optimizer_rules_of(u->run, true)->name != OT_OPTIMIZER_ADAMW;
  double factor = matrices_differ && o->adamw_lr > 0 ? o->adamw_lr / o->lr : 1;
  rates[1] = p->kind == OT_PARAMETER_VECTOR ? 0 : o->weight_decay;
  for (int64_t i = 0; i < o->num_groups; i++) {
    const ot_optimizer_group *const group = &o->groups[i];
    if (!ot_text_matches(part->hf_name, group->pattern)) continue;
    factor = group->lr >= 0 ? group->lr / o->lr : factor * group->lr_factor;
    if (group->weight_decay >= 0) rates[1] = group->weight_decay;
    break;
  }
  rates[0] = u->rate * factor * part->rate_factor;
  rates[1] *= part->decay_factor;
}

typedef struct discrepancy {
  const char *copy;
  int64_t element;
  double got, wanted;
} discrepancy;

static void find(update_check *u, const sampled_row *r, const discrepancy *d) {
  const ot_parameter *const p = &u->whole->parameters[r->parameter];
  const int64_t row = p->rank == 1 ? d->element : r->row;
  if (u->findings++ >= MOST_FINDINGS) return;
  ot_audit_find(u->audit->report, "update_differs",
                ot_arena_format(u->arena, "%s of %s", d->copy, part_at(p, row)->hf_name),
                "compare clip factor, learning rate, bias corrections, decay and moments with the "
                "settings",
                "row %lld, column %lld: %.9g after the step, expected %.9g", (long long)row,
                (long long)(p->rank == 1 ? 0 : d->element), d->got, d->wanted);
}

static bool within(double got, double wanted, double allowed) {
  return fabs(got - wanted) <= allowed;
}

// Whether moments are kept in fewer bits than they are computed in.
static bool rounds_moments(const update_check *u) {
  return ot_run_narrow_moments(&u->run->precision);
}

// A moment within `allowed` of `wanted` before it was rounded to its format.
static bool is_moment(const update_check *u, double got, double wanted, double allowed) {
  if (!rounds_moments(u)) return within(got, wanted, allowed);
  const ot_format *const format = ot_format_of(u->run->precision.moments);
  return got >= ot_format_round(format, wanted - allowed) &&
         got <= ot_format_round(format, wanted + allowed);
}

// First moments first: an error there propagates to the rest. The weight moves by moments that are
// rounded after it.
static bool check_element(update_check *u, const sampled_row *r, int64_t i, discrepancy *d) {
  const ot_run_optimizer *const o = &u->run->optimizer;
  const ot_parameter *const p = &u->whole->parameters[r->parameter];
  const bool narrow = u->kept[OT_COPY_MASTER] > 0;
  const bool wide = u->run->precision.compute == OT_F64;
  const double unit = wide ? 0x1p-52 : 0x1p-23, loose = wide ? 1e-9 : 1e-4;
  double *const *const a = r->values[BEFORE], *const *const b = r->values[AFTER];
  const double g = u->factor * b[OT_COPY_GRADIENT][i];
  const double m0 = a[OT_COPY_MOMENT_1][i], v0 = a[OT_COPY_MOMENT_2][i];
  const double m = o->betas[0] * m0 + (1 - o->betas[0]) * g;
  const double v = o->betas[1] * v0 + (1 - o->betas[1]) * g * g;
  const double m_size = fabs(o->betas[0] * m0) + fabs((1 - o->betas[0]) * g);
  *d = (discrepancy){"first moment", i, b[OT_COPY_MOMENT_1][i], m};
  if (!is_moment(u, d->got, m, loose * m_size + 1e-37)) return false;
  *d = (discrepancy){"second moment", i, b[OT_COPY_MOMENT_2][i], v};
  if (!is_moment(u, d->got, v, loose * v + 1e-37)) return false;
  double rates[2];
  const ot_parameter_part *const part = part_at(p, p->rank == 1 ? i : r->row);
  rates_of(u, p, part, rates);
  const ot_parameter_copy exact = narrow ? OT_COPY_MASTER : OT_COPY_WEIGHT;
  const bool stored = !rounds_moments(u);
  const double m1 = stored ? b[OT_COPY_MOMENT_1][i] : m, v1 = stored ? b[OT_COPY_MOMENT_2][i] : v;
  const double step = rates[0] * u->correction[0] * m1 /
                      (sqrt(u->correction[1] * v1) + o->eps * part->epsilon_factor);
  const double decay = rates[0] * rates[1] * a[exact][i];
  const double allowed =
      loose * (fabs(step) + fabs(decay)) + unit * (fabs(a[exact][i]) + fabs(step));
  *d = (discrepancy){narrow ? "master weight" : "weight", i, b[exact][i],
                     a[exact][i] - step - decay};
  if (!within(d->got, d->wanted, allowed)) return false;
  const double size = fabs(step) + fabs(decay);
  if (size > 1e-3 * fabs(a[exact][i])) {
    u->audit->update_difference =
        fmax(u->audit->update_difference, fabs(d->got - d->wanted) / size);
  }
  if (!narrow) return true;
  *d = (discrepancy){"stored weight", i, b[OT_COPY_WEIGHT][i], b[exact][i]};
  return within(d->got, d->wanted, 0x1p-8 * fabs(d->wanted));
}

static void check_row(update_check *u, const sampled_row *r) {
  for (int64_t i = 0; i < r->count; i++) {
    discrepancy d;
    u->audit->elements++;
    if (check_element(u, r, i, &d)) continue;
    find(u, r, &d);
    return;
  }
}

// ---- the step ----

static void check_norm(update_check *u) {
  const double tolerance = u->run->precision.compute == OT_F64 ? 1e-9 : 1e-4;
  const double norm = u->audit->norm, reported = u->audit->step.gradient_norm;
  if (within(reported, norm, tolerance * norm)) return;
  ot_audit_find(u->audit->report, "gradient_norm", "the norm used for clipping",
                "the reduction leaves out an axis or counts copies more than once",
                "%.9g was used; over all elements of the model it is %.9g (ratio %.6g)", reported,
                norm, reported / norm);
}

static void set_expected(update_check *u) {
  const ot_run_optimizer *const o = &u->run->optimizer;
  const int64_t before = u->audit->before.step;
  u->rate = ot_learning_rate_at(u->run, before);
  for (int i = 0; i < 2; i++) {
    u->correction[i] = 1 / (1 - pow(o->betas[i], (double)(before + 1)));
  }
  const double clip = o->clip / (u->audit->norm + 1e-6);
  u->factor = o->clip > 0 && clip < 1 ? clip : 1;
}

ot_status ot_step_check_update(ot_step_audit *audit) {
  update_check u = {.audit = audit,
                    .run = audit->run,
                    .whole = ot_runtime_whole_graph(audit->runtime),
                    .arena = audit->report->arena};
  const int64_t widest = ot_graph_widest_row(u.whole);
  u.values =
      ot_arena_array(u.arena, widest > BLOCK_ELEMENTS ? widest : BLOCK_ELEMENTS, sizeof *u.values);
  for (int copy = 0; copy < OT_COPIES; copy++) {
    u.kept[copy] = ot_runtime_has_copy(audit->runtime, (ot_parameter_copy)copy);
  }
  OT_TRY(ot_world_allreduce(audit->world, u.kept, OT_COPIES));
  choose_rows(&u);
  OT_TRY(read_rows(&u, BEFORE));
  OT_TRY(ot_step_check_record(audit));
  OT_TRY(read_rows(&u, AFTER));
  OT_TRY(find_norm(&u));
  set_expected(&u);
  check_norm(&u);
  const bool sampled = !audit->judged || u.kept[OT_COPY_MASTER] > 0;
  for (int i = 0; i < u.num_rows && sampled; i++) check_row(&u, &u.rows[i]);
  return OT_OK;
}
