// SPDX-License-Identifier: Apache-2.0
// Interpreter 2: runs a schedule. Only this code launches kernels and collectives. It sees the
// schedule, a device and, on several ranks, a communicator; never the model, the mesh or the plan.
// All memory is one arena, allocated once at the offsets that the schedule gives; a step allocates
// nothing.
//
//   calling thread       walks the order: runs compute entries, starts messages, queues the rest
//   lane gather, reduce  one thread each, where an order has entries for it: runs queued entries in
//                        order, each after its dependencies
//   lane tensor          collectives inside compute entries: started by the calling thread, which
//                        goes on; completed by the first task that waits for them, the next one on
//                        the lane, the end of a loop iteration, or the end of the entry
//   lane pipeline        point-to-point messages: started by the calling thread, completed by the
//                        first entry that waits for them or at the end of the run
//
// An entry starts when the calling thread reaches it and its dependencies are done.
#pragma once

#include "comm/comm.h"
#include "ops/initial_draw.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"

typedef struct ot_executor ot_executor;

// Does the publish tasks, on the thread of their lane: gives the weights of a block to generators.
// All ranks call it for the same blocks in the same order, so it may communicate in the world; it
// may read the arena.
typedef struct ot_executor_publish {
  ot_status (*call)(void *context, int block);
  void *context;
} ot_executor_publish;

typedef struct ot_executor_options {
  int ordinal;    // device of the schedule's back end, of this machine
  ot_comm *comm;  // this rank in the world, with the schedule's groups; null: one rank
  const ot_executor_publish *publish;  // required by runs of OT_ORDER_PUBLISH; kept
  bool overlap;                        // false: wait at once for everything but messages; same bits
  bool poison;     // tests: fill dead memory with NaN, check canaries after every buffer; without
                   // overlap, so that memory dead on one lane is dead on all
  bool trace;      // record a timeline on each run
  bool no_graphs;  // on a GPU: queue kernel by kernel; same bits
  bool events;     // on a GPU: the timeline is from events, which takes microseconds a task
} ot_executor_options;

// Creates the groups of `schedule` that `comm` lacks and, for a schedule of GPUs, makes its calls
// ready on GPU `ordinal` (ot_comm_use_device). OT_RANKS, naming the ranks that differ, if the world
// is not the schedule's or the members of a group would run different collectives. Collective over
// the world. Blocks.
ot_status ot_executor_join(const ot_schedule *schedule, ot_comm *comm, int ordinal);

// Allocates the arena, binds a kernel to every task (or names the op that lacks one for the
// schedule's dtype) and starts the lane threads. Keeps `schedule` and `comm` until destroy. Runs
// the setup order if there is one. OT_RANKS if `comm` lacks a group that a task uses.
ot_status ot_executor_create(const ot_schedule *schedule, const ot_executor_options *options,
                             ot_executor **executor);
void ot_executor_destroy(ot_executor **executor);

// Runs order `order` of the schedule. If a communication fails on any lane, all lanes stop and the
// call returns the failure with its entry and task; the executor can then only be destroyed.
// Collective over the groups of the order. Blocks until the order is done.
ot_status ot_executor_run(ot_executor *executor, int order);

// From now on every run calls `call` before its first entry of `phase`, on the calling thread,
// after all earlier compute entries; null: no more calls. The callback may read the arena except
// where work in flight on other lanes writes it.
typedef struct ot_executor_pause {
  ot_phase phase;
  void (*call)(void *context);
  void *context;
} ot_executor_pause;
void ot_executor_set_pause(ot_executor *executor, const ot_executor_pause *pause);

// From now on runs of a step ask `asks` before each kernel, on the calling thread. Once it says
// yes, the rest of the step is not computed (execute/leave.h): its gradient norm is NaN on all
// ranks, and no rank updates anything; weights, moments and masters are those of the step before.
// Work that is queued on a GPU still runs. Ranks may stop at different places, or some never.
typedef struct ot_executor_leave {
  bool (*asks)(void *context);
  void *context;
  struct ot_progress *progress;  // where kernels are marked while they run; null: nowhere
} ot_executor_leave;
void ot_executor_set_leave(ot_executor *executor, const ot_executor_leave *leave);
// Whether this rank left the last run.
bool ot_executor_has_left(const ot_executor *executor);

// Host access to the arena between runs; [offset, offset + bytes) must lie inside. The next run
// returns the failure of a copy.
void ot_executor_write(ot_executor *executor, int64_t offset, const void *from, int64_t bytes);
void ot_executor_read(const ot_executor *executor, int64_t offset, void *to, int64_t bytes);
void ot_executor_fill(ot_executor *executor, int64_t offset, unsigned char byte, int64_t bytes);
// Draws initial weights into the arena, on its device.
void ot_executor_draw(ot_executor *executor, const ot_initial_draw *draw);

// The arena if it is host memory, else null. Valid until destroy; a run changes it.
const char *ot_executor_host_memory(const ot_executor *executor);

// Calls of ot_executor_read and ot_executor_write since create, those of loops in a run included.
typedef struct ot_executor_transfers {
  int64_t reads, writes;
} ot_executor_transfers;
ot_executor_transfers ot_executor_count_transfers(const ot_executor *executor);

// The memory of the device: see ot_device_memory.
ot_status ot_executor_device_memory(const ot_executor *executor, int64_t *free_bytes,
                                    int64_t *total_bytes);

// Runs of kernels that became CUDA graphs, and those that could not be captured.
typedef struct ot_executor_graphs {
  int captured, refused;
} ot_executor_graphs;
ot_executor_graphs ot_executor_count_graphs(const ot_executor *executor);

// See ot_kernel_algorithms_print and ot_kernel_algorithms_read.
const char *ot_executor_print_algorithms(const ot_executor *executor, ot_arena *arena);
const char *ot_executor_read_algorithms(ot_executor *executor, const char *text, ot_arena *arena);

// See ot_kernel_algorithms_refused.
void ot_executor_refused_algorithms(const ot_executor *executor, int *own, int *replaced);

double ot_executor_scalar(const ot_executor *executor, ot_step_scalar scalar);
void ot_executor_set_scalar(ot_executor *executor, ot_step_scalar scalar, double value);

// The timeline of the last run with `trace`, spans of all lanes sorted by start; null without
// `trace`. On a GPU it has no spans without options.events: the host clock does not
// know when kernels run.
const ot_timeline *ot_executor_timeline(const ot_executor *executor);
void ot_executor_set_trace(ot_executor *executor, bool on);

// On a GPU, from now on timelines of runs are from events, or have no spans; on the CPU they are
// always from the clock. Not during a run.
ot_status ot_executor_set_events(ot_executor *executor, bool on);

// Highest byte of the arena ever written, plus one (with `poison`).
int64_t ot_executor_touched_bytes(const ot_executor *executor);
