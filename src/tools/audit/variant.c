// SPDX-License-Identifier: Apache-2.0
// Settings, memory, trainers and weights of variants.
#include "audit/variant.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "checkpoint/elements.h"
#include "host/cores.h"
#include "runtime/training_request.h"

// ---- settings ----

ot_run ot_variant_fixed_weights(const ot_trainer *of) {
  ot_run still = *ot_trainer_run(of);
  // With `auto`, one rank might compute elsewhere than the ranks of the run.
  still.device = ot_runtime_device_of(ot_runtime_backend(ot_trainer_runtime(of)));
  still.batch.ramp = NULL;
  still.batch.num_ramp = 0;
  still.optimizer.lr = still.optimizer.adamw_lr = still.optimizer.weight_decay = 0;
  still.optimizer.num_groups = 0;
  still.learning_rate = (ot_run_learning_rate){.decay = OT_DECAY_CONSTANT};
  still.audit = (ot_run_audit){0};
  still.data.num_validation = 0;
  ot_run_set_teacher_ranks(&still, 0);  // those of the run serve the run
  still.init = "random";
  return still;
}

ot_run ot_variant_one_rank(const ot_trainer *of) {
  static ot_recompute none[] = {OT_RECOMPUTE_NONE};
  ot_run one = ot_variant_fixed_weights(of);
  one.parallel.tp = one.parallel.pp = one.parallel.vpp = one.parallel.cp = 1;
  one.parallel.ep = one.parallel.etp = one.parallel.dp_replicate = 1;
  one.parallel.dp = one.parallel.zero = 0;
  one.parallel.accumulate = OT_ACCUMULATE_WHOLE;
  one.parallel.pipeline = OT_PIPELINE_1F1B;
  one.parallel.layout = one.parallel.order_csv = "";
  one.parallel.recompute = none;
  one.parallel.num_recompute = 1;
  one.batch.global_batch_size = one.batch.micro_batch_size;
  const ot_dtype wide = ot_run_compute(&one.precision);
  one.precision.gradients = one.precision.reduce = wide;
  one.precision.sum = OT_SUM_WIDE;
  return one;
}

// ---- trainers ----

// The participating ranks; null: one rank.
static ot_world *team_of(const ot_variant *v) {
  return v->one_rank ? NULL : ot_trainer_world(v->of);
}

static bool is_here(const ot_variant *v) {
  return !v->one_rank || ot_world_is_leader(ot_trainer_world(v->of));
}

// Memory of a step on this rank.
static ot_status count_bytes(const ot_variant *v, int64_t *bytes) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_world *const world = team_of(v);
  ot_rank_request request;
  ot_graph *const graphs = ot_arena_array(&arena, OT_MODES, sizeof *graphs);
  ot_schedule schedule;
  ot_status status =
      ot_training_request(v->run, ot_world_mesh(world), ot_world_rank(world), &arena, &request);
  request.graph.backend = ot_runtime_backend(ot_trainer_runtime(v->of));
  if (request.graph.threads == 0) request.graph.threads = 1;
  if (status == OT_OK) status = ot_runtime_plan(&request, &arena, graphs, &schedule);
  if (status == OT_OK) *bytes = schedule.memory.peak_bytes;
  ot_heap_release(&heap);
  return status;
}

ot_status ot_variant_fits(const ot_variant *variant, bool *fits) {
  ot_world *const world = ot_trainer_world(variant->of);
  const int64_t asked = ot_trainer_get_hooks(variant->of)->audit_bytes;
  const int64_t most = asked > 0 ? asked : (int64_t)1 << 30;
  int64_t bytes = 0;
  OT_TRY(ot_world_agree(world, is_here(variant) ? count_bytes(variant, &bytes) : OT_OK));
  double too_many = bytes > most;
  OT_TRY(ot_world_allreduce(world, &too_many, 1));
  *fits = too_many == 0;
  return OT_OK;
}

ot_status ot_variant_create(const ot_variant *variant, ot_trainer **out) {
  const ot_variant *const v = variant;
  *out = NULL;
  ot_status status = OT_OK;
  if (is_here(v)) status = ot_trainer_create_hooked(v->run, team_of(v), v->hooks, out);
  OT_TRY(ot_world_agree(ot_trainer_world(v->of), status));
  status =
      ot_variant_copy_weights(ot_trainer_runtime(v->of), *out ? ot_trainer_runtime(*out) : NULL);
  if (status != OT_OK) ot_trainer_destroy(out);
  return status;
}

// ---- weights ----

typedef struct kept_layers {
  int64_t layers;
  bool silenced;
} kept_layers;

// A layer with all weights zero acts as identity.
static bool is_silent(void *context, const char *name) {
  const kept_layers *const kept = context;
  char pattern[64];
  int64_t layer = 0;
  ot_text_format(pattern, sizeof pattern, "layers.%lld.*down.weight", (long long)kept->layers - 1);
  if (kept->silenced && ot_text_matches(name, pattern)) return true;
  if (!ot_text_starts_with(name, "layers.")) return false;
  for (const char *at = name + 7; *at >= '0' && *at <= '9'; at++) layer = 10 * layer + *at - '0';
  return layer >= kept->layers;
}

ot_status ot_variant_keep_layers(ot_runtime *from, ot_runtime *to, int64_t layers, bool silenced) {
  kept_layers kept = {layers, silenced};
  const bool master =
      ot_runtime_copy_dtype(from, OT_COPY_WEIGHT) != ot_runtime_copy_dtype(from, OT_COPY_MASTER);
  const ot_weight_copy how = {
      .copy = master ? OT_COPY_MASTER : OT_COPY_WEIGHT, .is_zero = is_silent, .context = &kept};
  OT_TRY(ot_runtime_copy(from, to, &how));
  const bool trains = to && ot_runtime_has_copy(to, OT_COPY_MOMENT_1);
  return trains ? ot_runtime_reset_optimizer(to) : OT_OK;
}

int ot_variant_threads(const ot_run *run) {
  return run->threads > 0 ? run->threads : ot_host_threads(1);
}

ot_status ot_variant_copy_weights(ot_runtime *from, ot_runtime *to) {
  return ot_variant_keep_layers(from, to, INT64_MAX, false);
}

ot_status ot_variant_read(ot_runtime *runtime, ot_parameter_rows range, double *values) {
  const int64_t count =
      range.rows * ot_runtime_whole_graph(runtime)->parameters[range.parameter].cols;
  const ot_dtype dtype = ot_runtime_copy_dtype(runtime, range.copy);
  if (dtype == OT_F64) return ot_runtime_read(runtime, &range, values);
  void *const raw = malloc((size_t)(count * ot_dtype_bytes(dtype)));
  OT_CHECK(raw, OT_ENVIRONMENT, "out of memory for rows of a parameter");
  const ot_status status = ot_runtime_read(runtime, &range, raw);
  if (status == OT_OK) ot_elements_convert(dtype, raw, OT_F64, values, count);
  free(raw);
  return status;
}
