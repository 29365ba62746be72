// SPDX-License-Identifier: Apache-2.0
// One check for each figure or pair of figures. Ranges of single keys are in the table of keys;
// they are checked here again for clusters that no file describes.
#include "describe/cluster_check.h"

#include <stdarg.h>

#include "base/text.h"

enum { KEY_BYTES = 64, TEXT_BYTES = 256 };

// No kernel or link of any device reaches less of its rated figure; a measurement that says so was
// of calls that were too small.
static const double LEAST_SHARE = 0.001;
// The least figure of a GPU or TPU in bytes or FLOP/s: below it was given in GB or TFLOP/s.
static const double LEAST_FIGURE = 1e6;

// ---- messages ----

static const ot_node *find(const ot_cluster_source *source, const char *key) {
  const ot_node *node = ot_node_find(source->tree, key);
  char around[KEY_BYTES];
  ot_text_format(around, sizeof around, "%s", key);
  for (int64_t i = ot_text_length(around) - 1; !node && i > 0; i--) {
    if (around[i] != '.') continue;
    around[i] = '\0';
    node = ot_node_find(source->tree, around);
  }
  return node ? node : source->tree;
}

ot_status ot_cluster_refuse(const ot_cluster_source *source, const char *key, const char *format,
                            ...) {
  char text[TEXT_BYTES];
  va_list arguments;
  va_start(arguments, format);
  ot_text_format_message(text, sizeof text, format, arguments);
  va_end(arguments);
  if (!source->tree) {
    return ot_fail(OT_USAGE, "%s%s: %s (cluster %s)", source->prefix, key, text,
                   source->cluster->name);
  }
  return ot_fail(OT_USAGE, "%s%s: %s (%s)", source->prefix, key, text,
                 ot_node_place(source->arena, find(source, key)));
}

// ---- fractions ----

static ot_status check_share(const ot_cluster_source *source, const char *key, double share) {
  const bool possible = share == 0 || (share >= LEAST_SHARE && share <= 1);
  if (possible) return OT_OK;
  ot_cluster_refuse(source, key, "%.3g cannot be; allowed: %g to 1, or 0 (not known)", share,
                    LEAST_SHARE);
  return ot_fail_hint(OT_USAGE,
                      "a fraction of the rated figure, such as 0.7; measured: run `orthant bench` "
                      "again, without --quick");
}

static ot_status check_shares(const ot_cluster_source *source) {
  const ot_device_kind *const d = &source->cluster->device;
  const struct {
    const char *key;
    double share;
  } shares[] = {
      {"matrix_efficiency", d->matrix_efficiency},
      {"memory_efficiency", d->memory_efficiency},
      {"attention_efficiency", d->attention_efficiency},
      {"attention_1_efficiency", d->attention_1_efficiency},
      {"attention_2_efficiency", d->attention_2_efficiency},
      {"power_share", d->power_share},
      {"unaligned_efficiency", d->unaligned_efficiency},
  };
  for (int i = 0; i < OT_COUNT(shares); i++) {
    OT_TRY(check_share(source, shares[i].key, shares[i].share));
  }
  return OT_OK;
}

// ---- single figures ----

static ot_status check_least(const ot_cluster_source *source, const char *key, double value) {
  if (value >= 0) return OT_OK;
  return ot_cluster_refuse(source, key, "%g; allowed: at least 0", value);
}

// A figure of a GPU or TPU that was probably given in GB, TFLOP/s or GB/s.
static ot_status check_unit(const ot_cluster_source *source, const char *key, double value) {
  if (source->cluster->device.processors == 0 || value == 0 || value >= LEAST_FIGURE) return OT_OK;
  ot_cluster_refuse(source, key, "%g is too small; the unit is that of the name, without a prefix",
                    value);
  return ot_fail_hint(OT_USAGE, "try %ge9 or %ge12", value, value);
}

static ot_status check_figures(const ot_cluster_source *source) {
  const ot_cluster *const cluster = source->cluster;
  const ot_device_kind *const d = &cluster->device;
  const struct {
    const char *key;
    double value;
  } figures[] = {
      {"usable_memory_bytes", (double)d->usable_bytes},
      {"power_w", d->power_w},
      {"other_flops_per_s", d->other_flops_per_s},
      {"launch_s", d->launch_s},
      {"processors", d->processors},
      {"half_keys", d->half_keys},
      {"host_op_s", d->host_op_s},
      {"step_s", d->step_s},
      {"jitter", cluster->jitter},
  };
  for (int i = 0; i < OT_COUNT(figures); i++) {
    OT_TRY(check_least(source, figures[i].key, figures[i].value));
  }
  if (cluster->jitter > 1) {
    return ot_cluster_refuse(source, "jitter", "%g; allowed: a fraction of a step",
                             cluster->jitter);
  }
  if (d->contention == 0 || d->contention >= 1) return OT_OK;
  return ot_cluster_refuse(source, "contention", "%g; allowed: 1 or more, or 0 (not known)",
                           d->contention);
}

// ---- the device ----

static ot_status check_rates(const ot_cluster_source *source) {
  const ot_device_kind *const device = &source->cluster->device;
  double best = 0;
  for (int i = 0; i < OT_DTYPE_COUNT; i++) {
    char key[KEY_BYTES];
    ot_text_format(key, sizeof key, "flops_%s", ot_dtype_name((ot_dtype)i));
    OT_TRY(check_least(source, key, device->flops[i]));
    OT_TRY(check_unit(source, key, device->flops[i]));
    if (device->flops[i] > best) best = device->flops[i];
  }
  const double wide = device->flops[OT_BF16], narrow = device->flops[OT_F8];
  if (narrow > 0 && narrow < wide) {
    return ot_cluster_refuse(source, "flops_fp8", "%g is less than flops_bf16, %g", narrow, wide);
  }
  if (best > 0) return OT_OK;
  ot_cluster_refuse(source, "flops_bf16", "the device has no flops of any type");
  return ot_fail_hint(OT_USAGE,
                      "the dense peak of the data sheet in FLOP/s, such as flops_bf16: 312e12");
}

static ot_status check_device(const ot_cluster_source *source) {
  const ot_device_kind *const device = &source->cluster->device;
  const double bytes = (double)device->memory_bytes, usable = (double)device->usable_bytes;
  if (bytes <= 0) return ot_cluster_refuse(source, "memory_bytes", "%g; allowed: above 0", bytes);
  if (device->memory_bytes_per_s <= 0) {
    return ot_cluster_refuse(source, "memory_bytes_per_s", "%g; allowed: above 0",
                             device->memory_bytes_per_s);
  }
  OT_TRY(check_unit(source, "memory_bytes", bytes));
  OT_TRY(check_unit(source, "usable_memory_bytes", usable));
  OT_TRY(check_unit(source, "memory_bytes_per_s", device->memory_bytes_per_s));
  OT_TRY(check_rates(source));
  OT_TRY(check_figures(source));
  return check_shares(source);
}

// ---- links ----

ot_status ot_cluster_check_link(const ot_cluster_source *source, const char *path,
                                const ot_link_level *link) {
  char key[KEY_BYTES];
  ot_text_format(key, sizeof key, "%s.latency_s", path);
  OT_TRY(check_least(source, key, link->latency_s));
  ot_text_format(key, sizeof key, "%s.efficiency", path);
  OT_TRY(check_share(source, key, link->efficiency));
  ot_text_format(key, sizeof key, "%s.bytes_per_s", path);
  if (link->bytes_per_s <= 0) {
    return ot_cluster_refuse(source, key, "%g; allowed: above 0", link->bytes_per_s);
  }
  return check_unit(source, key, link->bytes_per_s);
}

static ot_status check_level(const ot_cluster_source *source, int i) {
  const ot_cluster *const cluster = source->cluster;
  const ot_link_level *const level = &cluster->level[i], *const inside = level - (i > 0);
  const int inner = i > 0 ? inside->size : 1;
  char path[KEY_BYTES], key[KEY_BYTES];
  ot_text_format(path, sizeof path, "levels.%d", i);
  ot_text_format(key, sizeof key, "%s.size", path);
  if (level->size < 1 || level->size % inner != 0) {
    return ot_cluster_refuse(source, key,
                             "%s joins %d devices, which is not a multiple of the %d of the level "
                             "inside it",
                             level->name, level->size, inner);
  }
  OT_TRY(ot_cluster_check_link(source, path, level));
  if (level->bytes_per_s <= inside->bytes_per_s) return OT_OK;
  ot_text_format(key, sizeof key, "%s.bytes_per_s", path);
  ot_cluster_refuse(source, key, "%s has %g, more than the %g of level %s inside it", level->name,
                    level->bytes_per_s, inside->bytes_per_s, inside->name);
  return ot_fail_hint(OT_USAGE,
                      "levels go from the innermost outwards; rates are those of one device");
}

static ot_status check_levels(const ot_cluster_source *source) {
  const ot_cluster *const cluster = source->cluster;
  const int num = cluster->num_levels;
  if (num < 0 || num > OT_MAX_LINK_LEVELS) {
    return ot_cluster_refuse(source, "levels", "%d levels of links; allowed: up to %d", num,
                             OT_MAX_LINK_LEVELS);
  }
  for (int i = 0; i < num; i++) OT_TRY(check_level(source, i));
  const int reach = num > 0 ? cluster->level[num - 1].size : 1;
  if (reach >= cluster->num_devices) return OT_OK;
  ot_cluster_refuse(source, "levels", "the outermost level joins %d of %d devices", reach,
                    cluster->num_devices);
  return ot_fail_hint(OT_USAGE,
                      "size of the last level: num_devices, or add a level that joins all of them");
}

ot_status ot_cluster_check_source(const ot_cluster_source *source) {
  const ot_cluster *const cluster = source->cluster;
  if (cluster->num_devices < 1) {
    return ot_cluster_refuse(source, "num_devices", "%d; allowed: at least 1",
                             cluster->num_devices);
  }
  OT_TRY(check_device(source));
  return check_levels(source);
}

ot_status ot_cluster_check(const ot_cluster *cluster) {
  return ot_cluster_check_source(&(ot_cluster_source){.cluster = cluster, .prefix = ""});
}
