// SPDX-License-Identifier: Apache-2.0
// A candidate as the run that would train it, and as text.
#include "base/text.h"
#include "describe/job.h"
#include "describe/pipeline_rules.h"

const char *const ot_crossing_names[] = {
    [OT_CROSSES_NOTHING] = NULL, [OT_CROSSES_PP] = "pp", [OT_CROSSES_DP] = "dp", NULL};

// Megatron-core's combined 1F1B (transformer_config.py).
bool ot_candidate_pairs(const ot_engine *engine, const ot_candidate *c) {
  const bool again =
      c->recompute == OT_RECOMPUTE_FULL || (c->modules & OT_MODULE_SET(OT_MODULE_MOE));
  const bool orders = c->pp == 1 || c->pipeline == OT_PIPELINE_INTERLEAVED;
  return engine->overlap_expert && c->ep > 1 && orders && !again;
}

// ---- as a run ----

static void set_parallel(const ot_candidate *c, ot_run_lists *lists, ot_run_parallel *p) {
  lists->recompute = c->recompute;
  p->tp = c->tp;
  p->pp = c->pp;
  p->vpp = c->vpp;
  p->cp = c->cp;
  p->ep = c->ep;
  p->etp = c->etp;
  p->dp = c->dp;
  p->dp_replicate = c->zero == 0 ? c->dp : c->dp / c->dp_shard;
  p->zero = c->zero;
  p->accumulate = c->zero >= 2 ? OT_ACCUMULATE_SHARDED : OT_ACCUMULATE_WHOLE;
  p->pipeline = c->pipeline;
  p->recompute = &lists->recompute;
  p->num_recompute = 1;
  p->recompute_modules = lists->modules;
  p->num_recompute_modules = 0;
  for (int m = 0; m < (int)OT_RECOMPUTE_MODULES; m++) {
    if (c->modules & OT_MODULE_SET(m))
      lists->modules[p->num_recompute_modules++] = (ot_recompute_module)m;
  }
  p->layout = p->order_csv = "";
}

void ot_candidate_run(const ot_job *job, const ot_candidate *candidate, ot_run_lists *lists,
                      ot_run *out) {
  lists->reshard = job->engine->reshard_after_forward;
  if (job->run) {
    *out = *job->run;
  } else {
    *out = (ot_run){.parallel = {.prefetch = OT_PREFETCH,
                                 .reshard = &lists->reshard,
                                 .num_reshard = 1,
                                 .expert_buffer = OT_EXPERT_BUFFER},
                    .optimizer = {.name = OT_OPTIMIZER_ADAMW, .lr = 1, .clip = 1}};
  }
  out->model = *job->model;
  out->data.sequence_length = job->sequence_length;
  out->batch = (ot_run_batch){.global_batch_size = job->global_batch_size,
                              .micro_batch_size = candidate->micro_batch_size};
  if (!job->run) out->precision = ot_recipe_precision(&job->recipe);
  set_parallel(candidate, lists, &out->parallel);
}

// ---- text ----

int64_t ot_candidate_print_dp(const ot_candidate *candidate, char *out, int64_t capacity) {
  const ot_candidate *const c = candidate;
  const bool domains = c->zero > 0 && c->dp_shard > 0 && c->dp_shard < c->dp;
  if (!domains) return ot_text_format(out, capacity, "%d", c->dp);
  return ot_text_format(out, capacity, "%d (%d replicas x %d shards)", c->dp, c->dp / c->dp_shard,
                        c->dp_shard);
}

int64_t ot_candidate_print_batch(const ot_candidate *candidate, char *out, int64_t capacity) {
  return ot_text_format(out, capacity, "%lld x %lld", (long long)candidate->micro_batches,
                        (long long)candidate->micro_batch_size);
}

int64_t ot_candidate_print_recompute(const ot_candidate *c, char *out, int64_t capacity) {
  char modules[OT_MODULES_BYTES];
  ot_module_set_print(c->modules, ", ", modules, sizeof modules);
  return ot_text_format(out, capacity, "%s%s%s%s", ot_recompute_names[c->recompute],
                        c->modules ? " (" : "", modules, c->modules ? ")" : "");
}

int64_t ot_candidate_print(const ot_candidate *candidate, char *out, int64_t capacity) {
  const ot_candidate *const c = candidate;
  char dp[64], batch[64], columns[32] = "", pools[32] = "", modules[OT_MODULES_BYTES];
  if (c->etp > 1) ot_text_format(columns, sizeof columns, " etp %d", c->etp);
  const char *const crosses = ot_crossing_names[c->crosses];
  if (crosses) ot_text_format(pools, sizeof pools, ", %s across pools", crosses);
  ot_candidate_print_dp(c, dp, sizeof dp);
  ot_candidate_print_batch(c, batch, sizeof batch);
  ot_candidate_print_recompute(c, modules, sizeof modules);
  return ot_text_format(out, capacity,
                        "tp %d pp %d vpp %d cp %d ep %d%s dp %s zero %d%s, micro-batches %s, %s, "
                        "recompute %s%s",
                        c->tp, c->pp, c->vpp, c->cp, c->ep, columns, dp, c->zero,
                        c->no_sequence_parallel ? " without sequence parallelism" : "", batch,
                        ot_pipeline_name(c->pipeline), modules, pools);
}

static int compare(int64_t a, int64_t b) { return a < b ? -1 : a > b; }

int ot_candidate_compare(const ot_candidate *a, const ot_candidate *b) {
  const int64_t keys[][2] = {
      {a->tp, b->tp},
      {a->pp, b->pp},
      {a->vpp, b->vpp},
      {a->cp, b->cp},
      {a->ep, b->ep},
      {a->etp, b->etp},
      {a->dp, b->dp},
      {a->zero, b->zero},
      {a->dp_shard, b->dp_shard},
      {a->micro_batch_size, b->micro_batch_size},
      {a->micro_batches, b->micro_batches},
      {a->pipeline, b->pipeline},
      {a->recompute, b->recompute},
      {a->modules, b->modules},
      {a->no_sequence_parallel, b->no_sequence_parallel},
      {a->crosses, b->crosses},
  };
  for (int i = 0; i < OT_COUNT(keys); i++) {
    const int order = compare(keys[i][0], keys[i][1]);
    if (order != 0) return order;
  }
  return 0;
}

// ---- simplicity ----

static int axes_of(const ot_candidate *c) {
  return (c->tp > 1) + (c->pp > 1) + (c->cp > 1) + (c->ep > 1);
}

// How uncommon the pipeline schedule is.
static int order_of(const ot_candidate *c) {
  if (c->pp == 1 || c->pipeline == OT_PIPELINE_1F1B) return 0;
  return c->pipeline == OT_PIPELINE_INTERLEAVED ? 1 : 2;
}

static int options_of(const ot_candidate *c) {
  return (c->zero > 1) + (c->zero > 0 && c->dp_shard < c->dp) + (c->recompute != OT_RECOMPUTE_NONE);
}

bool ot_candidate_lists_layers(const ot_job *job, const ot_candidate *c) {
  const int64_t chunks = (int64_t)c->pp * c->vpp;
  if (job->engine->software != OT_SOFTWARE_MEGATRON || c->pp == 1) return false;
  return job->model->num_layers % chunks != 0;
}

int ot_candidate_compare_effort(const ot_job *job, const ot_candidate *a, const ot_candidate *b) {
  const bool list = ot_candidate_lists_layers(job, a);
  if (list != ot_candidate_lists_layers(job, b)) return list ? 1 : -1;
  if (axes_of(a) != axes_of(b)) return axes_of(a) - axes_of(b);
  if (order_of(a) != order_of(b)) return order_of(a) - order_of(b);
  return options_of(a) - options_of(b);
}
