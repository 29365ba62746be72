// SPDX-License-Identifier: Apache-2.0
// run: ranks=4 as threads. Gradients that are computed again on another rank have the same bits on
// every mesh; wrong ones are found, with the rank and whether the fault lasts.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "audit/compute_check.h"
#include "base/text.h"
#include "support/audit_case.h"

enum { LASTS = -1 };

// Rank `rank` computes wrongly in computation `at` (from 0), or in each.
typedef struct fault {
  int rank, at;
  int calls;  // of the faulty rank so far
  bool broken;
  float kept;
} fault;

typedef struct expectation {
  int count;
  const char *says;
  const char *note;
} expectation;

// A weight that is wrong during one computation stands for arithmetic that is.
static void break_weight(ot_trainer *trainer, void *context) {
  fault *const f = context;
  if (!f || ot_world_rank(ot_trainer_world(trainer)) != f->rank) return;
  ot_runtime *const runtime = ot_trainer_runtime(trainer);
  ot_executor *const executor = ot_runtime_executor(runtime);
  const int64_t offset = ot_runtime_held_range(runtime, 1, OT_COPY_WEIGHT).offset + 4 * 40;
  if (f->broken) ot_executor_write(executor, offset, &f->kept, sizeof f->kept);
  f->broken = f->at == LASTS || f->calls == f->at;
  f->calls++;
  if (!f->broken) return;
  ot_executor_read(executor, offset, &f->kept, sizeof f->kept);
  const float wrong = f->kept * 1.001f + 1e-6f;
  ot_executor_write(executor, offset, &wrong, sizeof wrong);
}

static void audit_compute(ot_run *run, void *context) {
  static ot_audit_check checks[] = {OT_AUDIT_COMPUTE};
  (void)context;
  run->audit = (ot_run_audit){.every = 1, .checks = checks, .num_checks = 1};
}

// Before the first step and after it.
static ot_status look_twice(audit_rank *r) {
  const expectation *const expected = r->context;
  ot_compute_audit audit = {0};
  for (int i = 0; i < 2; i++) {
    ot_heap heap = {0};
    ot_arena arena = ot_heap_arena_create(&heap);
    ot_loop_findings found = {0};
    OT_TRY(ot_compute_check(&audit, r->trainer, &arena, &found));
    assert_string_equal(found.audit, "compute");
    if (found.count != expected->count) fail_msg("%d: %s", found.count, found.worst);
    if (expected->says && !strstr(found.worst, expected->says)) fail_msg("%s", found.worst);
    assert_int_equal(found.note != NULL, expected->note && i == 0);
    ot_heap_release(&heap);
    if (expected->count > 0) return OT_OK;
    ot_step_report step;
    OT_TRY(ot_trainer_step(r->trainer, &step));
  }
  return OT_OK;
}

static void look(audit_request request, fault *f, expectation expected) {
  const ot_trainer_hooks hooks = {.before = break_weight, .context = f};
  request.batch = request.batch ? request.batch : 4;
  request.micro_batch = 1;
  request.settings = audit_compute;
  request.hooks = &hooks;
  if (audit_run(&request, look_twice, &expected) != OT_OK) fail_msg("%s", ot_fail_message());
}

static void sound_ranks_compute_the_same_on_every_mesh(void **state) {
  (void)state;
  const expectation clean = {0}, alone = {.note = "alone"};
  look((audit_request){.model = audit_model(2, true)}, NULL, alone);
  look((audit_request){.model = audit_model(2, true), .dp_shard = 4, .zero = 3}, NULL, clean);
  look((audit_request){.model = audit_model(2, true), .dp_replicate = 2, .tp = 2}, NULL, clean);
  look((audit_request){.model = audit_model(2, true), .pp = 2, .dp_replicate = 2}, NULL, clean);
  look((audit_request){.model = audit_model(2, false),
                       .dp_shard = 2,
                       .cp = 2,
                       .zero = 2,
                       .batch = 8,
                       .accumulate = OT_ACCUMULATE_SHARDED},
       NULL, clean);
}

static void a_transient_fault_names_its_rank(void **state) {
  (void)state;
  const audit_request four = {.model = audit_model(2, true), .dp_replicate = 4};
  look(four, &(fault){.rank = 2, .at = 0},
       (expectation){1, "rank 2 does not repeat its own bits: a transient fault", NULL});
  look(four, &(fault){.rank = 1, .at = 1},
       (expectation){1, "rank 1 does not repeat its own bits: a transient fault", NULL});
  look((audit_request){.model = audit_model(2, true)}, &(fault){.rank = 0, .at = 1},
       (expectation){1, "rank 0 does not repeat its own bits", "alone"});
}

static void a_lasting_fault_is_judged_by_a_third_rank(void **state) {
  (void)state;
  look((audit_request){.model = audit_model(2, true), .dp_replicate = 4},
       &(fault){.rank = 2, .at = LASTS},
       (expectation){2, "rank 2 computes it wrongly each time: a lasting fault", NULL});
  look((audit_request){.model = audit_model(2, true), .dp_replicate = 2},
       &(fault){.rank = 1, .at = LASTS},
       (expectation){2, "rank 1 or rank 0 computes it wrongly each time", NULL});
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sound_ranks_compute_the_same_on_every_mesh),
      cmocka_unit_test(a_transient_fault_names_its_rank),
      cmocka_unit_test(a_lasting_fault_is_judged_by_a_third_rank),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
