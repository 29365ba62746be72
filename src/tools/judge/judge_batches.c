// SPDX-License-Identifier: Apache-2.0
// The samples of the step: ranks that should read the same ones do, and no others.
#include "judge/judge_parts.h"
#include "judge/same_step.h"

// Shorter sequences may be equal by chance.
enum { LEAST_TOKENS = 8 };

// ---- ranks with the same data ----

static void find_differences(ot_judging *j) {
  for (int64_t i = 0; i < j->recorded.num_differences; i++) {
    const ot_batch_difference *const d = &j->recorded.differences[i];
    ot_judge_finding *const f = ot_judge_find(j->report, "batches_differ");
    f->evidence = ot_arena_format(
        j->arena, "ranks %d and %d should read the same batch %d, but their %s differ", d->rank,
        d->other, d->micro, d->field);
    f->advice = "give all ranks of tensor, context and pipeline parallelism the same samples";
  }
}

// ---- samples that repeat ----

typedef struct repetition {
  ot_repeated_samples samples;
  int64_t sequences;    // of the step
  bool has_whole_rank;  // all sequences of a rank of data parallelism repeat others
} repetition;

static const ot_step_batch *batch_of(const ot_judging *j, int64_t row) {
  return &j->recorded.batch[j->recorded.batches[row]];
}

static bool repeats_a_whole_rank(const ot_judging *j, const ot_repeated_samples *samples) {
  int64_t *const left = ot_arena_array(j->arena, j->step.dp_size, sizeof *left);
  bool any = false;
  for (int64_t i = 0; i < j->recorded.num_batches; i++)
    left[j->recorded.batch[i].dp_rank] += j->recorded.batch[i].sequences;
  for (int64_t i = 0; i < samples->count; i++)
    any = --left[batch_of(j, samples->list[i].row)->dp_rank] == 0 || any;
  return any;
}

static repetition find_repetition(const ot_judging *j) {
  const ot_step_record record = {&j->step, &j->recorded};
  repetition out = {.samples = ot_same_samples_repeated(&record, LEAST_TOKENS, j->arena)};
  for (int64_t i = 0; i < j->recorded.num_batches; i++)
    out.sequences += j->recorded.batch[i].sequences;
  out.has_whole_rank = repeats_a_whole_rank(j, &out.samples);
  return out;
}

// A few equal sequences are in most data. Half of them, or all of a rank, are not.
static void find_repeated(ot_judging *j) {
  const repetition r = find_repetition(j);
  if (!r.has_whole_rank && 2 * r.samples.count < r.sequences) return;
  const ot_step_batch *const later = batch_of(j, r.samples.list[0].row);
  const ot_step_batch *const earlier = batch_of(j, r.samples.list[0].earlier);
  ot_judge_finding *const f = ot_judge_find(j->report, "batches_repeat");
  f->evidence = ot_arena_format(
      j->arena,
      "%lld of %lld sequences repeat another one of the step, such as one in batch %d of rank %d "
      "that batch %d of rank %d has, too",
      (long long)r.samples.count, (long long)r.sequences, later->micro, later->rank, earlier->micro,
      earlier->rank);
  f->advice =
      "see how the sampler divides samples over ranks of data parallelism and micro-batches";
}

void ot_judge_batches(ot_judging *j) {
  find_differences(j);
  if (!j->request->may_repeat) find_repeated(j);
}
