// SPDX-License-Identifier: Apache-2.0
// The loop of simulate.c over the tasks of one entry. Engines differ in what overlaps.
// Without sequence parallelism, activations between tp regions are replicated: the all-gather is
// omitted and the reduce-scatter becomes an all-reduce (Korthikanti et al. 2022, fig. 5: the same
// bytes).
#include "estimate/phase_price.h"

#include "base/extremes.h"

typedef struct replayer {
  const ot_estimator *estimator;
  const ot_prices *prices;
  const ot_segment *segment;
  ot_phase_price *out;
  double clock_s, tensor_s, host_s;
  double *tensor_end_s;  // [num_tasks] tensor_s after each
  double product_s;      // previous task, if it is a GEMM
  double overlapped_s;   // collectives concurrent with kernels
  double load_s;         // of these; ot_price.load_s
  bool ahead;            // the host runs ahead
  bool overlaps;         // collectives run concurrently with kernels
  bool in_pieces;        // also with the GEMM that makes or reads their data
} replayer;

// The lane waits until `until_s` for collectives of the group of `task`.
static void wait_until(replayer *p, double until_s, const ot_task *task) {
  if (until_s <= p->clock_s) return;
  p->out->exposed_s[ot_timeline_axis_of(task->attributes.group)] += until_s - p->clock_s;
  p->clock_s = until_s;
}

static bool is_product(const ot_task *task) {
  return task->op == OT_OP_LINEAR || task->op == OT_OP_LINEAR_DX || task->op == OT_OP_LINEAR_DW;
}

// A collective split into one chunk per rank hides all chunks but one under a GEMM.
static double hidden_s(const replayer *p, double collective_s, double product_s, int ranks) {
  return p->in_pieces ? ot_smaller(collective_s * (ranks - 1) / ranks, product_s) : 0;
}

// ---- without sequence parallelism ----

static bool is_whole(const replayer *p, const ot_task *task) {
  switch (task->op) {
    case OT_OP_RMSNORM:
    case OT_OP_RMSNORM_GRAD:
    case OT_OP_LAYERNORM:
    case OT_OP_LAYERNORM_GRAD:
    case OT_OP_ADD:
    case OT_OP_BIAS:
    case OT_OP_GATE:
    case OT_OP_GATE_GRAD:
    case OT_OP_DROPOUT:
    case OT_OP_DROPOUT_GRAD:
      return p->prices->key.tp > 1 && !p->prices->sequence_parallel;
    default:
      return false;
  }
}

static bool is_tensor(const ot_task *task) { return task->attributes.group == OT_GROUP_TENSOR; }

// Rewrites `task` for a step without sequence parallelism; false if such a step omits it.
static bool rewrite(const replayer *p, ot_task *task) {
  const bool scattered = p->prices->key.tp > 1 && !p->prices->sequence_parallel;
  if (task->op == OT_OP_ABSMAX) return p->estimator->job.engine->health_metrics;
  if (!scattered || task->kind != OT_TASK_COLLECTIVE || !is_tensor(task)) return true;
  if (task->op == OT_OP_ALL_GATHER) return false;
  if (task->op == OT_OP_REDUCE_SCATTER) task->op = OT_OP_ALL_REDUCE;
  return true;
}

// ---- replaying ----

static void replay_kernel(replayer *p, const ot_task *task, double s) {
  if (task->wait >= 0) {
    const ot_task *const waited = &p->segment->tasks[task->wait];
    const double until_s = p->tensor_end_s[task->wait];
    const double gap_s = until_s > p->clock_s ? until_s - p->clock_s : 0;
    const bool reads = is_product(task) && is_tensor(waited) && waited->op == OT_OP_ALL_GATHER;
    const double hides_s = reads ? hidden_s(p, gap_s, s, waited->attributes.group_size) : 0;
    wait_until(p, until_s - hides_s, waited);
  }
  p->clock_s += s;
  p->out->compute_s += s;
  p->product_s = is_product(task) ? s : 0;
}

static void replay_collective(replayer *p, const ot_task *task, double s, double load_s) {
  if (task->wait >= 0) {
    wait_until(p, p->tensor_end_s[task->wait], &p->segment->tasks[task->wait]);
  }
  const bool made = is_tensor(task) && task->op != OT_OP_ALL_GATHER;
  const double hides_s = made ? hidden_s(p, s, p->product_s, task->attributes.group_size) : 0;
  if (task->lane == OT_LANE_TENSOR && p->overlaps) {
    p->tensor_s = (p->tensor_s > p->clock_s ? p->tensor_s : p->clock_s) + s - hides_s;
    p->overlapped_s += s;
    p->load_s += load_s;
  } else {
    wait_until(p, p->clock_s + s - hides_s, task);
    p->tensor_s = p->clock_s;
    p->out->load_s += load_s;
  }
}

static ot_status replay_task(replayer *p, int index) {
  ot_task task = p->segment->tasks[index];
  ot_price price = {0};
  if (rewrite(p, &task)) {
    ot_price_rows(&p->estimator->simulation, p->segment, index, &task);
    OT_TRY(ot_price_task(&p->estimator->simulation, p->prices->shape, &task, &price));
    if (is_whole(p, &task)) price.device_s *= p->prices->key.tp;
    const double times = ot_price_times(&p->estimator->simulation, p->segment, index);
    price = (ot_price){.device_s = times * price.device_s,
                       .host_s = times * price.host_s,
                       .load_s = times * price.load_s};
  }
  const double s = price.device_s + (p->ahead ? 0 : price.host_s);
  p->host_s += price.host_s;
  if (task.kind != OT_TASK_COLLECTIVE) {
    replay_kernel(p, &task, s);
  } else {
    replay_collective(p, &task, s, price.load_s);
  }
  p->tensor_end_s[index] = p->tensor_s;
  return OT_OK;
}

static replayer create(const ot_estimator *e, const ot_prices *prices, const ot_segment *segment,
                       ot_tensor_overlap overlap) {
  const bool backward = segment->phase != OT_PHASE_FORWARD;
  return (replayer){
      .estimator = e,
      .prices = prices,
      .segment = segment,
      .ahead = ot_price_host_ahead(&e->simulation),
      .overlaps = overlap >= (backward ? OT_TENSOR_OVERLAP_BACKWARD : OT_TENSOR_OVERLAP_KERNELS),
      .in_pieces = overlap == OT_TENSOR_OVERLAP_PIECES,
  };
}

// Returns an array of `count` times.
static double *task_ends(const ot_estimator *e, int64_t count) {
  ot_task_ends *const ends = e->ends;
  if (ends->capacity < count) {
    ends->s = ot_arena_array(e->arena, 2 * count, sizeof *ends->s);
    ends->capacity = 2 * count;
  }
  return ends->s;
}

static ot_status build(const ot_estimator *estimator, const ot_prices *prices,
                       const ot_segment *segment, ot_tensor_overlap overlap, ot_phase_price *out) {
  *out = (ot_phase_price){0};
  replayer p = create(estimator, prices, segment, overlap);
  p.out = out;
  p.tensor_end_s = task_ends(estimator, segment->num_tasks);
  int last = -1;
  for (int i = 0; i < segment->num_tasks; i++) {
    OT_TRY(replay_task(&p, i));
    if (segment->tasks[i].lane == OT_LANE_TENSOR) last = i;
  }
  if (last >= 0) wait_until(&p, p.tensor_s, &segment->tasks[last]);
  ot_entry_work work = {.compute_s = out->compute_s,
                        .overlapped_s = p.overlapped_s,
                        .load_s = p.load_s,
                        .host_s = p.host_s};
  out->load_s += out->compute_s;
  for (int i = 0; i < OT_TIMELINE_AXES; i++) work.exposed_s += out->exposed_s[i];
  const ot_entry_delay delay = ot_price_entry_delay(&estimator->simulation, &work);
  out->compute_s += delay.slower_s;
  out->host_s = delay.host_s;
  out->total_s = p.clock_s + delay.slower_s + delay.host_s;
  return OT_OK;
}

ot_status ot_phase_price_build(const ot_estimator *estimator, const ot_prices *prices,
                               const ot_segment *segment, ot_phase_price *out) {
  const bool recent = estimator->cluster.device.flops[OT_F8] > 0;
  ot_tensor_overlap overlap = estimator->job.engine->overlap_tensor;
  *out = (ot_phase_price){0};
  if (!segment || segment->num_tasks == 0) return OT_OK;
  if (overlap == OT_TENSOR_OVERLAP_HALF && (!recent || prices->key.tp == 1)) {
    overlap = OT_TENSOR_OVERLAP_NONE;
  }
  if (overlap != OT_TENSOR_OVERLAP_HALF) return build(estimator, prices, segment, overlap, out);
  ot_phase_price without, with;
  OT_TRY(build(estimator, prices, segment, OT_TENSOR_OVERLAP_NONE, &without));
  OT_TRY(build(estimator, prices, segment, OT_TENSOR_OVERLAP_PIECES, &with));
  ot_phase_price_add(out, &without, 0.5);
  ot_phase_price_add(out, &with, 0.5);
  return OT_OK;
}

void ot_phase_price_add(ot_phase_price *sum, const ot_phase_price *price, double times) {
  sum->total_s += times * price->total_s;
  sum->compute_s += times * price->compute_s;
  sum->host_s += times * price->host_s;
  sum->load_s += times * price->load_s;
  for (int i = 0; i < OT_TIMELINE_AXES; i++) sum->exposed_s[i] += times * price->exposed_s[i];
}
