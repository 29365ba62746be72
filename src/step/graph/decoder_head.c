// SPDX-License-Identifier: Apache-2.0
// The head in each mode. With a vocabulary sharded over tp, the ranks all-gather three statistics
// per token of a chunk (ops/head_parts.h); otherwise one op does everything (ops/head.h).
#include "graph/decoder.h"
#include "graph/decoder_parts.h"
#include "graph/differentiate.h"
#include "ops/head.h"
#include "ops/head_parts.h"
#include "ops/operands.h"

// Operands of the final projection.
typedef struct head {
  int x;       // [R, C] normalised
  int weight;  // [V, C]
  ot_op_attributes attributes;
} head;

// The head's weight: its own, or a tied use of the embedding with its own accumulator.
static int head_weight(ot_builder *b, int embedding_parameter) {
  const ot_model *const model = ot_model_of(b);
  const int64_t rows = ot_share_of(b)->vocab;
  if (!model->tie_word_embeddings) return ot_decoder_table(b, OT_ROLE_HEAD, "output", rows);
  const ot_parameter tied = {.name = "output.weight",
                             .rank = 2,
                             .rows = rows,
                             .cols = model->hidden_size,
                             .kind = OT_PARAMETER_EMBEDDING,
                             .tied_to = embedding_parameter};
  return ot_builder_parameter(b, &tied, ot_role_shard_axis(OT_ROLE_HEAD, false));
}

static int weight_accumulator(ot_builder *b, const head *h) {
  const ot_dtype gradients = ot_graph_gradient_type(&b->graph->request);
  return ot_program_accumulator(b->program, b->arena, h->weight, gradients);
}

// The values for the next tokens: the data's targets and, in training with weighted ones, their ids
// and weights; else -1.
typedef struct targets {
  int data, ids, weights;
} targets;

static bool is_weighted(const ot_builder *b) {
  return ot_builder_trains(b) && b->graph->request.weighted_targets > 0;
}

static targets targets_of(ot_builder *b) {
  const bool weighted = is_weighted(b);
  return (targets){.data = ot_builder_batch(b, OT_BATCH_TARGETS),
                   .ids = weighted ? ot_builder_batch(b, OT_BATCH_IDS) : -1,
                   .weights = weighted ? ot_builder_batch(b, OT_BATCH_WEIGHTS) : -1};
}

// The sum of nats of the data's targets, next to a loss of weighted ones; or -1.
static int data_loss(ot_builder *b) {
  return is_weighted(b) ? ot_builder_sum(b, OT_SCALAR_EVALUATE_LOSS, "data_loss") : -1;
}

// ---- sharded vocabulary ----

// Name with the index of the current chunk.
static const char *chunk_name(ot_builder *b, const head *h, const char *name) {
  return ot_arena_format(b->arena, "%s.%lld", name, (long long)h->attributes.first_row);
}

// The values of the chunk in the attributes: e and pulls of this rank, and the statistics of all
// ranks.
typedef struct chunk_values {
  int e, all, pulls;
} chunk_values;

static chunk_values chunk_statistics(ot_builder *b, const head *h) {
  const targets to = targets_of(b);
  const ot_op_description description = {OT_OP_HEAD_STATISTICS,
                                         &h->attributes,
                                         chunk_name(b, h, "exponentials"),
                                         5,
                                         {h->x, h->weight, to.data, to.ids, to.weights},
                                         NULL};
  ot_op made;
  ot_builder_emit(b, &description, &made);
  return (chunk_values){.e = made.out[0],
                        .all = ot_builder_gather(b, made.out[1], chunk_name(b, h, "statistics")),
                        .pulls = made.out[2]};
}

// The gradient of x after one more chunk.
static int chunk_loss(ot_builder *b, const head *h, int dx_before, bool last) {
  const chunk_values chunk = chunk_statistics(b, h);
  const targets to = targets_of(b);
  const int inverse = ot_builder_scalar(b, OT_SCALAR_INVERSE_TOKENS, "inverse_tokens");
  const int loss[OT_MAX_OUTPUTS] = {-1, ot_builder_sum(b, OT_SCALAR_LOSS, "loss"), data_loss(b), -1,
                                    -1};
  const int dlogits = ot_builder_op(b, &(ot_op_description){OT_OP_HEAD_DLOGITS,
                                                            &h->attributes,
                                                            chunk_name(b, h, "d_logits"),
                                                            7,
                                                            {chunk.e, chunk.all, to.data, inverse,
                                                             to.ids, to.weights, chunk.pulls},
                                                            loss});
  const int dw[OT_MAX_OUTPUTS] = {-1, weight_accumulator(b, h), -1, -1, -1};
  return ot_builder_op(b,
                       &(ot_op_description){last ? OT_OP_HEAD_GRADIENT_LAST : OT_OP_HEAD_GRADIENT,
                                            &h->attributes,
                                            last ? "d_final" : chunk_name(b, h, "d_final"),
                                            4,
                                            {dx_before, dlogits, h->x, h->weight},
                                            dw});
}

static void chunk_count(ot_builder *b, const head *h) {
  const chunk_values chunk = chunk_statistics(b, h);
  const int out[OT_MAX_OUTPUTS] = {ot_builder_sum(b, OT_SCALAR_EVALUATE_LOSS, "evaluate_loss"),
                                   ot_builder_sum(b, OT_SCALAR_EVALUATE_TOKENS, "evaluate_tokens"),
                                   -1, -1, -1};
  ot_builder_op(b, &(ot_op_description){OT_OP_HEAD_COUNT,
                                        &h->attributes,
                                        "evaluate",
                                        2,
                                        {chunk.all, ot_builder_batch(b, OT_BATCH_TARGETS)},
                                        out});
}

// Chunks have the same number of tokens on every rank, whatever its vocabulary shard.
static void by_chunks(ot_builder *b, const head *whole) {
  const ot_local_shape *const share = ot_share_of(b);
  const ot_dtype stored = b->program->values[whole->x].type.dtype;
  const int64_t logit_bytes = ot_head_parts_logit_bytes(&whole->attributes, stored);
  const int64_t rows =
      ot_head_chunk_rows(&whole->attributes, share->rows, share->widest_vocab, logit_bytes);
  head h = *whole;
  ot_builder_set_group(b, OT_GROUP_TENSOR, &h.attributes);
  h.attributes.first_vocab = share->first_vocab;
  int dx = -1;
  for (int64_t first = 0; first < share->rows; first += rows) {
    const bool last = first + rows >= share->rows;
    h.attributes.first_row = first;
    h.attributes.chunk_rows = last ? share->rows - first : rows;
    if (ot_builder_trains(b)) {
      dx = chunk_loss(b, &h, dx, last);
    } else {
      chunk_count(b, &h);
    }
  }
}

// ---- whole vocabulary ----

static void loss(ot_builder *b, const head *h) {
  const int accumulator = weight_accumulator(b, h);
  const targets to = targets_of(b);
  const int inverse = ot_builder_scalar(b, OT_SCALAR_INVERSE_TOKENS, "inverse_tokens");
  const int out[OT_MAX_OUTPUTS] = {-1, accumulator, ot_builder_sum(b, OT_SCALAR_LOSS, "loss"),
                                   data_loss(b), -1};
  ot_builder_op(b, &(ot_op_description){OT_OP_HEAD_LOSS,
                                        &h->attributes,
                                        "d_final",
                                        6,
                                        {h->x, h->weight, to.data, inverse, to.ids, to.weights},
                                        out});
}

static void evaluate(ot_builder *b, const head *h) {
  const int in[] = {h->x, h->weight, ot_builder_batch(b, OT_BATCH_TARGETS)};
  const int out[OT_MAX_OUTPUTS] = {ot_builder_sum(b, OT_SCALAR_EVALUATE_LOSS, "evaluate_loss"),
                                   ot_builder_sum(b, OT_SCALAR_EVALUATE_TOKENS, "evaluate_tokens"),
                                   -1, -1, -1};
  ot_builder_op(
      b, &(ot_op_description){
             OT_OP_HEAD_EVALUATE, &h->attributes, "evaluate", 3, {in[0], in[1], in[2]}, out});
}

static void score(ot_builder *b, const head *h) {
  const int64_t rows = ot_share_of(b)->rows;
  const ot_tensor_type real = ot_type_vector(OT_F64, rows);
  const ot_tensor_type token = ot_type_vector(OT_I32, rows);
  const int in[] = {h->x, h->weight, ot_builder_batch(b, OT_BATCH_TARGETS)};
  const bool sum = ot_share_of(b)->tp > 1, best = ot_mode_is_prefill(b->graph->request.mode) || sum;
  const int out[OT_MAX_OUTPUTS] = {
      ot_builder_own(b, OT_VALUE_RESULT, OT_RESULT_LOGPROBS, "logprobs", real),
      ot_builder_own(b, OT_VALUE_RESULT, OT_RESULT_GREEDY, "greedy", token),
      best ? ot_builder_own(b, OT_VALUE_RESULT, OT_RESULT_BEST, "best", real) : -1,
      sum ? ot_builder_own(b, OT_VALUE_RESULT, OT_RESULT_SUM, "sum", real) : -1, -1};
  ot_builder_op(b, &(ot_op_description){
                       OT_OP_HEAD_SCORE, &h->attributes, "score", 3, {in[0], in[1], in[2]}, out});
}

// Draws ids and weights that another model learns from.
static void draw(ot_builder *b, const head *h) {
  const ot_graph_request *const request = &b->graph->request;
  const int64_t rows = ot_share_of(b)->rows, K = request->draw_ids;
  const ot_tensor_type real = ot_type_vector(OT_F64, rows);
  ot_op_attributes attributes = h->attributes;
  attributes.draw_ids = K;
  attributes.draws = request->draws;
  const int data = ot_builder_batch(b, OT_BATCH_TARGETS);
  const int keys = ot_builder_batch(b, OT_BATCH_KEYS);
  const int out[OT_MAX_OUTPUTS] = {
      ot_builder_own(b, OT_VALUE_RESULT, OT_RESULT_IDS, "ids", ot_type_matrix(OT_I32, rows, K)),
      ot_builder_own(b, OT_VALUE_RESULT, OT_RESULT_WEIGHTS, "weights",
                     ot_type_matrix(OT_F32, rows, K)),
      ot_builder_own(b, OT_VALUE_RESULT, OT_RESULT_LOGPROBS, "logprobs", real),
      ot_builder_own(b, OT_VALUE_RESULT, OT_RESULT_ENTROPY, "entropy", real), -1};
  ot_builder_op(b,
                &(ot_op_description){
                    OT_OP_HEAD_DRAW, &attributes, "draws", 4, {h->x, h->weight, data, keys}, out});
}

// Logits of rows `x`, over tp of this rank's vocabulary: the host joins them.
static void logits(ot_builder *b, const head *h, int x, int64_t rows) {
  const ot_tensor_type type =
      ot_type_matrix(b->graph->request.compute, rows, ot_share_of(b)->vocab);
  const int out[OT_MAX_OUTPUTS] = {
      ot_builder_own(b, OT_VALUE_RESULT, OT_RESULT_LOGITS, "logits", type), -1, -1, -1, -1};
  ot_builder_op(
      b, &(ot_op_description){OT_OP_HEAD_LOGITS, &h->attributes, "logits", 2, {x, h->weight}, out});
}

// Scores of all rows, and logits of the picked ones, one for each sequence.
static void prefill(ot_builder *b, const head *h) {
  const ot_op_attributes attributes = ot_builder_attributes(b);
  score(b, h);
  const int picks = ot_builder_batch(b, OT_BATCH_PICKS);
  const int picked = ot_builder_op(
      b,
      &(ot_op_description){OT_OP_EMBEDDING, &attributes, "output.picked", 2, {picks, h->x}, NULL});
  logits(b, h, picked, b->graph->request.cache.sequences);
}

void ot_decoder_head(ot_builder *b, int embedding_parameter) {
  const ot_mode mode = b->graph->request.mode;
  head h = {.attributes = ot_builder_attributes(b)};
  const ot_residual_stream stream = ot_residual_enter(b, (int)ot_model_of(b)->num_layers, 0);
  const int x = ot_residual_read(b, &stream, OT_ROLE_FINAL_QUERY, "final_residual");
  const int normed = ot_decoder_norm(b, OT_ROLE_FINAL_NORM, "final_norm", x);
  h.x = ot_builder_gather(b, normed, "output.in");
  h.weight = head_weight(b, embedding_parameter);
  h.attributes.soft_cap = ot_model_of(b)->logit_soft_cap;
  h.attributes.chunk_rows = b->graph->request.head_chunk_rows;
  h.attributes.first_vocab = ot_share_of(b)->first_vocab;
  if (ot_share_of(b)->tp > 1 && !ot_mode_is_cached(mode) && mode != OT_MODE_SCORE) {
    by_chunks(b, &h);
    return;
  }
  switch (mode) {
    case OT_MODE_TRAIN:
      loss(b, &h);
      return;
    case OT_MODE_EVALUATE:
      evaluate(b, &h);
      return;
    case OT_MODE_SCORE:
      b->graph->request.draw_ids > 0 ? draw(b, &h) : score(b, &h);
      return;
    case OT_MODE_PREFILL:
    case OT_MODE_PREFILL_2:
    case OT_MODE_PREFILL_4:
    case OT_MODE_PREFILL_8:
      prefill(b, &h);
      return;
    case OT_MODE_LOGITS:
    case OT_MODE_DECODE:
    case OT_MODE_DECODE_2:
    case OT_MODE_DECODE_4:
    case OT_MODE_DECODE_8:
      logits(b, &h, h.x, ot_share_of(b)->rows);
      return;
    case OT_MODES:
      break;
  }
  OT_UNREACHABLE();
}
