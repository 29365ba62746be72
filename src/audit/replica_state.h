// SPDX-License-Identifier: Apache-2.0
// What the audit of replicas keeps between comparisons. Private to replicas.c and
// replica_findings.c.
#pragma once

#include "audit/replicas.h"
#include "host/heap.h"

// A unit of some rank, by key.
typedef struct ot_held_unit {
  uint64_t key;
  int rank, unit;  // index among the units of the rank
} ot_held_unit;

// What every rank says of each of its units.
typedef struct ot_unit_header {
  uint64_t key;
  int64_t kind_index;  // kind * 2^32 + index
  int64_t first, count;
} ot_unit_header;

enum { OT_HEADER_WORDS = sizeof(ot_unit_header) / 8 };

struct ot_replicas {
  ot_instance *instance;
  const ot_mesh *mesh;
  ot_comm *comm;
  int rank, ranks;
  ot_heap heap;
  ot_arena arena;
  ot_unit_list list;
  int most_units;           // of any rank
  ot_unit_header *headers;  // [ranks * most_units]
  int64_t num_held;
  ot_held_unit *held;     // [num_held] of all ranks, by key, then rank
  int *holders, *place;   // [list.num_units] ranks that hold it, and this one's place among them
  bool *replicated;       // [list.num_units] copies that another rank has, too
  ot_unit_hasher hasher;  // of them
  int64_t *values;        // [most_units] hash of each unit, of this comparison
  int64_t *all_values;    // [ranks * most_units]
  ot_replica_figures figures;
};

// An all-gather of `count` words of each rank into `all` [ranks * count].
ot_status ot_replicas_gather(ot_replicas *r, const int64_t *mine, int64_t *all, int64_t count);

// Adds a finding for each key whose holders have different values in r->all_values. All ranks call
// it with the same values. Collective over the world.
ot_status ot_replicas_find(ot_replicas *r, const ot_replica_moment *moment,
                           ot_audit_report *report);

// A finding where ranks of data parallelism have the same samples: `samples` [ranks] are hashes of
// what each trained on.
void ot_replicas_find_shared(ot_replicas *r, const ot_replica_moment *moment,
                             const int64_t *samples, ot_audit_report *report);
