// SPDX-License-Identifier: Apache-2.0
// Memory, streams and events of one device. Host code outside kernels reaches tensor memory only
// through a device: it copies in and out and does no pointer arithmetic.
//
// Work on a stream runs in order; work on different streams is ordered by events only. The CPU runs
// work when it is queued. After a failure on a stream, what it holds is undefined; every later call
// on its device may return the failure: OT_RANKS if the GPU is lost to this process, with its rank
// (a fault of a kernel or of the memory), else OT_ENVIRONMENT.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/choices.h"
#include "base/status.h"

typedef struct ot_device ot_device;
typedef struct ot_stream ot_stream;
typedef struct ot_event ot_event;
typedef struct ot_captured ot_captured;

// Device `ordinal` of this machine. OT_ENVIRONMENT if this build or this machine lacks it.
ot_status ot_device_create(ot_backend backend, int ordinal, ot_device **device);
void ot_device_destroy(ot_device **device);

// The number of devices of a back end, 0 if this build or this machine has none.
int ot_device_count(ot_backend backend);

typedef struct ot_device_info {
  char name[128];
  char driver[64];      // newest CUDA that it supports; "" on the CPU
  char runtime[64];     // CUDA of this program; "" on the CPU
  uint64_t id[2];       // different for any two GPUs; 0 on the CPU
  int64_t total_bytes;  // of its memory; 0: unknown
  int64_t free_bytes;
  int processors;  // SMs; 0 on the CPU
  int capability;  // 90 for sm_90; 0 on the CPU
} ot_device_info;
ot_status ot_device_describe(ot_device *device, ot_device_info *info);
// The same of a device that is not created; binds the calling thread to it. Errors as create.
ot_status ot_device_query(ot_backend backend, int ordinal, ot_device_info *info);
// Its memory alone, which is asked for each step; both 0 on the CPU.
ot_status ot_device_memory(ot_device *device, int64_t *free_bytes, int64_t *total_bytes);

// The calling thread will launch kernels on the device.
ot_status ot_device_bind(ot_device *device);

// One block of device memory, 64-byte aligned, contents undefined; on the CPU its pages are
// untouched until used. OT_ENVIRONMENT with the size if the device lacks memory.
ot_status ot_device_allocate(ot_device *device, int64_t bytes, void **memory);
void ot_device_release(ot_device *device, void **memory, int64_t bytes);

// Host memory from which copies are fast and asynchronous.
ot_status ot_device_allocate_host(ot_device *device, int64_t bytes, void **memory);
void ot_device_release_host(ot_device *device, void **memory);

// Blocking copies between the host and device memory at `offset` bytes of `memory`. They do not
// wait for other streams.
ot_status ot_device_write(ot_device *device, void *memory, int64_t offset, const void *from,
                          int64_t bytes);
ot_status ot_device_read(ot_device *device, const void *memory, int64_t offset, void *to,
                         int64_t bytes);
ot_status ot_device_fill(ot_device *device, void *memory, int64_t offset, unsigned char byte,
                         int64_t bytes);

// Streams: queues of work.
ot_status ot_stream_create(ot_device *device, ot_stream **stream);
void ot_stream_destroy(ot_stream **stream);
ot_device *ot_stream_device(const ot_stream *stream);
// The back end's own handle, for its kernels; null on the CPU.
void *ot_stream_native(const ot_stream *stream);
// Waits for all its work and returns the first failure of it. Blocks.
ot_status ot_stream_synchronize(ot_stream *stream);
// Whether all its work is done, or the failure of it. Does not block.
ot_status ot_stream_is_done(ot_stream *stream, bool *done);
// Copies between two places of device memory in stream order.
ot_status ot_stream_copy(ot_stream *stream, void *to, const void *from, int64_t bytes);

// Work of a stream as one graph, which is queued in a single call. Until the end, kernels, copies
// and fills on the device that this thread queues on `stream` are captured and do not run; it must
// queue nothing else there, and must not allocate, release or wait. Null: what was queued cannot be
// captured, and nothing has run. Not for the CPU, which runs work when it is queued.
ot_status ot_stream_begin_capture(ot_stream *stream);
ot_status ot_stream_end_capture(ot_stream *stream, ot_captured **captured);
ot_status ot_stream_launch(ot_stream *stream, const ot_captured *captured);
void ot_captured_destroy(ot_captured **captured);

// Events: a place in a stream, for which another stream or the host can wait.
ot_status ot_event_create(ot_device *device, ot_event **event);
void ot_event_destroy(ot_event **event);
ot_status ot_event_record(ot_event *event, ot_stream *stream);
// Later work of `stream` runs after the event's last record; an event never recorded is done.
ot_status ot_stream_wait(ot_stream *stream, const ot_event *event);
// Whether its last record is reached, or the failure of work before it. Does not block.
ot_status ot_event_is_done(const ot_event *event, bool *done);
// Seconds between two recorded events that are done; 0 on the CPU.
ot_status ot_event_elapsed(const ot_event *from, const ot_event *to, double *seconds);
