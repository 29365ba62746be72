// SPDX-License-Identifier: Apache-2.0
// The state of a model runtime. Private to model_runtime.c and runtime_parameters.c.
#pragma once

#include "runtime/host_allreduce.h"
#include "runtime/model_runtime.h"

struct ot_runtime {
  ot_model model;
  unsigned modes;
  ot_mesh mesh;  // no ranks: one rank without a mesh
  ot_heap heap;
  ot_graph graphs[OT_MODES];
  const ot_graph *shape;  // any of them
  const ot_graph *whole;  // shape, or whole_graph if this rank has a part of each block
  ot_graph whole_graph;
  ot_schedule schedule;
  bool counts_shards;           // first of the ranks that hold the same shard of buckets
  bool counts_buckets;          // first of the ranks that hold the same unsharded buckets
  ot_comm *comm;                // null: one rank
  ot_host_allreduce *exchange;  // the same
  ot_executor *executor;
  ot_executor_publish publish;  // of its executor
  ot_weight_taker taker;        // during ot_runtime_publish; without calls: another rank leads
  void *published;              // [its largest parameter] on rank 0, if it can publish
  char note[512];               // see ot_runtime_note
};

// Does the publish task of a block.
ot_status ot_runtime_publish_block(void *runtime, int block);
