// SPDX-License-Identifier: Apache-2.0
// Which ranks have which GPU, and waits for work that holds calls.
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "comm/comm.h"
#include "comm/comm_nccl.h"
#include "comm/comm_parts.h"
#include "host/clock.h"
#include "kernels/kernels.h"

int ot_comm_ordinal(const ot_comm *comm, int devices) {
  return comm->local_size <= devices ? comm->local_rank : 0;
}

// ---- sums ----

ot_status ot_comm_queue_sum(ot_stream *stream, const ot_comm_reduction *sum) {
  ot_rank_sum job = {.num_sources = sum->num_sources,
                     .num_targets = sum->num_targets,
                     .count = sum->count,
                     .dtype = sum->dtype,
                     .sum = sum->sum,
                     .target_dtype = sum->target_dtype,
                     .round = sum->round,
                     .accumulate = sum->accumulate};
  OT_ASSERT(sum->num_sources <= OT_RANK_SUM_MOST);  // check_sums
  for (int i = 0; i < sum->num_sources; i++) {
    job.source[i] = (const char *)sum->source(sum->context, i) +
                    sum->source_offset * ot_dtype_bytes(sum->dtype);
  }
  for (int i = 0; i < sum->num_targets; i++) {
    job.target[i] = (char *)sum->target(sum->context, i) +
                    sum->target_offset * ot_dtype_bytes(sum->target_dtype);
  }
  OT_TRY(ot_device_bind(ot_stream_device(stream)));
  ot_kernel_sum_ranks(ot_stream_native(stream), &job);
  return OT_OK;
}

// ---- devices of ranks ----

// The GPUs of all ranks.
typedef struct fleet {
  const ot_comm *comm;
  uint64_t (*id)[2];  // [size]
  ot_device_info own;
} fleet;

static bool has_our_device(const void *context, int rank) {
  const fleet *const f = context;
  return f->id[rank][0] == f->own.id[0] && f->id[rank][1] == f->own.id[1];
}

static int count_sharers(const fleet *f) {
  int count = 0;
  for (int rank = 0; rank < f->comm->world_size; rank++) count += has_our_device(f, rank);
  return count;
}

static ot_status gather_devices(ot_comm *comm, int ordinal, fleet *f) {
  OT_TRY(ot_comm_agree(comm, ot_device_query(OT_BACKEND_CUDA, ordinal, &f->own)));
  return ot_comm_run(comm, &(ot_comm_call){.kind = OT_COMM_ALL_GATHER,
                                           .group = OT_GROUP_WORLD,
                                           .send = f->own.id,
                                           .receive = f->id,
                                           .count = 2,
                                           .dtype = OT_I64,
                                           .name = "GPUs of ranks"});
}

static ot_status check_own(const fleet *f) {
  if (count_sharers(f) == 1) return OT_OK;
  ot_comm_text out = {.length = 0};
  ot_comm_say_ranks(&out, NULL, f->comm->world_size, has_our_device, f);
  ot_fail(OT_ENVIRONMENT, "%s use the same GPU (%s)", out.text, f->own.name);
  return ot_fail_hint(OT_ENVIRONMENT,
                      "start as many ranks on a host as it has GPUs, or all ranks as threads of "
                      "one process, which may share one (--ranks N, CUDA_VISIBLE_DEVICES=0)");
}

static ot_status choose(ot_comm *comm, int ordinal, fleet *f) {
  OT_TRY(gather_devices(comm, ordinal, f));
  comm->shares_device = comm->backend->shares_memory && count_sharers(f) == comm->world_size;
  return comm->shares_device ? OT_OK : ot_comm_agree(comm, check_own(f));
}

// One kernel adds up the values of a group.
static ot_status check_sums(const ot_comm *comm, const ot_comm_route *routes, int count) {
  for (int i = 0; i < count; i++) {
    const ot_comm_route *const r = &routes[i];
    const int size = ot_comm_group_size(comm, r->group);
    const bool sums = r->kind == OT_COMM_ALL_REDUCE || r->kind == OT_COMM_REDUCE_SCATTER;
    OT_CHECK(!sums || size <= OT_RANK_SUM_MOST, OT_RANKS,
             "comm: %d ranks of group %s add up values on GPUs, at most %d can (try fewer ranks)",
             size, ot_group_name(r->group), OT_RANK_SUM_MOST);
  }
  return OT_OK;
}

ot_status ot_comm_use_device(ot_comm *comm, int ordinal, const ot_comm_route *routes, int count) {
  if (comm->world_size == 1) return OT_OK;
  OT_TRY(ot_comm_agree(comm, check_sums(comm, routes, count)));
  if (comm->shares_device) return OT_OK;
  fleet f = {.comm = comm, .id = calloc((size_t)comm->world_size, sizeof *f.id)};
  const ot_status there =
      f.id ? OT_OK : ot_fail(OT_ENVIRONMENT, "comm: out of memory for %d ranks", comm->world_size);
  ot_status status = ot_comm_agree(comm, there);
  if (status == OT_OK && !comm->nccl) status = choose(comm, ordinal, &f);
  free(f.id);
  if (status != OT_OK || comm->shares_device) return status;
  return ot_comm_nccl_open(comm, ordinal, routes, count);
}

// ---- waiting ----

static const double look_s = 1e-3;    // between looks at NCCL and at other ranks
static const double yield_s = 10e-3;  // then the thread naps between looks at the stream
static const long nap_ns = 50000;

// Another rank has failed.
static ot_status hear(ot_comm *comm) {
  ot_comm_process *const process = comm->process;
  pthread_mutex_lock(&process->lock);
  if (!process->failed && comm->backend->poll) comm->backend->poll(comm);
  pthread_mutex_unlock(&process->lock);
  return process->failed ? ot_fail(OT_RANKS, "%s", process->why) : OT_OK;
}

static ot_status check_progress(ot_comm *comm, double since_s) {
  OT_TRY(ot_comm_nccl_check(comm));
  OT_TRY(hear(comm));
  const double timeout_s = comm->timeout_s;
  if (timeout_s <= 0.0 || ot_clock_s() - since_s < timeout_s) return OT_OK;
  ot_comm_text out = {.length = 0};
  ot_comm_say(&out, "rank %d waits in ", comm->rank);
  const int calls = ot_comm_nccl_say(comm, &out);
  if (calls == 0) return OT_OK;  // it computes
  return ot_fail(OT_RANKS, "%s, which %s not finished in %.3g s", out.text,
                 calls == 1 ? "has" : "have", timeout_s);
}

static ot_status watch(ot_comm *comm, ot_stream *stream) {
  const double since_s = ot_clock_s();
  double looked_s = since_s;
  for (bool done = false; true;) {
    OT_TRY(ot_stream_is_done(stream, &done));
    if (done) return OT_OK;
    const double now = ot_clock_s();
    if (now - looked_s > look_s) {
      OT_TRY(check_progress(comm, since_s));
      looked_s = now;
    }
    if (now - since_s < yield_s) {
      sched_yield();
    } else {
      nanosleep(&(struct timespec){.tv_nsec = nap_ns}, NULL);
    }
  }
}

static void fail_here(ot_comm *comm, ot_status status) {
  if (!comm->process->failed) ot_comm_fail(comm, status);
}

// A failed GPU ends no call of another rank, so the others must hear of it.
ot_status ot_comm_synchronize(ot_comm *comm, ot_stream *stream) {
  if (!comm || comm->world_size == 1) return ot_stream_synchronize(stream);
  ot_failure first = {.status = OT_OK};
  ot_failure_take(&first, comm->nccl ? watch(comm, stream) : OT_OK);
  if (first.status != OT_OK) {
    fail_here(comm, first.status);
    ot_comm_nccl_abort(comm);
  }
  ot_failure_take(&first, ot_stream_synchronize(stream));
  if (first.status != OT_OK) fail_here(comm, ot_failure_repeat(&first));
  return ot_failure_repeat(&first);
}
