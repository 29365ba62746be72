// SPDX-License-Identifier: Apache-2.0
// Wrongly loaded batches and wrong dropout masks.
#include <string.h>

#include "data/data_loader.h"
#include "support/mutant.h"
#include "support/mutant_tasks.h"

static void count(ot_micro_batch *rows) {
  rows->num_targets = 0;
  for (int64_t i = 0; i < rows->B * rows->T; i++) rows->num_targets += rows->targets[i] >= 0;
}

// ---- sample selection ----

static void load(const mutant_site *site, int64_t first, ot_micro_batch *rows) {
  ot_data_loader *loader = NULL;
  if (ot_data_loader_create(site->run, &loader) != OT_OK) return;
  (void)ot_data_loader_train(loader, first, rows);
  ot_data_loader_destroy(&loader);
}

static void samples_of_the_rank_before(const mutant_site *site, ot_micro_batch *rows) {
  if (ot_world_data_index(site->world) == 0) return;
  load(site, rows->sample_ids[0] - rows->B, rows);
}

static void samples_of_the_first_step(const mutant_site *site, ot_micro_batch *rows) {
  load(site, rows->sample_ids[0] - site->step * site->run->batch.global_batch_size, rows);
}

static void samples_of_another_rank(const mutant_site *site, ot_micro_batch *rows) {
  load(site, rows->sample_ids[0] + 1000, rows);
}

static void one_corrupt_token(const mutant_site *site, ot_micro_batch *rows) {
  (void)site;
  rows->tokens[rows->T / 2] = (rows->tokens[rows->T / 2] + 1) % 250;
}

// ---- targets, documents ----

static void not_shifted(const mutant_site *site, ot_micro_batch *rows) {
  (void)site;
  for (int64_t i = 0; i < rows->B * rows->T; i++) {
    if (rows->targets[i] >= 0) rows->targets[i] = rows->tokens[i];
  }
}

static void shifted_twice(const mutant_site *site, ot_micro_batch *rows) {
  (void)site;
  for (int64_t i = 0; i + 1 < rows->B * rows->T; i++) {
    if (rows->targets[i] >= 0) rows->targets[i] = rows->targets[i + 1];
  }
  count(rows);
}

static void no_document_mask(const mutant_site *site, ot_micro_batch *rows) {
  (void)site;
  memset(rows->doc_starts, 0, (size_t)(rows->B * rows->T) * sizeof *rows->doc_starts);
}

static void mask_one_too_early(const mutant_site *site, ot_micro_batch *rows) {
  (void)site;
  for (int64_t i = 0; i < rows->B * rows->T; i++) rows->doc_starts[i] -= rows->doc_starts[i] > 0;
}

static void positions_go_on(const mutant_site *site, ot_micro_batch *rows) {
  (void)site;
  for (int64_t i = 0; i < rows->B * rows->T; i++) rows->positions[i] = (int32_t)(i % rows->T);
}

static void ends_are_trained(const mutant_site *site, ot_micro_batch *rows) {
  (void)site;
  for (int64_t i = 0; i + 1 < rows->B * rows->T; i++) {
    if (rows->targets[i] < 0) rows->targets[i] = rows->tokens[i + 1];
  }
  count(rows);
}

static void half_is_masked(const mutant_site *site, ot_micro_batch *rows) {
  (void)site;
  for (int64_t i = 0; i < rows->B * rows->T; i += 2) rows->targets[i] = -1;
  count(rows);
}

// What a loader that does not mask documents makes of the audit's own rows.
static void loader_without_mask(ot_micro_batch *rows) { no_document_mask(NULL, rows); }
static void loader_one_too_early(ot_micro_batch *rows) { mask_one_too_early(NULL, rows); }

// ---- dropout masks ----

static void one_mask_for_all(const mutant_site *site, ot_micro_batch *rows) {
  (void)site;
  for (int64_t b = 0; b < rows->B; b++) rows->sample_ids[b] = 0;
}

static void other_seed(const ot_schedule *s, ot_task *task) {
  (void)s;
  task->attributes.seed++;
}

static void same_stream(const ot_schedule *s, ot_task *task) {
  (void)s;
  task->attributes.rng_stream = 1;
}

static void other_stream(const ot_schedule *s, ot_task *task) {
  (void)s;
  task->attributes.rng_stream ^= 1;
}

static void seed_of_forward(ot_schedule *s, task_edit edit) {
  tasks_edit(s, (task_kind){FORWARD_PHASES, OT_OP_DROPOUT, -1}, edit);
}

static void masks_of_another_seed(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  seed_of_forward(s, other_seed);
  tasks_edit(s, (task_kind){BACKWARD_PHASES, OT_OP_DROPOUT_GRAD, -1}, other_seed);
}

static void masks_of_one_stream(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  seed_of_forward(s, same_stream);
  tasks_edit(s, (task_kind){BACKWARD_PHASES, OT_OP_DROPOUT_GRAD, -1}, same_stream);
}

static void backward_draws_anew(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  tasks_edit(s, (task_kind){BACKWARD_PHASES, OT_OP_DROPOUT_GRAD, -1}, other_stream);
}

static const mutant table[] = {
    {"same_samples_on_two_ranks", "after BLOOM-176B, 2022-03-28",
     "data-parallel ranks read the same samples", TENSOR | STAGES | CONTEXT | SHARDED | EXPERTS,
     IN_LAYOUT, BY_RANKS, .rows = samples_of_the_rank_before},
    {"same_samples_every_step", "after Megatron-Bridge 5257", "the data position does not advance",
     DENSE | EXPERTS, IN_SHARED_CODE, BY_STEP, .rows = samples_of_the_first_step},
    {"a_rank_reads_other_samples", "BLOOM-176B, 2022-03-28",
     "one rank of a replica loads a wrong batch", DENSE, ON_LAST_RANK, BY_RANKS,
     .rows = samples_of_another_rank},
    {"a_token_is_corrupt", "arXiv 2502.12340", "one rank corrupts a token of each sequence",
     DENSE | EXPERTS, ON_LAST_RANK, BY_STEP, .rows = one_corrupt_token},
    {"targets_not_shifted", "after nanoVLM 204", "each token predicts itself", DENSE | EXPERTS,
     IN_SHARED_CODE, BY_STEP, .rows = not_shifted},
    {"targets_shifted_twice", "after nanoVLM 204", "each token predicts the second next one",
     DENSE | EXPERTS, IN_SHARED_CODE, BY_STEP, .rows = shifted_twice},
    {"documents_see_each_other", "transformers 46634", "packed documents attend to each other",
     DENSE, IN_SHARED_CODE, BY_STEP, .rows = no_document_mask},
    {"documents_see_one_token_before", "WrinkleFree 53",
     "each document sees the last token of the previous one", DENSE, IN_SHARED_CODE, BY_STEP,
     .rows = mask_one_too_early},
    {"positions_not_reset", "after nanoVLM 204", "positions continue across documents", DENSE,
     IN_SHARED_CODE, BY_STEP, .rows = positions_go_on},
    {"ends_of_documents_are_trained", "after transformers 34191",
     "a document's last token predicts the next document", DENSE, IN_SHARED_CODE, BY_STEP,
     .rows = ends_are_trained},
    {"half_the_targets_masked", "after transformers 34191", "every other target is masked",
     DENSE | EXPERTS, IN_SHARED_CODE, BY_STEP, .rows = half_is_masked},
    {"loader_marks_no_documents", "WrinkleFree 53", "only positions restart at documents", DENSE,
     IN_SHARED_CODE, BY_CAUSALITY, .swapped = loader_without_mask},
    {"loader_marks_documents_early", "transformers 46634", "documents begin one token too early",
     DENSE, IN_SHARED_CODE, BY_CAUSALITY, .swapped = loader_one_too_early},
    {"one_mask_for_all_samples", "after BLOOM-176B, 2022-03-28",
     "dropout draws the same mask in every micro-batch", CONTEXT | BOTH, IN_SHARED_CODE, BY_STEP,
     .rows = one_mask_for_all},
    {"masks_differ_between_ranks", "BLOOM-176B, 2022-03-28 (Megatron-DeepSpeed PR 276)",
     "one rank draws from a different seed", CONTEXT, ON_LAST_RANK, BY_RANKS,
     .amend = masks_of_another_seed},
    {"masks_of_another_seed", "after Megatron-LM 6858", "dropout ignores the run's seed",
     CONTEXT | BOTH, IN_SHARED_CODE, BY_STEP, .amend = masks_of_another_seed},
    {"masks_of_one_stream", "after BLOOM-176B, 2022-03-28", "all layers draw the same mask",
     CONTEXT | BOTH, IN_SHARED_CODE, BY_STEP, .amend = masks_of_one_stream},
    {"backward_draws_another_mask", "after Megatron-LM 6858",
     "the backward of dropout uses a different mask", CONTEXT | BOTH, IN_SHARED_CODE, BY_STEP,
     .amend = backward_draws_anew},
};

mutant_list mutants_of_data(void) { return (mutant_list){table, OT_COUNT(table)}; }
