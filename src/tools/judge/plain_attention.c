// SPDX-License-Identifier: Apache-2.0
// The attention branches: projections, norms, rotation, attention, output projection. Multi-head
// latent attention (DeepSeek-AI 2024, DeepSeek-V2, sec. 2.1): a head has N elements without and P
// with rotation; keys N and values V of all heads are projections of a latent of K elements per
// token; the rotated part of the key is shared by all heads.
#include "judge/plain_parts.h"

static ot_plain_value *head_norm(ot_plain_state *s, ot_plain_value *x, const char *name,
                                 double epsilon) {
  ot_plain_norm n = OT_KERNEL(ot_plain_norm_of)(s, name);
  n.epsilon = epsilon;
  n.centred = false;
  return OT_KERNEL(ot_plain_norm)(s, x, &n);
}

ot_plain_value *OT_KERNEL(ot_plain_attention)(ot_plain_state *s, ot_plain_value *u) {
  const ot_model *const m = s->model;
  const int64_t wide = m->num_heads * m->head_dim, narrow = m->num_kv_heads * m->head_dim;
  const bool still = m->rotary_dim == 0 || m->no_rope[s->layer];
  const ot_plain_rotation rotation = {.table = still ? NULL : s->table[m->window[s->layer] > 0],
                                      .width = m->head_dim};
  ot_plain_heads h = {.heads = m->num_heads,
                      .kv_heads = m->num_kv_heads,
                      .dim = m->head_dim,
                      .value_dim = m->head_dim,
                      .value_step = m->head_dim};
  h.q = OT_KERNEL(ot_plain_linear)(s, u, (ot_plain_slice){"attention.qkv", 0, wide, false});
  h.k = OT_KERNEL(ot_plain_linear)(s, u, (ot_plain_slice){"attention.qkv", wide, narrow, false});
  h.v = OT_KERNEL(ot_plain_linear)(s, u,
                                   (ot_plain_slice){"attention.qkv", wide + narrow, narrow, false});
  h.q = head_norm(s, h.q, "attention.q_norm", m->norm_epsilon);
  h.k = head_norm(s, h.k, "attention.k_norm", m->norm_epsilon);
  h.q = OT_KERNEL(ot_plain_rotate)(s, h.q, &rotation);
  h.k = OT_KERNEL(ot_plain_rotate)(s, h.k, &rotation);
  ot_plain_value *const o = OT_KERNEL(ot_plain_attend)(s, &h);
  return OT_KERNEL(ot_plain_linear)(s, o, (ot_plain_slice){.name = "attention.output"});
}

// ---- latent attention ----

// Rotates the last P elements of heads of `width` elements.
static ot_plain_value *rotate_ends(ot_plain_state *s, ot_plain_value *x, int64_t width) {
  const ot_mla *const m = &s->model->mla;
  const ot_plain_rotation rotation = {.table = s->table[0],
                                      .width = width,
                                      .first = width - m->rope_dim,
                                      .interleaved = m->interleaved};
  return OT_KERNEL(ot_plain_rotate)(s, x, &rotation);
}

static void join_back(ot_plain_state *s, const ot_plain_op *op) {
  const int64_t N = s->model->mla.nope_dim, P = s->model->mla.rope_dim, V = s->model->mla.v_dim;
  const int64_t heads = s->model->num_heads;
  for (int64_t i = 0; i < s->R * heads; i++) {
    const ot_real *const d = op->out->d + i * (N + P);
    ot_real *const d_kv = op->in[0]->d + i * (N + V);
    ot_real *const d_shared = op->in[1]->d + i / heads * P;
    for (int64_t n = 0; n < N; n++) d_kv[n] = ot_plain_keep(s, d_kv[n] + d[n]);
    for (int64_t p = 0; p < P; p++) d_shared[p] = ot_plain_keep(s, d_shared[p] + d[N + p]);
  }
}

// Keys [R, H (N + P)] from projections [R, H (N + V)] and the rotated part [R, P].
static ot_plain_value *join_keys(ot_plain_state *s, ot_plain_value *kv, ot_plain_value *shared) {
  const int64_t N = s->model->mla.nope_dim, P = s->model->mla.rope_dim, V = s->model->mla.v_dim;
  const int64_t heads = s->model->num_heads;
  ot_plain_value *const k = OT_KERNEL(ot_plain_make)(s, s->R, heads * (N + P));
  for (int64_t i = 0; i < s->R * heads; i++) {
    ot_real *const to = k->x + i * (N + P);
    memcpy(to, kv->x + i * (N + V), (size_t)N * sizeof *to);
    memcpy(to + N, shared->x + i / heads * P, (size_t)P * sizeof *to);
  }
  OT_KERNEL(ot_plain_record)(s, (ot_plain_op){join_back, k, {kv, shared}, NULL}, NULL, 0);
  return k;
}

ot_plain_value *OT_KERNEL(ot_plain_latent)(ot_plain_state *s, ot_plain_value *u) {
  const ot_model *const m = s->model;
  const int64_t K = m->mla.kv_rank, P = m->mla.rope_dim, N = m->mla.nope_dim, V = m->mla.v_dim;
  const double epsilon = 1e-6;  // whatever the model's is (transformers, DeepseekV3Attention)
  ot_plain_heads h = {.heads = m->num_heads,
                      .kv_heads = m->num_heads,
                      .dim = m->head_dim,
                      .value_dim = V,
                      .value_step = N + V,
                      .value_first = N};
  ot_plain_value *q = u;
  if (m->mla.q_rank > 0) {
    q = OT_KERNEL(ot_plain_linear)(s, u, (ot_plain_slice){.name = "attention.q_down"});
    q = head_norm(s, q, "attention.q_latent_norm", epsilon);
  }
  const char *const q_name = m->mla.q_rank > 0 ? "attention.q_up" : "attention.q";
  q = OT_KERNEL(ot_plain_linear)(s, q, (ot_plain_slice){.name = q_name});
  h.q = rotate_ends(s, q, m->head_dim);
  ot_plain_value *const shared =
      OT_KERNEL(ot_plain_linear)(s, u, (ot_plain_slice){"attention.kv_down", K, P, false});
  ot_plain_value *const latent =
      OT_KERNEL(ot_plain_linear)(s, u, (ot_plain_slice){"attention.kv_down", 0, K, false});
  h.v = OT_KERNEL(ot_plain_linear)(s, head_norm(s, latent, "attention.kv_latent_norm", epsilon),
                                   (ot_plain_slice){.name = "attention.kv_up"});
  h.k = join_keys(s, h.v, rotate_ends(s, shared, P));
  ot_plain_value *const o = OT_KERNEL(ot_plain_attend)(s, &h);
  return OT_KERNEL(ot_plain_linear)(s, o, (ot_plain_slice){.name = "attention.output"});
}
