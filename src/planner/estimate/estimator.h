// SPDX-License-Identifier: Apache-2.0
// The shared state of the files of an estimate: block costs and pipeline flows, each computed once
// and cached. Private to the planner.
//
//   candidate -> prices (blocks of each kind) -> cut (blocks to chunks) -> flow (pipeline schedule)
//             -> replay (times of each stage) -> estimate
#pragma once

#include "base/arena_pool.h"
#include "estimate/lookup.h"
#include "estimate/result.h"
#include "graph/graph.h"
#include "pipeline/stages.h"
#include "schedule/step_regions.h"
#include "schedule/storage.h"
#include "schedule/timeline.h"
#include "simulate/price.h"
#include "simulate/teacher_price.h"

typedef struct ot_estimator ot_estimator;  // estimate.h

// ---- blocks ----

// The blocks of a model in order. Each kind of block is priced once.
typedef struct ot_block_list {
  int num_kinds;  // embedding, blocks of each layer kind, head
  bool *experts;  // [num_kinds] in the expert view (graph.h)
  int *count;     // [num_kinds] blocks
  int num_blocks;
  int *kind_of;   // [num_blocks]
  int *place_of;  // [num_blocks] index among embedding, layers and head
} ot_block_list;

// ---- prices ----

// Time of a segment; total_s is the sum of compute, host and exposed.
typedef struct ot_phase_price {
  double total_s;
  double compute_s;  // kernel time
  double host_s;     // the device waits for the host
  double exposed_s[OT_TIMELINE_AXES];
  double load_s;  // of a segment on another lane: slows down concurrent kernels (ot_price)
} ot_phase_price;

// Cost of one kind of block. BACKWARD is B or I, including its recompute.
typedef struct ot_block_price {
  ot_phase_price work[OT_WORKS][2];  // [first micro-batch, later ones]
  // In a pair of a forward and a backward: exposed seconds that the other's kernels hide, and the
  // seconds by which they slow them down.
  double hidden_s[OT_WORKS], slower_s[OT_WORKS];
  double recompute_s;        // part of BACKWARD's compute_s
  double recompute_total_s;  // time of the recompute in BACKWARD
  ot_block_buckets buckets;  // buckets that its work uses
  double reduce_s[2][2];     // [accumulates into the shard][last micro-batch]
  double gather_s, gradient_gather_s;
  double reduce_load_s[2][2], gather_load_s, gradient_gather_load_s;  // ot_price.load_s of these
  ot_phase_price norm, update;
  ot_phase_price hand_over;  // transfer of the stack before the block, if a chunk starts here
  double matrix_flops, model_flops;  // per micro-batch
  // memory
  ot_block_memory memory;   // of works: one allocation
  double expert_elements;   // part of buckets.elements: routed experts (framework_described.c)
  int64_t product_bytes;    // part of memory.slot_bytes: read by weight-gradient GEMMs only
  int64_t gated_bytes;      // and read by the gradients of gated activations
  int64_t padding_bytes;    // and what fills values of latent attention up to the width of keys
  int64_t trimmed_bytes;    // and the output of attention without this padding
  int64_t transient_bytes;  // temporaries of forward or backward
  int64_t work_scratch, update_scratch;  // of segments: of a micro-batch, of the update
  int64_t staging;                       // of segments on other lanes
} ot_block_price;

typedef struct ot_prices {
  ot_candidate key;  // only the fields that costs depend on
  const ot_block_list *blocks;
  int ranks;  // of the job
  ot_group_shape shape[OT_GROUP_KINDS];
  ot_block_price *kind;  // [blocks->num_kinds]
  double tied_reduce_s[2][2], tie_s;
  ot_phase_price tied_update;
  ot_phase_price begin, clip;
  bool split;                     // I and W are separate
  bool gathers;                   // weights of some blocks are sharded (ZeRO 3)
  bool each_micro_batch;          // some gradients are reduced after each
  bool sequence_parallel;         // tp shards activations between its regions
  bool tied, tied_across_stages;  // head and embedding share weights; on different stages
  // memory
  int64_t hidden_bytes;                 // activation between blocks
  int64_t batch_bytes, constant_bytes;  // fields of a micro-batch; tables
  int64_t norm_slots;                   // number of squared norms
  int64_t frame_scratch;                // scratch of begin and clip
  int64_t tied_staging, tie_scratch, tie_staging;
} ot_prices;

// ---- pipeline flows ----

// A pipeline flow and the key that it depends on (flow_list.c).
typedef struct ot_cached_flow ot_cached_flow;

// The flows that were built last.
typedef struct ot_flow_ring {
  unsigned char *memory;         // [bytes] of the flows
  unsigned char *memory_before;  // [bytes_before] the smaller ring before this one
  int64_t bytes_before;
  int64_t bytes, next;  // next: end of the flow that was built last
  int64_t count, made, capacity;
  ot_cached_flow **list;   // [count], and others without memory up to `made`
  ot_cached_flow *latest;  // that was used last, or null
} ot_flow_ring;

// The blocks of a stage.
typedef struct ot_stage_share {
  int *count;  // [num_kinds] of a kind
  int layers;  // all but embedding and head
  int first_chunk, last_chunk;
  int expert_chunks;  // with blocks in the expert view
} ot_stage_share;

// Stages with the same blocks, in all their chunks and in the last one: the first and the last
// stage.
typedef struct ot_like_stages {
  int first, last;
} ot_like_stages;

// Assignment of blocks to chunks and stages.
typedef struct ot_stage_partition {
  const ot_block_list *blocks;
  const double *cost;  // [num_blocks] that stages share evenly; null: they do not
  ot_stages stages;
  int *count;              // [num_chunks][num_kinds] blocks of a kind
  int *passed;             // [num_chunks][num_kinds] the same in the chunks before
  int *chunk_of;           // [num_blocks]
  int *stage_of;           // [num_blocks]
  ot_stage_share *shares;  // [num_ranks]
  int num_alike, num_ends;
  ot_like_stages *alike;  // [num_alike]
  int *ends;              // [num_ends] the last of the chunks with the same blocks
} ot_stage_partition;

// ---- the estimator ----

// Cached costs by key.
typedef struct ot_price_list {
  int64_t count, capacity;
  ot_prices **prices;
  ot_lookup lookup;
} ot_price_list;

// End time of each collective in the segment that is being priced; grows with segments.
typedef struct ot_task_ends {
  int64_t capacity;
  double *s;  // [capacity]
} ot_task_ends;

// A live teacher (teacher_cost.h).
typedef struct ot_priced_teacher {
  int64_t micro_batch_size;
  ot_teacher_price price;
} ot_priced_teacher;

// Framework-specific functions (framework.h).
typedef struct ot_framework ot_framework;

struct ot_estimator {
  ot_job job;
  const ot_framework *framework;
  ot_arena *arena;
  ot_arena_pool scratch;   // temporaries of one price, flow, bound or replay
  ot_arena_pool searches;  // those of a search that uses this estimator
  ot_task_ends *ends;
  ot_cluster cluster;  // for the ranks of the job, as those of its own devices see it
  int threads;         // per kernel of a rank
  ot_simulation simulation;
  ot_model layers;              // the model with one layer of each kind
  ot_block_list joined, apart;  // with ep, Orthant splits a layer with experts into two blocks
  ot_price_list prices, works, sums;
  int64_t num_graphs, graphs_capacity;
  ot_graph **graphs;
  ot_flow_ring flows;
  int64_t num_cuts, cuts_capacity;
  ot_stage_partition **cuts;
  ot_lookup cut_lookup;
  struct ot_work_bound **bounds;  // [of works] null: not computed yet
  int64_t bounds_capacity;
  ot_priced_teacher *teachers;  // [num_teachers]
  int64_t num_teachers, teachers_capacity;
  // An estimator prices devices of one kind. Those of the whole cluster are in pools.h.
  struct ot_pools *pools;
  int pool;  // index of this one
};

// An estimator of devices of one kind, as whose ranks see the cluster `cluster` is; `job` has
// passed its check.
ot_status ot_estimator_create(const ot_job *job, const ot_cluster *cluster, ot_arena *arena,
                              ot_estimator **out);

// Bytes sent between stages at a partition point before a block.
static inline double ot_price_edge_bytes(const ot_prices *prices, const ot_block_price *block) {
  return (double)(prices->hidden_bytes * (block->memory.has_input + block->memory.stack));
}

// Bytes of a device that a plan may need: its capacity less the job's margin.
static inline int64_t ot_estimator_memory(const ot_estimator *estimator) {
  const double capacity = (double)ot_device_capacity(&estimator->cluster.device);
  return (int64_t)(capacity / (1 + estimator->job.memory_margin));
}

// Returns the index of the prices with this key, or -1; adds prices.
int64_t ot_price_list_find(const ot_price_list *list, const ot_candidate *key);
void ot_price_list_add(ot_price_list *list, ot_prices *prices, ot_arena *arena);

// Cost of a micro-batch in the blocks of `candidate`, without the parts that depend on stages and
// data parallelism: reductions, gathers, updates.
ot_status ot_work_prices_find(ot_estimator *estimator, const ot_candidate *candidate,
                              const ot_prices **out);

// Full cost of the blocks of `candidate`, computed at the first call.
ot_status ot_prices_find(ot_estimator *estimator, const ot_candidate *candidate, ot_prices **out);

// Blocks of each stage.
ot_status ot_stage_partition_find(ot_estimator *estimator, const ot_candidate *candidate,
                                  const ot_stage_partition **out);

// Request of the graph from which the blocks of a candidate are priced, for the run that trains the
// job's model; `whole`: the unsharded model on one rank.
ot_graph_request ot_prices_graph(const ot_estimator *estimator, const ot_candidate *candidate,
                                 const ot_run *run, bool whole);

// The graph of `request`, built at the first call.
ot_status ot_graph_find(ot_estimator *estimator, const ot_graph_request *request, ot_graph **out);

// Blocks of the job's model under `split`; `layer_kind` [num_layers] gives the kind of each layer,
// as in e->layers.
void ot_block_list_build(const ot_estimator *estimator, const int *layer_kind,
                         const ot_split *split, ot_block_list *out);

// The blocks of `candidate`.
const ot_block_list *ot_estimator_blocks(const ot_estimator *estimator,
                                         const ot_candidate *candidate);

// The rank that represents its stage: the last tp rank, which has the largest share of a vocabulary
// that tp does not divide.
static inline int ot_estimator_rank(const ot_candidate *candidate) { return candidate->tp - 1; }

// How the candidate shards its blocks.
ot_split ot_estimator_split(const ot_estimator *estimator, const ot_candidate *candidate,
                            ot_context_parallel context);

// Whether gathered weights of the block at index `place` (embedding, layers, head) are released
// after each use, and how many blocks ahead of their use they are gathered.
bool ot_estimator_reshards(const ot_estimator *estimator, int place);
int ot_estimator_prefetch(const ot_estimator *estimator);

// The pipeline flow of the candidate, valid until the next but one is asked for.
ot_status ot_flow_find(ot_estimator *estimator, const ot_candidate *candidate,
                       const ot_stages *stages, const ot_pipeline_flow **out);

// ---- replaying ----

// Where a stage is.
typedef struct ot_stage_place {
  const ot_estimator *estimator;  // of its devices
  const ot_prices *prices;        // on them
  int first;                      // its first device, counted among those of its kind
} ot_stage_place;

typedef struct ot_replay_request {
  const ot_estimator *estimator;
  const ot_candidate *candidate;
  const ot_prices *prices;
  const ot_stage_partition *cut;
  const ot_stages *stages;       // of `cut`
  const ot_stage_place *places;  // [stages] null: consecutive devices of one cluster
  const ot_pipeline_flow *flow;
  ot_teacher_price teacher;
  ot_outline_request outline;  // input of outlines, without the stage
  ot_step_outline *outlines;   // [stages] if buckets are gathered or reduced in between, else null
  ot_replayed_step
      *replayed;  // output, may be null; capacity: actions of the flow, plus one per stage
} ot_replay_request;

// Time of a stage by term: all but total_s, met_s and recompute_s add up to total_s.
typedef struct ot_stage_replay {
  double total_s;
  double met_s;  // when all stages have their gradients; the same for all stages
  double compute_s, update_s, bubble_s, host_s;
  double exposed_s[OT_TIMELINE_AXES];
  double recompute_s;  // part of compute_s
} ot_stage_replay;

// Where stage `stage` is.
ot_stage_place ot_replay_place(const ot_replay_request *request, int stage);

// Fills outline and outlines, in `arena`. Call before memory is counted and the step is replayed.
void ot_replay_outline(ot_replay_request *request, ot_arena *arena);

// `out` [num_ranks of the flow].
ot_status ot_step_replay(const ot_replay_request *request, ot_arena *arena, ot_stage_replay *out);

// Seconds of all actions without collectives of data parallelism, norms and updates, which can only
// add to them: a lower bound of the step for every ZeRO stage and sharding group. Prices may be
// those of ot_work_prices_find.
ot_status ot_step_replay_work(const ot_replay_request *request, ot_arena *arena, double *seconds);
