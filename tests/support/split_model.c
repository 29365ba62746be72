// SPDX-License-Identifier: Apache-2.0
// Sizes that several degrees divide.
#include "support/split_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/tiny_model.h"

static ot_model resized(ot_model model, int64_t heads, int64_t kv_heads) {
  model.num_layers = 2;
  model.num_heads = heads;
  model.num_kv_heads = kv_heads;
  model.head_dim = 8;
  return model;
}

ot_model split_gpt2(int64_t heads) { return resized(tiny_gpt2(), heads, heads); }

ot_model split_llama(int64_t heads, int64_t kv_heads) {
  return resized(tiny_llama(), heads, kv_heads);
}

ot_model split_olmo2(int64_t heads, int64_t kv_heads) {
  ot_model model = split_llama(heads, kv_heads);
  model.qk_norm = OT_QK_NORM_ROW;
  return model;
}

ot_model split_gemma(int64_t heads, int64_t kv_heads) {
  ot_model model = resized(tiny_gemma(), heads, kv_heads);
  model.window[1] = 0;
  return model;
}

ot_model split_experts(ot_model llama, int64_t experts, ot_moe_routing routing) {
  llama.moe = (ot_moe){.num_experts = experts,
                       .experts_per_token = 2,
                       .expert_size = 8,
                       .scale = 1,
                       .num_groups = 1,
                       .groups_per_token = 1,
                       .routing = routing,
                       .capacity_factor = 1,
                       .layer = {true, true}};
  return llama;
}

ot_graph_request split_request(const ot_model *model, ot_mode mode, ot_split split) {
  return (ot_graph_request){.model = model,
                            .mode = mode,
                            .micro_batch_size = SPLIT_SEQUENCES,
                            .sequence_length = SPLIT_LENGTH,
                            .compute = OT_F32,
                            .storage = OT_F32,
                            .head_chunk_rows = SPLIT_CHUNK_ROWS,
                            .threads = 1,
                            .split = split};
}

ot_graph split_graph(const ot_model *model, ot_mode mode, ot_split split, ot_arena *arena) {
  const ot_graph_request request = split_request(model, mode, split);
  ot_graph graph;
  if (ot_graph_build(&request, arena, &graph) != OT_OK) fail_msg("%s", ot_fail_message());
  return graph;
}
