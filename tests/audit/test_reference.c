// SPDX-License-Identifier: Apache-2.0
// run: ranks=2,4 as threads. A step on any layout is that of one rank; a sum that is left out, made
// on other data, or scaled is found, with the tensors.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "audit/reference.h"
#include "device/heap.h"
#include "support/audit_case.h"

typedef struct said {
  double damage;  // the weights of rank 1 are multiplied by it beforehand; 0: they are not
  int64_t most_bytes;
  int num_findings;
  char what[64], where[128];
  ot_reference_figures figures;
} said;

// As if rank 1 computed with other weights: its part of every sum is wrong.
static void damage(ot_instance *instance, double factor) {
  const ot_parameter *const p =
      ot_graph_parameter(ot_instance_shape(instance), "layers.1.mlp_norm.weight");
  const int64_t offset =
      ot_instance_held(instance, p->block, OT_COPY_WEIGHT).offset + p->offset * 4;
  float row[32];
  ot_executor_read(ot_instance_executor(instance), offset, row, sizeof row);
  for (int i = 0; i < 32; i++) row[i] *= (float)factor;
  ot_executor_write(ot_instance_executor(instance), offset, row, sizeof row);
}

static ot_status compare(audit_rank *rank) {
  said *const s = rank->context;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_audit_report report = {.audit = "ranks"};
  ot_reference_figures figures;
  const ot_reference_request request = {
      .trainer = rank->trainer, .team = rank->team, .most_bytes = s->most_bytes};
  if (s->damage != 0 && rank->rank == 1) {
    damage(ot_trainer_instance(rank->trainer), s->damage);
  }
  const ot_status status = ot_reference_compare(&request, &arena, &report, &figures);
  if (status == OT_OK && ot_team_leads(rank->team)) {
    s->figures = figures;
    s->num_findings = report.num_findings;
    if (report.num_findings > 0) {
      snprintf(s->what, sizeof s->what, "%s", report.findings[0].what);
      snprintf(s->where, sizeof s->where, "%s", report.findings[0].where);
    }
  }
  ot_heap_release(&heap);
  return status;
}

static said run(const audit_request *request, double factor, int64_t most_bytes) {
  said s = {.damage = factor, .most_bytes = most_bytes};
  if (audit_run(request, compare, &s) != OT_OK) fail_msg("%s", ot_fail_message());
  return s;
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
    request.documents = true;  // so that ranks count unequal numbers of targets
    request.fp64 = true;
    const said s = run(&request, 0, 1 << 30);
    assert_true(s.figures.compared);
    assert_int_equal(s.num_findings, 0);
    assert_true(s.figures.largest < 1e-12);
    assert_true(fabs(s.figures.loss - s.figures.reference) < 1e-13);
  }
}

static void other_weights_on_one_rank_are_found(void **state) {
  (void)state;
  audit_request request = {.dp_replicate = 2, .batch = 4, .micro_batch = 1};
  request.model = audit_model(2, false);
  const said s = run(&request, 1.5, 1 << 30);
  assert_true(s.num_findings > 0);
  assert_string_equal(s.what, "gradient_direction");
  assert_true(s.figures.largest > 1e-3);
}

static void what_one_rank_cannot_hold_is_not_compared(void **state) {
  (void)state;
  audit_request request = {.dp_replicate = 2, .batch = 4, .micro_batch = 1};
  request.model = audit_model(2, false);
  const said s = run(&request, 1.5, 1000);
  assert_false(s.figures.compared);
  assert_int_equal(s.num_findings, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_layout_makes_the_step_of_one_rank),
      cmocka_unit_test(other_weights_on_one_rank_are_found),
      cmocka_unit_test(what_one_rank_cannot_hold_is_not_compared),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
