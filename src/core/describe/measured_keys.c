// SPDX-License-Identifier: Apache-2.0
// One entry per key. A rate of 0 costs no time.
#include "describe/measured_keys.h"

#include "base/text.h"

static const char *const types[] = {"fp32", "fp64", "bf16", NULL};

// clang-format off
static const ot_key kernel_keys[] = {
    {"op", OT_KEY_TEXT, offsetof(ot_kernel_rates, op),
     .help = "operator, as printed by orthant schedule"},
    {"threads", OT_KEY_INT, offsetof(ot_kernel_rates, threads), NULL, 1, 4096, .help = "per rank"},
    {"dtype", OT_KEY_DTYPE, offsetof(ot_kernel_rates, dtype), "fp32", .choices = types,
     .help = "precision of the run that was measured"},
    {"call_s", OT_KEY_REAL, offsetof(ot_kernel_rates, call_s), "0", 0, OT_NO_MAXIMUM,
     .unit = "seconds", .help = "per call, independent of size"},
    {"fork_s", OT_KEY_REAL, offsetof(ot_kernel_rates, fork_s), "0", 0, OT_NO_MAXIMUM,
     .unit = "seconds", .help = "additional time when several threads share a call"},
    {"matrix_flops_per_s", OT_KEY_REAL, offsetof(ot_kernel_rates, matrix_flops_per_s), "0",
     0, OT_NO_MAXIMUM, .unit = "per second", .help = "GEMMs, per thread; 0: no time"},
    {"other_flops_per_s", OT_KEY_REAL, offsetof(ot_kernel_rates, other_flops_per_s), "0",
     0, OT_NO_MAXIMUM, .unit = "per second", .help = "elementwise work, per thread; 0: no time"},
    {"bytes_per_s", OT_KEY_REAL, offsetof(ot_kernel_rates, bytes_per_s), "0", 0, OT_NO_MAXIMUM,
     .unit = "bytes per second", .help = "operands, per thread; 0: no time"},
    {"samples", OT_KEY_INT, offsetof(ot_kernel_rates, fit.samples), "0", 0, 1 << 30,
     .help = "timings in the fit"},
    {"residual", OT_KEY_REAL, offsetof(ot_kernel_rates, fit.residual), "0", 0, OT_NO_MAXIMUM,
     .help = "median relative error of the fit"},
    {"spread", OT_KEY_REAL, offsetof(ot_kernel_rates, fit.spread), "0", 0, OT_NO_MAXIMUM,
     .help = "interquartile range of the runs of a timing over their median"},
};
static const ot_schema kernel = {
    "kernel", kernel_keys, OT_COUNT(kernel_keys), .size = sizeof(ot_kernel_rates)};

static const ot_key collective_keys[] = {
    {"op", OT_KEY_TEXT, offsetof(ot_collective_rates, op), .help = "operator, or message"},
    {"ranks", OT_KEY_INT, offsetof(ot_collective_rates, ranks), NULL, 2, 1 << 20,
     .help = "number of ranks"},
    {"hosts", OT_KEY_INT, offsetof(ot_collective_rates, hosts), "1", 1, 1 << 20,
     .help = "hosts on which the ranks are, equally many on each"},
    {"latency_s", OT_KEY_REAL, offsetof(ot_collective_rates, latency_s), "0", 0, OT_NO_MAXIMUM,
     .unit = "seconds", .help = "from the arrival of the last rank, independent of size"},
    {"bytes_per_s", OT_KEY_REAL, offsetof(ot_collective_rates, bytes_per_s), "0", 0, OT_NO_MAXIMUM,
     .unit = "bytes per second", .help = "of the whole tensor; 0: no time"},
    {"samples", OT_KEY_INT, offsetof(ot_collective_rates, fit.samples), "0", 0, 1 << 30,
     .help = "timings in the fit"},
    {"residual", OT_KEY_REAL, offsetof(ot_collective_rates, fit.residual), "0", 0, OT_NO_MAXIMUM,
     .help = "median relative error of the fit"},
    {"spread", OT_KEY_REAL, offsetof(ot_collective_rates, fit.spread), "0", 0, OT_NO_MAXIMUM,
     .help = "interquartile range of the runs of a timing over their median"},
};
static const ot_schema collective = {
    "collective", collective_keys, OT_COUNT(collective_keys), .size = sizeof(ot_collective_rates)};

static const ot_key product_keys[] = {
    {"rows", OT_KEY_INTEGER, offsetof(ot_measured_product, rows), NULL, 1, OT_NO_MAXIMUM,
     .help = "of the result"},
    {"columns", OT_KEY_INTEGER, offsetof(ot_measured_product, columns), NULL, 1, OT_NO_MAXIMUM,
     .help = "of the result"},
    {"depth", OT_KEY_INTEGER, offsetof(ot_measured_product, depth), NULL, 1, OT_NO_MAXIMUM,
     .help = "length of the contraction"},
    {"flops_per_s", OT_KEY_REAL, offsetof(ot_measured_product, flops_per_s), "0", 0, OT_NO_MAXIMUM,
     .unit = "per second", .help = "per rank"},
    {"spread", OT_KEY_REAL, offsetof(ot_measured_product, spread), "0", 0, OT_NO_MAXIMUM,
     .help = "interquartile range over the median"},
    {"dtype", OT_KEY_DTYPE, offsetof(ot_measured_product, dtype), "fp32", .choices = types,
     .help = "of the operands"},
};
static const ot_schema product = {
    "product", product_keys, OT_COUNT(product_keys), .size = sizeof(ot_measured_product)};

static const ot_key traffic_keys[] = {
    {"bytes", OT_KEY_INTEGER, offsetof(ot_measured_traffic, bytes), NULL, 1, OT_NO_MAXIMUM,
     .unit = "bytes", .help = "read and written by each of many calls"},
    {"bytes_per_s", OT_KEY_REAL, offsetof(ot_measured_traffic, bytes_per_s), "0", 0, OT_NO_MAXIMUM,
     .unit = "bytes per second", .help = "per rank"},
    {"spread", OT_KEY_REAL, offsetof(ot_measured_traffic, spread), "0", 0, OT_NO_MAXIMUM,
     .help = "interquartile range over the median"},
};
static const ot_schema traffic = {
    "traffic", traffic_keys, OT_COUNT(traffic_keys), .size = sizeof(ot_measured_traffic)};

static const ot_key keys[] = {
    {"cores", OT_KEY_INT, offsetof(ot_measured_machine, cores), "0", 0, 1 << 20,
     .help = "shared by all ranks, of all hosts; 0: not measured"},
    {"disk_bytes_per_s", OT_KEY_REAL, offsetof(ot_measured_machine, disk_bytes_per_s), "0",
     0, OT_NO_MAXIMUM, .unit = "bytes per second", .help = "written and synced"},
    {"sharing", OT_KEY_REAL, offsetof(ot_measured_machine, sharing), "0", 0, OT_NO_MAXIMUM,
     .help = "step of two ranks a core over twice that of one; 0: not measured"},
    {"round_trip_s", OT_KEY_REAL, offsetof(ot_measured_machine, round_trip_s), "0", 0,
     OT_NO_MAXIMUM, .unit = "seconds", .help = "of a cache line between two cores"},
    {"launch_s", OT_KEY_REAL, offsetof(ot_measured_machine, launch_s), "0", 0, OT_NO_MAXIMUM,
     .unit = "seconds", .help = "of a GPU: from call to call of a small kernel"},
    {"to_device_bytes_per_s", OT_KEY_REAL, offsetof(ot_measured_machine, to_device_bytes_per_s),
     "0", 0, OT_NO_MAXIMUM, .unit = "bytes per second", .help = "of a GPU: copies from the host"},
    {"from_device_bytes_per_s", OT_KEY_REAL, offsetof(ot_measured_machine, from_device_bytes_per_s),
     "0", 0, OT_NO_MAXIMUM, .unit = "bytes per second", .help = "of a GPU: copies to the host"},
    {"kernels", OT_KEY_OBJECT, offsetof(ot_measured_machine, kernels), "", .shape = OT_SHAPE_LIST,
     .count_offset = offsetof(ot_measured_machine, num_kernels), .object = &kernel,
     .help = "cost by kind of kernel"},
    {"collectives", OT_KEY_OBJECT, offsetof(ot_measured_machine, collectives), "",
     .shape = OT_SHAPE_LIST, .count_offset = offsetof(ot_measured_machine, num_collectives),
     .object = &collective, .help = "cost of collectives, by number of ranks"},
    {"products", OT_KEY_OBJECT, offsetof(ot_measured_machine, products), "", .shape = OT_SHAPE_LIST,
     .count_offset = offsetof(ot_measured_machine, num_products), .object = &product,
     .help = "GEMMs by shape"},
    {"traffic", OT_KEY_OBJECT, offsetof(ot_measured_machine, traffic), "", .shape = OT_SHAPE_LIST,
     .count_offset = offsetof(ot_measured_machine, num_traffic), .object = &traffic,
     .help = "memory and cache bandwidth by working set"},
};

const ot_schema ot_measured_schema = {
    "measured machine", keys, OT_COUNT(keys), .size = sizeof(ot_measured_machine)};
// clang-format on

static ot_status check_product(const ot_cluster_source *source, int64_t i) {
  static const double noise = 1.05;
  const ot_measured_product *const p = &source->cluster->measured.products[i];
  const double peak = source->cluster->device.flops[p->dtype];
  char key[64];
  if (peak == 0 || p->flops_per_s <= noise * peak) return OT_OK;
  ot_text_format(key, sizeof key, "measured.products.%lld.flops_per_s", (long long)i);
  ot_cluster_refuse(source, key, "%.4g is above the peak of the device, flops_%s %.4g",
                    p->flops_per_s, ot_dtype_name(p->dtype), peak);
  return ot_fail_hint(OT_USAGE, "run `orthant bench` again on an idle machine, without --quick");
}

ot_status ot_measured_check(const ot_cluster_source *source) {
  const ot_cluster *const cluster = source->cluster;
  const ot_measured_machine *const m = &cluster->measured;
  const bool any = m->num_kernels > 0 || m->num_collectives > 0;
  if (any && m->cores == 0 && ot_device_is_host(&cluster->device)) {
    return ot_cluster_refuse(source, "measured.cores",
                             "measured.kernels and measured.collectives need it (`orthant bench` "
                             "writes them together)");
  }
  if (m->cores > 0 && cluster->device.threads == 0) {
    return ot_cluster_refuse(source, "threads",
                             "measured.cores=%d needs it, of each rank when it "
                             "was measured",
                             m->cores);
  }
  for (int64_t i = 0; i < m->num_collectives; i++) {
    const ot_collective_rates *const c = &m->collectives[i];
    char key[64];
    ot_text_format(key, sizeof key, "measured.collectives.%lld.hosts", (long long)i);
    if (c->ranks % c->hosts == 0) continue;
    return ot_cluster_refuse(source, key, "%d ranks cannot be spread evenly over %d hosts",
                             c->ranks, c->hosts);
  }
  for (int64_t i = 0; i < m->num_products; i++) OT_TRY(check_product(source, i));
  return OT_OK;
}

void ot_measured_relate(ot_cluster *cluster, const ot_device_kind *sheet) {
  ot_device_kind *const device = &cluster->device;
  const double matrix = device->flops[OT_BF16] / sheet->flops[OT_BF16];
  const double memory = device->memory_bytes_per_s / sheet->memory_bytes_per_s;
  if (matrix <= 0 || matrix > 1 || memory <= 0 || memory > 1) return;
  device->matrix_efficiency = matrix;
  device->memory_efficiency = memory;
  device->memory_bytes_per_s = sheet->memory_bytes_per_s;
  device->attention_efficiency *= matrix;
  for (int i = 0; i < OT_DTYPE_COUNT; i++) device->flops[i] /= matrix;
}

// ---- unreliable measurements ----

// The largest value and its name.
typedef struct worst {
  double value;
  const char *name;
} worst;

static void compare(worst *w, double value, const char *name) {
  if (value > w->value) *w = (worst){value, name};
}

typedef struct worst_fits {
  worst spread, residual;
} worst_fits;

static worst_fits find_worst(const ot_measured_machine *m) {
  worst_fits w = {0};
  for (int64_t i = 0; i < m->num_kernels; i++) {
    compare(&w.spread, m->kernels[i].fit.spread, m->kernels[i].op);
    compare(&w.residual, m->kernels[i].fit.residual, m->kernels[i].op);
  }
  for (int64_t i = 0; i < m->num_collectives; i++) {
    compare(&w.spread, m->collectives[i].fit.spread, m->collectives[i].op);
    compare(&w.residual, m->collectives[i].fit.residual, m->collectives[i].op);
  }
  for (int64_t i = 0; i < m->num_products; i++) compare(&w.spread, m->products[i].spread, "matmul");
  for (int64_t i = 0; i < m->num_traffic; i++) compare(&w.spread, m->traffic[i].spread, "memory");
  return w;
}

// On two idle cores of a virtual machine the widest spread of a full measurement was 1.1, for the
// smallest kernels; next to other load it is 6 and more.
static const double MOST_SPREAD = 2, MOST_RESIDUAL = 0.5;

bool ot_measured_is_doubtful(const ot_cluster *cluster) {
  const worst_fits w = find_worst(&cluster->measured);
  return w.spread.value > MOST_SPREAD || w.residual.value > MOST_RESIDUAL;
}

const char *ot_measured_warning(const ot_cluster *cluster, ot_arena *arena) {
  const worst_fits all = find_worst(&cluster->measured);
  const bool apart = all.spread.value > MOST_SPREAD;
  if (!apart && all.residual.value <= MOST_RESIDUAL) return NULL;
  const char *const format =
      apart
          ? "%s: timings of %s varied by %.0f%%; run `orthant bench` again on an idle machine"
          : "%s: the fit of %s misses its timings by %.0f%%; run `orthant bench` again on an idle "
            "machine";
  const worst *const w = apart ? &all.spread : &all.residual;
  return ot_arena_format(arena, format, cluster->name, w->name, 100 * w->value);
}
