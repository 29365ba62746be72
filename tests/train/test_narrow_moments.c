// SPDX-License-Identifier: Apache-2.0
// run: any machine. Four steps with AdamW's moments in bf16 against transformers and PyTorch, which
// compute in float64 and round the moments to bf16 after each step (fixtures/narrow_moments.py).
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/checkpoint.h"
#include "files/config_file.h"
#include "fixtures/narrow_moments.h"
#include "support/checkpoint_tensor.h"
#include "support/scratch.h"
#include "support/shards.h"
#include "train/trainer.h"

enum { STEPS = 4, KEPT = 48, NORM_SIZE = 18 };

typedef struct outcome {
  ot_heap heap;
  ot_arena arena;
  char directory[SCRATCH_BYTES];
  const ot_config *config;
  const char *path;  // of the checkpoint
  double loss[STEPS];
} outcome;

static void must(ot_status status) {
  if (status != OT_OK) fail_msg("%s", ot_fail_message());
}

static ot_status take_steps(ot_world *world, outcome *o) {
  ot_trainer *trainer = NULL;
  ot_status status = ot_trainer_create(&o->config->run, o->config->settings, world, &trainer);
  for (int i = 0; i < STEPS && status == OT_OK; i++) {
    ot_step_report step;
    status = ot_trainer_step(trainer, &step);
    if (status == OT_OK) o->loss[i] = step.loss;
  }
  if (status == OT_OK) {
    const ot_state_request request = ot_trainer_state(trainer, o->path);
    status = ot_training_state_save(ot_trainer_runtime(trainer), &request);
  }
  ot_trainer_destroy(&trainer);
  return status;
}

static ot_status run_rank(ot_comm *comm, void *context) {
  outcome *const o = context;
  ot_world *world = NULL;
  OT_TRY(ot_world_create(&o->config->run.parallel, comm, &world));
  const ot_status status = take_steps(world, o);
  ot_world_destroy(&world);
  return status;
}

// Trains on one sample of tokens 0 .. 16 with moments in `dtype`.
static void train(outcome *o, const char *dtype) {
  static const int32_t lengths[] = {17};
  *o = (outcome){.heap = {0}};
  o->arena = ot_heap_arena_create(&o->heap);
  scratch_create(o->directory);
  shard_write(o->directory, "train", lengths, 1, 0);
  o->path = ot_arena_format(&o->arena, "%s/end", o->directory);
  const char *const sets[] = {
      "model=tests/fixtures/parity/llama",
      "init=tests/fixtures/parity/llama",
      ot_arena_format(&o->arena, "data.train=%s", scratch_path(o->directory, "train")),
      ot_arena_format(&o->arena, "output=%s", scratch_path(o->directory, "run")),
      "data.sequence_length=16",
      "batch={global_batch_size: 1, micro_batch_size: 1}",
      "optimizer={lr: 1e-3, betas: [0.9, 0.95], eps: 1e-8, weight_decay: 0.1, clip: 1}",
      "learning_rate={decay: constant, warmup_steps: 0}",
      "steps=4",
      "threads=1",
      ot_arena_format(&o->arena, "precision.moments=%s", dtype),
  };
  const ot_config_request request = {.sets = sets, .num_sets = OT_COUNT(sets)};
  ot_config *const config = ot_arena_take(&o->arena, sizeof *config);
  must(ot_config_load(&request, &o->arena, config));
  o->config = config;
  must(ot_comm_run_threads(1, run_rank, o));
}

static void release(outcome *o) {
  scratch_destroy(o->directory);
  ot_heap_release(&o->heap);
}

// The share of the kept elements of PREFIX + name that are `wanted` within `allowed` times the
// element plus `least`.
static double share(const outcome *o, const char *prefix, const double *wanted, double allowed,
                    double least) {
  static double values[61 * 18];
  static const int64_t elements[] = {61 * 18, 18 * 18, 18 * 22, NORM_SIZE};
  ot_checkpoint *checkpoint = NULL;
  int good = 0, all = 0;
  must(ot_checkpoint_create(o->path, &checkpoint));
  for (int i = 0; i < OT_COUNT(narrow_names); i++) {
    char name[128];
    snprintf(name, sizeof name, "%s%s", prefix, narrow_names[i]);
    must(checkpoint_read_tensor(checkpoint, name, OT_F64, elements[i], values));
    for (int64_t k = 0; k < KEPT && k < elements[i]; k++, all++) {
      const double x = wanted[i * KEPT + k];
      good += fabs(values[k] - x) <= allowed * fabs(x) + least;
    }
  }
  ot_checkpoint_destroy(&checkpoint);
  return (double)good / all;
}

// A gradient in float32 may round to the other neighbour: the moment moves by a unit of bf16, at
// most 2^-7 of itself, and the weight with it.
static void a_run_is_that_of_torch(void **state) {
  (void)state;
  outcome o;
  train(&o, "bf16");
  for (int i = 0; i < STEPS; i++) {
    assert_true(fabs(o.loss[i] - narrow_losses[i]) < 1e-5 * narrow_losses[i]);
  }
  assert_true(share(&o, "m.", narrow_m, 0x1p-7, 1e-30) == 1);
  assert_true(share(&o, "v.", narrow_v, 0x1p-7, 1e-30) == 1);
  assert_true(share(&o, "m.", narrow_m, 0, 0) > 0.95);
  assert_true(share(&o, "v.", narrow_v, 0, 0) > 0.95);
  assert_true(share(&o, "", narrow_p, 0x1p-23, 2e-5) == 1);
  assert_true(share(&o, "", narrow_p, 0x1p-23, 2e-7) > 0.95);
  release(&o);
}

// The comparison tells the types apart.
static void moments_in_float32_are_others(void **state) {
  (void)state;
  outcome o;
  train(&o, "fp32");
  assert_true(share(&o, "m.", narrow_m, 0, 0) < 0.2);
  assert_true(share(&o, "", narrow_p, 0x1p-23, 2e-7) < 0.8);
  release(&o);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_run_is_that_of_torch),
      cmocka_unit_test(moments_in_float32_are_others),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
