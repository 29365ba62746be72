// SPDX-License-Identifier: Apache-2.0
// run: ranks=2,4 as threads. A step on any layout equals that of one rank; a reduction that is
// missing, uses other data, or is scaled is found, with the tensors.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "audit/reference.h"
#include "checkpoint/elements.h"
#include "host/heap.h"
#include "support/audit_case.h"

typedef struct looked {
  double damage;  // factor on the weights of rank 1 before the step; 0: none
  audit_outcome said;
  ot_reference_figures figures;
} looked;

// Makes rank 1 compute with other weights, so its part of every reduction is wrong.
static void damage(ot_runtime *runtime, double factor) {
  const ot_parameter *const p =
      ot_graph_parameter(ot_runtime_any_graph(runtime), "layers.1.mlp_norm.weight");
  const ot_dtype dtype = ot_runtime_copy_dtype(runtime, OT_COPY_WEIGHT);
  const int64_t size = ot_dtype_bytes(dtype);
  const int64_t offset =
      ot_runtime_held_range(runtime, p->block, OT_COPY_WEIGHT).offset + p->offset * size;
  char row[32 * 4];
  float wide[32];
  ot_executor_read(ot_runtime_executor(runtime), offset, row, 32 * size);
  ot_elements_convert(dtype, row, OT_F32, wide, 32);
  for (int i = 0; i < 32; i++) wide[i] *= (float)factor;
  ot_elements_convert(OT_F32, wide, dtype, row, 32);
  ot_executor_write(ot_runtime_executor(runtime), offset, row, 32 * size);
}

static ot_status compare(audit_rank *rank) {
  looked *const l = rank->context;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_audit_report report = {.audit = "ranks", .arena = &arena};
  ot_reference_figures figures;
  if (l->damage != 0 && rank->rank == 1) {
    damage(ot_trainer_runtime(rank->trainer), l->damage);
  }
  const ot_status status = ot_reference_compare(rank->trainer, &report, &figures);
  if (status == OT_OK && ot_world_is_leader(rank->world)) {
    l->figures = figures;
    audit_copy_report(&report, &l->said);
  }
  ot_heap_release(&heap);
  return status;
}

static looked run(const audit_request *request, double factor, int64_t most_bytes) {
  const ot_trainer_hooks hooks = {.audit_bytes = most_bytes};
  audit_request bounded = *request;
  bounded.hooks = &hooks;
  looked l = {.damage = factor};
  if (audit_run(&bounded, compare, &l) != OT_OK) fail_msg("%s", ot_fail_message());
  return l;
}

static void every_layout_makes_the_step_of_one_rank(void **state) {
  (void)state;
  const audit_request layouts[] = {
      {.tp = 2},
      {.cp = 2, .dp_shard = 2, .zero = 1},
      {.pp = 2, .dp_replicate = 2},
      {.dp_shard = 4, .zero = 3, .accumulate = OT_ACCUMULATE_SHARDED},
  };
  for (int i = 0; i < OT_COUNT(layouts); i++) {
    audit_request request = layouts[i];
    request.model = audit_model(2, i % 2 == 0);
    request.batch = 8;
    request.micro_batch = 1;
    request.documents = true;  // so that ranks have unequal numbers of targets
    request.fp64 = true;
    const looked l = run(&request, 0, 1 << 30);
    assert_true(l.figures.compared);
    assert_int_equal(l.said.num_findings, 0);
    assert_true(l.figures.largest < 1e-12);
    assert_true(fabs(l.figures.loss - l.figures.reference) < 1e-13);
    assert_true(l.figures.fewest_targets < l.figures.most_targets);
  }
}

static void other_weights_on_one_rank_are_found(void **state) {
  (void)state;
  audit_request request = {.dp_replicate = 2, .batch = 4, .micro_batch = 1};
  request.model = audit_model(2, false);
  const looked l = run(&request, 1.5, 1 << 30);
  assert_true(l.said.num_findings > 0);
  assert_string_equal(l.said.what, "gradient_direction");
  assert_true(l.figures.largest > 1e-3);
  // Without documents all ranks have equally many targets: the test of means of means has no power.
  assert_int_equal(l.figures.fewest_targets, 16);
  assert_int_equal(l.figures.most_targets, 16);
}

static void keep_gradients_narrow(ot_run *run, void *context) {
  (void)context;
  run->precision.gradients = OT_BF16;
}

static void gradients_in_bf16_differ_by_their_rounding(void **state) {
  (void)state;
  audit_request request = {.dp_shard = 2,
                           .zero = 2,
                           .accumulate = OT_ACCUMULATE_SHARDED,
                           .batch = 16,
                           .micro_batch = 1,
                           .bf16 = true,
                           .settings = keep_gradients_narrow};
  request.model = audit_model(2, true);
  const looked sound = run(&request, 0, 1 << 30);
  assert_int_equal(sound.said.num_findings, 0);
  assert_true(sound.figures.largest > 1e-3 && sound.figures.largest < 0.01);
  const looked wrong = run(&request, 1.5, 1 << 30);
  assert_true(wrong.said.num_findings > 0);
}

static void rounding_that_moves_tokens_leaves_open_and_is_not_clean(void **state) {
  (void)state;
  ot_run run = {.precision = {.compute = OT_F32, .params = OT_F32, .reduce = OT_F32}};
  run.model.moe.num_experts = 8;
  run.parallel.tp = 1;
  run.parallel.ep = 2;
  assert_true(ot_reference_limit(&run) == ot_reference_tolerance(&run));
  run.precision.params = OT_BF16;
  assert_true(ot_reference_tolerance(&run) == 0.01);
  assert_true(ot_reference_limit(&run) == 0.5);
  run.parallel.ep = 1;
  assert_true(ot_reference_limit(&run) == 0.01);
  run.parallel.tp = 2;
  assert_true(ot_reference_tolerance(&run) == 0.1);
  assert_true(ot_reference_limit(&run) == 0.5);
  run.model.moe.num_experts = 0;
  assert_true(ot_reference_limit(&run) == 0.1);
}

static void small_routing_differences_are_inconclusive(void **state) {
  (void)state;
  audit_request request = audit_moe_request(2, 8);
  request.tp = 2;
  request.bf16 = true;
  const looked sound = run(&request, 0, 1 << 30);
  assert_false(sound.figures.undecided);
  const looked open = run(&request, 1.1, 1 << 30);
  assert_true(open.figures.undecided);
  assert_int_equal(open.said.num_findings, 0);
  assert_true(open.figures.largest > 0.1 && open.figures.largest < 0.5);
  assert_true(run(&request, 1.5, 1 << 30).said.num_findings > 0);
}

static void models_too_large_for_one_rank_are_not_compared(void **state) {
  (void)state;
  audit_request request = {.dp_replicate = 2, .batch = 4, .micro_batch = 1};
  request.model = audit_model(2, false);
  const looked l = run(&request, 1.5, 1000);
  assert_false(l.figures.compared);
  assert_int_equal(l.said.num_findings, 0);
}

static void replicas_that_agree_are_clean_only_where_one_rank_was_asked(void **state) {
  (void)state;
  const ot_trainer_hooks hooks = {.audit_bytes = 1000};
  audit_request request = {.dp_replicate = 2, .batch = 4, .micro_batch = 1};
  request.model = audit_model(2, false);
  const ot_audit_request how = {.steps = 1};
  assert_int_equal(audit_run_one(&request, ot_audit_ranks, &how).verdict, OT_VERDICT_CLEAN);
  request.hooks = &hooks;
  const audit_outcome s = audit_run_one(&request, ot_audit_ranks, &how);
  assert_int_equal(s.num_findings, 0);
  assert_int_equal(s.verdict, OT_VERDICT_INCONCLUSIVE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_layout_makes_the_step_of_one_rank),
      cmocka_unit_test(other_weights_on_one_rank_are_found),
      cmocka_unit_test(gradients_in_bf16_differ_by_their_rounding),
      cmocka_unit_test(rounding_that_moves_tokens_leaves_open_and_is_not_clean),
      cmocka_unit_test(small_routing_differences_are_inconclusive),
      cmocka_unit_test(models_too_large_for_one_rank_are_not_compared),
      cmocka_unit_test(replicas_that_agree_are_clean_only_where_one_rank_was_asked),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
