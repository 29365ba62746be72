// SPDX-License-Identifier: Apache-2.0
// Buffered writes to a descriptor.
#include "train/output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "train/disk.h"

enum { BUFFER_BYTES = 1 << 18 };

struct ot_output_file {
  char path[OT_PATH_BYTES];
  char partial[OT_PATH_BYTES];
  uint8_t *buffer;  // [BUFFER_BYTES]
  int64_t buffered;
  int64_t end;     // bytes in the file, the buffer not counted
  int descriptor;  // -1 when closed
};

static ot_status open_partial(ot_output_file *file, const char *path) {
  file->descriptor = -1;
  OT_CHECK(strlen(path) + 16 < OT_PATH_BYTES, OT_ENVIRONMENT, "path too long (%s)", path);
  ot_text_format(file->path, OT_PATH_BYTES, "%s", path);
  ot_text_format(file->partial, OT_PATH_BYTES, "%s.partial", path);
  file->buffer = malloc(BUFFER_BYTES);
  OT_CHECK(file->buffer, OT_ENVIRONMENT, "out of memory (%s)", path);
  file->descriptor = open(file->partial, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  return file->descriptor >= 0 ? OT_OK : ot_disk_fail("create", file->partial, errno);
}

ot_status ot_output_file_create(const char *path, ot_output_file **out) {
  *out = NULL;
  ot_output_file *file = calloc(1, sizeof *file);
  OT_CHECK(file, OT_ENVIRONMENT, "out of memory (%s)", path);
  const ot_status status = open_partial(file, path);
  if (status != OT_OK) ot_output_file_destroy(&file);
  *out = file;
  return status;
}

void ot_output_file_destroy(ot_output_file **file) {
  ot_output_file *const f = *file;
  if (!f) return;
  if (f->descriptor >= 0) {
    close(f->descriptor);
    unlink(f->partial);
  }
  free(f->buffer);
  free(f);
  *file = NULL;
}

static ot_status write_at_end(ot_output_file *file, const void *bytes, int64_t length) {
  OT_TRY(ot_disk_write_at(file->descriptor, file->path, file->end, bytes, length));
  file->end += length;
  return OT_OK;
}

static ot_status flush(ot_output_file *file) {
  OT_TRY(write_at_end(file, file->buffer, file->buffered));
  file->buffered = 0;
  return OT_OK;
}

ot_status ot_output_file_write(ot_output_file *file, const void *bytes, int64_t length) {
  if (length == 0) return OT_OK;
  if (file->buffered + length > BUFFER_BYTES) OT_TRY(flush(file));
  if (length >= BUFFER_BYTES) return write_at_end(file, bytes, length);
  memcpy(file->buffer + file->buffered, bytes, (size_t)length);
  file->buffered += length;
  return OT_OK;
}

ot_status ot_output_file_write_at(ot_output_file *file, int64_t offset, const void *bytes,
                                  int64_t length) {
  OT_TRY(flush(file));
  OT_ASSERT(offset >= 0 && offset + length <= file->end);
  return ot_disk_write_at(file->descriptor, file->path, offset, bytes, length);
}

ot_status ot_output_file_read_at(ot_output_file *file, int64_t offset, void *bytes,
                                 int64_t length) {
  OT_TRY(flush(file));
  return ot_disk_read_at(file->descriptor, file->partial, offset, bytes, length);
}

ot_status ot_output_file_commit(ot_output_file *file) {
  OT_TRY(flush(file));
  const int descriptor = file->descriptor;
  file->descriptor = -1;
  const ot_status status = ot_disk_sync_close(descriptor, file->path);
  if (status == OT_OK && rename(file->partial, file->path) == 0) return OT_OK;
  const int error = errno;
  unlink(file->partial);
  return status != OT_OK ? status : ot_disk_fail("rename into place", file->path, error);
}
