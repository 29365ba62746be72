// SPDX-License-Identifier: Apache-2.0
// The machine of the ranks of a launcher: rank 0 measures the kernels of its host while the others
// sleep, all ranks measure what goes between them.
#include <sched.h>

#include "base/text.h"
#include "host/clock.h"
#include "measure/measure_parts.h"
#include "runtime/model_runtime.h"
#include "train/rank_hosts.h"

enum { SPINS = 3 };

static const double spin_s = 0.2;
// Hosts that slow each other down by more share cores: they are virtual.
static const double least_pace = 0.8;

// What a rank may compute with.
typedef struct rank_cores {
  double cores;    // of its set
  double sharers;  // ranks with the same set on the same host
} rank_cores;

static void say(const ot_measure_request *request, const char *what) {
  if (request->say) request->say(request->context, what);
}

static ot_status gather(ot_comm *comm, double own, double *all) {
  const ot_comm_call call = {.kind = OT_COMM_ALL_GATHER,
                             .group = OT_GROUP_WORLD,
                             .send = &own,
                             .receive = all,
                             .count = 1,
                             .dtype = OT_F64,
                             .sum = OT_F64,
                             .name = "figures"};
  return ot_comm_run(comm, &call);
}

static ot_status find_cores(ot_comm *comm, ot_arena *arena, rank_cores *own) {
  cpu_set_t set;
  CPU_ZERO(&set);
  (void)sched_getaffinity(0, sizeof set, &set);
  const uint64_t hash =
      ot_hash_bytes(ot_hash_text(OT_HASH_START, ot_comm_host(comm)), &set, sizeof set);
  // Whole numbers up to 2^53 are exact.
  const double mine = (double)(hash >> 11);
  double *const all = ot_arena_array(arena, ot_comm_size(comm), sizeof *all);
  OT_TRY(gather(comm, mine, all));
  *own = (rank_cores){.cores = ot_runtime_cores()};
  for (int i = 0; i < ot_comm_size(comm); i++) own->sharers += all[i] == mine;
  return OT_OK;
}

// ---- cores that hosts share ----

static ot_status spin(ot_comm *comm, void *context) {
  volatile double x = 1;
  double count = 0;
  const double end_s = ot_clock_s() + spin_s;
  for (; ot_clock_s() < end_s; count++) {
    for (int i = 0; i < 1000; i++) x = x * 0.999 + 0.1;
  }
  if (ot_comm_rank(comm) == 0) *(double *)context = count;
  return OT_OK;
}

static ot_status meet(ot_comm *comm) {
  const ot_comm_call call = {.kind = OT_COMM_BARRIER, .group = OT_GROUP_WORLD, .name = "meet"};
  return ot_comm_run(comm, &call);
}

typedef struct pace_trial {
  ot_comm *comm;
  int per_host, threads;
  double *counts;  // [ranks]
} pace_trial;

// What the ranks of the first host do in a fixed time, while the others sleep or do the same.
static ot_status count_first_host(const pace_trial *t, bool others, double *sum) {
  double own = 0;
  OT_TRY(meet(t->comm));
  if (others || ot_comm_rank(t->comm) < t->per_host) {
    OT_TRY(ot_comm_run_threads(t->threads, spin, &own));
  }
  OT_TRY(gather(t->comm, own, t->counts));
  *sum = 0;
  for (int i = 0; i < t->per_host; i++) *sum += t->counts[i];
  return OT_OK;
}

// The pace of a host while all hosts work, relative to that of a host alone.
static ot_status find_pace(const pace_trial *t, double *pace) {
  ot_timings paces = {0};
  for (int i = 0; i < SPINS; i++) {
    double alone, together;
    OT_TRY(count_first_host(t, false, &alone));
    OT_TRY(count_first_host(t, true, &together));
    ot_timings_add(&paces, together / alone);
  }
  (void)ot_timings_read(&paces);
  *pace = paces.seconds[SPINS / 2];
  return OT_OK;
}

// ---- the cluster ----

static const ot_collective_rates *find_message(const ot_measured_links *links, int hosts) {
  for (int64_t i = 0; i < links->num_rates; i++) {
    const ot_collective_rates *const r = &links->rates[i];
    if (r->hosts == hosts && ot_text_equal(r->op, "message")) return r;
  }
  return NULL;
}

static void add_level(ot_cluster *c, const char *name, int size, const ot_collective_rates *r) {
  if (!r || size < 2) return;
  const double inner = c->num_levels > 0 ? c->level[c->num_levels - 1].bytes_per_s : r->bytes_per_s;
  const double rate = r->bytes_per_s > 0 ? r->bytes_per_s : inner;
  c->level[c->num_levels++] = (ot_link_level){.name = name,
                                              .size = size,
                                              .bytes_per_s = rate < inner ? rate : inner,
                                              .latency_s = r->latency_s};
}

static void assemble(const ot_measured_links *links, int ranks, int per_host, ot_cluster *out) {
  out->name = "this-cluster";
  out->num_devices = ranks;
  out->host_devices = per_host;
  out->threads_per_core = 0;
  out->device.memory_bytes = out->device.memory_bytes / per_host;
  out->measured.collectives = links->rates;
  out->measured.num_collectives = links->num_rates;
  out->num_levels = 0;
  add_level(out, "host", per_host, find_message(links, 1));
  add_level(out, "network", ranks, find_message(links, 2));
}

static ot_status find_hosts(ot_comm *comm, int *per_host) {
  const int ranks = ot_comm_size(comm);
  OT_TRY(ot_rank_hosts_count(comm, per_host));
  OT_TRY(ot_rank_hosts_check(comm, *per_host, "bench"));
  if (ranks % *per_host == 0) return OT_OK;
  return ot_comm_agree(
      comm, ot_fail(OT_RANKS, "bench: %d ranks with %d on a host: the last host has fewer", ranks,
                    *per_host));
}

// Kernels and disk of the first host, measured by rank 0 with threads in place of its ranks.
static ot_status measure_first(const ot_measure_request *request, const rank_cores *own,
                               ot_arena *arena, ot_cluster *out) {
  ot_measure_request alone = *request;
  alone.comm = NULL;
  alone.ranks = (int)own->sharers;
  alone.no_links = true;
  OT_TRY(ot_measure_machine(&alone, arena, out));
  out->device.memory_bytes *= alone.ranks;
  return OT_OK;
}

ot_status ot_measure_cluster(const ot_measure_request *request, ot_arena *arena, ot_cluster *out) {
  ot_comm *const comm = request->comm;
  const int ranks = ot_comm_size(comm);
  int per_host;
  rank_cores own;
  OT_TRY(ot_comm_agree(comm, request->backend == OT_BACKEND_CPU
                                 ? OT_OK
                                 : ot_fail(OT_USAGE,
                                           "bench: under a launcher it measures CPUs "
                                           "(--device cpu); without one, GPUs")));
  OT_TRY(find_hosts(comm, &per_host));
  OT_TRY(find_cores(comm, arena, &own));
  const bool leads = ot_comm_rank(comm) == 0;
  OT_TRY(ot_comm_agree(comm, leads ? measure_first(request, &own, arena, out) : OT_OK));
  double pace = 1, total = 0;
  double *const cores = ot_arena_array(arena, ranks, sizeof *cores);
  const int threads = own.cores > own.sharers ? (int)(own.cores / own.sharers) : 1;
  OT_TRY(gather(comm, own.cores / own.sharers, cores));
  for (int i = 0; i < ranks; i++) total += cores[i];
  say(request, "cores of all hosts");
  const pace_trial trial = {comm, per_host, threads, cores};
  if (per_host < ranks) OT_TRY(find_pace(&trial, &pace));
  say(request, "collectives and messages within and across hosts");
  const ot_host_links_request links_request = {comm, per_host, request->quick};
  ot_measured_links links;
  OT_TRY(ot_measure_host_links(&links_request, arena, &links));
  if (!leads) return OT_OK;
  assemble(&links, ranks, per_host, out);
  total *= pace < least_pace ? pace : 1;
  out->measured.cores = total > 1 ? (int)(total + 0.5) : 1;
  return ot_cluster_check(out);
}
