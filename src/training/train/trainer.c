// SPDX-License-Identifier: Apache-2.0
// A trainer between its steps: hashes of gradients, validation, its state. Creation is in
// trainer_create.c, a step in train.c.
#include "train/trainer.h"

#include <math.h>
#include <stdlib.h>

#include "train/trainer_state.h"

ot_status ot_trainer_hash_gradients(ot_trainer *trainer, int data_index, int64_t *hashes) {
  ot_step_samples samples = ot_step_next_samples(trainer);
  samples.micro_batches = ot_runtime_hashed_micro_batches(trainer->runtime);
  samples.data_index = data_index;
  samples.shared = true;
  OT_TRY(ot_step_load(trainer, &samples));
  (void)ot_step_set_scalars(trainer, &samples);
  ot_step_transfer_write(trainer->transfer, samples.micro_batches);
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
  OT_TRY(ot_step_load_validation(trainer, set, first));
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
