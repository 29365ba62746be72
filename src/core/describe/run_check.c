// SPDX-License-Identifier: Apache-2.0
// Consistency of a run's settings (run.h). Degrees of parallelism: parallel_check.c.
#include "base/text.h"
#include "describe/parallel_check.h"

static ot_status check_batch(const ot_run *run) {
  const ot_run_batch *const batch = &run->batch;
  const int64_t micro = batch->micro_batch_size;
  OT_CHECK(batch->global_batch_size % micro == 0, OT_USAGE,
           "batch: micro_batch_size=%lld does not divide global_batch_size=%lld", (long long)micro,
           (long long)batch->global_batch_size);
  for (int64_t i = 0; i < batch->num_ramp; i++) {
    const int64_t size = batch->ramp[i].global_batch_size;
    OT_CHECK(size % micro == 0, OT_USAGE,
             "batch.ramp.%lld: micro_batch_size=%lld does not divide global_batch_size=%lld",
             (long long)i, (long long)micro, (long long)size);
  }
  return OT_OK;
}

static ot_status check_ramp(const ot_run *run) {
  const ot_run_batch *const batch = &run->batch;
  int64_t before = -1;
  for (int64_t i = 0; i < batch->num_ramp; i++) {
    const ot_batch_ramp *const ramp = &batch->ramp[i];
    const bool by_step = ramp->from_step >= 0;
    OT_CHECK(by_step != (ramp->from_tokens >= 0), OT_USAGE,
             "batch.ramp.%lld: give exactly one of from_step and from_tokens", (long long)i);
    OT_CHECK(by_step == (batch->ramp[0].from_step >= 0), OT_USAGE,
             "batch.ramp.%lld: all entries must use from_step, or all from_tokens", (long long)i);
    const int64_t from = by_step ? ramp->from_step : ramp->from_tokens;
    OT_CHECK(from > before, OT_USAGE, "batch.ramp.%lld: %s=%lld is not after the entry before it",
             (long long)i, by_step ? "from_step" : "from_tokens", (long long)from);
    before = from;
  }
  return OT_OK;
}

static ot_status check_data(const ot_run *run) {
  const ot_run_data *const data = &run->data;
  int64_t before = 0;
  for (int64_t i = 0; i < data->num_mixtures; i++) {
    OT_CHECK(data->mixtures[i].from_step > before, OT_USAGE,
             "data.mixtures.%lld: from_step=%lld is not after the entry before it", (long long)i,
             (long long)data->mixtures[i].from_step);
    OT_CHECK(data->mixtures[i].num_sources > 0, OT_USAGE, "data.mixtures.%lld: train is empty",
             (long long)i);
    before = data->mixtures[i].from_step;
  }
  for (int64_t i = 0; i < data->num_validation; i++) {
    OT_CHECK(data->validation[i].path[0] != '\0', OT_USAGE, "data.validation: an empty path");
  }
  for (int64_t i = 0; i < run->evaluate.num_tasks; i++) {
    OT_CHECK(run->evaluate.tasks[i].path[0] != '\0', OT_USAGE, "evaluate.tasks: an empty path");
  }
  return OT_OK;
}

static ot_status check_positions(const ot_run *run) {
  const int64_t length = run->data.sequence_length;
  OT_CHECK(!run->model.learned_positions || length <= run->model.max_positions, OT_USAGE,
           "data: sequence_length=%lld exceeds the model's position table of %lld (n_positions)",
           (long long)length, (long long)run->model.max_positions);
  return OT_OK;
}

static ot_status check_optimizer(const ot_run *run) {
  for (int64_t i = 0; i < run->optimizer.num_groups; i++) {
    const ot_optimizer_group *const group = &run->optimizer.groups[i];
    OT_CHECK(group->pattern[0] != '\0', OT_USAGE, "optimizer.groups.%lld: pattern is empty",
             (long long)i);
    OT_CHECK(group->lr < 0 || group->lr_factor == 1, OT_USAGE,
             "optimizer.groups.%lld: give lr or lr_factor, not both", (long long)i);
  }
  return OT_OK;
}

static ot_status check_length(const ot_run *run) {
  OT_CHECK(run->steps == 0 || run->tokens == 0, OT_USAGE,
           "steps=%lld and tokens=%lld are both given; give one of them", (long long)run->steps,
           (long long)run->tokens);
  const ot_run_learning_rate *const rate = &run->learning_rate;
  OT_CHECK(rate->decay == OT_DECAY_CONSTANT || rate->min <= run->optimizer.lr, OT_USAGE,
           "learning_rate.min=%.9g is above the peak, optimizer.lr=%.9g", rate->min,
           run->optimizer.lr);
  return OT_OK;
}

// Processes of different hosts may be in different folders.
static ot_status check_checkpoint(const ot_run *run) {
  const ot_run_checkpoint *const checkpoint = &run->checkpoint;
  OT_CHECK(checkpoint->memory == 0 || checkpoint->memory_path[0] == '/', OT_USAGE,
           "checkpoint.memory_path=%s is not an absolute path (try /dev/shm)",
           checkpoint->memory_path);
  return OT_OK;
}

static ot_status check_precision(const ot_run *run) {
  const ot_run_precision *const p = &run->precision;
  const bool wide = p->compute == OT_F64;
  const ot_dtype types[] = {p->params, p->master, p->gradients, p->moments};
  static const char *const names[] = {"params", "master", "gradients", "moments"};
  for (int i = 0; i < OT_COUNT(types); i++) {
    const bool fits = wide ? types[i] == OT_F64 : types[i] != OT_F64;
    OT_CHECK(fits, OT_USAGE, "precision: %s=%s is not compatible with compute=%s", names[i],
             ot_dtype_name(types[i]), ot_dtype_name(p->compute));
  }
  OT_CHECK(!ot_run_narrow_gradients(p) || ot_run_storage(p) == OT_BF16, OT_USAGE,
           "precision: gradients=%s is not compatible with params=%s (try gradients=%s, or "
           "params=bf16)",
           ot_dtype_name(p->gradients), ot_dtype_name(p->params), ot_dtype_name(p->params));
  return OT_OK;
}

// Values before what they have to fit: a wrong one is named, not the degrees that it changes.
ot_status ot_run_check(const ot_run *run) {
  OT_TRY(ot_model_check(&run->model));
  OT_TRY(check_data(run));
  OT_TRY(check_ramp(run));
  OT_TRY(check_optimizer(run));
  OT_TRY(check_checkpoint(run));
  OT_TRY(check_length(run));
  OT_TRY(check_precision(run));
  OT_TRY(check_positions(run));
  OT_TRY(ot_distill_check(run));
  OT_TRY(ot_parametrization_check(&run->parametrization, &run->model));
  OT_TRY(check_batch(run));
  return ot_parallel_check(run);
}

ot_status ot_run_check_training(const ot_run *run) {
  OT_CHECK(!ot_run_learns_from_rewards(run), OT_USAGE,
           "rl.prompts is given: `orthant rl` trains on rewards (--set rl.prompts=null: on data)");
  if (run->data.num_train == 0) {
    ot_fail(OT_USAGE, "data.train is required for training");
    return ot_fail_hint(OT_USAGE,
                        "make a data set with `orthant tokenize`, then data: {train: PREFIX}");
  }
  if (run->steps == 0 && run->tokens == 0) {
    ot_fail(OT_USAGE, "the length of the run is required: steps or tokens");
    return ot_fail_hint(OT_USAGE, "steps: 1000, or tokens: 10M");
  }
  const int64_t length = run->data.sequence_length, most = run->model.max_positions;
  if (length > most) {
    ot_fail(OT_USAGE,
            "data: sequence_length=%lld is more than max_position_embeddings=%lld of the model",
            (long long)length, (long long)most);
    return ot_fail_hint(OT_USAGE,
                        "--set model.max_position_embeddings=%lld, which is also exported, "
                        "or --set data.sequence_length=%lld",
                        (long long)length, (long long)most);
  }
  return OT_OK;
}
