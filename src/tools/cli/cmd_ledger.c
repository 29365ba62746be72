// SPDX-License-Identifier: Apache-2.0
// `orthant ledger`: which changes of a recipe are worth stacking. Each action is a function of an
// open ledger; ledger_*.c has those that need many.
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/quantity.h"
#include "base/text.h"
#include "base/text_builder.h"
#include "cli/installed.h"
#include "cli/ledger_actions.h"
#include "cli/ledger_processes.h"
#include "cli/verbs.h"
#include "files/disk.h"
#include "files/output_file.h"
#include "files/tree_file.h"
#include "ledger/contamination.h"
#include "report/ledger_page.h"

// ---- add ----

ot_status ot_ledger_path_from(ot_arena *arena, const char *path, const char *from,
                              const char **out) {
  char here[OT_PATH_BYTES], there[OT_PATH_BYTES];
  *out = path;
  if (path[0] == '/') return OT_OK;
  if (!getcwd(here, sizeof here)) return ot_disk_fail("find", "the current directory", errno);
  if (!realpath(from, there)) return ot_disk_fail("find", from, errno);
  *out = ot_disk_path_from(arena, ot_disk_join(arena, here, path), there);
  return OT_OK;
}

// A value as YAML, in which a line break begins no other key.
static ot_status read_value(ot_arena *arena, const char *key, const char *value, ot_node **out) {
  const ot_tree_origin origin = {.name = ot_arena_format(arena, "--set %s", key)};
  *out = ot_node_create(arena, OT_NODE_NULL);
  return value[0] == '\0' ? OT_OK
                          : ot_tree_parse_yaml(&origin, value, ot_text_length(value), arena, out);
}

static ot_status put_set(const ot_ledger_command *c, const char *set, const char *folder,
                         ot_node *sets) {
  ot_arena *const arena = c->ledger.arena;
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

// changes/NAME.yaml from the options.
static ot_status write_change(const ot_ledger_command *c, const char *path) {
  ot_arena *const arena = c->ledger.arena;
  const char *const folder = ot_disk_join(arena, c->ledger.directory, "changes");
  OT_TRY(ot_disk_make_directory(folder));
  ot_node *const change = ot_node_create(arena, OT_NODE_MAP);
  static const char *const words[] = {"class",  "hypothesis", "program",
                                      "commit", "pairing",    "note"};
  for (int i = 0; i < OT_COUNT(words); i++) {
    const char *value = ot_options_text(c->options, words[i]);
    if (ot_text_equal(words[i], "program") && value)
      OT_TRY(ot_ledger_path_from(arena, value, folder, &value));
    if (!ot_options_given(c->options, words[i])) continue;
    ot_node_put(arena, change, words[i],
                i == 1 ? ot_node_word(arena, value) : ot_node_text(arena, value));
  }
  const int count = ot_options_count(c->options, "set");
  ot_node *const sets = ot_node_create(arena, OT_NODE_MAP);
  for (int i = 0; i < count; i++)
    OT_TRY(put_set(c, ot_options_values(c->options, "set")[i], folder, sets));
  if (count > 0) ot_node_put(arena, change, "set", sets);
  ot_text_builder text = {.arena = arena};
  ot_node_print_yaml(change, 0, &text);
  return ot_output_file_replace(path, ot_text_builder_text(&text), text.length);
}

static ot_status propose(ot_ledger_command *c, const ot_ledger_change *change) {
  ot_ledger *const l = &c->ledger;
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

static ot_status add(ot_ledger_command *c) {
  const char *const name = ot_options_argument(c->options, 1);
  ot_ledger *const l = &c->ledger;
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
  const bool given =
      ot_options_count(c->options, "set") > 0 || ot_options_given(c->options, "program");
  OT_CHECK(!given || !ot_disk_is_file(path), OT_USAGE,
           "%s exists; without --set, `add` registers it as it is", path);
  if (given) OT_TRY(write_change(c, path));
  OT_TRY(ot_ledger_change_load(l->directory, name, l->arena, &change));
  const ot_ledger_change *const changes[] = {&change};
  ot_ledger_arm arm = {.changes = changes, .num_changes = 1, .budget = 1};
  for (arm.scale = 0; arm.scale < l->policy.num_scales; arm.scale++) {
    ot_ledger_job job;
    OT_TRY(ot_ledger_job_build(l, &arm, &job));
    OT_TRY(ot_ledger_job_describe(l, &job));
  }
  OT_TRY(propose(c, &change));
  fprintf(stderr, "%s is registered; `orthant ledger run %s` runs it\n", name, name);
  return OT_OK;
}

// ---- run ----

ot_status ot_ledger_take_change(const ot_ledger *l, const char *name, ot_ledger_change *out) {
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

ot_status ot_ledger_run_change(ot_ledger_command *c, const ot_ledger_change *const *changes,
                               int num_changes, int pairs) {
  ot_ledger *const l = &c->ledger;
  const ot_ledger_arm arm = ot_ledger_arm_of(l, changes, num_changes);
  const bool all = l->policy.audit == OT_LEDGER_AUDIT_ALL;
  const ot_ledger_audit_request wanted = {.audit = all ? "all" : "causality"};
  const int jobs = (int)ot_options_integer(c->options, "jobs");
  ot_ledger_arms arms = {0}, tuning = {0};
  const char *finding = NULL;
  if (l->policy.audit != OT_LEDGER_AUDIT_NONE)
    OT_TRY(ot_ledger_audit_arm(l, &arm, &wanted, &finding));
  if (finding) return ot_ledger_veto(l, ot_ledger_arm_name(&arm, l->arena), finding);
  if (l->policy.tuning.num_keys > 0) {
    OT_TRY(ot_ledger_list_tuning(l, changes, num_changes, &tuning));
    OT_TRY(ot_ledger_run_arms(l, &tuning, jobs));
    OT_TRY(ot_ledger_tune(l, changes, num_changes));
  }
  OT_TRY(ot_ledger_list_arms(l, changes, num_changes, pairs, &arms));
  return ot_ledger_run_arms(l, &arms, jobs);
}

static ot_status run(ot_ledger_command *c) {
  ot_ledger *const l = &c->ledger;
  const char *const name = ot_options_argument(c->options, 1);
  ot_ledger_change *const change = ot_arena_take(l->arena, sizeof *change);
  OT_TRY(ot_ledger_take_change(l, name, change));
  const int look = ot_ledger_next_look(l, name);
  if (look < 0 || ot_ledger_is_final(l, name)) {
    const ot_node *const verdict = ot_ledger_find_verdict(l, name);
    const char *const word = verdict ? ot_record_text(verdict, "verdict") : "undecided";
    fprintf(stderr, "nothing to run: the verdict on %s is %s\n", name, word);
    return ot_text_equal(word, "vetoed") ? ot_fail(OT_FINDINGS, "%s", "") : OT_OK;
  }
  const ot_ledger_change **const changes = ot_arena_take(l->arena, sizeof *changes);
  changes[0] = change;
  OT_TRY(ot_ledger_run_change(c, changes, 1, l->policy.looks.pairs[look]));
  fprintf(stderr, "%d pairs at %lld scale%s are there; `orthant ledger look %s` analyses them\n",
          l->policy.looks.pairs[look], (long long)l->policy.num_scales,
          ot_text_plural(l->policy.num_scales, "s"), name);
  return OT_OK;
}

// ---- look ----

static void print_interval(const char *name, const ot_measured *e) {
  printf("  %-10s %8.4f  [%7.4f, %7.4f]\n", name, e->value, e->low, e->high);
}

static void print_look(const ot_ledger *l, const ot_ledger_look *k, const ot_ledger_target *t) {
  printf("%s: %s after %d pairs (look %d of %d): %s\n", k->change,
         ot_ledger_verdict_names[k->verdict], k->pairs, k->look + 1, l->policy.looks.count, k->why);
  printf("  ln m       estimate  95 %% interval       slope    pair sd      rho\n");
  for (int s = 0; s < l->policy.num_scales; s++) {
    const ot_measured *const e = &k->m.ln_m[s];
    printf("  %-10s %8.4f  [%7.4f, %7.4f]  %8.4f   %8.4f   %6.3f\n", l->policy.scales[s].name,
           e->value, e->low, e->high, k->m.slope[s].value, k->m.pair_sd[s], k->m.rho[s]);
  }
  print_interval("mean", &k->m.mean);
  if (l->policy.num_scales > 1) print_interval("trend", &k->m.trend);
  if (l->policy.num_scales == 1)
    printf("  one scale: whether it holds at larger ones%s is not known\n",
           l->policy.target > 0 ? " and at the target" : "");
  if (!isnan(k->m.at_target.value)) {
    print_interval("at target", &k->m.at_target);
    if (k->m.at_target.low < 0 && k->m.at_target.high > 0)
      printf("  on the ladder only: at %.3g FLOPs its sign is unknown\n", l->policy.target);
  }
  printf("  m %.4f by FLOPs, %.4f at equal tokens, %.4f by measured seconds; shrunk %.4f\n",
         exp(k->m.mean.value), exp(k->ln_quality), exp(k->ln_seconds), exp(k->shrunk));
  if (!isnan(t->base_s))
    printf("  planned at the target: %.4g s and %.4g s; m in all %.4f\n", t->base_s, t->change_s,
           exp(k->ln_quality) * t->base_s / t->change_s);
  if (k->m.by_rounding)
    printf("  note: the pairs differ by less than rounding; the interval is that of rounding\n");
  const ot_record_line *const proposal = ot_record_find(&l->record, "propose", "change", k->change);
  if (proposal && !ot_text_equal(ot_record_text(proposal->tree, "policy"), l->policy_hash))
    printf("  note: policy.yaml was changed after %s was registered\n", k->change);
  const ot_ledger_page page = ot_ledger_page_of(l);
  ot_text_builder predictions = {.arena = l->arena};
  ot_ledger_print_predictions(&page, k->change, &predictions);
  fputs(ot_text_builder_text(&predictions), stdout);
  if (k->facts.other_builds > 0)
    printf("  note: %d pairs were run by different builds or machines\n", k->facts.other_builds);
}

// A multiplier that is too good: four times the trials of the causality audit, and the held-out
// text is searched for in the training data.
static ot_status settle(ot_ledger *l, const ot_ledger_change *change, ot_ledger_look *k) {
  enum { TRIALS = 64 };
  const double most = 0.01;
  const ot_ledger_change *const changes[] = {change};
  const ot_ledger_arm arm = ot_ledger_arm_of(l, changes, 1);
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

static ot_status run_look(ot_ledger_command *c) {
  ot_ledger *const l = &c->ledger;
  const char *const name = ot_options_argument(c->options, 1);
  ot_ledger_change change;
  ot_ledger_look result;
  ot_ledger_target target = {NAN, NAN};
  OT_TRY(ot_ledger_take_change(l, name, &change));
  OT_CHECK(!ot_ledger_is_final(l, name), OT_USAGE, "the verdict on %s is %s", name,
           ot_record_text(ot_ledger_find_verdict(l, name), "verdict"));
  OT_TRY(ot_ledger_analyse(l, &change, &result));
  if (result.verdict == OT_LEDGER_WITHHELD) OT_TRY(settle(l, &change, &result));
  if (result.verdict == OT_LEDGER_BETTER) OT_TRY(ot_ledger_plan_target(l, &change, &target));
  OT_TRY(ot_ledger_record_look(l, &result, &target));
  if (c->as_json)
    puts(ot_ledger_lines_json(l, name));
  else
    print_look(l, &result, &target);
  const bool bad = result.verdict == OT_LEDGER_WORSE || result.verdict == OT_LEDGER_VETOED;
  return bad ? ot_fail(OT_FINDINGS, "%s", "") : OT_OK;
}

// ---- sign ----

// A person takes the verdict as it is: who, in a line after it.
static ot_status sign(ot_ledger_command *c) {
  ot_ledger *const l = &c->ledger;
  const char *const name = ot_options_argument(c->options, 1);
  const char *const by = ot_options_text(c->options, "by");
  const char *const note = ot_options_text(c->options, "note");
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

// The newest look and verdict of a change, as one document.
const char *ot_ledger_lines_json(const ot_ledger *l, const char *change) {
  ot_json_writer json = ot_json_begin(l->arena, 2);
  const ot_record_line *const found = ot_record_find(&l->record, "look", "change", change);
  const ot_node *const verdict = ot_ledger_find_verdict(l, change);
  ot_json_object(&json, NULL);
  if (found) ot_node_write_json(found->tree, "look", &json);
  if (verdict) ot_node_write_json(verdict, "verdict", &json);
  ot_json_end(&json);
  return json.text;
}

// ---- the verb ----

static const struct {
  const char *name;
  int arguments;  // at least, after the action
  bool closed;    // works without a ledger
  ot_status (*run)(ot_ledger_command *c);
} actions[] = {
    {"init", 1, true, ot_ledger_init},
    {"fit", 0, false, ot_ledger_fit},
    {"add", 1, false, add},
    {"run", 1, false, run},
    {"look", 1, false, run_look},
    {"sign", 1, false, sign},
    {"merge", 1, false, ot_ledger_merge},
    {"rerun", 0, false, ot_ledger_rerun},
    {"bisect", 0, false, ot_ledger_bisect},
    {"report", 0, false, ot_ledger_report},
    {"export", 0, false, ot_ledger_export},
};

static ot_status ledger(const ot_options *options) {
  ot_ledger_command c = {.options = options, .as_json = ot_options_json(options)};
  ot_arena *const arena = ot_options_arena(options);
  const char *const name = ot_options_argument(options, 0);
  const char *const directory = ot_options_text(options, "ledger");
  const ot_presets presets = ot_installed_presets(arena);
  for (int i = 0; i < OT_COUNT(actions); i++) {
    if (!ot_text_equal(actions[i].name, name)) continue;
    OT_CHECK(ot_options_num_arguments(options) > actions[i].arguments, OT_USAGE,
             "ledger %s needs a name (`orthant help ledger`)", name);
    c.ledger = (ot_ledger){.directory = directory, .arena = arena, .presets = presets};
    if (!actions[i].closed) OT_TRY(ot_ledger_open(directory, &presets, arena, &c.ledger));
    return actions[i].run(&c);
  }
  ot_fail(OT_USAGE, "unknown action \"%s\"", name);
  return ot_fail_hint(
      OT_USAGE, "one of init, fit, add, run, look, sign, merge, rerun, bisect, report, export");
}

static const ot_option rows[] = {
    {"ledger", OT_OPTION_PATH, "DIR", "ledger", .help = "directory of the ledger"},
    {"jobs", OT_OPTION_INTEGER, "N", "1", 1, 1024, .help = "fit, run, merge: processes at a time"},
    {"pairs", OT_OPTION_INTEGER, "N", NULL, 2, OT_LEDGER_SEEDS,
     .help = "fit, merge, bisect: pairs [those of the first look]"},
    {"set", OT_OPTION_SETTING, "KEY=VALUE", .repeatable = true,
     .help = "add: what the change sets; rerun: another split of the run; repeatable"},
    {"class", OT_OPTION_CHOICE, "quality|speed|neutral", "quality",
     .help = "add: what the change claims"},
    {"hypothesis", OT_OPTION_REAL, "M", .help = "add: the multiplier that is expected"},
    {"program", OT_OPTION_PATH, "ORTHANT",
     .help = "add: what runs the change; rerun, bisect: what runs again, of commits within their "
             "tree [build/orthant]"},
    {"commit", OT_OPTION_TEXT, "ID", .help = "add: the commit of that program, for the record"},
    {"pairing", OT_OPTION_CHOICE, "exact|seeds", "exact",
     .help = "add: seeds: other data by design (tokenizer, length)"},
    {"note", OT_OPTION_TEXT, "TEXT", .help = "add, sign: why"},
    {"by", OT_OPTION_TEXT, "NAME", .help = "sign: who [the user of this machine]"},
    {"factorial", OT_OPTION_FLAG,
     .help = "merge: all effects from a two-level design of 4 to 16 arms"},
    {"write", OT_OPTION_TEXT, "NAME",
     .help = "merge: a file next to the base, with the parts that stay"},
    {"ranks", OT_OPTION_INTEGER, "N", NULL, 1, 1 << 20, .help = "rerun: another number of ranks"},
    {"seed", OT_OPTION_INTEGER, "N", "1", .help = "rerun: of the choice of runs"},
    {"commits", OT_OPTION_TEXT, "GOOD..BAD", .help = "bisect: commits of git, by their loss"},
    {"source", OT_OPTION_PATH, "DIR", .help = "bisect --commits: the repository [.]"},
    {"build", OT_OPTION_TEXT, "CMD", "make",
     .help = "bisect --commits: the shell command that builds a commit"},
    {"against", OT_OPTION_PATH, "RUN.yaml", .help = "bisect: keys that it sets, by their loss"},
    {"scale", OT_OPTION_TEXT, "NAME",
     .help = "bisect --commits, --against: the scale of the ladder [the first]"},
    {"from", OT_OPTION_TEXT, "ID", .help = "bisect: the first line of the record, by its id"},
    {"to", OT_OPTION_TEXT, "ID", .help = "bisect: the last line"},
    {"html", OT_OPTION_PATH, "FILE", .help = "report: a page"},
    {"out", OT_OPTION_PATH, "FILE", .help = "export: the file [standard output]"},
};

const ot_verb ot_verb_ledger = {
    .name = "ledger",
    .summary = "measure compute multipliers of changes to a recipe",
    .arguments = "init|fit|add|run|look|sign|merge|rerun|bisect|report|export [NAME...]",
    .min_arguments = 1,
    .max_arguments = -1,
    .details =
        "A ledger is a directory: policy.yaml (metric, ladder, seeds, looks, margins), changes/,\n"
        "ledger.jsonl (what was proposed, run and concluded, a chain of hashes) and runs/.\n"
        "init BASE.yaml   writes the policy, with a ladder below the base\n"
        "fit              noise and slope of the baseline; the smallest multiplier that pairs "
        "find\n"
        "add NAME         registers a change before it runs: --set, or its file in changes/\n"
        "run NAME         audits it, and runs what the next look needs; resumes\n"
        "look NAME        analyses: better, worse, equal, undecided, withheld or vetoed\n"
        "sign NAME        records who takes the verdict\n"
        "merge A [B...]   a stack against its parts: which of them stay\n"
        "rerun [K|RUN]    K recorded runs again: the same bits, or a finding\n"
        "bisect           the first merge whose base is no longer what was recorded; the first\n"
        "                 commit (--commits) or key (--against) that changes the loss\n"
        "report           all changes: table, --html, --json; export: all runs as CSV\n"
        "Exit code 1: worse, vetoed, or a record that does not hold.",
    .examples =
        "  orthant ledger init run.yaml\n"
        "  orthant ledger add qk-norm --set model.qk_norm=true --hypothesis 1.03\n"
        "  orthant ledger run qk-norm --jobs 2\n"
        "  orthant ledger look qk-norm\n"
        "  orthant ledger merge qk-norm wider --write base-2.yaml\n"
        "  orthant ledger rerun 3\n"
        "  orthant ledger report --html ledger.html",
    .options = rows,
    .num_options = OT_COUNT(rows),
    .json = true,
    .run = ledger,
};
