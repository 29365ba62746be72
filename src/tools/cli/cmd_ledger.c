// SPDX-License-Identifier: Apache-2.0
// `orthant ledger`: which changes of a recipe are worth stacking. Each action reads its options for
// a function of the module ledger, and prints what that returns.
#include <stdio.h>

#include "base/text.h"
#include "cli/installed.h"
#include "cli/ledger_print.h"
#include "cli/output_queue.h"
#include "cli/verbs.h"
#include "files/output_file.h"
#include "ledger/rerun.h"
#include "report/ledger_page.h"

typedef struct command {
  const ot_options *options;
  bool as_json;
  ot_ledger ledger;
} command;

static ot_status begin(command *c) {
  OT_TRY(ot_ledger_begin(&c->ledger, ot_options_argument(c->options, 1)));
  return ot_ledger_print_costs(&c->ledger, c->as_json);
}

static ot_status fit(command *c) {
  ot_ledger_calibration calibration;
  ot_output_queue_begin();
  OT_TRY(
      ot_ledger_calibrate(&c->ledger, (int)ot_options_integer(c->options, "pairs"), &calibration));
  ot_ledger_print_calibration(&c->ledger, &calibration, c->as_json);
  return OT_OK;
}

// An option that is given; else null, also if it has a fallback.
static const char *given(const ot_options *o, const char *name) {
  return ot_options_given(o, name) ? ot_options_text(o, name) : NULL;
}

static ot_status add(command *c) {
  const ot_options *const o = c->options;
  const ot_ledger_proposal proposal = {.name = ot_options_argument(o, 1),
                                       .class = given(o, "class"),
                                       .hypothesis = given(o, "hypothesis"),
                                       .program = given(o, "program"),
                                       .commit = given(o, "commit"),
                                       .pairing = given(o, "pairing"),
                                       .note = given(o, "note"),
                                       .num_sets = ot_options_count(o, "set"),
                                       .sets = ot_options_values(o, "set")};
  return ot_ledger_propose(&c->ledger, &proposal);
}

static ot_status run(command *c) {
  ot_output_queue_begin();
  return ot_ledger_run_next(&c->ledger, ot_options_argument(c->options, 1));
}

static ot_status analyse(command *c) {
  ot_ledger_look result;
  ot_ledger_target target;
  OT_TRY(ot_ledger_judge_next(&c->ledger, ot_options_argument(c->options, 1), &result, &target));
  ot_ledger_print_look(&c->ledger, &result, &target, c->as_json);
  const bool bad = result.verdict == OT_LEDGER_WORSE || result.verdict == OT_LEDGER_VETOED;
  return bad ? ot_fail(OT_FINDINGS, "%s", "") : OT_OK;
}

static ot_status sign(command *c) {
  return ot_ledger_sign(&c->ledger, ot_options_argument(c->options, 1),
                        ot_options_text(c->options, "by"), ot_options_text(c->options, "note"));
}

static ot_status merge(command *c) {
  const ot_options *const o = c->options;
  ot_ledger *const l = &c->ledger;
  const int count = ot_options_num_arguments(o) - 1;
  const char **const parts = ot_arena_array(l->arena, count + 1, sizeof *parts);
  for (int i = 0; i < count; i++) parts[i] = ot_options_argument(o, i + 1);
  const ot_ledger_stack_request request = {.num_parts = count,
                                           .parts = parts,
                                           .pairs = (int)ot_options_integer(o, "pairs"),
                                           .write = ot_options_text(o, "write")};
  ot_output_queue_begin();
  if (ot_options_flag(o, "factorial")) {
    ot_ledger_screening *const s = ot_arena_take(l->arena, sizeof *s);
    OT_TRY(ot_ledger_screen(l, &request, s));
    if (!c->as_json) ot_ledger_print_screening(s);
    OT_TRY(ot_ledger_record_screening(s));
  } else {
    ot_ledger_merge_result *const m = ot_arena_take(l->arena, sizeof *m);
    OT_TRY(ot_ledger_merge(l, &request, m));
    if (!c->as_json) ot_ledger_print_merge(m);
  }
  if (!c->as_json) return OT_OK;
  ot_json_writer json = ot_json_begin(l->arena, 2);
  ot_node_write_json(l->record.line[l->record.count - 1].tree, NULL, &json);
  puts(json.text);
  return OT_OK;
}

static ot_status rerun(command *c) {
  const ot_options *const o = c->options;
  const ot_ledger_rerun_request request = {
      .runs = ot_options_num_arguments(o) > 1 ? ot_options_argument(o, 1) : "3",
      .seed = (uint64_t)ot_options_integer(o, "seed"),
      .program = ot_options_text(o, "program"),
      .ranks = (int)ot_options_integer(o, "ranks"),
      .num_sets = ot_options_count(o, "set"),
      .sets = ot_options_values(o, "set")};
  ot_json_writer json = ot_json_begin(c->ledger.arena, 2);
  const ot_node **runs;
  int64_t count;
  bool found = false;
  OT_TRY(ot_ledger_choose_reruns(&c->ledger, &request, &runs, &count));
  ot_json_object(&json, NULL);
  ot_json_array(&json, "runs");
  for (int64_t i = 0; i < count; i++) {
    const char *const id = ot_record_text(runs[i], "run");
    ot_ledger_rerun_result result;
    OT_TRY(ot_ledger_rerun(&c->ledger, &request, runs[i], &result));
    found = found || result.finding;
    ot_json_object(&json, NULL);
    ot_json_text(&json, "run", id);
    ot_json_text(&json, "result", result.text);
    ot_json_boolean(&json, "finding", result.finding);
    ot_json_end(&json);
    if (!c->as_json) printf("%s: %s\n", id, result.text);
  }
  ot_json_end(&json);
  ot_json_end(&json);
  if (c->as_json) puts(json.text);
  return found ? ot_fail(OT_FINDINGS, "%s", "") : OT_OK;
}

static ot_status bisect(command *c) {
  const ot_options *const o = c->options;
  const ot_bisection_request request = {.from = ot_options_text(o, "from"),
                                        .to = ot_options_text(o, "to"),
                                        .against = ot_options_text(o, "against"),
                                        .commits = ot_options_text(o, "commits"),
                                        .source = ot_options_text(o, "source"),
                                        .build = ot_options_text(o, "build"),
                                        .program = ot_options_text(o, "program"),
                                        .scale = ot_options_text(o, "scale"),
                                        .pairs = (int)ot_options_integer(o, "pairs")};
  ot_bisection_result result;
  const ot_status status = ot_ledger_bisect(&c->ledger, &request, &result);
  if (result.ended) ot_ledger_print_bisection(&c->ledger, &result, c->as_json);
  return status;
}

static ot_status report(command *c) {
  const ot_ledger_page page = ot_ledger_page_of(&c->ledger);
  const char *const path = ot_options_text(c->options, "html");
  ot_text_builder text = {.arena = c->ledger.arena};
  if (path) {
    ot_ledger_print_html(&page, &text);
    OT_TRY(ot_output_file_replace(path, ot_text_builder_text(&text), text.length));
    fprintf(stderr, "page: %s\n", path);
  }
  text = (ot_text_builder){.arena = c->ledger.arena};
  ot_ledger_print(&page, &text);
  if (c->as_json)
    puts(ot_ledger_json(&page));
  else if (!path || !ot_output_file_is_stdout(path))
    fputs(ot_text_builder_text(&text), stdout);
  return OT_OK;
}

// All recorded runs, one a line, as CSV; names need no quotes.
static ot_status export_runs(command *c) {
  static const char *const columns[] = {
      "run",           "change",      "scale",        "seed",
      "budget",        "state",       "loss",         "steps",
      "tokens",        "model_flops", "seconds",      "spikes",
      "build",         "machine",     "data_hash",    "validation_hash",
      "schedule_hash", "config_hash", "weights_hash", "base",
      "key",           "time"};
  const char *const path = ot_options_text(c->options, "out");
  const ot_record *const r = &c->ledger.record;
  ot_text_builder text = {.arena = c->ledger.arena};
  for (int i = 0; i < OT_COUNT(columns); i++)
    ot_text_appendf(&text, "%s%s", i > 0 ? "," : "", columns[i]);
  ot_text_put(&text, "\n");
  for (int64_t k = 0; k < r->count; k++) {
    if (!ot_text_equal(r->line[k].kind, "run")) continue;
    for (int i = 0; i < OT_COUNT(columns); i++)
      ot_text_appendf(&text, "%s%s", i > 0 ? "," : "", ot_record_text(r->line[k].tree, columns[i]));
    ot_text_put(&text, "\n");
  }
  if (path) return ot_output_file_replace(path, ot_text_builder_text(&text), text.length);
  fputs(ot_text_builder_text(&text), stdout);
  return OT_OK;
}

// ---- the verb ----

static const struct {
  const char *name;
  int arguments;  // at least, after the action
  bool closed;    // works without a ledger
  ot_status (*run)(command *c);
} actions[] = {
    {"init", 1, true, begin},
    {"fit", 0, false, fit},
    {"add", 1, false, add},
    {"run", 1, false, run},
    {"look", 1, false, analyse},
    {"sign", 1, false, sign},
    {"merge", 1, false, merge},
    {"rerun", 0, false, rerun},
    {"bisect", 0, false, bisect},
    {"report", 0, false, report},
    {"export", 0, false, export_runs},
};

static void print_progress(const char *format, va_list arguments) {
  vfprintf(stderr, format, arguments);
  fputs("\n", stderr);
}

static ot_status ledger(const ot_options *options) {
  ot_arena *const arena = ot_options_arena(options);
  const char *const name = ot_options_argument(options, 0);
  command c = {.options = options,
               .as_json = ot_options_json(options),
               .ledger = {.directory = ot_options_text(options, "ledger"),
                          .arena = arena,
                          .presets = ot_installed_presets(arena),
                          .jobs = (int)ot_options_integer(options, "jobs"),
                          .progress = print_progress}};
  for (int i = 0; i < OT_COUNT(actions); i++) {
    if (!ot_text_equal(actions[i].name, name)) continue;
    OT_CHECK(ot_options_num_arguments(options) > actions[i].arguments, OT_USAGE,
             "ledger %s needs a name (`orthant help ledger`)", name);
    if (!actions[i].closed) OT_TRY(ot_ledger_open(&c.ledger));
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
