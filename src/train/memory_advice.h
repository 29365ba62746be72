// SPDX-License-Identifier: Apache-2.0
// The smallest change of a run that needs too much memory, found by planning it again.
#pragma once

#include "describe/mesh.h"
#include "runtime/gpu_check.h"
#include "train/trainer.h"

typedef struct ot_memory_question {
  const ot_run *run;
  const ot_mesh *mesh;  // null: one rank
  int rank, threads;
  ot_backend backend;
} ot_memory_question;

// Finds, in this order, a smaller micro-batch, recomputation, ZeRO, and some together. Keeps
// `question`.
ot_memory_advisor ot_memory_advisor_of(ot_memory_question *question);
