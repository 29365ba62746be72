// SPDX-License-Identifier: Apache-2.0
// Best-first branch and bound: a heap of nodes by lower bound. A node starts as a group with all
// its pipeline schedules and sharding choices. It is expanded to single schedules with successively
// tighter bounds, then to candidates, which are simulated when they reach the top. The search ends
// when no bound in the heap beats the last plan kept (Land and Doig 1960). Ties are simulated, so
// the result does not depend on their order.
#include "plan/search.h"

#include <string.h>

#include "base/quantity.h"
#include "base/text.h"
#include "describe/pipeline_rules.h"
#include "plan/bound.h"
#include "plan/space.h"

enum { KEPT_REJECTIONS = 3, ZERO_STAGES = 4 };

typedef enum node_kind {
  NODE_GROUP,         // all schedules that split the backward, or all others; mean bound
  NODE_GROUP_ZERO,    // the same with one ZeRO stage
  NODE_ZERO_FLOOR,    // one schedule, all its sharding choices; floor bound
  NODE_ZERO_PLAIN,    // the same, plain bound (no recompute)
  NODE_ZERO_CONTEXT,  // the same, context bound
  NODE_ZERO_BLOCK,    // the same, block bound
  NODE_ZERO,          // the same, bound of the schedule
  NODE_REPLAYED,      // the same, bound of the replayed pipeline
  NODE_CANDIDATE,     // one candidate
  NODE_KINDS,
} node_kind;

// Minimum cost over the sharding choices.
typedef struct least_shards {
  ot_shard_bound all, zero[ZERO_STAGES];
} least_shards;

typedef struct node {
  double key;  // lower bound of the objective: seconds, or bytes
  double step_s;
  int64_t peak;
  int group;
  int16_t order,
      shard;         // indices in the group; shard: of those covered, the one with fewest bytes
  int8_t recompute;  // of the space
  int8_t kind;
} node;

// A bound that several nodes share; key 0: none.
typedef struct replayed {
  int64_t key;
  double work_s;
} replayed;

enum { REPLAYED = 1 << 12 };

typedef struct searcher {
  const ot_search_request *request;
  ot_arena *arena;
  ot_estimator *estimator;
  ot_space space;
  bool by_memory;  // minimises memory instead of step time
  int64_t count, capacity;
  node *heap;  // [count]
  ot_search *out;
  int64_t too_large;             // candidates rejected by a memory bound
  ot_shard_bound **shards;       // [num_groups][num_shards] of a layer
  least_shards *least;           // [num_groups]
  replayed *replayed;            // [REPLAYED] the latest
  int kept[OT_REJECTION_KINDS];  // rejections by kind
} searcher;

// ---- heap ----

static int64_t order_of(const node *n) {
  return (((int64_t)n->group * INT16_MAX + n->order) * INT16_MAX + n->shard) * 4 + n->recompute;
}

static bool is_before(const node *a, const node *b) {
  if (a->key != b->key) return a->key < b->key;
  if (a->kind != b->kind) return a->kind > b->kind;
  return order_of(a) < order_of(b);
}

static void push(searcher *s, const node *n) {
  s->heap = ot_arena_grow(s->arena, s->heap, s->count, &s->capacity, sizeof(node));
  int64_t i = s->count++;
  for (; i > 0 && is_before(n, &s->heap[(i - 1) / 2]); i = (i - 1) / 2) {
    s->heap[i] = s->heap[(i - 1) / 2];
  }
  s->heap[i] = *n;
}

static node pop(searcher *s) {
  const node first = s->heap[0], last = s->heap[--s->count];
  int64_t i = 0;
  for (int64_t child = 1; child < s->count; child = 2 * i + 1) {
    if (child + 1 < s->count && is_before(&s->heap[child + 1], &s->heap[child])) child++;
    if (!is_before(&s->heap[child], &last)) break;
    s->heap[i] = s->heap[child];
    i = child;
  }
  if (s->count > 0) s->heap[i] = last;
  return first;
}

// ---- nodes ----

static ot_candidate candidate_of(const searcher *s, const node *n) {
  const ot_space_group *const group = &s->space.groups[n->group];
  return ot_space_candidate(group, group->orders[n->order], group->shards[n->shard],
                            s->space.recompute[n->recompute]);
}

static const ot_shard_choice *shard_of(const searcher *s, const node *n) {
  return &s->space.groups[n->group].shards[n->shard];
}

// Whether `n` also covers sharding choice `index`.
static bool stands_for(const searcher *s, const node *n, int index) {
  if (n->kind == NODE_GROUP) return true;
  if (n->kind == NODE_CANDIDATE) return index == n->shard;
  return s->space.groups[n->group].shards[index].zero == shard_of(s, n)->zero;
}

static bool is_split(const ot_space_group *group, int order) {
  return ot_pipeline_rules_of(group->orders[order].pipeline)->splits;
}

// Whether `n` also covers pipeline schedule `index`.
static bool stands_for_order(const searcher *s, const node *n, int index) {
  const ot_space_group *const group = &s->space.groups[n->group];
  if (n->kind > NODE_GROUP_ZERO) return index == n->order;
  return is_split(group, index) == is_split(group, n->order);
}

static int64_t count_candidates(const searcher *s, const node *n) {
  const ot_space_group *const group = &s->space.groups[n->group];
  int64_t shards = 0, orders = 0;
  for (int i = 0; i < group->num_shards; i++) shards += stands_for(s, n, i);
  for (int i = 0; i < group->num_orders; i++) orders += stands_for_order(s, n, i);
  return shards * orders;
}

// Later choices need fewer bytes: the highest ZeRO stage over the most ranks is the last.
static const ot_shard_bound *bound_of(const searcher *s, const node *n) {
  if (n->kind == NODE_GROUP) return &s->least[n->group].all;
  if (n->kind == NODE_CANDIDATE) return &s->shards[n->group][n->shard];
  return &s->least[n->group].zero[shard_of(s, n)->zero];
}

static void keep_rejection(searcher *s, ot_rejection_kind kind, const node *n, const char *reason) {
  if (s->kept[kind] == KEPT_REJECTIONS) return;
  s->kept[kind]++;
  s->out->rejections[s->out->num_rejections++] =
      (ot_rejection){.kind = kind,
                     .candidate = candidate_of(s, n),
                     .bound = {.step_s = n->step_s, .peak = n->peak},
                     .reason = ot_arena_text(s->arena, reason, ot_text_length(reason))};
}

static void reject_memory(searcher *s, const node *n) {
  s->out->num_rejected[OT_REJECTED_MEMORY] += count_candidates(s, n);
  if (s->kept[OT_REJECTED_MEMORY] == KEPT_REJECTIONS) return;
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
  if (!s->by_memory) s->out->num_rejected[OT_REJECTED_RULE] += count_candidates(s, n);
  keep_rejection(s, OT_REJECTED_RULE, n, ot_fail_message());
  return OT_OK;
}

// The time of the replayed pipeline, the same for all shardings; 0 for nodes that need no bound so
// tight.
static ot_status replay_work(searcher *s, const node *n, double *work_s) {
  const int64_t key = ((int64_t)n->group * INT16_MAX + n->order) * 4 + n->recompute + 1;
  replayed *const kept = &s->replayed[key % REPLAYED];
  *work_s = 0;
  if (n->kind < NODE_REPLAYED || s->by_memory || s->request->exhaustive) return OT_OK;
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
      [NODE_GROUP] = OT_BOUND_MEAN,           [NODE_GROUP_ZERO] = OT_BOUND_MEAN,
      [NODE_ZERO_FLOOR] = OT_BOUND_FLOOR,     [NODE_ZERO_PLAIN] = OT_BOUND_PLAIN,
      [NODE_ZERO_CONTEXT] = OT_BOUND_CONTEXT, [NODE_ZERO_BLOCK] = OT_BOUND_BLOCK,
      [NODE_ZERO] = OT_BOUND_ORDER,           [NODE_REPLAYED] = OT_BOUND_ORDER,
      [NODE_CANDIDATE] = OT_BOUND_ORDER};
  const ot_candidate candidate = candidate_of(s, &n);
  ot_bound_request request = {
      .candidate = &candidate, .depth = depth[n.kind], .shards = bound_of(s, &n)};
  ot_estimate_bound bound;
  ot_status status = replay_work(s, &n, &request.work_s);
  if (status == OT_OK) status = ot_bound_build(s->estimator, &request, &bound);
  if (status != OT_OK) return refuse(s, &n, status);
  // The bound of the parent node is still valid.
  if (bound.step_s > n.step_s) n.step_s = bound.step_s;
  if (bound.peak > n.peak) n.peak = bound.peak;
  n.key = s->by_memory ? (double)n.peak : n.step_s;
  if (!s->by_memory && !s->request->exhaustive && !ot_bound_fits(s->estimator, n.peak)) {
    s->too_large += count_candidates(s, &n);
    reject_memory(s, &n);
    return OT_OK;
  }
  push(s, &n);
  return OT_OK;
}

// Costs of the sharding choices, and their minimum. Groups of the same degrees share them.
static ot_status find_shards(searcher *s, int group_index) {
  const ot_space_group *const group = &s->space.groups[group_index];
  const ot_space_group *const before = group_index > 0 ? group - 1 : NULL;
  if (before && before->shards == group->shards) {
    s->shards[group_index] = s->shards[group_index - 1];
    s->least[group_index] = s->least[group_index - 1];
    return OT_OK;
  }
  ot_shard_bound *const made = ot_arena_array(s->arena, group->num_shards, sizeof *made);
  least_shards *const least = &s->least[group_index];
  s->shards[group_index] = made;
  for (int i = 0; i < group->num_shards; i++) {
    const ot_candidate candidate =
        ot_space_candidate(group, group->orders[0], group->shards[i], s->space.recompute[0]);
    double elements;
    OT_TRY(ot_bound_elements(s->estimator, &candidate, &elements));
    OT_TRY(ot_shard_bound_build(s->estimator, &candidate, elements, &made[i]));
    ot_shard_bound *const zero = &least->zero[group->shards[i].zero];
    const bool first = i == 0 || group->shards[i].zero != group->shards[i - 1].zero;
    if (i == 0) least->all = made[i];
    if (first) *zero = made[i];
    ot_shard_bound_merge(&made[i], &least->all);
    ot_shard_bound_merge(&made[i], zero);
  }
  return OT_OK;
}

// Adds two nodes: the schedules that split the backward, and the others.
static ot_status add_group(searcher *s, int group_index) {
  const ot_space_group *const group = &s->space.groups[group_index];
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

static ot_status add_orders(searcher *s, const node *from) {
  for (int i = 0; i < s->space.groups[from->group].num_orders; i++) {
    node n = *from;
    if (!stands_for_order(s, from, i)) continue;
    n.kind = NODE_ZERO_FLOOR;
    n.order = (int16_t)i;
    OT_TRY(add(s, n));
  }
  return OT_OK;
}

static ot_status add_groups(searcher *s) {
  s->count = 0;
  for (int64_t i = 0; i < s->space.num_groups; i++) {
    OT_TRY(find_shards(s, (int)i));
    OT_TRY(add_group(s, (int)i));
  }
  return OT_OK;
}

// Adds each ZeRO stage, represented by its last sharding choice.
static ot_status add_zeros(searcher *s, const node *from) {
  const ot_space_group *const group = &s->space.groups[from->group];
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
  for (int i = 0; i < s->space.groups[from->group].num_shards; i++) {
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

static void keep_plan(searcher *s, const ot_estimate *plan) {
  ot_search *const out = s->out;
  if (s->request->distinct && !displace_variant(s, plan)) return;
  int i = out->num_plans;
  if (i == s->request->top) {
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

static ot_status simulate(searcher *s, const node *n) {
  const ot_candidate candidate = candidate_of(s, n);
  ot_estimate estimate;
  ot_status status = ot_candidate_check(s->request->job, &candidate);
  if (status == OT_OK && s->by_memory) {
    status = estimate_nearest(s, &candidate, &estimate);
  } else if (status == OT_OK) {
    status = ot_estimate_fitting(s->estimator, &candidate, &estimate);
  }
  if (status != OT_OK) return refuse(s, n, status);
  if (s->by_memory) {
    keep_nearest(s, &estimate);
    return OT_OK;
  }
  s->out->num_simulated += estimate.step_s > 0;
  s->too_large += estimate.step_s == 0;
  if (estimate.fits) {
    keep_plan(s, &estimate);
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
  if (s->request->exhaustive) return false;
  if (s->by_memory) return out->nearest.step_s > 0 && n->key > (double)out->nearest.memory.peak;
  return out->num_plans == s->request->top && n->key > out->plans[out->num_plans - 1].step_s;
}

static void tell_progress(const searcher *s, int64_t nodes) {
  enum { OFTEN = 256 };
  if (s->request->progress && nodes % OFTEN == 0) {
    s->request->progress(s->request->progress_context, s->out);
  }
}

static ot_status run(searcher *s) {
  OT_TRY(add_groups(s));
  for (int64_t nodes = 1; s->count > 0 && !is_done(s, &s->heap[0]); nodes++) {
    node n = pop(s);
    tell_progress(s, nodes);
    switch ((node_kind)n.kind) {
      case NODE_GROUP:
        OT_TRY(add_zeros(s, &n));
        break;
      case NODE_GROUP_ZERO:
        OT_TRY(add_orders(s, &n));
        break;
      case NODE_ZERO_FLOOR:
        n.kind = s->by_memory ? NODE_ZERO_CONTEXT : NODE_ZERO_PLAIN;
        OT_TRY(add(s, n));
        break;
      case NODE_ZERO_PLAIN:
      case NODE_ZERO_CONTEXT:
      case NODE_ZERO_BLOCK:
      case NODE_ZERO:
        n.kind++;
        OT_TRY(add(s, n));
        break;
      case NODE_REPLAYED:
        OT_TRY(add_candidates(s, &n));
        break;
      case NODE_CANDIDATE:
        OT_TRY(simulate(s, &n));
        break;
      case NODE_KINDS:
        OT_UNREACHABLE();
    }
  }
  return OT_OK;
}

// Records the next nodes in the heap as rejected.
static void keep_slower(searcher *s) {
  ot_search *const out = s->out;
  if (out->num_plans == 0) return;
  while (s->count > 0 && s->kept[OT_REJECTED_SLOWER] < KEPT_REJECTIONS) {
    const node n = pop(s);
    const double more_s = n.step_s - out->plans[out->num_plans - 1].step_s;
    keep_rejection(s, OT_REJECTED_SLOWER, &n,
                   ot_arena_format(s->arena, "takes at least %s, %s more than plan %d",
                                   ot_figure_seconds(s->arena, n.step_s),
                                   ot_figure_seconds(s->arena, more_s), out->num_plans));
  }
}

static void keep_refusals(searcher *s) {
  for (int part = 0; part < (int)OT_PARTS; part++) {
    for (int i = 0; i < s->space.num_refusals[part]; i++) {
      const ot_refusal *const refusal = &s->space.refusals[part][i];
      s->out->rejections[s->out->num_rejections++] = (ot_rejection){
          .kind = OT_REJECTED_RULE, .candidate = refusal->candidate, .reason = refusal->reason};
    }
  }
}

ot_status ot_search_build(const ot_search_request *request, ot_arena *arena, ot_search *out) {
  OT_CHECK(request->top >= 1, OT_USAGE, "plan: top=%d; allowed: at least 1", request->top);
  searcher s = {.request = request, .arena = arena, .out = out};
  *out = (ot_search){0};
  OT_TRY(ot_estimator_build(request->job, arena, &s.estimator));
  OT_TRY(ot_ability_check_job(request->job));
  ot_space_build(request->job, arena, &s.space);
  const int most = OT_PARTS * OT_MAX_REFUSALS + OT_REJECTION_KINDS * KEPT_REJECTIONS;
  s.shards = ot_arena_array(arena, s.space.num_groups, sizeof *s.shards);
  s.least = ot_arena_array(arena, s.space.num_groups, sizeof *s.least);
  s.replayed = ot_arena_array(arena, REPLAYED, sizeof *s.replayed);
  out->plans = ot_arena_array(arena, request->top, sizeof *out->plans);
  out->rejections = ot_arena_array(arena, most, sizeof *out->rejections);
  out->num_candidates = s.space.num_candidates;
  out->num_rejected[OT_REJECTED_RULE] = s.space.num_refused;
  OT_TRY(run(&s));
  out->num_rejected[OT_REJECTED_SLOWER] =
      out->num_candidates - out->num_simulated - s.too_large - out->num_rejected[OT_REJECTED_RULE];
  keep_slower(&s);
  keep_refusals(&s);
  if (out->num_plans > 0 || request->plans_only) return OT_OK;
  s.by_memory = true;
  return run(&s);
}
