// SPDX-License-Identifier: Apache-2.0
// Each figure is the best of several tries: what the machine can do, not what it did while
// something else ran. All ranks work at once, as they do in a run.
#include "cli/measure.h"

#include <stdlib.h>
#include <unistd.h>

#include "comm/comm.h"
#include "device/device.h"
#include "ops/catalog.h"
#include "ops/kernels.h"
#include "ops/operands.h"

enum {
  TRIES = 7,  // of a figure, at least
  LINK_TRIES = 60,
  DISTANCES = 7,
  MEETINGS = 40,  // at each distance
  MATRIX = 768,
  STREAM = 1 << 23,
  CACHED = 1 << 15,
  LINK = 1 << 22
};

static const double FIGURE_S = 0.4;  // at least, for each figure

typedef struct measurement {
  int threads;
  double matrix[2];  // seconds of one product, float and double
  double stream, cached;
  double link, latency;  // seconds of a message of LINK floats, and of a collective of one
} measurement;

// ---- kernels ----

typedef struct subject {
  ot_op_kind op;
  ot_dtype dtype;
  ot_tensor_type in[2], out;
  int num_in;
} subject;

static ot_status time_kernel(const subject *s, int threads, double *best_s) {
  ot_op_attributes attributes = {
      .threads = threads, .compute = s->dtype, .activation = OT_ACTIVATION_GELU_TANH};
  ot_op_types types = {.in = {s->in[0], s->in[1]}, .out = {s->out}};
  ot_tensor in[OT_MAX_INPUTS] = {{0}}, out[OT_MAX_OUTPUTS] = {{0}};
  const int64_t workspace = ot_op_workspace(s->op, &attributes, &types);
  void *blocks[4] = {calloc(1, (size_t)workspace + 64), calloc(1, (size_t)ot_type_bytes(&s->out)),
                     NULL, NULL};
  out[0] = (ot_tensor){.data = blocks[1], .type = s->out};
  bool enough = blocks[0] && blocks[1];
  for (int i = 0; i < s->num_in; i++) {
    blocks[2 + i] = calloc(1, (size_t)ot_type_bytes(&s->in[i]));
    in[i] = (ot_tensor){.data = blocks[2 + i], .type = s->in[i]};
    enough = enough && blocks[2 + i];
  }
  const ot_kernel_call call = {
      .attributes = &attributes, .in = in, .out = out, .workspace = blocks[0]};
  *best_s = 1e30;
  const double begin_s = ot_device_now_s();
  for (int i = 0; enough && (i < TRIES || ot_device_now_s() < begin_s + FIGURE_S); i++) {
    const double start_s = ot_device_now_s();
    ot_kernel_cpu(s->op, s->dtype)(&call);
    const double seconds = ot_device_now_s() - start_s;
    if (i > 0 && seconds < *best_s) *best_s = seconds;
  }
  for (int i = 0; i < 4; i++) free(blocks[i]);
  OT_CHECK(enough, OT_ENVIRONMENT, "bench: out of memory");
  return OT_OK;
}

static ot_status time_kernels(measurement *m) {
  for (int wide = 0; wide < 2; wide++) {
    const ot_dtype dtype = wide ? OT_F64 : OT_F32;
    const ot_tensor_type square = ot_type_matrix(dtype, MATRIX, MATRIX);
    const subject product = {OT_OP_LINEAR, dtype, {square, square}, square, 2};
    OT_TRY(time_kernel(&product, m->threads, &m->matrix[wide]));
  }
  const ot_tensor_type large = ot_type_matrix(OT_F32, STREAM / 1024, 1024);
  const subject stream = {OT_OP_ADD, OT_F32, {large, large}, large, 2};
  OT_TRY(time_kernel(&stream, m->threads, &m->stream));
  const ot_tensor_type small = ot_type_matrix(OT_F32, CACHED / 1024, 1024);
  const subject cached = {OT_OP_ACTIVATION, OT_F32, {small}, small, 1};
  return time_kernel(&cached, m->threads, &m->cached);
}

// ---- links ----

// A large message there and back: the best of many.
static ot_status time_link(ot_comm *comm, float *buffer, double *best_s) {
  const bool sends = ot_comm_rank(comm) == 0;
  const ot_comm_call meet = {.kind = OT_COMM_BARRIER, .group = OT_GROUP_WORLD, .name = "meet"};
  const ot_comm_call there = {.kind = sends ? OT_COMM_SEND : OT_COMM_RECEIVE,
                              .group = OT_GROUP_WORLD,
                              .peer = sends ? 1 : 0,
                              .send = buffer,
                              .receive = buffer,
                              .count = LINK,
                              .dtype = OT_F32,
                              .name = "there"};
  ot_comm_call back = there;
  back.kind = sends ? OT_COMM_RECEIVE : OT_COMM_SEND;
  *best_s = 1e30;
  for (int i = 0; i < LINK_TRIES; i++) {
    OT_TRY(ot_comm_run(comm, &meet));
    const double start_s = ot_device_now_s();
    OT_TRY(ot_comm_run(comm, &there));
    OT_TRY(ot_comm_run(comm, &back));
    const double seconds = (ot_device_now_s() - start_s) / 2;
    if (i > 0 && seconds < *best_s) *best_s = seconds;
  }
  return OT_OK;
}

// Ranks do not come to a collective at one moment, and who waits for long must be woken: rounds in
// which one of two ranks comes up to 60 us after the other, in turns. Fills the seconds from the
// moment when the later one came until this rank had what it waited for.
static ot_status time_meetings(ot_comm *comm, double late_s[DISTANCES][MEETINGS]) {
  const double apart_s = 10e-6, period_s = 250e-6;
  float buffer[2] = {0};
  const ot_comm_call meet = {.kind = OT_COMM_BARRIER, .group = OT_GROUP_WORLD, .name = "meet"};
  const ot_comm_call gather = {.kind = OT_COMM_ALL_GATHER,
                               .group = OT_GROUP_WORLD,
                               .send = &buffer[ot_comm_rank(comm)],
                               .receive = buffer,
                               .count = 1,
                               .dtype = OT_F32,
                               .name = "gather"};
  for (int i = 0; i < MEETINGS * DISTANCES; i++) {
    if (i % 16 == 0) OT_TRY(ot_comm_run(comm, &meet));
    const double begin_s = ot_device_now_s();
    const int distance = i / 2 % DISTANCES;
    const double behind_s = distance * apart_s, work_s = period_s - DISTANCES * apart_s;
    const double own_s = i % 2 == ot_comm_rank(comm) ? behind_s : 0;
    while (ot_device_now_s() < begin_s + work_s + own_s) continue;
    OT_TRY(ot_comm_run(comm, &gather));
    late_s[distance][i / (2 * DISTANCES) * 2 + i % 2] =
        ot_device_now_s() - begin_s - work_s - behind_s;
  }
  return OT_OK;
}

static int compare_reals(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// The median for each distance, of which the mean: now and then something else runs.
static double typical(double late_s[DISTANCES][MEETINGS]) {
  double sum = 0;
  for (int i = 0; i < DISTANCES; i++) {
    qsort(late_s[i], MEETINGS, sizeof(double), compare_reals);
    sum += late_s[i][MEETINGS / 2];
  }
  return sum / DISTANCES;
}

static ot_status time_links(ot_comm *comm, measurement *m) {
  float *const buffer = calloc(LINK, sizeof *buffer);
  double(*const late_s)[MEETINGS] = calloc(DISTANCES, sizeof *late_s);
  ot_status status = buffer && late_s ? OT_OK : ot_fail(OT_ENVIRONMENT, "bench: out of memory");
  m->latency = 1;
  for (int i = 0; i < TRIES && status == OT_OK; i++) {
    status = time_meetings(comm, late_s);
    const double latency = typical(late_s);
    if (latency > 0 && latency < m->latency) m->latency = latency;
  }
  if (status == OT_OK) status = time_link(comm, buffer, &m->link);
  free(buffer);
  free(late_s);
  return status;
}

// ---- all ranks at once ----

static ot_status rank_kernels(ot_comm *comm, void *context) {
  measurement own = *(measurement *)context;
  OT_TRY(time_kernels(&own));
  if (ot_comm_rank(comm) == 0) *(measurement *)context = own;
  return OT_OK;
}

static ot_status rank_link(ot_comm *comm, void *context) {
  measurement own = *(measurement *)context;
  OT_TRY(time_links(comm, &own));
  if (ot_comm_rank(comm) == 0) *(measurement *)context = own;
  return OT_OK;
}

// The rate of multiplying alone: packing and storing the operands is counted as traffic.
static double product_rate(double seconds, size_t element, double bytes_per_s) {
  const double traffic_s = 3.0 * MATRIX * MATRIX * (double)element / bytes_per_s;
  return 2.0 * MATRIX * MATRIX * MATRIX / (seconds - traffic_s);
}

ot_status ot_measure_machine(int ranks, int threads, ot_cluster *out) {
  measurement m = {.threads = threads};
  OT_TRY(ot_comm_run_threads(ranks, rank_kernels, &m));
  OT_TRY(ot_comm_run_threads(2, rank_link, &m));
  const double bytes_per_s = 3.0 * STREAM * sizeof(float) / m.stream;
  const ot_tensor_type small = ot_type_matrix(OT_F32, CACHED / 1024, 1024);
  const ot_op_attributes attributes = {.threads = threads, .compute = OT_F32};
  const ot_op_types types = {.in = {small}, .out = {small}};
  const double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGE_SIZE);
  *out = (ot_cluster){
      .name = "this-machine",
      .num_devices = ranks,
      .device = {.name = "cpu",
                 .flops = {[OT_F32] = product_rate(m.matrix[0], sizeof(float), bytes_per_s),
                           [OT_F64] = product_rate(m.matrix[1], sizeof(double), bytes_per_s)},
                 .other_flops_per_s =
                     ot_op_cost(OT_OP_ACTIVATION, &attributes, &types).other_flops / m.cached,
                 .memory_bytes_per_s = bytes_per_s,
                 .packs = true,
                 .memory_bytes = (int64_t)(memory / ranks),
                 .threads = threads},
  };
  out->num_levels = 1;
  out->level[0] = (ot_link_level){.name = "memory",
                                  .size = ranks,
                                  .bytes_per_s = LINK * sizeof(float) / m.link,
                                  .latency_s = m.latency};
  return OT_OK;
}
