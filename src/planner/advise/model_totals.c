// SPDX-License-Identifier: Apache-2.0
// Computed from the dimensions of the model alone. Estimates count the tasks of the model's
// programs instead; a test compares the two.
#include "advise/model_totals.h"

// ---- weight-matrix elements per token ----

static double latent_matrices(const ot_model *m) {
  const ot_mla *const mla = &m->mla;
  const double C = (double)m->hidden_size, H = (double)m->num_heads;
  const double q = H * (double)m->head_dim, q_rank = (double)mla->q_rank;
  const double queries = mla->q_rank > 0 ? q_rank * (C + q) : C * q;
  const double down = C * (double)(mla->kv_rank + mla->rope_dim);
  const double up = (double)mla->kv_rank * H * (double)(mla->nope_dim + mla->v_dim);
  return queries + down + up + H * (double)mla->v_dim * C;
}

static double attention_matrices(const ot_model *m) {
  if (m->mla.kv_rank > 0) return latent_matrices(m);
  const double heads = 2 * (double)m->num_heads + 2 * (double)m->num_kv_heads;
  return (double)m->hidden_size * (double)m->head_dim * heads;
}

// Includes `experts` routed experts, the shared experts with their gate, and the router.
static double mlp_matrices(const ot_model *m, int64_t layer, int64_t experts) {
  const double C = (double)m->hidden_size;
  const ot_moe *const moe = &m->moe;
  if (!moe->layer[layer]) return (m->gated_mlp ? 3 : 2) * C * (double)m->intermediate_size;
  const int64_t width = experts * moe->expert_size + moe->shared_size;
  return C * ((double)moe->num_experts + moe->shared_gate + 3 * (double)width);
}

// Parameters of the matrices of all layers.
static double all_matrices(const ot_model *m, int64_t experts) {
  double n = (double)m->num_layers * attention_matrices(m);
  for (int64_t i = 0; i < m->num_layers; i++) n += mlp_matrices(m, i, experts);
  return n;
}

static double multiplied(const ot_model *m) {
  const double head = (double)m->vocab_size * (double)m->hidden_size;
  return head + all_matrices(m, m->moe.experts_per_token);
}

// ---- attention scores and values ----

// Mean number of keys that a query attends to in a sequence; document boundaries are unknown here.
static double mean_keys(int64_t window, int64_t sequence_length) {
  const double s = (double)sequence_length;
  const double w = window > 0 && window < sequence_length ? (double)window : s;
  return (w * (w + 1) / 2 + (s - w) * w) / s;
}

// QK^T and PV over the keys that each query attends to.
static double attention_flops(const ot_model *m, int64_t sequence_length) {
  const int64_t values = m->mla.kv_rank > 0 ? m->mla.v_dim : m->head_dim;
  const double width = (double)m->num_heads * (double)(m->head_dim + values);
  double flops = 0;
  for (int64_t i = 0; i < m->num_layers; i++) {
    flops += 2 * width * mean_keys(m->window[i], sequence_length);
  }
  return flops;
}

// Bytes of the moments of the mean parameter.
static double moment_bytes(const ot_job *job) {
  const double n = (double)ot_model_parameters(job->model);
  const double single = all_matrices(job->model, job->model->moe.num_experts);
  const double all = job->recipe.moment_bytes;
  if (ot_job_moments(job) == 2) return all;
  return ot_run_moments(job->run, false) == 2 ? all * (1 - single / n / 2) : all / 2;
}

void ot_model_totals_build(const ot_job *job, ot_model_totals *out) {
  const ot_model *const m = job->model;
  const ot_recipe *const r = &job->recipe;
  const double n = (double)ot_model_parameters(m);
  const double optimizer_bytes = r->master_bytes + moment_bytes(job);
  *out = (ot_model_totals){
      .parameters = ot_model_parameters(m),
      .active_parameters = ot_model_active_parameters(m),
      .multiplied = multiplied(m),
      .bytes_per_parameter = r->weight_bytes + r->gradient_bytes + optimizer_bytes,
      .moment_bytes_per_parameter = moment_bytes(job),
      .weight_bytes = (int64_t)(n * r->weight_bytes),
      .gradient_bytes = (int64_t)(n * r->gradient_bytes),
      .optimizer_bytes = (int64_t)(n * optimizer_bytes),
  };
  out->forward_flops_per_token = 2 * out->multiplied + attention_flops(m, job->sequence_length);
  out->flops_per_token = 3 * out->forward_flops_per_token;
  out->state_bytes = out->weight_bytes + out->gradient_bytes + out->optimizer_bytes;
  const int64_t capacity = ot_cluster_most_memory(job->cluster);
  out->min_devices_for_state = (out->state_bytes + capacity - 1) / capacity;
}
