// SPDX-License-Identifier: Apache-2.0
// Lowers a program's ops to the tasks of a segment: operands become a base and an offset, parameter
// gradients overwrite in the first micro-batch and accumulate afterwards, and recomputed ops drop
// their effects.
#pragma once

#include "graph/graph.h"
#include "schedule/storage.h"

typedef struct ot_segment_request {
  const ot_graph *graph;
  const ot_storage *storage;
  int block;       // its parameters define the offsets inside buckets
  ot_phase phase;  // FORWARD, RECOMPUTE, INPUT, WEIGHT or BACKWARD
  bool first;      // first micro-batch that accumulates gradients
} ot_segment_request;

void ot_segment_build(const ot_segment_request *request, ot_arena *arena, ot_segment *segment);

// Bytes from the base of a batch field; the fields of a micro-batch are stored one after another.
int64_t ot_segment_batch_offset(const ot_graph *graph, ot_batch_field field);

// Bytes of all fields of one micro-batch.
int64_t ot_segment_batch_bytes(const ot_graph *graph);

// Bytes from OT_BASE_RESULT of `result` in this graph's mode, and of all results.
int64_t ot_segment_result_offset(const ot_graph *graph, ot_result result);
int64_t ot_segment_result_bytes(const ot_graph *graph);

// Whether a task of the segment reads or writes at `base`.
bool ot_segment_reads(const ot_segment *segment, ot_base base);
bool ot_segment_writes(const ot_segment *segment, ot_base base);

uint64_t ot_segment_hash(const ot_segment *segment);
