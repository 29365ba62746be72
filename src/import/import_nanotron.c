// SPDX-License-Identifier: Apache-2.0
// nanotron: YAML whose model_config has the keys of a HF config.json, but for a few of its own and
// other defaults (src/nanotron/config/models_config.py).
#include "base/number.h"
#include "base/text.h"
#include "describe/model_keys.h"
#include "files/tree_file.h"
#include "import/import_parts.h"
#include "import/nanotron_keys.h"

bool ot_nanotron_is(const ot_import *import) {
  return ot_import_has_line(import, "model_config:") &&
         ot_import_has_line(import, "parallelism:") && ot_import_has_line(import, "tokens:");
}

// Keys of model_config that HF has not, and that change nothing in the price of a step.
static const char own_keys[] =
    "is_llama_config|is_qwen2_config|rope_interleaved|z_loss_enabled|z_loss_coefficient|"
    "_attn_implementation|flex_attention_mask|_fused_rotary_emb|_fused_rms_norm|"
    "_use_qkv_packed|_use_doc_masking|sliding_window_size|no_rope_layer|moe_config|"
    "attn_implementation";

// What must not be set: it changes the model.
static ot_status check_own(const ot_import *import, const ot_node *config) {
  static const char *const refused[] = {"sliding_window_size", "no_rope_layer", "moe_config", NULL};
  for (int i = 0; refused[i]; i++) {
    const ot_node *const node = ot_node_child(config, refused[i]);
    OT_CHECK(!node || node->kind == OT_NODE_NULL, OT_USAGE,
             "model.model_config.%s is not read from nanotron's files; allowed: null (%s)",
             refused[i], ot_node_place(import->arena, node));
  }
  const ot_node *const starcoder = ot_node_child(config, "is_starcoder2_config");
  OT_CHECK(!starcoder, OT_USAGE, "model.model_config: starcoder2 is not known (%s)",
           ot_node_place(import->arena, starcoder));
  return OT_OK;
}

static void put_default(const ot_import *import, ot_node *map, const char *key, const char *value) {
  if (ot_node_child(map, key)) return;
  ot_node *const node = ot_node_word(import->arena, value);
  node->source = "nanotron's default";
  ot_node_put(import->arena, map, key, node);
}

// nanotron's Qwen2 has biases where attention_bias says, as HF's llama.
static ot_status hf_keys(ot_import *import, ot_node *config, ot_node **out) {
  ot_node *const map = ot_node_create(import->arena, OT_NODE_MAP);
  ot_node *next;
  map->source = config->source;
  map->line = config->line;
  map->column = config->column;
  ot_node_put(import->arena, map, "model_type", ot_node_text(import->arena, "llama"));
  OT_TRY(check_own(import, config));
  for (ot_node *child = config->first; child; child = next) {
    next = child->next;
    if (ot_choice_matches(own_keys, child->key)) continue;
    ot_node_append(map, child);
  }
  put_default(import, map, "rms_norm_eps", "1e-06");
  put_default(import, map, "rope_theta", "10000");
  *out = map;
  return OT_OK;
}

static ot_status build_model(ot_import *import, const ot_nanotron_config *config, ot_node *tree) {
  ot_imported *const out = import->out;
  ot_node *const given = ot_node_find(tree, "model.model_config");
  OT_CHECK(given && given->kind == OT_NODE_MAP, OT_USAGE,
           "model.model_config: a map of the model's keys is needed (%s)", import->path);
  OT_TRY(hf_keys(import, given, &out->model_keys));
  OT_TRY(ot_model_read(out->model_keys, import->arena, &out->model));
  const int64_t rows =
      ot_import_padded(out->model.vocab_size, config->model.multiple * config->parallelism.tp);
  if (rows == out->model.vocab_size) return OT_OK;
  ot_node *const vocabulary = ot_node_child(out->model_keys, "vocab_size");
  if (vocabulary) ot_node_remove(out->model_keys, vocabulary);
  ot_node_put(import->arena, out->model_keys, "vocab_size", ot_node_integer(import->arena, rows));
  return ot_model_read(out->model_keys, import->arena, &out->model);
}

static const char *precision_of(const ot_nanotron_config *config) {
  if (config->model.type == 1) return "fp32";
  if (config->model.type == 2) return "fp16";
  return config->optimizer.fp32_gradients ? "bf16-fp32-gradients" : "bf16";
}

static void build_step(const ot_import *import, const ot_nanotron_config *config) {
  const ot_nanotron_parallelism *const p = &config->parallelism;
  ot_imported *const out = import->out;
  out->engine = "nanotron";
  out->precision = precision_of(config);
  out->tp = p->tp;
  out->pp = p->pp;
  out->vpp = 1;
  out->cp = p->cp;
  out->ep = p->ep;
  out->etp = p->tp;
  out->dp = p->dp;
  out->dp_replicate = 1;
  out->devices = p->tp * p->pp * p->cp * p->dp;
  out->zero = config->optimizer.zero;
  out->pipeline = p->order == 1 && p->pp > 1 ? OT_PIPELINE_GPIPE : OT_PIPELINE_1F1B;
  out->recompute = p->recompute ? OT_RECOMPUTE_FULL : OT_RECOMPUTE_NONE;
  out->micro_batch_size = config->tokens.micro_batch;
  out->global_batch_size = config->tokens.micro_batch * config->tokens.micro_batches * p->dp;
  out->sequence_length = config->tokens.sequence;
  out->no_sequence_parallel = p->tp > 1 && p->tp_mode == 0;
}

ot_status ot_nanotron_import(ot_import *import) {
  const ot_tree_origin origin = {.name = import->path};
  ot_nanotron_config config;
  ot_node *tree;
  OT_TRY(ot_tree_parse_yaml(&origin, import->text, import->bytes, import->arena, &tree));
  OT_TRY(ot_schema_read(&ot_nanotron_schema, tree, import->arena, &config));
  OT_CHECK((int64_t)config.parallelism.dp * config.parallelism.tp * config.parallelism.pp *
                   config.parallelism.cp <=
               1 << 20,
           OT_USAGE, "parallelism: more than %d devices (%s)", 1 << 20, import->path);
  ot_import_ignored(import, &ot_nanotron_schema, tree, "");
  OT_TRY(build_model(import, &config, tree));
  build_step(import, &config);
  return OT_OK;
}
