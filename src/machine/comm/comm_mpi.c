// SPDX-License-Identifier: Apache-2.0
// Ranks as processes of an MPI job. Data is sent by MPI-3.1 point-to-point calls only, one message
// per transfer. So reductions give the same bits as with threads, and an incomplete receive tells
// which rank is missing.
//
// One thread at a time calls MPI, the *leader*: a waiting thread, else the progress thread. A call
// is queued for the leader, or posted by its starter when no thread leads. The leader polls: first
// in a busy loop if every rank has a core, then with yields, then with naps that grow to 100 us;
// other waiting threads sleep until it signals them. While no thread waits, the progress thread
// polls the calls in flight between naps.
#include <assert.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>

#include "comm/comm_mpi_job.h"
#include "comm/comm_mpi_message.h"
#include "comm/comm_parts.h"
#include "host/clock.h"

static const double spin_s = 1e-3;   // duration of busy polling, if every rank has a core
static const double yield_s = 2e-3;  // then duration of polling with yields to other processes
// A yield this long gave the core to a computing process; the next ones would, too. Our own ranks
// that share cores return sooner, and a nap is longer than their turn.
static const double long_yield_s = 2e-3, crowded_s = 0.2;
static const double first_nap_s = 20e-6, longest_nap_s = 100e-6;
// After a second without news, as in a server without requests, longer ones do.
static const double quiet_s = 1, longest_quiet_nap_s = 2e-3;

enum {
  SLOTS = 32,             // collective calls of a group in flight; later ones stay queued
  STAGE = 32 * 1024,      // bytes of a slot for one-step all_reduces
  SMALL_SUM = 64 * 1024,  // bytes up to which the leader reduces at once
  TAGS = 16384,           // message tags that distinguish calls
};

// Memory of a collective call in flight.
typedef struct slot {
  MPI_Request *pending;  // [2 * size]
  char *stage;           // [STAGE]
  struct slot *next;
} slot;

typedef struct {
  MPI_Comm calls, messages;
  slot slots[SLOTS];
  slot *unused;          // list
  MPI_Request *pending;  // of all slots
  char *stage;
} group;

// The private words of a request.
typedef struct __attribute__((may_alias)) {
  slot *slot;            // of a collective call
  MPI_Request message;   // of a send or receive
  MPI_Request *pending;  // one for each transfer; null until it is posted
} part;
static_assert(sizeof(part) <= sizeof((ot_comm_request){0}.private_words), "must fit");

typedef struct {
  ot_comm comm;
  ot_comm_process process;
  group *groups[OT_GROUP_KINDS];
  double crowded_until_s;  // other processes keep the cores busy: no thread yields
  bool led;                // a thread calls MPI
  bool polled;             // a waiting thread leads whenever useful
  ot_comm_request *queue;  // to be posted, in order
  _Atomic int queued;      // length of the queue
  bool settling, settled;  // see settle
  // Owned by the leader.
  ot_comm_request *active;  // list: posted
  int *indices;             // [2 * size] scratch
  MPI_Status *statuses;     // [2 * size]
  ot_mpi_news news;
} mpi_end;

static part *part_of(const ot_comm_request *request) { return (part *)request->private_words; }

static mpi_end *end_of(const ot_comm *comm) { return (mpi_end *)comm; }

static group *group_of(const ot_comm_request *request) {
  return end_of(request->end)->groups[request->call.group];
}

// The call; a small all_reduce runs in one step in the slot's memory, which halves its time.
static ot_comm_member_call exchange_of(const ot_comm_request *request) {
  ot_comm_member_call x = ot_comm_member_call_of(request);
  x.direct = request->call.kind == OT_COMM_ALL_REDUCE &&
             request->call.count * ot_dtype_bytes(request->call.dtype) * x.size <= STAGE;
  return x;
}

// ---- posting ----

// Sends come before receives: MPI announces a large message, and the receiver's answer shares a
// connection with the receiver's own data. Two ranks that announce before they answer send at the
// same time; after an early answer one would wait for all data of the other. Messages of 0 bytes
// are sent, too, so every rank detects a call whose counts differ. Calls are numbered, so those of
// one group may be posted in any order.
static ot_status post_step(ot_comm_request *request) {
  const ot_comm_member_call x = exchange_of(request);
  const bool message = ot_comm_is_message(request->call.kind);
  const group *const g = group_of(request);
  const int tag = message ? request->call.tag : (int)(request->sequence % TAGS) * 2 + request->step;
  MPI_Request *const pending = part_of(request)->pending;
  const int transfers = ot_comm_transfers(&x);
  for (int i = 0; i < transfers; i++) pending[i] = MPI_REQUEST_NULL;
  const bool left = request->call.discarded;
  if (!message && !left && !ot_comm_is_reduction(request->call.kind) &&
      ot_comm_expects(&x, x.index)) {
    OT_TRY(ot_comm_deliver(request, &x, &x));
  }
  for (int i = 0; i < transfers; i++) {
    const ot_comm_transfer t = ot_comm_transfer_at(&x, request->step, i);
    OT_TRY((left ? ot_mpi_post_nothing : ot_mpi_post_message)(
        &t, tag, message ? g->messages : g->calls, &pending[i]));
  }
  return OT_OK;
}

// Allocates what posting the request needs. False if its group has no free slot.
static bool prepare(ot_comm_request *request) {
  part *const p = part_of(request);
  if (p->pending) return true;
  if (ot_comm_is_message(request->call.kind)) {
    p->pending = &p->message;
    return true;
  }
  group *const g = group_of(request);
  p->slot = g->unused;
  if (!p->slot) return false;
  g->unused = p->slot->next;
  p->pending = p->slot->pending;
  if (exchange_of(request).direct) request->call.workspace = p->slot->stage;
  return true;
}

// Under the lock: removes the next request that can be posted from the queue, or returns null. If a
// group has no free slot, its later calls wait.
static ot_comm_request *next_to_post(mpi_end *end) {
  bool full[OT_GROUP_KINDS] = {false};
  for (ot_comm_request **link = &end->queue; *link; link = &(*link)->next) {
    ot_comm_request *const request = *link;
    bool *const blocked = &full[request->call.group];
    if (!part_of(request)->pending && !ot_comm_is_message(request->call.kind) && *blocked) continue;
    *blocked |= !prepare(request);
    if (!part_of(request)->pending) continue;
    *link = request->next;
    end->queued--;
    return request;
  }
  return NULL;
}

static ot_status post_queued(mpi_end *end, bool *moved) {
  while (end->queued > 0) {
    pthread_mutex_lock(&end->process.lock);
    ot_comm_request *const request = next_to_post(end);
    pthread_mutex_unlock(&end->process.lock);
    if (!request) break;
    *moved = true;
    OT_TRY(post_step(request));
    request->next = end->active;
    end->active = request;
  }
  return OT_OK;
}

static void enqueue(ot_comm_request *request) {
  mpi_end *const end = end_of(request->end);
  ot_comm_append(&end->queue, request);
  end->queued++;
}

// ---- completion ----

// Tests the transfers of the request's step; `all` is set when all are complete.
static ot_status test(mpi_end *end, const ot_comm_request *request, bool *all) {
  const ot_comm_member_call x = exchange_of(request);
  const int transfers = ot_comm_transfers(&x);
  MPI_Request *const pending = part_of(request)->pending;
  int done = 0;
  const int code = MPI_Testsome(transfers, pending, &done, end->indices, end->statuses);
  if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) return ot_mpi_fail(code, "MPI_Testsome");
  for (int i = 0; done != MPI_UNDEFINED && i < done; i++) {
    const ot_comm_transfer t = ot_comm_transfer_at(&x, request->step, end->indices[i]);
    const int error = code == MPI_SUCCESS ? MPI_SUCCESS : end->statuses[i].MPI_ERROR;
    OT_TRY(ot_mpi_check_message(request, &t, error, &end->statuses[i]));
  }
  *all = true;
  for (int i = 0; i < transfers && *all; i++) *all = pending[i] == MPI_REQUEST_NULL;
  return OT_OK;
}

static bool is_absent(const void *context, int index) {
  const ot_comm_request *const request = context;
  const mpi_end *const end = end_of(request->end);
  const MPI_Request *const pending = part_of(request)->pending;
  // While a thread leads, it changes `pending`.
  if (!pending || request->phase != OT_COMM_STARTED || (end->led && !end->settling)) return false;
  const ot_comm_member_call x = exchange_of(request);
  for (int i = 0; i < ot_comm_transfers(&x); i++) {
    const bool under_way = pending[i] != MPI_REQUEST_NULL;
    if (under_way && ot_comm_transfer_at(&x, request->step, i).peer == index) return true;
  }
  return false;
}

// ---- reductions ----

static ot_status work(ot_comm_request *request) {
  if (request->call.discarded) return OT_OK;
  ot_comm_member_call x = exchange_of(request);
  const ot_comm_reduction sum = ot_comm_reduction_of_received(&x);
  ot_comm_reduce_run(&sum);
  return OT_OK;
}

static void worked(ot_comm_request *request) {
  const ot_comm_member_call x = exchange_of(request);
  part *const p = part_of(request);
  if (++request->step < ot_comm_steps(&x)) {
    ot_comm_set_phase(request, OT_COMM_STARTED);
    enqueue(request);
    pthread_cond_signal(&request->end->work);
    return;
  }
  if (p->slot) {
    group *const g = group_of(request);
    p->slot->next = g->unused;
    g->unused = p->slot;
  }
  ot_comm_complete(request);
}

// All transfers of a step are complete.
static void arrive(ot_comm_request *request) {
  ot_comm_process *const process = request->end->process;
  const bool sums = ot_comm_is_reduction(request->call.kind) && request->step == 0;
  const bool small = request->bytes <= SMALL_SUM;
  if (sums && small) work(request);
  pthread_mutex_lock(&process->lock);
  if (sums && !small) {
    ot_comm_offer(request);  // the leader keeps leading
  } else {
    worked(request);
  }
  pthread_mutex_unlock(&process->lock);
}

// ---- leading ----

static ot_status progress(mpi_end *end, bool *moved) {
  OT_TRY(post_queued(end, moved));
  ot_comm_request **link = &end->active;
  while (*link) {
    ot_comm_request *const request = *link;
    bool all = false;
    OT_TRY(test(end, request, &all));
    if (all) {
      *link = request->next;
      arrive(request);
      *moved = true;
    } else {
      link = &request->next;
    }
  }
  return ot_mpi_receive_news(&end->news);
}

typedef ot_status (*leading)(mpi_end *end, bool *moved);  // one action of a leader

// Under the lock, released meanwhile: leads for one round. True if something has progressed.
static bool lead_once(mpi_end *end, leading round) {
  bool moved = false;
  end->led = true;
  pthread_mutex_unlock(&end->process.lock);
  const ot_status status = round(end, &moved);
  pthread_mutex_lock(&end->process.lock);
  if (status != OT_OK) {
    end->news.broken = status == OT_ENVIRONMENT;
    ot_comm_fail_process(&end->process, ot_fail_message());
  }
  end->led = false;
  return moved;
}

// Makes the calling thread the leader, for blocking calls; and ends that. Under the lock, which the
// first releases meanwhile.
static void lead(mpi_end *end) {
  while (end->led) {
    pthread_mutex_unlock(&end->process.lock);
    sched_yield();
    pthread_mutex_lock(&end->process.lock);
  }
  end->led = true;
}

static void stop_leading(mpi_end *end) {
  end->led = false;
  pthread_cond_broadcast(&end->comm.woken);
  pthread_cond_signal(&end->comm.work);
}

static void post(ot_comm_request *request) {
  mpi_end *const end = end_of(request->end);
  enqueue(request);
  if (!end->led) lead_once(end, post_queued);
  if (!end->polled && !request->awaited) pthread_cond_signal(&end->comm.work);
}

static void poll(ot_comm *comm) {
  mpi_end *const end = end_of(comm);
  if (!end->led) lead_once(end, progress);
}

// ---- resting ----

static void restart(ot_comm_pace *pace) {
  pace->idle_since_s = ot_clock_s();
  pace->nap_s = first_nap_s;
}

static void nap(ot_comm *comm, pthread_cond_t *condition, ot_comm_pace *pace) {
  const double now = ot_clock_s(), idle = now - pace->idle_since_s;
  ot_comm_sleep(comm, condition, now + pace->nap_s);
  pace->nap_s = fmin(pace->nap_s * 1.25, idle > quiet_s ? longest_quiet_nap_s : longest_nap_s);
}

// Rests according to the idle time.
static void back_off(mpi_end *end, ot_comm_pace *pace) {
  const double now = ot_clock_s(), idle = now - pace->idle_since_s;
  const double busy = end->process.spins ? spin_s : 0.0;
  if (idle >= busy + (now < end->crowded_until_s ? 0.0 : yield_s)) {
    nap(&end->comm, &end->comm.woken, pace);
    return;
  }
  pthread_mutex_unlock(&end->process.lock);
  if (idle >= busy) sched_yield();
  const double took = ot_clock_s() - now;
  pthread_mutex_lock(&end->process.lock);
  if (idle >= busy && took > long_yield_s) end->crowded_until_s = now + took + crowded_s;
}

static bool is_under_way(const mpi_end *end, const ot_comm_request *request) {
  return request->phase != OT_COMM_DONE && !end->process.failed;
}

// Polls until the request is done, has work for a thread, or times out.
static void poll_for(mpi_end *end, const ot_comm_request *request, ot_comm_pace *pace) {
  restart(pace);
  end->polled = true;
  while (is_under_way(end, request) && request->phase != OT_COMM_READY) {
    if (!end->led && lead_once(end, progress)) {
      restart(pace);
      continue;
    }
    if (ot_comm_is_timed_out(pace)) break;
    if (is_under_way(end, request)) back_off(end, pace);
  }
  end->polled = false;
  // Another thread must progress the remaining calls.
  pthread_cond_broadcast(&end->comm.woken);
  if (end->comm.open > 0) pthread_cond_signal(&end->comm.work);
}

static void rest_engine(mpi_end *end, ot_comm_pace *pace) {
  if (end->process.failed || end->polled || end->comm.open == 0) {
    ot_comm_sleep(&end->comm, &end->comm.work, INFINITY);
    restart(pace);
    return;
  }
  if (!end->led && lead_once(end, progress)) restart(pace);
  nap(&end->comm, &end->comm.work, pace);
}

static void rest(ot_comm *comm, ot_comm_request *request, ot_comm_pace *pace) {
  mpi_end *const end = end_of(comm);
  if (!request) {
    rest_engine(end, pace);
  } else if (!end->polled) {
    poll_for(end, request, pace);
  } else {
    ot_comm_sleep(comm, &comm->woken, ot_comm_next_look(pace));
  }
}

// ---- failing ----

// MPI is not called after this returns, so buffers of calls may be released.
static void settle(ot_comm *comm) {
  mpi_end *const end = end_of(comm);
  if (end->settling) {
    while (!end->settled) ot_comm_sleep(comm, &comm->woken, INFINITY);
    return;
  }
  end->settling = true;
  lead(end);
  pthread_mutex_unlock(&end->process.lock);
  ot_mpi_choose_reporter(&end->news);
  pthread_mutex_lock(&end->process.lock);
  end->settled = true;
  stop_leading(end);
}

// ---- groups ----

static void group_destroy(group *g) {
  if (!g) return;
  free(g->pending);
  free(g->stage);
  free(g);
}

// Null when out of memory.
static group *group_create(int size) {
  group *const g = calloc(1, sizeof *g);
  if (!g) return NULL;
  const size_t transfers = 2 * (size_t)size;
  g->pending = calloc(SLOTS * transfers, sizeof *g->pending);
  g->stage = malloc((size_t)SLOTS * STAGE);
  if (!g->pending || !g->stage) {
    group_destroy(g);
    return NULL;
  }
  for (size_t i = SLOTS; i-- > 0;) {
    g->slots[i] = (slot){g->pending + i * transfers, g->stage + i * STAGE, g->unused};
    g->unused = &g->slots[i];
  }
  return g;
}

// Two communicators of the members of `kind`: one tagged by call number, one by user tags.
static ot_status make_communicators(const mpi_end *end, ot_group_kind kind, group *g) {
  const ot_comm_group *const head = &end->comm.groups[kind];
  if (head->size == end->comm.size) {
    OT_TRY_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &g->calls));
  } else {
    MPI_Group world, members;
    OT_TRY_MPI(MPI_Comm_group(MPI_COMM_WORLD, &world));
    OT_TRY_MPI(MPI_Group_incl(world, head->size, head->ranks, &members));
    OT_TRY_MPI(MPI_Comm_create_group(MPI_COMM_WORLD, members, kind, &g->calls));
    OT_TRY_MPI(MPI_Group_free(&members));
    OT_TRY_MPI(MPI_Group_free(&world));
  }
  OT_TRY_MPI(MPI_Comm_dup(g->calls, &g->messages));
  OT_TRY_MPI(MPI_Comm_set_errhandler(g->calls, MPI_ERRORS_RETURN));
  OT_TRY_MPI(MPI_Comm_set_errhandler(g->messages, MPI_ERRORS_RETURN));
  return OT_OK;
}

static void release_group(group *g) {
  if (!g) return;
  MPI_Comm_free(&g->messages);
  MPI_Comm_free(&g->calls);
  group_destroy(g);
}

static ot_status add_group(ot_comm *comm, ot_group_kind kind) {
  mpi_end *const end = end_of(comm);
  const int size = comm->groups[kind].size;
  group *const g = group_create(size);
  OT_CHECK(g, OT_ENVIRONMENT, "comm: out of memory for a group of %d ranks", size);
  pthread_mutex_lock(&end->process.lock);
  lead(end);
  pthread_mutex_unlock(&end->process.lock);
  const bool yielded = ot_mpi_set_yields(true);  // the calls here block
  const ot_status status = make_communicators(end, kind, g);
  ot_mpi_set_yields(yielded);
  pthread_mutex_lock(&end->process.lock);
  release_group(end->groups[kind]);  // the undivided world
  end->groups[kind] = g;
  stop_leading(end);
  pthread_mutex_unlock(&end->process.lock);
  return status;
}

// ---- the life of a rank ----

static ot_status make_world(mpi_end *end) {
  const int size = end->comm.size;
  OT_TRY(ot_mpi_count_local(&end->comm, &end->process.spins));
  end->indices = calloc((size_t)size * 2, sizeof *end->indices);
  end->statuses = calloc((size_t)size * 2, sizeof *end->statuses);
  OT_CHECK(end->indices && end->statuses, OT_ENVIRONMENT, "comm: out of memory for %d ranks", size);
  OT_TRY(ot_mpi_news_open(&end->news));
  return size == 1 ? OT_OK : add_group(&end->comm, OT_GROUP_WORLD);
}

// Runs main on a complete communicator.
static ot_status run_main(mpi_end *end, ot_rank_main main, void *context) {
  OT_CHECK(ot_comm_start_progress(&end->comm), OT_ENVIRONMENT,
           "comm: cannot start the MPI progress thread");
  const bool yielded = ot_mpi_set_yields(false);
  const ot_status status =
      ot_comm_check_left(&end->comm, ot_comm_run_main(&end->comm, main, context));
  ot_mpi_set_yields(yielded);
  ot_comm_stop_progress(&end->process);
  return status;
}

// True if all ranks end with `status` and know it.
static bool ends_together(const mpi_end *end, ot_status status) {
  return !ot_comm_is_failure(status) || (end->comm.agreed && !end->process.failed) ||
         end->comm.size == 1;
}

// Releases MPI resources and the communicator; all ranks call this.
static void finalize(mpi_end *end) {
  for (int kind = 0; kind < OT_GROUP_KINDS; kind++) {
    release_group(end->groups[kind]);
  }
  ot_mpi_news_close(&end->news);
  pthread_mutex_destroy(&end->process.lock);
  ot_comm_head_destroy(&end->comm);
  free(end->indices);
  free(end->statuses);
  free(end);
}

// MPI_Abort ends the job when this process exits. The communicator is not freed: messages may still
// arrive in it.
static ot_status end_job(mpi_end *end, ot_status status) {
  ot_failure failure = {.status = OT_OK};
  ot_failure_take(&failure, status);
  // Calls left in flight may refer to freed memory.
  pthread_mutex_lock(&end->process.lock);
  if (end->comm.open == 0) ot_comm_settle(&end->comm);
  pthread_mutex_unlock(&end->process.lock);
  return ot_mpi_end_job(&end->news, &failure);
}

// Between MPI_Init and MPI_Finalize. `together` is false if the job must be aborted.
static ot_status run_inside(ot_rank_main main, void *context, bool *together) {
  int rank = 0, size = 0;
  OT_TRY_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  OT_TRY_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  OT_TRY_MPI(MPI_Comm_size(MPI_COMM_WORLD, &size));
  OT_TRY(ot_mpi_check_launch(size));
  mpi_end *const end = calloc(1, sizeof *end);
  OT_CHECK(end, OT_ENVIRONMENT, "comm: out of memory");
  pthread_mutex_init(&end->process.lock, NULL);
  end->process.failed_rank = -1;
  end->news.comm = &end->comm;
  end->news.control = MPI_COMM_NULL;
  end->news.receive = MPI_REQUEST_NULL;
  ot_status status = ot_comm_head_create(&end->comm, &ot_comm_mpi, &end->process, rank, size);
  if (status == OT_OK) status = make_world(end);
  if (status == OT_OK) status = run_main(end, main, context);
  *together = ends_together(end, status);
  if (!*together) return end_job(end, status);
  if (rank > 0 && status != OT_OK) ot_fail(status, "%s", "");
  finalize(end);
  return status;
}

static ot_status run(int ranks, ot_rank_main main, void *context) {
  (void)ranks;
  int provided = 0;
  ot_mpi_prepare();
  OT_TRY_MPI(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided));
  bool together = true;
  ot_status status =
      provided >= MPI_THREAD_SERIALIZED
          ? run_inside(main, context, &together)
          : ot_fail(OT_ENVIRONMENT,
                    "MPI provides thread level %d; MPI_THREAD_SERIALIZED (%d) is needed", provided,
                    MPI_THREAD_SERIALIZED);
  if (!together) return status;
  const int code = MPI_Finalize();
  if (status != OT_OK && !ot_fail_message()[0]) ot_mpi_wait_for_output();
  return code == MPI_SUCCESS || status != OT_OK ? status : ot_mpi_fail(code, "MPI_Finalize");
}

const ot_comm_backend ot_comm_mpi = {
    .run = run,
    .add_group = add_group,
    .post = post,
    .work = work,
    .worked = worked,
    .rest = rest,
    .is_absent = is_absent,
    .poll = poll,
    .settle = settle,
};
