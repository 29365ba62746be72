// SPDX-License-Identifier: Apache-2.0
// The transformer block as ops. Biases and residual sums ride on the matrix products where nothing
// stands between them.
#include "graph/decoder.h"

#include "base/math.h"
#include "base/text.h"
#include "graph/differentiate.h"
#include "graph/hf_names.h"
#include "ops/operands.h"

static const ot_model *model_of(const ot_builder *b) { return b->graph->request.model; }

static bool training(const ot_builder *b) { return b->graph->request.mode == OT_MODE_TRAIN; }

static int64_t rows_of(const ot_builder *b) {
  return b->graph->request.micro_batch_size * b->graph->request.sequence_length;
}

// ---- parameters ----

static int parameter(ot_builder *b, ot_role role, const char *name, const char *suffix,
                     ot_parameter made) {
  made.name = ot_arena_format(b->arena, "%s.%s", name, suffix);
  made.tied_to = -1;
  const ot_hf_request request = {model_of(b), role, b->block->layer, suffix};
  ot_hf_parts(&request, b->arena, &made);
  return ot_builder_parameter(b, &made);
}

// GPT-2 scales the projections that end on the residual stream by 1/sqrt(2L) (Radford et al. 2019).
static double initial_std(const ot_builder *b, ot_role role) {
  const ot_model *const model = model_of(b);
  const bool onto_residual = role == OT_ROLE_ATTENTION_OUTPUT || role == OT_ROLE_DOWN;
  const bool scaled = model->family == OT_FAMILY_GPT2 && onto_residual;
  return model->initializer_range / (scaled ? ot_sqrt(2.0 * (double)model->num_layers) : 1.0);
}

static int matrix(ot_builder *b, ot_role role, const char *name, int64_t rows, int64_t cols) {
  const ot_parameter made = {.rank = 2,
                             .rows = rows,
                             .cols = cols,
                             .kind = OT_PARAMETER_MATRIX,
                             .initial = OT_INITIAL_NORMAL,
                             .initial_std = initial_std(b, role)};
  return parameter(b, role, name, "weight", made);
}

static int table(ot_builder *b, ot_role role, const char *name, int64_t rows) {
  const ot_parameter made = {.rank = 2,
                             .rows = rows,
                             .cols = model_of(b)->hidden_size,
                             .kind = OT_PARAMETER_EMBEDDING,
                             .initial = OT_INITIAL_NORMAL,
                             .initial_std = model_of(b)->initializer_range};
  return parameter(b, role, name, "weight", made);
}

static int vector(ot_builder *b, ot_role role, const char *name, const char *suffix, int64_t rows) {
  const bool weight = ot_text_equal(suffix, "weight");
  const bool ones = weight && model_of(b)->norm_offset == 0;
  const ot_parameter made = {.rank = 1,
                             .rows = rows,
                             .cols = 1,
                             .kind = OT_PARAMETER_VECTOR,
                             .initial = ones ? OT_INITIAL_ONE : OT_INITIAL_ZERO};
  return parameter(b, role, name, suffix, made);
}

// ---- pieces ----

static int norm(ot_builder *b, ot_role role, const char *name, int x) {
  const ot_model *const model = model_of(b);
  ot_op_attributes attributes = ot_builder_attributes(b);
  attributes.epsilon = model->norm_epsilon;
  attributes.norm_offset = model->norm_offset;
  const int weight = vector(b, role, name, "weight", model->hidden_size);
  const char *const output = ot_arena_format(b->arena, "%s.out", name);
  if (model->norm == OT_NORM_RMSNORM) {
    return ot_builder_op(
        b, &(ot_op_description){OT_OP_RMSNORM, &attributes, output, 2, {x, weight}, NULL});
  }
  const int bias = vector(b, role, name, "bias", model->hidden_size);
  return ot_builder_op(
      b, &(ot_op_description){OT_OP_LAYERNORM, &attributes, output, 3, {x, weight, bias}, NULL});
}

typedef struct projection {
  ot_role role;
  const char *name;
  int64_t rows, cols;
  bool bias;
  int residual;  // value added to the product, or -1
} projection;

static int linear(ot_builder *b, int x, const projection *p) {
  const ot_op_attributes attributes = ot_builder_attributes(b);
  const int weight = matrix(b, p->role, p->name, p->rows, p->cols);
  const int bias = p->bias ? vector(b, p->role, p->name, "bias", p->rows) : -1;
  return ot_builder_op(b, &(ot_op_description){OT_OP_LINEAR,
                                               &attributes,
                                               ot_arena_format(b->arena, "%s.out", p->name),
                                               4,
                                               {x, weight, bias, p->residual},
                                               NULL});
}

static uint64_t stream_of(const ot_builder *b, const char *name) {
  return ot_hash_text(ot_hash_text(OT_HASH_START, b->block->name), name);
}

static int dropout(ot_builder *b, const char *name, int x, double probability) {
  if (probability == 0 || !training(b)) return x;
  ot_op_attributes attributes = ot_builder_attributes(b);
  attributes.dropout = probability;
  attributes.seed = b->graph->request.seed;
  attributes.rng_stream = stream_of(b, name);
  const int samples = ot_builder_batch(b, OT_BATCH_SAMPLE_IDS);
  return ot_builder_op(b, &(ot_op_description){OT_OP_DROPOUT,
                                               &attributes,
                                               ot_arena_format(b->arena, "%s.dropped", name),
                                               2,
                                               {x, samples},
                                               NULL});
}

// A branch's last projection joined to the residual stream `x`: in one op where nothing stands
// between, else projection, norm, dropout, sum.
static int join(ot_builder *b, int branch, int x, projection p, ot_role post_norm) {
  const ot_model *const model = model_of(b);
  const bool post = model->norm_placement != OT_NORM_PRE;
  const bool drops = model->residual_dropout > 0 && training(b);
  p.residual = post || drops ? -1 : x;
  int y = linear(b, branch, &p);
  if (p.residual >= 0) return y;
  const char *const norm_name = ot_arena_format(b->arena, "%s_post_norm", p.name);
  if (post) y = norm(b, post_norm, norm_name, y);
  y = dropout(b, p.name, y, model->residual_dropout);
  const ot_op_attributes attributes = ot_builder_attributes(b);
  return ot_builder_op(
      b, &(ot_op_description){
             OT_OP_ADD, &attributes, ot_arena_format(b->arena, "%s.sum", p.name), 2, {y, x}, NULL});
}

// ---- attention ----

static ot_op_attributes head_attributes(const ot_builder *b) {
  const ot_model *const model = model_of(b);
  ot_op_attributes attributes = ot_builder_attributes(b);
  attributes.num_heads = model->num_heads;
  attributes.num_kv_heads = model->num_kv_heads;
  attributes.head_dim = model->head_dim;
  return attributes;
}

static int qk_norm(ot_builder *b, int qkv) {
  const ot_model *const model = model_of(b);
  if (model->qk_norm == OT_QK_NORM_NONE) return qkv;
  const bool per_head = model->qk_norm == OT_QK_NORM_HEAD;
  const int64_t D = model->head_dim;
  const int q =
      vector(b, OT_ROLE_Q_NORM, "attention.q_norm", "weight", per_head ? D : model->num_heads * D);
  const int k = vector(b, OT_ROLE_K_NORM, "attention.k_norm", "weight",
                       per_head ? D : model->num_kv_heads * D);
  ot_op_attributes attributes = head_attributes(b);
  attributes.epsilon = model->norm_epsilon;
  attributes.norm_offset = model->norm_offset;
  attributes.norm_width = per_head ? D : 0;
  return ot_builder_op(
      b,
      &(ot_op_description){OT_OP_HEAD_NORM, &attributes, "attention.normed", 3, {qkv, q, k}, NULL});
}

static int rope(ot_builder *b, int layer, int qkv) {
  const ot_model *const model = model_of(b);
  if (model->rotary_dim == 0) return qkv;
  // With one rope for all layers there is one table.
  const int constant = model->window[layer] > 0 ? b->graph->num_constants - 1 : 0;
  const int cos_sin = ot_builder_external(b, OT_VALUE_CONSTANT, constant, "rope",
                                          b->graph->constants[constant].type);
  ot_op_attributes attributes = head_attributes(b);
  attributes.rotary_dim = model->rotary_dim;
  const int positions = ot_builder_batch(b, OT_BATCH_POSITIONS);
  return ot_builder_op(
      b, &(ot_op_description){
             OT_OP_ROPE, &attributes, "attention.rotated", 3, {qkv, positions, cos_sin}, NULL});
}

static void append_to_cache(ot_builder *b, int qkv, int *cache) {
  const ot_model *const model = model_of(b);
  const ot_graph_request *const request = &b->graph->request;
  const ot_tensor_type type = {
      .dtype = request->storage,
      .rank = 3,
      .dim = {request->micro_batch_size, request->cache_positions,
              2 * model->num_kv_heads * model->head_dim},
  };
  *cache = ot_builder_external(b, OT_VALUE_CACHE, 0, "cache", type);
  const ot_op_attributes attributes = head_attributes(b);
  int out[OT_MAX_OUTPUTS] = {*cache, -1, -1, -1, -1};
  ot_builder_op(b, &(ot_op_description){OT_OP_APPEND_KV,
                                        &attributes,
                                        "cache",
                                        2,
                                        {qkv, ot_builder_batch(b, OT_BATCH_LENGTHS)},
                                        out});
}

static int max_logit(ot_builder *b) {
  if (!training(b)) return -1;
  const ot_tensor_type one = ot_type_vector(OT_F64, 1);
  return ot_builder_external(b, OT_VALUE_STATISTIC, OT_STATISTIC_MAX_LOGIT, "max_logit", one);
}

static int attend(ot_builder *b, int layer, int qkv) {
  const ot_model *const model = model_of(b);
  const ot_mode mode = b->graph->request.mode;
  ot_op_attributes attributes = head_attributes(b);
  attributes.window = model->window[layer];
  attributes.scale = model->attention_scale;
  int cache = -1;
  if (mode == OT_MODE_PREFILL || mode == OT_MODE_DECODE) append_to_cache(b, qkv, &cache);
  if (mode == OT_MODE_DECODE) {
    const int lengths = ot_builder_batch(b, OT_BATCH_LENGTHS);
    return ot_builder_op(b, &(ot_op_description){OT_OP_ATTENTION_DECODE,
                                                 &attributes,
                                                 "attention.heads",
                                                 3,
                                                 {qkv, cache, lengths},
                                                 NULL});
  }
  if (training(b) && model->attention_dropout > 0) {
    attributes.dropout = model->attention_dropout;
    attributes.seed = b->graph->request.seed;
    attributes.rng_stream = stream_of(b, "attention");
  }
  const int out[OT_MAX_OUTPUTS] = {-1, -1, max_logit(b), -1, -1};
  const int in[] = {qkv, ot_builder_batch(b, OT_BATCH_DOC_STARTS),
                    ot_builder_batch(b, OT_BATCH_SAMPLE_IDS)};
  return ot_builder_op(
      b, &(ot_op_description){
             OT_OP_ATTENTION, &attributes, "attention.heads", 3, {in[0], in[1], in[2]}, out});
}

static int attention(ot_builder *b, int layer, int x) {
  const ot_model *const model = model_of(b);
  const int64_t q_width = model->num_heads * model->head_dim;
  const int64_t kv_width = model->num_kv_heads * model->head_dim;
  const int normed = model->norm_placement == OT_NORM_POST
                         ? x
                         : norm(b, OT_ROLE_ATTENTION_NORM, "attention_norm", x);
  const projection qkv = {OT_ROLE_QKV,        "attention.qkv", q_width + 2 * kv_width,
                          model->hidden_size, model->qkv_bias, -1};
  const int packed = rope(b, layer, qk_norm(b, linear(b, normed, &qkv)));
  const projection output = {OT_ROLE_ATTENTION_OUTPUT, "attention.output",
                             model->hidden_size,       q_width,
                             model->output_bias,       -1};
  return join(b, attend(b, layer, packed), x, output, OT_ROLE_ATTENTION_POST_NORM);
}

// ---- MLP ----

static int mlp(ot_builder *b, int x) {
  const ot_model *const model = model_of(b);
  const int64_t F = model->intermediate_size;
  const int normed =
      model->norm_placement == OT_NORM_POST ? x : norm(b, OT_ROLE_MLP_NORM, "mlp_norm", x);
  const projection up = {OT_ROLE_GATE_UP,
                         model->gated_mlp ? "mlp.gate_up" : "mlp.up",
                         model->gated_mlp ? 2 * F : F,
                         model->hidden_size,
                         model->mlp_bias,
                         -1};
  const int wide = linear(b, normed, &up);
  ot_op_attributes attributes = ot_builder_attributes(b);
  attributes.activation = model->activation;
  const ot_op_kind kind = model->gated_mlp ? OT_OP_GLU : OT_OP_ACTIVATION;
  const int active =
      ot_builder_op(b, &(ot_op_description){kind, &attributes, "mlp.active", 1, {wide}, NULL});
  const projection down = {OT_ROLE_DOWN, "mlp.down", model->hidden_size, F, model->mlp_bias, -1};
  return join(b, active, x, down, OT_ROLE_MLP_POST_NORM);
}

// ---- blocks ----

static ot_tensor_type hidden_type(const ot_builder *b) {
  return (ot_tensor_type){
      .dtype = b->graph->request.storage, .rank = 2, .dim = {rows_of(b), model_of(b)->hidden_size}};
}

// The largest |x| that leaves the block, for the health metrics of training.
static void watch(ot_builder *b, int x) {
  if (!training(b)) return;
  const ot_tensor_type one = ot_type_vector(OT_F64, 1);
  const int statistic = ot_builder_external(b, OT_VALUE_STATISTIC, OT_STATISTIC_MAX_ACTIVATION,
                                            "max_activation", one);
  const ot_op_attributes attributes = ot_builder_attributes(b);
  const int out[OT_MAX_OUTPUTS] = {statistic, -1, -1, -1, -1};
  ot_builder_op(b, &(ot_op_description){OT_OP_ABSMAX, &attributes, "max_activation", 1, {x}, out});
}

static int block_input(ot_builder *b) {
  b->program->input = ot_builder_external(b, OT_VALUE_INPUT, 0, "x", hidden_type(b));
  return b->program->input;
}

void ot_decoder_embedding(ot_builder *b) {
  const ot_model *const model = model_of(b);
  ot_op_attributes attributes = ot_builder_attributes(b);
  attributes.scale = model->embedding_scale == 1 ? 0 : model->embedding_scale;
  int in[] = {ot_builder_batch(b, OT_BATCH_TOKENS),
              table(b, OT_ROLE_EMBEDDING, "tokens", model->vocab_size), -1, -1};
  if (model->learned_positions) {
    in[2] = ot_builder_batch(b, OT_BATCH_POSITIONS);
    in[3] = table(b, OT_ROLE_POSITIONS, "positions", model->max_positions);
  }
  const int y = ot_builder_op(
      b, &(ot_op_description){
             OT_OP_EMBEDDING, &attributes, "embedded", 4, {in[0], in[1], in[2], in[3]}, NULL});
  b->program->output = dropout(b, "embedding", y, model->embedding_dropout);
  watch(b, b->program->output);
}

void ot_decoder_layer(ot_builder *b, int layer) {
  const int x = block_input(b);
  b->program->output = mlp(b, attention(b, layer, x));
  watch(b, b->program->output);
}

// The head's weight: its own, or a use of the embedding with an accumulator of its own.
static int head_weight(ot_builder *b, int embedding_parameter) {
  const ot_model *const model = model_of(b);
  if (!model->tie_word_embeddings) return table(b, OT_ROLE_HEAD, "output", model->vocab_size);
  const ot_parameter tied = {.name = "output.weight",
                             .rank = 2,
                             .rows = model->vocab_size,
                             .cols = model->hidden_size,
                             .kind = OT_PARAMETER_EMBEDDING,
                             .tied_to = embedding_parameter};
  return ot_builder_parameter(b, &tied);
}

static void loss(ot_builder *b, const ot_op_attributes *attributes, int x, int weight) {
  const int accumulator =
      ot_program_accumulator(b->program, b->arena, weight, b->graph->request.compute);
  const int in[] = {x, weight, ot_builder_batch(b, OT_BATCH_TARGETS),
                    ot_builder_scalar(b, OT_SCALAR_INVERSE_TOKENS, "inverse_tokens")};
  const int out[OT_MAX_OUTPUTS] = {-1, accumulator, ot_builder_scalar(b, OT_SCALAR_LOSS, "loss"),
                                   -1, -1};
  ot_builder_op(b,
                &(ot_op_description){
                    OT_OP_HEAD_LOSS, attributes, "d_final", 4, {in[0], in[1], in[2], in[3]}, out});
}

static void evaluate(ot_builder *b, const ot_op_attributes *attributes, int x, int weight) {
  const int in[] = {x, weight, ot_builder_batch(b, OT_BATCH_TARGETS)};
  const int out[OT_MAX_OUTPUTS] = {
      ot_builder_scalar(b, OT_SCALAR_EVALUATE_LOSS, "evaluate_loss"),
      ot_builder_scalar(b, OT_SCALAR_EVALUATE_TOKENS, "evaluate_tokens"), -1, -1, -1};
  ot_builder_op(b, &(ot_op_description){
                       OT_OP_HEAD_EVALUATE, attributes, "evaluate", 3, {in[0], in[1], in[2]}, out});
}

static void score(ot_builder *b, const ot_op_attributes *attributes, int x, int weight) {
  const ot_tensor_type real = {.dtype = OT_F64, .rank = 1, .dim = {rows_of(b)}};
  const ot_tensor_type token = {.dtype = OT_I32, .rank = 1, .dim = {rows_of(b)}};
  const int in[] = {x, weight, ot_builder_batch(b, OT_BATCH_TARGETS)};
  const int out[OT_MAX_OUTPUTS] = {
      ot_builder_external(b, OT_VALUE_RESULT, OT_RESULT_LOGPROBS, "logprobs", real),
      ot_builder_external(b, OT_VALUE_RESULT, OT_RESULT_GREEDY, "greedy", token), -1, -1, -1};
  ot_builder_op(b, &(ot_op_description){
                       OT_OP_HEAD_SCORE, attributes, "score", 3, {in[0], in[1], in[2]}, out});
}

static void logits(ot_builder *b, const ot_op_attributes *attributes, int x, int weight) {
  const ot_tensor_type type = {
      .dtype = b->graph->request.compute, .rank = 2, .dim = {rows_of(b), model_of(b)->vocab_size}};
  const int out[OT_MAX_OUTPUTS] = {
      ot_builder_external(b, OT_VALUE_RESULT, OT_RESULT_LOGITS, "logits", type), -1, -1, -1, -1};
  ot_builder_op(b,
                &(ot_op_description){OT_OP_HEAD_LOGITS, attributes, "logits", 2, {x, weight}, out});
}

void ot_decoder_head(ot_builder *b, int embedding_parameter) {
  const int x = norm(b, OT_ROLE_FINAL_NORM, "final_norm", block_input(b));
  const int weight = head_weight(b, embedding_parameter);
  ot_op_attributes attributes = ot_builder_attributes(b);
  attributes.chunk_rows = b->graph->request.head_chunk_rows;
  switch (b->graph->request.mode) {
    case OT_MODE_TRAIN:
      loss(b, &attributes, x, weight);
      return;
    case OT_MODE_EVALUATE:
      evaluate(b, &attributes, x, weight);
      return;
    case OT_MODE_SCORE:
      score(b, &attributes, x, weight);
      return;
    case OT_MODE_PREFILL:
      return;
    case OT_MODE_LOGITS:
    case OT_MODE_DECODE:
      logits(b, &attributes, x, weight);
      return;
    case OT_MODES:
      break;
  }
  OT_UNREACHABLE();
}
