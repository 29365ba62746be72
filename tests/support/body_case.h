// SPDX-License-Identifier: Apache-2.0
// A small hand-written program with a loop, lowered into a schedule of three instructions: load x,
// run the program, store y. Tests of loop bodies inspect and run it.
//
//   h = 2x;  a0 = h^T x;  dw = h^T x
//   repeat   t = h + x; on many ranks t = all-reduce(t); u = 2x; t2 = t + u;  a += t2^T x;
//            dw += t2^T x
//   y = 2a
#pragma once

#include "comm/comm.h"
#include "execute/execute.h"
#include "graph/graph.h"
#include "host/heap.h"
#include "schedule/segment.h"

enum {
  BODY_ROWS = 6,
  BODY_COLUMNS = 4,
  BODY_MAX_RANKS = 3,
  BODY_MAX_VALUES = 16,
  BODY_MAX_OPS = 16
};

// Indices of the values and ops of the program.
typedef enum body_value {
  BODY_X,
  BODY_LENGTHS,
  BODY_H,
  BODY_A0,
  BODY_A,
  BODY_B,
  BODY_ROUND,
  BODY_T,
  BODY_S,
  BODY_U,
  BODY_T2,
  BODY_Y,
  BODY_DW,
  BODY_VALUES,
} body_value;

typedef struct body_case {
  ot_heap heap;
  ot_arena arena;
  int rank, ranks;
  ot_graph graph;
  ot_block block;
  ot_parameter parameter;
  ot_program program;
  int repeat;  // index of the loop op
  ot_storage storage;
  ot_segment segments[3];
  ot_entry entries[3];
  ot_order order;
  ot_region regions[3];
  int members[BODY_MAX_RANKS];
  ot_schedule schedule;
  int64_t x_at, lengths_at, y_at, dw_at;  // byte offsets in the arena
} body_case;

// Builds the program alone, so that a test can change it.
void body_case_begin(body_case *c, int rank, int ranks);
// Builds storage, segments and schedule.
void body_case_lower(body_case *c);
void body_case_destroy(body_case *c);

// The task of the body segment for op number `number` of kind `kind` in the program.
const ot_task *body_case_task(const body_case *c, ot_op_kind kind, int number);

typedef struct body_run {
  int ranks, rounds;
  bool overlap, poison;
  double y[BODY_MAX_RANKS][BODY_COLUMNS * BODY_COLUMNS];
  double dw[BODY_MAX_RANKS][BODY_COLUMNS * BODY_COLUMNS];
} body_run;

// Runs the schedules of all ranks, one thread per rank; fails the test if one fails.
void body_run_schedules(body_run *game);

// Fails the test unless y and dw match the formulas above.
void body_run_expect(const body_run *game);
