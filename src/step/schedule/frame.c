// SPDX-License-Identifier: Apache-2.0
// Step-level reductions over all ranks.
#include "schedule/frame.h"

#include "ops/operands.h"
#include "schedule/tasks.h"

static int64_t squares_of(const ot_schedule *schedule) {
  return (int64_t)schedule->num_parts * schedule->slots_per_part;
}

static ot_operand scalar(ot_step_scalar index) {
  return ot_operand_vector(OT_BASE_SCALAR, OT_F64, index, 1);
}

static int64_t expert_sums_of(const ot_graph *graph) {
  return (int64_t)graph->num_blocks * OT_EXPERT_SUMS;
}

// The loss of the step and, with weighted targets, that of the data's, which is next to it.
static ot_operand losses_of(const ot_graph *graph) {
  return ot_operand_vector(OT_BASE_SCALAR, OT_F64, OT_SCALAR_LOSS,
                           graph->request.weighted_targets > 0 ? 2 : 1);
}

static bool has_experts(const ot_graph *graph) { return graph->request.model->moe.num_experts > 0; }

static void zero_losses(const ot_graph *graph, ot_segment *segment) {
  const ot_operand losses = losses_of(graph);
  ot_tasks_zero(graph, OT_BASE_SCALAR, losses.offset, ot_type_elements(&losses.type), segment);
}

void ot_frame_begin(const ot_graph *graph, const ot_schedule *schedule, ot_arena *arena,
                    ot_segment *segment) {
  ot_tasks_begin(segment, "begin", OT_PHASE_BEGIN, 7, arena);
  zero_losses(graph, segment);
  ot_tasks_zero(graph, OT_BASE_SCALAR, OT_SCALAR_LOCAL_SQUARES * 8, 1, segment);
  ot_tasks_zero(graph, OT_BASE_STATISTIC, 0, (int64_t)graph->num_blocks * OT_BLOCK_STATISTICS,
                segment);
  if (has_experts(graph)) {
    ot_tasks_zero(graph, OT_BASE_EXPERTS, 0, expert_sums_of(graph), segment);
  }
  if (schedule->ranks > 1) {
    ot_tasks_zero(graph, OT_BASE_SQUARES, 0, squares_of(schedule), segment);
  }
  if (schedule->group[OT_GROUP_TOKENS].size > 1) {
    // Targets and their squares are adjacent.
    ot_tasks_all_reduce(graph, schedule, OT_GROUP_TOKENS,
                        ot_operand_vector(OT_BASE_SCALAR, OT_F64, OT_SCALAR_TARGETS, 2), segment);
  }
  ot_task inverse = ot_task_of(graph, OT_OP_INVERSE);
  inverse.in[0] = scalar(OT_SCALAR_TARGETS);
  inverse.out[0] = scalar(OT_SCALAR_INVERSE_TOKENS);
  ot_tasks_append(segment, &inverse, 0);
}

void ot_frame_zero_hashes(const ot_graph *graph, const ot_schedule *schedule, ot_arena *arena,
                          ot_segment *segment) {
  ot_tasks_begin(segment, "zero_hashes", OT_PHASE_BEGIN, 1, arena);
  ot_tasks_zero(graph, OT_BASE_SQUARES, 0, squares_of(schedule), segment);
}

void ot_frame_begin_forward(const ot_graph *graph, ot_arena *arena, ot_segment *segment) {
  ot_tasks_begin(segment, "begin", OT_PHASE_BEGIN, 1, arena);
  if (graph->request.mode == OT_MODE_EVALUATE) {
    ot_tasks_zero(graph, OT_BASE_SCALAR, OT_SCALAR_EVALUATE_LOSS * 8, 2, segment);
  }
  if (graph->request.mode == OT_MODE_LOGITS && has_experts(graph)) {
    ot_tasks_zero(graph, OT_BASE_EXPERTS, 0, expert_sums_of(graph), segment);
  }
}

// Every tp rank has the same loss; only the first one adds it.
static void gather_losses(const ot_graph *graph, const ot_schedule *schedule, ot_segment *segment) {
  if (schedule->group[OT_GROUP_TENSOR].size > 1 && schedule->group[OT_GROUP_TENSOR].index > 0) {
    zero_losses(graph, segment);
  }
  ot_tasks_all_reduce(graph, schedule, OT_GROUP_WORLD, losses_of(graph), segment);
  ot_tasks_all_reduce(graph, schedule, OT_GROUP_WORLD, scalar(OT_SCALAR_LOCAL_SQUARES), segment);
  if (!has_experts(graph)) return;
  ot_tasks_all_reduce(graph, schedule, OT_GROUP_WORLD,
                      ot_operand_vector(OT_BASE_EXPERTS, OT_F64, 0, expert_sums_of(graph)),
                      segment);
}

void ot_frame_clip(const ot_graph *graph, const ot_schedule *schedule, double clip, ot_arena *arena,
                   ot_segment *segment) {
  const ot_operand squares = ot_operand_vector(OT_BASE_SQUARES, OT_F64, 0, squares_of(schedule));
  ot_tasks_begin(segment, "clip", OT_PHASE_CLIP, 6, arena);
  if (schedule->ranks > 1) {
    ot_tasks_all_reduce(graph, schedule, OT_GROUP_WORLD, squares, segment);
    gather_losses(graph, schedule, segment);
  }
  ot_task task = ot_task_of(graph, OT_OP_CLIP_FACTOR);
  task.attributes.clip = clip;
  task.in[0] = squares;
  task.out[0] = scalar(OT_SCALAR_GRADIENT_NORM);
  task.out[1] = scalar(OT_SCALAR_CLIP_FACTOR);
  ot_tasks_append(segment, &task, 0);
}
