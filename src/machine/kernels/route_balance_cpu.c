// SPDX-License-Identifier: Apache-2.0
// Counts, auxiliary losses and their gradients, token by token; sums over tokens by row blocks.
#include <stddef.h>
#include <string.h>

#include "kernels/cpu_tables.h"
#include "kernels/route_scores.h"
#include "kernels/tiles.h"
#include "kernels/update_sums.h"
#include "ops/route.h"
#include "ops/route_balance.h"

// ---- counts ----

static void route_count(const ot_kernel_call *call) {
  const ot_op_attributes *const a = call->attributes;
  const int64_t S = call->in[0].type.dim[1];
  const int64_t slots = ot_type_elements(&call->in[0].type);
  const int32_t *const experts = call->in[0].data;
  ot_real *const counts = call->out[0].data;
  memset(counts, 0, (size_t)ot_type_bytes(&call->out[0].type));
  for (int64_t i = 0; i < slots; i++) {
    const int64_t sequence = (a->first_row + i / S) / a->sequence_length;
    counts[sequence * a->num_experts + ot_route_expert(experts[i])] += 1;
  }
}

static void route_load(const ot_kernel_call *call) {
  const int64_t slots = ot_type_elements(&call->in[0].type);
  const int64_t E = call->attributes->num_experts;
  const int32_t *const experts = call->in[0].data;
  const ot_tensor *const out = &call->out[0];
  ot_real load[OT_MAX_EXPERTS] = {0};
  if (call->attributes->accumulate) ot_load_row(load, out->data, out->type.dtype, 0, E);
  for (int64_t i = 0; i < slots; i++) load[ot_route_expert(experts[i])] += 1;
  ot_store_row(out->data, out->type.dtype, 0, load, E);
}

// ---- losses ----

// The loss terms of one token.
typedef struct token {
  ot_real log_sum;  // of its logits
  ot_real softmax[OT_MAX_EXPERTS];
  ot_real scores[OT_MAX_EXPERTS];  // before normalisation
  ot_real sum;                     // of the scores
} token;

static void read_token(const ot_op_attributes *a, const ot_real *logits, token *t) {
  const int64_t E = a->num_experts;
  ot_real largest = logits[0];
  for (int64_t e = 1; e < E; e++) largest = logits[e] > largest ? logits[e] : largest;
  ot_route_softmax(logits, t->softmax, E);
  // The largest probability is exp(largest - log_sum).
  ot_real most = 0;
  for (int64_t e = 0; e < E; e++) most = t->softmax[e] > most ? t->softmax[e] : most;
  t->log_sum = largest - OT_KERNEL(ot_log)(most);
  ot_route_scores(a, logits, t->scores);
  t->sum = 0;
  for (int64_t e = 0; e < E; e++) t->sum += t->scores[e];
}

static const ot_real *counts_of(const ot_op_attributes *a, const ot_real *counts, int64_t row) {
  return counts + (a->first_row + row) / a->sequence_length * a->num_experts;
}

// E / (k T^2): the factor from sums of counts times probabilities to the loss of a sequence.
static double aux_factor(const ot_op_attributes *a) {
  const double T = (double)ot_route_tokens(a);
  if (a->routing == OT_MOE_EXPERT_CHOICE) return 0;
  return (double)a->num_experts / ((double)a->experts_per_token * T * T);
}

// Sums of counts times probabilities, and of squared log-sum-exps.
static void sum_rows(const ot_kernel_call *call, int64_t begin, int64_t end, double sums[2]) {
  const ot_op_attributes *const a = call->attributes;
  token t;
  sums[0] = sums[1] = 0;
  for (int64_t row = begin; row < end; row++) {
    read_token(a, (const ot_real *)call->in[0].data + row * a->num_experts, &t);
    const ot_real *const counts = counts_of(a, call->in[2].data, row);
    double product = 0;
    for (int64_t e = 0; e < a->num_experts; e++) product += (double)(counts[e] * t.scores[e]);
    sums[0] += product / (double)t.sum;
    sums[1] += (double)t.log_sum * (double)t.log_sum;
  }
}

// Loads [E] of the whole sequences of these rows, including dropped slots. With expert choice all
// loads are equal.
static void sum_loads(const ot_kernel_call *call, double *loads) {
  const ot_op_attributes *const a = call->attributes;
  const ot_real *const counts = call->in[2].data;
  for (int64_t i = 0; i < ot_type_elements(&call->in[2].type); i++) {
    loads[i % a->num_experts] += (double)counts[i];
  }
}

// The share of dropped slots; for expert choice, of tokens that no expert took.
static double dropped_share(const ot_kernel_call *call) {
  const bool chosen = call->attributes->routing == OT_MOE_EXPERT_CHOICE;
  const int64_t rows = call->in[1].type.dim[0];
  const int64_t S = call->in[1].type.dim[1];
  const int32_t *const experts = call->in[1].data;
  int64_t dropped = 0;
  for (int64_t row = 0; row < rows; row++) {
    int64_t kept = 0;
    for (int64_t i = row * S; i < (row + 1) * S; i++) kept += experts[i] >= 0;
    dropped += chosen ? kept == 0 : S - kept;
  }
  return (double)dropped / (double)(chosen ? rows : rows * S);
}

// Maximum load over mean load, entropy of the loads over ln E, and the dropped share.
static void describe_loads(const ot_kernel_call *call, double out[3]) {
  const ot_op_attributes *const a = call->attributes;
  double loads[OT_MAX_EXPERTS] = {0};
  double all = 0, largest = 0, entropy = 0;
  sum_loads(call, loads);
  for (int64_t e = 0; e < a->num_experts; e++) all += loads[e];
  for (int64_t e = 0; e < a->num_experts; e++) {
    largest = loads[e] > largest ? loads[e] : largest;
    if (loads[e] > 0) entropy -= loads[e] / all * ot_log_f64(loads[e] / all);
  }
  out[0] = largest * (double)a->num_experts / all;
  out[1] = a->num_experts > 1 ? entropy / ot_log_f64((double)a->num_experts) : 1;
  out[2] = dropped_share(call);
}

static void route_loss(const ot_kernel_call *call) {
  const ot_op_attributes *const a = call->attributes;
  const int64_t rows = call->in[0].type.dim[0];
  const int64_t blocks = ot_row_blocks(rows);
  const double inverse = *(const double *)call->in[3].data;
  double *const sums = call->workspace;
  double *const statistics = call->out[0].data;
#pragma omp parallel for num_threads(ot_threads_for(call, rows * a->num_experts)) schedule(static)
  for (int64_t block = 0; block < blocks; block++) {
    sum_rows(call, ot_block_begin(rows, blocks, block), ot_block_begin(rows, blocks, block + 1),
             sums + 2 * block);
  }
  double total[2] = {0};
  for (int64_t block = 0; block < blocks; block++) {
    total[0] += sums[2 * block];
    total[1] += sums[2 * block + 1];
  }
  double loads[3];
  describe_loads(call, loads);
  const double T = (double)ot_route_tokens(a);
  statistics[0] += inverse * aux_factor(a) * total[0];
  statistics[1] += inverse / T * total[1];
  for (int i = 0; i < 3; i++) statistics[2 + i] += inverse * (double)rows / T * loads[i];
  const int32_t *const rounds = call->in[4].data;
  statistics[OT_EXPERT_PASSES] += inverse * (double)rows / T * (rounds ? *rounds : 1);
}

// ---- gradient ----

// Adds the gradient of the load-balancing loss with respect to the scores, and from there the
// logits. For p = s / sum s it is (c_i - sum_j c_j p_j) / sum s.
static void add_aux(const ot_op_attributes *a, const token *t, const ot_real *counts,
                    ot_real factor, ot_real *dlogits) {
  ot_real dscores[OT_MAX_EXPERTS];
  ot_real mean = 0;
  for (int64_t e = 0; e < a->num_experts; e++) mean += counts[e] * t->scores[e] / t->sum;
  for (int64_t e = 0; e < a->num_experts; e++) {
    dscores[e] = factor * (counts[e] - mean) / t->sum;
  }
  ot_route_scores_grad(a, t->scores, dscores, dlogits);
}

static void grad_row(const ot_kernel_call *call, int64_t row) {
  const ot_op_attributes *const a = call->attributes;
  const int64_t E = a->num_experts;
  const double inverse = *(const double *)call->in[2].data;
  const ot_real *const partial = call->in[3].data;
  ot_real *const dlogits = (ot_real *)call->out[0].data + row * E;
  const ot_real aux = (ot_real)(inverse * a->aux_coefficient * aux_factor(a));
  const double T = (double)ot_route_tokens(a);
  token t;
  read_token(a, (const ot_real *)call->in[0].data + row * E, &t);
  const ot_real z = (ot_real)(2 * inverse * a->z_coefficient / T) * t.log_sum;
  for (int64_t e = 0; e < E; e++) {
    dlogits[e] = (partial ? partial[row * E + e] : 0) + z * t.softmax[e];
  }
  add_aux(a, &t, counts_of(a, call->in[1].data, row), aux, dlogits);
}

static void route_loss_grad(const ot_kernel_call *call) {
  const int64_t rows = call->in[0].type.dim[0];
  const int64_t elements = rows * call->attributes->num_experts;
#pragma omp parallel for num_threads(ot_threads_for(call, elements)) schedule(static)
  for (int64_t row = 0; row < rows; row++) grad_row(call, row);
}

// ---- update ----

static void route_bias(const ot_kernel_call *call) {
  const ot_op_attributes *const a = call->attributes;
  const double *const scalars = call->in[1].data;
  double *const stats = call->out[2].data;
  if (ot_update_is_skipped(call, stats)) return;
  const ot_tensor *const kept = call->out[1].data ? &call->out[1] : &call->out[0];
  const double tokens = (double)ot_route_tokens(a) / scalars[OT_SCALAR_INVERSE_SEQUENCES];
  const ot_real mean = (ot_real)(tokens * (double)a->experts_per_token / (double)a->num_experts);
  ot_update_sums sums = {0};
  for (int64_t i = 0; i < call->in[0].type.dim[0]; i++) {
    ot_real load, bias;
    ot_load_row(&load, call->in[0].data, call->in[0].type.dtype, i, 1);
    ot_load_row(&bias, kept->data, kept->type.dtype, i, 1);
    const ot_real step = (ot_real)a->bias_rate * (ot_real)((mean > load) - (mean < load));
    bias += step;
    sums.update += (double)step * (double)step;
    sums.weight += (double)bias * (double)bias;
    ot_store_row(kept->data, kept->type.dtype, i, &bias, 1);
    ot_store_row(call->out[0].data, call->out[0].type.dtype, i, &bias, 1);
  }
  ot_update_sums_total(&sums, 1, stats);
}

const ot_kernel_entry OT_KERNEL(ot_route_balance_cpu)[] = {
    {OT_OP_ROUTE_COUNT, route_count},         {OT_OP_ROUTE_LOSS, route_loss},
    {OT_OP_ROUTE_LOSS_GRAD, route_loss_grad}, {OT_OP_ROUTE_LOAD, route_load},
    {OT_OP_ROUTE_BIAS, route_bias},           {OT_OP_COUNT, NULL},
};
