// SPDX-License-Identifier: Apache-2.0
// The file's state is compared after each read: what changed before or during the read is noticed.
#include "files/steady_file.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files/disk.h"

ot_status ot_steady_file_open(const char *path, ot_steady_file *file) {
  struct stat info;
  *file = (ot_steady_file){.path = path, .descriptor = -1};
  OT_TRY(ot_disk_open(path, &file->descriptor));
  if (fstat(file->descriptor, &info) != 0) {
    const int error = errno;
    ot_steady_file_close(file);
    return ot_disk_fail("read", path, error);
  }
  file->bytes = info.st_size;
  file->modified_s = info.st_mtim.tv_sec;
  file->modified_ns = info.st_mtim.tv_nsec;
  return OT_OK;
}

// The change of the file; null: none.
static const char *change_of(const ot_steady_file *file, const struct stat *now) {
  if (now->st_size < file->bytes) return "was cut";
  if (now->st_nlink == 0) return "was removed or replaced";
  const bool same = now->st_size == file->bytes && now->st_mtim.tv_sec == file->modified_s &&
                    now->st_mtim.tv_nsec == file->modified_ns;
  return same ? NULL : "was written to";
}

static ot_status check(const ot_steady_file *file, int64_t offset) {
  struct stat now;
  if (fstat(file->descriptor, &now) != 0) return ot_disk_fail("read", file->path, errno);
  const char *const change = change_of(file, &now);
  if (!change) return OT_OK;
  ot_fail(OT_ENVIRONMENT,
          "%s: %s after it was opened, noticed at byte %lld (%lld bytes then, %lld now)",
          file->path, change, (long long)offset, (long long)file->bytes, (long long)now.st_size);
  return ot_fail_hint(OT_ENVIRONMENT, "restore this file and start again");
}

ot_status ot_steady_file_read(const ot_steady_file *file, int64_t offset, void *data,
                              int64_t bytes) {
  const ot_status status = ot_disk_read_at(file->descriptor, file->path, offset, data, bytes);
  // A file that was cut is both a short read and a change, of which the latter says more.
  OT_TRY(check(file, offset));
  return status;
}

void ot_steady_file_close(ot_steady_file *file) {
  if (file->descriptor >= 0) close(file->descriptor);
  file->descriptor = -1;
}
