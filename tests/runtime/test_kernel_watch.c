// SPDX-License-Identifier: Apache-2.0
// ctest: waits
// run: alone. A kernel that does not end is named after the timeout, later in the first step,
// sooner after a stop request; short kernels, and time in which the process is stopped, end
// nothing.
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/failure.h"
#include "base/text.h"
#include "host/clock.h"
#include "runtime/kernel_watch.h"
#include "runtime/stop_signal.h"

static const double timeout_s = 0.3;

static void rest(double seconds) {
  const struct timespec time = {.tv_sec = (time_t)seconds,
                                .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
  nanosleep(&time, NULL);
}

// ---- a rank and its watch ----

static ot_task tasks[] = {{.kind = OT_TASK_COMPUTE, .op = OT_OP_RMSNORM},
                          {.kind = OT_TASK_COMPUTE, .op = OT_OP_RMSNORM}};
static ot_segment segment = {.name = "forward.block", .tasks = tasks, .num_tasks = 2};
static const ot_schedule schedule = {.segments = &segment, .num_segments = 1};
static const ot_entry entry = {.block = 7, .micro_batch = 3};

static char message[OT_FAILURE_BYTES];
static _Atomic bool ended;

static void end(void) {
  ot_text_format(message, sizeof message, "%s", ot_fail_message());
  ended = true;
}

static ot_kernel_watch *watch(double seconds, double stop_s) {
  const ot_kernel_watch_request request = {.schedule = &schedule,
                                           .rank = "rank 5 on here",
                                           .timeout_s = seconds,
                                           .stop_s = stop_s,
                                           .end = end};
  ot_kernel_watch *made = NULL;
  ended = false;
  assert_int_equal(ot_kernel_watch_create(&request, &made), OT_OK);
  return made;
}

static ot_lane_progress *lane_of(ot_kernel_watch *w) {
  return &ot_kernel_watch_progress(w)->lane[OT_LANE_REDUCE];
}

// Runs a kernel for `seconds`, or until the watch ends it; returns how long that was.
static double run_kernel(ot_kernel_watch *w, double seconds) {
  const double begin_s = ot_clock_s();
  ot_progress_begin(lane_of(w), &entry, &tasks[1]);
  while (!ended && ot_clock_s() < begin_s + seconds) rest(0.01);
  ot_progress_end(lane_of(w));
  return ot_clock_s() - begin_s;
}

// ---- tests ----

static void a_kernel_that_does_not_end_is_named(void **state) {
  (void)state;
  ot_kernel_watch *w = watch(timeout_s, 20);
  ot_kernel_watch_step(w, 11);
  ot_kernel_watch_step(w, 12);
  assert_true(run_kernel(w, 20) >= timeout_s * 0.9);
  assert_true(ended);
  assert_string_equal(message,
                      "rank 5 on here, step 12: a kernel has not ended in 0.3 s: task 1 (rmsnorm) "
                      "of forward.block, block 7, micro-batch 3");
  ot_kernel_watch_destroy(&w);
  assert_null(w);
}

static void the_first_step_has_three_times_as_long(void **state) {
  (void)state;
  ot_kernel_watch *w = watch(timeout_s, 20);
  ot_kernel_watch_step(w, 1);
  assert_true(run_kernel(w, 20) >= 3 * timeout_s * 0.9);
  assert_non_null(strstr(message, "rank 5 on here, step 1: a kernel has not ended in 0.9 s"));
  ot_kernel_watch_destroy(&w);
}

static void short_kernels_of_a_long_step_end_nothing(void **state) {
  (void)state;
  static const double long_s = 0.8;
  ot_kernel_watch *w = watch(long_s, 20);
  ot_kernel_watch_step(w, 1);
  ot_kernel_watch_step(w, 2);
  for (int i = 0; i < 30; i++) (void)run_kernel(w, long_s / 20);
  rest(1.2 * long_s);  // as in a wait for a disk or another rank
  assert_false(ended);
  ot_kernel_watch_destroy(&w);
}

static void without_a_timeout_only_a_stop_request_counts(void **state) {
  (void)state;
  ot_kernel_watch *w = watch(0, timeout_s);
  ot_kernel_watch_step(w, 1);
  (void)run_kernel(w, 3 * timeout_s);
  assert_false(ended);
  ot_stop_signal_defer();
  raise(SIGUSR1);
  ot_kernel_watch_step(w, 2);
  assert_true(run_kernel(w, 20) >= timeout_s * 0.9);
  assert_string_equal(message,
                      "stopped by a signal, but rank 5 on here, step 2: a kernel has not ended in "
                      "0.3 s: task 1 (rmsnorm) of forward.block, block 7, micro-batch 3; the steps "
                      "since the newest checkpoint are lost");
  ot_kernel_watch_destroy(&w);
}

// In a process of its own: 0 if the watch did not count the time in which it was stopped.
static int run_and_be_stopped(void) {
  ot_kernel_watch *w = watch(2 * timeout_s, 20);
  ot_kernel_watch_step(w, 1);
  ot_kernel_watch_step(w, 2);
  ot_progress_begin(lane_of(w), &entry, &tasks[0]);
  raise(SIGSTOP);
  rest(timeout_s / 3);
  ot_progress_end(lane_of(w));
  rest(timeout_s);
  return ended;
}

static void time_in_which_the_process_is_stopped_does_not_count(void **state) {
  (void)state;
  int status;
  const pid_t child = fork();
  if (child == 0) _exit(run_and_be_stopped());
  assert_int_equal(waitpid(child, &status, WUNTRACED), child);
  assert_true(WIFSTOPPED(status));
  rest(4 * timeout_s);
  kill(child, SIGCONT);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_kernel_that_does_not_end_is_named),
      cmocka_unit_test(the_first_step_has_three_times_as_long),
      cmocka_unit_test(short_kernels_of_a_long_step_end_nothing),
      cmocka_unit_test(time_in_which_the_process_is_stopped_does_not_count),
      cmocka_unit_test(without_a_timeout_only_a_stop_request_counts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
