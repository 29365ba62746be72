// SPDX-License-Identifier: Apache-2.0
// The split of a fleet between a model and its live teacher: how many devices, if any, run the
// teacher alone. Each split is a job on the remaining devices; it is searched until no candidate of
// it can be faster than the best plan of the splits before.
#pragma once

#include "search/search.h"
#include "simulate/teacher_price.h"

typedef struct ot_teacher_choice {
  int ranks;      // that the teacher has for itself; 0: it runs next to the model
  double step_s;  // of its fastest plan; 0: none that fits is faster than those of choices before,
                  // or there is only one choice
} ot_teacher_choice;

typedef struct ot_teacher_split {
  ot_job job;  // on the devices that remain for the model; job.run is `run`
  ot_run run;  // with the teacher's ranks
  int num_choices;
  ot_teacher_choice *choices;  // [num_choices]
  ot_teacher_price price;      // for micro-batches of one sequence
} ot_teacher_split;

// `job` has a live teacher, with ranks of its own if they are `given`. Else, of a fleet of up to 16
// devices every number is tried, of a larger one its sixteenths and its halves down to one device.
// OT_OK also if nothing fits: the teacher is then next to the model. `out` must not be moved.
ot_status ot_teacher_split_build(const ot_job *job, bool given, ot_arena_pool *scratch,
                                 ot_arena *arena, ot_teacher_split *out);
