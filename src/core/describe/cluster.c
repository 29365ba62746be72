// SPDX-License-Identifier: Apache-2.0
// Clusters shared and resized, their text and hash.
#include "describe/cluster.h"

#include "base/math.h"
#include "base/text.h"

// Power grows with the clock times the square of the voltage, which grows with the clock: between
// the exponents 1 (fixed voltage) and 1/3; arXiv 2604.11391 measures H100 and H200 under limits
// from 200 to 700 W.
static const double CLOCK_EXPONENT = 0.6;

double ot_device_clock_share(const ot_device_kind *device) {
  return device->power_share > 0 ? ot_pow(device->power_share, CLOCK_EXPONENT) : 1;
}

bool ot_device_is_host(const ot_device_kind *device) {
  return device->packs || device->threads > 0;
}

bool ot_device_may_train(const ot_device_kind *device) {
  const ot_vendor vendor = device->vendor;
  return ot_device_is_host(device) || vendor == OT_VENDOR_OTHER || vendor == OT_VENDOR_NVIDIA;
}

int64_t ot_device_capacity(const ot_device_kind *device) {
  return device->usable_bytes > 0 ? device->usable_bytes : device->memory_bytes;
}

ot_backend ot_device_kind_backend(const ot_device_kind *device) {
  return ot_device_is_host(device) ? OT_BACKEND_CPU : OT_BACKEND_CUDA;
}

int ot_cluster_level(const ot_cluster *cluster, int device, int other) {
  if (device == other) return -1;
  int i = 0;
  while (i + 1 < cluster->num_levels &&
         device / cluster->level[i].size != other / cluster->level[i].size) {
    i++;
  }
  return i;
}

bool ot_cluster_has_hosts(const ot_cluster *cluster) {
  return cluster->device.threads > 0 && cluster->host_devices > 0;
}

static void set_threads(ot_cluster *cluster, int ranks, int threads, double rate) {
  ot_device_kind *const device = &cluster->device;
  const int cores = cluster->measured.cores;
  for (int i = 0; i < OT_DTYPE_COUNT; i++) device->flops[i] *= rate;
  device->other_flops_per_s *= rate;
  device->memory_bytes_per_s *= rate;
  device->threads = threads;
  cluster->threads_per_core =
      cores > 0 && ranks * threads > cores ? (double)ranks * threads / cores : 0;
}

static int hosts_of(const ot_cluster *cluster, int ranks) {
  return (ranks + cluster->host_devices - 1) / cluster->host_devices;
}

// Ranks stand host by host, as they did when they were measured.
static ot_status share_hosts(const ot_cluster *cluster, int ranks, int threads, ot_cluster *out) {
  const double rate = (double)threads / cluster->device.threads;
  OT_TRY(ot_cluster_resize(cluster, ranks, out));
  const int before = hosts_of(cluster, cluster->num_devices), now = hosts_of(cluster, ranks);
  const int cores = cluster->measured.cores * now / before;
  if (cluster->measured.cores > 0) out->measured.cores = cores > 1 ? cores : 1;
  set_threads(out, ranks, threads, rate);
  return ot_cluster_check(out);
}

// Refuses clusters that only plans can price.
static ot_status check_alike(const ot_cluster *cluster) {
  if (cluster->num_pools == 0) return OT_OK;
  ot_fail(OT_USAGE, "cluster %s has pools of different devices, which only `orthant plan` prices",
          cluster->name);
  return ot_fail_hint(OT_USAGE, "name a cluster of one kind of device with --cluster");
}

ot_status ot_cluster_share(const ot_cluster *cluster, int ranks, int threads, ot_cluster *out) {
  OT_TRY(check_alike(cluster));
  if (ot_cluster_has_hosts(cluster)) {
    const ot_cluster own = *cluster;
    return share_hosts(&own, ranks, threads, out);
  }
  *out = *cluster;
  if (cluster->device.threads == 0) {
    OT_CHECK(ranks <= cluster->num_devices, OT_USAGE, "cluster %s has %d devices, the run %d ranks",
             cluster->name, cluster->num_devices, ranks);
    return OT_OK;
  }
  const double part = (double)cluster->num_devices / ranks;
  const double wanted = (double)threads / cluster->device.threads;
  const int cores = cluster->measured.cores;
  const double share = cores > 0 ? wanted : part;
  const double rate = wanted < share ? wanted : share;
  set_threads(out, ranks, threads, rate);
  out->device.memory_bytes = (int64_t)((double)out->device.memory_bytes * part);
  out->device.usable_bytes = (int64_t)((double)out->device.usable_bytes * part);
  out->num_devices = ranks;
  // One thread sends a message, as long as a core is free for it.
  for (int i = 0; i < out->num_levels; i++) {
    out->level[i].size = ranks;
    if (part < 1 && cores == 0) out->level[i].bytes_per_s *= part;
  }
  return ot_cluster_check(out);
}

int ot_cluster_threads(const ot_cluster *cluster, int ranks, int asked) {
  const int devices = ot_cluster_has_hosts(cluster) ? ranks : cluster->num_devices;
  const int shared = devices * cluster->device.threads / ranks;
  if (asked > 0) return asked;
  return shared > 1 ? shared : 1;
}

ot_status ot_cluster_resize(const ot_cluster *cluster, int devices, ot_cluster *out) {
  *out = *cluster;
  if (cluster->num_pools > 0) {
    OT_CHECK(devices == cluster->num_devices, OT_USAGE,
             "cluster %s has pools of %d devices in total, %d asked for: change num_devices of its "
             "pools",
             cluster->name, cluster->num_devices, devices);
    return OT_OK;
  }
  out->num_devices = devices;
  const int last = cluster->num_levels - 1;
  if (last < 0 || devices <= cluster->level[last].size) return ot_cluster_check(out);
  OT_CHECK(last > 0, OT_USAGE,
           "cluster %s joins %d devices by %s and has no links beyond; %d asked for", cluster->name,
           cluster->level[0].size, cluster->level[0].name, devices);
  const int group = cluster->level[last - 1].size;
  out->level[last].size = (devices + group - 1) / group * group;
  return ot_cluster_check(out);
}

static int64_t print_kernels(const ot_cluster *cluster, char *out, int64_t capacity) {
  const ot_device_kind *const d = &cluster->device;
  if (d->processors == 0) return 0;
  return ot_text_format(
      out, capacity,
      "processors %d efficiency matrix %.17g memory %.17g attention %.17g %.17g %.17g %d unaligned "
      "%.17g power %.17g\n"
      "half_keys %.17g contention %.17g host_op_s %.17g step_s %.17g jitter %.17g\n",
      d->processors, d->matrix_efficiency, d->memory_efficiency, d->attention_efficiency,
      d->attention_1_efficiency, d->attention_2_efficiency, d->attention_2_common,
      d->unaligned_efficiency, d->power_share, d->half_keys, d->contention, d->host_op_s, d->step_s,
      cluster->jitter);
}

// The measurements that the cost model uses.
static int64_t print_measured(const ot_measured_machine *m, char *out, int64_t capacity) {
  if (m->cores == 0 && m->num_kernels == 0) return 0;
  int64_t length = ot_text_format(out, capacity, "cores %d disk_bytes_per_s %.17g\n", m->cores,
                                  m->disk_bytes_per_s);
  for (int64_t i = 0; i < m->num_kernels; i++) {
    const ot_kernel_rates *const k = &m->kernels[i];
    length += ot_text_format(out + length, capacity - length,
                             "kernel %s threads %d %s call_s %.17g fork_s %.17g matrix %.17g other "
                             "%.17g bytes %.17g\n",
                             k->op, k->threads, ot_dtype_name(k->dtype), k->call_s, k->fork_s,
                             k->matrix_flops_per_s, k->other_flops_per_s, k->bytes_per_s);
  }
  for (int64_t i = 0; i < m->num_collectives; i++) {
    const ot_collective_rates *const c = &m->collectives[i];
    char on_hosts[24] = "";
    if (c->hosts > 1) ot_text_format(on_hosts, sizeof on_hosts, " hosts %d", c->hosts);
    length += ot_text_format(out + length, capacity - length,
                             "collective %s ranks %d%s latency_s %.17g bytes_per_s %.17g\n", c->op,
                             c->ranks, on_hosts, c->latency_s, c->bytes_per_s);
  }
  return length;
}

int64_t ot_cluster_print(const ot_cluster *cluster, char *out, int64_t capacity) {
  const ot_device_kind *const device = &cluster->device;
  int64_t length = ot_text_format(
      out, capacity, "cluster %s: %d devices %s memory_bytes %lld memory_bytes_per_s %.17g\n",
      cluster->name, cluster->num_devices, device->name, (long long)device->memory_bytes,
      device->memory_bytes_per_s);
  if (device->vendor != OT_VENDOR_OTHER) {
    length += ot_text_format(out + length, capacity - length, "vendor %s\n",
                             ot_vendor_names[device->vendor]);
  }
  if (device->usable_bytes > 0) {
    length += ot_text_format(out + length, capacity - length, "usable_memory_bytes %lld\n",
                             (long long)device->usable_bytes);
  }
  for (int i = 0; i < OT_DTYPE_COUNT; i++) {
    if (device->flops[i] == 0) continue;
    length += ot_text_format(out + length, capacity - length, "flops %s %.17g\n",
                             ot_dtype_name((ot_dtype)i), device->flops[i]);
  }
  if (cluster->host_devices > 0) {
    length +=
        ot_text_format(out + length, capacity - length, "host_devices %d\n", cluster->host_devices);
  }
  if (device->threads > 0) {
    length += ot_text_format(out + length, capacity - length, "threads %d\n", device->threads);
  }
  length += print_kernels(cluster, out + length, capacity - length);
  for (int i = 0; i < cluster->num_levels; i++) {
    const ot_link_level *const level = &cluster->level[i];
    length += ot_text_format(out + length, capacity - length,
                             "level %s size %d bytes_per_s %.17g latency_s %.17g", level->name,
                             level->size, level->bytes_per_s, level->latency_s);
    if (level->efficiency > 0) {
      length +=
          ot_text_format(out + length, capacity - length, " efficiency %.17g reduces %d mesh %d",
                         level->efficiency, level->reduces, level->mesh);
    }
    length += ot_text_format(out + length, capacity - length, "\n");
  }
  length += print_measured(&cluster->measured, out + length, capacity - length);
  if (cluster->num_pools == 0) return length;
  length += ot_text_format(out + length, capacity - length,
                           "between %s bytes_per_s %.17g latency_s %.17g efficiency %.17g\n",
                           cluster->between.name, cluster->between.bytes_per_s,
                           cluster->between.latency_s, cluster->between.efficiency);
  for (int i = 0; i < cluster->num_pools; i++) {
    length += ot_cluster_print(&cluster->pools[i], out + length, capacity - length);
  }
  return length;
}

uint64_t ot_cluster_hash(const ot_cluster *cluster) {
  char text[16384];
  ot_cluster_print(cluster, text, sizeof text);
  return ot_hash_text(OT_HASH_START, text);
}
