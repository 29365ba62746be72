// SPDX-License-Identifier: Apache-2.0
// Accuracy of predicted steps on this machine. Trains a grid of configurations for a few steps
// each; prints predicted and measured seconds side by side, and whether memory matches the plan to
// the byte. First measures the machine as `orthant bench` does, unless --cluster names a file.
// Between configurations it times one GEMM (the column "pace" is its time relative to that after
// the measurement) and a cache line between two cores (column "line", in ns); a configuration is
// run again, twice at most, if either was not as when the machine was measured.
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

enum { TRIES = 3, MOST_MEASUREMENTS = 4 };  // runs of a case, and of the machine

static const double most_pace = 1.06, most_distance = 1.6;

typedef struct settings {
  bool quick, json, ops, tasks, memory;
  int steps;
  const char *only;
  const char *cluster;
} settings;

typedef struct result {
  const ot_predict_case *of;
  ot_predict_outcome outcome;
  double pace;          // time of the GEMM now / when the machine was measured
  double round_trip_s;  // of a cache line between two cores
} result;

typedef struct report {
  result *results;  // [count]
  int count;
} report;

static double ratio_of(const result *r) { return r->outcome.predicted_s / r->outcome.measured_s; }

static double error_of(const result *r) { return 100 * fabs(ratio_of(r) - 1); }

// ---- text ----

static void print_head(void) {
  printf("%-8s %-14s %5s %10s %10s %10s %7s %6s %5s %15s %13s %s\n", "model", "case", "ranks",
         "predicted", "median ms", "fastest", "ratio", "pace", "line", "bubble %", "exposed ms",
         "memory");
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

static void print_result(const settings *s, const result *r, ot_arena *arena) {
  const ot_predict_outcome *const o = &r->outcome;
  printf("%-8s %-14s %5d %10.2f %10.2f %10.2f %7.3f %6.2f %5.0f %7.1f %7.1f %6.1f %6.1f %s\n",
         r->of->model, r->of->name, r->of->ranks, 1e3 * o->predicted_s, 1e3 * o->measured_s,
         1e3 * o->fastest_s, ratio_of(r), r->pace, 1e9 * r->round_trip_s, 100 * o->expected_bubble,
         100 * o->bubble, 1e3 * o->expected_exposed_s, 1e3 * o->exposed_s, memory_word(o));
  if (s->ops) print_ops(r);
  if (s->tasks) ot_predict_tasks_print(o, s->steps, arena);
  fflush(stdout);
}

// ---- totals ----

typedef struct verdict {
  double median_percent, worst_percent;
  int within, unequal;  // cases within 10 %; cases whose memory differs
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
    v.unequal += all->results[i].outcome.unequal_ranks > 0;
  }
  qsort(errors, (size_t)all->count, sizeof *errors, by_value);
  if (all->count == 0) return v;
  v.median_percent = (errors[(all->count - 1) / 2] + errors[all->count / 2]) / 2;
  v.worst_percent = errors[all->count - 1];
  return v;
}

static void print_case_json(const result *r, ot_json_writer *json) {
  const ot_predict_outcome *const o = &r->outcome;
  ot_json_object(json, NULL);
  ot_json_text(json, "model", r->of->model);
  ot_json_text(json, "case", r->of->name);
  ot_json_integer(json, "ranks", r->of->ranks);
  ot_json_real(json, "predicted_seconds", o->predicted_s);
  ot_json_real(json, "measured_seconds", o->measured_s);
  ot_json_real(json, "fastest_seconds", o->fastest_s);
  ot_json_real(json, "ratio", ratio_of(r));
  ot_json_real(json, "pace", r->pace);
  ot_json_real(json, "round_trip_seconds", r->round_trip_s);
  ot_json_integer(json, "planned_bytes", o->planned_bytes);
  ot_json_integer(json, "touched_bytes", o->touched_bytes);
  ot_json_boolean(json, "memory_equal", o->unequal_ranks == 0);
  ot_json_end(json);
}

static void print_json(const report *all, const verdict *v, ot_arena *arena) {
  ot_json_writer json = ot_json_begin(arena, 2);
  ot_json_object(&json, NULL);
  ot_json_array(&json, "cases");
  for (int i = 0; i < all->count; i++) print_case_json(&all->results[i], &json);
  ot_json_end(&json);
  ot_json_integer(&json, "count", all->count);
  ot_json_real(&json, "median_percent", v->median_percent);
  ot_json_real(&json, "worst_percent", v->worst_percent);
  ot_json_integer(&json, "within_10_percent", v->within);
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

// State of the machine, which other virtual machines change: the time of a product, and whether
// cores share a cache.
typedef struct conditions {
  double pace_s, round_trip_s;
} conditions;

static ot_status observe(conditions *now) {
  OT_TRY(ot_measure_round_trip(&now->round_trip_s));
  return ot_measure_pace(&now->pace_s);
}

static bool is_near(double a, double b, double factor) {
  return a <= b * factor && b <= a * factor;
}

static bool is_alike(const conditions *now, const conditions *then) {
  return is_near(now->pace_s, then->pace_s, most_pace) &&
         is_near(now->round_trip_s, then->round_trip_s, most_distance);
}

// A measurement of the machine, and its state at that time.
typedef struct measurement {
  ot_cluster cluster;
  conditions then;
} measurement;

typedef struct measurements {
  measurement all[MOST_MEASUREMENTS];
  int count;
} measurements;

static ot_status measure(const settings *s, ot_arena *arena, measurements *m) {
  bool found = true;
  measurement *const added = &m->all[m->count++];
  ot_cluster *const cluster = &added->cluster;
  const ot_presets presets = ot_installed_presets(arena);
  if (s->cluster) {
    OT_TRY(ot_cluster_file_load(s->cluster, &presets, arena, cluster, &found));
  } else {
    fprintf(stderr, "measuring the machine\n");
    OT_TRY(ot_measure_machine(&(ot_measure_request){.quick = s->quick}, arena, cluster));
  }
  OT_TRY(observe(&added->then));
  OT_TRY(observe(&added->then));  // the first one finds a cold core
  if (cluster->measured.round_trip_s > 0) added->then.round_trip_s = cluster->measured.round_trip_s;
  return OT_OK;
}

// The measurement whose cores were as far apart as now; the machine is measured again if there is
// none, and room for it.
static ot_status choose(const settings *s, ot_arena *arena, measurements *m,
                        const measurement **chosen) {
  conditions now;
  OT_TRY(observe(&now));
  for (int i = 0; i < m->count; i++) {
    *chosen = &m->all[i];
    if (is_near(now.round_trip_s, (*chosen)->then.round_trip_s, most_distance)) return OT_OK;
  }
  if (s->cluster || m->count == MOST_MEASUREMENTS) return OT_OK;
  OT_TRY(measure(s, arena, m));
  *chosen = &m->all[m->count - 1];
  return OT_OK;
}

static ot_status run_once(const settings *s, const measurement *m, result *r, bool *again) {
  conditions now = {0};
  ot_heap heap = {0};
  ot_arena scratch = ot_heap_arena_create(&heap);
  const ot_predict_how how = {.cluster = &m->cluster, .steps = s->steps, .memory = s->memory};
  ot_status status = ot_predict_case_run(r->of, &how, &scratch, &r->outcome);
  if (status == OT_OK) status = observe(&now);
  r->pace = now.pace_s / m->then.pace_s;
  r->round_trip_s = now.round_trip_s;
  *again = *again && !is_alike(&now, &m->then);
  if (status == OT_OK && !*again && !s->json) print_result(s, r, &scratch);
  ot_heap_release(&heap);
  return status;
}

static ot_status run_cases(const settings *s, ot_arena *arena, report *all) {
  measurements *const m = ot_arena_array(arena, 1, sizeof *m);
  OT_TRY(measure(s, arena, m));
  all->results = ot_arena_array(arena, ot_predict_num_cases, sizeof *all->results);
  if (!s->json) print_head();
  for (int i = 0; i < ot_predict_num_cases; i++) {
    if (!is_chosen(s, &ot_predict_cases[i])) continue;
    result *const r = &all->results[all->count++];
    *r = (result){.of = &ot_predict_cases[i]};
    bool again = true;
    for (int try = 1; again && try <= TRIES; try++) {
      const measurement *chosen = NULL;
      again = try < TRIES;
      OT_TRY(choose(s, arena, m, &chosen));
      OT_TRY(run_once(s, chosen, r, &again));
    }
  }
  OT_CHECK(all->count > 0, OT_USAGE, "--only %s: no case or model has such a name", s->only);
  return OT_OK;
}

static ot_status predict(const settings *s, ot_arena *arena) {
  report all = {0};
  OT_TRY(run_cases(s, arena, &all));
  const verdict v = judge(&all, arena);
  if (s->json) {
    print_json(&all, &v, arena);
  } else {
    printf("%d cases: median error %.1f %%, worst %.1f %%, %d within 10 %%; memory %s\n", all.count,
           v.median_percent, v.worst_percent, v.within,
           v.unequal == 0 ? "as planned in all" : "DIFFERS");
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
    {"steps", OT_OPTION_INTEGER, "N", "5", 1, OT_PREDICT_MAX_STEPS,
     .help = "measured steps per median"},
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
