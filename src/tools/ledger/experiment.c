// SPDX-License-Identifier: Apache-2.0
#include "ledger/experiment.h"

#include <math.h>

#include "base/text.h"
#include "base/text_builder.h"
#include "files/disk.h"
#include "files/output_file.h"
#include "files/tree_file.h"
#include "ledger/contamination.h"
#include "ledger/processes.h"

// ---- registering ----

// A value as YAML, in which a line break begins no other key.
static ot_status read_value(ot_arena *arena, const char *key, const char *value, ot_node **out) {
  const ot_tree_origin origin = {.name = ot_arena_format(arena, "--set %s", key)};
  *out = ot_node_create(arena, OT_NODE_NULL);
  return value[0] == '\0' ? OT_OK
                          : ot_tree_parse_yaml(&origin, value, ot_text_length(value), arena, out);
}

static ot_status put_set(ot_arena *arena, const char *set, const char *folder, ot_node *sets) {
  const char *const equals = ot_text_find(set, "=");
  OT_CHECK(equals && equals > set, OT_USAGE, "\"%s\" is not KEY=VALUE (--set)", set);
  const char *const key = ot_arena_text(arena, set, equals - set);
  const char *value = equals + 1;
  ot_node *node;
  if (ot_ledger_is_path(key, value)) {
    OT_TRY(ot_ledger_path_from(arena, value, folder, &value));
    node = ot_node_text(arena, value);
  } else {
    OT_TRY(read_value(arena, key, value, &node));
  }
  ot_node_put(arena, sets, key, node);
  return OT_OK;
}

static void put_text(ot_arena *arena, ot_node *change, const char *key, const char *value) {
  if (value) ot_node_put(arena, change, key, ot_node_text(arena, value));
}

static ot_status write_change(const ot_ledger *l, const ot_ledger_proposal *p, const char *path) {
  ot_arena *const arena = l->arena;
  const char *const folder = ot_disk_join(arena, l->directory, "changes");
  const char *program = p->program;
  OT_TRY(ot_disk_make_directory(folder));
  if (program) OT_TRY(ot_ledger_path_from(arena, program, folder, &program));
  ot_node *const change = ot_node_create(arena, OT_NODE_MAP);
  ot_node *const sets = ot_node_create(arena, OT_NODE_MAP);
  put_text(arena, change, "class", p->class);
  if (p->hypothesis) ot_node_put(arena, change, "hypothesis", ot_node_word(arena, p->hypothesis));
  put_text(arena, change, "program", program);
  put_text(arena, change, "commit", p->commit);
  put_text(arena, change, "pairing", p->pairing);
  put_text(arena, change, "note", p->note);
  for (int i = 0; i < p->num_sets; i++) OT_TRY(put_set(arena, p->sets[i], folder, sets));
  if (p->num_sets > 0) ot_node_put(arena, change, "set", sets);
  ot_text_builder text = {.arena = arena};
  ot_node_print_yaml(change, 0, &text);
  return ot_output_file_replace(path, ot_text_builder_text(&text), text.length);
}

static ot_status check_runs(const ot_ledger *l, const ot_ledger_change *change) {
  ot_ledger_arm arm = {.changes = &change, .num_changes = 1, .budget = 1};
  for (arm.scale = 0; arm.scale < l->policy.num_scales; arm.scale++) {
    ot_ledger_job job;
    OT_TRY(ot_ledger_job_build(l, &arm, &job));
    OT_TRY(ot_ledger_job_describe(l, &job));
  }
  return OT_OK;
}

static ot_status record_proposal(ot_ledger *l, const ot_ledger_change *change) {
  ot_json_writer line = ot_record_begin(&l->record, "propose", l->arena);
  ot_json_text(&line, "change", change->name);
  ot_json_text(&line, "class", ot_ledger_class_names[change->class]);
  ot_node_write_json(change->tree, "file", &line);
  ot_json_real(&line, "hypothesis", change->hypothesis > 0 ? change->hypothesis : NAN);
  ot_json_text(&line, "base", l->base_hash);
  ot_json_text(&line, "policy", l->policy_hash);
  ot_json_array(&line, "looks");
  for (int i = 0; i < l->policy.looks.count; i++)
    ot_json_integer(&line, NULL, l->policy.looks.pairs[i]);
  ot_json_end(&line);
  return ot_record_append(&l->record, &line, l->arena);
}

ot_status ot_ledger_propose(ot_ledger *l, const ot_ledger_proposal *p) {
  const char *const name = p->name;
  ot_ledger_change change;
  OT_TRY(ot_ledger_check_name(name));
  const char *const path =
      ot_disk_join(l->arena, l->directory, ot_arena_format(l->arena, "changes/%s.yaml", name));
  static const char *const kinds[] = {"propose", "run"};
  for (int i = 0; i < OT_COUNT(kinds); i++) {
    const ot_record_line *const line = ot_record_find(&l->record, kinds[i], "change", name);
    OT_CHECK(!line, OT_USAGE, "%s is in the record already (line %lld, %s): take another name",
             name, (long long)line->number, kinds[i]);
  }
  const bool given = p->num_sets > 0 || p->program;
  OT_CHECK(!given || !ot_disk_is_file(path), OT_USAGE,
           "%s exists; without --set, `add` registers it as it is", path);
  if (given) OT_TRY(write_change(l, p, path));
  OT_TRY(ot_ledger_change_load(l->directory, name, l->arena, &change));
  OT_TRY(check_runs(l, &change));
  OT_TRY(record_proposal(l, &change));
  ot_ledger_announce(l, "%s is registered; `orthant ledger run %s` runs it", name, name);
  return OT_OK;
}

// ---- running ----

ot_status ot_ledger_load_registered(const ot_ledger *l, const char *name, ot_ledger_change *out) {
  OT_TRY(ot_ledger_change_load(l->directory, name, l->arena, out));
  const ot_record_line *const line = ot_record_find(&l->record, "propose", "change", name);
  if (!line) {
    ot_fail(OT_USAGE, "%s is not registered", name);
    return ot_fail_hint(OT_USAGE, "`orthant ledger add %s` registers its file before it runs",
                        name);
  }
  ot_json_writer now = ot_json_begin(l->arena, 0), then = ot_json_begin(l->arena, 0);
  ot_node_write_json(out->tree, NULL, &now);
  ot_node_write_json(ot_node_child(line->tree, "file"), NULL, &then);
  OT_CHECK(ot_text_equal(now.text, then.text), OT_USAGE,
           "changes/%s.yaml was changed after it was registered (line %lld): take another name",
           name, (long long)line->number);
  return OT_OK;
}

ot_status ot_ledger_veto(ot_ledger *l, const char *change, const char *finding) {
  ot_json_writer line = ot_record_begin(&l->record, "verdict", l->arena);
  ot_json_text(&line, "change", change);
  ot_json_text(&line, "verdict", ot_ledger_verdict_names[OT_LEDGER_VETOED]);
  ot_json_text(&line, "why", ot_arena_format(l->arena, "an audit found %s", finding));
  OT_TRY(ot_record_append(&l->record, &line, l->arena));
  ot_fail(OT_FINDINGS, "%s is vetoed: an audit found %s", change, finding);
  return ot_fail_hint(OT_FINDINGS, "its report is in %s/runs", l->directory);
}

ot_status ot_ledger_run_change(ot_ledger *l, const ot_ledger_change *const *changes,
                               int num_changes, int pairs) {
  const ot_ledger_arm arm = ot_ledger_arm_of(l, changes, num_changes);
  const bool all = l->policy.audit == OT_LEDGER_AUDIT_ALL;
  const ot_ledger_audit_request wanted = {.audit = all ? "all" : "causality"};
  const char *finding = NULL;
  if (l->policy.audit != OT_LEDGER_AUDIT_NONE)
    OT_TRY(ot_ledger_audit_arm(l, &arm, &wanted, &finding));
  if (finding) return ot_ledger_veto(l, ot_ledger_arm_name(&arm, l->arena), finding);
  if (l->policy.tuning.num_keys > 0) {
    const ot_ledger_arms tuning = ot_ledger_list_tuning(l, changes, num_changes);
    OT_TRY(ot_ledger_run_arms(l, &tuning));
    OT_TRY(ot_ledger_tune(l, changes, num_changes));
  }
  const ot_ledger_arms arms = ot_ledger_list_arms(l, changes, num_changes, pairs);
  return ot_ledger_run_arms(l, &arms);
}

ot_status ot_ledger_run_next(ot_ledger *l, const char *name) {
  ot_ledger_change change;
  const ot_ledger_change *const changes[] = {&change};
  OT_TRY(ot_ledger_load_registered(l, name, &change));
  const int look = ot_ledger_next_look(l, name);
  if (look < 0 || ot_ledger_is_final(l, name)) {
    const ot_node *const verdict = ot_ledger_find_verdict(l, name);
    const char *const word = verdict ? ot_record_text(verdict, "verdict") : "undecided";
    ot_ledger_announce(l, "nothing to run: the verdict on %s is %s", name, word);
    return ot_text_equal(word, "vetoed") ? ot_fail(OT_FINDINGS, "%s", "") : OT_OK;
  }
  const int pairs = l->policy.looks.pairs[look];
  OT_TRY(ot_ledger_run_change(l, changes, 1, pairs));
  ot_ledger_announce(
      l, "%d pairs at %lld scale%s are there; `orthant ledger look %s` analyses them", pairs,
      (long long)l->policy.num_scales, ot_text_plural(l->policy.num_scales, "s"), name);
  return OT_OK;
}

// ---- verdicts ----

// A multiplier that is too good: four times the trials of the causality audit, and the held-out
// text is searched for in the training data.
static ot_status settle(ot_ledger *l, const ot_ledger_change *change, ot_ledger_look *k) {
  enum { TRIALS = 64 };
  const double most = 0.01;
  const ot_ledger_arm arm = ot_ledger_arm_of(l, &change, 1);
  const ot_ledger_audit_request deep = {"causality", "--trials", TRIALS};
  const char *finding;
  ot_ledger_job job;
  ot_ledger_contamination overlap;
  OT_TRY(ot_ledger_audit_arm(l, &arm, &deep, &finding));
  OT_TRY(ot_ledger_job_build(l, &arm, &job));
  OT_TRY(ot_ledger_find_contamination(l, &job, &overlap));
  const char *const share =
      ot_arena_format(l->arena, "%.4g %% of the held-out %d-grams are in the training data",
                      100 * overlap.share, overlap.length);
  if (finding) {
    k->verdict = OT_LEDGER_VETOED;
    k->why = ot_arena_format(l->arena, "an audit found %s", finding);
  } else if (overlap.share > most) {
    k->why = ot_arena_format(l->arena, "%s; causality is clean", share);
  } else {
    k->verdict = OT_LEDGER_BETTER;
    k->why = ot_arena_format(l->arena, "large, but causality is clean at %d trials, and %s", TRIALS,
                             share);
  }
  return OT_OK;
}

ot_status ot_ledger_judge_next(ot_ledger *l, const char *name, ot_ledger_look *look,
                               ot_ledger_target *target) {
  ot_ledger_change change;
  *target = (ot_ledger_target){NAN, NAN};
  OT_TRY(ot_ledger_load_registered(l, name, &change));
  OT_CHECK(!ot_ledger_is_final(l, name), OT_USAGE, "the verdict on %s is %s", name,
           ot_record_text(ot_ledger_find_verdict(l, name), "verdict"));
  OT_TRY(ot_ledger_analyse(l, &change, look));
  if (look->verdict == OT_LEDGER_WITHHELD) OT_TRY(settle(l, &change, look));
  if (look->verdict == OT_LEDGER_BETTER) OT_TRY(ot_ledger_plan_target(l, &change, target));
  return ot_ledger_record_look(l, look, target);
}

ot_status ot_ledger_sign(ot_ledger *l, const char *name, const char *by, const char *note) {
  const ot_node *const verdict = ot_ledger_find_verdict(l, name);
  const char *const before = ot_ledger_find_signer(l, name);
  OT_CHECK(verdict, OT_USAGE, "%s has no verdict to sign (`orthant ledger look %s`)", name, name);
  OT_CHECK(before[0] == '\0', OT_USAGE, "the verdict on %s is signed by %s", name, before);
  ot_json_writer line = ot_record_begin(&l->record, "sign", l->arena);
  ot_json_text(&line, "change", name);
  ot_json_text(&line, "verdict", ot_record_text(verdict, "verdict"));
  ot_json_text(&line, "of", ot_record_text(verdict, "id"));
  ot_json_text(&line, "signed_off", by ? by : ot_record_user(l->arena));
  if (note) ot_json_text(&line, "note", note);
  return ot_record_append(&l->record, &line, l->arena);
}
