// SPDX-License-Identifier: Apache-2.0
// run: any machine. Records written by hand that are of one step or not: experts in stacks and by
// themselves, tensors of one record only, moments, and sequences in other batches.
#include "base/text.h"
#include "files/disk.h"
#include "judge/same_step.h"
#include "judge/test_record_files.h"

static char root[SCRATCH_BYTES];

static int open_folder(void **state) {
  begin(state);
  memcpy(root, folder, sizeof root);
  return 0;
}

static int close_folder(void **state) {
  memcpy(folder, root, sizeof folder);
  return finish(state);
}

// A record of one rank with these tensors, whose places are those of whole tensors.
static ot_step_record make(const char *name, const stored_tensor *stored, int count, int batches) {
  ot_recorded_step *const read = ot_arena_take(&arena, sizeof *read);
  ot_step_rows *const rows = ot_arena_take(&arena, sizeof *rows);
  ot_text_builder places = {.arena = &arena}, list = {.arena = &arena};
  ot_text_format(folder, sizeof folder, "%s/%s", root, name);
  assert_int_equal(ot_disk_make_directory(folder), OT_OK);
  scratch_write(scratch_path(folder, "config.json"), CONFIG, (int64_t)strlen(CONFIG));
  for (int i = 0; i < count; i++)
    ot_text_appendf(&places, "%s\"%s\": {}", i > 0 ? ", " : "", stored[i].key);
  for (int i = 0; i < batches; i++)
    ot_text_appendf(&list, "%s{\"micro\": %d, \"shifted\": true}", i > 0 ? ", " : "", i);
  write_rank(0, 1, ot_arena_format(&arena, "\"batches\": [%s],", ot_text_builder_text(&list)),
             ot_text_builder_text(&places));
  write_tensors(0, stored, count);
  if (ot_recorded_read(folder, &arena, read) != OT_OK ||
      ot_assemble_rows(read, &arena, rows) != OT_OK)
    fail_msg("%s", ot_fail_message());
  return (ot_step_record){read, rows};
}

static void accept(const ot_step_record *a, const ot_step_record *b) {
  if (ot_same_step_check(a, b, &arena) != OT_OK) fail_msg("%s", ot_fail_message());
  if (ot_same_step_check(b, a, &arena) != OT_OK) fail_msg("%s", ot_fail_message());
}

static void refuse(const ot_step_record *a, const ot_step_record *b, const char *part) {
  assert_int_equal(ot_same_step_check(a, b, &arena), OT_USAGE);
  assert_message_has(part);
  assert_int_equal(ot_same_step_check(b, a, &arena), OT_USAGE);
  assert_message_has(part);
}

static const int32_t ids[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
static const int32_t turned[] = {7, 8, 9, 1, 2, 3, 4, 5, 6};
static const int32_t twice[] = {1, 2, 3, 4, 5, 6, 1, 2, 3};

#define BATCH(values) \
  STORED("batch/0.ids", OT_I32, values, 3, 3), STORED("batch/0.labels", OT_I32, values, 3, 3)

// Two experts [gate and up of 1 row each, 2] as one stack.
static const float stack[] = {1, 2, 3, 4, 5, 6, 7, 8};

static void experts_are_the_same_in_stacks_and_by_themselves(void **state) {
  (void)state;
  static const float other[] = {7, 9};
  const stored_tensor stacked[] = {
      BATCH(ids), STORED("weight/model.layers.0.mlp.experts.gate_up_proj", OT_F32, stack, 2, 2, 2)};
  stored_tensor single[] = {
      BATCH(ids),
      STORED("weight/model.layers.0.mlp.experts.0.gate_proj.weight", OT_F32, stack, 1, 2),
      STORED("weight/model.layers.0.mlp.experts.0.up_proj.weight", OT_F32, stack + 2, 1, 2),
      STORED("weight/model.layers.0.mlp.experts.1.gate_proj.weight", OT_F32, stack + 4, 1, 2),
      STORED("weight/model.layers.0.mlp.experts.1.up_proj.weight", OT_F32, stack + 6, 1, 2)};
  const ot_step_record a = make("a", stacked, OT_COUNT(stacked), 1);
  const ot_step_record b = make("b", single, OT_COUNT(single), 1);
  accept(&a, &b);
  assert_ptr_equal(ot_finer_names(a.step, b.step), b.step);
  assert_ptr_equal(ot_finer_names(b.step, a.step), b.step);
  single[OT_COUNT(single) - 1].data = other;
  const ot_step_record c = make("c", single, OT_COUNT(single), 1);
  refuse(&a, &c,
         "weight of model.layers.0.mlp.experts.1.up_proj.weight differs in 1 of 2 elements");
  assert_message_has("element 1 is 9");
}

static void tensors_of_one_record_matter_if_they_have_gradients(void **state) {
  (void)state;
  const stored_tensor few[] = {BATCH(ids), STORED("weight/a", OT_F32, stack, 2)};
  const stored_tensor buffer[] = {BATCH(ids), STORED("weight/a", OT_F32, stack, 2),
                                  STORED("weight/b", OT_F32, stack, 2)};
  const stored_tensor trained[] = {BATCH(ids), STORED("weight/a", OT_F32, stack, 2),
                                   STORED("weight/b", OT_F32, stack, 2),
                                   STORED("grad/b", OT_F32, stack, 2)};
  const stored_tensor longer[] = {BATCH(ids), STORED("weight/a", OT_F32, stack, 3)};
  const ot_step_record a = make("a", few, OT_COUNT(few), 1);
  const ot_step_record b = make("b", buffer, OT_COUNT(buffer), 1);
  const ot_step_record c = make("c", trained, OT_COUNT(trained), 1);
  const ot_step_record d = make("d", longer, OT_COUNT(longer), 1);
  accept(&a, &b);
  refuse(&a, &c, "there is no weight b");
  refuse(&a, &d, "weight of a has");
}

static void moments_before_the_step_are_compared_where_both_have_them(void **state) {
  (void)state;
  const stored_tensor none[] = {BATCH(ids), STORED("weight/a", OT_F32, stack, 2)};
  stored_tensor moments[] = {BATCH(ids), STORED("weight/a", OT_F32, stack, 2),
                             STORED("m_before/a", OT_F32, stack, 2)};
  const ot_step_record a = make("a", none, OT_COUNT(none), 1);
  const ot_step_record b = make("b", moments, OT_COUNT(moments), 1);
  moments[OT_COUNT(moments) - 1].data = stack + 1;
  const ot_step_record c = make("c", moments, OT_COUNT(moments), 1);
  accept(&a, &b);
  accept(&a, &c);
  refuse(&b, &c, "m_before of a differs in 2 of 2 elements");
}

static void sequences_may_be_in_other_batches(void **state) {
  (void)state;
  const stored_tensor whole[] = {BATCH(ids)}, other[] = {BATCH(turned)}, third[] = {BATCH(twice)};
  const stored_tensor parts[] = {
      STORED("batch/0.ids", OT_I32, ids + 6, 1, 3), STORED("batch/0.labels", OT_I32, ids + 6, 1, 3),
      STORED("batch/1.ids", OT_I32, ids, 2, 3), STORED("batch/1.labels", OT_I32, ids, 2, 3)};
  const stored_tensor joined[] = {STORED("batch/0.ids", OT_I32, ids, 9),
                                  STORED("batch/0.labels", OT_I32, ids, 9)};
  const ot_step_record a = make("a", whole, OT_COUNT(whole), 1);
  const ot_step_record b = make("b", parts, OT_COUNT(parts), 2);
  const ot_step_record c = make("c", other, OT_COUNT(other), 1);
  const ot_step_record d = make("d", third, OT_COUNT(third), 1);
  const ot_step_record e = make("e", joined, OT_COUNT(joined), 1);
  accept(&a, &b);
  accept(&a, &c);
  assert_true(ot_same_batches(a.rows, a.rows));
  assert_false(ot_same_batches(a.rows, b.rows));
  assert_false(ot_same_batches(a.rows, c.rows));
  refuse(&a, &d, "the id of token 0 is");       // one sequence twice, another one missing
  refuse(&a, &e, "are not in the second and");  // of another length
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_folder, close_folder)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(experts_are_the_same_in_stacks_and_by_themselves),
      TEST(tensors_of_one_record_matter_if_they_have_gradients),
      TEST(moments_before_the_step_are_compared_where_both_have_them),
      TEST(sequences_may_be_in_other_batches),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
