// SPDX-License-Identifier: Apache-2.0
// A step under replay. Private to step_replay.c and end_replay.c.
#pragma once

#include "estimate/phase_price.h"
#include "schedule/step_events.h"

// The clocks of a stage.
typedef struct ot_stage_clocks {
  double clock_s;  // of the compute lane
  double start_s;  // start of the current action
  double gather_s, reduce_s;
  double after_s;  // reductions deferred to the end of all work
  double bubble_s, exposed_pp_s, exposed_dp_s;
  double hidden_s, slower_s;  // of all pairs, as in ot_block_price
  bool in_pair;
  int32_t held[2];  // messages that the pair makes, sent at its end
  int num_held;
  int32_t *embedded;  // [micro_batches] for the weight gradient of an embedding that is a chunk
  ot_outline_request blocks;
  ot_event_request request;
  ot_event_cursor cursor;
  ot_end_event *ends;  // [num_ends] after the last action; next_end is the next
  int num_ends, next_end;
  double *gathered_s;                // [plan.gathers.count] completion times
  double *summed_s, *tied_summed_s;  // [plan.sums.count], [plan.tied_sums.count]
} ot_stage_clocks;

// One action on a chunk.
typedef struct ot_chunk_cost {
  bool known;
  double early_s;   // needs no message: recompute of the first block
  double before_s;  // up to the edge block, which makes a message
  double edge_s;
  double hidden_s, slower_s;  // in a pair
} ot_chunk_cost;

typedef struct ot_replayer {
  const ot_replay_request *request;
  const ot_prices *prices;      // of the first stage, for what is equal in all
  const ot_stage_place *place;  // [num_ranks]
  const ot_stages *stages;
  const ot_pipeline_flow *flow;
  bool overlap_gather, overlap_reduce, overlap_pipeline, overlap_pairs;
  bool each_micro_batch;                // gradients are reduced after each
  bool least;                           // of two costs of a work, the smaller one
  ot_stage_clocks *stage;               // [num_ranks]
  ot_chunk_cost *cost[OT_WORKS][2][2];  // [num_chunks] [later][in a pair]
  ot_step_event *events;                // [num_events] of one action
  int num_events;
  double *hop_s;              // [num_chunks] message between chunks c - 1 and c
  double *sent_s, *posted_s;  // [num_messages]
  double *reduced_s;          // [num_blocks] completion of its gradient reduction
  double tied_reduced_s;      // the same for the head's gradient of a tied embedding
  double tied_ready_s;        // when both uses can be added
} ot_replayer;

static inline const ot_block_price *ot_replayed_price(const ot_replayer *p, int block) {
  const ot_prices *const prices = p->place[p->request->cut->stage_of[block]].prices;
  return &prices->kind[prices->blocks->kind_of[block]];
}

static inline void ot_replayer_record(const ot_replayer *p, const ot_replayed_action *action) {
  ot_replayed_step *const replayed = p->request->replayed;
  if (replayed) replayed->actions[replayed->num_actions++] = *action;
}

// Replays norms, clipping and updates after the last action of every stage; adds to `out`
// [num_ranks] and sets its totals.
void ot_replay_end(ot_replayer *replayer, ot_stage_replay *out);
