// SPDX-License-Identifier: Apache-2.0
// Parameters, norms, projections and dropout with tp sharding. A projection into a tensor-parallel
// region all-gathers tokens and is column-parallel; one onto the residual stream is row-parallel
// with a reduce-scatter, and each rank runs the following ops on its own tokens (Korthikanti et al.
// 2022). On one rank, biases and residual additions are fused into the GEMMs.
#include "graph/decoder_parts.h"

#include "base/math.h"
#include "base/text.h"
#include "graph/parametrize.h"

bool ot_builder_trains(const ot_builder *b) { return b->graph->request.mode == OT_MODE_TRAIN; }

// ---- parameters ----

static int parameter(ot_builder *b, ot_role role, const char *name, const char *suffix,
                     ot_parameter made) {
  made.name = ot_arena_format(b->arena, "%s.%s", name, suffix);
  made.tied_to = -1;
  const ot_hf_request request = {.model = ot_model_of(b),
                                 .share = ot_share_of(b),
                                 .role = role,
                                 .layer = b->block->layer,
                                 .suffix = suffix};
  ot_hf_parts(&request, b->arena, &made);
  ot_parametrize(&b->graph->request, role, &made);
  return ot_builder_parameter(b, &made, ot_role_shard_axis(role, made.rank == 1));
}

// GPT-2 scales the projections that write to the residual stream by 1/sqrt(2L) (Radford et al.
// 2019).
static double initial_std(const ot_builder *b, ot_role role) {
  const ot_model *const model = ot_model_of(b);
  const bool onto_residual = role == OT_ROLE_ATTENTION_OUTPUT || role == OT_ROLE_DOWN;
  const bool scaled = ot_family_row_of(model->family)->scaled_residuals && onto_residual;
  const double layers = (double)ot_parametrization_layers(&b->graph->request);
  return model->initializer_range / (scaled ? ot_sqrt(2 * layers) : 1);
}

int ot_decoder_matrix(ot_builder *b, ot_role role, const char *name, int64_t rows, int64_t cols) {
  const ot_parameter made = {.rank = 2,
                             .rows = rows,
                             .cols = cols,
                             .kind = OT_PARAMETER_MATRIX,
                             .initial = OT_INITIAL_NORMAL,
                             .initial_std = initial_std(b, role)};
  return parameter(b, role, name, "weight", made);
}

int ot_decoder_table(ot_builder *b, ot_role role, const char *name, int64_t rows) {
  const ot_parameter made = {.rank = 2,
                             .rows = rows,
                             .cols = ot_model_of(b)->hidden_size,
                             .kind = OT_PARAMETER_EMBEDDING,
                             .initial = OT_INITIAL_NORMAL,
                             .initial_std = ot_model_of(b)->initializer_range};
  return parameter(b, role, name, "weight", made);
}

int ot_decoder_vector(ot_builder *b, ot_role role, const char *name, const char *suffix,
                      int64_t rows) {
  const bool gain = ot_text_equal(suffix, "weight");
  const ot_parameter made = {.rank = 1,
                             .rows = rows,
                             .cols = 1,
                             .kind = OT_PARAMETER_VECTOR,
                             .initial = gain ? OT_INITIAL_GAIN : OT_INITIAL_ZERO};
  return parameter(b, role, name, suffix, made);
}

int ot_decoder_query(ot_builder *b, ot_role role, const char *name) {
  const ot_parameter made = {.rank = 1,
                             .rows = ot_model_of(b)->hidden_size,
                             .cols = 1,
                             .kind = OT_PARAMETER_VECTOR,
                             .initial = OT_INITIAL_ZERO};
  return parameter(b, role, name, "weight", made);
}

int ot_decoder_buffer(ot_builder *b, ot_role role, const char *name, const char *suffix,
                      int64_t rows) {
  const ot_parameter made = {
      .rank = 1, .rows = rows, .cols = 1, .kind = OT_PARAMETER_BUFFER, .initial = OT_INITIAL_ZERO};
  return parameter(b, role, name, suffix, made);
}

// ---- norm and dropout ----

int ot_decoder_norm(ot_builder *b, ot_role role, const char *name, int x) {
  const ot_model *const model = ot_model_of(b);
  ot_op_attributes attributes = ot_builder_attributes(b);
  attributes.epsilon = model->norm_epsilon;
  attributes.norm_offset = model->norm_offset;
  const int weight = ot_decoder_vector(b, role, name, "weight", model->hidden_size);
  const char *const output = ot_arena_format(b->arena, "%s.out", name);
  const bool rms = model->norm == OT_NORM_RMSNORM;
  const int bias = rms ? -1 : ot_decoder_vector(b, role, name, "bias", model->hidden_size);
  const ot_module_set before = ot_builder_enter(b, OT_MODULE_LAYERNORM);
  const int y = ot_builder_op(b, &(ot_op_description){rms ? OT_OP_RMSNORM : OT_OP_LAYERNORM,
                                                      &attributes,
                                                      output,
                                                      rms ? 2 : 3,
                                                      {x, weight, bias},
                                                      NULL});
  ot_builder_leave(b, before);
  return y;
}

void ot_decoder_set_activation(const ot_builder *b, ot_op_attributes *attributes) {
  const ot_model *const model = ot_model_of(b);
  attributes->activation = model->activation;
  attributes->glu_alpha = model->glu_alpha;
  attributes->glu_limit = model->glu_limit;
}

uint64_t ot_decoder_rng_stream(const ot_builder *b, const char *name) {
  return ot_hash_text(ot_hash_text(OT_HASH_START, b->block->name), name);
}

int ot_decoder_dropout(ot_builder *b, const char *name, int x, double probability) {
  if (probability == 0 || !ot_builder_trains(b)) return x;
  const ot_local_shape *const share = ot_share_of(b);
  ot_op_attributes attributes = ot_builder_attributes(b);
  attributes.dropout = probability;
  attributes.seed = b->graph->request.seed;
  attributes.rng_stream = ot_decoder_rng_stream(b, name);
  attributes.first_row = share->first_row;
  ot_builder_set_context(b, &attributes);
  const int samples = ot_builder_batch(b, OT_BATCH_SAMPLE_IDS);
  return ot_builder_op(b, &(ot_op_description){OT_OP_DROPOUT,
                                               &attributes,
                                               ot_arena_format(b->arena, "%s.dropped", name),
                                               2,
                                               {x, samples},
                                               NULL});
}

// ---- projections ----

static const char *made_of(ot_builder *b, const ot_projection *p, const char *what) {
  return ot_arena_format(b->arena, "%s.%s", p->name, what);
}

// x times the weight of `p`, plus `bias` and `residual` where given.
static int multiply(ot_builder *b, const char *name, const int in[4]) {
  const ot_op_attributes attributes = ot_builder_attributes(b);
  return ot_builder_op(
      b,
      &(ot_op_description){OT_OP_LINEAR, &attributes, name, 4, {in[0], in[1], in[2], in[3]}, NULL});
}

int ot_decoder_into(ot_builder *b, int x, const ot_projection *p) {
  const int rows = ot_builder_gather(b, x, made_of(b, p, "in"));
  const int weight = ot_decoder_matrix(b, p->role, p->name, p->rows, p->cols);
  const int bias = p->bias ? ot_decoder_vector(b, p->role, p->name, "bias", p->rows) : -1;
  return multiply(b, made_of(b, p, "out"), (int[]){rows, weight, bias, -1});
}

// Adds bias and residual after the reduction, once, on the rank that holds the tokens.
static int add_after_sum(ot_builder *b, const ot_projection *p, int sum, int bias) {
  const ot_op_attributes attributes = ot_builder_attributes(b);
  if (bias < 0 && p->residual < 0) return sum;
  return ot_builder_op(
      b, &(ot_op_description){
             OT_OP_BIAS, &attributes, made_of(b, p, "out"), 3, {sum, bias, p->residual}, NULL});
}

int ot_decoder_onto(ot_builder *b, int x, const ot_projection *p) {
  const bool alone = ot_share_of(b)->tp == 1;
  const int weight = ot_decoder_matrix(b, p->role, p->name, p->rows, p->cols);
  const int bias = p->bias ? ot_decoder_vector(b, p->role, p->name, "bias", p->rows) : -1;
  if (alone) return multiply(b, made_of(b, p, "out"), (int[]){x, weight, bias, p->residual});
  const int part = multiply(b, made_of(b, p, "part"), (int[]){x, weight, -1, -1});
  return add_after_sum(b, p, ot_builder_scatter(b, part, made_of(b, p, "rows")), bias);
}

int ot_decoder_join(ot_builder *b, int branch, int x, ot_projection p, ot_role post_norm) {
  const ot_model *const model = ot_model_of(b);
  const bool post = model->norm_placement != OT_NORM_PRE;
  const bool drops = model->residual_dropout > 0 && ot_builder_trains(b);
  p.residual = post || drops ? -1 : x;
  int y = ot_decoder_onto(b, branch, &p);
  if (!post && !drops) return y;
  const char *const norm_name = ot_arena_format(b->arena, "%s_post_norm", p.name);
  if (post) y = ot_decoder_norm(b, post_norm, norm_name, y);
  y = ot_decoder_dropout(b, p.name, y, model->residual_dropout);
  if (x < 0) return y;
  const ot_op_attributes attributes = ot_builder_attributes(b);
  return ot_builder_op(
      b, &(ot_op_description){OT_OP_ADD, &attributes, made_of(b, &p, "sum"), 2, {y, x}, NULL});
}
