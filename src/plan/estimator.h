// SPDX-License-Identifier: Apache-2.0
// What the files of an estimate share: the prices of blocks and the orders of pipelines, each made
// once and kept. Private to plan/.
//
//   candidate -> prices (blocks of each kind) -> cut (blocks to chunks) -> flow (order of actions)
//             -> replay (times of each stage) -> estimate
#pragma once

#include "base/arena_pool.h"
#include "graph/graph.h"
#include "pipeline/stages.h"
#include "plan/estimate.h"
#include "plan/lookup.h"
#include "schedule/step_regions.h"
#include "schedule/storage.h"
#include "schedule/timeline.h"
#include "simulate/price.h"

// ---- blocks ----

// The blocks of a model in their order, and the kinds of them, each of which is priced once.
typedef struct ot_block_list {
  int num_kinds;  // embedding, those of each kind of layer, head
  bool *experts;  // [num_kinds] in the expert view (graph.h)
  int num_blocks;
  int *kind_of;   // [num_blocks]
  int *place_of;  // [num_blocks] among embedding, layers and head
} ot_block_list;

// ---- prices ----

// What a segment takes; total_s is the sum of the others.
typedef struct ot_phase_price {
  double total_s;
  double compute_s;  // kernels
  double host_s;     // the device waits for the host
  double exposed_s[OT_TIMELINE_AXES];
} ot_phase_price;

// One kind of block. BACKWARD is B or I, with the recompute before it.
typedef struct ot_block_price {
  ot_phase_price work[OT_WORKS][2];  // [first micro-batch, later ones]
  double recompute_s;                // part of BACKWARD's compute_s
  double recompute_total_s;          // of BACKWARD, the recompute before it
  ot_block_buckets buckets;          // what its work does with them
  double reduce_s[2][2];             // [adds to the piece][last micro-batch]
  double gather_s, spread_s;
  ot_phase_price norm, update;
  ot_phase_price hand_over;  // of the stack in front of the block, where a chunk begins with it
  double matrix_flops, model_flops;  // of a micro-batch
  // memory
  ot_block_memory memory;   // of works: one piece
  double expert_elements;   // part of buckets.elements: routed experts (framework_described.c)
  int64_t product_bytes;    // part of memory.slot_bytes: read by products of W only
  int64_t transient_bytes;  // of forward or backward
  int64_t work_scratch, update_scratch;  // that segments need: of a micro-batch, of the update
  int64_t staging;                       // and those on other lanes
} ot_block_price;

typedef struct ot_prices {
  ot_candidate key;  // as far as prices depend on it
  const ot_block_list *blocks;
  int ranks;  // of the job
  ot_group_shape shape[OT_GROUP_KINDS];
  ot_block_price *kind;  // [blocks->num_kinds]
  double tied_reduce_s[2][2], tie_s;
  ot_phase_price tied_update;
  ot_phase_price begin, clip;
  bool split;              // I and W apart
  bool gathers;            // weights of some blocks are cut over ranks
  bool each_micro_batch;   // gradients of some are summed after each
  bool sequence_parallel;  // between its regions, tp cuts activations
  bool tied, tied_apart;   // head and embedding share a table; and are on different stages
  // memory
  int64_t hidden_bytes;                 // of the activation between blocks
  int64_t batch_bytes, constant_bytes;  // fields of a micro-batch; tables
  int64_t norm_slots;                   // entries of squared norms
  int64_t frame_scratch;                // of begin and clip
  int64_t tied_staging, tie_scratch, tie_staging;
} ot_prices;

// ---- orders ----

// A pipeline's flow and what it depends on (flow_list.c).
typedef struct ot_known_flow ot_known_flow;

// Of the layers, how many a stage has, how many of them in its last chunk, and how many come before
// its first one.
typedef struct ot_stage_share {
  int layers, last_layers, layers_before;
  int first_chunk, last_chunk;
} ot_stage_share;

// Which blocks are where.
typedef struct ot_stage_partition {
  const ot_block_list *blocks;
  ot_stages stages;
  int *chunk_of;           // [num_blocks]
  int *stage_of;           // [num_blocks]
  ot_stage_share *shares;  // [num_ranks]
} ot_stage_partition;

// ---- the estimator ----

// Prices by their keys.
typedef struct ot_price_list {
  int64_t count, capacity;
  ot_prices **prices;
  ot_lookup lookup;
} ot_price_list;

// When the collectives of the segment that is being priced end, task by task; grows with segments.
typedef struct ot_task_ends {
  int64_t capacity;
  double *s;  // [capacity]
} ot_task_ends;

// What depends on whose software it is (framework.h).
typedef struct ot_framework ot_framework;

struct ot_estimator {
  ot_job job;
  const ot_framework *framework;
  ot_arena *arena;
  ot_arena_pool pool;  // of what is needed for one estimate only
  ot_task_ends *ends;
  ot_cluster cluster;  // as the ranks of the job find it
  int threads;         // of each kernel of a rank
  ot_simulation simulation;
  ot_model layers;              // the model with one layer of each kind
  ot_block_list joined, apart;  // over ep, this program has layers with experts in two blocks
  ot_price_list prices, works, sums;
  int64_t num_graphs, graphs_capacity;
  ot_graph **graphs;
  int64_t num_flows, flows_capacity;
  ot_known_flow **flows;
  int64_t num_cuts, cuts_capacity;
  ot_stage_partition **cuts;
  ot_lookup cut_lookup;
  struct ot_work_bound **bounds;  // [of works] null where nobody asked
  int64_t bounds_capacity;
};

// Bytes that cross a cut in front of a block.
static inline double ot_price_edge_bytes(const ot_prices *prices, const ot_block_price *block) {
  return (double)(prices->hidden_bytes * (block->memory.has_input + block->memory.stack));
}

// Index of the prices with this key, or -1; adding them.
int64_t ot_price_list_find(const ot_price_list *list, const ot_candidate *key);
void ot_price_list_add(ot_price_list *list, ot_prices *prices, ot_arena *arena);

// What micro-batches take in the blocks of `candidate`, as far as it does not depend on stages and
// data parallelism: no sums, gathers, updates.
ot_status ot_work_prices_find(ot_estimator *estimator, const ot_candidate *candidate,
                              const ot_prices **out);

// The prices of the blocks of `candidate`, made at the first call.
ot_status ot_prices_find(ot_estimator *estimator, const ot_candidate *candidate, ot_prices **out);

// Which blocks each stage has.
ot_status ot_stage_partition_find(ot_estimator *estimator, const ot_candidate *candidate,
                                  const ot_stage_partition **out);

// The run that trains the job's model, and the request of the graph that a candidate's blocks are
// priced from; `whole`: of the model as one rank would have it.
ot_graph_request ot_prices_graph(const ot_estimator *estimator, const ot_candidate *candidate,
                                 const ot_run *run, bool whole);

// The graph of `request`, made at the first call.
ot_status ot_graph_find(ot_estimator *estimator, const ot_graph_request *request, ot_graph **out);

// The blocks of the job's model, split so; `layer_kind` says of which kind each layer is
// [num_layers], as e->layers has them.
void ot_block_list_build(const ot_estimator *estimator, const int *layer_kind,
                         const ot_split *split, ot_block_list *out);

// The blocks that `candidate` is made of.
const ot_block_list *ot_estimator_blocks(const ot_estimator *estimator,
                                         const ot_candidate *candidate);

// The rank that stands for its stage: the last one of tp, which has most rows of a vocabulary that
// tp does not divide.
static inline int ot_estimator_rank(const ot_candidate *candidate) { return candidate->tp - 1; }

// How its blocks are cut.
ot_split ot_estimator_split(const ot_estimator *estimator, const ot_candidate *candidate,
                            ot_context_parallel context);

// Whether gathered weights of the block at `place` (embedding, layers, head) are released after
// each use, and how many blocks ahead of their use they are gathered.
bool ot_estimator_reshards(const ot_estimator *estimator, int place);
int ot_estimator_prefetch(const ot_estimator *estimator);

// In which order the stages work.
ot_status ot_flow_find(ot_estimator *estimator, const ot_candidate *candidate,
                       const ot_stages *stages, const ot_pipeline_flow **out);

// ---- replaying ----

typedef struct ot_replay_request {
  const ot_estimator *estimator;
  const ot_candidate *candidate;
  const ot_prices *prices;
  const ot_stage_partition *cut;
  const ot_stages *stages;  // of the cut
  const ot_pipeline_flow *flow;
  ot_outline_request outline;  // what outlines are made from, but for the stage
  ot_step_outline *outlines;  // [stages] where buckets are gathered or summed in between, else null
  ot_replayed_step
      *replayed;  // gets the actions, if not null; room for those of the flow and a stage
} ot_replay_request;

// Where the time of a stage goes: all but total_s add up to it.
typedef struct ot_stage_replay {
  double total_s;
  double compute_s, update_s, bubble_s, host_s;
  double exposed_s[OT_TIMELINE_AXES];
  double recompute_s;  // part of compute_s
} ot_stage_replay;

// Fills outline and outlines, in `arena`: before memory is counted and the step is replayed.
void ot_replay_outline(ot_replay_request *request, ot_arena *arena);

// `out` [num_ranks of the flow].
ot_status ot_step_replay(const ot_replay_request *request, ot_arena *arena, ot_stage_replay *out);
