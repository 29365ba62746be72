// SPDX-License-Identifier: Apache-2.0
#include "ledger/rerun.h"

#include <math.h>

#include "base/rng.h"
#include "base/text.h"
#include "files/config_file.h"
#include "ledger/processes.h"

enum { BITS_STEPS = 10 };

// ---- variations ----

static int copy(const char *const *from, int count, const char **to) {
  for (int i = 0; i < count; i++) to[i] = from[i];
  return count;
}

ot_status ot_ledger_run_varied(const ot_ledger *l, const ot_ledger_variation *v, ot_ledger_job *job,
                               ot_ledger_result *out) {
  const int num_own = job->num_sets;
  const char **const sets =
      ot_arena_array(l->arena, v->num_defaults + num_own + v->num_sets, sizeof *sets);
  job->directory = ot_arena_format(l->arena, "%s.%s", job->directory, v->name);
  job->sets[num_own - 1] = ot_config_setting(l->arena, "output", job->directory);
  int n = copy(v->defaults, v->num_defaults, sets);
  n += copy(job->sets, num_own, sets + n);
  job->num_sets = n + copy(v->sets, v->num_sets, sets + n);
  job->sets = sets;
  if (v->program) job->program = v->program;
  OT_TRY(ot_ledger_job_describe(l, job));
  OT_TRY(ot_ledger_run_apart(l, job, out));
  out->loss /= job->unit;
  return OT_OK;
}

ot_status ot_ledger_find_bits(const ot_ledger *l, const char *program, const char **bits) {
  ot_ledger_arm arm = {.budget = 1, .steps = BITS_STEPS};
  ot_ledger_job job;
  ot_ledger_result result;
  OT_TRY(ot_ledger_job_build(l, &arm, &job));
  job.steps = BITS_STEPS;
  if (program) job.program = program;
  OT_TRY(ot_ledger_run_apart(l, &job, &result));
  *bits = result.weights_hash;
  return OT_OK;
}

// ---- recorded runs ----

// The changes of "a+b", from their files.
static ot_status load_changes(const ot_ledger *l, const char *name, ot_ledger_arm *arm) {
  const ot_ledger_change **const list = ot_arena_array(l->arena, OT_LEDGER_PARTS, sizeof *list);
  arm->changes = list;
  if (ot_text_equal(name, "base")) return OT_OK;
  for (const char *at = name; *at != '\0' && arm->num_changes < OT_LEDGER_PARTS;) {
    const char *const plus = ot_text_find(at, "+");
    const int64_t length = plus ? plus - at : ot_text_length(at);
    ot_ledger_change *const change = ot_arena_take(l->arena, sizeof *change);
    OT_TRY(
        ot_ledger_change_load(l->directory, ot_arena_text(l->arena, at, length), l->arena, change));
    list[arm->num_changes++] = change;
    at += length + (plus ? 1 : 0);
  }
  return OT_OK;
}

// The job of a recorded run, if its files still say the same; else *job->key differs.
static ot_status job_of(const ot_ledger *l, const ot_node *run, ot_ledger_job *job) {
  ot_ledger_arm arm = {.budget = ot_record_real(run, "budget"),
                       .scale = ot_ledger_find_scale(l, ot_record_text(run, "scale")),
                       .seed = (int)(ot_record_integer(run, "seed") - l->policy.seeds.base)};
  OT_CHECK(arm.scale >= 0, OT_USAGE, "the policy has no scale %s any more",
           ot_record_text(run, "scale"));
  OT_TRY(load_changes(l, ot_record_text(run, "change"), &arm));
  const ot_ledger_arm tuned = ot_ledger_arm_of(l, arm.changes, arm.num_changes);
  for (int i = 0; i < OT_LEDGER_TUNED; i++) arm.tuned[i] = tuned.tuned[i];
  return ot_ledger_job_build(l, &arm, job);
}

ot_status ot_ledger_rerun(const ot_ledger *ledger, const ot_ledger_rerun_request *request,
                          const ot_node *run, ot_ledger_rerun_result *out) {
  const ot_ledger_variation variation = {.name = "rerun",
                                         .program = request->program,
                                         .num_sets = request->num_sets,
                                         .sets = request->sets};
  // Another split of the run: its sums have another order, so its bits differ.
  const bool split = request->num_sets > 0 || request->ranks > 0;
  const double before = ot_record_real(run, "loss");
  ot_ledger l = *ledger;
  ot_ledger_job job;
  ot_ledger_result now;
  OT_TRY(job_of(&l, run, &job));
  *out =
      (ot_ledger_rerun_result){"its base, policy or change is no longer that of the record", true};
  if (!ot_text_equal(job.key, ot_record_text(run, "key"))) return OT_OK;
  if (request->ranks > 0) l.policy.ranks = request->ranks;
  OT_TRY(ot_ledger_run_varied(&l, &variation, &job, &now));
  const bool same = ot_text_equal(now.weights_hash, ot_record_text(run, "weights_hash"));
  out->finding = false;
  if (same && now.loss == before) {
    out->text = "the same bits";
  } else if (split) {
    out->text = ot_arena_format(l.arena, "another split: loss %.9g, recorded %.9g (%.2g)", now.loss,
                                before, fabs(now.loss / before - 1));
  } else {
    out->finding = true;
    out->text =
        ot_arena_format(l.arena, "other bits: loss %.17g, recorded %.17g by build %s, now %s",
                        now.loss, before, ot_record_text(run, "build"), l.record.build);
  }
  return OT_OK;
}

// ---- the choice ----

// The lines of finished runs whose files say what they ran: not of calibration and tuning.
static int64_t list_runs(const ot_ledger *l, const ot_node **runs) {
  int64_t count = 0;
  for (int64_t i = 0; i < l->record.count; i++) {
    const ot_node *const line = l->record.line[i].tree;
    if (!ot_text_equal(l->record.line[i].kind, "run")) continue;
    if (ot_text_equal(ot_record_text(line, "change"), OT_LEDGER_NULL_CHANGE)) continue;
    if (ot_record_integer(line, "seed") >= l->policy.seeds.base + l->policy.seeds.count) continue;
    if (ot_text_equal(ot_record_text(line, "state"), "finished")) runs[count++] = line;
  }
  return count;
}

ot_status ot_ledger_choose_reruns(const ot_ledger *l, const ot_ledger_rerun_request *request,
                                  const ot_node ***runs, int64_t *count) {
  const ot_node **const all = ot_arena_array(l->arena, l->record.count + 1, sizeof *all);
  const int64_t known = list_runs(l, all);
  const char *end = request->runs;
  int64_t wanted = 0;
  for (; *end >= '0' && *end <= '9'; end++) wanted = wanted * 10 + (*end - '0');
  const bool named = *end != '\0' || wanted == 0;
  *runs = ot_arena_array(l->arena, known + 1, sizeof **runs);
  *count = 0;
  for (int64_t i = 0; i < known; i++) {
    const uint64_t drawn =
        named ? (uint64_t)i : ot_rng_permute(request->seed, 0, (uint64_t)i, (uint64_t)known);
    const ot_node *const run = all[drawn];
    if (named ? ot_text_equal(ot_record_text(run, "run"), request->runs) : *count < wanted)
      (*runs)[(*count)++] = run;
  }
  OT_CHECK(*count > 0, OT_USAGE, "the record has no run %s", request->runs);
  return OT_OK;
}
