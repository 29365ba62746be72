// SPDX-License-Identifier: Apache-2.0
// Opens data and targets, allocates the memory of the rank and sets its first weights. What one
// rank cannot do, no rank does: the ranks agree after each part.
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "distill/distill_source.h"
#include "forecast/memory_advice.h"
#include "runtime/model_files.h"
#include "runtime/training_request.h"
#include "state/same_files.h"
#include "train/trainer_state.h"

// ---- what this back end supports ----

// Storage dtypes of this back end: others are rejected, never replaced by a similar one.
static ot_status check_precision(const ot_run_precision *precision) {
  const ot_dtype wide = ot_run_compute(precision);
  const struct {
    const char *key;
    ot_dtype type;
    bool narrow;  // bf16 is supported, too
  } kept[] = {{"params", precision->params, true},
              {"gradients", precision->gradients, true},
              {"reduce", precision->reduce, true},
              {"master", precision->master, false},
              {"moments", precision->moments, true}};
  OT_CHECK(precision->compute != OT_F16 && precision->compute != OT_F8, OT_ENVIRONMENT,
           "precision: compute=%s is not supported by this back end (try bf16 or fp32)",
           ot_dtype_name(precision->compute));
  for (int i = 0; i < OT_COUNT(kept); i++) {
    const bool there = kept[i].type == wide || (kept[i].narrow && kept[i].type == OT_BF16);
    OT_CHECK(there, OT_ENVIRONMENT, "precision: %s=%s is not supported by this back end (try %s%s)",
             kept[i].key, ot_dtype_name(kept[i].type), ot_dtype_name(wide),
             kept[i].narrow ? " or bf16" : "");
  }
  return OT_OK;
}

ot_status ot_trainer_check(const ot_run *run) {
  for (int64_t i = 0; i < run->audit.num_checks; i++) {
    OT_CHECK(run->audit.checks[i] != OT_AUDIT_OVERLAP, OT_USAGE,
             "audit.checks: overlap runs its own steps and cannot be part of a run (try `orthant "
             "audit overlap`, or exposed_seconds in metrics.jsonl)");
  }
  OT_CHECK(run->audit.every == 0 || run->audit.num_checks > 0, OT_USAGE,
           "audit.every=%lld, but audit.checks is empty (try [ranks])",
           (long long)run->audit.every);
  return check_precision(&run->precision);
}

// ---- creation ----

static ot_status open_data(ot_trainer *trainer) {
  const ot_run *const run = trainer->run;
  const int64_t B = run->batch.micro_batch_size, T = run->data.sequence_length;
  const int cp = ot_world_degree(trainer->world, OT_AXIS_CP);
  OT_TRY(ot_run_check_training(run));
  OT_TRY(ot_data_loader_create(run, &trainer->loader));
  const int64_t K = ot_run_weighted_targets(run);
  OT_TRY(ot_micro_batch_create_weighted(B, T, K, &trainer->rows));
  return cp > 1 ? ot_micro_batch_create_weighted(B, T / cp, K, &trainer->part) : OT_OK;
}

static ot_status create_memory(ot_trainer *trainer, ot_arena *arena) {
  ot_world *const world = trainer->world;
  const ot_run *const run = trainer->run;
  const ot_mesh *const mesh = ot_world_mesh(world);
  const ot_runtime_faults faults = {.amend = trainer->hooks.amend,
                                    .context = trainer->hooks.context,
                                    .unchecked = trainer->hooks.unchecked};
  ot_runtime_request request = {.comm = ot_world_comm(world), .faults = &faults};
  ot_rank_request *const rank = &request.rank;
  OT_TRY(ot_world_agree(world, ot_trainer_check(run)));
  OT_TRY(ot_world_agree(world, ot_training_request(run, mesh, ot_world_rank(world), arena, rank)));
  rank->graph.backend = ot_runtime_choose_device(run->device, mesh ? mesh->ranks : 1);
  if (rank->graph.threads == 0) rank->graph.threads = ot_world_threads(world);
  ot_memory_advice advice = {.planned = {.run = run,
                                         .mesh = mesh,
                                         .threads = rank->graph.threads,
                                         .backend = rank->graph.backend,
                                         .order_csv = rank->schedule.order_csv},
                             .rank = rank->schedule.rank};
  request.advisor = ot_memory_advisor_of(&advice);
  request.may_fall_back = run->device == OT_DEVICE_AUTO && ot_world_size(world) == 1;
  return ot_runtime_create(&request, &trainer->runtime);
}

// `path`: of the files of run->init that one rank found; empty: random weights.
static ot_status copy_path(ot_trainer *trainer, const ot_model_files *files, char *path) {
  if (files->path == NULL) return OT_OK;
  OT_CHECK(ot_text_length(files->path) < OT_WORLD_TEXT, OT_ENVIRONMENT, "a path is too long (%s)",
           files->path);
  ot_text_format(path, OT_WORLD_TEXT, "%s", files->path);
  if (files->note == NULL) return OT_OK;
  free(trainer->note);
  trainer->note = strdup(files->note);
  OT_CHECK(trainer->note != NULL, OT_ENVIRONMENT, "out of memory (%s)", files->path);
  return OT_OK;
}

static ot_status load_weights(ot_trainer *trainer, const char *path, bool *damaged) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_run *const run = trainer->run;
  const ot_config_request request = {.sets = run->sets, .num_sets = run->num_sets};
  ot_model_files *const files = ot_arena_take(&arena, sizeof *files);
  ot_status status = ot_model_files_open(path, OT_CHECKPOINT_HASH_NONE, &request, &arena, files);
  if (status == OT_OK) status = ot_runtime_load_weights(trainer->runtime, files, damaged);
  ot_heap_release(&heap);
  return status;
}

static ot_status set_weights(ot_trainer *trainer, const char *path, bool *damaged) {
  if (path[0] != '\0') return load_weights(trainer, path, damaged);
  return ot_runtime_initialize(trainer->runtime, (uint64_t)trainer->run->seed);
}

// `files`: of the leader, who falls back from those that a rank finds damaged.
static ot_status share_weights(ot_trainer *trainer, ot_model_files *files, bool *damaged) {
  ot_world *const world = trainer->world;
  const bool leads = ot_world_is_leader(world);
  char path[OT_WORLD_TEXT] = "";
  OT_TRY(ot_world_agree(world, leads ? copy_path(trainer, files, path) : OT_OK));
  OT_TRY(ot_world_broadcast(world, path));
  if (path[0] != '\0') OT_TRY(ot_same_weights_check(world, path));
  const ot_status status = set_weights(trainer, path, damaged);
  return ot_world_agree_on_damage(world, status, damaged);
}

static ot_status find_weights(ot_trainer *trainer, ot_arena *arena) {
  ot_world *const world = trainer->world;
  const bool leads = ot_world_is_leader(world);
  ot_model_files *const files = ot_arena_take(arena, sizeof *files);
  OT_TRY(ot_world_agree(world, leads ? ot_model_files_open_init(
                                           trainer->run, OT_CHECKPOINT_HASH_HEADERS, arena, files)
                                     : OT_OK));
  while (true) {
    bool damaged = false;
    const ot_status status = share_weights(trainer, files, &damaged);
    if (!damaged) return status;
    OT_TRY(ot_world_agree(world, leads ? ot_model_files_fall_back(files) : OT_OK));
  }
}

static ot_status create_transfer(ot_trainer *trainer) {
  const bool squares = ot_noise_is_known(ot_runtime_schedule(trainer->runtime));
  return ot_step_transfer_create(trainer->runtime, squares, &trainer->transfer);
}

static ot_status open_targets(ot_trainer *trainer) {
  return ot_distill_source_open(trainer->run, trainer->loader, trainer->runtime, trainer->world,
                                &trainer->targets);
}

static ot_status create(ot_trainer *trainer) {
  OT_TRY(ot_world_agree(trainer->world, open_data(trainer)));
  OT_TRY(ot_same_data_check(trainer->world, trainer->loader));
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_status status = create_memory(trainer, &arena);
  if (status == OT_OK) status = ot_world_agree(trainer->world, create_transfer(trainer));
  if (status == OT_OK) status = open_targets(trainer);
  trainer->total_steps = ot_run_total_steps(trainer->run);
  if (status == OT_OK) status = find_weights(trainer, &arena);
  ot_heap_release(&heap);
  return status;
}

ot_status ot_trainer_create_hooked(const ot_run *run, ot_world *world,
                                   const ot_trainer_hooks *hooks, ot_trainer **out) {
  ot_trainer *trainer = calloc(1, sizeof *trainer);
  OT_TRY(ot_world_agree(world, trainer ? OT_OK : ot_fail(OT_ENVIRONMENT, "out of memory")));
  static const ot_node no_settings = {.kind = OT_NODE_MAP};
  trainer->run = run;
  trainer->settings = &no_settings;
  trainer->world = world;
  if (hooks) trainer->hooks = *hooks;
  const ot_status status = create(trainer);
  if (status != OT_OK) ot_trainer_destroy(&trainer);
  *out = trainer;
  return status;
}

ot_status ot_trainer_create(const ot_run *run, const ot_node *settings, ot_world *world,
                            ot_trainer **out) {
  OT_TRY(ot_trainer_create_hooked(run, world, NULL, out));
  if (settings) (*out)->settings = settings;
  return OT_OK;
}

void ot_trainer_destroy(ot_trainer **trainer) {
  if (!trainer || !*trainer) return;
  ot_step_transfer_destroy(&(*trainer)->transfer);
  ot_runtime_destroy(&(*trainer)->runtime);
  if ((*trainer)->targets.context) (*trainer)->targets.destroy((*trainer)->targets.context);
  ot_data_loader_destroy(&(*trainer)->loader);
  ot_micro_batch_release(&(*trainer)->rows);
  ot_micro_batch_release(&(*trainer)->part);
  free((*trainer)->note);
  free(*trainer);
  *trainer = NULL;
}
