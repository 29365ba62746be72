// SPDX-License-Identifier: Apache-2.0
// run: backends=cpu
// Trees: construction, search, removal, paths, and YAML output.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "base/tree.h"
#include "support/arena_fixture.h"

// {a: 1, b: [x, 2.5], c: {d: true}}
static ot_node *sample(void) {
  ot_node *const map = ot_node_create(&arena, OT_NODE_MAP);
  ot_node_put(&arena, map, "a", ot_node_integer(&arena, 1));
  ot_node *const list = ot_node_put(&arena, map, "b", ot_node_create(&arena, OT_NODE_LIST));
  ot_node_append(list, ot_node_text(&arena, "x"));
  ot_node_append(list, ot_node_real(&arena, 2.5));
  ot_node *const inner = ot_node_put(&arena, map, "c", ot_node_create(&arena, OT_NODE_MAP));
  ot_node_put(&arena, inner, "d", ot_node_bool(&arena, true));
  return map;
}

static const char *yaml_of(const ot_node *tree, int comment_column) {
  ot_text_builder text = {.arena = &arena};
  ot_node_print_yaml(tree, comment_column, &text);
  return ot_text_builder_text(&text);
}

static void paths_find_nodes(void **state) {
  (void)state;
  const ot_node *const tree = sample();
  assert_string_equal(ot_node_find(tree, "a")->text, "1");
  assert_string_equal(ot_node_find(tree, "b.1")->text, "2.5");
  assert_string_equal(ot_node_find(tree, "c.d")->text, "true");
  assert_null(ot_node_find(tree, "b.2"));
  assert_null(ot_node_find(tree, "b.x"));
  assert_null(ot_node_find(tree, "a.x"));
  assert_null(ot_node_find(tree, ""));
}

static void nodes_are_taken_out_anywhere(void **state) {
  (void)state;
  ot_node *const tree = sample();
  ot_node_remove(tree, ot_node_child(tree, "c"));
  ot_node_put(&arena, tree, "e", ot_node_create(&arena, OT_NODE_NULL));  // after removing the last
  assert_string_equal(yaml_of(tree, 0), "a: 1\nb: [x, 2.5]\ne: null\n");
  ot_node_remove(tree, ot_node_child(tree, "a"));
  ot_node_remove(tree, ot_node_child(tree, "e"));
  ot_node_remove(tree, ot_node_child(tree, "b"));
  assert_int_equal(ot_node_count(tree), 0);
  ot_node_put(&arena, tree, "f", ot_node_integer(&arena, -7));
  assert_string_equal(yaml_of(tree, 0), "f: -7\n");
}

static void reals_keep_a_point(void **state) {
  (void)state;
  assert_string_equal(ot_node_real(&arena, 8)->text, "8.0");
  assert_string_equal(ot_node_real(&arena, -8)->text, "-8.0");
  assert_string_equal(ot_node_real(&arena, 1e300)->text, "1e+300");
  assert_string_equal(ot_node_real(&arena, 0.1)->text, "0.1");
}

static void text_is_quoted_where_yaml_needs_it(void **state) {
  (void)state;
  static const char *const plain[] = {"word", "a/b.c", "_x", "/abs", "x-1+2"};
  static const char *const quoted[] = {"", "null", "true", "12", "a b", "a: b", "#x", "-x", "*"};
  for (int i = 0; i < 5; i++) {
    const char *const text = yaml_of(ot_node_text(&arena, plain[i]), 0);
    assert_memory_equal(text, plain[i], strlen(plain[i]));
  }
  for (int i = 0; i < 9; i++) {
    assert_int_equal(yaml_of(ot_node_text(&arena, quoted[i]), 0)[0], '"');
  }
}

static void places_become_comments(void **state) {
  (void)state;
  ot_node *const tree = sample();
  ot_node_set_source(tree, "default");
  ot_node *const a = ot_node_child(tree, "a");
  a->source = "run.yaml";
  a->line = 3;
  a->column = 7;
  assert_string_equal(ot_node_place(&arena, a), "run.yaml:3:7");
  assert_string_equal(ot_node_place(&arena, ot_node_find(tree, "c.d")), "default");
  assert_string_equal(ot_node_place(&arena, sample()), "?");
  assert_string_equal(yaml_of(tree, 20),
                      "a: 1               # run.yaml:3:7\nb: [x, 2.5]        # default\nc:\n"
                      "  d: true          # default\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(paths_find_nodes),
      cmocka_unit_test(nodes_are_taken_out_anywhere),
      cmocka_unit_test(reals_keep_a_point),
      cmocka_unit_test(text_is_quoted_where_yaml_needs_it),
      cmocka_unit_test(places_become_comments),
  };
  return cmocka_run_group_tests(tests, begin, finish);
}
