// SPDX-License-Identifier: Apache-2.0
// NCCL of the emulated devices: the functions of nccl_api.h for ranks that are threads of this
// process, as queued work of streams. An operation starts when its stream reaches it, holds its
// stream until all its transfers are done, and follows the communicator's operation before it,
// whatever the stream. Bytes move at a time drawn between the start of both ends and the end of
// either; until then a receive buffer holds NaN. As NCCL it pairs transfers by order alone.
//
// What NCCL leaves undefined ends the process with a message that names the ranks: two ends of
// different sizes, operations that wait for each other in a circle, and an operation for which
// another rank has queued nothing (after a while). It refuses what NCCL refuses: two ranks on a
// device, peers that do not exist, memory that is not of the communicator's device.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "shim_state.h"

extern "C" {
#include "comm/nccl_api.h"
}

namespace {

using shim::lock_held;
using shim::position;

enum { SUCCESS = 0, CUDA_ERROR = 1, VERSION = 22809 };

struct operation;

// One end of a transfer.
struct side {
  void *memory;
  size_t bytes;
  std::shared_ptr<operation> owner;
};

// The transfers from one member to another, in order. Those that are done are dropped.
struct pair_queue {
  size_t dropped = 0;
  std::deque<side> sends, receives;

  const side *find(const std::deque<side> &sides, size_t number) const {
    return number - dropped < sides.size() ? &sides[number - dropped] : nullptr;
  }
};

// The communicator that all its members share.
struct clique {
  int size;
  std::vector<ot_nccl_comm *> members;
  std::vector<std::vector<pair_queue>> pairs;  // [from][to]
  int made = 0;
  std::string refusal;  // why none is made
};

struct clique_list {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t next_id = 1;
  std::map<uint64_t, std::shared_ptr<clique>> forming;
};

clique_list &cliques() {
  static clique_list *const list = new clique_list;
  return *list;
}

thread_local std::string last_error_text;

int refuse(int result, const std::string &why) {
  last_error_text = why;
  return result;
}

}  // namespace

struct ot_nccl_comm {
  std::shared_ptr<clique> all;
  int rank, device;
  bool aborted;
  int failure;
  position last;                                     // the end of its latest operation
  std::vector<std::weak_ptr<operation>> operations;  // that run, and some that have ended
};

namespace {

// A place in a pair's queue.
struct transfer {
  int from, to;
  size_t number;
};

struct operation : shim::gate {
  clique *all;  // lives as long as the rank's communicator, which waits for its operations
  int rank;
  bool started = false, broken = false, aborted = false;
  position start;
  std::vector<transfer> transfers;  // one end of each is this rank's

  pair_queue &queue_of(const transfer &t) const {
    return all->pairs[static_cast<size_t>(t.from)][static_cast<size_t>(t.to)];
  }
  bool is_done(const transfer &t) const { return t.number < queue_of(t).dropped; }
  const side *other_end(const transfer &t) const {
    const pair_queue &q = queue_of(t);
    return q.find(t.from == rank && t.to != rank ? q.receives : q.sends, t.number);
  }
  bool is_open() const override {
    if (aborted) return true;
    for (const transfer &t : transfers) {
      if (is_done(t)) continue;
      const side *const other = other_end(t);
      if (!other || !other->owner->started || other->owner->aborted) return false;
    }
    return !broken;
  }
  std::vector<position> after(std::string *missing) const override {
    std::vector<position> all_of_them;
    for (const transfer &t : transfers) {
      if (is_done(t)) continue;
      const side *const other = other_end(t);
      if (other && !other->owner->started) all_of_them.push_back(other->owner->start);
      if (other && !other->owner->aborted) continue;
      const int absent = t.from == rank ? t.to : t.from;
      *missing += name() + " waits for rank " + std::to_string(absent) +
                  (other ? ", which has aborted; " : ", which has queued no more; ");
    }
    return all_of_them;
  }
  std::string name() const override {
    std::string text = "rank " + std::to_string(rank) + " of " + std::to_string(all->size) + " (";
    for (const transfer &t : transfers) {
      text += t.from == rank ? "to " + std::to_string(t.to) : "from " + std::to_string(t.from);
      text += &t == &transfers.back() ? ")" : ", ";
    }
    return text;
  }
};

// ---- transfers ----

// Both ends have started. Transfers of a pair are done in their order.
void move(const operation &o, const transfer &t) {
  pair_queue &q = o.queue_of(t);
  while (q.dropped <= t.number) {
    const side &from = q.sends.front(), &to = q.receives.front();
    if (to.memory != from.memory) memcpy(to.memory, from.memory, from.bytes);
    q.sends.pop_front();
    q.receives.pop_front();
    q.dropped++;
  }
}

// The stream has reached the operation.
void start(operation *o) {
  o->started = true;
  for (const transfer &t : o->transfers) {
    const side *const other = o->other_end(t);
    const pair_queue &q = o->queue_of(t);
    if (t.to == o->rank) {
      const side *const own = q.find(q.receives, t.number);
      if (!other || other->memory != own->memory) memset(own->memory, 0xFF, own->bytes);
    }
    const bool both = other && other->owner->started && !other->owner->aborted;
    if (both && shim::device().chance.below(2) == 0) move(*o, t);
  }
}

void finish(const operation &o) {
  if (o.aborted) return;
  for (const transfer &t : o.transfers) move(o, t);
}

void check_sizes(const operation &o, const transfer &t) {
  const pair_queue &q = o.queue_of(t);
  const side *const sent = q.find(q.sends, t.number), *const expected =
                                                          q.find(q.receives, t.number);
  if (!sent || !expected || sent->bytes == expected->bytes) return;
  fprintf(stderr, "shim: NCCL: rank %d sends %zu bytes to rank %d, which expects %zu\n", t.from,
          sent->bytes, t.to, expected->bytes);
  abort();
}

// ---- groups ----

// A call between begin and end.
struct call {
  const char *name;
  const void *from;  // null: only receives
  void *to;          // null: only sends
  size_t bytes;
  int peer;  // -1: all
  ot_nccl_comm *comm;
  void *stream;
};

struct call_group {
  int depth = 0;
  int failure = SUCCESS;
  std::vector<call> calls;
};
thread_local call_group calls;

void add_side(const std::shared_ptr<operation> &o, transfer t, bool sends, side own) {
  pair_queue &q = o->queue_of(t);
  std::deque<side> &sides = sends ? q.sends : q.receives;
  t.number = q.dropped + sides.size();
  own.owner = o;
  sides.push_back(own);
  if (t.from == t.to && !sends) return;  // one transfer has both ends
  o->transfers.push_back(t);
}

void add_call(const std::shared_ptr<operation> &o, const call &c) {
  const int self = o->rank, size = o->all->size;
  for (int peer = 0; peer < size; peer++) {
    if (c.peer >= 0 && c.peer != peer) continue;
    char *const to =
        static_cast<char *>(c.to) + (c.peer < 0 ? c.bytes * static_cast<size_t>(peer) : 0);
    if (c.from) add_side(o, {self, peer, 0}, true, {const_cast<void *>(c.from), c.bytes, nullptr});
    if (c.to) add_side(o, {peer, self, 0}, false, {to, c.bytes, nullptr});
  }
}

int check_call(const call &c) {
  const size_t all = static_cast<size_t>(c.comm->all->size);
  const int device = c.comm->device;
  const shim::stream_pointer stream = shim::find_stream(static_cast<cudaStream_t>(c.stream));
  if (!stream || stream->device != device) {
    return refuse(OT_NCCL_INVALID_USAGE, std::string(c.name) + ": a stream of another device");
  }
  const bool gathers = c.peer < 0;
  const bool readable = !c.from || shim::is_memory_of(device, c.from, c.bytes);
  const bool writable =
      !c.to || shim::is_memory_of(device, c.to, gathers ? c.bytes * all : c.bytes);
  if (readable && writable) return SUCCESS;
  return refuse(OT_NCCL_INVALID_ARGUMENT,
                std::string(c.name) + ": memory that is not of device " + std::to_string(device));
}

// What is between begin and end, as one operation of one communicator on one stream.
int queue_operation(const std::vector<call> &list) {
  ot_nccl_comm *const comm = list.front().comm;
  for (const call &c : list) {
    if (c.comm != comm || c.stream != list.front().stream) {
      return refuse(OT_NCCL_INVALID_USAGE, "several communicators or streams in a group");
    }
    const int result = check_call(c);
    if (result != SUCCESS) return result;
  }
  const auto o = std::make_shared<operation>();
  o->all = comm->all.get();
  o->rank = comm->rank;
  std::vector<std::weak_ptr<operation>> &running = comm->operations;
  const auto has_ended = [](const std::weak_ptr<operation> &other) { return other.expired(); };
  running.erase(std::remove_if(running.begin(), running.end(), has_ended), running.end());
  running.push_back(o);
  for (const call &c : list) add_call(o, c);
  for (const transfer &t : o->transfers) check_sizes(*o, t);
  o->broken = shim::take_planned_failure("nccl", comm->device) != cudaSuccess;
  if (o->broken) comm->failure = OT_NCCL_REMOTE_ERROR;
  const auto stream = shim::find_stream(static_cast<cudaStream_t>(list.front().stream));
  shim::work_item begins, ends;
  begins.name = "NCCL";
  begins.run = [o] { start(o.get()); };
  begins.after.push_back(comm->last);
  begins.reaches_all = ends.reaches_all = true;
  o->start = shim::enqueue(stream, std::move(begins));
  ends.name = "NCCL";
  ends.run = [o] { finish(*o); };
  ends.opens = o;
  comm->last = shim::enqueue(stream, std::move(ends));
  return SUCCESS;
}

int end_group() {
  if (calls.depth == 0) return refuse(OT_NCCL_INVALID_USAGE, "ncclGroupEnd without a start");
  if (--calls.depth > 0) return SUCCESS;
  const call_group group = std::move(calls);
  calls = call_group();
  if (group.failure != SUCCESS || group.calls.empty()) return group.failure;
  int result = SUCCESS;
  const cudaError_t error = shim::api_call("ncclGroupEnd", [&](lock_held &) {
    result = queue_operation(group.calls);
    return cudaSuccess;
  });
  return error == cudaSuccess ? result : refuse(CUDA_ERROR, cudaGetErrorString(error));
}

int begin_group() {
  calls.depth++;
  return SUCCESS;
}

int add(call c, size_t count, int type) {
  int result = SUCCESS;
  if (!c.comm || c.comm->aborted) {
    result = refuse(OT_NCCL_INVALID_ARGUMENT, "no communicator");
  } else if (type != OT_NCCL_UINT8) {
    result = refuse(OT_NCCL_INVALID_ARGUMENT, "a type that is not emulated");
  } else if (c.peer >= c.comm->all->size) {
    result = refuse(OT_NCCL_INVALID_ARGUMENT,
                    std::string(c.name) + ": there is no rank " + std::to_string(c.peer));
  }
  begin_group();
  c.bytes = count;
  if (result == SUCCESS) calls.calls.push_back(c);
  if (result != SUCCESS) calls.failure = result;
  const int ended = end_group();
  return result != SUCCESS ? result : ended;
}

int send(const void *from, size_t count, int type, int peer, ot_nccl_comm *comm, void *stream) {
  if (peer < 0) return refuse(OT_NCCL_INVALID_ARGUMENT, "ncclSend: no peer");
  return add({"ncclSend", from, nullptr, 0, peer, comm, stream}, count, type);
}

int receive(void *to, size_t count, int type, int peer, ot_nccl_comm *comm, void *stream) {
  if (peer < 0) return refuse(OT_NCCL_INVALID_ARGUMENT, "ncclRecv: no peer");
  return add({"ncclRecv", nullptr, to, 0, peer, comm, stream}, count, type);
}

int all_gather(const void *from, void *to, size_t count, int type, ot_nccl_comm *comm,
               void *stream) {
  return add({"ncclAllGather", from, to, 0, -1, comm, stream}, count, type);
}

// ---- communicators ----

int make_id(ot_nccl_id *id) {
  clique_list &list = cliques();
  const std::lock_guard<std::mutex> lock(list.mutex);
  *id = {};
  memcpy(id->bytes, &list.next_id, sizeof list.next_id);
  list.next_id++;
  return SUCCESS;
}

// Adds a member; says why that is refused.
void join_clique(clique *c, ot_nccl_comm *comm, int size) {
  ot_nccl_comm *&place = c->members[static_cast<size_t>(comm->rank)];
  if (size != c->size || place)
    c->refusal = "ranks differ in the communicator's size, or are equal";
  for (const ot_nccl_comm *other : c->members) {
    if (!other || other->device != comm->device) continue;
    c->refusal = "Duplicate GPU detected: rank " + std::to_string(other->rank) + " and rank " +
                 std::to_string(comm->rank) + " both on device " + std::to_string(comm->device);
  }
  place = comm;
  c->made++;
}

bool wait_for_members(std::unique_lock<std::mutex> &lock, const clique &c) {
  const auto limit = std::chrono::duration<double>(shim::device().patience_s);
  return cliques().changed.wait_for(lock, limit,
                                    [&c] { return c.made == c.size || !c.refusal.empty(); });
}

int create(ot_nccl_comm **out, int size, ot_nccl_id id, int rank) {
  *out = nullptr;
  if (rank < 0 || rank >= size) return refuse(OT_NCCL_INVALID_ARGUMENT, "there is no such rank");
  if (shim::api_call("ncclCommInitRank", [](lock_held &) { return cudaSuccess; }) != cudaSuccess) {
    return refuse(CUDA_ERROR, "a CUDA error");
  }
  uint64_t number;
  memcpy(&number, id.bytes, sizeof number);
  clique_list &list = cliques();
  std::unique_lock<std::mutex> lock(list.mutex);
  std::shared_ptr<clique> &forming = list.forming[number];
  if (!forming) {
    const size_t n = static_cast<size_t>(size);
    forming = std::make_shared<clique>();
    forming->size = size;
    forming->members.resize(n);
    forming->pairs.assign(n, std::vector<pair_queue>(n));
  }
  const std::shared_ptr<clique> all = forming;
  auto *const comm = new ot_nccl_comm{all, rank, shim::current_device(), false, SUCCESS, {}, {}};
  join_clique(all.get(), comm, size);
  list.changed.notify_all();
  const bool complete = wait_for_members(lock, *all);
  if (!all->refusal.empty()) return refuse(OT_NCCL_INVALID_USAGE, all->refusal);
  if (!complete) return refuse(OT_NCCL_SYSTEM_ERROR, "a rank has not called ncclCommInitRank");
  list.forming.erase(number);
  const lock_held held(shim::device().mutex);
  shim::device().communicators++;
  *out = comm;
  return SUCCESS;
}

int failure_of(ot_nccl_comm *comm, int *result) {
  const lock_held lock(shim::device().mutex);
  *result = comm->failure;
  return SUCCESS;
}

int finalize(ot_nccl_comm *comm) {
  const auto wait = [comm](lock_held &lock) {
    shim::run_until(lock, comm->last);
    return cudaSuccess;
  };
  return shim::api_call("ncclCommFinalize", wait) == cudaSuccess ? SUCCESS : CUDA_ERROR;
}

int destroy(ot_nccl_comm *comm) {
  const int result = finalize(comm);
  const lock_held lock(shim::device().mutex);
  shim::device().communicators--;
  delete comm;
  return result;
}

// Its operations end, undone; those of other ranks still wait for them.
int abort_comm(ot_nccl_comm *comm) {
  {
    const lock_held lock(shim::device().mutex);
    comm->aborted = true;
    for (const std::weak_ptr<operation> &o : comm->operations) {
      if (const auto running = o.lock()) running->aborted = true;
    }
  }
  return destroy(comm);
}

const char *describe(int result) {
  switch (result) {
    case SUCCESS:
      return "no error";
    case CUDA_ERROR:
      return "unhandled cuda error";
    case OT_NCCL_SYSTEM_ERROR:
      return "unhandled system error";
    case OT_NCCL_INVALID_ARGUMENT:
      return "invalid argument";
    case OT_NCCL_INVALID_USAGE:
      return "invalid usage";
    case OT_NCCL_REMOTE_ERROR:
      return "remote process exited or there was a network error";
    case OT_NCCL_IN_PROGRESS:
      return "NCCL operation in progress";
  }
  return "unknown result code";
}

const char *last_error(ot_nccl_comm *) { return last_error_text.c_str(); }

int tell_version(int *version) {
  *version = VERSION;
  return SUCCESS;
}

}  // namespace

extern "C" ot_status ot_nccl_open(ot_nccl_api *api) {
  const char *const chosen = getenv("OT_SHIM_NCCL");
  *api = {tell_version, make_id,    create,   begin_group, end_group,  send,     receive,
          all_gather,   failure_of, finalize, destroy,     abort_comm, describe, last_error};
  if (!chosen || strcmp(chosen, "none") != 0) return OT_OK;
  return ot_fail(OT_ENVIRONMENT, "NCCL is not found: OT_SHIM_NCCL=none");
}
