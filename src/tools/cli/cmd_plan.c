// SPDX-License-Identifier: Apache-2.0
// `orthant plan`: the fastest parallel configuration that fits, and why.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/quantity.h"
#include "cli/installed.h"
#include "cli/output.h"
#include "cli/plan_calibrate.h"
#include "cli/plan_compare.h"
#include "cli/plan_live.h"
#include "cli/plan_progress.h"
#include "cli/plan_request.h"
#include "cli/plan_sweep.h"
#include "cli/run_options.h"
#include "cli/verbs.h"
#include "files/config_file.h"
#include "files/output_file.h"
#include "record/trace.h"
#include "report/plan_report.h"

typedef struct planning {
  const ot_options *options;
  ot_arena *arena;
  ot_plan_request request;
  ot_plan_page page;
  ot_calibration_report *calibration;  // null without --calibrate
  const ot_deadline *deadline;         // null without --deadline
  // --emit
  bool emits;
  ot_emit_kind kind;
  ot_software software;   // of OT_EMIT_OTHER
  const char *emit_path;  // null: instead of the report
  bool takes_stdout;      // a requested output goes to stdout instead of the report
} planning;

// The option whose output goes to standard output, or null.
static const char *stdout_option(const planning *p) {
  if (p->emits && (!p->emit_path || ot_output_file_is_stdout(p->emit_path))) return "emit";
  static const char *const files[] = {"html", "trace"};
  for (int i = 0; i < OT_COUNT(files); i++) {
    const char *const path = ot_options_text(p->options, files[i]);
    if (path && ot_output_file_is_stdout(path)) return files[i];
  }
  return NULL;
}

// KIND or KIND=FILE.
static ot_status parse_emit(planning *p, const char *text) {
  const size_t length = strcspn(text, "=");
  p->emit_path = text[length] == '=' ? text + length + 1 : NULL;
  p->kind = ot_emit_find(text, (int64_t)length, &p->software);
  OT_CHECK(p->kind != OT_EMIT_KINDS, OT_USAGE,
           "--emit: \"%s\" is not one of run|mpirun|sbatch|mpijob|megatron|torchtitan|deepspeed|"
           "nanotron, each optionally =FILE",
           ot_arena_text(p->arena, text, (int64_t)length));
  OT_CHECK(!p->emit_path || *p->emit_path != '\0', OT_USAGE, "--emit: the path is empty");
  return OT_OK;
}

static ot_status read_outputs(planning *p) {
  const char *const what = ot_options_text(p->options, "emit");
  p->emits = what != NULL;
  if (what) OT_TRY(parse_emit(p, what));
  const char *const option = stdout_option(p);
  p->takes_stdout = option != NULL;
  const char *const instead = ot_options_json(p->options) ? "json" : option;
  OT_CHECK(!instead || !ot_options_given(p->options, "brief"), OT_USAGE,
           "--brief shortens the text, which --%s replaces (use one of them)", instead);
  if (!option || !ot_options_json(p->options)) return OT_OK;
  ot_fail(OT_USAGE, "--%s %s and --json both print on stdout", option,
          ot_options_text(p->options, option));
  return ot_fail_hint(OT_USAGE, "give --%s a file of its own", option);
}

static ot_status emit(planning *p) {
  OT_CHECK(p->page.run || p->kind == OT_EMIT_OTHER, OT_USAGE,
           "--emit: no HF family matches this model, so no run can name it");
  if (p->page.job->run) {
    OT_TRY(ot_plan_prove(p->page.job, &p->page.plans[0].estimate->candidate, p->arena));
  }
  ot_text_builder text = {.arena = p->arena};
  OT_TRY(ot_plan_emit(&p->page, p->kind, &text));
  if (p->emit_path) return ot_output_file_replace(p->emit_path, text.text, text.length);
  fputs(ot_text_builder_text(&text), stdout);
  return OT_OK;
}

static ot_status write_html(planning *p, const char *path) {
  ot_text_builder text = {.arena = p->arena};
  OT_TRY(ot_plan_live_write(p->options, &p->page, p->request.question.cluster, NULL, &text));
  return ot_output_file_replace(path, text.text, text.length);
}

// Ranks of a stage share one timeline, so the first rank of each stage represents it.
static ot_status write_stages(const ot_prediction *p, ot_arena *arena, ot_trace *trace) {
  ot_timeline *const timelines = ot_arena_array(arena, p->num_stages, sizeof *timelines);
  OT_TRY(ot_prediction_replay(p, p->steps[0].micro_batches, arena, timelines));
  for (int i = 0; i < p->num_stages; i++) {
    OT_TRY(ot_trace_write_timeline(trace, &timelines[i], p->schedules[i], 0));
  }
  return ot_trace_finish(trace);
}

// Builds the schedules as training does.
static ot_status write_schedules(const ot_plan_page *page, const char *path, ot_arena *arena) {
  ot_prediction prediction;
  ot_trace *trace = NULL;
  OT_TRY(ot_plan_predict(page->job, &page->plans[0].estimate->candidate, arena, &prediction));
  OT_TRY(ot_trace_create(path, INFINITY, &trace));
  const ot_status status = write_stages(&prediction, arena, trace);
  ot_trace_destroy(&trace);
  return status;
}

// Task by task for Orthant, action by action for other frameworks and on mixed clusters.
static ot_status write_trace(planning *p, const char *path) {
  const ot_job *const job = p->page.job;
  if (job->run && !ot_cluster_is_mixed(job->cluster))
    return write_schedules(&p->page, path, p->arena);
  return ot_predicted_trace_write(p->page.estimator, &p->page.plans[0].estimate->candidate, path);
}

static void print_page(planning *p) {
  if (ot_options_json(p->options)) {
    puts(ot_plan_json(&p->page, p->arena));
    return;
  }
  static const int brief_rows = 3;
  const bool all = ot_options_given(p->options, "top");
  const ot_report_form form = {.bold = ot_output_color(stdout),
                               .brief = ot_options_given(p->options, "brief"),
                               .rows = all ? p->page.num_plans : brief_rows};
  ot_text_builder text = {.arena = p->arena};
  ot_plan_report(&p->page, &form, &text);
  fputs(ot_text_builder_text(&text), stdout);
}

static ot_status refuse(planning *p) {
  const ot_estimate *const nearest = &p->page.search->nearest;
  const double used = (double)(nearest->memory.reserved + nearest->memory.context);
  char split[256];
  ot_candidate_print(&nearest->candidate, split, sizeof split);
  ot_fail(OT_FINDINGS, "no plan fits: the nearest takes %s a device (%s)",
          ot_figure_need(p->arena, used, (double)ot_memory_limit(&nearest->memory)), split);
  if (p->page.num_remedies == 0) return OT_FINDINGS;
  return ot_fail_hint(OT_FINDINGS, "fits %s", p->page.remedies[0]);
}

// Corrects the cluster of the request by measured steps.
static ot_status calibrate(planning *p) {
  const char *const file = ot_options_text(p->options, "calibrate");
  if (!file) return OT_OK;
  p->calibration = ot_arena_take(p->arena, sizeof *p->calibration);
  return ot_plan_calibrate(file, &p->request, p->arena, p->calibration);
}

// Replaces the options by those with the fewest devices that end the run in time.
static ot_status apply_deadline(planning *p) {
  if (!ot_options_given(p->options, "deadline")) return OT_OK;
  ot_deadline *const deadline = ot_arena_take(p->arena, sizeof *deadline);
  OT_TRY(ot_plan_deadline(p->options, deadline, &p->options));
  p->deadline = deadline;
  return OT_OK;
}

static ot_status plan(planning *p) {
  OT_TRY(read_outputs(p));
  OT_TRY(apply_deadline(p));
  OT_TRY(ot_plan_request_read(p->options, p->arena, &p->request));
  OT_TRY(ot_plan_compare_read(p->options, p->arena, &p->request));
  if (p->emits) OT_TRY(ot_emit_check(p->kind, p->software, p->request.job.engine));
  OT_TRY(calibrate(p));
  const ot_plan_build build = {.request = &p->request};
  OT_TRY(ot_plan_answer(&build, p->arena, &p->page));
  p->page.calibration = p->calibration;
  p->page.deadline = p->deadline;
  const bool fits = p->page.num_plans > 0;
  const char *const trace = ot_options_text(p->options, "trace");
  const char *const html = ot_options_text(p->options, "html");
  if (fits && p->emits) OT_TRY(emit(p));
  if (fits && trace) OT_TRY(write_trace(p, trace));
  if (html) OT_TRY(write_html(p, html));
  if (!fits || !p->takes_stdout) print_page(p);
  return fits ? OT_OK : refuse(p);
}

static ot_status run(const ot_options *options) {
  ot_arena *const arena = ot_options_arena(options);
  planning *const p = ot_arena_take(arena, sizeof *p);
  p->options = options;
  p->arena = arena;
  return ot_options_given(options, "sweep") ? ot_plan_sweep(options) : plan(p);
}

// ---- the table ----

static const ot_option rows[] = {
    {"model", OT_OPTION_TEXT, "M", .help = "preset, HF config.json, or a directory that holds one"},
    {"cluster", OT_OPTION_TEXT, "C", "this-machine", .help = "preset or cluster file"},
    {.key = "gpus"},
    {.key = "global_batch_size", .value = "B"},
    {.key = "sequence_length", .value = "S"},
    {.key = "tokens", .value = "T"},
    {.key = "critical_batch_tokens"},
    {.key = "tp"},
    {.key = "pp"},
    {.key = "vpp"},
    {.key = "cp"},
    {.key = "ep"},
    {.key = "etp"},
    {.key = "dp"},
    {.key = "zero"},
    {.key = "micro_batch_size"},
    {.key = "pipeline"},
    {.key = "recompute"},
    {.key = "recompute_modules", .value = "A,B"},
    {.key = "crosses"},
    {.key = "precision"},
    {"engine", OT_OPTION_TEXT, "NAME", "orthant",
     .help = "framework whose steps are priced: preset or engine file"},
    {.key = "expert_imbalance", .value = "X"},
    {"set", OT_OPTION_SETTING, "KEY=VALUE",
     .help = "setting of the run or its model; lists as [a, b]"},
    {.key = "price", .value = "DOLLARS"},
    {.key = "memory_margin", .value = "PERCENT"},
    {.key = "top", .value = "K"},
    {"brief", OT_OPTION_FLAG, .help = "the answer alone: job, plans (3 without --top) and notes"},
    {.key = "variants"},
    {"from", OT_OPTION_PATH, "FILE",
     .help = "configuration of Megatron-LM, Megatron-Bridge, NeMo, DeepSpeed, torchtitan, nanotron "
             "or MaxText, priced next to the plans"},
    {"compare", OT_OPTION_PATH, "FILE", .repeatable = true,
     .help = "RUN.yaml or configuration of other software: compared with plan 1 term by term"},
    {"sweep", OT_OPTION_SETTING, "KEY=A..B|A,B,C",
     .help = "plan each value of an option (A..B doubles A); a line of CSV each, or --json"},
    {"deadline", OT_OPTION_TEXT, "TIME",
     .help = "fewest devices, of halvings of --gpus, that end the run in time (12h, 30d, 6w)"},
    {.key = "simple"},
    {"calibrate", OT_OPTION_PATH, "FILE",
     .help = "correct the cluster by measured steps: CSV or metrics.jsonl; writes a cluster file"},
    {"emit", OT_OPTION_TEXT, "KIND[=FILE]",
     .help =
         "write the best plan: run (sections of RUN.yaml), mpirun, sbatch or mpijob; or, for its "
         "engine, megatron, torchtitan, deepspeed or nanotron"},
    {"html", OT_OPTION_PATH, "FILE",
     .help = "write the report, or a sweep, as one self-contained HTML file with charts"},
    {"trace", OT_OPTION_PATH, "FILE",
     .help = "write the predicted step of the best plan as a Chrome trace"},
};

const ot_verb ot_verb_plan = {
    .name = "plan",
    .summary = "find the fastest configuration that fits, and explain it",
    .arguments = "",
    .details =
        "Searches all parallel configurations of the devices over tp, pp, cp, ep and dp with\n"
        "pipeline schedule, ZeRO stage, micro-batch size and recompute; prices their steps on the\n"
        "cluster, and prints the fastest that fit, the reasons, and the limits of the job. Given\n"
        "options are fixed. Exit code 1 when nothing fits, with the smallest change that would.\n"
        "MFU is model FLOPs, with the causal half of attention. docs/plan.md explains the output.",
    .examples =
        "  orthant plan --model llama3-8b --cluster h100 --gpus 8\n"
        "  orthant plan --model llama3.1-405b --cluster h100 --gpus 16384 --tokens 15T\n"
        "  orthant plan --model ./config.json --cluster cluster.yaml --tp 8 --recompute full "
        "--json\n"
        "  orthant plan --model gpt2 --emit run=run.yaml\n"
        "  orthant plan --model llama3-8b --cluster h100 --gpus 64 --engine megatron-core --emit "
        "megatron",
    .options = rows,
    .num_options = OT_COUNT(rows),
    .json = true,
    .run = run,
};
