// SPDX-License-Identifier: Apache-2.0
// Tiny models for runs on many ranks: layers of unequal kinds, 61 tokens (a number that no degree
// divides), heads that any degree up to 8 divides, or, `wide`, 12 of them. And their data: packed
// documents of unequal lengths with masked targets.
#pragma once

#include "describe/model.h"

typedef enum rank_model_kind {
  RANK_LLAMA,      // grouped queries (8 heads, 2 of keys), RMSNorm, gated MLP, untied
  RANK_GPT2,       // biases everywhere, layer norms, learned positions, tied
  RANK_GEMMA,      // one kv head, q and k norms, norms around branches, windows, tied
  RANK_GEMMA2,     // soft caps of scores and logits, norms around branches, windows, tied
  RANK_QWEN,       // biases of q, k, v; windows on every other layer, untied
  RANK_OLMO,       // norms after branches and of rows of q and k, windows with a rope of their own
  RANK_DROPOUT,    // RANK_GPT2 with dropout of embeddings, attention and residual branches
  RANK_MOE,        // RANK_LLAMA with routed and shared experts in all layers but the second
  RANK_RESIDUALS,  // a mix of blocks of three sub-layers for residual sums, layers without rope
  RANK_LATENT,     // latent attention; grouped and gated shared experts in all layers but the first
  RANK_GPT_OSS,    // sinks, biases, experts with a clamped gated form and biases, windows, yarn
  RANK_MODELS,
} rank_model_kind;

enum { RANK_LAYERS = 5 };

ot_model rank_model(rank_model_kind kind, int layers, bool wide);
// Attention Residuals with so many sub-layers in a block.
void rank_model_mix(ot_model *model, int block_size);
const char *rank_model_name(rank_model_kind kind);
bool rank_has_experts(rank_model_kind kind);

// Row t of sequence `sample` of T tokens. A sequence is some documents one after another; the
// last token of each has no target, and a few others have none, too.
typedef struct rank_token {
  int32_t token, target, position, doc_start;
} rank_token;

// Fills rows [T] of sequence `sample`.
void rank_sequence(int64_t sample, int64_t T, int64_t vocab, rank_token *rows);
