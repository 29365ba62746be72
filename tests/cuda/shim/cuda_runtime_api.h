// SPDX-License-Identifier: Apache-2.0
// The part of CUDA's runtime API that Orthant calls, for an emulated device (C17 and C++17). Names,
// values of enumerators and semantics are those of CUDA 13; structs have the members that are used.
// Arguments that CUDA's C++ header defaults must be given. What differs on purpose:
//   - Work on streams is only queued. It runs when a thread waits for some of it (synchronize, a
//     blocking copy) or asks for its state (query: one piece of work per call), in an order drawn
//     from a seed among all that streams and events permit, so a forgotten wait shows as other
//     bits.
//   - Device memory starts as 0xFF bytes and has guard zones: a kernel or copy that writes outside
//     an allocation, and host code that touches device memory, end the process with a message.
// shim_control.h sets orders, seeds, the memory limit, and failures on purpose. Threads may call at
// any time.
#pragma once

#include <stddef.h>

#define CUDART_VERSION 13000

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cudaError {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInitializationError = 3,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidMemcpyDirection = 21,
  cudaErrorInsufficientDriver = 35,
  cudaErrorDevicesUnavailable = 46,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorECCUncorrectable = 214,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorIllegalState = 401,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchOutOfResources = 701,
  cudaErrorLaunchTimeout = 702,
  cudaErrorAssert = 710,
  cudaErrorMisalignedAddress = 716,
  cudaErrorLaunchFailure = 719,
  cudaErrorNotPermitted = 800,
  cudaErrorNotSupported = 801,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureWrongThread = 908,
  cudaErrorUnknown = 999
} cudaError_t;

// Both return static texts; of an unknown code "unrecognized error code".
const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);
// The last error of a call of this thread; the first function also forgets it. An error that ends
// the context (a failed kernel, a lost device) is never forgotten, and every later call returns it.
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);

// ---- the device ----

enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock = 1,
  cudaDevAttrMaxSharedMemoryPerBlock = 8,
  cudaDevAttrWarpSize = 10,
  cudaDevAttrClockRate = 13,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrMemoryClockRate = 36,
  cudaDevAttrGlobalMemoryBusWidth = 37,
  cudaDevAttrL2CacheSize = 38,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};

typedef struct CUuuid_st {
  char bytes[16];
} cudaUUID_t;

struct cudaDeviceProp {
  char name[256];
  cudaUUID_t uuid;
  size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin;
  int warpSize, maxThreadsPerBlock, multiProcessorCount, major, minor;
  int memoryBusWidth, l2CacheSize;
};

// There is one device, number 0, or as many as shim_control.h sets. A thread starts on device 0.
// Streams, events and memory belong to the device on which they are made; kernels and copies of one
// device reach no memory of another.
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device);
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaDeviceSynchronize(void);

// Functions of the driver: cuTensorMapEncodeTiled alone (hopper.h).
enum cudaDriverEntryPointQueryResult {
  cudaDriverEntryPointSuccess = 0,
  cudaDriverEntryPointSymbolNotFound = 1,
  cudaDriverEntryPointVersionNotSufficent = 2
};
#define cudaEnableDefault 0x00
cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result);

// ---- memory ----

enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4
};

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
// 256-byte aligned; 0 bytes: success and null. cudaErrorMemoryAllocation beyond the limit.
cudaError_t cudaMalloc(void **memory, size_t bytes);
cudaError_t cudaMallocHost(void **memory, size_t bytes);
// Both first run all work of all streams. Null is ignored; anything else must be a live allocation.
cudaError_t cudaFree(void *memory);
cudaError_t cudaFreeHost(void *memory);

// Copies and fills check that each end lies in a live allocation where it must, and stand in their
// stream's order, the blocking ones in that of the default stream. None waits for non-blocking
// streams.
//   cudaMemcpy       from pageable host memory to a device: waits for the default stream, reads the
//                    host's bytes, and returns BEFORE they reach the device. Device to device: does
//                    not block. All others, with pinned memory (of cudaMallocHost) too: block until
//                    done.
//   cudaMemcpyAsync  between pinned memory and a device, and on a device: reads and writes when the
//                    copy runs. From pageable memory to a device: reads it at once. To pageable
//                    memory, and from the host to the host: blocks.
//   cudaMemset       does not block, except on pinned host memory.
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemset(void *memory, int byte, size_t bytes);
cudaError_t cudaMemsetAsync(void *memory, int byte, size_t bytes, cudaStream_t stream);

// ---- streams and events ----

// The stream 0 is the legacy default stream: its work waits for all earlier work of streams created
// with cudaStreamDefault, whose later work waits for it. cudaStreamNonBlocking streams ignore it.
#define cudaStreamDefault 0x00
#define cudaStreamNonBlocking 0x01
#define cudaEventDefault 0x00
#define cudaEventBlockingSync 0x01
#define cudaEventDisableTiming 0x02

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
// Does not block; queued work still runs.
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
// Waits for the latest record at the time of this call; without one it does nothing, as in CUDA.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
// `function` runs without the device's lock, so it may wait for other threads, and may call nothing
// of this API (cudaErrorNotPermitted).
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void *), void *argument);

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
// Both succeed for an event that was never recorded.
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *elapsed_ms, cudaEvent_t begin, cudaEvent_t end);

// ---- graphs ----

// Between begin and end the thread's kernels, copies and fills on the stream are captured, not run.
// In thread-local mode, the one that is emulated, this thread may then not allocate, release or
// wait for the device. Not emulated: events, host functions and pageable memory in a graph. What
// cannot be captured breaks the capture, and its end returns cudaErrorStreamCaptureInvalidated.
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
typedef enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal = 0,
  cudaStreamCaptureModeThreadLocal = 1,
  cudaStreamCaptureModeRelaxed = 2
} cudaStreamCaptureMode;
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph,
                                 unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);

// ---- kernels ----

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

// Needed, as in CUDA, before a launch with more than 48 KiB of dynamic shared memory.
struct cudaFuncAttributes {
  size_t sharedSizeBytes;
};
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *kernel);
cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value);

#ifdef __cplusplus
}
#endif
