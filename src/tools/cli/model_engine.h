// SPDX-License-Identifier: Apache-2.0
// The runtime of the engine that sample, score and serve run a model on, on one rank or on several
// (--ranks or a launcher): in stages of a pipeline (--pp), each sharded by tp and its experts by
// ep. Rank 0 has the engine; the others follow (runtime/inference.h).
#pragma once

#include "cli/run_options.h"
#include "runtime/inference.h"
#include "runtime/run_world.h"

typedef struct ot_model_engine {
  ot_world *world;  // null: one rank
  ot_runtime *runtime;
} ot_model_engine;

typedef struct ot_model_engine_request {
  const ot_options *options;  // --device, --threads
  ot_comm *comm;
  ot_opened_model *model;    // shared by the ranks of a process
  ot_inference_shape shape;  // of rank 0
  ot_status status;          // of this rank so far
} ot_model_engine_request;

// Fails if a rank has failed before. Else creates the runtime of this rank, in float32, with the
// weights of the model. Says on stderr which damaged checkpoints were passed over (several ranks
// pass over none), and why the CPU runs a model that a GPU was to run, if it does. Destroy it in
// every case. Collective over the world.
ot_status ot_model_engine_create(const ot_model_engine_request *request, ot_model_engine *out);
void ot_model_engine_destroy(ot_model_engine *engine);
