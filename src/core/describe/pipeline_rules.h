// SPDX-License-Identifier: Apache-2.0
// Properties of each pipeline schedule that are known without building it, in one table: valid
// numbers of stages, chunks and micro-batches, the placement of chunks, and the bubble. It is here,
// not in schedule/, because a run is checked before anything is built.
#pragma once

#include "describe/run.h"

typedef struct ot_pipeline_rules {
  bool splits;     // input gradients (I) and weight gradients (W) are separate actions
  bool folded;     // chunks run from stage 0 to p-1 and back (a V), not always from 0 to p-1
  bool fills;      // all forwards precede the first backward
  bool in_rounds;  // micro-batches pass the chunks of a stage in equal rounds of at least p
  int min_chunks;  // per stage, for two or more stages
  int max_chunks;  // 0: any number
  int idle_as;     // see ot_pipeline_bubble
} ot_pipeline_rules;

const ot_pipeline_rules *ot_pipeline_rules_of(ot_pipeline kind);

// Spellings in RUN.yaml, by ot_pipeline, then a null.
extern const char *const ot_pipeline_names[OT_PIPELINES + 1];
// And, at OT_PIPELINES, "dualpipe": dualpipe-v on half of the stages (answer/question.h).
extern const char *const ot_pipeline_asked_names[OT_PIPELINES + 2];
const char *ot_pipeline_name(ot_pipeline kind);

// True when its chunks return over the `pp` stages (see folded).
bool ot_pipeline_folds(ot_pipeline kind, int pp);

// The stage of chunk `chunk`.
int ot_pipeline_stage(ot_pipeline kind, int pp, int chunk);

// Bubble fraction of a step of `pp` equal stages with free messages and a backward of two forwards:
// (p-1) / (v m + p-1) (Narayanan et al. 2021, arXiv 2104.04473, sec. 2.2), v chunks per stage.
// Schedules that split the backward idle as if v were rules.idle_as (Qi et al. 2024: a third with
// one chunk, as F = B = W), 0 where it is -1.
double ot_pipeline_bubble(ot_pipeline kind, int pp, int vpp, int64_t micro_batches);

// Model chunks per stage of `pp` stages: vpp, but two for the folded ones, which ignore vpp.
int ot_pipeline_chunks(ot_pipeline kind, int pp, int vpp);

// Micro-batches that run on a chunk before the stage's next chunk in the interleaved schedule: m /
// max(1, m / pp); 0 when that is not whole and the schedule does not exist.
int ot_pipeline_round(int pp, int micro_batches);

// OT_USAGE when `kind` does not support this number of chunks per stage or of micro-batches, with
// the nearest valid ones; or when its schedule would be too long to build.
ot_status ot_pipeline_check(ot_pipeline kind, int pp, int chunks_per_stage, int micro_batches);
