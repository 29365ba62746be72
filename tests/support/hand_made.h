// SPDX-License-Identifier: Apache-2.0
// Small schedules written by hand, task by task, for ranks that are threads: what tests of the
// executor play. All buffers are float64 vectors of HAND_N equal elements, at places 0, 1, 2, ...
// of one arena; collectives are over groups of all ranks.
#pragma once

#include "comm/comm.h"
#include "execute/execute.h"
#include "host/heap.h"

enum {
  HAND_N = 48,  // divisible by 2, 3, 4
  HAND_PLACES = 160,
  HAND_INPUTS = 8,  // places [0, HAND_INPUTS) are filled before a run, the others hold NaN
  HAND_KEPT = 56,   // places [0, HAND_KEPT) are kept by a guard when nobody reads them any more
  HAND_ENTRIES = 64,
  HAND_TASKS = 8,     // of an entry
  HAND_COUNTER = 54,  // place whose first bytes are the round that is run
  HAND_MAX_RANKS = 4,
};

typedef struct hand_made {
  ot_heap heap;
  ot_arena arena;
  ot_schedule schedule;
  ot_order order;
  ot_entry entries[HAND_ENTRIES];  // entry i plays segment i
  ot_segment segments[HAND_ENTRIES];
  ot_task tasks[HAND_ENTRIES][HAND_TASKS];
  ot_region regions[2];
  int ranks[HAND_MAX_RANKS];
} hand_made;

// An empty schedule of rank `rank` of `ranks`, which has the groups world, tensor, stages, gather
// and shard when there is more than one.
void hand_create(hand_made *h, int rank, int ranks);
void hand_destroy(hand_made *h);

// Appends an entry without tasks and waits; returns its index.
int hand_entry(hand_made *h, ot_lane lane, const char *name);
// It waits for `other`, on the lane of that; for nothing when `other` is negative.
void hand_wait(hand_made *h, int entry, int other);

// Append a task to an entry and return its index. Places are buffers.
int hand_add(hand_made *h, int entry, int a, int b, int sum);
// A kernel that takes long (a tenth of a millisecond or so) and touches no place.
int hand_delay(hand_made *h, int entry);
int hand_all_reduce(hand_made *h, int entry, ot_group_kind group, int from, int to);
int hand_send(hand_made *h, int entry, int from, int peer, int tag);
int hand_receive(hand_made *h, int entry, int to, int peer, int tag);
// Its body are the `repeated` tasks appended next.
int hand_repeat(hand_made *h, int entry, int repeated);
// The task last appended stands on the tensor lane, or waits for task `other`.
void hand_on_tensor_lane(hand_made *h, int entry);
void hand_task_waits(hand_made *h, int entry, int other);

// ---- playing on threads ----

typedef struct hand_game {
  // What is played; set by the test.
  int ranks;
  bool overlap, poison;
  int times;   // that the order is played; 0: once
  int rounds;  // of repeats
  int leaves;  // 1 + the rank that fails with OT_NUMERIC instead of playing; 0: none
  ot_status (*write)(hand_made *h, const void *context);  // a rank's schedule; runs on its thread
  const void *context;
  // Called by each rank before run `time` and, with the number of runs, behind the last; or null.
  ot_status (*before)(ot_comm *comm, int time);
  // What came out of it.
  ot_status status[HAND_MAX_RANKS];  // of each rank
  char message[HAND_MAX_RANKS][2048];
  double places[HAND_MAX_RANKS][HAND_PLACES];  // NaN where the elements differ
  int counter[HAND_MAX_RANKS];                 // the last round that was run, -1: none
  int num_spans[HAND_MAX_RANKS];               // of the last run
  ot_span spans[HAND_MAX_RANKS][HAND_ENTRIES * HAND_TASKS];
} hand_game;

// What input place `place` of `rank` is filled with before each run.
double hand_input(int rank, int place);

// Plays on `game->ranks` threads. Returns and leaves as message what the ranks ended with together.
ot_status hand_play(hand_game *game);

// The same, and fails the test with the message when it fails.
void hand_play_well(hand_game *game);

// The span of a task in the last run of `rank`; fails the test unless there is exactly one.
const ot_span *hand_span(const hand_game *game, int rank, int entry, int task);
