// SPDX-License-Identifier: Apache-2.0
// A step: loads samples into the arena, sets scalars, runs the schedule, reads scalars. Creation is
// in trainer_create.c.
#include "train/trainer.h"

#include <math.h>
#include <stdlib.h>

#include "base/math.h"
#include "describe/moe.h"
#include "host/clock.h"
#include "schedule/rank_request.h"
#include "train/learning_rate.h"
#include "train/trainer_state.h"

// ---- step ----

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

// Gives trainer->rows to the next step; returns the number of this rank's unmasked targets.
static int64_t set_rows(ot_trainer *trainer, int micro_batch) {
  const batch_fields fields = own_fields(trainer);
  for (int i = 0; i < OT_COUNT(fields.of); i++) {
    if (!fields.of[i]) continue;
    ot_step_transfer_set_field(trainer->transfer, micro_batch, (ot_batch_field)i, fields.of[i]);
  }
  return fields.num_targets;
}

// A teacher begins with the micro-batches of a step: those of rank 0 of data parallelism begin with
// sample `first`, those of the next rank `apart` samples later.
static ot_status request_targets(const ot_trainer *trainer, int64_t first, int64_t apart,
                                 int micro_batches) {
  const int dp = ot_world_data_degree(trainer->world);
  const ot_taught_samples samples = {.first = first,
                                     .apart = apart,
                                     .stride = dp * trainer->run->batch.micro_batch_size,
                                     .count = micro_batches};
  return trainer->distiller ? ot_distiller_ask(trainer->distiller, &samples) : OT_OK;
}

// While this step runs, it reads the next one.
static ot_status request_ahead(const ot_trainer *trainer, int64_t sequences) {
  const ot_run *const run = trainer->run;
  const ot_position *const now = &trainer->position;
  if (now->step + 1 >= trainer->total_steps) return OT_OK;
  const int64_t tokens = now->tokens + sequences * run->data.sequence_length;
  const int64_t next = ot_run_global_batch(run, now->step + 1, tokens);
  return request_targets(trainer, now->next_sample + sequences, run->batch.micro_batch_size,
                         (int)(next / ot_run_round_sequences(run, ot_world_mesh(trainer->world))));
}

// Loads the samples of rank `d` of data parallelism in the next step, and counts the unmasked
// targets among them.
static ot_status load_step(ot_trainer *trainer, int d, int micro_batches,
                           ot_noise_targets *targets) {
  const int64_t B = trainer->run->batch.micro_batch_size;
  const int dp = ot_world_data_degree(trainer->world);
  *targets = (ot_noise_targets){0};
  for (int m = 0; m < micro_batches; m++) {
    const int64_t first = trainer->position.next_sample + ((int64_t)m * dp + d) * B;
    OT_TRY(ot_data_loader_train(trainer->loader, first, &trainer->rows));
    if (trainer->distiller) OT_TRY(ot_distiller_fill(trainer->distiller, &trainer->rows));
    const ot_trainer_hooks *const hooks = &trainer->hooks;
    if (hooks->rows) hooks->rows(trainer, m, &trainer->rows, hooks->context);
    const int64_t count = set_rows(trainer, m);
    targets->sum += count;
    targets->squares += (double)count * (double)count;
  }
  return OT_OK;
}

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

// Mean nats of the data's targets in a step with weighted ones.
static double read_data_loss(const ot_trainer *trainer) {
  if (!trainer->distiller) return NAN;
  return ot_step_transfer_scalar(trainer->transfer, OT_SCALAR_EVALUATE_LOSS) *
         ot_step_transfer_scalar(trainer->transfer, OT_SCALAR_INVERSE_TOKENS);
}

// KL(t || p) of sampled targets, from the loss of teacher and data; KL(p || t) of text that the
// model wrote. The first rank of tp and cp counts what its replica read.
static ot_status read_teacher_kl(ot_trainer *trainer, ot_step_report *report) {
  const ot_run_distill *const d = &trainer->run->distill;
  const bool first = ot_world_index(trainer->world, OT_AXIS_TP) == 0 &&
                     ot_world_index(trainer->world, OT_AXIS_CP) == 0;
  report->teacher_kl = NAN;
  if (!trainer->distiller) return OT_OK;
  const ot_distiller_sums own = ot_distiller_get_sums(trainer->distiller);
  double sums[2] = {first ? own.targets : 0, first ? own.nats : 0};
  OT_TRY(ot_world_allreduce(trainer->world, sums, 2));
  const double mean = sums[1] / sums[0];
  if (d->objective == OT_DISTILL_REVERSE_KL) report->teacher_kl = mean;
  if (d->objective != OT_DISTILL_SAMPLED || d->alpha == 0) return OT_OK;
  report->teacher_kl = (report->loss - (1 - d->alpha) * report->data_loss) / d->alpha - mean;
  return OT_OK;
}

// Takes the weights that a teacher's pupil writes with.
static ot_status renew_student(ot_trainer *trainer) {
  if (!trainer->distiller) return OT_OK;
  return ot_distiller_renew(trainer->distiller, trainer->runtime);
}

// Returns the learning rate.
static double set_scalars(ot_trainer *trainer, const ot_noise_targets *targets, int64_t sequences) {
  const ot_run *const run = trainer->run;
  ot_step_transfer *const to = trainer->transfer;
  const double rate = ot_learning_rate_at(run, trainer->position.step);
  const double t = (double)(trainer->position.step + 1);
  const double *const betas = run->optimizer.betas;
  ot_step_transfer_set_scalar(to, OT_SCALAR_LEARNING_RATE, rate);
  ot_step_transfer_set_scalar(to, OT_SCALAR_CORRECTION_1, 1 / (1 - ot_pow(betas[0], t)));
  ot_step_transfer_set_scalar(to, OT_SCALAR_CORRECTION_2, 1 / (1 - ot_pow(betas[1], t)));
  ot_step_transfer_set_scalar(to, OT_SCALAR_TARGETS, (double)targets->sum);
  ot_step_transfer_set_scalar(to, OT_SCALAR_TARGET_SQUARES, ot_noise_target_squares(run, targets));
  ot_step_transfer_set_scalar(to, OT_SCALAR_INVERSE_SEQUENCES, 1.0 / (double)sequences);
  return rate;
}

// Where to look first.
static const char *first_to_check(const ot_nonfinite_location *place, ot_arena *arena) {
  if (!place->block) return "";
  if (place->rank < 0) return ot_arena_format(arena, "; look at block %s first", place->block);
  return ot_arena_format(arena, "; look at block %s on rank %d first", place->block, place->rank);
}

// If not finite, nothing was updated (ops/optimizer.h): the weights are those of the previous step.
// Loss and norm are the same on all ranks, so all ranks fail or none.
static ot_status check_finite(ot_trainer *trainer, const ot_step_report *report) {
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

// A rank that leaves a step makes the gradient norm of all ranks NaN (execute/leave.h).
static ot_status check_left(ot_trainer *trainer) {
  double left = ot_executor_has_left(ot_runtime_executor(trainer->runtime));
  if (isfinite(ot_step_transfer_scalar(trainer->transfer, OT_SCALAR_GRADIENT_NORM))) return OT_OK;
  OT_TRY(ot_world_allreduce(trainer->world, &left, 1));
  if (left == 0) return OT_OK;
  return ot_fail(OT_STOPPED, "step %lld was left", (long long)trainer->position.step + 1);
}

ot_status ot_trainer_step(ot_trainer *trainer, ot_step_report *report) {
  const double start_s = ot_clock_s();
  ot_position *const position = &trainer->position;
  const ot_run *const run = trainer->run;
  const int64_t global = ot_run_global_batch(run, position->step, position->tokens);
  const int micro_batches =
      (int)(global / ot_run_round_sequences(run, ot_world_mesh(trainer->world)));
  ot_noise_targets targets;
  ot_world_set_timeout(trainer->world, run->parallel.watchdog_seconds);
  const int d = ot_world_data_index(trainer->world);
  OT_TRY(renew_student(trainer));
  OT_TRY(
      request_targets(trainer, position->next_sample, run->batch.micro_batch_size, micro_batches));
  OT_TRY(ot_world_agree(trainer->world, load_step(trainer, d, micro_batches, &targets)));
  OT_TRY(request_ahead(trainer, global));
  const double rate = set_scalars(trainer, &targets, global);
  ot_step_transfer_write(trainer->transfer, micro_batches);
  const ot_trainer_hooks *const hooks = &trainer->hooks;
  const double before_s = ot_clock_thread_s() - ot_comm_waiting_s();
  if (hooks->before) hooks->before(trainer, hooks->context);
  const double order_start_s = ot_clock_s();
  OT_TRY(ot_runtime_run(trainer->runtime, OT_MODE_TRAIN, micro_batches));
  if (hooks->after) hooks->after(trainer, hooks->context);
  const double compute_s = ot_clock_thread_s() - ot_comm_waiting_s() - before_s;
  ot_step_transfer_read(trainer->transfer);
  OT_TRY(check_left(trainer));
  trainer->micro_batches = micro_batches;
  ot_noise_sample noise;
  if (ot_noise_sample_read(trainer->runtime, trainer->transfer, &noise))
    ot_noise_average_add(&trainer->noise, &noise);
  const int64_t step_tokens = global * run->data.sequence_length;
  ot_position_advance(position, global, step_tokens);
  ot_position_advance(&trainer->twin, global, step_tokens);
  trainer->last_samples = global;
  *report = (ot_step_report){
      .step = position->step,
      .tokens = position->tokens,
      .step_tokens = step_tokens,
      .loss = ot_step_transfer_scalar(trainer->transfer, OT_SCALAR_LOSS),
      .data_loss = read_data_loss(trainer),
      .gradient_norm = ot_step_transfer_scalar(trainer->transfer, OT_SCALAR_GRADIENT_NORM),
      .learning_rate = rate,
      .experts = read_experts(trainer),
      .noise_scale_tokens = ot_noise_average_tokens(&trainer->noise),
      .step_seconds = ot_clock_s() - start_s,
      .micro_batches = micro_batches,
      .start_s = order_start_s,
      .compute_s = compute_s,
  };
  OT_TRY(read_teacher_kl(trainer, report));
  return check_finite(trainer, report);
}

ot_status ot_trainer_hash_gradients(ot_trainer *trainer, int data_index, int64_t *hashes) {
  const ot_position *const position = &trainer->position;
  const int micro_batches = ot_runtime_hashed_micro_batches(trainer->runtime);
  const int64_t global = ot_run_global_batch(trainer->run, position->step, position->tokens);
  ot_noise_targets targets;
  OT_TRY(renew_student(trainer));
  const int64_t first = position->next_sample + data_index * trainer->run->batch.micro_batch_size;
  OT_TRY(request_targets(trainer, first, 0, micro_batches));
  OT_TRY(ot_world_agree(trainer->world, load_step(trainer, data_index, micro_batches, &targets)));
  (void)set_scalars(trainer, &targets, global);
  ot_step_transfer_write(trainer->transfer, micro_batches);
  const ot_trainer_hooks *const hooks = &trainer->hooks;
  if (hooks->before) hooks->before(trainer, hooks->context);
  return ot_runtime_hash_gradients(trainer->runtime, hashes);
}

// ---- validation ----

// True on ranks that add the head's loss: of the ranks of tp, which all have it, the first.
static bool has_loss(const ot_trainer *trainer) {
  const int head = ot_runtime_any_graph(trainer->runtime)->num_blocks - 1;
  return ot_world_index(trainer->world, OT_AXIS_TP) == 0 &&
         ot_runtime_held_range(trainer->runtime, head, OT_COPY_WEIGHT).count > 0;
}

// Evaluates one micro-batch per rank, from sequence `first` of the set on; adds this rank's sums.
static ot_status evaluate(ot_trainer *trainer, int set, int64_t first, double *sums) {
  const ot_executor *const executor = ot_runtime_executor(trainer->runtime);
  const int64_t mine = first + ot_world_data_index(trainer->world) * trainer->rows.B;
  OT_TRY(ot_world_agree(trainer->world,
                        ot_data_loader_validation(trainer->loader, set, mine, &trainer->rows)));
  const batch_fields fields = own_fields(trainer);
  for (int i = 0; i < OT_COUNT(fields.of); i++) {
    if (!fields.of[i]) continue;
    ot_runtime_load_batch(trainer->runtime, OT_MODE_EVALUATE, 0, (ot_batch_field)i, fields.of[i]);
  }
  OT_TRY(ot_runtime_run(trainer->runtime, OT_MODE_EVALUATE, 0));
  if (!has_loss(trainer)) return OT_OK;
  sums[0] += ot_executor_scalar(executor, OT_SCALAR_EVALUATE_LOSS);
  sums[1] += ot_executor_scalar(executor, OT_SCALAR_EVALUATE_TOKENS);
  return OT_OK;
}

ot_status ot_trainer_validate(ot_trainer *trainer, int set, double *loss) {
  const int64_t rows = ot_data_loader_validation_rows(trainer->loader, set);
  const int64_t round = ot_run_round_sequences(trainer->run, ot_world_mesh(trainer->world));
  double sums[2] = {0, 0};  // nats, targets
  for (int64_t first = 0; first < rows; first += round) {
    OT_TRY(evaluate(trainer, set, first, sums));
  }
  OT_TRY(ot_world_allreduce(trainer->world, sums, 2));
  *loss = sums[1] > 0 ? sums[0] / sums[1] : NAN;
  return OT_OK;
}

// ---- state ----

ot_state_request ot_trainer_state(const ot_trainer *trainer, const char *path) {
  return (ot_state_request){.path = path,
                            .run = trainer->run,
                            .settings = trainer->settings,
                            .tokenizer = ot_data_loader_tokenizer(trainer->loader),
                            .loader = trainer->loader,
                            .position = trainer->position,
                            .world = trainer->world};
}

ot_status ot_trainer_save(ot_trainer *trainer, const char *path) {
  const ot_state_request request = ot_trainer_state(trainer, path);
  return ot_training_state_save(trainer->runtime, &request);
}

ot_status ot_trainer_resume(ot_trainer *trainer, const char *path) {
  ot_state_request request = ot_trainer_state(trainer, path);
  const ot_status status = ot_training_state_load(trainer->runtime, &request);
  free(trainer->note);
  trainer->note = request.note;
  trainer->damaged = request.damaged;
  OT_TRY(status);
  ot_trainer_set_position(trainer, &request.position);
  if (trainer->hooks.resumed) trainer->hooks.resumed(trainer, trainer->hooks.context);
  return OT_OK;
}

bool ot_trainer_found_damage(const ot_trainer *trainer) { return trainer->damaged; }

const char *ot_trainer_note(const ot_trainer *trainer) { return trainer->note; }

void ot_trainer_set_hooks(ot_trainer *trainer, const ot_trainer_hooks *hooks) {
  trainer->hooks = *hooks;
}

const ot_trainer_hooks *ot_trainer_get_hooks(const ot_trainer *trainer) { return &trainer->hooks; }

ot_world *ot_trainer_world(const ot_trainer *trainer) { return trainer->world; }

const ot_data_loader *ot_trainer_data_loader(const ot_trainer *trainer) { return trainer->loader; }

ot_position ot_trainer_position(const ot_trainer *trainer) { return trainer->position; }

void ot_trainer_set_position(ot_trainer *trainer, const ot_position *position) {
  trainer->position = trainer->twin = *position;
}

ot_status ot_trainer_check_position(const ot_trainer *trainer) {
  return ot_position_compare(&trainer->position, &trainer->twin);
}

int64_t ot_trainer_total_steps(const ot_trainer *trainer) { return trainer->total_steps; }

const ot_run *ot_trainer_run(const ot_trainer *trainer) { return trainer->run; }

int ot_trainer_micro_batches(const ot_trainer *trainer) { return trainer->micro_batches; }

ot_runtime *ot_trainer_runtime(const ot_trainer *trainer) { return trainer->runtime; }

const ot_step_transfer *ot_trainer_results(const ot_trainer *trainer) { return trainer->transfer; }

void ot_trainer_set_trace(ot_trainer *trainer, bool on) {
  ot_executor_set_trace(ot_runtime_executor(trainer->runtime), on);
}

ot_status ot_trainer_set_events(ot_trainer *trainer, bool on) {
  return ot_executor_set_events(ot_runtime_executor(trainer->runtime), on);
}

const ot_timeline *ot_trainer_timeline(const ot_trainer *trainer) {
  return ot_executor_timeline(ot_runtime_executor(trainer->runtime));
}

ot_status ot_trainer_health(const ot_trainer *trainer, ot_arena *arena, ot_health *health) {
  return ot_health_read(trainer->runtime, ot_world_comm(trainer->world), arena, health);
}

ot_status ot_trainer_show_batch(ot_trainer *trainer, ot_arena *arena, const char **text) {
  OT_TRY(ot_data_loader_train(trainer->loader, trainer->position.next_sample, &trainer->rows));
  return ot_data_loader_decode(trainer->loader, &trainer->rows, arena, text);
}
