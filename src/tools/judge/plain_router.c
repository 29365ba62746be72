// SPDX-License-Identifier: Apache-2.0
// Routing of tokens to experts. With s = softmax or sigmoid of the logits, a token goes to the k
// experts with the largest s + bias (DeepSeek-AI 2024, DeepSeek-V3, sec. 2.1.2: only of the groups
// whose two largest sum to most), with gates scale * s, divided by their sum if the model says so.
// The choice has no gradient. Losses of a group of n tokens, with p = s / sum of s:
//   balance  E times the sum over experts of f_e P_e; f_e the share of the n k slots that expert e
//            has, P_e the mean of p_e (Fedus et al. 2021)
//   z        the mean of (log of the sum of exp(logits))^2 (Zoph et al. 2022)
#include "describe/moe.h"
#include "judge/plain_parts.h"

typedef struct routing {
  const ot_moe *moe;
  int64_t E, k;
  const ot_real *logits;  // [R, E]
  ot_real *scores;        // [R, E]
  ot_real *merits;        // [R, E] with the bias of the choice
  int32_t *choices;       // [R, k]
  double *shares;         // [num_groups, E] f
  int64_t *counts;        // [num_groups] n
} routing;

// ---- choices ----

// log of the sum of exp(logits [E])
static double log_sum(const ot_real *logits, int64_t E) {
  double largest = logits[0], sum = 0;
  for (int64_t e = 1; e < E; e++) largest = logits[e] > largest ? logits[e] : largest;
  for (int64_t e = 0; e < E; e++) sum += exp(logits[e] - largest);
  return largest + log(sum);
}

static void find_scores(const routing *r, int64_t row) {
  const ot_real *const logits = r->logits + row * r->E;
  const bool soft = r->moe->score == OT_MOE_SOFTMAX;
  const double all = soft ? log_sum(logits, r->E) : 0;
  for (int64_t e = 0; e < r->E; e++) {
    const double x = logits[e];
    r->scores[row * r->E + e] = (ot_real)(soft ? exp(x - all) : 1 / (1 + exp(-x)));
  }
}

static void find_merits(const routing *r, const ot_real *bias, int64_t row) {
  for (int64_t e = 0; e < r->E; e++)
    r->merits[row * r->E + e] = r->scores[row * r->E + e] + (bias ? bias[e] : 0);
}

// The place of the largest of values [n], the first among equals; it is not found again.
static int64_t pop_largest(double *values, int64_t n) {
  int64_t best = 0;
  for (int64_t i = 1; i < n; i++) best = values[i] > values[best] ? i : best;
  values[best] = -INFINITY;
  return best;
}

// Leaves the values [E] of the best groups only.
static void keep_groups(const ot_moe *moe, double *values) {
  const int64_t size = moe->num_experts / moe->num_groups;
  double sums[OT_MAX_EXPERTS], copy[OT_MAX_EXPERTS];
  memcpy(copy, values, (size_t)moe->num_experts * sizeof *copy);
  for (int64_t g = 0; g < moe->num_groups; g++) {
    const double first = values[g * size + pop_largest(copy + g * size, size)];
    sums[g] = first + values[g * size + pop_largest(copy + g * size, size)];
  }
  memcpy(copy, values, (size_t)moe->num_experts * sizeof *copy);
  for (int64_t e = 0; e < moe->num_experts; e++) values[e] = -INFINITY;
  for (int64_t i = 0; i < moe->groups_per_token; i++) {
    const int64_t begin = pop_largest(sums, moe->num_groups) * size;
    memcpy(values + begin, copy + begin, (size_t)size * sizeof *values);
  }
}

static void choose(const routing *r, const int32_t *given, int64_t row) {
  int32_t *const choices = r->choices + row * r->k;
  double values[OT_MAX_EXPERTS];
  if (given) {
    memcpy(choices, given + row * r->k, (size_t)r->k * sizeof *choices);
    return;
  }
  for (int64_t e = 0; e < r->E; e++) values[e] = r->merits[row * r->E + e];
  if (r->moe->num_groups > 1) keep_groups(r->moe, values);
  for (int64_t j = 0; j < r->k; j++) choices[j] = (int32_t)pop_largest(values, r->E);
}

// The score of slot `j` of a row.
static double slot_score(const routing *r, int64_t row, int64_t j) {
  return r->scores[row * r->E + r->choices[row * r->k + j]];
}

// The sum that the gates of a row are divided by, or 1.
static double divisor(const routing *r, int64_t row) {
  double sum = 0;
  for (int64_t j = 0; j < r->k; j++) sum += slot_score(r, row, j);
  return r->moe->renormalise ? sum : 1;
}

// ---- losses ----

static double score_sum(const routing *r, int64_t row) {
  double sum = 0;
  for (int64_t e = 0; e < r->E; e++) sum += r->scores[row * r->E + e];
  return sum;
}

static bool counts(const ot_plain_state *s, int64_t row) {
  return !s->batch->counted || s->batch->counted[row];
}

static int64_t group_begin(const ot_plain_state *s, int g) {
  return g > 0 ? s->batch->group_end[g - 1] : 0;
}

// n and f of a group. A group of which no row counts has none.
static void count_group(const ot_plain_state *s, const routing *r, int g) {
  double *const shares = r->shares + g * r->E;
  memset(shares, 0, (size_t)r->E * sizeof *shares);
  r->counts[g] = 0;
  for (int64_t row = group_begin(s, g); row < s->batch->group_end[g]; row++) {
    if (!counts(s, row)) continue;
    for (int64_t j = row * r->k; j < (row + 1) * r->k; j++) shares[r->choices[j]]++;
    r->counts[g]++;
  }
  for (int64_t e = 0; e < r->E && r->counts[g] > 0; e++) {
    shares[e] = s->batch->shares ? s->batch->shares[g * r->E + e]
                                 : shares[e] / (double)(r->counts[g] * r->k);
  }
}

// The part of a group in the losses.
static void measure_group(ot_plain_state *s, const routing *r, int g) {
  const double weight = s->batch->group_weight / (double)r->counts[g];
  const double *const shares = r->shares + g * r->E;
  for (int64_t row = group_begin(s, g); row < s->batch->group_end[g]; row++) {
    if (!counts(s, row)) continue;
    const double all = log_sum(r->logits + row * r->E, r->E), sum = score_sum(r, row);
    s->router.z += weight * all * all;
    for (int64_t e = 0; e < r->E; e++) {
      s->router.balance += weight * (double)r->E * shares[e] * r->scores[row * r->E + e] / sum;
    }
  }
}

// ---- backward ----

// d [E] += the gradients of the scores of a row from those of its gates [k].
static void from_gates(const routing *r, int64_t row, const ot_real *d_gates, double *d) {
  const double by = divisor(r, row);
  double mean = 0;
  for (int64_t j = 0; r->moe->renormalise && j < r->k; j++) {
    mean += (double)d_gates[j] * slot_score(r, row, j) / by;
  }
  for (int64_t j = 0; j < r->k; j++) {
    d[r->choices[row * r->k + j]] += r->moe->scale / by * (d_gates[j] - mean);
  }
}

// The same from the balancing loss: dp_e = factor f_e.
static void from_balance(const routing *r, int64_t row, const double *shares, double factor,
                         double *d) {
  const double sum = score_sum(r, row);
  double mean = 0;
  for (int64_t e = 0; e < r->E; e++) mean += shares[e] * r->scores[row * r->E + e] / sum;
  for (int64_t e = 0; e < r->E; e++) d[e] += factor * (shares[e] - mean) / sum;
}

static void row_back(const ot_plain_state *s, const ot_plain_op *op, int64_t row, int g) {
  const routing *const r = op->settings;
  const double all = log_sum(r->logits + row * r->E, r->E),
               weight = counts(s, row) ? s->batch->group_weight / (double)r->counts[g] : 0;
  const double balance = ot_moe_aux_weight(s->model) * weight * (double)r->E;
  const double z = s->losses & OT_PLAIN_Z ? 2 * r->moe->z_coefficient * weight * all : 0;
  const bool soft = r->moe->score == OT_MOE_SOFTMAX;
  double d[OT_MAX_EXPERTS] = {0}, mean = 0;
  from_gates(r, row, op->out->d + row * r->k, d);
  if (s->losses & OT_PLAIN_BALANCE) from_balance(r, row, r->shares + g * r->E, balance, d);
  for (int64_t e = 0; soft && e < r->E; e++) mean += d[e] * r->scores[row * r->E + e];
  for (int64_t e = row * r->E; e < (row + 1) * r->E; e++) {
    const double score = r->scores[e], slope = soft ? score : score * (1 - score);
    const double sum = slope * (d[e - row * r->E] - mean) + z * exp(r->logits[e] - all);
    op->in[0]->d[e] = soft ? ot_plain_keep(s, (ot_real)sum) : (ot_real)sum;
  }
}

static void route_back(ot_plain_state *s, const ot_plain_op *op) {
  for (int64_t row = 0, g = 0; row < s->R; row++) {
    while (row >= s->batch->group_end[g]) g++;
    row_back(s, op, row, (int)g);
  }
}

// Logits of softmax routers are those of a module of the type, logits of sigmoid routers float32
// (transformers, DeepseekV3TopkRouter), except where every product is cast.
ot_plain_value *OT_KERNEL(ot_plain_route)(ot_plain_state *s, ot_plain_value *u) {
  const ot_moe *const moe = &s->model->moe;
  ot_plain_value *const logits = OT_KERNEL(ot_plain_linear)(
      s, u, (ot_plain_slice){.name = "router", .wide = moe->score == OT_MOE_SIGMOID && !s->cast});
  ot_plain_value *const gates = OT_KERNEL(ot_plain_make)(s, s->R, moe->experts_per_token);
  const ot_real *const bias =
      OT_KERNEL(ot_plain_find)(s, "router", "e_score_correction_bias").value;
  const int32_t *const given = s->batch->choices ? s->batch->choices[s->layer] : NULL;
  const int64_t E = moe->num_experts, k = moe->experts_per_token;
  const routing r = {
      .moe = moe,
      .E = E,
      .k = k,
      .logits = logits->x,
      .scores = OT_KERNEL(ot_plain_reals)(s, s->R * E),
      .merits = OT_KERNEL(ot_plain_reals)(s, s->R * E),
      .choices = OT_KERNEL(ot_plain_take)(s, s->R * k * (int64_t)sizeof(int32_t)),
      .shares = OT_KERNEL(ot_plain_take)(s, s->batch->num_groups * E * (int64_t)sizeof(double)),
      .counts = OT_KERNEL(ot_plain_take)(s, s->batch->num_groups * (int64_t)sizeof(int64_t))};
#pragma omp parallel for num_threads(s->threads)
  for (int64_t row = 0; row < s->R; row++) {
    find_scores(&r, row);
    find_merits(&r, bias, row);
    choose(&r, given, row);
    for (int64_t j = 0; j < k; j++) {
      const double gate = moe->scale * slot_score(&r, row, j) / divisor(&r, row);
      gates->x[row * k + j] = ot_plain_keep(s, (ot_real)gate);
    }
  }
  s->router = (ot_plain_router){.choices = r.choices, .merits = r.merits};
  for (int g = 0; g < s->batch->num_groups; g++) {
    count_group(s, &r, g);
    measure_group(s, &r, g);
  }
  OT_KERNEL(ot_plain_record)(s, (ot_plain_op){route_back, gates, {logits}, NULL}, &r, sizeof r);
  return gates;
}
