// SPDX-License-Identifier: Apache-2.0
// Interpreter 2: runs a schedule. The only place that launches kernels and collectives. It sees the
// schedule, a device and, on many ranks, a communicator; not the model, the mesh or the plan.
// All memory is one arena, taken once, at the offsets the schedule says; a step allocates nothing.
#pragma once

#include "device/device.h"
#include "schedule/schedule.h"

typedef struct ot_executor ot_executor;

typedef struct ot_executor_options {
  bool poison;  // tests: fill dead memory with NaN patterns, check canaries behind every buffer
  bool trace;   // fill a timeline on each run
} ot_executor_options;

// Takes the arena and binds a kernel to every task, or names the op that has none for the
// schedule's type. Keeps `schedule` until destroy. Runs the setup order when there is one.
ot_status ot_executor_create(const ot_schedule *schedule, const ot_executor_options *options,
                             ot_executor **executor);
void ot_executor_destroy(ot_executor **executor);

// Plays order `order` of the schedule. Blocks until it is done.
ot_status ot_executor_run(ot_executor *executor, int order);

// Host access to the arena between runs; [offset, offset + bytes) must lie inside.
void ot_executor_write(ot_executor *executor, int64_t offset, const void *from, int64_t bytes);
void ot_executor_read(const ot_executor *executor, int64_t offset, void *to, int64_t bytes);
void ot_executor_fill(ot_executor *executor, int64_t offset, unsigned char byte, int64_t bytes);

double ot_executor_scalar(const ot_executor *executor, ot_step_scalar scalar);
void ot_executor_set_scalar(ot_executor *executor, ot_step_scalar scalar, double value);

// The timeline of the last run with `trace` on; null when it is off.
const ot_timeline *ot_executor_timeline(const ot_executor *executor);
void ot_executor_set_trace(ot_executor *executor, bool on);

// Highest byte of the arena that was ever written, plus one (with `poison`).
int64_t ot_executor_touched_bytes(const ot_executor *executor);
