// SPDX-License-Identifier: Apache-2.0
// Properties of a plan that no published run has, from one table: for each device and engine the
// largest values of any run compared in docs/published.md. `build/bench/published --json` lists
// runs missing in the table ("beyond").
#include "advise/explain.h"
#include "base/text.h"
#include "describe/pipeline_rules.h"

// Numeric properties of a run.
typedef enum extent { DEVICES, TP, PP, CP, EP, TOKENS, EXTENTS } extent;

// Features of a run.
enum { HALF = 1, FP8 = 2, EXPERTS = 4 };

typedef struct published {
  const char *device, *engine;  // as in presets
  int64_t most[EXTENTS];
  unsigned kinds;
} published;

// Runs with a usable step time. All runs with experts are of one source.
static const published runs[] = {
    {"a100-40g", "fsdp", {128, 1, 1, 1, 1, 32768}, HALF},
    {"a100-80g", "deepspeed", {1024, 1, 1, 1, 1, 1024}, HALF},
    {"a100-80g", "fsdp", {64, 1, 1, 1, 1, 65536}, HALF},
    {"a100-80g", "jax", {256, 2, 1, 1, 1, 2048}, HALF},
    {"a100-80g", "megatron-2021", {3072, 8, 64, 1, 1, 2048}, HALF},
    {"a100-80g", "megatron-2022", {512, 8, 64, 1, 1, 2048}, HALF},
    {"a100-80g", "megatron-deepspeed", {3360, 16, 35, 1, 1, 2048}, HALF},
    {"a100-80g", "megatron-deepspeed-blocking", {384, 8, 24, 1, 1, 2048}, HALF},
    {"a100-80g", "torchtitan", {64, 1, 1, 1, 1, 8192}, HALF},
    {"b200", "megatron-bridge", {256, 4, 16, 2, 64, 8192}, HALF | FP8 | EXPERTS},
    {"b300", "megatron-bridge", {256, 1, 16, 1, 8, 4096}, HALF | FP8 | EXPERTS},
    {"b300", "megatron-bridge-26.06", {64, 1, 1, 1, 8, 4096}, FP8 | EXPERTS},
    {"gb200", "megatron-bridge", {256, 4, 16, 1, 64, 8192}, HALF | FP8 | EXPERTS},
    {"gb200", "megatron-bridge-26.06", {256, 4, 16, 1, 64, 8192}, FP8 | EXPERTS},
    {"gb300", "megatron-bridge", {256, 4, 8, 2, 64, 8192}, HALF | FP8 | EXPERTS},
    {"gb300", "megatron-bridge-26.06", {256, 4, 8, 2, 64, 8192}, FP8 | EXPERTS},
    {"h100", "fsdp", {64, 1, 1, 1, 1, 65536}, HALF | FP8},
    {"h100", "jax", {256, 1, 1, 1, 1, 4096}, HALF | FP8},
    {"h100", "llmq", {8, 1, 1, 1, 1, 1024}, HALF | FP8},
    {"h100", "megatron-bridge", {1024, 8, 8, 2, 64, 8192}, HALF | FP8 | EXPERTS},
    {"h100", "megatron-bridge-26.06", {1024, 8, 8, 2, 1, 8192}, FP8},
    {"h100", "megatron-core", {10752, 8, 8, 2, 1, 8192}, FP8},
    {"h100", "nanotron", {512, 16, 32, 1, 1, 4096}, HALF},
    {"h100", "torchtitan", {128, 8, 1, 1, 1, 8192}, HALF | FP8},
    {"v100", "oneflow", {32, 32, 4, 1, 1, 2048}, HALF},
};

enum { MOST_SENTENCES = EXTENTS + 8 };

typedef struct comparison {
  const ot_job *job;
  const ot_candidate *c;
  ot_arena *arena;
  ot_reasons *out;
} comparison;

static void add_reason(comparison *c, const char *sentence) {
  OT_ASSERT(c->out->num < MOST_SENTENCES);
  c->out->text[c->out->num++] = sentence;
}

// Maxima over all runs on `device`, with `engine` or (null) any; false if there are none.
static bool find_runs(const char *device, const char *engine, published *out) {
  *out = (published){device, engine, {0}, 0};
  for (int i = 0; i < OT_COUNT(runs); i++) {
    if (!device || !ot_text_equal(runs[i].device, device)) continue;
    if (engine && !ot_text_equal(runs[i].engine, engine)) continue;
    for (int e = 0; e < EXTENTS; e++) {
      if (runs[i].most[e] > out->most[e]) out->most[e] = runs[i].most[e];
    }
    out->kinds |= runs[i].kinds;
  }
  return out->kinds != 0;
}

static void compare_extents(comparison *c, const published *p) {
  static const char *const formats[EXTENTS] = {
      "%lld devices (at most %lld)", "tp %lld (at most %lld)",
      "pp %lld (at most %lld)",      "cp %lld (at most %lld)",
      "ep %lld (at most %lld)",      "%lld tokens a sequence (at most %lld)"};
  const int64_t here[EXTENTS] = {c->job->devices, c->c->tp, c->c->pp,
                                 c->c->cp,        c->c->ep, c->job->sequence_length};
  for (int e = 0; e < EXTENTS; e++) {
    if (here[e] <= p->most[e]) continue;
    add_reason(c, ot_arena_format(c->arena, formats[e], (long long)here[e], (long long)p->most[e]));
  }
}

static void compare_kinds(comparison *c, const published *device, const published *engine) {
  const ot_dtype products = c->job->recipe.products;
  const unsigned type = products == OT_F8                           ? FP8
                        : products == OT_BF16 || products == OT_F16 ? HALF
                                                                    : 0;
  const ot_pipeline order = c->c->pipeline;
  if ((device->kinds & type) == 0) {
    add_reason(c, ot_arena_format(c->arena, "%s GEMMs", ot_dtype_name(products)));
  }
  if (c->c->pp > 1 && order != OT_PIPELINE_1F1B && order != OT_PIPELINE_INTERLEAVED) {
    add_reason(c, ot_arena_format(c->arena, "pipeline schedule %s", ot_pipeline_name(order)));
  }
  if (c->job->model->moe.num_experts == 0) return;
  add_reason(c, (engine->kinds & EXPERTS) != 0 ? "experts (runs of one source)" : "experts");
}

// A group that communicates in each layer either fits into a domain of the innermost links or
// consists of whole domains; no published run has other groups.
static void compare_domains(comparison *c) {
  const ot_cluster *const cluster = c->job->cluster;
  const int domain = cluster->num_levels > 0 ? cluster->level[0].size : 1;
  if (c->job->devices <= domain) return;
  const struct {
    const char *name;
    int ranks;
  } groups[] = {{"tp x cp", c->c->tp * c->c->cp}, {"ep", c->c->ep * c->c->etp}};
  for (int i = 0; i < OT_COUNT(groups); i++) {
    const int ranks = groups[i].ranks;
    if (ranks % domain == 0 || domain % ranks == 0) continue;
    add_reason(c, ot_arena_format(c->arena, "%s = %d, unevenly over domains of %d", groups[i].name,
                                  ranks, domain));
  }
}

bool ot_explain_device_known(const ot_job *job) {
  published runs_on_it;
  return find_runs(job->cluster->device.name, NULL, &runs_on_it);
}

bool ot_explain_engine_known(const ot_job *job) {
  published runs_of_it;
  return find_runs(job->cluster->device.name, job->engine->name, &runs_of_it);
}

void ot_explain_beyond(const ot_job *job, const ot_candidate *candidate, ot_arena *arena,
                       ot_reasons *out) {
  const char *const device = job->cluster->device.name;
  published all, own;
  *out = (ot_reasons){.text = ot_arena_array(arena, MOST_SENTENCES, sizeof *out->text)};
  comparison c = {job, candidate, arena, out};
  const ot_cluster_basis basis = job->cluster->basis;
  if (ot_cluster_basis_measured(basis) || basis == OT_BASIS_CALIBRATED) return;
  if (ot_cluster_is_mixed(job->cluster)) add_reason(&c, "pools of different devices");
  if (!find_runs(device, NULL, &all)) {
    add_reason(&c, ot_arena_format(arena, "device %s", device));
    return;
  }
  const bool known = find_runs(device, job->engine->name, &own);
  if (!known) add_reason(&c, ot_arena_format(arena, "engine %s on %s", job->engine->name, device));
  compare_extents(&c, known ? &own : &all);
  compare_kinds(&c, &all, known ? &own : &all);
  compare_domains(&c);
}
