// SPDX-License-Identifier: Apache-2.0
// The cluster of a row: the preset of its device, read once from presets/clusters, overridden by
// the figures of the row. Measured efficiencies are the preset's.
#include <stdlib.h>
#include <string.h>

#include "describe/cluster_keys.h"
#include "files/tree_file.h"
#include "published_job.h"

// Name of a device, its preset, and its dense fp4 peak in TFLOP/s, which the rows do not state
// (data sheets of HGX B200, HGX B300, GB200 NVL72 and GB300 NVL72).
static const struct {
  const char *word;    // in the device's name; earlier lines take precedence
  const char *preset;  // presets/clusters/NAME.yaml
  double fp4;
} presets[] = {
    {"GB300", "gb300-nvl72", 15000},
    {"GB200", "gb200-nvl72", 10000},
    {"B300", "b300", 13500},
    {"B200", "b200", 9000},
    {"GH200", "h200", 0},
    {"H200", "h200", 0},
    {"H800", "h800", 0},
    {"H100", "h100", 0},
    {"A100-SXM-40GB", "a100-40g", 0},
    {"A100-40", "a100-40g", 0},
    {"A100", "a100-80g", 0},
    {"A800", "a800", 0},
    {"V100", "v100", 0},
    {"MI250", "mi250x", 0},
    {"MI300", "mi300x", 0},
    {"v5e", "tpu-v5e", 0},
    {"v5p", "tpu-v5p", 0},
    {"v6e", "tpu-v6e", 0},
    {"Trillium", "tpu-v6e", 0},
    {"TPU-v4", "tpu-v4", 0},
};

// Index of its line in the table, or -1.
static int preset_of(const char *device) {
  for (int i = 0; i < OT_COUNT(presets); i++) {
    if (ot_published_mentions(device, presets[i].word)) return i;
  }
  return -1;
}

// Overrides values of the preset `tree` by those of `over`, a map from paths of keys
// ("levels.0.efficiency") to numbers. Invalid keys are rejected when the tree is parsed.
static ot_status overlay(const char *name, ot_arena *arena, ot_node *tree, const ot_node *over) {
  for (const ot_node *member = over->first; member; member = member->next) {
    ot_node *const found = ot_node_find(tree, member->key);
    OT_CHECK(member->kind == OT_NODE_SCALAR && (found || !strchr(member->key, '.')), OT_USAGE,
             "constants: cluster preset %s has no key %s", name, member->key);
    if (found) {
      found->text = member->text;
    } else {
      ot_node_put(arena, tree, member->key, ot_node_word(arena, member->text));
    }
  }
  return OT_OK;
}

static ot_status read_preset(ot_published_setup *setup, const char *name, const ot_cluster **out) {
  for (int i = 0; i < setup->num_read; i++) {
    *out = &setup->read[i].cluster;
    if (strcmp(setup->read[i].name, name) == 0) return OT_OK;
  }
  OT_CHECK(setup->num_read < OT_PUBLISHED_MAX_CLUSTERS, OT_BUG, "too many cluster presets");
  const char *const path = ot_arena_format(setup->arena, "%s/%s.yaml", setup->clusters, name);
  ot_node *tree = NULL;
  OT_TRY(ot_tree_load(path, setup->arena, &tree));
  const ot_node *const over = setup->constants ? ot_node_child(setup->constants, name) : NULL;
  if (over) OT_TRY(overlay(name, setup->arena, tree, over));
  setup->read[setup->num_read].name = name;
  OT_TRY(ot_cluster_read(tree, setup->arena, &setup->read[setup->num_read].cluster));
  *out = &setup->read[setup->num_read++].cluster;
  return OT_OK;
}

// A limit in the name of a device: "H100-SXM-96GB-HBM2e-500W".
static double named_watts(const char *name) {
  for (const char *at = strpbrk(name, "0123456789"); at; at = strpbrk(at, "0123456789")) {
    char *end;
    const double value = (double)strtol(at, &end, 10);
    if (*end == 'W') return value;
    at = end;
  }
  return 0;
}

// Sets peaks, memory, bandwidth and power from the row.
static void set_device(const ot_published_row *row, ot_device_kind *device) {
  const ot_published_gpu *const gpu = &row->gpu;
  const double limit = row->power_limit_w > 0 ? row->power_limit_w : named_watts(gpu->name);
  if (limit > 0 && limit < device->power_w) device->power_share = limit / device->power_w;
  if (gpu->bf16 > 0) device->flops[OT_BF16] = gpu->bf16 * 1e12;
  if (gpu->bf16 > 0 && device->flops[OT_F16] > 0) device->flops[OT_F16] = gpu->bf16 * 1e12;
  if (gpu->fp8 > 0) device->flops[OT_F8] = gpu->fp8 * 1e12;
  if (gpu->hbm > 0) device->memory_bytes_per_s = gpu->hbm * 1e12;
  if (gpu->mem > 0) device->memory_bytes = (int64_t)(gpu->mem * 1e9);
  if (gpu->mem > 0) device->usable_bytes = 0;
}

// Devices per domain that a run uses: all, or as many as leave no domain partly used (64 of 72).
static int domain_of(const ot_published_row *row, int size) {
  const int domain = row->gpu.dom > 0 ? (int)row->gpu.dom : size;
  if (row->gpus <= domain) return domain;
  int used = domain;
  while (row->gpus % used != 0) used--;
  return used;
}

static void set_links(const ot_published_row *row, ot_cluster *cluster) {
  ot_link_level *const inner = &cluster->level[0];
  ot_link_level *const outer = &cluster->level[cluster->num_levels - 1];
  if (cluster->num_levels == 0) return;
  if (cluster->num_levels > 1) {
    inner->size = domain_of(row, inner->size);
    if (row->gpu.nvl > 0) inner->bytes_per_s = row->gpu.nvl * 1e9;
    if (row->inter_gbps > 0) outer->bytes_per_s = row->inter_gbps * 1e9;
  }
  const int inside = cluster->num_levels > 1 ? cluster->level[cluster->num_levels - 2].size : 1;
  outer->size = (int)((row->gpus + inside - 1) / inside) * inside;
  if (outer->size < inside) outer->size = inside;
}

ot_status ot_published_cluster_build(ot_published_setup *setup, const ot_published_row *row,
                                     ot_cluster *out) {
  const int line = preset_of(row->gpu.name);
  OT_CHECK(line >= 0, OT_USAGE, "no cluster preset for device %s", row->gpu.name);
  const ot_cluster *preset = NULL;
  OT_TRY(read_preset(setup, presets[line].preset, &preset));
  *out = *preset;
  set_device(row, &out->device);
  // An fp4 GEMM is modelled as an fp8 GEMM on a faster device.
  const bool narrow = ot_published_mentions(row->dtype, "fp4");
  if (narrow && presets[line].fp4 > 0) out->device.flops[OT_F8] = presets[line].fp4 * 1e12;
  set_links(row, out);
  out->num_devices = (int)row->gpus;
  return ot_cluster_check(out);
}
