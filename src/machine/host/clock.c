// SPDX-License-Identifier: Apache-2.0
// POSIX.
#include "host/clock.h"

static double now_s(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double ot_clock_s(void) { return now_s(CLOCK_MONOTONIC); }

double ot_clock_thread_s(void) { return now_s(CLOCK_THREAD_CPUTIME_ID); }

double ot_clock_unix_s(void) { return now_s(CLOCK_REALTIME); }

struct timespec ot_clock_timespec(double seconds) {
  const time_t whole = (time_t)seconds;
  return (struct timespec){.tv_sec = whole, .tv_nsec = (long)((seconds - (double)whole) * 1e9)};
}
