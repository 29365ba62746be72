// SPDX-License-Identifier: Apache-2.0
// Options, and the request of the runtime.
#include "support/bench_job.h"

#include "cli/installed.h"
#include "describe/run_keys.h"
#include "files/config_file.h"

const ot_bench_job_options ot_bench_job_rows = {
    .model = {"model", OT_OPTION_TEXT, "MODEL", "gpt2", .help = "preset or config.json"},
    .sequence = {"sequence", OT_OPTION_INTEGER, "T", "1024", 1, 1 << 20,
                 .help = "tokens of a sequence"},
    .micro_batch = {"micro-batch", OT_OPTION_INTEGER, "M", "16", 1, 65536,
                    .help = "sequences per micro-batch"},
    .micro_batches = {"micro-batches", OT_OPTION_INTEGER, "K", "1", 1, 65536,
                      .help = "micro-batches of a step"},
    .precision = {"precision", OT_OPTION_CHOICE, "bf16|fp32|fp64", "bf16",
                  .help = "of weights and activations; masters, moments and gradients are fp32"},
    .recompute = {"recompute", OT_OPTION_CHOICE, "none|selective|full", "none",
                  .help = "recompute policy"},
    .device = {"device", OT_OPTION_CHOICE, "cpu|cuda", "cuda", .help = "what computes"},
};

ot_status ot_bench_job_load(const ot_options *o, ot_arena *arena, ot_bench_job *job) {
  static const ot_dtype storages[] = {OT_BF16, OT_F32, OT_F64};
  const ot_config_request wanted = {.presets = ot_installed_presets(arena)};
  ot_config_model loaded;
  *job = (ot_bench_job){.name = ot_options_text(o, "model"),
                        .micro_batches = {1, (int)ot_options_integer(o, "micro-batches")}};
  OT_TRY(ot_config_load_model(job->name, &wanted, arena, &loaded));
  const ot_dtype storage = storages[ot_options_choice(o, "precision")];
  job->model = loaded.model;
  OT_TRY(ot_run_defaults(&job->model, storage, arena, &job->run));
  job->run.parallel.recompute[0] = (ot_recompute)ot_options_choice(o, "recompute");
  job->request = (ot_runtime_request){
      .rank = {.modes = 1u << OT_MODE_TRAIN,
               .graph = {.model = &job->model,
                         .micro_batch_size = ot_options_integer(o, "micro-batch"),
                         .sequence_length = ot_options_integer(o, "sequence"),
                         .compute = storage == OT_F64 ? OT_F64 : OT_F32,
                         .storage = storage,
                         .backend = (ot_backend)ot_options_choice(o, "device")},
               .schedule = {.run = &job->run,
                            .micro_batches = job->micro_batches,
                            .num_micro_batches = job->micro_batches[1] > 1 ? 2 : 1}}};
  return OT_OK;
}

int64_t ot_bench_job_tokens(const ot_bench_job *job) {
  return job->micro_batches[1] * job->request.rank.graph.micro_batch_size *
         job->request.rank.graph.sequence_length;
}
