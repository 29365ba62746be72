// SPDX-License-Identifier: Apache-2.0
// Memory and streams of one device. Host code outside kernels reaches tensor memory only through a
// device: it copies in and out and does no pointer arithmetic, so that a GPU can implement the same
// calls.
#pragma once

#include <stdint.h>

#include "base/status.h"

typedef struct ot_device ot_device;
typedef struct ot_stream ot_stream;

typedef enum ot_backend { OT_BACKEND_CPU } ot_backend;

ot_status ot_device_create(ot_backend kind, ot_device **device);
void ot_device_destroy(ot_device **device);

// One block of device memory, 64-byte aligned, contents undefined, pages untouched until used.
// OT_ENVIRONMENT with the size if the device lacks memory.
ot_status ot_device_allocate(ot_device *device, int64_t bytes, void **memory);
void ot_device_release(ot_device *device, void **memory, int64_t bytes);

// Blocking copies between the host and device memory at `offset` bytes of `memory`.
void ot_device_write(ot_device *device, void *memory, int64_t offset, const void *from,
                     int64_t bytes);
void ot_device_read(ot_device *device, const void *memory, int64_t offset, void *to, int64_t bytes);
void ot_device_fill(ot_device *device, void *memory, int64_t offset, unsigned char byte,
                    int64_t bytes);

// A queue of work. The CPU runs work when it is queued; on a GPU synchronize waits.
ot_status ot_stream_create(ot_device *device, ot_stream **stream);
void ot_stream_destroy(ot_stream **stream);
void ot_stream_synchronize(ot_stream *stream);
