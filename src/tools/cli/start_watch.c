// SPDX-License-Identifier: Apache-2.0
#include "cli/start_watch.h"

#include <signal.h>
#include <stddef.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/status.h"
#include "host/before_libraries.h"

enum { START_S = 8 };

static void refuse_start(int number) {
  static const char text[] =
      "error: no address space for a buffer of 128 MB of the BLAS, which waits for it before the "
      "program begins\n"
      "help: raise the limit (ulimit -v unlimited); with OPENBLAS_NUM_THREADS=1 it needs less\n";
  const ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
  (void)number;
  (void)written;
  _exit(OT_ENVIRONMENT);
}

static void watch(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  signal(SIGALRM, refuse_start);
  alarm(START_S);
}

OT_BEFORE_LIBRARIES(watch);

void ot_start_watch_end(void) {
  alarm(0);
  signal(SIGALRM, SIG_DFL);
}
