// SPDX-License-Identifier: Apache-2.0
// run: alone. Framework files: every preset parses under its own name, output reads back unchanged,
// errors are named.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/text_builder.h"
#include "describe/recipe.h"
#include "files/config_file.h"
#include "files/tree_file.h"
#include "software/engine_keys.h"
#include "support/paper_job.h"

// All keys of a framework, in `arena`.
static const char *text_of(const ot_engine *engine, ot_arena *arena) {
  ot_text_builder text = {.arena = arena};
  ot_node_print_yaml(ot_engine_write(engine, arena), 0, &text);
  return ot_text_builder_text(&text);
}

static ot_status read(const char *text, ot_arena *arena, ot_engine *out) {
  const ot_tree_origin origin = {.name = "engine.yaml"};
  ot_node *tree;
  OT_TRY(ot_tree_parse_yaml(&origin, text, (int64_t)strlen(text), arena, &tree));
  return ot_engine_read(tree, arena, out);
}

static void every_framework_is_valid_with_a_unique_name(void **state) {
  (void)state;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  int count = 0;
  for (; paper_engine_at(count) != NULL; count++) {
    const ot_engine *const engine = paper_engine_at(count);
    assert_ptr_equal(paper_engine(engine->name), engine);
    assert_non_null(ot_recipe_find(engine->recipe));
    if (ot_engine_check(engine) != OT_OK) fail_msg("%s", ot_fail_message());
    for (int k = 0; k < count; k++) {
      assert_string_not_equal(text_of(paper_engine_at(k), &arena), text_of(engine, &arena));
    }
  }
  assert_int_equal(count, 16);
  ot_heap_release(&heap);
}

static void a_preset_is_named_like_its_file(void **state) {
  (void)state;
  static const char *const directory = OT_SOURCE_DIR "/presets";
  const ot_presets presets = {&directory, 1};
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_preset_names names = ot_presets_list(&presets, OT_PRESET_ENGINE, &arena);
  for (int64_t i = 0; i < names.count; i++) {
    assert_string_equal(paper_engine(names.name[i])->name, names.name[i]);
  }
  ot_heap_release(&heap);
}

static void written_data_reads_back(void **state) {
  (void)state;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  for (int i = 1; paper_engine_at(i) != NULL; i++) {
    const char *const first = text_of(paper_engine_at(i), &arena);
    ot_engine again;
    if (read(first, &arena, &again) != OT_OK) fail_msg("%s", ot_fail_message());
    assert_string_equal(text_of(&again, &arena), first);
  }
  ot_engine engine;
  const char *const given =
      "{name: mine, recipe: bf16, kernels: {attention: flash-1, host_ops: 0.5}, loss_rows: 2k,\n"
      "overlap_tensor: backward, overlap_pipeline: chunks, expert_bias_bytes: [1, 2]}";
  assert_int_equal(read(given, &arena, &engine), OT_OK);
  assert_string_equal(engine.name, "mine");
  assert_int_equal(engine.kernels.attention, OT_ATTENTION_FLASH_1);
  assert_true(engine.kernels.host_ops == 0.5 && engine.kernels.pass_factor == 1);
  assert_int_equal(engine.loss_rows, 2000);
  assert_int_equal(engine.overlap_tensor, OT_TENSOR_OVERLAP_BACKWARD);
  assert_int_equal(engine.overlap_pipeline, OT_PIPELINE_OVERLAP_CHUNKS);
  assert_true(engine.expert_bias_bytes[0] == 1 && engine.expert_bias_bytes[1] == 2);
  assert_false(engine.dropout || engine.overlap_reduce);
  ot_heap_release(&heap);
}

// Two containers of one framework: the later one inherits what it does not set.
static void the_later_bridge_differs_in_its_experts_only(void **state) {
  (void)state;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_engine *const before = paper_engine("megatron-bridge");
  ot_engine later = *paper_engine("megatron-bridge-26.06");
  later.name = before->name;
  later.kernels.expert_ops = before->kernels.expert_ops;
  later.kernels.group_ops = before->kernels.group_ops;
  later.kernels.fused_experts = before->kernels.fused_experts;
  later.overlap_expert = before->overlap_expert;
  later.sorts_received = before->sorts_received;
  for (int i = 0; i < 2; i++) later.expert_bias_bytes[i] = before->expert_bias_bytes[i];
  assert_string_equal(text_of(&later, &arena), text_of(before, &arena));
  ot_heap_release(&heap);
}

static void orthant_is_an_engine(void **state) {
  (void)state;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  assert_ptr_equal(paper_engine("orthant"), &ot_engine_orthant);
  assert_int_equal(ot_engine_check(&ot_engine_orthant), OT_OK);
  ot_engine other = ot_engine_orthant;
  other.loss_rows = -1;
  assert_int_equal(ot_engine_check(&other), OT_USAGE);
  assert_string_not_equal(text_of(&other, &arena), text_of(&ot_engine_orthant, &arena));
  ot_heap_release(&heap);
}

static void expect(const char *text, const char *part) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_engine engine;
  assert_int_equal(read(text, &arena, &engine), OT_USAGE);
  if (!strstr(ot_fail_message(), part)) fail_msg("\"%s\" lacks \"%s\"", ot_fail_message(), part);
  ot_heap_release(&heap);
}

static void errors_are_named(void **state) {
  (void)state;
  const char *const directory = OT_SOURCE_DIR "/presets";
  const ot_presets presets = {&directory, 1};
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_engine *engine;
  assert_int_equal(ot_engine_file_load("nobody", &presets, &arena, &engine), OT_USAGE);
  assert_non_null(strstr(ot_fail_message(), "there is no engine called \"nobody\""));
  assert_int_equal(ot_engine_file_load("./nobody.yaml", &presets, &arena, &engine), OT_ENVIRONMENT);
  expect("{recipe: bf16}", "name is needed");
  expect("{name: x, recipe: bf16}", "kernels.attention is needed");
  expect("{name: x, recipe: bf16, kernels: {attention: flash-9}}",
         "is not one of unfused, flash-1");
  expect("{name: x, recipe: bf16, kernels: {attention: flash-2, pass_factor: 0.5}}", "at least 1");
  expect("{name: x, recipe: bf16, kernels: {attention: flash-2}, overlap_reduces: true}",
         "unknown key \"overlap_reduces\"");
  expect("{name: x, recipe: bf16, kernels: {attention: flash-2}, allocator_slack: 1}",
         "allocator_slack");
  expect("{name: x, recipe: bf16, kernels: {attention: flash-2}, chunked_loss: true}",
         "chunked_loss needs loss_rows");
  expect("{name: orthant, recipe: bf16, kernels: {attention: flash-2}}", "is Orthant itself");
  ot_heap_release(&heap);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_framework_is_valid_with_a_unique_name),
      cmocka_unit_test(a_preset_is_named_like_its_file),
      cmocka_unit_test(written_data_reads_back),
      cmocka_unit_test(the_later_bridge_differs_in_its_experts_only),
      cmocka_unit_test(orthant_is_an_engine),
      cmocka_unit_test(errors_are_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
