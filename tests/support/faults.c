// SPDX-License-Identifier: Apache-2.0
// The program's own definitions of these functions win over the C library's, which are reached
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

static int calls, failing_call, failing_error;
static long write_limit;

void faults_arm(int call, int error) {
  calls = 0;
  failing_call = call;
  failing_error = error;
}

void faults_crash(int call) { faults_arm(call, 0); }

int faults_count(void) { return calls; }

void faults_short_writes(long bytes) { write_limit = bytes; }

static bool fails(void) {
  if (++calls != failing_call) return false;
  if (failing_error == 0) _exit(0);
  errno = failing_error;
  return true;
}

// POSIX's way to get a function from dlsym without a cast that ISO C forbids.
#define REAL(type, name) \
  static type real;      \
  if (real == NULL) *(void **)(&real) = dlsym(RTLD_NEXT, (name))

typedef int (*open_function)(const char *, int, ...);
typedef ssize_t (*write_function)(int, const void *, size_t, off_t);
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
  return fails() ? -1 : real(path, flags, mode);
}

ssize_t pwrite(int file, const void *data, size_t bytes, off_t offset) {
  REAL(write_function, "pwrite");
  if (fails()) return -1;
  const size_t part = write_limit > 0 && bytes > (size_t)write_limit ? (size_t)write_limit : bytes;
  return real(file, data, part, offset);
}

int fsync(int file) {
  REAL(file_function, "fsync");
  return fails() ? -1 : real(file);
}

// The descriptor is gone even when close reports an error.
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
  return fails() ? -1 : real(from, to);
}

int renameat2(int from_directory, const char *from, int to_directory, const char *to,
              unsigned flags) {
  REAL(rename_at_function, "renameat2");
  return fails() ? -1 : real(from_directory, from, to_directory, to, flags);
}

int mkdir(const char *path, mode_t mode) {
  REAL(mkdir_function, "mkdir");
  return fails() ? -1 : real(path, mode);
}

int unlink(const char *path) {
  REAL(path_function, "unlink");
  return fails() ? -1 : real(path);
}
