// SPDX-License-Identifier: Apache-2.0
// run: any machine. Estimates against the schedules that training would play: times against the
// simulator, memory against the arena.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/heap.h"
#include "plan/estimate.h"
#include "support/tiny_model.h"
#include "train/prediction.h"

static ot_cluster machine_of(int devices) {
  ot_cluster cluster = {
      .name = "paper",
      .num_devices = devices,
      .device = {.name = "abacus",
                 .other_flops_per_s = 4e9,
                 .memory_bytes_per_s = 1e10,
                 .packs = true,
                 .launch_s = 2e-6,
                 .memory_bytes = 1 << 30},
      .num_levels = 2,
      .level = {{.name = "node", .size = 4, .bytes_per_s = 5e9, .latency_s = 1e-6},
                {.name = "net", .size = 1024, .bytes_per_s = 1e9, .latency_s = 5e-6}}};
  cluster.device.flops[OT_F32] = 3e10;
  cluster.device.flops[OT_F64] = 1e10;
  return cluster;
}

typedef struct estimate_case {
  ot_heap heap;
  ot_arena arena;
  ot_model model;
  ot_cluster cluster;
  ot_job job;
  ot_estimator *estimator;
} estimate_case;

static void create(const ot_model *model, const ot_candidate *c, estimate_case *out) {
  *out = (estimate_case){.model = *model};
  out->arena = ot_heap_arena_create(&out->heap);
  const int devices = c->tp * c->pp * c->cp * c->dp;
  out->cluster = machine_of(devices);
  out->job = (ot_job){.model = &out->model,
                      .cluster = &out->cluster,
                      .engine = &ot_engine_orthant,
                      .recipe = *ot_recipe_find("fp32"),
                      .devices = devices,
                      .global_batch_size = c->micro_batch_size * c->micro_batches * c->dp,
                      .sequence_length = 48};
  if (ot_estimator_build(&out->job, &out->arena, &out->estimator) != OT_OK) {
    fail_msg("%s", ot_fail_message());
  }
}

static void destroy(estimate_case *c) { ot_heap_release(&c->heap); }

static ot_candidate candidate_of(ot_candidate c) {
  if (c.tp == 0) c.tp = 1;
  if (c.pp == 0) c.pp = 1;
  if (c.vpp == 0) c.vpp = 1;
  if (c.cp == 0) c.cp = 1;
  if (c.dp == 0) c.dp = 1;
  if (c.dp_shard == 0) c.dp_shard = c.dp;
  if (c.micro_batch_size == 0) c.micro_batch_size = 2;
  if (c.micro_batches == 0) c.micro_batches = 4;
  c.ep = c.etp = 1;
  return c;
}

// Gathers of weights that are not hidden are not played yet.
static void compare(const ot_model *model, ot_candidate c) {
  const double tolerance = c.zero == 3 ? 0.01 : c.tp > 1 ? 1e-3 : 1e-9;
  estimate_case e;
  c = candidate_of(c);
  create(model, &c, &e);
  char text[256];
  ot_candidate_print(&c, text, sizeof text);
  if (ot_candidate_check(&e.job, &c) != OT_OK) fail_msg("%s: %s", text, ot_fail_message());
  ot_estimate estimate;
  if (ot_estimate_build(e.estimator, &c, &estimate) != OT_OK) {
    fail_msg("%s: %s", text, ot_fail_message());
  }
  ot_run_lists lists;
  ot_run run;
  ot_mesh mesh;
  ot_candidate_run(&e.job, &c, &lists, &run);
  run.seed = 1;
  assert_int_equal(ot_mesh_build(&run.parallel, e.job.devices, &mesh), OT_OK);
  const ot_prediction_request wanted = {
      .run = &run, .mesh = &mesh, .cluster = &e.cluster, .threads = 1};
  ot_prediction p;
  if (ot_prediction_build(&wanted, &e.arena, &p) != OT_OK) {
    fail_msg("%s: %s", text, ot_fail_message());
  }
  const double s = p.steps[0].expected.step_s;
  const double error = estimate.step_s / s - 1;
  if (error < -tolerance || error > tolerance) {
    fail_msg("%s: %.9g s, simulated %.9g, %+.3f %%", text, estimate.step_s, s, 100 * error);
  }
  double sum_s = estimate.compute_s + estimate.update_s + estimate.bubble_s + estimate.host_s;
  for (int i = 0; i < OT_TIMELINE_AXES; i++) sum_s += estimate.exposed_s[i];
  if (sum_s < 0.999999 * s * (1 + error) || sum_s > 1.000001 * s * (1 + error)) {
    fail_msg("%s: %.9g s, the terms add up to %.9g", text, estimate.step_s, sum_s);
  }
  destroy(&e);
}

static ot_model wider(ot_model model, int layers) {
  model.num_layers = layers;
  model.hidden_size = 32;
  model.intermediate_size = 64;
  model.num_heads = 4;
  model.num_kv_heads = model.num_kv_heads == 3 ? 4 : 2;
  return model;
}

static void estimates_take_what_schedules_take(void **state) {
  (void)state;
  const ot_model gpt2 = wider(tiny_gpt2(), 6), llama = wider(tiny_llama(), 7);
  compare(&gpt2, (ot_candidate){.micro_batches = 1});
  compare(&gpt2, (ot_candidate){.recompute = OT_RECOMPUTE_FULL});
  compare(&llama, (ot_candidate){.recompute = OT_RECOMPUTE_SELECTIVE});
  compare(&llama, (ot_candidate){.tp = 2});
  compare(&gpt2, (ot_candidate){.tp = 4});
  compare(&llama, (ot_candidate){.cp = 2});
  compare(&llama, (ot_candidate){.dp = 2});
  compare(&gpt2, (ot_candidate){.dp = 2});
  compare(&llama, (ot_candidate){.dp = 2, .zero = 1});
  compare(&llama, (ot_candidate){.dp = 2, .zero = 2});
  compare(&gpt2, (ot_candidate){.dp = 2, .zero = 2});
  compare(&llama, (ot_candidate){.dp = 2, .zero = 3});
  compare(&llama, (ot_candidate){.dp = 2, .zero = 3, .recompute = OT_RECOMPUTE_FULL});
  compare(&gpt2, (ot_candidate){.dp = 4, .zero = 3, .dp_shard = 2});
  compare(&gpt2, (ot_candidate){.dp = 4, .zero = 1, .dp_shard = 2});
  compare(&llama, (ot_candidate){.pp = 2, .pipeline = OT_PIPELINE_1F1B});
  compare(&llama, (ot_candidate){.pp = 4, .pipeline = OT_PIPELINE_1F1B, .micro_batches = 16});
  compare(&gpt2, (ot_candidate){.pp = 2, .pipeline = OT_PIPELINE_1F1B});
  compare(&gpt2, (ot_candidate){.pp = 2, .pipeline = OT_PIPELINE_GPIPE});
  compare(&llama, (ot_candidate){.pp = 2, .vpp = 2, .pipeline = OT_PIPELINE_INTERLEAVED});
  compare(&gpt2, (ot_candidate){
                     .pp = 2, .vpp = 3, .pipeline = OT_PIPELINE_INTERLEAVED, .micro_batches = 8});
  compare(&llama, (ot_candidate){.pp = 2, .pipeline = OT_PIPELINE_ZB_H1});
  compare(&llama, (ot_candidate){.pp = 4, .pipeline = OT_PIPELINE_ZB_H2, .micro_batches = 8});
  compare(&llama, (ot_candidate){.pp = 2, .pipeline = OT_PIPELINE_ZB_V, .micro_batches = 8});
  compare(&gpt2, (ot_candidate){.pp = 2, .pipeline = OT_PIPELINE_ZB_V, .micro_batches = 8});
  compare(&gpt2,
          (ot_candidate){.pp = 2, .pipeline = OT_PIPELINE_1F1B, .dp = 2, .zero = 1, .tp = 2});
  compare(&llama,
          (ot_candidate){.pp = 2, .pipeline = OT_PIPELINE_1F1B, .dp = 2, .zero = 3, .tp = 2});
  compare(&gpt2,
          (ot_candidate){.pp = 2, .pipeline = OT_PIPELINE_1F1B, .dp = 2, .zero = 2, .cp = 2});
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(estimates_take_what_schedules_take),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
