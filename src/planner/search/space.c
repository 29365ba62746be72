// SPDX-License-Identifier: Apache-2.0
// Nested loops over divisors; verdicts of the rules are cached while the part that they depend on
// is unchanged.
#include "search/space.h"

#include <string.h>

#include "base/text.h"
#include "describe/pipeline_rules.h"
#include "estimate/crossing.h"
#include "estimate/framework.h"
#include "estimate/job_check.h"
#include "software/ability_check.h"

// Whole numbers in ascending order.
typedef struct numbers {
  int64_t count;
  int64_t *value;  // [count]
} numbers;

// Valid pipeline schedules for a number of stages and micro-batches.
typedef struct order_list {
  int64_t micro_batches;
  int count;
  ot_order_choice *choice;  // [count]
  int refused;
} order_list;

typedef struct builder {
  const ot_job *job;
  ot_arena *arena;
  ot_space *space;
  numbers devices;                        // of the number of devices
  numbers sequences;                      // of the global batch size
  numbers experts;                        // of the experts of a layer; only 1 if there are none
  int8_t *size_fits;                      // [sequences.count] for this tp and cp; -1 = unknown
  int64_t *num_orders, *orders_capacity;  // [devices.count] by pp
  order_list **orders;                    // [devices.count][num_orders]
} builder;

// ---- divisors ----

static numbers divisors_of(int64_t n, ot_arena *arena) {
  numbers small = {0}, all = {0};
  int64_t capacity = 0;
  for (int64_t i = 1; i * i <= n; i++) {
    if (n % i != 0) continue;
    small.value = ot_arena_grow(arena, small.value, small.count, &capacity, sizeof(int64_t));
    small.value[small.count++] = i;
  }
  all.value = ot_arena_array(arena, 2 * small.count, sizeof(int64_t));
  memcpy(all.value, small.value, (size_t)small.count * sizeof(int64_t));
  all.count = small.count;
  for (int64_t i = small.count - 1; i >= 0; i--) {
    if (n / small.value[i] > small.value[small.count - 1])
      all.value[all.count++] = n / small.value[i];
  }
  return all;
}

static bool is_open(int64_t given, int64_t value) { return given == 0 || given == value; }

// ---- rules, by part ----

static void keep_refusal(builder *b, ot_space_part part, const ot_candidate *candidate) {
  const char *const reason = ot_fail_message();
  int *const count = &b->space->num_refusals[part];
  ot_refusal *const kept = b->space->refusals[part];
  if (*count == OT_MAX_REFUSALS) return;
  for (int i = 0; i < *count; i++) {
    if (ot_text_equal(kept[i].reason, reason)) return;
  }
  kept[(*count)++] =
      (ot_refusal){*candidate, ot_arena_text(b->arena, reason, ot_text_length(reason))};
}

// Whether `candidate`, with the degrees of one part and ones elsewhere, is valid with a batch of
// its own size.
static bool fits(builder *b, ot_space_part part, const ot_candidate *candidate) {
  const ot_candidate *const c = candidate;
  ot_cluster alike;
  ot_job job = *b->job;
  ot_cluster_alike(b->job->cluster, &alike);
  job.cluster = &alike;
  job.devices = c->tp * c->pp * c->cp * c->dp;
  job.global_batch_size = c->dp * c->micro_batch_size * c->micro_batches;
  if (ot_candidate_check(&job, c) == OT_OK) return true;
  keep_refusal(b, part, c);
  return false;
}

static ot_candidate whole(const builder *b) {
  return (ot_candidate){.tp = 1,
                        .pp = 1,
                        .vpp = 1,
                        .cp = 1,
                        .ep = 1,
                        .etp = 1,
                        .dp = 1,
                        .dp_shard = 1,
                        .micro_batch_size = 1,
                        .micro_batches = 1,
                        .pipeline = OT_PIPELINE_1F1B,
                        .no_sequence_parallel = b->job->given.no_sequence_parallel};
}

// Sharding of a micro-batch.
static bool size_fits(builder *b, const ot_candidate *base, int64_t index) {
  if (b->size_fits[index] >= 0) return b->size_fits[index];
  ot_candidate part = whole(b);
  part.tp = base->tp;
  part.cp = base->cp;
  part.micro_batch_size = base->micro_batch_size;
  b->size_fits[index] = fits(b, OT_PART_SIZE, &part);
  return b->size_fits[index];
}

// ---- pipeline schedules ----

static void add_order(builder *b, ot_candidate *part, ot_order_choice choice, order_list *list) {
  part->pipeline = choice.pipeline;
  part->vpp = choice.vpp;
  if (!fits(b, OT_PART_ORDER, part)) {
    list->refused++;
    return;
  }
  list->choice[list->count++] = choice;
}

void ot_space_chunks(const ot_job *job, ot_pipeline kind, int pp, int *first, int *last) {
  const int most = (int)((job->model->num_layers + 2) / pp);
  const ot_pipeline_rules *const rules = ot_pipeline_rules_of(kind);
  *first = rules->min_chunks;
  *last = rules->max_chunks > 0 ? rules->max_chunks : most > *first ? most : *first;
  if (job->given.vpp > 0) *first = *last = job->given.vpp;
}

static bool is_asked(const ot_job *job, int pp, int vpp) {
  return !job->even_chunks || job->model->num_layers % ((int64_t)pp * vpp) == 0;
}

// Without tokens that its pairs hide, dualpipe-v idles no less than zb-v and keeps a chunk more.
static bool may_win(const ot_job *job, ot_pipeline kind) {
  const bool hides = job->engine->overlap_pairs && job->model->moe.num_experts > 0;
  return kind != OT_PIPELINE_DUALPIPE_V || hides;
}

static void list_orders(builder *b, const ot_candidate *base, order_list *list) {
  const ot_candidate *const given = &b->job->given;
  const int most = (int)b->job->model->num_layers + OT_PIPELINES + 3;
  ot_candidate part = whole(b);
  part.pp = base->pp;
  part.micro_batches = base->micro_batches;
  *list = (order_list){.micro_batches = base->micro_batches,
                       .choice = ot_arena_array(b->arena, most, sizeof(ot_order_choice))};
  if (base->pp == 1) {
    const ot_pipeline only = (int)given->pipeline >= 0 ? given->pipeline : OT_PIPELINE_1F1B;
    add_order(b, &part, (ot_order_choice){only, given->vpp > 0 ? given->vpp : 1}, list);
    return;
  }
  for (int kind = 0; kind < (int)OT_PIPELINES; kind++) {
    int first, last;
    if ((int)given->pipeline >= 0 && kind != (int)given->pipeline) continue;
    if ((int)given->pipeline < 0 && !may_win(b->job, (ot_pipeline)kind)) continue;
    ot_space_chunks(b->job, (ot_pipeline)kind, base->pp, &first, &last);
    for (int vpp = first; vpp <= last; vpp++) {
      if (!is_asked(b->job, base->pp, vpp)) continue;
      add_order(b, &part, (ot_order_choice){(ot_pipeline)kind, vpp}, list);
    }
  }
}

// `index`: index of pp among the divisors.
static const order_list *find_orders(builder *b, const ot_candidate *base, int64_t index) {
  const int64_t count = b->num_orders[index];
  for (int64_t i = 0; i < count; i++) {
    if (b->orders[index][i].micro_batches == base->micro_batches) return &b->orders[index][i];
  }
  b->orders[index] = ot_arena_grow(b->arena, b->orders[index], count, &b->orders_capacity[index],
                                   sizeof(order_list));
  list_orders(b, base, &b->orders[index][count]);
  b->num_orders[index]++;
  return &b->orders[index][count];
}

// ---- sharding of weights ----

typedef struct shard_list {
  int count, refused;
  ot_shard_choice *choice;  // [count]
} shard_list;

// `base`: the candidate, of whose stages `part` is one, on one kind of device.
static void add_shard(builder *b, ot_candidate *part, const ot_candidate *base,
                      ot_shard_choice choice, shard_list *list) {
  part->zero = choice.zero;
  part->dp_shard = choice.dp_shard;
  ot_candidate staged = *part;
  staged.pp = base->pp;
  staged.pipeline = (ot_pipeline)-1;
  bool can = ot_ability_check(b->job->engine, &staged) == OT_OK;
  staged.pipeline = part->pipeline;
  staged.crosses = base->crosses;
  if (can) can = ot_crossing_check(b->job, &staged) == OT_OK;
  if (!can) keep_refusal(b, OT_PART_SHARDS, &staged);
  if (!can || !fits(b, OT_PART_SHARDS, part)) {
    list->refused++;
    return;
  }
  list->choice[list->count++] = choice;
}

// `base` has a valid micro-batch size.
static shard_list list_shards(builder *b, const ot_candidate *base) {
  const ot_candidate *const given = &b->job->given;
  shard_list list = {
      .choice = ot_arena_array(b->arena, 3 * b->devices.count + 1, sizeof(ot_shard_choice))};
  ot_candidate part = *base;
  part.pp = part.vpp = 1;
  part.micro_batches = 1;
  part.crosses = OT_CROSSES_NOTHING;
  part.pipeline = OT_PIPELINE_1F1B;
  if (given->zero <= 0) add_shard(b, &part, base, (ot_shard_choice){0, 1}, &list);
  for (int zero = 1; zero <= 3; zero++) {
    if (given->zero >= 0 && given->zero != zero) continue;
    for (int64_t i = 0; i < b->devices.count; i++) {
      const int64_t shard = b->devices.value[i];
      const bool asked = shard == given->dp_shard || (given->zero == zero && base->dp == 1);
      if (base->dp % shard != 0 || !is_open(given->dp_shard, shard)) continue;
      if (shard == 1 && !asked) continue;
      add_shard(b, &part, base, (ot_shard_choice){zero, (int)shard}, &list);
    }
  }
  return list;
}

// ---- the product ----

static void add_group(builder *b, const ot_candidate *base, const order_list *orders,
                      const shard_list *shards) {
  ot_space *const space = b->space;
  *(ot_space_group *)ot_stable_list_add(b->arena, &space->groups) = (ot_space_group){
      .base = *base,
      .degrees = space->num_degrees,
      .num_orders = orders->count,
      .num_shards = shards->count,
      .orders = orders->choice,
      .shards = shards->choice,
  };
}

// One micro-batch size: counts its candidates and adds the group of valid ones. `shards` is built
// at the first valid size.
static void add_size(builder *b, const ot_candidate *base, int64_t size_index, int64_t pp_index,
                     shard_list *shards) {
  ot_space *const space = b->space;
  const bool can = size_fits(b, base, size_index);
  const order_list *const orders = find_orders(b, base, pp_index);
  if (can && !shards->choice) *shards = list_shards(b, base);
  const int64_t all_shards = shards->choice ? shards->count + shards->refused : 1;
  const int64_t all = (orders->count + orders->refused) * all_shards * space->num_recomputes;
  const int64_t good = can ? (int64_t)orders->count * shards->count * space->num_recomputes : 0;
  space->num_candidates += all;
  space->num_refused += all - good;
  if (good > 0) add_group(b, base, orders, shards);
}

// No micro-batch size is valid with dp.
static void refuse_batch(builder *b, ot_candidate *base) {
  const int64_t given = b->job->given.micro_batch_size;
  base->micro_batch_size = given > 0 ? given : 1;
  base->micro_batches = 1;
  b->space->num_candidates++;
  b->space->num_refused++;
  if (ot_candidate_check(b->job, base) != OT_OK) keep_refusal(b, OT_PART_BATCH, base);
}

// All micro-batch sizes for one set of degrees; `pp_index`: index of pp among the divisors.
static void add_sizes(builder *b, ot_candidate *base, int64_t pp_index) {
  const int64_t given = b->job->given.micro_batch_size, before = b->space->groups.count;
  shard_list shards = {0};
  bool any = false;
  for (int64_t i = 0; i < b->sequences.count; i++) {
    const int64_t size = b->sequences.value[i];
    base->micro_batch_size = size;
    base->micro_batches = ot_candidate_micro_batches(b->job, base);
    if (base->micro_batches == 0 || !is_open(given, size)) continue;
    add_size(b, base, i, pp_index, &shards);
    any = true;
  }
  if (!any) refuse_batch(b, base);
  b->space->num_degrees += b->space->groups.count > before;
}

static void add_crossings(builder *b, ot_candidate *base, int64_t pp_index) {
  ot_crossing crosses[OT_MOST_CROSSINGS];
  const int num = ot_crossings_list(b->job, crosses);
  for (int i = 0; i < num; i++) {
    base->crosses = crosses[i];
    base->dp_shard = 1;
    if (ot_crossing_check(b->job, base) == OT_OK) {
      add_sizes(b, base, pp_index);
      continue;
    }
    keep_refusal(b, OT_PART_BATCH, base);
    b->space->num_candidates++;
    b->space->num_refused++;
  }
}

// tp and cp are set; `rest` devices remain.
static void add_stages(builder *b, ot_candidate *base, int64_t rest) {
  const ot_candidate *const given = &b->job->given;
  for (int64_t i = 0; i < b->devices.count; i++) {
    const int64_t pp = b->devices.value[i];
    if (rest % pp != 0 || !is_open(given->pp, pp) || !is_open(given->dp, rest / pp)) continue;
    base->pp = (int)pp;
    base->dp = (int)(rest / pp);
    for (int64_t k = 0; k < b->experts.count; k++) {
      const int64_t ep = given->ep > 0 ? given->ep : b->experts.value[k];
      if (given->ep == 0 && (int64_t)base->tp * base->cp * base->dp % ep != 0) continue;
      base->ep = (int)ep;
      add_crossings(b, base, i);
      if (given->ep > 0) break;
    }
  }
}

static void add_degrees(builder *b) {
  const ot_candidate *const given = &b->job->given;
  ot_candidate base = whole(b);
  base.etp = given->etp > 0 ? given->etp : 1;
  for (int64_t i = 0; i < b->devices.count; i++) {
    for (int64_t k = 0; k < b->devices.count; k++) {
      const int64_t tp = b->devices.value[i], cp = b->devices.value[k];
      if (b->job->devices % (tp * cp) != 0 || !is_open(given->tp, tp)) continue;
      if (!is_open(given->cp, cp)) continue;
      base.tp = (int)tp;
      base.cp = (int)cp;
      memset(b->size_fits, -1, (size_t)b->sequences.count);
      add_stages(b, &base, b->job->devices / (tp * cp));
    }
  }
}

// ---- recompute ----

static void add_recompute(ot_space *space, ot_recompute mode, ot_module_set modules) {
  const int last = space->num_recomputes - 1;
  if (modules && last >= 0 && space->recompute[last].modules == modules) return;
  space->recompute[space->num_recomputes++] = (ot_recompute_choice){mode, modules};
}

// Sets of modules, from cheap to expensive: passes over memory, then GEMMs of latents, then those
// of dense parts. Of each set what the model and the engine have.
static void add_modules(const ot_job *job, ot_space *space) {
  static const ot_module_set more[] = {
      OT_MODULE_SET(OT_MODULE_LAYERNORM) | OT_MODULE_SET(OT_MODULE_MOE_ACT),
      OT_MODULE_SET(OT_MODULE_MLA_UP_PROJ),
      OT_MODULE_SET(OT_MODULE_MLP) | OT_MODULE_SET(OT_MODULE_SHARED_EXPERTS)};
  const ot_names *const names = &job->engine->runs.modules;
  const ot_module_set model = ot_model_modules(job->model);
  ot_module_set set = 0;
  for (int i = 0; i < OT_COUNT(more) && names->num > 0; i++) {
    for (int m = 0; m < (int)OT_RECOMPUTE_MODULES; m++) {
      const bool has = ot_names_allow(names, ot_recompute_module_names[m]);
      if (has) set |= OT_MODULE_SET(m) & more[i] & model;
    }
    if (set) add_recompute(space, OT_RECOMPUTE_SELECTIVE, set);
  }
}

static void list_recomputes(const ot_job *job, ot_space *out) {
  const ot_candidate *const given = &job->given;
  for (int r = 0; r < (int)OT_RECOMPUTES; r++) {
    const bool open = (int)given->recompute < 0 || (int)given->recompute == r;
    const bool can = ot_names_allow(&job->engine->runs.recompute, ot_recompute_names[r]);
    if (!open || !can || (given->modules && r != OT_RECOMPUTE_SELECTIVE)) continue;
    add_recompute(out, (ot_recompute)r, given->modules);
    if (r == OT_RECOMPUTE_SELECTIVE && !given->modules) add_modules(job, out);
  }
}

void ot_space_build(const ot_job *job, ot_arena *arena, ot_space *out) {
  *out = (ot_space){.groups.size = sizeof(ot_space_group)};
  builder b = {.job = job, .arena = arena, .space = out};
  list_recomputes(job, out);
  b.devices = divisors_of(job->devices, arena);
  b.sequences = divisors_of(job->global_batch_size, arena);
  b.experts = divisors_of(job->model->moe.num_experts > 0 ? job->model->moe.num_experts : 1, arena);
  b.size_fits = ot_arena_array(arena, b.sequences.count, 1);
  b.num_orders = ot_arena_array(arena, b.devices.count, sizeof(int64_t));
  b.orders_capacity = ot_arena_array(arena, b.devices.count, sizeof(int64_t));
  b.orders = ot_arena_array(arena, b.devices.count, sizeof(order_list *));
  add_degrees(&b);
}

ot_candidate ot_space_candidate(const ot_space_group *group, ot_order_choice order,
                                ot_shard_choice shard, ot_recompute_choice recompute) {
  ot_candidate candidate = group->base;
  candidate.pipeline = order.pipeline;
  candidate.vpp = order.vpp;
  candidate.zero = shard.zero;
  candidate.dp_shard = shard.dp_shard;
  candidate.recompute = recompute.mode;
  candidate.modules = recompute.modules;
  return candidate;
}
