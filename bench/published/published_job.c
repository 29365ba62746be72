// SPDX-License-Identifier: Apache-2.0
// Recipe and parallel configuration of a row, and its planner job.
#include "published_job.h"

#include <stdlib.h>
#include <string.h>

enum { LIGER_ROWS = 1024 };  // rows of logits at once

static bool starts(const char *text, const char *word) {
  return strncmp(text, word, strlen(word)) == 0;
}

// ---- precision ----

// Chooses by the words that sources use; without any, the default of the framework.
static const char *recipe_name(const ot_published_row *row, const ot_engine *engine) {
  const char *const dtype = row->dtype;
  if (ot_published_mentions(dtype, "amp")) return "amp-bf16";
  if (ot_published_mentions(dtype, "pure")) return "bf16-pure";
  if (ot_published_mentions(dtype, "fp32 grad") && starts(engine->recipe, "fp16")) {
    return "bf16-fp32-accumulators";
  }
  if (starts(dtype, "fp16") && !starts(engine->recipe, "fp16")) return "fp16";
  if (starts(dtype, "bf16") && starts(engine->recipe, "fp16")) return "bf16";
  return engine->recipe;
}

static ot_status build_recipe(const ot_published_row *row, const ot_engine *engine,
                              ot_recipe *out) {
  const char *const name = recipe_name(row, engine);
  const ot_recipe *const found = ot_recipe_find(name);
  OT_CHECK(found != NULL, OT_USAGE, "no recipe %s for a run in %s", name, row->dtype);
  *out = *found;
  const bool narrow =
      ot_published_mentions(row->dtype, "fp8") || ot_published_mentions(row->dtype, "fp4");
  if (narrow) out->products = OT_F8;
  if (ot_published_mentions(row->optimizer, "bf16 moments")) out->moment_bytes = 4;
  // "CPU AdamW offload", "--offload-opt-m --offload-opt-v --offload-master": stored on the host.
  if (ot_published_mentions(row->notes, "AdamW offload")) {
    out->master_bytes = out->moment_bytes = out->gradient_bytes = 0;
  }
  if (ot_published_mentions(row->notes, "--offload-opt")) out->moment_bytes = 0;
  if (ot_published_mentions(row->notes, "--offload-master")) out->master_bytes = 0;
  return OT_OK;
}

// ---- parallel configuration ----

// The number after `words` in `text`, or 0.
static int64_t number_behind(const char *text, const char *words) {
  const char *const at = strstr(text, words);
  return at ? strtol(at + strlen(words), NULL, 10) : 0;
}

// Data parallelism over all devices excludes any other axis ("zero2 dp8; batch per DP 36").
static ot_published_row complete(const ot_published_row *row) {
  ot_published_row whole = *row;
  const int64_t batch = number_behind(row->notes, "batch per DP ");
  const bool open = row->tp == 0 && row->pp == 0 && row->dp == 0;
  if (!open || number_behind(row->notes, "dp") != row->gpus) return whole;
  whole.tp = whole.pp = 1;
  if (row->gbs == 0 && batch > 0) {
    whole.gbs = batch * row->gpus;
    if (row->mbs == 0) whole.mbs = batch;
  }
  return whole;
}

// Ranks over which weights are sharded: "fsdp=4 dp=32", "FSDP in node, DP across nodes", "...
// across N slices"; all of dp by default.
static int shard_of(const ot_published_row *row, int dp, int domain) {
  const char *const fsdp = strstr(row->hsdp, "fsdp=");
  const char *const slices = strstr(row->hsdp, "across ");
  int64_t shard = dp;
  if (fsdp) {
    shard = strtol(fsdp + strlen("fsdp="), NULL, 10);
  } else if (ot_published_mentions(row->hsdp, "in node")) {
    shard = domain / row->tp;
  } else if (slices && strtol(slices + strlen("across "), NULL, 10) > 0) {
    shard = dp / strtol(slices + strlen("across "), NULL, 10);
  }
  return shard >= 1 && shard <= dp && dp % shard == 0 ? (int)shard : dp;
}

static ot_pipeline pipeline_of(const ot_published_row *row, int vpp) {
  if (ot_published_mentions(row->schedule, "zb-v")) return OT_PIPELINE_ZB_V;
  if (ot_published_mentions(row->schedule, "zb-h2")) return OT_PIPELINE_ZB_H2;
  if (ot_published_mentions(row->schedule, "zb")) return OT_PIPELINE_ZB_H1;
  if (ot_published_mentions(row->schedule, "gpipe")) return OT_PIPELINE_GPIPE;
  return vpp > 1 && row->pp > 1 ? OT_PIPELINE_INTERLEAVED : OT_PIPELINE_1F1B;
}

static ot_recompute recompute_of(const char *text) {
  if (starts(text, "full") || starts(text, "remat")) return OT_RECOMPUTE_FULL;
  return text[0] == '\0' || starts(text, "none") ? OT_RECOMPUTE_NONE : OT_RECOMPUTE_SELECTIVE;
}

// Recomputed modules that a row names: as Megatron-LM does ("selective: layernorm, moe_act"), or in
// other words ("other: --recompute-ffn").
static ot_module_set modules_of(const char *text) {
  static const struct {
    const char *word;
    ot_recompute_module module;
  } named[] = {{"norm", OT_MODULE_LAYERNORM},  {"attn", OT_MODULE_CORE_ATTN},
               {"mla", OT_MODULE_MLA_UP_PROJ}, {"moe_act", OT_MODULE_MOE_ACT},
               {"ffn", OT_MODULE_MLP},         {"mlp", OT_MODULE_MLP}};
  static const char listed[] = "selective:";
  ot_module_set set = 0;
  if (!starts(text, listed) && !starts(text, "other:")) return 0;
  if (starts(text, listed) && !ot_module_set_read("", text + sizeof listed - 1, &set)) return set;
  for (int i = 0; i < OT_COUNT(named); i++) {
    if (ot_published_mentions(text, named[i].word)) set |= OT_MODULE_SET(named[i].module);
  }
  return set;
}

static ot_status check_stated(const ot_published_row *row) {
  OT_CHECK(row->gpus > 0, OT_USAGE, "the number of devices is not stated");
  OT_CHECK(row->tp > 0 && row->pp > 0, OT_USAGE, "tp or pp is not stated");
  OT_CHECK(row->gbs > 0 && row->seq_len > 0, OT_USAGE, "batch or sequence length is not stated");
  return OT_OK;
}

static ot_status build_candidate(const ot_published_row *row, int domain, ot_candidate *out) {
  OT_TRY(check_stated(row));
  const int64_t cp = row->cp > 0 ? row->cp : 1, vpp = row->vpp > 0 ? row->vpp : 1;
  const int64_t dp = row->dp > 0 ? row->dp : row->gpus / (row->tp * row->pp * cp);
  OT_CHECK(dp * row->tp * row->pp * cp == row->gpus, OT_USAGE,
           "tp=%lld x pp=%lld x cp=%lld x dp=%lld is not %lld devices", (long long)row->tp,
           (long long)row->pp, (long long)cp, (long long)dp, (long long)row->gpus);
  const int64_t mbs = row->mbs > 0 ? row->mbs : 1;
  *out = (ot_candidate){.tp = (int)row->tp,
                        .pp = (int)row->pp,
                        .vpp = row->pp > 1 ? (int)vpp : 1,
                        .cp = (int)cp,
                        .ep = row->ep > 0 ? (int)row->ep : 1,
                        .etp = 1,
                        .dp = (int)dp,
                        .dp_shard = shard_of(row, (int)dp, domain),
                        .zero = row->zero > 0 ? (int)row->zero : 0,
                        .micro_batch_size = mbs,
                        .micro_batches = row->gbs / (mbs * dp),
                        .pipeline = pipeline_of(row, (int)vpp),
                        .recompute = recompute_of(row->recompute),
                        .no_sequence_parallel = row->tp > 1 && row->sp == 0};
  return OT_OK;
}

// The row's attention settings take precedence over the defaults of its framework.
static void set_attention(const ot_published_row *row, ot_kernel_style *kernels) {
  const bool unfused = kernels->attention == OT_ATTENTION_UNFUSED;
  if (row->flash_attention == 0) kernels->attention = OT_ATTENTION_UNFUSED;
  if (row->flash_attention == 1 && unfused) kernels->attention = OT_ATTENTION_FLASH_2;
}

// ---- software, as far as a row describes it ----

static ot_switch switch_of(int stated) {
  if (stated == OT_PUBLISHED_OPEN) return OT_SWITCH_OPEN;
  return stated == 1 ? OT_SWITCH_ON : OT_SWITCH_OFF;
}

// The bytes of an element that `text` names, or `otherwise`.
static double bytes_named(const char *text, double otherwise) {
  if (ot_published_mentions(text, "32")) return 4;
  if (ot_published_mentions(text, "16")) return 2;
  return ot_published_mentions(text, "8") ? 1 : otherwise;
}

static void set_software(const ot_published_software *does, ot_engine *engine, ot_recipe *recipe) {
  // Both sort tokens while they send them (DeepEP, HybridEP).
  const bool sorts = ot_published_mentions(does->dispatcher, "deepep") ||
                     ot_published_mentions(does->dispatcher, "hybrid");
  const bool plain = ot_published_mentions(does->dispatcher, "alltoall");
  ot_engine_apply(&(ot_engine_options){.compiled = switch_of(does->compile),
                                       .captured = switch_of(does->cuda_graphs),
                                       .overlap_reduce = switch_of(does->overlap_reduce),
                                       .overlap_gather = switch_of(does->overlap_gather),
                                       .overlap_update_gather = switch_of(does->overlap_gather),
                                       .overlap_expert = switch_of(does->overlap_moe),
                                       .async_tp = switch_of(does->async_tp),
                                       .fused_dispatch = sorts   ? OT_SWITCH_ON
                                                         : plain ? OT_SWITCH_OFF
                                                                 : OT_SWITCH_OPEN},
                  engine);
  recipe->reduce_bytes = bytes_named(does->gradient_dtype, recipe->reduce_bytes);
  recipe->gather_bytes = bytes_named(does->gather_dtype, recipe->gather_bytes);
  if (ot_published_mentions(does->dispatcher, "fp8")) engine->fp8_dispatch = true;
}

// "4 of 8 nodes": tokens go to experts in at most 4 of 8 groups.
static void set_routing(const ot_published_software *does, ot_model *model) {
  char *end;
  const long taken = strtol(does->routing_groups, &end, 10);
  const char *const of = strstr(end, "of ");
  const long groups = of ? strtol(of + strlen("of "), NULL, 10) : 0;
  if (taken < 1 || groups < taken || model->moe.num_experts % groups != 0) return;
  model->moe.groups_per_token = (int)taken;
  model->moe.num_groups = (int)groups;
}

ot_status ot_published_job_build(ot_published_setup *setup, const ot_published_row *stated,
                                 ot_published_job *out) {
  const ot_published_row whole = complete(stated);
  const ot_published_row *const row = &whole;
  *out = (ot_published_job){0};
  OT_TRY(ot_published_engine_read(setup, row, &out->engine, &out->unnamed));
  ot_recipe recipe;
  OT_TRY(check_stated(row));
  OT_TRY(ot_published_model_build(row, &out->model));
  OT_TRY(ot_published_cluster_build(setup, row, &out->cluster));
  if (setup->calibration) {
    ot_calibration_apply(setup->calibration, &out->cluster);
    out->correction = ot_calibration_of_steps(setup->calibration);
  }
  OT_TRY(build_recipe(row, &out->engine, &recipe));
  const int domain = out->cluster.num_levels > 0 ? out->cluster.level[0].size : 1;
  OT_TRY(build_candidate(row, domain, &out->candidate));
  if (ot_published_mentions(row->notes, "Liger")) {
    out->engine.chunked_loss = true;
    out->engine.loss_rows = LIGER_ROWS;
  }
  set_attention(row, &out->engine.kernels);
  set_software(&row->does, &out->engine, &recipe);
  set_routing(&row->does, &out->model);
  out->engine.runs.modules = ot_engine_orthant.runs.modules;  // it ran what the row says
  out->candidate.modules = modules_of(row->recompute) & ot_model_modules(&out->model);
  out->recompute_open = row->recompute[0] == '\0';
  out->vpp_open = row->vpp == 0 && row->pp > 1;
  out->micro_batch_open = row->mbs == 0;
  out->every_other_layer = ot_published_mentions(row->recompute, "every other layer");
  out->job = (ot_job){.model = &out->model,
                      .cluster = &out->cluster,
                      .engine = &out->engine,
                      .recipe = recipe,
                      .correction = setup->calibration ? &out->correction : NULL,
                      .devices = (int)row->gpus,
                      .global_batch_size = row->gbs,
                      .sequence_length = row->seq_len,
                      .given = out->candidate};
  return OT_OK;
}
