// SPDX-License-Identifier: Apache-2.0
// Values of a run that change from step to step. Checks: run_check.c.
#include "describe/run.h"

#include <stddef.h>

#include "describe/optimizer_rules.h"

ot_dtype ot_run_compute(const ot_run_precision *precision) {
  return precision->compute == OT_F64 ? OT_F64 : OT_F32;
}

ot_dtype ot_run_storage(const ot_run_precision *precision) {
  return precision->params == OT_F16 ? OT_BF16 : precision->params;
}

static bool is_narrow(ot_dtype dtype) { return dtype == OT_BF16 || dtype == OT_F16; }

bool ot_run_narrow_gradients(const ot_run_precision *precision) {
  return is_narrow(precision->gradients);
}

bool ot_run_narrow_moments(const ot_run_precision *precision) {
  return is_narrow(precision->moments);
}

bool ot_run_learns_from_rewards(const ot_run *run) {
  return run && run->rl.prompts && run->rl.prompts[0] != '\0';
}

int ot_run_generators(const ot_run *run) {
  if (!ot_run_learns_from_rewards(run)) return 0;
  return run->rl.generators > 0 ? run->rl.generators : 1;
}

bool ot_run_checks_compute(const ot_run *run) {
  for (int64_t i = 0; run && run->audit.every > 0 && i < run->audit.num_checks; i++) {
    if (run->audit.checks[i] == OT_AUDIT_COMPUTE) return true;
  }
  return false;
}

int ot_run_moments(const ot_run *run, bool matrix) {
  return ot_optimizer_rules_of(run, matrix)->moments;
}

ot_recompute ot_run_recompute(const ot_run_parallel *parallel, int layer) {
  if (layer < 0 || parallel->num_recompute == 0) return OT_RECOMPUTE_NONE;
  return parallel->recompute[parallel->num_recompute == 1 ? 0 : layer];
}

ot_module_set ot_run_modules(const ot_run_parallel *parallel) {
  ot_module_set set = 0;
  for (int64_t i = 0; i < parallel->num_recompute_modules; i++) {
    set |= OT_MODULE_SET(parallel->recompute_modules[i]);
  }
  return set;
}

bool ot_run_reshard(const ot_run *run, int block) {
  const ot_run_parallel *const parallel = &run->parallel;
  if (parallel->num_reshard == 0) return false;
  return parallel->reshard[parallel->num_reshard == 1 ? 0 : block];
}

int64_t ot_run_global_batch(const ot_run *run, int64_t step, int64_t tokens) {
  int64_t size = run->batch.global_batch_size;
  for (int64_t i = 0; i < run->batch.num_ramp; i++) {
    const ot_batch_ramp *const ramp = &run->batch.ramp[i];
    const bool begun = ramp->from_step >= 0 ? step >= ramp->from_step : tokens >= ramp->from_tokens;
    if (begun) size = ramp->global_batch_size;
  }
  return size;
}

int64_t ot_run_tokens_after(const ot_run *run, int64_t steps) {
  int64_t tokens = 0;
  if (run->batch.num_ramp == 0) {
    return steps * ot_run_global_batch(run, 0, 0) * run->data.sequence_length;
  }
  for (int64_t i = 0; i < steps; i++) {
    tokens += ot_run_global_batch(run, i, tokens) * run->data.sequence_length;
  }
  return tokens;
}

int64_t ot_run_total_steps(const ot_run *run) {
  if (run->tokens == 0) return run->steps;
  if (run->batch.num_ramp == 0) {
    const int64_t per_step = ot_run_tokens_after(run, 1);
    return (run->tokens + per_step - 1) / per_step;
  }
  int64_t steps = 0;
  for (int64_t tokens = 0; tokens < run->tokens; steps++) {
    tokens += ot_run_global_batch(run, steps, tokens) * run->data.sequence_length;
  }
  return steps;
}
