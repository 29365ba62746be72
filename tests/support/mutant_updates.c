// SPDX-License-Identifier: Apache-2.0
// Gradient clipping and the optimizer: faults applied to correct gradients.
#include <math.h>

#include "base/math.h"
#include "describe/learning_rate.h"
#include "support/mutant.h"
#include "support/mutant_tasks.h"

enum { CLIP_PHASE = 1 << OT_PHASE_CLIP, NORM_PHASE = 1 << OT_PHASE_NORM };

static const task_kind adamw = {UPDATE_PHASE, OT_OP_ADAMW, -1};
static const task_kind clip = {CLIP_PHASE, OT_OP_CLIP_FACTOR, -1};

// ---- clipping ----

static void clip_off(const ot_schedule *s, ot_task *task) {
  (void)s;
  task->attributes.clip = 0;
}

static void no_clip(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  tasks_edit(s, clip, clip_off);
}

static void norm_of_one_rank(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  const int n = s->num_segments;
  for (int i = 0; i < n; i++) {  // the first reduction is that of squares
    ot_segment *const segment = &s->segments[i];
    if (segment->phase != OT_PHASE_CLIP || segment->tasks[0].op != OT_OP_ALL_REDUCE) continue;
    for (int t = 0; t + 1 < segment->num_tasks; t++) segment->tasks[t] = segment->tasks[t + 1];
    segment->num_tasks--;
  }
}

static void norm_counts_twice(ot_schedule *s, ot_arena *arena) {
  tasks_repeat(s, arena, (task_kind){CLIP_PHASE, OT_OP_ALL_REDUCE, OT_GROUP_WORLD});
}

static void norm_lacks_a_block(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  for (int i = 0; i < s->num_segments; i++) {
    if (s->segments[i].phase != OT_PHASE_NORM || s->segments[i].num_tasks == 0) continue;
    s->segments[i].num_tasks = 0;
    return;
  }
}

// ---- AdamW ----

static void set_beta1(const ot_schedule *s, ot_task *task) {
  (void)s;
  task->attributes.beta1 = 1;
}

static void set_beta2(const ot_schedule *s, ot_task *task) {
  (void)s;
  task->attributes.beta2 = 0.999;
}

static void set_no_betas(const ot_schedule *s, ot_task *task) {
  (void)s;
  task->attributes.beta1 = task->attributes.beta2 = 0;
}

static void set_epsilon(const ot_schedule *s, ot_task *task) {
  (void)s;
  task->attributes.epsilon = 1e-4;
}

static void set_decay(const ot_schedule *s, ot_task *task) {
  (void)s;
  task->attributes.weight_decay = 0.1;
}

static void set_no_decay(const ot_schedule *s, ot_task *task) {
  (void)s;
  task->attributes.weight_decay = 0;
}

static void set_factor(const ot_schedule *s, ot_task *task) {
  (void)s;
  if (task->attributes.weight_decay > 0) task->attributes.learning_rate_factor *= 2;
}

static void ignore_master(const ot_schedule *s, ot_task *task) {
  (void)s;
  task->out[3] = (ot_operand){.base = OT_BASE_NONE, .value = -1};
}

static void beta1_is_one(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  tasks_edit(s, adamw, set_beta1);
}

static void other_beta2(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  tasks_edit(s, adamw, set_beta2);
}

static void no_betas(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  tasks_edit(s, adamw, set_no_betas);
}

static void other_epsilon(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  tasks_edit(s, adamw, set_epsilon);
}

static void decay_everything(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  tasks_edit(s, adamw, set_decay);
}

static void decay_nothing(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  tasks_edit(s, adamw, set_no_decay);
}

static void matrices_twice_as_fast(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  tasks_edit(s, adamw, set_factor);
}

static void no_master(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  tasks_edit(s, adamw, ignore_master);
}

static void no_update(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  tasks_drop(s, adamw);
}

// The last tensor of the first block that this rank updates.
static void tensor_not_updated(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  for (int i = 0; i < s->num_segments; i++) {
    if (s->segments[i].phase != OT_PHASE_UPDATE || s->segments[i].num_tasks == 0) continue;
    s->segments[i].num_tasks--;
    return;
  }
}

// ---- scalars ----

static void set(const mutant_site *site, ot_step_scalar scalar, double value) {
  ot_executor_set_scalar(ot_runtime_executor(site->runtime), scalar, value);
}

static double get(const mutant_site *site, ot_step_scalar scalar) {
  return ot_executor_scalar(ot_runtime_executor(site->runtime), scalar);
}

static void corrections_at(const mutant_site *site, double t) {
  set(site, OT_SCALAR_CORRECTION_1, 1 / (1 - ot_pow(site->run->optimizer.betas[0], t)));
  set(site, OT_SCALAR_CORRECTION_2, 1 / (1 - ot_pow(site->run->optimizer.betas[1], t)));
}

static void corrections_ahead(const mutant_site *site) {
  corrections_at(site, (double)site->step + 2);
}

static void corrections_of_a_first_step(const mutant_site *site) { corrections_at(site, 1); }

static void no_corrections(const mutant_site *site) {
  set(site, OT_SCALAR_CORRECTION_1, 1);
  set(site, OT_SCALAR_CORRECTION_2, 1);
}

static void larger_rate(const mutant_site *site) {
  set(site, OT_SCALAR_LEARNING_RATE, 1.01 * get(site, OT_SCALAR_LEARNING_RATE));
}

static void rate_of_the_step_before(const mutant_site *site) {
  set(site, OT_SCALAR_LEARNING_RATE,
      ot_learning_rate_at(site->run, site->step > 0 ? site->step - 1 : 0));
}

// ---- the table ----

static const mutant table[] = {
    {"clip_on_some_ranks", "BLOOM-176B, 2022-03-24", "one rank does not clip", DENSE | EXPERTS,
     ON_LAST_RANK, BY_RANKS, .amend = no_clip},
    {"no_clip", "after BLOOM-176B, 2022-03-24", "no rank clips although clipping is set",
     DENSE | EXPERTS, IN_SHARED_CODE, BY_STEP, .amend = no_clip},
    {"clip_by_the_norm_of_one_rank", "after Megatron-LM 7452",
     "each rank clips by its local gradient norm", DENSE, IN_LAYOUT, BY_RANKS,
     .amend = norm_of_one_rank},
    {"norm_counts_ranks_twice", "Megatron-LM 7452", "squares are reduced over the world twice",
     DENSE | EXPERTS, IN_LAYOUT, BY_STEP, .amend = norm_counts_twice},
    {"norm_lacks_a_block", "after Megatron-LM 7452", "the norm omits the first block",
     DENSE | EXPERTS, IN_LAYOUT, BY_STEP, .amend = norm_lacks_a_block},
    {"first_moment_never_moves", "after TrainCheck (arXiv 2506.14813)", "beta1 is one", DENSE,
     IN_SHARED_CODE, BY_STEP, .amend = beta1_is_one},
    {"another_beta2", "OPT-175B logbook", "beta2 comes from a checkpoint, not from the settings",
     DENSE | EXPERTS, IN_SHARED_CODE, BY_STEP, .amend = other_beta2},
    {"betas_are_zero", "OPT-175B logbook", "both betas are zero: an intended SGD run", DENSE,
     IN_SHARED_CODE, BY_STEP, .amend = no_betas},
    {"another_epsilon", "after OPT-175B logbook", "AdamW's epsilon is 1e-4", DENSE, IN_SHARED_CODE,
     BY_STEP, .amend = other_epsilon},
    {"norms_decay", "after TrainCheck (arXiv 2506.14813)",
     "weight decay also applies to norms and biases", DENSE, IN_SHARED_CODE, BY_STEP,
     .amend = decay_everything},
    {"nothing_decays", "after TrainCheck (arXiv 2506.14813)", "weight decay is never applied",
     DENSE, IN_SHARED_CODE, BY_STEP, .amend = decay_nothing},
    {"group_of_another_rate", "after TrainCheck (arXiv 2506.14813)",
     "matrices use twice the learning rate", DENSE, IN_SHARED_CODE, BY_STEP,
     .amend = matrices_twice_as_fast},
    {"master_weights_ignored", "after pytorch 106395",
     "updates go to bf16 weights, master weights stay", SHARDED, IN_SHARED_CODE, BY_STEP,
     .amend = no_master},
    {"a_rank_does_not_update", "after TrainCheck (arXiv 2506.14813)", "one rank skips the update",
     DENSE | EXPERTS, ON_LAST_RANK, BY_STEP, .amend = no_update},
    {"a_tensor_never_moves", "OPT-175B logbook", "the optimizer omits a tensor", DENSE | EXPERTS,
     IN_SHARED_CODE, BY_RANKS, .amend = tensor_not_updated},
    {"bias_correction_a_step_ahead", "after TrainCheck (arXiv 2506.14813)",
     "bias corrections are those of the next step", DENSE, IN_SHARED_CODE, BY_STEP,
     .before = corrections_ahead},
    {"bias_correction_starts_anew", "after OPT-175B logbook",
     "bias corrections are always those of the first step", DENSE, IN_SHARED_CODE, BY_STEP,
     .before = corrections_of_a_first_step},
    {"no_bias_correction", "after TrainCheck (arXiv 2506.14813)", "moments are not corrected",
     DENSE, IN_SHARED_CODE, BY_STEP, .before = no_corrections},
    {"learning_rate_of_one_rank", "BLOOM-176B, 2022-03-28",
     "one rank's learning rate is 1 % larger", DENSE | EXPERTS, ON_LAST_RANK, BY_RANKS,
     .before = larger_rate},
    {"learning_rate_a_step_late", "after OPT-175B logbook",
     "each step uses the previous learning rate", DENSE, IN_SHARED_CODE, BY_STEP,
     .before = rate_of_the_step_before},
};

mutant_list mutants_of_updates(void) { return (mutant_list){table, OT_COUNT(table)}; }
