// SPDX-License-Identifier: Apache-2.0
// Tiny models that can be split over several ranks, and graphs of one rank of a split.
#pragma once

#include "graph/graph.h"

// Two layers of tiny_gpt2, tiny_llama and tiny_gemma (whose first layer has a window) with heads of
// 8; their vocabulary of 61 is cut unevenly by any degree.
ot_model split_gpt2(int64_t heads);
ot_model split_llama(int64_t heads, int64_t kv_heads);
// split_llama with norms of whole rows of q and k.
ot_model split_olmo2(int64_t heads, int64_t kv_heads);
ot_model split_gemma(int64_t heads, int64_t kv_heads);
// split_llama with so many experts in both layers, of which tokens choose two, or which choose.
ot_model split_experts(ot_model llama, int64_t experts, ot_moe_routing routing);

// Micro-batches of 2 sequences of SPLIT_LENGTH, logits of SPLIT_CHUNK_ROWS rows at a time.
enum { SPLIT_SEQUENCES = 2, SPLIT_LENGTH = 16, SPLIT_CHUNK_ROWS = 5 };

ot_graph_request split_request(const ot_model *model, ot_mode mode, ot_split split);

// Fails the test when it is refused.
ot_graph split_graph(const ot_model *model, ot_mode mode, ot_split split, ot_arena *arena);
