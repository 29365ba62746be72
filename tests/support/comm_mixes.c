// SPDX-License-Identifier: Apache-2.0
// Combinations of calls: groups, many at once, messages, threads; and status agreement.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/comm_cases.h"
#include "support/comm_place.h"

enum { MAX_RANKS = 64 };

// ---- groups ----

ot_status comm_groups_of_some_ranks(ot_comm *comm) {
  const int size = ot_comm_size(comm), rank = ot_comm_rank(comm);
  if (size < 4) return OT_OK;
  // Every second rank, and pairs of neighbours; the last of an odd number is in no pair.
  comm_members half = {.kind = OT_GROUP_TENSOR}, pair = {.kind = OT_GROUP_SHARD, .size = 2};
  for (int r = rank % 2; r < size; r += 2) {
    if (r == rank) half.index = half.size;
    half.ranks[half.size++] = r;
  }
  const int first = rank - rank % 2;
  pair.index = rank % 2;
  pair.ranks[0] = first;
  pair.ranks[1] = first + 1;
  OT_TRY(ot_comm_add_group(comm, half.kind, half.ranks, half.size));
  COMM_EXPECT(ot_comm_group_size(comm, half.kind) == half.size);
  COMM_EXPECT(ot_comm_group_size(comm, OT_GROUP_SHARD) == 1);
  if (first + 1 < size) OT_TRY(ot_comm_add_group(comm, pair.kind, pair.ranks, 2));
  OT_TRY(comm_join(comm));
  if (first + 1 < size) {
    OT_TRY(comm_check_kinds(comm, &pair, OT_F32, 77));
    OT_TRY(comm_check_exchange(comm, &pair, OT_F32, 11, 7));
  }
  OT_TRY(comm_check_exchange(comm, &half, OT_I32, 5, 8));
  return comm_check_kinds(comm, &half, OT_BF16, 501);
}

// ---- many at once ----

// Short calls and some long ones, which finish later than short ones started after them.
enum { MANY = 150, SHORT = 41, LONG = 2503 };

static int length_of(int i) { return i % 5 == 0 ? LONG : SHORT; }

typedef struct {
  ot_comm_request requests[MANY];
  int64_t sends[MANY][LONG], sums[MANY][LONG], workspaces[MANY][LONG + MAX_RANKS];
} many_calls;

static ot_status run_many(ot_comm *comm, many_calls *many) {
  const comm_members all = comm_world_of(comm);
  for (int i = 0; i < MANY; i++) {
    comm_values(all.index, i * LONG, length_of(i), OT_I64, many->sends[i]);
    const ot_comm_call call = {.kind = OT_COMM_ALL_REDUCE,
                               .send = many->sends[i],
                               .receive = many->sums[i],
                               .count = length_of(i),
                               .dtype = OT_I64,
                               .sum = OT_I64,
                               .workspace = many->workspaces[i],
                               .name = "many"};
    ot_comm_start(comm, &call, &many->requests[i]);
    COMM_EXPECT(many->requests[i].call.count == length_of(i));
  }
  // Each rank waits in a different order.
  for (int i = 0; i < MANY; i++) {
    const int j = (i * (all.index + 1) * 7 + all.index) % MANY;
    OT_TRY(ot_comm_wait(comm, &many->requests[j]));
    COMM_EXPECT(ot_comm_done(comm, &many->requests[j]));
  }
  for (int i = 0; i < MANY; i++) OT_TRY(ot_comm_wait(comm, &many->requests[i]));
  for (int i = 0; i < MANY; i++) {
    const ot_comm_call call = {.dtype = OT_I64, .sum = OT_I64};
    for (int e = 0; e < length_of(i); e++) {
      int64_t wanted;
      comm_expected_sum(&call, &all, i * LONG + e, NULL, &wanted);
      COMM_EXPECT(many->sums[i][e] == wanted);
    }
  }
  return OT_OK;
}

ot_status comm_many_calls_at_once(ot_comm *comm) {
  if (ot_comm_size(comm) == 1) return OT_OK;
  many_calls *const many = calloc(1, sizeof *many);
  COMM_EXPECT(many != NULL);
  const ot_status status = run_many(comm, many);
  free(many);
  return status;
}

// A call must make progress although no rank waits for it. Polling may advance it, but two polls
// are too few for a large all-reduce.
static ot_status start_and_look(ot_comm *comm, float *memory, int64_t count) {
  const ot_comm_call call = {.kind = OT_COMM_ALL_REDUCE,
                             .send = memory,
                             .receive = memory + count,
                             .workspace = memory + 2 * count,
                             .count = count,
                             .name = "background"};
  ot_comm_request request;
  ot_comm_start(comm, &call, &request);
  const struct timespec pauses[] = {{.tv_nsec = 50000000}, {.tv_sec = 3}};
  bool done = false;
  for (int i = 0; i < OT_COUNT(pauses) && !done; i++) {
    nanosleep(&pauses[i], NULL);
    done = ot_comm_done(comm, &request);
  }
  OT_TRY(ot_comm_wait(comm, &request));
  COMM_EXPECT(done);
  return OT_OK;
}

ot_status comm_progress_without_waiting(ot_comm *comm) {
  if (ot_comm_size(comm) == 1) return OT_OK;
  enum { COUNT = 100000 };
  float *const memory = calloc(3 * COUNT + MAX_RANKS, sizeof *memory);
  COMM_EXPECT(memory != NULL);
  const ot_status status = start_and_look(comm, memory, COUNT);
  free(memory);
  return status;
}

// ---- messages ----

static ot_comm_call message(ot_comm_kind kind, int peer, int tag, void *memory, int64_t count) {
  return (ot_comm_call){.kind = kind,
                        .peer = peer,
                        .tag = tag,
                        .send = kind == OT_COMM_SEND ? memory : NULL,
                        .receive = kind == OT_COMM_SEND ? NULL : memory,
                        .count = count,
                        .dtype = OT_I32,
                        .name = "message"};
}

// Every rank sends to every other before it receives; two tags, two messages per tag.
ot_status comm_messages_cross(ot_comm *comm) {
  enum { PER_PEER = 4, COUNT = 1001 };
  const int size = ot_comm_size(comm), rank = ot_comm_rank(comm);
  if (size == 1) return OT_OK;
  const int total = size * PER_PEER;
  ot_comm_request *const requests = calloc((size_t)total * 2, sizeof *requests);
  int32_t *const memory = calloc((size_t)total * 2 * COUNT, sizeof *memory);
  COMM_EXPECT(requests && memory);
  for (int i = 0; i < total; i++) {
    const int peer = i / PER_PEER, tag = i % 2 ? 32767 : 5;
    if (peer == rank) continue;
    for (int e = 0; e < COUNT; e++) memory[i * COUNT + e] = rank * 1000000 + i % PER_PEER + 10 * e;
    const ot_comm_call send = message(OT_COMM_SEND, peer, tag, memory + i * COUNT, COUNT);
    ot_comm_start(comm, &send, &requests[i]);
  }
  // Receives with the tags in reverse order.
  ot_status status = OT_OK;
  for (int i = 0; i < total && status == OT_OK; i++) {
    const int peer = i / PER_PEER, which = i % PER_PEER, tag = which < 2 ? 32767 : 5;
    if (peer == rank) continue;
    const ot_comm_call receive =
        message(OT_COMM_RECEIVE, peer, tag, memory + (total + i) * COUNT, COUNT);
    ot_comm_start(comm, &receive, &requests[total + i]);
  }
  for (int i = 0; i < 2 * total && status == OT_OK; i++) {
    if (i % total / PER_PEER != rank) status = ot_comm_wait(comm, &requests[i]);
  }
  static const int order[PER_PEER] = {1, 3, 0, 2};
  for (int i = 0; i < total && status == OT_OK; i++) {
    const int32_t *const got = memory + (total + i) * COUNT;
    if (i / PER_PEER == rank) continue;
    for (int e = 0; e < COUNT && status == OT_OK; e++) {
      const int wanted = i / PER_PEER * 1000000 + order[i % PER_PEER] + 10 * e;
      if (got[e] != wanted) status = ot_fail(OT_BUG, "message %d: %d, not %d", i, got[e], wanted);
    }
  }
  free(requests);
  free(memory);
  return status;
}

// Messages around a ring; one receive starts long before its send, one long after.
ot_status comm_messages_come_early_and_late(ot_comm *comm) {
  enum { COUNT = 60000 };
  const int size = ot_comm_size(comm), rank = ot_comm_rank(comm);
  if (size == 1) return OT_OK;
  const int next = (rank + 1) % size, last = (rank + size - 1) % size;
  int32_t *const memory = calloc(2 * COUNT, sizeof *memory);
  COMM_EXPECT(memory != NULL);
  for (int e = 0; e < COUNT; e++) memory[e] = rank + e;
  const ot_comm_call send = message(OT_COMM_SEND, next, 0, memory, COUNT);
  const ot_comm_call receive = message(OT_COMM_RECEIVE, last, 0, memory + COUNT, COUNT);
  ot_status status = OT_OK;
  for (int round = 0; round < 4 && status == OT_OK; round++) {
    ot_comm_request requests[2];
    const int first = (rank + round) % 2;
    ot_comm_start(comm, first ? &send : &receive, &requests[0]);
    if (round >= 2) status = ot_comm_run(comm, &(ot_comm_call){.kind = OT_COMM_BARRIER});
    ot_comm_start(comm, first ? &receive : &send, &requests[1]);
    if (status == OT_OK) status = ot_comm_wait(comm, &requests[1]);
    if (status == OT_OK) status = ot_comm_wait(comm, &requests[0]);
    for (int e = 0; e < COUNT && status == OT_OK; e++) {
      if (memory[COUNT + e] != last + e) status = ot_fail(OT_BUG, "element %d is wrong", e);
    }
    memset(memory + COUNT, 0, COUNT * sizeof *memory);
  }
  free(memory);
  return status;
}

// ---- several threads of a rank ----

typedef struct {
  ot_comm *comm;
  ot_group_kind group;
  ot_status status;
} lane;

static ot_status run_lane(const lane *l) {
  const int size = ot_comm_group_size(l->comm, l->group);
  for (int i = 0; i < 200; i++) {
    double sum, workspace[MAX_RANKS];
    const double one = 1.0 + i;
    const ot_comm_call call = {.kind = OT_COMM_ALL_REDUCE,
                               .group = l->group,
                               .send = &one,
                               .receive = &sum,
                               .count = 1,
                               .dtype = OT_F64,
                               .sum = OT_F64,
                               .workspace = workspace,
                               .name = "lane"};
    OT_TRY(ot_comm_run(l->comm, &call));
    COMM_EXPECT(sum == one * size);
  }
  return OT_OK;
}

static void *lane_thread(void *context) {
  lane *const l = context;
  l->status = run_lane(l);
  ot_comm_add_thread(l->comm, false);
  return NULL;
}

// Several groups with the same members; on every rank each has its own thread.
ot_status comm_threads_of_a_rank(ot_comm *comm) {
  const comm_members all = comm_world_of(comm);
  if (all.size == 1) return OT_OK;
  OT_TRY(ot_comm_add_group(comm, OT_GROUP_GATHER, all.ranks, all.size));
  OT_TRY(ot_comm_add_group(comm, OT_GROUP_REPLICATE, all.ranks, all.size));
  lane lanes[] = {{.comm = comm, .group = OT_GROUP_GATHER},
                  {.comm = comm, .group = OT_GROUP_REPLICATE}};
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) {
    ot_comm_add_thread(comm, true);
    COMM_EXPECT(pthread_create(&threads[i], NULL, lane_thread, &lanes[i]) == 0);
  }
  const ot_status status = run_lane(&(lane){.comm = comm, .group = OT_GROUP_WORLD});
  ot_comm_set_waiting(comm, true);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  ot_comm_set_waiting(comm, false);
  OT_TRY(status);
  COMM_EXPECT(lanes[0].status == OT_OK && lanes[1].status == OT_OK);
  return OT_OK;
}

// ---- byte counts and status agreement ----

ot_status comm_bytes_are_counted(ot_comm *comm) {
  const int size = ot_comm_size(comm), rank = ot_comm_rank(comm);
  if (size == 1) return OT_OK;
  enum { COUNT = 12 };
  float send[COUNT * MAX_RANKS] = {0}, receive[COUNT * MAX_RANKS], workspace[COUNT + MAX_RANKS];
  double before[OT_COMM_KINDS];
  for (int k = 0; k < OT_COMM_KINDS; k++) {
    before[k] = ot_comm_sent_bytes(comm, OT_GROUP_WORLD, (ot_comm_kind)k);
  }
  float scatter_workspace[COUNT * MAX_RANKS];
  int32_t run[MAX_RANKS][2];
  for (int i = 0; i < MAX_RANKS; i++) run[i][0] = i, run[i][1] = 1;
  const ot_comm_splits row_each = {.runs = 1, .run = run[0], .rows = MAX_RANKS};
  for (int k = 0; k < OT_COMM_KINDS; k++) {
    if (k == OT_COMM_SEND || k == OT_COMM_RECEIVE) continue;
    OT_TRY(ot_comm_run(
        comm, &(ot_comm_call){.kind = (ot_comm_kind)k,
                              .send = send,
                              .receive = receive,
                              .count = COUNT,
                              .sends = row_each,
                              .receives = row_each,
                              .workspace = k == OT_COMM_ALL_REDUCE ? workspace : scatter_workspace,
                              .name = "counted"}));
  }
  if (rank < 2) {
    const ot_comm_kind kind = rank == 0 ? OT_COMM_SEND : OT_COMM_RECEIVE;
    OT_TRY(ot_comm_run(
        comm,
        &(ot_comm_call){
            .kind = kind, .peer = 1 - rank, .send = send, .receive = receive, .count = COUNT}));
  }
  const double whole = 4.0 * COUNT;
  const double wanted[] = {
      [OT_COMM_ALL_GATHER] = whole * (size - 1),
      [OT_COMM_REDUCE_SCATTER] = whole * (size - 1),
      [OT_COMM_ALL_REDUCE] = 2.0 * whole * (size - 1) / size,
      [OT_COMM_ALL_TO_ALL] = whole * (size - 1),
      [OT_COMM_SHIFT] = whole,
      [OT_COMM_SEND] = rank == 0 ? whole : 0.0,
      [OT_COMM_RECEIVE] = 0.0,
      [OT_COMM_ALL_TO_ALL_V] = whole * (size - 1),
      [OT_COMM_BARRIER] = 0.0,
  };
  for (int k = 0; k < OT_COMM_KINDS; k++) {
    const double sent = ot_comm_sent_bytes(comm, OT_GROUP_WORLD, (ot_comm_kind)k) - before[k];
    if (sent < wanted[k] - 1e-6 || sent > wanted[k] + 1e-6) {
      return ot_fail(OT_BUG, "kind %d: %.9g bytes, not %.9g", k, sent, wanted[k]);
    }
  }
  return OT_OK;
}

static bool contains(const char *text, const char *part) { return strstr(text, part) != NULL; }

ot_status comm_ranks_agree(ot_comm *comm) {
  const int size = ot_comm_size(comm), rank = ot_comm_rank(comm);
  COMM_EXPECT(ot_comm_agree(comm, OT_OK) == OT_OK);
  if (size == 1) return OT_OK;
  // The last two ranks fail: all ranks get the message of the lower one.
  ot_status status = OT_OK;
  if (rank >= size - 2) {
    status = ot_fail(rank == size - 1 ? OT_NUMERIC : OT_ENVIRONMENT, "disk %d is full", rank);
    ot_fail_hint(status, "empty it");
  }
  COMM_EXPECT(ot_comm_agree(comm, status) == OT_ENVIRONMENT);
  char wanted[64];
  snprintf(wanted, sizeof wanted, ": disk %d is full", size - 2);
  COMM_EXPECT(contains(ot_fail_message(), wanted));
  snprintf(wanted, sizeof wanted, "rank %d on ", size - 2);
  COMM_EXPECT(strncmp(ot_fail_message(), wanted, strlen(wanted)) == 0);
  COMM_EXPECT(strcmp(ot_fail_hint_text(), "empty it") == 0);
  return ot_comm_agree(comm, OT_OK);
}

ot_status comm_values_are_compared(ot_comm *comm) {
  const int size = ot_comm_size(comm), rank = ot_comm_rank(comm);
  OT_TRY(ot_comm_check_equal(comm, OT_GROUP_WORLD, 0x123456789abcdef0u, "the plan"));
  if (size == 1) return OT_OK;
  const uint64_t value = rank == size - 1 ? 8 : 7;
  COMM_EXPECT(ot_comm_check_equal(comm, OT_GROUP_WORLD, value, "the plan") == OT_RANKS);
  char wanted[64];
  snprintf(wanted, sizeof wanted, "rank %d of group world: the plan differs", size - 1);
  COMM_EXPECT(contains(ot_fail_message(), wanted));
  return OT_OK;
}

ot_status comm_ends_know_themselves(ot_comm *comm) {
  COMM_EXPECT(ot_comm_rank(comm) >= 0 && ot_comm_rank(comm) < ot_comm_size(comm));
  COMM_EXPECT(ot_comm_local_size(comm) == ot_comm_size(comm));
  COMM_EXPECT(ot_comm_host(comm)[0] != '\0');
  COMM_EXPECT(ot_comm_group_size(comm, OT_GROUP_WORLD) == ot_comm_size(comm));
  COMM_EXPECT(ot_comm_group_size(comm, OT_GROUP_TIED) == 1);
  return OT_OK;
}

// ---- parts of a world ----

// The sum over the ranks of this rank's world of one more than their job's number.
static ot_status check_part(ot_comm *comm, int first) {
  const int64_t own = first + ot_comm_rank(comm) + 1;
  int64_t sum = 0, wanted = 0, words[64];
  const ot_comm_call call = {.kind = OT_COMM_ALL_REDUCE,
                             .send = &own,
                             .receive = &sum,
                             .count = 1,
                             .dtype = OT_I64,
                             .sum = OT_I64,
                             .workspace = words,
                             .name = "part"};
  if (ot_comm_size(comm) > 1) OT_TRY(ot_comm_run(comm, &call));
  if (ot_comm_size(comm) == 1) sum = own;
  for (int i = 0; i < ot_comm_size(comm); i++) wanted += first + i + 1;
  COMM_EXPECT(sum == wanted);
  // The failure of one part is not agreed upon in the other.
  const bool fails = first > 0 && ot_comm_rank(comm) == 0;
  const ot_status agreed = ot_comm_agree(comm, fails ? ot_fail(OT_USAGE, "no part") : OT_OK);
  COMM_EXPECT(agreed == (first > 0 ? OT_USAGE : OT_OK));
  return ot_comm_agree(comm, OT_OK);
}

ot_status comm_the_world_is_divided(ot_comm *comm) {
  const int size = ot_comm_size(comm), rank = ot_comm_rank(comm);
  const int first = (size + 1) / 2, begin = rank < first ? 0 : first;
  if (size == 1) return OT_OK;
  OT_TRY(ot_comm_divide(comm, first));
  COMM_EXPECT(ot_comm_rank(comm) == rank - begin);
  COMM_EXPECT(ot_comm_size(comm) == (begin == 0 ? first : size - first));
  COMM_EXPECT(ot_comm_group_size(comm, OT_GROUP_JOB) == size);
  OT_TRY(check_part(comm, begin));
  // From the first rank of the job to its last, which counts otherwise in its part.
  int32_t word = rank == 0 ? 17 : 0;
  const ot_comm_call call = {.kind = rank == 0 ? OT_COMM_SEND : OT_COMM_RECEIVE,
                             .group = OT_GROUP_JOB,
                             .peer = rank == 0 ? size - 1 : 0,
                             .send = &word,
                             .receive = &word,
                             .count = 1,
                             .dtype = OT_I32,
                             .name = "across"};
  if (rank == 0 || rank == size - 1) OT_TRY(ot_comm_run(comm, &call));
  COMM_EXPECT(word == (rank == 0 || rank == size - 1 ? 17 : 0));
  return ot_comm_agree(comm, OT_OK);
}
