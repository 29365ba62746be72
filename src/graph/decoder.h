// SPDX-License-Identifier: Apache-2.0
// Forward programs of a decoder-only transformer, block by block, for every family: what a family
// does differently is a value of ot_model. Written forward only; gradients are derived.
#pragma once

#include "graph/builder.h"

void ot_decoder_embedding(ot_builder *builder);

// One layer: attention and MLP, each with its norms around it as the model places them.
void ot_decoder_layer(ot_builder *builder, int layer);

// The two blocks of a layer whose experts are apart (graph.h).
void ot_decoder_layer_attention(ot_builder *builder, int layer);
void ot_decoder_layer_experts(ot_builder *builder, int layer);

// Final norm and what the mode asks of the logits.
void ot_decoder_head(ot_builder *builder, int embedding_parameter);
