// SPDX-License-Identifier: Apache-2.0
#include "rl/fleet_costs.h"

#include <math.h>

#include "base/extremes.h"
#include "describe/engine.h"
#include "ops/collective.h"
#include "runtime/inference.h"
#include "runtime/training_request.h"
#include "simulate/simulate.h"
#include "train/trainer.h"

enum { MANY = 512 };  // rows of the wider decode order: beyond these, products are bound by FLOPs

typedef struct pricing {
  const ot_rl_price_request *request;
  ot_arena *arena;
  ot_cluster cluster;
  ot_simulation simulation;
  int threads;
  ot_backend backend;
} pricing;

static ot_status simulate(const pricing *p, const ot_schedule *schedule, ot_order_kind kind,
                          double *seconds) {
  ot_timeline timeline;
  const int order = ot_schedule_find_order(schedule, kind, 0);
  OT_CHECK(order >= 0, OT_BUG, "rl: no order to price");
  OT_TRY(ot_schedule_simulate(schedule, order, &p->simulation, p->arena, &timeline));
  *seconds = timeline.total_s;
  return OT_OK;
}

static ot_status plan_decode(const pricing *p, int64_t slots, int64_t positions,
                             ot_schedule *schedule) {
  const ot_run *const run = p->request->run;
  const ot_inference_shape shape = {.slots = slots, .chunk = slots, .positions = positions};
  ot_rank_request request = {.graph = {.model = &run->model,
                                       .compute = ot_run_compute(&run->precision),
                                       .storage = ot_run_storage(&run->precision),
                                       .threads = p->threads,
                                       .backend = p->backend,
                                       .seed = (uint64_t)run->seed}};
  ot_graph *const graphs = ot_arena_array(p->arena, OT_MODES, sizeof *graphs);
  ot_inference_complete(&shape, &request);
  return ot_runtime_plan(&request, p->arena, graphs, schedule);
}

// A line through the steps of one row and of many; rows are at half of a response on average.
static ot_status price_decode(const pricing *p, ot_rl_prices *out) {
  const int64_t positions = (int64_t)ceil(p->request->tokens), widths[] = {1, MANY};
  double seconds[2] = {0, 0};
  int64_t bytes[2];
  for (int i = 0; i < 2; i++) {
    ot_schedule schedule = {0};
    OT_TRY(plan_decode(p, widths[i], ot_larger_whole(1, positions / 2), &schedule));
    OT_TRY(simulate(p, &schedule, ot_order_of_mode(OT_MODE_DECODE), &seconds[i]));
    ot_schedule full = {0};
    OT_TRY(plan_decode(p, widths[i], ot_larger_whole(positions, 1), &full));
    bytes[i] = full.memory.peak_bytes;
  }
  out->costs.row_s = ot_larger(0, (seconds[1] - seconds[0]) / (MANY - 1));
  out->costs.decode_s = seconds[0] - out->costs.row_s;
  const ot_device_kind *const device = &p->cluster.device;
  const int64_t room =
      ot_device_capacity(device) - ot_engine_context_bytes(&ot_engine_orthant, device) - bytes[0];
  OT_CHECK(room >= 0, OT_USAGE,
           "rl: a generator needs %.3g GB for one response, %s has %.3g GB (workers are single "
           "devices here)",
           1e-9 * (double)bytes[0], device->name, 1e-9 * (double)ot_device_capacity(device));
  const int64_t slot = ot_larger_whole(1, (bytes[1] - bytes[0]) / (MANY - 1));
  out->most_slots = 1 + room / slot;
  return OT_OK;
}

// Scoring and training of a batch by one worker, for each generated token.
static ot_status price_training(const pricing *p, ot_schedule *schedule, ot_rl_prices *out) {
  const ot_run *const run = p->request->run;
  const int64_t rows = run->batch.micro_batch_size * run->data.sequence_length;
  const double tokens = run->rl.batch * p->request->tokens;
  const int micro_batches = (int)ceil(tokens / (double)rows);
  ot_rank_request request;
  OT_TRY(ot_training_request(run, NULL, 0, p->arena, &request));
  request.graph.backend = p->backend;
  request.modes = 1u << OT_MODE_TRAIN | 1u << OT_MODE_SCORE;
  request.schedule.micro_batches = &micro_batches;
  request.schedule.num_micro_batches = 1;
  request.graph.threads = p->threads;
  ot_graph *const graphs = ot_arena_array(p->arena, OT_MODES, sizeof *graphs);
  double step_s = 0, score_s = 0;
  OT_TRY(ot_runtime_plan(&request, p->arena, graphs, schedule));
  OT_TRY(simulate(p, schedule, OT_ORDER_STEP, &step_s));
  OT_TRY(simulate(p, schedule, OT_ORDER_SCORE, &score_s));
  const double generated = run->rl.batch * p->request->generated;
  out->costs.train_token_s = (step_s + micro_batches * score_s) / generated;
  return OT_OK;
}

// The same order for other workers: `generators` of them, and the rest are ranks of dp, each with
// all weights.
static void set_fleet(const pricing *p, ot_schedule *schedule, int generators) {
  const int ranks = p->request->run->rl.workers - generators;
  int *const members = ot_arena_array(p->arena, ranks, sizeof *members);
  for (int i = 0; i < ranks; i++) members[i] = i;
  schedule->group[OT_GROUP_WORLD] = (ot_group){.size = ranks, .ranks = members};
  for (int i = 0; i < schedule->num_segments; i++) {
    if (schedule->segments[i].phase != OT_PHASE_PUBLISH) continue;
    schedule->segments[i].tasks[0].attributes.generators = generators;
  }
}

// Prices the order that publishes weights, for each number of generators.
static ot_status price_weights(const pricing *p, ot_schedule *schedule, ot_rl_prices *out) {
  const ot_run *const run = p->request->run;
  const int index = ot_schedule_find_order(schedule, OT_ORDER_PUBLISH, 0);
  const ot_order *const order = &schedule->orders[index];
  out->num_buckets = order->num_entries;
  for (int i = 0; i < order->num_entries; i++) {
    const ot_task *const task = &schedule->segments[order->entries[i].segment].tasks[0];
    const ot_op_types types = ot_task_types(task);
    const int64_t bytes = (int64_t)ot_collective_bytes(task->op, &task->attributes, &types);
    out->weight_bytes += bytes;
    out->largest_bucket_bytes = ot_larger_whole(out->largest_bucket_bytes, bytes);
  }
  out->publish_s = ot_arena_array(p->arena, run->rl.workers, sizeof *out->publish_s);
  for (int generators = 1; generators < run->rl.workers; generators++) {
    set_fleet(p, schedule, generators);
    OT_TRY(simulate(p, schedule, OT_ORDER_PUBLISH, &out->publish_s[generators]));
  }
  return OT_OK;
}

ot_status ot_rl_prices_build(const ot_rl_price_request *request, ot_arena *arena,
                             ot_rl_prices *out) {
  const ot_run *const run = request->run;
  pricing p = {.request = request, .arena = arena};
  OT_CHECK(run->rl.workers >= 2, OT_USAGE, "rl.workers=%d; allowed: 2 or more", run->rl.workers);
  p.threads = ot_cluster_threads(request->cluster, run->rl.workers, run->threads);
  OT_TRY(ot_cluster_share(request->cluster, run->rl.workers, p.threads, &p.cluster));
  p.backend = ot_device_kind_backend(&p.cluster.device);
  p.simulation = ot_simulation_of(
      &p.cluster, ot_engine_style(&ot_engine_orthant, &p.cluster.device), run->precision.compute);
  *out = (ot_rl_prices){0};
  OT_TRY(price_decode(&p, out));
  ot_schedule training = {0};
  OT_TRY(price_training(&p, &training, out));
  return price_weights(&p, &training, out);
}
