// SPDX-License-Identifier: Apache-2.0
// The machine of the ranks of a launcher: rank 0 measures the kernels of its host while the others
// sleep, all ranks measure what goes between them.
#include <sched.h>
#include <stdio.h>

#include "base/backend_rules.h"
#include "base/text.h"
#include "host/cores.h"
#include "measure/measure_parts.h"
#include "runtime/rank_hosts.h"

enum { LINE_BYTES = 64 };

// The cores of a rank, and the ranks that share them.
typedef struct rank_cores {
  double cores;       // of its set
  double sharers;     // ranks with the same set on the same machine, this one included
  double neighbours;  // ranks on the same machine, this one included
} rank_cores;

static void report_line(const ot_measure_request *request, const char *what) {
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

// Identifies the running kernel: containers and virtual hosts of one machine share its cores.
static uint64_t machine_hash(const ot_comm *comm) {
  char line[LINE_BYTES] = "";
  FILE *const file = fopen("/proc/sys/kernel/random/boot_id", "re");
  const bool read = file && fgets(line, sizeof line, file);
  if (file) fclose(file);
  return ot_hash_text(OT_HASH_START, read ? line : ot_comm_host(comm));
}

// Ranks with the same hash. Numbers below 2^53 are exact.
static ot_status count_equal(ot_comm *comm, uint64_t hash, double *all, double *count) {
  const double own = (double)(hash >> 11);
  OT_TRY(gather(comm, own, all));
  *count = 0;
  for (int i = 0; i < ot_comm_size(comm); i++) *count += all[i] == own;
  return OT_OK;
}

// `total`: cores of all ranks.
static ot_status find_cores(ot_comm *comm, ot_arena *arena, rank_cores *own, double *total) {
  double *const all = ot_arena_array(arena, ot_comm_size(comm), sizeof *all);
  cpu_set_t set;
  CPU_ZERO(&set);
  (void)sched_getaffinity(0, sizeof set, &set);
  const uint64_t machine = machine_hash(comm);
  own->cores = ot_host_cores();
  OT_TRY(count_equal(comm, machine, all, &own->neighbours));
  OT_TRY(count_equal(comm, ot_hash_bytes(machine, &set, sizeof set), all, &own->sharers));
  OT_TRY(gather(comm, own->cores / own->sharers, all));
  *total = 0;
  for (int i = 0; i < ot_comm_size(comm); i++) *total += all[i];
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
  const double inner =
      c->num_levels > 0 ? c->level[c->num_levels - 1].bytes_per_s : c->device.memory_bytes_per_s;
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
  const double all_bytes = (double)out->device.memory_bytes * own->sharers;
  out->device.memory_bytes = (int64_t)(all_bytes / own->neighbours);
  return OT_OK;
}

ot_status ot_measure_cluster(const ot_measure_request *request, ot_arena *arena, ot_cluster *out) {
  ot_comm *const comm = request->comm;
  const int ranks = ot_comm_size(comm);
  int per_host;
  rank_cores own;
  double total;
  OT_TRY(ot_comm_agree(comm, ot_backend_rules_of(request->backend)->host
                                 ? OT_OK
                                 : ot_fail(OT_USAGE,
                                           "bench: under a launcher it measures CPUs "
                                           "(--device cpu); without one, GPUs")));
  OT_TRY(find_hosts(comm, &per_host));
  OT_TRY(find_cores(comm, arena, &own, &total));
  const bool leads = ot_comm_rank(comm) == 0;
  OT_TRY(ot_comm_agree(comm, leads ? measure_first(request, &own, arena, out) : OT_OK));
  report_line(request, "collectives and messages within and across hosts");
  const ot_host_links_request links_request = {comm, per_host, request->quick};
  ot_measured_links links;
  OT_TRY(ot_measure_host_links(&links_request, arena, &links));
  if (!leads) return OT_OK;
  assemble(&links, ranks, per_host, out);
  out->measured.cores = total > 1 ? (int)(total + 0.5) : 1;
  return ot_cluster_check(out);
}
