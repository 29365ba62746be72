// SPDX-License-Identifier: Apache-2.0
// Documents are kept in a list until the site is closed.
#include "support/served_site.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/http_client.h"
#include "support/tiny_model.h"

enum { VOCAB = 257, MEMORY_BYTES = 1 << 26 };

static void must(ot_status status) {
  if (status != OT_OK) fail_msg("%s", ot_fail_message());
}

ot_server_options site_server_options(const site *s, const site_options *options) {
  return (ot_server_options){.host = "127.0.0.1",
                             .port = s->port,
                             .key = options->key,
                             .most_connections = 100,
                             .most_body_bytes = SITE_BODY_BYTES,
                             .idle_s = options->idle_s > 0 ? options->idle_s : 30};
}

site open_site(const site_options *options) {
  const site_options given = options ? *options : (site_options){0};
  site s = {.model = tiny_llama()};
  s.model.vocab_size = VOCAB;
  s.model.max_positions = SITE_POSITIONS;
  const ot_inference_shape shape = {
      .slots = 4, .chunk = 24, .positions = SITE_POSITIONS, .pages = 40};
  ot_runtime_request request = {
      .rank = {.graph = {.model = &s.model, .compute = OT_F32, .storage = OT_F32, .threads = 1}}};
  ot_inference_complete(&shape, &request.rank);
  must(ot_runtime_create(&request, &s.runtime));
  must(ot_runtime_initialize(s.runtime, 3));
  must(ot_tokenizer_create("bytes", &s.tokenizer));
  const ot_service_options engine = {
      .runtime = s.runtime,
      .tokenizer = s.tokenizer,
      .chat = ot_chat_template_find("chatml"),
      .model = "tiny",
      .positions = SITE_POSITIONS,
      .most_waiting = given.most_waiting > 0 ? given.most_waiting : 100,
      .memory_bytes = given.memory_bytes > 0 ? given.memory_bytes : MEMORY_BYTES,
      .timeout_s = 100,
      .comment_s = given.idle_s > 0 ? given.idle_s / 3.0 : 100};
  must(ot_service_create(&engine, &s.service));
  const ot_server_options place = site_server_options(&s, &given);
  if (ot_server_create(&place, s.service, &s.server) != OT_OK) {
    ot_service_destroy(&s.service);
    print_message("skipped: %s\n", ot_fail_message());
    skip();
  }
  s.port = ot_server_port(s.server);
  return s;
}

static json_t *answers;  // all of a test

void close_site(site *s) {
  json_decref(answers);
  answers = NULL;
  ot_server_destroy(&s->server, &s->service);
  ot_runtime_destroy(&s->runtime);
  ot_tokenizer_destroy(&s->tokenizer);
}

// ---- answers ----

json_t *parse(const char *text) {
  json_error_t error;
  json_t *const root = json_loads(text, JSON_ALLOW_NUL, &error);
  if (!root) fail_msg("not JSON (%s): %.300s", error.text, text);
  if (!answers) answers = json_array();
  json_array_append_new(answers, root);
  return root;
}

// Removes sizes of chunks. An event is one append of the server, but may lie in several chunks.
void join_chunks(char *text) {
  char *to = text;
  for (char *at = text; *at;) {
    char *data = NULL;
    const size_t size = strtoul(at, &data, 16);
    if (size == 0) break;
    memmove(to, data + 2, size);
    to += size;
    at = data + 2 + size + 2;
  }
  *to = '\0';
}

json_t *ask_with(const site *s, const char *headers, const char *path, const char *body, int want) {
  char *const text = malloc(HTTP_ANSWER_BYTES);
  const int fd = http_connect(s->port);
  http_send(fd, body ? "POST" : "GET", path, headers, body ? body : "");
  const int status = http_receive(fd, text);
  close(fd);
  if (status != want) fail_msg("%s: status %d, expected %d: %s", path, status, want, text);
  if (strncmp(text, "{", 1) != 0) join_chunks(text);
  json_t *const found = parse(text);
  free(text);
  return found;
}

json_t *ask(const site *s, const char *path, const char *body, int want) {
  return ask_with(s, "", path, body, want);
}

json_t *member(const json_t *object, const char *path) {
  json_t *at = (json_t *)object;
  char copy[200];
  snprintf(copy, sizeof copy, "%s", path);
  for (char *word = strtok(copy, "."); word; word = strtok(NULL, ".")) {
    at = json_is_array(at) ? json_array_get(at, (size_t)atoi(word)) : json_object_get(at, word);
  }
  return at;
}

void expect_text(const json_t *object, const char *path, const char *want) {
  const char *const found = json_string_value(member(object, path));
  if (!found || strcmp(found, want) != 0) fail_msg("%s is %s", path, found ? found : "no text");
}
