// SPDX-License-Identifier: Apache-2.0
// A small run that learns from rewards, in a folder of its own with its prompts, and an arena:
// cmocka_unit_test_setup_teardown(TEST, open_directory, close_directory).
#pragma once

#include <stdint.h>

#include "rl/rl_run.h"
#include "support/arena_fixture.h"
#include "support/scratch.h"
#include "support/tiny_model.h"

enum { STEPS = 8, BATCH = 8, GROUP = 4, MOST = 16, PROMPTS = 9, SEQUENCES = 1024 };

static char directory[SCRATCH_BYTES];

static inline int open_directory(void **state) {
  scratch_create(directory);
  const char *text = "";
  (void)begin(state);
  for (int i = 0; i < PROMPTS; i++) {
    text = ot_arena_format(&arena,
                           "%s{\"prompt\": \"say %d\", \"answer\": \"%d abcdefghijklmnopqrstuvwxyz"
                           "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789#$%%&()*+,-./:;<=>?@_{|}\"}\n",
                           text, i, i);
  }
  scratch_write(scratch_path(directory, "prompts"), text, ot_text_length(text));
  return 0;
}

static inline int close_directory(void **state) {
  scratch_destroy(directory);
  return finish(state);
}

static inline ot_run run_of(const char *output, ot_dtype compute) {
  ot_model model = tiny_llama();
  model.vocab_size = 257;
  ot_run run = tiny_run(&model);
  run.precision =
      (ot_run_precision){compute, compute, compute, compute, compute, compute, OT_SUM_WIDE};
  run.optimizer.lr = 2e-3;
  run.init = "random";
  run.data.tokenizer = "bytes";
  run.data.sequence_length = 32;
  run.batch.micro_batch_size = 2;
  run.parallel.tp = run.parallel.pp = run.parallel.cp = run.parallel.ep = run.parallel.etp = 1;
  run.parallel.dp_replicate = run.parallel.vpp = 1;
  run.steps = STEPS;
  run.seed = 5;
  run.threads = 1;
  run.device = OT_DEVICE_CPU;
  run.output = scratch_path(directory, output);
  run.rl = (ot_run_rl){.prompts = scratch_path(directory, "prompts"),
                       .validation = "",
                       .reward = OT_REWARD_EDIT_SIMILARITY,
                       .objective = OT_POLICY_TIS,
                       .cap = -1,
                       .low = -1,
                       .high = -1,
                       .group = GROUP,
                       .batch = BATCH,
                       .max_tokens = MOST,
                       .workers = 4,
                       .generators = 2,
                       .slots = 6,
                       .costs = {1, 0.02, 0.1, 0.5, 0}};
  return run;
}
