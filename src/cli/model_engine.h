// SPDX-License-Identifier: Apache-2.0
// The runtime of the engine that sample, score and serve run a model on.
#pragma once

#include "cli/run_options.h"
#include "runtime/inference.h"

// Creates it for an engine of this shape, in float32, by --device and --threads, with the weights
// of `model`. Says on stderr which damaged checkpoints were passed over, and why the CPU runs a
// model that a GPU was to run, if it does.
ot_status ot_model_engine_create(const ot_options *options, const ot_inference_shape *shape,
                                 ot_opened_model *model, ot_runtime **runtime);
