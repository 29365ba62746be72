// SPDX-License-Identifier: Apache-2.0
// From a rank's place in the mesh to the graphs of its modes and their schedule.
#include "schedule/rank_request.h"

static int degree_of(const ot_mesh *mesh, ot_axis axis) { return mesh ? mesh->degree[axis] : 1; }

static bool spreads_experts(const ot_mesh *mesh) {
  return degree_of(mesh, OT_AXIS_EP) * degree_of(mesh, OT_AXIS_ETP) > 1;
}

bool ot_mesh_splits_parameters(const ot_mesh *mesh) {
  return degree_of(mesh, OT_AXIS_TP) > 1 || spreads_experts(mesh);
}

int ot_rank_of_stage(const ot_mesh *mesh, int stage) {
  const int last_of_tp[4] = {degree_of(mesh, OT_AXIS_TP) - 1};
  return mesh ? ot_mesh_rank(mesh, last_of_tp, stage) : 0;
}

// ---- graphs and schedule ----

static ot_split split_of(const ot_schedule_request *place) {
  const ot_mesh *const mesh = place->mesh;
  if (!mesh) return (ot_split){0};
  return (ot_split){
      .tp = mesh->degree[OT_AXIS_TP],
      .tp_index = ot_mesh_coordinate(mesh, place->rank, OT_AXIS_TP),
      .cp = mesh->degree[OT_AXIS_CP],
      .cp_index = ot_mesh_coordinate(mesh, place->rank, OT_AXIS_CP),
      .context = place->run ? place->run->parallel.context : OT_CONTEXT_RING,
      .ep = mesh->degree[OT_AXIS_EP],
      .ep_index = ot_mesh_coordinate(mesh, place->rank, OT_AXIS_EP),
      .etp = mesh->degree[OT_AXIS_ETP],
      .etp_index = ot_mesh_coordinate(mesh, place->rank, OT_AXIS_ETP),
      .separate_expert_block = spreads_experts(mesh),
  };
}

static ot_status build_graph(const ot_rank_request *request, ot_mode mode, ot_split split,
                             ot_arena *arena, ot_graph *graph) {
  const bool decode = ot_mode_is_decode(mode), cached = ot_mode_is_cached(mode);
  const ot_run *const run = request->schedule.run;
  ot_graph_request wanted = request->graph;
  const int64_t most = decode ? wanted.cache.sequences : wanted.sequence_length;
  wanted.mode = mode;
  if (cached) wanted.micro_batch_size = 1;
  wanted.sequence_length = cached ? ot_mode_width(mode, most, split.tp) : most;
  wanted.narrow_gradients = run && ot_run_narrow_gradients(&run->precision);
  wanted.narrow_moments = run && ot_run_narrow_moments(&run->precision);
  wanted.optimizer = ot_optimizer_rules_of(run, true);
  wanted.parametrization = run ? &run->parametrization : NULL;
  wanted.weighted_targets = ot_run_weighted_targets(run);
  wanted.expert_buffer = run ? run->parallel.expert_buffer : 0;
  wanted.split = split;
  return ot_graph_build(&wanted, arena, graph);
}

ot_status ot_rank_build_whole(const ot_rank_request *request, ot_mode mode, ot_arena *arena,
                              ot_graph *graph) {
  const bool apart = spreads_experts(request->schedule.mesh);
  return build_graph(request, mode, (ot_split){.separate_expert_block = apart}, arena, graph);
}

// Every rank must partition the model alike, so the cost is computed for the whole model: without a
// run, that of a forward.
static ot_status cut_stages(const ot_rank_request *request, ot_arena *arena, ot_stages *stages) {
  const ot_run *const run = request->schedule.run;
  const ot_run_parallel plain = {.pp = degree_of(request->schedule.mesh, OT_AXIS_PP), .vpp = 1};
  ot_graph whole;
  OT_TRY(ot_rank_build_whole(request, run ? OT_MODE_TRAIN : OT_MODE_LOGITS, arena, &whole));
  return ot_stages_build(&whole, run ? &run->parallel : &plain, arena, stages);
}

ot_status ot_rank_build(const ot_rank_request *request, ot_arena *arena, ot_graph *graphs,
                        ot_schedule *schedule) {
  ot_schedule_request wanted = request->schedule;
  const ot_run *const run = wanted.run;
  ot_stages stages;
  const bool written = run && run->parallel.layout && run->parallel.layout[0] != '\0';
  if (written || degree_of(wanted.mesh, OT_AXIS_PP) > 1) {
    OT_TRY(cut_stages(request, arena, &stages));
    wanted.stages = &stages;
  }
  for (int mode = 0; mode < OT_MODES; mode++) {
    if (!((request->modes >> mode) & 1u)) continue;
    OT_TRY(build_graph(request, (ot_mode)mode, split_of(&wanted), arena, &graphs[mode]));
    wanted.graphs[mode] = &graphs[mode];
  }
  ot_graph whole;
  if (ot_run_generators(run) > 0 && ot_mesh_splits_parameters(wanted.mesh)) {
    OT_TRY(ot_rank_build_whole(request, OT_MODE_LOGITS, arena, &whole));
    wanted.whole = &whole;
  }
  return ot_schedule_build(&wanted, arena, schedule);
}

// ---- training ----

int64_t ot_run_round_sequences(const ot_run *run, const ot_mesh *mesh) {
  const int replicas = degree_of(mesh, OT_AXIS_DP_REPLICATE);
  return run->batch.micro_batch_size * replicas * degree_of(mesh, OT_AXIS_DP_SHARD);
}

// Lists the distinct numbers of micro-batches that steps of the run have.
static void count_micro_batches(const ot_run *run, ot_arena *arena, ot_schedule_request *out) {
  int *const counts = ot_arena_array(arena, run->batch.num_ramp + 1, sizeof *counts);
  int num = 0;
  for (int64_t i = -1; i < run->batch.num_ramp; i++) {
    const int64_t sequences =
        i < 0 ? run->batch.global_batch_size : run->batch.ramp[i].global_batch_size;
    const int count = (int)(sequences / ot_run_round_sequences(run, out->mesh));
    bool known = false;
    for (int k = 0; k < num; k++) known = known || counts[k] == count;
    if (!known) counts[num++] = count;
  }
  out->micro_batches = counts;
  out->num_micro_batches = num;
}

ot_status ot_rank_request_train(const ot_run *run, const ot_mesh *mesh, int rank, ot_arena *arena,
                                ot_rank_request *out) {
  OT_TRY(ot_run_check_ranks(run, mesh ? mesh->ranks : 1));
  const bool validates = run->data.num_validation > 0;
  *out = (ot_rank_request){
      .modes = 1u << OT_MODE_TRAIN | (validates ? 1u << OT_MODE_EVALUATE : 0),
      .graph = {.model = &run->model,
                .micro_batch_size = run->batch.micro_batch_size,
                .sequence_length = run->data.sequence_length,
                .compute = ot_run_compute(&run->precision),
                .storage = ot_run_storage(&run->precision),
                .threads = run->threads,
                .seed = (uint64_t)run->seed},
      .schedule = {.run = run, .mesh = mesh, .rank = rank},
  };
  count_micro_batches(run, arena, &out->schedule);
  return OT_OK;
}
