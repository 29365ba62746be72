// SPDX-License-Identifier: Apache-2.0
// What the files of an estimate share: the prices of blocks and the orders of pipelines, each made
// once and kept. Private to plan/.
//
//   candidate -> prices (blocks of each kind) -> cut (blocks to chunks) -> walk (order of actions)
//             -> play (times of each stage) -> estimate
#pragma once

#include "base/arena_pool.h"
#include "plan/estimate.h"
#include "schedule/block_phases.h"
#include "schedule/stages.h"
#include "simulate/price.h"

// ---- prices ----

// What a segment takes; total_s is the sum of the others.
typedef struct ot_phase_price {
  double total_s;
  double compute_s;  // kernels
  double host_s;     // the device waits for the host
  double exposed_s[OT_TIMELINE_AXES];
} ot_phase_price;

// Work of a micro-batch that has actions of its own.
typedef enum ot_work { OT_WORK_FORWARD, OT_WORK_BACKWARD, OT_WORK_WEIGHT, OT_WORKS } ot_work;

// One kind of block. BACKWARD is B or I, with the recompute before it.
typedef struct ot_block_price {
  ot_phase_price work[OT_WORKS][2];            // [first micro-batch, later ones]
  double recompute_s;                          // part of BACKWARD's compute_s
  double recompute_total_s;                    // of BACKWARD, the recompute before it
  bool reads[OT_WORKS], reads_tied[OT_WORKS];  // weights
  bool writes_in_forward;                      // gradients
  bool weights_read_in;                        // W reads what enters the block
  double reduce_s[2][2];                       // [adds to the piece][last micro-batch]
  double gather_s, spread_s;
  ot_phase_price norm, update;
  double matrix_flops, model_flops;  // of a micro-batch
  int64_t elements;                  // of the bucket
  int parts;
} ot_block_price;

typedef struct ot_prices {
  ot_candidate key;  // as far as prices depend on it
  ot_run run;
  ot_run_lists lists;
  ot_mesh mesh;
  ot_group_shape shape[OT_GROUP_KINDS];
  ot_step_phases phases;
  ot_block_price *kind;  // [num_kinds]
  double tied_reduce_s[2][2], tie_s;
  ot_phase_price tied_update;
  ot_phase_price begin, clip;
  int64_t frame_scratch_bytes;  // of begin and clip
  bool sequence_parallel;       // between its regions, tp cuts activations
  bool tied, tied_apart;        // head and embedding share a table; and are on different stages
  int64_t hidden_bytes;         // of the activation between blocks
} ot_prices;

// ---- orders ----

// One action of a pipeline, in an order in which what each needs comes before it. Messages are
// numbered; -1: none.
typedef struct ot_walk_action {
  int32_t rank, chunk, micro_batch;
  int32_t in, out;  // message that it reads and that it makes
  int32_t reuse;    // earlier message of the rank whose buffer `out` takes: it must have left
  int32_t posts;    // message whose receive begins when this action is done
  ot_work work;
} ot_walk_action;

// What a chunk keeps at once, in micro-batches: as ot_step_ring.
enum { OT_WALK_RINGS = 5 };

typedef struct ot_walk {
  ot_pipeline kind;
  int num_ranks, num_chunks, micro_batches;
  bool split;
  int send_buffers;
  const int *rank_of;  // [num_chunks]
  int64_t num_actions;
  ot_walk_action *actions;  // [num_actions]
  int32_t *first_posts;     // [2 * num_ranks] messages whose receive begins with the step
  int64_t num_messages;
  int *ring[OT_WALK_RINGS];  // [num_chunks] by ot_step_ring
} ot_walk;

typedef struct ot_cut {
  ot_pipeline kind;
  ot_recompute recompute;
  int pp, vpp;
  ot_stages stages;
} ot_cut;

// ---- the estimator ----

struct ot_estimator {
  ot_job job;
  ot_arena *arena;
  ot_arena_pool pool;  // of what is needed for one estimate only
  ot_cluster cluster;  // as the ranks of the job find it
  ot_simulation simulation;
  bool own;         // the engine is this program: figures of its schedules, to the byte
  ot_model layers;  // the model with one layer of each kind
  int num_kinds;    // embedding, kinds of layers, head
  int num_blocks;
  int *kind_of;   // [num_blocks]
  int num_parts;  // of the parameters of the model
  int64_t num_prices, prices_capacity;
  ot_prices **prices;
  int64_t num_graphs, graphs_capacity;
  ot_graph **graphs;
  int64_t num_walks, walks_capacity;
  ot_walk **walks;
  int64_t num_cuts, cuts_capacity;
  ot_cut **cuts;
};

// The prices of the blocks of `candidate`, made at the first call.
ot_status ot_prices_find(ot_estimator *estimator, const ot_candidate *candidate, ot_prices **out);

// Which blocks each stage has.
ot_status ot_cut_find(ot_estimator *estimator, const ot_candidate *candidate,
                      const ot_prices *prices, const ot_stages **out);

// In which order the stages work.
ot_status ot_walk_find(ot_estimator *estimator, const ot_candidate *candidate,
                       const ot_stages *stages, const ot_walk **out);

// ---- playing ----

typedef struct ot_play_request {
  const ot_estimator *estimator;
  const ot_candidate *candidate;
  const ot_prices *prices;
  const ot_stages *stages;
  const ot_walk *walk;
  ot_played_step *played;  // gets the actions, if not null; room for those of the walk and a stage
} ot_play_request;

// Where the time of a stage goes: all but total_s add up to it.
typedef struct ot_stage_play {
  double total_s;
  double compute_s, update_s, bubble_s, host_s;
  double exposed_s[OT_TIMELINE_AXES];
  double recompute_s;  // part of compute_s
} ot_stage_play;

// `out` [num_ranks of the walk].
ot_status ot_step_play(const ot_play_request *request, ot_arena *arena, ot_stage_play *out);
