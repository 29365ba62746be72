// SPDX-License-Identifier: Apache-2.0
// The device, its errors, and failures on purpose.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "hopper.h"
#include "shim_state.h"

namespace shim {

namespace {

thread_local cudaError_t last_error = cudaSuccess;
thread_local bool in_host_function = false;
thread_local int chosen_device = 0;

struct error_text {
  cudaError_t error;
  const char *name, *text;
};
const error_text error_texts[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection",
     "invalid copy direction for memcpy"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorDevicesUnavailable, "cudaErrorDevicesUnavailable",
     "CUDA-capable device(s) is/are busy or unavailable"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources",
     "too many resources requested for launch"},
    {cudaErrorLaunchTimeout, "cudaErrorLaunchTimeout", "the launch timed out and was terminated"},
    {cudaErrorAssert, "cudaErrorAssert", "device-side assert triggered"},
    {cudaErrorMisalignedAddress, "cudaErrorMisalignedAddress", "misaligned address"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorIllegalState, "cudaErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const error_text *find_text(cudaError_t error) {
  for (const error_text &e : error_texts) {
    if (e.error == error) return &e;
  }
  return nullptr;
}

bool ends_context(cudaError_t error) {
  return error == cudaErrorECCUncorrectable || error == cudaErrorIllegalAddress ||
         error == cudaErrorLaunchTimeout || error == cudaErrorAssert ||
         error == cudaErrorMisalignedAddress || error == cudaErrorLaunchFailure;
}

// ---- the environment ----

uint64_t number_of(const char *variable, uint64_t otherwise) {
  const char *const text = getenv(variable);
  return text ? strtoull(text, nullptr, 10) : otherwise;
}

[[noreturn]] void refuse(const char *variable, const char *text) {
  fprintf(stderr, "shim: %s=%s is not understood (see shim_control.h)\n", variable, text);
  abort();
}

shim_order order_of_environment() {
  const char *const text = getenv("OT_SHIM_ORDER");
  if (!text || strcmp(text, "forward") == 0) return SHIM_FORWARD;
  if (strcmp(text, "backward") == 0) return SHIM_BACKWARD;
  if (strcmp(text, "random") == 0) return SHIM_RANDOM;
  refuse("OT_SHIM_ORDER", text);
}

std::vector<planned_failure> failures_of_environment() {
  std::vector<planned_failure> failures;
  const char *text = getenv("OT_SHIM_FAIL");
  while (text && *text) {
    char call[64];
    long long n;
    int error, length = 0;
    if (sscanf(text, "%63[^:]:%lld:%d%n", call, &n, &error, &length) != 3 || n < 1) {
      refuse("OT_SHIM_FAIL", text);
    }
    failures.push_back({call, n, static_cast<cudaError_t>(error)});
    text += length + (text[length] == ',');
  }
  return failures;
}

void make_devices(device_state *state, int count) {
  state->contexts.resize(static_cast<size_t>(count));
  state->streams.clear();
  for (int i = 0; i < count; i++) {
    const stream_pointer stream = state->contexts[static_cast<size_t>(i)].default_stream;
    stream->device = i;
    state->streams.push_back(stream);
  }
}

}  // namespace

device_state::device_state() {
  failures = failures_of_environment();
  make_devices(this, static_cast<int>(number_of("OT_SHIM_DEVICES", 1)));
  speed = static_cast<double>(number_of("OT_SHIM_SPEED", 1));
  patience_s = static_cast<double>(number_of("OT_SHIM_PATIENCE_S", 30));
  limit_bytes = number_of("OT_SHIM_MEMORY", uint64_t{8} << 30);
  most_shared_bytes = static_cast<int>(number_of("OT_SHIM_SHARED", 227 << 10));
  const uint64_t seed = number_of("OT_SHIM_SEED", 1);
  chance = random_numbers(seed);
  set_thread_order(order_of_environment(), seed);
}

device_state &device() {
  static device_state *const state = new device_state;
  return *state;
}

int current_device() { return chosen_device; }
context &current_context() { return device().contexts.at(static_cast<size_t>(chosen_device)); }

context &running_context() {
  return device().contexts.at(static_cast<size_t>(device().open_memory));
}

void set_last_error(cudaError_t error) { last_error = error; }
void enter_host_function(bool enter) { in_host_function = enter; }

cudaError_t take_planned_failure(const char *call, int number) {
  device_state &d = device();
  cudaError_t error = cudaSuccess;
  for (planned_failure &f : d.failures) {
    if (f.call == call && --f.calls_left == 0) error = f.error;
  }
  if (ends_context(error)) d.contexts[static_cast<size_t>(number)].ended = error;
  return error;
}

cudaError_t api_call(const char *name, const std::function<cudaError_t(lock_held &)> &body) {
  if (in_host_function) return last_error = cudaErrorNotPermitted;
  lock_held lock(device().mutex);
  explain_memory_faults();  // cmocka sets its own action before each case
  cudaError_t error = take_planned_failure(name, current_device());
  const bool leaves = strcmp(name, "cudaSetDevice") == 0;  // perhaps a device that has ended
  if (error == cudaSuccess && !leaves) error = current_context().ended;
  if (error == cudaSuccess && capture_forbids(name)) error = cudaErrorStreamCaptureUnsupported;
  if (error == cudaSuccess) error = body(lock);
  if (error == cudaSuccess) error = current_context().ended;
  close_device_memory();
  // CUDA does not count "not ready" as an error.
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

}  // namespace shim

using namespace shim;

const char *cudaGetErrorName(cudaError_t error) {
  const error_text *const e = find_text(error);
  return e ? e->name : "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error) {
  const error_text *const e = find_text(error);
  return e ? e->text : "unrecognized error code";
}

cudaError_t cudaPeekAtLastError(void) {
  const lock_held lock(device().mutex);
  return current_context().ended != cudaSuccess ? current_context().ended : last_error;
}

cudaError_t cudaGetLastError(void) {
  const cudaError_t error = cudaPeekAtLastError();
  last_error = cudaSuccess;
  return error;
}

// ---- the device ----

namespace {
enum { NUM_SM = 132, L2_BYTES = 50 << 20, BUS_BITS = 5120, SHARED_BYTES = 48 << 10 };
enum { THREADS_PER_BLOCK = 1024, MAJOR = 9, MINOR = 0 };
enum { CLOCK_KHZ = 1980000, MEMORY_CLOCK_KHZ = 2619000 };

cudaError_t attribute_value(int *value, cudaDeviceAttr attribute) {
  static const std::map<int, int> values = {
      {cudaDevAttrMaxThreadsPerBlock, THREADS_PER_BLOCK},
      {cudaDevAttrMaxSharedMemoryPerBlock, SHARED_BYTES},
      {cudaDevAttrWarpSize, warpSize},
      {cudaDevAttrClockRate, CLOCK_KHZ},
      {cudaDevAttrMultiProcessorCount, NUM_SM},
      {cudaDevAttrMemoryClockRate, MEMORY_CLOCK_KHZ},
      {cudaDevAttrGlobalMemoryBusWidth, BUS_BITS},
      {cudaDevAttrL2CacheSize, L2_BYTES},
      {cudaDevAttrComputeCapabilityMajor, MAJOR},
      {cudaDevAttrComputeCapabilityMinor, MINOR},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, device().most_shared_bytes}};
  const auto found = values.find(attribute);
  if (found == values.end()) return cudaErrorInvalidValue;
  *value = found->second;
  return cudaSuccess;
}

uint64_t capability() { return number_of("OT_SHIM_CAPABILITY", 10 * MAJOR + MINOR); }

void describe_device(cudaDeviceProp *p) {
  *p = {};
  snprintf(p->name, sizeof p->name, "emulated device");
  snprintf(p->uuid.bytes, sizeof p->uuid.bytes, "emulated");
  p->totalGlobalMem = device().limit_bytes;
  p->sharedMemPerBlock = SHARED_BYTES;
  p->sharedMemPerBlockOptin = static_cast<size_t>(device().most_shared_bytes);
  p->warpSize = warpSize;
  p->maxThreadsPerBlock = THREADS_PER_BLOCK;
  p->multiProcessorCount = NUM_SM;
  p->major = static_cast<int>(capability() / 10);
  p->minor = static_cast<int>(capability() % 10);
  p->memoryBusWidth = BUS_BITS;
  p->l2CacheSize = L2_BYTES;
}
}  // namespace

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *) {
  return api_call("cudaFuncGetAttributes", [=](lock_held &) {
    *attributes = {};
    return capability() == 90 ? cudaSuccess : cudaErrorNoKernelImageForDevice;
  });
}

cudaError_t cudaGetDeviceCount(int *count) {
  return api_call("cudaGetDeviceCount", [=](lock_held &) {
    const char *const device = getenv("OT_TEST_DEVICE");
    const bool there = device && strcmp(device, "cuda") == 0;
    *count = there ? static_cast<int>(shim::device().contexts.size()) : 0;
    return there ? cudaSuccess : cudaErrorNoDevice;
  });
}

namespace {
bool is_device(int number) {
  return number >= 0 && number < static_cast<int>(device().contexts.size());
}
}  // namespace

cudaError_t cudaSetDevice(int number) {
  return api_call("cudaSetDevice", [=](lock_held &) {
    if (!is_device(number)) return cudaErrorInvalidDevice;
    chosen_device = number;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int *number) {
  return api_call("cudaGetDevice", [=](lock_held &) {
    *number = chosen_device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int number) {
  return api_call("cudaGetDeviceProperties", [=](lock_held &) {
    if (!is_device(number)) return cudaErrorInvalidDevice;
    describe_device(properties);
    properties->uuid.bytes[15] = static_cast<char>(number);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int number) {
  return api_call("cudaDeviceGetAttribute", [=](lock_held &) {
    return is_device(number) ? attribute_value(value, attribute) : cudaErrorInvalidDevice;
  });
}

cudaError_t cudaDriverGetVersion(int *version) {
  return api_call("cudaDriverGetVersion", [=](lock_held &) {
    *version = CUDART_VERSION;
    return cudaSuccess;
  });
}

cudaError_t cudaRuntimeGetVersion(int *version) {
  return api_call("cudaRuntimeGetVersion", [=](lock_held &) {
    *version = CUDART_VERSION;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult *result) {
  return api_call("cudaGetDriverEntryPointByVersion", [=](lock_held &) {
    const bool known = strcmp(symbol, "cuTensorMapEncodeTiled") == 0;
    if (flags != cudaEnableDefault) return cudaErrorInvalidValue;
    *function = known ? reinterpret_cast<void *>(encode_tensor_map) : nullptr;
    *result = !known            ? cudaDriverEntryPointSymbolNotFound
              : version < 12000 ? cudaDriverEntryPointVersionNotSufficent
                                : cudaDriverEntryPointSuccess;
    return cudaSuccess;
  });
}

// ---- what tests set ----

void shim_set_order(shim_order order, uint64_t seed) {
  const lock_held lock(device().mutex);
  set_thread_order(order, seed);
  device().chance = random_numbers(seed);
}

void shim_set_memory_limit(size_t bytes) {
  const lock_held lock(device().mutex);
  device().limit_bytes = bytes;
}

void shim_set_devices(int count) {
  const lock_held lock(device().mutex);
  make_devices(&device(), count);
}

void shim_fail(const char *call, int64_t n, cudaError_t error) {
  const lock_held lock(device().mutex);
  device().failures.push_back({call, n, error});
}

void shim_reset(void) {
  device_state &d = device();
  const lock_held lock(d.mutex);
  d.failures.clear();
  d.destroyed.clear();
  for (const stream_pointer &s : d.streams) {
    s->items.clear();
    s->done = s->queued;
  }
  for (context &c : d.contexts) c.ended = cudaSuccess;
  set_last_error(cudaSuccess);
}

int64_t shim_count_kernels(const char *name) {
  const lock_held lock(device().mutex);
  int64_t count = 0;
  for (const auto &kernel : device().runs) {
    if (kernel.first.compare(0, strlen(name), name) == 0) count += kernel.second;
  }
  return count;
}

int64_t shim_live_objects(void) {
  const lock_held lock(device().mutex);
  const device_state &d = device();
  return static_cast<int64_t>(d.allocations.size() + d.streams.size() - d.contexts.size() +
                              d.events.size() + d.graphs.size() + d.executables.size()) +
         d.communicators;
}
