// SPDX-License-Identifier: Apache-2.0
// The targets and the ranks of a run that learns from a teacher, and the checks of its section.
#include "describe/distill.h"

#include "base/text.h"
#include "describe/run.h"
#include "describe/run_keys.h"

bool ot_run_has_teacher(const ot_run *run) { return run->distill.objective != OT_DISTILL_NONE; }

bool ot_run_has_live_teacher(const ot_run *run) {
  return ot_run_weighted_targets(run) > 0 && run->distill.from == OT_DISTILL_LIVE;
}

bool ot_run_has_answering_teacher(const ot_run *run) {
  return ot_run_weighted_targets(run) > 0 && run->distill.from != OT_DISTILL_STORE;
}

bool ot_run_teacher_judges(const ot_run *run) {
  return run->distill.objective == OT_DISTILL_REVERSE_KL;
}

bool ot_run_targets_are_drawn(const ot_run *run) {
  return run->distill.objective == OT_DISTILL_SAMPLED;
}

int ot_run_teacher_ranks(const ot_run *run) {
  return ot_run_weighted_targets(run) > 0 ? run->distill.teacher_ranks : 0;
}

void ot_run_set_teacher_ranks(ot_run *run, int ranks) { run->distill.teacher_ranks = ranks; }

ot_status ot_run_check_teacher_ranks(const ot_run *run, ot_status failure, int count,
                                     const char *unit, const char *option) {
  const int ranks = ot_run_teacher_ranks(run);
  OT_CHECK(count > ranks, failure, "distill.teacher_ranks=%d leaves no %s for the model of %d (%s)",
           ranks, unit, count, option);
  return OT_OK;
}

ot_node *ot_run_teacher_section(const ot_node *settings) {
  return ot_node_child(settings, "distill");
}

int64_t ot_run_weighted_targets(const ot_run *run) {
  if (ot_run_learns_from_rewards(run)) return 1;
  switch (run ? run->distill.objective : OT_DISTILL_NONE) {
    case OT_DISTILL_NONE:
      return 0;
    case OT_DISTILL_SAMPLED:
    case OT_DISTILL_TOP_K:
      return run->distill.targets;
    case OT_DISTILL_REVERSE_KL:
      return 1;
  }
  OT_UNREACHABLE();
}

ot_status ot_distill_check(const ot_run *run) {
  const ot_run_distill *const d = &run->distill;
  const bool reverse = d->objective == OT_DISTILL_REVERSE_KL;
  if (!ot_run_has_teacher(run)) return OT_OK;
  const bool answers = d->from != OT_DISTILL_STORE;
  OT_CHECK(!reverse || answers, OT_USAGE,
           "distill: objective=reverse_kl needs from=live or server: the teacher judges text of "
           "this run");
  OT_CHECK(d->from != OT_DISTILL_LIVE || d->teacher[0] != '\0', OT_USAGE,
           "distill: from=live needs teacher, a checkpoint or HF directory");
  OT_CHECK(d->from != OT_DISTILL_SERVER || ot_text_starts_with(d->server, "http://") ||
               ot_text_starts_with(d->server, "https://"),
           OT_USAGE, "distill: from=server needs server, such as http://127.0.0.1:8000, not \"%s\"",
           d->server);
  OT_CHECK(d->teacher_ranks == 0 || (answers && !reverse), OT_USAGE,
           "distill: teacher_ranks=%d needs from=live or server and objective=sampled or top_k: %s",
           d->teacher_ranks,
           reverse ? "a teacher cannot be ahead of what the model writes" : "a store has no ranks");
  OT_CHECK(d->alpha == 1 || d->targets > 1 || reverse, OT_USAGE,
           "distill: targets=1 leaves no place for the data's token of alpha=%.9g (try 24)",
           d->alpha);
  OT_CHECK(d->objective != OT_DISTILL_TOP_K || d->targets <= run->model.vocab_size, OT_USAGE,
           "distill: targets=%lld exceeds vocab_size=%lld", (long long)d->targets,
           (long long)run->model.vocab_size);
  OT_CHECK(!reverse || d->prompt_tokens < run->data.sequence_length, OT_USAGE,
           "distill: prompt_tokens=%lld leaves nothing to generate of sequence_length=%lld",
           (long long)d->prompt_tokens, (long long)run->data.sequence_length);
  return OT_OK;
}
