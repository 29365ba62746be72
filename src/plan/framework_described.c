// SPDX-License-Identifier: Apache-2.0
// Frameworks as their engine files describe them. Blocks are built as this program would build
// them, but with all experts on each rank; what the framework does in another way is counted from
// there.
#include "describe/parallel_check.h"
#include "describe/pipeline_rules.h"
#include "plan/described.h"

// ---- what can run ----

static ot_status check_job(const ot_job *job) {
  const char *const name = job->engine->name;
  OT_CHECK(job->model->residuals.block_size == 0, OT_USAGE,
           "plan: engine %s trains no models with attention_residuals: block (try engine=orthant)",
           name);
  OT_CHECK(job->expert_imbalance <= 1, OT_USAGE,
           "plan: expert_imbalance of engine %s is not priced (try engine=orthant)", name);
  OT_CHECK(job->given.etp <= 1, OT_USAGE, "plan: etp=%d of engine %s is not priced (try etp=1)",
           job->given.etp, name);
  return OT_OK;
}

// Whether ep goes with the model and the other degrees.
static ot_status check_experts(const ot_job *job, const ot_candidate *c) {
  const int64_t experts = job->model->moe.num_experts;
  const int64_t ranks = (int64_t)c->tp * c->cp * c->dp;
  OT_CHECK(c->ep == 1 || experts > 0, OT_USAGE, "plan: ep=%d, but the model has no experts", c->ep);
  OT_CHECK(c->ep == 1 || (experts % c->ep == 0 && ranks % c->ep == 0), OT_USAGE,
           "plan: ep=%d divides not both the %lld experts and the %lld ranks of a stage", c->ep,
           (long long)experts, (long long)ranks);
  return OT_OK;
}

// The rules of training for the dense model. Other software may give a chunk to the embedding or
// the head alone.
static ot_status check_run(const ot_job *job, const ot_candidate *candidate, ot_run *run) {
  OT_TRY(check_experts(job, candidate));
  run->model.num_layers += 2;
  run->parallel.ep = run->parallel.etp = 1;
  OT_TRY(ot_parallel_check(run));
  run->parallel.etp = candidate->etp;
  return ot_run_check_ranks(run, job->devices);
}

// ---- what is built ----

// What recompute selective repeats is told by the engine file.
static ot_candidate built(const ot_candidate *candidate) {
  ot_candidate dense = *candidate;
  dense.ep = dense.etp = 1;
  if (dense.recompute == OT_RECOMPUTE_SELECTIVE) dense.recompute = OT_RECOMPUTE_NONE;
  return dense;
}

// Each chunk gets as many layers, and the embedding and the head go to the first and the last;
// where layers do not come out even, both count as one (Megatron-DeepSpeed; Megatron-core's
// account_for_embedding_in_pipeline_split), and what is left over goes to the first chunks.
static void split_evenly(int layers, int chunks, int *first) {
  const bool even = layers % chunks == 0;
  const int whole = even ? layers : layers + 2;
  for (int c = 0; c <= chunks; c++) {
    const int before = whole / chunks * c + (c < whole % chunks ? c : whole % chunks);
    first[c] = even && c > 0 ? before + 1 : before;
  }
  first[chunks] = layers + 2;
}

// nanotron (models/base.py): a stage takes blocks until their cost is more than its even share of
// all; products of weights count, an embedding costs nothing. Each stage gets a block.
static void split_by_cost(const ot_model *model, int stages, int *first) {
  const int layers = (int)model->num_layers;
  const double width = (double)model->hidden_size;
  const double layer = width * (4.0 * (double)(model->num_heads * model->head_dim) +
                                3.0 * (double)model->intermediate_size);
  const double all = layers * layer + width * (double)model->vocab_size;
  int block = 0;
  for (int stage = 0; stage < stages; stage++) {
    first[stage] = block;
    const int last = layers + 2 - (stages - stage - 1);
    do block++;
    while (block < last && (block - 1) * layer <= all * (stage + 1) / stages);
  }
  first[stages] = layers + 2;
}

static ot_status partition(ot_estimator *e, const ot_candidate *c, ot_run *run,
                           ot_stage_partition *out) {
  const int num_blocks = out->blocks->num_blocks;
  const int chunks = c->pp * ot_pipeline_chunks(c->pipeline, c->pp, c->vpp);
  OT_CHECK(chunks <= num_blocks, OT_USAGE,
           "plan: pp=%d with %d chunks in all is more than the model's %d blocks", c->pp, chunks,
           num_blocks);
  int *const first = ot_arena_array(e->arena, chunks + 1, sizeof *first);
  if (e->job.engine->stages_by_cost && chunks == c->pp) {
    split_by_cost(e->job.model, chunks, first);
  } else {
    split_evenly(num_blocks - 2, chunks, first);
  }
  out->stages = (ot_stages){.num_ranks = c->pp,
                            .num_chunks = chunks,
                            .first_block = first,
                            .rank_of = ot_stages_place(&run->parallel, chunks, e->arena)};
  return OT_OK;
}

const ot_framework ot_framework_described = {
    .check_job = check_job,
    .check_run = check_run,
    .built = built,
    .partition = partition,
    .price_recompute = ot_described_recompute,
    .add_experts = ot_described_experts,
    .price_sums = ot_described_sums,
    .bound_sums = ot_described_bound_sums,
    .count_memory = ot_described_memory,
    .bound_slots = ot_described_bound_slots,
    .bound_shards = ot_described_bound_shards,
};
