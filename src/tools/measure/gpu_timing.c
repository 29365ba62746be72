// SPDX-License-Identifier: Apache-2.0
// Times by events on one stream: a sample is as many calls as take milliseconds, because events
// resolve half a microsecond.
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "host/clock.h"
#include "kernels/kernels.h"
#include "measure/measure_parts.h"
#include "ops/catalog.h"
#include "ops/operands.h"
#include "workspace/workspace.h"

enum {
  SAMPLES = 7,
  QUICK_SAMPLES = 3,
  MOST_CALLS = 1000,
  LAUNCHES = 100,
  PATTERN_BYTES = 1 << 20,  // of random numbers, repeated
  BLOCKS = OT_MAX_INPUTS + OT_MAX_OUTPUTS + 1,
};

// ---- samples ----

// Timed work: queues itself on the stream.
typedef struct work {
  ot_status (*queue)(ot_gpu_timer *timer, void *context);
  void *context;
} work;

static ot_status time_calls(ot_gpu_timer *timer, const work *w, int calls, double *seconds) {
  OT_TRY(ot_device_bind(timer->device));
  OT_TRY(ot_event_record(timer->from, timer->stream));
  for (int i = 0; i < calls; i++) OT_TRY(w->queue(timer, w->context));
  OT_TRY(ot_event_record(timer->to, timer->stream));
  OT_TRY(ot_stream_synchronize(timer->stream));
  OT_TRY(ot_event_elapsed(timer->from, timer->to, seconds));
  *seconds = (*seconds - timer->event_s) / (calls > 0 ? calls : 1);
  return OT_OK;
}

// The first calls choose algorithms and warm the device up.
static ot_status time_work(ot_gpu_timer *timer, const work *w, ot_timing *out) {
  double once_s = 0;
  for (int i = 0; i < 2; i++) OT_TRY(time_calls(timer, w, 1, &once_s));
  const double wanted = once_s > 0 ? timer->sample_s / once_s : MOST_CALLS;
  const int calls = wanted < 1 ? 1 : wanted > MOST_CALLS ? MOST_CALLS : (int)wanted;
  ot_timings timings = {0};
  for (int i = 0; i < timer->samples; i++) {
    double seconds = 0;
    OT_TRY(time_calls(timer, w, calls, &seconds));
    ot_timings_add(&timings, seconds);
  }
  *out = ot_timings_read(&timings);
  OT_CHECK(out->seconds > 0, OT_ENVIRONMENT, "bench: the GPU's events show no time");
  return OT_OK;
}

// ---- create ----

static ot_status measure_events(ot_gpu_timer *timer) {
  ot_timings timings = {0};
  for (int i = 0; i < timer->samples; i++) {
    double seconds = 0;
    OT_TRY(time_calls(timer, &(work){0}, 0, &seconds));
    ot_timings_add(&timings, seconds);
  }
  timer->event_s = ot_timings_read(&timings).seconds;
  return OT_OK;
}

ot_status ot_gpu_timer_create(int ordinal, bool quick, ot_gpu_timer *timer) {
  *timer =
      (ot_gpu_timer){.sample_s = quick ? 2e-3 : 20e-3, .samples = quick ? QUICK_SAMPLES : SAMPLES};
  OT_TRY(ot_device_create(OT_BACKEND_CUDA, ordinal, &timer->device));
  OT_TRY(ot_stream_create(timer->device, &timer->stream));
  OT_TRY(ot_event_create(timer->device, &timer->from));
  OT_TRY(ot_event_create(timer->device, &timer->to));
  OT_TRY(
      ot_kernel_context_create(OT_BACKEND_CUDA, ot_stream_native(timer->stream), &timer->context));
  return measure_events(timer);
}

void ot_gpu_timer_destroy(ot_gpu_timer *timer) {
  ot_kernel_context_destroy(OT_BACKEND_CUDA, &timer->context);
  ot_event_destroy(&timer->from);
  ot_event_destroy(&timer->to);
  ot_stream_destroy(&timer->stream);
  ot_device_destroy(&timer->device);
}

// ---- kernels ----

static void fill_pattern(void *pattern, ot_dtype dtype) {
  for (int64_t i = 0; i < PATTERN_BYTES / ot_dtype_bytes(dtype); i++) {
    const double value = 2 * ot_rng_uniform(11, 0, (uint64_t)i) - 1;
    if (dtype == OT_BF16) ((uint16_t *)pattern)[i] = ot_bf16_from_float((float)value);
    if (dtype == OT_F32) ((float *)pattern)[i] = (float)value;
    if (dtype == OT_F64) ((double *)pattern)[i] = value;
  }
}

// Random numbers in [-1, 1): the power that a product takes, and so its clock, depends on them.
static ot_status fill(ot_gpu_timer *timer, void *memory, const ot_tensor_type *type) {
  const int64_t bytes = ot_type_bytes(type);
  void *const pattern = malloc(PATTERN_BYTES);
  OT_CHECK(pattern, OT_ENVIRONMENT, "bench: out of memory");
  fill_pattern(pattern, type->dtype);
  ot_status status = OT_OK;
  for (int64_t at = 0; at < bytes && status == OT_OK; at += PATTERN_BYTES) {
    const int64_t left = bytes - at;
    status = ot_device_write(timer->device, memory, at, pattern,
                             left < PATTERN_BYTES ? left : PATTERN_BYTES);
  }
  free(pattern);
  return status;
}

// A call in device memory.
typedef struct prepared {
  ot_kernel kernel;
  ot_tensor in[OT_MAX_INPUTS], out[OT_MAX_OUTPUTS];
  ot_kernel_call call;
  void *block[BLOCKS];
  int64_t bytes[BLOCKS];
  int num_blocks;
} prepared;

static ot_status reserve(ot_gpu_timer *timer, prepared *p, int64_t bytes, void **memory) {
  p->bytes[p->num_blocks] = bytes;
  OT_TRY(ot_device_allocate(timer->device, bytes, &p->block[p->num_blocks]));
  *memory = p->block[p->num_blocks++];
  return OT_OK;
}

static ot_status reserve_tensor(ot_gpu_timer *timer, prepared *p, const ot_tensor_type *type,
                                ot_tensor *tensor) {
  if (!ot_type_present(type)) return OT_OK;
  tensor->type = *type;
  OT_TRY(reserve(timer, p, ot_type_bytes(type), &tensor->data));
  return fill(timer, tensor->data, type);
}

static ot_status prepare(ot_gpu_timer *timer, ot_gpu_call *call, prepared *p) {
  call->attributes.backend = OT_BACKEND_CUDA;
  call->attributes.threads = 1;
  OT_TRY(ot_op_infer(call->op, &call->attributes, &call->types));
  p->kernel = ot_kernel_find(OT_BACKEND_CUDA, call->op, call->attributes.compute);
  OT_CHECK(p->kernel, OT_ENVIRONMENT, "bench: op %s has no %s kernel on a GPU",
           ot_op_info_of(call->op)->name, ot_dtype_name(call->attributes.compute));
  p->call = (ot_kernel_call){
      .attributes = &call->attributes, .in = p->in, .out = p->out, .context = timer->context};
  for (int i = 0; i < OT_MAX_INPUTS; i++) {
    OT_TRY(reserve_tensor(timer, p, &call->types.in[i], &p->in[i]));
  }
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) {
    OT_TRY(reserve_tensor(timer, p, &call->types.out[i], &p->out[i]));
  }
  return reserve(timer, p, ot_op_workspace(call->op, &call->attributes, &call->types),
                 &p->call.workspace);
}

static ot_status queue_kernel(ot_gpu_timer *timer, void *context) {
  const prepared *const p = context;
  (void)timer;
  p->kernel(&p->call);
  return OT_OK;
}

static void release(ot_gpu_timer *timer, prepared *p) {
  for (int i = 0; i < BLOCKS; i++) ot_device_release(timer->device, &p->block[i], p->bytes[i]);
}

ot_status ot_gpu_time_call(ot_gpu_timer *timer, ot_gpu_call *call, ot_timing *out) {
  prepared p = {0};
  ot_status status = prepare(timer, call, &p);
  if (status == OT_OK) status = time_work(timer, &(work){queue_kernel, &p}, out);
  release(timer, &p);
  return status;
}

// ---- launches ----

// A hundred calls of a small kernel, one by one or as a graph.
typedef struct launches {
  prepared p;
  ot_captured *graph;
} launches;

static ot_status queue_launches(ot_gpu_timer *timer, void *context) {
  launches *const l = context;
  if (l->graph) return ot_stream_launch(timer->stream, l->graph);
  for (int i = 0; i < LAUNCHES; i++) l->p.kernel(&l->p.call);
  return OT_OK;
}

static ot_status time_launches(ot_gpu_timer *timer, launches *l, bool graph, ot_timing *out) {
  const ot_tensor_type small = ot_type_matrix(OT_F32, 1, 64);
  ot_gpu_call call = {
      .op = OT_OP_ADD, .attributes = {.compute = OT_F32}, .types = {.in = {small, small}}};
  OT_TRY(prepare(timer, &call, &l->p));
  l->p.call.attributes = &call.attributes;
  if (graph) {
    OT_TRY(ot_stream_begin_capture(timer->stream));
    OT_TRY(queue_launches(timer, l));
    OT_TRY(ot_stream_end_capture(timer->stream, &l->graph));
  }
  OT_TRY(time_work(timer, &(work){queue_launches, l}, out));
  out->seconds /= LAUNCHES;
  return OT_OK;
}

ot_status ot_gpu_time_launch(ot_gpu_timer *timer, bool graph, ot_timing *out) {
  launches l = {0};
  const ot_status status = time_launches(timer, &l, graph, out);
  ot_captured_destroy(&l.graph);
  release(timer, &l.p);
  return status;
}

// ---- copies ----

typedef struct transfer {
  void *from, *to;
  int64_t bytes;
} transfer;

static ot_status queue_copy(ot_gpu_timer *timer, void *context) {
  const transfer *const t = context;
  return ot_stream_copy(timer->stream, t->to, t->from, t->bytes);
}

ot_status ot_gpu_time_copy(ot_gpu_timer *timer, const ot_gpu_timer *peer, int64_t bytes,
                           double *rate) {
  transfer t = {.bytes = bytes};
  ot_timing timing = {0};
  ot_device *const target = peer ? peer->device : timer->device;
  ot_status status = ot_device_allocate(target, bytes, &t.to);
  if (status == OT_OK) status = ot_device_allocate(timer->device, bytes, &t.from);
  if (status == OT_OK) status = ot_device_fill(timer->device, t.from, 0, 1, bytes);
  if (status == OT_OK) status = time_work(timer, &(work){queue_copy, &t}, &timing);
  if (t.to) ot_device_release(target, &t.to, bytes);
  if (t.from) ot_device_release(timer->device, &t.from, bytes);
  OT_TRY(status);
  *rate = (peer ? 1 : 2) * (double)bytes / timing.seconds;
  return OT_OK;
}

// By the clock: blocking copies.
static ot_status time_transfers(ot_gpu_timer *timer, const transfer *t, bool to_device,
                                double *rate) {
  ot_timings timings = {0};
  for (int i = 0; i <= timer->samples; i++) {
    const double start_s = ot_clock_s();
    OT_TRY(to_device ? ot_device_write(timer->device, t->to, 0, t->from, t->bytes)
                     : ot_device_read(timer->device, t->to, 0, t->from, t->bytes));
    if (i > 0) ot_timings_add(&timings, ot_clock_s() - start_s);
  }
  *rate = (double)t->bytes / ot_timings_read(&timings).seconds;
  return OT_OK;
}

ot_status ot_gpu_time_transfer(ot_gpu_timer *timer, int64_t bytes, bool to_device, double *rate) {
  transfer t = {.bytes = bytes};
  ot_status status = ot_device_allocate(timer->device, bytes, &t.to);
  if (status == OT_OK) status = ot_device_allocate_host(timer->device, bytes, &t.from);
  if (status == OT_OK) memset(t.from, 1, (size_t)bytes);
  if (status == OT_OK) status = time_transfers(timer, &t, true, rate);
  if (status == OT_OK && !to_device) status = time_transfers(timer, &t, false, rate);
  if (t.from) ot_device_release_host(timer->device, &t.from);
  if (t.to) ot_device_release(timer->device, &t.to, bytes);
  return status;
}
