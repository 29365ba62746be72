// SPDX-License-Identifier: Apache-2.0
// NeMo 1 (model:, trainer:) and Megatron-Bridge (model:, train:, ddp:, mixed_precision:,
// comm_overlap:, as its ConfigContainer is written): their keys are those of Megatron-core, some
// under other names, so they become Megatron-LM's flags, whose table prices or refuses them. Other
// sections are outside a step.
#include "base/number.h"
#include "base/text.h"
#include "software/import_parts.h"

// In order of precedence, the last one first.
static const char *const sections[] = {
    "model", "dist", "optimizer", "train", "ddp", "mixed_precision", "comm_overlap", NULL};

// How a value becomes a flag.
typedef enum rule {
  RULE_SAME,     // the value itself
  RULE_NEGATED,  // the flag is set by false
  RULE_SWIGLU,   // by words that mean a gated silu
  RULE_HYBRID,   // fp8: true
} rule;

static const struct {
  const char *key, *flag;
  rule rule;
} renamed[] = {
    {"virtual_pipeline_model_parallel_size", "num-virtual-stages-per-pipeline-rank", RULE_SAME},
    {"num_layers_in_first_pipeline_stage", "decoder-first-pipeline-num-layers", RULE_SAME},
    {"num_layers_in_last_pipeline_stage", "decoder-last-pipeline-num-layers", RULE_SAME},
    {"microbatch_group_size_per_vp_stage", "microbatch-group-size-per-virtual-pipeline-stage",
     RULE_SAME},
    {"gated_linear_unit", "swiglu", RULE_SAME},
    {"add_bias_linear", "disable-bias-linear", RULE_NEGATED},
    {"share_embeddings_and_output_weights", "untie-embeddings-and-output-weights", RULE_NEGATED},
    {"gradient_accumulation_fusion", "no-gradient-accumulation-fusion", RULE_NEGATED},
    {"overlap_p2p_comm", "no-overlap-p2p-communication", RULE_NEGATED},
    {"grad_reduce_in_fp32", "grad-reduce-in-bf16", RULE_NEGATED},
    {"apply_rope_fusion", "no-rope-fusion", RULE_NEGATED},
    {"bias_dropout_fusion", "no-bias-dropout-fusion", RULE_NEGATED},
    {"fp8_wgrad", "no-fp8-wgrad", RULE_NEGATED},
    {"bucket_size", "ddp-bucket-size", RULE_SAME},
    // NeMo 1
    {"encoder_seq_length", "seq-length", RULE_SAME},
    {"bias", "disable-bias-linear", RULE_NEGATED},
    {"activation", "swiglu", RULE_SWIGLU},
    {"activations_checkpoint_granularity", "recompute-granularity", RULE_SAME},
    {"activations_checkpoint_method", "recompute-method", RULE_SAME},
    {"activations_checkpoint_num_layers", "recompute-num-layers", RULE_SAME},
    {"ub_tp_comm_overlap", "tp-comm-overlap", RULE_SAME},
    {"fp8_hybrid", "fp8-format", RULE_HYBRID},
};

// Keys of these sections that Megatron-LM has no flag for, and that change neither time nor memory:
// names and dtypes that other keys imply, values of parts that are off, and what the engine file
// prices in any case.
static const char own_inert[] =
    "_target_|activation_func|activation_func_clamp_value|autocast_*|enable_autocast|barrier_*|"
    "batch_p2p_comm|batch_p2p_sync|beta_*|clone_scatter_output_in_embedding|cache_mla_latents|"
    "cpu_offloading_activations|cpu_offloading_weights|dsa_*|embedding_init_method*|"
    "experimental_attention_variant|finalize_model_grads_func|fp4_recipe|hf_model_id|"
    "hetereogenous_*|inference_*|init_method|init_model_with_meta_device|kitchen_*|linear_conv_*|"
    "linear_key_*|linear_num_*|linear_value_*|mamba_*|mlp_chunks_for_prefill|min_offloaded_*|"
    "moe_hybridep_num_sms|moe_router_topk_limited_devices|mrope_section|mscale*|"
    "mtp_loss_scaling_factor|mup_*|num_layers_at_*|offload_modules|original_max_position_*|"
    "output_layer_init_method|parallel_output|params_dtype|pipeline_dtype|perform_initialization|"
    "pre_process|post_process|qk_clip_*|restore_modelopt_state|rope_scaling|rope_type|"
    "scatter_embedding_sequence_parallel|seq_len_interpolation_factor|should_pad_vocab|"
    "softmax_type|tp_comm_atomic_*|tp_comm_bulk_*|tp_comm_split_*|tp_comm_overlap_ag|"
    "tp_comm_overlap_rs*|transformer_layer_spec|use_kitchen|use_cpu_initialization|"
    "wgrad_deferral_limit|fp8_recipe|fp8_amax_*|fp8_margin|fp8_interval|fp32|"
    "average_in_collective|check_for_*|fsdp_all_gather_in_start_param_sync|"
    "megatron_fsdp_main_params_dtype|suggested_*|param_name_patterns_*|"
    "pad_buckets_for_high_nccl_busbw|use_gloo_process_groups|external_gpu_device_mapping|"
    "disable_jit_fuser|use_decentralized_pg|enable_megatron_core_*|data_parallel_size|"
    "sharp_enabled_group|params|lr|betas|sched|weight_decay|eps|adam_*|min_lr|clip_grad|"
    "store_param_remainders|main_*_dtype|decoupled_*|barrier_with_L1_time|"
    "overlap_cpu_optimizer_*|optimizer_offload_fraction|pin_cpu_*|log_num_zeros_in_grad|"
    "start_weight_decay|end_weight_decay|weight_decay_incr_style|tokenizer|data|nsys_profile|"
    "native_amp_*|megatron_amp_O2|apex_transformer_log_level|grad_allreduce_chunk_size_mb|"
    "grad_div_ar_fusion|gradient_as_bucket_view|resume_from_checkpoint|mcore_gpt|"
    "transformer_engine|name|ub_tp_comm_overlap_cfg|glu_linear_offset|"
    "disable_symmetric_registration|symmetric_ar_type|quant_recipe|timers|fully_parallel_*|"
    "dist_ckpt_*|distributed_*|config_logger_dir|persist_layer_norm|flight_recorder_*|local_rank|"
    "use_te_rng_tracker|manual_gc*|muon_*|sgd_momentum|loss_scale*|hysteresis|"
    "cuda_graph_retain_backward_graph|cuda_graph_use_single_mempool|fp4_param|"
    "moe_pad_experts_for_cuda_graph_inference";

bool ot_nemo_is(const ot_import *import) {
  const bool bridge = ot_import_has_line(import, "ddp:") || ot_import_has_line(import, "train:") ||
                      ot_import_has_line(import, "mixed_precision:");
  return ot_import_has_line(import, "model:") && (bridge || ot_import_has_line(import, "trainer:"));
}

static bool is_false(const ot_node *node) {
  return node->kind == OT_NODE_NULL ||
         (node->kind == OT_NODE_SCALAR && ot_choice_matches("false|False|null|None", node->text));
}

// "a b c" of a list; the text of a scalar.
static const char *text_of(const ot_import *import, const ot_node *node) {
  if (node->kind == OT_NODE_SCALAR) return node->text;
  ot_text_builder out = {.arena = import->arena};
  for (const ot_node *child = node->first; child; child = child->next) {
    ot_text_appendf(&out, "%s%s", child == node->first ? "" : " ",
                    child->kind == OT_NODE_SCALAR ? child->text : "?");
  }
  return ot_text_builder_text(&out);
}

// Sets a flag, or clears it: a later section may switch off what an earlier one switched on.
static void put(const ot_import *import, ot_node *map, const char *flag, const char *text,
                const ot_node *place) {
  const ot_node *const before = ot_node_child(map, flag);
  if (before) ot_node_remove(map, before);
  if (!text) return;
  ot_node *const node = ot_node_put(import->arena, map, flag, ot_node_word(import->arena, text));
  ot_node_copy_place(node, place);
}

static const char *flag_name(const ot_import *import, const char *key) {
  char *const name = ot_arena_text(import->arena, key, ot_text_length(key));
  for (char *at = name; *at != '\0'; at++) {
    if (*at == '_') *at = '-';
  }
  return name;
}

static void put_key(const ot_import *import, const ot_node *node, ot_node *map) {
  int i = 0;
  while (i < OT_COUNT(renamed) && !ot_text_equal(renamed[i].key, node->key)) i++;
  if (i == OT_COUNT(renamed)) {
    const char *const text = is_false(node) ? NULL : text_of(import, node);
    if (text && text[0] == '\0') return;
    put(import, map, flag_name(import, node->key), text, node);
    return;
  }
  const bool off = is_false(node);
  const char *const flag = renamed[i].flag;
  switch (renamed[i].rule) {
    case RULE_SAME:
      put(import, map, flag, off ? NULL : text_of(import, node), node);
      return;
    case RULE_NEGATED:
      if (node->kind == OT_NODE_NULL) return;
      put(import, map, flag, off ? "true" : NULL, node);
      return;
    case RULE_SWIGLU:
      put(import, map, flag,
          ot_choice_matches("swiglu|fast-swiglu", text_of(import, node)) ? "true" : NULL, node);
      return;
    case RULE_HYBRID:
      put(import, map, flag, off ? NULL : "hybrid", node);
      return;
  }
}

// Null of a later section leaves what an earlier one says.
static void put_section(ot_import *import, const ot_node *section, bool first, ot_node *map) {
  for (const ot_node *node = section->first; node; node = node->next) {
    const bool refers = node->kind == OT_NODE_SCALAR && node->text[0] == '$';
    if (ot_choice_matches(own_inert, node->key)) continue;
    if (refers || (node->kind == OT_NODE_NULL && !first)) continue;
    put_key(import, node, map);
  }
}

// An optimizer of NeMo 1 shards its states by name.
static void put_optimizer(const ot_import *import, const ot_node *model, ot_node *map) {
  static const struct {
    const char *key, *flag;
  } overlaps[] = {{"overlap_grad_sync", "overlap-grad-reduce"},
                  {"overlap_param_sync", "overlap-param-gather"}};
  const ot_node *const optim = ot_node_child(model, "optim");
  if (!optim) return;
  const ot_node *const name = ot_node_child(optim, "name");
  const bool sharded = name && name->text && ot_text_find(name->text, "distributed");
  put(import, map, "optim", NULL, optim);
  if (!sharded) return;
  put(import, map, "use-distributed-optimizer", "true", optim);
  for (int i = 0; i < OT_COUNT(overlaps); i++) {
    const ot_node *const node = ot_node_child(optim, overlaps[i].key);
    // The default of distributed_fused_adam overlaps both.
    if (!node || !is_false(node)) put(import, map, overlaps[i].flag, "true", optim);
  }
}

static void put_trainer(ot_import *import, const ot_node *trainer, ot_node *map) {
  const ot_node *const precision = ot_node_child(trainer, "precision");
  const ot_node *const devices = ot_node_child(trainer, "devices");
  const ot_node *const nodes = ot_node_child(trainer, "num_nodes");
  int64_t each = 0, hosts = 1;
  if (precision && precision->text && ot_text_starts_with(precision->text, "bf16"))
    put(import, map, "bf16", "true", precision);
  if (precision && precision->text && ot_text_starts_with(precision->text, "16"))
    put(import, map, "fp16", "true", precision);
  if (devices && devices->text) ot_number_parse_size(devices->text, &each);
  if (nodes && nodes->text) ot_number_parse_size(nodes->text, &hosts);
  const bool whole = each > 0 && hosts > 0 && each <= 1 << 20 && hosts <= 1 << 20;
  if (whole && each * hosts <= 1 << 20) import->out->devices = (int)(each * hosts);
}

// Sets what keys of Megatron-core imply and its flags state separately.
static void put_implied(const ot_import *import, const ot_node *model, ot_node *map) {
  const ot_node *const groups = ot_node_child(map, "num-query-groups");
  const ot_node *const fp8 = ot_node_child(map, "fp8");
  const ot_node *const tokenizer = ot_node_find(model, "tokenizer.type");
  if (groups) put(import, map, "group-query-attention", "true", groups);
  if (fp8 && ot_choice_matches("true|True", fp8->text)) put(import, map, "fp8", NULL, fp8);
  if (tokenizer && tokenizer->text) put(import, map, "tokenizer-type", tokenizer->text, tokenizer);
}

static ot_status check_activation(const ot_import *import, const ot_node *model) {
  const ot_node *const function = ot_node_find(model, "activation_func._target_");
  OT_CHECK(!function || ot_choice_matches("*.silu|*.gelu", function->text), OT_USAGE,
           "model.activation_func: %s is not priced; allowed: silu, gelu (%s)", function->text,
           ot_node_place(import->arena, function));
  return OT_OK;
}

ot_status ot_nemo_import(ot_import *import) {
  ot_node *tree;
  OT_TRY(ot_import_parse_yaml(import, &tree));
  const ot_node *const model = ot_node_child(tree, "model");
  OT_CHECK(model && model->kind == OT_NODE_MAP, OT_USAGE, "%s: model is no map", import->path);
  OT_TRY(check_activation(import, model));
  ot_node *const map = ot_node_create(import->arena, OT_NODE_MAP);
  map->source = import->path;
  for (int i = 0; sections[i]; i++) {
    const ot_node *const section = ot_node_child(tree, sections[i]);
    if (section && section->kind == OT_NODE_MAP) put_section(import, section, i == 0, map);
  }
  const ot_node *const trainer = ot_node_child(tree, "trainer");
  put_optimizer(import, model, map);
  if (trainer && trainer->kind == OT_NODE_MAP) put_trainer(import, trainer, map);
  put_implied(import, model, map);
  OT_TRY(ot_megatron_of_map(import, map));
  if (trainer) return OT_OK;
  ot_engine_options *const options = &import->out->options;
  import->out->engine = "megatron-bridge";
  if (options->captured == OT_SWITCH_OPEN) options->captured = OT_SWITCH_OFF;
  return OT_OK;
}
