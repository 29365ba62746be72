// SPDX-License-Identifier: Apache-2.0
// All ranks gather the names of the hosts and come to the same result.
#include "runtime/rank_hosts.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"

enum { NAME_WORDS = 8, NAME_BYTES = NAME_WORDS * 8 };

typedef struct host_name {
  char text[NAME_BYTES];
} host_name;

static ot_status gather(ot_comm *comm, host_name *all) {
  host_name own = {{0}};
  ot_text_format(own.text, sizeof own.text, "%s", ot_comm_host(comm));
  const ot_comm_call call = {.kind = OT_COMM_ALL_GATHER,
                             .group = OT_GROUP_WORLD,
                             .send = &own,
                             .receive = all,
                             .count = NAME_WORDS,
                             .dtype = OT_F64,
                             .sum = OT_F64,
                             .name = "hosts"};
  return ot_comm_run(comm, &call);
}

static bool is_same(const host_name *all, int a, int b) {
  return strcmp(all[a].text, all[b].text) == 0;
}

static ot_status fail_at(const host_name *all, int rank, int per_host, const char *source) {
  const int first = rank / per_host * per_host;
  if (rank > first) {
    ot_fail(OT_RANKS, "rank %d is on %s, but %s has it on the host of rank %d, which is on %s",
            rank, all[rank].text, source, first, all[first].text);
  } else {
    ot_fail(OT_RANKS, "rank %d is on %s, where other ranks are, but %s has %d rank%s on a host",
            rank, all[rank].text, source, per_host, ot_text_plural(per_host, "s"));
  }
  return ot_fail_hint(OT_RANKS,
                      "start %d rank%s on each host, host by host (mpirun --map-by ppr:%d:node "
                      "--rank-by slot, srun --ntasks-per-node=%d --distribution=block)",
                      per_host, ot_text_plural(per_host, "s"), per_host, per_host);
}

// The first rank of a host is on none of the hosts before it, the others on that of the first.
static ot_status check(const host_name *all, int ranks, int per_host, const char *source) {
  for (int rank = 1; rank < ranks; rank++) {
    const int first = rank / per_host * per_host;
    bool right = is_same(all, rank, first);
    for (int other = 0; rank == first && other < rank; other += per_host) {
      right = right && !is_same(all, rank, other);
    }
    if (!right) return fail_at(all, rank, per_host, source);
  }
  return OT_OK;
}

ot_status ot_rank_hosts_check(ot_comm *comm, int per_host, const char *source) {
  const int ranks = ot_comm_size(comm);
  if (ranks == 1) return OT_OK;
  host_name *const all = calloc((size_t)ranks, sizeof *all);
  OT_TRY(ot_comm_agree(comm, all ? OT_OK : ot_fail(OT_ENVIRONMENT, "out of memory")));
  ot_status status = gather(comm, all);
  if (status == OT_OK) status = ot_comm_agree(comm, check(all, ranks, per_host, source));
  free(all);
  return status;
}

ot_status ot_rank_hosts_count(ot_comm *comm, int *per_host) {
  const int ranks = ot_comm_size(comm);
  host_name *const all = calloc((size_t)ranks, sizeof *all);
  OT_TRY(ot_comm_agree(comm, all ? OT_OK : ot_fail(OT_ENVIRONMENT, "out of memory")));
  const ot_status status = gather(comm, all);
  *per_host = 0;
  for (int rank = 0; status == OT_OK && rank < ranks; rank++) *per_host += is_same(all, 0, rank);
  free(all);
  return status;
}
