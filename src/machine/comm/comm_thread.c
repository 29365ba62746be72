// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process. The members of a call meet in its first request: later ones are
// linked to it, as a circular list once all have arrived. Each member then has work that produces
// its result (in an all_reduce: one block for all members). No two members' work writes the same
// memory, so any free thread does it; data is copied directly between the buffers of two ranks. For
// a small call the last member to arrive does all the work, so the others are woken once, when it
// is done.
//
// Every rank's threads are counted, so a deadlock is detected: all threads of all ranks wait and no
// work is left, or a required rank has ended.
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "comm/comm_parts.h"
#include "host/clock.h"
#include "host/cores.h"

enum { SMALL = 32 * 1024 };  // bytes up to which the last to arrive does all the work

static const double spin_s = 30e-6;
// Waits declared by ot_comm_set_waiting are trusted only after a period without events: a thread
// that was just woken may not have reported it yet.
static const double grace_s = 1.0;

typedef struct {
  ot_comm comm;
  ot_rank_main main;
  void *context;
  pthread_t thread;
  bool finished;     // main has returned
  ot_status status;  // what it returned
} end;

typedef struct {
  ot_comm_process process;
  int ranks;
  end *ends;                              // [ranks]
  ot_comm_request *open[OT_GROUP_KINDS];  // first requests of incomplete calls
  int gate;              // 0: rank threads hold; 1: go; -1: not all threads could be created
  double stuck_since_s;  // when the last rank got stuck; reset by every event
} world;

// The private words of a request. The members of a call meet in its `host`.
typedef struct __attribute__((may_alias)) {
  ot_comm_request *host;
  // The members of a host:
  ot_comm_request *first;  // member with the lowest index, others after it by `peer`
  int arrived;             // members that have arrived
  int left;                // unfinished work items
  int64_t bytes;           // touched by the work of the arrived members
} rendezvous;
static_assert(sizeof(rendezvous) <= sizeof((ot_comm_request){0}.private_words), "must fit");

static rendezvous *meeting_of(ot_comm_request *request) {
  return (rendezvous *)request->private_words;
}

static world *world_of(const ot_comm *comm) { return (world *)comm->process; }

// ---- deadlocks ----

static bool is_absent(const void *context, int index) {
  const ot_comm_request *const request = context;
  const ot_comm_group *const group = ot_comm_group_of(request);
  if (ot_comm_is_message(request->call.kind)) {
    return index == request->call.peer && !request->peer;
  }
  const ot_comm *const other = &world_of(request->end)->ends[group->ranks[index]].comm;
  return other->groups[request->call.group].started < request->sequence;
}

static bool all_are_stuck(const world *w) {
  for (int i = 0; i < w->ranks; i++) {
    const ot_comm *const comm = &w->ends[i].comm;
    if (!w->ends[i].finished && comm->waiting + comm->declared < comm->threads) return false;
  }
  return true;
}

static void recount(ot_comm *comm) {
  world *const w = world_of(comm);
  if (w->process.failed || !all_are_stuck(w)) return;
  w->stuck_since_s = ot_clock_s();
  for (int i = 0; i < w->ranks; i++) ot_comm_wake(&w->ends[i].comm);
}

static void describe_rank(ot_comm_text *out, const end *e) {
  const ot_comm_request *request = e->comm.waited;
  if (e->finished) {
    ot_comm_say(out, "rank %d has ended", e->comm.rank);
  } else if (!request) {
    ot_comm_say(out, "rank %d waits for its own threads", e->comm.rank);
  }
  for (; request; request = request->waiting) {
    ot_comm_say_wait(out, request, is_absent, request);
    if (request->waiting) ot_comm_say(out, "; ");
  }
}

// Fails the world in a deadlock. Returns until when a thread that watches for one may sleep.
static double check_deadlock(world *w) {
  if (w->process.ready > 0 || w->process.running > 0 || !all_are_stuck(w)) return INFINITY;
  double sure_s = w->stuck_since_s;
  for (int i = 0; i < w->ranks; i++) {
    if (w->ends[i].comm.declared > 0) sure_s = w->stuck_since_s + grace_s;
  }
  if (ot_clock_s() < sure_s) return sure_s;
  ot_comm_text why = {.length = 0};
  ot_comm_say(&why, "deadlock: all ranks wait for each other: ");
  for (int i = 0; i < w->ranks; i++) {
    if (i > 0) ot_comm_say(&why, "; ");
    describe_rank(&why, &w->ends[i]);
  }
  ot_comm_fail_process(&w->process, why.text);
  return sure_s;
}

static bool is_gone(const void *context, int index) {
  const ot_comm_request *const request = context;
  const int rank = ot_comm_group_of(request)->ranks[index];
  return is_absent(request, index) && world_of(request->end)->ends[rank].finished;
}

// Fails the world if a required rank has ended.
static void check_ended(const ot_comm_request *request) {
  const ot_comm_group *const group = ot_comm_group_of(request);
  int gone = 0;
  for (int i = 0; i < group->size; i++) gone += is_gone(request, i);
  if (gone == 0) return;
  ot_comm_text why = {.length = 0};
  ot_comm_say_wait(&why, request, is_absent, request);
  ot_comm_say(&why, ", but ");
  ot_comm_say_ranks(&why, group->ranks, group->size, is_gone, request);
  ot_comm_say(&why, gone == 1 ? " has ended" : " have ended");
  ot_comm_fail_process(request->end->process, why.text);
}

// ---- work on streams ----

// The streams of all members wait for the events of all others.
static ot_status join_streams(ot_comm_request *request) {
  ot_comm_request *member = request;
  do {
    for (ot_comm_request *other = member->peer; other != member; other = other->peer) {
      OT_TRY(ot_stream_wait(member->call.stream, other->call.event));
    }
    member = member->peer;
  } while (member != request);
  return OT_OK;
}

static ot_status record_events(ot_comm_request *request) {
  ot_comm_request *member = request;
  do {
    OT_TRY(ot_event_record(member->call.event, member->call.stream));
    member = member->peer;
  } while (member != request);
  return OT_OK;
}

// ---- work ----

// How a reduction visits the members of a call.
typedef struct {
  ot_comm_request *own, *first, *source, *target;
} members;

static const void *source_of(void *context, int i) {
  members *const m = context;
  m->source = i == 0 ? m->first : m->source->peer;
  return m->source->call.send;
}

static void *target_of(void *context, int i) {
  members *const m = context;
  m->target = i == 0 ? m->own : m->target->peer;
  return m->target->call.receive;
}

// Sources are read in place. An all_reduce writes its block to all members at once.
static ot_status run_sum(ot_comm_request *request, const ot_comm_member_call *x) {
  members m = {.own = request, .first = meeting_of(meeting_of(request)->host)->first};
  ot_comm_reduction sum = ot_comm_reduction_of(x);
  sum.source = source_of;
  sum.target = target_of;
  sum.context = &m;
  if (ot_comm_steps(x) > 1) sum.num_targets = x->size;
  if (x->call->stream) return ot_comm_queue_sum(x->call->stream, &sum);
  ot_comm_reduce_run(&sum);
  return OT_OK;
}

static bool is_discarded(const ot_comm_request *request) {
  const ot_comm_request *member = request;
  do {
    if (!member->call.discarded) return false;
    member = member->peer;
  } while (member != request);
  return true;
}

// All the work of one member.
static ot_status run_member(ot_comm_request *request) {
  if (is_discarded(request)) return OT_OK;
  const ot_comm_member_call x = ot_comm_member_call_of(request);
  if (ot_comm_is_reduction(request->call.kind)) return run_sum(request, &x);
  ot_comm_request *member = request;
  do {
    const ot_comm_member_call from = ot_comm_member_call_of(member);
    if (ot_comm_expects(&x, from.index)) OT_TRY(ot_comm_deliver(request, &from, &x));
    member = member->peer;
  } while (member != request);
  return OT_OK;
}

// One thread does the work of all members: there is little, or it is only queued.
static bool one_does_all(ot_comm_request *host) {
  return host->call.stream || meeting_of(host)->bytes <= SMALL;
}

static ot_status run_members(ot_comm_request *request) {
  ot_comm_request *member = request;
  do {
    OT_TRY(run_member(member));
    member = member->peer;
  } while (member != request);
  return OT_OK;
}

// The events are recorded three times: when the buffers of a member are ready (by start), when its
// own work is queued, and when its stream waits for the work of the others, too.
static ot_status queue_members(ot_comm_request *request) {
  OT_TRY(join_streams(request));
  OT_TRY(run_members(request));
  OT_TRY(record_events(request));
  OT_TRY(join_streams(request));
  return record_events(request);
}

static ot_status work(ot_comm_request *request) {
  if (request->call.stream) return queue_members(request);
  return one_does_all(meeting_of(request)->host) ? run_members(request) : run_member(request);
}

// All members' requests are done after the last work item.
static void worked(ot_comm_request *request) {
  ot_comm_set_phase(request, OT_COMM_FINISHED);
  if (--meeting_of(meeting_of(request)->host)->left > 0) return;
  for (ot_comm_request *member = request, *next = NULL; next != request; member = next) {
    next = member->peer;
    ot_comm_complete(member);
  }
}

// ---- how calls are matched ----

// True if the two requests belong to one call.
static bool are_same_call(const ot_comm_request *a, const ot_comm_request *b) {
  const ot_comm_group *const group = ot_comm_group_of(a), *const other = ot_comm_group_of(b);
  const bool message = ot_comm_is_message(a->call.kind);
  if (group->ranks[0] != other->ranks[0]) return false;
  if (message != ot_comm_is_message(b->call.kind)) return false;
  if (!message) return a->sequence == b->sequence;
  return a->call.kind != b->call.kind && a->call.tag == b->call.tag &&
         a->call.peer == other->index && b->call.peer == group->index;
}

static bool same_shape(const ot_comm_call *a, const ot_comm_call *b) {
  if (a->count != b->count) return false;
  if (ot_comm_is_message(a->kind)) return a->dtype == b->dtype;
  if (a->kind != b->kind) return false;
  if (a->kind == OT_COMM_BARRIER) return true;
  if (a->dtype != b->dtype) return false;
  return !ot_comm_is_reduction(a->kind) || (a->sum == b->sum && a->sum_on_wire == b->sum_on_wire);
}

static void describe_shape(ot_comm_text *out, const ot_comm_request *request) {
  const ot_comm_call *const call = &request->call;
  ot_comm_say(out, "rank %d does %s of %lld %s in '%s'", request->end->rank,
              ot_comm_kind_name(call->kind), (long long)call->count, ot_dtype_name(call->dtype),
              call->name ? call->name : "");
}

// The two requests should belong to one call but differ.
static void fail_mismatch(const ot_comm_request *a, const ot_comm_request *b) {
  ot_comm_text why = {.length = 0};
  ot_comm_say(&why, "ranks differ in call %lld of group %s: ", (long long)a->sequence,
              ot_group_name(a->call.group));
  describe_shape(&why, a);
  ot_comm_say(&why, ", ");
  describe_shape(&why, b);
  ot_comm_fail_process(a->end->process, why.text);
}

// Links the request to the others of its call, in group order.
static void join(ot_comm_request *host, ot_comm_request *request) {
  rendezvous *const m = meeting_of(host);
  const int index = ot_comm_group_of(request)->index;
  meeting_of(request)->host = host;
  m->arrived++;
  m->bytes += request->bytes;
  ot_comm_request **link = &m->first;
  while (*link && ot_comm_group_of(*link)->index < index) link = &(*link)->peer;
  request->peer = *link;
  *link = request;
}

// All members have arrived, `last` as the last.
static void begin(ot_comm_request *host, ot_comm_request *last) {
  rendezvous *const m = meeting_of(host);
  const bool message = ot_comm_is_message(host->call.kind);
  ot_comm_request *member = m->first;
  while (member->peer) member = member->peer;
  member->peer = m->first;
  m->left = one_does_all(host) || message ? 1 : m->arrived;
  if (one_does_all(host)) {
    ot_comm_run_work(last);
    return;
  }
  member = m->first;
  for (int i = 0, count = m->arrived; i < count; i++, member = member->peer) {
    if (member->call.kind != OT_COMM_SEND) {
      ot_comm_offer(member);
    } else {
      ot_comm_wake(member->end);  // it may do the work of the other
    }
  }
}

static void post(ot_comm_request *request) {
  recount(request->end);
  ot_comm_request **link = &world_of(request->end)->open[request->call.group];
  while (*link && !are_same_call(*link, request)) link = &(*link)->next;
  ot_comm_request *const host = *link ? *link : request;
  if (host == request) {
    *link = request;
  } else if (!same_shape(&host->call, &request->call)) {
    fail_mismatch(host, request);
    return;
  }
  join(host, request);
  const int size = ot_comm_is_message(host->call.kind) ? 2 : ot_comm_group_of(host)->size;
  if (meeting_of(host)->arrived < size) return;
  *link = host->next;
  begin(host, request);
}

// ---- resting ----

// Busy-waits outside the lock, briefly, for the request to progress.
static void spin(const ot_comm_request *request) {
  ot_comm_process *const process = request->end->process;
  const int seen = ot_comm_phase(request);
  pthread_mutex_unlock(&process->lock);
  const double until = ot_clock_s() + spin_s;
  while (ot_comm_phase(request) == seen && !process->failed && ot_clock_s() < until) {
    for (int i = 0; i < 16; i++) __builtin_ia32_pause();
  }
  pthread_mutex_lock(&process->lock);
}

static void rest(ot_comm *comm, ot_comm_request *request, ot_comm_pace *pace) {
  if (!request) {
    ot_comm_sleep(comm, &comm->work, INFINITY);
    return;
  }
  if (comm->process->spins && !pace->spun) {
    spin(request);
    pace->spun = true;
    return;
  }
  check_ended(request);
  const double until = fmin(ot_comm_next_look(pace), check_deadlock(world_of(comm)));
  if (!comm->process->failed) ot_comm_sleep(comm, &comm->woken, until);
}

// ---- groups ----

static bool has_rank(const ot_comm_group *group, int rank) {
  for (int i = 0; i < group->size; i++) {
    if (group->ranks[i] == rank) return true;
  }
  return false;
}

static ot_status add_group(ot_comm *comm, ot_group_kind kind) {
  const world *const w = world_of(comm);
  const ot_comm_group *const group = &comm->groups[kind];
  ot_status status = OT_OK;
  pthread_mutex_lock(&comm->process->lock);
  for (int i = 0; i < w->ranks && status == OT_OK; i++) {
    const ot_comm_group *const other = &w->ends[i].comm.groups[kind];
    if (!has_rank(other, comm->rank)) continue;
    const size_t bytes = (size_t)group->size * sizeof *group->ranks;
    if (other->size == group->size && memcmp(other->ranks, group->ranks, bytes) == 0) continue;
    status = ot_fail(OT_RANKS,
                     "comm: rank %d creates group %s of %d ranks, another member of %d or of other "
                     "ranks",
                     comm->rank, ot_group_name(kind), group->size, other->size);
  }
  pthread_mutex_unlock(&comm->process->lock);
  return status;
}

// ---- the life of a rank ----

static void finish_rank(end *e, ot_status status) {
  world *const w = world_of(&e->comm);
  if (!w->process.failed) status = ot_comm_check_left(&e->comm, status);
  e->status = status;
  if (ot_comm_is_failure(status)) ot_comm_fail_rank(&e->comm, status);
  if (w->process.failed) ot_comm_settle(&e->comm);
  e->finished = true;
  recount(&e->comm);
  for (int i = 0; i < w->ranks; i++) ot_comm_wake(&w->ends[i].comm);
}

static void run_rank(end *e) {
  const ot_status status = ot_comm_run_main(&e->comm, e->main, e->context);
  pthread_mutex_lock(&e->comm.process->lock);
  finish_rank(e, status);
  pthread_mutex_unlock(&e->comm.process->lock);
}

// A thread of a rank: runs its main once all threads of the world exist.
static void *rank_thread(void *context) {
  end *const e = context;
  world *const w = world_of(&e->comm);
  pthread_mutex_lock(&w->process.lock);
  while (w->gate == 0) pthread_cond_wait(&e->comm.woken, &w->process.lock);
  const bool go = w->gate > 0;
  pthread_mutex_unlock(&w->process.lock);
  if (go) run_rank(e);
  return NULL;
}

// ---- the world ----

static void world_destroy(world *w) {
  for (int i = 0; i < w->ranks; i++) ot_comm_head_destroy(&w->ends[i].comm);
  pthread_mutex_destroy(&w->process.lock);
  free(w->ends);
}

// Performs every step that can fail. After a failure destroy is still allowed.
static ot_status world_create(world *w, int ranks) {
  w->ends = calloc((size_t)ranks, sizeof *w->ends);
  OT_CHECK(w->ends, OT_ENVIRONMENT, "comm: out of memory for %d ranks", ranks);
  w->process.spins = ranks <= ot_host_cores();
  for (int i = 0; i < ranks; i++) {
    w->ranks = i + 1;
    OT_TRY(ot_comm_head_create(&w->ends[i].comm, &ot_comm_thread, &w->process, i, ranks));
    w->ends[i].comm.local_size = ranks;
    w->ends[i].comm.local_rank = i;
  }
  return OT_OK;
}

// Starts a progress thread for every rank, and a thread for every rank but 0; returns how many of
// these 2 * ranks - 1 threads were started.
static int start_threads(world *w) {
  for (int i = 0; i < 2 * w->ranks - 1; i++) {
    end *const e = &w->ends[i < w->ranks ? i : i - w->ranks + 1];
    const bool made = i < w->ranks ? ot_comm_start_progress(&e->comm)
                                   : pthread_create(&e->thread, NULL, rank_thread, e) == 0;
    if (!made) return i;
  }
  return 2 * w->ranks - 1;
}

static void open_gate(world *w, int gate) {
  pthread_mutex_lock(&w->process.lock);
  w->gate = gate;
  for (int i = 0; i < w->ranks; i++) pthread_cond_broadcast(&w->ends[i].comm.woken);
  pthread_mutex_unlock(&w->process.lock);
}

// The failure of a world, with its rank.
static ot_status repeat_failure(const ot_comm_process *process) {
  ot_failure failure = process->failure;
  if (!ot_text_starts_with(failure.message, "rank")) {
    ot_text_format(failure.message, sizeof failure.message, "rank %d: %s", process->failed_rank,
                   process->failure.message);
  }
  return ot_failure_repeat(&failure);
}

// The status of the world: the first failure, else the first rank that returned other than OT_OK.
static ot_status world_status(const world *w) {
  if (w->process.failed_rank >= 0) return repeat_failure(&w->process);
  for (int i = 0; i < w->ranks; i++) {
    if (w->ends[i].status != OT_OK) return w->ends[i].status;
  }
  return OT_OK;
}

static ot_status run_world(world *w) {
  const int wanted = 2 * w->ranks - 1, threads = start_threads(w);
  open_gate(w, threads == wanted ? 1 : -1);
  if (threads == wanted) run_rank(&w->ends[0]);
  for (int i = w->ranks; i < threads; i++) pthread_join(w->ends[i - w->ranks + 1].thread, NULL);
  ot_comm_stop_progress(&w->process);
  OT_CHECK(threads == wanted, OT_ENVIRONMENT,
           "comm: started %d of the %d threads that %d ranks need", threads, wanted, w->ranks);
  return world_status(w);
}

static ot_status run(int ranks, ot_rank_main main, void *context) {
  world w = {.process = {.lock = PTHREAD_MUTEX_INITIALIZER, .failed_rank = -1}};
  ot_status status = world_create(&w, ranks);
  for (int i = 0; i < w.ranks; i++) {
    w.ends[i].main = main;
    w.ends[i].context = context;
  }
  if (status == OT_OK) status = ranks == 1 ? main(&w.ends[0].comm, context) : run_world(&w);
  world_destroy(&w);
  return status;
}

const ot_comm_backend ot_comm_thread = {
    .shares_memory = true,
    .run = run,
    .add_group = add_group,
    .post = post,
    .work = work,
    .worked = worked,
    .rest = rest,
    .is_absent = is_absent,
    .recount = recount,
};
