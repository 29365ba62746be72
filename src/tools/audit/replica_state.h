// SPDX-License-Identifier: Apache-2.0
// State that the replica audit keeps between comparisons. Private to replicas.c and
// replica_findings.c.
#pragma once

#include "audit/replicas.h"
#include "host/heap.h"

// A unit held by a rank, by key.
typedef struct ot_held_unit {
  uint64_t key;
  int rank, unit;  // index among the units of the rank
} ot_held_unit;

// A rank's description of one of its units.
typedef struct ot_unit_header {
  uint64_t key;
  int64_t kind_index;  // kind * 2^32 + index
  int64_t first, count;
} ot_unit_header;

enum { OT_HEADER_WORDS = sizeof(ot_unit_header) / 8 };

struct ot_replicas {
  ot_runtime *runtime;
  const ot_mesh *mesh;
  ot_comm *comm;
  int rank, ranks;
  ot_heap heap;
  ot_arena arena;
  ot_unit_list list;
  int most_units;           // of any rank
  ot_unit_header *headers;  // [ranks * most_units]
  int64_t num_held;
  ot_held_unit *held;      // [num_held] of all ranks, by key, then rank
  int *holders, *place;    // [list.num_units] ranks that hold it, and this one's index among them
  bool *replicated;        // [list.num_units] another rank has a copy, too
  bool *weights;           // [list.num_units] replicated weights
  ot_unit_hasher hasher;   // of the replicated units
  ot_unit_hasher before;   // of the replicated weights
  int64_t *values;         // [most_units] hash of each unit, of this comparison
  int64_t *values_before;  // [most_units] of weights before the update; zero for others
  bool is_before;          // they are of the step that is compared
  int64_t *all_values;     // [ranks * most_units]
  ot_replica_figures figures;
};

// All-gathers `count` words of each rank into `all` [ranks * count].
ot_status ot_replicas_gather(ot_replicas *r, const int64_t *mine, int64_t *all, int64_t count);

// Adds a finding for each key whose holders have different values in r->all_values, which is equal
// on all ranks. Collective over the world.
ot_status ot_replicas_find(ot_replicas *r, const ot_replica_moment *moment,
                           ot_audit_report *report);

// Adds a finding if data-parallel ranks have the same samples: `samples` [ranks] are hashes of the
// samples that each trained on.
void ot_replicas_find_shared(ot_replicas *r, const ot_replica_moment *moment,
                             const int64_t *samples, ot_audit_report *report);
