// SPDX-License-Identifier: Apache-2.0
// A subreaper finds its children by the file of its own thread.
#include "launch/child_keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "host/clock.h"
#include "host/end_signals.h"
#include "launch/child_socket.h"

enum { LIST_BYTES = 1 << 14 };

static const double patience_s = 2;  // for a keeper that may be stopped

// ---- the keeper ----

static _Noreturn void end_like(int status) {
  sigset_t all;
  if (WIFEXITED(status)) _exit(WEXITSTATUS(status));
  sigfillset(&all);
  signal(WTERMSIG(status), SIG_DFL);
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);  // it dumps no core again
  sigprocmask(SIG_UNBLOCK, &all, NULL);
  kill(getpid(), WTERMSIG(status));
  _exit(128 + WTERMSIG(status));
}

// Kills the processes that are children now. Without the file of the kernel, those of the group.
static void kill_children(const char *list, pid_t program) {
  char text[LIST_BYTES];
  const int file = open(list, O_RDONLY | O_CLOEXEC);
  const ssize_t bytes = file >= 0 ? read(file, text, sizeof text) : 0;
  if (file >= 0) close(file);
  if (file < 0) kill(-program, SIGKILL);
  pid_t child = 0;
  for (ssize_t i = 0; i < bytes; i++) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (!digit && child > 0) kill(child, SIGKILL);
    child = digit ? 10 * child + (text[i] - '0') : 0;
  }
}

// Until there are none: what a killed child leaves becomes a child.
static void kill_all(const char *list, pid_t program, int *result) {
  static const struct timespec pause = {.tv_nsec = 1000000};
  for (;;) {
    int status;
    pid_t ended;
    kill_children(list, program);
    while ((ended = waitpid(-1, &status, WNOHANG)) > 0)
      if (ended == program) *result = status;
    if (ended < 0 && errno == ECHILD) return;
    nanosleep(&pause, NULL);
  }
}

typedef struct keeping {
  pid_t program;
  ot_keeper_manner manner;
  int signals;          // a signalfd
  int64_t stderr_left;  // bytes to pass on; negative: there is no pipe
} keeping;

// Standard input is the pipe.
static void pass_on(keeping *k) {
  static const char note[] =
      "\nnote: the program wrote too much to its stderr; the rest is dropped\n";
  char text[LIST_BYTES / 4];
  ssize_t bytes;
  while ((bytes = read(STDIN_FILENO, text, sizeof text)) > 0) {
    struct pollfd reader = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (k->stderr_left == 0 || poll(&reader, 1, 0) != 1) continue;
    const int64_t some = bytes < k->stderr_left ? bytes : k->stderr_left;
    ssize_t written = write(STDERR_FILENO, text, (size_t)some);
    k->stderr_left -= some;
    if (k->stderr_left == 0) written = write(STDERR_FILENO, note, sizeof note - 1);
    (void)written;
  }
  if (bytes == 0) k->stderr_left = -1;
}

// The number of a signal from outside; 0: something else happened.
static int wait_for_signal(keeping *k) {
  struct signalfd_siginfo what;
  struct pollfd both[] = {{.fd = k->signals, .events = POLLIN},
                          {.fd = k->stderr_left < 0 ? -1 : STDIN_FILENO, .events = POLLIN}};
  if (poll(both, 2, -1) <= 0) return 0;
  if (both[1].revents != 0) pass_on(k);
  if (read(k->signals, &what, sizeof what) != (ssize_t)sizeof what) return 0;
  const bool own = what.ssi_signo == SIGCHLD || (pid_t)what.ssi_pid == getpid();
  return own ? 0 : (int)what.ssi_signo;
}

// Returns when the program has ended, or at an end signal with OT_KEEPER_KILLS. After a signal that
// was passed on, all of the group may take its time: a script ends before what it runs.
static void watch(keeping *k, int *result) {
  const pid_t group = k->manner == OT_KEEPER_KILLS ? -k->program : 0;
  bool over = false, told = false;
  for (;;) {
    int status;
    pid_t ended;
    while ((ended = waitpid(group, &status, WNOHANG)) > 0) {
      if (ended != k->program) continue;
      *result = status;
      over = true;
    }
    if (over && (!told || ended < 0)) return;
    const int number = wait_for_signal(k);
    if (number == 0) continue;
    if (k->manner == OT_KEEPER_KILLS) return;
    told = true;
    kill(0, number);
  }
}

static _Noreturn void keep(keeping *k, int errors, const sigset_t *signals) {
  char list[64];
  int result = SIGKILL;
  snprintf(list, sizeof list, "/proc/self/task/%d/children", (int)getpid());
  if (errors >= 0) dup2(errors, STDIN_FILENO);
  close_range(errors >= 0 ? STDOUT_FILENO : STDIN_FILENO, STDOUT_FILENO, 0);
  if (errors < 0) close(STDERR_FILENO);
  close_range(STDERR_FILENO + 1, ~0u, 0);
  k->signals = signalfd(-1, signals, SFD_NONBLOCK);
  watch(k, &result);
  kill_all(list, k->program, &result);
  if (k->stderr_left >= 0) pass_on(k);
  end_like(result);
}

void ot_child_keep(ot_keeper keeper) {
  sigset_t signals, before;
  int errors[2] = {-1, -1};
  keeping k = {.manner = keeper.manner, .stderr_left = -1};
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  ot_end_signals_add(&signals);
  sigprocmask(SIG_BLOCK, &signals, &before);
  ot_child_setup(SIGTERM);
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  if (keeper.stderr_bytes > 0 && pipe2(errors, O_CLOEXEC) == 0) k.stderr_left = keeper.stderr_bytes;
  if (errors[0] >= 0) fcntl(errors[0], F_SETFL, O_NONBLOCK);
  k.program = fork();
  if (k.program < 0) _exit(127);
  // Whichever of the two is first.
  if (k.manner == OT_KEEPER_KILLS) setpgid(k.program, k.program);
  if (k.program > 0) keep(&k, errors[0], &signals);
  if (errors[1] >= 0) dup2(errors[1], STDERR_FILENO);
  prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  sigprocmask(SIG_SETMASK, &before, NULL);
}

// ---- its parent ----

void ot_child_end(pid_t keeper) {
  static const struct timespec pause = {.tv_nsec = 1000000};
  const double until_s = ot_clock_s() + patience_s;
  if (keeper <= 0) return;
  kill(keeper, SIGTERM);
  kill(keeper, SIGCONT);
  for (;;) {
    const pid_t ended = waitpid(keeper, NULL, WNOHANG);
    if (ended == keeper || (ended < 0 && errno != EINTR)) return;
    if (ot_clock_s() > until_s) kill(keeper, SIGKILL);
    nanosleep(&pause, NULL);
  }
}
