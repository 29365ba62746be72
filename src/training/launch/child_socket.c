// SPDX-License-Identifier: Apache-2.0
// The errno of a failed start comes over a pipe that a program which runs has closed.
#include "launch/child_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/end_signals.h"
#include "launch/child_keeper.h"

// Ignored signals stay ignored over exec, so they are set back.
void ot_child_setup(int last_signal) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, last_signal, 0, 0, 0);
  signal(SIGPIPE, SIG_DFL);
  signal(SIGXFSZ, SIG_DFL);
  ot_end_signals_reset();
}

// In the new process: only calls that are safe after fork.
static _Noreturn void become(const ot_child_program *program, int socket, int report) {
  ot_child_keep((ot_keeper){OT_KEEPER_KILLS, program->stderr_bytes});
  if (program->limit) program->limit(program->context);
  if (dup2(socket, STDIN_FILENO) >= 0 && dup2(socket, STDOUT_FILENO) >= 0) {
    execvp(program->words[0], (char *const *)program->words);
  }
  const int error = errno;
  const ssize_t written = write(report, &error, sizeof error);
  (void)written;
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

// Waits until the program runs, or for the errno of the failure.
static int read_report(int report) {
  int error = 0;
  ssize_t got;
  do {
    got = read(report, &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  return got == (ssize_t)sizeof error ? error : 0;
}

ot_status ot_child_socket_start(const ot_child_program *program, pid_t *process, int *out) {
  int pair[2], report[2];
  const char *const path = program->words[0];
  OT_CHECK(pipe2(report, O_CLOEXEC) == 0, OT_ENVIRONMENT, "cannot make a pipe: %s (%s)",
           strerror(errno), path);
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    const int error = errno;
    close(report[0]);
    close(report[1]);
    return ot_fail(OT_ENVIRONMENT, "cannot make a socket: %s (%s)", strerror(error), path);
  }
  const pid_t made = fork();
  if (made == 0) become(program, pair[1], report[1]);
  const int fork_error = errno;
  close(pair[1]);
  close(report[1]);
  if (made > 0) setpgid(made, made);
  const int error = made > 0 ? read_report(report[0]) : fork_error;
  close(report[0]);
  *process = made;
  *out = pair[0];
  if (error == 0) return OT_OK;
  close(pair[0]);
  while (made > 0 && waitpid(made, NULL, 0) < 0 && errno == EINTR) continue;
  return ot_fail(OT_ENVIRONMENT, "cannot start %s: %s (%s)", program->what, strerror(error), path);
}
