// SPDX-License-Identifier: Apache-2.0
// One table of module names per naming scheme. A fused parameter (q|k|v, gate|up) has one part per
// matrix, whether HF stores these separately (llama) or as one tensor (gpt2, phi3).
#include "graph/hf_names.h"

#include "base/text.h"

// Module names; %d is the layer. Comma-separated names are the parts of a fused parameter.
static const char *const llama_names[OT_ROLES] = {
    [OT_ROLE_EMBEDDING] = "model.embed_tokens",
    [OT_ROLE_ATTENTION_NORM] = "input_layernorm",
    [OT_ROLE_Q_NORM] = "self_attn.q_norm",
    [OT_ROLE_K_NORM] = "self_attn.k_norm",
    [OT_ROLE_Q_ROW_NORM] = "self_attn.q_norm",
    [OT_ROLE_K_ROW_NORM] = "self_attn.k_norm",
    [OT_ROLE_SINKS] = "self_attn",  // .sinks
    [OT_ROLE_Q_DOWN] = "self_attn.q_a_proj",
    [OT_ROLE_Q_UP] = "self_attn.q_b_proj",
    [OT_ROLE_KV_DOWN] = "self_attn.kv_a_proj_with_mqa",
    [OT_ROLE_KV_UP] = "self_attn.kv_b_proj",
    [OT_ROLE_Q_LATENT_NORM] = "self_attn.q_a_layernorm",
    [OT_ROLE_KV_LATENT_NORM] = "self_attn.kv_a_layernorm",
    [OT_ROLE_ATTENTION_OUTPUT] = "self_attn.o_proj",
    [OT_ROLE_ATTENTION_POST_NORM] = "post_attention_layernorm",
    [OT_ROLE_MLP_NORM] = "post_attention_layernorm",
    [OT_ROLE_DOWN] = "mlp.down_proj",
    [OT_ROLE_MLP_POST_NORM] = "post_feedforward_layernorm",
    [OT_ROLE_ROUTER] = "mlp.gate",
    [OT_ROLE_SHARED_DOWN] = "mlp.shared_experts.down_proj",
    [OT_ROLE_SHARED_GATE] = "mlp.shared_expert_gate",
    [OT_ROLE_ATTENTION_QUERY] = "attention_residual",  // these three are ours: HF has none
    [OT_ROLE_MLP_QUERY] = "mlp_residual",
    [OT_ROLE_FINAL_QUERY] = "model.residual",
    [OT_ROLE_FINAL_NORM] = "model.norm",
    [OT_ROLE_HEAD] = "lm_head",
};

static const char *const gpt2_names[OT_ROLES] = {
    [OT_ROLE_EMBEDDING] = "transformer.wte",
    [OT_ROLE_POSITIONS] = "transformer.wpe",
    [OT_ROLE_ATTENTION_NORM] = "ln_1",
    [OT_ROLE_QKV] = "attn.c_attn",
    [OT_ROLE_ATTENTION_OUTPUT] = "attn.c_proj",
    [OT_ROLE_MLP_NORM] = "ln_2",
    [OT_ROLE_GATE_UP] = "mlp.c_fc",
    [OT_ROLE_DOWN] = "mlp.c_proj",
    [OT_ROLE_ATTENTION_QUERY] = "attention_residual",  // these three are ours: HF has none
    [OT_ROLE_MLP_QUERY] = "mlp_residual",
    [OT_ROLE_FINAL_QUERY] = "transformer.residual",
    [OT_ROLE_FINAL_NORM] = "transformer.ln_f",
    [OT_ROLE_HEAD] = "lm_head",
};

static bool is_linear(ot_role role) {
  return role == OT_ROLE_QKV || role == OT_ROLE_ATTENTION_OUTPUT || role == OT_ROLE_GATE_UP ||
         role == OT_ROLE_DOWN;
}

// Null for the parts of a parameter that HF stores separately.
static const char *module_name(const ot_model *model, ot_role role) {
  if (model->family == OT_FAMILY_GPT2) return gpt2_names[role];
  if (model->family == OT_FAMILY_PHI3 && role == OT_ROLE_QKV) return "self_attn.qkv_proj";
  if (model->family == OT_FAMILY_PHI3 && role == OT_ROLE_GATE_UP) return "mlp.gate_up_proj";
  if (model->family == OT_FAMILY_MIXTRAL && role == OT_ROLE_ROUTER) {
    return "block_sparse_moe.gate";
  }
  if (model->family == OT_FAMILY_QWEN2_MOE && role == OT_ROLE_SHARED_DOWN) {
    return "mlp.shared_expert.down_proj";
  }
  if (model->family == OT_FAMILY_GPT_OSS && role == OT_ROLE_ROUTER) return "mlp.router";
  if (role == OT_ROLE_Q_UP && model->mla.q_rank == 0) return "self_attn.q_proj";
  // gemma3 also has a norm after the MLP and names the one before it differently.
  if (role == OT_ROLE_MLP_NORM && model->norm_placement == OT_NORM_SANDWICH) {
    return "pre_feedforward_layernorm";
  }
  return llama_names[role];
}

// Matrices inside a stacked tensor have no suffix.
static const char *full_name(const ot_hf_request *request, const char *module, ot_arena *arena) {
  const char *const name = ot_text_ends_with(module, "]")
                               ? module
                               : ot_arena_format(arena, "%s.%s", module, request->suffix);
  if (request->layer < 0) return name;
  const bool gpt2 = request->model->family == OT_FAMILY_GPT2;
  const char *const prefix = gpt2 ? "transformer.h" : "model.layers";
  return ot_arena_format(arena, "%s.%d.%s", prefix, request->layer, name);
}

ot_shard_axis ot_role_shard_axis(ot_role role, bool vector) {
  switch (role) {
    case OT_ROLE_EMBEDDING:
    case OT_ROLE_QKV:
    case OT_ROLE_Q_ROW_NORM:
    case OT_ROLE_K_ROW_NORM:
    case OT_ROLE_SINKS:
    case OT_ROLE_Q_UP:
    case OT_ROLE_KV_UP:
    case OT_ROLE_GATE_UP:
    case OT_ROLE_SHARED_GATE_UP:
    case OT_ROLE_HEAD:
      return OT_SHARD_BY_ROWS;
    case OT_ROLE_ATTENTION_OUTPUT:
    case OT_ROLE_DOWN:
    case OT_ROLE_SHARED_DOWN:
      return vector ? OT_SHARD_NOT : OT_SHARD_BY_COLUMNS;
    case OT_ROLE_POSITIONS:
    case OT_ROLE_ATTENTION_NORM:
    case OT_ROLE_Q_DOWN:
    case OT_ROLE_KV_DOWN:
    case OT_ROLE_Q_LATENT_NORM:
    case OT_ROLE_KV_LATENT_NORM:
    case OT_ROLE_Q_NORM:
    case OT_ROLE_K_NORM:
    case OT_ROLE_ATTENTION_POST_NORM:
    case OT_ROLE_MLP_NORM:
    case OT_ROLE_MLP_POST_NORM:
    case OT_ROLE_ROUTER:
    case OT_ROLE_SHARED_GATE:
    case OT_ROLE_ATTENTION_QUERY:
    case OT_ROLE_MLP_QUERY:
    case OT_ROLE_FINAL_QUERY:
    case OT_ROLE_FINAL_NORM:
      return OT_SHARD_NOT;
    case OT_ROLE_EXPERT_GATE_UP:
      return OT_SHARD_BY_EXPERTS;
    case OT_ROLE_EXPERT_DOWN:  // biases are added at the tokens (ops/expert_bias.h)
      return vector ? OT_SHARD_NOT : OT_SHARD_BY_EXPERTS;
    case OT_ROLES:
      break;
  }
  OT_UNREACHABLE();
}

// A range of rows of a parameter: the rows of this rank and their position in the whole matrix.
typedef struct slice {
  const char *module;
  int64_t rows;   // on this rank
  int64_t first;  // their offset in the matrix
  int64_t whole;  // rows of the matrix
  int copies;     // ranks of tp with the same rows
} slice;

// Routed experts have one slice per matrix, all others at most three.
static int most_slices(const ot_hf_request *request) {
  switch (request->role) {
    case OT_ROLE_EXPERT_GATE_UP:
      return 2 * (int)request->model->moe.num_experts;
    case OT_ROLE_EXPERT_DOWN:
      return (int)request->model->moe.num_experts;
    default:
      return 3;
  }
}

static int slices_of_qkv(const ot_hf_request *request, slice *slices) {
  const ot_model *const model = request->model;
  const ot_local_shape *const share = request->share;
  const char *const fused = module_name(model, OT_ROLE_QKV);
  const int64_t D = model->head_dim;
  slices[0] = (slice){.module = fused ? fused : "self_attn.q_proj",
                      .rows = share->heads * D,
                      .first = share->first_head * D,
                      .whole = model->num_heads * D,
                      .copies = 1};
  slices[1] = (slice){.module = fused ? fused : "self_attn.k_proj",
                      .rows = share->kv_heads * D,
                      .first = share->first_kv_head * D,
                      .whole = model->num_kv_heads * D,
                      .copies = share->kv_copies};
  slices[2] = slices[1];
  if (!fused) slices[2].module = "self_attn.v_proj";
  return 3;
}

// The norm weights of q or k for this rank's heads.
static slice slice_of_row_norm(const ot_hf_request *request) {
  slice slices[3];
  slices_of_qkv(request, slices);
  slice *const held = &slices[request->role == OT_ROLE_Q_ROW_NORM ? 0 : 1];
  held->module = module_name(request->model, request->role);
  return *held;
}

static slice slice_of_columns(const ot_hf_request *request, const char *module) {
  const ot_local_shape *const share = request->share;
  return (slice){.module = module,
                 .rows = share->columns,
                 .first = share->first_column,
                 .whole = request->model->intermediate_size,
                 .copies = 1};
}

static int slices_of_up(const ot_hf_request *request, slice *slices) {
  const bool gated = request->model->gated_mlp;
  const char *const fused = module_name(request->model, OT_ROLE_GATE_UP);
  if (gated) slices[0] = slice_of_columns(request, fused ? fused : "mlp.gate_proj");
  slices[gated ? 1 : 0] = slice_of_columns(request, fused ? fused : "mlp.up_proj");
  return gated ? 2 : 1;
}

static int slices_of_shared_up(const ot_hf_request *request, slice *slices) {
  const ot_local_shape *const share = request->share;
  const bool one = request->model->family == OT_FAMILY_QWEN2_MOE;
  slices[0] =
      (slice){.module = one ? "mlp.shared_expert.gate_proj" : "mlp.shared_experts.gate_proj",
              .rows = share->shared_columns,
              .first = share->first_shared_column,
              .whole = request->model->moe.shared_size,
              .copies = 1};
  slices[1] = slices[0];
  slices[1].module = one ? "mlp.shared_expert.up_proj" : "mlp.shared_experts.up_proj";
  return 2;
}

// "mlp.experts.3.up_proj"; mixtral calls gate, up and down w1, w3 and w2, and gpt_oss stores all
// experts in one tensor, gate and up together.
static const char *expert_module(const ot_hf_request *request, int expert, int matrix,
                                 ot_arena *arena) {
  const ot_model *const model = request->model;
  static const char *const names[] = {"gate_proj", "up_proj", "down_proj"};
  static const char *const mixtral_names[] = {"w1", "w3", "w2"};
  const bool mixtral = model->family == OT_FAMILY_MIXTRAL;
  if (model->family == OT_FAMILY_GPT_OSS) {
    const bool bias = ot_text_equal(request->suffix, "bias");
    return ot_arena_format(arena, "mlp.experts.%s%s[%d]",
                           matrix == 2 ? "down_proj" : "gate_up_proj", bias ? "_bias" : "", expert);
  }
  return ot_arena_format(arena, "%s.experts.%d.%s", mixtral ? "block_sparse_moe" : "mlp", expert,
                         mixtral ? mixtral_names[matrix] : names[matrix]);
}

// The experts of this rank, matrices [first, first + count) of each.
static int slices_of_experts(const ot_hf_request *request, int first, int count, slice *slices,
                             ot_arena *arena) {
  const ot_model *const model = request->model;
  const ot_local_shape *const share = request->share;
  const bool down = first == 2;
  const bool all = !share->expert_view || (down && ot_text_equal(request->suffix, "bias"));
  const int experts = (int)(all ? model->moe.num_experts : share->experts);
  const int begin = all ? 0 : (int)share->first_expert;
  const bool cut = share->expert_view && !down;
  const int64_t whole = down ? model->hidden_size : model->moe.expert_size;
  for (int i = 0; i < experts * count; i++) {
    slices[i] =
        (slice){.module = expert_module(request, begin + i / count, first + i % count, arena),
                .rows = cut ? share->expert_columns : whole,
                .first = cut ? share->first_expert_column : 0,
                .whole = whole,
                .copies = 1};
  }
  return experts * count;
}

// The matrices in a fused parameter, or one slice of all rows.
static int slices_of(const ot_hf_request *request, int64_t rows, slice *slices, ot_arena *arena) {
  const ot_role role = request->role;
  if (role == OT_ROLE_QKV) return slices_of_qkv(request, slices);
  if (role == OT_ROLE_GATE_UP) return slices_of_up(request, slices);
  if (role == OT_ROLE_SHARED_GATE_UP) return slices_of_shared_up(request, slices);
  if (role == OT_ROLE_EXPERT_GATE_UP) return slices_of_experts(request, 0, 2, slices, arena);
  if (role == OT_ROLE_EXPERT_DOWN) return slices_of_experts(request, 2, 1, slices, arena);
  if (role == OT_ROLE_Q_ROW_NORM || role == OT_ROLE_K_ROW_NORM) {
    slices[0] = slice_of_row_norm(request);
    return 1;
  }
  slices[0] = (slice){
      .module = module_name(request->model, role), .rows = rows, .whole = rows, .copies = 1};
  if (role == OT_ROLE_Q_UP || role == OT_ROLE_KV_UP || role == OT_ROLE_SINKS) {
    const int64_t head = rows / request->share->heads;
    slices[0].first = request->share->first_head * head;
    slices[0].whole = request->model->num_heads * head;
  }
  if (role == OT_ROLE_EMBEDDING || role == OT_ROLE_HEAD) {
    slices[0].first = request->share->first_vocab;
    slices[0].whole = request->model->vocab_size;
  }
  return 1;
}

// Rows or columns [first, first + held) of `whole`, for a parameter's input dimension.
static void set_columns(const ot_hf_request *request, const ot_parameter *parameter,
                        ot_parameter_part *part) {
  const ot_local_shape *const share = request->share;
  part->hf_cols = parameter->cols;
  if (request->role == OT_ROLE_EXPERT_DOWN && share->expert_view && parameter->rank == 2) {
    part->hf_first_col = share->first_expert_column;
    part->hf_cols = request->model->moe.expert_size;
  }
  if (parameter->rank == 1 || ot_role_shard_axis(request->role, false) != OT_SHARD_BY_COLUMNS)
    return;
  const ot_model *const model = request->model;
  if (request->role == OT_ROLE_SHARED_DOWN) {
    part->hf_first_col = share->first_shared_column;
    part->hf_cols = model->moe.shared_size;
    return;
  }
  const bool attention = request->role == OT_ROLE_ATTENTION_OUTPUT;
  const int64_t head = model->mla.kv_rank > 0 ? model->mla.v_dim : model->head_dim;
  part->hf_first_col = attention ? share->first_head * head : share->first_column;
  part->hf_cols = attention ? model->num_heads * head : model->intermediate_size;
}

// Which ranks hold copies and must reduce the gradient, and whether this rank counts the part.
static void set_sum(const ot_hf_request *request, bool vector, int copies,
                    ot_parameter_part *part) {
  const ot_local_shape *const share = request->share;
  const ot_shard_axis cut = ot_role_shard_axis(request->role, vector);
  part->sum_group = -1;
  part->counted = true;
  if (share->expert_view) {
    if (share->expert_ranks == 1 || cut == OT_SHARD_BY_EXPERTS) return;
    part->sum_group = OT_GROUP_EXPERT_SUM;
    part->counted = share->expert_index == 0;
  } else if (share->tp > 1 && (cut == OT_SHARD_NOT || cut == OT_SHARD_BY_EXPERTS)) {
    part->sum_group = OT_GROUP_TENSOR_SUM;
    part->counted = share->tp_index == 0;
  } else if (copies > 1) {
    part->sum_group = OT_GROUP_KV_SUM;
    part->counted = share->tp_index % copies == 0;
  }
}

// Slices with the same name are adjacent shards of one HF tensor. Returns the rows of slice `i`'s
// tensor in the slices before `end`.
static int64_t rows_of_name(const slice *slices, int count, int i, int end) {
  int first = i;
  while (first > 0 && ot_text_equal(slices[first - 1].module, slices[i].module)) first--;
  int64_t rows = 0;
  for (int k = first; k < count && k < end; k++) {
    if (!ot_text_equal(slices[k].module, slices[i].module)) break;
    rows += slices[k].whole;
  }
  return rows;
}

void ot_hf_parts(const ot_hf_request *request, ot_arena *arena, ot_parameter *parameter) {
  slice *const slices = ot_arena_array(arena, most_slices(request), sizeof *slices);
  const int count = slices_of(request, parameter->rows, slices, arena);
  const ot_family family = request->model->family;
  const bool up = request->role == OT_ROLE_EXPERT_GATE_UP;
  const bool experts = up || request->role == OT_ROLE_EXPERT_DOWN;
  const bool conv1d = (family == OT_FAMILY_GPT2 && is_linear(request->role)) ||
                      (family == OT_FAMILY_GPT_OSS && experts);
  int64_t row = 0;
  parameter->num_parts = count;
  parameter->parts = ot_arena_array(arena, count, sizeof *parameter->parts);
  for (int i = 0; i < count; i++) {
    ot_parameter_part *const part = &parameter->parts[i];
    *part = (ot_parameter_part){
        .hf_name = full_name(request, slices[i].module, arena),
        .first_row = row,
        .rows = slices[i].rows,
        .hf_first = rows_of_name(slices, count, i, i) + slices[i].first,
        .hf_rows = rows_of_name(slices, count, i, count),
        .transposed = conv1d && parameter->rank == 2,
        .interleaved = family == OT_FAMILY_GPT_OSS && up,
    };
    set_columns(request, parameter, part);
    set_sum(request, parameter->rank == 1, slices[i].copies, part);
    row += slices[i].rows;
  }
  OT_ASSERT(row == parameter->rows);
}
