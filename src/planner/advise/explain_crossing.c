// SPDX-License-Identifier: Apache-2.0
// The part of each pool of a mixed cluster in a plan.
#include "advise/explain_crossing.h"

#include "base/quantity.h"
#include "base/text_builder.h"

static const char *part_of(const ot_candidate *c, const ot_pool_estimate *pool, ot_arena *arena) {
  if (c->crosses == OT_CROSSES_DP) {
    return ot_arena_format(arena, "%d replica%s of %lld micro-batch%s", pool->replicas,
                           pool->replicas == 1 ? "" : "s", (long long)pool->micro_batches,
                           pool->micro_batches == 1 ? "" : "es");
  }
  return ot_arena_format(arena, "%d layer%s in %d stage%s", pool->layers,
                         pool->layers == 1 ? "" : "s", pool->stages, pool->stages == 1 ? "" : "s");
}

const char *ot_explain_crossing(const ot_job *job, const ot_estimate *estimate, ot_arena *arena) {
  const ot_candidate *const c = &estimate->candidate;
  ot_text_builder text = {.arena = arena};
  if (c->crosses == OT_CROSSES_NOTHING) return NULL;
  ot_text_appendf(&text, "%s crosses pools:", ot_crossing_names[c->crosses]);
  for (int i = 0; i < job->cluster->num_pools; i++) {
    const ot_pool_estimate *const pool = &estimate->pools[i];
    const double used = (double)(pool->memory.reserved + pool->memory.context);
    const double capacity = (double)pool->memory.capacity;
    ot_text_appendf(&text, "%s %s %s, memory %.0f%% of %s", i > 0 ? ";" : "",
                    job->cluster->pools[i].name, part_of(c, pool, arena), 100 * used / capacity,
                    ot_figure_bytes(arena, capacity));
  }
  return ot_text_builder_text(&text);
}

const char *ot_explain_division(const ot_job *job, const ot_estimate *estimate, ot_arena *arena) {
  const char *const text = ot_explain_crossing(job, estimate, arena);
  const bool stages = estimate->candidate.crosses == OT_CROSSES_PP;
  if (!text) return NULL;
  return ot_arena_format(arena, "%s; %s are divided by the time that one takes in each pool", text,
                         stages ? "layers" : "micro-batches");
}

const char *ot_explain_devices(const ot_job *job, ot_arena *arena) {
  const ot_cluster *const cluster = job->cluster;
  ot_text_builder text = {.arena = arena};
  if (!ot_cluster_is_mixed(cluster)) {
    return ot_figure_bytes(arena, (double)ot_device_capacity(&cluster->device));
  }
  for (int i = 0; i < cluster->num_pools; i++) {
    const ot_cluster *const pool = &cluster->pools[i];
    const char *const joint = i == 0 ? "" : i + 1 < cluster->num_pools ? ", " : " and ";
    ot_text_appendf(&text, "%s%d %s of %s", joint, pool->num_devices, pool->name,
                    ot_figure_bytes(arena, (double)ot_device_capacity(&pool->device)));
  }
  return ot_text_builder_text(&text);
}
