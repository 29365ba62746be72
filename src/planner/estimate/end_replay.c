// SPDX-License-Identifier: Apache-2.0
// The end of a step: tied gradients, norms, clipping, updates and gathers of new weights.
#include "base/extremes.h"
#include "estimate/replayer.h"

static bool holds_copy(const ot_replayer *p, const ot_stage_clocks *s, int block) {
  return p->request->cut->stage_of[block] != s->blocks.stage;
}

static const ot_prices *prices_of(const ot_replayer *p, const ot_stage_clocks *s) {
  return p->place[s->blocks.stage].prices;
}

static void await_reduction(const ot_replayer *p, ot_stage_clocks *s, int block) {
  const double waits_s = p->reduced_s[block] - s->clock_s;
  if (waits_s <= 0) return;
  s->clock_s = p->reduced_s[block];
  if (block > 0 || !p->prices->tied_across_stages) {
    s->exposed_dp_s += waits_s;
    return;
  }
  // Between the first and the last stage: one of them waits for the other.
  const double transfer_s = prices_of(p, s)->tie_s + ot_replayed_price(p, 0)->gradient_gather_s;
  s->exposed_pp_s += waits_s < transfer_s ? waits_s : transfer_s;
  s->bubble_s += waits_s < transfer_s ? 0 : waits_s - transfer_s;
}

// Time at which both gradients of a tied embedding are complete.
static double tied_ready_s(const ot_replayer *p) {
  const ot_stage_clocks *const a = &p->stage[p->flow->rank_of[0]];
  const ot_stage_clocks *const b = &p->stage[p->flow->rank_of[p->flow->num_chunks - 1]];
  return ot_larger(ot_larger(a->reduce_s, a->clock_s), ot_larger(b->reduce_s, b->clock_s));
}

// Adds the two gradients of a tied embedding: on one rank, or between the first and the last stage.
static void add_tied(ot_replayer *p, ot_stage_clocks *s, ot_stage_replay *out) {
  const int owner = p->flow->rank_of[0], user = p->flow->rank_of[p->flow->num_chunks - 1];
  if (owner != user || p->tied_reduced_s > 0 || p->reduced_s[0] > 0) {
    s->reduce_s = p->reduced_s[0] = p->tied_ready_s + prices_of(p, s)->tie_s;
  } else {
    s->clock_s += prices_of(p, s)->tie_s;
    out->update_s += prices_of(p, s)->tie_s;
  }
}

static void gather_tied(ot_replayer *p, ot_stage_clocks *s, int block) {
  const double gradient_gather_s = ot_replayed_price(p, block)->gradient_gather_s;
  if (gradient_gather_s > 0) s->reduce_s = p->reduced_s[block] = s->reduce_s + gradient_gather_s;
}

static void run_norm(ot_replayer *p, ot_stage_clocks *s, int block, ot_stage_replay *out) {
  const double norm_s = holds_copy(p, s, block) ? 0 : ot_replayed_price(p, block)->norm.total_s;
  await_reduction(p, s, block);
  s->clock_s += norm_s;
  out->update_s += norm_s;
}

static void run_update(ot_replayer *p, ot_stage_clocks *s, int block, ot_stage_replay *out) {
  const double update_s = holds_copy(p, s, block) ? prices_of(p, s)->tied_update.total_s
                                                  : ot_replayed_price(p, block)->update.total_s;
  s->clock_s += update_s;
  out->update_s += update_s;
}

static void gather_after(ot_replayer *p, ot_stage_clocks *s, int block) {
  if (p->request->estimator->job.engine->overlap_update_gather) return;
  s->clock_s += ot_replayed_price(p, block)->gather_s;
  s->exposed_dp_s += ot_replayed_price(p, block)->gather_s;
}

static void run_end_event(ot_replayer *p, ot_stage_clocks *s, const ot_end_event *event,
                          ot_stage_replay *out) {
  switch (event->kind) {
    case OT_END_TIE:
      add_tied(p, s, out);
      return;
    case OT_END_GATHER_GRADIENT:
      gather_tied(p, s, event->block);
      return;
    case OT_END_NORM:
      run_norm(p, s, event->block, out);
      return;
    case OT_END_CLIP:
      s->clock_s += prices_of(p, s)->clip.total_s;
      return;
    case OT_END_UPDATE:
      run_update(p, s, event->block, out);
      return;
    case OT_END_GATHER:
      gather_after(p, s, event->block);
      return;
  }
  OT_UNREACHABLE();
}

// Replays the end of the step on a stage: up to clipping, where stages synchronise, or the rest.
static void run_end(ot_replayer *p, int rank, bool met, ot_stage_replay *out) {
  ot_stage_clocks *const s = &p->stage[rank];
  while (s->next_end < s->num_ends && (met || s->ends[s->next_end].kind != OT_END_CLIP)) {
    run_end_event(p, s, &s->ends[s->next_end++], out);
  }
}

// All stages synchronise at the gradient norm; then each updates its parameters. Returns the end.
static double run_ends(ot_replayer *p, ot_stage_replay *out) {
  double met_s = 0, end_s = 0;
  p->tied_ready_s = tied_ready_s(p);
  for (int r = 0; r < p->flow->num_ranks; r++) {
    run_end(p, r, false, &out[r]);
    met_s = ot_larger(met_s, p->stage[r].clock_s);
  }
  for (int r = 0; r < p->flow->num_ranks; r++) {
    ot_stage_clocks *const s = &p->stage[r];
    s->bubble_s += met_s - s->clock_s;
    s->clock_s = out[r].met_s = met_s;
    run_end(p, r, true, &out[r]);
    end_s = ot_larger(end_s, s->clock_s);
    ot_replayer_record(p, &(ot_replayed_action){.stage = r,
                                                .chunk = -1,
                                                .micro_batch = -1,
                                                .kind = OT_REPLAYED_UPDATE,
                                                .start_s = met_s,
                                                .end_s = s->clock_s});
  }
  return end_s;
}

// Host time between steps, and waiting for the slowest device: the most of all stages.
static double late_after(const ot_replayer *p, double end_s) {
  const int devices = p->request->estimator->job.devices;
  double late_s = 0;
  for (int r = 0; r < p->flow->num_ranks; r++) {
    const ot_simulation *const simulation = &p->place[r].estimator->simulation;
    late_s = ot_larger(late_s, ot_price_step_s(simulation, devices, end_s) - end_s);
  }
  return late_s;
}

void ot_replay_end(ot_replayer *p, ot_stage_replay *out) {
  const double end_s = run_ends(p, out);
  const double late_s = late_after(p, end_s);
  for (int r = 0; r < p->flow->num_ranks; r++) {
    const ot_stage_clocks *const s = &p->stage[r];
    const ot_phase_price *const begin = &p->place[r].prices->begin;
    const ot_phase_price *const clip = &p->place[r].prices->clip;
    out[r].total_s = end_s + late_s;
    out[r].exposed_s[OT_TIMELINE_WORLD] += late_s;
    out[r].update_s += begin->compute_s + clip->compute_s;
    out[r].bubble_s = s->bubble_s + end_s - s->clock_s;
    out[r].exposed_s[OT_TIMELINE_PP] += s->exposed_pp_s;
    out[r].exposed_s[OT_TIMELINE_DP] += s->exposed_dp_s;
    for (int i = 0; i < OT_TIMELINE_AXES; i++) {
      out[r].exposed_s[i] += begin->exposed_s[i] + clip->exposed_s[i];
    }
    out[r].host_s += begin->host_s + clip->host_s;
  }
}
