// SPDX-License-Identifier: Apache-2.0
// Times kernels alone on the first GPU, then those of steps, and assembles the cluster description.
// Products, copies and attention by themselves give the rates of kernels that no step had.
#include "measure/measure_parts.h"
#include "ops/catalog.h"
#include "ops/operands.h"

enum {
  SMALL_SIZE = 64,  // of products
  PROBE_SIZE = 512,
  COPY_BYTES = 1 << 30,
  TRANSFER_BYTES = 1 << 28,
  SMALL_BYTES = 1 << 16,
  HALF_KEYS = 128,  // docs/pricing.md
};

static const ot_measured_product shapes[] = {
    {8192, 8192, 8192, OT_BF16, 0, 0},  {4096, 4096, 4096, OT_BF16, 0, 0},
    {2048, 2048, 2048, OT_BF16, 0, 0},  {1024, 1024, 1024, OT_BF16, 0, 0},
    {8192, 14336, 4096, OT_BF16, 0, 0}, {8192, 4096, 14336, OT_BF16, 0, 0},
    {16384, 4800, 1600, OT_BF16, 0, 0}, {1600, 1600, 16384, OT_BF16, 0, 0},
    {8192, 8192, 8192, OT_F32, 0, 0},   {4096, 4096, 4096, OT_F32, 0, 0},
    {2048, 2048, 2048, OT_F32, 0, 0},   {4096, 4096, 4096, OT_F64, 0, 0},
    {2048, 2048, 2048, OT_F64, 0, 0},
};

// Bytes read and written by an addition.
static const int64_t traffics[] = {1 << 20, 16 << 20, 64 << 20, 256 << 20, 1 << 30};

typedef struct gpu_measurement {
  const ot_measure_request *request;
  ot_gpu_timer timer;
  ot_arena *arena;
  ot_cluster *out;
  bool small;  // see find_sizes
} gpu_measurement;

static void report_line(const gpu_measurement *m, const char *what) {
  if (m->request->say) m->request->say(m->request->context, what);
}

static ot_dtype compute_of(ot_dtype dtype) { return dtype == OT_F64 ? OT_F64 : OT_F32; }

// ---- kernels alone ----

// y [rows, columns] = x [rows, depth] w^T
static ot_status time_product(gpu_measurement *m, ot_measured_product *p) {
  ot_gpu_call call = {.op = OT_OP_LINEAR,
                      .attributes = {.compute = compute_of(p->dtype)},
                      .types = {.in = {ot_type_matrix(p->dtype, p->rows, p->depth),
                                       ot_type_matrix(p->dtype, p->columns, p->depth)}}};
  ot_timing timing;
  OT_TRY(ot_gpu_time_call(&m->timer, &call, &timing));
  p->flops_per_s = 2.0 * (double)p->rows * (double)p->columns * (double)p->depth / timing.seconds;
  p->spread = timing.spread;
  return OT_OK;
}

// A GPU has real sizes, of which a quick measurement makes fewer runs. A device that computes a
// product of 512 x 512 x 512 at less than 1 TFLOP/s is emulated and would need
// hours for them: in a quick measurement it has small ones, which tell nothing of any GPU.
static ot_status find_sizes(gpu_measurement *m) {
  static const int sizes[] = {SMALL_SIZE, PROBE_SIZE};
  static const double least[] = {1e8, 1e12};
  for (int i = 0; i < OT_COUNT(sizes) && m->request->quick && !m->small; i++) {
    ot_measured_product p = {sizes[i], sizes[i], sizes[i], OT_BF16, 0, 0};
    OT_TRY(time_product(m, &p));
    m->small = p.flops_per_s < least[i];
  }
  return OT_OK;
}

static ot_status time_products(gpu_measurement *m) {
  ot_measured_product *const products =
      ot_arena_array(m->arena, OT_COUNT(shapes), sizeof *products);
  double *const flops = m->out->device.flops;
  for (int i = 0; i < OT_COUNT(shapes); i++) {
    ot_measured_product *const p = &products[i];
    *p = shapes[i];
    if (m->small) p->rows = p->columns = p->depth = SMALL_SIZE;
    OT_TRY(time_product(m, p));
    if (p->flops_per_s > flops[p->dtype]) flops[p->dtype] = p->flops_per_s;
  }
  m->out->measured.products = products;
  m->out->measured.num_products = OT_COUNT(shapes);
  m->out->device.other_flops_per_s = flops[OT_F32];
  return OT_OK;
}

static ot_status time_traffic(gpu_measurement *m) {
  ot_measured_traffic *const traffic =
      ot_arena_array(m->arena, OT_COUNT(traffics), sizeof *traffic);
  int64_t count = 0;
  for (int i = 0; i < OT_COUNT(traffics); i++) {
    const int64_t bytes = m->small ? SMALL_BYTES : traffics[i];
    const ot_tensor_type type = ot_type_matrix(OT_BF16, bytes / 3 / 2 / 256, 256);
    ot_gpu_call call = {
        .op = OT_OP_ADD, .attributes = {.compute = OT_F32}, .types = {.in = {type, type}}};
    ot_timing timing;
    OT_TRY(ot_gpu_time_call(&m->timer, &call, &timing));
    traffic[count++] = (ot_measured_traffic){
        .bytes = bytes, .bytes_per_s = (double)bytes / timing.seconds, .spread = timing.spread};
    if (m->small) break;
  }
  m->out->measured.traffic = traffic;
  m->out->measured.num_traffic = count;
  return ot_gpu_time_copy(&m->timer, NULL, m->small ? SMALL_BYTES : COPY_BYTES,
                          &m->out->device.memory_bytes_per_s);
}

static ot_status time_attention(gpu_measurement *m) {
  const bool small = m->small;
  const int64_t T = small ? 64 : 4096, heads = small ? 1 : 16, head_dim = small ? 64 : 128;
  ot_gpu_call call = {
      .op = OT_OP_ATTENTION,
      .attributes = {.compute = OT_F32,
                     .sequence_length = T,
                     .num_heads = heads,
                     .num_kv_heads = heads,
                     .head_dim = head_dim,
                     .scale = 0.1},
      .types = {.in = {ot_type_matrix(OT_BF16, (small ? 1 : 4) * T, 3 * heads * head_dim)}}};
  ot_timing timing;
  OT_TRY(ot_gpu_time_call(&m->timer, &call, &timing));
  ot_device_kind *const device = &m->out->device;
  const double flops = ot_op_cost(call.op, &call.attributes, &call.types).matrix_flops;
  const double rate = flops / timing.seconds * (double)(T + HALF_KEYS) / (double)T;
  const double share = rate / device->flops[OT_BF16];
  device->half_keys = HALF_KEYS;
  device->attention_efficiency = share < 1 ? share : 1;
  return OT_OK;
}

static ot_status time_launches(gpu_measurement *m) {
  ot_timing one, graph;
  OT_TRY(ot_gpu_time_launch(&m->timer, false, &one));
  OT_TRY(ot_gpu_time_launch(&m->timer, true, &graph));
  m->out->measured.launch_s = one.seconds;
  m->out->device.launch_s = graph.seconds;
  return OT_OK;
}

static ot_status time_transfers(gpu_measurement *m) {
  const int64_t bytes = m->small ? SMALL_BYTES : TRANSFER_BYTES;
  ot_measured_machine *const to = &m->out->measured;
  OT_TRY(ot_gpu_time_transfer(&m->timer, bytes, true, &to->to_device_bytes_per_s));
  return ot_gpu_time_transfer(&m->timer, bytes, false, &to->from_device_bytes_per_s);
}

// ---- kernels in steps ----

static ot_status time_steps(gpu_measurement *m) {
  static const ot_dtype types[] = {OT_BF16, OT_F32};
  ot_kernel_rates *const all =
      ot_arena_array(m->arena, (int64_t)OT_COUNT(types) * OT_OP_COUNT, sizeof *all);
  int64_t count = 0;
  for (int i = 0; i < OT_COUNT(types); i++) {
    const ot_kernel_trials trials = {.backend = OT_BACKEND_CUDA,
                                     .dtype = types[i],
                                     .ranks = 1,
                                     .threads = 1,
                                     .peak_flops_per_s = m->out->device.flops[types[i]],
                                     .event_s = m->timer.event_s,
                                     .quick = m->request->quick,
                                     .small = m->small};
    ot_measured_kernels kernels;
    OT_TRY(ot_measure_kernels(&trials, m->arena, &kernels));
    for (int64_t k = 0; k < kernels.num_rates; k++) all[count++] = kernels.rates[k];
  }
  m->out->measured.kernels = all;
  m->out->measured.num_kernels = count;
  return OT_OK;
}

// ---- several GPUs ----

static ot_status time_peer(gpu_measurement *m, ot_gpu_timer *peer, double *rate) {
  OT_TRY(ot_gpu_timer_create(1, m->request->quick, peer));
  return ot_gpu_time_copy(&m->timer, peer, m->small ? SMALL_BYTES : TRANSFER_BYTES, rate);
}

// Copies between the first two stand for all pairs.
static ot_status time_links(gpu_measurement *m) {
  if (m->out->num_devices < 2) return OT_OK;
  ot_gpu_timer peer = {0};
  double rate = 0;
  report_line(m, "copies between GPUs");
  const ot_status status = time_peer(m, &peer, &rate);
  ot_gpu_timer_destroy(&peer);
  OT_TRY(status);
  m->out->num_levels = 1;
  m->out->level[0] = (ot_link_level){.name = "gpus",
                                     .size = m->out->num_devices,
                                     .bytes_per_s = rate,
                                     .latency_s = m->out->measured.launch_s};
  return OT_OK;
}

// ---- the cluster ----

// Constants that do not depend on the device are those of any cluster file
// (describe/cluster_keys.c); `host_op_s` is not: Orthant's kernels are measured.
static ot_status describe(gpu_measurement *m) {
  ot_device_info info;
  OT_TRY(ot_device_describe(m->timer.device, &info));
  *m->out = (ot_cluster){.name = "this-machine",
                         .basis = m->request->quick ? OT_BASIS_QUICK : OT_BASIS_MEASURED,
                         .num_devices = ot_device_count(OT_BACKEND_CUDA),
                         .jitter = 0.0025,
                         .device = {.name = ot_arena_format(m->arena, "%s", info.name),
                                    .processors = info.processors,
                                    .memory_bytes = info.total_bytes,
                                    .unaligned_efficiency = 0.11,
                                    .contention = 1.6,
                                    .host_op_s = 6.8e-05,
                                    .step_s = 0.0036}};
  return OT_OK;
}

static ot_status measure(gpu_measurement *m) {
  OT_TRY(ot_gpu_timer_create(0, m->request->quick, &m->timer));
  OT_TRY(describe(m));
  OT_TRY(find_sizes(m));
  report_line(m, "products of the GPU");
  OT_TRY(time_products(m));
  report_line(m, "its memory, attention, launches and copies");
  OT_TRY(time_traffic(m));
  OT_TRY(time_attention(m));
  OT_TRY(time_launches(m));
  OT_TRY(time_transfers(m));
  OT_TRY(time_links(m));
  ot_gpu_timer timer = m->timer;
  m->timer = (ot_gpu_timer){.event_s = timer.event_s};  // steps need its memory
  ot_gpu_timer_destroy(&timer);
  report_line(m, "kernels in steps");
  return time_steps(m);
}

ot_status ot_measure_gpus(const ot_measure_request *request, ot_arena *arena, ot_cluster *out) {
  gpu_measurement m = {.request = request, .arena = arena, .out = out};
  const ot_status status = measure(&m);
  ot_gpu_timer_destroy(&m.timer);
  return status;
}
