// SPDX-License-Identifier: Apache-2.0
// Storage of each value of a program while its segments run: a saved-activation slot if the
// backward reads it, else scratch laid out by lifetimes. Assigned for F, R, B (or I and W)
// together, so that the segments agree. A recomputed value has two instances: one made by F, one by
// R.
#pragma once

#include "graph/program.h"
#include "graph/recompute.h"
#include "schedule/schedule.h"

typedef enum ot_side { OT_SIDE_FORWARD, OT_SIDE_BACKWARD, OT_SIDES } ot_side;

// Groups of consecutive segments that share one scratch layout.
typedef enum ot_scratch_group {
  OT_SCRATCH_FORWARD,   // F
  OT_SCRATCH_BACKWARD,  // R and B, or R and I
  OT_SCRATCH_WEIGHT,    // W if separate from I
  OT_SCRATCH_GROUPS,
} ot_scratch_group;

// Lifetime of a saved value; each class has its own slot and base.
typedef enum ot_slot_class {
  OT_SLOT_SHORT,   // F to the end of I (of B)
  OT_SLOT_LONG,    // F to the end of W
  OT_SLOT_WEIGHT,  // I to the end of W
  OT_SLOT_CLASSES,
} ot_slot_class;

// One op of one segment. Collectives are listed where they start, as early as their operands allow:
// kernels between them and their first reader run concurrently.
typedef struct ot_storage_run {
  int op;
  ot_phase phase;  // FORWARD, RECOMPUTE, INPUT, BACKWARD or WEIGHT
  ot_side side;
  ot_scratch_group group;
  int end;  // last run during which its operands stay allocated: its own, for a collective that of
            // its first reader, at the latest the last run of its loop body
} ot_storage_run;

typedef struct ot_place {
  ot_base base;
  int64_t offset;
} ot_place;

typedef struct ot_storage {
  const ot_program *program;  // of the set
  ot_recompute_set set;
  bool split;  // I and W are separate segments
  int num_runs;
  ot_storage_run *runs;          // [num_runs] F, R, I and W in execution order
  ot_place *place[OT_SIDES];     // [num_values] instances of a value: F's, the backward's
  int64_t *workspace[OT_SIDES];  // [num_ops] offset in scratch of an op's workspace
  int64_t slot_bytes[OT_SLOT_CLASSES];
  int64_t scratch_bytes[OT_SCRATCH_GROUPS];
} ot_storage;

typedef struct ot_storage_request {
  const ot_program *program;
  ot_recompute_policy recompute;
  bool split;
  int64_t guard_bytes;
} ot_storage_request;

void ot_storage_build(const ot_storage_request *request, ot_arena *arena, ot_storage *storage);

// Location of the operand `value` of an op on `side`.
ot_place ot_storage_place(const ot_storage *storage, int value, ot_side side);
