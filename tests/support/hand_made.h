// SPDX-License-Identifier: Apache-2.0
// Small schedules written by hand, task by task, for ranks that are threads; tests of the executor
// run them. All buffers are float64 vectors of HAND_N equal elements at slots 0, 1, 2, ... of one
// arena. Collectives use groups of all ranks.
#pragma once

#include "comm/comm.h"
#include "execute/execute.h"
#include "host/heap.h"

enum {
  HAND_N = 48,  // divisible by 2, 3, 4
  HAND_PLACES = 160,
  HAND_INPUTS = 8,  // slots [0, HAND_INPUTS) are filled before a run; the others hold NaN
  HAND_KEPT = 56,   // slots [0, HAND_KEPT): a guard keeps them after their last read
  HAND_ENTRIES = 64,
  HAND_TASKS = 8,     // per instruction
  HAND_COUNTER = 54,  // slot whose first bytes hold the current iteration of the loop
  HAND_MAX_RANKS = 4,
};

typedef struct hand_made {
  ot_heap heap;
  ot_arena arena;
  ot_schedule schedule;
  ot_order order;
  ot_entry entries[HAND_ENTRIES];  // instruction i runs segment i
  ot_segment segments[HAND_ENTRIES];
  ot_task tasks[HAND_ENTRIES][HAND_TASKS];
  ot_region regions[2];
  int ranks[HAND_MAX_RANKS];
} hand_made;

// An empty schedule of rank `rank` of `ranks`. With more than one rank it has the groups world,
// tensor, stages, gather and shard.
void hand_create(hand_made *h, int rank, int ranks);
void hand_destroy(hand_made *h);

// Appends an instruction without tasks and waits; returns its index.
int hand_entry(hand_made *h, ot_lane lane, const char *name);
// Instruction `entry` waits for `other` on the lane of `other`; no wait if `other` is negative.
void hand_wait(hand_made *h, int entry, int other);

// Append a task to an instruction and return its index. Operands are slots.
int hand_add(hand_made *h, int entry, int a, int b, int sum);
// A slow kernel (about 0.1 ms) that accesses no slot.
int hand_delay(hand_made *h, int entry);
int hand_all_reduce(hand_made *h, int entry, ot_group_kind group, int from, int to);
int hand_send(hand_made *h, int entry, int from, int peer, int tag);
int hand_receive(hand_made *h, int entry, int to, int peer, int tag);
// A loop whose body is the `repeated` tasks appended next.
int hand_repeat(hand_made *h, int entry, int repeated);
// Moves the last appended task to the tensor lane, or makes it wait for task `other`.
void hand_on_tensor_lane(hand_made *h, int entry);
void hand_task_waits(hand_made *h, int entry, int other);

// ---- runs on threads ----

typedef struct hand_run {
  // Input, set by the test.
  int ranks;
  bool overlap, poison;
  int times;   // number of runs; 0: one
  int rounds;  // iterations of loops
  int leaves;  // 1 + the rank that fails with OT_NUMERIC instead of running; 0: none
  ot_status (*write)(hand_made *h, const void *context);  // builds a rank's schedule on its thread
  const void *context;
  // Each rank calls it before run `time`, and after the last run with time = number of runs; or
  // null.
  ot_status (*before)(ot_comm *comm, int time);
  // Results.
  ot_status status[HAND_MAX_RANKS];  // of each rank
  char message[HAND_MAX_RANKS][2048];
  double places[HAND_MAX_RANKS][HAND_PLACES];  // NaN if the elements differ
  int counter[HAND_MAX_RANKS];                 // last iteration that ran; -1: none
  int num_spans[HAND_MAX_RANKS];               // of the last run
  ot_span spans[HAND_MAX_RANKS][HAND_ENTRIES * HAND_TASKS];
} hand_run;

// Value that fills input slot `place` of `rank` before each run.
double hand_input(int rank, int place);

// Runs on `game->ranks` threads. Returns the status and sets the message on which the ranks agreed.
ot_status hand_run_ranks(hand_run *game);

// The same; fails the test with the message on an error.
void hand_run_expect_ok(hand_run *game);

// The span of a task in the last run of `rank`; fails the test unless there is exactly one.
const ot_span *hand_span(const hand_run *game, int rank, int entry, int task);
