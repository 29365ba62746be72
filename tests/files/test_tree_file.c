// SPDX-License-Identifier: Apache-2.0
// run: backends=cpu
// YAML and JSON readers: accepted and rejected input, positions in errors, and equal trees for the
// same document.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/text.h"
#include "files/tree_file.h"
#include "support/arena_fixture.h"
#include "support/scratch.h"

static const ot_tree_origin origin = {.name = "file"};

static ot_node *yaml(const char *text) {
  ot_node *tree;
  if (ot_tree_parse_yaml(&origin, text, ot_text_length(text), &arena, &tree) != OT_OK) {
    fail_msg("%s", ot_fail_message());
  }
  return tree;
}

static ot_node *json(const char *text) {
  ot_node *tree;
  if (ot_tree_parse_json(&origin, text, ot_text_length(text), &arena, &tree) != OT_OK) {
    fail_msg("%s", ot_fail_message());
  }
  return tree;
}

static const char *json_of(const ot_node *tree) {
  ot_json_writer w = ot_json_begin(&arena, 0);
  ot_node_write_json(tree, NULL, &w);
  return w.text;
}

static void expect(const ot_node *tree, const char *path, const char *text, const char *place) {
  const ot_node *const node = ot_node_find(tree, path);
  assert_non_null(node);
  assert_string_equal(node->text, text);
  assert_string_equal(ot_node_place(&arena, node), place);
}

static void refuse_yaml(const char *text, const char *part, const char *place) {
  ot_node *tree;
  assert_int_equal(ot_tree_parse_yaml(&origin, text, ot_text_length(text), &arena, &tree),
                   OT_USAGE);
  if (!strstr(ot_fail_message(), part)) fail_msg("\"%s\" lacks \"%s\"", ot_fail_message(), part);
  if (!ot_text_ends_with(ot_fail_message(), place)) {
    fail_msg("\"%s\" does not end in \"%s\"", ot_fail_message(), place);
  }
}

static void refuse_json(const char *text, const char *part, const char *place) {
  ot_node *tree;
  assert_int_equal(ot_tree_parse_json(&origin, text, ot_text_length(text), &arena, &tree),
                   OT_USAGE);
  if (!strstr(ot_fail_message(), part)) fail_msg("\"%s\" lacks \"%s\"", ot_fail_message(), part);
  if (!strstr(ot_fail_message(), place)) fail_msg("\"%s\" lacks \"%s\"", ot_fail_message(), place);
}

static void yaml_values_know_their_places(void **state) {
  (void)state;
  const ot_node *const tree = yaml(
      "# comment\nlr: 3e-4\nanswer: no\nlist:\n  - 1_000\n  - {a: 'it''s', b: \"x\\ty\"}\n"
      "empty:\nnothing: ~\ntext: \"null\"\nfolded: >-\n  one\n  two\n");
  expect(tree, "lr", "3e-4", "file:2:5");
  expect(tree, "answer", "no", "file:3:9");
  expect(tree, "list.0", "1_000", "file:5:5");
  expect(tree, "list.1.a", "it's", "file:6:9");
  expect(tree, "list.1.b", "x\ty", "file:6:21");
  expect(tree, "text", "null", "file:9:7");
  assert_string_equal(ot_node_find(tree, "folded")->text, "one two");
  assert_string_equal(ot_node_place(&arena, ot_node_find(tree, "empty")), "file:7:1");
  assert_int_equal(ot_node_find(tree, "empty")->kind, OT_NODE_NULL);
  assert_int_equal(ot_node_find(tree, "nothing")->kind, OT_NODE_NULL);
  assert_int_equal(ot_node_find(tree, "text")->kind, OT_NODE_SCALAR);
}

static void an_empty_text_is_an_empty_map(void **state) {
  (void)state;
  assert_int_equal(yaml("")->kind, OT_NODE_MAP);
  assert_int_equal(yaml("# only words\n")->kind, OT_NODE_MAP);
  assert_int_equal(yaml("---\n")->kind, OT_NODE_MAP);
  assert_int_equal(ot_node_count(yaml("{}")), 0);
}

static void yaml_rejects_exotic_syntax(void **state) {
  (void)state;
  refuse_yaml("a: &x 1\nb: 2", "anchors", "(file:1:7)");
  refuse_yaml("a: 1\nb: *x", "aliases", ")");
  refuse_yaml("a: !!int 1", "tags", "(file:1:10)");
  refuse_yaml("a: 1\nb: 2\na: 3", "duplicate key \"a\", first at line 1", "(file:3:1)");
  refuse_yaml("a: 1\n---\nb: 2", "more than one YAML document", "(file:2:1)");
  refuse_yaml("? [a]\n: 1", "a key must be plain text", "(file:1:3)");
  refuse_yaml("{a: 1}: 2", "a key must be plain text", ")");
  refuse_yaml("a: 1\x01", "byte 0x01", "(file:1:5)");
}

static void malformed_yaml_gets_one_message_with_its_place(void **state) {
  (void)state;
  refuse_yaml("a: [1, 2", "not valid YAML", ")");
  refuse_yaml("a: 1\n b: 2\n", "not valid YAML", ")");
  refuse_yaml("a: \"open", "not valid YAML", ")");
  refuse_yaml("\ta: 1", "not valid YAML", ")");
  refuse_yaml("a: b\n\xc3\xa9: \xff\xfe", "byte 0xff is not text", "(file:2:4)");
  refuse_yaml("a: {b: 1]", "not valid YAML", ")");
}

static void deep_and_wide_documents_are_refused(void **state) {
  (void)state;
  char deep[300];
  memset(deep, '[', sizeof deep);
  deep[299] = '\0';
  ot_node *tree;
  assert_int_equal(ot_tree_parse_yaml(&origin, deep, 299, &arena, &tree), OT_USAGE);
  assert_int_equal(ot_tree_parse_json(&origin, deep, 299, &arena, &tree), OT_USAGE);
  char nested[201];
  memset(nested, '[', 100);
  memset(nested + 100, ']', 100);
  assert_int_equal(ot_tree_parse_json(&origin, nested, 200, &arena, &tree), OT_USAGE);
  assert_non_null(strstr(ot_fail_message(), "more than 64 deep (file:1:65)"));
  enum { KEYS = 5001 };
  ot_text_builder wide = {.arena = &arena};
  for (int i = 0; i < KEYS; i++) ot_text_appendf(&wide, "k%d: 1\n", i);
  assert_int_equal(ot_tree_parse_yaml(&origin, wide.text, wide.length, &arena, &tree), OT_USAGE);
  assert_non_null(strstr(ot_fail_message(), "more than 5000 keys in one map (file:5001:1)"));
  ot_text_builder many = {.arena = &arena};
  for (int i = 0; i < OT_TREE_VALUES_MAX; i++) ot_text_put(&many, i == 0 ? "[1" : ",1");
  ot_text_put(&many, ",1]");
  assert_int_equal(ot_tree_parse_yaml(&origin, many.text, many.length, &arena, &tree), OT_USAGE);
  assert_non_null(strstr(ot_fail_message(), "more than 65536 values (file:1:131072)"));
  assert_int_equal(ot_tree_parse_json(&origin, many.text, many.length, &arena, &tree), OT_USAGE);
  assert_non_null(strstr(ot_fail_message(), "more than 65536 values (file)"));
  char *const large = calloc(1, OT_TREE_BYTES_MAX + 1);
  assert_non_null(large);
  assert_int_equal(ot_tree_parse_yaml(&origin, large, OT_TREE_BYTES_MAX + 1, &arena, &tree),
                   OT_USAGE);
  assert_int_equal(ot_tree_parse_json(&origin, large, OT_TREE_BYTES_MAX + 1, &arena, &tree),
                   OT_USAGE);
  free(large);
}

static void json_values_know_their_places(void **state) {
  (void)state;
  const ot_node *const tree = json(
      "{\n  \"lr\" : 3e-4, \"caf\\u00e9\": \"\\ud83d\\ude00\",\n\t\"list\": [ true, null,"
      " {\"a\\\"}\": -0.50} ], \"\xc3\xa9\": 1, \"last\": 2}");
  expect(tree, "lr", "3e-4", "file:2:10");
  expect(tree, "caf\xc3\xa9", "\xf0\x9f\x98\x80", "file:2:29");
  expect(tree, "list.0", "true", "file:3:12");
  expect(tree, "list.2.a\"}", "-0.50", "file:3:33");
  expect(tree, "last", "2", "file:3:59");
  assert_int_equal(ot_node_find(tree, "list.1")->kind, OT_NODE_NULL);
  assert_true(ot_node_find(tree, "caf\xc3\xa9")->quoted);
  assert_false(ot_node_find(tree, "lr")->quoted);
}

static void json_may_have_the_words_that_python_writes_for_numbers(void **state) {
  (void)state;
  const ot_node *const tree = json(
      "{\"a\": [0.0, Infinity], \"b\":NaN,\"c\": -Infinity\n, \"d\": \"x\\\" NaN \", \"e\": 1}");
  assert_string_equal(ot_node_find(tree, "a.1")->text, "Infinity");
  assert_string_equal(ot_node_find(tree, "b")->text, "NaN");
  assert_string_equal(ot_node_find(tree, "c")->text, "-Infinity");
  assert_string_equal(ot_node_find(tree, "d")->text, "x\" NaN ");
  assert_int_equal(ot_node_find(tree, "e")->line, 2);
  assert_int_equal(ot_node_find(tree, "e")->column, 25);
  static const char *const wrong[] = {"{\"a\": 1NaN}",      "{\"a\": NaN1}",     "{\"a\": -NaN}",
                                      "{\"a\": +Infinity}", "{\"a\": Infinit}",  "{NaN: 1}",
                                      "{\"a\": nan}",       "{\"a\": Infinity5}"};
  for (int i = 0; i < OT_COUNT(wrong); i++) refuse_json(wrong[i], "not valid JSON", "file:1");
}

static void malformed_json_gets_one_message_with_its_place(void **state) {
  (void)state;
  refuse_json("{\"a\": 1,\n \"a\": 2}", "duplicate", "file:2");
  refuse_json("{\"a\": 1,}", "not valid JSON", "file:1");
  refuse_json("{\"a\": 01}", "not valid JSON", "file:1");
  refuse_json("{\"a\": \"\xff\"}", "not valid JSON", "file:1");
  refuse_json("{\"a\": 1} x", "not valid JSON", "file:1");
  refuse_json("", "not valid JSON", "file:1");
  refuse_json("{\"a\": \"\\u0000\"}", "not valid JSON", "file:1");
}

static void json_read_as_yaml_is_the_same_tree(void **state) {
  (void)state;
  static const char text[] =
      "{\"a\": [1, 2.5, -3e2, true, false, null, \"x y\", \"null\", \"\\u00e9\"], \"b\": {\"c\":"
      " {}, \"d\": []}, \"e f\": \"# no comment: really\"}";
  assert_string_equal(json_of(yaml(text)), json_of(json(text)));
}

static void trees_print_as_yaml_that_reads_back(void **state) {
  (void)state;
  static const char text[] =
      "{\"a\": [1, \"null\", {\"b c\": \"- x\"}], \"m\": {\"n\": {\"o\": \"tab\\there\"}, \"p\":"
      " null}, \"e\": {}, \"l\": [], \"1\": \"-5\", \"t\": \"true\"}";
  const ot_node *const tree = json(text);
  ot_text_builder out = {.arena = &arena};
  ot_node_print_yaml(tree, 0, &out);
  assert_string_equal(json_of(yaml(out.text)), json_of(tree));
  ot_text_builder commented = {.arena = &arena};
  ot_node_set_source(ot_node_child(tree, "m"), "a\nb");
  ot_node_print_yaml(tree, 30, &commented);
  assert_string_equal(json_of(yaml(commented.text)), json_of(tree));
}

static void unreadable_files_are_environment_errors(void **state) {
  (void)state;
  ot_node *tree;
  assert_int_equal(ot_tree_load("/nowhere/run.yaml", &arena, &tree), OT_ENVIRONMENT);
  assert_non_null(strstr(ot_fail_message(), "/nowhere/run.yaml"));
  assert_int_equal(ot_tree_load("/", &arena, &tree), OT_ENVIRONMENT);
}

// Opening a FIFO without a writer as a file would block forever.
static void files_that_are_not_regular_are_refused_at_once(void **state) {
  (void)state;
  char directory[SCRATCH_BYTES];
  ot_node *tree;
  scratch_create(directory);
  const char *const path = scratch_path(directory, "run.yaml");
  assert_int_equal(mkfifo(path, 0600), 0);
  alarm(20);
  assert_int_equal(ot_tree_load(path, &arena, &tree), OT_ENVIRONMENT);
  assert_message_has("not a regular file");
  assert_int_equal(ot_tree_load("/dev/zero", &arena, &tree), OT_ENVIRONMENT);
  assert_message_has("not a regular file (/dev/zero)");
  alarm(0);
  scratch_destroy(directory);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(yaml_values_know_their_places),
      cmocka_unit_test(an_empty_text_is_an_empty_map),
      cmocka_unit_test(yaml_rejects_exotic_syntax),
      cmocka_unit_test(malformed_yaml_gets_one_message_with_its_place),
      cmocka_unit_test(deep_and_wide_documents_are_refused),
      cmocka_unit_test(json_values_know_their_places),
      cmocka_unit_test(json_may_have_the_words_that_python_writes_for_numbers),
      cmocka_unit_test(malformed_json_gets_one_message_with_its_place),
      cmocka_unit_test(json_read_as_yaml_is_the_same_tree),
      cmocka_unit_test(trees_print_as_yaml_that_reads_back),
      cmocka_unit_test(unreadable_files_are_environment_errors),
      cmocka_unit_test(files_that_are_not_regular_are_refused_at_once),
  };
  return cmocka_run_group_tests(tests, begin, finish);
}
