// SPDX-License-Identifier: Apache-2.0
#include "rl/verifier.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/json_writer.h"
#include "base/text.h"
#include "files/json_file.h"
#include "host/clock.h"
#include "host/heap.h"
#include "launch/child_keeper.h"
#include "launch/child_socket.h"

enum { WHY_BYTES = 256, STDERR_BYTES = 1 << 20 };

static const double most_reward = 1e15;  // squares and their sums stay in the range of float32

struct ot_verifier {
  ot_verifier_request request;
  pid_t process;  // its keeper; 0: none
  int socket;     // -1: none
  char line[OT_VERIFIER_LINE + 1];
  int64_t length;  // bytes read of it
  char why[WHY_BYTES];
};

// ---- the process ----

static void limit(int resource, int64_t most) {
  if (most <= 0) return;
  const struct rlimit bound = {.rlim_cur = (rlim_t)most, .rlim_max = (rlim_t)most};
  setrlimit(resource, &bound);
}

static void limit_process(const void *context) {
  const ot_verifier_request *const request = context;
  const struct rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  limit(RLIMIT_AS, request->memory_bytes);
  limit(RLIMIT_CPU, request->cpu_seconds);
}

static void stop(ot_verifier *v) {
  if (v->socket >= 0) close(v->socket);
  v->socket = -1;
  v->length = 0;
  ot_child_end(v->process);
  v->process = 0;
}

static ot_status start(ot_verifier *v) {
  const ot_child_program program = {.words = v->request.words,
                                    .limit = limit_process,
                                    .context = &v->request,
                                    .what = "the reward's program",
                                    .stderr_bytes = STDERR_BYTES};
  v->socket = -1;
  v->process = 0;
  OT_TRY(ot_child_socket_start(&program, &v->process, &v->socket));
  fcntl(v->socket, F_SETFL, O_NONBLOCK);
  return OT_OK;
}

ot_status ot_verifier_create(const ot_verifier_request *request, ot_verifier **out) {
  *out = NULL;
  const char *const path = request->words[0];
  OT_CHECK(path && strchr(path, '/'), OT_USAGE,
           "rl.command: \"%s\" has no slash; allowed: a path, which is not searched (try ./%s)",
           path ? path : "", path ? path : "PROGRAM");
  ot_verifier *const v = calloc(1, sizeof *v);
  OT_CHECK(v, OT_ENVIRONMENT, "out of memory (%s)", path);
  v->request = *request;
  v->socket = -1;
  const ot_status status = start(v);
  *out = v;
  if (status != OT_OK) ot_verifier_destroy(out);
  return status;
}

void ot_verifier_destroy(ot_verifier **verifier) {
  if (!verifier || !*verifier) return;
  stop(*verifier);
  free(*verifier);
  *verifier = NULL;
}

// ---- lines ----

static bool abandon(ot_verifier *v, const char *reason) {
  ot_text_format(v->why, WHY_BYTES, "%s", reason);
  return false;
}

// False after the deadline.
static bool wait_for(ot_verifier *v, short event, double deadline_s) {
  for (;;) {
    const double left_s = deadline_s - ot_clock_s();
    if (left_s <= 0) break;
    struct pollfd one = {.fd = v->socket, .events = event};
    const int ready = poll(&one, 1, (int)fmin(ceil(1e3 * left_s), 1e6));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) break;
  }
  return abandon(v, "no answer in time");
}

static bool send_line(ot_verifier *v, const char *text, int64_t bytes, double deadline_s) {
  for (int64_t sent = 0; sent < bytes;) {
    const ssize_t got = send(v->socket, text + sent, (size_t)(bytes - sent), MSG_NOSIGNAL);
    if (got > 0) sent += got;
    if (got >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN) return abandon(v, "it ended");
    if (!wait_for(v, POLLOUT, deadline_s)) return false;
  }
  return true;
}

static bool read_line(ot_verifier *v, double deadline_s) {
  for (;;) {
    char *const end = memchr(v->line, '\n', (size_t)v->length);
    if (end) {
      // It answers in turn, so more than a line is not meant for this response.
      if (end + 1 != v->line + v->length) return abandon(v, "more than one line");
      *end = '\0';
      return true;
    }
    if (v->length == OT_VERIFIER_LINE) return abandon(v, "a line that is too long");
    const ssize_t got =
        recv(v->socket, v->line + v->length, (size_t)(OT_VERIFIER_LINE - v->length), 0);
    if (got == 0) return abandon(v, "it ended");
    if (got > 0) v->length += got;
    if (got > 0 || errno == EINTR) continue;
    if (errno != EAGAIN) return abandon(v, "it ended");
    if (!wait_for(v, POLLIN, deadline_s)) return false;
  }
}

static bool read_reward(ot_verifier *v, int64_t id, double *reward) {
  json_t *object = NULL;
  const int64_t bytes = (int64_t)strlen(v->line);
  const bool whole = bytes + 1 == v->length;
  if (!whole || ot_json_parse("reward", v->line, bytes, &object) != OT_OK) {
    return abandon(v, "a line that is no JSON object");
  }
  const json_t *const number = json_object_get(object, "reward");
  const json_t *const same = json_object_get(object, "id");
  const bool good = json_is_number(number) && json_is_integer(same) &&
                    json_integer_value(same) == id && isfinite(json_number_value(number));
  const double value = good ? json_number_value(number) : 0;
  json_decref(object);
  if (!good) return abandon(v, "a line without this id and a finite reward");
  if (fabs(value) > most_reward) return abandon(v, "a reward beyond 1e15");
  *reward = value;
  return true;
}

static bool query(ot_verifier *v, const ot_verifier_case *c, double *reward) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_json_writer w = ot_json_begin(&arena, 0);
  ot_json_object(&w, NULL);
  ot_json_integer(&w, "id", c->id);
  ot_json_text_bytes(&w, "prompt", c->prompt.text, c->prompt.bytes);
  ot_json_text_bytes(&w, "response", c->response.text, c->response.bytes);
  ot_json_text_bytes(&w, "answer", c->answer.text, c->answer.bytes);
  ot_json_end(&w);
  const char *const line = ot_arena_format(&arena, "%s\n", w.text);
  const double deadline_s = ot_clock_s() + v->request.timeout_s;
  v->length = 0;
  const bool answered =
      send_line(v, line, ot_text_length(line), deadline_s) && read_line(v, deadline_s);
  ot_heap_release(&heap);
  return answered && read_reward(v, c->id, reward);
}

// It has written, or ended, without being asked.
static bool has_spoken(const ot_verifier *v) {
  struct pollfd one = {.fd = v->socket, .events = POLLIN};
  return v->socket >= 0 && poll(&one, 1, 0) > 0;
}

ot_status ot_verifier_judge(ot_verifier *verifier, const ot_verifier_case *response, double *reward,
                            bool *judged, const char **why) {
  ot_verifier *const v = verifier;
  if (has_spoken(v)) stop(v);
  if (v->socket < 0) OT_TRY(start(v));
  *judged = query(v, response, reward);
  *why = v->why;
  if (!*judged) stop(v);
  return OT_OK;
}
