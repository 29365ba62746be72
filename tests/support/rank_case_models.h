// SPDX-License-Identifier: Apache-2.0
// Tiny models for runs on many ranks: layers of unequal kinds, a vocabulary of 61 (which no degree
// divides), 8 heads, or 12 if `wide`. Data: packed documents of unequal lengths with masked
// targets.
#pragma once

#include "describe/model.h"

typedef enum rank_model_kind {
  RANK_LLAMA,      // GQA (8 query heads, 2 KV heads), RMSNorm, gated MLP, untied
  RANK_GPT2,       // biases everywhere, layer norms, learned positions, tied
  RANK_GEMMA,      // one kv head, QK norms, norms around branches, windows, tied
  RANK_GEMMA2,     // soft caps of scores and logits, norms around branches, windows, tied
  RANK_QWEN,       // biases of q, k, v; windows on every other layer, untied
  RANK_OLMO,       // norms after branches, norms of whole q and k rows, windows with their own rope
  RANK_DROPOUT,    // RANK_GPT2 with dropout of embeddings, attention and residual branches
  RANK_MOE,        // RANK_LLAMA with routed and shared experts in all layers but the second
  RANK_RESIDUALS,  // Attention Residuals over blocks of three sub-layers, layers without rope
  RANK_LATENT,     // MLA; grouped and gated shared experts in all layers but the first
  RANK_GPT_OSS,    // sinks, biases, experts with a clamped gated form and biases, windows, yarn
  RANK_MODELS,
} rank_model_kind;

enum { RANK_LAYERS = 5 };

ot_model rank_model(rank_model_kind kind, int layers, bool wide);
// Enables Attention Residuals with `block_size` sub-layers per block.
void rank_model_mix(ot_model *model, int block_size);
const char *rank_model_name(rank_model_kind kind);
bool rank_has_experts(rank_model_kind kind);

// Token t of sequence `sample` of T tokens. A sequence is several packed documents; the last token
// of each document and a few others have no target.
typedef struct rank_token {
  int32_t token, target, position, doc_start;
} rank_token;

// Fills tokens [T] of sequence `sample`.
void rank_sequence(int64_t sample, int64_t T, int64_t vocab, rank_token *rows);
