// SPDX-License-Identifier: Apache-2.0
// Megatron-LM: degrees, batch, precision, overlap and recompute from flags, and the layers of each
// chunk of a pipeline (megatron/core/transformer/pipeline_parallel_layer_layout.py,
// transformer_block.py).
#include "base/number.h"
#include "base/text.h"
#include "software/megatron.h"

static bool is_sharded(const ot_megatron_flags *f) { return f->torch_fsdp || f->megatron_fsdp; }

static bool has_graphs(const ot_megatron_flags *f) { return f->graphs || f->graph_kind > 0; }

static int zero_of(const ot_megatron_flags *f) {
  if (f->torch_fsdp) return 3;
  if (f->megatron_fsdp) return f->sharding;
  return f->distributed_optimizer ? 1 : 0;
}

static const char *precision_of(const ot_megatron_flags *f) {
  if (f->fp8 >= 0) return f->gradients_bf16 ? "fp8" : "fp8-fp32-gradients";
  if (f->fp16) return "fp16";
  if (!f->bf16) return "fp32";
  return f->gradients_bf16 ? "bf16" : "bf16-fp32-gradients";
}

// OptimizerConfig keeps other dtypes for its precision-aware optimizer alone. It may also share the
// high bits of master weights with bf16 weights (store_param_remainders), which is not counted.
static double moment_bytes_of(const ot_megatron_flags *f) {
  static const double bytes[] = {4, 2, 2, 1};
  return f->narrow_states ? bytes[f->moment_1] + bytes[f->moment_2] : 0;
}

static bool is_local(const ot_megatron_flags *f) { return f->implementation == 1 && !f->flash; }

// Graphs and FSDP are of the versions that megatron-bridge describes.
static const char *engine_of(const ot_megatron_flags *f) {
  if (f->deepspeed) return f->no_pipeline ? "deepspeed" : "megatron-deepspeed";
  if (is_local(f)) return f->sequence_parallel ? "megatron-2022" : "megatron-2021";
  return has_graphs(f) || is_sharded(f) ? "megatron-bridge" : "megatron-core";
}

static ot_status read_recompute(ot_import *import, const ot_megatron_flags *f) {
  ot_imported *const out = import->out;
  const int64_t each = f->layers / f->pp;
  const bool some = f->recompute == 0 && f->method == 1 && f->recompute_layers > 0;
  if (some && f->recompute_layers < each) {
    ot_import_note(import,
                   "%lld of %lld layers of a stage are recomputed: the cost assumes all of them",
                   (long long)f->recompute_layers, (long long)each);
  }
  const bool selective = f->recompute == 1 || f->recompute_activations || f->recompute_moe;
  out->recompute = selective ? OT_RECOMPUTE_SELECTIVE : OT_RECOMPUTE_NONE;
  if (f->recompute == 0 || f->checkpoints) out->recompute = OT_RECOMPUTE_FULL;
  if (out->recompute != OT_RECOMPUTE_SELECTIVE) return OT_OK;
  const char *const key = ot_arena_format(import->arena, "%s: recompute-modules", import->path);
  OT_TRY(ot_module_set_read(key, f->recompute_modules, &out->modules));
  if (f->recompute_moe) out->modules |= OT_MODULE_SET(OT_MODULE_MOE);
  return OT_OK;
}

// ---- layers ----

// "([0]*3+[1]*58)", "[0,1,1]", "2".
ot_status ot_megatron_expert_layers(const ot_import *import, const ot_megatron_flags *f,
                                    bool *out) {
  const char *at = f->expert_layers;
  int64_t layer = 0, every;
  if (ot_number_parse_size(at, &every) && every >= 1) {
    for (; layer < f->layers; layer++) out[layer] = layer % every == 0;
    return OT_OK;
  }
  while (*at != '\0' && layer < f->layers) {
    if (*at != '0' && *at != '1') {
      at++;
      continue;
    }
    const bool expert = *at++ == '1';
    int64_t times = 1;
    if (at[0] == ']' && at[1] == '*') {
      times = 0;
      for (at += 2; *at >= '0' && *at <= '9' && times < OT_MAX_LAYERS; at++)
        times = times * 10 + (*at - '0');
    }
    for (; times > 0 && layer < f->layers; times--) out[layer++] = expert;
  }
  OT_CHECK(layer == f->layers, OT_USAGE,
           "moe-layer-freq: %s names %lld layers, not num-layers %lld (%s)", f->expert_layers,
           (long long)layer, (long long)f->layers, import->path);
  return OT_OK;
}

// ---- stages ----

enum { LAYOUT_BYTES = 1 << 16 };

typedef struct layout {
  int *layers;  // [num]
  int num, total;
} layout;

// One chunk: letters E t m L, each with an optional "*N"; brackets group: (tt|)*29 is expanded by
// the caller.
static ot_status read_chunk_letter(const ot_import *import, const char **at, layout *out) {
  const char letter = *(*at)++;
  int64_t times = 1;
  OT_CHECK(letter == 'E' || letter == 't' || letter == 'm' || letter == 'L', OT_USAGE,
           "pipeline-model-parallel-layout: '%c' is none of E, t, m, L (%s)", letter, import->path);
  if (**at == '*') {
    times = 0;
    for ((*at)++; **at >= '0' && **at <= '9' && times < OT_MAX_LAYERS; (*at)++)
      times = times * 10 + (**at - '0');
  }
  if (letter == 't' || letter == 'm') out->layers[out->num] += (int)times;
  return OT_OK;
}

// "(tt|)*29" becomes 29 times "tt|".
static const char *expanded(const char *text, ot_arena *arena) {
  ot_text_builder out = {.arena = arena};
  for (const char *at = text; *at != '\0' && out.length < LAYOUT_BYTES; at++) {
    const char *end = at;
    if (*at == ',' || *at == ' ') continue;
    while (*at == '(' && *end != '\0' && *end != ')') end++;
    if (*at != '(' || end[0] != ')') {
      ot_text_append(&out, at, 1);
      continue;
    }
    int64_t times = 1;
    const char *after = end + 1;
    if (*after == '*') {
      times = 0;
      for (after++; *after >= '0' && *after <= '9' && times < OT_MAX_LAYERS; after++)
        times = times * 10 + (*after - '0');
    }
    for (; times > 0 && out.length < LAYOUT_BYTES; times--)
      ot_text_append(&out, at + 1, end - at - 1);
    at = after - 1;
  }
  return ot_text_builder_text(&out);
}

static ot_status read_layout(const ot_import *import, const ot_megatron_flags *f, layout *out) {
  const char *at = expanded(f->layout, import->arena);
  while (*at != '\0') {
    if (*at == ',' || *at == ' ') {
      at++;
      continue;
    }
    if (*at == '|') {
      at++;
      OT_CHECK(++out->num < OT_MAX_LAYERS, OT_USAGE,
               "pipeline-model-parallel-layout: more than %d chunks (%s)", OT_MAX_LAYERS,
               import->path);
      continue;
    }
    OT_TRY(read_chunk_letter(import, &at, out));
  }
  out->num++;
  OT_CHECK(out->num % f->pp == 0, OT_USAGE,
           "pipeline-model-parallel-layout: %d chunks are not a multiple of the %d stages (%s)",
           out->num, f->pp, import->path);
  return OT_OK;
}

// The first and the last stage have the given layers, the others share the rest.
static ot_status read_ends(const ot_import *import, const ot_megatron_flags *f, int chunks,
                           layout *out) {
  const int per_stage = chunks / f->pp;
  const int ends = (f->first_layers >= 0) + (f->last_layers >= 0);
  int64_t rest = f->layers;
  if (f->first_layers >= 0) rest -= f->first_layers;
  if (f->last_layers >= 0) rest -= f->last_layers;
  OT_CHECK(f->pp > ends && rest >= 0 && rest % (f->pp - ends) == 0, OT_USAGE,
           "decoder-first-pipeline-num-layers: %lld layers do not divide over the other %d stages "
           "(%s)",
           (long long)rest, f->pp - ends, import->path);
  for (int c = 0; c < chunks; c++) {
    const int stage = c % f->pp;
    int64_t layers = rest / (f->pp - ends);
    if (stage == 0 && f->first_layers >= 0) layers = f->first_layers;
    if (stage == f->pp - 1 && f->last_layers >= 0) layers = f->last_layers;
    OT_CHECK(layers % per_stage == 0, OT_USAGE,
             "%lld layers of a stage do not divide over its %d chunks (%s)", (long long)layers,
             per_stage, import->path);
    out->layers[c] = (int)(layers / per_stage);
  }
  out->num = chunks;
  return OT_OK;
}

// Embedding and loss count as layers: their chunks have one less.
static ot_status read_counted(const ot_import *import, const ot_megatron_flags *f, int chunks,
                              layout *out) {
  const int64_t all = f->layers + f->embedding_is_layer + f->loss_is_layer;
  OT_CHECK(all % chunks == 0, OT_USAGE,
           "account-for-embedding-in-pipeline-split: %lld layers do not divide over %d chunks (%s)",
           (long long)all, chunks, import->path);
  for (int c = 0; c < chunks; c++) out->layers[c] = (int)(all / chunks);
  out->layers[0] -= f->embedding_is_layer;
  out->layers[chunks - 1] -= f->loss_is_layer;
  out->num = chunks;
  return OT_OK;
}

static int chunks_of(const ot_megatron_flags *f) {
  if (f->vpp > 0) return f->vpp;
  if (f->layers_per_chunk == 0 || f->pp == 1) return 1;
  const int64_t all = f->layers + f->embedding_is_layer + f->loss_is_layer;
  const int64_t chunks = all / f->pp / f->layers_per_chunk;
  return chunks > 1 ? (int)chunks : 1;
}

static ot_status read_stages(ot_import *import, const ot_megatron_flags *f) {
  ot_imported *const out = import->out;
  layout found = {.layers = ot_arena_array(import->arena, OT_MAX_LAYERS + 1, sizeof(int))};
  const bool ends = f->first_layers >= 0 || f->last_layers >= 0;
  out->vpp = chunks_of(f);
  if (f->pp == 1) return OT_OK;
  OT_CHECK((int64_t)out->vpp * f->pp <= f->layers + 2, OT_USAGE,
           "%d stages of %d chunks are more than the %lld layers (%s)", f->pp, out->vpp,
           (long long)f->layers, import->path);
  if (f->layout[0] != '\0') {
    OT_TRY(read_layout(import, f, &found));
    out->vpp = found.num / f->pp;
  } else if (ends) {
    OT_TRY(read_ends(import, f, out->vpp * f->pp, &found));
  } else if (f->embedding_is_layer || f->loss_is_layer) {
    OT_TRY(read_counted(import, f, out->vpp * f->pp, &found));
  } else {
    return OT_OK;
  }
  for (int c = 0; c < found.num; c++) found.total += found.layers[c];
  OT_CHECK(found.total == out->model.num_layers, OT_USAGE,
           "the layout of stages has %d layers, the model %lld (%s)", found.total,
           (long long)out->model.num_layers, import->path);
  out->chunk_layers = found.layers;
  out->num_chunks = found.num;
  return OT_OK;
}

// ---- what a run switches on ----

static ot_switch on_if(bool is) { return is ? OT_SWITCH_ON : OT_SWITCH_OFF; }

static int attention_of(const ot_megatron_flags *f) {
  if (f->backend == 1) return 1 + OT_ATTENTION_FLASH_2;
  return f->backend == 2 ? 1 + OT_ATTENTION_UNFUSED : 0;
}

// Megatron-LM switches overlap off by default. Without --tp-comm-overlap, the weight gradients hide
// the collectives of the backward (core/tensor_parallel/layers.py).
static void build_options(ot_import *import, const ot_megatron_flags *f) {
  ot_engine_options *const o = &import->out->options;
  o->attention = attention_of(f);
  if (f->no_accumulation_fusion) o->fused_accumulation = OT_SWITCH_OFF;
  if (f->no_overlap_p2p) o->overlap_pipeline = OT_SWITCH_OFF;
  if (f->overlap_experts) o->overlap_expert = OT_SWITCH_ON;
  if (f->dispatcher == 1 || f->deepep) o->fused_dispatch = OT_SWITCH_ON;
  if (f->fp8_activation_inputs) o->fp8_activation_inputs = OT_SWITCH_ON;
  if (f->fp8_attention) o->fp8_attention = OT_SWITCH_ON;
  if (is_local(f) || f->deepspeed) return;
  o->fused_loss = f->fused_loss ? OT_SWITCH_ON : OT_SWITCH_OPEN;
  o->captured = has_graphs(f) ? OT_SWITCH_ON : OT_SWITCH_OPEN;
  o->overlap_reduce = on_if(f->overlap_gradients);
  o->overlap_gather = o->overlap_update_gather = on_if(f->overlap_weights);
  // A bucket is a number of gradients, in fp32 unless they are reduced in bf16.
  o->bucket_bytes = f->bucket_elements * (f->gradients_bf16 ? 2 : 4);
  if (f->tp == 1) return;
  o->async_tp = on_if(f->overlap_tp);
  o->backward_tp = on_if(!f->no_async_tp);
}

static ot_status check_cp(const ot_import *import, const ot_megatron_flags *f) {
  OT_CHECK(f->cp == 1 || ot_text_equal(f->cp_kind, "p2p"), OT_USAGE,
           "cp-comm-type: %s is not priced; allowed: p2p (%s)", f->cp_kind, import->path);
  OT_CHECK(f->rounds == 0 || f->rounds == f->pp, OT_USAGE,
           "microbatch-group-size-per-virtual-pipeline-stage: %d is not priced; allowed: pp %d "
           "(%s)",
           f->rounds, f->pp, import->path);
  return OT_OK;
}

// As transformer_config.py of Megatron-core.
static ot_status check_pairs(const ot_import *import, const ot_megatron_flags *f) {
  const ot_imported *const out = import->out;
  const bool moe = out->modules & OT_MODULE_SET(OT_MODULE_MOE);
  if (!f->overlap_experts) return OT_OK;
  OT_CHECK(f->pp == 1 || out->vpp > 1, OT_USAGE,
           "overlap-moe-expert-parallel-comm needs several chunks on each of the %d stages (try "
           "--num-virtual-stages-per-pipeline-rank 2; %s)",
           f->pp, import->path);
  OT_CHECK(out->recompute != OT_RECOMPUTE_FULL && !moe, OT_USAGE,
           "overlap-moe-expert-parallel-comm excludes recompute of whole layers or of moe (try "
           "--recompute-granularity selective --recompute-modules moe_act; %s)",
           import->path);
  return OT_OK;
}

ot_status ot_megatron_step(ot_import *import, const ot_megatron_flags *f) {
  ot_imported *const out = import->out;
  OT_TRY(check_cp(import, f));
  OT_TRY(read_stages(import, f));
  build_options(import, f);
  out->engine = engine_of(f);
  out->precision = precision_of(f);
  out->gather_bytes = f->fp8_gather && f->fp8 >= 0 ? 1 : 0;
  out->moment_bytes = moment_bytes_of(f);
  out->tp = f->tp;
  out->pp = f->pp;
  out->cp = f->cp;
  out->ep = f->ep;
  out->etp = f->etp > 0 ? f->etp : f->tp;
  out->dp_replicate = f->replicas;
  out->zero = zero_of(f);
  out->pipeline = out->vpp > 1 ? OT_PIPELINE_INTERLEAVED : OT_PIPELINE_1F1B;
  OT_TRY(read_recompute(import, f));
  OT_TRY(check_pairs(import, f));
  out->micro_batch_size = f->micro_batch;
  out->global_batch_size = f->global_batch;
  out->local_batch_size = f->global_batch > 0 ? 0 : f->micro_batch;
  out->sequence_length = f->sequence;
  out->no_sequence_parallel = f->tp > 1 && !f->sequence_parallel;
  return OT_OK;
}
