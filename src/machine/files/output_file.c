// SPDX-License-Identifier: Apache-2.0
// Buffered writes to a descriptor, and resolution of user-given paths.
#include "files/output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "files/disk.h"
#include "host/clock.h"

enum { BUFFER_BYTES = 1 << 18, LINKS_MAX = 40 };

struct ot_output_file {
  char path[OT_PATH_BYTES];     // links resolved, except for a stream
  char partial[OT_PATH_BYTES];  // renamed to `path` at commit; empty for a stream
  uint8_t *buffer;              // [BUFFER_BYTES]
  int64_t buffered;
  int64_t end;     // bytes in the file, excluding the buffer
  int descriptor;  // -1 when closed
};

// ---- resolving paths ----

ot_status ot_output_file_follow(const char *path, char target[OT_PATH_BYTES]) {
  OT_CHECK(strlen(path) + 16 < OT_PATH_BYTES, OT_ENVIRONMENT, "path too long (%s)", path);
  ot_text_format(target, OT_PATH_BYTES, "%s", path);
  for (int i = 0; i < LINKS_MAX; i++) {
    char link[OT_PATH_BYTES];
    const ssize_t length = readlink(target, link, sizeof link - 1);
    // No link, or no file: opening it reports other errors.
    if (length < 0) return OT_OK;
    link[length] = '\0';
    const int64_t before = link[0] == '/' ? 0 : ot_disk_base_name(target) - target;
    OT_CHECK(before + length + 16 < OT_PATH_BYTES, OT_ENVIRONMENT, "path too long (%s)", path);
    ot_text_format(target + before, OT_PATH_BYTES - before, "%s", link);
  }
  return ot_disk_fail("create", path, ELOOP);
}

// Standard output or standard error if it is the file of `info`, else -1.
static int standard_stream(const struct stat *info) {
  for (int descriptor = STDOUT_FILENO; descriptor <= STDERR_FILENO; descriptor++) {
    struct stat own;
    if (fstat(descriptor, &own) != 0) continue;
    if (own.st_dev == info->st_dev && own.st_ino == info->st_ino) return descriptor;
  }
  return -1;
}

bool ot_output_file_is_stdout(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && standard_stream(&info) == STDOUT_FILENO;
}

bool ot_output_file_is_stream(const char *path) {
  struct stat info;
  if (stat(path, &info) != 0) return false;
  return !S_ISREG(info.st_mode) || standard_stream(&info) >= 0;
}

// `flags`: O_NONBLOCK or 0. Returns the descriptor, or -1 with errno.
static int open_stream(const char *path, int flags) {
  struct stat info;
  const int standard = stat(path, &info) == 0 ? standard_stream(&info) : -1;
  return standard >= 0 ? fcntl(standard, F_DUPFD_CLOEXEC, 0)
                       : ot_disk_open_file(path, O_WRONLY | O_NOCTTY | flags);
}

static ot_status open_target(ot_output_file *file, const char *path) {
  file->descriptor = -1;
  OT_CHECK(strlen(path) < OT_PATH_BYTES, OT_ENVIRONMENT, "path too long (%s)", path);
  ot_text_format(file->path, OT_PATH_BYTES, "%s", path);
  file->buffer = malloc(BUFFER_BYTES);
  OT_CHECK(file->buffer, OT_ENVIRONMENT, "out of memory (%s)", path);
  if (ot_output_file_is_stream(path)) {
    file->descriptor = open_stream(path, 0);
    return file->descriptor >= 0 ? OT_OK : ot_disk_fail("create", path, errno);
  }
  OT_TRY(ot_output_file_follow(path, file->path));
  ot_text_format(file->partial, OT_PATH_BYTES, "%s.partial", file->path);
  const int flags = O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW;
  file->descriptor = ot_disk_open_file(file->partial, flags);
  return file->descriptor >= 0 ? OT_OK : ot_disk_fail("create", file->partial, errno);
}

// ---- the file ----

static bool is_stream(const ot_output_file *file) { return file->partial[0] == '\0'; }

ot_status ot_output_file_create(const char *path, ot_output_file **out) {
  *out = NULL;
  ot_output_file *file = calloc(1, sizeof *file);
  OT_CHECK(file, OT_ENVIRONMENT, "out of memory (%s)", path);
  const ot_status status = open_target(file, path);
  if (status != OT_OK) ot_output_file_destroy(&file);
  *out = file;
  return status;
}

ot_status ot_output_file_check(const char *path) {
  ot_output_file *file;
  if (ot_disk_is_directory(path)) return ot_disk_fail("write", path, EISDIR);
  if (ot_output_file_is_stream(path))
    return access(path, W_OK) == 0 ? OT_OK : ot_disk_fail("write", path, errno);
  OT_TRY(ot_output_file_create(path, &file));
  ot_output_file_destroy(&file);
  return OT_OK;
}

void ot_output_file_destroy(ot_output_file **file) {
  ot_output_file *const f = *file;
  if (!f) return;
  if (f->descriptor >= 0) {
    close(f->descriptor);
    if (!is_stream(f)) unlink(f->partial);
  }
  free(f->buffer);
  free(f);
  *file = NULL;
}

const char *ot_output_file_path(const ot_output_file *file) { return file->path; }

int ot_output_file_descriptor(const ot_output_file *file) { return file->descriptor; }

static ot_status write_on(ot_output_file *file, const void *bytes, int64_t length) {
  const uint8_t *from = bytes;
  while (length > 0) {
    const ssize_t done = write(file->descriptor, from, (size_t)length);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return ot_disk_fail("write", file->path, errno);
    from += done;
    length -= done;
  }
  return OT_OK;
}

static ot_status write_at_end(ot_output_file *file, const void *bytes, int64_t length) {
  if (is_stream(file)) return write_on(file, bytes, length);
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

static ot_status close_stream(const ot_output_file *file, int descriptor) {
  return close(descriptor) == 0 ? OT_OK : ot_disk_fail("close", file->path, errno);
}

ot_status ot_output_file_commit(ot_output_file *file) {
  OT_TRY(flush(file));
  const int descriptor = file->descriptor;
  file->descriptor = -1;
  if (is_stream(file)) return close_stream(file, descriptor);
  ot_status status = ot_disk_sync_close(descriptor, file->path);
  if (status == OT_OK) status = ot_disk_rename(file->partial, file->path);
  if (status == OT_OK) return ot_disk_sync_parent(file->path);
  unlink(file->partial);
  return status;
}

// ---- streams whose reader may be missing or hang ----

static ot_status nobody_reads(const char *path, double patience_s) {
  ot_fail(OT_ENVIRONMENT, "cannot write: nobody has read it for %g s (%s)", patience_s, path);
  return ot_fail_hint(OT_ENVIRONMENT, "start the reader first, or name a file");
}

static ot_status open_within(const char *path, double patience_s, int *descriptor) {
  static const struct timespec pause = {.tv_nsec = 10000000};
  const double until_s = ot_clock_s() + patience_s;
  while ((*descriptor = open_stream(path, O_NONBLOCK)) < 0) {
    if (errno != ENXIO) return ot_disk_fail("create", path, errno);
    if (ot_clock_s() >= until_s) return nobody_reads(path, patience_s);
    nanosleep(&pause, NULL);
  }
  return OT_OK;
}

// At most PIPE_BUF bytes, which fit if a pipe has room for any.
static ot_status write_within(int descriptor, const char *path, const char *bytes, ssize_t length,
                              double patience_s) {
  struct pollfd stream = {.fd = descriptor, .events = POLLOUT};
  const int limit_ms = isinf(patience_s) ? -1 : (int)(patience_s * 1e3);
  while (length > 0) {
    if (poll(&stream, 1, limit_ms) == 0) return nobody_reads(path, patience_s);
    const ssize_t done = write(descriptor, bytes, (size_t)length);
    if (done < 0 && errno != EINTR && errno != EAGAIN) return ot_disk_fail("write", path, errno);
    bytes += done > 0 ? done : 0;
    length -= done > 0 ? done : 0;
  }
  return OT_OK;
}

ot_status ot_output_file_pour(int from, const char *path, double patience_s) {
  char piece[PIPE_BUF];
  int descriptor;
  OT_TRY(open_within(path, patience_s, &descriptor));
  ot_status status = OT_OK;
  for (int64_t at = 0; status == OT_OK;) {
    const ssize_t length = pread(from, piece, sizeof piece, at);
    if (length == 0) break;
    at += length;
    status = length < 0 ? ot_disk_fail("read", path, errno)
                        : write_within(descriptor, path, piece, length, patience_s);
  }
  const bool closed = close(descriptor) == 0;
  return status != OT_OK || closed ? status : ot_disk_fail("close", path, errno);
}

ot_status ot_output_file_replace(const char *path, const void *bytes, int64_t length) {
  ot_output_file *file;
  OT_TRY(ot_output_file_create(path, &file));
  ot_status status = ot_output_file_write(file, bytes, length);
  if (status == OT_OK) status = ot_output_file_commit(file);
  ot_output_file_destroy(&file);
  return status;
}
