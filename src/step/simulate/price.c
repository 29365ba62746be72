// SPDX-License-Identifier: Apache-2.0
// Dispatches to cost models: Orthant's own kernels and collectives by roofline and by latency and
// bytes (simulate.h); those of a kernel style on a described device by price_kernel.c and
// price_link.c.
#include "simulate/price.h"

#include "base/dtype.h"
#include "base/extremes.h"
#include "base/math.h"
#include "ops/catalog.h"
#include "ops/collective.h"
#include "ops/route.h"
#include "schedule/bodies.h"
#include "simulate/price_kernel.h"
#include "simulate/price_link.h"
#include "simulate/price_measured.h"

ot_simulation ot_simulation_of(const ot_cluster *cluster, const ot_kernel_style *style,
                               ot_dtype products) {
  return (ot_simulation){.cluster = cluster,
                         .other_flops_per_s = cluster->device.other_flops_per_s,
                         .launch_s = cluster->device.launch_s,
                         .style = style,
                         .products = products};
}

ot_status ot_price_check(const ot_simulation *simulation) {
  OT_TRY(ot_cluster_check(simulation->cluster));
  OT_CHECK(simulation->other_flops_per_s > 0, OT_USAGE,
           "simulate: other_flops_per_s=%g; allowed: above 0", simulation->other_flops_per_s);
  OT_CHECK(simulation->launch_s >= 0, OT_USAGE, "simulate: launch_s=%g; allowed: 0 or more",
           simulation->launch_s);
  OT_CHECK(simulation->more_rows >= 0, OT_USAGE, "simulate: more_rows=%g; allowed: 0 or more",
           simulation->more_rows);
  OT_CHECK(simulation->more_rounds >= 0, OT_USAGE, "simulate: more_rounds=%g; allowed: 0 or more",
           simulation->more_rounds);
  return OT_OK;
}

// Whether device and software are described in more detail than a roofline.
static bool is_described(const ot_simulation *simulation) {
  return simulation->style && simulation->cluster->device.processors > 0;
}

static double stretch_of(const ot_simulation *simulation) {
  if (simulation->stretch > 0) return simulation->stretch;
  return ot_larger(simulation->cluster->threads_per_core, 1);
}

static double share_of(double share) { return share > 0 ? share : 1; }

static ot_status price_compute(const ot_simulation *simulation, const ot_task *task,
                               ot_price *price) {
  const ot_device_kind *const device = &simulation->cluster->device;
  const ot_cost cost = ot_task_cost(task);
  const ot_dtype type = simulation->style ? simulation->products : task->attributes.compute;
  const double rate = device->flops[type] * share_of(device->matrix_efficiency);
  if (rate == 0 && cost.matrix_flops > 0) return ot_price_lacks_rate(simulation, type, task);
  double measured_s;
  if (ot_price_measured_kernel(simulation, task, &measured_s)) {
    const double stretch = stretch_of(simulation);
    *price = (ot_price){.device_s = stretch * measured_s, .host_s = stretch * simulation->launch_s};
    return OT_OK;
  }
  const double flops = cost.matrix_flops + (device->packs ? cost.padded_flops : 0);
  const double matrix_s = flops > 0 ? flops / rate : 0;
  const double memory_s = (cost.bytes_read + cost.bytes_written) / ot_device_stream_rate(device);
  const double other_s = cost.other_flops / simulation->other_flops_per_s;
  const double work_s = device->packs ? matrix_s + ot_larger(memory_s, other_s)
                                      : ot_larger(matrix_s, memory_s) + other_s;
  const double stretch = stretch_of(simulation);
  *price = (ot_price){.device_s = stretch * work_s, .host_s = stretch * simulation->launch_s};
  return OT_OK;
}

// The host queues one kernel for each task that was measured.
static ot_status price_on_accelerator(const ot_simulation *simulation, const ot_task *task,
                                      ot_price *price) {
  double measured_s;
  if (!ot_price_measured_kernel(simulation, task, &measured_s)) {
    return ot_price_kernel(simulation, task, price);
  }
  *price = (ot_price){.device_s = measured_s, .host_s = simulation->launch_s};
  return OT_OK;
}

// ---- links ----

// The innermost level that connects ranks `first` to `last`: groups of devices are ranges.
static ot_status find_level(const ot_cluster *cluster, int first, int last,
                            const ot_link_level **level) {
  OT_CHECK(last < cluster->num_devices && cluster->num_levels > 0, OT_USAGE,
           "cluster %s: ranks %d and %d communicate, but there are %d devices and %d levels of "
           "links",
           cluster->name, first, last, cluster->num_devices, cluster->num_levels);
  *level = &cluster->level[ot_cluster_level(cluster, first, last)];
  return OT_OK;
}

static double transfer_s(const ot_link_level *level, double messages, double bytes) {
  return messages * level->latency_s + bytes / level->bytes_per_s;
}

// Local reduction of the blocks received in an all-to-all.
static double sum_s(const ot_simulation *simulation, const ot_collective *c, double others) {
  return c->bytes / ot_device_stream_rate(&simulation->cluster->device) +
         others * c->elements / simulation->other_flops_per_s;
}

static double dispatch_s(const ot_simulation *simulation) {
  return simulation->style->host_ops * simulation->cluster->device.host_op_s;
}

static ot_status price_described(const ot_simulation *simulation, const ot_collective *collective,
                                 ot_price *price) {
  switch (collective->op) {
    case OT_OP_ALL_GATHER:
    case OT_OP_ALL_TO_ALL:
    case OT_OP_REDUCE_SCATTER:
    case OT_OP_ALL_REDUCE:
    case OT_OP_SHIFT:
      // The library queues it while the host dispatches kernels.
      price->device_s = ot_link_collective_s(simulation, collective);
      price->load_s = ot_link_load_s(simulation, collective, price->device_s);
      return OT_OK;
    default:
      return ot_fail(OT_BUG, "simulate: op %d is not a collective", (int)collective->op);
  }
}

ot_status ot_price_collective(const ot_simulation *simulation, const ot_collective *collective,
                              ot_price *price) {
  const ot_group_shape *const shape = &collective->shape;
  const double n = shape->size, others = (n - 1) / n, whole = collective->bytes;
  *price = (ot_price){0};
  if (shape->size <= 1) return OT_OK;
  const bool beyond = shape->near > 0 && shape->near < shape->size;
  const int last = beyond ? simulation->cluster->num_devices - 1
                          : shape->first + shape->stride * (shape->size - 1);
  const ot_link_level *level = NULL;
  OT_TRY(find_level(simulation->cluster, beyond ? 0 : shape->first, last, &level));
  if (is_described(simulation)) return price_described(simulation, collective, price);
  double s = 0;
  if (ot_price_measured_collective(simulation->cluster, ot_op_info_of(collective->op)->name, shape,
                                   whole, &s)) {
    *price = (ot_price){.device_s = s, .host_s = simulation->launch_s};
    return OT_OK;
  }
  switch (collective->op) {
    case OT_OP_ALL_GATHER:
    case OT_OP_ALL_TO_ALL:
      s = transfer_s(level, n - 1, others * whole);
      break;
    case OT_OP_REDUCE_SCATTER:
      s = transfer_s(level, n - 1, others * whole) + sum_s(simulation, collective, others);
      break;
    case OT_OP_ALL_REDUCE:
      s = transfer_s(level, 2 * (n - 1), 2 * others * whole) +
          sum_s(simulation, collective, others);
      break;
    case OT_OP_SHIFT:
      s = transfer_s(level, 1, whole);
      break;
    default:
      return ot_fail(OT_BUG, "simulate: op %d is not a collective", (int)collective->op);
  }
  *price = (ot_price){.device_s = s, .host_s = simulation->launch_s};
  return OT_OK;
}

ot_status ot_price_message(const ot_simulation *simulation, int from, int to, double bytes,
                           ot_price *price) {
  const int first = from < to ? from : to, last = from < to ? to : from;
  const ot_group_shape pair = {.size = 2, .first = first, .stride = last - first};
  const ot_link_level *level = NULL;
  OT_TRY(find_level(simulation->cluster, first, last, &level));
  double measured_s;
  if (ot_price_measured_collective(simulation->cluster, "message", &pair, bytes, &measured_s)) {
    *price = (ot_price){.device_s = measured_s, .host_s = simulation->launch_s};
    return OT_OK;
  }
  *price = is_described(simulation) ? (ot_price){.device_s = ot_link_message_s(level, bytes)}
                                    : (ot_price){.device_s = transfer_s(level, 1, bytes),
                                                 .host_s = simulation->launch_s};
  return OT_OK;
}

ot_price ot_price_pass(const ot_simulation *simulation, double bytes) {
  const ot_device_kind *const device = &simulation->cluster->device;
  if (is_described(simulation)) {
    return (ot_price){.device_s = bytes / ot_device_stream_rate(device),
                      .host_s = dispatch_s(simulation)};
  }
  return (ot_price){.device_s = bytes / device->memory_bytes_per_s, .host_s = simulation->launch_s};
}

bool ot_price_host_ahead(const ot_simulation *simulation) {
  return simulation->style && simulation->style->host_ahead;
}

double ot_price_total_s(const ot_simulation *simulation, ot_price price) {
  const double device_s = price.device_s, host_s = price.host_s;
  const bool ahead = ot_price_host_ahead(simulation);
  if (!ahead || device_s == 0 || host_s == 0) return device_s + host_s;
  const double ratio = host_s > device_s ? device_s / host_s : host_s / device_s;
  return ot_larger(device_s, host_s) * ot_pow(1 + ratio * ratio * ratio, 1.0 / 3);
}

double ot_price_overlap_slowdown_s(const ot_simulation *simulation, double work_s, double load_s) {
  const double contention = simulation->cluster->device.contention;
  if (!is_described(simulation) || contention <= 1) return 0;
  return (contention - 1) * ot_smaller(work_s, load_s);
}

ot_entry_delay ot_price_entry_delay(const ot_simulation *simulation, const ot_entry_work *work) {
  const double hidden_s = ot_larger(work->overlapped_s - work->exposed_s, 0);
  const double load_s = hidden_s > 0 ? work->load_s * hidden_s / work->overlapped_s : 0;
  ot_entry_delay delay = {.slower_s =
                              ot_price_overlap_slowdown_s(simulation, work->compute_s, load_s)};
  const double device_s = work->compute_s + work->exposed_s + delay.slower_s;
  if (!ot_price_host_ahead(simulation)) return delay;
  const ot_price both = {.device_s = device_s, .host_s = work->host_s};
  delay.host_s = ot_price_total_s(simulation, both) - device_s;
  return delay;
}

double ot_price_step_s(const ot_simulation *simulation, int devices, double work_s) {
  const ot_cluster *const cluster = simulation->cluster;
  if (!is_described(simulation)) return work_s;
  const int node = cluster->num_levels > 0 ? cluster->level[0].size : 1;
  const double nodes = (double)devices / node;
  const double jitter = nodes > 1 ? cluster->jitter * ot_log2(nodes) : 0;
  const double host_s =
      cluster->device.step_s * (simulation->style->host_ops < 1 ? simulation->style->host_ops : 1);
  return (work_s + host_s) * (1 + jitter);
}

// ---- tasks ----

// A task that joins another is launched with it.
static ot_status price_kernel(const ot_simulation *simulation, const ot_task *task,
                              ot_price *price) {
  OT_TRY(is_described(simulation) ? price_on_accelerator(simulation, task, price)
                                  : price_compute(simulation, task, price));
  if (task->joins) price->host_s = 0;
  return OT_OK;
}

static ot_status price_collective(const ot_simulation *simulation, const ot_group_shape *shape,
                                  const ot_task *task, ot_price *price) {
  const ot_op_types types = ot_task_types(task);
  const ot_dtype sent = types.in[ot_op_sent_input(task->op)].dtype;
  const double bytes = ot_collective_bytes(task->op, &task->attributes, &types);
  const ot_collective collective = {
      .op = ot_op_is_all_to_all_v(task->op) ? OT_OP_ALL_TO_ALL : task->op,
      .shape = *shape,
      .bytes = bytes,
      .elements = bytes / (double)ot_dtype_bytes(sent)};
  return ot_price_collective(simulation, &collective, price);
}

static ot_status price_message(const ot_simulation *simulation, const ot_group_shape *shape,
                               const ot_task *task, ot_price *price) {
  const int me = task->attributes.group_index, peer = task->attributes.peer;
  OT_CHECK(peer >= 0 && peer < shape->size && peer != me, OT_BUG,
           "schedule: %s is with rank %d of %d", ot_task_name(task), peer, shape->size);
  const bool sent = task->kind == OT_TASK_SEND;
  const double bytes = (double)ot_type_bytes(sent ? &task->in[0].type : &task->out[0].type);
  return ot_price_message(simulation, shape->first + me * shape->stride,
                          shape->first + peer * shape->stride, bytes, price);
}

// The ranks join what each has of the bucket; the first one sends it to one generator after the
// other, since these messages share its link. Generators are the devices after the ranks.
static ot_status price_publish(const ot_simulation *simulation, const ot_group_shape *world,
                               const ot_task *task, ot_price *price) {
  const ot_op_types types = ot_task_types(task);
  const int ranks = world->size > 1 ? world->size : 1;
  const double bytes = ot_collective_bytes(task->op, &task->attributes, &types);
  const ot_collective joined = {
      .op = OT_OP_ALL_REDUCE, .shape = *world, .bytes = bytes, .elements = bytes / 8};
  *price = (ot_price){0};
  if (ranks > 1) OT_TRY(ot_price_collective(simulation, &joined, price));
  for (int i = 0; i < task->attributes.generators; i++) {
    ot_price message;
    OT_TRY(ot_price_message(simulation, 0, ranks + i, bytes, &message));
    price->device_s += message.device_s;
    price->host_s += message.host_s;
  }
  return OT_OK;
}

ot_status ot_price_task(const ot_simulation *simulation,
                        const ot_group_shape shapes[OT_GROUP_KINDS], const ot_task *task,
                        ot_price *price) {
  const ot_group_shape *const shape = &shapes[task->attributes.group];
  switch (task->kind) {
    case OT_TASK_COMPUTE:
      return price_kernel(simulation, task, price);
    case OT_TASK_COLLECTIVE:
      return price_collective(simulation, shape, task, price);
    case OT_TASK_SEND:
    case OT_TASK_RECEIVE:
      return price_message(simulation, shape, task, price);
    case OT_TASK_REPEAT:
      *price = (ot_price){0};
      return OT_OK;
    case OT_TASK_PUBLISH:
      return price_publish(simulation, &shapes[OT_GROUP_WORLD], task, price);
    case OT_TASK_KINDS:
      break;
  }
  OT_UNREACHABLE();
}

double ot_price_times(const ot_simulation *simulation, const ot_segment *segment, int index) {
  return ot_segment_repeat_of(segment, index) < 0 ? 1 : simulation->more_rounds;
}

void ot_price_rows(const ot_simulation *simulation, const ot_segment *segment, int index,
                   ot_task *task) {
  ot_op_attributes *const a = &task->attributes;
  if (simulation->more_rows <= 0 || ot_segment_repeat_of(segment, index) < 0) return;
  const double even =
      a->even_rows > 0 ? (double)a->even_rows : (double)(a->copy_rows * ot_route_copies(a));
  if (even > 0) a->even_rows = (int64_t)ot_larger(1, simulation->more_rows * even);
}
