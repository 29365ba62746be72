// SPDX-License-Identifier: Apache-2.0
// `orthant ledger rerun`: recorded runs again, to the same bits.
#include <math.h>
#include <stdio.h>

#include "base/rng.h"
#include "base/text.h"
#include "cli/ledger_actions.h"
#include "cli/ledger_processes.h"
#include "files/config_file.h"
#include "files/disk.h"
#include "ledger/analysis.h"

enum { BITS_STEPS = 10 };

// ---- rerun ----

static int scale_of(const ot_ledger *l, const char *name) {
  for (int i = 0; i < l->policy.num_scales; i++)
    if (ot_text_equal(l->policy.scales[i].name, name)) return i;
  return -1;
}

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
                       .scale = scale_of(l, ot_record_text(run, "scale")),
                       .seed = (int)(ot_record_integer(run, "seed") - l->policy.seeds.base)};
  const char *const name = ot_record_text(run, "change");
  OT_CHECK(arm.scale >= 0, OT_USAGE, "the policy has no scale %s any more",
           ot_record_text(run, "scale"));
  OT_TRY(load_changes(l, name, &arm));
  const ot_ledger_arm tuned = ot_ledger_arm_of(l, arm.changes, arm.num_changes);
  for (int i = 0; i < OT_LEDGER_TUNED; i++) arm.tuned[i] = tuned.tuned[i];
  return ot_ledger_job_build(l, &arm, job);
}

typedef struct rerunning {
  ot_ledger_command *command;
  ot_json_writer json;
  int findings, compared;
} rerunning;

static void print_run(rerunning *r, const ot_node *run, const char *what, bool finding) {
  r->findings += finding;
  ot_json_object(&r->json, NULL);
  ot_json_text(&r->json, "run", ot_record_text(run, "run"));
  ot_json_text(&r->json, "result", what);
  ot_json_boolean(&r->json, "finding", finding);
  ot_json_end(&r->json);
  if (!r->command->as_json) printf("%s: %s\n", ot_record_text(run, "run"), what);
}

// Another split of the run: its sums have another order, so its bits differ.
static bool read_split(const rerunning *r, ot_ledger *l, ot_ledger_job *job) {
  const ot_options *const o = r->command->options;
  const int count = ot_options_count(o, "set");
  if (ot_options_given(o, "ranks")) l->policy.ranks = (int)ot_options_integer(o, "ranks");
  const char **const sets = ot_arena_array(l->arena, job->num_sets + count, sizeof *sets);
  for (int i = 0; i < job->num_sets; i++) sets[i] = job->sets[i];
  for (int i = 0; i < count; i++) sets[job->num_sets++] = ot_options_values(o, "set")[i];
  job->sets = sets;
  return count > 0 || ot_options_given(o, "ranks");
}

static ot_status rerun_one(rerunning *r, const ot_node *run) {
  ot_ledger l = r->command->ledger;
  ot_ledger_job job;
  ot_ledger_result result;
  OT_TRY(job_of(&l, run, &job));
  if (!ot_text_equal(job.key, ot_record_text(run, "key"))) {
    print_run(r, run, "its base, policy or change is no longer that of the record", true);
    return OT_OK;
  }
  job.directory = ot_arena_format(l.arena, "%s.rerun", job.directory);
  job.sets[job.num_sets - 1] = ot_config_setting(l.arena, "output", job.directory);
  const bool split = read_split(r, &l, &job);
  const char *const program = ot_options_text(r->command->options, "program");
  if (program) job.program = program;
  OT_TRY(ot_ledger_job_describe(&l, &job));
  OT_TRY(ot_ledger_run_apart(&l, &job, &result));
  OT_TRY(ot_disk_remove(job.directory));
  r->compared++;
  result.loss /= job.unit;
  const double was = ot_record_real(run, "loss");
  const bool same = ot_text_equal(result.weights_hash, ot_record_text(run, "weights_hash"));
  const char *const build = ot_record_text(run, "build");
  if (same && result.loss == was)
    print_run(r, run, "the same bits", false);
  else if (split)
    print_run(r, run,
              ot_arena_format(l.arena, "another split: loss %.9g, recorded %.9g (%.2g)",
                              result.loss, was, fabs(result.loss / was - 1)),
              false);
  else
    print_run(r, run,
              ot_arena_format(l.arena, "other bits: loss %.17g, recorded %.17g by build %s, now %s",
                              result.loss, was, build, l.record.build),
              true);
  return OT_OK;
}

// A number of runs, drawn without repetition, or the one that is named.
ot_status ot_ledger_rerun(ot_ledger_command *command) {
  const ot_ledger *const l = &command->ledger;
  const ot_options *const o = command->options;
  const ot_node **const runs = ot_arena_array(l->arena, l->record.count + 1, sizeof *runs);
  rerunning r = {.command = command, .json = ot_json_begin(l->arena, 2)};
  int64_t count = 0, wanted = 3;
  const char *const argument = ot_options_num_arguments(o) > 1 ? ot_options_argument(o, 1) : "3";
  for (int64_t i = 0; i < l->record.count; i++) {
    const ot_node *const line = l->record.line[i].tree;
    if (!ot_text_equal(l->record.line[i].kind, "run")) continue;
    // Calibration and tuning have no files that say what they ran.
    if (ot_text_equal(ot_record_text(line, "change"), OT_LEDGER_NULL_CHANGE)) continue;
    if (ot_record_integer(line, "seed") >= l->policy.seeds.base + l->policy.seeds.count) continue;
    if (ot_text_equal(ot_record_text(line, "state"), "finished")) runs[count++] = line;
  }
  const char *end = argument;
  for (wanted = 0; *end >= '0' && *end <= '9'; end++) wanted = wanted * 10 + (*end - '0');
  const bool named = *end != '\0' || wanted == 0;
  const uint64_t seed = (uint64_t)ot_options_integer(o, "seed");
  ot_json_object(&r.json, NULL);
  ot_json_array(&r.json, "runs");
  for (int64_t i = 0, done = 0; i < count; i++) {
    const int64_t at = named ? i : (int64_t)ot_rng_permute(seed, 0, (uint64_t)i, (uint64_t)count);
    if (named ? !ot_text_equal(ot_record_text(runs[at], "run"), argument) : done >= wanted)
      continue;
    OT_TRY(rerun_one(&r, runs[at]));
    done++;
  }
  ot_json_end(&r.json);
  ot_json_end(&r.json);
  OT_CHECK(r.compared > 0 || r.findings > 0, OT_USAGE, "the record has no run %s", argument);
  if (command->as_json) puts(r.json.text);
  return r.findings > 0 ? ot_fail(OT_FINDINGS, "%s", "") : OT_OK;
}

// ---- bits of a base ----

ot_status ot_ledger_find_bits(const ot_ledger *l, const char *program, const char **bits) {
  ot_ledger_arm arm = {.budget = 1, .steps = BITS_STEPS};
  ot_ledger_job job;
  ot_ledger_result result;
  OT_TRY(ot_ledger_job_build(l, &arm, &job));
  job.steps = BITS_STEPS;
  if (program) job.program = program;
  OT_TRY(ot_ledger_run_apart(l, &job, &result));
  OT_TRY(ot_disk_remove(job.directory));
  *bits = result.weights_hash;
  return OT_OK;
}

const char *ot_ledger_base_path(const ot_ledger *l, const char *name) {
  const int64_t folder = ot_disk_base_name(l->policy.base) - l->policy.base;
  return ot_arena_format(l->arena, "%s%s", ot_arena_text(l->arena, l->policy.base, folder), name);
}
