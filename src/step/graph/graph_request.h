// SPDX-License-Identifier: Apache-2.0
// Request for a graph: model, mode, micro-batch shape, dtypes, and this rank's position in the
// mesh.
#pragma once

#include "base/choices.h"
#include "describe/optimizer_rules.h"
#include "describe/parametrization.h"

typedef enum ot_mode {
  OT_MODE_TRAIN,      // loss and gradients
  OT_MODE_EVALUATE,   // loss in nats, summed, and number of targets
  OT_MODE_SCORE,      // log-probability of each target and the greedy choice
  OT_MODE_LOGITS,     // logits of every token, and router losses
  OT_MODE_PREFILL,    // tokens of any sequences against the cache, to scores, and logits of some
  OT_MODE_PREFILL_2,  // the same for a half of the tokens, for a fourth, for an eighth
  OT_MODE_PREFILL_4,
  OT_MODE_PREFILL_8,
  OT_MODE_DECODE,    // one token of each sequence, to logits of all
  OT_MODE_DECODE_2,  // the same for a half of the sequences, for a fourth, for an eighth
  OT_MODE_DECODE_4,
  OT_MODE_DECODE_8,
  OT_MODES,
} ot_mode;

enum { OT_MODE_WIDTHS = 4 };  // modes of prefill, and of decode

// Which shard of each block a rank computes. A degree of 0 or 1 does not shard.
typedef struct ot_split {
  int tp, tp_index;  // heads, MLP columns, vocabulary; between them the tokens
  int cp, cp_index;  // blocks of each sequence
  ot_context_parallel context;
  int ep, ep_index;            // experts
  int etp, etp_index;          // columns of each expert's MLP
  bool separate_expert_block;  // the MoE branch is a separate block; always with ep x etp > 1
} ot_split;

// The paged key-value cache of prefill and decode (ops/decode.h).
typedef struct ot_cache_shape {
  int64_t sequences;  // S
  int64_t positions;  // of a sequence at most; a multiple of 16
  int64_t pages;      // N of 16 tokens
} ot_cache_shape;

static inline bool ot_mode_is_prefill(ot_mode mode) {
  return mode >= OT_MODE_PREFILL && mode <= OT_MODE_PREFILL_8;
}
static inline bool ot_mode_is_decode(ot_mode mode) {
  return mode >= OT_MODE_DECODE && mode <= OT_MODE_DECODE_8;
}
static inline bool ot_mode_is_cached(ot_mode mode) {
  return ot_mode_is_prefill(mode) || ot_mode_is_decode(mode);
}

// Tokens of a mode of prefill or decode, if the widest one has `most`: whole for every rank of tp.
static inline int64_t ot_mode_width(ot_mode mode, int64_t most, int tp) {
  const int shift = (int)(mode - (ot_mode_is_decode(mode) ? OT_MODE_DECODE : OT_MODE_PREFILL));
  const int64_t part = ((most - 1) >> shift) + 1, ranks = tp > 1 ? tp : 1;
  return (part + ranks - 1) / ranks * ranks;
}

// The request for a graph.
typedef struct ot_graph_request {
  const ot_model *model;  // kept; must outlive the graph
  ot_mode mode;
  int64_t micro_batch_size;  // B >= 1
  int64_t sequence_length;  // T >= 1 of the whole sequence, on any split; prefill and decode: B = 1
                            // and T tokens of any sequences, ot_mode_width
  ot_cache_shape cache;     // prefill and decode only
  ot_dtype compute;         // OT_F32 or OT_F64
  ot_dtype storage;         // of weights and activations: compute, or OT_BF16
  bool narrow_gradients;    // gradient accumulators are stored in OT_BF16, not in compute
  bool narrow_moments;      // so are moments of the optimizer
  const ot_optimizer_rules *optimizer;        // of matrices inside blocks; kept; null: AdamW
  const ot_parametrization *parametrization;  // kept; null: standard
  int64_t head_chunk_rows;   // tokens whose logits exist at once; 0 = the head op's choice
  int64_t weighted_targets;  // K of each token in training (ops/head.h); 0 = the data's one target
  int64_t draw_ids, draws;   // score: instead of greedy ids, draws for other models to learn from
                             // (ops/head_draw.h); 0 = none
  int threads;               // per kernel, on the CPU
  ot_backend backend;        // whose kernels run it
  uint64_t seed;             // of dropout
  double expert_buffer;      // rows that a rank's experts receive in one pass, over their even
                             // share; 0 = enough for every token
  ot_split split;
} ot_graph_request;

// Dtype of gradient accumulators.
static inline ot_dtype ot_graph_gradient_type(const ot_graph_request *request) {
  return request->narrow_gradients ? OT_BF16 : request->compute;
}

// Dtype of moments of the optimizer.
static inline ot_dtype ot_graph_moment_type(const ot_graph_request *request) {
  return request->narrow_moments ? OT_BF16 : request->compute;
}
