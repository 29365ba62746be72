// SPDX-License-Identifier: Apache-2.0
// run: backends=cpu
// HF keys to models: published sizes of the presets, rotary parameters in the spelling of both
// major versions, windows, and rejection of every setting that would change the mathematics.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "describe/model_keys.h"
#include "describe/moe.h"
#include "describe/residuals.h"
#include "support/model_keys_case.h"
#include "support/preset_sizes.h"

static void presets_have_the_published_number_of_parameters(void **state) {
  (void)state;
  for (int i = 0; i < preset_count; i++) {
    const ot_model model = load_preset(preset_sizes[i].name);
    const int64_t counted = ot_model_parameters(&model);
    if (counted != preset_sizes[i].parameters) {
      fail_msg("%s: %lld", preset_sizes[i].name, (long long)counted);
    }
  }
}

static void presets_have_no_dropout(void **state) {
  (void)state;
  for (int i = 0; i < preset_count; i++) {
    const ot_model model = load_preset(preset_sizes[i].name);
    assert_true(model.attention_dropout == 0 && model.residual_dropout == 0 &&
                model.embedding_dropout == 0);
  }
}

static void assert_same(const ot_model *model, const ot_model *read) {
  assert_true(ot_model_hash(model) == ot_model_hash(read));
  assert_int_equal(model->dtype, read->dtype);
  assert_int_equal(model->bos_id, read->bos_id);
  assert_int_equal(model->pad_id, read->pad_id);
  assert_int_equal(model->num_eos, read->num_eos);
  for (int i = 0; i < model->num_eos; i++) assert_int_equal(model->eos_id[i], read->eos_id[i]);
}

static void a_model_written_as_keys_reads_back_the_same(void **state) {
  (void)state;
  for (int i = 0; i < preset_count; i++) {
    const ot_model model = load_preset(preset_sizes[i].name);
    ot_model again;
    ot_model exported;
    assert_int_equal(ot_model_read(ot_model_write(&model, &arena), &arena, &again), OT_OK);
    if (ot_model_read(ot_model_write_config(&model, &arena), &arena, &exported) != OT_OK) {
      fail_msg("%s: %s", preset_sizes[i].name, ot_fail_message());
    }
    assert_same(&model, &again);
    assert_same(&model, &exported);
  }
}

static void exports_say_what_other_readers_need(void **state) {
  (void)state;
  const ot_model qwen = load_preset("qwen3-8b");
  const ot_model mistral = load_preset("mistral-7b");
  const ot_model gpt2 = load_preset("gpt2");
  const ot_node *tree = ot_model_write_config(&qwen, &arena);
  assert_int_equal(ot_node_count(ot_node_child(tree, "layer_types")), 36);
  assert_string_equal(ot_node_find(tree, "rope_parameters.rope_theta")->text, "1000000.0");
  assert_string_equal(ot_node_find(tree, "architectures.0")->text, "Qwen3ForCausalLM");
  assert_string_equal(ot_node_find(tree, "torch_dtype")->text, "bfloat16");
  tree = ot_model_write_config(&mistral, &arena);
  assert_null(ot_node_child(tree, "layer_types"));
  assert_string_equal(ot_node_child(tree, "sliding_window")->text, "4096");
  tree = ot_model_write_config(&gpt2, &arena);
  assert_string_equal(ot_node_child(tree, "n_embd")->text, "768");
  assert_null(ot_node_child(tree, "rope_parameters"));
}

static void quantised_weights_are_fp8_in_blocks_or_refused_by_name(void **state) {
  (void)state;
  static const char fp8[] =
      "{\"model_type\": \"llama\", \"quantization_config\": {\"quant_method\": \"fp8\", \"fmt\": "
      "\"e4m3\", \"activation_scheme\": \"dynamic\", \"weight_block_size\": [128, 64]}}";
  const ot_model model = accept(fp8);
  assert_int_equal(model.scale_block[0], 128);
  assert_int_equal(model.scale_block[1], 64);
  assert_null(ot_node_child(ot_model_write_config(&model, &arena), "quantization_config"));
  const ot_model plain = accept("{\"model_type\": \"llama\", \"quantization_config\": null}");
  assert_int_equal(plain.scale_block[0], 0);
  assert_true(ot_model_parameters(&plain) == ot_model_parameters(&model));
  static const char *const others[][2] = {
      {"\"quant_method\": \"awq\", \"bits\": 4, \"zero_point\": true", "by awq are"},
      {"\"quant_method\": \"gptq\", \"bits\": 4", "by gptq are"},
      {"\"quant_method\": \"bitsandbytes\", \"load_in_4bit\": true", "by bitsandbytes are"},
      {"\"quant_method\": \"mxfp4\"", "by mxfp4 are"},
      {"\"quant_method\": \"fbgemm_fp8\"", "by fbgemm_fp8 are"},
      {"\"quant_method\": \"compressed-tensors\", \"config_groups\": {}", "by compressed-tensors"},
      {"\"quant_method\": \"fp8\", \"weight_block_size\": null", "by fp8 without blocks are"},
      {"\"quant_method\": \"fp8\", \"fmt\": \"e5m2\", \"weight_block_size\": [1, 1]", "by fp8 are"},
      {"\"load_in_8bit\": true", "by an unnamed method are"}};
  for (int i = 0; i < OT_COUNT(others); i++) {
    refuse(ot_arena_format(&arena, "{\"model_type\": \"llama\", \"quantization_config\": {%s}}",
                           others[i][0]),
           others[i][1], "(config.json:1:48)");
    assert_non_null(strstr(ot_fail_hint_text(), "--set model.quantization_config=null"));
  }
}

static void hash_distinguishes_models(void **state) {
  (void)state;
  const ot_model a = load_preset("llama3-8b");
  ot_model b = a;
  b.rope.theta = 10000;
  assert_false(ot_model_hash(&a) == ot_model_hash(&b));
  b = a;
  b.window[31] = 4096;
  assert_false(ot_model_hash(&a) == ot_model_hash(&b));
  assert_false(ot_model_same_layer(&b, 30, 31));
  assert_true(ot_model_same_layer(&b, 29, 30));
}

static void families_set_values_without_keys(void **state) {
  (void)state;
  const ot_model gpt2 = load_preset("gpt2");
  assert_true(gpt2.learned_positions && gpt2.mlp_bias && gpt2.qkv_bias && gpt2.output_bias);
  assert_true(!gpt2.gated_mlp && gpt2.norm == OT_NORM_LAYERNORM && gpt2.rotary_dim == 0);
  assert_int_equal(gpt2.activation, OT_ACTIVATION_GELU_TANH);
  assert_int_equal(gpt2.intermediate_size, 3072);
  const ot_model olmo2 = load_preset("olmo2-7b");
  assert_int_equal(olmo2.norm_placement, OT_NORM_POST);
  assert_int_equal(olmo2.qk_norm, OT_QK_NORM_ROW);
  const ot_model gemma = load_preset("gemma3-1b");
  assert_int_equal(gemma.norm_placement, OT_NORM_SANDWICH);
  assert_true(gemma.norm_offset == 1 && gemma.attention_scale == 1.0 / 16);
  assert_true(gemma.embedding_scale > 33.94 && gemma.embedding_scale < 33.95);
  const ot_model gemma2 = load_preset("gemma2-27b");
  assert_true(gemma2.norm_placement == OT_NORM_SANDWICH && gemma2.norm_offset == 1);
  assert_true(gemma2.qk_norm == OT_QK_NORM_NONE && gemma2.attention_scale == 1.0 / 12);
  assert_true(gemma2.score_soft_cap == 50 && gemma2.logit_soft_cap == 30);
  const ot_model uncapped = accept(
      "{\"model_type\": \"gemma2\", \"attn_logit_softcapping\": null,"
      " \"final_logit_softcapping\": null}");
  assert_true(uncapped.score_soft_cap == 0 && uncapped.logit_soft_cap == 0);
  const ot_model qwen2 = accept("{\"model_type\": \"qwen2\"}");
  assert_true(qwen2.qkv_bias && !qwen2.output_bias && !qwen2.mlp_bias);
}

static void gemma_has_five_local_layers_for_a_global_one(void **state) {
  (void)state;
  const ot_model model = load_preset("gemma3-1b");
  for (int i = 0; i < 26; i++) assert_int_equal(model.window[i], (i + 1) % 6 == 0 ? 0 : 512);
  assert_true(model.rope.theta == 1e6 && model.rope_local.theta == 1e4);
  const ot_model gemma2 = load_preset("gemma2-2b");
  for (int i = 0; i < 26; i++) assert_int_equal(gemma2.window[i], i % 2 == 0 ? 4096 : 0);
}

static void reads_rotary_parameters_of_both_majors(void **state) {
  (void)state;
  const ot_model old = accept(
      "{\"model_type\": \"llama\", \"max_position_embeddings\": 131072, \"rope_theta\": 5e5,"
      " \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1,"
      " \"high_freq_factor\": 4, \"original_max_position_embeddings\": 8192}}");
  const ot_model new = accept(
      "{\"model_type\": \"llama\", \"max_position_embeddings\": 131072, \"rope_parameters\":"
      " {\"rope_type\": \"llama3\", \"rope_theta\": 500000.0, \"factor\": 8.0,"
      " \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0,"
      " \"original_max_position_embeddings\": 8192}}");
  assert_int_equal(old.rope.type, OT_ROPE_LLAMA3);
  assert_true(ot_model_hash(&old) == ot_model_hash(&new));
  const ot_model linear = accept(
      "{\"model_type\": \"llama\", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}}");
  assert_true(linear.rope.type == OT_ROPE_LINEAR && linear.rope.factor == 2 &&
              linear.rope.theta == 10000);
  const ot_model inside = accept(
      "{\"model_type\": \"llama\", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2,"
      " \"rope_theta\": 777}}");
  assert_true(inside.rope.theta == 777);
  const ot_model gemma = accept(
      "{\"model_type\": \"gemma3_text\", \"rope_parameters\": {\"full_attention\": {\"rope_type\":"
      " \"linear\", \"factor\": 8, \"rope_theta\": 2e6}, \"sliding_attention\":"
      " {\"rope_theta\": 3e4, \"rope_type\": \"default\"}}}");
  assert_true(gemma.rope.factor == 8 && gemma.rope.theta == 2e6 && gemma.rope_local.theta == 3e4);
}

static void refuses_rotary_parameters_that_disagree(void **state) {
  (void)state;
  refuse(
      "{\"model_type\": \"llama\", \"rope_theta\": 10000, \"rope_parameters\":"
      " {\"rope_type\": \"default\", \"rope_theta\": 500000}}",
      "disagree", "rope_theta");
  refuse(
      "{\"model_type\": \"llama\", \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2},"
      " \"rope_parameters\": {\"rope_type\": \"default\"}}",
      "rope_scaling and rope_parameters disagree", "config.json:1:98");
  refuse("{\"model_type\": \"llama\", \"rope_scaling\": {\"rope_type\": \"linear\"}}", "factor",
         "config.json:1:41");
  refuse("{\"model_type\": \"gemma3_text\", \"rope_parameters\": {\"rope_theta\": 1e6}}",
         "full_attention", "gemma3_text");
  refuse("{\"model_type\": \"llama\", \"rope_parameters\": {\"full_attention\": {}}}", "one set",
         "llama");
}

static void reads_windows_of_interleaved_layers(void **state) {
  (void)state;
  const ot_model mistral = load_preset("mistral-7b");
  for (int i = 0; i < 32; i++) assert_int_equal(mistral.window[i], 4096);
  assert_string_equal(mistral.model_type, "mistral");
  const ot_model none = accept("{\"model_type\": \"mistral\", \"sliding_window\": null}");
  assert_int_equal(none.window[0], 0);
  const ot_model mixed = accept(
      "{\"model_type\": \"mistral\", \"num_hidden_layers\": 3, \"sliding_window\": 8,"
      " \"layer_types\": [\"sliding_attention\", \"full_attention\", \"sliding_attention\"]}");
  assert_int_equal(mixed.window[0], 8);
  assert_int_equal(mixed.window[1], 0);
  assert_string_equal(mixed.model_type, "ministral");
  const ot_model qwen = accept(
      "{\"model_type\": \"qwen3\", \"num_hidden_layers\": 4, \"use_sliding_window\": true,"
      " \"sliding_window\": 16, \"max_window_layers\": 2}");
  assert_int_equal(qwen.window[1], 0);
  assert_int_equal(qwen.window[2], 16);
  const ot_model off =
      accept("{\"model_type\": \"qwen2\", \"sliding_window\": 16, \"max_window_layers\": 2}");
  assert_int_equal(off.window[5], 0);
  refuse(
      "{\"model_type\": \"qwen2\", \"num_hidden_layers\": 1,"
      " \"layer_types\": [\"sliding_attention\"]}",
      "use_sliding_window", "layer 0");
  refuse("{\"model_type\": \"qwen2\", \"layer_types\": [\"full_attention\"]}", "1 entries",
         "32 layers");
  refuse("{\"model_type\": \"gemma3_text\", \"sliding_window\": 0}", "sliding_window: 0",
         "1 to 2147483647 tokens");
}

static void refuses_keys_that_change_the_mathematics(void **state) {
  (void)state;
  refuse("{\"model_type\": \"gemma3_text\",\n \"attn_logit_softcapping\": 50.0}",
         "attn_logit_softcapping", "config.json:2:28");
  refuse("{\"model_type\": \"gemma3_text\", \"final_logit_softcapping\": 30}",
         "final_logit_softcapping", "not supported");
  refuse(
      "{\"model_type\": \"llama\", \"rope_scaling\": {\"rope_type\": \"longrope\", \"factor\": 4}}",
      "longrope", "default, linear, llama3, yarn");
  refuse("{\"model_type\": \"llama\", \"partial_rotary_factor\": 0.5}", "partial_rotary_factor",
         "0.5");
  refuse("{\"model_type\": \"gpt2\", \"scale_attn_by_inverse_layer_idx\": true}",
         "scale_attn_by_inverse_layer_idx", "true");
  refuse("{\"model_type\": \"gpt2\", \"reorder_and_upcast_attn\": true}", "reorder_and_upcast_attn",
         "true");
  refuse("{\"model_type\": \"llama\", \"hidden_act\": \"mish\"}", "mish", "silu");
  refuse("{\"model_type\": \"llama\", \"logits_scaling\": 8}", "unknown key", "logits_scaling");
  refuse("{\"model_type\": \"llama\", \"pruned_heads\": {\"0\": [1]}}", "pruned_heads", "{...}");
  refuse("{\"model_type\": \"mistral\", \"attention_bias\": true}", "attention_bias", "true");
  refuse("{\"model_type\": \"olmoe\", \"sliding_window\": 64}", "sliding_window", "64");
  refuse("{\"model_type\": \"mamba\"}", "mamba", "gpt2, llama");
  refuse("{\"vocab_size\": 5}", "model_type is required", "config.json:1:1");
}

static void keys_of_another_family_are_unknown(void **state) {
  (void)state;
  refuse("{\"model_type\": \"llama\", \"n_inner\": 64}", "n_inner", "another kind of model");
  refuse("{\"model_type\": \"gpt2\", \"hidden_act\": \"silu\"}", "hidden_act", "another kind");
  refuse("{\"model_type\": \"llama\", \"hiden_size\": 64}", "hiden_size", "unknown key");
  assert_string_equal(ot_fail_hint_text(), "did you mean \"hidden_size\"?");
}

static void two_spellings_of_one_key_are_refused(void **state) {
  (void)state;
  refuse("{\"model_type\": \"gpt2\", \"n_embd\": 64, \"hidden_size\": 128}", "given twice",
         "n_embd");
}

static void inert_keys_pass(void **state) {
  (void)state;
  accept(
      "{\"model_type\": \"llama\", \"_name_or_path\": \"x\", \"use_cache\": true,"
      " \"pretraining_tp\": 1, \"id2label\": {\"0\": \"A\"}, \"torch_dtype\": \"bfloat16\","
      " \"pruned_heads\": {}, \"partial_rotary_factor\": 1.0}");
}

static void architectures_stand_in_for_a_missing_model_type(void **state) {
  (void)state;
  const ot_model model = accept("{\"architectures\": [\"Qwen3ForCausalLM\"]}");
  assert_int_equal(model.family, OT_FAMILY_QWEN3);
  assert_int_equal(model.head_dim, 128);
}

static void shapes_must_fit_each_other(void **state) {
  (void)state;
  refuse("{\"model_type\": \"llama\", \"num_key_value_heads\": 3}", "num_key_value_heads=3",
         "1, 2, 4, 8, 16, 32");
  refuse("{\"model_type\": \"llama\", \"hidden_size\": 100, \"num_attention_heads\": 3}",
         "num_attention_heads=3 does not divide hidden_size=100", "head_dim");
  refuse("{\"model_type\": \"llama\", \"head_dim\": 33}", "head_dim=33", "even");
  refuse("{\"model_type\": \"gpt2\", \"resid_pdrop\": 1.0}", "resid_pdrop", "below 1");
  refuse("{\"model_type\": \"llama\", \"num_hidden_layers\": 0}", "num_hidden_layers: 0",
         "1 to 512");
  const ot_model small = accept("{\"model_type\": \"gpt2\", \"vocab_size\": 100}");
  assert_int_equal(small.num_eos, 0);  // the family's eos exceeds this vocabulary
  const ot_model odd = accept(
      "{\"model_type\": \"llama\", \"hidden_size\": 60, \"num_attention_heads\": 7, \"head_dim\":"
      " 10, \"num_key_value_heads\": null}");
  assert_int_equal(odd.num_kv_heads, 7);
}

static void presets_of_experts_have_the_published_number_of_active_parameters(void **state) {
  (void)state;
  // As counted on transformers' modules, k of E experts active; published as 12.9B, 39B, 3.3B, 22B,
  // 1.3B, 37B, 2.7B, 14B, 32B and 32B (GLM-4.5 without its input embedding and its head).
  static const preset_size active[] = {
      {"mixtral-8x7b", 12879925248},     {"mixtral-8x22b", 39152031744},
      {"qwen3-30b-a3b", 3353032704},     {"qwen3-235b-a22b", 22190763520},
      {"olmoe-1b-7b", 1282017280},       {"deepseek-v3", 37552282624},
      {"qwen1.5-moe-a2.7b", 2689173504}, {"qwen2-57b-a14b", 14249270784},
      {"kimi-k2", 32861477888},          {"glm-4.5", 33632251904},
  };
  for (int i = 0; i < OT_COUNT(active); i++) {
    const ot_model model = load_preset(active[i].name);
    const int64_t counted = ot_model_active_parameters(&model);
    if (counted != active[i].parameters) fail_msg("%s: %lld", active[i].name, (long long)counted);
  }
  const ot_model dense = load_preset("llama3-8b");
  assert_int_equal(ot_model_active_parameters(&dense), ot_model_parameters(&dense));
}

static void reads_experts_of_every_family(void **state) {
  (void)state;
  const ot_model mixtral = load_preset("mixtral-8x7b");
  assert_int_equal(mixtral.moe.num_experts, 8);
  assert_int_equal(mixtral.moe.experts_per_token, 2);
  assert_int_equal(mixtral.moe.expert_size, 14336);
  assert_true(mixtral.moe.renormalise && mixtral.moe.score == OT_MOE_SOFTMAX);
  assert_true(mixtral.moe.balance == OT_MOE_BALANCE_AUX_LOSS &&
              mixtral.moe.aux_coefficient == 0.02);
  const ot_model qwen = load_preset("qwen3-30b-a3b");
  assert_int_equal(qwen.moe.expert_size, 768);
  assert_int_equal(qwen.intermediate_size, 6144);
  const ot_model olmoe = load_preset("olmoe-1b-7b");
  assert_true(!olmoe.moe.renormalise && olmoe.qk_norm == OT_QK_NORM_ROW);
  assert_int_equal(olmoe.norm_placement, OT_NORM_PRE);
  const ot_model deepseek = load_preset("deepseek-v3");
  assert_true(!deepseek.moe.layer[2] && deepseek.moe.layer[3] && deepseek.moe.layer[60]);
  assert_false(ot_model_same_layer(&deepseek, 2, 3));
  assert_int_equal(deepseek.moe.shared_size, 2048);
  assert_int_equal(deepseek.moe.num_groups, 8);
  assert_int_equal(deepseek.moe.groups_per_token, 4);
  assert_true(deepseek.moe.score == OT_MOE_SIGMOID && deepseek.moe.scale == 2.5);
  assert_true(deepseek.moe.balance == OT_MOE_BALANCE_BIAS);
  assert_true(deepseek.moe.aux_coefficient == 1e-4 && deepseek.moe.bias_rate == 1e-3);
  assert_int_equal(deepseek.mla.kv_rank, 512);
  assert_int_equal(deepseek.head_dim, 192);
  assert_int_equal(deepseek.rotary_dim, 64);
  // (0.1 ln 40 + 1)^2 / sqrt(192), DeepSeek-AI's released model code.
  assert_true(deepseek.attention_scale > 0.1352337 && deepseek.attention_scale < 0.1352339);
}

static void layers_without_experts_are_those_that_the_keys_say(void **state) {
  (void)state;
  const ot_model model = accept(
      "{\"model_type\": \"qwen3_moe\", \"num_hidden_layers\": 6, \"decoder_sparse_step\": 2,"
      " \"mlp_only_layers\": [3]}");
  const bool experts[] = {false, true, false, false, false, true};
  for (int i = 0; i < 6; i++) assert_int_equal(model.moe.layer[i], experts[i]);
}

static void the_variants_of_routing_have_their_own_defaults(void **state) {
  (void)state;
  const ot_model choice = accept(
      "{\"model_type\": \"deepseek_v3\", \"n_group\": 1, \"topk_group\": 1,"
      " \"moe_routing\": \"expert_choice\"}");
  assert_true(choice.moe.balance == OT_MOE_BALANCE_NONE && choice.moe.capacity_factor == 1);
  const ot_model drops = accept(
      "{\"model_type\": \"mixtral\", \"moe_routing\": "
      "\"drop_by_score\", \"moe_balance\": \"bias\"}");
  assert_true(drops.moe.balance == OT_MOE_BALANCE_BIAS && drops.moe.capacity_factor == 1.25);
  assert_true(drops.moe.aux_coefficient == 0);
}

static void the_balance_of_transformers_is_k_times_the_mean_over_layers(void **state) {
  (void)state;
  const char *const text =
      "{\"model_type\": \"mixtral\", \"num_hidden_layers\": 8, \"num_experts_per_tok\": 2,"
      " \"router_aux_loss_coef\": 0.5%s}";
  char plain[256], theirs[256];
  ot_text_format(plain, sizeof plain, text, "");
  ot_text_format(theirs, sizeof theirs, text, ", \"moe_aux_loss_scale\": \"transformers\"");
  const ot_model own = accept(plain), other = accept(theirs);
  assert_true(ot_moe_aux_weight(&own) == 0.5);
  assert_true(ot_moe_aux_weight(&other) == 0.5 * 2 / 8);
  assert_true(other.moe.aux_coefficient == 0.5);
  assert_true(ot_model_hash(&own) != ot_model_hash(&other));
  ot_model again;
  assert_int_equal(ot_model_read(ot_model_write(&other, &arena), &arena, &again), OT_OK);
  assert_true(ot_model_hash(&again) == ot_model_hash(&other));
}

static void expect_place(const ot_model *model, int64_t layer, ot_residual_position expected) {
  const ot_residual_position at = ot_residual_position_of(model, layer);
  assert_int_equal(at.finished, expected.finished);
  assert_int_equal(at.begun, expected.begun);
  assert_int_equal(at.attention_ends, expected.attention_ends);
  assert_int_equal(at.mlp_ends, expected.mlp_ends);
}

static void blocks_of_residuals_count_sublayers(void **state) {
  (void)state;
  const ot_model plain = accept("{\"model_type\": \"llama\"}");
  expect_place(&plain, 3, (ot_residual_position){0});
  const ot_model model = accept(
      "{\"model_type\": \"llama\", \"num_hidden_layers\": 5, \"attention_residuals\": \"block\","
      " \"attention_residual_block_size\": 3}");
  // Sub-layers 0 1 2 | 3 4 5 | 6 7 8 | 9: two per layer; the embedding is on the stack from the
  // start.
  expect_place(&model, 0, (ot_residual_position){1, false, false, false});
  expect_place(&model, 1, (ot_residual_position){1, true, true, false});
  expect_place(&model, 2, (ot_residual_position){2, true, false, true});
  expect_place(&model, 3, (ot_residual_position){3, false, false, false});
  expect_place(&model, 4, (ot_residual_position){3, true, true, false});
  expect_place(&model, 5, (ot_residual_position){4, true, false, false});
  assert_true(ot_model_parameters(&model) > 11 * model.hidden_size);
  assert_false(ot_model_same_layer(&model, 0, 3));
  const ot_model eight = accept(
      "{\"model_type\": \"llama\", \"num_hidden_layers\": 18, \"attention_residuals\": \"block\"}");
  assert_int_equal(eight.residuals.block_size, 5);
  // Layers taken out of the model keep their residual place.
  const int taken[] = {4, 1};
  ot_model some;
  ot_model_take_layers(&model, taken, 2, &some);
  expect_place(&some, 0, (ot_residual_position){3, true, true, false});
  expect_place(&some, 1, (ot_residual_position){1, true, true, false});
  expect_place(&some, 2, (ot_residual_position){4, true, false, false});
}

static void blocks_of_residuals_must_fit_the_model(void **state) {
  (void)state;
  refuse("{\"model_type\": \"llama\", \"attention_residual_block_size\": 3}",
         "attention_residual_block_size=3", "attention_residuals: block");
  refuse(
      "{\"model_type\": \"llama\", \"num_hidden_layers\": 4, \"attention_residuals\": \"block\","
      " \"attention_residual_block_size\": 9}",
      "attention_residual_block_size=9", "1 to 8");
  refuse("{\"model_type\": \"llama\", \"attention_residuals\": \"full\"}", "attention_residuals",
         "block");
}

static void experts_must_fit_each_other(void **state) {
  (void)state;
  refuse("{\"model_type\": \"mixtral\", \"num_experts_per_tok\": 9}", "num_experts_per_tok=9",
         "1 to 8");
  refuse("{\"model_type\": \"deepseek_v3\", \"n_group\": 7}", "n_group=7", "n_routed_experts=256");
  refuse("{\"model_type\": \"deepseek_v3\", \"n_group\": 128, \"topk_group\": 3}",
         "topk_group=3 groups of a token hold 6 experts", "num_experts_per_tok=8");
  refuse(
      "{\"model_type\": \"mixtral\", \"moe_routing\": \"expert_choice\", \"moe_balance\":"
      " \"aux_loss\"}",
      "expert_choice", "moe_balance none");
  refuse("{\"model_type\": \"mixtral\", \"moe_routing\": \"drop\"}", "moe_routing",
         "drop_by_position");
  refuse("{\"model_type\": \"deepseek_v3\", \"scoring_func\": \"softmax\"}", "scoring_func",
         "sigmoid");
  refuse("{\"model_type\": \"olmoe\", \"clip_qkv\": 8.0}", "clip_qkv", "null");
  refuse("{\"model_type\": \"deepseek_v3\", \"num_key_value_heads\": 16}", "num_key_value_heads=16",
         "128");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(presets_have_the_published_number_of_parameters),
      cmocka_unit_test(presets_have_no_dropout),
      cmocka_unit_test(a_model_written_as_keys_reads_back_the_same),
      cmocka_unit_test(exports_say_what_other_readers_need),
      cmocka_unit_test(quantised_weights_are_fp8_in_blocks_or_refused_by_name),
      cmocka_unit_test(hash_distinguishes_models),
      cmocka_unit_test(families_set_values_without_keys),
      cmocka_unit_test(gemma_has_five_local_layers_for_a_global_one),
      cmocka_unit_test(reads_rotary_parameters_of_both_majors),
      cmocka_unit_test(refuses_rotary_parameters_that_disagree),
      cmocka_unit_test(reads_windows_of_interleaved_layers),
      cmocka_unit_test(refuses_keys_that_change_the_mathematics),
      cmocka_unit_test(keys_of_another_family_are_unknown),
      cmocka_unit_test(two_spellings_of_one_key_are_refused),
      cmocka_unit_test(inert_keys_pass),
      cmocka_unit_test(architectures_stand_in_for_a_missing_model_type),
      cmocka_unit_test(shapes_must_fit_each_other),
      cmocka_unit_test(presets_of_experts_have_the_published_number_of_active_parameters),
      cmocka_unit_test(reads_experts_of_every_family),
      cmocka_unit_test(layers_without_experts_are_those_that_the_keys_say),
      cmocka_unit_test(the_balance_of_transformers_is_k_times_the_mean_over_layers),
      cmocka_unit_test(the_variants_of_routing_have_their_own_defaults),
      cmocka_unit_test(blocks_of_residuals_count_sublayers),
      cmocka_unit_test(blocks_of_residuals_must_fit_the_model),
      cmocka_unit_test(experts_must_fit_each_other),
  };
  return cmocka_run_group_tests(tests, begin, finish);
}
