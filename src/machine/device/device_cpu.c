// SPDX-License-Identifier: Apache-2.0
// The CPU as a device: anonymous pages (huge pages where available), streams that run work when it
// is queued, events that are always done.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/text.h"
#include "device/device_backend.h"

static int count(void) { return 1; }

static ot_status open_device(ot_device *device) {
  (void)device;
  return OT_OK;
}

static ot_status describe(ot_device *device, ot_device_info *info) {
  (void)device;
  ot_text_format(info->name, sizeof info->name, "CPU");
  return OT_OK;
}

static ot_status read_memory(ot_device *device, int64_t *free_bytes, int64_t *total_bytes) {
  (void)device;
  (void)free_bytes;
  (void)total_bytes;
  return OT_OK;
}

// ---- memory ----

static ot_status allocate(ot_device *device, int64_t bytes, void **memory) {
  (void)device;
  void *const pages = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  OT_CHECK(pages != MAP_FAILED, OT_ENVIRONMENT, "device: cannot get %lld bytes of memory",
           (long long)bytes);
  madvise(pages, (size_t)bytes, MADV_HUGEPAGE);
  madvise(pages, (size_t)bytes,
          MADV_DONTFORK);  // a child that lives on would make copies necessary
  *memory = pages;
  return OT_OK;
}

static void release(ot_device *device, void *memory, int64_t bytes) {
  (void)device;
  munmap(memory, (size_t)bytes);
}

static ot_status allocate_host(ot_device *device, int64_t bytes, void **memory) {
  (void)device;
  *memory = malloc((size_t)bytes);
  OT_CHECK(*memory, OT_ENVIRONMENT, "device: out of memory");
  return OT_OK;
}

static void release_host(ot_device *device, void *memory) {
  (void)device;
  free(memory);
}

static ot_status copy(ot_stream *stream, void *to, const void *from, int64_t bytes,
                      ot_copy_kind kind) {
  (void)stream, (void)kind;
  memcpy(to, from, (size_t)bytes);
  return OT_OK;
}

static ot_status fill(ot_stream *stream, void *memory, unsigned char byte, int64_t bytes) {
  (void)stream;
  memset(memory, byte, (size_t)bytes);
  return OT_OK;
}

// ---- streams and events ----

static ot_status query(ot_stream *stream, bool *done) {
  (void)stream;
  *done = true;
  return OT_OK;
}

static ot_status query_event(const ot_event *event, bool *done) {
  (void)event;
  *done = true;
  return OT_OK;
}

static ot_status open_stream(ot_stream *stream) {
  (void)stream;
  return OT_OK;
}

static void close_stream(ot_stream *stream) { (void)stream; }

static ot_status open_event(ot_event *event) {
  (void)event;
  return OT_OK;
}

static void close_event(ot_event *event) { (void)event; }

static ot_status record(ot_event *event, ot_stream *stream) {
  (void)event, (void)stream;
  return OT_OK;
}

static ot_status wait(ot_stream *stream, const ot_event *event) {
  (void)stream, (void)event;
  return OT_OK;
}

static ot_status elapsed(const ot_event *from, const ot_event *to, double *seconds) {
  (void)from, (void)to;
  *seconds = 0;
  return OT_OK;
}

const ot_device_backend ot_device_cpu = {
    .count = count,
    .open = open_device,
    .bind = open_device,
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
    .synchronize = open_stream,
    .query = query,
    .open_event = open_event,
    .close_event = close_event,
    .record = record,
    .wait = wait,
    .query_event = query_event,
    .elapsed = elapsed,
};
