// SPDX-License-Identifier: Apache-2.0
// Training steps of a model on a device: tokens per second, MFU (half of the scores of causal
// attention, as usual) and, with --ops, the time of each operator from events in a step of its own.
#include <stdio.h>
#include <string.h>

#include "cli/installed.h"
#include "device/device.h"
#include "files/config_file.h"
#include "host/clock.h"
#include "support/bench_program.h"
#include "support/bench_step.h"

typedef struct settings {
  const char *model;
  int micro_batches, micro_batch, sequence, repeats;
  ot_dtype storage, compute;
  ot_recompute recompute;
  ot_backend backend;
  double peak_tflops;
  bool ops;
} settings;

static settings read_settings(const ot_options *o) {
  static const ot_dtype storages[] = {OT_BF16, OT_F32, OT_F64};
  settings s = {.model = ot_options_text(o, "model"),
                .micro_batches = (int)ot_options_integer(o, "micro-batches"),
                .micro_batch = (int)ot_options_integer(o, "micro-batch"),
                .sequence = (int)ot_options_integer(o, "sequence"),
                .repeats = (int)ot_options_integer(o, "repeats"),
                .storage = storages[ot_options_choice(o, "precision")],
                .recompute = (ot_recompute)ot_options_choice(o, "recompute"),
                .backend = (ot_backend)ot_options_choice(o, "device"),
                .peak_tflops = ot_options_real(o, "peak"),
                .ops = ot_options_flag(o, "ops")};
  s.compute = s.storage == OT_F64 ? OT_F64 : OT_F32;
  return s;
}

static ot_status time_steps(ot_runtime *runtime, const settings *s, double *step_s) {
  double seconds[OT_BENCH_REPEATS];
  const int repeats = s->repeats < OT_BENCH_REPEATS ? s->repeats : OT_BENCH_REPEATS;
  for (int i = -2; i < repeats; i++) {
    const double start_s = ot_clock_s();
    OT_TRY(ot_runtime_run(runtime, OT_MODE_TRAIN, s->micro_batches));
    if (i >= 0) seconds[i] = ot_clock_s() - start_s;
  }
  *step_s = ot_bench_median(seconds, repeats);
  return OT_OK;
}

static void print_figures(const settings *s, const ot_schedule *schedule, double step_s) {
  const int order = ot_schedule_find_order(schedule, OT_ORDER_STEP, s->micro_batches);
  const double flops = ot_order_flops(schedule, order, true);
  const double tokens = (double)s->micro_batches * s->micro_batch * s->sequence;
  const int64_t *const classes = schedule->bill.class_bytes;
  const int64_t state =
      classes[OT_MEMORY_WEIGHTS] + classes[OT_MEMORY_GRADIENTS] + classes[OT_MEMORY_OPTIMIZER];
  printf(
      "%s %s T=%d micro-batches %d x %d: step %.4f s, %.0f tokens/s, %.1f TFLOP/s, MFU %.1f %%, ",
      s->model, ot_dtype_name(s->storage), s->sequence, s->micro_batches, s->micro_batch, step_s,
      tokens / step_s, flops / step_s * 1e-12, 100 * flops / step_s / (s->peak_tflops * 1e12));
  printf("memory %.2f GB, %.2f beyond state\n", (double)schedule->arena_bytes * 1e-9,
         (double)(schedule->arena_bytes - state) * 1e-9);
}

static ot_status measure(ot_runtime *runtime, const settings *s, int64_t vocabulary) {
  const int sequences = s->micro_batches * s->micro_batch;
  double step_s = 0;
  OT_TRY(ot_runtime_initialize(runtime, 1));
  for (int m = 0; m < s->micro_batches; m++) ot_bench_load(runtime, m, vocabulary);
  ot_bench_set_scalars(runtime, (int64_t)sequences * s->sequence, sequences);
  OT_TRY(time_steps(runtime, s, &step_s));
  print_figures(s, ot_runtime_schedule(runtime), step_s);
  printf("loss %.6f, gradient norm %.6f\n",
         ot_executor_scalar(ot_runtime_executor(runtime), OT_SCALAR_LOSS),
         ot_executor_scalar(ot_runtime_executor(runtime), OT_SCALAR_GRADIENT_NORM));
  if (!s->ops) return OT_OK;
  ot_executor_set_trace(ot_runtime_executor(runtime), true);
  OT_TRY(ot_runtime_run(runtime, OT_MODE_TRAIN, s->micro_batches));
  ot_bench_print_phases(runtime);
  return OT_OK;
}

static ot_status run(const settings *s, const ot_model *model) {
  ot_recompute recompute = s->recompute;
  const ot_run run_settings = {
      .model = *model,
      .parallel = {.recompute = &recompute, .num_recompute = 1},
      .optimizer = {.name = OT_OPTIMIZER_ADAMW,
                    .lr = 1e-4,
                    .betas = {0.9, 0.95},
                    .eps = 1e-8,
                    .weight_decay = 0.1,
                    .clip = 1},
      .precision = {.compute = s->storage,
                    .params = s->storage,
                    .gradients = s->compute,
                    .reduce = s->compute,
                    .master = s->compute,
                    .moments = s->compute},
  };
  const ot_runtime_request request = {.model = model,
                                      .run = &run_settings,
                                      .modes = 1u << OT_MODE_TRAIN,
                                      .micro_batch_size = s->micro_batch,
                                      .sequence_length = s->sequence,
                                      .compute = s->compute,
                                      .storage = s->storage,
                                      .backend = s->backend,
                                      .events = s->ops,
                                      .micro_batches = &s->micro_batches,
                                      .num_micro_batches = 1};
  ot_runtime *runtime = NULL;
  OT_TRY(ot_runtime_create(&request, &runtime));
  const ot_status status = measure(runtime, s, model->vocab_size);
  ot_runtime_destroy(&runtime);
  return status;
}

static ot_status run_program(const ot_options *options) {
  const settings s = read_settings(options);
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_config_request request = {.presets = ot_installed_presets(&arena)};
  ot_config_model loaded;
  ot_status status = ot_config_load_model(s.model, &request, &arena, &loaded);
  if (status == OT_OK) status = run(&s, &loaded.model);
  ot_heap_release(&heap);
  return status;
}

static const ot_option options[] = {
    {"model", OT_OPTION_TEXT, "MODEL", "gpt2", .help = "preset or config.json"},
    {"sequence", OT_OPTION_INTEGER, "T", "1024", 1, 1 << 20, .help = "tokens of a sequence"},
    {"micro-batch", OT_OPTION_INTEGER, "M", "16", 1, 65536, .help = "sequences per micro-batch"},
    {"micro-batches", OT_OPTION_INTEGER, "K", "1", 1, 65536, .help = "micro-batches of a step"},
    {"precision", OT_OPTION_CHOICE, "bf16|fp32|fp64", "bf16",
     .help = "of weights and activations; masters, moments and gradients are fp32"},
    {"recompute", OT_OPTION_CHOICE, "none|selective|full", "none", .help = "recompute policy"},
    {"device", OT_OPTION_CHOICE, "cpu|cuda", "cuda", .help = "what computes"},
    {"peak", OT_OPTION_REAL, "TFLOPS", "989.4", 0, 1e6, .help = "for MFU; default: H100, bf16"},
    {"repeats", OT_OPTION_INTEGER, "R", "10", 1, OT_BENCH_REPEATS, .help = "steps per median"},
    {"ops", OT_OPTION_FLAG, .help = "time of a step by operator"},
};

const ot_verb ot_bench_program = {
    .prefix = OT_BENCH_PREFIX,
    .name = "gpu_step",
    .summary = "training steps of a model on a device",
    .arguments = "",
    .options = options,
    .num_options = OT_COUNT(options),
    .run = run_program,
};
