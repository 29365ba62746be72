// SPDX-License-Identifier: Apache-2.0
// Which pipeline orders go with which numbers of stages, chunks and micro-batches. Here, and not
// with the orders themselves, because a run is refused before anything is built.
#pragma once

#include "describe/run.h"

// As RUN.yaml spells it.
const char *ot_pipeline_name(ot_pipeline kind);

// Whether gradients of inputs (I) and of weights (W) are two actions.
bool ot_pipeline_splits(ot_pipeline kind);

// Chunks of the model that each of `pp` stages holds: vpp, but two for zb-v, which needs no vpp.
int ot_pipeline_chunks(ot_pipeline kind, int pp, int vpp);

// Micro-batches that pass a chunk before the next chunk of the stage has its turn in the
// interleaved order: m / max(1, m / pp); 0 when that is not whole and the order does not exist.
int ot_pipeline_round(int pp, int micro_batches);

// OT_USAGE when `kind` does not run so many chunks a stage, or so many micro-batches, naming the
// nearest that it does; or when its schedule would be too long to build.
ot_status ot_pipeline_check(ot_pipeline kind, int pp, int chunks_per_stage, int micro_batches);
