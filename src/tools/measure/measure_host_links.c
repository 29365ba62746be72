// SPDX-License-Identifier: Apache-2.0
// Communication of ranks that are processes on several hosts. All groups of a shape call at the
// same time, because groups of one host share its link, as in a training step. Clocks of hosts
// differ, therefore ranks time their own calls: a short call the rank that enters it last, and
// ranks take turns at that; a long one every rank; of a message, half of the time there and back is
// taken. A rank's time is the shortest of its rounds, because ranks that share cores often wait for
// a turn of a core; the time of a call is that of the slowest rank.
#include <stdlib.h>

#include "base/sort.h"
#include "host/clock.h"
#include "measure/measure_parts.h"

enum { ROUNDS = 24, LEAST_ROUNDS = 4, LEAST_SIZES = 3, LONG_BYTES = 1 << 16 };

static const double entry_delay_s = 60e-6;
static const double size_s = 0.5, quick_size_s = 0.25;  // for the rounds of one size

// Groups of `inside` ranks of each of `hosts` hosts.
typedef struct shape {
  int inside, hosts;
} shape;

typedef struct timer {
  ot_comm *comm;
  int per_host;
  bool quick;
  ot_group_kind group;
  int size, index;  // of the group; of this rank in it
  ot_link_memory memory;
  double own[ROUNDS];
  double *all;  // [ranks][ROUNDS]
} timer;

static ot_status synchronize(const timer *t) {
  const ot_comm_call call = {.kind = OT_COMM_BARRIER, .group = OT_GROUP_WORLD, .name = "meet"};
  return ot_comm_run(t->comm, &call);
}

static void enter_late(void) {
  const double end_s = ot_clock_s() + entry_delay_s;
  while (ot_clock_s() < end_s) continue;
}

static int by_value(const void *a, const void *b, const void *context) {
  (void)context;
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// ---- one size ----

static ot_status exchange(const timer *t, ot_comm_call *call) {
  if (t->index > 1) return OT_OK;
  call->peer = 1 - t->index;
  for (int i = 0; i < 2; i++) {
    call->kind = i == t->index ? OT_COMM_SEND : OT_COMM_RECEIVE;
    OT_TRY(ot_comm_run(t->comm, call));
  }
  return OT_OK;
}

static ot_status run_round(timer *t, const ot_link_call *call, int64_t bytes, int round) {
  const bool message = call->kind == OT_COMM_SEND;
  const bool last = message ? t->index == 0 : round % t->size == t->index;
  ot_comm_call own = ot_link_call_make(call, bytes, t->size, &t->memory);
  OT_ASSERT(ot_comm_workspace(&own, t->size) <= 2 * bytes);
  own.group = t->group;
  OT_TRY(synchronize(t));
  if (last) enter_late();
  const double begin_s = ot_clock_s();
  OT_TRY(message ? exchange(t, &own) : ot_comm_run(t->comm, &own));
  const double own_s = ot_clock_s() - begin_s;
  const bool all = bytes >= LONG_BYTES && !message;
  t->own[round] = last ? own_s / (message ? 2 : 1) : all ? own_s - entry_delay_s : 0;
  return OT_OK;
}

// Gathers the times of all ranks. Seconds of the slowest, and the spread of its rounds; the same on
// all ranks. The first round is not counted.
static ot_status gather(timer *t, int rounds, ot_timing *out) {
  const ot_comm_call call = {.kind = OT_COMM_ALL_GATHER,
                             .group = OT_GROUP_WORLD,
                             .send = t->own,
                             .receive = t->all,
                             .count = rounds,
                             .dtype = OT_F64,
                             .sum = OT_F64,
                             .name = "timings"};
  OT_TRY(ot_comm_run(t->comm, &call));
  *out = (ot_timing){0};
  for (int rank = 0; rank < ot_comm_size(t->comm); rank++) {
    ot_timings timings = {0};
    for (int i = 1; i < rounds; i++) {
      const double own = t->all[rank * rounds + i];
      if (own > 0) ot_timings_add(&timings, own);
    }
    const double spread = ot_timings_read(&timings).spread;
    if (timings.count == 0 || timings.seconds[0] <= out->seconds) continue;
    *out = (ot_timing){.seconds = timings.seconds[0], .spread = spread};
  }
  return OT_OK;
}

static ot_status time_size(timer *t, const ot_link_call *call, int64_t bytes, ot_timing *out) {
  const int least = t->size + 1 > LEAST_ROUNDS && t->size < ROUNDS ? t->size + 1 : LEAST_ROUNDS;
  for (int i = 0; i < least; i++) OT_TRY(run_round(t, call, bytes, i));
  OT_TRY(gather(t, least, out));
  const double affordable = (t->quick ? quick_size_s : size_s) / out->seconds;
  if (affordable <= least) return OT_OK;
  const int rounds = affordable > ROUNDS ? ROUNDS : (int)affordable;
  for (int i = least; i < rounds; i++) OT_TRY(run_round(t, call, bytes, i));
  return gather(t, rounds, out);
}

// The latency is the time of the smallest size, the rate that of the two largest: links let short
// calls pass in their queues, so that a fit to all sizes would say what a link does not carry.
// A call takes no longer than a larger one.
static ot_collective_rates fit(const ot_link_call *call, ot_timing *timings, int count,
                               ot_arena *arena) {
  for (int i = count - 2; i >= 0; i--) {
    const double larger_s = timings[i + 1].seconds;
    if (timings[i].seconds > larger_s) timings[i].seconds = larger_s;
  }
  const double latency_s = timings[0].seconds;
  double bytes = 0, seconds = 0;
  for (int i = count - 2; i < count; i++) {
    bytes += (double)ot_link_bytes[i];
    seconds += timings[i].seconds - latency_s;
  }
  ot_collective_rates rates = ot_link_fit(call, timings, count, arena);
  if (seconds <= 0) return rates;
  double off[OT_LINK_SIZES];
  rates.latency_s = latency_s;
  rates.bytes_per_s = bytes / seconds;
  for (int i = 0; i < count; i++) {
    const double ratio =
        (latency_s + (double)ot_link_bytes[i] / rates.bytes_per_s) / timings[i].seconds;
    off[i] = ratio > 1 ? ratio - 1 : 1 - ratio;
  }
  ot_sort(off, count, sizeof *off, (ot_ordering){by_value, NULL}, arena);
  rates.fit.residual = off[count / 2];
  return rates;
}

// Sizes that would take too long are left out; all ranks decide alike.
static ot_status fit_call(timer *t, const ot_link_call *call, ot_arena *arena,
                          ot_collective_rates *out) {
  const double most_s = t->quick ? quick_size_s : size_s;
  ot_timing timings[OT_LINK_SIZES];
  int count = 0;
  while (count < OT_LINK_SIZES) {
    const int64_t bytes = ot_link_bytes[count];
    OT_TRY(time_size(t, call, bytes, &timings[count++]));
    if (count >= LEAST_SIZES && timings[count - 1].seconds > most_s / LEAST_ROUNDS) break;
  }
  *out = fit(call, timings, count, arena);
  return OT_OK;
}

// ---- shapes ----

static int add_shape(shape *shapes, int count, int inside, int hosts) {
  // One kind of group for each; the world is none of them.
  if (inside * hosts < 2 || count >= OT_GROUP_KINDS - 1) return count;
  for (int i = 0; i < count; i++) {
    if (shapes[i].inside == inside && shapes[i].hosts == hosts) return count;
  }
  shapes[count] = (shape){inside, hosts};
  return count + 1;
}

// Two ranks, all ranks of a host and powers of two between; one or all ranks of 2, 4, ... and all
// hosts.
static int list_shapes(int per_host, int hosts, shape *shapes) {
  int count = 0;
  count = add_shape(shapes, count, per_host, 1);
  if (hosts > 1) count = add_shape(shapes, count, 1, hosts);
  if (hosts > 1) count = add_shape(shapes, count, per_host, hosts);
  for (int n = 2; n < per_host && per_host % n == 0; n *= 2) {
    count = add_shape(shapes, count, n, 1);
  }
  for (int h = 2; h < hosts && hosts % h == 0; h *= 2) {
    count = add_shape(shapes, count, 1, h);
    count = add_shape(shapes, count, per_host, h);
  }
  return count;
}

// Makes the group of this rank with shape `s`.
static ot_status make_group(timer *t, const shape *s, int *members) {
  const int rank = ot_comm_rank(t->comm);
  const int host = rank / t->per_host / s->hosts * s->hosts;
  const int first = rank % t->per_host / s->inside * s->inside;
  t->size = 0;
  for (int i = 0; i < s->hosts * s->inside; i++) {
    const int member = (host + i / s->inside) * t->per_host + first + i % s->inside;
    if (member == rank) t->index = t->size;
    members[t->size++] = member;
  }
  return ot_comm_add_group(t->comm, t->group, members, t->size);
}

static ot_status measure_shape(timer *t, const shape *s, ot_arena *arena, ot_measured_links *out) {
  int *const members = ot_arena_array(arena, (int64_t)s->hosts * s->inside, sizeof *members);
  OT_TRY(make_group(t, s, members));
  for (int i = 0; i < OT_LINK_CALLS; i++) {
    const bool message = ot_link_calls[i].kind == OT_COMM_SEND;
    // Messages are timed between neighbours of a host, and between all ranks of two hosts.
    if (message && (s->hosts > 1 ? s->inside > 1 : s->inside != t->per_host)) continue;
    ot_collective_rates *const rates = &out->rates[out->num_rates];
    OT_TRY(fit_call(t, &ot_link_calls[i], arena, rates));
    rates->ranks = message ? 2 : t->size;
    rates->hosts = message && s->hosts > 1 ? 2 : s->hosts;
    bool known = false;
    for (int64_t k = 0; k < out->num_rates; k++) {
      known |= message && out->rates[k].op == rates->op && out->rates[k].hosts == rates->hosts;
    }
    out->num_rates += !known;
  }
  return OT_OK;
}

static ot_status measure(timer *t, ot_arena *arena, ot_measured_links *out) {
  shape shapes[OT_GROUP_KINDS];
  const int count = list_shapes(t->per_host, ot_comm_size(t->comm) / t->per_host, shapes);
  out->rates = ot_arena_array(arena, (int64_t)count * OT_LINK_CALLS + 1, sizeof *out->rates);
  for (int i = 0; i < count; i++) {
    t->group = (ot_group_kind)(OT_GROUP_WORLD + 1 + i);
    OT_TRY(measure_shape(t, &shapes[i], arena, out));
  }
  return OT_OK;
}

ot_status ot_measure_host_links(const ot_host_links_request *request, ot_arena *arena,
                                ot_measured_links *out) {
  const size_t ranks = (size_t)ot_comm_size(request->comm);
  timer t = {.comm = request->comm, .per_host = request->per_host, .quick = request->quick};
  t.all = calloc(ranks * ROUNDS, sizeof *t.all);
  *out = (ot_measured_links){0};
  ot_status status = ot_link_memory_create(request->per_host, &t.memory);
  if (!t.all) status = ot_fail(OT_ENVIRONMENT, "bench: out of memory");
  status = ot_comm_agree(request->comm, status);
  if (status == OT_OK) status = measure(&t, arena, out);
  ot_link_memory_destroy(&t.memory);
  free(t.all);
  return status;
}
