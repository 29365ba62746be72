// SPDX-License-Identifier: Apache-2.0
// The public face: checks arguments, counts bytes, and hands calls to the back end of the end. The
// only place that knows whether this build has MPI.
#include "comm/comm.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm_parts.h"

#if OT_MPI
#include "comm/comm_mpi.h"
enum { HAS_MPI = true };
#else
enum { HAS_MPI = false };
static ot_status ot_comm_mpi_run(ot_rank_main main, void *context) {
  (void)main, (void)context;
  ot_fail(OT_ENVIRONMENT, "comm: this program was built without MPI, so it cannot join %s",
          "the processes of an MPI launcher");
  return ot_fail_hint(OT_ENVIRONMENT,
                      "install an MPI (libopenmpi-dev) and run make again, or use "
                      "--ranks N without a launcher");
}
#endif

bool ot_comm_has_mpi(void) { return HAS_MPI; }

ot_status ot_comm_run_mpi(ot_rank_main main, void *context) {
  return ot_comm_mpi_run(main, context);
}

// ---- the head of an end ----

ot_status ot_comm_head_create(ot_comm *comm, const ot_comm_backend *backend, int rank, int size) {
  comm->backend = backend;
  comm->rank = rank;
  comm->size = size;
  comm->local_size = 1;
  if (gethostname(comm->host, sizeof comm->host - 1) != 0) memcpy(comm->host, "localhost", 10);
  comm->gathered = calloc((size_t)size, sizeof *comm->gathered);
  comm->scratch = calloc((size_t)size + OT_AGREEMENT_WORDS, sizeof *comm->scratch);
  OT_CHECK(comm->gathered && comm->scratch, OT_ENVIRONMENT, "comm: out of memory for %d ranks",
           size);
  return OT_OK;
}

void ot_comm_head_destroy(ot_comm *comm) {
  for (int kind = 0; kind < OT_GROUP_KINDS; kind++) free(comm->groups[kind].ranks);
  free(comm->gathered);
  free(comm->scratch);
}

ot_status ot_comm_head_group(ot_comm *comm, ot_group_kind kind, const int *ranks, int size) {
  int *const copy = calloc((size_t)size, sizeof *copy);
  OT_CHECK(copy, OT_ENVIRONMENT, "comm: out of memory for a group of %d ranks", size);
  ot_comm_group *const group = &comm->groups[kind];
  *group = (ot_comm_group){.size = size, .index = -1, .ranks = copy};
  for (int i = 0; i < size; i++) {
    copy[i] = ranks[i];
    if (ranks[i] == comm->rank) group->index = i;
  }
  return OT_OK;
}

// ---- calls ----

int ot_comm_rank(const ot_comm *comm) { return comm->rank; }

int ot_comm_size(const ot_comm *comm) { return comm->size; }

const char *ot_comm_host(const ot_comm *comm) { return comm->host; }

int ot_comm_local_size(const ot_comm *comm) { return comm->local_size; }

void ot_comm_fail(ot_comm *comm, ot_status status) { comm->backend->fail(comm, status); }

void ot_comm_abort(ot_comm *comm, ot_status status) { comm->backend->abort(comm, status); }

ot_status ot_comm_add_group(ot_comm *comm, ot_group_kind kind, const int *ranks, int size) {
  OT_ASSERT(kind > OT_GROUP_WORLD && kind < OT_GROUP_KINDS);
  OT_ASSERT(size >= 2 && size <= comm->size && comm->groups[kind].size == 0);
  bool member = false;
  for (int i = 0; i < size; i++) {
    OT_ASSERT(ranks[i] >= 0 && ranks[i] < comm->size && (i == 0 || ranks[i - 1] < ranks[i]));
    member |= ranks[i] == comm->rank;
  }
  OT_ASSERT(member);
  OT_TRY(ot_comm_head_group(comm, kind, ranks, size));
  return comm->backend->add_group(comm, kind, ranks, size);
}

int ot_comm_group_size(const ot_comm *comm, ot_group_kind kind) {
  const int size = comm->groups[kind].size;
  return size > 0 ? size : 1;
}

static void count_bytes(ot_comm *comm, const ot_comm_call *call) {
  const ot_comm_group *const group = &comm->groups[call->group];
  const double bytes = ot_comm_wire_bytes(call, group->size, group->index);
  _Atomic double *const sum = &comm->sent_bytes[call->group][call->kind];
  double before = atomic_load_explicit(sum, memory_order_relaxed);
  while (!atomic_compare_exchange_weak(sum, &before, before + bytes)) continue;
}

static void start(ot_comm *comm, const ot_comm_call *call, ot_comm_request *request, bool awaited) {
  ot_comm_check_call(comm, call);
  memset(request, 0, sizeof *request);
  request->call = *call;
  request->awaited = awaited;
  if (call->kind == OT_COMM_BARRIER) request->call.count = 0;
  count_bytes(comm, call);
  comm->backend->start(comm, request);
}

void ot_comm_start(ot_comm *comm, const ot_comm_call *call, ot_comm_request *request) {
  start(comm, call, request, false);
}

bool ot_comm_done(ot_comm *comm, ot_comm_request *request) {
  return comm->backend->done(comm, request);
}

ot_status ot_comm_wait(ot_comm *comm, ot_comm_request *request) {
  return comm->backend->wait(comm, request);
}

ot_status ot_comm_run(ot_comm *comm, const ot_comm_call *call) {
  ot_comm_request request;
  start(comm, call, &request, true);
  return ot_comm_wait(comm, &request);
}

void ot_comm_set_waiting(ot_comm *comm, bool waits) { comm->backend->set_waiting(comm, waits); }

void ot_comm_add_thread(ot_comm *comm, bool more) { comm->backend->add_thread(comm, more); }

void ot_comm_set_patience(ot_comm *comm, double seconds) { comm->patience_s = seconds; }

double ot_comm_sent_bytes(const ot_comm *comm, ot_group_kind group, ot_comm_kind kind) {
  return atomic_load_explicit(&comm->sent_bytes[group][kind], memory_order_relaxed);
}
