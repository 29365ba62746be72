// SPDX-License-Identifier: Apache-2.0
// Interpreter 2: runs a schedule. The only place that launches kernels and collectives. It sees the
// schedule, a device and, on many ranks, a communicator; not the model, the mesh or the plan.
// All memory is one arena, taken once, at the offsets the schedule says; a step allocates nothing.
//
//   the calling thread   walks the order: runs compute entries, starts messages, pushes the rest
//   lane gather, reduce  a thread each, where an order has entries for it: takes what is pushed in
//                        order, waits for what it waits for, runs kernels and collectives
//   lane tensor          collectives inside compute entries: started by the walk, under way while
//                        it goes on, ended by the first task that waits for them, the next one on
//                        the lane, the end of a round of a body, or the end of the entry
//   lane pipeline        messages: started by the walk, ended by the first entry that waits for
//                        them or the end of the run
//
// An entry starts when the walk has come to it and what it waits for is done.
#pragma once

#include "comm/comm.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"

typedef struct ot_executor ot_executor;

typedef struct ot_executor_options {
  ot_comm *comm;  // this rank's end of the world with the schedule's groups; null: one rank
  bool overlap;   // false: the walk waits at once for whatever it starts but messages; same bits
  bool poison;    // tests: fill dead memory with NaN patterns, check canaries behind every buffer;
                  // without overlap, so that what is dead on one lane is dead
  bool trace;     // fill a timeline on each run
} ot_executor_options;

// Makes the groups of `schedule` that `comm` does not have yet. OT_RANKS when the world is not the
// schedule's, or when the members of a group would carry out different collectives, naming the
// ranks that differ. Collective over the world. Blocks.
ot_status ot_executor_join(const ot_schedule *schedule, ot_comm *comm);

// Takes the arena and binds a kernel to every task, or names the op that has none for the
// schedule's type; starts the threads of the lanes. Keeps `schedule` and `comm` until destroy. Runs
// the setup order when there is one. OT_RANKS when `comm` lacks a group that a task is among.
ot_status ot_executor_create(const ot_schedule *schedule, const ot_executor_options *options,
                             ot_executor **executor);
void ot_executor_destroy(ot_executor **executor);

// Replays order `order` of the schedule. When a communication fails on any lane, all lanes stop and
// the failure comes back with the entry and the task that met it; the executor can then be
// destroyed but not run again. Collective over the groups of the order. Blocks until it is done.
ot_status ot_executor_run(ot_executor *executor, int order);

// From now on every run calls `call` before its first entry of `phase`, on the thread that walks
// the order, with all earlier compute entries done; null: no more. The arena may be read there, as
// far as nothing that is under way on other lanes writes it.
typedef struct ot_executor_pause {
  ot_phase phase;
  void (*call)(void *context);
  void *context;
} ot_executor_pause;
void ot_executor_set_pause(ot_executor *executor, const ot_executor_pause *pause);

// Host access to the arena between runs; [offset, offset + bytes) must lie inside.
void ot_executor_write(ot_executor *executor, int64_t offset, const void *from, int64_t bytes);
void ot_executor_read(const ot_executor *executor, int64_t offset, void *to, int64_t bytes);
void ot_executor_fill(ot_executor *executor, int64_t offset, unsigned char byte, int64_t bytes);

double ot_executor_scalar(const ot_executor *executor, ot_step_scalar scalar);
void ot_executor_set_scalar(ot_executor *executor, ot_step_scalar scalar, double value);

// The timeline of the last run with `trace` on, spans of all lanes by their start; null when it is
// off.
const ot_timeline *ot_executor_timeline(const ot_executor *executor);
void ot_executor_set_trace(ot_executor *executor, bool on);

// Highest byte of the arena that was ever written, plus one (with `poison`).
int64_t ot_executor_touched_bytes(const ot_executor *executor);
