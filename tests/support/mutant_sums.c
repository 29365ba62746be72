// SPDX-License-Identifier: Apache-2.0
// Reductions over ranks that are missing, duplicated or over the wrong group, and wrongly scaled
// losses.
#include "ops/op.h"
#include "support/mutant.h"
#include "support/mutant_tasks.h"

// ---- missing ----

static void drop_sum(ot_schedule *s, ot_group_kind group) {
  tasks_drop(s, (task_kind){REDUCE_PHASE, OT_OP_ALL_REDUCE, (int)group});
}

static void no_tensor_sum(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  drop_sum(s, OT_GROUP_TENSOR_SUM);
}

static void no_kv_sum(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  drop_sum(s, OT_GROUP_KV_SUM);
}

static void no_context_sum(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  drop_sum(s, OT_GROUP_CONTEXT_SUM);
}

static void no_replica_sum(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  drop_sum(s, OT_GROUP_REPLICATE);
}

static void no_tied_sum(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  drop_sum(s, OT_GROUP_TIED);
}

static void no_data_sum(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  tasks_keep_local(s, (task_kind){REDUCE_PHASE, OT_OP_REDUCE_SCATTER, OT_GROUP_SHARD});
}

static void no_tie(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  tasks_drop(s, (task_kind){1 << OT_PHASE_TIE, OT_OP_ADD, -1});
}

static void no_output_sum(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  tasks_keep_local(s, (task_kind){FORWARD_PHASES, OT_OP_REDUCE_SCATTER, OT_GROUP_TENSOR});
}

static void no_input_gradient_sum(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  tasks_keep_local(s, (task_kind){BACKWARD_PHASES, OT_OP_REDUCE_SCATTER, OT_GROUP_TENSOR});
}

static void ring_stands_still(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  tasks_keep_local(s, (task_kind){FORWARD_PHASES, OT_OP_SHIFT, OT_GROUP_CONTEXT});
}

static void ring_stands_still_backwards(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  tasks_keep_local(s, (task_kind){BACKWARD_PHASES, OT_OP_SHIFT, OT_GROUP_CONTEXT});
}

static void weights_not_gathered(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  tasks_drop(s, (task_kind){1 << OT_PHASE_GATHER, OT_OP_ALL_GATHER, -1});
}

// ---- twice ----

static void sum_twice(ot_schedule *s, ot_arena *arena, ot_group_kind group) {
  tasks_repeat(s, arena, (task_kind){REDUCE_PHASE, OT_OP_ALL_REDUCE, (int)group});
}

static void tensor_sum_twice(ot_schedule *s, ot_arena *arena) {
  sum_twice(s, arena, OT_GROUP_TENSOR_SUM);
}

static void context_sum_twice(ot_schedule *s, ot_arena *arena) {
  sum_twice(s, arena, OT_GROUP_CONTEXT_SUM);
}

static void replica_sum_twice(ot_schedule *s, ot_arena *arena) {
  sum_twice(s, arena, OT_GROUP_REPLICATE);
}

static void tie_twice(ot_schedule *s, ot_arena *arena) {
  tasks_repeat(s, arena, (task_kind){1 << OT_PHASE_TIE, OT_OP_ADD, -1});
}

// ---- means of means ----

// Scales the loss of every micro-batch by a separate number, stored in memory of the bug.
static bool is_of_head(const ot_entry *entry) {
  return entry->phase == OT_PHASE_FORWARD && entry->micro_batch >= 0;
}

static void read_own_scale(const ot_schedule *s, ot_task *task) {
  (void)s;
  task->in[3].base = OT_BASE_RESULT;
  task->in[3].offset = 0;
}

static void scale_by_memory(ot_schedule *s, ot_arena *arena) {
  tasks_bind_memory(s, arena, is_of_head);
  tasks_edit(s, (task_kind){FORWARD_PHASES, OT_OP_HEAD_LOSS, -1}, read_own_scale);
  tasks_edit(s, (task_kind){FORWARD_PHASES, OT_OP_HEAD_DLOGITS, -1}, read_own_scale);
}

static void count_targets(const mutant_site *site, ot_micro_batch *rows) {
  (*site->memory)[site->micro_batch] = (double)rows->num_targets;
}

static int micro_batches_of(const mutant_site *site) {
  const ot_run_batch *const batch = &site->run->batch;
  return (int)(batch->global_batch_size / batch->micro_batch_size /
               ot_world_data_degree(site->world));
}

static void write_scale(const mutant_site *site, int micro_batch, double targets) {
  const int64_t at = tasks_memory(ot_runtime_schedule(site->runtime)) + 8 * (int64_t)micro_batch;
  const double scale = 1 / targets;
  ot_executor_write(ot_runtime_executor(site->runtime), at, &scale, sizeof scale);
}

// Gives each micro-batch of each rank the same weight, whatever its number of targets.
static void mean_over_micro_batches(const mutant_site *site) {
  const int n = micro_batches_of(site), dp = ot_world_data_degree(site->world);
  for (int m = 0; m < n; m++) write_scale(site, m, (*site->memory)[m] * n * dp);
}

// Gives each data-parallel rank the same weight.
static void mean_over_ranks(const mutant_site *site) {
  const int n = micro_batches_of(site), dp = ot_world_data_degree(site->world);
  double sum = 0;
  for (int m = 0; m < n; m++) sum += (*site->memory)[m];
  for (int m = 0; m < n; m++) write_scale(site, m, sum * dp);
}

static void scale_targets(const mutant_site *site, double factor) {
  ot_executor *const executor = ot_runtime_executor(site->runtime);
  ot_executor_set_scalar(executor, OT_SCALAR_TARGETS,
                         ot_executor_scalar(executor, OT_SCALAR_TARGETS) * factor);
}

static void loss_times_cp(const mutant_site *site) {
  scale_targets(site, 1.0 / ot_world_degree(site->world, OT_AXIS_CP));
}

static void loss_over_micro_batches(const mutant_site *site) {
  scale_targets(site, micro_batches_of(site));
}

static void loss_times_dp(const mutant_site *site) {
  scale_targets(site, 1.0 / ot_world_data_degree(site->world));
}

static void targets_not_summed(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  tasks_drop(s, (task_kind){1 << OT_PHASE_BEGIN, OT_OP_ALL_REDUCE, OT_GROUP_TOKENS});
}

// ---- the table ----

static const mutant table[] = {
    {"norm_gradients_not_summed_over_tp", "Megatron-LM 1446",
     "sequence-parallel norms keep the gradient of local tokens", TENSOR | BOTH, IN_LAYOUT,
     BY_RANKS, .amend = no_tensor_sum},
    {"kv_gradients_not_summed", "bigcode Megatron-LM 35",
     "copies of a KV head keep the gradient of local query heads", TENSOR, IN_LAYOUT, BY_RANKS,
     .amend = no_kv_sum},
    {"gradients_not_summed_over_cp", "after Megatron-LM 673", "gradients are not reduced over cp",
     CONTEXT, IN_LAYOUT, BY_RANKS, .amend = no_context_sum},
    {"gradients_not_summed_over_dp", "after TTrace (arXiv 2506.09280)",
     "gradients are not reduced over dp", TENSOR | STAGES | CONTEXT | SHARDED, IN_LAYOUT, BY_RANKS,
     .amend = no_data_sum},
    {"gradients_not_summed_over_replicas", "after Megatron-LM 7452",
     "hybrid sharding: gradients are not reduced over dp_replicate", SHARDED, IN_LAYOUT, BY_RANKS,
     .amend = no_replica_sum},
    {"tied_uses_not_added", "Megatron-LM 844", "a tied embedding ignores the head's gradient",
     CONTEXT, IN_SHARED_CODE, BY_STEP, .amend = no_tie},
    {"tied_embedding_not_summed_over_stages", "Megatron-LM 656, 1012",
     "each stage's copy keeps its own gradient", STAGES | BOTH, IN_LAYOUT, BY_RANKS,
     .amend = no_tied_sum},
    {"branch_outputs_not_summed_over_tp", "after TTrace (arXiv 2506.09280)",
     "row-parallel GEMMs return partial sums", TENSOR | BOTH, IN_LAYOUT, BY_RANKS,
     .amend = no_output_sum},
    {"input_gradients_not_summed_over_tp", "after TTrace (arXiv 2506.09280)",
     "column-parallel GEMMs return partial input gradients", TENSOR | BOTH, IN_LAYOUT, BY_RANKS,
     .amend = no_input_gradient_sum},
    {"ring_passes_no_keys", "Megatron-LM 906", "ring attention sees only local keys", CONTEXT,
     IN_LAYOUT, BY_RANKS, .amend = ring_stands_still},
    {"ring_passes_no_keys_backwards", "Megatron-LM 1464",
     "the ring attention backward uses keys of a wrong shard", CONTEXT, IN_LAYOUT, BY_RANKS,
     .amend = ring_stands_still_backwards},
    {"weights_not_gathered", "after TrainCheck (arXiv 2506.14813)",
     "ranks keep the old weights outside their own shard", TENSOR | STAGES, IN_LAYOUT, BY_RANKS,
     .amend = weights_not_gathered},
    {"norm_gradients_summed_twice", "after Megatron-LM 7452", "norm gradients are doubled under tp",
     TENSOR | BOTH, IN_LAYOUT, BY_RANKS, .amend = tensor_sum_twice},
    {"gradients_summed_twice_over_cp", "after Megatron-LM 673",
     "all gradients are cp times too large", CONTEXT, IN_LAYOUT, BY_RANKS,
     .amend = context_sum_twice},
    {"gradients_summed_twice_over_replicas", "after Megatron-LM 7452", "all gradients are doubled",
     SHARDED, IN_LAYOUT, BY_RANKS, .amend = replica_sum_twice},
    {"tied_use_added_twice", "after Megatron-LM 844",
     "the head's gradient is added twice to the tied embedding", CONTEXT, IN_SHARED_CODE, BY_STEP,
     .amend = tie_twice},
    {"mean_of_micro_batch_means", "transformers 34191, Unsloth 2024-10",
     "loss is a mean of micro-batch means, whatever their targets", DENSE | EXPERTS, IN_SHARED_CODE,
     BY_RANKS, .amend = scale_by_memory, .unchecked = true, .rows = count_targets,
     .before = mean_over_micro_batches},
    {"mean_of_rank_means", "transformers 34242",
     "loss is a mean of rank means, whatever their targets", TENSOR | STAGES | CONTEXT | SHARDED,
     IN_LAYOUT, BY_RANKS, .amend = scale_by_memory, .unchecked = true, .rows = count_targets,
     .before = mean_over_ranks},
    {"loss_scaled_by_cp", "Megatron-LM 673", "the loss is cp times too large", CONTEXT, IN_LAYOUT,
     BY_RANKS, .before = loss_times_cp},
    {"loss_divided_by_micro_batches", "transformers 35207",
     "the loss is divided by the number of micro-batches twice", DENSE | EXPERTS, IN_SHARED_CODE,
     BY_RANKS, .before = loss_over_micro_batches},
    {"loss_scaled_by_dp", "after transformers 34242", "the loss is dp times too large",
     TENSOR | STAGES | CONTEXT | SHARDED | EXPERTS, IN_LAYOUT, BY_RANKS, .before = loss_times_dp},
    {"targets_of_one_rank", "after transformers 34242",
     "losses are divided by the rank's local number of targets",
     TENSOR | STAGES | CONTEXT | SHARDED | EXPERTS, IN_LAYOUT, BY_RANKS,
     .amend = targets_not_summed},
};

mutant_list mutants_of_sums(void) { return (mutant_list){table, OT_COUNT(table)}; }
