// SPDX-License-Identifier: Apache-2.0
// The branch of a layer with experts. Each rank routes the rows that it has between tensor-parallel
// regions, and has every expert. Gates multiply before the projection down (ops/activation.h), so
// that what the experts put out is added up and forgotten.
//
//   normed -> router -> route -> order -> dispatch -> gate|up -> glu -> down -> combine -> + x
//        \-> shared experts, an ordinary MLP ------------------------------------------/
//
// Over ep a rank has some of the experts, over etp some columns of each, and it meets the rows of
// all of both: rows, gates and choices are gathered between route and order, and parts of sums go
// back to the ranks whose rows they are. Whatever is chosen fits, because buffers hold all rows,
// and no count has to be exchanged; it moves ep/k times the bytes of an exchange of the chosen rows
// alone.
#include "graph/decoder_parts.h"
#include "ops/route.h"

// What routing hands to those who copy rows.
typedef struct routed {
  ot_op_attributes attributes;
  int gates, place, offsets;
} routed;

// Rows that an expert may have of a sequence of T tokens: its even share of T*k/E, times the
// factor, rounded up.
static int64_t capacity_of(const ot_moe *moe, int64_t T) {
  const double share = (double)T * (double)moe->experts_per_token / (double)moe->num_experts;
  const double wanted = moe->capacity_factor * share;
  const double most = wanted < (double)T ? wanted : (double)T;
  int64_t rows = (int64_t)most;
  if ((double)rows < most) rows++;
  return rows > 0 ? rows : 1;
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
  attributes.aux_coefficient = moe->aux_coefficient;
  attributes.z_coefficient = moe->z_coefficient;
  attributes.num_sequences = b->graph->request.micro_batch_size;
  attributes.first_row = ot_share_of(b)->first_row;
  ot_builder_set_context(b, &attributes);
  if (moe->routing != OT_MOE_DROPLESS) {
    attributes.capacity = capacity_of(moe, attributes.sequence_length);
  }
  return attributes;
}

static int sum_over(ot_builder *b, ot_group_kind group, int ranks, int counts) {
  ot_op_attributes attributes = ot_builder_attributes(b);
  if (ranks == 1) return counts;
  ot_builder_set_group(b, group, &attributes);
  return ot_builder_op(
      b, &(ot_op_description){OT_OP_ALL_REDUCE, &attributes, "router.counts", 1, {counts}, NULL});
}

// Counts of whole sequences from those of own rows.
static int count_sequences(ot_builder *b, int own) {
  const ot_share *const share = ot_share_of(b);
  if (share->expert_view) return sum_over(b, OT_GROUP_SEQUENCE, share->sequence_ranks, own);
  return sum_over(b, OT_GROUP_CONTEXT, share->cp, sum_over(b, OT_GROUP_TENSOR, share->tp, own));
}

// Losses of the router and what is reported of it; both have their gradients from here.
static void judge(ot_builder *b, const ot_op_attributes *attributes, int logits, int experts) {
  if (!ot_builder_trains(b)) return;
  const ot_share *const share = ot_share_of(b);
  ot_op_attributes own_rows = *attributes;
  const bool whole = share->expert_view && share->sequence_ranks == 1;
  if (whole) ot_builder_set_group(b, OT_GROUP_EXPERT, &own_rows);
  const int own = ot_builder_op(
      b, &(ot_op_description){OT_OP_ROUTE_COUNT, &own_rows, "router.own", 1, {experts}, NULL});
  const int counts = count_sequences(b, own);
  const int inverse = ot_builder_scalar(b, OT_SCALAR_INVERSE_SEQUENCES, "inverse_sequences");
  const int out[OT_MAX_OUTPUTS] = {ot_builder_expert_sums(b), -1, -1, -1, -1};
  ot_builder_op(
      b,
      &(ot_op_description){
          OT_OP_ROUTE_LOSS, &own_rows, "router.loss", 4, {logits, experts, counts, inverse}, out});
}

static int bias_of(ot_builder *b) {
  const ot_moe *const moe = &ot_model_of(b)->moe;
  if (moe->balance != OT_MOE_BALANCE_BIAS) return -1;
  return ot_decoder_buffer(b, OT_ROLE_ROUTER, "router", "e_score_correction_bias",
                           moe->num_experts);
}

// Rows of all of ep, and the experts of this rank.
static void meet_all_tokens(ot_builder *b, routed *r, int *experts) {
  const ot_share *const share = ot_share_of(b);
  if (share->expert_ranks == 1) return;
  r->gates = ot_builder_gather_tokens(b, r->gates, "router.all_gates");
  *experts = ot_builder_gather_tokens(b, *experts, "router.all_experts");
  ot_builder_set_group(b, OT_GROUP_EXPERT, &r->attributes);
  r->attributes.held_experts = share->experts;
  r->attributes.first_expert = share->first_expert;
}

static routed route(ot_builder *b, int normed) {
  const ot_model *const model = ot_model_of(b);
  routed r = {.attributes = route_attributes(b)};
  const ot_op_attributes plain = ot_builder_attributes(b);
  const int weight =
      ot_decoder_matrix(b, OT_ROLE_ROUTER, "router", model->moe.num_experts, model->hidden_size);
  const int logits = ot_builder_op(
      b,
      &(ot_op_description){OT_OP_LINEAR_WIDE, &plain, "router.logits", 2, {normed, weight}, NULL});
  const int bias = bias_of(b);
  ot_op made;
  r.gates = ot_builder_emit(
      b, &(ot_op_description){OT_OP_ROUTE, &r.attributes, "router.gates", 2, {logits, bias}, NULL},
      &made);
  int experts = made.out[1];
  judge(b, &r.attributes, logits, experts);
  meet_all_tokens(b, &r, &experts);
  r.place = ot_builder_emit(
      b, &(ot_op_description){OT_OP_ROUTE_ORDER, &r.attributes, "router.place", 1, {experts}, NULL},
      &made);
  r.offsets = made.out[1];
  return r;
}

static int grouped(ot_builder *b, const routed *r, const char *name, int rows, int weight) {
  return ot_builder_op(
      b, &(ot_op_description){
             OT_OP_GROUPED_LINEAR, &r->attributes, name, 3, {rows, weight, r->offsets}, NULL});
}

// x, where there is one, + the sums of `rows` that belong to each token.
static int come_home(ot_builder *b, const routed *r, int rows, int x) {
  const bool alone = ot_share_of(b)->expert_ranks == 1;
  const ot_op_attributes plain = ot_builder_attributes(b);
  const int sum =
      ot_builder_op(b, &(ot_op_description){OT_OP_COMBINE,
                                            &r->attributes,
                                            "experts.sum",
                                            5,
                                            {rows, -1, r->place, r->offsets, alone ? x : -1},
                                            NULL});
  if (alone) return sum;
  const int own = ot_builder_return_tokens(b, sum, "experts.own");
  if (x < 0) return own;
  return ot_builder_op(
      b, &(ot_op_description){OT_OP_ADD, &plain, "experts.joined", 2, {own, x}, NULL});
}

// x + what the experts of each token make of `normed`.
static int meet_experts(ot_builder *b, int normed, int x) {
  const ot_model *const model = ot_model_of(b);
  const int64_t E = ot_share_of(b)->experts;
  const int64_t F = ot_share_of(b)->expert_columns;
  const routed r = route(b, normed);
  const int tokens = ot_builder_gather_tokens(b, normed, "experts.tokens");
  ot_op made;
  const int rows = ot_builder_emit(b,
                                   &(ot_op_description){OT_OP_DISPATCH,
                                                        &r.attributes,
                                                        "experts.rows",
                                                        4,
                                                        {tokens, r.gates, r.place, r.offsets},
                                                        NULL},
                                   &made);
  const int row_gates = made.out[1];
  const int up = ot_decoder_matrix(b, OT_ROLE_EXPERT_GATE_UP, "experts.gate_up", E * 2 * F,
                                   model->hidden_size);
  const int wide = grouped(b, &r, "experts.wide", rows, up);
  ot_op_attributes attributes = ot_builder_attributes(b);
  attributes.activation = model->activation;
  const int active = ot_builder_op(
      b,
      &(ot_op_description){OT_OP_GLU, &attributes, "experts.active", 2, {wide, row_gates}, NULL});
  const int down =
      ot_decoder_matrix(b, OT_ROLE_EXPERT_DOWN, "experts.down", E * model->hidden_size, F);
  const int out = grouped(b, &r, "experts.out", active, down);
  return come_home(b, &r, out, x);
}

// x + what the shared experts make of `normed`.
static int meet_shared(ot_builder *b, int normed, int x) {
  const ot_model *const model = ot_model_of(b);
  const int64_t F = ot_share_of(b)->shared_columns;
  if (model->moe.shared_size == 0) return x;
  const ot_projection up = {
      OT_ROLE_SHARED_GATE_UP, "shared.gate_up", 2 * F, model->hidden_size, false, -1};
  const ot_projection down = {OT_ROLE_SHARED_DOWN, "shared.down", model->hidden_size, F, false, x};
  ot_op_attributes attributes = ot_builder_attributes(b);
  attributes.activation = model->activation;
  const int wide = ot_decoder_into(b, normed, &up);
  const int active = ot_builder_op(
      b, &(ot_op_description){OT_OP_GLU, &attributes, "shared.active", 1, {wide}, NULL});
  return ot_decoder_onto(b, active, &down);
}

int ot_decoder_experts(ot_builder *b, int x, int sum) {
  const int normed = ot_decoder_norm(b, OT_ROLE_MLP_NORM, "mlp_norm", x);
  return meet_experts(b, normed, meet_shared(b, normed, sum));
}
