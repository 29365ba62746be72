// SPDX-License-Identifier: Apache-2.0
// run: any machine, OT_TESTS=full for every pair. Plans and simulations of the same run agree:
// step, MFU and memory of an estimate equal those of the run's schedules, for every preset of model
// and cluster.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/extremes.h"
#include "base/rng.h"
#include "base/text.h"
#include "cli/installed.h"
#include "describe/pipeline_rules.h"
#include "estimate/estimate.h"
#include "estimate/job_check.h"
#include "files/config_file.h"
#include "forecast/prediction.h"
#include "host/heap.h"

enum { MOST_RANKS = 64, MOST_PAIRS = 1024, CASES_OF_A_PAIR = 3, SAMPLE = 12, DRAWS = 4000 };

// A job for a pair of presets, with all objects that it points to.
typedef struct preset_job {
  ot_heap heap;
  ot_arena arena;
  const char *name;
  ot_config_model model;
  ot_cluster cluster, sized;
  ot_job job;
} preset_job;

static void must(ot_status status) {
  if (status != OT_OK) fail_msg("%s", ot_fail_message());
}

static void create(const char *model, const char *cluster, preset_job *out) {
  *out = (preset_job){0};
  out->arena = ot_heap_arena_create(&out->heap);
  out->name = ot_arena_format(&out->arena, "%s on %s", model, cluster);
  const ot_config_request request = {.presets = ot_installed_presets(&out->arena)};
  bool found;
  must(ot_config_load_model(model, &request, &out->arena, &out->model));
  must(ot_cluster_file_load(cluster, &request.presets, &out->arena, &out->cluster, &found));
  assert_true(found);
}

static void destroy(preset_job *p) { ot_heap_release(&p->heap); }

// ---- candidates ----

static int draw(uint64_t *draws, int bound) {
  return (int)ot_rng_below(2026, 0, (*draws)++, (uint64_t)bound);
}

static ot_candidate draw_candidate(uint64_t *n, bool experts) {
  ot_candidate c = {.tp = 1 << draw(n, 4),
                    .pp = 1 << draw(n, 4),
                    .cp = draw(n, 3) == 0 ? 2 : 1,
                    .dp = 1 << draw(n, 5),
                    .dp_shard = 1 << draw(n, 5),
                    .ep = experts ? 1 << draw(n, 4) : 1,
                    .etp = 1,
                    .zero = draw(n, 4),
                    .micro_batch_size = 1 + draw(n, 2),
                    .micro_batches = 1 + draw(n, 12),
                    .pipeline = (ot_pipeline)draw(n, OT_PIPELINES),
                    .recompute = (ot_recompute)draw(n, 3)};
  c.vpp = ot_pipeline_rules_of(c.pipeline)->min_chunks;
  return c;
}

static const char *draw_recipe(uint64_t *n, const ot_device_kind *device) {
  static const char *const recipes[] = {"bf16", "bf16-fp32-gradients", "fp8", "fp32"};
  for (;;) {
    const char *const name = recipes[draw(n, OT_COUNT(recipes))];
    if (device->flops[ot_recipe_find(name)->products] > 0) return name;
  }
}

// Sets up the job that `c` splits; false if it is invalid.
static bool take(preset_job *p, const ot_candidate *c, const char *recipe) {
  const int devices = c->tp * c->pp * c->cp * c->dp;
  if (devices > MOST_RANKS || devices > p->cluster.num_devices) return false;
  if (c->zero > 0 && c->dp % c->dp_shard != 0) return false;
  if (ot_cluster_resize(&p->cluster, devices, &p->sized) != OT_OK) return false;
  p->job = (ot_job){.model = &p->model.model,
                    .cluster = &p->sized,
                    .engine = &ot_engine_orthant,
                    .recipe = *ot_recipe_find(recipe),
                    .devices = devices,
                    .global_batch_size = c->micro_batch_size * c->micro_batches * c->dp,
                    .sequence_length = ot_smaller_whole(p->model.model.max_positions, 2048)};
  return ot_job_check(&p->job) == OT_OK && ot_candidate_check(&p->job, c) == OT_OK;
}

// ---- comparing ----

static void expect_near(const char *what, double planned, double simulated, const char *text) {
  const double error = planned / simulated - 1;
  if (error > 1e-9 || error < -1e-9) {
    fail_msg("%s: %s is %.12g planned, %.12g simulated", text, what, planned, simulated);
  }
}

static void compare(preset_job *p, const ot_candidate *c) {
  char split[256];
  ot_candidate_print(c, split, sizeof split);
  const char *const text =
      ot_arena_format(&p->arena, "%s, %s: %s", p->name, p->job.recipe.name, split);
  ot_estimator *estimator;
  ot_estimate estimate;
  must(ot_estimator_build(&p->job, &p->arena, &estimator));
  must(ot_estimate_build(estimator, c, &estimate));
  ot_run_lists lists;
  ot_run run;
  ot_mesh mesh;
  ot_prediction predicted;
  ot_candidate_run(&p->job, c, &lists, &run);
  must(ot_mesh_build(&run.parallel, p->job.devices, &mesh));
  const ot_prediction_request request = {
      .run = &run, .mesh = &mesh, .cluster = &p->sized, .threads = 1};
  must(ot_prediction_build(&request, &p->arena, &predicted));
  const ot_predicted_step *const step = &predicted.steps[0];
  expect_near("step", estimate.step_s, step->expected.step_s, text);
  expect_near("MFU", estimate.mfu, step->model_flops / step->expected.step_s / predicted.peak_flops,
              text);
  const ot_predicted_memory *const memory = &predicted.memory;
  if (estimate.memory.peak != memory->arena.peak_bytes) {
    fail_msg("%s: %lld bytes planned, %lld simulated", text, (long long)estimate.memory.peak,
             (long long)memory->arena.peak_bytes);
  }
  assert_int_equal(estimate.memory.context, memory->context);
  assert_int_equal(estimate.fits, memory->fits);
}

static void compare_some(const char *model, const char *cluster) {
  uint64_t draws = ot_hash_text(ot_hash_text(OT_HASH_START, model), cluster);
  int compared = 0;
  for (int i = 0; i < DRAWS && compared < CASES_OF_A_PAIR; i++) {
    preset_job p;
    create(model, cluster, &p);
    const ot_candidate c = draw_candidate(&draws, p.model.model.moe.num_experts > 0);
    if (take(&p, &c, draw_recipe(&draws, &p.cluster.device))) {
      compare(&p, &c);
      compared++;
    }
    destroy(&p);
  }
  assert_int_equal(compared, CASES_OF_A_PAIR);
}

// ---- pairs ----

static void every_simulated_run_matches_its_plan_on_every_cluster(void **state) {
  (void)state;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_presets presets = ot_installed_presets(&arena);
  const ot_preset_names models = ot_presets_list(&presets, OT_PRESET_MODEL, &arena);
  const ot_preset_names clusters = ot_presets_list(&presets, OT_PRESET_CLUSTER, &arena);
  const char *const asked = getenv("OT_TESTS");
  const int64_t pairs = models.count * clusters.count;
  const bool all = asked && strcmp(asked, "full") == 0;
  // A coprime stride reaches every model and every cluster.
  for (int64_t i = 0; i < (all ? pairs : SAMPLE); i++) {
    const int64_t pair = all ? i : i * 37 % pairs;
    compare_some(models.name[pair % models.count], clusters.name[pair / models.count]);
  }
  ot_heap_release(&heap);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_simulated_run_matches_its_plan_on_every_cluster),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
