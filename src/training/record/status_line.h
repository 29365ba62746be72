// SPDX-License-Identifier: Apache-2.0
// The line with the progress of a run:
//   step 1200/9536 12.6%  loss 3.214  gnorm 0.81  412k tok/s  eta 3h12m  MFU 41.2% (plan 43.0%)
//   peak 61.3/80 GB of GPU  lr 0.0003  1.27 s/step
// Only text: cli/ decides whether to overwrite it on a terminal or to print line by line.
#pragma once

#include <stdint.h>

// Unknown (omitted): NaN for reals, -1 for counts.
typedef struct ot_status_line {
  int64_t step, num_steps;
  double loss_nats;
  double gradient_norm;
  double tokens_per_s;
  double mfu, planned_mfu;                           // 0 to 1
  int64_t memory_peak_bytes, memory_capacity_bytes;  // ot_runtime_memory_use
  double remaining_s;
  double learning_rate;
  double step_s;
} ot_status_line;

// Writes the line without its end. With `columns` > 0, leaves out parts that do not fit,
// the last first. Returns the length.
int64_t ot_status_line_print(char *out, int64_t capacity, const ot_status_line *status,
                             int columns);
