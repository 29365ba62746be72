// SPDX-License-Identifier: Apache-2.0
// Errors, colours and the final flush.
#include "cli/output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/output_queue.h"

bool ot_output_color(FILE *stream) {
  const char *const no_color = getenv("NO_COLOR");
  if (no_color && no_color[0] != '\0') return false;
  const char *const terminal = getenv("TERM");
  if (terminal && strcmp(terminal, "dumb") == 0) return false;
  // stderr may be a queue, which has no descriptor.
  return isatty(stream == stdout ? STDOUT_FILENO : STDERR_FILENO) != 0;
}

void ot_output_failure(ot_status status) {
  const bool color = ot_output_color(stderr);
  const char *const text = ot_fail_message();
  fflush(stdout);
  fprintf(stderr, "%serror:%s %s\n", color ? "\033[1;31m" : "", color ? OT_TEXT_PLAIN : "",
          text[0] != '\0' ? text : "failed without a message");
  const char *const hint = ot_fail_hint_text();
  if (hint[0] != '\0') {
    fprintf(stderr, "%shelp:%s %s\n", color ? "\033[1;36m" : "", color ? OT_TEXT_PLAIN : "", hint);
  }
  if (status == OT_BUG) {
    fprintf(stderr, "help: this is a fault of orthant; please report it (%s)\n", ot_fail_chain());
  }
}

void ot_output_notes(const ot_config_notes *notes) {
  for (int i = 0; i < notes->count; i++) fprintf(stderr, "note: %s\n", notes->text[i]);
}

static void panic(const char *file, int line, const char *text) {
  fflush(stdout);
  if (file == NULL) {
    ot_output_failure(OT_ENVIRONMENT);
    ot_output_queue_exit(OT_ENVIRONMENT);
  }
  fprintf(stderr, "error: bug in orthant: %s (%s:%d)\n", text, file, line);
  fprintf(stderr, "help: please report it with the command and `orthant doctor --json`\n");
  ot_output_queue_exit(OT_BUG);
}

void ot_output_catch_bugs(void) { ot_panic_hook_set(panic); }

void ot_output_open_streams(void) {
  int file;
  do {
    file = open("/dev/null", O_RDONLY);
  } while (file >= 0 && file <= STDERR_FILENO);
  if (file >= 0) close(file);
}

// True when the reader of the pipe has closed it.
static bool reader_is_gone(int descriptor) {
  struct pollfd end = {.fd = descriptor};
  return poll(&end, 1, 0) == 1 && (end.revents & (POLLERR | POLLHUP)) != 0;
}

ot_status ot_output_finish(ot_status status) {
  if (fflush(stdout) == 0 && !ferror(stdout)) return status;
  const int error = errno;
  if (reader_is_gone(STDOUT_FILENO)) {
    signal(SIGPIPE, SIG_DFL);
    raise(SIGPIPE);
  }
  if (status != OT_OK) return status;
  return ot_fail(OT_ENVIRONMENT, "cannot write the result: %s (stdout)", strerror(error));
}
