// SPDX-License-Identifier: Apache-2.0
// run: serial. The key tables themselves: each row has its own bytes in its object, a range that
// contains its default, and a line of help; in models, in each family.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/number.h"
#include "describe/cluster_keys.h"
#include "describe/family.h"
#include "describe/run_keys.h"
#include "software/engine_keys.h"
#include "software/megatron_keys.h"

typedef struct span {
  int64_t start, end;  // byte range in the object
} span;

// The bytes that a row writes into its object: the value, and the count of a list.
static void spans_of(const ot_key *key, span spans[2]) {
  const bool list = key->shape == OT_SHAPE_LIST || key->shape == OT_SHAPE_NAMED;
  const int64_t values = key->shape == OT_SHAPE_ARRAY ? key->count : 1;
  const int64_t bytes = list ? (int64_t)sizeof(void *) : values * ot_key_bytes(key);
  spans[0] = (span){key->offset, key->offset + bytes};
  spans[1] = (span){key->count_offset, key->count_offset + (list ? (int64_t)sizeof(int64_t) : 0)};
}

static bool overlap(span a, span b) { return a.start < b.end && b.start < a.end; }

static void check_pair(const ot_schema *schema, const ot_key *a, const ot_key *b) {
  if (strcmp(a->name, b->name) == 0) fail_msg("%s: two rows %s", schema->name, a->name);
  span of_a[2], of_b[2];
  spans_of(a, of_a);
  spans_of(b, of_b);
  for (int i = 0; i < 4; i++) {
    if (!overlap(of_a[i / 2], of_b[i % 2])) continue;
    fail_msg("%s: %s and %s write the same bytes", schema->name, a->name, b->name);
  }
}

static bool is_number(const ot_key *key) {
  return key->type == OT_KEY_INTEGER || key->type == OT_KEY_INT || key->type == OT_KEY_REAL;
}

static void check_row(const ot_schema *schema, const ot_key *key) {
  span spans[2];
  double value;
  spans_of(key, spans);
  for (int i = 0; i < 2; i++) assert_in_range(spans[i].end, 0, schema->size);
  if (!key->help || key->help[0] == '\0') fail_msg("%s: no help of %s", schema->name, key->name);
  const bool word = key->fallback && ot_number_parse(key->fallback, false, &value);
  if (!is_number(key) || !word || (key->minimum == 0 && key->maximum == 0)) return;
  const bool low = key->above_minimum ? value > key->minimum : value >= key->minimum;
  const bool high = key->below_maximum ? value < key->maximum : value <= key->maximum;
  if (!low || !high) fail_msg("%s: default %s of %s", schema->name, key->fallback, key->name);
}

enum { MOST_KEYS = 300 };

static void check_table(const ot_schema *schema);

// The keys of one variant (0: of a schema without variants) in the order in which they are written.
static void check_variant(const ot_schema *schema, int variant) {
  const ot_key *keys[MOST_KEYS], *key;
  int count = 0;
  ot_key_walk walk = {0};
  while (count < MOST_KEYS && (key = ot_schema_next(schema, variant, &walk)) != NULL) {
    check_row(schema, key);
    for (int i = 0; i < count; i++) check_pair(schema, keys[i], key);
    if (key->object) check_table(key->object);
    keys[count++] = key;
  }
  for (int i = 0; schema->added && (key = schema->added(variant, i)) != NULL; i++) {
    bool written = false;
    for (int k = 0; k < count; k++) written = written || keys[k] == key;
    if (!written) fail_msg("%s: %s comes after no key", schema->name, key->name);
  }
}

static void check_table(const ot_schema *schema) {
  if (!schema->variant) check_variant(schema, 0);
  for (int i = 0; schema->variant && i < OT_FAMILY_COUNT; i++) {
    check_variant(schema, ot_family_variant((ot_family)i));
  }
}

static void rows_have_bytes_of_their_own_and_defaults_in_their_ranges(void **state) {
  (void)state;
  check_table(&ot_run_schema);
  check_table(&ot_cluster_schema);
  check_table(&ot_engine_schema);
  check_table(&ot_megatron_schema);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_have_bytes_of_their_own_and_defaults_in_their_ranges)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
