// SPDX-License-Identifier: Apache-2.0
// Where each value of a program lives while its segments run: in the slot when the backward finds
// it kept, else in scratch laid out by lifetimes. One choice for F, R, B (or I and W) together, so
// that the segments agree. A value that is emitted again has two instances: one made by F, one by
// R.
#pragma once

#include "graph/program.h"
#include "graph/recompute.h"
#include "schedule/schedule.h"

typedef enum ot_side { OT_SIDE_FORWARD, OT_SIDE_BACKWARD, OT_SIDES } ot_side;

// Groups of segments that run back to back and share one scratch layout.
typedef enum ot_scratch_group {
  OT_SCRATCH_FORWARD,   // F
  OT_SCRATCH_BACKWARD,  // R and B, or R and I
  OT_SCRATCH_WEIGHT,    // W when it is apart from I
  OT_SCRATCH_GROUPS,
} ot_scratch_group;

// How long a kept value lives; each has a slot of its own, a base of its own.
typedef enum ot_slot_class {
  OT_SLOT_SHORT,   // F to the end of I (of B)
  OT_SLOT_LONG,    // F to the end of W
  OT_SLOT_WEIGHT,  // I to the end of W
  OT_SLOT_CLASSES,
} ot_slot_class;

// One op of one segment. Collectives stand where they are started, as early as their operands
// allow: kernels between them and their first reader run beside them.
typedef struct ot_storage_run {
  int op;
  ot_phase phase;  // FORWARD, RECOMPUTE, INPUT, BACKWARD or WEIGHT
  ot_side side;
  ot_scratch_group group;
  int end;  // run before which what it reads and writes is not free again: its own place, for a
            // collective that of its first reader, at the latest of the last run of its body
} ot_storage_run;

typedef struct ot_place {
  ot_base base;
  int64_t offset;
} ot_place;

typedef struct ot_storage {
  const ot_program *program;
  ot_recompute_set set;
  bool split;  // I and W are segments of their own
  int num_runs;
  ot_storage_run *runs;          // [num_runs] F, R, I and W in the order in which they run
  ot_place *place[OT_SIDES];     // [num_values] instance of a value made by F, and by the backward
  int64_t *workspace[OT_SIDES];  // [num_ops] offset in scratch of an op's workspace
  int64_t slot_bytes[OT_SLOT_CLASSES];
  int64_t scratch_bytes[OT_SCRATCH_GROUPS];
} ot_storage;

typedef struct ot_storage_request {
  const ot_program *program;
  ot_recompute recompute;
  bool split;
  int64_t guard_bytes;
} ot_storage_request;

void ot_storage_build(const ot_storage_request *request, ot_arena *arena, ot_storage *storage);

// Where the operand `value` of an op on `side` lies.
ot_place ot_storage_place(const ot_storage *storage, int value, ot_side side);
