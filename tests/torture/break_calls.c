// SPDX-License-Identifier: Apache-2.0
// A library to preload (LD_PRELOAD) into a training process: counts its calls on files below a
// folder and breaks one of them, or spoils a product. Controlled by the environment:
//   BREAK_UNDER   the folder, an absolute path
//   BREAK_AT      the call to break, counted from 1; 0 or absent: none
//   BREAK_HOW     kill (SIGKILL before the call has an effect), short (half of a write), or the
//                 name of an errno: ENOSPC EIO EINTR EDQUOT
//   BREAK_LASTS   1: also all later calls
//   BREAK_COUNT   a file that receives the numbers of calls and allocations when the process ends
//   BREAK_MEMORY  the allocation to refuse, counted from 1 in main; the libraries that initialise
//                 themselves before do not live without memory
//   BREAK_PRODUCT the call of cblas_sgemm of which one element becomes NaN, counted from 1
//   BREAK_HANG    the call of cblas_sgemm that never returns, counted from 1
//   BREAK_ONCE    a file: it hangs only if the file is not there, and creates it
//   BREAK_SLOW    percent: each call of cblas_sgemm takes as much CPU time more
//   BREAK_RANK    hangs or is slow only as this rank of MPI
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FILES = 4096, PATH = 4096 };

static atomic_long calls, products, allocations;
static atomic_bool in_main;
static atomic_bool below[FILES];  // open files of the folder

// ---- what to break ----

static long number_of(const char *name) {
  const char *const text = getenv(name);
  return text ? strtol(text, NULL, 10) : 0;
}

static int error_of(const char *how) {
  static const struct {
    const char *name;
    int number;
  } errors[] = {{"ENOSPC", ENOSPC}, {"EIO", EIO}, {"EINTR", EINTR}, {"EDQUOT", EDQUOT}};
  for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
    if (strcmp(errors[i].name, how) == 0) return errors[i].number;
  }
  return 0;
}

static bool is_short(void) {
  const char *const how = getenv("BREAK_HOW");
  return how && strcmp(how, "short") == 0;
}

// Counts a call. True: it must fail, or be short; errno is set.
static bool breaks(void) {
  const long call = atomic_fetch_add(&calls, 1) + 1, at = number_of("BREAK_AT");
  const char *const how = getenv("BREAK_HOW");
  if (at == 0 || !how || call < at || (call > at && number_of("BREAK_LASTS") == 0)) return false;
  if (strcmp(how, "kill") == 0) raise(SIGKILL);
  errno = error_of(how);
  return errno != 0 || is_short();
}

static bool is_below(const char *path) {
  const char *const folder = getenv("BREAK_UNDER");
  return folder && strncmp(path, folder, strlen(folder)) == 0;
}

static bool is_open_below(int file) { return file >= 0 && file < FILES && below[file]; }

// Whether `path` relative to the folder `directory` lies below.
static bool is_at_below(int directory, const char *path) {
  return path[0] == '/' || directory == AT_FDCWD ? is_below(path) : is_open_below(directory);
}

__attribute__((destructor)) static void write_count(void) {
  const char *const path = getenv("BREAK_COUNT");
  if (!path || calls + allocations == 0) return;
  FILE *const file = fopen(path, "w");
  if (!file) return;
  fprintf(file, "%ld %ld\n", (long)calls, (long)allocations);
  fclose(file);
}

// ---- calls ----

// The function that this library hides.
static void find(const char *name, void *function) {
  void *const found = dlsym(RTLD_NEXT, name);
  memcpy(function, &found, sizeof found);
}

#define REAL(name)        \
  __typeof__(&name) real; \
  find(#name, &real)

static int note(int file, bool is) {
  if (file >= 0 && file < FILES) below[file] = is;
  return file;
}

// ---- memory ----

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

// Counts an allocation. True: it must fail.
static bool is_refused(void) {
  static atomic_long refused = -1;
  if (!in_main) return false;
  if (refused < 0) refused = number_of("BREAK_MEMORY");
  if (atomic_fetch_add(&allocations, 1) + 1 != refused) return false;
  errno = ENOMEM;
  return true;
}

void *malloc(size_t bytes) { return is_refused() ? NULL : __libc_malloc(bytes); }

void *calloc(size_t count, size_t bytes) {
  return is_refused() ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes) {
  return is_refused() ? NULL : __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
  return is_refused() ? NULL : __libc_memalign(alignment, bytes);
}

// Names who ends the process: libomp does it without a word if it has no memory.
_Noreturn void abort(void) {
  Dl_info from = {0};
  if (dladdr(__builtin_return_address(0), &from) && from.dli_fname)
    dprintf(STDERR_FILENO, "aborted by %s\n", from.dli_fname);
  signal(SIGABRT, SIG_DFL);
  raise(SIGABRT);
  _exit(128 + SIGABRT);
}

static int (*program)(int, char **, char **);

static int run_program(int count, char **arguments, char **environment) {
  in_main = true;
  const int code = program(count, arguments, environment);
  in_main = false;
  return code;
}

// Its seven arguments: main, their count, the arguments, three functions, the end of the stack.
typedef int (*program_start)(int (*)(int, char **, char **), int, char **, void *, void *, void *,
                             void *);

int __libc_start_main(int (*start)(int, char **, char **), ...);  // in no header

int __libc_start_main(int (*start)(int, char **, char **), ...) {
  void *real = dlsym(RTLD_NEXT, "__libc_start_main");
  program_start begin;
  va_list rest;
  memcpy(&begin, &real, sizeof begin);
  program = start;
  va_start(rest, start);
  const int count = va_arg(rest, int);
  char **const arguments = va_arg(rest, char **);
  void *more[4];
  for (int i = 0; i < 4; i++) more[i] = va_arg(rest, void *);
  va_end(rest);
  return begin(run_program, count, arguments, more[0], more[1], more[2], more[3]);
}

// The mode of an open that may create a file.
#define MODE_OF(flags, mode)               \
  mode_t mode = 0;                         \
  if (flags & (O_CREAT | O_TMPFILE)) {     \
    va_list arguments;                     \
    va_start(arguments, flags);            \
    mode = (mode_t)va_arg(arguments, int); \
    va_end(arguments);                     \
  }

int open(const char *path, int flags, ...) {
  MODE_OF(flags, mode)
  const bool is = is_below(path);
  if (is && (flags & O_ACCMODE) != O_RDONLY && breaks() && !is_short()) return -1;
  REAL(open);
  return note(real(path, flags, mode), is);
}

int open64(const char *path, int flags, ...) {
  MODE_OF(flags, mode)
  const bool is = is_below(path);
  if (is && (flags & O_ACCMODE) != O_RDONLY && breaks() && !is_short()) return -1;
  REAL(open);
  return note(real(path, flags | O_LARGEFILE, mode), is);
}

int openat(int directory, const char *path, int flags, ...) {
  MODE_OF(flags, mode)
  const bool is = is_at_below(directory, path);
  if (is && (flags & O_ACCMODE) != O_RDONLY && breaks() && !is_short()) return -1;
  REAL(openat);
  return note(real(directory, path, flags, mode), is);
}

int close(int file) {
  const bool is = is_open_below(file);
  note(file, false);
  REAL(close);
  const int done = real(file);
  return is && breaks() && !is_short() ? -1 : done;
}

ssize_t write(int file, const void *data, size_t bytes) {
  if (is_open_below(file) && breaks()) {
    if (!is_short()) return -1;
    bytes = bytes > 1 ? bytes / 2 : bytes;
  }
  REAL(write);
  return real(file, data, bytes);
}

ssize_t pwrite(int file, const void *data, size_t bytes, off_t offset) {
  if (is_open_below(file) && breaks()) {
    if (!is_short()) return -1;
    bytes = bytes > 1 ? bytes / 2 : bytes;
  }
  REAL(pwrite);
  return real(file, data, bytes, offset);
}

ssize_t pwrite64(int file, const void *data, size_t bytes, off64_t offset) {
  return pwrite(file, data, bytes, offset);
}

#define SIMPLE(name, declared, is, given)           \
  int name declared {                               \
    if ((is) && breaks() && !is_short()) return -1; \
    REAL(name);                                     \
    return real given;                              \
  }

SIMPLE(fsync, (int file), is_open_below(file), (file))
SIMPLE(fdatasync, (int file), is_open_below(file), (file))
SIMPLE(ftruncate, (int file, off_t bytes), is_open_below(file), (file, bytes))
SIMPLE(rename, (const char *from, const char *to), is_below(to), (from, to))
SIMPLE(renameat2, (int a, const char *from, int b, const char *to, unsigned flags),
       is_at_below(b, to), (a, from, b, to, flags))
SIMPLE(mkdir, (const char *path, mode_t mode), is_below(path), (path, mode))
SIMPLE(unlink, (const char *path), is_below(path), (path))
SIMPLE(unlinkat, (int directory, const char *path, int flags), is_at_below(directory, path),
       (directory, path, flags))

int posix_fallocate(int file, off_t offset, off_t bytes) {
  if (is_open_below(file) && breaks() && !is_short()) return errno;
  REAL(posix_fallocate);
  return real(file, offset, bytes);
}

// ---- products ----

// As in cblas.h, whose enumerations are passed as int.
#define PRODUCT_PARAMETERS                                                               \
  int layout, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, \
      const float *b, int ldb, float beta, float *c, int ldc

void cblas_sgemm(PRODUCT_PARAMETERS);

static bool is_chosen_rank(void) {
  const char *const chosen = getenv("BREAK_RANK"), *const own = getenv("OMPI_COMM_WORLD_RANK");
  return !chosen || (own && strcmp(chosen, own) == 0);
}

static bool hangs(long product) {
  const char *const once = getenv("BREAK_ONCE");
  if (product != number_of("BREAK_HANG") || !is_chosen_rank()) return false;
  const int file = once ? open(once, O_CREAT | O_EXCL | O_WRONLY, 0600) : -1;
  if (file >= 0) close(file);
  return !once || file >= 0;
}

static double thread_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void slow_down(double began_s) {
  const double ended_s = thread_s();
  const double until_s = ended_s + (ended_s - began_s) * (double)number_of("BREAK_SLOW") / 100;
  while (thread_s() < until_s) continue;
}

void cblas_sgemm(PRODUCT_PARAMETERS) {
  REAL(cblas_sgemm);
  const bool slow = number_of("BREAK_SLOW") > 0 && is_chosen_rank();
  const double began_s = slow ? thread_s() : 0;
  real(layout, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  const long product = atomic_fetch_add(&products, 1) + 1;
  if (slow) slow_down(began_s);
  if (product == number_of("BREAK_PRODUCT")) c[(n - 1) / 2] = NAN;
  if (!hangs(product)) return;
  for (;;) pause();
}
