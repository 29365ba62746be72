// SPDX-License-Identifier: Apache-2.0
// Calls the hooks of a bug where it is: on all ranks, on the last, or also on models of one rank.
#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "base/text.h"
#include "support/mutant.h"
#include "support/user_audits.h"

enum { RANKS = 8, TRAINING_STEPS = 100 };

// One bug in one run.
typedef struct infection {
  const mutant *mutant;
  bool changed[RANKS];  // the schedule of a rank
  double memory[RANKS][64];
  double alone[64];  // for models on one rank
} infection;

const char *mutant_layout_name(mutant_layout layout) {
  static const char *const names[] = {"tensor",  "stages", "context", "sharded", "both",
                                      "experts", "spread", "folded",  "hybrid"};
  return names[layout];
}

const char *mutant_catch_name(mutant_catch by) {
  static const char *const names[] = {"check", "settings",  "ranks",   "step",       "causality",
                                      "drift", "precision", "monitor", "NOT CAUGHT", "not there"};
  return names[by];
}

// ---- hooks ----

static bool is_here(const mutant *m, int rank, int ranks) {
  if (ranks == 1) return m->place == IN_SHARED_CODE;
  return m->place != ON_LAST_RANK || rank == ranks - 1;
}

// Hash of the printed schedule; the schedule's own hash covers segments only as they were built.
static uint64_t hash_of(const ot_schedule *schedule) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const uint64_t hash = ot_hash_text(OT_HASH_START, ot_schedule_print(schedule, &arena));
  ot_heap_release(&heap);
  return hash;
}

static void amend(ot_schedule *schedule, ot_arena *arena, void *context) {
  infection *const i = context;
  if (!is_here(i->mutant, schedule->rank, schedule->ranks)) return;
  const uint64_t before = hash_of(schedule);
  i->mutant->amend(schedule, arena);
  if (schedule->ranks > 1 && hash_of(schedule) != before) i->changed[schedule->rank] = true;
}

static mutant_site site_of(const ot_trainer *trainer, infection *i) {
  ot_world *const world = ot_trainer_world(trainer);
  const int rank = ot_world_rank(world), ranks = ot_world_size(world);
  return (mutant_site){.trainer = (ot_trainer *)trainer,
                       .run = ot_trainer_run(trainer),
                       .world = world,
                       .runtime = ot_trainer_runtime(trainer),
                       .step = ot_trainer_position(trainer).step,
                       .rank = rank,
                       .ranks = ranks,
                       .memory = ranks == 1 ? &i->alone : &i->memory[rank]};
}

static void rows(const ot_trainer *trainer, int micro_batch, ot_micro_batch *loaded,
                 void *context) {
  infection *const i = context;
  mutant_site site = site_of(trainer, i);
  site.micro_batch = micro_batch;
  if (is_here(i->mutant, site.rank, site.ranks)) i->mutant->rows(&site, loaded);
}

static void before(ot_trainer *trainer, void *context) {
  infection *const i = context;
  const mutant_site site = site_of(trainer, i);
  if (is_here(i->mutant, site.rank, site.ranks)) i->mutant->before(&site);
}

static void after(ot_trainer *trainer, void *context) {
  infection *const i = context;
  const mutant_site site = site_of(trainer, i);
  if (is_here(i->mutant, site.rank, site.ranks)) i->mutant->after(&site);
}

static void resumed(ot_trainer *trainer, void *context) {
  infection *const i = context;
  const mutant_site site = site_of(trainer, i);
  if (is_here(i->mutant, site.rank, site.ranks)) i->mutant->resumed(&site);
}

static void created(ot_trainer *trainer, void *context) {
  infection *const i = context;
  const mutant_site site = site_of(trainer, i);
  if (is_here(i->mutant, site.rank, site.ranks)) i->mutant->created(&site);
}

// ---- layouts ----

static ot_model dropping_model(bool heads) {
  ot_model model = tiny_gpt2();
  model.vocab_size = 300;
  model.hidden_size = 32;
  model.num_heads = model.num_kv_heads = heads ? 4 : 2;
  model.head_dim = heads ? 8 : 16;
  model.attention_scale = 1 / ot_sqrt((double)model.head_dim);
  model.embedding_dropout = 0.1;
  model.residual_dropout = 0.1;
  return model;
}

static ot_model expert_model(void) {
  ot_model model = audit_model(2, false);
  model.family = OT_FAMILY_QWEN3_MOE;
  model.model_type = "qwen3_moe";
  model.architecture = "Qwen3MoeForCausalLM";
  model.qk_norm = OT_QK_NORM_HEAD;
  model.moe = (ot_moe){.num_experts = 4,
                       .experts_per_token = 2,
                       .expert_size = 20,
                       .score = OT_MOE_SOFTMAX,
                       .renormalise = true,
                       .scale = 1,
                       .num_groups = 1,
                       .groups_per_token = 1,
                       .capacity_factor = 1.25,
                       .layer = {true, true}};
  return model;
}

static audit_request layout_of(mutant_layout layout) {
  audit_request r = {.batch = 8, .micro_batch = 1, .documents = true};
  switch (layout) {
    case ON_TENSOR:
      r.model = audit_model(1, false);
      r.model.family = OT_FAMILY_MISTRAL;
      r.model.model_type = "mistral";
      r.model.architecture = "MistralForCausalLM";
      r.model.window[0] = r.model.window[1] = 6;
      r.tp = r.dp_shard = 2;
      r.zero = 1;
      break;
    case ON_STAGES:
      r.model = audit_model(2, true);
      r.pp = r.dp_shard = 2;
      r.zero = 2;
      r.accumulate = OT_ACCUMULATE_SHARDED;
      break;
    case ON_CONTEXT:
      r.model = dropping_model(false);
      r.cp = r.dp_replicate = 2;
      break;
    case ON_SHARDED:
      r.model = audit_model(2, false);
      r.dp_replicate = r.dp_shard = 2;
      r.zero = 3;
      r.accumulate = OT_ACCUMULATE_SHARDED;
      r.bf16 = true;
      break;
    case ON_BOTH:
      r.model = dropping_model(true);
      r.pp = r.tp = 2;
      break;
    case ON_SPREAD:
      r.model = expert_model();
      r.model.moe.balance = OT_MOE_BALANCE_AUX_LOSS;
      r.model.moe.aux_coefficient = 0.01;
      r.dp_shard = 4;
      r.ep = 2;
      r.zero = 1;
      break;
    case ON_FOLDED:
      r.model = expert_model();
      r.tp = r.dp_shard = r.ep = 2;
      r.zero = 2;
      r.accumulate = OT_ACCUMULATE_SHARDED;
      break;
    case ON_HYBRID:
      r.model = expert_model();
      r.dp_replicate = r.dp_shard = r.ep = 2;
      r.zero = 3;
      r.accumulate = OT_ACCUMULATE_SHARDED;
      break;
    case ON_EXPERTS:
    case MUTANT_LAYOUTS:
      r.model = expert_model();
      r.dp_shard = 2;
      r.zero = 1;
      break;
  }
  return r;
}

// Clipping that takes effect, and a learning rate that changes.
static void set_run(ot_run *run, void *context) {
  const mutant *const m = context;
  run->optimizer.clip = 0.1;
  run->learning_rate = (ot_run_learning_rate){.decay = OT_DECAY_LINEAR, .decay_steps = 150};
  run->learning_rate.min = 1e-4;
  if (m && m->settings) m->settings(run);
}

// ---- the run ----

static mutant_catch catch_of(user_stage stage) {
  static const mutant_catch by[] = {[USER_SETTINGS] = BY_SETTINGS,   [USER_START] = BY_CHECK,
                                    [USER_STEP] = BY_STEP,           [USER_RANKS] = BY_RANKS,
                                    [USER_CAUSALITY] = BY_CAUSALITY, [USER_DRIFT] = BY_DRIFT,
                                    [USER_PRECISION] = BY_PRECISION, [USER_TRAINING] = BY_MONITOR,
                                    [USER_NOTHING] = NOT_CAUGHT};
  return by[stage];
}

static user_report run_once(const mutant *m, mutant_layout layout, bool unchecked, bool *there) {
  infection i = {.mutant = m};
  ot_trainer_hooks hooks = {.unchecked = unchecked || (m && m->unchecked), .context = &i};
  user_request request = {
      .run = layout_of(layout), .training_steps = TRAINING_STEPS, .planned_ranks = 1024};
  request.run.settings = set_run;
  request.run.settings_context = (void *)m;
  *there = true;
  if (!m) return user_audits(&request);
  if (m->amend) hooks.amend = amend;
  if (m->created) request.created = created;
  request.created_context = &i;
  if (m->rows) hooks.rows = rows;
  if (m->before) hooks.before = before;
  if (m->after) hooks.after = after;
  if (m->resumed) hooks.resumed = resumed;
  request.run.hooks = &hooks;
  request.resumes = m->resumed != NULL;
  request.decoder = m->decoder;
  request.exported = m->exported;
  request.swapped = m->swapped;
  const user_report report = user_audits(&request);
  bool changed = m->amend == NULL;
  for (int r = 0; r < RANKS; r++) changed = changed || i.changed[r];
  *there = changed;
  return report;
}

mutant_verdict mutant_run(const mutant *m, mutant_layout layout) {
  bool there;
  user_report report = run_once(m, layout, false, &there);
  mutant_verdict verdict = {.by = there ? catch_of(report.stage) : NOT_THERE,
                            .without_check = NOT_THERE};
  if (verdict.by == BY_CHECK && m && m->settings) verdict.by = BY_SETTINGS;
  snprintf(verdict.text, sizeof verdict.text, "%s", report.text);
  if (verdict.by != BY_CHECK || !m) return verdict;
  report = run_once(m, layout, true, &there);
  verdict.without_check = catch_of(report.stage);
  return verdict;
}
