// SPDX-License-Identifier: Apache-2.0
// MaxText: YAML with the keys of src/maxtext/configs/base.yml, as overlays of users give some of
// them. Named models are presets here; without a name, base_* keys describe a Llama model, as
// decoder_block llama2 does. Degrees are products over ici_ (within a slice) and dcn_ (between
// slices); -1 takes the remaining devices, and batches count per device.
#include "base/math.h"
#include "base/text.h"
#include "describe/model_keys.h"
#include "software/import_parts.h"

enum { AXES = 6 };  // data, fsdp, tensor, context, expert, pipeline

typedef struct settings {
  const char *name;
  int64_t hidden, layers, heads, kv_heads, ffn, head, vocabulary;
  bool tied;
  int ici[AXES], dcn[AXES];
  double batch;
  int64_t accumulation, sequence, stage_batches, stage_layers;
  bool sharded_optimizer;
  int remat, compute, stored, attention;
  const char *quantization;
} settings;

static const char *const remats[] = {"full", "minimal", "minimal_flash|minimal_with_context", NULL};
static const char *const types[] = {"bfloat16", "float32", NULL};
static const char *const attentions[] = {"autoselected|flash|cudnn_flash_te|cudnn_flash_jax",
                                         "dot_product", NULL};
static const char *const only_false[] = {"false", "False", NULL};
static const char *const only_true[] = {"true", "True", NULL};
static const char *const only_one[] = {"1", "-1", NULL};
static const char *const only_zero[] = {"0", NULL};
static const char *const only_adam[] = {"adamw", "adam_pax", NULL};
static const char *const only_llama[] = {"llama2", "default", NULL};
static const char *const only_dropless[] = {"-1", "-1.0", NULL};
static const char *const only_fp32[] = {"float32", "null", "", NULL};

// clang-format off
static const ot_key keys[] = {
    {"model_name", OT_KEY_TEXT, offsetof(settings, name), "default", .help = "the model"},
    {"base_emb_dim", OT_KEY_INTEGER, offsetof(settings, hidden), "2048", 1, 1 << 20,
     .help = "width of the model"},
    {"base_num_decoder_layers", OT_KEY_INTEGER, offsetof(settings, layers), "16",
     1, OT_MAX_LAYERS, .help = "layers"},
    {"base_num_query_heads", OT_KEY_INTEGER, offsetof(settings, heads), "16", 1, 1 << 16,
     .help = "query heads"},
    {"base_num_kv_heads", OT_KEY_INTEGER, offsetof(settings, kv_heads), "16", 1, 1 << 16,
     .help = "key and value heads"},
    {"base_mlp_dim", OT_KEY_INTEGER, offsetof(settings, ffn), "7168", 1, 1 << 22,
     .help = "width of the MLP"},
    {"head_dim", OT_KEY_INTEGER, offsetof(settings, head), "128", 1, 1 << 16,
     .help = "width of a head"},
    {"vocab_size", OT_KEY_INTEGER, offsetof(settings, vocabulary), "32000", 1, INT32_MAX,
     .help = "vocabulary"},
    {"logits_via_embedding", OT_KEY_BOOL, offsetof(settings, tied), "false",
     .help = "the head is the embedding"},
    {"ici_data_parallelism", OT_KEY_INT, offsetof(settings, ici[0]), "1", -1, 1 << 20,
     .help = "copies of the weights in a slice"},
    {"ici_fsdp_parallelism", OT_KEY_INT, offsetof(settings, ici[1]), "-1", -1, 1 << 20,
     .help = "ranks that shard the weights in a slice"},
    {"ici_tensor_parallelism", OT_KEY_INT, offsetof(settings, ici[2]), "1", 1, 1 << 20,
     .help = "tensor parallel degree in a slice"},
    {"ici_context_parallelism", OT_KEY_INT, offsetof(settings, ici[3]), "1", 1, 1 << 20,
     .help = "context parallel degree in a slice"},
    {"ici_expert_parallelism", OT_KEY_INT, offsetof(settings, ici[4]), "1", 1, 1 << 20,
     .help = "expert parallel degree in a slice"},
    {"ici_pipeline_parallelism", OT_KEY_INT, offsetof(settings, ici[5]), "1", 1, 1 << 20,
     .help = "stages in a slice"},
    {"dcn_data_parallelism", OT_KEY_INT, offsetof(settings, dcn[0]), "-1", -1, 1 << 20,
     .help = "copies of the weights over slices; -1: one slice"},
    {"dcn_fsdp_parallelism", OT_KEY_INT, offsetof(settings, dcn[1]), "1", 1, 1 << 20,
     .help = "ranks that shard the weights over slices"},
    {"dcn_tensor_parallelism", OT_KEY_INT, offsetof(settings, dcn[2]), "1", 1, 1 << 20,
     .help = "tensor parallel degree over slices"},
    {"dcn_context_parallelism", OT_KEY_INT, offsetof(settings, dcn[3]), "1", 1, 1 << 20,
     .help = "context parallel degree over slices"},
    {"dcn_expert_parallelism", OT_KEY_INT, offsetof(settings, dcn[4]), "1", 1, 1 << 20,
     .help = "expert parallel degree over slices"},
    {"dcn_pipeline_parallelism", OT_KEY_INT, offsetof(settings, dcn[5]), "1", 1, 1 << 20,
     .help = "stages over slices"},
    {"per_device_batch_size", OT_KEY_REAL, offsetof(settings, batch), "12", 0, 1 << 20,
     .above_minimum = true, .help = "sequences of a micro-batch per device"},
    {"gradient_accumulation_steps", OT_KEY_INTEGER, offsetof(settings, accumulation), "1",
     1, 1 << 20, .help = "micro-batches per step"},
    {"max_target_length", OT_KEY_INTEGER, offsetof(settings, sequence), "2048", 1, INT32_MAX,
     .help = "tokens per sequence"},
    {"num_pipeline_microbatches", OT_KEY_INTEGER, offsetof(settings, stage_batches), "-1",
     -1, 1 << 20, .help = "micro-batches of the pipeline; -1: one for each stage"},
    {"num_layers_per_pipeline_stage", OT_KEY_INTEGER, offsetof(settings, stage_layers), "1",
     1, OT_MAX_LAYERS, .help = "layers of a stage; fewer than its share: a circular pipeline"},
    {"shard_optimizer_over_data", OT_KEY_BOOL, offsetof(settings, sharded_optimizer), "false",
     .help = "optimizer states are sharded over data"},
    {"remat_policy", OT_KEY_CHOICE, offsetof(settings, remat), "full", .choices = remats,
     .help = "recomputed activations"},
    {"quantization", OT_KEY_TEXT, offsetof(settings, quantization), "", .null_text = "",
     .help = "GEMMs in fp8"},
    {"dtype", OT_KEY_CHOICE, offsetof(settings, compute), "bfloat16", .choices = types,
     .help = "dtype of GEMMs"},
    {"weight_dtype", OT_KEY_CHOICE, offsetof(settings, stored), "float32", .choices = types,
     .help = "dtype of weights and states"},
    {"attention", OT_KEY_CHOICE, offsetof(settings, attention), "autoselected",
     .choices = attentions, .help = "attention kernel"},
    {"decoder_block", OT_KEY_FIXED, .choices = only_llama, .help = "others by model_name"},
    {"opt_type", OT_KEY_FIXED, .choices = only_adam,
     .help = "states of other optimizers are not priced"},
    {"grad_dtype", OT_KEY_FIXED, .choices = only_fp32, .help = "not priced"},
    {"mu_dtype", OT_KEY_FIXED, .choices = only_fp32, .help = "not priced"},
    {"num_pipeline_repeats", OT_KEY_FIXED, .choices = only_one,
     .help = "circular pipelines are not priced"},
    {"num_experts", OT_KEY_FIXED, .choices = only_one, .help = "models with experts by model_name"},
    {"capacity_factor", OT_KEY_FIXED, .choices = only_dropless,
     .help = "experts that drop tokens are not priced"},
    {"sparse_matmul", OT_KEY_FIXED, .choices = only_true, .help = "dense experts are not priced"},
    {"megablox", OT_KEY_FIXED, .choices = only_true, .help = "other kernels are not priced"},
    {"optimizer_memory_host_offload", OT_KEY_FIXED, .choices = only_false,
     .help = "offloading is not priced"},
    {"parameter_memory_host_offload", OT_KEY_FIXED, .choices = only_false,
     .help = "offloading is not priced"},
    {"mtp_num_layers", OT_KEY_FIXED, .choices = only_zero, .help = "not priced"},
    {"sliding_window_size", OT_KEY_FIXED, .choices = only_zero, .help = "windows by model_name"},
    {"enable_rampup_batch_size", OT_KEY_FIXED, .choices = only_false, .help = "not priced"},
    {"ici_fsdp_transpose_parallelism", OT_KEY_FIXED, .also = "dcn_fsdp_transpose_parallelism",
     .choices = only_one, .help = "not priced"},
    {"ici_tensor_transpose_parallelism", OT_KEY_FIXED, .also = "dcn_tensor_transpose_parallelism",
     .choices = only_one, .help = "not priced"},
    {"ici_sequence_parallelism", OT_KEY_FIXED, .also = "dcn_sequence_parallelism",
     .choices = only_one, .help = "not priced"},
    {"ici_tensor_sequence_parallelism", OT_KEY_FIXED, .also = "dcn_tensor_sequence_parallelism",
     .choices = only_one, .help = "not priced"},
    {"ici_autoregressive_parallelism", OT_KEY_FIXED, .also = "dcn_autoregressive_parallelism",
     .choices = only_one, .help = "not of training"},
};

// Data, checkpoints, logs and profiles; values of the optimizer and of initial weights; how the
// step is compiled and named.
static const ot_schema schema = {
    "configuration of MaxText", keys, OT_COUNT(keys), .size = sizeof(settings),
    .inert = "base_config|run_name|base_output_directory|override_model_config|hardware|steps|"
             "dataset_*|train_split|eval_*|hf_*|grain_*|tokenizer_*|tokenize_*|add_bos|add_eos|"
             "packing|enable_data_shuffling|data_shuffle_seed|load_*|enable_checkpointing|"
             "async_checkpointing|checkpoint_*|save_*|max_num_checkpoints_to_keep|"
             "enable_single_controller|metrics_file|gcs_metrics|log_period|log_config|"
             "enable_tensorboard|use_vertex_tensorboard|enable_wandb|wandb_*|profiler*|"
             "skip_first_n_steps_for_profiler|upload_all_profiler_results|profile_*|dump_hlo*|"
             "enable_goodput_recording|monitor_goodput|jax_cache_dir|"
             "jax_distributed_initialization_timeout|learning_rate*|lr_schedule_type|"
             "warmup_steps_fraction|cosine_learning_rate_final_fraction|adam_*|"
             "gradient_clipping_threshold|init_weights_seed|dense_init_scale|dropout_rate|"
             "enable_dropout|scan_layers|param_scan_axis|reuse_example_batch|sa_*|"
             "normalization_layer_epsilon|rope_*|max_prefill_predict_length|compile_topology*|"
             "compiled_trainstep_file|num_slices|allow_split_physical_axes",
    .unknown_hint = "remove %s, if it affects neither time nor memory of a step"};
// clang-format on

// ---- interpretation ----

bool ot_maxtext_is(const ot_import *import) {
  static const char *const words[] = {"per_device_batch_size:", "ici_fsdp_parallelism:",
                                      "ici_tensor_parallelism:", "dcn_data_parallelism:", NULL};
  for (int i = 0; words[i]; i++) {
    if (ot_import_has_line(import, words[i])) return true;
  }
  return false;
}

static void put(const ot_import *import, ot_node *map, const char *key, int64_t value) {
  ot_node_put(import->arena, map, key, ot_node_integer(import->arena, value));
}

static ot_status build_unnamed(ot_import *import, const settings *s) {
  ot_imported *const out = import->out;
  ot_node *const map = ot_node_create(import->arena, OT_NODE_MAP);
  ot_node_put(import->arena, map, "model_type", ot_node_text(import->arena, "llama"));
  put(import, map, "hidden_size", s->hidden);
  put(import, map, "intermediate_size", s->ffn);
  put(import, map, "num_hidden_layers", s->layers);
  put(import, map, "num_attention_heads", s->heads);
  put(import, map, "num_key_value_heads", s->kv_heads);
  put(import, map, "head_dim", s->head);
  put(import, map, "vocab_size", s->vocabulary);
  put(import, map, "max_position_embeddings", s->sequence);
  ot_node_put(import->arena, map, "tie_word_embeddings", ot_node_bool(import->arena, s->tied));
  ot_node_set_source(map, import->path);
  OT_TRY(ot_model_read(map, import->arena, &out->model));
  out->model_keys = map;
  out->has_model = true;
  return OT_OK;
}

static ot_status build_model(ot_import *import, const settings *s) {
  static const struct {
    const char *name, *preset;
  } renamed[] = {{"deepseek3-671b", "deepseek-v3"}};
  const char *preset = s->name;
  if (ot_text_equal(s->name, "default")) return build_unnamed(import, s);
  for (int i = 0; i < OT_COUNT(renamed); i++) {
    if (ot_text_equal(renamed[i].name, s->name)) preset = renamed[i].preset;
  }
  if (!import->host->has_preset(import->host->context, preset, import->arena)) {
    ot_fail(OT_USAGE, "model_name: %s is no preset (%s)", s->name, import->path);
    return ot_fail_hint(OT_USAGE, "`orthant presets` lists models");
  }
  return ot_import_preset(import, preset);
}

static ot_status read_precision(ot_import *import, const settings *s) {
  static const char eights[] =
      "fp8|fp8_full|nanoo_fp8|te_fp8_delayedscaling|te_fp8_currentscaling|te_mxfp8";
  const bool narrow = s->quantization[0] != '\0';
  OT_CHECK(!narrow || ot_choice_matches(eights, s->quantization), OT_USAGE,
           "quantization: %s is not priced; allowed: %s (%s)", s->quantization, eights,
           import->path);
  import->out->precision = narrow            ? "fp8"
                           : s->compute == 1 ? "fp32"
                           : s->stored == 0  ? "bf16-pure"
                                             : "amp-bf16";
  return OT_OK;
}

// Experts share the ranks of dp: they are a factor of it.
static ot_status build_degrees(ot_import *import, const settings *s) {
  ot_imported *const out = import->out;
  const int data = s->dcn[0] > 0 ? s->dcn[0] : 1;
  const bool open = s->ici[0] < 0 || s->ici[1] < 0;
  OT_CHECK(s->ici[0] != 0 && s->ici[1] != 0 && s->dcn[0] != 0, OT_USAGE,
           "ici_fsdp_parallelism: 0 is out of range; allowed: -1, or 1 and more (%s)",
           import->path);
  out->tp = s->ici[2] * s->dcn[2];
  out->cp = s->ici[3] * s->dcn[3];
  out->ep = s->ici[4] * s->dcn[4];
  out->pp = s->ici[5] * s->dcn[5];
  out->etp = out->vpp = 1;
  const int shard = (s->ici[1] > 0 ? s->ici[1] : 1) * s->dcn[1] * out->ep;
  const bool sharded = s->ici[1] != 1 || s->dcn[1] > 1 || out->ep > 1;
  out->zero = sharded ? 3 : s->sharded_optimizer ? 1 : 0;
  out->dp_replicate = sharded ? data * (s->ici[0] > 0 ? s->ici[0] : 1) : 1;
  out->dp = open ? 0 : data * s->ici[0] * shard;
  if (s->ici[0] < 0 && sharded) out->shard_ranks = shard;
  if (s->dcn[0] < 0)
    ot_import_note(import, "one slice: dcn_data_parallelism -1 is as many as there are");
  return OT_OK;
}

static ot_status build_batch(ot_import *import, const settings *s) {
  ot_imported *const out = import->out;
  const double rank = s->batch * out->tp * out->pp * out->cp;
  const int64_t sequences = (int64_t)(rank + 0.5);
  const double off = rank - (double)sequences;
  OT_CHECK(
      sequences >= 1 && off < 1e-6 && off > -1e-6, OT_USAGE,
      "per_device_batch_size: %g on the %d devices of a rank of dp are no whole sequences (%s)",
      s->batch, out->tp * out->pp * out->cp, import->path);
  const int64_t batches = out->pp == 1 ? 1 : s->stage_batches > 0 ? s->stage_batches : out->pp;
  OT_CHECK(sequences % batches == 0, OT_USAGE,
           "num_pipeline_microbatches: %lld do not divide the %lld sequences of a rank (%s)",
           (long long)batches, (long long)sequences, import->path);
  OT_CHECK(out->pp == 1 || s->stage_layers * out->pp >= out->model.num_layers, OT_USAGE,
           "num_layers_per_pipeline_stage: %lld of %lld layers on %d stages are a circular "
           "pipeline, which is not priced (%s)",
           (long long)s->stage_layers, (long long)out->model.num_layers, out->pp, import->path);
  out->micro_batch_size = sequences / batches;
  out->local_batch_size = sequences * s->accumulation;
  out->sequence_length = s->sequence;
  return OT_OK;
}

ot_status ot_maxtext_import(ot_import *import) {
  static const ot_recompute remat[] = {OT_RECOMPUTE_FULL, OT_RECOMPUTE_SELECTIVE,
                                       OT_RECOMPUTE_NONE};
  ot_imported *const out = import->out;
  settings s;
  ot_node *tree;
  OT_TRY(ot_import_parse_yaml(import, &tree));
  OT_TRY(ot_schema_read(&schema, tree, import->arena, &s));
  ot_import_ignored(import, &schema, tree, "");
  OT_TRY(build_model(import, &s));
  OT_TRY(build_degrees(import, &s));
  OT_TRY(build_batch(import, &s));
  OT_TRY(read_precision(import, &s));
  out->engine = "jax";
  out->recompute = remat[s.remat];
  out->pipeline = out->pp > 1 ? OT_PIPELINE_GPIPE : OT_PIPELINE_1F1B;
  if (s.attention == 1) out->options.attention = 1 + OT_ATTENTION_UNFUSED;
  return OT_OK;
}
