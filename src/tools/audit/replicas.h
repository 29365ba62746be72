// SPDX-License-Identifier: Apache-2.0
// Replica divergence: every number that several ranks hold must have the same bits on all of them.
// Weights over data and context parallelism, norms and key-value heads over tensor parallelism, a
// tied embedding over the first and the last stage, optimizer state of replicated shards, reduced
// gradients, the scalars and counters that control a step, and the batch over the ranks that share
// it. Data-parallel ranks must train on different samples.
//
// Costs one pass over memory (XXH3) and an all-gather of four 64-bit words; names, positions and
// values are exchanged only where something differs. State without a replica (ZeRO shards) cannot
// be compared: it is counted and reported as such.
#pragma once

#include "audit/audit_report.h"
#include "audit/replica_units.h"
#include "train/trainer.h"

typedef struct ot_replicas ot_replicas;

// Determines which ranks hold what. Keeps `trainer` until destroy. OT_BUG if elements of a tensor
// are held by no rank, or by two ranks in shards of different shape. Collective over the world.
// Blocks.
ot_status ot_replicas_create(ot_trainer *trainer, ot_replicas **out);
void ot_replicas_destroy(ot_replicas **replicas);

// The time of a comparison.
typedef struct ot_replica_moment {
  int micro_batches;   // of the last step; 0: no step yet, hence no gradients, batches and scalars
  bool before_update;  // of that step: of the weights as they were then
  int64_t words[OT_REPLICA_WORDS];
} ot_replica_moment;

ot_replica_moment ot_replica_moment_of(const ot_trainer *trainer);

// The coverage of a comparison, over all ranks.
typedef struct ot_replica_figures {
  int64_t compared_bytes;  // of tensors with a replica
  int64_t single_bytes;    // of weights, gradients and optimizer state without one
  double seconds;          // on this rank, from call to return
} ot_replica_figures;

// Hashes the weights before the updates of a step (ot_executor_set_pause), for the comparison after
// it: where shards of weights have owners, the update and the gather after it replace what the step
// was computed with, on all ranks alike. Local. One pass over replicated weights.
void ot_replicas_before_update(ot_replicas *replicas);

// Compares between two steps, and adds a finding to `report` for each tensor that differs. The
// report has its arena and is the same on all ranks. Collective over the world. Blocks.
ot_status ot_replicas_compare(ot_replicas *replicas, const ot_replica_moment *moment,
                              ot_audit_report *report);

// The figures of the last comparison.
ot_replica_figures ot_replicas_figures(const ot_replicas *replicas);
