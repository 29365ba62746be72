// SPDX-License-Identifier: Apache-2.0
// torchtitan: the TOML of versions 0.2.0 to 0.2.2, whose torchtitan/config/job_config.py has all
// keys written here; later versions are configured in Python. Models are named by their flavor
// (software/titan_models.h).
#include "base/text.h"
#include "software/export_parts.h"
#include "software/titan_models.h"

static const char software[] = "torchtitan";

static ot_status find_model(const ot_exporter *e, const ot_titan_model **out) {
  *out = ot_titan_model_of(e->model);
  if (*out) return OT_OK;
  ot_fail(OT_USAGE, "--emit torchtitan: torchtitan has no flavor of %s", e->plan->model_name);
  return ot_fail_hint(OT_USAGE, "such as llama3.1-8b, llama3.1-70b, llama3.1-405b, qwen3-8b");
}

static const char *schedule_name(const ot_exporter *e) {
  switch (e->candidate->pipeline) {
    case OT_PIPELINE_GPIPE:
      return "GPipe";
    case OT_PIPELINE_INTERLEAVED:
      return "Interleaved1F1B";
    case OT_PIPELINE_ZB_V:
      return "ZBVZeroBubble";
    case OT_PIPELINE_DUALPIPE_V:
      return "DualPipeV";
    default:
      return "1F1B";
  }
}

// torchtitan/distributed/pipeline_parallel.py: embedding and head count as layers, by default one
// each, and the first chunks take what remains. Equal chunks need neither to count.
static ot_status put_stages(const ot_exporter *e) {
  const ot_candidate *const c = e->candidate;
  const int chunks = e->plan->num_chunks;
  bool even = true;
  for (int i = 1; i < chunks; i++) even = even && e->plan->layers[i] == e->plan->layers[0];
  const int64_t blocks = e->model->num_layers + (even ? 0 : 2);
  const int64_t each = (blocks + chunks - 1) / chunks;
  ot_text_appendf(e->out, "pipeline_parallel_degree = %d\n", c->pp);
  if (c->pp == 1) return OT_OK;
  OT_CHECK((blocks + each - 1) / each == chunks, OT_USAGE,
           "--emit torchtitan: layers_per_stage cannot cut %lld layers, embedding and head into %d "
           "chunks (try another --pp or --vpp)",
           (long long)e->model->num_layers, chunks);
  ot_text_appendf(e->out,
                  "pipeline_parallel_schedule = \"%s\"\n"
                  "pipeline_parallel_layers_per_stage = %lld\n"
                  "pipeline_parallel_first_stage_less_layers = %d\n"
                  "pipeline_parallel_last_stage_less_layers = %d\n"
                  "pipeline_parallel_microbatch_size = %lld\n",
                  schedule_name(e), (long long)each, !even, !even, (long long)c->micro_batch_size);
  return OT_OK;
}

static ot_status put_parallel(const ot_exporter *e) {
  const ot_candidate *const c = e->candidate;
  const bool sharded = c->zero >= 2 && c->dp > 1;
  const bool async = c->tp > 1 && e->engine->overlap_tensor == OT_TENSOR_OVERLAP_PIECES;
  ot_text_appendf(e->out,
                  "\n[parallelism]\n"
                  "data_parallel_replicate_degree = %d\n"
                  "data_parallel_shard_degree = %d\n"
                  "tensor_parallel_degree = %d\n"
                  "enable_async_tensor_parallel = %s\n"
                  "context_parallel_degree = %d\n",
                  sharded ? c->dp / c->dp_shard : c->dp, sharded ? c->dp_shard : 1, c->tp,
                  async ? "true" : "false", c->cp);
  if (c->zero >= 2) {
    ot_text_appendf(e->out, "fsdp_reshard_after_forward = \"%s\"\n",
                    c->zero == 3 ? "always" : "never");
  }
  if (e->model->moe.num_experts > 0)
    ot_text_appendf(e->out, "expert_parallel_degree = %d\n", c->ep);
  return put_stages(e);
}

static void put_training(const ot_exporter *e) {
  const ot_candidate *const c = e->candidate;
  const ot_job *const job = e->job;
  // Without stages the local batch is one micro-batch, and gradients accumulate.
  const int64_t local = c->pp > 1 ? job->global_batch_size / c->dp : c->micro_batch_size;
  const double steps = job->tokens / (double)job->sequence_length / (double)job->global_batch_size;
  ot_text_appendf(e->out,
                  "\n[training]\n"
                  "local_batch_size = %lld\n"
                  "global_batch_size = %lld\n"
                  "seq_len = %lld\n"
                  "mixed_precision_param = \"%s\"\n"
                  "steps = %.0f\n"
                  "dataset = \"c4\"  # yours to choose, as the learning rate\n",
                  (long long)local, (long long)job->global_batch_size,
                  (long long)job->sequence_length,
                  job->recipe.products == OT_F32 ? "float32" : "bfloat16", steps);
}

ot_status ot_export_torchtitan(const ot_exporter *e) {
  static const char *const modes[OT_RECOMPUTES] = {"none", "selective", "full"};
  const ot_titan_model *model;
  OT_TRY(ot_export_precision(e, software, "amp-bf16|fp8|fp32"));
  OT_TRY(find_model(e, &model));
  ot_export_begin(e, "torchtitan 0.2, in its folder", "HF_ASSETS");
  const bool fp8 = e->job->recipe.products == OT_F8;
  ot_text_appendf(e->out,
                  "cat >orthant.toml <<END\n"
                  "[model]\n"
                  "name = \"%s\"\n"
                  "flavor = \"%s\"\n"
                  "hf_assets_path = \"$1\"\n"
                  "converters = [%s]\n",
                  model->name, model->flavor, fp8 ? "\"quantize.linear.float8\"" : "");
  put_training(e);
  OT_TRY(put_parallel(e));
  const bool compiled = e->engine->kernels.host_ops < 1;
  ot_text_appendf(e->out,
                  "\n[activation_checkpoint]\n"
                  "mode = \"%s\"\n"
                  "selective_ac_option = \"op\"\n"
                  "\n[compile]\n"
                  "enable = %s\n"
                  "components = [\"model\", \"loss\"]\n"
                  "END\n",
                  modes[e->candidate->recompute], compiled ? "true" : "false");
  ot_export_launcher(e);
  ot_text_put(e->out, "-m torchtitan.train --job.config_file orthant.toml\n");
  return OT_OK;
}
