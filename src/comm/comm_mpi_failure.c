// SPDX-License-Identifier: Apache-2.0
// How an MPI job fails. A rank that fails sends the news to all others, whose waits end; of the
// ranks that fail at about the same time, the lowest tells the user, the others keep still. A rank
// that was waiting answers so: of those that have not come to a call, it is not the one to blame.
// News is a number: rank R has failed (R), or waits (-1 - R).
//
// MPI_Abort ends the job when the process exits, after its message. All that calls MPI is done at
// once, while memory of calls under way is still there: MPI goes on with them whenever it is
// called.
#include <stdlib.h>
#include <time.h>

#include "base/failure.h"
#include "base/text.h"
#include "comm/comm_mpi.h"
#include "host/clock.h"

static const double election_s = 0.3;  // for failures and answers of other ranks to be heard of
static const double mercy_s = 5.0;     // for the launcher to end a process that keeps still
static const double delivery_s = 0.3;  // for the launcher to pass on what was printed: it may drop
                                       // what is still in its pipes when it ends a job

void ot_mpi_nap(double seconds) {
  const struct timespec time = {.tv_sec = (time_t)seconds,
                                .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
  nanosleep(&time, NULL);
}

static ot_status tell(const ot_mpi_end *end, int rank, const int32_t *news) {
  MPI_Request sent;
  OT_TRY_MPI(MPI_Isend(news, 1, MPI_INT32_T, rank, 0, end->control, &sent));
  // Never waited for: the process is about to end.
  OT_TRY_MPI(MPI_Request_free(&sent));
  return OT_OK;
}

static ot_status tell_all(ot_mpi_end *end) {
  end->failure = end->comm.rank;
  for (int rank = 0; rank < end->comm.size; rank++) {
    if (rank != end->comm.rank) OT_TRY(tell(end, rank, &end->failure));
  }
  return OT_OK;
}

static ot_status take(ot_mpi_end *end, int news, int *failed) {
  end->answered[news < 0 ? -1 - news : news] = true;
  if (news < 0) return OT_OK;
  if (news < *failed) *failed = news;
  if (end->waiting == 0) return OT_OK;
  end->waits = -1 - end->comm.rank;
  return tell(end, news, &end->waits);
}

ot_status ot_mpi_hear(ot_mpi_end *end, int *failed) {
  while (end->news != MPI_REQUEST_NULL) {
    int came = 0;
    OT_TRY_MPI(MPI_Test(&end->news, &came, MPI_STATUS_IGNORE));
    if (!came) return OT_OK;
    const int news = end->news_in;
    OT_TRY_MPI(
        MPI_Irecv(&end->news_in, 1, MPI_INT32_T, MPI_ANY_SOURCE, 0, end->control, &end->news));
    OT_TRY(take(end, news, failed));
  }
  return OT_OK;
}

// Listens for a while. Returns the lowest rank that has failed; at most this one.
static int hear_for(ot_mpi_end *end, double seconds) {
  int lowest = end->comm.rank;
  const double until = ot_clock_s() + seconds;
  while (ot_clock_s() < until) {
    if (ot_mpi_hear(end, &lowest) != OT_OK) return lowest;
    ot_mpi_nap(1e-3);
  }
  return lowest;
}

static void elect(ot_mpi_end *end) {
  // Without the communicator it is a failure at the very beginning, and likely everybody's.
  if (end->control == MPI_COMM_NULL) {
    end->muted = end->comm.rank > 0;
  } else if (!end->muted) {
    end->muted = tell_all(end) == OT_OK && hear_for(end, election_s) < end->comm.rank;
  }
}

// ---- a wait that ran out of patience ----

static bool is_silent(const void *context, int rank) {
  const ot_mpi_end *const end = context;
  return rank != end->comm.rank && !end->answered[rank];
}

static bool is_late(const void *context, int index) {
  const ot_mpi_end *const end = context;
  const int rank = end->comm.groups[end->overdue->call.group].ranks[index];
  return ot_mpi_is_absent(end->overdue, index) && is_silent(end, rank);
}

static int count(const ot_mpi_end *end, int size, ot_comm_rank_filter is) {
  int count = 0;
  for (int i = 0; i < size; i++) count += is(end, i);
  return count;
}

// Names the ranks that have not come and do not wait themselves. Where all of them do, they are
// named, and those that gave no answer.
static void say_overdue(ot_mpi_end *end) {
  const ot_comm_request *const call = end->overdue;
  const ot_comm_group *const group = &end->comm.groups[call->call.group];
  ot_comm_text out = {end->why, sizeof end->why, 0};
  ot_comm_say(&out, "rank %d waits in ", end->comm.rank);
  ot_comm_say_call(&out, &end->comm, call);
  ot_comm_say(&out, " for ");
  const bool blamed = count(end, group->size, is_late) > 0;
  const int named =
      blamed ? ot_comm_say_ranks(&out, group->ranks, group->size, is_late, end)
             : ot_comm_say_ranks(&out, group->ranks, group->size, ot_mpi_is_absent, call);
  ot_comm_say(&out,
              named == 1 ? ", which has not come in %.3g s" : ", which have not come in %.3g s",
              end->comm.patience_s);
  if (blamed || count(end, end->comm.size, is_silent) == 0) return;
  ot_comm_say(&out, named == 1 ? " and waits itself; " : " and wait themselves; ");
  const int silent = ot_comm_say_ranks(&out, NULL, end->comm.size, is_silent, end);
  ot_comm_say(&out, silent == 1 ? " gives no answer" : " give no answer");
}

// ---- the end ----

void ot_mpi_settle(ot_mpi_end *end) {
  pthread_mutex_lock(&end->lock);
  const bool mine = !end->settling;
  end->settling = true;
  while (!mine && !end->settled) pthread_cond_wait(&end->changed, &end->lock);
  pthread_mutex_unlock(&end->lock);
  if (!mine) return;
  ot_mpi_lead(end);
  elect(end);
  if (end->overdue && !end->muted) say_overdue(end);
  // The launcher is about to end this process; others may still read memory of its calls. Also what
  // is seen of a process that was killed: its launcher ends the job, and says why.
  if (end->broken) ot_mpi_nap(mercy_s);
  if (end->muted && !end->broken) hear_for(end, mercy_s);
  pthread_mutex_lock(&end->lock);
  end->settled = true;
  pthread_mutex_unlock(&end->lock);
  ot_mpi_let_go(end);
}

void ot_mpi_fail_rank(ot_comm *comm, ot_status status) {
  (void)status;
  ot_mpi_end *const end = (ot_mpi_end *)comm;
  char why[sizeof end->why];
  ot_text_format(why, sizeof why, "rank %d has failed: %s", comm->rank, ot_fail_message());
  ot_mpi_fail_all(end, why);
  ot_mpi_settle(end);
}

void ot_mpi_abort(ot_comm *comm, ot_status status) {
  (void)comm;
  MPI_Abort(MPI_COMM_WORLD, status);
}

// MPI is the process' own, and so is what ends it.
static int abort_code;

static void abort_at_exit(void) {
  ot_mpi_nap(delivery_s);
  MPI_Abort(MPI_COMM_WORLD, abort_code);
}

ot_status ot_mpi_end_failed(ot_mpi_end *end, ot_status status) {
  ot_failure failure = {.status = OT_OK};
  ot_failure_take(&failure, status);
  // Where calls were left under way, their memory may be gone.
  if (!end->settled && end->under_way == 0) ot_mpi_settle(end);
  ot_failure_repeat(&failure);
  if (end->muted) {
    ot_fail(status, "%s", "");
  } else if (!ot_text_starts_with(failure.message, "rank")) {
    ot_text_format(failure.message, sizeof failure.message, "rank %d on %s: %s", end->comm.rank,
                   end->comm.host, ot_fail_message());
    ot_failure_repeat(&failure);
  }
  abort_code = status;
  if (end->comm.size > 1) atexit(abort_at_exit);
  return status;
}
