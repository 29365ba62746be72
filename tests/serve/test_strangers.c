// SPDX-License-Identifier: Apache-2.0
// run: any machine. `orthant serve` among strangers: ports in use, names and types that pages of
// strangers may send, sizes, memory that is bounded, texts that take long, clients that read late.
#include <jansson.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "serve/address.h"
#include "serve/service_job.h"
#include "support/arena_fixture.h"
#include "support/http_client.h"
#include "support/served_site.h"

// ---- addresses ----

static void a_port_in_use_is_refused(void **state) {
  (void)state;
  site s = open_site(NULL);
  const ot_server_options place = site_server_options(&s, &(site_options){0});
  ot_server *second = NULL;
  char port[20];
  snprintf(port, sizeof port, "port %d ", s.port);
  assert_int_equal(ot_server_create(&place, s.service, &second), OT_ENVIRONMENT);
  assert_null(second);
  assert_non_null(strstr(ot_fail_message(), port));
  assert_non_null(strstr(ot_fail_message(), "in use"));
  // An address that contains the other one shares no port with it.
  const char *const wider[] = {"0.0.0.0", "::"};
  for (int i = 0; i < 2; i++) {
    int listening = -1;
    const ot_status status = ot_address_listen(wider[i], s.port, &listening);
    if (status == OT_OK) close(listening);
    assert_int_equal(status, OT_ENVIRONMENT);
  }
  close_site(&s);
}

static void a_port_is_free_again_after_its_server(void **state) {
  (void)state;
  site s = open_site(NULL);
  const int port = s.port;
  ask(&s, "/health", NULL, 200);  // leaves a connection in TIME_WAIT
  close_site(&s);
  int listening = -1;
  assert_int_equal(ot_address_listen("127.0.0.1", port, &listening), OT_OK);
  assert_int_equal(ot_address_port(listening), port);
  close(listening);
}

static void wrong_addresses_are_named(void **state) {
  (void)state;
  int listening = -1;
  assert_int_equal(ot_address_listen("example", 0, &listening), OT_USAGE);
  assert_non_null(strstr(ot_fail_message(), "example is not an address"));
  // Reserved for documentation (RFC 5737): no machine has it.
  assert_int_equal(ot_address_listen("192.0.2.1", 0, &listening), OT_ENVIRONMENT);
  assert_non_null(strstr(ot_fail_message(), "192.0.2.1"));
}

static void a_host_is_a_name_of_this_server(void **state) {
  (void)state;
  static const struct {
    const char *header, *host, *names;
    bool is;
  } cases[] = {
      {"localhost", "127.0.0.1", NULL, true},
      {"LocalHost:8000", "127.0.0.1", NULL, true},
      {"127.0.0.1:8000", "127.0.0.1", NULL, true},
      {"127.0.0.9", "127.0.0.1", NULL, true},
      {"[::1]:8000", "127.0.0.1", NULL, true},
      {"[::1]", "::1", NULL, true},
      {"evil.example", "127.0.0.1", NULL, false},
      {"evil.example:8000", "::1", NULL, false},
      {"localhost.evil.example", "127.0.0.1", NULL, false},
      {"127.0.0.1.evil.example", "127.0.0.1", NULL, false},
      {"10.0.0.1", "127.0.0.1", NULL, false},
      {"", "127.0.0.1", NULL, false},
      {":8000", "127.0.0.1", NULL, false},
      {"[]", "127.0.0.1", NULL, false},
      {"box", "127.0.0.1", "other,BOX", true},
      {"other:1", "127.0.0.1", "other,box", true},
      {"oth", "127.0.0.1", "other,box", false},
      {"10.0.0.1:8000", "0.0.0.0", NULL, true},
      {"[fe80::1]:8000", "::", NULL, true},
      {"evil.example", "0.0.0.0", NULL, false},
      {"evil.example", "10.0.0.1", NULL, false},
      {"teacher", "0.0.0.0", "teacher", true},
  };
  for (int i = 0; i < OT_COUNT(cases); i++) {
    if (ot_address_is_named(cases[i].header, cases[i].host, cases[i].names) != cases[i].is) {
      fail_msg("Host %s at %s", cases[i].header, cases[i].host);
    }
  }
  char own[256] = "";
  gethostname(own, sizeof own - 1);
  assert_true(ot_address_is_named(own, "0.0.0.0", NULL));
  assert_true(ot_address_is_loopback("127.1.2.3") && ot_address_is_loopback("::1") &&
              ot_address_is_loopback("localhost"));
  assert_false(ot_address_is_loopback("0.0.0.0") || ot_address_is_loopback("::") ||
               ot_address_is_loopback("10.0.0.1"));
}

// ---- heads of requests ----

static int send_raw(const site *s, const char *text) {
  const int fd = http_connect(s->port);
  assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
  return fd;
}

static int status_of(const site *s, const char *text, const char *words) {
  char *const answer = malloc(HTTP_ANSWER_BYTES);
  const int fd = send_raw(s, text);
  const int status = http_receive(fd, answer);
  if (!strstr(answer, words)) fail_msg("%s: no \"%s\"", answer, words);
  close(fd);
  free(answer);
  return status;
}

static void pages_of_strangers_are_refused(void **state) {
  (void)state;
  site s = open_site(NULL);
  const char *const evil = "GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n";
  assert_int_equal(status_of(&s, evil, "--allow-host"), 403);
  const char *const form =
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: 14\r\n\r\n"
      "{\"prompt\":\"a\"}";
  static const struct {
    const char *header;
    int status;
  } types[] = {
      {"", 415},
      {"Content-Type: text/plain\r\n", 415},
      {"Content-Type: application/x-www-form-urlencoded\r\n", 415},
      {"Content-Type: application/jsonp\r\n", 415},
      {"Content-Type: application/json\r\n", 200},
      {"Content-Type: Application/JSON; charset=utf-8\r\n", 200},
  };
  for (int i = 0; i < OT_COUNT(types); i++) {
    char text[400];
    snprintf(text, sizeof text, form, types[i].header);
    assert_int_equal(status_of(&s, text, types[i].status == 200 ? "tokens" : "application/json"),
                     types[i].status);
  }
  close_site(&s);
  // Who has the key is no page of a stranger.
  s = open_site(&(site_options){.key = "secret"});
  assert_int_equal(status_of(&s,
                             "GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n"
                             "Authorization: Bearer secret\r\n\r\n",
                             "tiny"),
                   200);
  assert_int_equal(status_of(&s, evil, "key"), 401);
  // Not after a body that may never come.
  assert_int_equal(status_of(&s,
                             "POST /tokenize HTTP/1.1\r\nHost: localhost\r\n"
                             "Content-Type: application/json\r\nContent-Length: 14\r\n\r\n",
                             "key"),
                   401);
  close_site(&s);
}

static void a_body_that_cannot_be_meant_is_refused_before_it_comes(void **state) {
  (void)state;
  site s = open_site(NULL);
  assert_int_equal(status_of(&s,
                             "POST /tokenize HTTP/1.1\r\nHost: localhost\r\n"
                             "Content-Type: application/json\r\n"
                             "Content-Length: 9223372036854775808\r\n\r\n",
                             "more than 262144 bytes"),
                   413);
  // One without a length is cut off.
  const int fd = send_raw(&s,
                          "POST /tokenize HTTP/1.1\r\nHost: localhost\r\n"
                          "Content-Type: application/json\r\n"
                          "Transfer-Encoding: chunked\r\n\r\n");
  char chunk[4096 + 9];
  snprintf(chunk, sizeof chunk, "1000\r\n%4096s\r\n", "");
  int sent = 0;
  while (sent < 100000 && send(fd, chunk, sizeof chunk - 1, MSG_NOSIGNAL) > 0) sent++;
  assert_in_range(sent, SITE_BODY_BYTES / 4096, 100000 - 1);
  close(fd);
  ask(&s, "/health", NULL, 200);
  close_site(&s);
}

static void many_lists_are_refused(void **state) {
  (void)state;
  site s = open_site(NULL);
  char *const body = malloc(SITE_BODY_BYTES);
  char *at = body + sprintf(body, "{\"prompt\": \"a\", \"max_tokens\": 1, \"x\": [[]");
  for (int i = 0; i < 20000; i++) at += sprintf(at, ",[]");
  strcpy(at, "]}");
  const json_t *const refused = ask(&s, "/v1/completions", body, 400);
  assert_non_null(strstr(json_string_value(member(refused, "error.message")), "lists and objects"));
  // Brackets in a text are no lists.
  at = body + sprintf(body, "{\"prompt\": \"\\\"");
  for (int i = 0; i < 20000; i++) *at++ = '[';
  strcpy(at, "\"}");
  assert_int_equal(json_integer_value(member(ask(&s, "/tokenize", body, 200), "count")), 20001);
  free(body);
  close_site(&s);
}

// ---- memory ----

static void bodies_together_are_bounded(void **state) {
  (void)state;
  site s = open_site(&(site_options){.memory_bytes = 4 << 20});
  enum { UNFINISHED = 8 };  // of 256 KiB: half of the memory
  int fds[UNFINISHED];
  char *const text = malloc(SITE_BODY_BYTES);
  for (int i = 0; i < UNFINISHED; i++) {
    const int head = sprintf(text,
                             "POST /tokenize HTTP/1.1\r\nHost: localhost\r\n"
                             "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n",
                             SITE_BODY_BYTES);
    memset(text + head, ' ', SITE_BODY_BYTES - (size_t)head - 1);
    text[SITE_BODY_BYTES - 1] = '\0';
    fds[i] = send_raw(&s, text);
  }
  free(text);
  json_t *refused = NULL;
  for (int i = 0; i < 10000 && !refused; i++) {  // until all of them have arrived
    char *const answer = malloc(HTTP_ANSWER_BYTES);
    const int fd = http_connect(s.port);
    http_send(fd, "POST", "/tokenize", "", "{\"prompt\":\"a\"}");
    if (http_receive(fd, answer) == 429) refused = parse(answer);
    close(fd);
    free(answer);
    usleep(1000);
  }
  assert_non_null(refused);
  assert_non_null(strstr(json_string_value(member(refused, "error.message")), "--request-memory"));
  for (int i = 0; i < UNFINISHED; i++) close(fds[i]);
  int status = 429;
  for (int i = 0; i < 10000 && status == 429; i++) {  // until they have been noticed
    char answer[4096];
    const int fd = http_connect(s.port);
    http_send(fd, "POST", "/tokenize", "", "{\"prompt\":\"a\"}");
    status = http_receive(fd, answer);
    close(fd);
    usleep(1000);
  }
  assert_int_equal(status, 200);
  close_site(&s);
}

static void a_request_for_more_than_all_memory_is_refused(void **state) {
  (void)state;
  site s = open_site(&(site_options){.memory_bytes = 4 << 20});
  const json_t *const refused =
      ask(&s, "/v1/completions",
          "{\"prompt\": [65], \"n\": 256, \"max_tokens\": 64, \"logprobs\": 20}", 400);
  const char *const message = json_string_value(member(refused, "error.message"));
  assert_non_null(strstr(message, "--request-memory"));
  assert_non_null(strstr(message, "4 "));
  ask(&s, "/v1/completions", "{\"prompt\": [65], \"n\": 2, \"max_tokens\": 8, \"logprobs\": 20}",
      200);
  close_site(&s);
}

// The first event of a stream has the whole prompt, which an answer in parts has not.
static void the_event_of_a_long_prompt_is_in_the_memory(void **state) {
  (void)state;
  site s = open_site(&(site_options){.memory_bytes = 1 << 19});
  char ids[400] = "65", body[600];
  for (int i = 1; i < 60; i++) sprintf(ids + strlen(ids), ",%d", 66 + i);
  for (int stream = 0; stream < 2; stream++) {
    snprintf(body, sizeof body,
             "{\"prompt\": [%s], \"max_tokens\": 1, \"echo\": true, \"logprobs\": 20, "
             "\"stream\": %s}",
             ids, stream ? "true" : "false");
    ask(&s, "/v1/completions", body, stream ? 400 : 200);
  }
  close_site(&s);
}

static void a_text_that_is_too_long_is_not_written(void **state) {
  (void)state;
  site s = open_site(&(site_options){.memory_bytes = 1 << 19});
  char *const body = malloc(SITE_BODY_BYTES);
  char *at = body + sprintf(body, "{\"tokens\": [9");
  for (int i = 0; i < 100000; i++) at += sprintf(at, ",9");
  strcpy(at, "]}");
  const json_t *const refused = ask(&s, "/detokenize", body, 400);
  assert_non_null(strstr(json_string_value(member(refused, "error.message")), "--request-memory"));
  expect_text(ask(&s, "/detokenize", "{\"tokens\": [65]}", 200), "prompt", "A");
  free(body);
  close_site(&s);
}

// The scores of a prompt are kept once, and an answer of 32 choices comes in parts; it needs less
// memory than its text.
static void a_long_answer_is_as_many_short_ones(void **state) {
  (void)state;
  site s = open_site(&(site_options){.memory_bytes = 4 << 20});
  char ids[400] = "65", body[600];
  for (int i = 1; i < 60; i++) sprintf(ids + strlen(ids), ",%d", 66 + i);
  const char *const form =
      "{\"prompt\": [%s], \"n\": %d, \"max_tokens\": 1, \"temperature\": 0, \"echo\": true, "
      "\"logprobs\": 20}";
  snprintf(body, sizeof body, form, ids, 1);
  const json_t *const one = member(ask(&s, "/v1/completions", body, 200), "choices.0");
  assert_int_equal(json_array_size(member(one, "logprobs.tokens")), 61);
  snprintf(body, sizeof body, form, ids, 24);
  const json_t *const all = member(ask(&s, "/v1/completions", body, 200), "choices");
  assert_int_equal(json_array_size(all), 24);
  for (size_t i = 0; i < 24; i++) {
    json_t *const choice = json_array_get(all, i);
    assert_int_equal(json_integer_value(member(choice, "index")), i);
    json_object_set_new(choice, "index", json_integer(0));
    assert_true(json_equal(choice, one));
  }
  close_site(&s);
}

// ---- what takes long ----

// A text that is being encoded keeps its lane for itself: here the test does.
static void long_texts_delay_no_one(void **state) {
  (void)state;
  site s = open_site(NULL);
  const int64_t bytes = SITE_BODY_BYTES;
  char *const text = malloc((size_t)bytes);
  memset(text, 'a', (size_t)bytes);
  memcpy(text, "{\"prompt\":\"", 11);
  memcpy(text + bytes - 3, "\"}", 3);
  ot_service_enter(s.service, bytes);
  const int fd = http_connect(s.port);
  http_send(fd, "POST", "/tokenize", "", text);
  ask(&s, "/health", NULL, 200);
  ask(&s, "/tokenize", "{\"prompt\": \"a\"}", 200);
  ask(&s, "/detokenize", "{\"tokens\": [65]}", 200);
  ask(&s, "/v1/completions", "{\"prompt\": \"a\", \"max_tokens\": 4}", 200);
  ask(&s, "/v1/chat/completions",
      "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"max_tokens\": 4}", 200);
  char byte;
  assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), -1);
  ot_service_leave(s.service, bytes);
  char *const answer = malloc((size_t)(8 * bytes));
  assert_int_equal(http_receive(fd, answer), 200);
  close(fd);
  free(answer);
  free(text);
  close_site(&s);
}

static void wait_for_requests(site *s, int64_t count) {
  for (int i = 0; ot_service_count(s->service).submitted < count; i++) {
    assert_true(i < 100000);
    usleep(200);
  }
}

// A connection without a byte is closed after three seconds here, but not one that waits for its
// answer, or for more of it: a stream whose text waits for others has comments meanwhile, without
// which libmicrohttpd 1.0 closes it.
static void an_answer_that_takes_long_is_sent(void **state) {
  (void)state;
  site s = open_site(&(site_options){.idle_s = 3});
  for (int stream = 0; stream < 2; stream++) {
    char body[200];
    const char *const other = "{\"prompt\": \"b\", \"n\": 90, \"max_tokens\": 60}";
    snprintf(body, sizeof body, "{\"prompt\": \"a\", \"n\": 4, \"max_tokens\": 60, \"stream\": %s}",
             stream ? "true" : "false");
    const int before = http_connect(s.port), fd = http_connect(s.port);
    http_send(before, "POST", "/v1/completions", "", other);
    wait_for_requests(&s, 2 * stream + 1);
    http_send(fd, "POST", "/v1/completions", "", body);
    wait_for_requests(&s, 2 * stream + 2);
    for (int i = 0; i < 3; i++) {  // the engine stands still but for moments
      pthread_mutex_lock(&s.service->lock);
      usleep(1100000);
      pthread_mutex_unlock(&s.service->lock);
      usleep(1000);
    }
    char *const text = malloc(HTTP_ANSWER_BYTES);
    assert_int_equal(http_receive(fd, text), 200);
    assert_non_null(strstr(text, stream ? "data: [DONE]" : "\"usage\":"));
    assert_int_equal(http_receive(before, text), 200);
    close(before);
    close(fd);
    free(text);
  }
  close_site(&s);
}

// ---- open files ----

// More clients than files wait for others to go; the server does not try to open more.
static void connections_are_no_more_than_files(void **state) {
  (void)state;
  struct rlimit before;
  getrlimit(RLIMIT_NOFILE, &before);
  const int next = dup(STDIN_FILENO);
  close(next);
  const struct rlimit few = {(rlim_t)next + 20, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &few);
  site s = open_site(NULL);
  setrlimit(RLIMIT_NOFILE, &before);
  enum { CLIENTS = 8 };
  int fds[CLIENTS];
  char byte, text[4096];
  for (int i = 0; i < CLIENTS; i++) {
    fds[i] = http_connect(s.port);
    http_send(fds[i], "GET", "/health", "", "");
  }
  assert_int_equal(http_receive(fds[0], text), 200);
  usleep(100000);
  assert_int_equal(recv(fds[CLIENTS - 1], &byte, 1, MSG_DONTWAIT), -1);
  for (int i = 0; i < CLIENTS - 1; i++) close(fds[i]);
  assert_int_equal(http_receive(fds[CLIENTS - 1], text), 200);
  close(fds[CLIENTS - 1]);
  close_site(&s);
}

// ---- clients that read late ----

static void a_stream_that_is_read_late_has_an_event_for_each_token(void **state) {
  (void)state;
  site s = open_site(NULL);
  const int fd = http_connect(s.port);
  http_send(fd, "POST", "/v1/completions", "",
            "{\"prompt\": [65], \"max_tokens\": 20, \"temperature\": 0, \"logprobs\": 1, "
            "\"stream\": true}");
  while (ot_service_count(s.service).finished == 0) usleep(1000);
  char *const text = malloc(HTTP_ANSWER_BYTES);
  assert_int_equal(http_receive(fd, text), 200);
  close(fd);
  join_chunks(text);
  int events = 0, records = 0;
  for (const char *at = strstr(text, "data: {"); at; at = strstr(at + 1, "data: {")) {
    char *const line = strndup(at + 6, (size_t)(strstr(at, "\n\n") - at - 6));
    const size_t here = json_array_size(member(parse(line), "choices.0.logprobs.tokens"));
    assert_in_range(here, 0, 1);
    records += (int)here;
    events++;
    free(line);
  }
  assert_int_equal(records, 20);
  assert_int_equal(events, 21);
  assert_non_null(strstr(text, "data: [DONE]\n\n"));
  free(text);
  close_site(&s);
}

// A client that has closed its end with shutdown() reads on.
static void a_half_closed_client_gets_its_answer(void **state) {
  (void)state;
  site s = open_site(NULL);
  for (int stream = 0; stream < 2; stream++) {
    char body[200];
    snprintf(body, sizeof body,
             "{\"prompt\": [65], \"n\": 100, \"max_tokens\": 60, \"temperature\": 0, "
             "\"stream\": %s}",
             stream ? "true" : "false");
    const int fd = http_connect(s.port);
    http_send(fd, "POST", "/v1/completions", "", body);
    shutdown(fd, SHUT_WR);
    char *const text = malloc(1 << 22);
    int64_t length = 0;
    for (ssize_t n; (n = recv(fd, text + length, 1 << 16, 0)) > 0 && length < 1 << 21;) length += n;
    text[length] = '\0';
    close(fd);
    assert_non_null(strstr(text, "HTTP/1.1 200 OK"));
    assert_non_null(strstr(text, stream ? "data: [DONE]" : "\"completion_tokens\":6000"));
    free(text);
  }
  assert_int_equal(ot_service_count(s.service).finished, 2);
  assert_int_equal(ot_service_count(s.service).cancelled, 0);
  close_site(&s);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, finish)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_port_in_use_is_refused),
      TEST(a_port_is_free_again_after_its_server),
      TEST(wrong_addresses_are_named),
      TEST(a_host_is_a_name_of_this_server),
      TEST(pages_of_strangers_are_refused),
      TEST(a_body_that_cannot_be_meant_is_refused_before_it_comes),
      TEST(many_lists_are_refused),
      TEST(bodies_together_are_bounded),
      TEST(a_request_for_more_than_all_memory_is_refused),
      TEST(the_event_of_a_long_prompt_is_in_the_memory),
      TEST(a_text_that_is_too_long_is_not_written),
      TEST(a_long_answer_is_as_many_short_ones),
      TEST(an_answer_that_takes_long_is_sent),
      TEST(connections_are_no_more_than_files),
      TEST(long_texts_delay_no_one),
      TEST(a_stream_that_is_read_late_has_an_event_for_each_token),
      TEST(a_half_closed_client_gets_its_answer),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
