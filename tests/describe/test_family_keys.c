// SPDX-License-Identifier: Apache-2.0
// run: backends=cpu
// Keys of a single family: layers without rope, a gated shared expert, rotary parameters per layer
// type, heads that rotate in part, and rejected settings.
#include "describe/family.h"
#include "support/model_keys_case.h"

static void qwen2_moe_has_a_gated_shared_expert(void **state) {
  (void)state;
  const ot_model model = accept(
      "{\"model_type\": \"qwen2_moe\", \"num_hidden_layers\": 6, \"decoder_sparse_step\": 2,"
      " \"mlp_only_layers\": [3], \"use_sliding_window\": true, \"sliding_window\": 8,"
      " \"max_window_layers\": 4}");
  const bool experts[] = {false, true, false, false, false, true};
  const int64_t windows[] = {8, 0, 8, 0, 0, 0};
  for (int i = 0; i < 6; i++) {
    assert_int_equal(model.moe.layer[i], experts[i]);
    assert_int_equal(model.window[i], windows[i]);
  }
  assert_true(model.moe.shared_gate && model.qkv_bias && !model.output_bias);
  assert_int_equal(model.moe.shared_size, 5632);
  assert_false(accept("{\"model_type\": \"qwen2_moe\", \"qkv_bias\": false}").qkv_bias);
  // As transformers writes a model without windows.
  const ot_model saved = accept(
      "{\"model_type\": \"qwen2_moe\", \"use_sliding_window\": false, \"sliding_window\": 0}");
  assert_int_equal(saved.window[0], 0);
  refuse("{\"model_type\": \"qwen2_moe\", \"shared_expert_intermediate_size\": 0}",
         "shared_expert_intermediate_size", "1 to");
}

static void layers_without_rope_are_those_that_the_keys_say(void **state) {
  (void)state;
  const ot_model third = accept(
      "{\"model_type\": \"smollm3\", \"num_hidden_layers\": 4, \"no_rope_layer_interval\": 3}");
  const ot_model listed = accept(
      "{\"model_type\": \"smollm3\", \"num_hidden_layers\": 4, \"no_rope_layers\": [0, 1, 1, 0, 0],"
      " \"use_sliding_window\": true, \"sliding_window\": 8}");
  const bool every_third[] = {false, false, true, false}, ends[] = {true, false, false, true};
  for (int i = 0; i < 4; i++) {
    assert_int_equal(third.no_rope[i], every_third[i]);
    assert_int_equal(listed.no_rope[i], ends[i]);
    assert_int_equal(listed.window[i], ends[i] ? 8 : 0);
  }
  assert_false(ot_model_same_layer(&third, 1, 2));
  assert_true(ot_model_hash(&third) != ot_model_hash(&listed));
  const int kept[] = {2};
  ot_model one;
  ot_model_take_layers(&third, kept, 1, &one);
  assert_true(one.no_rope[0]);
  refuse("{\"model_type\": \"smollm3\", \"num_hidden_layers\": 4, \"no_rope_layers\": [1, 0]}",
         "no_rope_layers has 2 entries", "4 layers");
  refuse("{\"model_type\": \"smollm3\", \"no_rope_layers\": [2]}", "no_rope_layers", "0 to 1");
  refuse("{\"model_type\": \"llama\", \"no_rope_layers\": [1]}", "no_rope_layers", "another kind");
}

static void olmo3_scales_the_layers_that_see_everything(void **state) {
  (void)state;
  const ot_model model = load_preset("olmo3-7b");
  assert_true(model.rope.type == OT_ROPE_YARN && model.rope.factor == 8);
  assert_true(model.rope_local.type == OT_ROPE_DEFAULT && model.rope_local.theta == 500000);
  assert_true(model.norm_placement == OT_NORM_POST && model.qk_norm == OT_QK_NORM_ROW);
  for (int i = 0; i < 32; i++) assert_int_equal(model.window[i], i % 4 == 3 ? 0 : 4096);
  refuse("{\"model_type\": \"olmo3\", \"rope_theta\": 10000}", "rope_theta=10000",
         "differs in meaning between transformers 4 and 5");
  const ot_model both = accept(
      "{\"model_type\": \"olmo3\", \"rope_parameters\": {\"full_attention\": {\"rope_theta\": "
      "20000},"
      " \"sliding_attention\": {\"rope_theta\": 10000}}}");
  assert_true(both.rope.theta == 20000 && both.rope_local.theta == 10000);
  refuse(
      "{\"model_type\": \"olmo3\", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 8,"
      " \"attention_factor\": 1.3}}",
      "attention_factor=1.3", "the value implied by factor");
  refuse(
      "{\"model_type\": \"llama\", \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 8,"
      " \"attention_factor\": 1.3}}",
      "attention_factor=1.3", "null");
}

static void rejects_unsupported_phi3_variants(void **state) {
  (void)state;
  const ot_model phi3 = accept("{\"model_type\": \"phi3\", \"sliding_window\": 2047}");
  assert_true(phi3.window[0] == 2047 && phi3.window[31] == 2047 && phi3.residual_dropout == 0);
  refuse("{\"model_type\": \"phi3\", \"rope_scaling\": {\"type\": \"longrope\"}}", "longrope",
         "type");
  refuse("{\"model_type\": \"phi3\", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4}}",
         "longrope", "for phi3 only rope_type default");
  refuse("{\"model_type\": \"phi3\", \"partial_rotary_factor\": 0.75}", "partial_rotary_factor",
         "1");
  refuse("{\"model_type\": \"phi3\", \"embd_pdrop\": 0.1}", "embd_pdrop", "0");
}

static void kimi_k2_is_deepseek_v3_under_another_name(void **state) {
  (void)state;
  ot_model kimi = load_preset("kimi-k2");
  assert_string_equal(kimi.model_type, "kimi_k2");
  assert_string_equal(kimi.architecture, "DeepseekV3ForCausalLM");
  assert_true(kimi.rope.type == OT_ROPE_YARN && kimi.rope.beta_fast == kimi.rope.beta_slow);
  assert_true(!kimi.moe.layer[0] && kimi.moe.layer[1] && kimi.moe.scale == 2.827);
  const ot_model plain = accept("{\"model_type\": \"kimi_k2\"}");
  ot_model deepseek = accept("{\"model_type\": \"deepseek_v3\"}");
  deepseek.model_type = plain.model_type;
  assert_true(ot_model_hash(&plain) == ot_model_hash(&deepseek));
  // Files that name only the class are DeepSeek's.
  const ot_model unnamed = accept("{\"architectures\": [\"DeepseekV3ForCausalLM\"]}");
  assert_string_equal(unnamed.model_type, "deepseek_v3");
  refuse(
      "{\"model_type\": \"kimi_k2\", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4,"
      " \"beta_fast\": 1, \"beta_slow\": 2}}",
      "beta_slow=2", "at most beta_fast=1");
}

static void glm4_moe_rotates_a_part_of_each_head(void **state) {
  (void)state;
  const ot_model glm = load_preset("glm-4.5");
  assert_int_equal(glm.head_dim, 128);
  assert_int_equal(glm.rotary_dim, 64);
  assert_true(glm.qkv_bias && !glm.output_bias && glm.qk_norm == OT_QK_NORM_HEAD);
  assert_true(glm.moe.score == OT_MOE_SIGMOID && glm.moe.balance == OT_MOE_BALANCE_BIAS);
  assert_true(!glm.moe.layer[2] && glm.moe.layer[3] && glm.moe.renormalise);
  const ot_model air = accept("{\"model_type\": \"glm4_moe\", \"head_dim\": 128}");
  assert_true(!air.qkv_bias && air.qk_norm == OT_QK_NORM_NONE && air.rotary_dim == 64);
  assert_true(air.moe.num_groups == 1 && air.moe.scale == 1 && air.moe.num_experts == 128);
  const ot_model quarter = accept(
      "{\"model_type\": \"glm4_moe\", \"head_dim\": 128, \"rope_parameters\":"
      " {\"rope_theta\": 1000, \"partial_rotary_factor\": 0.25}}");
  assert_int_equal(quarter.rotary_dim, 32);
  const ot_model whole =
      accept("{\"model_type\": \"glm4_moe\", \"head_dim\": 128, \"partial_rotary_factor\": 1}");
  assert_int_equal(whole.rotary_dim, 128);
  refuse("{\"model_type\": \"glm4_moe\", \"head_dim\": 6, \"partial_rotary_factor\": 0.5}",
         "partial_rotary_factor of head_dim=3", "odd");
  refuse("{\"model_type\": \"glm4_moe\"}", "num_attention_heads=96 does not divide",
         "head_dim is not given");
  refuse("{\"model_type\": \"llama\", \"rope_parameters\": {\"partial_rotary_factor\": 0.5}}",
         "partial_rotary_factor=0.5 is not supported", "whole heads rotate");
  refuse("{\"model_type\": \"qwen3\", \"use_qk_norm\": true}", "use_qk_norm", "another kind");
}

// Each of the names in `list` ("a|b", or null) is a key of `variant`.
static void expect_keys(const char *family, const char *list, int variant) {
  char names[512] = "";
  assert_true(!list || strlen(list) < sizeof names);
  strcpy(names, list ? list : "");
  for (const char *name = strtok(names, "|"); name; name = strtok(NULL, "|")) {
    const ot_key *const key = ot_schema_find(&ot_model_schema, variant, name);
    if (!key || strcmp(key->name, name) != 0) fail_msg("%s: no key %s", family, name);
  }
}

static void rows_of_families_name_keys_that_exist(void **state) {
  (void)state;
  for (int i = 0; i < OT_FAMILY_COUNT; i++) {
    const ot_family_row *const row = ot_family_row_of((ot_family)i);
    const int variant = ot_family_variant((ot_family)i);
    expect_keys(row->model_type, row->keys, variant);
    expect_keys(row->model_type, row->without, 0);
    for (const ot_family_default *at = row->defaults; at->key; at++) {
      expect_keys(row->model_type, at->key, variant);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(qwen2_moe_has_a_gated_shared_expert),
      cmocka_unit_test(layers_without_rope_are_those_that_the_keys_say),
      cmocka_unit_test(olmo3_scales_the_layers_that_see_everything),
      cmocka_unit_test(rejects_unsupported_phi3_variants),
      cmocka_unit_test(kimi_k2_is_deepseek_v3_under_another_name),
      cmocka_unit_test(glm4_moe_rotates_a_part_of_each_head),
      cmocka_unit_test(rows_of_families_name_keys_that_exist),
  };
  return cmocka_run_group_tests(tests, begin, finish);
}
