// SPDX-License-Identifier: Apache-2.0
// Expert parallelism: dispatch and combine over ep, reductions over ep and edp.
#include <string.h>

#include "ops/op.h"
#include "support/mutant.h"
#include "support/mutant_tasks.h"

// ---- reductions ----

static void no_edp_sum(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  tasks_keep_local(s, (task_kind){REDUCE_PHASE, OT_OP_REDUCE_SCATTER, OT_GROUP_EXPERT_SHARD});
  tasks_drop(s, (task_kind){REDUCE_PHASE, OT_OP_ALL_REDUCE, OT_GROUP_EXPERT_REPLICATE});
}

static void no_ep_sum(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  tasks_drop(s, (task_kind){REDUCE_PHASE, OT_OP_ALL_REDUCE, OT_GROUP_EXPERT_SUM});
}

static void ep_sum_twice(ot_schedule *s, ot_arena *arena) {
  tasks_repeat(s, arena, (task_kind){REDUCE_PHASE, OT_OP_ALL_REDUCE, OT_GROUP_EXPERT_SUM});
}

static bool sums_experts(const ot_task *task) {
  return task->op == OT_OP_REDUCE_SCATTER && task->attributes.group == OT_GROUP_EXPERT_SHARD &&
         task->kind == OT_TASK_COLLECTIVE;
}

// Doubles the result of a reduction over edp, once per step.
static void double_sum(const ot_schedule *s, ot_segment *segment, ot_arena *arena) {
  const int n = segment->num_tasks;
  ot_task *const tasks = ot_arena_array(arena, n + 1, sizeof *tasks);
  memcpy(tasks, segment->tasks, (size_t)n * sizeof *tasks);
  int sum = 0;
  while (!sums_experts(&tasks[sum])) sum++;
  ot_task twice = tasks[sum];
  twice.kind = OT_TASK_COMPUTE;
  twice.lane = OT_LANE_COMPUTE;
  twice.op = OT_OP_ADD;
  twice.attributes = (ot_op_attributes){.threads = s->threads, .compute = twice.out[0].type.dtype};
  twice.workspace_bytes = 0;
  twice.wait = sum;
  twice.in[0] = twice.in[1] = twice.out[0];
  tasks[n] = twice;
  segment->tasks = tasks;
  segment->num_tasks = n + 1;
}

static void times_edp(ot_schedule *s, ot_arena *arena) {
  for (int i = 0; i < s->num_segments; i++) {
    ot_segment *const segment = &s->segments[i];
    const bool last =
        segment->phase == OT_PHASE_REDUCE && strncmp(segment->name, "reduce.", 7) == 0;
    bool found = false;
    for (int t = 0; last && t < segment->num_tasks; t++) {
      found = found || sums_experts(&segment->tasks[t]);
    }
    if (found) double_sum(s, segment, arena);
  }
}

static void weights_of_experts_not_gathered(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  tasks_drop(s, (task_kind){1 << OT_PHASE_GATHER, OT_OP_ALL_GATHER, OT_GROUP_EXPERT_GATHER});
}

// ---- tokens ----

static void outputs_not_returned(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  tasks_bring_nothing(s, (task_kind){FORWARD_PHASES, OT_OP_ALL_TO_ALL_V_BACK, OT_GROUP_EXPERT});
}

static void gradients_not_returned(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  tasks_bring_nothing(s, (task_kind){BACKWARD_PHASES, OT_OP_ALL_TO_ALL_V_BACK, OT_GROUP_EXPERT});
}

// Makes `in` start at the next row.
static void next_row(ot_operand *in) {
  in->offset += in->type.dim[in->type.rank - 1] * ot_dtype_bytes(in->type.dtype);
}

static void place_of_next(const ot_schedule *s, ot_task *task) {
  (void)s;
  next_row(&task->in[2]);
}

static void rows_of_the_next_token(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  tasks_edit(s, (task_kind){FORWARD_PHASES, OT_OP_COMBINE, -1}, place_of_next);
}

static void gate_of_next(const ot_schedule *s, ot_task *task) {
  (void)s;
  task->in[1].offset += ot_dtype_bytes(task->in[1].type.dtype);
}

static void gates_of_the_next_choice(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  tasks_edit(s, (task_kind){FORWARD_PHASES, OT_OP_DISPATCH, -1}, gate_of_next);
}

// True if the task sends the gates: a vector with one element per dispatched token.
static bool brings_gates(const ot_task *task) {
  return task->op == OT_OP_ALL_TO_ALL_V && task->in[0].type.rank == 1;
}

static void stay_here(const ot_schedule *s, ot_task *task) {
  if (!brings_gates(task)) return;
  ot_operand own = task->in[0];
  const int64_t came = task->out[0].type.dim[0];
  if (came < own.type.dim[0]) own.type.dim[0] = came;
  task->out[0].type = own.type;
  tasks_make_kernel(s, task, OT_OP_CAST, &own);
}

static void gates_do_not_travel(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  tasks_edit(s, (task_kind){FORWARD_PHASES, OT_OP_ALL_TO_ALL_V, OT_GROUP_EXPERT}, stay_here);
}

// ---- load balancing ----

// Replaces the global mean by the mean over the sequences of the ranks that hold the same experts.
static void mean_over_edp(const mutant_site *site) {
  ot_executor *const executor = ot_runtime_executor(site->runtime);
  const double inverse = ot_executor_scalar(executor, OT_SCALAR_INVERSE_SEQUENCES);
  ot_executor_set_scalar(executor, OT_SCALAR_INVERSE_SEQUENCES,
                         inverse * ot_world_degree(site->world, OT_AXIS_EP));
}

// ---- the table ----

static const mutant table[] = {
    {"expert_gradients_not_summed_over_edp", "after Megatron-LM 7452",
     "expert gradients are not reduced over edp", SPREAD | FOLDED | HYBRID, IN_LAYOUT, BY_RANKS,
     .amend = no_edp_sum},
    {"expert_gradients_times_edp", "after Megatron-LM 7452",
     "expert gradients are reduced over edp but scaled for another group", SPREAD | FOLDED,
     IN_LAYOUT, BY_RANKS, .amend = times_edp},
    {"router_gradients_not_summed_over_ep", "after Megatron-LM 1446",
     "gradients of routers and norms before experts stay local", SPREAD | FOLDED | HYBRID,
     IN_LAYOUT, BY_RANKS, .amend = no_ep_sum},
    {"router_gradients_summed_twice_over_ep", "after Megatron-LM 7452",
     "gradients of routers and norms before them are doubled", SPREAD | FOLDED | HYBRID, IN_LAYOUT,
     BY_RANKS, .amend = ep_sum_twice},
    {"experts_not_gathered_over_edp", "after TrainCheck (arXiv 2506.14813)",
     "ranks keep the old experts outside their own shard", SPREAD | FOLDED, IN_LAYOUT, BY_RANKS,
     .amend = weights_of_experts_not_gathered},
    {"expert_outputs_not_returned", "after TTrace (arXiv 2506.09280)",
     "the combine all-to-all returns nothing", SPREAD | FOLDED | HYBRID, IN_LAYOUT, BY_RANKS,
     .amend = outputs_not_returned},
    {"expert_input_gradients_not_returned", "after TTrace (arXiv 2506.09280)",
     "the backward all-to-all returns no gradients", SPREAD | FOLDED | HYBRID, IN_LAYOUT, BY_RANKS,
     .amend = gradients_not_returned},
    {"outputs_returned_to_another_token", "after Megatron-LM 7452",
     "a token gets the expert output of the next one", SPREAD | FOLDED | HYBRID, IN_LAYOUT,
     BY_RANKS, .amend = rows_of_the_next_token},
    {"gates_of_another_choice", "after Megatron-LM 7452",
     "an expert output is weighted by the gate of the next choice", SPREAD | FOLDED | HYBRID,
     IN_LAYOUT, BY_RANKS, .amend = gates_of_the_next_choice},
    {"gates_not_sent", "after TTrace (arXiv 2506.09280)",
     "tokens from other ranks are weighted by local gates", SPREAD | FOLDED | HYBRID, IN_LAYOUT,
     BY_RANKS, .amend = gates_do_not_travel},
    {"balance_over_edp_alone", "after Megatron-LM 7452",
     "the load-balancing loss is ep times too large", SPREAD, IN_LAYOUT, BY_RANKS,
     .before = mean_over_edp},
};

mutant_list mutants_of_experts(void) { return (mutant_list){table, OT_COUNT(table)}; }
