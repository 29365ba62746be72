// SPDX-License-Identifier: Apache-2.0
// Predicted times of kernels next to measured ones, by what the kernels do.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/sort.h"
#include "ops/catalog.h"
#include "predict/predict.h"

enum { MOST_ROWS = 24 };

typedef struct line {
  const ot_task_timing *row;           // measured
  int64_t calls;                       // in a step
  double price_s, measured_s, less_s;  // of a call; predicted less measured, of a step
} line;

static const ot_task_timing *find(const ot_task_timings *all, const ot_task_timing *row) {
  for (int64_t i = 0; i < all->count; i++) {
    const ot_task_timing *const r = &all->rows[i];
    if (r->op == row->op && memcmp(r->terms, row->terms, sizeof r->terms) == 0) return r;
  }
  return NULL;
}

static double mean_of(const ot_task_timing *row) {
  return row ? row->runs->total_s / (double)row->runs->count : 0;
}

static int by_difference(const void *a, const void *b, const void *context) {
  (void)context;
  const double x = fabs(((const line *)a)->less_s), y = fabs(((const line *)b)->less_s);
  return (x < y) - (x > y);
}

static void print_line(const line *l) {
  const ot_timing timing = ot_timings_read(l->row->runs);
  const double *const t = l->row->terms;
  printf("    %-20s %9.2f %9.2f %8.2f %5lld %9.1f %9.1f %9.1f %+8.3f\n",
         ot_op_info_of(l->row->op)->name, 1e-6 * t[OT_KERNEL_MATRIX], 1e-6 * t[OT_KERNEL_OTHER],
         1e-6 * t[OT_KERNEL_BYTES], (long long)l->calls, 1e6 * l->price_s, 1e6 * timing.seconds,
         1e6 * l->measured_s, 1e3 * l->less_s);
}

void ot_predict_tasks_print(const ot_predict_outcome *o, ot_arena *arena) {
  const ot_task_timings *const all = &o->measured_tasks;
  line *const lines = ot_arena_array(arena, all->count, sizeof *lines);
  double sum_s = 0;
  for (int64_t i = 0; i < all->count; i++) {
    line *const l = &lines[i];
    *l = (line){.row = &all->rows[i], .calls = all->rows[i].runs->count / o->task_steps};
    l->price_s = mean_of(find(&o->predicted_tasks, l->row));
    l->measured_s = mean_of(l->row);
    l->less_s = (double)l->calls * (l->price_s - l->measured_s);
    sum_s += l->less_s;
  }
  ot_sort(lines, all->count, sizeof *lines, (ot_ordering){by_difference, NULL}, arena);
  printf("    %-20s %9s %9s %8s %5s %9s %9s %9s %8s\n", "kernel, of one call", "Mflop", "other",
         "MB", "calls", "price us", "quartile", "mean", "ms");
  for (int64_t i = 0; i < all->count && i < MOST_ROWS; i++) print_line(&lines[i]);
  printf("    %-20s %69s %+8.3f\n", "all kernels of rank 0", "", 1e3 * sum_s);
}
