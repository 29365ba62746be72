// SPDX-License-Identifier: Apache-2.0
// Replica divergence: every number of which several ranks hold copies must have the same bits on
// all of them. Weights over data and context parallelism, norms and key-value heads over tensor
// parallelism, a tied embedding over the first and the last stage, optimizer state of replicated
// shards, reduced gradients, the scalars and counters that control a step, the batch over the ranks
// that work on it together; and ranks of data parallelism must train on different samples.
//
// One pass over memory (XXH3) and an all-gather of some 64-bit words; names, places and values are
// exchanged only where something differs. What no other rank holds (shards of ZeRO without a
// replica) cannot be compared: it is counted and reported as such.
#pragma once

#include "audit/audit_report.h"
#include "describe/mesh.h"
#include "runtime/instance.h"

typedef struct ot_replicas ot_replicas;

// Finds out which ranks hold what. `mesh` null: one rank. Keeps `instance`, `mesh` and `comm` until
// destroy. OT_BUG when elements of a tensor are held by no rank, or by two in unlike pieces.
// Collective over the world. Blocks.
ot_status ot_replicas_create(ot_instance *instance, const ot_mesh *mesh, ot_comm *comm,
                             ot_replicas **out);
void ot_replicas_destroy(ot_replicas **replicas);

// Numbers that the loop keeps beside the arena; the same on all ranks.
typedef enum ot_replica_word {
  OT_WORD_SEED,
  OT_WORD_STEP,
  OT_WORD_NEXT_SAMPLE,
  OT_WORD_TOKENS,
  OT_REPLICA_WORDS,
} ot_replica_word;

typedef struct ot_replica_moment {
  int micro_batches;  // of the step that was run last; 0: none yet, so that there are no gradients,
                      // batches and scalars
  int64_t words[OT_REPLICA_WORDS];
} ot_replica_moment;

// What a comparison looked at, over all ranks.
typedef struct ot_replica_figures {
  int64_t compared_bytes;  // that have a replica
  int64_t single_bytes;    // of weights, gradients and optimizer state that have none
  double seconds;          // of this rank, from call to return
} ot_replica_figures;

// Compares between two steps, and adds a finding for each tensor that differs to `report`, which is
// the same on all ranks; texts live in `arena`. Collective over the world. Blocks.
ot_status ot_replicas_compare(ot_replicas *replicas, const ot_replica_moment *moment,
                              ot_arena *arena, ot_audit_report *report);

// Of the last comparison.
ot_replica_figures ot_replicas_figures(const ot_replicas *replicas);
