// SPDX-License-Identifier: Apache-2.0
// Ranks as processes: joining and leaving an MPI job, and its groups. How calls move:
// comm_mpi_exchange.c and comm_mpi_progress.c; how a job fails: comm_mpi_failure.c.
#include "comm/comm_mpi.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"

// For rank 0 to print: launchers end the job at the first process that returns another code than 0.
static const double courtesy_s = 0.3;

ot_status ot_mpi_fail(int code, const char *call) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  return ot_fail(OT_ENVIRONMENT, "MPI: %s (%s)", text, call);
}

// ---- groups ----

static void group_destroy(ot_mpi_group *group) {
  if (!group) return;
  for (int i = 0; i < OT_MPI_SLOTS; i++) {
    free(group->slots[i].pending);
    free(group->slots[i].bytes);
    free(group->slots[i].sources);
    free(group->slots[i].stage);
  }
  free(group->sent);
  free(group->received);
  free(group);
}

static bool slots_create(ot_mpi_group *group) {
  const size_t size = (size_t)group->size;
  bool all = true;
  for (int i = OT_MPI_SLOTS - 1; i >= 0; i--) {
    ot_mpi_slot *const slot = &group->slots[i];
    slot->pending = calloc(2 * size, sizeof *slot->pending);
    slot->bytes = calloc(size, sizeof *slot->bytes);
    slot->sources = calloc(size, sizeof *slot->sources);
    slot->stage = malloc(OT_MPI_STAGE);
    all &= slot->pending && slot->bytes && slot->sources && slot->stage;
    slot->next = group->unused;
    group->unused = slot;
  }
  return all;
}

// Null when out of memory.
static ot_mpi_group *group_create(const ot_comm_group *members) {
  ot_mpi_group *const group = calloc(1, sizeof *group);
  if (!group) return NULL;
  group->size = members->size;
  group->index = members->index;
  group->sent = calloc((size_t)group->size, sizeof *group->sent);
  group->received = calloc((size_t)group->size, sizeof *group->received);
  if (slots_create(group) && group->sent && group->received) return group;
  group_destroy(group);
  return NULL;
}

// Of Open MPI, where it is that: MPI has no call for it. True: polls that find nothing yield.
extern bool opal_progress_set_yield_when_idle(bool yields) __attribute__((weak));

// Our own waits know when to yield (comm_mpi_progress.c). Next to a process that computes, a yield
// in each poll costs a time slice of the system, milliseconds, each time. Returns what was before.
static bool set_open_mpi_yields(bool yields) {
  return opal_progress_set_yield_when_idle ? opal_progress_set_yield_when_idle(yields) : yields;
}

// Two communicators of the members of `kind`: numbers of calls and tags of users are not mixed.
static ot_status make_communicators(ot_mpi_end *end, ot_group_kind kind, ot_mpi_group *group) {
  if (kind == OT_GROUP_WORLD) {
    OT_TRY_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &group->calls));
  } else {
    MPI_Group world, members;
    OT_TRY_MPI(MPI_Comm_group(MPI_COMM_WORLD, &world));
    OT_TRY_MPI(MPI_Group_incl(world, group->size, end->comm.groups[kind].ranks, &members));
    OT_TRY_MPI(MPI_Comm_create_group(MPI_COMM_WORLD, members, kind, &group->calls));
    OT_TRY_MPI(MPI_Group_free(&members));
    OT_TRY_MPI(MPI_Group_free(&world));
  }
  OT_TRY_MPI(MPI_Comm_dup(group->calls, &group->messages));
  OT_TRY_MPI(MPI_Comm_set_errhandler(group->calls, MPI_ERRORS_RETURN));
  OT_TRY_MPI(MPI_Comm_set_errhandler(group->messages, MPI_ERRORS_RETURN));
  return OT_OK;
}

static ot_status add_group(ot_comm *comm, ot_group_kind kind, const int *ranks, int size) {
  (void)ranks;
  ot_mpi_end *const end = (ot_mpi_end *)comm;
  ot_mpi_group *const group = group_create(&comm->groups[kind]);
  OT_CHECK(group, OT_ENVIRONMENT, "comm: out of memory for a group of %d ranks", size);
  ot_mpi_lead(end);
  const bool yielded = set_open_mpi_yields(true);  // what this calls blocks
  const ot_status status = make_communicators(end, kind, group);
  set_open_mpi_yields(yielded);
  end->groups[kind] = group;
  ot_mpi_let_go(end);
  return status;
}

// Deadlocks are told by patience alone: whose threads wait matters to nobody here.
static void set_waiting(ot_comm *comm, bool waits) { (void)comm, (void)waits; }

static const ot_comm_backend backend = {
    .add_group = add_group,
    .start = ot_mpi_start,
    .done = ot_mpi_done,
    .wait = ot_mpi_wait,
    .set_waiting = set_waiting,
    .add_thread = set_waiting,
    .fail = ot_mpi_fail_rank,
    .abort = ot_mpi_abort,
};

// ---- the life of a rank ----

static int usable_cores(void) {
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  return cores > 0 ? (int)cores : 1;
}

// Open MPI shall not spin where it blocks (while it starts and ends) when cores are fewer than
// ranks. Has to be said before MPI is there.
static void prepare_open_mpi(void) {
  const char *const text = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  if (text && atoi(text) > usable_cores()) setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
}

static ot_status check_launch(int size) {
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

static void make_lock(ot_mpi_end *end) {
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_mutex_init(&end->lock, NULL);
  pthread_cond_init(&end->changed, &monotonic);
  pthread_cond_init(&end->work, &monotonic);
  pthread_condattr_destroy(&monotonic);
}

static ot_status make_world(ot_mpi_end *end) {
  const int size = end->comm.size;
  make_lock(end);
  MPI_Comm host;
  OT_TRY_MPI(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host));
  OT_TRY_MPI(MPI_Comm_size(host, &end->comm.local_size));
  OT_TRY_MPI(MPI_Comm_free(&host));
  end->spins = end->comm.local_size <= usable_cores();
  end->indices = calloc((size_t)size * 2, sizeof *end->indices);
  end->statuses = calloc((size_t)size * 2, sizeof *end->statuses);
  end->answered = calloc((size_t)size, sizeof *end->answered);
  OT_CHECK(end->indices && end->statuses && end->answered, OT_ENVIRONMENT,
           "comm: out of memory for %d ranks", size);
  if (size == 1) return OT_OK;
  OT_TRY_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &end->control));
  OT_TRY_MPI(MPI_Comm_set_errhandler(end->control, MPI_ERRORS_RETURN));
  OT_TRY_MPI(MPI_Irecv(&end->news_in, 1, MPI_INT32_T, MPI_ANY_SOURCE, 0, end->control, &end->news));
  int *const all = calloc((size_t)size, sizeof *all);
  OT_CHECK(all, OT_ENVIRONMENT, "comm: out of memory for %d ranks", size);
  for (int i = 0; i < size; i++) all[i] = i;
  ot_status status = ot_comm_head_group(&end->comm, OT_GROUP_WORLD, all, size);
  if (status == OT_OK) status = add_group(&end->comm, OT_GROUP_WORLD, all, size);
  free(all);
  return status;
}

static ot_status start_engine(ot_mpi_end *end) {
  OT_CHECK(pthread_create(&end->engine, NULL, ot_mpi_engine, end) == 0, OT_ENVIRONMENT,
           "comm: the system gave no thread for the progress of MPI");
  return OT_OK;
}

static void stop_engine(ot_mpi_end *end) {
  pthread_mutex_lock(&end->lock);
  end->stopping = true;
  pthread_cond_signal(&end->work);
  pthread_mutex_unlock(&end->lock);
  pthread_join(end->engine, NULL);
}

// Gives back what MPI holds; all ranks come here.
static void leave(ot_mpi_end *end) {
  for (int kind = 0; kind < OT_GROUP_KINDS; kind++) {
    if (!end->groups[kind]) continue;
    MPI_Comm_free(&end->groups[kind]->messages);
    MPI_Comm_free(&end->groups[kind]->calls);
  }
  if (end->news == MPI_REQUEST_NULL) return;
  MPI_Cancel(&end->news);
  MPI_Wait(&end->news, MPI_STATUS_IGNORE);
  MPI_Comm_free(&end->control);
}

// Runs main on an end that is whole, and says how the process is to end.
static ot_status run_main(ot_mpi_end *end, ot_rank_main main, void *context) {
  OT_TRY(start_engine(end));
  const bool yielded = set_open_mpi_yields(false);
  ot_status status = main(&end->comm, context);
  set_open_mpi_yields(yielded);
  if (!ot_comm_is_failure(status) && end->under_way > 0) {
    status = ot_fail(OT_BUG, "comm: main returned with %d calls under way", end->under_way);
  }
  stop_engine(end);
  return status;
}

// True when all ranks end with `status` and know it.
static bool ends_together(const ot_mpi_end *end, ot_status status) {
  return !ot_comm_is_failure(status) || (end->comm.agreed && !end->failed) || end->comm.size == 1;
}

static void end_destroy(ot_mpi_end *end) {
  for (int kind = 0; kind < OT_GROUP_KINDS; kind++) group_destroy(end->groups[kind]);
  pthread_cond_destroy(&end->changed);
  pthread_cond_destroy(&end->work);
  pthread_mutex_destroy(&end->lock);
  ot_comm_head_destroy(&end->comm);
  free(end->indices);
  free(end->statuses);
  free(end->answered);
}

// Between MPI_Init and MPI_Finalize. `together` is false when the job must be ended by force.
static ot_status run_inside(ot_rank_main main, void *context, bool *together) {
  int rank = 0, size = 0;
  OT_TRY_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  OT_TRY_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  OT_TRY_MPI(MPI_Comm_size(MPI_COMM_WORLD, &size));
  OT_TRY(check_launch(size));
  // Not freed when the job ends by force: messages may still come into it.
  ot_mpi_end *const end = calloc(1, sizeof *end);
  OT_CHECK(end, OT_ENVIRONMENT, "comm: out of memory");
  ot_status status = ot_comm_head_create(&end->comm, &backend, rank, size);
  end->control = MPI_COMM_NULL;
  end->news = MPI_REQUEST_NULL;
  if (status == OT_OK) status = make_world(end);
  if (status == OT_OK) status = run_main(end, main, context);
  *together = ends_together(end, status);
  if (!*together) return ot_mpi_end_failed(end, status);
  leave(end);
  if (rank > 0 && status != OT_OK) ot_fail(status, "%s", "");
  end_destroy(end);
  free(end);
  return status;
}

ot_status ot_comm_mpi_run(ot_rank_main main, void *context) {
  int provided = 0;
  prepare_open_mpi();
  OT_TRY_MPI(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided));
  bool together = true;
  ot_status status =
      provided >= MPI_THREAD_SERIALIZED
          ? run_inside(main, context, &together)
          : ot_fail(OT_ENVIRONMENT,
                    "MPI gives thread level %d, but MPI_THREAD_SERIALIZED (%d) is needed", provided,
                    MPI_THREAD_SERIALIZED);
  if (!together) return status;
  const int code = MPI_Finalize();
  if (status != OT_OK && !ot_fail_message()[0]) ot_mpi_nap(courtesy_s);
  return code == MPI_SUCCESS || status != OT_OK ? status : ot_mpi_fail(code, "MPI_Finalize");
}
