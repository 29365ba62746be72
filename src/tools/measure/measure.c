// SPDX-License-Identifier: Apache-2.0
// Times matrix products, memory traffic and the disk, and assembles the cluster description. All
// ranks work while one of them is timed.
#include "measure/measure.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/backend_rules.h"
#include "base/text.h"
#include "comm/comm.h"
#include "files/disk.h"
#include "host/clock.h"
#include "host/cores.h"
#include "kernels/kernels.h"
#include "measure/measure_parts.h"
#include "ops/catalog.h"
#include "ops/operands.h"
#include "workspace/workspace.h"

enum {
  LEAST_RUNS = 5,  // per figure
  MATRIX = 768,
  CACHED = 1 << 15,
  PACE = 512,
  DISK_BYTES = 16 << 20,
  DISK_RUNS = 4,
};

// ---- one kernel, repeated ----

typedef struct subject {
  ot_op_kind op;
  ot_dtype dtype;
  ot_tensor_type in[2], out;
  int num_in;
} subject;

typedef struct time_budget {
  int threads;
  double figure_s;                // minimum time per figure
  double most_flops, most_bytes;  // of one run; larger subjects are skipped
} time_budget;

static ot_status time_kernel(const subject *s, const time_budget *how, ot_timing *out) {
  ot_op_attributes attributes = {
      .threads = how->threads, .compute = s->dtype, .activation = OT_ACTIVATION_GELU_TANH};
  ot_op_types types = {.in = {s->in[0], s->in[1]}, .out = {s->out}};
  ot_tensor in[OT_MAX_INPUTS] = {{0}}, results[OT_MAX_OUTPUTS] = {{0}};
  const int64_t workspace = ot_op_workspace(s->op, &attributes, &types);
  void *blocks[4] = {calloc(1, (size_t)workspace + 64), calloc(1, (size_t)ot_type_bytes(&s->out)),
                     NULL, NULL};
  results[0] = (ot_tensor){.data = blocks[1], .type = s->out};
  bool enough = blocks[0] && blocks[1];
  for (int i = 0; i < s->num_in; i++) {
    const size_t bytes = (size_t)ot_type_bytes(&s->in[i]);
    blocks[2 + i] = malloc(bytes);
    in[i] = (ot_tensor){.data = blocks[2 + i], .type = s->in[i]};
    enough = enough && blocks[2 + i];
    // All pages that were never written would be one page of zeros, which caches hold.
    if (blocks[2 + i]) memset(blocks[2 + i], OT_FLOAT_BYTE, bytes);
  }
  const ot_kernel_call call = {
      .attributes = &attributes, .in = in, .out = results, .workspace = blocks[0]};
  ot_timings timings = {0};
  const double begin_s = ot_clock_s();
  for (int i = 0; enough && (i < LEAST_RUNS || ot_clock_s() < begin_s + how->figure_s); i++) {
    const double start_s = ot_clock_s();
    ot_kernel_find(OT_BACKEND_CPU, s->op, s->dtype)(&call);
    if (i > 0) ot_timings_add(&timings, ot_clock_s() - start_s);
  }
  *out = ot_timings_read(&timings);
  for (int i = 0; i < 4; i++) free(blocks[i]);
  OT_CHECK(enough, OT_ENVIRONMENT, "bench: out of memory");
  return OT_OK;
}

// y [rows, columns] = x [rows, depth] w^T
static subject product_of(ot_dtype dtype, int64_t rows, int64_t columns, int64_t depth) {
  return (subject){OT_OP_LINEAR,
                   dtype,
                   {ot_type_matrix(dtype, rows, depth), ot_type_matrix(dtype, columns, depth)},
                   ot_type_matrix(dtype, rows, columns),
                   2};
}

static subject addition_of(int64_t elements) {
  const ot_tensor_type type = ot_type_matrix(OT_F32, elements / 1024, 1024);
  return (subject){OT_OP_ADD, OT_F32, {type, type}, type, 2};
}

// ---- all ranks at once ----

static const ot_measured_product shapes[] = {
    {64, 256, 256, OT_F32, 0, 0},   {64, 768, 768, OT_F32, 0, 0},    {256, 64, 256, OT_F32, 0, 0},
    {256, 256, 64, OT_F32, 0, 0},   {256, 256, 256, OT_F32, 0, 0},   {256, 768, 256, OT_F32, 0, 0},
    {1024, 256, 256, OT_F32, 0, 0}, {1024, 768, 768, OT_F32, 0, 0},  {768, 768, 4096, OT_F32, 0, 0},
    {256, 4096, 256, OT_F32, 0, 0}, {1024, 3072, 768, OT_F32, 0, 0},
};

// Bytes read and written by an addition: within caches and far beyond.
static const int64_t traffics[] = {96 << 10, 768 << 10, 6 << 20, 48 << 20, 384 << 20};

typedef struct measurement {
  time_budget how;
  ot_measured_product products[OT_COUNT(shapes)];
  int num_products;
  ot_measured_traffic traffic[OT_COUNT(traffics)];
  int num_traffic;
  double matrix_s[2];  // float and double, the fastest of all runs
  ot_timing cached;    // elementwise work
} measurement;

// The peak is measured before and after everything else: other load on the machine only makes runs
// longer.
static ot_status time_peak(measurement *m) {
  for (int wide = 0; wide < 2; wide++) {
    const subject s = product_of(wide ? OT_F64 : OT_F32, MATRIX, MATRIX, MATRIX);
    double *const best_s = &m->matrix_s[wide];
    ot_timing timing;
    OT_TRY(time_kernel(&s, &m->how, &timing));
    if (*best_s == 0 || timing.fastest_s < *best_s) *best_s = timing.fastest_s;
  }
  return OT_OK;
}

static ot_status time_products(measurement *m) {
  for (int i = 0; i < OT_COUNT(shapes); i++) {
    ot_measured_product *const p = &m->products[m->num_products];
    *p = shapes[i];
    if (2.0 * (double)(p->rows * p->columns * p->depth) > m->how.most_flops) continue;
    m->num_products++;
    const subject s = product_of(OT_F32, p->rows, p->columns, p->depth);
    ot_timing timing;
    OT_TRY(time_kernel(&s, &m->how, &timing));
    p->flops_per_s = 2.0 * (double)(p->rows * p->columns * p->depth) / timing.seconds;
    p->spread = timing.spread;
  }
  return OT_OK;
}

static ot_status time_traffic(measurement *m) {
  for (int i = 0; i < OT_COUNT(traffics); i++) {
    if ((double)traffics[i] > m->how.most_bytes) continue;
    const subject s = addition_of(traffics[i] / 3 / (int64_t)sizeof(float));
    ot_timing timing;
    OT_TRY(time_kernel(&s, &m->how, &timing));
    m->traffic[m->num_traffic++] =
        (ot_measured_traffic){.bytes = traffics[i],
                              .bytes_per_s = (double)traffics[i] / timing.seconds,
                              .spread = timing.spread};
  }
  const ot_tensor_type small = ot_type_matrix(OT_F32, CACHED / 1024, 1024);
  const subject cached = {OT_OP_ACTIVATION, OT_F32, {small}, small, 1};
  return time_kernel(&cached, &m->how, &m->cached);
}

// Rank 0 keeps its figures.
static ot_status measure_rank(ot_comm *comm, measurement *context, bool peak) {
  measurement own = *context;
  OT_TRY(time_peak(&own));
  if (!peak) OT_TRY(time_products(&own));
  if (!peak) OT_TRY(time_traffic(&own));
  // All ranks have copied the context that rank 0 now overwrites.
  const ot_comm_call meet = {.kind = OT_COMM_BARRIER, .group = OT_GROUP_WORLD, .name = "meet"};
  if (ot_comm_size(comm) > 1) OT_TRY(ot_comm_run(comm, &meet));
  if (ot_comm_rank(comm) == 0) *context = own;
  return OT_OK;
}

static ot_status rank_kernels(ot_comm *comm, void *context) {
  return measure_rank(comm, context, false);
}

static ot_status rank_peak(ot_comm *comm, void *context) {
  return measure_rank(comm, context, true);
}

static double bytes_per_s_of(const measurement *m) {
  return m->traffic[m->num_traffic - 1].bytes_per_s;
}

// The rate of the multiplications alone: packing and storing the operands is counted as traffic.
static double product_rate(const measurement *m, bool wide) {
  const double element = wide ? sizeof(double) : sizeof(float);
  const double traffic_s = 3.0 * MATRIX * MATRIX * element / bytes_per_s_of(m);
  const double seconds = m->matrix_s[wide];
  return 2.0 * MATRIX * MATRIX * MATRIX /
         (seconds > 2 * traffic_s ? seconds - traffic_s : seconds / 2);
}

// The rate by which MFU is counted: no product of the measurement was faster.
static double peak_rate(const measurement *m, bool wide) {
  double best = product_rate(m, wide);
  for (int i = 0; i < m->num_products; i++) {
    const ot_measured_product *const p = &m->products[i];
    if ((p->dtype == OT_F64) == wide && p->flops_per_s > best) best = p->flops_per_s;
  }
  return best;
}

static double other_rate(const measurement *m) {
  const ot_tensor_type small = ot_type_matrix(OT_F32, CACHED / 1024, 1024);
  const ot_op_attributes attributes = {.threads = m->how.threads, .compute = OT_F32};
  const ot_op_types types = {.in = {small}, .out = {small}};
  return ot_op_cost(OT_OP_ACTIVATION, &attributes, &types).other_flops / m->cached.seconds;
}

// ---- disk ----

static ot_status time_disk(const char *path, const void *block, ot_timings *timings) {
  for (int i = 0; i < DISK_RUNS; i++) {
    const double start_s = ot_clock_s();
    OT_TRY(ot_disk_write(path, block, DISK_BYTES));
    ot_timings_add(timings, ot_clock_s() - start_s);
  }
  return ot_disk_remove(path);
}

static ot_status measure_disk(const char *path, double *bytes_per_s) {
  if (!path) return OT_OK;
  ot_timings timings = {0};
  void *const block = calloc(1, DISK_BYTES);
  OT_CHECK(block, OT_ENVIRONMENT, "bench: out of memory");
  const ot_status status = time_disk(path, block, &timings);
  free(block);
  OT_TRY(status);
  *bytes_per_s = DISK_BYTES / ot_timings_read(&timings).seconds;
  return OT_OK;
}

// ---- the machine ----

static void report_line(const ot_measure_request *request, const char *what) {
  if (request->say) request->say(request->context, what);
}

// One thread per rank, all cores for one rank, and the requested number of ranks.
static ot_status measure_all_kernels(const ot_measure_request *request, int threads, int cores,
                                     ot_arena *arena, ot_cluster *out) {
  const int counts[] = {1, threads, cores};
  ot_kernel_rates *const all =
      ot_arena_array(arena, (int64_t)OT_COUNT(counts) * OT_OP_COUNT, sizeof *all);
  int64_t count = 0;
  for (int i = 0; i < OT_COUNT(counts); i++) {
    const bool known = (i > 0 && counts[i] == counts[0]) || (i > 1 && counts[i] == counts[1]);
    if (known) continue;
    const ot_kernel_trials trials = {
        .ranks = cores / counts[i], .threads = counts[i], .quick = request->quick};
    ot_measured_kernels kernels;
    OT_TRY(ot_measure_kernels(&trials, arena, &kernels));
    for (int64_t k = 0; k < kernels.num_rates; k++) all[count++] = kernels.rates[k];
    if (i == 0) out->device.launch_s = kernels.launch_s;
  }
  out->measured.kernels = all;
  out->measured.num_kernels = count;
  return OT_OK;
}

static ot_status measure_links(const ot_measure_request *request, int ranks, ot_arena *arena,
                               ot_cluster *out) {
  ot_measured_links links;
  const int most = ranks > 4 ? ranks : 4;
  OT_TRY(ot_measure_links(most, request->quick, arena, &links));
  out->measured.collectives = links.rates;
  out->measured.num_collectives = links.num_rates;
  const ot_collective_rates *message = links.rates;
  for (int64_t i = 0; i < links.num_rates; i++) {
    if (ot_text_equal(links.rates[i].op, "message")) message = &links.rates[i];
  }
  out->num_levels = 1;
  out->level[0] = (ot_link_level){.name = "memory",
                                  .size = out->num_devices,
                                  .bytes_per_s = message->bytes_per_s,
                                  .latency_s = message->latency_s};
  return OT_OK;
}

static void keep_tables(const measurement *m, ot_arena *arena, ot_measured_machine *out) {
  ot_measured_product *const products = ot_arena_array(arena, OT_COUNT(shapes), sizeof *products);
  ot_measured_traffic *const traffic = ot_arena_array(arena, OT_COUNT(traffics), sizeof *traffic);
  for (int i = 0; i < m->num_products; i++) products[i] = m->products[i];
  for (int i = 0; i < m->num_traffic; i++) traffic[i] = m->traffic[i];
  out->products = products;
  out->num_products = m->num_products;
  out->traffic = traffic;
  out->num_traffic = m->num_traffic;
}

static ot_status measure_cpu(const ot_measure_request *request, ot_arena *arena, ot_cluster *out) {
  const int cores = ot_host_cores();
  const int ranks = request->ranks > 0 ? request->ranks : cores;
  // Ranks that share a core take turns, so timings of one of them are meaningless.
  const int together = ranks < cores ? ranks : cores, threads = cores / together;
  const time_budget whole = {threads, 0.25, 1e300, 1e300}, quick = {threads, 0.01, 1.3e9, 64e6};
  measurement m = {.how = request->quick ? quick : whole};
  report_line(request, "products and memory");
  OT_TRY(ot_comm_run_threads(together, rank_kernels, &m));
  const double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGE_SIZE);
  *out = (ot_cluster){.name = "this-machine",
                      .basis = request->quick ? OT_BASIS_QUICK : OT_BASIS_MEASURED,
                      .num_devices = together,
                      .device = {.name = "cpu",
                                 .other_flops_per_s = other_rate(&m),
                                 .memory_bytes_per_s = bytes_per_s_of(&m),
                                 .packs = true,
                                 .memory_bytes = (int64_t)(memory / together),
                                 .threads = threads},
                      .measured = {.cores = cores}};
  keep_tables(&m, arena, &out->measured);
  OT_TRY(ot_measure_round_trip(&out->measured.round_trip_s));
  report_line(request, "kernels in steps");
  OT_TRY(measure_all_kernels(request, threads, cores, arena, out));
  OT_TRY(ot_comm_run_threads(together, rank_peak, &m));
  out->device.flops[OT_F32] = peak_rate(&m, false);
  out->device.flops[OT_F64] = peak_rate(&m, true);
  OT_TRY(ot_measure_sharing(cores, request->quick, &out->measured.sharing));
  if (request->no_links) {
    out->num_levels = 1;
    out->level[0] = (ot_link_level){
        .name = "memory", .size = together, .bytes_per_s = out->device.memory_bytes_per_s};
  } else {
    report_line(request, "collectives and messages");
    OT_TRY(measure_links(request, together, arena, out));
  }
  return ot_cluster_share(out, ranks, threads, out);
}

ot_status ot_measure_machine(const ot_measure_request *request, ot_arena *arena, ot_cluster *out) {
  const bool host = ot_backend_rules_of(request->backend)->host;
  OT_TRY(host ? measure_cpu(request, arena, out) : ot_measure_gpus(request, arena, out));
  report_line(request, "the disk");
  OT_TRY(measure_disk(request->disk_file, &out->measured.disk_bytes_per_s));
  return ot_cluster_check(out);
}

ot_status ot_measure_pace(double *seconds) {
  const subject s = product_of(OT_F32, PACE, PACE, PACE);
  const time_budget how = {1, 0.2, 1e300, 1e300};
  ot_timing timing;
  OT_TRY(time_kernel(&s, &how, &timing));
  *seconds = timing.seconds;
  return OT_OK;
}
