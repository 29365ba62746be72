// SPDX-License-Identifier: Apache-2.0
// run: alone. Action lists of each pipeline schedule, rejected schedules, and compute-order files.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "describe/pipeline_rules.h"
#include "fixtures/dualpipe_v.h"
#include "support/pipelines.h"
#include "support/scratch.h"

// Line `rank` of the schedule as text, in static storage.
static const char *line_of(const pipeline_shape *shape, int rank) {
  static char line[4096];
  pipeline_case made;
  pipeline_case_create(shape, &made);
  const char *text = ot_pipeline_schedule_print(&made.order, &made.arena);
  for (int i = 0; i < rank; i++) text = strchr(text, '\n') + 1;
  const size_t length = strcspn(text, "\n");
  memcpy(line, text, length);
  line[length] = '\0';
  pipeline_case_destroy(&made);
  return line;
}

static void assert_starts_with(const char *text, const char *start) {
  if (!ot_text_starts_with(text, start)) fail_msg("'%s' does not start with '%s'", text, start);
}

// ---- formulas ----

static void schedules_start_as_published(void **state) {
  (void)state;
  const pipeline_shape one = {OT_PIPELINE_1F1B, 4, 1, 8, NULL};
  assert_starts_with(line_of(&one, 0), "0F0,0F1,0F2,0F3,0B0,0F4,0B1,");
  assert_starts_with(line_of(&one, 3), "3F0,3B0,3F1,3B1,");
  const pipeline_shape h1 = {OT_PIPELINE_ZB_H1, 4, 1, 8, NULL};
  assert_starts_with(line_of(&h1, 2), "2F0,2F1,2I0,2F2,2I1,2F3,2I2,2W0,2F4,2I3,2W1,");
  const pipeline_shape v = {OT_PIPELINE_ZB_V, 4, 2, 8, NULL};
  assert_starts_with(line_of(&v, 3),
                     "3F0,4F0,3F1,4F1,3F2,4F2,3F3,4F3,4I0,4W0,3F4,3I0,3W0,4F4,4I1,4W1,3F5");
  const pipeline_shape twice = {OT_PIPELINE_INTERLEAVED, 2, 2, 4, NULL};
  assert_string_equal(line_of(&twice, 0),
                      "0F0,0F1,2F0,2F1,0F2,2B0,0F3,2B1,2F2,0B0,2F3,0B1,2B2,2B3,0B2,0B3");
  const pipeline_shape all = {OT_PIPELINE_GPIPE, 2, 1, 3, NULL};
  assert_string_equal(line_of(&all, 1), "1F0,1F1,1F2,1B0,1B1,1B2");
}

// PyTorch's files of the same schedule.
static void dualpipe_v_is_that_of_pytorch(void **state) {
  (void)state;
  for (int i = 0; i < OT_COUNT(torch_dualpipe_v); i++) {
    const int p = torch_dualpipe_v[i].p, m = torch_dualpipe_v[i].m;
    const pipeline_shape ours = {OT_PIPELINE_DUALPIPE_V, p, 2, m, NULL};
    const pipeline_shape theirs = {OT_PIPELINE_DUALPIPE_V, p, 2, m, torch_dualpipe_v[i].csv};
    pipeline_case made, read;
    pipeline_case_create(&ours, &made);
    pipeline_case_create(&theirs, &read);
    assert_string_equal(ot_pipeline_schedule_print(&made.order, &made.arena),
                        ot_pipeline_schedule_print(&read.order, &read.arena));
    pipeline_case_destroy(&made);
    pipeline_case_destroy(&read);
  }
}

// The schedule with pairs, of p * v chunks one after the other.
static const char *paired(int p, int v, int m, pipeline_case *made) {
  *made = (pipeline_case){0};
  made->arena = ot_heap_arena_create(&made->heap);
  for (int c = 0; c < p * v; c++) made->rank_of[c] = c % p;
  const ot_pipeline_request request = {.kind = v > 1 ? OT_PIPELINE_INTERLEAVED : OT_PIPELINE_1F1B,
                                       .num_ranks = p,
                                       .num_chunks = p * v,
                                       .micro_batches = m,
                                       .rank_of = made->rank_of,
                                       .pairs = true};
  if (ot_pipeline_schedule_build(&request, &made->arena, &made->order) != OT_OK)
    fail_msg("%s", ot_fail_message());
  return ot_pipeline_schedule_print(&made->order, &made->arena);
}

static int pairs_of(const ot_pipeline_schedule *order, int rank) {
  int pairs = 0;
  for (int i = 0; i < order->num_actions[rank]; i++) pairs += order->actions[rank][i].paired;
  return pairs;
}

// Megatron-core's get_pp_rank_microbatches: the forwards that precede the pairs are 2 (p - 1 - r) +
// (v - 1) p and one more; all others have a partner. Both of a pair can start at the same time, or
// the check of the schedule would find a deadlock.
static void forwards_run_with_independent_backwards(void **state) {
  (void)state;
  pipeline_case made;
  for (int p = 2; p <= 6; p++) {
    for (int v = 2; v <= 3; v++) {
      const int m = 3 * p;
      paired(p, v, m, &made);
      for (int r = 0; r < p; r++) {
        assert_int_equal(pairs_of(&made.order, r), m * v - (2 * (p - 1 - r) + (v - 1) * p + 1));
      }
      pipeline_case_destroy(&made);
    }
  }
  assert_string_equal(paired(1, 1, 3, &made),
                      "0F0,(0F1;0B0)OVERLAP_F_B,(0F2;0B1)OVERLAP_F_B,0B2\n");
  pipeline_case_destroy(&made);
  const char *const last = ot_text_find(paired(2, 2, 2, &made), "\n");
  assert_string_equal(last, "\n1F0,1F1,3F0,(3F1;3B0)OVERLAP_F_B,3B1,1B0,1B1\n");
  pipeline_case_destroy(&made);
}

static void one_rank_runs_any_number_of_chunks(void **state) {
  (void)state;
  for (int kind = 0; kind < OT_PIPELINES; kind++) {
    for (int v = 1; v <= 3; v++) {
      const pipeline_shape shape = {(ot_pipeline)kind, 1, v, 3, NULL};
      const char *const line = line_of(&shape, 0);
      if (kind == OT_PIPELINE_GPIPE || v < 2) continue;
      assert_starts_with(line, v == 2 ? "0F0,1F0,1" : "0F0,1F0,2F0,2");
    }
  }
}

// Every number of micro-batches >= 1 runs or is rejected.
static void few_micro_batches_run_or_are_refused(void **state) {
  (void)state;
  for (int kind = 0; kind < OT_PIPELINES; kind++) {
    for (int p = 1; p <= 7; p++) {
      for (int m = 1; m <= 3 * p + 1; m++) {
        const int v = pipeline_chunks((ot_pipeline)kind);
        const pipeline_shape shape = {(ot_pipeline)kind, p, v, m, NULL};
        pipeline_case made;
        const ot_status status = pipeline_case_build(&shape, &made);
        const bool uneven = kind == OT_PIPELINE_INTERLEAVED && p > 1 && m > p && m % (m / p) != 0;
        assert_int_equal(status, uneven ? OT_USAGE : OT_OK);
        pipeline_case_destroy(&made);
      }
    }
  }
}

static void interleaved_takes_four_chunks_in_unequal_rounds(void **state) {
  (void)state;
  // 10 = 2 groups of 5 on 4 stages.
  const pipeline_shape shape = {OT_PIPELINE_INTERLEAVED, 4, 4, 10, NULL};
  assert_starts_with(line_of(&shape, 0), "0F0,0F1,0F2,0F3,0F4,4F0,4F1,4F2,4F3,4F4,8F0");
}

static void refusals_name_the_nearest_that_fit(void **state) {
  (void)state;
  pipeline_case made;
  const pipeline_shape shape = {OT_PIPELINE_INTERLEAVED, 4, 2, 13, NULL};
  assert_int_equal(pipeline_case_build(&shape, &made), OT_USAGE);
  assert_message_has("pp=4");
  assert_message_has("13 micro-batches");
  assert_non_null(strstr(ot_fail_hint_text(), "12 and 15"));
  pipeline_case_destroy(&made);
  const pipeline_shape thick = {OT_PIPELINE_1F1B, 2, 2, 4, NULL};
  assert_int_equal(pipeline_case_build(&thick, &made), OT_USAGE);
  assert_message_has("vpp=2");
  pipeline_case_destroy(&made);
  const pipeline_shape thin = {OT_PIPELINE_INTERLEAVED, 2, 1, 4, NULL};
  assert_int_equal(pipeline_case_build(&thin, &made), OT_USAGE);
  assert_message_has("vpp=1");
  pipeline_case_destroy(&made);
  const pipeline_shape deep = {OT_PIPELINE_ZB_V, 2, 3, 4, NULL};
  assert_int_equal(pipeline_case_build(&deep, &made), OT_USAGE);
  assert_message_has("vpp=3");
  pipeline_case_destroy(&made);
}

// ---- files ----

static const char *build_csv(const pipeline_shape *shape, pipeline_case *made) {
  static char message[1024];
  const ot_status status = pipeline_case_build(shape, made);
  if (status == OT_OK) return "";
  assert_int_equal(status, OT_USAGE);
  ot_text_format(message, sizeof message, "%s; %s", ot_fail_message(), ot_fail_hint_text());
  return message;
}

static void assert_refused(const char *csv, const char *part, const char *other) {
  pipeline_case made;
  const pipeline_shape shape = {OT_PIPELINE_1F1B, 2, 1, 2, csv};
  const char *const message = build_csv(&shape, &made);
  if (!strstr(message, part) || !strstr(message, other)) {
    fail_msg("'%s' contains neither '%s' nor '%s'", message, part, other);
  }
  pipeline_case_destroy(&made);
}

static void printed_orders_read_back_as_themselves(void **state) {
  (void)state;
  for (int kind = 0; kind < OT_PIPELINES; kind++) {
    pipeline_shape shape = {(ot_pipeline)kind, 3, pipeline_chunks((ot_pipeline)kind), 6, NULL};
    pipeline_case made, again;
    pipeline_case_create(&shape, &made);
    shape.csv = ot_pipeline_schedule_print(&made.order, &made.arena);
    pipeline_case_create(&shape, &again);
    assert_string_equal(ot_pipeline_schedule_print(&again.order, &again.arena), shape.csv);
    assert_int_equal(again.order.split, made.order.split);
    pipeline_case_destroy(&made);
    pipeline_case_destroy(&again);
  }
}

static void bubbles_spaces_and_line_ends_mean_nothing(void **state) {
  (void)state;
  pipeline_case made;
  const pipeline_shape shape = {OT_PIPELINE_1F1B, 2, 1, 2,
                                "0F0,0F1,,,0B0, ,0B1\r\n,1F0 , 1B0,1F1,1B1,\r\n\r\n"};
  pipeline_case_create(&shape, &made);
  assert_string_equal(ot_pipeline_schedule_print(&made.order, &made.arena),
                      "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  assert_false(made.order.split);
  pipeline_case_destroy(&made);
}

static void whole_backwards_are_split_where_some_are(void **state) {
  (void)state;
  pipeline_case made;
  const pipeline_shape shape = {OT_PIPELINE_1F1B, 2, 1, 2,
                                "0F0,0F1,0B0,0B1\n1F0,1I0,1F1,1I1,1W0,1W1\n"};
  pipeline_case_create(&shape, &made);
  assert_true(made.order.split);
  assert_string_equal(ot_pipeline_schedule_print(&made.order, &made.arena),
                      "0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1F1,1I1,1W0,1W1\n");
  pipeline_case_destroy(&made);
}

static void bad_entries_are_named_by_line_and_column(void **state) {
  (void)state;
  assert_refused("0F0,0F1\n1F0,1X0\n", "line 2, column 5: entry '1X0'", "F, I, W or B");
  assert_refused("0F0,F1\n", "line 1, column 5: entry 'F1'", "2F0");
  assert_refused("0F0,0F\n", "entry '0F'", "2F0");
  assert_refused("0F0,0F1x\n", "entry '0F1x'", "2F0");
  assert_refused("0F0,0F99999999999999\n", "column 5", "2F0");
  assert_refused("0F0,(0F1;1B0)OVERLAP_F_B\n", "column 10: entry '1B0'", "chunk 1 is on stage 1");
  assert_refused("0F0,(0F1;0B0)OVERLAP_F_C\n", "entry '(0F1", "(2F1;1B0)OVERLAP_F_B");
  assert_refused("0F0,(0F1)OVERLAP_F_B\n", "entry '(0F1", "(2F1;1B0)OVERLAP_F_B");
  assert_refused("0F0,(;)OVERLAP_F_B\n", "column 6: entry ''", "2F0");
  assert_refused("0F0,(\n", "entry '('", "(2F1;1B0)OVERLAP_F_B");
  assert_refused("0F0,(0B0;0F1)OVERLAP_F_B\n", "entry '(0B0", "a forward, then a backward");
  assert_refused("0F0,2F0\n", "entry '2F0': no such chunk", "0 to 1");
  assert_refused("0F0,  0F2\n", "column 7: entry '0F2': no such micro-batch", "0 to 1");
  assert_refused("0F0,1F0\n", "chunk 1 is on stage 1", "line 2");
}

static void the_number_of_lines_is_that_of_the_stages(void **state) {
  (void)state;
  assert_refused("0F0,0F1,0B0,0B1\n", "1 lines", "2 stages");
  assert_refused("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n2F0\n", "line 3", "2 stages");
}

static void missing_duplicate_or_misordered_actions_are_rejected(void **state) {
  (void)state;
  assert_refused("0F0,0F1,0B0,0B1\n1F0,1B0,1F1\n", "stage 1 never runs 1B1", "2 micro-batches");
  assert_refused("0F0,0F1,0B0,0B1\n1F0,1B0,1F0,1F1,1B1\n", "is 1F0, expected 1F1", "action 2");
  assert_refused("0F0,0F1,0B1,0B0\n1F0,1B0,1F1,1B1\n", "is 0B1, expected 0B0", "stage 0");
  assert_refused("0F0,0F1,0I0,0W1\n1F0,1B0,1F1,1B1\n", "is 0W1, expected 0W0", "stage 0");
}

static void cyclic_waits_are_rejected(void **state) {
  (void)state;
  assert_refused("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n", "stage 0 can never run 0B0 (its action 1)",
                 "it needs 1B0; stage 1, which runs that, waits before 1F1");
  assert_refused("(0F0;0B0)OVERLAP_F_B,0F1,0B1\n1F0,1B0,1F1,1B1\n", "stage 0 can never run 0F0",
                 "0");
  assert_refused("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,(1F1;1B0)OVERLAP_F_B,1B1\n", "can never run",
                 "waits before");
  assert_refused("0W0,0F0,0F1,0I0,0I1,0W1\n1F0,1B0,1F1,1B1\n", "stage 0 can never run 0W0",
                 "stage 0 runs that later");
}

// ---- check of hand-written schedules ----

static void modified_schedules_fail_the_check(void **state) {
  (void)state;
  const pipeline_shape shape = {OT_PIPELINE_ZB_H1, 3, 1, 4, NULL};
  pipeline_case made;
  pipeline_case_create(&shape, &made);
  ot_action *const actions = made.order.actions[1];
  for (int i = 0; i < made.order.num_actions[1]; i++) {
    const ot_action kept = actions[i];
    actions[i].micro_batch++;
    assert_int_equal(ot_pipeline_schedule_check(&made.order, &made.arena), OT_USAGE);
    actions[i] = kept;
    actions[i].chunk = 2;
    assert_int_equal(ot_pipeline_schedule_check(&made.order, &made.arena), OT_USAGE);
    actions[i] = kept;
    if (kept.kind == OT_ACTION_FORWARD) continue;
    actions[i].kind = OT_ACTION_BACKWARD;
    assert_int_equal(ot_pipeline_schedule_check(&made.order, &made.arena), OT_USAGE);
    actions[i] = kept;
  }
  assert_int_equal(ot_pipeline_schedule_check(&made.order, &made.arena), OT_OK);
  pipeline_case_destroy(&made);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(schedules_start_as_published),
      cmocka_unit_test(dualpipe_v_is_that_of_pytorch),
      cmocka_unit_test(forwards_run_with_independent_backwards),
      cmocka_unit_test(one_rank_runs_any_number_of_chunks),
      cmocka_unit_test(few_micro_batches_run_or_are_refused),
      cmocka_unit_test(interleaved_takes_four_chunks_in_unequal_rounds),
      cmocka_unit_test(refusals_name_the_nearest_that_fit),
      cmocka_unit_test(printed_orders_read_back_as_themselves),
      cmocka_unit_test(bubbles_spaces_and_line_ends_mean_nothing),
      cmocka_unit_test(whole_backwards_are_split_where_some_are),
      cmocka_unit_test(bad_entries_are_named_by_line_and_column),
      cmocka_unit_test(the_number_of_lines_is_that_of_the_stages),
      cmocka_unit_test(missing_duplicate_or_misordered_actions_are_rejected),
      cmocka_unit_test(cyclic_waits_are_rejected),
      cmocka_unit_test(modified_schedules_fail_the_check),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
