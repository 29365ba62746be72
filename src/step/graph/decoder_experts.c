// SPDX-License-Identifier: Apache-2.0
// The MoE branch of a layer. Each rank routes its tokens (sharded by sequence parallelism). Gates
// multiply before the down projection (ops/activation.h), so that expert outputs are summed and not
// saved.
//
//   normed -> router -> route -> order -> dispatch -> gate|up -> glu -> down -> combine -> + x
//        \-> shared experts, an ordinary MLP ------------------------------------------/
//
// Over ep each rank holds some of the experts, over etp some columns of each. Between dispatch and
// combine, an all-to-all-v sends tokens to the ranks of their experts and back
// (ops/expert_exchange.h): the first pass as ops of the program, overflow passes as a composite
// (ops/expert_rounds.h).
#include "describe/moe.h"
#include "graph/decoder_parts.h"
#include "ops/expert_exchange.h"
#include "ops/route.h"

// Outputs of the router for dispatch and for the auxiliary losses.
typedef struct routed {
  ot_op_attributes attributes;
  int logits, gates, experts, place, offsets;
} routed;

// Token dispatch to the experts of all ranks: all send counts, and the plan of the first pass. All
// values are -1 where this rank holds every expert.
typedef struct token_dispatch {
  ot_op_attributes attributes;
  int counts, home, here, offsets, rounds;
} token_dispatch;

// Tokens sorted by expert, and the experts that process them.
typedef struct sorted {
  ot_op_attributes attributes;
  int rows, gates, offsets;
  int up, down;  // weights
  int up_bias;   // or -1
} sorted;

// `share` times `factor`, rounded up, at most `most`; `most` for factor 0.
static int64_t with_capacity_factor(double share, double factor, int64_t most) {
  const double wanted = factor > 0 ? share * factor : (double)most;
  const double rows = wanted < (double)most ? wanted : (double)most;
  int64_t whole = (int64_t)rows;
  if ((double)whole < rows) whole++;
  return whole > 0 ? whole : 1;
}

// Expert capacity for a sequence of T tokens: its even share T*k/E times the capacity factor.
static int64_t capacity_of(const ot_moe *moe, int64_t T) {
  const double share = (double)T * (double)moe->experts_per_token / (double)moe->num_experts;
  return with_capacity_factor(share, moe->capacity_factor, T);
}

static ot_op_attributes route_attributes(const ot_builder *b) {
  const ot_moe *const moe = &ot_model_of(b)->moe;
  ot_op_attributes attributes = ot_builder_attributes(b);
  attributes.num_experts = moe->num_experts;
  attributes.experts_per_token = moe->experts_per_token;
  attributes.score = moe->score;
  attributes.renormalise = moe->renormalise;
  attributes.scale = moe->scale;
  attributes.num_groups = moe->num_groups;
  attributes.groups_per_token = moe->groups_per_token;
  attributes.routing = moe->routing;
  attributes.aux_coefficient = ot_moe_aux_weight(ot_model_of(b));
  attributes.z_coefficient = moe->z_coefficient;
  attributes.num_sequences = b->graph->request.micro_batch_size;
  attributes.first_row = ot_share_of(b)->first_row;
  ot_builder_set_context(b, &attributes);
  if (moe->routing != OT_MOE_DROPLESS) {
    attributes.capacity = capacity_of(moe, ot_route_tokens(&attributes));
  }
  const ot_local_shape *const share = ot_share_of(b);
  const int64_t copies = share->expert_ranks * share->experts / moe->num_experts;
  if (copies > 1) attributes.expert_copies = copies;
  const int64_t rows = ot_route_rows(&attributes, share->own_rows);
  const int64_t even = ot_route_even_rows(&attributes, share->own_rows);
  if (share->expert_ranks > 1) attributes.copy_rows = rows / copies;
  if (even < rows) attributes.even_rows = even;
  return attributes;
}

static int sum_over(ot_builder *b, ot_group_kind group, int ranks, int counts) {
  ot_op_attributes attributes = ot_builder_attributes(b);
  if (ranks == 1) return counts;
  ot_builder_set_group(b, group, &attributes);
  return ot_builder_op(
      b, &(ot_op_description){OT_OP_ALL_REDUCE, &attributes, "router.counts", 1, {counts}, NULL});
}

// Token counts of whole sequences, from the counts of this rank's tokens.
static int count_sequences(ot_builder *b, int own) {
  const ot_local_shape *const share = ot_share_of(b);
  if (share->expert_view) return sum_over(b, OT_GROUP_SEQUENCE, share->sequence_ranks, own);
  return sum_over(b, OT_GROUP_CONTEXT, share->cp, sum_over(b, OT_GROUP_TENSOR, share->tp, own));
}

// Auxiliary losses and statistics of the router; the losses get their gradients here.
static void add_router_losses(ot_builder *b, const routed *r, int rounds) {
  if (!ot_builder_trains(b) && b->graph->request.mode != OT_MODE_LOGITS) return;
  const ot_local_shape *const share = ot_share_of(b);
  ot_op_attributes own_rows = r->attributes;
  const bool whole = share->expert_view && share->sequence_ranks == 1;
  if (whole) ot_builder_set_group(b, OT_GROUP_EXPERT, &own_rows);
  const int own = ot_builder_op(
      b, &(ot_op_description){OT_OP_ROUTE_COUNT, &own_rows, "router.own", 1, {r->experts}, NULL});
  const int counts = count_sequences(b, own);
  const int inverse = ot_builder_scalar(b, OT_SCALAR_INVERSE_SEQUENCES, "inverse_sequences");
  const int out[OT_MAX_OUTPUTS] = {ot_builder_expert_sums(b), -1, -1, -1, -1};
  ot_builder_op(b, &(ot_op_description){OT_OP_ROUTE_LOSS,
                                        &own_rows,
                                        "router.loss",
                                        5,
                                        {r->logits, r->experts, counts, inverse, rounds},
                                        out});
}

static int bias_of(ot_builder *b) {
  const ot_moe *const moe = &ot_model_of(b)->moe;
  if (moe->balance != OT_MOE_BALANCE_BIAS) return -1;
  return ot_decoder_buffer(b, OT_ROLE_ROUTER, "router", "e_score_correction_bias",
                           moe->num_experts);
}

// All-gathered logits of whole sequences, where the routing choice depends on other tokens of the
// sequence and other ranks hold some; otherwise -1. The choice has no gradient, so none flows back
// through the gather.
static int gather_sequences(ot_builder *b, int logits) {
  const ot_local_shape *const share = ot_share_of(b);
  const bool parts = share->cp > 1 || share->own_rows % share->length != 0;
  if (ot_model_of(b)->moe.routing == OT_MOE_DROPLESS || !parts) return -1;
  const char *const name = "router.logits_of_all";
  if (share->expert_view) return ot_builder_gather_over(b, OT_GROUP_SEQUENCE, logits, name);
  const int piece = ot_builder_gather_over(b, OT_GROUP_TENSOR, logits, "router.logits_of_piece");
  return ot_builder_gather_over(b, OT_GROUP_CONTEXT, piece, name);
}

static routed route(ot_builder *b, int normed) {
  const ot_model *const model = ot_model_of(b);
  routed r = {.attributes = route_attributes(b)};
  const ot_op_attributes plain = ot_builder_attributes(b);
  const int weight =
      ot_decoder_matrix(b, OT_ROLE_ROUTER, "router", model->moe.num_experts, model->hidden_size);
  const int logit_bias = model->moe.biases ? ot_decoder_vector(b, OT_ROLE_ROUTER, "router", "bias",
                                                               model->moe.num_experts)
                                           : -1;
  r.logits = ot_builder_op(
      b, &(ot_op_description){
             OT_OP_LINEAR_WIDE, &plain, "router.logits", 3, {normed, weight, logit_bias}, NULL});
  const int bias = bias_of(b);
  const int whole = gather_sequences(b, r.logits);
  ot_op made;
  r.gates = ot_builder_emit(
      b,
      &(ot_op_description){
          OT_OP_ROUTE, &r.attributes, "router.gates", 3, {r.logits, bias, whole}, NULL},
      &made);
  r.experts = made.out[1];
  r.place = ot_builder_emit(
      b,
      &(ot_op_description){
          OT_OP_SORT_BY_EXPERT, &r.attributes, "router.place", 1, {r.experts}, NULL},
      &made);
  r.offsets = made.out[1];
  return r;
}

// ---- this rank's experts ----

// Grouped GEMM: rows times `in` = {weight, bias or -1} of each row's expert.
static int grouped(ot_builder *b, const sorted *s, const char *name, int rows, const int *in) {
  return ot_builder_op(
      b,
      &(ot_op_description){
          OT_OP_GROUPED_LINEAR, &s->attributes, name, 4, {rows, in[0], s->offsets, in[1]}, NULL});
}

static int run_experts(ot_builder *b, const sorted *s) {
  const int wide = grouped(b, s, "experts.wide", s->rows, (int[]){s->up, s->up_bias});
  const ot_module_set before = ot_builder_enter(b, OT_MODULE_MOE_ACT);
  const int active = ot_builder_op(
      b, &(ot_op_description){
             OT_OP_GLU, &s->attributes, "experts.active", 3, {wide, s->gates, s->offsets}, NULL});
  ot_builder_leave(b, before);
  return grouped(b, s, "experts.out", active, (int[]){s->down, -1});
}

// ---- experts of other ranks ----

// Attributes of the all-to-all-v: the expert buffer limits the tokens of one pass.
static ot_op_attributes exchange_attributes(ot_builder *b, const ot_op_attributes *routed_as) {
  const ot_local_shape *const share = ot_share_of(b);
  ot_op_attributes attributes = *routed_as;
  ot_builder_set_group(b, OT_GROUP_EXPERT, &attributes);
  attributes.held_experts = share->experts;
  attributes.exchange_rows = with_capacity_factor(
      (double)ot_route_even_rows(&attributes, share->own_rows), b->graph->request.expert_buffer,
      ot_all_to_all_v_max_rows(&attributes, share->own_rows));
  return attributes;
}

static token_dispatch plan_journey(ot_builder *b, const routed *r) {
  if (ot_share_of(b)->expert_ranks == 1) return (token_dispatch){.counts = -1, .rounds = -1};
  token_dispatch j = {.attributes = exchange_attributes(b, &r->attributes)};
  ot_op plan;
  j.counts = ot_builder_gather_over(b, OT_GROUP_EXPERT, r->offsets, "router.counts_of_all");
  j.home = ot_builder_emit(
      b,
      &(ot_op_description){
          OT_OP_ALL_TO_ALL_V_PLAN, &j.attributes, "experts.home", 1, {j.counts}, NULL},
      &plan);
  j.here = plan.out[1];
  j.offsets = plan.out[2];
  j.rounds = plan.out[3];
  return j;
}

static int exchange(ot_builder *b, const token_dispatch *j, const char *name, int rows) {
  return ot_builder_op(
      b, &(ot_op_description){
             OT_OP_ALL_TO_ALL_V, &j->attributes, name, 3, {rows, j->home, j->here}, NULL});
}

// Expert outputs of the overflow passes, or -1 when the first pass holds all tokens.
static int overflow_passes(ot_builder *b, const routed *r, const token_dispatch *j,
                           const sorted *own, int tokens) {
  const int64_t most = ot_all_to_all_v_max_rows(&j->attributes, ot_share_of(b)->own_rows);
  if (j->attributes.exchange_rows == most) return -1;
  ot_op_attributes attributes = j->attributes;
  ot_decoder_set_activation(b, &attributes);
  return ot_builder_op(
      b, &(ot_op_description){OT_OP_OVERFLOW_PASSES,
                              &attributes,
                              "experts.more",
                              10,
                              {own->rows, own->gates, j->counts, j->rounds, own->up, own->down,
                               tokens, r->gates, r->place, own->up_bias},
                              NULL});
}

// The tokens that this rank's experts receive in the first pass.
static sorted receive(ot_builder *b, const token_dispatch *j, const sorted *own) {
  sorted here = {
      .attributes = j->attributes, .up = own->up, .down = own->down, .up_bias = own->up_bias};
  ot_decoder_set_activation(b, &here.attributes);
  here.rows = exchange(b, j, "experts.here", own->rows);
  here.gates = exchange(b, j, "experts.gates_here", own->gates);
  here.offsets = j->offsets;
  return here;
}

// Returns the expert outputs to their source ranks, added to those of the overflow passes `more`.
static int send_back(ot_builder *b, const token_dispatch *j, int more, int out) {
  return ot_builder_op(b, &(ot_op_description){OT_OP_ALL_TO_ALL_V_BACK,
                                               &j->attributes,
                                               "experts.back",
                                               4,
                                               {more, out, j->home, j->here},
                                               NULL});
}

// ---- the branch ----

static sorted sort_rows(ot_builder *b, const routed *r, int tokens) {
  const ot_model *const model = ot_model_of(b);
  const int64_t E = ot_share_of(b)->experts;
  const int64_t F = ot_share_of(b)->expert_columns;
  ot_op made;
  sorted s = {.attributes = r->attributes, .offsets = r->offsets, .up_bias = -1};
  ot_decoder_set_activation(b, &s.attributes);
  s.rows = ot_builder_emit(b,
                           &(ot_op_description){OT_OP_DISPATCH,
                                                &r->attributes,
                                                "experts.rows",
                                                4,
                                                {tokens, r->gates, r->place, r->offsets},
                                                NULL},
                           &made);
  s.gates = made.out[1];
  s.up = ot_decoder_matrix(b, OT_ROLE_EXPERT_GATE_UP, "experts.gate_up", E * 2 * F,
                           model->hidden_size);
  s.down = ot_decoder_matrix(b, OT_ROLE_EXPERT_DOWN, "experts.down", E * model->hidden_size, F);
  if (model->moe.biases) {
    s.up_bias = ot_decoder_vector(b, OT_ROLE_EXPERT_GATE_UP, "experts.gate_up", "bias", E * 2 * F);
  }
  return s;
}

// x (if present) + `made` times the shared-expert gate of each token of `normed`.
static int gate_shared(ot_builder *b, int normed, int made, int x) {
  const ot_op_attributes attributes = ot_builder_attributes(b);
  const int weight =
      ot_decoder_matrix(b, OT_ROLE_SHARED_GATE, "shared.gate", 1, ot_model_of(b)->hidden_size);
  const int logits = ot_builder_op(
      b, &(ot_op_description){
             OT_OP_LINEAR_WIDE, &attributes, "shared.logits", 2, {normed, weight}, NULL});
  return ot_builder_op(
      b, &(ot_op_description){OT_OP_GATE, &attributes, "shared.gated", 3, {made, logits, x}, NULL});
}

// x (if present) + the down-projection biases of each token's experts.
static int add_biases(ot_builder *b, const routed *r, int x) {
  const ot_model *const model = ot_model_of(b);
  if (!model->moe.biases) return x;
  const int bias = ot_decoder_vector(b, OT_ROLE_EXPERT_DOWN, "experts.down", "bias",
                                     model->moe.num_experts * model->hidden_size);
  return ot_builder_op(b, &(ot_op_description){OT_OP_EXPERT_BIAS,
                                               &r->attributes,
                                               "experts.biased",
                                               4,
                                               {r->gates, r->experts, bias, x},
                                               NULL});
}

// x (if present) + the output of the shared experts for `normed`.
static int add_shared_experts(ot_builder *b, int normed, int x) {
  const ot_model *const model = ot_model_of(b);
  const int64_t F = ot_share_of(b)->shared_columns;
  if (model->moe.shared_size == 0) return x;
  const ot_projection up = {
      OT_ROLE_SHARED_GATE_UP, "shared.gate_up", 2 * F, model->hidden_size, false, -1};
  const bool gated = model->moe.shared_gate;
  const ot_projection down = {OT_ROLE_SHARED_DOWN, "shared.down", model->hidden_size, F, false,
                              gated ? -1 : x};
  ot_op_attributes attributes = ot_builder_attributes(b);
  ot_decoder_set_activation(b, &attributes);
  const ot_module_set before = ot_builder_enter(b, OT_MODULE_SHARED_EXPERTS);
  const int wide = ot_decoder_into(b, normed, &up);
  const int active = ot_builder_op(
      b, &(ot_op_description){OT_OP_GLU, &attributes, "shared.active", 1, {wide}, NULL});
  const int made = ot_decoder_onto(b, active, &down);
  const int y = gated ? gate_shared(b, normed, made, x) : made;
  ot_builder_leave(b, before);
  return y;
}

// Output of routed and shared experts for `normed`, joined to x. The shared experts overlap the
// all-to-all-v.
static int add_experts(ot_builder *b, int normed, int x) {
  const routed r = route(b, normed);
  const token_dispatch j = plan_journey(b, &r);
  const bool travels = j.counts >= 0;
  add_router_losses(b, &r, j.rounds);
  const sorted own = sort_rows(b, &r, normed);
  const int more = travels ? overflow_passes(b, &r, &j, &own, normed) : -1;
  const sorted here = travels ? receive(b, &j, &own) : own;
  const int sum = add_biases(b, &r, add_shared_experts(b, normed, x));
  const int out = run_experts(b, &here);
  const int places = travels ? send_back(b, &j, more, out) : out;
  return ot_builder_op(b, &(ot_op_description){OT_OP_COMBINE,
                                               &r.attributes,
                                               "experts.sum",
                                               5,
                                               {places, -1, r.place, r.offsets, sum},
                                               NULL});
}

int ot_decoder_experts(ot_builder *b, int x, int sum) {
  const int normed = ot_decoder_norm(b, OT_ROLE_MLP_NORM, "mlp_norm", x);
  const ot_module_set before = ot_builder_enter(b, OT_MODULE_MOE);
  const int y = add_experts(b, normed, sum);
  ot_builder_leave(b, before);
  return y;
}
