// SPDX-License-Identifier: Apache-2.0
// run: ranks=1,4 as threads. A non-finite number ends the step before any update and is traced to
// the block, the rank and the tensors.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/audit_case.h"

typedef struct attempt {
  const char *parameter;  // the damaged one
  int rank;               // the rank of the damage
  ot_status status;
  char message[1024], hint[256];
  bool same;  // undamaged weights have their bits from before the step
} attempt;

static const ot_parameter *parameter_of(ot_runtime *runtime, const char *name) {
  return ot_graph_parameter(ot_runtime_any_graph(runtime), name);
}

// Element `index` of a parameter that this rank holds unsharded.
static int64_t offset_of(ot_runtime *runtime, const char *name, int64_t index) {
  const ot_parameter *const p = parameter_of(runtime, name);
  assert_true(ot_runtime_held_range(runtime, p->block, OT_COPY_WEIGHT).count > 0);
  return ot_runtime_held_range(runtime, p->block, OT_COPY_WEIGHT).offset + (p->offset + index) * 4;
}

static void damage(ot_runtime *runtime, const char *name) {
  const float strange = NAN;
  ot_executor_write(ot_runtime_executor(runtime), offset_of(runtime, name, 3), &strange,
                    sizeof strange);
}

static bool holds(ot_runtime *runtime, const char *name) {
  const ot_parameter *const p = parameter_of(runtime, name);
  return p && ot_runtime_held_range(runtime, p->block, OT_COPY_WEIGHT).count > 0;
}

static ot_status body(audit_rank *rank) {
  attempt *const a = rank->context;
  ot_runtime *const runtime = ot_trainer_runtime(rank->trainer);
  static const char witness[] = "layers.0.mlp_norm.weight";
  ot_step_report step;
  OT_TRY(audit_step(rank, &step));
  float before[8] = {0}, after[8] = {0};
  const bool looks = rank->rank == 0 && holds(runtime, witness);
  if (looks) {
    ot_executor_read(ot_runtime_executor(runtime), offset_of(runtime, witness, 0), before,
                     sizeof before);
  }
  if (rank->rank == a->rank) damage(runtime, a->parameter);
  const ot_status status = audit_step(rank, &step);
  if (rank->rank == 0) {
    a->status = status;
    snprintf(a->message, sizeof a->message, "%s", ot_fail_message());
    snprintf(a->hint, sizeof a->hint, "%s", ot_fail_hint_text());
  }
  if (looks) {
    ot_executor_read(ot_runtime_executor(runtime), offset_of(runtime, witness, 0), after,
                     sizeof after);
    a->same = memcmp(before, after, sizeof before) == 0;
  }
  return OT_OK;
}

static void must_say(const attempt *a, const char *part) {
  if (!strstr(a->message, part)) fail_msg("\"%s\" is not in: %s", part, a->message);
}

static audit_request plain(void) {
  return (audit_request){.batch = 4, .micro_batch = 1, .model = audit_model(2, false)};
}

static void one_rank_names_block_and_tensors(void **state) {
  (void)state;
  const audit_request request = plain();
  attempt a = {.parameter = "layers.1.mlp_norm.weight"};
  assert_int_equal(audit_run(&request, body, &a), OT_OK);
  assert_int_equal(a.status, OT_NUMERIC);
  must_say(&a, "step 2");
  must_say(&a, "the first non-finite output is that of layers.1, on rank 0");
  must_say(&a, "first that of model.embed_tokens.weight");
  assert_string_equal(a.hint,
                      "nothing was updated; the samples were 4 to 7; look at block layers.1 "
                      "on rank 0 first");
  assert_true(a.same);
}

static ot_status first_step(audit_rank *rank) {
  attempt *const a = rank->context;
  ot_step_report step;
  const ot_status status = audit_step(rank, &step);
  if (rank->rank > 0) return OT_OK;
  a->status = status;
  snprintf(a->message, sizeof a->message, "%s", ot_fail_message());
  snprintf(a->hint, sizeof a->hint, "%s", ot_fail_hint_text());
  return OT_OK;
}

static void spoil_attention_grad(ot_schedule *schedule, ot_arena *arena, void *context) {
  (void)arena;
  (void)context;
  for (int i = 0; i < schedule->num_segments; i++) {
    const ot_segment *const segment = &schedule->segments[i];
    for (int t = 0; t < segment->num_tasks; t++) {
      if (segment->tasks[t].op == OT_OP_ATTENTION_GRAD) segment->tasks[t].attributes.scale = NAN;
    }
  }
}

// With several ranks the gradient reduction hides the origin.
static void nonfinite_backward_values_name_their_block(void **state) {
  (void)state;
  const ot_trainer_hooks hooks = {.amend = spoil_attention_grad};
  audit_request request = plain();
  request.hooks = &hooks;
  for (int ranks = 1; ranks <= 2; ranks++) {
    attempt a = {0};
    request.dp_replicate = ranks;
    assert_int_equal(audit_run(&request, first_step, &a), OT_OK);
    assert_int_equal(a.status, OT_NUMERIC);
    must_say(&a, ranks == 1 ? "the first non-finite gradient of the backward is that of "
                              "layers.1, on rank 0"
                            : "that of layers.1, on an unknown rank (the gradients are reduced)");
    assert_string_equal(a.hint, ranks == 1
                                    ? "nothing was updated; the samples were 0 to 3; look at "
                                      "block layers.1 on rank 0 first"
                                    : "nothing was updated; the samples were 0 to 3; look at "
                                      "block layers.1 first");
  }
}

static void the_replica_that_was_damaged_is_named(void **state) {
  (void)state;
  audit_request request = plain();
  request.dp_replicate = 4;
  attempt a = {.parameter = "layers.0.attention_norm.weight", .rank = 2};
  assert_int_equal(audit_run(&request, body, &a), OT_OK);
  assert_int_equal(a.status, OT_NUMERIC);
  must_say(&a, "that of layers.0, on rank 2");
  assert_true(a.same);
}

static void stages_and_shards_are_named_too(void **state) {
  (void)state;
  audit_request request = plain();
  request.pp = 2;
  request.dp_replicate = 2;
  attempt a = {.parameter = "layers.1.mlp_norm.weight", .rank = 1};
  assert_int_equal(audit_run(&request, body, &a), OT_OK);
  assert_int_equal(a.status, OT_NUMERIC);
  must_say(&a, "that of layers.1, on rank 1");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_rank_names_block_and_tensors),
      cmocka_unit_test(nonfinite_backward_values_name_their_block),
      cmocka_unit_test(the_replica_that_was_damaged_is_named),
      cmocka_unit_test(stages_and_shards_are_named_too),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
