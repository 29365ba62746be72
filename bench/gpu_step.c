// SPDX-License-Identifier: Apache-2.0
// Training steps of a model on a device: tokens per second, MFU (half of the scores of causal
// attention, as usual), memory planned and used and, with --ops, a step of one micro-batch by
// operator, from events, next to what the simulator expects.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/installed.h"
#include "describe/engine.h"
#include "device/device.h"
#include "files/config_file.h"
#include "files/disk.h"
#include "files/output_file.h"
#include "host/clock.h"
#include "simulate/simulate.h"
#include "support/bench_job.h"
#include "support/bench_program.h"
#include "support/bench_step.h"
#include "support/bench_tasks.h"

enum { TABLE_BYTES = 16 << 20 };  // of gemm.table, at most

// Free bytes of the device before the runtime exists, with it, after its first steps, which load
// the code of kernels, and after all.
typedef struct memory_seen {
  int64_t total, before, created, warm, after;
} memory_seen;

typedef struct measured {
  const ot_options *options;
  ot_arena *arena;
  ot_bench_job job;
  ot_runtime *runtime;
  ot_device *device;
  memory_seen memory;
  double initialize_s;
  double steps_s[OT_BENCH_REPEATS];
  int num_steps;
  // With --ops, of one micro-batch:
  ot_bench_rows rows;
  double traced_s, kernels_s, plain_s;  // first to last kernel, their union, without events
  double predicted_s;                   // of the whole step; 0: not known
} measured;

// ---- steps ----

static ot_status see_free(const measured *m, int64_t *bytes, int64_t *total) {
  ot_device_info info;
  OT_TRY(ot_device_describe(m->device, &info));
  *bytes = info.free_bytes;
  if (total) *total = info.total_bytes;
  return OT_OK;
}

static ot_status run_step(measured *m, int micro_batches, double *seconds) {
  const double start_s = ot_clock_s();
  OT_TRY(ot_runtime_run(m->runtime, OT_MODE_TRAIN, micro_batches));
  *seconds = ot_clock_s() - start_s;
  return OT_OK;
}

static ot_status time_steps(measured *m) {
  const int repeats = (int)ot_options_integer(m->options, "repeats");
  const int warmup = (int)ot_options_integer(m->options, "warmup");
  double seconds;
  for (int i = 0; i < warmup; i++) OT_TRY(run_step(m, m->job.micro_batches[1], &seconds));
  OT_TRY(see_free(m, &m->memory.warm, NULL));
  for (; m->num_steps < repeats; m->num_steps++) {
    OT_TRY(run_step(m, m->job.micro_batches[1], &m->steps_s[m->num_steps]));
  }
  return OT_OK;
}

static ot_status load_batches(measured *m) {
  const int micro_batches = m->job.micro_batches[1];
  const int64_t sequences = micro_batches * m->job.request.rank.graph.micro_batch_size;
  for (int i = 0; i < micro_batches; i++) {
    ot_bench_load(m->runtime, i, m->job.model.vocab_size);
  }
  ot_bench_set_scalars(m->runtime, ot_bench_job_tokens(&m->job), sequences);
  return OT_OK;
}

// ---- algorithms of products ----

static ot_status read_table(measured *m) {
  const char *const path = ot_options_text(m->options, "read-table");
  if (!path) return OT_OK;
  char *text;
  int64_t bytes;
  OT_TRY(ot_disk_read(m->arena, path, TABLE_BYTES, &text, &bytes));
  const char *const note =
      ot_executor_read_algorithms(ot_runtime_executor(m->runtime), text, m->arena);
  OT_CHECK(!note, OT_ENVIRONMENT, "%s", note);
  return OT_OK;
}

static ot_status write_table(const measured *m) {
  const char *const path = ot_options_text(m->options, "write-table");
  const char *const text = ot_executor_print_algorithms(ot_runtime_executor(m->runtime), m->arena);
  if (!path || !text) return OT_OK;
  return ot_output_file_replace(path, text, (int64_t)strlen(text));
}

// ---- operators ----

static ot_status predict(measured *m) {
  const char *const name = ot_options_text(m->options, "cluster");
  const ot_schedule *const schedule = ot_runtime_schedule(m->runtime);
  const ot_presets presets = ot_installed_presets(m->arena);
  ot_cluster cluster;
  ot_timeline timeline;
  bool found = false;
  OT_TRY(ot_cluster_file_load(name, &presets, m->arena, &cluster, &found));
  OT_CHECK(found, OT_ENVIRONMENT, "--cluster: %s was never measured", name);
  const ot_simulation simulation =
      ot_simulation_of(&cluster, ot_engine_style(&ot_engine_orthant, &cluster.device),
                       m->job.request.rank.graph.storage);
  OT_TRY(ot_bench_rows_predict(&m->rows, &simulation));
  const int order = ot_schedule_find_order(schedule, OT_ORDER_STEP, m->job.micro_batches[1]);
  OT_TRY(ot_schedule_simulate(schedule, order, &simulation, m->arena, &timeline));
  m->predicted_s = ot_price_step_s(&simulation, 1, timeline.total_s);
  return OT_OK;
}

// From the first kernel to the end of the last one, and the union of all; spans are sorted by
// start.
static void sum_spans(measured *m, const ot_timeline *timeline) {
  double end_s = 0;
  for (int64_t i = 0; i < timeline->num_spans; i++) {
    const ot_span *const span = &timeline->spans[i];
    const double start_s = span->start_s > end_s ? span->start_s : end_s;
    if (span->end_s > start_s) m->kernels_s += span->end_s - start_s;
    if (span->end_s > end_s) end_s = span->end_s;
  }
  if (timeline->num_spans > 0) m->traced_s = end_s - timeline->spans[0].start_s;
}

static ot_status measure_operators(measured *m) {
  const ot_schedule *const schedule = ot_runtime_schedule(m->runtime);
  ot_executor *const executor = ot_runtime_executor(m->runtime);
  double traced_s;
  ot_bench_rows_build(schedule, ot_schedule_find_order(schedule, OT_ORDER_STEP, 1), m->arena,
                      &m->rows);
  for (int i = 0; i < 2; i++) OT_TRY(run_step(m, 1, &m->plain_s));
  ot_executor_set_trace(executor, true);
  OT_TRY(run_step(m, 1, &traced_s));
  ot_bench_rows_add(&m->rows, ot_executor_timeline(executor));
  sum_spans(m, ot_executor_timeline(executor));
  ot_executor_set_trace(executor, false);
  return predict(m);
}

// ---- output ----

static int64_t state_bytes(const ot_schedule *schedule) {
  const int64_t *const classes = schedule->memory.class_bytes;
  return classes[OT_MEMORY_WEIGHTS] + classes[OT_MEMORY_GRADIENTS] + classes[OT_MEMORY_OPTIMIZER];
}

static double model_flops(const measured *m) {
  const ot_schedule *const schedule = ot_runtime_schedule(m->runtime);
  return ot_order_flops(
      schedule, ot_schedule_find_order(schedule, OT_ORDER_STEP, m->job.micro_batches[1]), true);
}

static double mfu(const measured *m, double step_s) {
  return model_flops(m) / step_s / (ot_options_real(m->options, "peak") * 1e12);
}

static void print_text(const measured *m) {
  const ot_schedule *const schedule = ot_runtime_schedule(m->runtime);
  const double step_s = ot_bench_median(m->steps_s, m->num_steps);
  const int64_t tokens = ot_bench_job_tokens(&m->job);
  printf(
      "%s %s T=%lld micro-batches %d x %lld: step %.4f s, %.0f tokens/s, MFU %.1f %%, "
      "memory %.2f GB, %.2f beyond state\n",
      m->job.name, ot_dtype_name(m->job.request.rank.graph.storage),
      (long long)m->job.request.rank.graph.sequence_length, m->job.micro_batches[1],
      (long long)m->job.request.rank.graph.micro_batch_size, step_s, (double)tokens / step_s,
      100 * mfu(m, step_s), (double)schedule->arena_bytes * 1e-9,
      (double)(schedule->arena_bytes - state_bytes(schedule)) * 1e-9);
  if (m->rows.num_rows == 0) return;
  printf("%9s %9s %9s %9s %9s  op\n", "count", "ms", "expected", "GFLOP/s", "GB/s");
  for (int i = 0; i < m->rows.num_rows; i++) {
    const ot_bench_row *const r = &m->rows.rows[i];
    const ot_cost cost = ot_task_cost(r->task);
    const double rate = (double)r->count / r->step_s * 1e-9;
    printf("%9lld %9.3f %9.3f %9.1f %9.1f  %s\n", (long long)r->count, 1e3 * r->step_s,
           1e3 * (double)r->count * r->predicted_s, cost.matrix_flops * rate,
           (cost.bytes_read + cost.bytes_written) * rate, r->key);
  }
}

static void print_memory(const measured *m, ot_json_writer *json) {
  const ot_schedule *const schedule = ot_runtime_schedule(m->runtime);
  ot_json_object(json, "memory");
  ot_json_integer(json, "planned_bytes", schedule->arena_bytes);
  ot_json_integer(json, "state_bytes", state_bytes(schedule));
  ot_json_integer(json, "total_bytes", m->memory.total);
  ot_json_integer(json, "context_bytes", m->memory.total - m->memory.before);
  ot_json_integer(json, "created_bytes", m->memory.before - m->memory.created);
  ot_json_integer(json, "code_bytes", m->memory.created - m->memory.warm);
  ot_json_integer(json, "grown_bytes", m->memory.warm - m->memory.after);
  ot_json_end(json);
}

static void print_operators(const measured *m, ot_json_writer *json) {
  if (m->rows.num_rows == 0) return;
  ot_json_real(json, "predicted_s", m->predicted_s);
  ot_json_object(json, "one_micro_batch");
  ot_json_real(json, "step_s", m->plain_s);
  ot_json_real(json, "traced_s", m->traced_s);
  ot_json_real(json, "kernels_s", m->kernels_s);
  ot_bench_rows_print(&m->rows, "rows", json);
  ot_json_end(json);
}

static void print_json(measured *m) {
  ot_json_writer json = ot_json_begin(m->arena, 0);
  const ot_runtime_request *const request = &m->job.request;
  const double step_s = ot_bench_median(m->steps_s, m->num_steps);
  const ot_executor *const executor = ot_runtime_executor(m->runtime);
  ot_json_object(&json, NULL);
  ot_json_text(&json, "model", m->job.name);
  ot_json_text(&json, "precision", ot_dtype_name(request->rank.graph.storage));
  ot_json_integer(&json, "sequence", request->rank.graph.sequence_length);
  ot_json_integer(&json, "micro_batch", request->rank.graph.micro_batch_size);
  ot_json_integer(&json, "micro_batches", m->job.micro_batches[1]);
  ot_json_integer(&json, "tokens", ot_bench_job_tokens(&m->job));
  ot_json_real(&json, "initialize_s", m->initialize_s);
  ot_json_array(&json, "steps_s");
  for (int i = 0; i < m->num_steps; i++) ot_json_real(&json, NULL, m->steps_s[i]);
  ot_json_end(&json);
  ot_json_real(&json, "step_s", step_s);
  ot_json_real(&json, "tokens_per_s", (double)ot_bench_job_tokens(&m->job) / step_s);
  ot_json_real(&json, "model_flops", model_flops(m));
  ot_json_real(&json, "mfu", mfu(m, step_s));
  ot_json_real(&json, "loss", ot_executor_scalar(executor, OT_SCALAR_LOSS));
  ot_json_real(&json, "gradient_norm", ot_executor_scalar(executor, OT_SCALAR_GRADIENT_NORM));
  print_memory(m, &json);
  print_operators(m, &json);
  ot_json_end(&json);
  puts(json.text);
}

// ---- the program ----

static ot_status measure(measured *m) {
  OT_TRY(see_free(m, &m->memory.before, &m->memory.total));
  OT_TRY(ot_runtime_create(&m->job.request, &m->runtime));
  OT_TRY(see_free(m, &m->memory.created, NULL));
  const double start_s = ot_clock_s();
  OT_TRY(ot_runtime_initialize(m->runtime, 1));
  m->initialize_s = ot_clock_s() - start_s;
  OT_TRY(load_batches(m));
  OT_TRY(read_table(m));
  OT_TRY(time_steps(m));
  OT_TRY(see_free(m, &m->memory.after, NULL));
  OT_TRY(write_table(m));
  if (m->job.request.events) OT_TRY(measure_operators(m));
  if (ot_options_json(m->options)) {
    print_json(m);
  } else {
    print_text(m);
  }
  return OT_OK;
}

static ot_status run_program(const ot_options *options) {
  measured *const m = ot_arena_array(ot_options_arena(options), 1, sizeof *m);
  *m = (measured){.options = options, .arena = ot_options_arena(options)};
  OT_TRY(ot_bench_job_load(options, m->arena, &m->job));
  m->job.request.events = ot_options_flag(options, "ops");
  OT_TRY(ot_device_create(m->job.request.rank.graph.backend, 0, &m->device));
  const ot_status status = measure(m);
  ot_runtime_destroy(&m->runtime);
  ot_device_destroy(&m->device);
  return status;
}

static const ot_option options[] = {
    {.shared = &ot_bench_job_rows.model},
    {.shared = &ot_bench_job_rows.sequence},
    {.shared = &ot_bench_job_rows.micro_batch},
    {.shared = &ot_bench_job_rows.micro_batches},
    {.shared = &ot_bench_job_rows.precision},
    {.shared = &ot_bench_job_rows.recompute},
    {.shared = &ot_bench_job_rows.device},
    {"peak", OT_OPTION_REAL, "TFLOPS", "989.4", 0, 1e6, .help = "for MFU; default: H100, bf16"},
    {"repeats", OT_OPTION_INTEGER, "R", "10", 1, OT_BENCH_REPEATS, .help = "steps per median"},
    {"warmup", OT_OPTION_INTEGER, "W", "2", 0, 100, .help = "steps before them"},
    {"ops", OT_OPTION_FLAG, .help = "time of a micro-batch by operator"},
    {"cluster", OT_OPTION_TEXT, "CLUSTER", "h100", .help = "of the expected times"},
    {"read-table", OT_OPTION_PATH, "FILE", .help = "algorithms of products (gemm.table)"},
    {"write-table", OT_OPTION_PATH, "FILE", .help = "where to write those of this run"},
};

const ot_verb ot_bench_program = {
    .prefix = OT_BENCH_PREFIX,
    .name = "gpu_step",
    .summary = "training steps of a model on a device",
    .arguments = "",
    .options = options,
    .num_options = OT_COUNT(options),
    .json = true,
    .run = run_program,
};
