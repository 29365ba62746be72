// SPDX-License-Identifier: Apache-2.0
// Steps of this program on this machine, predicted and measured: the configurations, the run of one
// of them, and its result.
#pragma once

#include "cli/options.h"
#include "files/config_file.h"
#include "forecast/prediction.h"
#include "measure/task_timings.h"

// One configuration of the grid.
typedef struct ot_predict_case {
  const char *name;
  const char *model;  // a row of the table of models
  int ranks;
  int64_t global_batch, micro_batch, sequence;
  const char *sets;  // further settings, "key=value key=value"
  bool quick;        // part of --quick
} ot_predict_case;

extern const ot_predict_case ot_predict_cases[];
extern const int ot_predict_num_cases;

// Loads the run of a case into `arena`.
ot_status ot_predict_case_load(const ot_predict_case *c, ot_arena *arena, ot_config *out);

enum { OT_PREDICT_MAX_RANKS = 8, OT_PREDICT_MAX_STEPS = 128 };

// Seconds of a step by op, summed over all ranks.
typedef struct ot_predict_terms {
  double op_s[OT_OP_COUNT];
} ot_predict_terms;

// One measured step.
typedef struct ot_predict_step {
  double rank_s[OT_PREDICT_MAX_RANKS];  // of each rank
  ot_timeline_summary summary[OT_PREDICT_MAX_RANKS];
  ot_predict_terms terms[OT_PREDICT_MAX_RANKS];
  double expert_passes;         // of measure/trial.h
  ot_task_timings tasks;        // of rank 0
  double pace_s, round_trip_s;  // of the machine after it (measure/measure.h)
} ot_predict_step;

// Measured steps of a case. All zero: none yet.
typedef struct ot_predict_record {
  ot_predict_step *steps[OT_PREDICT_MAX_STEPS];
  int count;
  int round;  // steps of a round, one after another; the fastest fifth of the rounds counts
  int64_t planned[OT_PREDICT_MAX_RANKS], touched[OT_PREDICT_MAX_RANKS];
} ot_predict_record;

typedef struct ot_predict_how {
  int steps;       // of a run at least, after one warm-up step
  double round_s;  // a round is so long, or one step
  double least_s;  // runs are repeated until their steps have taken as long
  bool memory;     // one more step that tracks written memory
} ot_predict_how;

// Adds steps, as long as there is room. In `arena`, which has to stay.
ot_status ot_predict_case_measure(const ot_predict_case *c, const ot_predict_how *how,
                                  ot_arena *arena, ot_predict_record *record);

typedef struct ot_predict_outcome {
  double predicted_s, measured_s;  // per step; measured: mean of the fastest fifth of rounds
  double median_s;                 // measured
  const ot_predict_step *fastest;
  double expert_passes;  // mean of the measured steps; 0 without experts
  double expected_bubble, expected_exposed_s, bubble, exposed_s;  // means over ranks
  ot_predict_terms predicted, measured;
  ot_task_timings predicted_tasks, measured_tasks;  // of rank 0; measured: of these steps
  int task_steps;                                   // of measured_tasks
  int64_t planned_bytes, touched_bytes;             // of the fullest rank; touched 0: not measured
  int unequal_ranks;  // ranks whose touched memory differs from the plan
} ot_predict_outcome;

// Predicts the step and compares. In `arena`.
ot_status ot_predict_case_compare(const ot_predict_case *c, const ot_predict_record *record,
                                  const ot_cluster *cluster, ot_arena *arena,
                                  ot_predict_outcome *out);

// Prints the launches of rank 0 in which prediction and measurement of a step differ most: work,
// calls, the price of a call next to first quartile and mean of its measured times.
void ot_predict_tasks_print(const ot_predict_outcome *outcome, ot_arena *arena);
