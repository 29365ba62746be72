// SPDX-License-Identifier: Apache-2.0
// `orthant simulate`: predicted step time and memory of one configuration, and its timeline.
#include <math.h>
#include <stdio.h>

#include "base/json_writer.h"
#include "base/quantity.h"
#include "base/text.h"
#include "cli/installed.h"
#include "cli/output.h"
#include "cli/run_options.h"
#include "cli/verbs.h"
#include "files/config_file.h"
#include "files/output_file.h"
#include "forecast/evaluation_forecast.h"
#include "forecast/prediction.h"
#include "record/trace.h"
#include "train/loop_start.h"

typedef struct simulated {
  const ot_options *options;
  ot_arena *arena;
  ot_config config;
  ot_mesh mesh;
  ot_cluster cluster;
  ot_prediction prediction;
  ot_evaluation_forecast forecast;
} simulated;

// ---- predicting ----

// --ranks, or by default the product of the degrees.
static int count_ranks(const simulated *s) {
  const ot_run_parallel *const p = &s->config.run.parallel;
  const int asked = (int)ot_options_integer(s->options, "ranks");
  const int dp = p->dp > 0 ? p->dp : p->dp_replicate;
  return asked > 0 ? asked : p->pp * dp * p->cp * p->tp;
}

// With those of a teacher.
static int count_all(const simulated *s) {
  return s->mesh.ranks + ot_run_teacher_ranks(&s->config.run);
}

static ot_status load_cluster(simulated *s) {
  const char *const given = ot_options_text(s->options, "cluster");
  const char *const name = given ? given : s->config.run.cluster;
  const ot_presets presets = ot_installed_presets(s->arena);
  bool found;
  OT_TRY(ot_cluster_file_load(name, &presets, s->arena, &s->cluster, &found));
  if (found) return OT_OK;
  ot_fail(OT_ENVIRONMENT, "this machine was never measured (cluster %s)", name);
  return ot_fail_hint(OT_ENVIRONMENT, "`orthant bench` measures it");
}

static ot_status predict(simulated *s) {
  OT_TRY(ot_run_options_load(s->options, s->arena, &s->config));
  ot_output_notes(&s->config.notes);
  OT_TRY(load_cluster(s));
  const double imbalance = ot_options_real(s->options, "expert-imbalance");
  OT_CHECK(imbalance >= 1, OT_USAGE, "--expert-imbalance: %g; allowed: 1 (even) or more",
           imbalance);
  const double passes = ot_options_real(s->options, "expert-passes");
  OT_CHECK(passes == 0 || passes >= 1, OT_USAGE, "--expert-passes: %g; allowed: 1 or more", passes);
  OT_TRY(ot_run_options_mesh(&s->config, count_ranks(s), s->arena, &s->mesh));
  const int threads = ot_cluster_threads(&s->cluster, count_all(s), s->config.run.threads);
  const ot_prediction_request request = {.run = &s->config.run,
                                         .mesh = &s->mesh,
                                         .cluster = &s->cluster,
                                         .threads = threads,
                                         .expert_imbalance = imbalance,
                                         .expert_passes = passes};
  OT_TRY(ot_prediction_build(&request, s->arena, &s->prediction));
  return ot_evaluation_forecast_build(&request, &s->prediction, s->arena, &s->forecast);
}

// ---- output ----

static double mfu_of(const simulated *s, const ot_predicted_step *step) {
  return step->model_flops / step->expected.step_s / s->prediction.peak_flops;
}

static double tokens_per_s(const simulated *s, const ot_predicted_step *step) {
  const ot_run *const run = &s->config.run;
  const int dp = s->mesh.degree[OT_AXIS_DP_REPLICATE] * s->mesh.degree[OT_AXIS_DP_SHARD];
  const double sequences = (double)run->batch.micro_batch_size * step->micro_batches * dp;
  return sequences * (double)run->data.sequence_length / step->expected.step_s;
}

static void print_step_json(const simulated *s, const ot_predicted_step *step,
                            ot_json_writer *json) {
  ot_json_integer(json, "micro_batches", step->micro_batches);
  ot_json_real(json, "step_seconds", step->expected.step_s);
  ot_json_real(json, "teacher_seconds", step->teacher_s);
  ot_json_real(json, "publish_seconds", s->prediction.publish_s);
  ot_json_real(json, "mfu", mfu_of(s, step));
  ot_json_real(json, "tokens_per_second", tokens_per_s(s, step));
  ot_json_real(json, "bubble_fraction", step->expected.bubble_fraction);
  ot_json_object(json, "exposed_seconds");
  for (int axis = 0; axis < OT_TIMELINE_AXES; axis++) {
    ot_json_real(json, ot_timeline_axis_name((ot_timeline_axis)axis),
                 step->expected.exposed_axis_s[axis]);
  }
  ot_json_end(json);
}

// Null without them, or if their size or files are not known.
static void print_evaluations_json(const simulated *s, ot_json_writer *json) {
  const ot_evaluation_forecast *const f = &s->forecast;
  ot_json_integer(json, "validations", f->validations);
  ot_json_real(json, "validation_seconds", f->validations > 0 ? f->validation_s : NAN);
  ot_json_integer(json, "evaluations", f->evaluations);
  ot_json_real(json, "evaluation_seconds", f->evaluations > 0 ? f->tasks.seconds : NAN);
}

static void print_json(const simulated *s) {
  const ot_prediction *const p = &s->prediction;
  const ot_memory_breakdown *const planned = &p->memory.arena;
  ot_json_writer json = ot_json_begin(s->arena, 2);
  ot_json_object(&json, NULL);
  ot_json_text(&json, "cluster", p->cluster.name);
  ot_json_text(&json, "note", p->note);
  ot_json_text(&json, "doubt", p->doubt);
  ot_json_integer(&json, "ranks", s->mesh.ranks);
  ot_json_integer(&json, "threads", p->schedules[0]->threads);
  ot_json_real(&json, "more_rounds", p->more_rounds);
  print_step_json(s, &p->steps[0], &json);
  print_evaluations_json(s, &json);
  ot_json_boolean(&json, "fits", p->memory.fits);
  ot_json_real(&json, "peak_flops_per_second", p->peak_flops);
  ot_json_array(&json, "steps");
  for (int i = 0; i < p->num_steps; i++) {
    ot_json_object(&json, NULL);
    print_step_json(s, &p->steps[i], &json);
    ot_json_end(&json);
  }
  ot_json_end(&json);
  ot_json_object(&json, "memory");
  for (int i = 0; i < OT_MEMORY_CLASSES; i++) {
    ot_json_integer(&json, ot_memory_class_name((ot_memory_class)i), planned->class_bytes[i]);
  }
  ot_json_integer(&json, "peak", planned->peak_bytes);
  ot_json_integer(&json, "teacher", p->memory.teacher);
  ot_json_integer(&json, "context", p->memory.context);
  ot_json_integer(&json, "capacity", p->memory.capacity);
  ot_json_end(&json);
  ot_json_end(&json);
  puts(json.text);
}

static void print_step(const simulated *s, const ot_predicted_step *step) {
  char rate[32];
  ot_rate_print(rate, sizeof rate, tokens_per_s(s, step));
  const ot_prediction *const p = &s->prediction;
  printf("step       %.4g s with %d micro-batch%s, %s tok/s, MFU %.1f%% of %s/s a rank\n",
         step->expected.step_s, step->micro_batches, ot_text_plural(step->micro_batches, "es"),
         rate, 100 * mfu_of(s, step), ot_figure_flops(s->arena, p->peak_flops / count_all(s)));
  if (p->teacher.parameters > 0) printf("teacher    %.4g s of it\n", step->teacher_s);
  if (s->mesh.ranks == 1) return;
  printf("exposed   ");
  for (int axis = 0; axis < OT_TIMELINE_AXES; axis++) {
    if (step->expected.exposed_axis_s[axis] == 0) continue;
    printf(" %s %.3f", ot_timeline_axis_name((ot_timeline_axis)axis),
           1e3 * step->expected.exposed_axis_s[axis]);
  }
  printf(" ms\n");
  if (s->prediction.num_stages > 1)
    printf("bubble     %.1f%%\n", 100 * step->expected.bubble_fraction);
}

static void print_memory(const simulated *s) {
  const ot_predicted_memory *const m = &s->prediction.memory;
  printf("memory     %s of %s on rank %d",
         ot_figure_bytes(s->arena, m->arena.peak_bytes + m->teacher + m->context),
         ot_figure_bytes(s->arena, m->capacity), m->rank);
  const char *separator = s->mesh.ranks > 1 ? ", the fullest: " : ": ";
  for (int i = 0; i < OT_MEMORY_CLASSES; i++) {
    if (m->arena.class_bytes[i] == 0) continue;
    printf("%s%s %s", separator, ot_memory_class_name((ot_memory_class)i),
           ot_figure_bytes(s->arena, m->arena.class_bytes[i]));
    separator = ", ";
  }
  if (m->teacher > 0) printf(", teacher %s", ot_figure_bytes(s->arena, m->teacher));
  if (m->context > 0) printf(", runtime %s", ot_figure_bytes(s->arena, m->context));
  printf("\n");
}

static void print_evaluations(const simulated *s) {
  const ot_evaluation_forecast *const f = &s->forecast;
  const int64_t steps = ot_run_total_steps(&s->config.run);
  const double both_s = ot_evaluation_forecast_s(f);
  const double run_s = (double)steps * s->prediction.steps[0].expected.step_s + both_s;
  if (f->validations > 0 && isnan(f->validation_s)) {
    printf("validation %.4g s a micro-batch of each rank (data.validation_tokens: of how many)\n",
           f->validation_round_s);
  } else if (f->validations > 0) {
    printf("validation %.4g s, %lld in the run\n", f->validation_s, (long long)f->validations);
  }
  if (f->note) printf("%s\n", f->note);
  if (f->evaluations > 0 && !f->note)
    printf("evaluation %.4g s, %lld in the run\n", f->tasks.seconds, (long long)f->evaluations);
  if (both_s > 0 && steps > 0)
    printf("run        %.4g s, of which validation and evaluation %.1f%%\n", run_s,
           100 * both_s / run_s);
}

static void print_text(const simulated *s) {
  const ot_prediction *const p = &s->prediction;
  printf("%s on %s: %s of %d thread%s\n", s->config.run.model.model_type, p->cluster.name,
         s->mesh.ranks > 1 ? ot_loop_shape(&s->mesh, s->arena) : "1 rank", p->schedules[0]->threads,
         ot_text_plural(p->schedules[0]->threads, "s"));
  if (p->note) printf("%s\n", p->note);
  if (p->doubt) printf("%s\n", p->doubt);
  for (int i = 0; i < p->num_steps; i++) print_step(s, &p->steps[i]);
  if (p->more_rounds > 0) {
    printf("experts    %g overflow pass%s\n", p->more_rounds, p->more_rounds == 1 ? "" : "es");
  }
  if (p->publish_s > 0)
    printf("publish    %.4g s after it: weights to %d generator%s\n", p->publish_s,
           ot_run_generators(&s->config.run),
           ot_text_plural(ot_run_generators(&s->config.run), "s"));
  print_evaluations(s);
  print_memory(s);
}

// ---- trace ----

// All ranks of a stage have the same timeline.
static ot_status write_timelines(const simulated *s, const ot_timeline *timelines, double offset_s,
                                 ot_trace *trace) {
  for (int rank = 0; rank < s->mesh.ranks; rank++) {
    const int stage = ot_mesh_coordinate(&s->mesh, rank, OT_AXIS_PP);
    ot_timeline own = timelines[stage];
    own.rank = rank;
    OT_TRY(ot_trace_write_timeline(trace, &own, s->prediction.schedules[stage], offset_s));
  }
  return OT_OK;
}

// Weights are published after the step.
static ot_status write_orders(const simulated *s, ot_trace *trace) {
  const ot_prediction *const p = &s->prediction;
  ot_timeline *const timelines = ot_arena_array(s->arena, p->num_stages, sizeof *timelines);
  OT_TRY(ot_prediction_replay(p, p->steps[0].micro_batches, s->arena, timelines));
  OT_TRY(write_timelines(s, timelines, 0, trace));
  if (p->publish_s > 0) {
    OT_TRY(ot_prediction_replay_publish(p, s->arena, timelines));
    OT_TRY(write_timelines(s, timelines, p->steps[0].expected.step_s, trace));
  }
  return ot_trace_finish(trace);
}

static ot_status write_trace(const simulated *s) {
  const char *const path = ot_options_text(s->options, "trace");
  if (!path) return OT_OK;
  ot_trace *trace = NULL;
  OT_TRY(ot_trace_create(path, INFINITY, &trace));
  const ot_status status = write_orders(s, trace);
  ot_trace_destroy(&trace);
  return status;
}

static ot_status simulate(simulated *s) {
  OT_TRY(predict(s));
  OT_TRY(write_trace(s));
  const char *const trace = ot_options_text(s->options, "trace");
  if (trace && ot_output_file_is_stdout(trace)) return OT_OK;
  if (ot_options_json(s->options)) {
    print_json(s);
  } else {
    print_text(s);
  }
  const ot_predicted_memory *const m = &s->prediction.memory;
  if (m->fits) return OT_OK;
  ot_fail(OT_FINDINGS, "the run needs %s a device, %s has %s (rank %d)",
          ot_figure_bytes(s->arena, m->arena.peak_bytes + m->teacher + m->context),
          s->prediction.cluster.device.name, ot_figure_bytes(s->arena, m->capacity), m->rank);
  return ot_fail_hint(OT_FINDINGS, "`orthant plan` finds what fits");
}

static ot_status run(const ot_options *options) {
  simulated s = {.options = options, .arena = ot_options_arena(options)};
  return simulate(&s);
}

static const ot_option rows[] = {
    {"ranks", OT_OPTION_INTEGER, "N", "0", 0, 1 << 20,
     .help = "ranks of the run; 0: the product of its degrees"},
    {"cluster", OT_OPTION_TEXT, "C", .help = "preset or cluster file; default: the run's"},
    {.key = "expert_imbalance", .value = "X"},
    {"expert-passes", OT_OPTION_REAL, "P", "0",
     .help = "instead: measured passes, the mean of moe_rounds in metrics.jsonl; 0: by imbalance"},
    {"trace", OT_OPTION_PATH, "FILE",
     .help = "write the predicted step of all ranks as a Chrome trace"},
    {.shared = &ot_option_set},
};

const ot_verb ot_verb_simulate = {
    .name = "simulate",
    .summary = "predict a step of a run on a cluster",
    .arguments = "RUN.yaml",
    .min_arguments = 1,
    .max_arguments = 1,
    .details =
        "Builds the schedules of one rank per stage, as training does, and prices them task by\n"
        "task: step time, exposed communication by axis (means over ranks), pipeline bubble,\n"
        "memory, and what validations and evaluations take. Nothing is trained and no data is\n"
        "read. `orthant bench` measures this machine; docs/speed.md compares predictions with\n"
        "measurements.",
    .examples =
        "  orthant simulate run.yaml\n"
        "  orthant simulate run.yaml --ranks 8 --set parallel.pp=2 --trace predicted.json\n"
        "  orthant simulate run.yaml --cluster cluster.yaml --json",
    .options = rows,
    .num_options = OT_COUNT(rows),
    .json = true,
    .run = run,
};
