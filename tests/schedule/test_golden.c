// SPDX-License-Identifier: Apache-2.0
// run: any machine. Schedules of tiny models against the texts in tests/golden, so that a reviewer
// sees the effect of a change on a schedule. If a text differs, the new one is written to
// BUILD/golden/NAME.txt; `tools/accept_golden.sh BUILD` makes it the golden one.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "support/rank_case.h"
#include "support/tiny_plan.h"

enum { MAX_BYTES = 400000, MAX_SHOWN = 200 };

// The text of the file, or null; the caller frees it.
static char *read_golden(const char *path) {
  FILE *const file = fopen(path, "rb");
  if (!file) return NULL;
  char *const text = calloc(1, MAX_BYTES + 1);
  assert_non_null(text);
  assert_true(fread(text, 1, MAX_BYTES, file) < MAX_BYTES);
  fclose(file);
  return text;
}

static void write_new(const char *path, const char *text) {
  assert_true(mkdir(OT_BUILD_DIR "/golden", 0777) == 0 || errno == EEXIST);
  FILE *const file = fopen(path, "wb");
  if (!file) fail_msg("%s: %s", path, strerror(errno));
  assert_true(fputs(text, file) >= 0);
  assert_int_equal(fclose(file), 0);
}

// Advances both texts to the first line that differs and returns its number. The first line
// contains the hash, so it is reported only if the rest is equal.
static int first_difference(const char **golden, const char **now) {
  const char *a = strchr(*golden, '\n'), *b = strchr(*now, '\n');
  if (!a || !b || strcmp(a, b) == 0) return 1;
  int line = 1;
  for (; *a && *a == *b; a++, b++) {
    if (*a != '\n') continue;
    line++;
    *golden = a + 1;
    *now = b + 1;
  }
  return line;
}

static int length_shown(const char *line) {
  const size_t length = strcspn(line, "\n");
  return length < MAX_SHOWN ? (int)length : MAX_SHOWN;
}

static void compare(const char *name, const char *text) {
  char golden_path[1024], new_path[1024];
  snprintf(golden_path, sizeof golden_path, "%s/tests/golden/%s.txt", OT_SOURCE_DIR, name);
  snprintf(new_path, sizeof new_path, "%s/golden/%s.txt", OT_BUILD_DIR, name);
  assert_true(strlen(text) < MAX_BYTES);
  char *const golden = read_golden(golden_path);
  if (golden && strcmp(golden, text) == 0) {
    remove(new_path);
    free(golden);
    return;
  }
  write_new(new_path, text);
  const char *then = golden ? golden : "";
  const char *now = text;
  const int line = first_difference(&then, &now);
  fail_msg(
      "%s.txt, line %d\n  golden: %.*s\n  now:    %.*s\nIf that is meant: "
      "tools/accept_golden.sh " OT_BUILD_DIR ", and look at the diff",
      name, line, length_shown(then), then, length_shown(now), now);
}

static void expect_golden(const char *name, const ot_model *model, const tiny_request *request) {
  tiny_plan plan;
  tiny_plan_create(model, request, &plan);
  const char *const text = ot_schedule_print(&plan.schedule, &plan.arena);
  tiny_plan again;
  tiny_plan_create(model, request, &again);
  assert_string_equal(text, ot_schedule_print(&again.schedule, &again.arena));
  tiny_plan_destroy(&again);
  compare(name, text);
  tiny_plan_destroy(&plan);
}

static const char *print_ranks(const rank_request *request, ot_arena *arena) {
  ot_schedule schedules[RANK_MAX];
  if (rank_plan(request, arena, schedules) != OT_OK) fail_msg("%s", ot_fail_message());
  char *const text = ot_arena_take(arena, MAX_BYTES);
  int length = 0;
  for (int rank = 0; rank < rank_count(request); rank++) {
    length += snprintf(text + length, (size_t)(MAX_BYTES - length), "# rank %d\n%s", rank,
                       ot_schedule_print(&schedules[rank], arena));
    assert_true(length < MAX_BYTES);
  }
  return text;
}

static void expect_golden_ranks(const char *name, const rank_request *request) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const char *const text = print_ranks(request, &arena);
  assert_string_equal(text, print_ranks(request, &arena));
  compare(name, text);
  ot_heap_release(&heap);
}

// One rank, one sequence per micro-batch.
static rank_request layout_of(rank_model_kind model) {
  return (rank_request){.model = model,
                        .layers = 2,
                        .dtype = OT_F32,
                        .length = 8,
                        .micro_batch = 1,
                        .batch = 4,
                        .steps = 1,
                        .pp = 1,
                        .vpp = 1,
                        .dp_replicate = 1,
                        .dp_shard = 1,
                        .cp = 1,
                        .tp = 1,
                        .prefetch = 1,
                        .pipeline = OT_PIPELINE_1F1B,
                        .overlap = true};
}

static void zb_v_schedule_is_golden(void **state) {
  (void)state;
  rank_request request = layout_of(RANK_GPT2);
  request.layers = 4;
  request.pp = 2;
  request.pipeline = OT_PIPELINE_ZB_V;
  expect_golden_ranks("gpt2_pp2_zb_v", &request);
}

static void zero3_schedule_is_golden(void **state) {
  (void)state;
  rank_request request = layout_of(RANK_LLAMA);
  request.dp_shard = 2;
  request.zero = 3;
  request.accumulate = OT_ACCUMULATE_SHARDED;
  expect_golden_ranks("llama_dp2_zero3", &request);
}

static void expert_parallel_schedule_is_golden(void **state) {
  (void)state;
  rank_request request = layout_of(RANK_MOE);
  request.dp_shard = 2;
  request.ep = 2;
  expect_golden_ranks("moe_dp2_ep2", &request);
}

static void llama_selective_recompute_schedule_is_golden(void **state) {
  (void)state;
  const ot_model model = tiny_llama();
  expect_golden("llama_selective", &model,
                &(tiny_request){.recompute = OT_RECOMPUTE_SELECTIVE, .micro_batches = 2});
}

static void tied_gpt2_schedule_is_golden(void **state) {
  (void)state;
  const ot_model model = tiny_gpt2();
  expect_golden("gpt2_tied", &model, &(tiny_request){.micro_batches = 2});
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(llama_selective_recompute_schedule_is_golden),
      cmocka_unit_test(tied_gpt2_schedule_is_golden),
      cmocka_unit_test(zb_v_schedule_is_golden),
      cmocka_unit_test(zero3_schedule_is_golden),
      cmocka_unit_test(expert_parallel_schedule_is_golden),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
