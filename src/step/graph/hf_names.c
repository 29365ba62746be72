// SPDX-License-Identifier: Apache-2.0
// Module names by role. A fused parameter (q|k|v, gate|up) has one part per matrix, whether HF
// stores these separately (llama) or as one tensor (gpt2, phi3).
#include "graph/hf_names.h"

#include "base/text.h"

// Llama's names, and those of other families for what llama does not have.
static const ot_role_names usual_names[OT_ROLES] = {
    [OT_ROLE_EMBEDDING] = {.part = {"model.embed_tokens"}},
    [OT_ROLE_ATTENTION_NORM] = {.part = {"input_layernorm"}},
    [OT_ROLE_QKV] = {.part = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}},
    [OT_ROLE_Q_NORM] = {.part = {"self_attn.q_norm"}},
    [OT_ROLE_K_NORM] = {.part = {"self_attn.k_norm"}},
    [OT_ROLE_Q_ROW_NORM] = {.part = {"self_attn.q_norm"}},
    [OT_ROLE_K_ROW_NORM] = {.part = {"self_attn.k_norm"}},
    [OT_ROLE_SINKS] = {.part = {"self_attn"}},  // .sinks
    [OT_ROLE_Q_DOWN] = {.part = {"self_attn.q_a_proj"}},
    [OT_ROLE_Q_UP] = {.part = {"self_attn.q_b_proj"}},
    [OT_ROLE_KV_DOWN] = {.part = {"self_attn.kv_a_proj_with_mqa"}},
    [OT_ROLE_KV_UP] = {.part = {"self_attn.kv_b_proj"}},
    [OT_ROLE_Q_LATENT_NORM] = {.part = {"self_attn.q_a_layernorm"}},
    [OT_ROLE_KV_LATENT_NORM] = {.part = {"self_attn.kv_a_layernorm"}},
    [OT_ROLE_ATTENTION_OUTPUT] = {.part = {"self_attn.o_proj"}},
    [OT_ROLE_ATTENTION_POST_NORM] = {.part = {"post_attention_layernorm"}},
    [OT_ROLE_MLP_NORM] = {.part = {"post_attention_layernorm"}},
    [OT_ROLE_GATE_UP] = {.part = {"mlp.gate_proj", "mlp.up_proj"}},
    [OT_ROLE_DOWN] = {.part = {"mlp.down_proj"}},
    [OT_ROLE_MLP_POST_NORM] = {.part = {"post_feedforward_layernorm"}},
    [OT_ROLE_ROUTER] = {.part = {"mlp.gate"}},
    [OT_ROLE_EXPERT_GATE_UP] = {.part = {"mlp.experts.#.gate_proj", "mlp.experts.#.up_proj"}},
    [OT_ROLE_EXPERT_DOWN] = {.part = {"mlp.experts.#.down_proj"}},
    [OT_ROLE_SHARED_GATE_UP] = {.part = {"mlp.shared_experts.gate_proj",
                                         "mlp.shared_experts.up_proj"}},
    [OT_ROLE_SHARED_DOWN] = {.part = {"mlp.shared_experts.down_proj"}},
    [OT_ROLE_SHARED_GATE] = {.part = {"mlp.shared_expert_gate"}},
    [OT_ROLE_ATTENTION_QUERY] =
        {.part = {"attention_residual"}},  // these three are ours: HF has none
    [OT_ROLE_MLP_QUERY] = {.part = {"mlp_residual"}},
    [OT_ROLE_FINAL_QUERY] = {.part = {"model.residual"}},
    [OT_ROLE_FINAL_NORM] = {.part = {"model.norm"}},
    [OT_ROLE_HEAD] = {.part = {"lm_head"}},
};

static const ot_role_names *names_of(const ot_model *model, ot_role role) {
  const ot_role_names *const own = ot_family_row_of(model->family)->names;
  return own && own[role].part[0] ? &own[role] : &usual_names[role];
}

static const char *part_name(const ot_model *model, ot_role role, int part) {
  const ot_role_names *const names = names_of(model, role);
  return names->part[part] ? names->part[part] : names->part[0];
}

static const char *module_name(const ot_model *model, ot_role role) {
  if (role == OT_ROLE_Q_UP && model->mla.q_rank == 0) return "self_attn.q_proj";
  // These models also have a norm after the MLP and name the one before it differently.
  if (role == OT_ROLE_MLP_NORM && model->norm_placement == OT_NORM_SANDWICH) {
    return "pre_feedforward_layernorm";
  }
  return part_name(model, role, 0);
}

// Matrices inside a stacked tensor have no suffix.
static const char *full_name(const ot_hf_request *request, const char *module, ot_arena *arena) {
  const char *const name = ot_text_ends_with(module, "]")
                               ? module
                               : ot_arena_format(arena, "%s.%s", module, request->suffix);
  if (request->layer < 0) return name;
  const char *const layers = ot_family_row_of(request->model->family)->layers;
  return ot_arena_format(arena, "%s.%d.%s", layers ? layers : "model.layers", request->layer, name);
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
  const int64_t D = model->head_dim;
  slices[0] = (slice){.module = part_name(model, OT_ROLE_QKV, 0),
                      .rows = share->heads * D,
                      .first = share->first_head * D,
                      .whole = model->num_heads * D,
                      .copies = 1};
  slices[1] = (slice){.module = part_name(model, OT_ROLE_QKV, 1),
                      .rows = share->kv_heads * D,
                      .first = share->first_kv_head * D,
                      .whole = model->num_kv_heads * D,
                      .copies = share->kv_copies};
  slices[2] = slices[1];
  slices[2].module = part_name(model, OT_ROLE_QKV, 2);
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
  const ot_model *const model = request->model;
  const int count = model->gated_mlp ? 2 : 1;
  for (int i = 0; i < count; i++) {
    slices[i] = slice_of_columns(request, part_name(model, OT_ROLE_GATE_UP, 2 - count + i));
  }
  return count;
}

static int slices_of_shared_up(const ot_hf_request *request, slice *slices) {
  const ot_local_shape *const share = request->share;
  for (int i = 0; i < 2; i++) {
    slices[i] = (slice){.module = part_name(request->model, OT_ROLE_SHARED_GATE_UP, i),
                        .rows = share->shared_columns,
                        .first = share->first_shared_column,
                        .whole = request->model->moe.shared_size,
                        .copies = 1};
  }
  return 2;
}

// "mlp.experts.3.up_proj" of "mlp.experts.#.up_proj"; of a bias, "mlp.experts.up_proj_bias[3]" of
// "mlp.experts.up_proj[#]".
static const char *expert_module(const ot_hf_request *request, int expert, int part,
                                 ot_arena *arena) {
  const char *const name = part_name(request->model, request->role, part);
  const bool stacked = ot_text_ends_with(name, "]");
  const bool bias = stacked && ot_text_equal(request->suffix, "bias");
  const char *const number = ot_text_find(name, "#");
  const int64_t before = number - name - stacked;
  return ot_arena_format(arena, "%.*s%s%s%d%s", (int)before, name, bias ? "_bias" : "",
                         stacked ? "[" : "", expert, number + 1);
}

// The experts of this rank, `count` matrices of each.
static int slices_of_experts(const ot_hf_request *request, int count, slice *slices,
                             ot_arena *arena) {
  const ot_model *const model = request->model;
  const ot_local_shape *const share = request->share;
  const bool down = request->role == OT_ROLE_EXPERT_DOWN;
  const bool all = !share->expert_view || (down && ot_text_equal(request->suffix, "bias"));
  const int experts = (int)(all ? model->moe.num_experts : share->experts);
  const int begin = all ? 0 : (int)share->first_expert;
  const bool cut = share->expert_view && !down;
  const int64_t whole = down ? model->hidden_size : model->moe.expert_size;
  for (int i = 0; i < experts * count; i++) {
    slices[i] = (slice){.module = expert_module(request, begin + i / count, i % count, arena),
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
  if (role == OT_ROLE_EXPERT_GATE_UP) return slices_of_experts(request, 2, slices, arena);
  if (role == OT_ROLE_EXPERT_DOWN) return slices_of_experts(request, 1, slices, arena);
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
  const ot_role_names *const names = names_of(request->model, request->role);
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
        .transposed = names->transposed && parameter->rank == 2,
        .interleaved = names->interleaved,
    };
    set_columns(request, parameter, part);
    set_sum(request, parameter->rank == 1, slices[i].copies, part);
    row += slices[i].rows;
  }
  OT_ASSERT(row == parameter->rows);
}
