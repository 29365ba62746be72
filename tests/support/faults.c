// SPDX-License-Identifier: Apache-2.0
// The program's definitions of these functions replace those of the C library, which are called
// through the dynamic linker.
#include "support/faults.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static _Atomic int calls;  // ranks that are threads save together
static int failing_call, failing_error;
static long write_limit;

void faults_arm(int call, int error) {
  calls = 0;
  failing_call = call;
  failing_error = error;
}

void faults_crash(int call) { faults_arm(call, 0); }

int faults_count(void) { return calls; }

void faults_short_writes(long bytes) { write_limit = bytes; }

enum { EVENTS_MAX = 4096 };
static faults_event events[EVENTS_MAX];
static int num_events;
static bool watching;

void faults_watch(void) {
  num_events = 0;
  watching = true;
}

const faults_event *faults_events(int *count) {
  watching = false;
  *count = num_events;
  return events;
}

static void note(faults_kind kind, const char *path) {
  if (!watching || num_events == EVENTS_MAX) return;
  faults_event *const event = &events[num_events++];
  event->kind = kind;
  snprintf(event->path, sizeof event->path, "%s", path);
}

static void note_file(faults_kind kind, int file) {
  char link[64], path[512];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  path[length > 0 ? length : 0] = '\0';
  note(kind, path);
}

static bool fails(void) {
  if (++calls != failing_call) return false;
  if (failing_error == 0) _exit(0);
  errno = failing_error;
  return true;
}

// The POSIX method to get a function from dlsym without a cast that ISO C forbids.
#define REAL(type, name) \
  static type real;      \
  if (real == NULL) *(void **)(&real) = dlsym(RTLD_NEXT, (name))

typedef int (*open_function)(const char *, int, ...);
typedef ssize_t (*write_function)(int, const void *, size_t, off_t);
typedef int (*allocate_function)(int, int, off_t, off_t);
typedef int (*file_function)(int);
typedef int (*rename_function)(const char *, const char *);
typedef int (*rename_at_function)(int, const char *, int, const char *, unsigned);
typedef int (*mkdir_function)(const char *, mode_t);
typedef int (*path_function)(const char *);

int open(const char *path, int flags, ...) {
  REAL(open_function, "open");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  if (fails()) return -1;
  if ((flags & O_CREAT) != 0) note(FAULTS_CREATE, path);
  return real(path, flags, mode);
}

ssize_t pwrite(int file, const void *data, size_t bytes, off_t offset) {
  REAL(write_function, "pwrite");
  if (fails()) return -1;
  note_file(FAULTS_WRITE, file);
  const size_t part = write_limit > 0 && bytes > (size_t)write_limit ? (size_t)write_limit : bytes;
  return real(file, data, part, offset);
}

int fallocate(int file, int mode, off_t offset, off_t bytes) {
  REAL(allocate_function, "fallocate");
  return fails() ? -1 : real(file, mode, offset, bytes);
}

int fsync(int file) {
  REAL(file_function, "fsync");
  if (fails()) return -1;
  note_file(FAULTS_SYNC, file);
  return real(file);
}

// Closes the descriptor even if close reports an error.
int close(int file) {
  REAL(file_function, "close");
  const bool failed = fails();
  const int error = errno;
  const int result = real(file);
  if (!failed) return result;
  errno = error;
  return -1;
}

int rename(const char *from, const char *to) {
  REAL(rename_function, "rename");
  if (fails()) return -1;
  note(FAULTS_RENAME, from);
  return real(from, to);
}

int renameat2(int from_directory, const char *from, int to_directory, const char *to,
              unsigned flags) {
  REAL(rename_at_function, "renameat2");
  if (fails()) return -1;
  note(FAULTS_RENAME, from);
  return real(from_directory, from, to_directory, to, flags);
}

int mkdir(const char *path, mode_t mode) {
  REAL(mkdir_function, "mkdir");
  return fails() ? -1 : real(path, mode);
}

int unlink(const char *path) {
  REAL(path_function, "unlink");
  return fails() ? -1 : real(path);
}
