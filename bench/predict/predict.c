// SPDX-License-Identifier: Apache-2.0
// Accuracy of predicted steps on this machine. Trains a grid of configurations for a few steps
// each; prints predicted and measured seconds side by side, and whether memory matches the plan to
// the byte. Goes through the grid several times, because what disturbs a machine can last for
// minutes. In each pass it first measures the machine as `orthant bench` does, unless --cluster
// names a file; of these measurements the one with the shortest predictions counts, the least
// disturbed. After the steps of a configuration it times one GEMM (column "pace": its time relative
// to that after the measurement of the machine) and a cache line between two cores ("line", in ns).
#include "predict/predict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_writer.h"
#include "cli/installed.h"
#include "files/config_file.h"
#include "host/heap.h"
#include "measure/measure.h"
#include "ops/catalog.h"
#include "support/bench_program.h"

enum { MOST_PASSES = 8 };

// Of the steps of a case in each pass, and of a round: as long as those of the machine's kernels.
static const double least_s = 2, round_s = 0.4;

typedef struct settings {
  bool quick, json, ops, tasks, memory;
  int steps, passes;
  const char *only;
  const char *cluster;
} settings;

typedef struct result {
  const ot_predict_case *of;
  ot_predict_record record;
  ot_predict_outcome outcome;
} result;

// A measurement of the machine.
typedef struct measurement {
  ot_cluster cluster;
  double pace_s;
} measurement;

typedef struct report {
  result *results;  // [count]
  int count;
  measurement machine[MOST_PASSES];
  int num_machines;
  const measurement *chosen;
} report;

static double ratio_of(const result *r) { return r->outcome.predicted_s / r->outcome.measured_s; }

static double median_ratio_of(const result *r) {
  return r->outcome.predicted_s / r->outcome.median_s;
}

static double error_of(const result *r) { return 100 * fabs(ratio_of(r) - 1); }

// ---- text ----

static void print_head(void) {
  printf("%-8s %-14s %5s %10s %10s %10s %7s %7s %6s %5s %15s %13s %s\n", "model", "case", "ranks",
         "predicted", "measured", "median ms", "ratio", "median", "pace", "line", "bubble %",
         "exposed ms", "memory");
}

static void print_ops(const result *r) {
  const ot_predict_terms *const p = &r->outcome.predicted, *const m = &r->outcome.measured;
  for (int op = 0; op < OT_OP_COUNT; op++) {
    if (p->op_s[op] + m->op_s[op] < 1e-3 * r->outcome.measured_s) continue;
    printf("    %-24s %10.3f %10.3f %7.2f\n", ot_op_info_of((ot_op_kind)op)->name,
           1e3 * p->op_s[op], 1e3 * m->op_s[op], p->op_s[op] / m->op_s[op]);
  }
}

static const char *memory_word(const ot_predict_outcome *o) {
  if (o->unequal_ranks > 0) return "DIFFERS";
  return o->touched_bytes > 0 ? "equal" : "as planned";
}

static void print_result(const settings *s, const report *all, const result *r, ot_arena *arena) {
  const ot_predict_outcome *const o = &r->outcome;
  const ot_predict_step *const step = o->fastest;
  printf("%-8s %-14s %5d %10.2f %10.2f %10.2f %7.3f %7.3f %6.2f %5.0f %7.1f %7.1f %6.1f %6.1f %s\n",
         r->of->model, r->of->name, r->of->ranks, 1e3 * o->predicted_s, 1e3 * o->measured_s,
         1e3 * o->median_s, ratio_of(r), median_ratio_of(r), step->pace_s / all->chosen->pace_s,
         1e9 * step->round_trip_s, 100 * o->expected_bubble, 100 * o->bubble,
         1e3 * o->expected_exposed_s, 1e3 * o->exposed_s, memory_word(o));
  if (o->expert_passes > 1) printf("    %.2f passes of experts\n", o->expert_passes);
  if (s->ops) print_ops(r);
  if (s->tasks) ot_predict_tasks_print(o, arena);
  fflush(stdout);
}

// ---- totals ----

typedef struct verdict {
  double median_percent, worst_percent;
  int within, unequal;  // cases within 10 %; cases whose memory differs
  int median_within;    // cases within 10 % of the median of their steps
} verdict;

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static verdict judge(const report *all, ot_arena *arena) {
  verdict v = {0};
  double *const errors = ot_arena_array(arena, all->count + 1, sizeof *errors);
  for (int i = 0; i < all->count; i++) {
    errors[i] = error_of(&all->results[i]);
    v.within += errors[i] <= 10;
    v.median_within += fabs(median_ratio_of(&all->results[i]) - 1) <= 0.1;
    v.unequal += all->results[i].outcome.unequal_ranks > 0;
  }
  qsort(errors, (size_t)all->count, sizeof *errors, by_value);
  if (all->count == 0) return v;
  v.median_percent = (errors[(all->count - 1) / 2] + errors[all->count / 2]) / 2;
  v.worst_percent = errors[all->count - 1];
  return v;
}

static void print_case_json(const report *all, const result *r, ot_json_writer *json) {
  const ot_predict_outcome *const o = &r->outcome;
  const ot_predict_step *const step = o->fastest;
  ot_json_object(json, NULL);
  ot_json_text(json, "model", r->of->model);
  ot_json_text(json, "case", r->of->name);
  ot_json_integer(json, "ranks", r->of->ranks);
  ot_json_real(json, "predicted_seconds", o->predicted_s);
  ot_json_real(json, "measured_seconds", o->measured_s);
  ot_json_real(json, "median_seconds", o->median_s);
  ot_json_integer(json, "steps", r->record.count);
  ot_json_real(json, "ratio", ratio_of(r));
  if (o->expert_passes > 0) ot_json_real(json, "expert_passes", o->expert_passes);
  ot_json_real(json, "pace", step->pace_s / all->chosen->pace_s);
  ot_json_real(json, "round_trip_seconds", step->round_trip_s);
  ot_json_integer(json, "planned_bytes", o->planned_bytes);
  ot_json_integer(json, "touched_bytes", o->touched_bytes);
  ot_json_boolean(json, "memory_equal", o->unequal_ranks == 0);
  ot_json_end(json);
}

static void print_json(const report *all, const verdict *v, ot_arena *arena) {
  ot_json_writer json = ot_json_begin(arena, 2);
  ot_json_object(&json, NULL);
  ot_json_array(&json, "cases");
  for (int i = 0; i < all->count; i++) print_case_json(all, &all->results[i], &json);
  ot_json_end(&json);
  ot_json_integer(&json, "count", all->count);
  ot_json_real(&json, "median_percent", v->median_percent);
  ot_json_real(&json, "worst_percent", v->worst_percent);
  ot_json_integer(&json, "within_10_percent", v->within);
  ot_json_integer(&json, "medians_within_10_percent", v->median_within);
  ot_json_integer(&json, "memory_unequal", v->unequal);
  ot_json_end(&json);
  puts(json.text);
}

// ---- the grid ----

// Whether a word of --only, a case, a model or MODEL/CASE, names the case.
static bool names(const char *word, int length, const ot_predict_case *c) {
  char text[64];
  snprintf(text, sizeof text, "%s/%s", c->model, c->name);
  const char *const forms[] = {c->name, c->model, text};
  for (int i = 0; i < OT_COUNT(forms); i++) {
    if (strlen(forms[i]) == (size_t)length && strncmp(forms[i], word, (size_t)length) == 0) {
      return true;
    }
  }
  return false;
}

static bool is_chosen(const settings *s, const ot_predict_case *c) {
  const char *word = s->only;
  if (!word) return c->quick || !s->quick;
  for (int length; *word; word += length + (word[length] == ',')) {
    length = (int)strcspn(word, ",");
    if (names(word, length, c)) return true;
  }
  return false;
}

static ot_status measure_machine(const settings *s, ot_arena *arena, report *all) {
  bool found = true;
  const bool known = s->cluster && all->num_machines > 0;
  const ot_presets presets = ot_installed_presets(arena);
  if (known) return OT_OK;
  measurement *const m = &all->machine[all->num_machines++];
  if (s->cluster) {
    OT_TRY(ot_cluster_file_load(s->cluster, &presets, arena, &m->cluster, &found));
  } else {
    fprintf(stderr, "measuring the machine\n");
    OT_TRY(ot_measure_machine(&(ot_measure_request){.quick = s->quick}, arena, &m->cluster));
  }
  return ot_measure_pace(&m->pace_s);
}

static ot_status run_pass(const settings *s, int pass, ot_arena *arena, report *all) {
  const ot_predict_how how = {
      .steps = s->steps, .round_s = round_s, .least_s = least_s, .memory = s->memory && pass == 0};
  OT_TRY(measure_machine(s, arena, all));
  for (int i = 0; i < all->count; i++) {
    result *const r = &all->results[i];
    fprintf(stderr, "pass %d of %d: %s/%s\n", pass + 1, s->passes, r->of->model, r->of->name);
    OT_TRY(ot_predict_case_measure(r->of, &how, arena, &r->record));
  }
  return OT_OK;
}

// Sum of the logarithms of the predicted steps by one measurement of the machine.
static ot_status compare(const ot_cluster *cluster, ot_arena *arena, report *all, double *sum) {
  *sum = 0;
  for (int i = 0; i < all->count; i++) {
    result *const r = &all->results[i];
    OT_TRY(ot_predict_case_compare(r->of, &r->record, cluster, arena, &r->outcome));
    *sum += log(r->outcome.predicted_s);
  }
  return OT_OK;
}

static ot_status choose_machine(ot_arena *arena, report *all) {
  double least = 0, sum = 0;
  for (int i = 0; i < all->num_machines; i++) {
    OT_TRY(compare(&all->machine[i].cluster, arena, all, &sum));
    if (i == 0 || sum < least) all->chosen = &all->machine[i];
    least = i == 0 || sum < least ? sum : least;
  }
  return compare(&all->chosen->cluster, arena, all, &sum);
}

static ot_status run_cases(const settings *s, ot_arena *arena, report *all) {
  all->results = ot_arena_array(arena, ot_predict_num_cases, sizeof *all->results);
  for (int i = 0; i < ot_predict_num_cases; i++) {
    const ot_predict_case *const c = &ot_predict_cases[i];
    if (is_chosen(s, c)) all->results[all->count++].of = c;
  }
  OT_CHECK(all->count > 0, OT_USAGE, "--only %s: no case or model has such a name", s->only);
  for (int pass = 0; pass < s->passes; pass++) OT_TRY(run_pass(s, pass, arena, all));
  return choose_machine(arena, all);
}

static void print_text(const settings *s, const report *all, const verdict *v, ot_arena *arena) {
  print_head();
  for (int i = 0; i < all->count; i++) print_result(s, all, &all->results[i], arena);
  printf(
      "%d cases: median error %.1f %%, worst %.1f %%, %d within 10 %% (%d of medians); memory %s\n",
      all->count, v->median_percent, v->worst_percent, v->within, v->median_within,
      v->unequal == 0 ? "as planned in all" : "DIFFERS");
}

static ot_status predict(const settings *s, ot_arena *arena) {
  report *const all = ot_arena_array(arena, 1, sizeof *all);
  OT_TRY(run_cases(s, arena, all));
  const verdict v = judge(all, arena);
  if (s->json) {
    print_json(all, &v, arena);
  } else {
    print_text(s, all, &v, arena);
  }
  return OT_OK;
}

static ot_status run_program(const ot_options *options) {
  const settings s = {.quick = ot_options_flag(options, "quick"),
                      .json = ot_options_json(options),
                      .ops = ot_options_flag(options, "ops"),
                      .tasks = ot_options_flag(options, "tasks"),
                      .memory = !ot_options_flag(options, "no-memory"),
                      .steps = (int)ot_options_integer(options, "steps"),
                      .passes = (int)ot_options_integer(options, "passes"),
                      .only = ot_options_text(options, "only"),
                      .cluster = ot_options_text(options, "cluster")};
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_status status = predict(&s, &arena);
  ot_heap_release(&heap);
  return status;
}

static const ot_option options[] = {
    {"quick", OT_OPTION_FLAG, .help = "fewer cases, and a shorter measurement"},
    {"ops", OT_OPTION_FLAG, .help = "also predicted and measured time by operator"},
    {"tasks", OT_OPTION_FLAG, .help = "also the kernels of rank 0 that differ most, by their work"},
    {"no-memory", OT_OPTION_FLAG, .help = "omit the step that tracks written bytes"},
    {"steps", OT_OPTION_INTEGER, "N", "4", 1, OT_PREDICT_MAX_STEPS,
     .help = "measured steps in each pass at least; more if they are short"},
    {"passes", OT_OPTION_INTEGER, "N", "3", 1, MOST_PASSES,
     .help = "times that the machine and all cases are measured"},
    {"only", OT_OPTION_TEXT, "NAMES", .help = "only these cases, or models: A,B/C"},
    {"cluster", OT_OPTION_TEXT, "C",
     .help = "a cluster file, or this-machine; default: the machine is measured first"},
};

const ot_verb ot_bench_program = {
    .prefix = OT_BENCH_PREFIX,
    .name = "predict",
    .summary = "steps of a grid of configurations, predicted and measured",
    .arguments = "",
    .options = options,
    .num_options = OT_COUNT(options),
    .json = true,
    .run = run_program,
};
