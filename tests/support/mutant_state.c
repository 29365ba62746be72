// SPDX-License-Identifier: Apache-2.0
// Corrupted memory, state that is not restored, files that differ from the model, and bad batches.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "checkpoint/safetensors.h"
#include "support/mutant.h"
#include "support/tensor_data.h"

enum { LATE_STEP = 60 };

// ---- memory ----

// Flips bit `bit` of one element of the first matrix of which this rank holds a copy.
static void flip(const mutant_site *site, ot_parameter_copy copy, int bit) {
  const ot_graph *const graph = ot_runtime_any_graph(site->runtime);
  ot_executor *const executor = ot_runtime_executor(site->runtime);
  const int64_t size = ot_dtype_bytes(ot_runtime_copy_dtype(site->runtime, copy));
  for (int i = 0; i < graph->num_parameters; i++) {
    const ot_parameter *const p = &graph->parameters[i];
    const ot_bucket_range held = ot_runtime_held_range(site->runtime, p->block, copy);
    const int64_t first = (p->offset > held.first ? p->offset : held.first) + 40;
    const int64_t end = p->offset + ot_parameter_elements(p);
    const bool has = first < end && first < held.first + held.count;
    if (p->kind == OT_PARAMETER_VECTOR || !has) continue;
    const int64_t at = held.offset + (first - held.first) * size;
    uint64_t word = 0;
    ot_executor_read(executor, at, &word, size);
    word ^= UINT64_C(1) << bit;
    ot_executor_write(executor, at, &word, size);
    return;
  }
}

// After each step: with ZeRO the next gather overwrites it with the owner's weights.
static void flip_weight(const mutant_site *site) { flip(site, OT_COPY_WEIGHT, 3); }

static void flip_moment(const mutant_site *site) {
  if (site->step == 0) flip(site, OT_COPY_MOMENT_1, 12);
}

static void flip_master(const mutant_site *site) {
  if (site->step == 0) flip(site, OT_COPY_MASTER, 3);
}

static void weight_becomes_huge(const mutant_site *site) {
  if (site->step == LATE_STEP) flip(site, OT_COPY_WEIGHT, 30);
}

static void moment_bit_late(const mutant_site *site) {
  if (site->step == LATE_STEP) flip(site, OT_COPY_MOMENT_2, 2);
}

static void other_initial_weights(const mutant_site *site) {
  (void)ot_runtime_initialize(site->runtime, (uint64_t)site->run->seed + 1);
}

static void weights_rounded(const mutant_site *site) {
  ot_executor *const executor = ot_runtime_executor(site->runtime);
  const int blocks = ot_runtime_any_graph(site->runtime)->num_blocks;
  for (int block = 0; block < blocks; block++) {
    const ot_bucket_range held = ot_runtime_held_range(site->runtime, block, OT_COPY_WEIGHT);
    for (int64_t i = 0; i < held.count; i++) {
      uint32_t word;
      ot_executor_read(executor, held.offset + i * 4, &word, sizeof word);
      word &= UINT32_C(0xffff0000);
      ot_executor_write(executor, held.offset + i * 4, &word, sizeof word);
    }
  }
}

// ---- late in training ----

static void a_batch_of_one_token(const mutant_site *site, ot_micro_batch *rows) {
  if (site->step != LATE_STEP) return;
  for (int64_t i = 0; i < rows->B * rows->T; i++) {
    rows->tokens[i] = 7;
    if (rows->targets[i] >= 0) rows->targets[i] = 7;
  }
}

static void a_huge_rate(const mutant_site *site) {
  if (site->step != LATE_STEP) return;
  ot_executor_set_scalar(ot_runtime_executor(site->runtime), OT_SCALAR_LEARNING_RATE, 2.0);
}

// ---- resuming ----

static void moments_zero(const mutant_site *site) { ot_runtime_zero_moments(site->runtime); }

static void move(const mutant_site *site, int64_t steps, int64_t samples) {
  ot_position position = ot_trainer_position(site->trainer);
  position.step += steps;
  position.next_sample += samples;
  ot_trainer_set_position(site->trainer, &position);
}

static void data_begin_anew(const mutant_site *site) {
  move(site, 0, -ot_trainer_position(site->trainer).next_sample);
}

static void steps_begin_anew(const mutant_site *site) {
  move(site, -ot_trainer_position(site->trainer).step, 0);
}

static void one_sample_ahead(const mutant_site *site) { move(site, 0, 1); }

static void weights_start_anew(const mutant_site *site) {
  (void)ot_runtime_initialize(site->runtime, (uint64_t)site->run->seed);
}

// ---- files ----

// Changes the bytes of one tensor of a safetensors file.
static void change_tensor(const char *path, const char *part,
                          void (*change)(float *values, const ot_safetensors_tensor *tensor)) {
  char file[4096];
  snprintf(file, sizeof file, "%s/model.safetensors", path);
  ot_safetensors *set = NULL;
  if (ot_safetensors_create(file, "model", &set) != OT_OK) return;
  for (int i = 0; i < ot_safetensors_count(set); i++) {
    const ot_safetensors_tensor *const t = ot_safetensors_tensor_at(set, i);
    if (!strstr(t->name, part)) continue;
    float *const values = malloc((size_t)t->bytes);
    memcpy(values, tensor_data(set, i), (size_t)t->bytes);
    change(values, t);
    FILE *const out = fopen(file, "r+b");
    if (out && fseek(out, (long)t->offset, SEEK_SET) == 0) {
      (void)!fwrite(values, 1, (size_t)t->bytes, out);
    }
    if (out) fclose(out);
    free(values);
    break;
  }
  ot_safetensors_destroy(&set);
}

static void transpose(float *values, const ot_safetensors_tensor *t) {
  const int64_t rows = t->dim[0], cols = t->dim[1];
  float *const from = malloc((size_t)t->bytes);
  memcpy(from, values, (size_t)t->bytes);
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t c = 0; c < cols; c++) values[c * rows + r] = from[r * cols + c];
  }
  free(from);
}

static void round_down(float *values, const ot_safetensors_tensor *t) {
  for (int64_t i = 0; i < t->elements; i++) {
    uint32_t word;
    memcpy(&word, &values[i], sizeof word);
    word &= UINT32_C(0xffff0000);
    memcpy(&values[i], &word, sizeof word);
  }
}

static void matrix_transposed(const char *path) {
  change_tensor(path, "o_proj.weight", transpose);
  change_tensor(path, "attn.c_proj.weight", transpose);
}

static void tensor_rounded(const char *path) {
  change_tensor(path, "down_proj.weight", round_down);
  change_tensor(path, "mlp.c_proj.weight", round_down);
}

static const mutant table[] = {
    {"weight_bit_flips", "arXiv 2502.12340", "one bit of a weight flips on one rank",
     TENSOR | STAGES | CONTEXT | EXPERTS, ON_LAST_RANK, BY_RANKS, .after = flip_weight},
    {"moment_bit_flips", "arXiv 2502.12340", "one bit of a moment flips on one rank",
     CONTEXT | SHARDED, ON_LAST_RANK, BY_RANKS, .after = flip_moment},
    {"master_bit_flips", "arXiv 2502.12340", "one bit of a master weight flips on one rank",
     SHARDED, ON_LAST_RANK, BY_RANKS, .after = flip_master},
    {"ranks_begin_unlike", "BLOOM-176B, 2022-03-28", "initial weights differ on one rank", DENSE,
     ON_LAST_RANK, BY_RANKS, .created = other_initial_weights},
    {"weights_rounded_each_step", "after pytorch 106395",
     "fp32 weights are rounded to bf16 after each step", TENSOR | STAGES | CONTEXT | EXPERTS,
     IN_SHARED_CODE, BY_STEP, .after = weights_rounded},
    {"weight_becomes_huge", "arXiv 2604.00726",
     "a high bit of a weight flips at step 60, on all ranks alike", TENSOR | STAGES | CONTEXT,
     IN_LAYOUT, BY_MONITOR, .before = weight_becomes_huge},
    {"moment_bit_flips_without_replica", "arXiv 2604.00726",
     "a low bit of a second moment flips at step 60, where no rank has a copy", TENSOR | STAGES,
     ON_LAST_RANK, BY_MONITOR, .before = moment_bit_late},
    {"a_batch_of_one_token", "PaLM (arXiv 2204.02311)",
     "the batch of step 60 repeats a single token", DENSE | EXPERTS, IN_LAYOUT, BY_MONITOR,
     .rows = a_batch_of_one_token},
    {"a_huge_learning_rate", "OPT-175B logbook", "the learning rate of step 60 is 2",
     DENSE | EXPERTS, IN_LAYOUT, BY_MONITOR, .before = a_huge_rate},
    {"moments_not_restored", "BLOOM-104B, experiment 5", "a resumed run starts with zero moments",
     DENSE | EXPERTS, IN_SHARED_CODE, BY_STEP, .resumed = moments_zero},
    {"data_begin_anew", "Megatron-Bridge 5257", "a resumed run reads the first samples again",
     DENSE | EXPERTS, IN_SHARED_CODE, BY_STEP, .resumed = data_begin_anew},
    {"data_one_ahead", "transformers 46628", "a resumed run skips one sample", DENSE | EXPERTS,
     IN_SHARED_CODE, BY_STEP, .resumed = one_sample_ahead},
    {"steps_begin_anew", "after OPT-175B logbook", "a resumed run restarts its step counter", DENSE,
     IN_SHARED_CODE, BY_STEP, .resumed = steps_begin_anew},
    {"counters_of_one_rank_restored", "Megatron-LM 6858", "one rank resumes elsewhere in the data",
     DENSE | EXPERTS, ON_LAST_RANK, BY_STEP, .resumed = one_sample_ahead},
    {"weights_not_restored", "after BLOOM-104B, experiment 5",
     "a resumed run starts with the initial weights", DENSE, IN_SHARED_CODE, BY_STEP,
     .resumed = weights_start_anew},
    {"export_transposed", "after arXiv 2506.14813", "a square matrix is exported transposed",
     TENSOR | STAGES | SHARDED | EXPERTS, IN_SHARED_CODE, BY_DRIFT, .exported = matrix_transposed},
    {"export_rounded", "after arXiv 2510.26788",
     "a matrix is exported in less precision than declared", TENSOR | STAGES | CONTEXT | BOTH,
     IN_SHARED_CODE, BY_DRIFT, .exported = tensor_rounded},
};

mutant_list mutants_of_state(void) { return (mutant_list){table, OT_COUNT(table)}; }
