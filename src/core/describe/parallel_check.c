// SPDX-License-Identifier: Apache-2.0
// Each rule tests one degree; the check and the search for the nearest valid degrees share it.
#include "describe/parallel_check.h"

#include "base/text.h"
#include "describe/mesh.h"
#include "describe/optimizer_rules.h"
#include "describe/pipeline_rules.h"

enum {
  HINT_BYTES = 96,
  MAX_MICRO_BATCHES = 1 << 24,
  MOST_RING = 256,  // ranks, each a step in the program of a layer
};

typedef struct degree {
  const char *key;
  int64_t value;
  int64_t most;  // upper bound of valid degrees
  bool (*fits)(const ot_run *run, int64_t value);
} degree;

// Appends " (try tp=4 or tp=8" to the `length` bytes of `out` [HINT_BYTES], or continues them with
// " or ...": the nearest valid degrees below and above. Returns the length.
static int64_t put_nearest(const ot_run *run, const degree *d, int64_t length, char *out) {
  int64_t below = d->value <= d->most ? d->value - 1 : d->most;
  while (below > 0 && !d->fits(run, below)) below--;
  int64_t above = d->value + 1;
  while (above <= d->most && !d->fits(run, above)) above++;
  const int64_t fitting[] = {below > 0 ? below : 0, above <= d->most ? above : 0};
  for (int i = 0; i < OT_COUNT(fitting); i++) {
    if (fitting[i] == 0) continue;
    length += ot_text_format(out + length, HINT_BYTES - length, "%s%s=%lld",
                             length > 0 ? " or " : " (try ", d->key, (long long)fitting[i]);
  }
  return length;
}

static const char *closed(char *hint, int64_t length) {
  ot_text_format(hint + length, HINT_BYTES - length, length > 0 ? ")" : "");
  return hint;
}

static const char *nearest(const ot_run *run, const degree *d, char *hint) {
  return closed(hint, put_nearest(run, d, 0, hint));
}

// ---- tp ----

// With more ranks than kv heads, ranks hold copies.
static bool kv_heads_fit(const ot_model *model, int64_t tp) {
  const int64_t kv = model->num_kv_heads;
  return tp <= kv ? kv % tp == 0 : tp % kv == 0;
}

// Between attention and MLP each rank of tp has its share of the tokens of a micro-batch.
static bool rows_fit(const ot_run *run, int64_t tp, int64_t cp) {
  return run->batch.micro_batch_size * run->data.sequence_length % (tp * cp) == 0;
}

static bool tp_fits(const ot_run *run, int64_t tp) {
  const ot_model *const model = &run->model;
  return model->num_heads % tp == 0 && kv_heads_fit(model, tp) &&
         model->intermediate_size % tp == 0 && rows_fit(run, tp, run->parallel.cp);
}

static ot_status check_tp(const ot_run *run) {
  const ot_model *const model = &run->model;
  const int tp = run->parallel.tp;
  const degree d = {"tp", tp, model->num_heads, tp_fits};
  char hint[HINT_BYTES];
  OT_CHECK(model->num_heads % tp == 0, OT_USAGE,
           "parallel: tp=%d does not divide num_attention_heads=%lld%s", tp,
           (long long)model->num_heads, nearest(run, &d, hint));
  OT_CHECK(kv_heads_fit(model, tp), OT_USAGE,
           "parallel: tp=%d neither divides num_key_value_heads=%lld nor is a multiple of it%s", tp,
           (long long)model->num_kv_heads, nearest(run, &d, hint));
  OT_CHECK(model->intermediate_size % tp == 0, OT_USAGE,
           "parallel: tp=%d does not divide intermediate_size=%lld%s", tp,
           (long long)model->intermediate_size, nearest(run, &d, hint));
  return OT_OK;
}

static ot_status check_rows(const ot_run *run) {
  const ot_run_parallel *const p = &run->parallel;
  const degree d = {"tp", p->tp, run->model.num_heads, tp_fits};
  char hint[HINT_BYTES];
  OT_CHECK(rows_fit(run, p->tp, p->cp), OT_USAGE,
           "parallel: tp=%d does not divide the tokens of a micro-batch, micro_batch_size=%lld x "
           "sequence_length=%lld / cp=%d%s",
           p->tp, (long long)run->batch.micro_batch_size, (long long)run->data.sequence_length,
           p->cp, nearest(run, &d, hint));
  return OT_OK;
}

// ---- cp ----

// Sequence blocks: ring gives each rank an early and a late one.
static int64_t pieces_of(const ot_run *run, int64_t cp) {
  return run->parallel.context == OT_CONTEXT_RING ? 2 * cp : cp;
}

static int64_t kv_heads_of_rank(const ot_run *run) {
  const int64_t kv = run->model.num_kv_heads, tp = run->parallel.tp;
  return tp < kv ? kv / tp : 1;
}

// Ulysses converts sequence shards to head shards.
static bool heads_fit(const ot_run *run, int64_t cp) {
  if (run->parallel.context == OT_CONTEXT_RING) return true;
  return run->model.num_heads / run->parallel.tp % cp == 0 && kv_heads_of_rank(run) % cp == 0;
}

static bool cp_fits(const ot_run *run, int64_t cp) {
  if (cp == 1) return rows_fit(run, run->parallel.tp, 1);
  return run->data.sequence_length % pieces_of(run, cp) == 0 && heads_fit(run, cp) &&
         rows_fit(run, run->parallel.tp, cp);
}

static ot_status check_cp(const ot_run *run) {
  const ot_run_parallel *const p = &run->parallel;
  if (p->cp == 1) return OT_OK;
  const bool ring = p->context == OT_CONTEXT_RING;
  const degree d = {"cp", p->cp, run->data.sequence_length, cp_fits};
  char hint[HINT_BYTES];
  OT_CHECK(!ring || p->cp <= MOST_RING, OT_USAGE,
           "parallel: cp=%d with context=ring; allowed: up to %d (try cp=%d)", p->cp, MOST_RING,
           MOST_RING);
  OT_CHECK(
      run->data.sequence_length % pieces_of(run, p->cp) == 0, OT_USAGE,
      "parallel: cp=%d with context=%s needs data.sequence_length to be a multiple of %lld; it "
      "is %lld%s",
      p->cp, ring ? "ring" : "ulysses", (long long)pieces_of(run, p->cp),
      (long long)run->data.sequence_length, nearest(run, &d, hint));
  OT_CHECK(heads_fit(run, p->cp), OT_USAGE,
           "parallel: cp=%d with context=ulysses must divide the heads of a rank, %lld of "
           "num_attention_heads and %lld of num_key_value_heads with tp=%d%s",
           p->cp, (long long)(run->model.num_heads / p->tp), (long long)kv_heads_of_rank(run),
           p->tp, nearest(run, &d, hint));
  return OT_OK;
}

// ---- pp ----

static int chunks_of(const ot_run_parallel *p, int pp) {
  return ot_pipeline_chunks(p->pipeline, pp, p->vpp);
}

static bool pp_fits(const ot_run *run, int64_t pp) {
  return pp * chunks_of(&run->parallel, (int)pp) <= run->model.num_layers;
}

static bool vpp_fits(const ot_run *run, int64_t vpp) {
  return run->parallel.pp * vpp <= run->model.num_layers && vpp > 1;
}

static ot_status check_layers(const ot_run *run) {
  const ot_run_parallel *const p = &run->parallel;
  const int64_t layers = run->model.num_layers;
  const degree stages = {"pp", p->pp, layers, pp_fits};
  const degree chunks = {"vpp", p->vpp, layers, vpp_fits};
  char hint[HINT_BYTES];
  if (pp_fits(run, p->pp)) return OT_OK;
  int64_t length = put_nearest(run, &stages, 0, hint);
  if (p->pipeline == OT_PIPELINE_INTERLEAVED) length = put_nearest(run, &chunks, length, hint);
  return ot_fail(OT_USAGE, "parallel: pp=%d x vpp=%d is more than num_hidden_layers=%lld%s", p->pp,
                 chunks_of(p, p->pp), (long long)layers, closed(hint, length));
}

static bool from_file(const ot_run_parallel *p) { return p->order_csv && p->order_csv[0] != '\0'; }

static ot_status check_pp(const ot_run *run) {
  const ot_run_parallel *const p = &run->parallel;
  if (!from_file(p)) OT_TRY(ot_pipeline_check(p->pipeline, p->pp, chunks_of(p, p->pp), 1));
  return check_layers(run);
}

// ---- dp ----

static bool replicate_fits(const ot_run *run, int64_t replicate) {
  return run->parallel.dp % replicate == 0;
}

// Checks that a step of `sequences` gives each of `dp` ranks whole micro-batches, in a number that
// the pipeline schedule supports.
static ot_status check_batch(const ot_run *run, const char *where, int64_t sequences, int dp) {
  const ot_run_parallel *const p = &run->parallel;
  const int64_t round = run->batch.micro_batch_size * dp;
  const int64_t below = sequences / round * round;
  char hint[HINT_BYTES] = "";
  if (below > 0) ot_text_format(hint, sizeof hint, "%lld or ", (long long)below);
  if (dp > sequences) {
    ot_fail(OT_USAGE, "%s: dp=%d ranks of data parallelism share global_batch_size=%lld sequences",
            where, dp, (long long)sequences);
    return ot_fail_hint(OT_USAGE,
                        "each needs one at least: take at most %lld rank%s, a larger batch, or "
                        "ranks of tp, pp or cp",
                        (long long)sequences * (p->tp * p->pp * p->cp),
                        ot_text_plural(sequences * p->tp * p->pp * p->cp, "s"));
  }
  OT_CHECK(
      sequences % round == 0, OT_USAGE,
      "%s: global_batch_size=%lld is not a multiple of micro_batch_size=%lld x dp=%d (try %s%lld)",
      where, (long long)sequences, (long long)run->batch.micro_batch_size, dp, hint,
      (long long)(below + round));
  const int64_t count = sequences / round;
  OT_CHECK(count <= MAX_MICRO_BATCHES, OT_USAGE,
           "%s: global_batch_size=%lld is %lld micro-batches per step; allowed: up to %d", where,
           (long long)sequences, (long long)count, MAX_MICRO_BATCHES);
  if (from_file(p)) return OT_OK;
  return ot_pipeline_check(p->pipeline, p->pp, chunks_of(p, p->pp), (int)count);
}

static ot_status check_batches(const ot_run *run, int dp) {
  OT_TRY(check_batch(run, "batch", run->batch.global_batch_size, dp));
  for (int64_t i = 0; i < run->batch.num_ramp; i++) {
    char where[HINT_BYTES];
    ot_text_format(where, sizeof where, "batch.ramp.%lld", (long long)i);
    OT_TRY(check_batch(run, where, run->batch.ramp[i].global_batch_size, dp));
  }
  return OT_OK;
}

static ot_status check_dp(const ot_run *run) {
  const ot_run_parallel *const p = &run->parallel;
  if (p->dp == 0) return OT_OK;
  const degree d = {"dp_replicate", p->dp_replicate, p->dp, replicate_fits};
  char hint[HINT_BYTES];
  OT_CHECK(p->dp % p->dp_replicate == 0, OT_USAGE,
           "parallel: dp_replicate=%d does not divide dp=%d%s", p->dp_replicate, p->dp,
           nearest(run, &d, hint));
  return check_batches(run, p->dp);
}

// ---- other rules ----

static bool ep_fits(const ot_run *run, int64_t ep) { return run->model.moe.num_experts % ep == 0; }

static bool etp_fits(const ot_run *run, int64_t etp) {
  return run->model.moe.expert_size % etp == 0;
}

static ot_status check_experts(const ot_run *run) {
  const ot_run_parallel *const p = &run->parallel;
  const int64_t experts = run->model.moe.num_experts;
  if (experts > 0) {
    const degree d = {"ep", p->ep, experts, ep_fits};
    char hint[HINT_BYTES];
    OT_CHECK(ep_fits(run, p->ep), OT_USAGE, "parallel: ep=%d does not divide the %lld experts%s",
             p->ep, (long long)experts, nearest(run, &d, hint));
    const degree columns = {"etp", p->etp, run->model.moe.expert_size, etp_fits};
    OT_CHECK(etp_fits(run, p->etp), OT_USAGE,
             "parallel: etp=%d does not divide the width of an expert, %lld%s", p->etp,
             (long long)run->model.moe.expert_size, nearest(run, &columns, hint));
    return OT_OK;
  }
  OT_CHECK(p->ep == 1, OT_USAGE, "parallel: ep=%d, but a %s model has no experts (try ep=1)", p->ep,
           run->model.model_type);
  OT_CHECK(p->etp == 1, OT_USAGE, "parallel: etp=%d, but a %s model has no experts (try etp=1)",
           p->etp, run->model.model_type);
  return OT_OK;
}

static ot_status check_modules(const ot_run *run) {
  const ot_run_parallel *const p = &run->parallel;
  const ot_module_set set = ot_run_modules(p);
  bool selective = set == 0;
  for (int64_t i = 0; i < p->num_recompute; i++) {
    selective = selective || p->recompute[i] == OT_RECOMPUTE_SELECTIVE;
  }
  OT_CHECK(selective, OT_USAGE, "recompute_modules needs recompute selective, not %s",
           ot_recompute_names[ot_run_recompute(p, 0)]);
  return ot_module_set_check(set, &run->model);
}

static ot_status check_recompute(const ot_run *run) {
  const ot_run_parallel *const p = &run->parallel;
  OT_CHECK(p->num_recompute == 1 || p->num_recompute == run->model.num_layers, OT_USAGE,
           "parallel.recompute has %lld entries; needed: one, or one for each of %lld layers",
           (long long)p->num_recompute, (long long)run->model.num_layers);
  return check_modules(run);
}

static ot_status check_reshard(const ot_run *run) {
  const ot_run_parallel *const p = &run->parallel;
  const int64_t blocks = run->model.num_layers + 2;
  OT_CHECK(p->num_reshard == 1 || p->num_reshard == blocks, OT_USAGE,
           "parallel.reshard has %lld entries; needed: one, or one for each of %lld blocks "
           "(embedding, %lld layers, head)",
           (long long)p->num_reshard, (long long)blocks, (long long)run->model.num_layers);
  return OT_OK;
}

static ot_status check_whole_matrices(const ot_run *run, int shards) {
  if (!ot_optimizer_rules_of(run, true)->whole_matrices) return OT_OK;
  const ot_run_parallel *const p = &run->parallel;
  const char *const name = ot_optimizer_names[run->optimizer.name];
  OT_CHECK(p->tp == 1, OT_ENVIRONMENT,
           "optimizer: name=%s with tp=%d is not supported: matrices are sharded (try tp=1, or "
           "name=adamw)",
           name, p->tp);
  OT_CHECK(p->etp == 1, OT_ENVIRONMENT,
           "optimizer: name=%s with etp=%d is not supported: matrices are sharded (try etp=1, or "
           "name=adamw)",
           name, p->etp);
  OT_CHECK(p->zero == 0 || shards <= 1, OT_ENVIRONMENT,
           "optimizer: name=%s with zero=%d over dp_shard=%d is not supported: matrices are "
           "sharded (try zero=0, or name=adamw)",
           name, p->zero, shards);
  return OT_OK;
}

ot_status ot_parallel_check(const ot_run *run) {
  const ot_run_parallel *const p = &run->parallel;
  OT_TRY(check_tp(run));
  OT_TRY(check_cp(run));
  OT_TRY(check_rows(run));
  OT_TRY(check_pp(run));
  OT_TRY(check_dp(run));
  OT_TRY(check_experts(run));
  OT_TRY(check_recompute(run));
  OT_TRY(check_reshard(run));
  return check_whole_matrices(run, p->dp / p->dp_replicate);
}

ot_status ot_run_check_ranks(const ot_run *run, int ranks) {
  ot_mesh mesh;
  OT_TRY(ot_mesh_build(&run->parallel, ranks, &mesh));
  const int shards = mesh.degree[OT_AXIS_DP_SHARD];
  OT_TRY(check_whole_matrices(run, shards));
  return check_batches(run, shards * mesh.degree[OT_AXIS_DP_REPLICATE]);
}
