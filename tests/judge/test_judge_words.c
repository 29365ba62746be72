// SPDX-License-Identifier: Apache-2.0
// run: any machine. Sets of tensors and factors in words.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "judge/words.h"
#include "support/arena_fixture.h"

enum { LAYERS = 4 };

static ot_evidence tensors(void) {
  static const char *const kinds[] = {"mlp.down_proj", "mlp.up_proj", "self_attn.q_proj",
                                      "input_layernorm"};
  ot_evidence e = ot_evidence_create(&arena, 0, OT_F32);
  ot_evidence_add(&e, "lm_head.weight");
  for (int layer = LAYERS - 1; layer >= 0; layer--) {
    for (int k = 0; k < OT_COUNT(kinds); k++) {
      ot_evidence_add(&e, ot_arena_format(&arena, "model.layers.%d.%s.weight", layer, kinds[k]));
    }
  }
  return e;
}

static const char *words(const char *containing, int from, int to) {
  const ot_evidence e = tensors();
  bool members[LAYERS * 4 + 1] = {false};
  for (int t = 0; t < e.num_tensors; t++) {
    const int layer = e.tensors[t].layer;
    members[t] = strstr(e.tensors[t].name, containing) && layer >= from && layer <= to;
  }
  return ot_words_of_tensors(&e, members, &arena);
}

static void sets_of_tensors_have_few_words(void **state) {
  (void)state;
  assert_string_equal(words("", -1, LAYERS), "all 17 tensors");
  assert_string_equal(words("head", -1, LAYERS), "lm_head.weight");
  assert_string_equal(words("layernorm", 0, LAYERS),
                      "model.layers.3.input_layernorm.weight, "
                      "model.layers.2.input_layernorm.weight, "
                      "model.layers.1.input_layernorm.weight, "
                      "model.layers.0.input_layernorm.weight");
  assert_string_equal(words("mlp", 0, LAYERS),
                      "model.layers.*.mlp.down_proj.weight, model.layers.*.mlp.up_proj.weight (8 "
                      "tensors)");
  assert_string_equal(words("_proj", 0, 1),
                      "model.layers.*.mlp.down_proj.weight, model.layers.*.mlp.up_proj.weight, "
                      "model.layers.*.self_attn.q_proj.weight (6 tensors, layers 0 to 1)");
  assert_non_null(strstr(words("", 1, 2), " and 4 more"));
}

static const char *factor(double value) {
  static const ot_step_size sizes[] = {
      {"tp", 2}, {"dp", 8}, {"cp", 1}, {"micro_batches", 6}, {"loss_scale", 65536}};
  return ot_words_of_factor(sizes, OT_COUNT(sizes), value, 0.003, &arena);
}

static void factors_are_products_of_sizes(void **state) {
  (void)state;
  assert_string_equal(factor(2), "tp");
  assert_string_equal(factor(0.125), "1/dp");
  assert_string_equal(factor(0.12505), "1/dp");
  assert_string_equal(factor(16), "tp x dp");
  assert_string_equal(factor(1.0 / 48), "1/(dp x micro_batches)");
  assert_string_equal(factor(4), "dp/tp");
  assert_string_equal(factor(1.0 / 65536), "1/loss_scale");
  assert_string_equal(factor(0), "0");
  assert_null(factor(1.01));
  assert_null(factor(7));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, finish)

int main(void) {
  const struct CMUnitTest tests[] = {TEST(sets_of_tensors_have_few_words),
                                     TEST(factors_are_products_of_sizes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
