// SPDX-License-Identifier: Apache-2.0
// An NVIDIA GPU through the CUDA runtime. Streams do not wait for the default stream, so that only
// events order them.
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "device/device_backend.h"

// Errors after which the context is lost, and with it the rank.
static bool is_lost(cudaError_t error) {
  static const cudaError_t lost[] = {
      cudaErrorECCUncorrectable,  cudaErrorIllegalAddress, cudaErrorLaunchTimeout, cudaErrorAssert,
      cudaErrorMisalignedAddress, cudaErrorLaunchFailure,  cudaErrorUnknown};
  for (int i = 0; i < OT_COUNT(lost); i++) {
    if (error == lost[i]) return true;
  }
  return false;
}

static ot_status check(cudaError_t error, const char *what) {
  if (is_lost(error)) {
    ot_fail(OT_RANKS, "the GPU failed: %s (%s), seen when %s", cudaGetErrorString(error),
            cudaGetErrorName(error), what);
    return ot_fail_hint(OT_RANKS,
                        "the run goes on from its last checkpoint when it is started again; "
                        "`dmesg | grep Xid` and `nvidia-smi -q` tell more");
  }
  OT_CHECK(error == cudaSuccess, OT_ENVIRONMENT, "CUDA: %s: %s (%s)", what,
           cudaGetErrorString(error), cudaGetErrorName(error));
  return OT_OK;
}

static int count(void) {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess ? devices : 0;
}

static ot_status bind(ot_device *device) {
  return check(cudaSetDevice(device->ordinal), "choosing the device");
}

static ot_status open_device(ot_device *device) {
  int devices = 0;
  const cudaError_t found = cudaGetDeviceCount(&devices);
  if (found != cudaSuccess) {
    ot_fail(OT_ENVIRONMENT, "no GPU can be used: %s (%s)", cudaGetErrorString(found),
            cudaGetErrorName(found));
    return ot_fail_hint(OT_ENVIRONMENT,
                        "install the NVIDIA driver (nvidia-smi shows it), or set device: cpu");
  }
  OT_CHECK(device->ordinal < devices, OT_ENVIRONMENT, "there is no GPU %d: this machine has %d",
           device->ordinal, devices);
  return bind(device);
}

static void print_version(int version, char *text, int capacity) {
  ot_text_format(text, capacity, "CUDA %d.%d", version / 1000, version % 1000 / 10);
}

static ot_status describe(ot_device *device, ot_device_info *info) {
  struct cudaDeviceProp properties;
  OT_TRY(bind(device));
  OT_TRY(check(cudaGetDeviceProperties(&properties, device->ordinal), "reading its properties"));
  ot_text_format(info->name, sizeof info->name, "%s", properties.name);
  memcpy(info->id, &properties.uuid, sizeof info->id);
  int version = 0;
  OT_TRY(check(cudaDriverGetVersion(&version), "reading the driver's version"));
  print_version(version, info->driver, sizeof info->driver);
  OT_TRY(check(cudaRuntimeGetVersion(&version), "reading the version of CUDA"));
  print_version(version, info->runtime, sizeof info->runtime);
  info->processors = properties.multiProcessorCount;
  info->capability = 10 * properties.major + properties.minor;
  return OT_OK;
}

static ot_status read_memory(ot_device *device, int64_t *free_bytes, int64_t *total_bytes) {
  size_t unused = 0, all = 0;
  OT_TRY(bind(device));
  OT_TRY(check(cudaMemGetInfo(&unused, &all), "reading its free memory"));
  *free_bytes = (int64_t)unused;
  *total_bytes = (int64_t)all;
  return OT_OK;
}

// ---- memory ----

static ot_status allocate(ot_device *device, int64_t bytes, void **memory) {
  OT_TRY(bind(device));
  const cudaError_t error = cudaMalloc(memory, (size_t)bytes);
  if (error != cudaErrorMemoryAllocation) return check(error, "allocating memory");
  (void)cudaGetLastError();  // not sticky
  int64_t free_bytes = 0, total_bytes = 0;
  OT_TRY(read_memory(device, &free_bytes, &total_bytes));
  ot_fail(OT_ENVIRONMENT, "GPU %d: %lld bytes are needed, %lld of %lld are free", device->ordinal,
          (long long)bytes, (long long)free_bytes, (long long)total_bytes);
  return ot_fail_hint(OT_ENVIRONMENT,
                      "a smaller micro-batch, parallel.recompute=full, or more devices");
}

static void release(ot_device *device, void *memory, int64_t bytes) {
  (void)bytes;
  if (bind(device) == OT_OK) (void)cudaFree(memory);
}

static ot_status allocate_host(ot_device *device, int64_t bytes, void **memory) {
  OT_TRY(bind(device));
  return check(cudaMallocHost(memory, (size_t)bytes), "allocating pinned memory");
}

static void release_host(ot_device *device, void *memory) {
  if (bind(device) == OT_OK) (void)cudaFreeHost(memory);
}

static ot_status copy(ot_stream *stream, void *to, const void *from, int64_t bytes,
                      ot_copy_kind kind) {
  static const enum cudaMemcpyKind kinds[] = {[OT_COPY_TO_DEVICE] = cudaMemcpyHostToDevice,
                                              [OT_COPY_TO_HOST] = cudaMemcpyDeviceToHost,
                                              [OT_COPY_ON_DEVICE] = cudaMemcpyDeviceToDevice};
  OT_TRY(bind(stream->device));
  return check(cudaMemcpyAsync(to, from, (size_t)bytes, kinds[kind], stream->native), "copying");
}

static ot_status fill(ot_stream *stream, void *memory, unsigned char byte, int64_t bytes) {
  OT_TRY(bind(stream->device));
  return check(cudaMemsetAsync(memory, byte, (size_t)bytes, stream->native), "filling memory");
}

// ---- streams ----

static ot_status open_stream(ot_stream *stream) {
  OT_TRY(bind(stream->device));
  cudaStream_t made = NULL;
  OT_TRY(check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "creating a stream"));
  stream->native = made;
  return OT_OK;
}

static void close_stream(ot_stream *stream) {
  if (stream->native) (void)cudaStreamDestroy(stream->native);
}

// Kernels report a failed launch by the last error, and a failed run here.
static ot_status synchronize(ot_stream *stream) {
  OT_TRY(bind(stream->device));
  OT_TRY(check(cudaPeekAtLastError(), "launching a kernel"));
  return check(cudaStreamSynchronize(stream->native), "running kernels");
}

// "Not ready" is no failure.
static ot_status is_done(cudaError_t error, bool *done) {
  *done = error == cudaSuccess;
  return error == cudaErrorNotReady ? OT_OK : check(error, "running kernels");
}

static ot_status query(ot_stream *stream, bool *done) {
  OT_TRY(bind(stream->device));
  return is_done(cudaStreamQuery(stream->native), done);
}

// ---- graphs ----

// Other threads may allocate and wait meanwhile.
static ot_status begin_capture(ot_stream *stream) {
  OT_TRY(check(cudaPeekAtLastError(), "launching a kernel"));
  return check(cudaStreamBeginCapture(stream->native, cudaStreamCaptureModeThreadLocal),
               "capturing kernels");
}

// A capture that failed has run nothing, and its error is forgotten: the caller queues the work as
// it is, which shows a true failure.
static ot_status end_capture(ot_stream *stream, ot_captured *captured) {
  cudaGraph_t graph = NULL;
  cudaGraphExec_t executable = NULL;
  cudaError_t error = cudaStreamEndCapture(stream->native, &graph);
  if (error == cudaSuccess) error = cudaPeekAtLastError();
  if (error == cudaSuccess) error = cudaGraphInstantiate(&executable, graph, 0);
  if (graph) (void)cudaGraphDestroy(graph);
  if (error == cudaSuccess) {
    captured->native = executable;
    return OT_OK;
  }
  (void)cudaGetLastError();
  return OT_OK;
}

static ot_status launch(ot_stream *stream, const ot_captured *captured) {
  return check(cudaGraphLaunch(captured->native, stream->native), "launching a graph");
}

static void close_captured(ot_captured *captured) {
  (void)bind(captured->device);
  (void)cudaGraphExecDestroy(captured->native);
}

// ---- events ----

static ot_status open_event(ot_event *event) {
  OT_TRY(bind(event->device));
  cudaEvent_t made = NULL;
  OT_TRY(check(cudaEventCreateWithFlags(&made, cudaEventDefault), "creating an event"));
  event->native = made;
  return OT_OK;
}

static void close_event(ot_event *event) {
  if (event->native) (void)cudaEventDestroy(event->native);
}

static ot_status record(ot_event *event, ot_stream *stream) {
  return check(cudaEventRecord(event->native, stream->native), "recording an event");
}

static ot_status wait(ot_stream *stream, const ot_event *event) {
  return check(cudaStreamWaitEvent(stream->native, event->native, 0), "waiting for an event");
}

static ot_status query_event(const ot_event *event, bool *done) {
  return is_done(cudaEventQuery(event->native), done);
}

static ot_status elapsed(const ot_event *from, const ot_event *to, double *seconds) {
  float milliseconds = 0;
  OT_TRY(check(cudaEventElapsedTime(&milliseconds, from->native, to->native), "reading events"));
  *seconds = (double)milliseconds * 1e-3;
  return OT_OK;
}

static const ot_device_backend backend = {
    .count = count,
    .open = open_device,
    .bind = bind,
    .describe = describe,
    .memory = read_memory,
    .allocate = allocate,
    .release = release,
    .allocate_host = allocate_host,
    .release_host = release_host,
    .copy = copy,
    .fill = fill,
    .open_stream = open_stream,
    .close_stream = close_stream,
    .synchronize = synchronize,
    .query = query,
    .begin_capture = begin_capture,
    .end_capture = end_capture,
    .launch = launch,
    .close_captured = close_captured,
    .open_event = open_event,
    .close_event = close_event,
    .record = record,
    .wait = wait,
    .query_event = query_event,
    .elapsed = elapsed,
};

const ot_device_backend *const ot_device_cuda = &backend;
