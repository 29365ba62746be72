// SPDX-License-Identifier: Apache-2.0
// Cache of pipeline flows by their keys. Flows of long steps are large: they are built one after
// the other in a ring of memory, where new ones overwrite the oldest.
#include "base/status.h"
#include "estimate/estimator.h"

// A third of the ring is free next to two flows of a third, wherever these are.
enum { RING_BYTES = 1 << 24, LEAST_FLOWS = 3 };

struct ot_cached_flow {
  ot_pipeline kind;
  bool pairs;
  ot_pipeline_flow flow;
  int64_t first, end;  // in the ring
};

static bool is_of(const ot_cached_flow *known, const ot_candidate *candidate, bool pairs,
                  const ot_stages *stages) {
  return known->kind == candidate->pipeline && known->pairs == pairs &&
         known->flow.num_ranks == stages->num_ranks &&
         known->flow.num_chunks == stages->num_chunks &&
         known->flow.micro_batches == candidate->micro_batches;
}

// ---- the ring ----

static bool overlaps(const ot_cached_flow *flow, int64_t first, int64_t end) {
  return flow->first < end && flow->end > first;
}

// Forgets all flows; those in the ring before stay valid until the next time, when its memory
// becomes scratch. Twice the bytes at least, so that all rings take at most twice those of the
// last.
static void enlarge(ot_estimator *e, int64_t bytes) {
  ot_flow_ring *const r = &e->flows;
  const int64_t least = r->bytes > 0 ? 2 * r->bytes : RING_BYTES;
  if (r->bytes_before > 0) ot_arena_pool_give(&e->scratch, r->memory_before, r->bytes_before);
  r->memory_before = r->memory;
  r->bytes_before = r->bytes;
  r->bytes = bytes > least ? bytes : least;
  r->memory = ot_arena_take(e->arena, r->bytes);
  r->next = 0;
  r->list = NULL;
  r->count = r->made = r->capacity = 0;
  r->latest = NULL;
}

// The start of `bytes` after the flow that was built last and outside the one that was used last.
static int64_t place_for(const ot_flow_ring *r, int64_t bytes) {
  int64_t first = r->next + bytes <= r->bytes ? r->next : 0;
  if (!r->latest || !overlaps(r->latest, first, first + bytes)) return first;
  first = r->latest->end;
  return first + bytes <= r->bytes ? first : 0;
}

// Removes the flows that overlap [first, end).
static void drop(ot_flow_ring *r, int64_t first, int64_t end) {
  for (int64_t i = 0; i < r->count;) {
    ot_cached_flow *const flow = r->list[i];
    if (!overlaps(flow, first, end)) {
      i++;
      continue;
    }
    r->list[i] = r->list[--r->count];
    r->list[r->count] = flow;
  }
}

// A flow with `bytes` of memory, last in the list.
static ot_cached_flow *make_room(ot_estimator *e, int64_t bytes) {
  ot_flow_ring *const r = &e->flows;
  if (LEAST_FLOWS * bytes > r->bytes) enlarge(e, LEAST_FLOWS * bytes);
  const int64_t first = place_for(r, bytes);
  drop(r, first, first + bytes);
  if (r->count == r->made) {
    r->list = ot_arena_grow(e->arena, r->list, r->made, &r->capacity, sizeof *r->list);
    r->list[r->made++] = ot_arena_array(e->arena, 1, sizeof **r->list);
  }
  ot_cached_flow *const flow = r->list[r->count++];
  flow->first = first;
  flow->end = r->next = first + bytes;
  return flow;
}

// ---- the list ----

static void *no_more(void *context, int64_t bytes) {
  (void)context;
  (void)bytes;
  OT_UNREACHABLE();
}

static ot_status build(ot_estimator *e, const ot_candidate *candidate, const ot_stages *stages,
                       ot_cached_flow **out) {
  const ot_pipeline_request request = {.kind = candidate->pipeline,
                                       .num_ranks = stages->num_ranks,
                                       .num_chunks = stages->num_chunks,
                                       .micro_batches = (int)candidate->micro_batches,
                                       .rank_of = stages->rank_of,
                                       .pairs = ot_candidate_pairs(e->job.engine, candidate)};
  ot_arena scratch = ot_arena_pool_begin(&e->scratch);
  ot_pipeline_schedule order;
  OT_TRY(ot_pipeline_schedule_build(&request, &scratch, &order));
  const int64_t bytes = ot_pipeline_flow_bytes(&order);
  ot_cached_flow *const made = make_room(e, bytes);
  ot_arena room = {.source = no_more, .block = e->flows.memory + made->first, .capacity = bytes};
  made->kind = candidate->pipeline;
  made->pairs = request.pairs;
  ot_pipeline_flow_build(&order, &room, &scratch, &made->flow);
  *out = made;
  return OT_OK;
}

ot_status ot_flow_find(ot_estimator *e, const ot_candidate *candidate, const ot_stages *stages,
                       const ot_pipeline_flow **out) {
  ot_flow_ring *const r = &e->flows;
  ot_cached_flow *found = NULL;
  const bool pairs = ot_candidate_pairs(e->job.engine, candidate);
  for (int64_t i = 0; i < r->count && !found; i++) {
    if (is_of(r->list[i], candidate, pairs, stages)) found = r->list[i];
  }
  if (!found) OT_TRY(build(e, candidate, stages, &found));
  r->latest = found;
  *out = &found->flow;
  return OT_OK;
}
