// SPDX-License-Identifier: Apache-2.0
// The distinct compute tasks of a step, by op and operands: how often each runs, what it costs, how
// long it took and how long the simulator expects it to take.
#pragma once

#include "base/json_writer.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/price.h"
#include "support/bench_op.h"

typedef struct ot_bench_row {
  const char *key;      // "linear bf16[16,8] bf16[8,8] -> bf16[16,8]"
  const ot_task *task;  // the first of them
  int64_t count;        // in the order
  double step_s;        // of all of them, in a traced step; 0: not measured
  double alone_s;       // of one; 0: not measured
  double predicted_s;   // of one; 0: not predicted
  const char *error;    // it could not be measured; null: it could
  int same_bits;        // 1: two runs gave equal bits, 0: not, -1: not tested
} ot_bench_row;

typedef struct ot_bench_rows {
  int num_rows, capacity;
  ot_bench_row *rows;
  const ot_schedule *schedule;
  int order;
  ot_arena *arena;
} ot_bench_rows;

// The rows of order `order`, in the order of their first run. Rows refer to `schedule`.
void ot_bench_rows_build(const ot_schedule *schedule, int order, ot_arena *arena,
                         ot_bench_rows *out);

// Adds the times of a traced run of the order.
void ot_bench_rows_add(ot_bench_rows *rows, const ot_timeline *timeline);

// Fills predicted_s.
ot_status ot_bench_rows_predict(ot_bench_rows *rows, const ot_simulation *simulation);

// The row's op for bench_op.h.
ot_bench_op ot_bench_row_op(const ot_bench_row *row);

// True if any values of its integer operands are valid and define all its outputs.
bool ot_bench_row_independent(const ot_bench_row *row);

// An array `key` of all rows.
void ot_bench_rows_print(const ot_bench_rows *rows, const char *key, ot_json_writer *json);
