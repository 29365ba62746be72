// SPDX-License-Identifier: Apache-2.0
// What tests set of the emulated device (C17 and C++17). Environment variables set the same before
// the first call: OT_SHIM_ORDER=forward|backward|random, OT_SHIM_SEED=N, OT_SHIM_MEMORY=BYTES,
// OT_SHIM_SHARED=BYTES (227 KiB if not set: the shared memory that a kernel may ask for),
// OT_SHIM_CAPABILITY=N (90 if not set; kernels are for 90), OT_SHIM_FAIL=CALL:N:ERROR[,...],
// OT_SHIM_DEVICES=N, OT_SHIM_SPEED=N (events are N times closer than by the clock),
// OT_SHIM_PATIENCE_S=N (30 if not set: how long work may wait for a rank that has not queued its
// part). Two are read whenever cuBLASLt is opened: OT_SHIM_LT_ORDER=forward|reversed (of the
// algorithms that it proposes), OT_SHIM_LT_VERSION=N (130100 if not set).
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "cuda_runtime_api.h"

#ifdef __cplusplus
extern "C" {
#endif

// The order in which blocks of a grid, and threads of a block, run where nothing else decides it.
// Forward: ascending, and who waited longest goes on first, so that warps run in step. Backward:
// descending, and who waited shortest goes on first, so that each warp runs as far as it can.
// Random: drawn at every choice. The thread that completes an operation goes on at once, but in
// random order.
typedef enum shim_order { SHIM_FORWARD, SHIM_BACKWARD, SHIM_RANDOM } shim_order;

// `seed` draws random orders of threads, and in every order the sequence of work of several
// streams.
void shim_set_order(shim_order order, uint64_t seed);

// The number of devices, 1 at the start. No streams or memory may exist.
void shim_set_devices(int count);

// Bytes of memory of each device; 8 GiB at the start. Guard zones do not count.
void shim_set_memory_limit(size_t bytes);

// The n-th call (from 1) of the API function `call` from now on returns `error` and does nothing.
// Further calls: "launch" (the n-th kernel launch is not queued; cudaGetLastError tells) and
// "kernel" (the n-th kernel that would run ends the context with `error`, which a later call
// returns). Of the errors that end a context (cudaErrorIllegalAddress, cudaErrorLaunchFailure,
// cudaErrorECCUncorrectable and their kind) every later call returns the same, until shim_reset.
void shim_fail(const char *call, int64_t n, cudaError_t error);

// Forgets failures on purpose, ended contexts, queued work and the last error of this thread.
// Memory, streams and events stay. No other thread may be in a call.
void shim_reset(void);

// Kernels that have run so far and whose name, as launched ("adamw_kernel<R>"), begins with `name`.
int64_t shim_count_kernels(const char *name);

// What is live: device and pinned memory, streams, events and graphs.
int64_t shim_live_objects(void);

#ifdef __cplusplus
}
#endif
