// SPDX-License-Identifier: Apache-2.0
// run: backends=cpu
// The planning half as one function: answers agree with each other, and requests that are no
// tree or no question are refused with a message. That plans have the bytes of the program is
// tests/web/test_page_answers.sh.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/text_builder.h"
#include "files/json_file.h"
#include "files/tree_file.h"
#include "host/heap.h"
#include "web/web.h"

typedef struct fixture {
  ot_heap own, plan, call;
  ot_arena arena;
  ot_web *web;
  ot_text_builder text;
} fixture;

static void *take(void *context, int64_t bytes) {
  ot_arena arena = ot_heap_arena_create(context);
  return arena.source(arena.context, bytes);
}

static void release(void *context) { ot_heap_release(context); }

static void set_up(fixture *f) {
  *f = (fixture){0};
  f->arena = ot_heap_arena_create(&f->own);
  f->text.arena = &f->arena;
  f->web = ot_web_create(&f->arena, (ot_web_memory){take, release, &f->plan},
                         (ot_web_memory){take, release, &f->call});
}

static void tear_down(fixture *f) {
  ot_heap_release(&f->plan);
  ot_heap_release(&f->call);
  ot_heap_release(&f->own);
}

static void put_node(fixture *f, const ot_node *node, int depth, const char *key) {
  static const char kinds[] = {'n', 'w', 'l', 'm'};
  const char kind = node->kind == OT_NODE_SCALAR && node->quoted ? 't' : kinds[node->kind];
  ot_text_appendf(&f->text, "%d\t%c\t%s\t%s\n", depth, kind, key, node->text ? node->text : "");
  for (const ot_node *child = node->first; child; child = child->next) {
    put_node(f, child, depth + 1, child->key ? child->key : "");
  }
}

static void put_file(fixture *f, const char *key, const char *path) {
  ot_node *tree;
  assert_int_equal(ot_tree_load(path, &f->arena, &tree), OT_OK);
  put_node(f, tree, 1, key);
}

// llama3-8b on h100 with the lines `question`.
static void put_plan(fixture *f, const char *question) {
  f->text.length = 0;
  ot_text_put(&f->text, "0\tm\t\t\n1\tt\top\tplan\n");
  put_file(f, "model", OT_SOURCE_DIR "/presets/models/llama3-8b.json");
  put_file(f, "cluster", OT_SOURCE_DIR "/presets/clusters/h100.yaml");
  ot_text_appendf(&f->text, "1\tt\tmodel_name\tllama3-8b\n1\tm\tquestion\t\n%s", question);
}

static json_t *call(fixture *f, const char *request) {
  const ot_web_answer answer = ot_web_call(f->web, request, (int64_t)strlen(request));
  json_t *root;
  assert_int_equal(ot_json_parse("answer", answer.text, answer.length, &root), OT_OK);
  return root;
}

static json_t *operate(fixture *f, const char *lines) {
  f->text.length = 0;
  ot_text_appendf(&f->text, "0\tm\t\t\n%s", lines);
  return call(f, ot_text_builder_text(&f->text));
}

static double real(const json_t *object, const char *key) {
  assert_non_null(json_object_get(object, key));
  return json_number_value(json_object_get(object, key));
}

static void answers_agree_with_the_plan(void **state) {
  (void)state;
  fixture f;
  set_up(&f);
  put_plan(&f, "2\tw\tgpus\t64\n2\tw\tpp\t4\n2\tw\tvpp\t2\n2\tw\tprice\t2\n");
  json_t *const plan = call(&f, ot_text_builder_text(&f.text));
  const json_t *const best = json_array_get(json_object_get(plan, "plans"), 0);
  const double step_s = real(best, "step_seconds");
  json_t *const stages = operate(&f, "1\tt\top\tstages\n");
  double sum = 0, blocks = 0;
  for (size_t i = 0; i < json_array_size(json_object_get(stages, "terms")); i++) {
    sum += real(json_array_get(json_object_get(stages, "terms"), i), "seconds");
  }
  assert_true(sum > 0.999999 * step_s && sum < 1.000001 * step_s);
  assert_int_equal(json_array_size(json_object_get(stages, "stages")), 4);
  assert_int_equal(json_array_size(json_object_get(stages, "chunks")), 8);
  for (size_t i = 0; i < 8; i++) {
    blocks += real(json_array_get(json_object_get(stages, "chunks"), i), "blocks");
  }
  assert_true(blocks == 34);  // 32 layers, embedding and head
  json_t *const timeline = operate(&f, "1\tt\top\ttimeline\n");
  const double total_s = real(timeline, "total");
  assert_true(total_s > 0.98 * step_s && total_s < 1.02 * step_s);
  json_t *const run = operate(&f, "1\tt\top\temit\n1\tt\tkind\trun\n");
  assert_non_null(strstr(json_string_value(json_object_get(run, "text")), "pp: 4"));
  json_decref(plan);
  json_decref(stages);
  json_decref(timeline);
  json_decref(run);
  tear_down(&f);
}

static void a_remedy_fits_where_the_job_does_not(void **state) {
  (void)state;
  fixture f;
  set_up(&f);
  put_plan(&f, "2\tw\tgpus\t8\n2\tt\trecompute\tnone\n2\tw\ttp\t1\n2\tw\tpp\t1\n2\tt\tzero\t0\n");
  json_t *const plan = call(&f, ot_text_builder_text(&f.text));
  assert_int_equal(json_array_size(json_object_get(plan, "plans")), 0);
  json_t *const answer = operate(&f, "1\tt\top\tremedies\n");
  const json_t *const remedies = json_object_get(answer, "remedies");
  assert_true(json_array_size(remedies) > 0);
  const json_t *const first = json_array_get(remedies, 0);
  assert_string_equal(json_string_value(json_object_get(first, "freed")), "zero");
  assert_true(json_is_true(json_object_get(first, "fits")));
  json_decref(plan);
  json_decref(answer);
  tear_down(&f);
}

static void bad_requests_are_refused(void **state) {
  (void)state;
  static const char *const requests[][2] = {
      {"", "no map"},
      {"0\tq\t\t\n", "line 1"},
      {"1\tm\t\t\n", "line 1"},
      {"0\tm\t\t\n2\tt\ta\tb\n", "line 2"},
      {"0\tm\t\t\n1\tt\ta\tb\n1\tt\ta\tb\n", "line 3"},
      {"0\tm\t\t\n0\tm\t\t\n", "line 2"},
      {"0\tm\t\t\n", "op"},
      {"0\tm\t\t\n1\tt\top\tfly\n", "fly"},
      {"0\tm\t\t\n1\tt\top\tstages\n", "no plan yet"},
      {"0\tm\t\t\n1\tt\top\tsweep\n", "nothing varies"},
      {"0\tm\t\t\n1\tt\top\tsweep\n1\tl\tsweep\t\n2\tm\t\t\n", "not a list of KEY=VALUES"},
      {"0\tm\t\t\n1\tt\top\tpoint\n1\tl\tsweep\t\n2\tt\t\tgpus\n", "is not KEY=VALUES"},
      {"0\tm\t\t\n1\tt\top\tplan\n1\tm\tquestion\t\n2\tw\tgpus\t-1\n", "gpus"},
      {"0\tm\t\t\n1\tt\top\tplan\n1\tm\tquestion\t\n2\tw\ttpp\t1\n", "tpp"},
  };
  fixture f;
  set_up(&f);
  for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
    json_t *const answer = call(&f, requests[i][0]);
    const char *const message = json_string_value(json_object_get(answer, "error"));
    assert_non_null(message);
    if (!strstr(message, requests[i][1])) fail_msg("%s: %s", requests[i][1], message);
    json_decref(answer);
  }
  tear_down(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(answers_agree_with_the_plan),
      cmocka_unit_test(a_remedy_fits_where_the_job_does_not),
      cmocka_unit_test(bad_requests_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
