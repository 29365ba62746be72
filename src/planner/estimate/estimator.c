// SPDX-License-Identifier: Apache-2.0
// The estimator of devices of one kind: the kinds of layers of its job, and its machine.
#include "estimate/estimator.h"

#include "estimate/estimate.h"
#include "estimate/framework.h"

static void find_kinds(ot_estimator *e) {
  const ot_model *const model = e->job.model;
  const int layers = (int)model->num_layers;
  int *const of_kind = ot_arena_array(e->arena, layers, sizeof(int));
  int *const kind_of = ot_arena_array(e->arena, layers, sizeof(int));
  int kinds = 0;
  for (int i = 0; i < layers; i++) {
    int kind = 0;
    while (kind < kinds && !ot_model_same_layer(model, of_kind[kind], i)) kind++;
    if (kind == kinds) of_kind[kinds++] = i;
    kind_of[i] = kind;
  }
  ot_model_take_layers(model, of_kind, kinds, &e->layers);
  ot_block_list_build(e, kind_of, &(ot_split){0}, &e->joined);
  ot_block_list_build(e, kind_of, &(ot_split){.separate_expert_block = true}, &e->apart);
}

static ot_status find_machine(const ot_cluster *cluster, ot_estimator *e) {
  const int asked = e->job.run ? e->job.run->threads : 0;
  const int ranks = ot_job_all_devices(&e->job);
  const int threads = ot_cluster_threads(cluster, ranks, asked);
  const ot_kernel_style *const style = ot_engine_style(e->job.engine, &cluster->device);
  e->threads = style && asked == 0 ? 1 : threads;
  OT_TRY(ot_cluster_share(cluster, ranks, threads, &e->cluster));
  e->simulation = ot_simulation_of(&e->cluster, style, e->job.recipe.products);
  e->simulation.expert_biases = e->job.model->moe.biases;
  e->simulation.stretch = e->job.stretch;
  return ot_price_check(&e->simulation);
}

ot_status ot_estimator_create(const ot_job *job, const ot_cluster *cluster, ot_arena *arena,
                              ot_estimator **out) {
  ot_estimator *const e = *out = ot_arena_array(arena, 1, sizeof *e);
  e->job = *job;
  e->arena = arena;
  e->scratch.parent = e->searches.parent = arena;
  e->ends = ot_arena_array(arena, 1, sizeof *e->ends);
  e->framework = ot_framework_of(job->engine);
  find_kinds(e);
  return find_machine(cluster, e);
}

ot_arena_pool *ot_estimator_scratch(ot_estimator *estimator) { return &estimator->scratch; }
