// SPDX-License-Identifier: Apache-2.0
// POSIX files; failures name the path.
#include "files/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "base/text_builder.h"

enum { CALL_BYTES_MAX = 1 << 26, FLUSH_BYTES = 1 << 20 };

ot_status ot_disk_fail(const char *action, const char *path, int error) {
  ot_fail(OT_ENVIRONMENT, "cannot %s: %s (%s)", action, strerror(error), path);
  const bool full = error == ENOSPC || error == EDQUOT;
  if (!full && error != EFBIG) return OT_ENVIRONMENT;
  return ot_fail_hint(
      OT_ENVIRONMENT, "%s; what was saved before is untouched",
      full ? "make room on that file system" : "raise the limit on the size of files (ulimit -f)");
}

int ot_disk_open_file(const char *path, int flags) {
  int file;
  do {
    file = open(path, flags | O_CLOEXEC, 0666);
  } while (file < 0 && errno == EINTR);
  return file;
}

// The kernel releases the descriptor even if a signal interrupts the call.
static int close_file(int file) {
  const int result = close(file);
  return result != 0 && errno == EINTR ? 0 : result;
}

ot_status ot_disk_create_directory(const char *path) {
  int result;
  do {
    result = mkdir(path, 0777);
  } while (result != 0 && errno == EINTR);
  return result == 0 ? OT_OK : ot_disk_fail("create directory", path, errno);
}

ot_status ot_disk_rename(const char *from, const char *to) {
  int result;
  do {
    result = rename(from, to);
  } while (result != 0 && errno == EINTR);
  return result == 0 ? OT_OK : ot_disk_fail("rename into place", to, errno);
}

// Removes a name with `call`, unlink or rmdir.
static ot_status remove_name(int (*call)(const char *), const char *path) {
  int result;
  do {
    result = call(path);
  } while (result != 0 && errno == EINTR);
  return result == 0 ? OT_OK : ot_disk_fail("remove", path, errno);
}

char *ot_disk_join(ot_arena *arena, const char *directory, const char *name) {
  const int64_t length = ot_text_length(directory);
  const char *const separator = length > 0 && directory[length - 1] == '/' ? "" : "/";
  return ot_arena_format(arena, "%s%s%s", directory, separator, name);
}

// An absolute path without ".", ".." and empty names; "" for the root.
static char *plain_path(ot_arena *arena, const char *path) {
  char *const plain = ot_arena_take(arena, ot_text_length(path) + 2);
  char *end = plain;
  for (const char *at = path, *next; *at; at = next) {
    while (*at == '/') at++;
    next = at + strcspn(at, "/");
    const int64_t length = next - at;
    const bool up = length == 2 && at[0] == '.' && at[1] == '.';
    if (length == 0 || (length == 1 && at[0] == '.')) continue;
    while (up && end > plain && *--end != '/') continue;
    if (up) continue;
    *end++ = '/';
    memcpy(end, at, (size_t)length);
    end += length;
  }
  *end = '\0';
  return plain;
}

const char *ot_disk_path_from(ot_arena *arena, const char *path, const char *directory) {
  const char *const to = plain_path(arena, path), *const from = plain_path(arena, directory);
  int64_t shared = 0;  // length of the leading names that both have
  for (int64_t i = 0; to[i] && to[i] == from[i];)
    if (strchr("/", to[++i]) && strchr("/", from[i])) shared = i;  // or the end, which it finds too
  if (shared == 0) return path;
  ot_text_builder text = {.arena = arena};
  for (const char *at = from + shared; *at; at++)
    if (*at == '/') ot_text_put(&text, "../");
  ot_text_put(&text, to[shared] == '/' ? to + shared + 1 : ".");
  return ot_text_builder_text(&text);
}

const char *ot_disk_base_name(const char *path) {
  const char *const slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

const char *ot_disk_own_program(ot_arena *arena) {
  char path[OT_PATH_BYTES];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  return length > 0 ? ot_arena_text(arena, path, length) : NULL;
}

bool ot_disk_is_file(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

bool ot_disk_is_directory(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

ot_status ot_disk_free_bytes(const char *path, int64_t *bytes) {
  struct statvfs info;
  if (statvfs(path, &info) != 0) return ot_disk_fail("ask for free space", path, errno);
  *bytes = (int64_t)info.f_bavail * (int64_t)info.f_frsize;
  return OT_OK;
}

ot_status ot_disk_size(int file, const char *path, int64_t limit, int64_t *bytes) {
  struct stat info;
  if (fstat(file, &info) != 0) return ot_disk_fail("read", path, errno);
  OT_CHECK(S_ISREG(info.st_mode), OT_ENVIRONMENT, "not a regular file (%s)", path);
  OT_CHECK(info.st_size <= limit, OT_ENVIRONMENT, "%lld bytes; allowed: up to %lld (%s)",
           (long long)info.st_size, (long long)limit, path);
  *bytes = info.st_size;
  return OT_OK;
}

static ot_status open_regular(const char *path, int flags, int *file) {
  *file = ot_disk_open_file(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | flags);
  if (*file < 0 && errno == ELOOP && flags == O_NOFOLLOW)
    return ot_fail(OT_ENVIRONMENT, "not a regular file but a link (%s)", path);
  if (*file < 0) return ot_disk_fail("read", path, errno);
  int64_t bytes = 0;
  const ot_status status = ot_disk_size(*file, path, INT64_MAX, &bytes);
  if (status == OT_OK) return OT_OK;
  close(*file);
  *file = -1;
  return status;
}

ot_status ot_disk_open(const char *path, int *file) { return open_regular(path, 0, file); }

ot_status ot_disk_open_own(const char *path, int *file) {
  return open_regular(path, O_NOFOLLOW, file);
}

typedef struct opened_file {
  const char *path;
  int file;
} opened_file;

// Reads all of the file and closes it.
static ot_status read_close(ot_arena *arena, opened_file opened, int64_t limit, char **text,
                            int64_t *bytes) {
  const int file = opened.file;
  const char *const path = opened.path;
  ot_status status = ot_disk_size(file, path, limit, bytes);
  if (status == OT_OK) {
    *text = ot_arena_take(arena, *bytes + 1);
    status = ot_disk_read_at(file, path, 0, *text, *bytes);
  }
  close(file);
  return status;
}

ot_status ot_disk_read(ot_arena *arena, const char *path, int64_t limit, char **text,
                       int64_t *bytes) {
  opened_file opened = {.path = path};
  OT_TRY(ot_disk_open(path, &opened.file));
  return read_close(arena, opened, limit, text, bytes);
}

ot_status ot_disk_read_own(ot_arena *arena, const char *path, int64_t limit, char **text,
                           int64_t *bytes) {
  opened_file opened = {.path = path};
  OT_TRY(ot_disk_open_own(path, &opened.file));
  return read_close(arena, opened, limit, text, bytes);
}

ot_status ot_disk_read_line(ot_arena *arena, const char *path, const char **line) {
  char text[OT_DISK_LINE_BYTES];
  FILE *const file = fopen(path, "r");
  OT_CHECK(file, OT_ENVIRONMENT, "cannot open %s: %s", path, strerror(errno));
  const bool read = fgets(text, sizeof text, file) != NULL;
  fclose(file);
  const size_t length = read ? strcspn(text, "\r\n") : 0;
  OT_CHECK(length > 0 && length < sizeof text - 1, OT_USAGE,
           "%s: the first line does not have 1 to %d characters", path, OT_DISK_LINE_BYTES - 2);
  *line = ot_arena_text(arena, text, (int64_t)length);
  return OT_OK;
}

const char *ot_disk_exposure(ot_arena *arena, const char *path) {
  struct stat found;
  if (stat(path, &found) != 0 || (found.st_mode & 077) == 0) return NULL;
  const int mode = (int)(found.st_mode & 0777);
  return ot_arena_format(arena, "other users may %s %s (mode %d%d%d); `chmod 600 %s` ends that",
                         mode & 022 ? "write" : "read", path, mode >> 6, mode >> 3 & 7, mode & 7,
                         path);
}

ot_status ot_disk_write(const char *path, const void *data, int64_t bytes) {
  const int file = ot_disk_open_file(path, O_WRONLY | O_CREAT | O_TRUNC);
  if (file < 0) return ot_disk_fail("create", path, errno);
  const ot_status status = ot_disk_write_at(file, path, 0, data, bytes);
  if (status == OT_OK) return ot_disk_sync_close(file, path);
  close(file);
  return status;
}

ot_status ot_disk_read_at(int file, const char *path, int64_t offset, void *data, int64_t bytes) {
  unsigned char *to = data;
  while (bytes > 0) {
    const size_t want = (size_t)(bytes < CALL_BYTES_MAX ? bytes : CALL_BYTES_MAX);
    const ssize_t done = pread(file, to, want, offset);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return ot_disk_fail("read", path, errno);
    OT_CHECK(done > 0, OT_ENVIRONMENT, "file ends at byte %lld, %lld more expected (%s)",
             (long long)offset, (long long)bytes, path);
    to += done;
    offset += done;
    bytes -= done;
  }
  return OT_OK;
}

ot_status ot_disk_write_at(int file, const char *path, int64_t offset, const void *data,
                           int64_t bytes) {
  const unsigned char *from = data;
  while (bytes > 0) {
    const size_t want = (size_t)(bytes < CALL_BYTES_MAX ? bytes : CALL_BYTES_MAX);
    const ssize_t done = pwrite(file, from, want, offset);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return ot_disk_fail("write", path, done < 0 ? errno : ENOSPC);
    // Large files are flushed while they are written: the final fsync is short, and ranks that wait
    // for a writer see progress. A file system without this syncs at the end.
    if (done >= FLUSH_BYTES) {
      (void)sync_file_range(file, offset, done, SYNC_FILE_RANGE_WRITE);
    }
    from += done;
    offset += done;
    bytes -= done;
  }
  return OT_OK;
}

ot_status ot_disk_whole_lines(int file, const char *path, int64_t *length) {
  enum { PIECE = 4096 };
  char piece[PIECE];
  OT_TRY(ot_disk_size(file, path, INT64_MAX, length));
  while (*length > 0) {
    const int64_t bytes = *length < PIECE ? *length : PIECE;
    OT_TRY(ot_disk_read_at(file, path, *length - bytes, piece, bytes));
    for (int64_t i = bytes; i > 0; i--, (*length)--)
      if (piece[i - 1] == '\n') return OT_OK;
  }
  return OT_OK;
}

ot_status ot_disk_close(int file, const char *path) {
  return close_file(file) == 0 ? OT_OK : ot_disk_fail("close", path, errno);
}

ot_status ot_disk_sync_close(int file, const char *path) {
  const int error = fsync(file) == 0 ? 0 : errno;
  const ot_status closed = ot_disk_close(file, path);
  return error != 0 ? ot_disk_fail("sync", path, error) : closed;
}

// Another process may create it first.
static ot_status make_directory(const char *path) {
  const ot_status status = ot_disk_create_directory(path);
  return status == OT_OK || ot_disk_is_directory(path) ? OT_OK : status;
}

ot_status ot_disk_make_directory(const char *path) {
  char prefix[OT_PATH_BYTES];
  const int64_t length = ot_text_length(path);
  OT_CHECK(length > 0 && length < OT_PATH_BYTES, OT_ENVIRONMENT, "bad directory name (%s)", path);
  for (int64_t i = 1; i <= length; i++) {
    if (path[i] != '/' && path[i] != '\0') continue;
    ot_text_format(prefix, sizeof prefix, "%.*s", (int)i, path);
    if (!ot_disk_is_directory(prefix)) OT_TRY(make_directory(prefix));
  }
  return OT_OK;
}

// EINVAL: network file systems that make names durable themselves refuse to sync a directory.
ot_status ot_disk_sync_directory(const char *path) {
  const int directory = ot_disk_open_file(path, O_RDONLY | O_DIRECTORY);
  if (directory < 0) return ot_disk_fail("open directory", path, errno);
  const int error = fsync(directory) == 0 ? 0 : errno;
  const ot_status closed = ot_disk_close(directory, path);
  return error != 0 && error != EINVAL ? ot_disk_fail("sync", path, error) : closed;
}

static void find_parent(const char *path, char parent[OT_PATH_BYTES]) {
  const char *const slash = strrchr(path, '/');
  const int length = slash == path ? 1 : (int)(slash - path);
  if (slash == NULL)
    ot_text_format(parent, OT_PATH_BYTES, ".");
  else
    ot_text_format(parent, OT_PATH_BYTES, "%.*s", length, path);
}

ot_status ot_disk_sync_parent(const char *path) {
  char parent[OT_PATH_BYTES];
  find_parent(path, parent);
  return ot_disk_sync_directory(parent);
}

// To open a directory makes a client of NFS ask the server whether it has changed.
bool ot_disk_wait_late(const char *path, int *tries) {
  char parent[OT_PATH_BYTES];
  const int64_t wait_ms = 1LL << *tries;  // after 1 + 2 + ... = wait_ms - 1
  if (2 * wait_ms - 1 > OT_DISK_LATE_MS) return false;
  (*tries)++;
  const struct timespec wait = {.tv_sec = wait_ms / 1000, .tv_nsec = wait_ms % 1000 * 1000000};
  nanosleep(&wait, NULL);
  find_parent(path, parent);
  const int directory = ot_disk_open_file(parent, O_RDONLY | O_DIRECTORY);
  if (directory >= 0) close(directory);
  return true;
}

static ot_status list_open(ot_arena *arena, DIR *directory, const char *path,
                           ot_disk_names *names) {
  int64_t capacity = 0;
  while (true) {
    errno = 0;
    const struct dirent *const entry = readdir(directory);
    if (entry == NULL) break;
    const char *const name = entry->d_name;
    if (ot_text_equal(name, ".") || ot_text_equal(name, "..")) continue;
    names->name = ot_arena_grow(arena, names->name, names->count, &capacity, sizeof *names->name);
    names->name[names->count++] = ot_arena_text(arena, name, ot_text_length(name));
  }
  return errno == 0 ? OT_OK : ot_disk_fail("list directory", path, errno);
}

ot_status ot_disk_list(ot_arena *arena, const char *path, ot_disk_names *names) {
  *names = (ot_disk_names){0};
  DIR *const directory = opendir(path);
  if (directory == NULL)
    return errno == ENOENT ? OT_OK : ot_disk_fail("list directory", path, errno);
  const ot_status status = list_open(arena, directory, path, names);
  closedir(directory);
  return status;
}

static ot_status remove_entries(DIR *directory, const char *path) {
  for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
    if (ot_text_equal(entry->d_name, ".") || ot_text_equal(entry->d_name, "..")) continue;
    char child[OT_PATH_BYTES];
    const int64_t length = ot_text_length(path) + ot_text_length(entry->d_name) + 2;
    OT_CHECK(length < OT_PATH_BYTES, OT_ENVIRONMENT, "path too long (%s/%s)", path, entry->d_name);
    ot_text_format(child, sizeof child, "%s/%s", path, entry->d_name);
    OT_TRY(ot_disk_remove(child));
  }
  return OT_OK;
}

ot_status ot_disk_remove(const char *path) {
  struct stat info;
  if (lstat(path, &info) != 0) return errno == ENOENT ? OT_OK : ot_disk_fail("remove", path, errno);
  if (!S_ISDIR(info.st_mode)) return remove_name(unlink, path);
  DIR *const directory = opendir(path);
  if (directory == NULL) return ot_disk_fail("remove", path, errno);
  const ot_status status = remove_entries(directory, path);
  closedir(directory);
  OT_TRY(status);
  return remove_name(rmdir, path);
}
