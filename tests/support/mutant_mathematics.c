// SPDX-License-Identifier: Apache-2.0
// Constants and masks that differ between forward and backward or between training and inference;
// reductions in formats that cannot hold them.
#include "base/math.h"
#include "support/mutant.h"
#include "support/mutant_tasks.h"

// ---- edits ----

static void longer_window(const ot_schedule *s, ot_task *task) {
  (void)s;
  if (task->attributes.window > 0) task->attributes.window++;
}

static void larger_scale(const ot_schedule *s, ot_task *task) {
  (void)s;
  task->attributes.scale *= 1.05;
}

static void offset_of_one(const ot_schedule *s, ot_task *task) {
  (void)s;
  task->attributes.norm_offset = 1;
}

static void no_partial(const ot_schedule *s, ot_task *task) {
  (void)s;
  const int at = task->op == OT_OP_RMSNORM_GRAD ? 4 : 5;
  task->in[at] = (ot_operand){.base = OT_BASE_NONE, .value = -1};
}

// Gradients through the norm of heads are not rotated back.
static void no_rotation(const ot_schedule *s, ot_task *task) {
  (void)s;
  for (int i = 6; i < 8; i++) task->in[i] = (ot_operand){.base = OT_BASE_NONE, .value = -1};
}

static void other_activation(const ot_schedule *s, ot_task *task) {
  (void)s;
  const bool silu = task->attributes.activation == OT_ACTIVATION_SILU;
  task->attributes.activation = silu ? OT_ACTIVATION_GELU : OT_ACTIVATION_SILU;
}

static void other_epsilon(const ot_schedule *s, ot_task *task) {
  (void)s;
  task->attributes.epsilon *= 100;
}

static void own_keys(const ot_schedule *s, ot_task *task) {
  (void)s;
  task->attributes.key_index = task->attributes.context_index;
}

static void next_shard(const ot_schedule *s, ot_task *task) {
  (void)s;
  task->attributes.first_vocab++;
}

static void sum_of_gates(const ot_schedule *s, ot_task *task) {
  (void)s;
  task->attributes.scale *= 2;
}

static void not_renormalised(const ot_schedule *s, ot_task *task) {
  (void)s;
  task->attributes.renormalise = !task->attributes.renormalise;
}

static void forward(ot_schedule *s, ot_op_kind op, task_edit edit) {
  tasks_edit(s, (task_kind){FORWARD_PHASES, op, -1}, edit);
}

static void backward(ot_schedule *s, ot_op_kind op, task_edit edit) {
  tasks_edit(s, (task_kind){BACKWARD_PHASES, op, -1}, edit);
}

// ---- attention ----

static void window_in_backward(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  backward(s, OT_OP_ATTENTION_GRAD, longer_window);
}

static void window_in_training(ot_schedule *s, ot_arena *arena) {
  window_in_backward(s, arena);
  forward(s, OT_OP_ATTENTION, longer_window);
}

static void scale_in_backward(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  backward(s, OT_OP_ATTENTION_GRAD, larger_scale);
  backward(s, OT_OP_ATTENTION_BLOCK_GRAD, larger_scale);
}

static void scale_in_training(ot_schedule *s, ot_arena *arena) {
  scale_in_backward(s, arena);
  forward(s, OT_OP_ATTENTION, larger_scale);
  forward(s, OT_OP_ATTENTION_BLOCK, larger_scale);
}

static void no_rope_backwards(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  tasks_drop(s, (task_kind){BACKWARD_PHASES, OT_OP_ROPE_GRAD, -1});
  backward(s, OT_OP_HEAD_NORM_GRAD, no_rotation);
}

static void keys_masked_as_own(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  forward(s, OT_OP_ATTENTION_BLOCK, own_keys);
  backward(s, OT_OP_ATTENTION_BLOCK_GRAD, own_keys);
}

// ---- norms, branches, head ----

static void offset_in_backward(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  backward(s, OT_OP_RMSNORM_GRAD, offset_of_one);
}

static void no_residual_gradient(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  backward(s, OT_OP_RMSNORM_GRAD, no_partial);
  backward(s, OT_OP_LAYERNORM_GRAD, no_partial);
}

static void activation_in_backward(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  backward(s, OT_OP_GLU_GRAD, other_activation);
  backward(s, OT_OP_ACTIVATION_GRAD, other_activation);
}

static void epsilon_in_training(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  forward(s, OT_OP_RMSNORM, other_epsilon);
  forward(s, OT_OP_LAYERNORM, other_epsilon);
}

static void vocabulary_shifted(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  forward(s, OT_OP_HEAD_STATISTICS, next_shard);
  forward(s, OT_OP_HEAD_DLOGITS, next_shard);
}

// ---- experts ----

static void gates_doubled(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  forward(s, OT_OP_ROUTE, sum_of_gates);
}

static void gates_in_backward(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  backward(s, OT_OP_ROUTE_GRAD, not_renormalised);
}

static void expert_choice(ot_run *run) { run->model.moe.routing = OT_MOE_EXPERT_CHOICE; }

static void drop_by_score(ot_run *run) { run->model.moe.routing = OT_MOE_DROP_BY_SCORE; }

// ---- formats ----

static void sums_on_the_wire(ot_run *run) {
  run->precision.reduce = OT_BF16;
  run->precision.sum = OT_SUM_WIRE;
}

static void narrow_moments(ot_run *run) {
  run->precision.moments = OT_BF16;
  run->optimizer.betas[1] = 0.999;
}

static void no_master(ot_run *run) {
  run->precision.params = run->precision.master = OT_BF16;
  run->optimizer.lr = 3e-5;
}

static void half_moments(ot_run *run) { run->precision.moments = OT_F16; }

// ---- inference ----

static void decoder_epsilon(ot_model *model) { model->norm_epsilon *= 10; }
static void decoder_scale(ot_model *model) { model->attention_scale *= 1.01; }
static void decoder_theta(ot_model *model) {
  model->rope.theta *= 1.1;
  model->rope_local.theta *= 1.1;
}
static void decoder_window(ot_model *model) { model->window[0] = 5; }
static void decoder_offset(ot_model *model) { model->norm_offset += 0.01; }
static void decoder_embedding(ot_model *model) { model->embedding_scale *= 1.02; }
static void decoder_activation(ot_model *model) {
  const bool silu = model->activation == OT_ACTIVATION_SILU;
  model->activation = silu ? OT_ACTIVATION_GELU : OT_ACTIVATION_SILU;
}
static void decoder_gelu(ot_model *model) { model->activation = OT_ACTIVATION_GELU; }

enum { ROPE = TENSOR | STAGES | SHARDED };

static const mutant table[] = {
    {"window_one_longer_in_backward", "after Megatron-LM 1464",
     "the attention backward sees one key more", TENSOR, IN_SHARED_CODE, BY_STEP,
     .amend = window_in_backward},
    {"window_one_longer_in_training", "after arXiv 2510.26788",
     "training sees one key more than inference", TENSOR, IN_SHARED_CODE, BY_STEP,
     .amend = window_in_training},
    {"attention_scale_in_backward", "after Megatron-LM 1464",
     "the attention backward uses a different scale", DENSE | EXPERTS, IN_SHARED_CODE, BY_STEP,
     .amend = scale_in_backward},
    {"attention_scale_in_training", "after arXiv 2510.26788",
     "attention scale differs between training and inference", DENSE | EXPERTS, IN_SHARED_CODE,
     BY_STEP, .amend = scale_in_training},
    {"rotation_not_undone", "after TTrace (arXiv 2506.09280)",
     "gradients of queries and keys are not rotated back", ROPE | EXPERTS, IN_SHARED_CODE, BY_STEP,
     .amend = no_rope_backwards},
    {"ring_masks_all_keys_as_its_own", "Megatron-LM 906",
     "shards of other ranks are masked like the local one", CONTEXT, IN_LAYOUT, BY_RANKS,
     .amend = keys_masked_as_own},
    {"norm_offset_in_backward", "after TTrace (arXiv 2506.09280)",
     "the norm backward offsets the weights by one", ROPE | EXPERTS, IN_SHARED_CODE, BY_STEP,
     .amend = offset_in_backward},
    {"residual_gradient_lost", "after TTrace (arXiv 2506.09280)",
     "the residual path of the gradient is missing", DENSE | EXPERTS, IN_SHARED_CODE, BY_STEP,
     .amend = no_residual_gradient},
    {"activation_in_backward", "after TTrace (arXiv 2506.09280)",
     "the backward uses a different activation", DENSE, IN_SHARED_CODE, BY_STEP,
     .amend = activation_in_backward},
    {"epsilon_in_training", "after arXiv 2510.26788",
     "norm epsilon differs between training and inference", DENSE | EXPERTS, IN_SHARED_CODE,
     BY_STEP, .amend = epsilon_in_training},
    {"epsilon_of_one_rank", "after arXiv 2510.26788", "one rank uses a different norm epsilon",
     DENSE | EXPERTS, ON_LAST_RANK, BY_RANKS, .amend = epsilon_in_training},
    {"vocabulary_shifted_on_one_rank", "after Megatron-LM 7452",
     "a vocabulary shard starts its ids one too high", TENSOR | BOTH, ON_LAST_RANK, BY_RANKS,
     .amend = vocabulary_shifted},
    {"gates_doubled", "after Megatron-LM 7452", "training gates are twice those of inference",
     EXPERTS, IN_SHARED_CODE, BY_STEP, .amend = gates_doubled},
    {"gates_in_backward", "after Megatron-LM 7452", "the gate backward ignores the renormalisation",
     EXPERTS, IN_SHARED_CODE, BY_STEP, .amend = gates_in_backward},
    {"experts_choose", "arXiv 2408.15664, 2603.11535",
     "expert choice over the sequence sees future tokens", EXPERTS, IN_SHARED_CODE, BY_CAUSALITY,
     .settings = expert_choice},
    {"drops_by_score", "arXiv 2601.15370", "token dropping depends on later tokens", EXPERTS,
     IN_SHARED_CODE, BY_CAUSALITY, .settings = drop_by_score},
    {"sums_in_bf16", "pytorch 106395, nccl 1055",
     "gradients of 1,024 ranks are reduced sequentially in bf16", TENSOR | STAGES | CONTEXT,
     IN_SHARED_CODE, BY_PRECISION, .settings = sums_on_the_wire},
    {"bf16_moments", "after torchtitan docs/bf16_optimizer_states.md",
     "second moments in bf16 with beta2 = 0.999", DENSE, IN_SHARED_CODE, BY_PRECISION,
     .settings = narrow_moments},
    {"bf16_weights_alone", "after pytorch 106395",
     "bf16 weights without master copies, learning rate 3e-5", DENSE, IN_SHARED_CODE, BY_SETTINGS,
     .settings = no_master},
    {"fp16_moments", "after OPT-175B logbook", "moments and epsilon in fp16", DENSE, IN_SHARED_CODE,
     BY_SETTINGS, .settings = half_moments},
    {"decoder_epsilon", "arXiv 2510.26788", "inference has ten times the epsilon", DENSE,
     IN_SHARED_CODE, BY_DRIFT, .decoder = decoder_epsilon},
    {"decoder_attention_scale", "arXiv 2510.26788", "inference scales attention by 1 % more", DENSE,
     IN_SHARED_CODE, BY_DRIFT, .decoder = decoder_scale},
    {"decoder_rope_theta", "arXiv 2510.26788", "inference uses a different rope base", ROPE,
     IN_SHARED_CODE, BY_DRIFT, .decoder = decoder_theta},
    {"decoder_window", "arXiv 2510.26788", "inference sees fewer keys in one layer",
     TENSOR | STAGES, IN_SHARED_CODE, BY_DRIFT, .decoder = decoder_window},
    {"decoder_norm_offset", "arXiv 2510.26788", "inference offsets norm weights, training does not",
     ROPE, IN_SHARED_CODE, BY_DRIFT, .decoder = decoder_offset},
    {"decoder_embedding_scale", "arXiv 2510.26788", "inference scales embeddings by 2 % more",
     DENSE, IN_SHARED_CODE, BY_DRIFT, .decoder = decoder_embedding},
    {"decoder_activation", "arXiv 2510.26788", "inference uses a different activation", DENSE,
     IN_SHARED_CODE, BY_DRIFT, .decoder = decoder_activation},
    {"decoder_gelu_form", "after arXiv 2510.26788",
     "inference uses exact GELU, training the tanh form", CONTEXT | BOTH, IN_SHARED_CODE, BY_DRIFT,
     .decoder = decoder_gelu,
     .escapes = "at initial weights the two forms differ by less than drift allows for rounding"},
};

mutant_list mutants_of_mathematics(void) { return (mutant_list){table, OT_COUNT(table)}; }
