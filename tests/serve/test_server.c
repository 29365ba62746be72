// SPDX-License-Identifier: Apache-2.0
// run: any machine. `orthant serve` over real connections on the loopback: the form of answers that
// lm-evaluation-harness relies on (docs/serve.md lists the traps), streams, keys, limits, clients
// that leave, and answers that do not depend on the load.
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "support/arena_fixture.h"
#include "support/http_client.h"
#include "support/served_site.h"

enum {
  POSITIONS = SITE_POSITIONS,
  EOS = 256,
  BODY_BYTES = SITE_BODY_BYTES,
  ANSWER_BYTES = HTTP_ANSWER_BYTES
};

// ---- what a harness asks ----

// Log-likelihoods as lm_eval 0.4.13 asks for them.
static json_t *loglikelihood(const site *s, const char *prompts) {
  char body[4096];
  snprintf(body, sizeof body,
           "{\"model\": \"mock\", \"prompt\": %s, \"temperature\": 0, \"max_tokens\": 1, "
           "\"logprobs\": 1, \"seed\": 1234, \"echo\": true}",
           prompts);
  return ask(s, "/v1/completions", body, 200);
}

static double largest_of(const json_t *object) {
  double largest = -INFINITY;
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)object, key, value) {
    largest = fmax(largest, json_real_value(value));
  }
  return largest;
}

// T1, T2, T3, T5: entries for prompt + 1 tokens, the first null, the token in its own list with the
// same number, which is a finite number.
static void expect_entries(const json_t *choice, size_t count) {
  const json_t *const of_tokens = member(choice, "logprobs.token_logprobs");
  const json_t *const top = member(choice, "logprobs.top_logprobs");
  assert_int_equal(json_array_size(of_tokens), count);
  assert_int_equal(json_array_size(top), count);
  assert_int_equal(json_array_size(member(choice, "logprobs.tokens")), count);
  assert_true(json_is_null(json_array_get(of_tokens, 0)) && json_is_null(json_array_get(top, 0)));
  for (size_t i = 1; i < count; i++) {
    const double logprob = json_real_value(json_array_get(of_tokens, i));
    const json_t *const list = json_array_get(top, i);
    const char *const name =
        json_string_value(json_array_get(member(choice, "logprobs.tokens"), i));
    assert_true(logprob < 0 && logprob >= -9999);
    assert_true(json_real_value(json_object_get(list, name)) == logprob);
    assert_true(json_object_size(list) >= 1 && json_object_size(list) <= 2);
    assert_true(largest_of(list) >= logprob);
  }
}

static void echo_has_an_entry_for_each_token_and_the_generated_one(void **state) {
  (void)state;
  site s = open_site(NULL);
  // T7, T10: a batch of unequal lengths, in order.
  const json_t *const batch = loglikelihood(&s, "[[77,111,100,101,108],[66],[1,2,3,4,5,6,7,8,9]]");
  const size_t lengths[] = {5, 1, 9};
  for (size_t i = 0; i < 3; i++) {
    const json_t *const choice = json_array_get(member(batch, "choices"), i);
    assert_int_equal(json_integer_value(member(choice, "index")), i);
    expect_entries(choice, lengths[i] + 1);
  }
  // T1: a prompt that ends in the end-of-text token, and is followed by anything.
  const json_t *const eos = loglikelihood(&s, "[[65,256]]");
  expect_entries(member(eos, "choices.0"), 3);
  // T4, T11: ids that are no text of their own have distinct names; the answer is JSON.
  const json_t *const pieces = loglikelihood(&s, "[[195,169,128,129,0]]");
  expect_entries(member(pieces, "choices.0"), 6);
  expect_text(pieces, "choices.0.logprobs.tokens.0", "token_id:195");
  expect_text(pieces, "choices.0.logprobs.tokens.3", "token_id:129");
  // All positions: 64 tokens and one more to generate, which needs no place in the cache.
  char prompt[1024] = "[[65";
  for (int i = 1; i < POSITIONS; i++) strcat(prompt, ",66");
  strcat(prompt, "]]");
  expect_entries(member(loglikelihood(&s, prompt), "choices.0"), POSITIONS + 1);
  close_site(&s);
}

static void a_prompt_is_text_or_ids_or_a_list_of_those(void **state) {
  (void)state;
  site s = open_site(NULL);
  const char *const forms[] = {"\"AB\"", "[\"AB\"]", "[65,66]", "[[65,66]]"};
  json_t *first = NULL;
  for (int i = 0; i < OT_COUNT(forms); i++) {
    json_t *const found = member(loglikelihood(&s, forms[i]), "choices");
    if (i == 0) first = found;
    assert_true(json_equal(first, found));
  }
  close_site(&s);
}

// T9, T12: generation ends at the model's own end-of-text token, whose text is not shown.
static void generation_stops_where_it_is_told(void **state) {
  (void)state;
  site s = open_site(NULL);
  const json_t *const plain =
      ask(&s, "/v1/completions",
          "{\"prompt\": [[65,66,67]], \"model\": \"x\", \"max_tokens\": 12, \"temperature\": 0, "
          "\"stop\": [], \"seed\": 1234, \"unknown\": {\"a\": 1}}",
          200);
  const char *const text = json_string_value(member(plain, "choices.0.text"));
  expect_text(plain, "choices.0.finish_reason", "length");
  assert_int_equal(json_integer_value(member(plain, "usage.completion_tokens")), 12);
  // A stop text made of what comes: it and the rest are cut off.
  int at = 3;
  while (text[at] && ((unsigned char)text[at] >= 0x80 || text[at] < ' ' || text[at] == '"' ||
                      text[at] == '\\' || strchr(text, text[at]) != text + at)) {
    at++;
  }
  if (text[at]) {
    char body[300];
    snprintf(body, sizeof body,
             "{\"prompt\": [[65,66,67]], \"max_tokens\": 12, \"temperature\": 0, "
             "\"stop\": [\"%c\"]}",
             text[at]);
    const json_t *const stopped = ask(&s, "/v1/completions", body, 200);
    const char *const cut = json_string_value(member(stopped, "choices.0.text"));
    assert_int_equal(strlen(cut), at);
    assert_memory_equal(cut, text, (size_t)at);
    expect_text(stopped, "choices.0.finish_reason", "stop");
  }
  close_site(&s);
}

static void the_tokenizer_is_found_by_its_clients(void **state) {
  (void)state;
  site s = open_site(NULL);
  const json_t *const info = ask(&s, "/tokenizer_info", NULL, 200);
  const char *const eos = json_string_value(member(info, "eos_token"));
  assert_non_null(eos);
  assert_true(json_is_null(member(info, "bos_token")));
  // T11: the text of a special token is its one id.
  char body[200];
  snprintf(body, sizeof body, "{\"prompt\": \"%s\", \"add_special_tokens\": false}", eos);
  const json_t *const tokens = ask(&s, "/tokenize", body, 200);
  assert_int_equal(json_array_size(member(tokens, "tokens")), 1);
  assert_int_equal(json_integer_value(member(tokens, "tokens.0")), EOS);
  const json_t *const two = ask(&s, "/tokenize", "{\"prompt\": \"\\u00e9\"}", 200);
  assert_int_equal(json_integer_value(member(two, "tokens.1")), 169);
  expect_text(ask(&s, "/detokenize", "{\"tokens\": [195, 169]}", 200), "prompt", "\xc3\xa9");
  ask(&s, "/detokenize", "{\"tokens\": [195]}", 200);
  ask(&s, "/detokenize", "{\"tokens\": [999]}", 400);
  expect_text(ask(&s, "/v1/models", NULL, 200), "data.0.id", "tiny");
  expect_text(ask(&s, "/health", NULL, 200), "status", "ok");
  close_site(&s);
}

// ---- streams ----

// The texts of all events of choice `index`, joined.
static void join_events(const char *chunks, const char *key, char *to) {
  to[0] = '\0';
  for (const char *at = strstr(chunks, "data: {"); at; at = strstr(at + 1, "data: {")) {
    const char *const end = strstr(at, "\n\n");
    char *const line = strndup(at + 6, (size_t)(end - at - 6));
    json_t *const event = parse(line);
    const char *const text = json_string_value(member(event, key));
    if (text) strcat(to, text);
    free(line);
  }
}

static void a_stream_is_the_text_in_pieces(void **state) {
  (void)state;
  site s = open_site(NULL);
  const char *const form =
      "{\"prompt\": [65,66,67], \"max_tokens\": 30, \"temperature\": 1, "
      "\"seed\": 7%s}";
  char body[300];
  snprintf(body, sizeof body, form, "");
  const json_t *const whole = ask(&s, "/v1/completions", body, 200);
  snprintf(body, sizeof body, form,
           ", \"stream\": true, \"stream_options\": {\"include_usage\": true}");
  const int fd = http_connect(s.port);
  http_send(fd, "POST", "/v1/completions", "", body);
  char *const text = ot_arena_array(&arena, ANSWER_BYTES, 1);
  char *const joined = ot_arena_array(&arena, ANSWER_BYTES, 1);
  assert_int_equal(http_receive(fd, text), 200);
  close(fd);
  join_chunks(text);
  join_events(text, "choices.0.text", joined);
  expect_text(whole, "choices.0.text", joined);
  assert_non_null(strstr(text, "data: [DONE]\n\n"));
  assert_non_null(strstr(text, "\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":30"));
  close_site(&s);
}

static void a_chat_is_a_prompt_in_its_template(void **state) {
  (void)state;
  site s = open_site(NULL);
  const json_t *const chat =
      ask(&s, "/v1/chat/completions",
          "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"max_tokens\": 4, "
          "\"temperature\": 0, \"logprobs\": true, \"top_logprobs\": 2}",
          200);
  const json_t *const plain =
      ask(&s, "/v1/completions",
          "{\"prompt\": \"<|im_start|>user\\na<|im_end|>\\n<|im_start|>assistant\\n\", "
          "\"max_tokens\": 4, \"temperature\": 0}",
          200);
  expect_text(chat, "choices.0.message.content",
              json_string_value(member(plain, "choices.0.text")));
  assert_int_equal(json_array_size(member(chat, "choices.0.logprobs.content")), 4);
  assert_int_equal(json_array_size(member(chat, "choices.0.logprobs.content.0.top_logprobs")), 2);
  ask(&s, "/v1/chat/completions", "{\"messages\": [{\"role\": \"god\", \"content\": \"a\"}]}", 400);
  close_site(&s);
}

// ---- strangers ----

static void wrong_requests_are_refused_and_the_next_is_answered(void **state) {
  (void)state;
  site s = open_site(NULL);
  const char *const wrong[] = {
      "",
      "{",
      "[]",
      "{}",
      "{\"prompt\": 5}",
      "{\"prompt\": []}",
      "{\"prompt\": [[]], \"max_tokens\": -1}",
      "{\"prompt\": [65, \"a\"]}",
      "{\"prompt\": [257]}",
      "{\"prompt\": [-1]}",
      "{\"prompt\": \"a\", \"max_tokens\": 65}",
      "{\"prompt\": \"a\", \"max_tokens\": 1e9}",
      "{\"prompt\": \"a\", \"max_tokens\": 0}",
      "{\"prompt\": \"a\", \"temperature\": \"hot\"}",
      "{\"prompt\": \"a\", \"n\": 1000}",
      "{\"prompt\": [\"a\",\"b\",\"c\"], \"n\": 100}",
      "{\"prompt\": \"a\", \"logprobs\": 21}",
      "{\"prompt\": \"a\", \"stop\": [1]}",
      "{\"prompt\": \"a\", \"prompt\": \"b\"}",
  };
  for (int i = 0; i < OT_COUNT(wrong); i++) {
    assert_non_null(member(ask(&s, "/v1/completions", wrong[i], 400), "error.message"));
  }
  ask(&s, "/etc/passwd", NULL, 404);
  ask(&s, "/../../etc/passwd", NULL, 404);
  ask(&s, "/v1/completions", NULL, 405);
  ask(&s, "/health", "{}", 405);
  char *const large = malloc(BODY_BYTES + 100);
  memset(large, ' ', BODY_BYTES + 99);
  large[BODY_BYTES + 99] = '\0';
  ask(&s, "/v1/completions", large, 413);
  free(large);
  expect_text(ask(&s, "/health", NULL, 200), "status", "ok");
  close_site(&s);
}

static void a_text_ends_at_the_ids_of_the_request_or_nowhere(void **state) {
  (void)state;
  site s = open_site(NULL);
  char body[200];
  const json_t *const whole = ask(&s, "/v1/completions",
                                  "{\"prompt\": \"abc\", \"max_tokens\": 8, \"seed\": 5, "
                                  "\"ignore_eos\": true, \"logprobs\": 0}",
                                  200);
  assert_int_equal(json_integer_value(member(whole, "usage.completion_tokens")), 8);
  const char *const first = json_string_value(member(whole, "choices.0.logprobs.tokens.0"));
  const bool named = strncmp(first, "token_id:", 9) == 0;
  snprintf(body, sizeof body,
           "{\"prompt\": \"abc\", \"max_tokens\": 8, \"seed\": 5, \"stop_token_ids\": [%d, 9]}",
           named ? atoi(first + 9) : (unsigned char)first[0]);
  const json_t *const cut = ask(&s, "/v1/completions", body, 200);
  expect_text(cut, "choices.0.text", "");
  expect_text(cut, "choices.0.finish_reason", "stop");
  close_site(&s);
}

static void a_key_is_asked_of_everyone(void **state) {
  (void)state;
  site s = open_site(&(site_options){.key = "secret"});
  ask(&s, "/v1/models", NULL, 401);
  ask(&s, "/health", NULL, 401);
  ask(&s, "/nothing", NULL, 401);
  const char *const keys[] = {"Bearer ", "Bearer secre", "Bearer secrets", "secret",
                              "Bearer secret"};
  char text[4096];
  for (int i = 0; i < OT_COUNT(keys); i++) {
    char header[100];
    snprintf(header, sizeof header, "Authorization: %s\r\n", keys[i]);
    const int fd = http_connect(s.port);
    http_send(fd, "GET", "/v1/models", header, "");
    assert_int_equal(http_receive(fd, text), i == 4 ? 200 : 401);
    close(fd);
  }
  close_site(&s);
  // T12: where there is none, an empty one is fine, and connections are kept.
  s = open_site(NULL);
  const int fd = http_connect(s.port);
  for (int i = 0; i < 3; i++) {
    http_send(fd, "GET", "/v1/models", "Authorization: Bearer \r\n", "");
    assert_int_equal(http_receive(fd, text), 200);
  }
  close(fd);
  close_site(&s);
}

static void more_than_may_wait_are_refused(void **state) {
  (void)state;
  site s = open_site(&(site_options){.most_waiting = 2});
  const int fd = http_connect(s.port);
  http_send(fd, "POST", "/v1/completions", "",
            "{\"prompt\": [\"a\",\"b\"], \"n\": 64, \"max_tokens\": 60}");
  // Until it has begun, the next one may be first.
  int64_t waiting = 0;
  while (waiting == 0) waiting = ot_service_count(s.service).submitted;
  ask(&s, "/v1/completions", "{\"prompt\": \"a\", \"max_tokens\": 1}", 429);
  close(fd);
  close_site(&s);
}

static void what_clients_left_is_dropped(void **state) {
  (void)state;
  site s = open_site(&(site_options){.most_waiting = 1000});
  for (int stream = 0; stream < 2; stream++) {
    char body[200];
    snprintf(body, sizeof body,
             "{\"prompt\": [\"a\",\"b\"], \"n\": 100, \"max_tokens\": 60, \"stream\": %s}",
             stream ? "true" : "false");
    const int fd = http_connect(s.port);
    http_send(fd, "POST", "/v1/completions", "", body);
    while (ot_service_count(s.service).submitted == stream) usleep(1000);
    close(fd);
  }
  ot_service_counts counts = ot_service_count(s.service);
  for (int i = 0; i < 10000 && counts.cancelled < 2; i++) {
    usleep(1000);
    counts = ot_service_count(s.service);
  }
  assert_int_equal(counts.cancelled, 2);
  assert_true(counts.engine.generated_tokens < 2 * 200 * 60);
  close_site(&s);
}

static void a_server_ends_with_requests_in_work(void **state) {
  (void)state;
  site s = open_site(&(site_options){.most_waiting = 1000});
  int fds[4];
  for (int i = 0; i < 4; i++) {
    fds[i] = http_connect(s.port);
    http_send(fds[i], "POST", "/v1/completions", "",
              i % 2 ? "{\"prompt\": \"a\", \"n\": 50, \"max_tokens\": 60, \"stream\": true}"
                    : "{\"prompt\": \"a\", \"n\": 50, \"max_tokens\": 60}");
  }
  while (ot_service_count(s.service).submitted < 4) usleep(1000);
  close_site(&s);
  for (int i = 0; i < 4; i++) close(fds[i]);
}

// ---- load ----

typedef struct client {
  pthread_t thread;
  int port, number, requests;
  int wrong, answered;
  char (*expected)[ANSWER_BYTES / 64];
} client;

enum { KINDS = 12 };

static void body_of(int kind, char *to, size_t size) {
  const char *const forms[] = {
      "{\"prompt\": [[65,66,%d]], \"max_tokens\": %d, \"temperature\": 0, \"logprobs\": 2}",
      ("{\"prompt\": [[70,71,72,73,74,75,76,77,78,79,80,81,82,83,84,85,86,%d]], "
       "\"max_tokens\": 1, \"echo\": true, \"logprobs\": 1, \"seed\": %d}"),
      "{\"prompt\": [[%d],[3,4]], \"max_tokens\": %d, \"temperature\": 0.9, \"seed\": 5}"};
  snprintf(to, size, forms[kind % 3], 100 + kind, 1 + kind);
}

// The choices in an answer, as text.
static void choices_of(const char *answer, char *to, size_t size) {
  const char *const from = strstr(answer, "\"choices\"");
  snprintf(to, size, "%s", from ? from : answer);
}

static void *run_client(void *context) {
  client *const c = context;
  char *const text = malloc(ANSWER_BYTES), *const found = malloc(ANSWER_BYTES / 64);
  int fd = http_connect(c->port);
  for (int i = 0; i < c->requests; i++) {
    const uint64_t dice = ot_rng_below(11, (uint64_t)c->number, (uint64_t)i, 1000);
    const int kind = (int)(dice % KINDS);
    char body[512];
    body_of(kind, body, sizeof body);
    http_send(fd, "POST", "/v1/completions", "", body);
    if (dice % 7 == 0) {  // leaves without waiting
      close(fd);
      fd = http_connect(c->port);
      continue;
    }
    const int status = http_receive(fd, text);
    choices_of(text, found, ANSWER_BYTES / 64);
    c->answered++;
    if (status != 200 || strcmp(found, c->expected[kind]) != 0) c->wrong++;
  }
  close(fd);
  free(text);
  free(found);
  return NULL;
}

static void answers_do_not_depend_on_the_load(void **state) {
  (void)state;
  site s = open_site(&(site_options){.most_waiting = 10000});
  const bool full = getenv("OT_TESTS") && strcmp(getenv("OT_TESTS"), "full") == 0;  // OT_TESTS=full
  const int clients = full ? 64 : 16, requests = full ? 157 : 20;
  char(*const expected)[ANSWER_BYTES / 64] = malloc(KINDS * sizeof *expected);
  char *const text = malloc(ANSWER_BYTES);
  for (int kind = 0; kind < KINDS; kind++) {
    char body[512];
    body_of(kind, body, sizeof body);
    const int fd = http_connect(s.port);
    http_send(fd, "POST", "/v1/completions", "", body);
    assert_int_equal(http_receive(fd, text), 200);
    choices_of(text, expected[kind], sizeof *expected);
    close(fd);
  }
  client *const all = calloc((size_t)clients, sizeof *all);
  for (int i = 0; i < clients; i++) {
    all[i] = (client){.port = s.port, .number = i, .requests = requests, .expected = expected};
    assert_int_equal(pthread_create(&all[i].thread, NULL, run_client, &all[i]), 0);
  }
  int answered = 0;
  for (int i = 0; i < clients; i++) {
    pthread_join(all[i].thread, NULL);
    assert_int_equal(all[i].wrong, 0);
    answered += all[i].answered;
  }
  assert_true(answered > clients * requests / 2);
  free(all);
  free(text);
  free(expected);
  const int fd = http_connect(s.port);
  char metrics[1 << 14];
  http_send(fd, "GET", "/metrics", "", "");
  assert_int_equal(http_receive(fd, metrics), 200);
  close(fd);
  assert_non_null(
      strstr(metrics, "# TYPE orthant:requests_total counter\northant:requests_total "));
  close_site(&s);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, finish)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(echo_has_an_entry_for_each_token_and_the_generated_one),
      TEST(a_prompt_is_text_or_ids_or_a_list_of_those),
      TEST(generation_stops_where_it_is_told),
      TEST(the_tokenizer_is_found_by_its_clients),
      TEST(a_stream_is_the_text_in_pieces),
      TEST(a_chat_is_a_prompt_in_its_template),
      TEST(wrong_requests_are_refused_and_the_next_is_answered),
      TEST(a_text_ends_at_the_ids_of_the_request_or_nowhere),
      TEST(a_key_is_asked_of_everyone),
      TEST(more_than_may_wait_are_refused),
      TEST(what_clients_left_is_dropped),
      TEST(a_server_ends_with_requests_in_work),
      TEST(answers_do_not_depend_on_the_load),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
