// SPDX-License-Identifier: Apache-2.0
// POSIX.
#include "host/clock.h"

#include <time.h>

double ot_clock_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
