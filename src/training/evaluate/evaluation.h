// SPDX-License-Identifier: Apache-2.0
// Runs the sequences of tasks (text_task.h) on an inference engine, step by step, so that the
// caller can do other things between iterations. Several engines with the same weights may share
// the sequences out; a result does not depend on who computes it.
#pragma once

#include "evaluate/text_task.h"
#include "runtime/inference.h"

typedef struct ot_evaluation ot_evaluation;

// The shape of an engine for these tasks.
ot_inference_shape ot_evaluation_shape(const ot_text_task *tasks, int num_tasks);

typedef struct ot_evaluation_request {
  const ot_text_task *tasks;  // [num_tasks]; kept
  int num_tasks;
  const ot_tokenizer *tokenizer;  // kept
  ot_inference *engine;           // of that shape, idle; kept. Null: this share is empty
  int64_t share, shares;          // runs every shares-th sequence, from number `share` on
} ot_evaluation_request;

ot_status ot_evaluation_create(const ot_evaluation_request *request, ot_evaluation **out);
void ot_evaluation_destroy(ot_evaluation **evaluation);

// One iteration of the engine. *done: there is nothing left.
ot_status ot_evaluation_step(ot_evaluation *evaluation, bool *done);

// The results of the sequences of all tasks in order (ot_text_task_figures), zero for those of
// other shares. The caller may add these.
int64_t ot_evaluation_count(const ot_evaluation *evaluation);
double *ot_evaluation_results(ot_evaluation *evaluation);
