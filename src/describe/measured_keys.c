// SPDX-License-Identifier: Apache-2.0
// One row a key. A rate of 0 means that a kernel takes no time for it.
#include "describe/measured_keys.h"

static const ot_key kernel_keys[] = {
    {.name = "op",
     .type = OT_KEY_TEXT,
     .offset = offsetof(ot_kernel_rates, op),
     .help = "operator, as orthant schedule prints it"},
    {.name = "threads",
     .type = OT_KEY_INT,
     .offset = offsetof(ot_kernel_rates, threads),
     .minimum = 1,
     .maximum = 4096,
     .help = "of a rank"},
    {.name = "call_s",
     .type = OT_KEY_REAL,
     .offset = offsetof(ot_kernel_rates, call_s),
     .minimum = 0,
     .maximum = OT_NO_MAXIMUM,
     .fallback = "0",
     .unit = "seconds",
     .help = "of one call, whatever its size"},
    {.name = "fork_s",
     .type = OT_KEY_REAL,
     .offset = offsetof(ot_kernel_rates, fork_s),
     .minimum = 0,
     .maximum = OT_NO_MAXIMUM,
     .fallback = "0",
     .unit = "seconds",
     .help = "additional time where several threads share a call"},
    {.name = "matrix_flops_per_s",
     .type = OT_KEY_REAL,
     .offset = offsetof(ot_kernel_rates, matrix_flops_per_s),
     .minimum = 0,
     .maximum = OT_NO_MAXIMUM,
     .fallback = "0",
     .unit = "per second",
     .help = "matrix products, of one thread; 0: no time"},
    {.name = "other_flops_per_s",
     .type = OT_KEY_REAL,
     .offset = offsetof(ot_kernel_rates, other_flops_per_s),
     .minimum = 0,
     .maximum = OT_NO_MAXIMUM,
     .fallback = "0",
     .unit = "per second",
     .help = "elementwise work, of one thread; 0: no time"},
    {.name = "bytes_per_s",
     .type = OT_KEY_REAL,
     .offset = offsetof(ot_kernel_rates, bytes_per_s),
     .minimum = 0,
     .maximum = OT_NO_MAXIMUM,
     .fallback = "0",
     .unit = "bytes per second",
     .help = "operands, of one thread; 0: no time"},
    {.name = "samples",
     .type = OT_KEY_INT,
     .offset = offsetof(ot_kernel_rates, fit.samples),
     .minimum = 0,
     .maximum = 1 << 30,
     .fallback = "0",
     .help = "timings that the figures were fitted to"},
    {.name = "residual",
     .type = OT_KEY_REAL,
     .offset = offsetof(ot_kernel_rates, fit.residual),
     .minimum = 0,
     .maximum = OT_NO_MAXIMUM,
     .fallback = "0",
     .help = "median of what the figures miss them by, as a share"},
    {.name = "spread",
     .type = OT_KEY_REAL,
     .offset = offsetof(ot_kernel_rates, fit.spread),
     .minimum = 0,
     .maximum = OT_NO_MAXIMUM,
     .fallback = "0",
     .help = "between the quartiles of the runs of a timing, as a share of their median"},
};
static const ot_schema kernel = {.name = "kernel",
                                 .keys = kernel_keys,
                                 .num_keys = OT_COUNT(kernel_keys),
                                 .size = sizeof(ot_kernel_rates)};

static const ot_key collective_keys[] = {
    {.name = "op",
     .type = OT_KEY_TEXT,
     .offset = offsetof(ot_collective_rates, op),
     .help = "operator, or message"},
    {.name = "ranks",
     .type = OT_KEY_INT,
     .offset = offsetof(ot_collective_rates, ranks),
     .minimum = 2,
     .maximum = 1 << 20,
     .help = "that take part"},
    {.name = "latency_s",
     .type = OT_KEY_REAL,
     .offset = offsetof(ot_collective_rates, latency_s),
     .minimum = 0,
     .maximum = OT_NO_MAXIMUM,
     .fallback = "0",
     .unit = "seconds",
     .help = "from when all have come, whatever its size"},
    {.name = "bytes_per_s",
     .type = OT_KEY_REAL,
     .offset = offsetof(ot_collective_rates, bytes_per_s),
     .minimum = 0,
     .maximum = OT_NO_MAXIMUM,
     .fallback = "0",
     .unit = "bytes per second",
     .help = "of the whole tensor; 0: no time"},
    {.name = "samples",
     .type = OT_KEY_INT,
     .offset = offsetof(ot_collective_rates, fit.samples),
     .minimum = 0,
     .maximum = 1 << 30,
     .fallback = "0",
     .help = "timings that the figures were fitted to"},
    {.name = "residual",
     .type = OT_KEY_REAL,
     .offset = offsetof(ot_collective_rates, fit.residual),
     .minimum = 0,
     .maximum = OT_NO_MAXIMUM,
     .fallback = "0",
     .help = "median of what the figures miss them by, as a share"},
    {.name = "spread",
     .type = OT_KEY_REAL,
     .offset = offsetof(ot_collective_rates, fit.spread),
     .minimum = 0,
     .maximum = OT_NO_MAXIMUM,
     .fallback = "0",
     .help = "between the quartiles of the runs of a timing, as a share of their median"},
};
static const ot_schema collective = {.name = "collective",
                                     .keys = collective_keys,
                                     .num_keys = OT_COUNT(collective_keys),
                                     .size = sizeof(ot_collective_rates)};

static const ot_key product_keys[] = {
    {.name = "rows",
     .type = OT_KEY_INTEGER,
     .offset = offsetof(ot_measured_product, rows),
     .minimum = 1,
     .maximum = OT_NO_MAXIMUM,
     .help = "of the result"},
    {.name = "columns",
     .type = OT_KEY_INTEGER,
     .offset = offsetof(ot_measured_product, columns),
     .minimum = 1,
     .maximum = OT_NO_MAXIMUM,
     .help = "of the result"},
    {.name = "depth",
     .type = OT_KEY_INTEGER,
     .offset = offsetof(ot_measured_product, depth),
     .minimum = 1,
     .maximum = OT_NO_MAXIMUM,
     .help = "products that are added up"},
    {.name = "flops_per_s",
     .type = OT_KEY_REAL,
     .offset = offsetof(ot_measured_product, flops_per_s),
     .minimum = 0,
     .maximum = OT_NO_MAXIMUM,
     .fallback = "0",
     .unit = "per second",
     .help = "of one rank"},
    {.name = "spread",
     .type = OT_KEY_REAL,
     .offset = offsetof(ot_measured_product, spread),
     .minimum = 0,
     .maximum = OT_NO_MAXIMUM,
     .fallback = "0",
     .help = "between quartiles, as a share of the median"},
};
static const ot_schema product = {.name = "product",
                                  .keys = product_keys,
                                  .num_keys = OT_COUNT(product_keys),
                                  .size = sizeof(ot_measured_product)};

static const ot_key traffic_keys[] = {
    {.name = "bytes",
     .type = OT_KEY_INTEGER,
     .offset = offsetof(ot_measured_traffic, bytes),
     .minimum = 1,
     .maximum = OT_NO_MAXIMUM,
     .unit = "bytes",
     .help = "read and written by one call, again and again"},
    {.name = "bytes_per_s",
     .type = OT_KEY_REAL,
     .offset = offsetof(ot_measured_traffic, bytes_per_s),
     .minimum = 0,
     .maximum = OT_NO_MAXIMUM,
     .fallback = "0",
     .unit = "bytes per second",
     .help = "of one rank"},
    {.name = "spread",
     .type = OT_KEY_REAL,
     .offset = offsetof(ot_measured_traffic, spread),
     .minimum = 0,
     .maximum = OT_NO_MAXIMUM,
     .fallback = "0",
     .help = "between quartiles, as a share of the median"},
};
static const ot_schema traffic = {.name = "traffic",
                                  .keys = traffic_keys,
                                  .num_keys = OT_COUNT(traffic_keys),
                                  .size = sizeof(ot_measured_traffic)};

static const ot_key keys[] = {
    {.name = "cores",
     .type = OT_KEY_INT,
     .offset = offsetof(ot_measured_machine, cores),
     .minimum = 0,
     .maximum = 1 << 20,
     .fallback = "0",
     .help = "that all ranks share; 0: nothing was measured"},
    {.name = "disk_bytes_per_s",
     .type = OT_KEY_REAL,
     .offset = offsetof(ot_measured_machine, disk_bytes_per_s),
     .minimum = 0,
     .maximum = OT_NO_MAXIMUM,
     .fallback = "0",
     .unit = "bytes per second",
     .help = "written and synced"},
    {.name = "kernels",
     .type = OT_KEY_OBJECT,
     .shape = OT_SHAPE_LIST,
     .offset = offsetof(ot_measured_machine, kernels),
     .count_offset = offsetof(ot_measured_machine, num_kernels),
     .fallback = "",
     .help = "what kinds of kernels take",
     .object = &kernel},
    {.name = "collectives",
     .type = OT_KEY_OBJECT,
     .shape = OT_SHAPE_LIST,
     .offset = offsetof(ot_measured_machine, collectives),
     .count_offset = offsetof(ot_measured_machine, num_collectives),
     .fallback = "",
     .help = "what ranks take together, by their number",
     .object = &collective},
    {.name = "products",
     .type = OT_KEY_OBJECT,
     .shape = OT_SHAPE_LIST,
     .offset = offsetof(ot_measured_machine, products),
     .count_offset = offsetof(ot_measured_machine, num_products),
     .fallback = "",
     .help = "matrix products by shape",
     .object = &product},
    {.name = "traffic",
     .type = OT_KEY_OBJECT,
     .shape = OT_SHAPE_LIST,
     .offset = offsetof(ot_measured_machine, traffic),
     .count_offset = offsetof(ot_measured_machine, num_traffic),
     .fallback = "",
     .help = "memory and caches by what is gone through",
     .object = &traffic},
};

const ot_schema ot_measured_schema = {.name = "measured machine",
                                      .keys = keys,
                                      .num_keys = OT_COUNT(keys),
                                      .size = sizeof(ot_measured_machine)};

ot_status ot_measured_check(const ot_cluster *cluster) {
  const ot_measured_machine *const m = &cluster->measured;
  const bool any = m->num_kernels > 0 || m->num_collectives > 0;
  OT_CHECK(!any || m->cores > 0, OT_USAGE,
           "cluster %s: measured.kernels and measured.collectives need measured.cores (`orthant "
           "bench` writes them together)",
           cluster->name);
  OT_CHECK(m->cores == 0 || cluster->device.threads > 0, OT_USAGE,
           "cluster %s: measured.cores=%d needs threads, of each rank when it was measured",
           cluster->name, m->cores);
  return OT_OK;
}

// ---- doubt ----

// Largest of what there is, and of what.
typedef struct worst {
  double value;
  const char *name;
} worst;

static void compare(worst *w, double value, const char *name) {
  if (value > w->value) *w = (worst){value, name};
}

const char *ot_measured_doubt(const ot_cluster *cluster, ot_arena *arena) {
  // On two idle cores of a virtual machine the widest spread of a full measurement was 1.1, of the
  // smallest kernels; next to other load it is 6 and more.
  static const double most_spread = 2, most_residual = 0.5;
  const ot_measured_machine *const m = &cluster->measured;
  worst spread = {0}, residual = {0};
  for (int64_t i = 0; i < m->num_kernels; i++) {
    compare(&spread, m->kernels[i].fit.spread, m->kernels[i].op);
    compare(&residual, m->kernels[i].fit.residual, m->kernels[i].op);
  }
  for (int64_t i = 0; i < m->num_collectives; i++) {
    compare(&spread, m->collectives[i].fit.spread, m->collectives[i].op);
    compare(&residual, m->collectives[i].fit.residual, m->collectives[i].op);
  }
  for (int64_t i = 0; i < m->num_products; i++) compare(&spread, m->products[i].spread, "matmul");
  for (int64_t i = 0; i < m->num_traffic; i++) compare(&spread, m->traffic[i].spread, "memory");
  const bool apart = spread.value > most_spread;
  if (!apart && residual.value <= most_residual) return NULL;
  const char *const format =
      apart
          ? "%s: timings of %s varied by %.0f%%; run `orthant bench` again on an idle machine"
          : "%s: the fit of %s misses its timings by %.0f%%; run `orthant bench` again on an idle "
            "machine";
  const worst *const w = apart ? &spread : &residual;
  return ot_arena_format(arena, format, cluster->name, w->name, 100 * w->value);
}
