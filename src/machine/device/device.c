// SPDX-License-Identifier: Apache-2.0
// Finds the back end of a device and passes calls on.
#include "device/device.h"

#include <stdlib.h>

#include "device/device_backend.h"

static const ot_device_backend *backend_of(ot_backend backend) {
  return backend == OT_BACKEND_CPU ? &ot_device_cpu : ot_device_cuda;
}

int ot_device_count(ot_backend backend) {
  const ot_device_backend *const found = backend_of(backend);
  return found ? found->count() : 0;
}

static ot_status open_device(ot_backend backend, int ordinal, ot_device *device) {
  *device = (ot_device){.backend = backend_of(backend), .ordinal = ordinal};
  OT_CHECK(device->backend, OT_ENVIRONMENT, "this build of orthant has no CUDA (try device=cpu)");
  return device->backend->open(device);
}

ot_status ot_device_create(ot_backend backend, int ordinal, ot_device **device) {
  *device = calloc(1, sizeof **device);
  OT_CHECK(*device, OT_ENVIRONMENT, "device: out of memory");
  ot_status status = open_device(backend, ordinal, *device);
  if (status == OT_OK) status = ot_stream_create(*device, &(*device)->copies);
  if (status != OT_OK) ot_device_destroy(device);
  return status;
}

void ot_device_destroy(ot_device **device) {
  if (!device || !*device) return;
  ot_stream_destroy(&(*device)->copies);
  free(*device);
  *device = NULL;
}

ot_status ot_device_describe(ot_device *device, ot_device_info *info) {
  *info = (ot_device_info){0};
  OT_TRY(device->backend->describe(device, info));
  return ot_device_memory(device, &info->free_bytes, &info->total_bytes);
}

ot_status ot_device_query(ot_backend backend, int ordinal, ot_device_info *info) {
  ot_device device;
  OT_TRY(open_device(backend, ordinal, &device));
  return ot_device_describe(&device, info);
}

ot_status ot_device_memory(ot_device *device, int64_t *free_bytes, int64_t *total_bytes) {
  *free_bytes = *total_bytes = 0;
  return device->backend->memory(device, free_bytes, total_bytes);
}

ot_status ot_device_bind(ot_device *device) { return device->backend->bind(device); }

// ---- memory ----

ot_status ot_device_allocate(ot_device *device, int64_t bytes, void **memory) {
  return device->backend->allocate(device, bytes > 0 ? bytes : 1, memory);
}

void ot_device_release(ot_device *device, void **memory, int64_t bytes) {
  if (*memory) device->backend->release(device, *memory, bytes > 0 ? bytes : 1);
  *memory = NULL;
}

ot_status ot_device_allocate_host(ot_device *device, int64_t bytes, void **memory) {
  return device->backend->allocate_host(device, bytes > 0 ? bytes : 1, memory);
}

void ot_device_release_host(ot_device *device, void **memory) {
  if (*memory) device->backend->release_host(device, *memory);
  *memory = NULL;
}

static ot_status copy(ot_stream *stream, void *to, const void *from, int64_t bytes,
                      ot_copy_kind kind) {
  return bytes > 0 ? stream->device->backend->copy(stream, to, from, bytes, kind) : OT_OK;
}

ot_status ot_device_write(ot_device *device, void *memory, int64_t offset, const void *from,
                          int64_t bytes) {
  OT_TRY(copy(device->copies, (char *)memory + offset, from, bytes, OT_COPY_TO_DEVICE));
  return ot_stream_synchronize(device->copies);
}

ot_status ot_device_read(ot_device *device, const void *memory, int64_t offset, void *to,
                         int64_t bytes) {
  OT_TRY(copy(device->copies, to, (const char *)memory + offset, bytes, OT_COPY_TO_HOST));
  return ot_stream_synchronize(device->copies);
}

ot_status ot_device_fill(ot_device *device, void *memory, int64_t offset, unsigned char byte,
                         int64_t bytes) {
  if (bytes <= 0) return OT_OK;
  OT_TRY(device->backend->fill(device->copies, (char *)memory + offset, byte, bytes));
  return ot_stream_synchronize(device->copies);
}

// ---- streams ----

ot_status ot_stream_create(ot_device *device, ot_stream **stream) {
  *stream = calloc(1, sizeof **stream);
  OT_CHECK(*stream, OT_ENVIRONMENT, "device: out of memory");
  (*stream)->device = device;
  return device->backend->open_stream(*stream);
}

void ot_stream_destroy(ot_stream **stream) {
  if (!stream || !*stream) return;
  (*stream)->device->backend->close_stream(*stream);
  free(*stream);
  *stream = NULL;
}

ot_device *ot_stream_device(const ot_stream *stream) { return stream->device; }

void *ot_stream_native(const ot_stream *stream) { return stream->native; }

ot_status ot_stream_synchronize(ot_stream *stream) {
  return stream->device->backend->synchronize(stream);
}

ot_status ot_stream_is_done(ot_stream *stream, bool *done) {
  return stream->device->backend->query(stream, done);
}

ot_status ot_stream_copy(ot_stream *stream, void *to, const void *from, int64_t bytes) {
  return copy(stream, to, from, bytes, OT_COPY_ON_DEVICE);
}

// ---- graphs ----

ot_status ot_stream_begin_capture(ot_stream *stream) {
  return stream->device->backend->begin_capture(stream);
}

ot_status ot_stream_end_capture(ot_stream *stream, ot_captured **captured) {
  *captured = NULL;
  ot_captured made = {.device = stream->device};
  OT_TRY(stream->device->backend->end_capture(stream, &made));
  if (!made.native) return OT_OK;
  *captured = calloc(1, sizeof **captured);
  if (!*captured) stream->device->backend->close_captured(&made);
  OT_CHECK(*captured, OT_ENVIRONMENT, "device: out of memory");
  **captured = made;
  return OT_OK;
}

ot_status ot_stream_launch(ot_stream *stream, const ot_captured *captured) {
  return stream->device->backend->launch(stream, captured);
}

void ot_captured_destroy(ot_captured **captured) {
  if (!captured || !*captured) return;
  (*captured)->device->backend->close_captured(*captured);
  free(*captured);
  *captured = NULL;
}

// ---- events ----

ot_status ot_event_create(ot_device *device, ot_event **event) {
  *event = calloc(1, sizeof **event);
  OT_CHECK(*event, OT_ENVIRONMENT, "device: out of memory");
  (*event)->device = device;
  return device->backend->open_event(*event);
}

void ot_event_destroy(ot_event **event) {
  if (!event || !*event) return;
  (*event)->device->backend->close_event(*event);
  free(*event);
  *event = NULL;
}

ot_status ot_event_record(ot_event *event, ot_stream *stream) {
  return event->device->backend->record(event, stream);
}

ot_status ot_stream_wait(ot_stream *stream, const ot_event *event) {
  return stream->device->backend->wait(stream, event);
}

ot_status ot_event_is_done(const ot_event *event, bool *done) {
  return event->device->backend->query_event(event, done);
}

ot_status ot_event_elapsed(const ot_event *from, const ot_event *to, double *seconds) {
  return from->device->backend->elapsed(from, to, seconds);
}
