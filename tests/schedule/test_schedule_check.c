// SPDX-License-Identifier: Apache-2.0
// run: any machine. The check accepts schedules of the builders and rejects corrupted ones.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/text.h"
#include "schedule/access.h"
#include "support/tiny_plan.h"

static ot_entry *find_entry(tiny_plan *plan, ot_phase phase, int block, int micro_batch) {
  const int order = ot_schedule_find_order(&plan->schedule, OT_ORDER_STEP, 0);
  ot_order *const step = &plan->schedule.orders[order];
  for (int i = 0; i < step->num_entries; i++) {
    ot_entry *const entry = &step->entries[i];
    if (entry->phase == phase && entry->block == block &&
        (micro_batch < 0 || entry->micro_batch == micro_batch)) {
      return entry;
    }
  }
  fail_msg("no entry of phase %s for block %d", ot_phase_name(phase), block);
  return NULL;
}

static void expect_refusal(tiny_plan *plan, const char *part_of_message) {
  const ot_status status = ot_schedule_check(&plan->schedule, &plan->arena);
  assert_int_equal(status, OT_BUG);
  if (!ot_text_find(ot_fail_message(), part_of_message)) {
    fail_msg("message \"%s\" lacks \"%s\"", ot_fail_message(), part_of_message);
  }
}

static void accepts_every_model_recompute_and_split(void **state) {
  (void)state;
  const ot_model models[] = {tiny_gpt2(), tiny_llama(), tiny_gemma()};
  for (int m = 0; m < 3; m++) {
    for (int variant = 0; variant < 12; variant++) {
      const tiny_request request = {.recompute = (ot_recompute)(variant % 3),
                                    .split_backward = (variant / 3) % 2 == 1,
                                    .micro_batches = variant < 6 ? 1 : 3,
                                    .guard_bytes = variant % 2 ? 64 : 0};
      tiny_plan plan;
      tiny_plan_create(&models[m], &request, &plan);
      const ot_status status = ot_schedule_check(&plan.schedule, &plan.arena);
      if (status != OT_OK) fail_msg("model %d, variant %d: %s", m, variant, ot_fail_message());
      tiny_plan_destroy(&plan);
    }
  }
}

static void rejects_a_backward_that_reads_another_blocks_slot(void **state) {
  (void)state;
  tiny_plan plan;
  const ot_model model = tiny_llama();
  tiny_plan_create(&model, &(tiny_request){.micro_batches = 1}, &plan);
  find_entry(&plan, OT_PHASE_BACKWARD, 2, 0)->base[OT_BASE_SLOT] =
      find_entry(&plan, OT_PHASE_BACKWARD, 1, 0)->base[OT_BASE_SLOT];
  expect_refusal(&plan, "overwritten by another tensor");
  tiny_plan_destroy(&plan);
}

static void rejects_a_read_of_memory_never_written(void **state) {
  (void)state;
  tiny_plan plan;
  const ot_model model = tiny_gpt2();
  tiny_plan_create(&model, &(tiny_request){.micro_batches = 1}, &plan);
  ot_entry *const entry = find_entry(&plan, OT_PHASE_FORWARD, 1, 0);
  entry->base[OT_BASE_INPUT] = entry->base[OT_BASE_SLOT];
  const ot_status status = ot_schedule_check(&plan.schedule, &plan.arena);
  assert_int_equal(status, OT_BUG);
  tiny_plan_destroy(&plan);
}

static void rejects_an_order_without_its_forward(void **state) {
  (void)state;
  tiny_plan plan;
  const ot_model model = tiny_llama();
  tiny_plan_create(&model, &(tiny_request){.micro_batches = 1}, &plan);
  ot_entry *const forward = find_entry(&plan, OT_PHASE_FORWARD, 2, 0);
  *forward = *find_entry(&plan, OT_PHASE_FORWARD, 1, 0);
  expect_refusal(&plan, "read before it is written");
  tiny_plan_destroy(&plan);
}

static void rejects_micro_batches_that_add_out_of_order(void **state) {
  (void)state;
  tiny_plan plan;
  const ot_model model = tiny_llama();
  tiny_plan_create(&model, &(tiny_request){.micro_batches = 3}, &plan);
  ot_entry *const second = find_entry(&plan, OT_PHASE_BACKWARD, 1, 1);
  ot_entry *const third = find_entry(&plan, OT_PHASE_BACKWARD, 1, 2);
  second->micro_batch = 2;
  third->micro_batch = 1;
  const ot_status status = ot_schedule_check(&plan.schedule, &plan.arena);
  assert_int_equal(status, OT_BUG);
  tiny_plan_destroy(&plan);
}

static void rejects_a_buffer_outside_the_arena(void **state) {
  (void)state;
  tiny_plan plan;
  const ot_model model = tiny_llama();
  tiny_plan_create(&model, &(tiny_request){.micro_batches = 1}, &plan);
  find_entry(&plan, OT_PHASE_BACKWARD, 1, 0)->base[OT_BASE_D_INPUT] = plan.schedule.arena_bytes - 8;
  expect_refusal(&plan, "outside the arena");
  tiny_plan_destroy(&plan);
}

static void rejects_an_entry_that_waits_for_a_later_one(void **state) {
  (void)state;
  tiny_plan plan;
  const ot_model model = tiny_llama();
  tiny_plan_create(&model, &(tiny_request){.micro_batches = 1}, &plan);
  find_entry(&plan, OT_PHASE_FORWARD, 1, 0)->wait[OT_LANE_GATHER] = 1000;
  expect_refusal(&plan, "which comes later");
  tiny_plan_destroy(&plan);
}

// Moves every transient base of every instruction in turn to a wrong but mapped address.
static void rejects_every_shifted_base(void **state) {
  (void)state;
  tiny_plan plan;
  const ot_model model = tiny_gemma();
  tiny_plan_create(&model, &(tiny_request){.recompute = OT_RECOMPUTE_SELECTIVE, .micro_batches = 2},
                   &plan);
  const int order = ot_schedule_find_order(&plan.schedule, OT_ORDER_STEP, 0);
  const ot_base moved[] = {OT_BASE_SLOT, OT_BASE_INPUT, OT_BASE_OUTPUT, OT_BASE_D_OUTPUT,
                           OT_BASE_D_INPUT};
  ot_access_list list;
  ot_access_list_build(&plan.schedule, order, &plan.arena, &list);
  int tried = 0;
  for (int e = 0; e < plan.schedule.orders[order].num_entries; e++) {
    for (int k = 0; k < 5; k++) {
      bool used = false;
      for (int64_t i = 0; i < list.count; i++) {
        used = used || (list.accesses[i].entry == e && list.accesses[i].base == moved[k]);
      }
      if (!used) continue;
      int64_t *const base = &plan.schedule.orders[order].entries[e].base[moved[k]];
      *base += 64;
      if (ot_schedule_check(&plan.schedule, &plan.arena) == OT_OK) {
        fail_msg("entry %d: %s moved by 64 bytes, not detected", e, ot_base_name(moved[k]));
      }
      *base -= 64;
      tried++;
    }
  }
  assert_true(tried > 50);
  tiny_plan_destroy(&plan);
}

// The tasks of a launch of GPT-2's update on a GPU, whose back end takes several.
static ot_task *find_launch(tiny_plan *plan) {
  const int segment = find_entry(plan, OT_PHASE_UPDATE, 1, -1)->segment;
  ot_task *const tasks = plan->schedule.segments[segment].tasks;
  assert_true(plan->schedule.segments[segment].num_tasks > 3 && tasks[1].joins && tasks[2].joins);
  return tasks;
}

static void rejects_tasks_of_a_launch_that_touch_the_same_bytes(void **state) {
  (void)state;
  tiny_plan plan;
  const ot_model model = tiny_gpt2();
  tiny_plan_create(&model, &(tiny_request){.micro_batches = 1, .backend = OT_BACKEND_CUDA}, &plan);
  assert_int_equal(ot_schedule_check(&plan.schedule, &plan.arena), OT_OK);
  ot_task *const tasks = find_launch(&plan);
  const ot_task second = tasks[1], third = tasks[2];
  tasks[2].workspace = tasks[1].workspace;
  expect_refusal(&plan, "of the same launch");
  tasks[2] = third;
  tasks[2].out[1].offset = tasks[0].out[1].offset;  // first moments
  expect_refusal(&plan, "of the same launch");
  tasks[2].joins = false;
  assert_int_equal(ot_schedule_check(&plan.schedule, &plan.arena), OT_OK);
  tasks[2] = third;
  tasks[1].in[0].type.dtype = OT_BF16;
  expect_refusal(&plan, "joins a task that it cannot run with");
  tasks[1] = second;
  tasks[0].joins = true;
  expect_refusal(&plan, "joins a task that it cannot run with");
  tiny_plan_destroy(&plan);
}

static void rejects_a_launch_of_too_many_tasks(void **state) {
  (void)state;
  enum { MOST = 32 };
  tiny_plan plan;
  const ot_model llama = tiny_llama();
  ot_model model = tiny_experts(&llama, true);
  model.moe.num_experts = 16;
  tiny_plan_create(&model, &(tiny_request){.micro_batches = 1, .backend = OT_BACKEND_CUDA}, &plan);
  assert_int_equal(ot_schedule_check(&plan.schedule, &plan.arena), OT_OK);
  const int segment = find_entry(&plan, OT_PHASE_UPDATE, 1, -1)->segment;
  ot_task *const tasks = plan.schedule.segments[segment].tasks;
  assert_true(plan.schedule.segments[segment].num_tasks > MOST);
  assert_true(tasks[MOST - 1].joins && !tasks[MOST].joins);
  tasks[MOST].joins = true;
  tasks[MOST].workspace = tasks[MOST - 1].workspace + tasks[MOST - 1].workspace_bytes;
  expect_refusal(&plan, "is number 33 of a launch, which takes 32");
  tiny_plan_destroy(&plan);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(accepts_every_model_recompute_and_split),
      cmocka_unit_test(rejects_a_backward_that_reads_another_blocks_slot),
      cmocka_unit_test(rejects_a_read_of_memory_never_written),
      cmocka_unit_test(rejects_an_order_without_its_forward),
      cmocka_unit_test(rejects_micro_batches_that_add_out_of_order),
      cmocka_unit_test(rejects_a_buffer_outside_the_arena),
      cmocka_unit_test(rejects_an_entry_that_waits_for_a_later_one),
      cmocka_unit_test(rejects_every_shifted_base),
      cmocka_unit_test(rejects_tasks_of_a_launch_that_touch_the_same_bytes),
      cmocka_unit_test(rejects_a_launch_of_too_many_tasks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
