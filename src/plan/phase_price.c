// SPDX-License-Identifier: Apache-2.0
// The loop of simulate.c over the tasks of one entry, for one entry.
#include "plan/phase_price.h"

typedef struct player {
  const ot_segment *segment;
  ot_phase_price *out;
  double clock_s, tensor_s, host_s;
  double *tensor_end_s;  // [num_tasks] tensor_s after each
  bool ahead, beside;    // the host runs ahead; collectives run beside kernels
} player;

// The lane stands still until `until_s`: collectives of the group of `task` are waited for.
static void wait_until(player *p, double until_s, const ot_task *task) {
  if (until_s <= p->clock_s) return;
  p->out->exposed_s[ot_timeline_axis_of(task->attributes.group)] += until_s - p->clock_s;
  p->clock_s = until_s;
}

static void play_task(player *p, int index, ot_price price) {
  const ot_task *const task = &p->segment->tasks[index];
  const double s = price.device_s + (p->ahead ? 0 : price.host_s);
  p->host_s += price.host_s;
  if (task->wait >= 0) {
    wait_until(p, p->tensor_end_s[task->wait], &p->segment->tasks[task->wait]);
  }
  if (task->kind == OT_TASK_COMPUTE) {
    p->clock_s += s;
    p->out->compute_s += s;
  } else if (task->lane == OT_LANE_TENSOR && p->beside) {
    p->tensor_s = (p->tensor_s > p->clock_s ? p->tensor_s : p->clock_s) + s;
  } else {
    wait_until(p, p->clock_s + s, task);
    p->tensor_s = p->clock_s;
  }
  p->tensor_end_s[index] = p->tensor_s;
}

ot_status ot_phase_price_build(const ot_estimator *estimator, const ot_prices *prices,
                               const ot_segment *segment, ot_phase_price *out) {
  enum { MOST_TASKS = 4096 };
  double ends_s[MOST_TASKS];
  *out = (ot_phase_price){0};
  if (!segment || segment->num_tasks == 0) return OT_OK;
  OT_ASSERT(segment->num_tasks <= MOST_TASKS);
  const ot_kernel_style *const style = estimator->simulation.style;
  player p = {.segment = segment,
              .out = out,
              .tensor_end_s = ends_s,
              .ahead = style && style->host_ahead,
              .beside = estimator->own || estimator->job.engine->overlap_tensor};
  int last = -1;
  for (int i = 0; i < segment->num_tasks; i++) {
    ot_price price;
    OT_TRY(ot_price_task(&estimator->simulation, prices->shape, &segment->tasks[i], &price));
    play_task(&p, i, price);
    if (segment->tasks[i].lane == OT_LANE_TENSOR) last = i;
  }
  if (last >= 0) wait_until(&p, p.tensor_s, &segment->tasks[last]);
  if (p.ahead && p.host_s > p.clock_s) out->host_s = p.host_s - p.clock_s;
  out->total_s = p.clock_s + out->host_s;
  return OT_OK;
}

void ot_phase_price_add(ot_phase_price *sum, const ot_phase_price *price, double times) {
  sum->total_s += times * price->total_s;
  sum->compute_s += times * price->compute_s;
  sum->host_s += times * price->host_s;
  for (int i = 0; i < OT_TIMELINE_AXES; i++) sum->exposed_s[i] += times * price->exposed_s[i];
}
