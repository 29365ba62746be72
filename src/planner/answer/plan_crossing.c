// SPDX-License-Identifier: Apache-2.0
#include "answer/plan_crossing.h"

#include "base/quote.h"

void ot_mixed_cluster_write_json(const ot_job *job, ot_json_writer *w) {
  const ot_cluster *const cluster = job->cluster;
  if (!ot_cluster_is_mixed(cluster)) return;
  ot_json_array(w, "pools");
  for (int i = 0; i < cluster->num_pools; i++) {
    const ot_cluster *const pool = &cluster->pools[i];
    ot_json_object(w, NULL);
    ot_json_text(w, "name", pool->name);
    ot_json_text(w, "device", pool->device.name);
    ot_json_integer(w, "devices", pool->num_devices);
    ot_json_integer(w, "memory_bytes", pool->device.memory_bytes);
    ot_json_integer(w, "usable_memory_bytes", ot_device_capacity(&pool->device));
    ot_json_real(w, "peak_flops_per_second", pool->device.flops[job->recipe.products]);
    ot_json_end(w);
  }
  ot_json_end(w);
  ot_json_object(w, "between");
  ot_json_text(w, "name", cluster->between.name);
  ot_json_real(w, "bytes_per_second", cluster->between.bytes_per_s);
  ot_json_real(w, "latency_seconds", cluster->between.latency_s);
  ot_json_end(w);
}

void ot_crossing_write_json(const ot_job *job, const ot_estimate *e, ot_json_writer *w) {
  if (!e->candidate.crosses) return;
  ot_json_array(w, "pools");
  for (int i = 0; i < job->cluster->num_pools; i++) {
    const ot_pool_estimate *const pool = &e->pools[i];
    ot_json_object(w, NULL);
    ot_json_text(w, "name", job->cluster->pools[i].name);
    ot_json_integer(w, "stages", pool->stages);
    ot_json_integer(w, "replicas", pool->replicas);
    ot_json_integer(w, "layers", pool->layers);
    ot_json_integer(w, "micro_batches", pool->micro_batches);
    ot_memory_write_json(&pool->memory, w);
    ot_json_end(w);
  }
  ot_json_end(w);
}

void ot_crossing_put_ranks(const ot_job *job, const ot_candidate *candidate, ot_text_builder *out) {
  const ot_cluster *const cluster = job->cluster;
  for (int i = 0, rank = 0; i < cluster->num_pools; rank += cluster->pools[i++].num_devices) {
    if (candidate->crosses != OT_CROSSES_PP) continue;
    ot_text_appendf(out, "# Ranks %d to %d: devices of ", rank,
                    rank + cluster->pools[i].num_devices - 1);
    ot_quote_comment(out, cluster->pools[i].name);
    ot_text_put(out, ".\n");
  }
}

ot_status ot_crossing_check_emit(const ot_job *job, const ot_estimate *plan, ot_emit_kind kind,
                                 int ranks_per_host) {
  const ot_cluster *const cluster = job->cluster;
  const ot_candidate *const c = &plan->candidate;
  if (!ot_cluster_is_mixed(cluster)) return OT_OK;
  for (int i = 1; i < cluster->num_pools && c->crosses == OT_CROSSES_DP; i++) {
    const long long first = plan->pools[0].micro_batches, other = plan->pools[i].micro_batches;
    if (first == other) continue;
    ot_fail(OT_USAGE,
            "--emit: replicas in pool %s have %lld micro-batches a step, in pool %s %lld; no "
            "software here trains uneven replicas",
            cluster->pools[0].name, first, cluster->pools[i].name, other);
    return ot_fail_hint(OT_USAGE, "--crosses pp");
  }
  OT_CHECK(kind == OT_EMIT_RUN || c->crosses == OT_CROSSES_PP, OT_USAGE,
           "--emit: a script that starts replicas in different pools is not written (--emit run "
           "writes the configuration)");
  for (int i = 0; i < cluster->num_pools && kind != OT_EMIT_RUN; i++) {
    OT_CHECK(
        ot_cluster_host(&cluster->pools[i]) == ranks_per_host, OT_USAGE,
        "--emit: hosts of pool %s have %d devices, of pool %s %d; a script that starts both is "
        "not written (--emit run writes the configuration)",
        cluster->pools[0].name, ranks_per_host, cluster->pools[i].name,
        ot_cluster_host(&cluster->pools[i]));
  }
  return OT_OK;
}
