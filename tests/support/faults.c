// SPDX-License-Identifier: Apache-2.0
// The program's definitions of these functions replace those of the C library, which are called
// through the dynamic linker.
#include "support/faults.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static faults_event *events;
static int num_events, capacity;
static _Atomic bool watching;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // of the record

void faults_watch(void) {
  for (int i = 0; i < num_events; i++) free((void *)events[i].data);
  num_events = 0;
  watching = true;
}

const faults_event *faults_events(int *count) {
  watching = false;
  *count = num_events;
  return events;
}

int faults_watched(void) {
  pthread_mutex_lock(&lock);
  const int count = num_events;
  pthread_mutex_unlock(&lock);
  return count;
}

static void note_event(const faults_event *event) {
  pthread_mutex_lock(&lock);
  if (num_events == capacity) {
    capacity = capacity == 0 ? 1024 : 2 * capacity;
    events = realloc(events, (size_t)capacity * sizeof *events);
  }
  events[num_events++] = *event;
  pthread_mutex_unlock(&lock);
}

static void note(faults_kind kind, const char *path) {
  if (!watching) return;
  faults_event event = {.kind = kind};
  snprintf(event.path, sizeof event.path, "%s", path);
  note_event(&event);
}

static void note_rename(const char *from, const char *to, unsigned flags) {
  if (!watching) return;
  faults_event event = {.kind = FAULTS_RENAME, .flags = flags};
  snprintf(event.path, sizeof event.path, "%s", from);
  snprintf(event.to, sizeof event.to, "%s", to);
  note_event(&event);
}

// `event` without its path, which is that of `file`.
static void note_file(faults_event event, int file) {
  if (!watching) return;
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, event.path, sizeof event.path - 1);
  event.path[length > 0 ? length : 0] = '\0';
  note_event(&event);
}

static void note_write(int file, const void *data, ssize_t bytes, off_t offset) {
  if (!watching || bytes <= 0) return;
  void *const copy = malloc((size_t)bytes);
  memcpy(copy, data, (size_t)bytes);
  note_file((faults_event){.kind = FAULTS_WRITE, .offset = offset, .bytes = bytes, .data = copy},
            file);
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
typedef int (*size_function)(int, off_t);
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
  const bool creates = (flags & O_CREAT) != 0 && access(path, F_OK) != 0;
  const int file = real(path, flags, mode);
  if (file >= 0 && creates) note(FAULTS_CREATE, path);
  return file;
}

ssize_t pwrite(int file, const void *data, size_t bytes, off_t offset) {
  REAL(write_function, "pwrite");
  if (fails()) return -1;
  const size_t part = write_limit > 0 && bytes > (size_t)write_limit ? (size_t)write_limit : bytes;
  const ssize_t written = real(file, data, part, offset);
  note_write(file, data, written, offset);
  return written;
}

int fallocate(int file, int mode, off_t offset, off_t bytes) {
  REAL(allocate_function, "fallocate");
  if (fails()) return -1;
  const int result = real(file, mode, offset, bytes);
  if (result == 0)
    note_file((faults_event){.kind = FAULTS_EXTEND, .offset = offset, .bytes = bytes}, file);
  return result;
}

int ftruncate(int file, off_t bytes) {
  REAL(size_function, "ftruncate");
  const int result = real(file, bytes);
  if (result == 0) note_file((faults_event){.kind = FAULTS_CUT, .bytes = bytes}, file);
  return result;
}

int fsync(int file) {
  REAL(file_function, "fsync");
  if (fails()) return -1;
  const int covered = faults_watched();
  const int result = real(file);
  if (result == 0) note_file((faults_event){.kind = FAULTS_SYNC, .covered = covered}, file);
  return result;
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
  const int result = real(from, to);
  if (result == 0) note_rename(from, to, 0);
  return result;
}

int renameat2(int from_directory, const char *from, int to_directory, const char *to,
              unsigned flags) {
  REAL(rename_at_function, "renameat2");
  if (fails()) return -1;
  const int result = real(from_directory, from, to_directory, to, flags);
  if (result == 0) note_rename(from, to, flags);
  return result;
}

int mkdir(const char *path, mode_t mode) {
  REAL(mkdir_function, "mkdir");
  if (fails()) return -1;
  const int result = real(path, mode);
  if (result == 0) note(FAULTS_MAKE, path);
  return result;
}

int unlink(const char *path) {
  REAL(path_function, "unlink");
  if (fails()) return -1;
  const int result = real(path);
  if (result == 0) note(FAULTS_REMOVE, path);
  return result;
}

int rmdir(const char *path) {
  REAL(path_function, "rmdir");
  const int result = real(path);
  if (result == 0) note(FAULTS_REMOVE, path);
  return result;
}
