// SPDX-License-Identifier: Apache-2.0
// Computes intervals in flight, then checks pairs that overlap in time and in bytes.
#include "schedule/schedule_races.h"

#include "base/text.h"
#include "schedule/bodies.h"

typedef struct flight {
  int entry;
  int after;  // starts after this entry of the compute lane, -1: at once
  int until;  // first entry of the compute lane that waits for its end
} flight;

typedef struct races {
  const ot_schedule *schedule;
  const ot_order *order;
  const ot_access_list *list;
  ot_arena *arena;
  int64_t *first_access;  // [num_entries + 1] in list
  flight *flights;        // [num_flights]
  int num_flights;
} races;

static const char *name_of(const races *r, int entry) {
  const ot_entry *const e = &r->order->entries[entry];
  return ot_arena_format(r->arena, "entry %d (%s on the %s lane)", entry,
                         r->schedule->segments[e->segment].name, ot_lane_name(e->lane));
}

static bool conflict(const ot_access *a, const ot_access *b) {
  const bool both_read = a->kind == OT_ACCESS_READ && b->kind == OT_ACCESS_READ;
  return !both_read && a->begin < b->end && b->begin < a->end;
}

// ---- between lanes ----

static ot_status check_pair(const races *r, int x, int y) {
  for (int64_t i = r->first_access[x]; i < r->first_access[x + 1]; i++) {
    for (int64_t k = r->first_access[y]; k < r->first_access[y + 1]; k++) {
      const ot_access *const a = &r->list->accesses[i];
      const ot_access *const b = &r->list->accesses[k];
      OT_CHECK(!conflict(a, b), OT_BUG,
               "schedule: %s and %s may run concurrently and both access bytes of [%lld, %lld)",
               name_of(r, x), name_of(r, y), (long long)a->begin, (long long)a->end);
    }
  }
  return OT_OK;
}

// True if compute entry `entry` waits for the completion of `x`, directly or by its lane's order.
static bool waits_for(const races *r, int entry, int x) {
  const ot_lane lane = r->order->entries[x].lane;
  const int waited = r->order->entries[entry].wait[lane];
  return lane == OT_LANE_PIPELINE ? waited == x : waited >= x;
}

static void find_flights(races *r) {
  const ot_order *const order = r->order;
  r->flights = ot_arena_array(r->arena, order->num_entries + 1, sizeof *r->flights);
  for (int i = 0; i < order->num_entries; i++) {
    const ot_entry *const entry = &order->entries[i];
    if (entry->lane == OT_LANE_COMPUTE) continue;
    int until = i + 1;
    while (until < order->num_entries &&
           (order->entries[until].lane != OT_LANE_COMPUTE || !waits_for(r, until, i))) {
      until++;
    }
    r->flights[r->num_flights++] =
        (flight){.entry = i, .after = entry->wait[OT_LANE_COMPUTE], .until = until};
  }
}

// Two flights are ordered if one waits for the other, follows it on an in-order lane, or starts
// after the compute lane has waited for the other.
static bool ordered(const races *r, const flight *x, const flight *y) {
  const ot_entry *const a = &r->order->entries[x->entry];
  const ot_entry *const b = &r->order->entries[y->entry];
  if (a->lane == b->lane && a->lane != OT_LANE_PIPELINE) return true;
  return b->wait[a->lane] >= x->entry || y->after >= x->until;
}

static ot_status check_flight(const races *r, int index) {
  const flight *const x = &r->flights[index];
  for (int c = x->after + 1; c < x->until; c++) {
    if (r->order->entries[c].lane == OT_LANE_COMPUTE) OT_TRY(check_pair(r, x->entry, c));
  }
  for (int i = index + 1; i < r->num_flights; i++) {
    const flight *const y = &r->flights[i];
    if (y->after >= x->until) break;  // and so do all later ones
    if (!ordered(r, x, y)) OT_TRY(check_pair(r, x->entry, y->entry));
  }
  return OT_OK;
}

// ---- inside an entry ----

static ot_status check_tasks(const races *r, int entry, int task, int end) {
  for (int64_t i = r->first_access[entry]; i < r->first_access[entry + 1]; i++) {
    const ot_access *const a = &r->list->accesses[i];
    if (a->task != task) continue;
    for (int64_t k = r->first_access[entry]; k < r->first_access[entry + 1]; k++) {
      const ot_access *const b = &r->list->accesses[k];
      if (b->task <= task || b->task >= end) continue;
      OT_CHECK(
          !conflict(a, b), OT_BUG,
          "schedule: %s: task %d accesses bytes of [%lld, %lld) while the collective of task %d "
          "is in flight",
          name_of(r, entry), b->task, (long long)a->begin, (long long)a->end, task);
    }
  }
  return OT_OK;
}

// End of the tasks that may overlap a collective: a loop iteration completes its collectives.
static int limit_of(const ot_segment *segment, int task) {
  const int repeat = ot_segment_repeat_of(segment, task);
  return repeat < 0 ? segment->num_tasks : repeat + 1 + segment->tasks[repeat].attributes.repeated;
}

static ot_status check_entry(const races *r, int entry) {
  const ot_segment *const segment = &r->schedule->segments[r->order->entries[entry].segment];
  for (int t = 0; t < segment->num_tasks; t++) {
    if (segment->tasks[t].lane != OT_LANE_TENSOR) continue;
    const int limit = limit_of(segment, t);
    int end = t + 1;
    while (end < limit && segment->tasks[end].wait < t) end++;
    if (end > t + 1) OT_TRY(check_tasks(r, entry, t, end));
  }
  return OT_OK;
}

ot_status ot_schedule_check_races(const ot_schedule *schedule, int order,
                                  const ot_access_list *list, ot_arena *arena) {
  races r = {.schedule = schedule, .order = &schedule->orders[order], .list = list, .arena = arena};
  const int n = r.order->num_entries;
  r.first_access = ot_arena_array(arena, n + 1, sizeof(int64_t));
  int64_t at = 0;
  for (int i = 0; i <= n; i++) {
    while (at < list->count && list->accesses[at].entry < i) at++;
    r.first_access[i] = at;
  }
  bool *const seen = ot_arena_array(arena, schedule->num_segments + 1, sizeof(bool));
  for (int i = 0; i < n; i++) {
    const ot_entry *const entry = &r.order->entries[i];
    if (entry->lane != OT_LANE_COMPUTE || seen[entry->segment]) continue;
    seen[entry->segment] = true;
    OT_TRY(check_entry(&r, i));
  }
  find_flights(&r);
  for (int i = 0; i < r.num_flights; i++) OT_TRY(check_flight(&r, i));
  return OT_OK;
}
