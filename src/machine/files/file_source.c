// SPDX-License-Identifier: Apache-2.0
#include "files/file_source.h"

#include <errno.h>
#include <sys/stat.h>

#include "files/disk.h"

ot_status ot_file_measure(const ot_file_source *source, const char *path, int64_t *bytes) {
  struct stat info;
  if (source) return source->measure(source->context, path, bytes);
  const int found = lstat(path, &info);
  if (found != 0 && errno != ENOENT && errno != ENOTDIR) return ot_disk_fail("read", path, errno);
  *bytes = found != 0 ? OT_FILE_ABSENT : S_ISREG(info.st_mode) ? info.st_size : OT_FILE_OTHER;
  return OT_OK;
}

bool ot_file_exists(const ot_file_source *source, const char *path) {
  int64_t bytes = OT_FILE_ABSENT;
  return ot_file_measure(source, path, &bytes) == OT_OK && bytes >= 0;
}

ot_status ot_file_read(const ot_file_source *source, ot_arena *arena, const char *path,
                       int64_t limit, ot_file_text *out) {
  if (!source) return ot_disk_read_own(arena, path, limit, &out->text, &out->bytes);
  OT_TRY(source->measure(source->context, path, &out->bytes));
  OT_CHECK(out->bytes >= 0, OT_ENVIRONMENT, "not a regular file (%s)", path);
  OT_CHECK(out->bytes <= limit, OT_ENVIRONMENT, "%lld bytes; allowed: up to %lld (%s)",
           (long long)out->bytes, (long long)limit, path);
  out->text = ot_arena_take(arena, out->bytes + 1);
  out->text[out->bytes] = '\0';
  return source->read(source->context, path, 0, out->text, out->bytes);
}
