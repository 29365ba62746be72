// SPDX-License-Identifier: Apache-2.0
// Duration of planning: the complete search for jobs from one node to 131,072 devices, and one
// estimate by stages, chunks and micro-batches with known costs. Time of the single core used and
// wall time; median of repeats, each from scratch.
//   bench/search [--repeats R] [--case NAME] [--json]
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/json_writer.h"
#include "base/text.h"
#include "cli/installed.h"
#include "files/config_file.h"
#include "host/heap.h"
#include "search/search.h"
#include "support/bench_program.h"

enum { MAX_REPEATS = 64, TOP = 10, SEQUENCE = 8192 };

typedef struct search_case {
  const char *name, *model, *cluster, *engine;
  int devices;
  int64_t batch;
} search_case;

static const search_case cases[] = {
    {"8b-8", "llama3-8b", "h100", "orthant", 8, 64},
    {"8b-64", "llama3-8b", "h100", "orthant", 64, 256},
    {"70b-1k", "llama3-70b", "h100", "orthant", 1024, 1024},
    {"405b-16k", "llama3.1-405b", "h100", "orthant", 16384, 2048},
    {"405b-16k-megatron", "llama3.1-405b", "h100", "megatron-core", 16384, 2048},
    {"405b-131k", "llama3.1-405b", "h100", "orthant", 131072, 16384},
    {"235b-576", "qwen3-235b-a22b", "gb300-nvl72", "orthant", 576, 1152},
};

// Stages, chunks per stage, micro-batches.
static const int shapes[][3] = {{1, 1, 16},  {8, 1, 32},  {16, 1, 64},  {16, 1, 256},
                                {16, 4, 64}, {16, 7, 64}, {32, 1, 128}, {63, 2, 126}};

// A job with all objects that it points to.
typedef struct bench_job {
  ot_heap heap;
  ot_arena arena;
  ot_config_model model;
  ot_cluster cluster;
  ot_job job;
} bench_job;

static double clock_s(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static double median(double *values, int count) {
  qsort(values, (size_t)count, sizeof *values, compare);
  return values[count / 2];
}

// ---- jobs ----

static ot_status load(const search_case *c, bench_job *out) {
  const ot_config_request request = {.presets = ot_installed_presets(&out->arena)};
  const ot_engine *engine;
  ot_cluster preset;
  bool found;
  OT_TRY(ot_config_load_model(c->model, &request, &out->arena, &out->model));
  OT_TRY(ot_cluster_file_load(c->cluster, &request.presets, &out->arena, &preset, &found));
  OT_TRY(ot_cluster_resize(&preset, c->devices, &out->cluster));
  OT_TRY(ot_engine_file_load(c->engine, &request.presets, &out->arena, &engine));
  out->job =
      (ot_job){.model = &out->model.model,
               .cluster = &out->cluster,
               .engine = engine,
               .recipe = *ot_recipe_find("bf16"),
               .devices = c->devices,
               .global_batch_size = c->batch,
               .sequence_length = SEQUENCE,
               .given = {.zero = -1, .pipeline = (ot_pipeline)-1, .recompute = (ot_recompute)-1}};
  return OT_OK;
}

static ot_status create(const search_case *c, bench_job *out) {
  *out = (bench_job){0};
  out->arena = ot_heap_arena_create(&out->heap);
  const ot_status status = load(c, out);
  if (status != OT_OK) ot_heap_release(&out->heap);
  return status;
}

// ---- searches ----

typedef struct search_row {
  const search_case *what;
  double core_s, wall_s;
  int64_t bytes;
  ot_search search;  // counts only
} search_row;

static ot_status search_once(const search_case *c, search_row *row) {
  bench_job b;
  OT_TRY(create(c, &b));
  const ot_search_request request = {.job = &b.job, .top = TOP};
  const double core_s = clock_s(CLOCK_THREAD_CPUTIME_ID), wall_s = clock_s(CLOCK_MONOTONIC);
  const ot_status status = ot_search_build(&request, &b.arena, &row->search);
  row->core_s = clock_s(CLOCK_THREAD_CPUTIME_ID) - core_s;
  row->wall_s = clock_s(CLOCK_MONOTONIC) - wall_s;
  row->bytes = b.heap.bytes;
  ot_heap_release(&b.heap);
  return status;
}

static ot_status search_repeats(const search_case *c, int repeats, search_row *row) {
  double core_s[MAX_REPEATS], wall_s[MAX_REPEATS];
  *row = (search_row){.what = c};
  for (int i = 0; i < repeats; i++) {
    OT_TRY(search_once(c, row));
    core_s[i] = row->core_s;
    wall_s[i] = row->wall_s;
  }
  row->core_s = median(core_s, repeats);
  row->wall_s = median(wall_s, repeats);
  return OT_OK;
}

static void print_search(const search_row *r) {
  const ot_search *const s = &r->search;
  printf(
      "%-18s %7d  %8.3f s %8.3f s %6.0f MB  %9lld candidates: %6lld simulated, %8lld memory, "
      "%8lld slower, %7lld rule\n",
      r->what->name, r->what->devices, r->core_s, r->wall_s, (double)r->bytes / 1e6,
      (long long)s->num_candidates, (long long)s->num_simulated,
      (long long)s->num_rejected[OT_REJECTED_MEMORY],
      (long long)s->num_rejected[OT_REJECTED_SLOWER], (long long)s->num_rejected[OT_REJECTED_RULE]);
  fflush(stdout);
}

static void write_search(const search_row *r, ot_json_writer *w) {
  const ot_search *const s = &r->search;
  ot_json_object(w, NULL);
  ot_json_text(w, "case", r->what->name);
  ot_json_text(w, "model", r->what->model);
  ot_json_text(w, "engine", r->what->engine);
  ot_json_integer(w, "devices", r->what->devices);
  ot_json_real(w, "core_seconds", r->core_s);
  ot_json_real(w, "wall_seconds", r->wall_s);
  ot_json_integer(w, "bytes", r->bytes);
  ot_json_integer(w, "candidates", s->num_candidates);
  ot_json_integer(w, "simulated", s->num_simulated);
  ot_json_integer(w, "rejected_memory", s->num_rejected[OT_REJECTED_MEMORY]);
  ot_json_integer(w, "rejected_slower", s->num_rejected[OT_REJECTED_SLOWER]);
  ot_json_integer(w, "rejected_rule", s->num_rejected[OT_REJECTED_RULE]);
  ot_json_end(w);
}

// ---- one estimate ----

static ot_candidate candidate_of(const int shape[3]) {
  const int pp = shape[0], vpp = shape[1];
  return (ot_candidate){.tp = 8,
                        .pp = pp,
                        .vpp = vpp,
                        .cp = 1,
                        .ep = 1,
                        .etp = 1,
                        .dp = 8,
                        .dp_shard = 8,
                        .zero = 1,
                        .micro_batch_size = 1,
                        .micro_batches = shape[2],
                        .pipeline = vpp > 1 ? OT_PIPELINE_INTERLEAVED : OT_PIPELINE_1F1B,
                        .recompute = OT_RECOMPUTE_FULL};
}

// Seconds of an estimate with known costs and pipeline schedule.
static ot_status time_estimate(const int shape[3], int repeats, double *core_s) {
  const ot_candidate candidate = candidate_of(shape);
  const search_case c = {.model = "llama3.1-405b",
                         .cluster = "h100",
                         .engine = "orthant",
                         .devices = candidate.tp * candidate.pp * candidate.dp,
                         .batch = (int64_t)candidate.dp * candidate.micro_batches};
  double seconds[MAX_REPEATS];
  bench_job b;
  ot_estimator *estimator;
  ot_estimate estimate;
  OT_TRY(create(&c, &b));
  ot_status status = ot_estimator_build(&b.job, &b.arena, &estimator);
  if (status == OT_OK) status = ot_estimate_build(estimator, &candidate, &estimate);
  for (int i = 0; i < repeats && status == OT_OK; i++) {
    const double begin_s = clock_s(CLOCK_THREAD_CPUTIME_ID);
    status = ot_estimate_build(estimator, &candidate, &estimate);
    seconds[i] = clock_s(CLOCK_THREAD_CPUTIME_ID) - begin_s;
  }
  ot_heap_release(&b.heap);
  if (status == OT_OK) *core_s = median(seconds, repeats);
  return status;
}

static ot_status run_estimates(int repeats, ot_json_writer *w) {
  if (w) ot_json_array(w, "estimates");
  for (int i = 0; i < OT_COUNT(shapes); i++) {
    double core_s;
    OT_TRY(time_estimate(shapes[i], repeats, &core_s));
    const int *const s = shapes[i];
    const double actions = 2.0 * s[0] * s[1] * s[2];
    if (!w) {
      printf("estimate: %2d stages x %d chunks, %3d micro-batches: %7.0f us, %4.0f ns per action\n",
             s[0], s[1], s[2], 1e6 * core_s, 1e9 * core_s / actions);
      continue;
    }
    ot_json_object(w, NULL);
    ot_json_integer(w, "stages", s[0]);
    ot_json_integer(w, "chunks", s[1]);
    ot_json_integer(w, "micro_batches", s[2]);
    ot_json_real(w, "core_seconds", core_s);
    ot_json_end(w);
  }
  if (w) ot_json_end(w);
  return OT_OK;
}

// ---- the program ----

static ot_status run_searches(const char *only, int repeats, ot_json_writer *w) {
  bool any = false;
  if (w) ot_json_array(w, "searches");
  for (int i = 0; i < OT_COUNT(cases); i++) {
    search_row row;
    if (only && !ot_text_equal(only, cases[i].name)) continue;
    OT_TRY(search_repeats(&cases[i], repeats, &row));
    any = true;
    if (w) {
      write_search(&row, w);
    } else {
      print_search(&row);
    }
  }
  OT_CHECK(any, OT_USAGE, "--case=%s: there is none (try %s or %s)", only, cases[0].name,
           cases[3].name);
  if (w) ot_json_end(w);
  return OT_OK;
}

static ot_status run_all(const ot_options *options) {
  ot_arena *const arena = ot_options_arena(options);
  const int repeats = (int)ot_options_integer(options, "repeats");
  const char *const only = ot_options_text(options, "case");
  ot_json_writer json = ot_json_begin(arena, 2);
  ot_json_writer *const w = ot_options_json(options) ? &json : NULL;
  if (w) ot_json_object(w, NULL);
  if (!w) printf("%-18s %7s  %10s %10s %9s\n", "search", "devices", "one core", "wall", "memory");
  OT_TRY(run_searches(only, repeats, w));
  if (!only) OT_TRY(run_estimates(repeats, w));
  if (!w) return OT_OK;
  ot_json_end(w);
  printf("%s\n", json.text);
  return OT_OK;
}

static const ot_option options[] = {
    {"repeats", OT_OPTION_INTEGER, "R", "3", 1, MAX_REPEATS, .help = "searches per median"},
    {"case", OT_OPTION_TEXT, "NAME", .help = "only the search of this name"},
};

const ot_verb ot_bench_program = {
    .prefix = OT_BENCH_PREFIX,
    .name = "search",
    .summary = "duration of planning",
    .arguments = "",
    .options = options,
    .num_options = OT_COUNT(options),
    .json = true,
    .run = run_all,
};
