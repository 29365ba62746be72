// SPDX-License-Identifier: Apache-2.0
// Parts of a step: samples, targets and scalars on their way to the arena, the schedule, results.
#include <math.h>

#include "base/math.h"
#include "describe/learning_rate.h"
#include "describe/moe.h"
#include "host/clock.h"
#include "host/heap.h"
#include "train/trainer_state.h"

// ---- a micro-batch ----

// This rank's part of trainer->rows, valid until they change.
static const ot_micro_batch *own_rows(ot_trainer *trainer) {
  const ot_sequence_shard piece = {
      .size = ot_world_degree(trainer->world, OT_AXIS_CP),
      .index = ot_world_index(trainer->world, OT_AXIS_CP),
      .context = ot_runtime_any_graph(trainer->runtime)->request.split.context};
  if (piece.size == 1) return &trainer->rows;
  ot_micro_batch_shard(&trainer->rows, &piece, &trainer->part);
  return &trainer->part;
}

// The fields of trainer->rows that this rank computes with, by ot_batch_field.
typedef struct batch_fields {
  const void *of[OT_BATCH_PICKS];
  int64_t num_targets;  // unmasked
} batch_fields;

static batch_fields own_fields(ot_trainer *trainer) {
  const ot_micro_batch *const rows = own_rows(trainer);
  return (batch_fields){.of = {[OT_BATCH_TOKENS] = rows->tokens,
                               [OT_BATCH_TARGETS] = rows->targets,
                               [OT_BATCH_POSITIONS] = rows->positions,
                               [OT_BATCH_DOC_STARTS] = rows->doc_starts,
                               [OT_BATCH_SAMPLE_IDS] = rows->sample_ids,
                               [OT_BATCH_IDS] = rows->ids,
                               [OT_BATCH_WEIGHTS] = rows->weights},
                        .num_targets = rows->num_targets};
}

// Puts trainer->rows into the next step; returns the number of this rank's unmasked targets.
static int64_t set_rows(ot_trainer *trainer, int micro_batch) {
  const batch_fields fields = own_fields(trainer);
  for (int i = 0; i < OT_COUNT(fields.of); i++) {
    if (!fields.of[i]) continue;
    ot_step_transfer_set_field(trainer->transfer, micro_batch, (ot_batch_field)i, fields.of[i]);
  }
  return fields.num_targets;
}

// ---- a step ----

ot_step_samples ot_step_next_samples(const ot_trainer *trainer) {
  const ot_position *const now = &trainer->position;
  const int64_t sequences = ot_run_global_batch(trainer->run, now->step, now->tokens);
  const int64_t round = ot_run_round_sequences(trainer->run, ot_world_mesh(trainer->world));
  return (ot_step_samples){.sequences = sequences,
                           .micro_batches = (int)(sequences / round),
                           .data_index = ot_world_data_index(trainer->world)};
}

// Micro-batches of all ranks: those of rank d begin at first + d * apart.
static ot_target_samples targets_of(const ot_trainer *trainer, int64_t first, int64_t apart,
                                    int64_t count) {
  const int64_t B = trainer->run->batch.micro_batch_size;
  return (ot_target_samples){.first = first,
                             .apart = apart,
                             .stride = ot_world_data_degree(trainer->world) * B,
                             .count = count};
}

static ot_status begin_targets(ot_trainer *trainer, const ot_step_samples *samples) {
  const ot_target_source *const source = &trainer->targets;
  const int64_t B = trainer->run->batch.micro_batch_size;
  const int64_t first =
      trainer->position.next_sample + (samples->shared ? samples->data_index * B : 0);
  const ot_target_samples begun =
      targets_of(trainer, first, samples->shared ? 0 : B, samples->micro_batches);
  return source->context ? source->begin(source->context, trainer->runtime, &begun) : OT_OK;
}

static ot_status load_micro_batches(ot_trainer *trainer, ot_step_samples *samples) {
  const ot_target_source *const source = &trainer->targets;
  const ot_trainer_hooks *const hooks = &trainer->hooks;
  const int64_t B = trainer->run->batch.micro_batch_size;
  const int dp = ot_world_data_degree(trainer->world);
  samples->targets = (ot_noise_targets){0};
  for (int m = 0; m < samples->micro_batches; m++) {
    const int64_t first =
        trainer->position.next_sample + ((int64_t)m * dp + samples->data_index) * B;
    OT_TRY(ot_data_loader_train(trainer->loader, first, &trainer->rows));
    if (source->context) OT_TRY(source->fill(source->context, &trainer->rows));
    if (hooks->rows) hooks->rows(trainer, m, &trainer->rows, hooks->context);
    if (trainer->record) OT_TRY(ot_step_record_write_batch(trainer->record, m, &trainer->rows));
    const int64_t count = set_rows(trainer, m);
    samples->targets.sum += count;
    samples->targets.squares += (double)count * (double)count;
  }
  return OT_OK;
}

ot_status ot_step_load(ot_trainer *trainer, ot_step_samples *samples) {
  OT_TRY(begin_targets(trainer, samples));
  return ot_world_agree(trainer->world, load_micro_batches(trainer, samples));
}

ot_status ot_step_load_next(ot_trainer *trainer, const ot_step_samples *samples) {
  const ot_target_source *const source = &trainer->targets;
  const ot_run *const run = trainer->run;
  const ot_position *const now = &trainer->position;
  if (!source->context || now->step + 1 >= trainer->total_steps) return OT_OK;
  const int64_t tokens = now->tokens + samples->sequences * run->data.sequence_length;
  const int64_t next = ot_run_global_batch(run, now->step + 1, tokens);
  const ot_target_samples begun =
      targets_of(trainer, now->next_sample + samples->sequences, run->batch.micro_batch_size,
                 next / ot_run_round_sequences(run, ot_world_mesh(trainer->world)));
  return source->begin_next(source->context, &begun);
}

ot_status ot_step_load_validation(ot_trainer *trainer, int set, int64_t first) {
  const int64_t mine = first + ot_world_data_index(trainer->world) * trainer->rows.B;
  OT_TRY(ot_world_agree(trainer->world,
                        ot_data_loader_validation(trainer->loader, set, mine, &trainer->rows)));
  const batch_fields fields = own_fields(trainer);
  for (int i = 0; i < OT_COUNT(fields.of); i++) {
    if (!fields.of[i]) continue;
    ot_runtime_load_batch(trainer->runtime, OT_MODE_EVALUATE, 0, (ot_batch_field)i, fields.of[i]);
  }
  return OT_OK;
}

double ot_step_set_scalars(ot_trainer *trainer, const ot_step_samples *samples) {
  const ot_run *const run = trainer->run;
  ot_step_transfer *const to = trainer->transfer;
  const double rate = ot_learning_rate_at(run, trainer->position.step);
  const double t = (double)(trainer->position.step + 1);
  const double *const betas = run->optimizer.betas;
  ot_step_transfer_set_scalar(to, OT_SCALAR_LEARNING_RATE, rate);
  ot_step_transfer_set_scalar(to, OT_SCALAR_CORRECTION_1, 1 / (1 - ot_pow(betas[0], t)));
  ot_step_transfer_set_scalar(to, OT_SCALAR_CORRECTION_2, 1 / (1 - ot_pow(betas[1], t)));
  ot_step_transfer_set_scalar(to, OT_SCALAR_TARGETS, (double)samples->targets.sum);
  ot_step_transfer_set_scalar(to, OT_SCALAR_TARGET_SQUARES,
                              ot_noise_target_squares(run, &samples->targets));
  ot_step_transfer_set_scalar(to, OT_SCALAR_INVERSE_SEQUENCES, 1.0 / (double)samples->sequences);
  return rate;
}

// ---- the schedule ----

ot_status ot_step_run(ot_trainer *trainer, ot_step_report *report) {
  const ot_trainer_hooks *const hooks = &trainer->hooks;
  const double before_s = ot_clock_thread_s() - ot_comm_waiting_s();
  if (hooks->before) hooks->before(trainer, hooks->context);
  report->start_s = ot_clock_s();
  OT_TRY(ot_runtime_run(trainer->runtime, OT_MODE_TRAIN, report->micro_batches));
  if (hooks->after) hooks->after(trainer, hooks->context);
  report->compute_s = ot_clock_thread_s() - ot_comm_waiting_s() - before_s;
  return OT_OK;
}

// A rank that leaves a step makes the gradient norm of all ranks NaN (execute/leave.h).
ot_status ot_step_check_left(ot_trainer *trainer) {
  double left = ot_executor_has_left(ot_runtime_executor(trainer->runtime));
  if (isfinite(ot_step_transfer_scalar(trainer->transfer, OT_SCALAR_GRADIENT_NORM))) return OT_OK;
  OT_TRY(ot_world_allreduce(trainer->world, &left, 1));
  if (left == 0) return OT_OK;
  return ot_fail(OT_STOPPED, "step %lld was left", (long long)trainer->position.step + 1);
}

void ot_step_advance(ot_trainer *trainer, const ot_step_samples *samples, ot_step_report *report) {
  const int64_t tokens = samples->sequences * trainer->run->data.sequence_length;
  ot_noise_sample noise;
  trainer->micro_batches = samples->micro_batches;
  trainer->last_samples = samples->sequences;
  if (ot_noise_sample_read(trainer->runtime, trainer->transfer, &noise))
    ot_noise_average_add(&trainer->noise, &noise);
  ot_position_advance(&trainer->position, samples->sequences, tokens);
  ot_position_advance(&trainer->twin, samples->sequences, tokens);
  report->step = trainer->position.step;
  report->tokens = trainer->position.tokens;
  report->step_tokens = tokens;
}

// ---- results ----

// Means over the layers with experts.
static ot_metrics_experts read_experts(const ot_trainer *trainer) {
  const ot_model *const model = &trainer->run->model;
  if (model->moe.num_experts == 0) return (ot_metrics_experts){NAN, NAN, NAN, NAN, NAN, NAN};
  double mean[OT_EXPERT_SUMS];
  ot_step_transfer_expert_sums(trainer->transfer, mean);
  const double layers = (double)ot_moe_layers(model);
  for (int k = 0; k < OT_EXPERT_SUMS; k++) mean[k] /= layers;
  // With expert choice all experts are equally loaded: there is no such loss.
  const bool balanced = model->moe.routing == OT_MOE_EXPERT_CHOICE;
  return (ot_metrics_experts){.aux_loss = balanced ? NAN : mean[OT_EXPERT_AUX_LOSS],
                              .z_loss = mean[OT_EXPERT_Z_LOSS],
                              .load_max = mean[OT_EXPERT_LOAD_MAX],
                              .load_entropy = mean[OT_EXPERT_LOAD_ENTROPY],
                              .drop_share = mean[OT_EXPERT_DROP_SHARE],
                              .rounds = mean[OT_EXPERT_PASSES]};
}

ot_status ot_step_read_results(ot_trainer *trainer, ot_step_report *report) {
  const ot_step_transfer *const from = trainer->transfer;
  const ot_target_source *const source = &trainer->targets;
  report->loss = ot_step_transfer_scalar(from, OT_SCALAR_LOSS);
  report->gradient_norm = ot_step_transfer_scalar(from, OT_SCALAR_GRADIENT_NORM);
  report->experts = read_experts(trainer);
  report->noise_scale_tokens = ot_noise_average_tokens(&trainer->noise);
  report->data_loss = report->teacher_kl = NAN;
  if (!source->context) return OT_OK;
  report->data_loss = ot_step_transfer_scalar(from, OT_SCALAR_EVALUATE_LOSS) *
                      ot_step_transfer_scalar(from, OT_SCALAR_INVERSE_TOKENS);
  const ot_target_losses losses = {report->loss, report->data_loss};
  return source->end(source->context, trainer->world, &losses, &report->teacher_kl);
}

// Which block to check first.
static const char *first_to_check(const ot_nonfinite_location *place, ot_arena *arena) {
  if (!place->block) return "";
  if (place->rank < 0) return ot_arena_format(arena, "; look at block %s first", place->block);
  return ot_arena_format(arena, "; look at block %s on rank %d first", place->block, place->rank);
}

// If not finite, nothing was updated (ops/optimizer.h): the weights are those of the previous step.
// Loss and norm are the same on all ranks, so all ranks fail or none.
ot_status ot_step_check_finite(ot_trainer *trainer, const ot_step_report *report) {
  if (isfinite(report->loss) && isfinite(report->gradient_norm)) return OT_OK;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_nonfinite_location place = {0};
  ot_status status =
      ot_health_find_nonfinite(trainer->runtime, ot_world_comm(trainer->world), &arena, &place);
  if (status == OT_OK) {
    status = ot_fail(OT_NUMERIC, "step %lld: the loss is %g and the gradient norm %g; %s",
                     (long long)report->step, report->loss, report->gradient_norm, place.text);
    ot_fail_hint(OT_NUMERIC, "nothing was updated; the samples were %lld to %lld%s",
                 (long long)(trainer->position.next_sample - trainer->last_samples),
                 (long long)(trainer->position.next_sample - 1), first_to_check(&place, &arena));
  }
  ot_heap_release(&heap);
  return ot_world_agree(trainer->world, status);
}
