// SPDX-License-Identifier: Apache-2.0
// Start and failure of an MPI job. A failing rank notifies all others, whose waits end; of ranks
// that fail at about the same time, the lowest reports to the user and the others stay silent. A
// waiting rank says so in its reply: of the ranks missing from a call, it is not to blame. A notice
// is one number: rank R has failed (R) or waits (-1 - R), or a rank asks (the number of ranks).
//
// MPI_Abort ends the job when the process exits, after its message. MPI is called only while the
// memory of calls in flight still exists, because any MPI call may progress them.
#include "comm/comm_mpi_job.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "comm/comm.h"
#include "comm/comm_mpi_message.h"
#include "host/clock.h"

static const double reply_wait_s = 0.3;  // to receive failures and replies of other ranks
static const double exit_wait_s = 5.0;   // for the launcher to end a silent process
static const double flush_wait_s = 0.3;  // for the launcher to forward output: it may drop what is
                                         // still in its pipes when it ends a job
static const double print_wait_s = 0.3;  // see ot_mpi_wait_for_output

static void nap(double seconds) {
  const struct timespec time = ot_clock_timespec(seconds);
  nanosleep(&time, NULL);
}

void ot_mpi_wait_for_output(void) { nap(print_wait_s); }

// ---- the launch ----

static int usable_cores(void) {
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  return cores > 0 ? (int)cores : 1;
}

// Keeps Open MPI from spinning in blocking calls (while it starts and ends) when cores are fewer
// than ranks. Must be set before MPI_Init.
void ot_mpi_prepare(void) {
  const char *const text = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  if (text && atoi(text) > usable_cores()) setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
}

ot_status ot_mpi_check_launch(int size) {
  int launched = 0;
  if (!ot_comm_launched(&launched) || launched == size) return OT_OK;
  if (ot_comm_launched_rank() > 0) return ot_fail(OT_RANKS, "%s", "");
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(version, &length);
  for (int i = 0; i < length; i++) {
    if (version[i] == '\n' || version[i] == ',') version[i] = '\0';
  }
  ot_fail(OT_RANKS, "the launcher says that it started %d processes, but MPI sees %d", launched,
          size);
  return ot_fail_hint(OT_RANKS,
                      "start with the launcher of the MPI that this program was built with (%s); "
                      "under Slurm, with srun --mpi=pmix or --mpi=pmi2",
                      version);
}

ot_status ot_mpi_count_local(ot_comm *comm, bool *cores) {
  MPI_Comm host;
  OT_TRY_MPI(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host));
  OT_TRY_MPI(MPI_Comm_size(host, &comm->local_size));
  OT_TRY_MPI(MPI_Comm_rank(host, &comm->local_rank));
  OT_TRY_MPI(MPI_Comm_free(&host));
  *cores = comm->local_size <= usable_cores();
  return OT_OK;
}

// Open MPI's; MPI has no call for it. True: polls that find nothing yield.
extern bool opal_progress_set_yield_when_idle(bool yields) __attribute__((weak));

// Our own waits know when to yield. Next to a computing process, each yielding poll costs a time
// slice of milliseconds. Returns the previous setting.
bool ot_mpi_set_yields(bool yields) {
  return opal_progress_set_yield_when_idle ? opal_progress_set_yield_when_idle(yields) : yields;
}

// ---- news ----

static ot_status listen(ot_mpi_news *news) {
  OT_TRY_MPI(
      MPI_Irecv(&news->in, 1, MPI_INT32_T, MPI_ANY_SOURCE, 0, news->control, &news->receive));
  return OT_OK;
}

ot_status ot_mpi_news_open(ot_mpi_news *news) {
  const ot_comm *const comm = news->comm;
  news->answered = calloc((size_t)comm->size, sizeof *news->answered);
  OT_CHECK(news->answered, OT_ENVIRONMENT, "comm: out of memory for %d ranks", comm->size);
  if (comm->size == 1) return OT_OK;
  OT_TRY_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &news->control));
  OT_TRY_MPI(MPI_Comm_set_errhandler(news->control, MPI_ERRORS_RETURN));
  return listen(news);
}

void ot_mpi_news_close(ot_mpi_news *news) {
  free(news->answered);
  if (news->receive == MPI_REQUEST_NULL) return;
  MPI_Cancel(&news->receive);
  MPI_Wait(&news->receive, MPI_STATUS_IGNORE);
  MPI_Comm_free(&news->control);
}

static ot_status send_news(const ot_mpi_news *news, int rank, const int32_t *what) {
  MPI_Request sent;
  OT_TRY_MPI(MPI_Isend(what, 1, MPI_INT32_T, rank, 0, news->control, &sent));
  // Never waited for: what is sent stays as it is.
  OT_TRY_MPI(MPI_Request_free(&sent));
  return OT_OK;
}

static ot_status send_to_others(const ot_mpi_news *news, const int32_t *what) {
  for (int rank = 0; rank < news->comm->size; rank++) {
    if (rank != news->comm->rank) OT_TRY(send_news(news, rank, what));
  }
  return OT_OK;
}

static ot_status send_failure(ot_mpi_news *news) {
  news->failure = news->comm->rank;
  return send_to_others(news, &news->failure);
}

// One rank asks all, so those that are asked ask nobody.
static ot_status query_others(ot_mpi_news *news) {
  if (news->asked || !news->comm->process->asked) return OT_OK;
  news->asked = true;
  news->asks = news->comm->size;
  return send_to_others(news, &news->asks);
}

static ot_status receive_news(ot_mpi_news *news, int what, int *failed) {
  if (what == news->comm->size) {
    news->asked = true;
    news->comm->process->asked = true;
    return OT_OK;
  }
  news->answered[what < 0 ? -1 - what : what] = true;
  if (what < 0) return OT_OK;
  if (what < *failed) *failed = what;
  if (news->comm->waiting == 0) return OT_OK;
  news->waits = -1 - news->comm->rank;
  return send_news(news, what, &news->waits);
}

// Sets `*failed` to the lowest rank reported as failed, if lower.
static ot_status hear(ot_mpi_news *news, int *failed) {
  while (news->receive != MPI_REQUEST_NULL) {
    int came = 0;
    OT_TRY_MPI(MPI_Test(&news->receive, &came, MPI_STATUS_IGNORE));
    if (!came) return OT_OK;
    const int what = news->in;
    OT_TRY(listen(news));
    OT_TRY(receive_news(news, what, failed));
  }
  return OT_OK;
}

ot_status ot_mpi_receive_news(ot_mpi_news *news) {
  const int none = news->comm->size;
  int failed = none;
  OT_TRY(hear(news, &failed));
  if (failed == none) return query_others(news);
  news->muted = true;
  return ot_fail(OT_RANKS, "rank %d has failed", failed);
}

// Listens for `seconds`. Returns the lowest failed rank, at most this one.
static int hear_for(ot_mpi_news *news, double seconds) {
  int lowest = news->comm->rank;
  const double until = ot_clock_s() + seconds;
  while (ot_clock_s() < until) {
    if (hear(news, &lowest) != OT_OK) return lowest;
    nap(1e-3);
  }
  return lowest;
}

// ---- a wait that timed out ----

static bool is_silent(const void *context, int rank) {
  const ot_mpi_news *const news = context;
  return rank != news->comm->rank && !news->answered[rank];
}

static bool is_late(const void *context, int index) {
  const ot_mpi_news *const news = context;
  const ot_comm_request *const overdue = news->comm->process->overdue;
  return news->comm->backend->is_absent(overdue, index) &&
         is_silent(news, ot_comm_group_of(overdue)->ranks[index]);
}

static int count(const ot_mpi_news *news, int size, ot_comm_rank_filter is) {
  int count = 0;
  for (int i = 0; i < size; i++) count += is(news, i);
  return count;
}

// Names the missing ranks that do not wait themselves. If all of them wait, names them and the
// ranks that do not respond.
static void describe_overdue(const ot_mpi_news *news) {
  ot_comm *const comm = news->comm;
  ot_comm_process *const process = comm->process;
  const ot_comm_request *const call = process->overdue;
  ot_comm_text out = {.length = 0};
  const bool blamed = count(news, ot_comm_group_of(call)->size, is_late) > 0;
  const int named = blamed ? ot_comm_say_wait(&out, call, is_late, news)
                           : ot_comm_say_wait(&out, call, comm->backend->is_absent, call);
  ot_comm_say_timeout(&out, comm, named);
  if (!blamed && count(news, comm->size, is_silent) > 0) {
    ot_comm_say(&out, named == 1 ? " and waits itself; " : " and wait themselves; ");
    const int silent = ot_comm_say_ranks(&out, NULL, comm->size, is_silent, news);
    ot_comm_say(&out, silent == 1 ? " does not respond" : " do not respond");
  }
  ot_text_format(process->why, sizeof process->why, "%s", out.text);
}

// ---- the end ----

void ot_mpi_choose_reporter(ot_mpi_news *news) {
  // Without the communicator the job failed at start, probably on all ranks.
  if (news->control == MPI_COMM_NULL) {
    news->muted = news->comm->rank > 0;
  } else if (!news->muted) {
    news->muted = send_failure(news) == OT_OK && hear_for(news, reply_wait_s) < news->comm->rank;
  }
  if (news->comm->process->overdue && !news->muted) describe_overdue(news);
  // The launcher is about to end this process; others may still read the buffers of its calls. The
  // same is seen after a process was killed: its launcher ends the job and reports it.
  if (news->broken) {
    nap(exit_wait_s);
  } else if (news->muted) {
    hear_for(news, exit_wait_s);
  }
}

// Static, because MPI and its abort are per process.
static int abort_code;

static void abort_at_exit(void) {
  nap(flush_wait_s);
  MPI_Abort(MPI_COMM_WORLD, abort_code);
}

ot_status ot_mpi_end_job(const ot_mpi_news *news, const ot_failure *failure) {
  const ot_comm *const comm = news->comm;
  ot_failure told = *failure;
  ot_failure_repeat(&told);
  if (news->muted) {
    ot_fail(told.status, "%s", "");
  } else if (!ot_text_starts_with(told.message, "rank")) {
    ot_text_format(told.message, sizeof told.message, "rank %d on %s: %s", comm->rank, comm->host,
                   failure->message);
    ot_failure_repeat(&told);
  }
  abort_code = told.status;
  if (comm->size > 1) atexit(abort_at_exit);
  return told.status;
}
