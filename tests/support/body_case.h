// SPDX-License-Identifier: Apache-2.0
// A small program with a repeat, written by hand, lowered and put into a schedule of three entries:
// x comes in, the program runs, y is handed out. What tests of bodies look at and play.
//
//   h = 2x;  a0 = h^T x;  dw = h^T x
//   repeat   t = h + x; on many ranks t = their sum; u = 2x; t2 = t + u;  a += t2^T x;  dw += t2^T
//   x y = 2a
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

// Values and ops of the program by number.
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
  int repeat;  // op
  ot_storage storage;
  ot_segment segments[3];
  ot_entry entries[3];
  ot_order order;
  ot_region regions[3];
  int members[BODY_MAX_RANKS];
  ot_schedule schedule;
  int64_t x_at, lengths_at, y_at, dw_at;  // bytes in the arena
} body_case;

// The program alone, so that a test can change it.
void body_case_begin(body_case *c, int rank, int ranks);
// Storage, segments, schedule.
void body_case_lower(body_case *c);
void body_case_destroy(body_case *c);

// The task of the body's segment that is op `op` of the program, in the order of tasks.
const ot_task *body_case_task(const body_case *c, ot_op_kind kind, int number);

typedef struct body_game {
  int ranks, rounds;
  bool overlap, poison;
  double y[BODY_MAX_RANKS][BODY_COLUMNS * BODY_COLUMNS];
  double dw[BODY_MAX_RANKS][BODY_COLUMNS * BODY_COLUMNS];
} body_game;

// Plays the schedules of all ranks, each on a thread; fails the test when one fails.
void body_game_play(body_game *game);

// Fails the test unless y and dw are what the formulas above say.
void body_game_expect(const body_game *game);
