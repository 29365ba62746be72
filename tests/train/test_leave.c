// SPDX-License-Identifier: Apache-2.0
// ctest: threads
// run: alone, ranks as threads. Ranks leave a step at different kernels, or some of them never: all
// report it, weights and optimizer states are those of the step before, bit for bit, and the steps
// that follow are those of a run that nobody left.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/text.h"
#include "host/heap.h"
#include "support/audit_case.h"

enum { RANKS_MAX = 8, STEPS = 3, NEVER = 1 << 30 };

typedef struct plan {
  uint64_t seed;
  int trials;
  double loss[STEPS], norm[STEPS];  // of the run that nobody leaves
} plan;

typedef struct leaver {
  int left, calls;  // kernels until it leaves; kernels of the last step
} leaver;

static bool asks(void *context) {
  leaver *const l = context;
  l->calls++;
  return l->left-- <= 0;
}

// Of weights and optimizer states.
static uint64_t hash_state(const audit_rank *rank) {
  ot_runtime *const runtime = ot_trainer_runtime(rank->trainer);
  const ot_schedule *const schedule = ot_runtime_schedule(runtime);
  uint64_t hash = OT_HASH_START;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  for (int i = 0; i < schedule->num_regions; i++) {
    const ot_region *const region = &schedule->regions[i];
    const bool kept = region->class == OT_MEMORY_WEIGHTS || region->class == OT_MEMORY_OPTIMIZER;
    if (!region->persistent || !kept) continue;
    char *const bytes = ot_arena_take(&arena, region->bytes);
    ot_executor_read(ot_runtime_executor(runtime), region->offset, bytes, region->bytes);
    hash = ot_hash_bytes(hash, bytes, region->bytes);
  }
  ot_heap_release(&heap);
  return hash;
}

static ot_status take_steps(audit_rank *rank, plan *p) {
  for (int i = 0; i < STEPS; i++) {
    ot_step_report step;
    OT_TRY(audit_step(rank, &step));
    if (rank->rank != 0) continue;
    p->loss[i] = step.loss;
    p->norm[i] = step.gradient_norm;
  }
  return OT_OK;
}

static int draw(uint64_t seed, int trial, int rank, int below) {
  return (int)(ot_rng_uniform(seed, (uint64_t)trial, (uint64_t)rank) * below);
}

// One rank always leaves; of the others, one in four does not.
static int kernels_until(const plan *p, const audit_rank *rank, int trial, int kernels) {
  const int chosen = draw(p->seed, trial, -1, rank->ranks);
  const bool stays = rank->rank != chosen && draw(p->seed, trial, 100 + rank->rank, 4) == 0;
  return stays ? NEVER : draw(p->seed, trial, rank->rank, kernels);
}

static ot_status leave_once(audit_rank *rank, leaver *l, int kernels) {
  const ot_position before = ot_trainer_position(rank->trainer);
  const uint64_t state = hash_state(rank);
  ot_step_report step;
  l->left = kernels;
  const ot_status status = audit_step(rank, &step);
  l->left = NEVER;
  OT_CHECK(status == OT_STOPPED, OT_BUG, "a step that was left gave %d (%s)", status,
           status == OT_OK ? "" : ot_fail_message());
  OT_CHECK(hash_state(rank) == state, OT_BUG, "the state changed in a step that was left");
  const ot_position after = ot_trainer_position(rank->trainer);
  OT_CHECK(after.step == before.step && after.next_sample == before.next_sample &&
               after.tokens == before.tokens,
           OT_BUG, "the position changed in a step that was left");
  return OT_OK;
}

static ot_status take_steps_and_leave(audit_rank *rank, plan *p) {
  leaver l = {.left = NEVER};
  const ot_executor_leave leave = {.asks = asks, .context = &l};
  ot_executor_set_leave(ot_runtime_executor(ot_trainer_runtime(rank->trainer)), &leave);
  for (int i = 0; i < STEPS; i++) {
    const int kernels = l.calls;  // of the step before
    for (int k = 0; i == 1 && k < p->trials; k++) {
      OT_TRY(leave_once(rank, &l, kernels_until(p, rank, k, kernels)));
    }
    ot_step_report step;
    l.calls = 0;
    OT_TRY(audit_step(rank, &step));
    OT_CHECK(step.loss == p->loss[i] && step.gradient_norm == p->norm[i], OT_BUG,
             "step %d has loss %.17g and norm %.17g, not %.17g and %.17g", i + 1, step.loss,
             step.gradient_norm, p->loss[i], p->norm[i]);
  }
  return OT_OK;
}

static ot_status plain(audit_rank *rank) { return take_steps(rank, rank->context); }

static ot_status leaving(audit_rank *rank) { return take_steps_and_leave(rank, rank->context); }

static void check(const audit_request *request, int trials) {
  plan p = {.seed = 7, .trials = trials};
  const ot_status first = audit_run(request, plain, &p);
  if (first != OT_OK) fail_msg("%s: %s", audit_describe(request), ot_fail_message());
  const ot_status second = audit_run(request, leaving, &p);
  if (second != OT_OK) fail_msg("%s: %s", audit_describe(request), ot_fail_message());
}

static void dense_meshes(void **state) {
  (void)state;
  const audit_request meshes[] = {
      {.zero = 1},
      {.dp_shard = 2, .zero = 1},
      {.dp_shard = 4, .zero = 3, .bf16 = true},
      {.dp_replicate = 2, .zero = 0},
      {.dp_shard = 2, .tp = 2, .zero = 2},
      {.pp = 2, .dp_shard = 2, .zero = 3},
      {.cp = 2, .tp = 2},
      {.pp = 2, .bf16 = true},
  };
  for (int i = 0; i < OT_COUNT(meshes); i++) {
    audit_request request = meshes[i];
    request.model = audit_model(2, i % 2 == 0);
    request.batch = 8;
    request.micro_batch = 1;
    check(&request, 12);
  }
}

static void meshes_with_experts(void **state) {
  (void)state;
  for (int i = 0; i < 5; i++) {
    audit_request request = audit_moe_request(2, 4);
    request.batch = 8;
    request.zero = i == 1 ? 3 : 1;
    request.dp_shard = i == 3 ? 1 : 2;
    request.tp = i >= 2 ? 2 : 1;
    request.ep = i == 0 ? 1 : i == 4 ? 4 : 2;
    request.model.moe.balance = i % 2 == 0 ? OT_MOE_BALANCE_BIAS : OT_MOE_BALANCE_NONE;
    request.model.moe.bias_rate = 1e-2;
    check(&request, 12);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(dense_meshes),
      cmocka_unit_test(meshes_with_experts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
