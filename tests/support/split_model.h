// SPDX-License-Identifier: Apache-2.0
// Tiny models that can be sharded over several ranks, and the graph of one such rank.
#pragma once

#include "graph/graph.h"

// Two layers of tiny_gpt2, tiny_llama and tiny_gemma (whose first layer has a window) with heads of
// 8. No degree divides their vocabulary of 61.
ot_model split_gpt2(int64_t heads);
ot_model split_llama(int64_t heads, int64_t kv_heads);
// split_llama with norms of whole q and k rows.
ot_model split_olmo2(int64_t heads, int64_t kv_heads);
ot_model split_gemma(int64_t heads, int64_t kv_heads);
// split_llama with `experts` experts in both layers: token choice (top-2) or expert choice.
ot_model split_experts(ot_model llama, int64_t experts, ot_moe_routing routing);

// Micro-batches of 2 sequences of SPLIT_LENGTH, logits of SPLIT_CHUNK_ROWS rows at a time.
enum { SPLIT_SEQUENCES = 2, SPLIT_LENGTH = 16, SPLIT_CHUNK_ROWS = 5 };

ot_graph_request split_request(const ot_model *model, ot_mode mode, ot_split split);

// Fails the test on an error.
ot_graph split_graph(const ot_model *model, ot_mode mode, ot_split split, ot_arena *arena);
