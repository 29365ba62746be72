// SPDX-License-Identifier: Apache-2.0
// Sums over ranks that are missing, made twice or over too little, and losses that are scaled by
// what they should not know.
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

// The loss of every micro-batch is scaled by a number of its own, which the bug finds in memory.
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

static void count_targets(const mutant_site *site, ot_rows *rows) {
  (*site->memory)[site->micro_batch] = (double)rows->num_targets;
}

static int micro_batches_of(const mutant_site *site) {
  const ot_run_batch *const batch = &site->run->batch;
  return (int)(batch->global_batch_size / batch->micro_batch_size /
               ot_team_data_degree(site->team));
}

static void write_scale(const mutant_site *site, int micro_batch, double targets) {
  const int64_t at = tasks_memory(ot_instance_schedule(site->instance)) + 8 * (int64_t)micro_batch;
  const double scale = 1 / targets;
  ot_executor_write(ot_instance_executor(site->instance), at, &scale, sizeof scale);
}

// Each micro-batch of each rank counts alike, however many targets it has.
static void mean_over_micro_batches(const mutant_site *site) {
  const int n = micro_batches_of(site), dp = ot_team_data_degree(site->team);
  for (int m = 0; m < n; m++) write_scale(site, m, (*site->memory)[m] * n * dp);
}

// Each rank of data parallelism counts alike.
static void mean_over_ranks(const mutant_site *site) {
  const int n = micro_batches_of(site), dp = ot_team_data_degree(site->team);
  double sum = 0;
  for (int m = 0; m < n; m++) sum += (*site->memory)[m];
  for (int m = 0; m < n; m++) write_scale(site, m, sum * dp);
}

static void scale_targets(const mutant_site *site, double factor) {
  ot_executor *const executor = ot_instance_executor(site->instance);
  ot_executor_set_scalar(executor, OT_SCALAR_TARGETS,
                         ot_executor_scalar(executor, OT_SCALAR_TARGETS) * factor);
}

static void loss_times_cp(const mutant_site *site) {
  scale_targets(site, 1.0 / ot_team_degree(site->team, OT_AXIS_CP));
}

static void loss_over_micro_batches(const mutant_site *site) {
  scale_targets(site, micro_batches_of(site));
}

static void loss_times_dp(const mutant_site *site) {
  scale_targets(site, 1.0 / ot_team_data_degree(site->team));
}

static void targets_not_summed(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  tasks_drop(s, (task_kind){1 << OT_PHASE_BEGIN, OT_OP_ALL_REDUCE, OT_GROUP_TOKENS});
}

// ---- the table ----

static const mutant table[] = {
    {"norm_gradients_not_summed_over_tp", "Megatron-LM 1446",
     "sequence parallel norms keep the gradient of their own rows", TENSOR | BOTH, IN_LAYOUT,
     BY_RANKS, .amend = no_tensor_sum},
    {"kv_gradients_not_summed", "bigcode Megatron-LM 35",
     "copies of one key-value head get the gradient of their own query heads", TENSOR, IN_LAYOUT,
     BY_RANKS, .amend = no_kv_sum},
    {"gradients_not_summed_over_cp", "after Megatron-LM 673",
     "ranks of cp train on their own pieces", CONTEXT, IN_LAYOUT, BY_RANKS,
     .amend = no_context_sum},
    {"gradients_not_summed_over_dp", "after TTrace (arXiv 2506.09280)",
     "ranks of data parallelism train on their own batches", TENSOR | STAGES | CONTEXT | SHARDED,
     IN_LAYOUT, BY_RANKS, .amend = no_data_sum},
    {"gradients_not_summed_over_replicas", "after Megatron-LM 7452",
     "shard domains of hybrid sharding train apart", SHARDED, IN_LAYOUT, BY_RANKS,
     .amend = no_replica_sum},
    {"tied_uses_not_added", "Megatron-LM 844", "the embedding learns from the input's side alone",
     CONTEXT, IN_SHARED_CODE, BY_STEP, .amend = no_tie},
    {"tied_embedding_not_summed_over_stages", "Megatron-LM 656, 1012",
     "each stage's copy learns from its own use", STAGES | BOTH, IN_LAYOUT, BY_RANKS,
     .amend = no_tied_sum},
    {"branch_outputs_not_summed_over_tp", "after TTrace (arXiv 2506.09280)",
     "row-parallel products hand on partial sums", TENSOR | BOTH, IN_LAYOUT, BY_RANKS,
     .amend = no_output_sum},
    {"input_gradients_not_summed_over_tp", "after TTrace (arXiv 2506.09280)",
     "column-parallel products hand back partial gradients", TENSOR | BOTH, IN_LAYOUT, BY_RANKS,
     .amend = no_input_gradient_sum},
    {"ring_passes_no_keys", "Megatron-LM 906", "ring attention sees its own keys again and again",
     CONTEXT, IN_LAYOUT, BY_RANKS, .amend = ring_stands_still},
    {"ring_passes_no_keys_backwards", "Megatron-LM 1464",
     "the backward of ring attention takes keys of another piece", CONTEXT, IN_LAYOUT, BY_RANKS,
     .amend = ring_stands_still_backwards},
    {"weights_not_gathered", "after TrainCheck (arXiv 2506.14813)",
     "ranks keep weights from before the update but for their own piece", TENSOR | STAGES,
     IN_LAYOUT, BY_RANKS, .amend = weights_not_gathered},
    {"norm_gradients_summed_twice", "after Megatron-LM 7452", "norms learn twice as fast under tp",
     TENSOR | BOTH, IN_LAYOUT, BY_RANKS, .amend = tensor_sum_twice},
    {"gradients_summed_twice_over_cp", "after Megatron-LM 673",
     "every gradient is cp times too large", CONTEXT, IN_LAYOUT, BY_RANKS,
     .amend = context_sum_twice},
    {"gradients_summed_twice_over_replicas", "after Megatron-LM 7452",
     "every gradient is twice too large", SHARDED, IN_LAYOUT, BY_RANKS, .amend = replica_sum_twice},
    {"tied_use_added_twice", "after Megatron-LM 844",
     "the head's share of the embedding's gradient counts twice", CONTEXT, IN_SHARED_CODE, BY_STEP,
     .amend = tie_twice},
    {"mean_of_micro_batch_means", "transformers 34191, Unsloth 2024-10",
     "micro-batches count alike, whatever their number of targets", DENSE | EXPERTS, IN_SHARED_CODE,
     BY_RANKS, .amend = scale_by_memory, .unchecked = true, .rows = count_targets,
     .before = mean_over_micro_batches},
    {"mean_of_rank_means", "transformers 34242",
     "ranks count alike, whatever their number of targets", TENSOR | STAGES | CONTEXT | SHARDED,
     IN_LAYOUT, BY_RANKS, .amend = scale_by_memory, .unchecked = true, .rows = count_targets,
     .before = mean_over_ranks},
    {"loss_scaled_by_cp", "Megatron-LM 673", "the loss is cp times too large", CONTEXT, IN_LAYOUT,
     BY_RANKS, .before = loss_times_cp},
    {"loss_divided_by_micro_batches", "transformers 35207",
     "the loss is divided by the number of micro-batches once more", DENSE | EXPERTS,
     IN_SHARED_CODE, BY_RANKS, .before = loss_over_micro_batches},
    {"loss_scaled_by_dp", "after transformers 34242", "the loss is dp times too large",
     TENSOR | STAGES | CONTEXT | SHARDED | EXPERTS, IN_LAYOUT, BY_RANKS, .before = loss_times_dp},
    {"targets_of_one_rank", "after transformers 34242",
     "losses are divided by the rank's own number of targets",
     TENSOR | STAGES | CONTEXT | SHARDED | EXPERTS, IN_LAYOUT, BY_RANKS,
     .amend = targets_not_summed},
};

mutant_list mutants_of_sums(void) { return (mutant_list){table, OT_COUNT(table)}; }
