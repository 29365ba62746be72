// SPDX-License-Identifier: Apache-2.0
// One row a key; links are a list from the innermost level outwards.
#include "describe/cluster_keys.h"

// As the table sees a cluster: rates by name, levels as a list.
typedef struct cluster_values {
  const char *name;
  int num_devices;
  const char *device_name;
  double fp32, fp64, bf16, fp16;
  double other_flops_per_s, memory_bytes_per_s, launch_s;
  bool packs;
  int64_t memory_bytes;
  int threads;
  ot_link_level *levels;
  int64_t num_levels;
} cluster_values;

static const ot_key level_keys[] = {
    {.name = "name",
     .type = OT_KEY_TEXT,
     .offset = offsetof(ot_link_level, name),
     .help = "nvlink, node, rack"},
    {.name = "size",
     .type = OT_KEY_INT,
     .offset = offsetof(ot_link_level, size),
     .minimum = 1,
     .maximum = 1 << 24,
     .help = "devices that reach each other through it"},
    {.name = "bytes_per_s",
     .type = OT_KEY_REAL,
     .offset = offsetof(ot_link_level, bytes_per_s),
     .maximum = OT_NO_MAXIMUM,
     .above_minimum = true,
     .help = "of one device, one direction"},
    {.name = "latency_s",
     .type = OT_KEY_REAL,
     .offset = offsetof(ot_link_level, latency_s),
     .maximum = 1,
     .fallback = "0",
     .help = "of one message"},
};
static const ot_schema level = {.name = "level of links",
                                .keys = level_keys,
                                .num_keys = OT_COUNT(level_keys),
                                .size = sizeof(ot_link_level)};

static const ot_key cluster_keys[] = {
    {.name = "name",
     .type = OT_KEY_TEXT,
     .offset = offsetof(cluster_values, name),
     .help = "what it is called"},
    {.name = "num_devices",
     .type = OT_KEY_INT,
     .offset = offsetof(cluster_values, num_devices),
     .minimum = 1,
     .maximum = 1 << 24,
     .help = "devices, one a rank"},
    {.name = "device",
     .type = OT_KEY_TEXT,
     .offset = offsetof(cluster_values, device_name),
     .fallback = "device",
     .help = "kind of device"},
    {.name = "flops_fp32",
     .type = OT_KEY_REAL,
     .offset = offsetof(cluster_values, fp32),
     .minimum = 0,
     .maximum = OT_NO_MAXIMUM,
     .fallback = "0",
     .unit = "per second",
     .help = "dense matrix products in fp32"},
    {.name = "flops_fp64",
     .type = OT_KEY_REAL,
     .offset = offsetof(cluster_values, fp64),
     .minimum = 0,
     .maximum = OT_NO_MAXIMUM,
     .fallback = "0",
     .unit = "per second",
     .help = "dense matrix products in fp64"},
    {.name = "flops_bf16",
     .type = OT_KEY_REAL,
     .offset = offsetof(cluster_values, bf16),
     .minimum = 0,
     .maximum = OT_NO_MAXIMUM,
     .fallback = "0",
     .unit = "per second",
     .help = "dense matrix products in bf16"},
    {.name = "flops_fp16",
     .type = OT_KEY_REAL,
     .offset = offsetof(cluster_values, fp16),
     .minimum = 0,
     .maximum = OT_NO_MAXIMUM,
     .fallback = "0",
     .unit = "per second",
     .help = "dense matrix products in fp16"},
    {.name = "other_flops_per_s",
     .type = OT_KEY_REAL,
     .offset = offsetof(cluster_values, other_flops_per_s),
     .minimum = 0,
     .maximum = OT_NO_MAXIMUM,
     .fallback = "0",
     .unit = "per second",
     .help = "elementwise work and reductions"},
    {.name = "memory_bytes_per_s",
     .type = OT_KEY_REAL,
     .offset = offsetof(cluster_values, memory_bytes_per_s),
     .minimum = 0,
     .maximum = OT_NO_MAXIMUM,
     .fallback = "0",
     .unit = "bytes per second",
     .help = "memory bandwidth"},
    {.name = "packs",
     .type = OT_KEY_BOOL,
     .offset = offsetof(cluster_values, packs),
     .fallback = "false",
     .help = "matrix products pack before they multiply, as on CPUs"},
    {.name = "memory_bytes",
     .type = OT_KEY_INTEGER,
     .offset = offsetof(cluster_values, memory_bytes),
     .minimum = 1,
     .maximum = OT_NO_MAXIMUM,
     .unit = "bytes",
     .help = "memory that one rank may use"},
    {.name = "threads",
     .type = OT_KEY_INT,
     .offset = offsetof(cluster_values, threads),
     .minimum = 0,
     .maximum = 4096,
     .fallback = "0",
     .help = "of a rank when this was measured, all at once; 0: no matter"},
    {.name = "launch_s",
     .type = OT_KEY_REAL,
     .offset = offsetof(cluster_values, launch_s),
     .minimum = 0,
     .maximum = OT_NO_MAXIMUM,
     .fallback = "0",
     .unit = "seconds",
     .help = "host time of one task"},
    {.name = "levels",
     .type = OT_KEY_OBJECT,
     .shape = OT_SHAPE_LIST,
     .offset = offsetof(cluster_values, levels),
     .count_offset = offsetof(cluster_values, num_levels),
     .fallback = "",
     .help = "links, innermost level first",
     .object = &level},
};

const ot_schema ot_cluster_schema = {.name = "cluster",
                                     .keys = cluster_keys,
                                     .num_keys = OT_COUNT(cluster_keys),
                                     .size = sizeof(cluster_values)};

ot_status ot_cluster_read(const ot_node *tree, ot_arena *arena, ot_cluster *out) {
  cluster_values v;
  OT_TRY(ot_schema_read(&ot_cluster_schema, tree, arena, &v));
  OT_CHECK(v.num_levels <= OT_MAX_LINK_LEVELS, OT_USAGE,
           "cluster %s: %lld levels of links; allowed: up to %d", v.name, (long long)v.num_levels,
           OT_MAX_LINK_LEVELS);
  *out = (ot_cluster){
      .name = v.name,
      .num_devices = v.num_devices,
      .device =
          {.name = v.device_name,
           .flops = {[OT_F32] = v.fp32, [OT_F64] = v.fp64, [OT_BF16] = v.bf16, [OT_F16] = v.fp16},
           .other_flops_per_s = v.other_flops_per_s,
           .memory_bytes_per_s = v.memory_bytes_per_s,
           .packs = v.packs,
           .launch_s = v.launch_s,
           .memory_bytes = v.memory_bytes,
           .threads = v.threads},
      .num_levels = (int)v.num_levels};
  for (int i = 0; i < out->num_levels; i++) out->level[i] = v.levels[i];
  return ot_cluster_check(out);
}

ot_node *ot_cluster_write(const ot_cluster *cluster, ot_arena *arena) {
  const ot_device_kind *const d = &cluster->device;
  ot_link_level levels[OT_MAX_LINK_LEVELS];
  for (int i = 0; i < cluster->num_levels; i++) levels[i] = cluster->level[i];
  const cluster_values v = {.name = cluster->name,
                            .num_devices = cluster->num_devices,
                            .device_name = d->name,
                            .fp32 = d->flops[OT_F32],
                            .fp64 = d->flops[OT_F64],
                            .bf16 = d->flops[OT_BF16],
                            .fp16 = d->flops[OT_F16],
                            .other_flops_per_s = d->other_flops_per_s,
                            .memory_bytes_per_s = d->memory_bytes_per_s,
                            .packs = d->packs,
                            .launch_s = d->launch_s,
                            .memory_bytes = d->memory_bytes,
                            .threads = d->threads,
                            .levels = levels,
                            .num_levels = cluster->num_levels};
  return ot_schema_write(&ot_cluster_schema, 0, &v, arena);
}
