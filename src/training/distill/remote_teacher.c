// SPDX-License-Identifier: Apache-2.0
// One request at a time on one connection. What may pass (no answer, a queue that is full, a server
// that stops) is tried again after waits that double; what the server refuses is not.
#include "distill/remote_teacher.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "distill/http_exchange.h"
#include "files/disk.h"
#include "files/json_file.h"
#include "host/clock.h"

struct ot_remote_teacher {
  ot_heap heap;
  const ot_run *run;
  ot_http *http;
  ot_buffer answer;
  ot_lesson_facts facts;
  const char *facts_url, *lesson_url;
};

enum { FACTS_BYTES = 1 << 16 };  // of an answer with facts, or an error, at most

// Until the server is there at the start, and between tries.
static const double START_S = 10, FIRST_WAIT_S = 0.05, LONGEST_WAIT_S = 2;

// ---- requests ----

static bool may_pass(int code) { return code == 0 || code == 429 || code >= 500; }

// The message of the server, from {"error": {"message": TEXT}}; else its whole answer.
static const char *message_of(ot_remote_teacher *t, ot_arena *arena) {
  json_t *root = NULL;
  const char *const text =
      ot_arena_text(arena, t->answer.data ? (const char *)t->answer.data : "", t->answer.length);
  if (ot_json_parse("answer", text, t->answer.length, &root) != OT_OK) return text;
  const char *const found =
      json_string_value(json_object_get(json_object_get(root, "error"), "message"));
  const char *const copy = found ? ot_arena_format(arena, "%s", found) : text;
  json_decref(root);
  return copy;
}

static ot_status refuse(ot_remote_teacher *t, const ot_http_request *request, int code,
                        double waited_s) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const char *const said = message_of(t, &arena);
  if (may_pass(code)) {
    ot_fail(OT_ENVIRONMENT, "distill.server: no answer for %.0f s; the last try: %.200s (%s)",
            waited_s, said, request->url);
    ot_fail_hint(OT_ENVIRONMENT, "`orthant serve TEACHER --teach RUN.yaml` answers");
  } else {
    ot_fail(OT_USAGE, "distill.server: it refuses, status %d: %.200s (%s)", code, said,
            request->url);
    if (code == 401) ot_fail_hint(OT_USAGE, "distill.server_key names a file with its --api-key");
  }
  ot_heap_release(&heap);
  return may_pass(code) ? OT_ENVIRONMENT : OT_USAGE;
}

// Fills t->answer; tries for request->timeout_s.
static ot_status exchange(ot_remote_teacher *t, const ot_http_request *request) {
  const double begin_s = ot_clock_s();
  double wait_s = FIRST_WAIT_S;
  while (true) {
    ot_http_request now = *request;
    int code = 0;
    now.timeout_s -= ot_clock_s() - begin_s;
    OT_TRY(ot_http_exchange(t->http, &now, &t->answer, &code));
    const double waited_s = ot_clock_s() - begin_s;
    if (code == 200) return OT_OK;
    if (!may_pass(code) || waited_s + wait_s >= request->timeout_s) {
      return refuse(t, request, code, waited_s);
    }
    usleep((useconds_t)(1e6 * wait_s));
    wait_s = 2 * wait_s < LONGEST_WAIT_S ? 2 * wait_s : LONGEST_WAIT_S;
  }
}

// ---- create ----

static ot_status create(ot_remote_teacher *t, const ot_tokenizer *tokenizer) {
  const ot_run_distill *const d = &t->run->distill;
  ot_arena arena = ot_heap_arena_create(&t->heap);
  ot_lesson_facts wanted;
  t->facts_url = ot_arena_format(&arena, "%s/v1/teacher", d->server);
  t->lesson_url = ot_arena_format(&arena, "%s/v1/teacher/targets", d->server);
  ot_lesson_facts_of(t->run, tokenizer, &wanted);
  if (d->teacher[0] != '\0') OT_TRY(ot_teacher_hash(d->teacher, wanted.teacher));
  const char *key = NULL;
  if (d->server_key[0] != '\0') OT_TRY(ot_disk_read_line(&arena, d->server_key, &key));
  OT_TRY(ot_http_create(key, &t->http));
  const ot_http_request request = {
      .url = t->facts_url,
      .timeout_s = d->server_timeout < START_S ? d->server_timeout : START_S,
      .most_bytes = FACTS_BYTES};
  OT_TRY(exchange(t, &request));
  OT_TRY(ot_lesson_facts_read(t->facts_url, &t->answer, &t->facts));
  return ot_lesson_facts_check(d->server, &t->facts, &wanted);
}

ot_status ot_remote_teacher_create(const ot_run *run, const ot_tokenizer *tokenizer,
                                   ot_remote_teacher **out) {
  ot_remote_teacher *teacher = calloc(1, sizeof *teacher);
  *out = NULL;
  OT_CHECK(teacher, OT_ENVIRONMENT, "out of memory (%s)", run->distill.server);
  teacher->run = run;
  const ot_status status = create(teacher, tokenizer);
  if (status != OT_OK) ot_remote_teacher_destroy(&teacher);
  *out = teacher;
  return status;
}

void ot_remote_teacher_destroy(ot_remote_teacher **teacher) {
  if (!teacher || !*teacher) return;
  ot_http_destroy(&(*teacher)->http);
  ot_buffer_release(&(*teacher)->answer);
  ot_heap_release(&(*teacher)->heap);
  free(*teacher);
  *teacher = NULL;
}

// ---- asking ----

ot_status ot_remote_teacher_ask(ot_remote_teacher *teacher, const ot_micro_batch *rows,
                                const int64_t *keys, const ot_lesson_places *to) {
  ot_remote_teacher *const t = teacher;
  const int64_t K = t->facts.ids;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_http_request request = {.url = t->lesson_url,
                                   .body = ot_lesson_write(rows, K > 0 ? keys : NULL, &arena),
                                   .timeout_s = t->run->distill.server_timeout,
                                   .most_bytes = FACTS_BYTES + ot_lesson_answer_bytes(&t->facts)};
  ot_status status = exchange(t, &request);
  if (status == OT_OK) {
    status = ot_lesson_answer_read(t->lesson_url, &t->answer, &t->facts, to);
  }
  ot_heap_release(&heap);
  return status;
}
