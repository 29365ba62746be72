// SPDX-License-Identifier: Apache-2.0
// Kernels: of a CPU the rates measured with the same number of threads, else the next smaller one;
// of a GPU those measured in the precision of the run.
// Collectives: likewise by number of ranks; each further rank adds a message and its bytes. Those
// across hosts: by number of ranks and hosts, scaled by the bytes that cross.
#include "simulate/price_measured.h"

#include "base/backend_rules.h"
#include "base/extremes.h"
#include "base/text.h"
#include "ops/catalog.h"
#include "ops/shares.h"

// ---- kernels ----

static int64_t most_elements(const ot_task *task) {
  int64_t most = 0;
  for (int i = 0; i < OT_MAX_INPUTS; i++) {
    const int64_t n = ot_type_elements(&task->in[i].type);
    if (task->in[i].base != OT_BASE_NONE && n > most) most = n;
  }
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) {
    const int64_t n = ot_type_elements(&task->out[i].type);
    if (task->out[i].base != OT_BASE_NONE && n > most) most = n;
  }
  return most;
}

static int sharing(const ot_task *task, const ot_cost *cost) {
  const int threads = task->attributes.threads;
  const double work = cost->matrix_flops / 2;
  if (threads <= 1 || !ot_backend_rules_of(task->attributes.backend)->host) return 1;
  if (work == 0) return ot_threads_for_elements(most_elements(task), threads);
  if (!task->attributes.independent_rows) return ot_threads_for_gemm(work, threads);
  const double weights = (double)ot_type_elements(&task->in[1].type);
  return weights > 0 ? ot_threads_for_rows(weights, work / weights, threads) : 1;
}

void ot_kernel_terms(const ot_task *task, double terms[OT_KERNEL_TERMS]) {
  const ot_cost cost = ot_task_cost(task);
  const int w = sharing(task, &cost);
  terms[OT_KERNEL_CALL] = task->joins ? 0 : 1;
  terms[OT_KERNEL_FORK] = w > 1;
  terms[OT_KERNEL_MATRIX] = (cost.matrix_flops + cost.padded_flops) / w;
  terms[OT_KERNEL_OTHER] = cost.other_flops / w;
  terms[OT_KERNEL_BYTES] = (cost.bytes_read + cost.bytes_written) / w;
}

static const ot_kernel_rates *find_kernel(const ot_measured_machine *m, const char *op,
                                          int threads) {
  const ot_kernel_rates *best = NULL;
  for (int64_t i = 0; i < m->num_kernels; i++) {
    const ot_kernel_rates *const k = &m->kernels[i];
    if (!ot_text_equal(k->op, op)) continue;
    const bool closer = !best || (k->threads <= threads && k->threads > best->threads) ||
                        (best->threads > threads && k->threads < best->threads);
    if (closer) best = k;
  }
  return best;
}

static const ot_kernel_rates *find_precision(const ot_measured_machine *m, const char *op,
                                             ot_dtype products) {
  for (int64_t i = 0; i < m->num_kernels; i++) {
    if (m->kernels[i].dtype == products && ot_text_equal(m->kernels[i].op, op)) {
      return &m->kernels[i];
    }
  }
  return NULL;
}

static double over(double amount, double rate) { return rate > 0 ? amount / rate : 0; }

// Rates of a CPU are in fp32; arithmetic in another dtype is scaled by the ratio of peak rates.
static double slowdown_of(const ot_device_kind *device, ot_dtype compute) {
  const bool scaled = ot_device_is_host(device) && device->flops[compute] > 0;
  return scaled ? device->flops[OT_F32] / device->flops[compute] : 1;
}

// No kernel multiplies faster than the peak, whatever its formula says of work that was not
// measured. The peak of a CPU is that of a rank with its number of threads.
static double least_s(const ot_device_kind *device, const ot_task *task, ot_dtype type) {
  const double ranks = device->threads > 0 ? (double)task->attributes.threads / device->threads : 1;
  return over(ot_task_cost(task).matrix_flops, ranks * device->flops[type]);
}

bool ot_price_measured_kernel(const ot_simulation *simulation, const ot_task *task,
                              double *seconds) {
  const ot_cluster *const cluster = simulation->cluster;
  const ot_measured_machine *const m = &cluster->measured;
  const char *const op = ot_task_name(task);
  const bool host = ot_device_is_host(&cluster->device);
  const ot_kernel_rates *const k = host ? find_kernel(m, op, task->attributes.threads)
                                        : find_precision(m, op, simulation->products);
  if (!k) return false;
  double terms[OT_KERNEL_TERMS];
  ot_kernel_terms(task, terms);
  const double slower = slowdown_of(&cluster->device, task->attributes.compute);
  *seconds = terms[OT_KERNEL_CALL] * k->call_s + terms[OT_KERNEL_FORK] * k->fork_s +
             slower * over(terms[OT_KERNEL_MATRIX], k->matrix_flops_per_s) +
             slower * over(terms[OT_KERNEL_OTHER], k->other_flops_per_s) +
             over(terms[OT_KERNEL_BYTES], k->bytes_per_s);
  const ot_dtype type = host ? task->attributes.compute : simulation->products;
  *seconds = ot_larger(*seconds, least_s(&cluster->device, task, type));
  return true;
}

// ---- collectives ----

// How the members of a group are spread over hosts.
typedef struct spread {
  int ranks, hosts;
  double sharing;  // groups alike of one host, which share its link
} spread;

static spread spread_of(const ot_cluster *cluster, const ot_group_shape *shape) {
  const int host = cluster->host_devices, n = shape->size;
  const int last = shape->first + shape->stride * (n - 1);
  if (!ot_cluster_has_hosts(cluster) || shape->first / host == last / host) {
    return (spread){n, 1, 1};
  }
  if (shape->stride >= host) return (spread){n, n, host};
  return (spread){n, last / host - shape->first / host + 1, shape->stride};
}

bool ot_price_crosses_hosts(const ot_cluster *cluster, const ot_group_shape *shape) {
  return shape->size > 1 && spread_of(cluster, shape).hosts > 1;
}

// Whether `c` is closer to the group than `best`: it has as many ranks or the most below that, then
// as many hosts.
static bool is_closer(const ot_collective_rates *c, const ot_collective_rates *best,
                      const spread *group) {
  if (!best) return true;
  if (c->ranks == best->ranks) return c->hosts == group->hosts;
  return (c->ranks <= group->ranks && c->ranks > best->ranks) ||
         (best->ranks > group->ranks && c->ranks < best->ranks);
}

static const ot_collective_rates *find_collective(const ot_measured_machine *m, const char *op,
                                                  const spread *group, bool across) {
  const ot_collective_rates *best = NULL;
  for (int64_t i = 0; i < m->num_collectives; i++) {
    const ot_collective_rates *const c = &m->collectives[i];
    if ((c->hosts > 1) != across || !ot_text_equal(c->op, op)) continue;
    if (is_closer(c, best, group)) best = c;
  }
  return best;
}

// Share of a rank's bytes that cross between hosts, where every rank sends a block to every other
// one; a shift and a message cross once in a group.
static double crossing(const char *op, int ranks, int hosts) {
  const double inside = (double)ranks / hosts;
  const bool once = ot_text_equal(op, "shift") || ot_text_equal(op, "message");
  return once ? 1 / inside : (ranks - inside) / ranks;
}

bool ot_price_measured_collective(const ot_cluster *cluster, const char *op,
                                  const ot_group_shape *shape, double bytes, double *seconds) {
  const ot_measured_machine *const m = &cluster->measured;
  const spread group = spread_of(cluster, shape);
  const ot_collective_rates *c = group.hosts > 1 ? find_collective(m, op, &group, true) : NULL;
  if (c) {
    double more = crossing(op, group.ranks, group.hosts) / crossing(op, c->ranks, c->hosts);
    // All ranks of a host sent a message at the same time.
    if (ot_text_equal(op, "message")) more *= group.sharing / cluster->host_devices;
    *seconds = c->latency_s * group.hosts / c->hosts + more * over(bytes, c->bytes_per_s);
    return true;
  }
  c = find_collective(m, op, &group, false);
  if (!c) return false;
  const double further = c->ranks == group.ranks ? 1 : (double)group.ranks / c->ranks;
  *seconds = further * (c->latency_s + over(bytes, c->bytes_per_s));
  return true;
}
