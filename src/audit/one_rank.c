// SPDX-License-Identifier: Apache-2.0
// On one rank every degree is one; what says how work is split is gone.
#include "audit/one_rank.h"

#include <stddef.h>

ot_run ot_still_run(const ot_run *run) {
  ot_run still = *run;
  still.batch.ramp = NULL;
  still.batch.num_ramp = 0;
  still.optimizer.lr = still.optimizer.adamw_lr = still.optimizer.weight_decay = 0;
  still.optimizer.num_groups = 0;
  still.learning_rate = (ot_run_learning_rate){.decay = OT_DECAY_CONSTANT};
  still.audit = (ot_run_audit){0};
  still.data.num_validation = 0;
  still.init = "random";
  return still;
}

ot_run ot_one_rank_run(const ot_run *run, bool whole) {
  static ot_recompute none[] = {OT_RECOMPUTE_NONE};
  ot_run one = ot_still_run(run);
  one.parallel.tp = one.parallel.pp = one.parallel.vpp = one.parallel.cp = 1;
  one.parallel.ep = one.parallel.etp = one.parallel.dp_replicate = 1;
  one.parallel.dp = one.parallel.zero = 0;
  one.parallel.accumulate = OT_ACCUMULATE_WHOLE;
  one.parallel.pipeline = OT_PIPELINE_1F1B;
  one.parallel.layout = one.parallel.order_csv = "";
  one.parallel.recompute = none;
  one.parallel.num_recompute = 1;
  if (!whole) one.batch.global_batch_size = run->batch.micro_batch_size;
  const ot_dtype wide = run->precision.compute == OT_F64 ? OT_F64 : OT_F32;
  one.precision.gradients = one.precision.reduce = wide;
  one.precision.sum = OT_SUM_WIDE;
  return one;
}

ot_status ot_run_bytes(const ot_run *run, const ot_team *team, int64_t *bytes) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_instance_request request = {.mesh = ot_team_mesh(team), .rank = ot_team_rank(team)};
  ot_graph *const graphs = ot_arena_array(&arena, OT_MODES, sizeof *graphs);
  ot_schedule schedule;
  ot_status status = ot_trainer_request(run, &arena, &request);
  if (request.threads == 0) request.threads = 1;
  if (status == OT_OK) status = ot_instance_plan(&request, &arena, graphs, &schedule);
  if (status == OT_OK) *bytes = schedule.bill.peak_bytes;
  ot_heap_release(&heap);
  return status;
}

ot_status ot_one_rank_bytes(const ot_run *one, int64_t *bytes) {
  return ot_run_bytes(one, NULL, bytes);
}

int64_t ot_audit_bytes(const ot_trainer *trainer) {
  const int64_t asked = ot_trainer_get_hooks(trainer)->audit_bytes;
  return asked > 0 ? asked : (int64_t)1 << 30;
}
