// SPDX-License-Identifier: Apache-2.0
// NCCL pairs the operations of a communicator by their order alone, and runs them one after the
// other, also on different streams. So each list of calls whose order is the same on all members
// has a communicator of its own: the collectives of a group, and the messages from one rank to
// another with one tag. Communicators are made in one order on all ranks: by group, then by tag and
// ranks of the messages. No two ranks can wait for each other there.
//
// The first transfer between two ranks connects them and may block until both are there. In a step
// a message must not block, so one call of each kind runs when the communicators are made.
#include "comm/comm_nccl.h"

#include <stdlib.h>
#include <string.h>

#include "base/failure.h"
#include "comm/comm_parts.h"
#include "comm/nccl_api.h"

enum { ID_WORDS = sizeof(ot_nccl_id) / 8 };

// An NCCL communicator.
typedef struct channel {
  struct channel *next;
  ot_comm_route route;  // of a collective: any kind
  pthread_mutex_t lock;
  ot_nccl_comm *nccl;      // null: aborted
  ot_event *finished;      // of the latest call
  ot_comm_request latest;  // end null: none yet
} channel;

typedef struct ot_comm_nccl {
  ot_nccl_api api;
  ot_device *device;
  channel *channels;  // in the order in which they were made
} ot_comm_nccl;

static ot_status check(const ot_comm_nccl *nccl, int result, const char *what) {
  if (result == 0) return OT_OK;
  const char *const more = nccl->api.last_error(NULL);
  return ot_fail(OT_ENVIRONMENT, "NCCL: %s: %s%s%s", what, nccl->api.describe(result),
                 more && more[0] ? ": " : "", more ? more : "");
}

// ---- channels ----

static bool is_same(const ot_comm_route *a, const ot_comm_route *b) {
  const bool messages = ot_comm_is_message(a->kind);
  if (a->group != b->group || messages != ot_comm_is_message(b->kind)) return false;
  return !messages || (a->kind == b->kind && a->peer == b->peer && a->tag == b->tag);
}

static ot_comm_route route_of(const ot_comm_call *call) {
  return (ot_comm_route){call->group, call->kind, call->peer, call->tag};
}

static channel *find_channel(const ot_comm_nccl *nccl, const ot_comm_route *route) {
  channel *c = nccl->channels;
  while (c && !is_same(&c->route, route)) c = c->next;
  return c;
}

// ---- calls ----

// True if members have blocks of one size, in the order of ranks, and each needs all of them.
static bool gathers(const ot_comm_member_call *x, int step) {
  const ot_comm_call *const call = x->call;
  return call->kind == OT_COMM_ALL_GATHER ||
         (call->kind == OT_COMM_ALL_REDUCE && step == 1 && call->count % x->size == 0);
}

// The block in one piece: where it lies, or as the next rows of `*stage`.
static ot_comm_block one_piece(const ot_comm_block *block, char **stage) {
  ot_comm_block piece = {.memory = block->memory, .bytes = block->bytes};
  if (block->runs == 1) piece.memory += block->run[0] * block->row_bytes;
  if (block->runs > 1) {
    piece.memory = *stage;
    *stage += block->bytes;
  }
  return piece;
}

// Copies blocks with several runs to their stage before they are sent (`sends`), or from it after
// they are received.
static ot_status copy_staged(const ot_comm_member_call *x, bool sends) {
  char *stage = x->call->workspace;
  for (int i = 0; i < ot_comm_transfers(x); i++) {
    const ot_comm_transfer t = ot_comm_transfer_at(x, 0, i);
    ot_comm_block piece = one_piece(&t.block, &stage);
    if (t.sends != sends || t.block.runs < 2 || t.block.bytes == 0) continue;
    const int32_t all[2] = {0, (int32_t)t.block.rows};
    piece.run = all;
    piece.rows = t.block.rows;
    piece.row_bytes = t.block.row_bytes;
    OT_TRY(ot_comm_copy(x->call->stream, sends ? &t.block : &piece, sends ? &piece : &t.block));
  }
  return OT_OK;
}

static int queue_transfer(const ot_nccl_api *api, const ot_comm_transfer *t, int peer,
                          ot_nccl_comm *comm, void *stream) {
  const size_t bytes = (size_t)t->block.bytes;
  return t->sends ? api->send(t->block.memory, bytes, OT_NCCL_UINT8, peer, comm, stream)
                  : api->receive(t->block.memory, bytes, OT_NCCL_UINT8, peer, comm, stream);
}

// Both members skip empty blocks.
static ot_status exchange(const ot_comm_nccl *nccl, const channel *c, const ot_comm_member_call *x,
                          int step) {
  const bool message = ot_comm_is_message(x->call->kind);
  void *const stream = ot_stream_native(x->call->stream);
  char *stage = x->call->workspace;
  int first = nccl->api.begin();
  for (int i = 0; i < ot_comm_transfers(x); i++) {
    ot_comm_transfer t = ot_comm_transfer_at(x, step, i);
    t.block = one_piece(&t.block, &stage);
    const int peer = message ? t.sends : t.peer;
    const int result =
        t.block.bytes > 0 ? queue_transfer(&nccl->api, &t, peer, c->nccl, stream) : 0;
    if (first == 0) first = result;
  }
  const int ended = nccl->api.end();
  return check(nccl, first ? first : ended, "sending and receiving");
}

static ot_status gather(const ot_comm_nccl *nccl, const channel *c, const ot_comm_member_call *x,
                        int step) {
  const ot_comm_block own = ot_comm_sent(x, step, 0);
  if (own.bytes == 0) return OT_OK;
  const int result =
      nccl->api.all_gather(own.memory, x->call->receive, (size_t)own.bytes, OT_NCCL_UINT8, c->nccl,
                           ot_stream_native(x->call->stream));
  return check(nccl, result, "all-gather");
}

static ot_status queue_step(const ot_comm_nccl *nccl, const channel *c, ot_comm_member_call *x,
                            int step) {
  if (gathers(x, step)) return gather(nccl, c, x, step);
  OT_TRY(exchange(nccl, c, x, step));
  if (!ot_comm_is_reduction(x->call->kind) || step > 0) return OT_OK;
  const ot_comm_reduction sum = ot_comm_reduction_of_received(x);
  return ot_comm_queue_sum(x->call->stream, &sum);
}

// Bytes that stay on this rank are copied, not sent.
static ot_status queue_steps(const ot_comm_nccl *nccl, const channel *c,
                             const ot_comm_request *request) {
  ot_comm_member_call x = ot_comm_member_call_of(request);
  const bool rows = x.call->kind == OT_COMM_ALL_TO_ALL_V;
  const bool own = !ot_comm_is_reduction(x.call->kind) && !gathers(&x, 0);
  if (own && ot_comm_expects(&x, x.index)) OT_TRY(ot_comm_deliver(request, &x, &x));
  if (rows) OT_TRY(copy_staged(&x, true));
  for (int step = 0; step < ot_comm_steps(&x); step++) OT_TRY(queue_step(nccl, c, &x, step));
  return rows ? copy_staged(&x, false) : OT_OK;
}

static ot_status queue_on(const ot_comm_nccl *nccl, channel *c, const ot_comm_request *request) {
  const ot_comm_call *const call = &request->call;
  OT_CHECK(c->nccl, OT_RANKS, "NCCL has been aborted");
  c->latest = *request;
  OT_TRY(queue_steps(nccl, c, request));
  OT_TRY(ot_event_record(c->finished, call->stream));
  return ot_event_record(call->event, call->stream);
}

ot_status ot_comm_nccl_queue(const ot_comm_request *request) {
  const ot_comm_nccl *const nccl = request->end->nccl;
  const ot_comm_route route = route_of(&request->call);
  channel *const c = find_channel(nccl, &route);
  OT_CHECK(c, OT_BUG, "comm: '%s' is of no kind that ot_comm_use_device was told of",
           request->call.name ? request->call.name : "");
  OT_TRY(ot_device_bind(nccl->device));
  pthread_mutex_lock(&c->lock);
  const ot_status status = queue_on(nccl, c, request);
  pthread_mutex_unlock(&c->lock);
  return status;
}

// ---- looking ----

static ot_status check_channel(const ot_comm_nccl *nccl, const channel *c) {
  int found = 0;
  if (!c->nccl) return OT_OK;
  OT_TRY(check(nccl, nccl->api.failure(c->nccl, &found), "asking for failures"));
  if (found == 0 || found == OT_NCCL_IN_PROGRESS) return OT_OK;
  ot_comm_text out = {.length = 0};
  if (c->latest.end) ot_comm_say_call(&out, &c->latest);
  return ot_fail(OT_RANKS, "NCCL: %s, in %s or before", nccl->api.describe(found), out.text);
}

ot_status ot_comm_nccl_check(ot_comm *comm) {
  ot_status status = OT_OK;
  for (channel *c = comm->nccl->channels; c && status == OT_OK; c = c->next) {
    pthread_mutex_lock(&c->lock);
    status = check_channel(comm->nccl, c);
    pthread_mutex_unlock(&c->lock);
  }
  return status;
}

int ot_comm_nccl_say(ot_comm *comm, ot_comm_text *out) {
  int count = 0;
  for (channel *c = comm->nccl->channels; c; c = c->next) {
    bool done = true;
    pthread_mutex_lock(&c->lock);
    if (c->latest.end && ot_event_is_done(c->finished, &done) == OT_OK && !done) {
      if (count++ > 0) ot_comm_say(out, ", ");
      ot_comm_say_call(out, &c->latest);
    }
    pthread_mutex_unlock(&c->lock);
  }
  return count;
}

// ---- the end ----

typedef struct ending {
  ot_comm_nccl *nccl;
  channel *channel;
  pthread_t thread;
  bool started;
} ending;

static void *abort_channel(void *context) {
  const ending *const e = context;
  channel *const c = e->channel;
  (void)ot_device_bind(e->nccl->device);  // it may have failed
  pthread_mutex_lock(&c->lock);
  if (c->nccl) e->nccl->api.abort(c->nccl);
  c->nccl = NULL;
  pthread_mutex_unlock(&c->lock);
  return NULL;
}

// All at the same time, since the work of one may wait for that of another.
void ot_comm_nccl_abort(ot_comm *comm) {
  if (!comm->nccl) return;
  int count = 0;
  for (const channel *c = comm->nccl->channels; c; c = c->next) count++;
  ending *const all = calloc((size_t)count + 1, sizeof *all);
  if (!all) return;  // the process ends with its work undone
  int i = 0;
  for (channel *c = comm->nccl->channels; c; c = c->next, i++) {
    all[i] = (ending){.nccl = comm->nccl, .channel = c};
    all[i].started = pthread_create(&all[i].thread, NULL, abort_channel, &all[i]) == 0;
  }
  for (i = 0; i < count; i++) {
    if (all[i].started) pthread_join(all[i].thread, NULL);
  }
  free(all);
}

static void release(ot_comm *comm) {
  ot_comm_nccl *const nccl = comm->nccl;
  for (channel *c = nccl->channels, *next = NULL; c; c = next) {
    next = c->next;
    ot_event_destroy(&c->finished);
    pthread_mutex_destroy(&c->lock);
    free(c);
  }
  ot_device_destroy(&nccl->device);
  free(nccl);
  comm->nccl = NULL;
}

void ot_comm_nccl_close(ot_comm *comm, ot_status status) {
  ot_failure failure = {.status = OT_OK};
  if (!comm->nccl) return;
  ot_failure_take(&failure, status);
  const ot_comm_call together = {.kind = OT_COMM_BARRIER, .name = "the end of NCCL"};
  const bool failed = ot_comm_is_failure(status) || comm->process->failed ||
                      ot_comm_run(comm, &together) != OT_OK ||
                      ot_device_bind(comm->nccl->device) != OT_OK;
  if (failed) ot_comm_nccl_abort(comm);
  for (channel *c = comm->nccl->channels; c && !failed; c = c->next) {
    (void)comm->nccl->api.finalize(c->nccl);
    (void)comm->nccl->api.destroy(c->nccl);
  }
  release(comm);
  ot_failure_repeat(&failure);
}

// ---- making channels ----

// One member makes the name of the NCCL communicator, the others receive it.
static ot_status share_id(ot_comm *comm, const ot_comm_route *route, const ot_nccl_id *own,
                          ot_nccl_id *id) {
  const ot_comm_group *const group = &comm->groups[route->group];
  ot_comm_call call = {.kind = route->kind,
                       .group = route->group,
                       .peer = route->peer,
                       .tag = route->tag,
                       .send = own,
                       .receive = id,
                       .count = ID_WORDS,
                       .dtype = OT_I64,
                       .name = "name of an NCCL communicator"};
  if (ot_comm_is_message(route->kind)) {
    *id = *own;
    return ot_comm_run(comm, &call);
  }
  ot_nccl_id *const all = calloc((size_t)group->size, sizeof *all);
  OT_CHECK(all, OT_ENVIRONMENT, "comm: out of memory for %d ranks", group->size);
  call.kind = OT_COMM_ALL_GATHER;
  call.receive = all;
  const ot_status status = ot_comm_run(comm, &call);
  *id = all[0];
  free(all);
  return status;
}

// The sender is rank 0 of a message's communicator.
static ot_status make_nccl(ot_comm *comm, channel *c) {
  ot_comm_nccl *const nccl = comm->nccl;
  const ot_comm_group *const group = &comm->groups[c->route.group];
  const bool message = ot_comm_is_message(c->route.kind);
  const int size = message ? 2 : group->size;
  const int rank = message ? c->route.kind == OT_COMM_RECEIVE : group->index;
  ot_nccl_id own = {{0}}, id;
  OT_TRY(check(nccl, rank == 0 ? nccl->api.make_id(&own) : 0, "naming a communicator"));
  OT_TRY(share_id(comm, &c->route, &own, &id));
  return check(nccl, nccl->api.create(&c->nccl, size, id, rank), "making a communicator");
}

static ot_status add_channel(ot_comm *comm, const ot_comm_route *route) {
  ot_comm_nccl *const nccl = comm->nccl;
  if (find_channel(nccl, route)) return OT_OK;
  channel *const c = calloc(1, sizeof *c);
  OT_CHECK(c, OT_ENVIRONMENT, "comm: out of memory");
  channel **link = &nccl->channels;
  while (*link) link = &(*link)->next;
  *link = c;
  c->route = *route;
  pthread_mutex_init(&c->lock, NULL);
  OT_TRY(ot_event_create(nccl->device, &c->finished));
  OT_TRY(ot_device_bind(nccl->device));
  return make_nccl(comm, c);
}

// Who sends the messages of a route, and who receives them.
static int world_rank(const ot_comm *comm, const ot_comm_route *route, ot_comm_kind side) {
  return route->kind == side ? comm->rank : comm->groups[route->group].ranks[route->peer];
}

// The order in which all ranks make channels: its place among those of this rank.
static bool comes_before(const ot_comm *comm, const ot_comm_route *a, const ot_comm_route *b) {
  const bool messages = ot_comm_is_message(a->kind);
  if (messages != ot_comm_is_message(b->kind)) return !messages;
  if (!messages) return a->group != b->group ? a->group < b->group : a->kind < b->kind;
  if (a->tag != b->tag) return a->tag < b->tag;
  const int from[2] = {world_rank(comm, a, OT_COMM_SEND), world_rank(comm, b, OT_COMM_SEND)};
  const int to[2] = {world_rank(comm, a, OT_COMM_RECEIVE), world_rank(comm, b, OT_COMM_RECEIVE)};
  return from[0] != from[1] ? from[0] < from[1] : to[0] < to[1];
}

static void sort_routes(const ot_comm *comm, ot_comm_route *routes, int count) {
  for (int i = 1; i < count; i++) {
    for (int k = i; k > 0 && comes_before(comm, &routes[k], &routes[k - 1]); k--) {
      const ot_comm_route other = routes[k];
      routes[k] = routes[k - 1];
      routes[k - 1] = other;
    }
  }
}

// ---- the first calls ----

typedef struct trial {
  ot_stream *stream;
  ot_event *event;
  char *memory;  // [3 * part]
  int64_t part;  // bytes of a buffer
} trial;

static ot_status try_route(ot_comm *comm, const trial *t, const ot_comm_route *route,
                           int64_t count) {
  const bool rows = route->kind == OT_COMM_ALL_TO_ALL_V;
  const ot_comm_request request = {.end = comm,
                                   .call = {.kind = rows ? OT_COMM_ALL_TO_ALL : route->kind,
                                            .group = route->group,
                                            .peer = route->peer,
                                            .tag = route->tag,
                                            .send = t->memory,
                                            .receive = t->memory + t->part,
                                            .workspace = t->memory + 2 * t->part,
                                            .count = count,
                                            .dtype = OT_I32,
                                            .sum = OT_I32,
                                            .stream = t->stream,
                                            .event = t->event,
                                            .name = "first call"}};
  OT_TRY(ot_comm_nccl_queue(&request));
  return ot_comm_synchronize(comm, t->stream);
}

// With counts that divide into blocks and that do not, which may take different ways.
static ot_status try_routes(ot_comm *comm, const trial *t, const ot_comm_route *routes, int count) {
  for (int i = 0; i < count; i++) {
    OT_TRY(try_route(comm, t, &routes[i], 1));
    OT_TRY(try_route(comm, t, &routes[i], ot_comm_group_size(comm, routes[i].group)));
  }
  return OT_OK;
}

static ot_status run_trial(ot_comm *comm, trial *t, const ot_comm_route *routes, int count) {
  ot_device *const device = comm->nccl->device;
  void *memory = NULL;
  ot_status status = ot_stream_create(device, &t->stream);
  if (status == OT_OK) status = ot_event_create(device, &t->event);
  if (status == OT_OK) status = ot_device_allocate(device, 3 * t->part, &memory);
  status = ot_comm_agree(comm, status);
  t->memory = memory;
  if (status == OT_OK) status = try_routes(comm, t, routes, count);
  ot_device_release(device, &memory, 3 * t->part);
  ot_event_destroy(&t->event);
  ot_stream_destroy(&t->stream);
  return status;
}

int ot_comm_nccl_version(const ot_comm *comm) {
  int version = 0;
  if (comm && comm->nccl) (void)comm->nccl->api.version(&version);  // has told it before
  return version;
}

// ---- open ----

static ot_status make_plane(ot_comm *comm, int ordinal) {
  if (comm->nccl) return OT_OK;
  ot_nccl_api api;
  OT_TRY(ot_nccl_open(&api));
  comm->nccl = calloc(1, sizeof *comm->nccl);
  OT_CHECK(comm->nccl, OT_ENVIRONMENT, "comm: out of memory");
  comm->nccl->api = api;
  return ot_device_create(OT_BACKEND_CUDA, ordinal, &comm->nccl->device);
}

static ot_status open_routes(ot_comm *comm, ot_comm_route *routes, int count) {
  sort_routes(comm, routes, count);
  for (int i = 0; i < count; i++) OT_TRY(add_channel(comm, &routes[i]));
  OT_TRY(ot_comm_agree(comm, OT_OK));  // no rank communicates while another makes channels
  const int64_t largest = (int64_t)comm->size * comm->size * ot_dtype_bytes(OT_I32);
  trial t = {.part = (largest + 255) / 256 * 256};
  return run_trial(comm, &t, routes, count);
}

ot_status ot_comm_nccl_open(ot_comm *comm, int ordinal, const ot_comm_route *routes, int count) {
  ot_comm_route *const own = calloc((size_t)count + 1, sizeof *own);
  const ot_status there = own ? OT_OK : ot_fail(OT_ENVIRONMENT, "comm: out of memory");
  ot_status status = ot_comm_agree(comm, there == OT_OK ? make_plane(comm, ordinal) : there);
  if (status == OT_OK) {
    if (count > 0) memcpy(own, routes, (size_t)count * sizeof *own);
    status = open_routes(comm, own, count);
  }
  free(own);
  return status;
}
