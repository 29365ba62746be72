// SPDX-License-Identifier: Apache-2.0
// Best-first branch and bound: a heap of nodes by lower bound. A node starts as a group with all
// its pipeline schedules and sharding choices. It is expanded to single schedules with successively
// tighter bounds, then to candidates, which are simulated when they reach the top. The search ends
// when no bound in the heap beats the last plan kept (Land and Doig 1960). Ties are simulated, so
// the result does not depend on their order.
#include "search/search.h"

#include <string.h>

#include "base/quantity.h"
#include "base/text.h"
#include "describe/pipeline_rules.h"
#include "estimate/job_check.h"
#include "search/bound.h"
#include "search/rejections.h"
#include "search/search_heap.h"
#include "search/space.h"
#include "software/ability_check.h"

enum {
  KEPT_REJECTIONS = 3,
  ZERO_STAGES = 4,
  // Parts may price a share of the nodes of the search in addition, or a few.
  PARTS_SHARE = 16,
  PARTS_LEAST = 2000,
};

typedef enum node_kind {
  NODE_GROUP,         // all schedules that split the backward, or all others; floor bound
  NODE_GROUP_ZERO,    // the same with one ZeRO stage
  NODE_KIND_PLAIN,    // of these, one schedule with any number of chunks; plain bound
  NODE_KIND_CONTEXT,  // the same, context bound
  NODE_KIND_BLOCK,    // the same, block bound
  NODE_CHUNKS,        // of these, one number of chunks; block bound
  NODE_CUT,           // the same with its stage partition
  NODE_ORDER,         // the same, bound of the schedule
  NODE_REPLAYED,      // the same, bound of the replayed pipeline
  NODE_CANDIDATE,     // of these, one sharding choice
  NODE_KINDS,
} node_kind;

// The shared state of groups with the same degrees.
typedef struct degrees {
  bool known;
  ot_shard_bound least, of[ZERO_STAGES];  // minimum over all of them, and over a ZeRO stage
  double plan_s[ZERO_STAGES];             // of the fastest plan so far; 0: none
  ot_candidate plan[ZERO_STAGES];         // that plan
} degrees;

typedef ot_search_node node;

// A bound that several nodes share; key 0: none.
typedef struct replayed {
  int64_t key;
  double work_s;
} replayed;

enum { REPLAYED = 1 << 12 };

typedef struct ot_searcher {
  ot_search_request request;
  ot_arena *arena;  // of the search
  ot_arena scratch;
  ot_arena *kept;  // of its result
  ot_estimator *estimator;
  ot_space space;
  ot_search_heap heap;
  // The parts whose fastest plans are searched after the plans, or null: [num_parts].
  const ot_search_part *parts;
  ot_search_found *found;
  int num_parts;
  int64_t priced;  // nodes whose stages were built, and those simulated
  ot_search *out;
  int64_t too_large;             // candidates rejected by a memory bound
  degrees *degrees;              // [space.num_degrees]
  replayed *replayed;            // [REPLAYED] the latest
  int told[OT_REJECTION_KINDS];  // rejections kept, by kind
} searcher;

// ---- nodes ----

static ot_candidate candidate_of(const searcher *s, const node *n) {
  const ot_space_group *const group = ot_space_group_at(&s->space, n->group);
  return ot_space_candidate(group, group->orders[n->order], group->shards[n->shard],
                            s->space.recompute[n->recompute]);
}

static const ot_shard_choice *shard_of(const searcher *s, const node *n) {
  return &ot_space_group_at(&s->space, n->group)->shards[n->shard];
}

// Whether `n` also covers sharding choice `index`.
static bool stands_for(const searcher *s, const node *n, int index) {
  if (n->kind == NODE_GROUP) return true;
  if (n->kind == NODE_CANDIDATE) return index == n->shard;
  return ot_space_group_at(&s->space, n->group)->shards[index].zero == shard_of(s, n)->zero;
}

static bool is_split(const ot_space_group *group, int order) {
  return ot_pipeline_rules_of(group->orders[order].pipeline)->splits;
}

// Whether `n` also covers pipeline schedule `index`.
static bool stands_for_order(const searcher *s, const node *n, int index) {
  const ot_space_group *const group = ot_space_group_at(&s->space, n->group);
  if (n->kind > NODE_KIND_BLOCK) return index == n->order;
  if (n->kind <= NODE_GROUP_ZERO) return is_split(group, index) == is_split(group, n->order);
  return group->orders[index].pipeline == group->orders[n->order].pipeline;
}

static int64_t count_candidates(const searcher *s, const node *n) {
  const ot_space_group *const group = ot_space_group_at(&s->space, n->group);
  int64_t shards = 0, orders = 0;
  for (int i = 0; i < group->num_shards; i++) shards += stands_for(s, n, i);
  for (int i = 0; i < group->num_orders; i++) orders += stands_for_order(s, n, i);
  return shards * orders;
}

static degrees *degrees_of(const searcher *s, const node *n) {
  return &s->degrees[ot_space_group_at(&s->space, n->group)->degrees];
}

// Later choices need fewer bytes: the highest ZeRO stage over the most ranks is the last.
static const ot_shard_bound *bound_of(const searcher *s, const node *n) {
  const degrees *const d = degrees_of(s, n);
  if (n->kind == NODE_GROUP) return &d->least;
  return n->kind == NODE_CANDIDATE ? NULL : &d->of[shard_of(s, n)->zero];
}

// Whether all candidates of `n` are slower than a plan with their degrees, of which only the
// fastest is kept.
static bool is_beaten(const searcher *s, const node *n) {
  if (!s->request.distinct || s->heap.by_memory || s->request.exhaustive) return false;
  if (n->kind == NODE_GROUP) return false;
  const double known_s = degrees_of(s, n)->plan_s[shard_of(s, n)->zero];
  return known_s > 0 && n->step_s > known_s;
}

static void keep_rejection(searcher *s, ot_rejection_kind kind, const node *n, const char *reason) {
  if (s->told[kind] == KEPT_REJECTIONS) return;
  s->told[kind]++;
  s->out->rejections[s->out->num_rejections++] =
      (ot_rejection){.kind = kind,
                     .candidate = candidate_of(s, n),
                     .bound = {.step_s = n->step_s, .peak = n->peak},
                     .reason = ot_arena_text(s->kept, reason, ot_text_length(reason))};
}

static void reject_memory(searcher *s, const node *n) {
  s->out->num_rejected[OT_REJECTED_MEMORY] += count_candidates(s, n);
  if (s->told[OT_REJECTED_MEMORY] == KEPT_REJECTIONS) return;
  const double used = (double)ot_bound_used(s->estimator, n->peak);
  const double whole = (double)ot_device_capacity(&s->estimator->cluster.device);
  const double capacity = used > whole ? whole : (double)ot_estimator_memory(s->estimator);
  keep_rejection(s, OT_REJECTED_MEMORY, n,
                 ot_arena_format(s->arena, "needs at least %s with allocator and runtime",
                                 ot_figure_need(s->arena, used, capacity)));
}

// Rejects a candidate that cannot be built like one that the rules reject. Passes on other
// failures.
static ot_status refuse(searcher *s, const node *n, ot_status status) {
  if (status != OT_USAGE) return status;
  if (!s->heap.by_memory) s->out->num_rejected[OT_REJECTED_RULE] += count_candidates(s, n);
  keep_rejection(s, OT_REJECTED_RULE, n, ot_fail_message());
  return OT_OK;
}

// The time of the replayed pipeline, the same for all shardings; 0 for nodes that need no bound so
// tight.
static ot_status replay_work(searcher *s, const node *n, double *work_s) {
  const int64_t key =
      ((int64_t)n->group * INT16_MAX + n->order) * OT_MAX_RECOMPUTES + n->recompute + 1;
  replayed *const kept = &s->replayed[key % REPLAYED];
  *work_s = 0;
  if (n->kind < NODE_REPLAYED || s->heap.by_memory || s->request.exhaustive) return OT_OK;
  if (kept->key != key) {
    const ot_candidate candidate = candidate_of(s, n);
    kept->key = 0;
    OT_TRY(ot_bound_replay(s->estimator, &candidate, &kept->work_s));
    kept->key = key;
  }
  *work_s = kept->work_s;
  return OT_OK;
}

// Bounds `n` and adds it to the heap, or counts its candidates as rejected.
static ot_status add(searcher *s, node n) {
  static const ot_bound_depth depth[NODE_KINDS] = {
      [NODE_GROUP] = OT_BOUND_FLOOR,      [NODE_GROUP_ZERO] = OT_BOUND_FLOOR,
      [NODE_KIND_PLAIN] = OT_BOUND_PLAIN, [NODE_KIND_CONTEXT] = OT_BOUND_CONTEXT,
      [NODE_KIND_BLOCK] = OT_BOUND_BLOCK, [NODE_CHUNKS] = OT_BOUND_BLOCK,
      [NODE_CUT] = OT_BOUND_CUT,          [NODE_ORDER] = OT_BOUND_ORDER,
      [NODE_REPLAYED] = OT_BOUND_ORDER,   [NODE_CANDIDATE] = OT_BOUND_ORDER};
  const ot_candidate candidate = candidate_of(s, &n);
  s->priced += n.kind >= NODE_CUT;
  ot_bound_request request = {.candidate = &candidate,
                              .depth = depth[n.kind],
                              .scope = n.kind <= NODE_GROUP_ZERO   ? OT_SCOPE_SPLIT
                                       : n.kind <= NODE_KIND_BLOCK ? OT_SCOPE_KIND
                                                                   : OT_SCOPE_ONE,
                              .shards = bound_of(s, &n)};
  ot_estimate_bound bound;
  ot_status status = replay_work(s, &n, &request.work_s);
  if (status == OT_OK) status = ot_bound_build(s->estimator, &request, &bound);
  if (status != OT_OK) return refuse(s, &n, status);
  // The bound of the parent node is still valid.
  if (bound.step_s > n.step_s) n.step_s = bound.step_s;
  if (bound.peak > n.peak) n.peak = bound.peak;
  if (!s->heap.by_memory && !s->request.exhaustive && !ot_bound_fits(s->estimator, n.peak)) {
    s->too_large += count_candidates(s, &n);
    reject_memory(s, &n);
    return OT_OK;
  }
  if (!is_beaten(s, &n)) ot_search_heap_push(&s->heap, &n);
  return OT_OK;
}

// Costs of the sharding choices of a group, and their minimum.
static ot_status find_shards(searcher *s, const ot_space_group *group) {
  degrees *const d = &s->degrees[group->degrees];
  if (d->known) return OT_OK;
  d->known = true;
  for (int i = 0; i < group->num_shards; i++) {
    const ot_candidate candidate =
        ot_space_candidate(group, group->orders[0], group->shards[i], s->space.recompute[0]);
    double elements[2];
    ot_shard_bound made;
    OT_TRY(ot_bound_elements(s->estimator, &candidate, elements));
    OT_TRY(ot_shard_bound_build(s->estimator, &candidate, elements, &made));
    ot_shard_bound *const zero = &d->of[group->shards[i].zero];
    const bool first = i == 0 || group->shards[i].zero != group->shards[i - 1].zero;
    if (i == 0) d->least = made;
    if (first) *zero = made;
    ot_shard_bound_merge(&made, &d->least);
    ot_shard_bound_merge(&made, zero);
  }
  return OT_OK;
}

// Adds two nodes: the schedules that split the backward, and the others.
static ot_status add_group(searcher *s, int group_index) {
  const ot_space_group *const group = ot_space_group_at(&s->space, group_index);
  node n = {.group = group_index, .shard = (int16_t)(group->num_shards - 1), .kind = NODE_GROUP};
  for (int r = 0; r < s->space.num_recomputes; r++) {
    bool added[2] = {false};
    n.recompute = (int8_t)r;
    for (int o = 0; o < group->num_orders; o++) {
      if (added[is_split(group, o)]) continue;
      added[is_split(group, o)] = true;
      n.order = (int16_t)o;
      OT_TRY(add(s, n));
    }
  }
  return OT_OK;
}

// Adds each of the schedules that `from` covers, or the first of each kind of schedule.
static ot_status add_orders(searcher *s, const node *from, node_kind kind) {
  const ot_space_group *const group = ot_space_group_at(&s->space, from->group);
  ot_pipeline before = OT_PIPELINES;
  for (int i = 0; i < group->num_orders; i++) {
    node n = *from;
    if (!stands_for_order(s, from, i)) continue;
    const bool known = group->orders[i].pipeline == before;
    before = group->orders[i].pipeline;
    if (known && kind <= NODE_KIND_BLOCK) continue;
    // One chunk is all that its kind has.
    const bool one = ot_pipeline_rules_of(group->orders[i].pipeline)->max_chunks == 1;
    n.kind = (int8_t)(one && kind == NODE_CHUNKS ? NODE_CUT : kind);
    n.order = (int16_t)i;
    OT_TRY(add(s, n));
  }
  return OT_OK;
}

static ot_status add_groups(searcher *s) {
  s->heap.nodes.count = 0;
  for (int64_t i = 0; i < s->space.groups.count; i++) {
    OT_TRY(find_shards(s, ot_space_group_at(&s->space, i)));
    OT_TRY(add_group(s, (int)i));
  }
  return OT_OK;
}

// Adds each ZeRO stage, represented by its last sharding choice.
static ot_status add_zeros(searcher *s, const node *from) {
  const ot_space_group *const group = ot_space_group_at(&s->space, from->group);
  for (int i = 0; i < group->num_shards; i++) {
    node n = *from;
    if (i + 1 < group->num_shards && group->shards[i + 1].zero == group->shards[i].zero) continue;
    n.kind = NODE_GROUP_ZERO;
    n.shard = (int16_t)i;
    OT_TRY(add(s, n));
  }
  return OT_OK;
}

static ot_status add_candidates(searcher *s, const node *from) {
  for (int i = 0; i < ot_space_group_at(&s->space, from->group)->num_shards; i++) {
    node n = *from;
    if (!stands_for(s, from, i)) continue;
    n.kind = NODE_CANDIDATE;
    n.shard = (int16_t)i;
    OT_TRY(add(s, n));
  }
  return OT_OK;
}

// ---- plans ----

static int compare(const ot_estimate *a, const ot_estimate *b) {
  if (a->step_s != b->step_s) return a->step_s < b->step_s ? -1 : 1;
  return ot_candidate_compare(&a->candidate, &b->candidate);
}

static bool is_variant(const ot_candidate *a, const ot_candidate *b) {
  return a->tp == b->tp && a->pp == b->pp && a->cp == b->cp && a->ep == b->ep && a->etp == b->etp &&
         a->dp == b->dp && a->zero == b->zero && a->crosses == b->crosses;
}

// Keeps the faster one of a plan and its kept variant; false if that is the variant.
static bool displace_variant(searcher *s, const ot_estimate *plan) {
  ot_search *const out = s->out;
  int i = 0;
  while (i < out->num_plans && !is_variant(&out->plans[i].candidate, &plan->candidate)) i++;
  if (i == out->num_plans) return true;
  if (compare(plan, &out->plans[i]) >= 0) return false;
  for (out->num_plans--; i < out->num_plans; i++) out->plans[i] = out->plans[i + 1];
  return true;
}

// Whether a plan of `step_s` is too slow to be kept.
static bool is_too_slow(const searcher *s, double step_s) {
  return s->request.below_s > 0 && step_s >= s->request.below_s;
}

static void keep_plan(searcher *s, const ot_estimate *plan) {
  ot_search *const out = s->out;
  if (is_too_slow(s, plan->step_s)) return;
  if (s->request.distinct && !displace_variant(s, plan)) return;
  int i = out->num_plans;
  if (i == s->request.top) {
    if (compare(plan, &out->plans[i - 1]) >= 0) return;
    i--;
  } else {
    out->num_plans++;
  }
  for (; i > 0 && compare(plan, &out->plans[i - 1]) < 0; i--) out->plans[i] = out->plans[i - 1];
  out->plans[i] = *plan;
}

// Memory is computed before the step is replayed, and usually suffices.
static ot_status estimate_nearest(searcher *s, const ot_candidate *candidate, ot_estimate *out) {
  const ot_estimate *const best = &s->out->nearest;
  OT_TRY(ot_estimate_fitting(s->estimator, candidate, out));
  const bool larger = best->step_s > 0 && out->memory.reserved > best->memory.reserved;
  return larger || out->step_s > 0 ? OT_OK : ot_estimate_build(s->estimator, candidate, out);
}

static void keep_nearest(searcher *s, const ot_estimate *plan) {
  ot_estimate *const best = &s->out->nearest;
  const int64_t bytes = plan->memory.reserved, least = best->memory.reserved;
  if (best->step_s > 0 && (bytes > least || (bytes == least && compare(plan, best) > 0))) return;
  *best = *plan;
}

// ---- parts ----

bool ot_search_part_has(const ot_search_part *part, const ot_candidate *c) {
  return (part->tp == 0 || part->tp == c->tp) && (part->pp == 0 || part->pp == c->pp) &&
         (part->cp == 0 || part->cp == c->cp) && (part->ep == 0 || part->ep == c->ep) &&
         (part->zero < 0 || part->zero == c->zero);
}

// Whether `n` may hold a candidate of part `index`.
static bool may_have(const searcher *s, int index, const node *n) {
  const ot_candidate candidate = candidate_of(s, n);
  ot_search_part part = s->parts[index];
  if (n->kind == NODE_GROUP) part.zero = -1;
  return ot_search_part_has(&part, &candidate);
}

// Whether `n` may hold a plan of a part that is faster than those known.
static bool is_wanted(const searcher *s, const node *n) {
  for (int i = 0; i < s->num_parts; i++) {
    const double known_s = s->found[i].plan.step_s;
    if (n->step_s > (known_s > 0 ? known_s : s->request.below_s)) continue;
    if (may_have(s, i, n)) return true;
  }
  return false;
}

static void keep_of_parts(searcher *s, const ot_estimate *plan) {
  for (int i = 0; i < s->num_parts; i++) {
    ot_estimate *const known = &s->found[i].plan;
    if (!ot_search_part_has(&s->parts[i], &plan->candidate)) continue;
    if (known->step_s == 0 || compare(plan, known) < 0) *known = *plan;
  }
}

// The plans that the search before met, kept or not.
static ot_status keep_known(searcher *s) {
  for (int p = 0; p < s->num_parts; p++) {
    const ot_candidate *best = NULL;
    double best_s = 0;
    for (int i = 0; i < s->space.num_degrees * ZERO_STAGES; i++) {
      const degrees *const d = &s->degrees[i / ZERO_STAGES];
      const int zero = i % ZERO_STAGES;
      if (d->plan_s[zero] == 0 || (best && d->plan_s[zero] >= best_s)) continue;
      if (!ot_search_part_has(&s->parts[p], &d->plan[zero])) continue;
      best = &d->plan[zero];
      best_s = d->plan_s[zero];
    }
    if (best) OT_TRY(ot_estimate_build(s->estimator, best, &s->found[p].plan));
  }
  return OT_OK;
}

// The bound that the remaining nodes prove for part `index`.
static void settle_part(searcher *s, int index) {
  ot_search_found *const found = &s->found[index];
  if (is_too_slow(s, found->plan.step_s)) found->plan.step_s = 0;
  found->least_s = found->plan.step_s > 0 ? found->plan.step_s : s->request.below_s;
  for (int64_t i = 0; i < s->heap.nodes.count; i++) {
    const node *const n = ot_stable_list_at(&s->heap.nodes, i);
    if (n->step_s < found->least_s && may_have(s, index, n)) found->least_s = n->step_s;
  }
}

static ot_status simulate(searcher *s, const node *n) {
  const ot_candidate candidate = candidate_of(s, n);
  ot_estimate estimate;
  s->priced++;
  ot_status status = ot_candidate_check(s->request.job, &candidate);
  if (status == OT_OK && s->heap.by_memory) {
    status = estimate_nearest(s, &candidate, &estimate);
  } else if (status == OT_OK) {
    status = ot_estimate_fitting(s->estimator, &candidate, &estimate);
  }
  if (status != OT_OK) return refuse(s, n, status);
  if (s->heap.by_memory) {
    keep_nearest(s, &estimate);
    return OT_OK;
  }
  s->out->num_simulated += estimate.step_s > 0;
  s->too_large += estimate.step_s == 0;
  if (estimate.fits) {
    degrees *const d = degrees_of(s, n);
    double *const plan_s = &d->plan_s[candidate.zero];
    if (*plan_s == 0 || estimate.step_s < *plan_s) {
      *plan_s = estimate.step_s;
      d->plan[candidate.zero] = candidate;
    }
    (s->parts ? keep_of_parts : keep_plan)(s, &estimate);
    return OT_OK;
  }
  node simulated = *n;
  if (estimate.step_s > 0) simulated.step_s = estimate.step_s;
  simulated.peak = estimate.memory.peak;
  reject_memory(s, &simulated);
  return OT_OK;
}

// ---- the loop ----

// Whether no node after `n` can be kept.
static bool is_done(const searcher *s, const node *n) {
  const ot_search *const out = s->out;
  if (s->request.exhaustive) return false;
  if (s->heap.by_memory) return out->nearest.step_s > 0 && n->peak > out->nearest.memory.peak;
  if (is_too_slow(s, n->step_s)) return true;
  return out->num_plans == s->request.top && n->step_s > out->plans[out->num_plans - 1].step_s;
}

static void report_progress(const searcher *s, int64_t nodes) {
  enum { OFTEN = 256 };
  if (s->request.progress && nodes % OFTEN == 0) {
    s->request.progress(s->request.progress_context, s->out);
  }
}

// Bounds `n` better, or divides it, or simulates it.
static ot_status expand(searcher *s, node n) {
  switch ((node_kind)n.kind) {
    case NODE_GROUP:
      return add_zeros(s, &n);
    case NODE_GROUP_ZERO:
      return add_orders(s, &n, s->heap.by_memory ? NODE_KIND_CONTEXT : NODE_KIND_PLAIN);
    case NODE_KIND_BLOCK:
      return add_orders(s, &n, NODE_CHUNKS);
    case NODE_KIND_PLAIN:
    case NODE_KIND_CONTEXT:
    case NODE_CHUNKS:
    case NODE_CUT:
    case NODE_ORDER:
      n.kind++;
      return add(s, n);
    case NODE_REPLAYED:
      return add_candidates(s, &n);
    case NODE_CANDIDATE:
      return simulate(s, &n);
    case NODE_KINDS:
      break;
  }
  OT_UNREACHABLE();
}

static ot_status run(searcher *s) {
  OT_TRY(add_groups(s));
  for (int64_t nodes = 1; s->heap.nodes.count > 0 && !is_done(s, ot_search_heap_first(&s->heap));
       nodes++) {
    const node n = ot_search_heap_pop(&s->heap);
    report_progress(s, nodes);
    if (!is_beaten(s, &n)) OT_TRY(expand(s, n));
  }
  return OT_OK;
}

// The next nodes in the heap.
static void keep_slower(searcher *s) {
  ot_search *const out = s->out;
  node taken[KEPT_REJECTIONS];
  int count = 0;
  if (out->num_plans == 0) return;
  while (s->heap.nodes.count > 0 && s->told[OT_REJECTED_SLOWER] < KEPT_REJECTIONS) {
    const node n = taken[count++] = ot_search_heap_pop(&s->heap);
    const double more_s = n.step_s - out->plans[0].step_s;
    keep_rejection(s, OT_REJECTED_SLOWER, &n,
                   ot_arena_format(s->arena, "takes at least %s, %s more than the fastest plan",
                                   ot_figure_seconds(s->arena, n.step_s),
                                   ot_figure_seconds(s->arena, more_s)));
  }
  while (count > 0) ot_search_heap_push(&s->heap, &taken[--count]);
}

static ot_status search(searcher *s) {
  ot_search *const out = s->out;
  s->estimator = s->request.estimator;
  if (!s->estimator) OT_TRY(ot_estimator_build(s->request.job, s->arena, &s->estimator));
  OT_TRY(ot_ability_check_job(s->request.job));
  ot_space_build(s->request.job, s->arena, &s->space);
  const int most = OT_PARTS * OT_MAX_REFUSALS + OT_REJECTION_KINDS * KEPT_REJECTIONS;
  s->degrees = ot_arena_array(s->arena, s->space.num_degrees, sizeof *s->degrees);
  s->replayed = ot_arena_array(s->arena, REPLAYED, sizeof *s->replayed);
  out->plans = ot_arena_array(s->kept, s->request.top, sizeof *out->plans);
  out->rejections = ot_arena_array(s->kept, most, sizeof *out->rejections);
  out->num_candidates = s->space.num_candidates;
  out->num_rejected[OT_REJECTED_RULE] = s->space.num_refused;
  OT_TRY(run(s));
  out->num_rejected[OT_REJECTED_SLOWER] =
      out->num_candidates - out->num_simulated - s->too_large - out->num_rejected[OT_REJECTED_RULE];
  keep_slower(s);
  ot_rejections_add_rules(&s->space, s->kept, out);
  if (out->num_plans > 0 || s->request.plans_only) return OT_OK;
  const int told = out->num_rejections;
  s->heap.by_memory = true;
  OT_TRY(run(s));
  if (out->nearest.step_s == 0) ot_rejections_refuse_all(told, out);
  return OT_OK;
}

ot_status ot_search_build(const ot_search_request *request, ot_arena *arena, ot_search *out) {
  OT_CHECK(request->top >= 1, OT_USAGE, "plan: top=%d; allowed: at least 1", request->top);
  ot_arena_pool *const own = request->estimator ? &request->estimator->searches : NULL;
  ot_arena_pool *const pool = request->scratch ? request->scratch : own;
  ot_arena scratch = pool ? ot_arena_pool_begin(pool) : *arena;
  searcher *const s = ot_arena_take(pool ? &scratch : arena, sizeof *s);
  *s = (searcher){.request = *request, .scratch = scratch, .kept = arena, .out = out};
  s->arena = pool ? &s->scratch : arena;
  s->heap = (ot_search_heap){.arena = s->arena, .nodes.size = sizeof(node)};
  *out = (ot_search){.state = s};
  return search(s);
}

ot_status ot_search_parts(const ot_search *search, const ot_search_part *parts, int num_parts,
                          double below_s, ot_search_found *out) {
  searcher *const s = search->state;
  ot_search counts = *search;
  if (search->num_plans == 0) return OT_OK;
  for (int i = 0; i < num_parts; i++) out[i] = (ot_search_found){0};
  s->out = &counts;
  s->parts = parts;
  s->request.below_s = below_s;
  s->found = out;
  s->num_parts = num_parts;
  OT_TRY(keep_known(s));
  const int64_t share = s->priced / PARTS_SHARE;
  const int64_t most = s->priced + (share > PARTS_LEAST ? share : PARTS_LEAST);
  while (s->heap.nodes.count > 0 && s->priced < most &&
         !is_too_slow(s, ot_search_heap_first(&s->heap)->step_s)) {
    const node n = ot_search_heap_pop(&s->heap);
    if (!is_beaten(s, &n) && is_wanted(s, &n)) OT_TRY(expand(s, n));
  }
  for (int i = 0; i < num_parts; i++) settle_part(s, i);
  return OT_OK;
}
