// SPDX-License-Identifier: Apache-2.0
// One entry per key; links are a list from the innermost level outwards.
#include "describe/cluster_keys.h"

#include "base/extremes.h"
#include "base/number.h"
#include "base/text.h"
#include "base/text_builder.h"
#include "describe/cluster_check.h"
#include "describe/measured_keys.h"

// The cluster as the table sees it: its levels are a list.
typedef struct cluster_values {
  ot_cluster cluster;  // except for its levels; first, so that keys give offsets into it
  const ot_link_level *levels;
  int64_t num_levels;
} cluster_values;

static const char *const bases[] = {
    [OT_BASIS_UNKNOWN] = "unknown",           [OT_BASIS_FITTED] = "fitted",
    [OT_BASIS_EXTRAPOLATED] = "extrapolated", [OT_BASIS_GUESSED] = "guessed",
    [OT_BASIS_MEASURED] = "measured",         [OT_BASIS_QUICK] = "quick",
    [OT_BASIS_CALIBRATED] = "calibrated",     [OT_BASIS_COUNT] = NULL,
};

const char *const ot_vendor_names[OT_VENDORS + 1] = {
    [OT_VENDOR_OTHER] = "other",   [OT_VENDOR_NVIDIA] = "nvidia", [OT_VENDOR_AMD] = "amd",
    [OT_VENDOR_GOOGLE] = "google", [OT_VENDOR_INTEL] = "intel",   [OT_VENDOR_AMAZON] = "amazon",
};

const char *ot_cluster_basis_name(ot_cluster_basis basis) { return bases[basis]; }

bool ot_cluster_basis_measured(ot_cluster_basis basis) {
  return basis == OT_BASIS_MEASURED || basis == OT_BASIS_QUICK;
}

// clang-format off
static const ot_key level_keys[] = {
    {"name", OT_KEY_TEXT, offsetof(ot_link_level, name), .help = "nvlink, node, rack"},
    {"size", OT_KEY_INT, offsetof(ot_link_level, size), NULL, 1, 1 << 24,
     .help = "devices per group that it connects"},
    {"bytes_per_s", OT_KEY_REAL, offsetof(ot_link_level, bytes_per_s), NULL, 0, OT_NO_MAXIMUM,
     .above_minimum = true, .unit = "bytes per second", .help = "of one device, one direction"},
    {"latency_s", OT_KEY_REAL, offsetof(ot_link_level, latency_s), "0", 0, 1, .unit = "seconds",
     .help = "per message"},
    {"efficiency", OT_KEY_REAL, offsetof(ot_link_level, efficiency), "0.7", 0, 1,
     .help = "fraction of bytes_per_s for long messages"},
    {"reduces", OT_KEY_BOOL, offsetof(ot_link_level, reduces), "false",
     .help = "its switches reduce in the network"},
    {"mesh", OT_KEY_BOOL, offsetof(ot_link_level, mesh), "false",
     .help = "no switch: a group has only the links between its members"},
};
static const ot_schema level = {
    "level of links", level_keys, OT_COUNT(level_keys), .size = sizeof(ot_link_level)};

static const ot_key cluster_keys[] = {
    {"name", OT_KEY_TEXT, offsetof(ot_cluster, name), .help = "name that answers use"},
    {"num_devices", OT_KEY_INT, offsetof(ot_cluster, num_devices), NULL, 1, 1 << 24,
     .help = "devices, one per rank"},
    {"host_devices", OT_KEY_INT, offsetof(ot_cluster, host_devices), "0", 0, 1 << 24,
     .help = "devices per host; 0: the size of the innermost level"},
    {"device", OT_KEY_TEXT, offsetof(ot_cluster, device.name), "",
     .help = "kind of device; none: the name"},
    {"vendor", OT_KEY_CHOICE, offsetof(ot_cluster, device.vendor), "other",
     .choices = ot_vendor_names, .help = "whose driver and libraries software needs"},
    {"basis", OT_KEY_CHOICE, offsetof(ot_cluster, basis), "unknown", .choices = bases,
     .help = "source of the efficiencies below"},
    {"flops_fp32", OT_KEY_REAL, offsetof(ot_cluster, device.flops[OT_F32]), "0", 0, OT_NO_MAXIMUM,
     .unit = "FLOP/s", .help = "dense GEMMs in fp32"},
    {"flops_fp64", OT_KEY_REAL, offsetof(ot_cluster, device.flops[OT_F64]), "0", 0, OT_NO_MAXIMUM,
     .unit = "FLOP/s", .help = "dense GEMMs in fp64"},
    {"flops_bf16", OT_KEY_REAL, offsetof(ot_cluster, device.flops[OT_BF16]), "0", 0, OT_NO_MAXIMUM,
     .unit = "FLOP/s", .help = "dense GEMMs in bf16"},
    {"flops_fp16", OT_KEY_REAL, offsetof(ot_cluster, device.flops[OT_F16]), "0", 0, OT_NO_MAXIMUM,
     .unit = "FLOP/s", .help = "dense GEMMs in fp16"},
    {"flops_fp8", OT_KEY_REAL, offsetof(ot_cluster, device.flops[OT_F8]), "0", 0, OT_NO_MAXIMUM,
     .unit = "FLOP/s", .help = "dense GEMMs in fp8"},
    {"other_flops_per_s", OT_KEY_REAL, offsetof(ot_cluster, device.other_flops_per_s), "0",
     0, OT_NO_MAXIMUM, .unit = "FLOP/s",
     .help = "elementwise work and reductions; 0: flops_fp32"},
    {"memory_bytes_per_s", OT_KEY_REAL, offsetof(ot_cluster, device.memory_bytes_per_s), NULL,
     0, OT_NO_MAXIMUM, .above_minimum = true, .unit = "bytes per second",
     .help = "memory bandwidth"},
    {"packs", OT_KEY_BOOL, offsetof(ot_cluster, device.packs), "false",
     .help = "GEMMs pack their operands first, as on CPUs"},
    {"memory_bytes", OT_KEY_INTEGER, offsetof(ot_cluster, device.memory_bytes), NULL,
     1, OT_NO_MAXIMUM, .unit = "bytes", .help = "memory of one rank, as sold"},
    {"usable_memory_bytes", OT_KEY_INTEGER, offsetof(ot_cluster, device.usable_bytes), "0",
     0, OT_NO_MAXIMUM, .unit = "bytes",
     .help = "memory that the driver reports, which plans may fill; 0: memory_bytes"},
    {"power_w", OT_KEY_REAL, offsetof(ot_cluster, device.power_w), "0", 0, 1e6, .unit = "watts",
     .help = "maximum of one device, without its host; 0: not known"},
    {"threads", OT_KEY_INT, offsetof(ot_cluster, device.threads), "0", 0, 4096,
     .help = "per rank when measured, all ranks active; 0: irrelevant"},
    {"launch_s", OT_KEY_REAL, offsetof(ot_cluster, device.launch_s), "0", 0, OT_NO_MAXIMUM,
     .unit = "seconds", .help = "host time per launch"},
    {"processors", OT_KEY_INT, offsetof(ot_cluster, device.processors), "0", 0, 1 << 20,
     .help = "SMs or cores for the tiles of a GEMM; 0: a CPU; accelerators: else 128"},
    // Defaults are those of devices of basis guessed: memory as on A100, attention as on the first
    // MI300X, matrix between guessed presets. A file that states 0 does not know the figure, unless
    // `orthant bench` wrote it, which measures the rates themselves.
    {"matrix_efficiency", OT_KEY_REAL, offsetof(ot_cluster, device.matrix_efficiency), "0.6", 0, 1,
     .help = "fraction of flops in a large GEMM"},
    {"memory_efficiency", OT_KEY_REAL, offsetof(ot_cluster, device.memory_efficiency), "0.78", 0,
     1, .help = "fraction of memory_bytes_per_s in a long pass"},
    {"attention_efficiency", OT_KEY_REAL, offsetof(ot_cluster, device.attention_efficiency),
     "0.3", 0, 1, .help = "fraction of flops in fused attention"},
    {"attention_1_efficiency", OT_KEY_REAL, offsetof(ot_cluster, device.attention_1_efficiency),
     "0", 0, 1, .help = "the same for FlashAttention 1; 0: no other"},
    {"attention_2_efficiency", OT_KEY_REAL, offsetof(ot_cluster, device.attention_2_efficiency),
     "0", 0, 1, .help = "the same for FlashAttention 2; 0: no other"},
    {"attention_2_common", OT_KEY_BOOL, offsetof(ot_cluster, device.attention_2_common), "false",
     .help = "much software runs FlashAttention 2 on it"},
    {"power_share", OT_KEY_REAL, offsetof(ot_cluster, device.power_share), "0", 0, 1,
     .help = "limit of power, fraction of the rated; 0: rated"},
    // Equal for all devices, fitted to published runs (docs/pricing.md).
    {"half_keys", OT_KEY_REAL, offsetof(ot_cluster, device.half_keys), "128", 0, OT_NO_MAXIMUM,
     .help = "keys at which fused attention reaches half of it"},
    {"unaligned_efficiency", OT_KEY_REAL, offsetof(ot_cluster, device.unaligned_efficiency),
     "0.0646", 0, 1, .help = "fraction of a GEMM whose rows are not multiples of 16 bytes"},
    {"contention", OT_KEY_REAL, offsetof(ot_cluster, device.contention), "1.69", 0, 10,
     .help = "slowdown of kernels during communication"},
    {"host_op_s", OT_KEY_REAL, offsetof(ot_cluster, device.host_op_s), "7.42e-05", 0, 1,
     .unit = "seconds", .help = "host time of an op dispatched from Python"},
    {"step_s", OT_KEY_REAL, offsetof(ot_cluster, device.step_s), "0.00592", 0, 60,
     .unit = "seconds", .help = "host time per step outside its kernels"},
    {"jitter", OT_KEY_REAL, offsetof(ot_cluster, jitter), "0.00417", 0, 1,
     .help = "fraction of a step lost to the slowest rank, per doubling of nodes"},
    {"measured", OT_KEY_OBJECT, offsetof(ot_cluster, measured), .object = &ot_measured_schema,
     .help = "measurements of `orthant bench`"},
    {"levels", OT_KEY_OBJECT, offsetof(cluster_values, levels), "", .shape = OT_SHAPE_LIST,
     .count_offset = offsetof(cluster_values, num_levels), .object = &level,
     .help = "links, innermost level first"},
};

const ot_schema ot_cluster_schema = {
    "cluster", cluster_keys, OT_COUNT(cluster_keys), .size = sizeof(cluster_values)};
// clang-format on

// ---- pools ----

typedef struct mixed_values {
  const char *name;
  const cluster_values *pools;
  int64_t num_pools;
  ot_link_level between;
} mixed_values;

// clang-format off
static const ot_key between_keys[] = {
    {"name", OT_KEY_TEXT, offsetof(ot_link_level, name), "network", .help = "name"},
    {"bytes_per_s", OT_KEY_REAL, offsetof(ot_link_level, bytes_per_s), NULL, 0, OT_NO_MAXIMUM,
     .above_minimum = true, .unit = "bytes per second", .help = "of one device, one direction"},
    {"latency_s", OT_KEY_REAL, offsetof(ot_link_level, latency_s), "0", 0, 1, .unit = "seconds",
     .help = "per message"},
    {"efficiency", OT_KEY_REAL, offsetof(ot_link_level, efficiency), "0.7", 0, 1,
     .help = "fraction of bytes_per_s for long messages"},
};
static const ot_schema between = {
    "links between pools", between_keys, OT_COUNT(between_keys), .size = sizeof(ot_link_level)};

static const ot_key mixed_keys[] = {
    {"name", OT_KEY_TEXT, offsetof(mixed_values, name), .help = "name that answers use"},
    {"pools", OT_KEY_OBJECT, offsetof(mixed_values, pools), "", .shape = OT_SHAPE_LIST,
     .count_offset = offsetof(mixed_values, num_pools), .object = &ot_cluster_schema,
     .help = "devices of one kind each, in the order of their ranks"},
    {"between", OT_KEY_OBJECT, offsetof(mixed_values, between), .object = &between,
     .help = "links that join the pools"},
};
static const ot_schema mixed_cluster = {
    "cluster of pools", mixed_keys, OT_COUNT(mixed_keys), .size = sizeof(mixed_values)};
// clang-format on

void ot_cluster_keys_table(ot_text_builder *out) {
  ot_text_put(out,
              "# Every key of a cluster file: default, meaning, allowed values. `base: NAME` is "
              "allowed in\n# addition: a preset or a file whose keys this one has unless it gives "
              "them.\n");
  ot_schema_table(&ot_cluster_schema, NULL, out);
  ot_text_put(
      out,
      "\n# The keys of a cluster of several kinds of device; `pools` is a list of clusters, each "
      "with the keys\n# above, or `cluster: NAME` and those that differ.\n");
  ot_schema_table(&mixed_cluster, "pools", out);
}

// ---- what a file does not state ----

static const int GUESSED_PROCESSORS = 128;

// Cluster, its tree, and the text of what is assumed.
typedef struct assumption {
  ot_cluster *cluster;
  const ot_node *tree;
  ot_text_builder text;
} assumption;

static void add(assumption *a, const char *path, double value) {
  ot_text_appendf(&a->text, "%s%s %g", a->text.length > 0 ? ", " : "", path, value);
}

// `value`, of key `name` at `path` of the tree, is the default of its key unless the file has it.
static void assume_share(assumption *a, const ot_schema *schema, const char *name, const char *path,
                         double *value) {
  const bool stated = ot_node_find(a->tree, path) != NULL;
  if (stated && (*value != 0 || ot_cluster_basis_measured(a->cluster->basis))) return;
  const bool parsed = ot_number_parse(ot_schema_find(schema, 0, name)->fallback, false, value);
  OT_ASSERT(parsed);
  add(a, path, *value);
}

// Without tensor cores; where only their rate is known, the ratio of Ampere and Hopper. Passes over
// memory take longer than their arithmetic.
static double other_rate(const ot_device_kind *d) {
  double best = 0;
  for (int i = 0; i < OT_DTYPE_COUNT; i++) best = ot_larger(best, d->flops[i]);
  return d->flops[OT_F32] > 0 ? d->flops[OT_F32] : best / 16;
}

// The rates of a CPU that was measured are those that it reached.
static void read_measured(const ot_node *tree, ot_arena *arena, ot_cluster *cluster) {
  ot_device_kind *const d = &cluster->device;
  if (!ot_node_child(tree, "matrix_efficiency")) d->matrix_efficiency = 0;
  if (!ot_node_child(tree, "memory_efficiency")) d->memory_efficiency = 0;
  if (!ot_node_child(tree, "attention_efficiency")) d->attention_efficiency = 0;
  for (int i = 0; i < cluster->num_levels; i++) {
    const char *const path = ot_arena_format(arena, "levels.%d.efficiency", i);
    if (!ot_node_find(tree, path)) cluster->level[i].efficiency = 0;
  }
}

static void assume(const ot_node *tree, ot_arena *arena, ot_cluster *cluster) {
  ot_device_kind *const d = &cluster->device;
  const bool measured = ot_cluster_basis_measured(cluster->basis);
  if (d->other_flops_per_s == 0) d->other_flops_per_s = other_rate(d);
  if (measured && ot_device_is_host(d)) {
    read_measured(tree, arena, cluster);
    return;
  }
  assumption a = {.cluster = cluster, .tree = tree, .text = {.arena = arena}};
  struct {
    const char *name;
    double *value;
  } shares[] = {{"matrix_efficiency", &d->matrix_efficiency},
                {"memory_efficiency", &d->memory_efficiency},
                {"attention_efficiency", &d->attention_efficiency}};
  for (int i = 0; i < OT_COUNT(shares); i++) {
    assume_share(&a, &ot_cluster_schema, shares[i].name, shares[i].name, shares[i].value);
  }
  for (int i = 0; i < cluster->num_levels; i++) {
    const char *const path = ot_arena_format(arena, "levels.%d.efficiency", i);
    assume_share(&a, &level, "efficiency", path, &cluster->level[i].efficiency);
  }
  if (!ot_device_is_host(d) && !ot_node_child(tree, "processors")) {
    d->processors = GUESSED_PROCESSORS;
    add(&a, "processors", d->processors);
  }
  if (a.text.length == 0) return;
  cluster->assumed = ot_text_builder_text(&a.text);
  cluster->basis = OT_BASIS_GUESSED;
}

// ---- what a file derives from ----

ot_status ot_cluster_each_base(ot_node *tree, ot_cluster_base_visit visit, const void *context) {
  if (tree->kind != OT_NODE_MAP) return OT_OK;
  const ot_node *const pools = ot_node_child(tree, "pools");
  OT_TRY(visit(context, tree, "base"));
  for (ot_node *pool = pools ? pools->first : NULL; pool; pool = pool->next) {
    if (pool->kind == OT_NODE_MAP) OT_TRY(visit(context, pool, "cluster"));
  }
  return OT_OK;
}

bool ot_cluster_tree_is_alike(const ot_node *tree) {
  return tree && tree->kind == OT_NODE_MAP && !ot_node_child(tree, "pools");
}

// Keys that efficiencies do not depend on.
static bool is_of_size(const char *key) {
  return ot_choice_matches("name|num_devices|host_devices|levels|memory_bytes|usable_memory_bytes",
                           key);
}

static ot_node *copy_of(const ot_node *node, ot_arena *arena) {
  ot_node *const copy = ot_node_create(arena, node->kind);
  *copy = *node;
  copy->next = NULL;
  return copy;
}

// `map` with the keys of the map at `key` where it has none itself.
static const ot_node *derive(const ot_node *map, const char *key, ot_arena *arena) {
  const ot_node *base = ot_node_child(map, key);
  if (!base || base->kind != OT_NODE_MAP) return map;
  base = derive(base, "base", arena);
  ot_node *const out = ot_node_create(arena, OT_NODE_MAP);
  bool own_rates = false;
  ot_node_copy_place(out, map);
  for (const ot_node *own = map->first; own; own = own->next) {
    if (ot_text_equal(own->key, key)) continue;
    own_rates = own_rates || !is_of_size(own->key);
    ot_node_put(arena, out, own->key, copy_of(own, arena));
  }
  for (const ot_node *other = base->first; other; other = other->next) {
    if (ot_node_child(map, other->key)) continue;
    ot_node *const node = ot_node_put(arena, out, other->key, copy_of(other, arena));
    const bool fitted = ot_text_equal(other->key, "basis") && other->text &&
                        ot_text_equal(other->text, bases[OT_BASIS_FITTED]);
    if (fitted && own_rates) node->text = bases[OT_BASIS_EXTRAPOLATED];
  }
  return out;
}

// ---- reading ----

static ot_status read_values(const cluster_values *v, const ot_cluster_source *from,
                             ot_cluster *out) {
  ot_cluster_source source = *from;
  source.cluster = out;
  *out = v->cluster;
  if (v->num_levels > OT_MAX_LINK_LEVELS) {
    return ot_cluster_refuse(&source, "levels", "%lld levels of links; allowed: up to %d",
                             (long long)v->num_levels, OT_MAX_LINK_LEVELS);
  }
  out->num_levels = (int)v->num_levels;
  for (int i = 0; i < out->num_levels; i++) out->level[i] = v->levels[i];
  if (out->device.name[0] == '\0') out->device.name = out->name;
  assume(source.tree, source.arena, out);
  OT_TRY(ot_cluster_check_source(&source));
  return ot_measured_check(&source);
}

// Each pool with the keys of its cluster.
static const ot_node *derive_pools(const ot_node *tree, ot_arena *arena) {
  ot_node *const out = copy_of(tree, arena);
  out->first = out->last = NULL;
  for (const ot_node *key = tree->first; key; key = key->next) {
    ot_node *const copy = ot_node_put(arena, out, key->key, copy_of(key, arena));
    if (!ot_text_equal(key->key, "pools") || key->kind != OT_NODE_LIST) continue;
    copy->first = copy->last = NULL;
    for (const ot_node *pool = key->first; pool; pool = pool->next) {
      const bool map = pool->kind == OT_NODE_MAP;
      ot_node_append(copy, copy_of(map ? derive(pool, "cluster", arena) : pool, arena));
    }
  }
  return out;
}

// A cluster is as doubtful as its links, of which `a` is, and its most doubtful pool.
static void add_doubts(assumption *a, ot_cluster *cluster) {
  for (int i = 0; i < cluster->num_pools; i++) {
    const ot_cluster *const pool = &cluster->pools[i];
    const bool guessed = pool->basis == OT_BASIS_GUESSED || pool->basis == OT_BASIS_UNKNOWN;
    if (guessed) cluster->basis = pool->basis;
    if (!pool->assumed) continue;
    ot_text_appendf(&a->text, "%spools.%d: %s", a->text.length > 0 ? "; " : "", i, pool->assumed);
  }
  cluster->assumed = a->text.length > 0 ? ot_text_builder_text(&a->text) : NULL;
  if (a->text.length > 0) cluster->basis = OT_BASIS_GUESSED;
}

static ot_status read_mixed(const ot_node *given, ot_arena *arena, ot_cluster *out) {
  const ot_node *const tree = derive_pools(given, arena);
  mixed_values v;
  OT_TRY(ot_schema_read(&mixed_cluster, tree, arena, &v));
  ot_cluster *const pools = ot_arena_array(arena, v.num_pools, sizeof *pools);
  for (int64_t i = 0; i < v.num_pools; i++) {
    const char *const path = ot_arena_format(arena, "pools.%lld", (long long)i);
    const ot_cluster_source source = {.tree = ot_node_find(tree, path),
                                      .arena = arena,
                                      .prefix = ot_arena_format(arena, "%s.", path)};
    OT_TRY(read_values(&v.pools[i], &source, &pools[i]));
  }
  const ot_cluster_source whole = {pools, tree, arena, ""};
  assumption a = {.cluster = pools, .tree = tree, .text = {.arena = arena}};
  if (v.num_pools > 0)
    assume_share(&a, &between, "efficiency", "between.efficiency", &v.between.efficiency);
  if (v.num_pools > 0) OT_TRY(ot_cluster_check_link(&whole, "between", &v.between));
  const ot_status status = ot_cluster_join(v.name, pools, (int)v.num_pools, &v.between, out);
  if (status != OT_OK) {
    return ot_fail(status, "%s (%s)", ot_fail_message(),
                   ot_node_place(arena, ot_node_child(tree, "pools")));
  }
  add_doubts(&a, out);
  return OT_OK;
}

static ot_status read_tree(const ot_node *tree, ot_arena *arena, ot_cluster *out) {
  cluster_values v;
  const bool map = tree && tree->kind == OT_NODE_MAP;
  if (map && !ot_cluster_tree_is_alike(tree)) return read_mixed(tree, arena, out);
  if (map) tree = derive(tree, "base", arena);
  OT_TRY(ot_schema_read(&ot_cluster_schema, tree, arena, &v));
  return read_values(&v, &(ot_cluster_source){.tree = tree, .arena = arena, .prefix = ""}, out);
}

ot_status ot_cluster_read(const ot_node *tree, ot_arena *arena, ot_cluster *out) {
  const ot_status status = read_tree(tree, arena, out);
  if (status == OT_OK || ot_fail_hint_text()[0] != '\0') return status;
  return ot_fail_hint(status, "`orthant presets --keys` lists the keys of a cluster");
}

static cluster_values values_of(const ot_cluster *cluster) {
  return (cluster_values){
      .cluster = *cluster, .levels = cluster->level, .num_levels = cluster->num_levels};
}

ot_node *ot_cluster_write(const ot_cluster *cluster, ot_arena *arena) {
  const cluster_values whole = values_of(cluster);
  if (cluster->num_pools == 0) return ot_schema_write(&ot_cluster_schema, 0, &whole, arena);
  cluster_values *const pools = ot_arena_array(arena, cluster->num_pools, sizeof *pools);
  for (int i = 0; i < cluster->num_pools; i++) pools[i] = values_of(&cluster->pools[i]);
  const mixed_values v = {.name = cluster->name,
                          .pools = pools,
                          .num_pools = cluster->num_pools,
                          .between = cluster->between};
  return ot_schema_write(&mixed_cluster, 0, &v, arena);
}
