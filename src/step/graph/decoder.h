// SPDX-License-Identifier: Apache-2.0
// Forward programs of a decoder-only transformer, block by block, for every model family: families
// differ only in values of ot_model. Gradients are derived (differentiate.h).
#pragma once

#include "graph/builder.h"

void ot_decoder_embedding(ot_builder *builder);

// One layer: attention and MLP, with the norms where the model places them.
void ot_decoder_layer(ot_builder *builder, int layer);

// The two blocks of a layer whose experts are a separate block (graph.h).
void ot_decoder_layer_attention(ot_builder *builder, int layer);
void ot_decoder_layer_experts(ot_builder *builder, int layer);

// Final norm and the head of the mode: loss, evaluation, scores or logits.
void ot_decoder_head(ot_builder *builder, int embedding_parameter);
