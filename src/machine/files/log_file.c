// SPDX-License-Identifier: Apache-2.0
// Before each piece, the file is compared with what its path names: a missing or other file is
// opened again, a shorter one is continued at its end.
#include "files/log_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "files/disk.h"

enum { NEWS_BYTES = OT_PATH_BYTES + 512 };

struct ot_log_file {
  char path[OT_PATH_BYTES];
  int file;        // -1: none
  int64_t length;  // bytes of complete pieces
  char *head;
  int64_t head_bytes;
  int64_t lost;          // pieces
  int64_t lost_in_turn;  // since the last one that was written
  bool was_read;         // the news were read
  char news[NEWS_BYTES];
};

// ---- news ----

static void set_news(ot_log_file *log, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void set_news(ot_log_file *log, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  ot_text_format_list(log->news, sizeof log->news, format, arguments);
  va_end(arguments);
  log->was_read = false;
}

const char *ot_log_file_news(ot_log_file *log) {
  const bool known = log->was_read || log->news[0] == '\0';
  log->was_read = true;
  return known ? NULL : log->news;
}

int64_t ot_log_file_lost(const ot_log_file *log) { return log->lost; }

// The failure recorded last, which is not one of the caller.
static void count_loss(ot_log_file *log) {
  if (log->lost_in_turn++ == 0)
    set_news(log, "warning: %s; what is not written is counted, and the run goes on",
             ot_fail_message());
  log->lost++;
}

// ---- the file ----

static ot_status open_file(ot_log_file *log, int flags) {
  if (log->file >= 0) close(log->file);
  log->file = ot_disk_open_file(log->path, O_RDWR | O_NONBLOCK | flags);
  return log->file >= 0 ? OT_OK : ot_disk_fail("create", log->path, errno);
}

// Continues at the end of what the file has, or anew where that is no place to continue.
static ot_status find_end(ot_log_file *log) {
  log->length = 0;
  if (log->head_bytes == 0) OT_TRY(ot_disk_whole_lines(log->file, log->path, &log->length));
  return ftruncate(log->file, log->length) == 0 ? OT_OK : ot_disk_fail("cut", log->path, errno);
}

// After a failure, which may be one of the descriptor.
static ot_status open_again(ot_log_file *log) {
  struct stat own;
  OT_TRY(open_file(log, O_CREAT));
  const bool whole = fstat(log->file, &own) == 0 && own.st_size >= log->length;
  return whole ? OT_OK : find_end(log);
}

// Compares the file at the path with that of the descriptor. Another failure of stat changes
// nothing: the write reports it.
static ot_status find_file(ot_log_file *log) {
  struct stat named, own;
  if (log->file < 0 || log->lost_in_turn > 0) return open_again(log);
  const bool gone = stat(log->path, &named) != 0 && errno == ENOENT;
  if (!gone && (fstat(log->file, &own) != 0 || !S_ISREG(own.st_mode))) return OT_OK;
  if (gone || named.st_ino != own.st_ino || named.st_dev != own.st_dev) {
    OT_TRY(open_file(log, O_CREAT));
    OT_TRY(find_end(log));
    set_news(log, "warning: %s was %s during the run; it goes on in a new file", log->path,
             gone ? "removed" : "replaced");
  } else if (own.st_size < log->length) {
    OT_TRY(find_end(log));
    set_news(log, "warning: %s was cut to %lld bytes during the run; it goes on after them",
             log->path, (long long)log->length);
  }
  return OT_OK;
}

static ot_status write_piece(ot_log_file *log, const void *piece, int64_t bytes) {
  const ot_status status = ot_disk_write_at(log->file, log->path, log->length, piece, bytes);
  if (status == OT_OK)
    log->length += bytes;
  else
    (void)!ftruncate(log->file, log->length);
  return status;
}

static ot_status append(ot_log_file *log, const void *piece, int64_t bytes) {
  OT_TRY(find_file(log));
  if (log->length == 0 && log->head_bytes > 0) OT_TRY(write_piece(log, log->head, log->head_bytes));
  return write_piece(log, piece, bytes);
}

void ot_log_file_append(ot_log_file *log, const void *piece, int64_t bytes) {
  if (append(log, piece, bytes) != OT_OK) {
    count_loss(log);
    return;
  }
  if (log->lost_in_turn > 0)
    set_news(log, "warning: %s is written again; %lld of its lines are lost", log->path,
             (long long)log->lost_in_turn);
  log->lost_in_turn = 0;
}

void ot_log_file_sync(ot_log_file *log) {
  if (log->file < 0 || fsync(log->file) == 0) return;
  set_news(log, "warning: cannot sync %s: %s; the run goes on", log->path, strerror(errno));
}

// ---- life ----

static ot_status begin(ot_log_file *log, int flags, int64_t length) {
  OT_TRY(open_file(log, flags));
  log->length = length;
  if (ftruncate(log->file, length) != 0) return ot_disk_fail("cut", log->path, errno);
  if (log->head_bytes > 0 && length == 0) return write_piece(log, log->head, log->head_bytes);
  return OT_OK;
}

ot_status ot_log_file_create(const ot_log_request *request, int64_t length, ot_log_file **out) {
  ot_log_file *const log = calloc(1, sizeof *log);
  *out = log;
  OT_CHECK(log, OT_ENVIRONMENT, "out of memory (%s)", request->path);
  ot_text_format(log->path, sizeof log->path, "%s", request->path);
  log->file = -1;
  log->head_bytes = request->head_bytes;
  log->head = malloc((size_t)request->head_bytes + 1);
  ot_status status = log->head ? OT_OK : ot_fail(OT_ENVIRONMENT, "out of memory (%s)", log->path);
  if (log->head && log->head_bytes > 0) memcpy(log->head, request->head, (size_t)log->head_bytes);
  if (status == OT_OK) status = begin(log, request->flags, length);
  if (status != OT_OK) ot_log_file_destroy(out);
  return status;
}

void ot_log_file_destroy(ot_log_file **log) {
  if (*log == NULL) return;
  if ((*log)->file >= 0) close((*log)->file);
  free((*log)->head);
  free(*log);
  *log = NULL;
}
