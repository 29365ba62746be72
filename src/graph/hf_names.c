// SPDX-License-Identifier: Apache-2.0
// One table of module names for each naming scheme. Fused parameters (q|k|v, gate|up) have one part
// for each matrix they hold, whether HF stores these apart (llama) or as one tensor (gpt2's
// c_attn).
#include "graph/hf_names.h"

#include "base/text.h"

// Module names; %d is the layer. Comma-separated names are the parts of a fused parameter.
static const char *const llama_names[OT_ROLES] = {
    [OT_ROLE_EMBEDDING] = "model.embed_tokens",
    [OT_ROLE_ATTENTION_NORM] = "input_layernorm",
    [OT_ROLE_Q_NORM] = "self_attn.q_norm",
    [OT_ROLE_K_NORM] = "self_attn.k_norm",
    [OT_ROLE_ATTENTION_OUTPUT] = "self_attn.o_proj",
    [OT_ROLE_ATTENTION_POST_NORM] = "post_attention_layernorm",
    [OT_ROLE_MLP_NORM] = "post_attention_layernorm",
    [OT_ROLE_DOWN] = "mlp.down_proj",
    [OT_ROLE_MLP_POST_NORM] = "post_feedforward_layernorm",
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
    [OT_ROLE_FINAL_NORM] = "transformer.ln_f",
    [OT_ROLE_HEAD] = "lm_head",
};

static bool is_linear(ot_role role) {
  return role == OT_ROLE_QKV || role == OT_ROLE_ATTENTION_OUTPUT || role == OT_ROLE_GATE_UP ||
         role == OT_ROLE_DOWN;
}

static const char *module_name(const ot_model *model, ot_role role) {
  if (model->family == OT_FAMILY_GPT2) return gpt2_names[role];
  // gemma3 normalises around the MLP too and calls the norm before it differently.
  if (role == OT_ROLE_MLP_NORM && model->norm_placement == OT_NORM_SANDWICH) {
    return "pre_feedforward_layernorm";
  }
  return llama_names[role];
}

static const char *full_name(const ot_hf_request *request, const char *module, ot_arena *arena) {
  if (request->layer < 0) return ot_arena_format(arena, "%s.%s", module, request->suffix);
  const bool gpt2 = request->model->family == OT_FAMILY_GPT2;
  const char *const prefix = gpt2 ? "transformer.h" : "model.layers";
  return ot_arena_format(arena, "%s.%d.%s.%s", prefix, request->layer, module, request->suffix);
}

typedef struct slice {
  const char *module;
  int64_t rows;
} slice;

// The matrices inside a fused parameter, or one slice of all rows.
static int slices_of(const ot_model *model, ot_role role, int64_t rows, slice *slices) {
  const int64_t kv = model->num_kv_heads * model->head_dim;
  const bool gpt2 = model->family == OT_FAMILY_GPT2;
  if (role == OT_ROLE_QKV) {
    slices[0] = (slice){gpt2 ? "attn.c_attn" : "self_attn.q_proj", rows - 2 * kv};
    slices[1] = (slice){gpt2 ? "attn.c_attn" : "self_attn.k_proj", kv};
    slices[2] = (slice){gpt2 ? "attn.c_attn" : "self_attn.v_proj", kv};
    return 3;
  }
  if (role == OT_ROLE_GATE_UP && model->gated_mlp) {
    slices[0] = (slice){"mlp.gate_proj", rows / 2};
    slices[1] = (slice){"mlp.up_proj", rows / 2};
    return 2;
  }
  const bool up = role == OT_ROLE_GATE_UP && !gpt2;
  slices[0] = (slice){up ? "mlp.up_proj" : module_name(model, role), rows};
  return 1;
}

void ot_hf_parts(const ot_hf_request *request, ot_arena *arena, ot_parameter *parameter) {
  const ot_model *const model = request->model;
  const ot_role role = request->role;
  enum { MAX_SLICES = 3 };
  slice slices[MAX_SLICES];
  const int count = slices_of(model, role, parameter->rows, slices);
  const bool conv1d = model->family == OT_FAMILY_GPT2 && is_linear(role);
  parameter->num_parts = count;
  parameter->parts = ot_arena_array(arena, count, sizeof *parameter->parts);
  int64_t row = 0;
  for (int i = 0; i < count; i++) {
    // Slices that share a name are pieces of one HF tensor.
    const bool shared = count > 1 && ot_text_equal(slices[0].module, slices[count - 1].module);
    parameter->parts[i] = (ot_parameter_part){
        .hf_name = full_name(request, slices[i].module, arena),
        .first_row = row,
        .rows = slices[i].rows,
        .hf_first = shared ? row : 0,
        .hf_rows = shared ? parameter->rows : slices[i].rows,
        .hf_cols = parameter->cols,
        .transposed = conv1d && parameter->rank == 2,
        .sum_group = -1,
        .counted = true,
    };
    row += slices[i].rows;
  }
}
