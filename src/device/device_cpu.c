// SPDX-License-Identifier: Apache-2.0
// The CPU as a device: anonymous pages (huge pages where available), and streams that run work when
// it is queued.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "device/device.h"

struct ot_device {
  ot_backend kind;
};

struct ot_stream {
  ot_device *device;
};

ot_status ot_device_create(ot_backend kind, ot_device **device) {
  *device = calloc(1, sizeof **device);
  OT_CHECK(*device, OT_ENVIRONMENT, "device: out of memory");
  (*device)->kind = kind;
  return OT_OK;
}

void ot_device_destroy(ot_device **device) {
  if (!device) return;
  free(*device);
  *device = NULL;
}

ot_status ot_device_allocate(ot_device *device, int64_t bytes, void **memory) {
  (void)device;
  const size_t length = bytes > 0 ? (size_t)bytes : 1;
  void *const pages = mmap(NULL, length, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  OT_CHECK(pages != MAP_FAILED, OT_ENVIRONMENT, "device: cannot get %lld bytes of memory",
           (long long)bytes);
  madvise(pages, length, MADV_HUGEPAGE);
  *memory = pages;
  return OT_OK;
}

void ot_device_release(ot_device *device, void **memory, int64_t bytes) {
  (void)device;
  if (*memory) munmap(*memory, bytes > 0 ? (size_t)bytes : 1);
  *memory = NULL;
}

void ot_device_write(ot_device *device, void *memory, int64_t offset, const void *from,
                     int64_t bytes) {
  (void)device;
  if (bytes > 0) memcpy((char *)memory + offset, from, (size_t)bytes);
}

void ot_device_read(ot_device *device, const void *memory, int64_t offset, void *to,
                    int64_t bytes) {
  (void)device;
  if (bytes > 0) memcpy(to, (const char *)memory + offset, (size_t)bytes);
}

void ot_device_fill(ot_device *device, void *memory, int64_t offset, unsigned char byte,
                    int64_t bytes) {
  (void)device;
  if (bytes > 0) memset((char *)memory + offset, byte, (size_t)bytes);
}

ot_status ot_stream_create(ot_device *device, ot_stream **stream) {
  *stream = calloc(1, sizeof **stream);
  OT_CHECK(*stream, OT_ENVIRONMENT, "device: out of memory");
  (*stream)->device = device;
  return OT_OK;
}

void ot_stream_destroy(ot_stream **stream) {
  if (!stream) return;
  free(*stream);
  *stream = NULL;
}

void ot_stream_synchronize(ot_stream *stream) { (void)stream; }
