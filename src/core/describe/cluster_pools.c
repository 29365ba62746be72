// SPDX-License-Identifier: Apache-2.0
// Clusters of several pools, each of one kind of device. Every rank sees an ordinary cluster whose
// first devices are those of its own pool: prices need no other case.
#include "base/extremes.h"
#include "describe/cluster.h"

int ot_cluster_pools(const ot_cluster *cluster) {
  return cluster->num_pools > 0 ? cluster->num_pools : 1;
}

int ot_cluster_pool_devices(const ot_cluster *cluster, int pool) {
  return cluster->num_pools > 0 ? cluster->pools[pool].num_devices : cluster->num_devices;
}

int64_t ot_cluster_most_memory(const ot_cluster *cluster) {
  int64_t most = cluster->device.memory_bytes;
  for (int i = 0; i < cluster->num_pools; i++) {
    most = ot_larger_whole(most, cluster->pools[i].device.memory_bytes);
  }
  return most;
}

// Watts; 0: not known.
static double power_of(const ot_device_kind *device) {
  return device->power_w * (device->power_share > 0 ? device->power_share : 1);
}

double ot_cluster_mean_power(const ot_cluster *cluster) {
  double sum = 0;
  for (int i = 0; i < cluster->num_pools; i++) {
    const double each = power_of(&cluster->pools[i].device);
    if (each == 0) return 0;
    sum += each * cluster->pools[i].num_devices;
  }
  return ot_cluster_is_mixed(cluster) ? sum / cluster->num_devices : power_of(&cluster->device);
}

static bool same_links(const ot_link_level *a, const ot_link_level *b) {
  return a->bytes_per_s == b->bytes_per_s && a->latency_s == b->latency_s &&
         a->efficiency == b->efficiency && a->reduces == b->reduces && a->mesh == b->mesh;
}

// Keeps the links that the pool's devices use.
static void cut_links(const ot_cluster *pool, ot_cluster *out) {
  out->num_levels = 0;
  for (int i = 0; i < pool->num_levels; i++) {
    ot_link_level *const level = &out->level[out->num_levels++];
    *level = pool->level[i];
    if (level->size < pool->num_devices) continue;
    level->size = pool->num_devices;
    return;
  }
}

// A device sends no faster between pools than over the outermost links of its own.
static void add_between(const ot_cluster *cluster, ot_cluster *out) {
  ot_link_level between = cluster->between;
  const int last = out->num_levels - 1;
  if (last >= 0) {
    between.bytes_per_s = ot_smaller(between.bytes_per_s, out->level[last].bytes_per_s);
  }
  if (last > 0 && same_links(&out->level[last], &between)) out->num_levels--;
  const int inner = out->num_levels > 0 ? out->level[out->num_levels - 1].size : 1;
  between.size = (out->num_devices + inner - 1) / inner * inner;
  out->level[out->num_levels++] = between;
}

void ot_cluster_pool(const ot_cluster *cluster, int pool, ot_cluster *out) {
  *out = cluster->num_pools > 0 ? cluster->pools[pool] : *cluster;
  if (cluster->num_pools == 0) return;
  cut_links(&cluster->pools[pool], out);
  out->num_devices = 0;
  for (int i = 0; i < cluster->num_pools; i++) out->num_devices += cluster->pools[i].num_devices;
  add_between(cluster, out);
}

void ot_cluster_alike(const ot_cluster *cluster, ot_cluster *out) {
  ot_cluster_pool(cluster, 0, out);
}

// Ranks of all pools run one program, on accelerators that were described, not measured as ranks of
// one machine.
static ot_status check_pool(const char *name, const ot_cluster *pool) {
  OT_CHECK(pool->num_pools == 0, OT_USAGE, "cluster %s: pool %s has pools of its own", name,
           pool->name);
  OT_TRY(ot_cluster_check(pool));
  OT_CHECK(!ot_device_is_host(&pool->device), OT_USAGE,
           "cluster %s: pool %s has ranks that share the cores of a machine; allowed: accelerators",
           name, pool->name);
  const ot_link_level *const inner = pool->level;
  const bool whole = pool->num_levels == 0 || pool->num_devices <= inner->size ||
                     pool->num_devices % inner->size == 0;
  OT_CHECK(whole, OT_USAGE, "cluster %s: pool %s has %d devices, not whole groups of %d (%s)", name,
           pool->name, pool->num_devices, inner->size, inner->name);
  OT_CHECK(pool->num_levels < OT_MAX_LINK_LEVELS, OT_USAGE,
           "cluster %s: pool %s has %d levels of links; allowed: up to %d", name, pool->name,
           pool->num_levels, OT_MAX_LINK_LEVELS - 1);
  return OT_OK;
}

ot_status ot_cluster_join(const char *name, const ot_cluster *pools, int num_pools,
                          const ot_link_level *between, ot_cluster *out) {
  OT_CHECK(num_pools >= 2 && num_pools <= OT_MAX_POOLS, OT_USAGE,
           "cluster %s: %d pools; allowed: 2 to %d", name, num_pools, OT_MAX_POOLS);
  const ot_cluster joined = {
      .name = name, .num_pools = num_pools, .pools = pools, .between = *between};
  for (int i = 0; i < num_pools; i++) {
    ot_cluster seen;
    OT_TRY(check_pool(name, &pools[i]));
    ot_cluster_pool(&joined, i, &seen);
    OT_TRY(ot_cluster_check(&seen));
  }
  ot_cluster_pool(&joined, 0, out);
  out->name = name;
  out->num_pools = num_pools;
  out->pools = pools;
  out->between = *between;
  return ot_cluster_check(out);
}
