// SPDX-License-Identifier: Apache-2.0
// The functions of a back end; the contracts are those of device.h. Private to device/.
#pragma once

#include "device/device.h"

typedef enum ot_copy_kind {
  OT_COPY_TO_DEVICE,
  OT_COPY_TO_HOST,
  OT_COPY_ON_DEVICE,
} ot_copy_kind;

typedef struct ot_device_backend {
  int (*count)(void);
  ot_status (*open)(ot_device *device);
  ot_status (*bind)(ot_device *device);
  ot_status (*describe)(ot_device *device, ot_device_info *info);  // without its memory
  ot_status (*memory)(ot_device *device, int64_t *free_bytes, int64_t *total_bytes);
  ot_status (*allocate)(ot_device *device, int64_t bytes, void **memory);
  void (*release)(ot_device *device, void *memory, int64_t bytes);
  ot_status (*allocate_host)(ot_device *device, int64_t bytes, void **memory);
  void (*release_host)(ot_device *device, void *memory);
  // In stream order; `bytes` > 0.
  ot_status (*copy)(ot_stream *stream, void *to, const void *from, int64_t bytes,
                    ot_copy_kind kind);
  ot_status (*fill)(ot_stream *stream, void *memory, unsigned char byte, int64_t bytes);
  ot_status (*open_stream)(ot_stream *stream);
  void (*close_stream)(ot_stream *stream);
  ot_status (*synchronize)(ot_stream *stream);
  ot_status (*query)(ot_stream *stream, bool *done);
  // Null: the CPU's. The end sets the handle of a graph, or none if it cannot be captured.
  ot_status (*begin_capture)(ot_stream *stream);
  ot_status (*end_capture)(ot_stream *stream, ot_captured *captured);
  ot_status (*launch)(ot_stream *stream, const ot_captured *captured);
  void (*close_captured)(ot_captured *captured);
  ot_status (*open_event)(ot_event *event);
  void (*close_event)(ot_event *event);
  ot_status (*record)(ot_event *event, ot_stream *stream);
  ot_status (*wait)(ot_stream *stream, const ot_event *event);
  ot_status (*query_event)(const ot_event *event, bool *done);
  ot_status (*elapsed)(const ot_event *from, const ot_event *to, double *seconds);
} ot_device_backend;

extern const ot_device_backend ot_device_cpu;
// Null in builds without CUDA.
extern const ot_device_backend *const ot_device_cuda;

struct ot_device {
  const ot_device_backend *backend;
  int ordinal;
  ot_stream *copies;  // of blocking copies
};

struct ot_stream {
  ot_device *device;
  void *native;
};

struct ot_captured {
  ot_device *device;
  void *native;
};

struct ot_event {
  ot_device *device;
  void *native;
};
