// SPDX-License-Identifier: Apache-2.0
// Pipeline schedules: the order in which each stage runs its forwards and backwards, as lists of
// actions from formulas (docs name the papers) or from a file. Independent of blocks, memory and
// messages.
#pragma once

#include "base/arena.h"
#include "base/status.h"
#include "describe/run.h"

typedef enum ot_action_kind {
  OT_ACTION_FORWARD,   // F
  OT_ACTION_INPUT,     // I: gradients of inputs ("B" in papers that split the backward)
  OT_ACTION_WEIGHT,    // W: gradients of weights
  OT_ACTION_BACKWARD,  // I and W together
  OT_ACTIONS,
} ot_action_kind;

// Kind of work of a micro-batch, for counting actions. B counts as I.
typedef enum ot_work {
  OT_WORK_FORWARD,
  OT_WORK_BACKWARD,  // B or I
  OT_WORK_WEIGHT,
  OT_WORKS,
} ot_work;

typedef struct ot_action {
  ot_action_kind kind;
  int chunk;  // in the whole model, [0, num_chunks)
  int micro_batch;
  bool paired;  // an F that runs together with the I and W, or the B, that follow it
} ot_action;

typedef struct ot_pipeline_schedule {
  int num_ranks, num_chunks, micro_batches;
  const int *rank_of;   // [num_chunks] as ot_stages
  bool split;           // I and W are separate
  int *num_actions;     // [num_ranks]
  ot_action **actions;  // [num_ranks][num_actions]
} ot_pipeline_schedule;

typedef struct ot_pipeline_request {
  ot_pipeline kind;
  int num_ranks, num_chunks, micro_batches;
  const int *rank_of;  // kept
  bool pairs;          // interleaved, and 1F1B on one rank: each forward runs together with the
                       // backward of an earlier micro-batch, and is one action earlier for it
  const char *csv;     // text of a schedule file, or null; if set, `kind` is ignored
} ot_pipeline_request;

// A pipeline schedule file has one line per rank with entries separated by commas: chunk, F, I, W
// or B, micro-batch (2F0, 1I3), a pair that runs together ((0F1;3B0)OVERLAP_F_B), or an empty
// entry for a bubble. If any rank has I or W, a B means I directly followed by W.
// torch.distributed.pipelining writes and reads such files.

// Builds and checks a schedule. GPipe, 1F1B and interleaved run I and W together, the zb schedules
// and dualpipe-v separately. One rank runs any number of chunks: each micro-batch forward and back
// before the next one (gpipe: all forwards first). OT_USAGE names the nearest valid numbers if a
// schedule is invalid for the number of micro-batches or chunks.
ot_status ot_pipeline_schedule_build(const ot_pipeline_request *request, ot_arena *arena,
                                     ot_pipeline_schedule *out);

// Checks: every action of every (chunk, micro-batch) once and on its rank; F, I and W of a chunk
// sorted by micro-batch; no deadlock. Names the first action that breaks a rule.
ot_status ot_pipeline_schedule_check(const ot_pipeline_schedule *order, ot_arena *arena);

// The schedule as such a file, without bubbles.
const char *ot_pipeline_schedule_print(const ot_pipeline_schedule *order, ot_arena *arena);

// F, I, W or B.
char ot_action_letter(ot_action_kind kind);

ot_work ot_action_work(ot_action_kind kind);

// Dependencies of `action`, regardless of its rank's earlier actions: at most two. Returns their
// number.
int ot_action_needs(const ot_pipeline_schedule *order, const ot_action *action, ot_action needs[2]);
