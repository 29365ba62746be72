// SPDX-License-Identifier: Apache-2.0
// Descendants are found as children: as their parents end, this process adopts them.
#include "launch/child_process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "host/clock.h"
#include "launch/child_keeper.h"
#include "launch/child_socket.h"

enum { PIECES_MAX = 64 };  // of output at a time: endless output must not delay other work

static const double drain_s = 0.3;  // for the last output of a child that has ended

void ot_child_adopt_all(void) { prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); }

// ---- start ----

// In the new process, in the folder that is given, or in that of this process.
static _Noreturn void execute(const char *folder, char *const *words) {
  if (!folder || chdir(folder) == 0) execvp(words[0], words);
  fprintf(stderr, "error: cannot start %s: %s\n", words[0], strerror(errno));
  fflush(stderr);
  _exit(127);
}

// Starts a process that calls `become` with `context`.
static ot_status start(void (*become)(const void *context), const void *context, pid_t *process) {
  fflush(NULL);
  *process = fork();
  if (*process == 0) {
    become(context);
    _exit(127);
  }
  OT_CHECK(*process > 0, OT_ENVIRONMENT, "cannot start a process: %s", strerror(errno));
  return OT_OK;
}

static void put_nothing_on_stdin(void) {
  const int nothing = open("/dev/null", O_RDONLY);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
}

typedef struct watched {
  char *const *words;
  int last_signal, errors;  // descriptor for its stderr
} watched;

static void become_watched(const void *context) {
  const watched *const w = context;
  ot_child_setup(w->last_signal);
  put_nothing_on_stdin();
  dup2(w->errors, STDERR_FILENO);
  execute(NULL, w->words);
}

ot_status ot_child_start(char *const *words, int last_signal, ot_child *child) {
  int errors[2];
  *child = (ot_child){.errors = -1};
  OT_CHECK(pipe2(errors, O_CLOEXEC) == 0, OT_ENVIRONMENT, "cannot make a pipe: %s",
           strerror(errno));
  const ot_status status =
      start(become_watched, &(watched){words, last_signal, errors[1]}, &child->process);
  close(errors[1]);
  if (status != OT_OK) {
    close(errors[0]);
    child->process = 0;
    return status;
  }
  setpgid(child->process, child->process);
  fcntl(errors[0], F_SETFL, O_NONBLOCK);
  child->errors = errors[0];
  return OT_OK;
}

static void become_filed(const void *context) {
  const ot_child_files *const c = context;
  // A process started by a script does not get the signals of the script, nor that of a parent
  // which dies: the keeper gets both, and passes them on.
  ot_child_keep((ot_keeper){OT_KEEPER_FORWARDS, 0});
  const int errors = open(c->errors, O_WRONLY | O_CREAT | O_APPEND, 0666);
  const int results =
      strcmp(c->out, c->errors) == 0 ? errors : open(c->out, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  put_nothing_on_stdin();
  if (results >= 0) dup2(results, STDOUT_FILENO);
  if (errors >= 0) dup2(errors, STDERR_FILENO);
  execute(c->folder, c->words);
}

ot_status ot_child_start_with_files(const ot_child_files *files, pid_t *process) {
  return start(become_filed, files, process);
}

// ---- stderr ----

static bool tells_an_end(const char *line) {
  // Open MPI 5 wraps its line before the signal.
  return strstr(line, "exited on signal") || strstr(line, "noticed that process rank ") ||
         strstr(line, "srun: error:") || strstr(line, "RUNNING AT");
}

static void end_line(ot_child *child) {
  child->line[child->length] = '\0';
  child->length = 0;
  if (strncmp(child->line, "error: ", 7) == 0) {
    memmove(child->error, child->line + 7, OT_CHILD_LINE - 7);
  } else if (tells_an_end(child->line)) {
    memcpy(child->launcher, child->line, OT_CHILD_LINE);
  }
}

static void add_text(ot_child *child, const char *text, ssize_t bytes) {
  for (ssize_t i = 0; i < bytes; i++) {
    if (text[i] == '\n' || text[i] == '\r') {
      end_line(child);
    } else if (child->length < OT_CHILD_LINE - 1) {
      child->line[child->length++] = text[i];
    }
  }
}

// Returns false when there is no more for now.
static bool pass_piece(ot_child *child) {
  char text[4096];
  if (child->errors < 0) return false;
  const ssize_t bytes = read(child->errors, text, sizeof text);
  if (bytes > 0) {
    add_text(child, text, bytes);
    fwrite(text, 1, (size_t)bytes, stderr);
    fflush(stderr);
    return true;
  }
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  close(child->errors);
  child->errors = -1;
  return false;
}

static void pass_on(ot_child *child) {
  for (int i = 0; i < PIECES_MAX && pass_piece(child); i++) continue;
}

static void await(const ot_child *child, double seconds) {
  struct pollfd wanted = {.fd = child->errors, .events = POLLIN};
  poll(&wanted, 1, (int)(seconds * 1e3));
}

// ---- ends ----

static void note_end(ot_child *child, int status) {
  child->ended = true;
  child->code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  child->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

// Reaps children of this process and those that it adopted.
static void reap(ot_child *child) {
  int status;
  for (pid_t done = waitpid(-1, &status, WNOHANG); done > 0; done = waitpid(-1, &status, WNOHANG)) {
    if (done == child->process) note_end(child, status);
  }
}

bool ot_child_watch(ot_child *child, double seconds) {
  await(child, seconds);
  pass_on(child);
  reap(child);
  const double until = ot_clock_s() + drain_s;
  while (child->ended && child->errors >= 0 && ot_clock_s() < until) {
    await(child, 0.01);
    pass_on(child);
  }
  return child->ended;
}

void ot_child_send(const ot_child *child, int number) {
  if (child->process > 0 && !child->ended) kill(child->process, number);
}

// The parent of a process that has not ended, or 0.
static pid_t parent_of(const char *process) {
  char path[300], text[512];
  snprintf(path, sizeof path, "/proc/%s/stat", process);
  FILE *const file = fopen(path, "r");
  if (!file) return 0;
  const size_t bytes = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  text[bytes] = '\0';
  const char *const name_end = strrchr(text, ')');
  int parent = 0;
  char state;
  return name_end && sscanf(name_end + 1, " %c %d", &state, &parent) == 2 && state != 'Z' ? parent
                                                                                          : 0;
}

// Sends `number` to all children of `parent`; returns how many there are.
static int signal_children(pid_t parent, int number) {
  int count = 0;
  DIR *const processes = opendir("/proc");
  if (!processes) return 0;
  for (const struct dirent *entry = readdir(processes); entry; entry = readdir(processes)) {
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
    if (parent_of(entry->d_name) != parent) continue;
    kill((pid_t)atoi(entry->d_name), number);
    count++;
  }
  closedir(processes);
  return count;
}

static bool has_children(ot_child *child) {
  pass_on(child);
  reap(child);
  return signal_children(getpid(), 0) > 0;
}

bool ot_child_has_children(const ot_child *child) { return signal_children(child->process, 0) > 0; }

void ot_child_end_all(ot_child *child, double patience_s) {
  const double until = ot_clock_s() + patience_s;
  if (has_children(child)) {
    kill(-child->process, SIGTERM);
    signal_children(getpid(), SIGTERM);
    signal_children(getpid(), SIGCONT);
  }
  while (has_children(child) && ot_clock_s() < until) await(child, 0.02);
  while (has_children(child)) {
    kill(-child->process, SIGKILL);
    signal_children(getpid(), SIGKILL);
    await(child, 0.01);
  }
  if (child->errors >= 0) close(child->errors);
  child->errors = -1;
}
