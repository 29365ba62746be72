// SPDX-License-Identifier: Apache-2.0
// How an MPI job fails. A rank that fails sends the news to all others, whose waits end; of the
// ranks that fail at about the same time, the lowest tells the user, the others keep still.
// MPI_Abort ends the job when the process exits, after its message. All that calls MPI is done at
// once, while memory of calls under way is still there: MPI goes on with them whenever it is
// called.
#include <stdlib.h>
#include <time.h>

#include "base/failure.h"
#include "base/text.h"
#include "comm/comm_mpi.h"
#include "device/device.h"

static const double election_s = 0.2;  // for failures of other ranks to be heard of
static const double mercy_s = 5.0;     // for the launcher to end a process that keeps still
static const double delivery_s = 0.3;  // for the launcher to pass on what was printed: it may drop
                                       // what is still in its pipes when it ends a job

void ot_mpi_nap(double seconds) {
  const struct timespec time = {.tv_sec = (time_t)seconds,
                                .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
  nanosleep(&time, NULL);
}

static void send_news(ot_mpi_end *end) {
  end->news_out = end->comm.rank;
  for (int rank = 0; rank < end->comm.size; rank++) {
    MPI_Request sent;
    if (rank == end->comm.rank) continue;
    const int code = MPI_Isend(&end->news_out, 1, MPI_INT32_T, rank, 0, end->control, &sent);
    // Nobody waits for it: the process is about to end.
    if (code != MPI_SUCCESS || MPI_Request_free(&sent) != MPI_SUCCESS) return;
  }
}

// Listens for a while whether a lower rank has failed too. True when none has.
static bool is_lowest(ot_mpi_end *end) {
  const double until = ot_device_now_s() + election_s;
  while (ot_device_now_s() < until) {
    int came = 0;
    if (MPI_Test(&end->news, &came, MPI_STATUS_IGNORE) != MPI_SUCCESS) return true;
    if (!came) {
      ot_mpi_nap(1e-3);
      continue;
    }
    if (end->news_in < end->comm.rank) return false;
    if (MPI_Irecv(&end->news_in, 1, MPI_INT32_T, MPI_ANY_SOURCE, 0, end->control, &end->news) !=
        MPI_SUCCESS) {
      return true;
    }
  }
  return true;
}

static void elect(ot_mpi_end *end) {
  // Without the communicator it is a failure at the very beginning, and likely everybody's.
  if (end->control == MPI_COMM_NULL) {
    end->muted = end->comm.rank > 0;
  } else if (!end->muted) {
    send_news(end);
    end->muted = !is_lowest(end);
  }
}

void ot_mpi_settle(ot_mpi_end *end) {
  pthread_mutex_lock(&end->lock);
  const bool mine = !end->settling;
  end->settling = true;
  while (!mine && !end->settled) pthread_cond_wait(&end->changed, &end->lock);
  pthread_mutex_unlock(&end->lock);
  if (!mine) return;
  ot_mpi_lead(end);
  elect(end);
  // The launcher is about to end this process; others may still read memory of its calls. Also what
  // is seen of a process that was killed: its launcher ends the job, and says why.
  if (end->muted || end->broken) ot_mpi_nap(mercy_s);
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
