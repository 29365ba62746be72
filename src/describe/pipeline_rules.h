// SPDX-License-Identifier: Apache-2.0
// What is known of each pipeline schedule without building it, in one table: which numbers of
// stages, chunks and micro-batches it runs, where its chunks stand, and how long its stages idle.
// Here, and not with the schedules themselves, because a run is refused before anything is built.
#pragma once

#include "describe/run.h"

typedef struct ot_pipeline_rules {
  bool splits;     // gradients of inputs (I) and of weights (W) are two actions
  bool folded;     // chunks stand on stages 0 to p-1 and back (a V), not always from 0 to p-1
  bool fills;      // all forwards come before the first backward
  bool in_rounds;  // micro-batches pass the chunks of a stage in equal rounds of at least p
  int min_chunks;  // of a stage, of two or more
  int max_chunks;  // 0: any number
  int idle_as;     // see ot_pipeline_bubble
} ot_pipeline_rules;

const ot_pipeline_rules *ot_pipeline_rules_of(ot_pipeline kind);

// As RUN.yaml spells them, by ot_pipeline, then a null.
extern const char *const ot_pipeline_names[OT_PIPELINES + 1];
const char *ot_pipeline_name(ot_pipeline kind);

// True when its chunks go back up over the `pp` stages (see folded).
bool ot_pipeline_folds(ot_pipeline kind, int pp);

// The stage of chunk `chunk`.
int ot_pipeline_stage(ot_pipeline kind, int pp, int chunk);

// Idle share of a step of `pp` equal stages whose messages cost nothing and whose backward is two
// forwards: (p-1) / (v m + p-1) (Narayanan et al. 2021, arXiv 2104.04473, sec. 2.2), v chunks a
// stage. Schedules that split the backward idle as if v were rules.idle_as (Qi et al. 2024: a third
// with one chunk, as F = B = W), 0 where it is -1.
double ot_pipeline_bubble(ot_pipeline kind, int pp, int vpp, int64_t micro_batches);

// Chunks of the model that each of `pp` stages holds: vpp, but two for zb-v, which needs no vpp.
int ot_pipeline_chunks(ot_pipeline kind, int pp, int vpp);

// Micro-batches that pass a chunk before the next chunk of the stage has its turn in the
// interleaved order: m / max(1, m / pp); 0 when that is not whole and the order does not exist.
int ot_pipeline_round(int pp, int micro_batches);

// OT_USAGE when `kind` does not run so many chunks a stage, or so many micro-batches, naming the
// nearest that it does; or when its schedule would be too long to build.
ot_status ot_pipeline_check(ot_pipeline kind, int pp, int chunks_per_stage, int micro_batches);
