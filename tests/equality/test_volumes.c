// SPDX-License-Identifier: Apache-2.0
// run: any machine. Bytes that each rank sends in a step, by group and collective, as comm counts
// them, against closed forms of the model's sizes and the degrees. Every group and collective is
// compared, so no traffic without a formula goes undetected. Sources of the formulas: ZeRO
// (Rajbhandari et al. 2020), Megatron sequence parallelism (Korthikanti et al. 2022), ring
// attention (Liu et al. 2023), Ulysses (Jacobs et al. 2023).
#include <assert.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/rank_case.h"

// Sizes of RANK_LLAMA: untied, grouped queries, gated MLP, no biases.
enum { V = 61, C = 24, F = 48, H = 8, G = 2, D = 4, LAYERS = 5, BLOCKS = LAYERS + 2 };
// Tensors: embedding; q k v o, two norms, gate up down; norm and head.
enum { PARTS = 1 + 9 * LAYERS + 2 };
enum { LINE = 32 };  // elements to which a parameter is padded

typedef struct volume {
  double bytes[OT_GROUP_KINDS][OT_COMM_KINDS];
} volume;

// A request, its stages, and the position of one rank in it.
typedef struct run_case {
  rank_request r;
  int first_block[9];  // [pp * vpp + 1] as in r.layout
} run_case;

typedef struct rank_place {
  const run_case *c;
  int stage, piece;
  int64_t rounds;  // A, micro-batches
  int64_t rows;    // R, tokens of a micro-batch on a cp rank
  double size;     // bytes of an element
} rank_place;

// ---- sizes ----

static int64_t up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

static int pieces_of(const rank_request *r) {
  return r->dp_shard > 1 ? r->dp_shard : r->dp_replicate;
}

// Elements of the bucket of a block on a tp rank, with padding.
static double bucket(const rank_request *r, int block) {
  const int t = r->tp;
  const int64_t norm = up(C, LINE), words = up((V + t - 1) / t * C, LINE);
  int64_t n = words;  // embedding
  if (block == BLOCKS - 1) n = norm + words;
  if (block > 0 && block < BLOCKS - 1) {
    n = 2 * norm + up((H + 2 * G) / t * D * C, LINE) + up(C * H / t * D, LINE) +
        up(2 * F / t * C, LINE) + up(C * F / t, LINE);
  }
  return (double)up(n, (int64_t)LINE * pieces_of(r));
}

static bool runs(const rank_place *p, int block) {
  const rank_request *const r = &p->c->r;
  for (int chunk = 0; chunk < r->pp * r->vpp; chunk++) {
    const bool mine = chunk % r->pp == p->stage;
    if (mine && block >= p->c->first_block[chunk] && block < p->c->first_block[chunk + 1]) {
      return true;
    }
  }
  return false;
}

// Bucket elements of a stage: all of them, or layers, embedding and head weighted by factors.
static double stage_elements(const rank_place *p, double embedding, double layer, double head) {
  double n = 0;
  for (int i = 0; i < BLOCKS; i++) {
    const double factor = i == 0 ? embedding : i == BLOCKS - 1 ? head : layer;
    if (runs(p, i)) n += factor * bucket(&p->c->r, i);
  }
  return n;
}

static int stage_layers(const rank_place *p) {
  int n = 0;
  for (int i = 1; i < BLOCKS - 1; i++) n += runs(p, i);
  return n;
}

static double others(int k) { return (double)(k - 1) / k; }

// How many of the first `n` elements of the bucket lie in the shard of this rank.
static double within_piece(const rank_place *p, int block, double n) {
  const double piece = bucket(&p->c->r, block) / pieces_of(&p->c->r);
  return fmin(fmax(n - p->piece * piece, 0), piece);
}

// ---- formulas ----

// Elements that a stage gathers in a step of 1F1B: once for a kept block, else per forward and per
// backward (not for the embedding's backward, which reads no weights). A gathered bucket is also
// reused by the next task: the last block from F to B, the first one from B to F.
static double gathered_elements(const rank_place *p) {
  const rank_request *const r = &p->c->r;
  const int first = p->c->first_block[p->stage], last = p->c->first_block[p->stage + 1] - 1;
  const double A = (double)p->rounds, pairs = A - (r->pp - 1 - p->stage);
  double n = 0;
  for (int i = first; i <= last; i++) {
    const double stays = (i == last ? pairs : 0) + (i == first && i > 0 ? pairs - 1 : 0);
    n += (r->keep[i] ? 1 : (i == 0 ? A : 2 * A) - stays) * bucket(r, i);
  }
  return n;
}

// Data parallel, with N elements per stage, A micro-batches, k ranks, factor (k-1)/k:
//   gradients to their owners: N, or A N if reduced after each micro-batch
//   zero 0 gradients back: N       zero 1, 2 weights back: N
//   zero 3 weights: N twice per micro-batch, minus reuse; once per step if kept
//   replicas of shards: an all-reduce of each shard
static void data_parallel(const rank_place *p, volume *v) {
  const rank_request *const r = &p->c->r;
  const int k = pieces_of(r);
  const double N = stage_elements(p, 1, 1, 1), A = (double)p->rounds;
  const double wire = r->wire == OT_BF16 ? 2 : p->size;
  const double sums = r->accumulate == OT_ACCUMULATE_SHARDED ? A : 1;
  v->bytes[OT_GROUP_SHARD][OT_COMM_REDUCE_SCATTER] = others(k) * sums * N * wire;
  if (r->dp_shard == 1) v->bytes[OT_GROUP_SHARD][OT_COMM_ALL_GATHER] = others(k) * N * p->size;
  v->bytes[OT_GROUP_GATHER][OT_COMM_ALL_GATHER] =
      others(r->dp_shard) * (r->zero == 3 ? gathered_elements(p) : N) * p->size;
  if (r->dp_shard > 1) {
    v->bytes[OT_GROUP_REPLICATE][OT_COMM_ALL_REDUCE] =
        2 * others(r->dp_replicate) * N / r->dp_shard * p->size;
  }
}

// 1 if every layer's forward is recomputed, else 0.
static int again(const rank_request *r) { return r->recompute[0] == OT_RECOMPUTE_FULL; }

// Tensor parallel with sequence parallel, unit = (t-1)/t R C. A layer gathers 2 and scatters 2 in
// the forward. In the backward it gathers 2 gradients and 2 inputs (only local tokens were saved)
// and scatters 2. Full recompute repeats the forward without the last scatter, whose result is
// unused. The embedding scatters 1 and gathers 1 in the backward; the head gathers and scatters 1
// and exchanges maximum, sum and target logit of each token in float64.
static void tensor_parallel(const rank_place *p, volume *v) {
  const int t = p->c->r.tp;
  const double unit = others(t) * (double)p->rows * C * p->size, A = (double)p->rounds;
  const int layers = stage_layers(p), first = runs(p, 0), last = runs(p, BLOCKS - 1);
  const double statistics = (t - 1) * (double)p->rows * 3 * sizeof(double);
  v->bytes[OT_GROUP_TENSOR][OT_COMM_ALL_GATHER] =
      A * (((6 + 2 * again(&p->c->r)) * layers + first + last) * unit + last * statistics);
  v->bytes[OT_GROUP_TENSOR][OT_COMM_REDUCE_SCATTER] =
      A * ((4 + again(&p->c->r)) * layers + first + last) * unit;
  // Norms see only local tokens: their gradients are reduced. They are at the start of the bucket,
  // with padding between them.
  double norms = 0;
  for (int i = 1; i < BLOCKS; i++) {
    if (runs(p, i)) norms += within_piece(p, i, i < BLOCKS - 1 ? (double)up(C, LINE) + C : C);
  }
  v->bytes[OT_GROUP_TENSOR_SUM][OT_COMM_ALL_REDUCE] = 2 * others(t) * norms * p->size;
}

// Context parallel. Ring: keys and values make c-1 hops in the forward and again in the backward,
// their gradients c hops including the one back to the owner. Ulysses: q, k, v and the output cross
// once forward and once backward. Full recompute repeats the forward part. Weight gradients are
// reduced over cp as over dp.
static void context_parallel(const rank_place *p, volume *v) {
  const rank_request *const r = &p->c->r;
  const int c = r->cp;
  if (c == 1) return;
  const double row = (double)p->rows * D / r->tp * p->size;
  const double each = (double)p->rounds * stage_layers(p);
  if (r->context == OT_CONTEXT_RING) {
    v->bytes[OT_GROUP_CONTEXT][OT_COMM_SHIFT] = each * row * 2 * G * ((2 + again(r)) * (c - 1) + c);
  } else {
    v->bytes[OT_GROUP_CONTEXT][OT_COMM_ALL_TO_ALL] =
        each * others(c) * row * (2 + again(r)) * ((H + 2 * G) + H);
  }
  const int pieces = r->dp_shard * r->dp_replicate > 1 ? pieces_of(r) : 1;
  v->bytes[OT_GROUP_CONTEXT_SUM][OT_COMM_ALL_REDUCE] =
      2 * others(c) * stage_elements(p, 1, 1, 1) / pieces * p->size;
}

// Activations sent at the stage boundary before `block`: one; under Attention Residuals the
// embedding, the output of each finished block of sub-layers, and an unfinished sum.
static int crossing(const rank_request *r, int block) {
  const int place = 2 * (block - 1), size = r->residual_block;
  return size == 0 ? 1 : 1 + place / size + (place % size > 0);
}

// Pipeline: R C / t of each per micro-batch at each end of a chunk that another stage continues.
static void pipeline_parallel(const rank_place *p, volume *v) {
  const rank_request *const r = &p->c->r;
  const int chunks = r->pp * r->vpp;
  int sends = 0;
  for (int chunk = p->stage; r->pp > 1 && chunk < chunks; chunk += r->pp) {
    if (chunk + 1 < chunks) sends += crossing(r, p->c->first_block[chunk + 1]);
    if (chunk > 0) sends += crossing(r, p->c->first_block[chunk]);
  }
  v->bytes[OT_GROUP_STAGES][OT_COMM_SEND] =
      (double)p->rounds * sends * (double)p->rows * C / r->tp * p->size;
}

// Once per step: the number of targets and its square, reduced over ranks with other tokens;
// squared norms, one float64 per tensor and shard, and two sums, reduced over all ranks.
static void step_sums(const rank_place *p, volume *v) {
  const rank_request *const r = &p->c->r;
  const int ranks = rank_count(r);
  const int tokens = ranks / r->pp / r->tp;
  v->bytes[OT_GROUP_TOKENS][OT_COMM_ALL_REDUCE] = 2 * others(tokens) * 2 * sizeof(double);
  // With a query per mix: two per layer (one in the first layer), and the head's.
  const int parts = PARTS + (r->residual_block > 0 ? 2 * LAYERS : 0);
  v->bytes[OT_GROUP_WORLD][OT_COMM_ALL_REDUCE] =
      2 * others(ranks) * (parts * r->tp * pieces_of(r) + 2) * sizeof(double);
}

// ---- runs ----

static void check_rank(const rank_place *p, int rank, const rank_result *result) {
  static const char *const names[] = {"all_gather", "reduce_scatter", "all_reduce",
                                      "all_to_all", "shift",          "send",
                                      "receive",    "all_to_all_v",   "barrier"};
  static_assert(OT_COUNT(names) == OT_COMM_KINDS, "one each");
  volume v = {0};
  data_parallel(p, &v);
  tensor_parallel(p, &v);
  context_parallel(p, &v);
  pipeline_parallel(p, &v);
  step_sums(p, &v);
  for (int group = 0; group < OT_GROUP_KINDS; group++) {
    for (int kind = 0; kind < OT_COMM_KINDS; kind++) {
      const double sent = result->sent[rank][group][kind], asked = v.bytes[group][kind];
      if (fabs(sent - asked) <= 1e-9 * asked) continue;
      char text[RANK_TEXT];
      fail_msg("%s: rank %d, %s over %s: %.17g bytes sent, %.17g by formula",
               rank_describe(&p->c->r, text), rank, names[kind],
               ot_group_name((ot_group_kind)group), sent, asked);
    }
  }
}

static void check_case(const run_case *c) {
  const rank_request *const r = &c->r;
  rank_result result;
  if (rank_run(r, &result) != OT_OK) fail_msg("%s", ot_fail_message());
  const int ranks = rank_count(r);
  for (int rank = 0; rank < ranks; rank++) {
    const rank_place place = {.c = c,
                              .stage = rank / (ranks / r->pp),
                              .piece = rank / (r->tp * r->cp) % pieces_of(r),
                              .rounds = r->batch / r->micro_batch / r->dp_replicate / r->dp_shard,
                              .rows = r->micro_batch * r->length / r->cp,
                              .size = (double)ot_dtype_bytes(r->dtype)};
    check_rank(&place, rank, &result);
  }
  rank_release(&result);
}

static run_case base(void) {
  return (run_case){.r = {.model = RANK_LLAMA,
                          .layers = LAYERS,
                          .dtype = OT_F32,
                          .length = 16,
                          .batch = 8,
                          .micro_batch = 1,
                          .steps = 1,
                          .pp = 1,
                          .vpp = 1,
                          .dp_replicate = 1,
                          .dp_shard = 1,
                          .cp = 1,
                          .tp = 1,
                          .prefetch = 1,
                          .pipeline = OT_PIPELINE_1F1B,
                          .overlap = true},
                    .first_block = {0, BLOCKS}};
}

// In float32, in float64, and in float32 with gradients reduced in bf16.
static void check_types(const run_case *c) {
  run_case other = *c;
  check_case(&other);
  other.r.wire = OT_BF16;
  check_case(&other);
  other.r.wire = other.r.dtype = OT_F64;
  check_case(&other);
}

static void recompute(run_case *c, ot_recompute what) {
  for (int i = 0; i < RANK_MAX_LAYERS; i++) c->r.recompute[i] = what;
}

static void of_replicas_and_shards(void **state) {
  (void)state;
  run_case c = base();
  c.r.dp_replicate = 4;
  check_types(&c);
  c.r.accumulate = OT_ACCUMULATE_SHARDED;
  check_types(&c);
  c.r.dp_replicate = 1;
  c.r.dp_shard = 4;
  for (c.r.zero = 1; c.r.zero <= 2; c.r.zero++) check_types(&c);
  c.r.accumulate = OT_ACCUMULATE_WHOLE;
  c.r.zero = 1;
  check_types(&c);
  c.r.dp_replicate = c.r.dp_shard = 2;
  check_types(&c);
}

// With one micro-batch 3N, minus one gather each of embedding and head.
static void of_sharded_weights(void **state) {
  (void)state;
  run_case c = base();
  c.r.dp_shard = 4;
  c.r.zero = 3;
  c.r.accumulate = OT_ACCUMULATE_SHARDED;
  c.r.batch = 4;
  check_types(&c);
  c.r.batch = 12;
  check_types(&c);
  c.r.prefetch = 3;
  check_types(&c);
  c.r.keep[0] = c.r.keep[2] = true;
  check_types(&c);
  c.r.keep[BLOCKS - 1] = true;
  check_types(&c);
  for (int i = 0; i < BLOCKS; i++) c.r.keep[i] = true;
  check_types(&c);
  c.r.dp_replicate = c.r.dp_shard = 2;
  c.r.accumulate = OT_ACCUMULATE_WHOLE;
  check_types(&c);
}

static void of_tensors(void **state) {
  (void)state;
  run_case c = base();
  c.r.batch = 4;
  c.r.micro_batch = 2;
  c.r.tp = 2;
  check_types(&c);
  recompute(&c, OT_RECOMPUTE_SELECTIVE);
  check_types(&c);
  recompute(&c, OT_RECOMPUTE_FULL);
  check_types(&c);
}

static void of_contexts(void **state) {
  (void)state;
  run_case c = base();
  c.r.batch = 4;
  c.r.cp = 2;
  check_types(&c);
  c.r.context = OT_CONTEXT_ULYSSES;
  check_types(&c);
  recompute(&c, OT_RECOMPUTE_FULL);
  check_types(&c);
  c.r.context = OT_CONTEXT_RING;
  c.r.cp = 4;
  check_types(&c);
  recompute(&c, OT_RECOMPUTE_NONE);
  check_types(&c);
  c.r.cp = c.r.tp = c.r.dp_shard = 2;
  c.r.zero = 1;
  check_types(&c);
}

static void of_pipelines(void **state) {
  (void)state;
  run_case c = base();
  c.r.pp = 2;
  c = (run_case){.r = c.r, .first_block = {0, 4, BLOCKS}};
  for (int i = 0; i < 2; i++) {
    c.r.pipeline = i == 0 ? OT_PIPELINE_1F1B : OT_PIPELINE_ZB_H1;
    for (int k = 0; k < RANK_LAYOUT; k++) c.r.layout[k] = "Et*3|t*2L"[k < 9 ? k : 9];
    check_types(&c);
  }
  c.r.pipeline = OT_PIPELINE_INTERLEAVED;
  c.r.vpp = 2;
  c = (run_case){.r = c.r, .first_block = {0, 2, 4, 6, BLOCKS}};
  for (int k = 0; k < RANK_LAYOUT; k++) c.r.layout[k] = "Et|t*2|t*2|L"[k < 12 ? k : 12];
  check_types(&c);
}

// Stage boundaries between and inside blocks of sub-layers; a stage with two chunks is sent the
// whole stack again.
static void of_pipelines_with_a_stack(void **state) {
  (void)state;
  run_case c = base();
  for (int block = 1; block <= 4; block++) {
    c = base();
    c.r.residual_block = block;
    c.r.pp = 2;
    c = (run_case){.r = c.r, .first_block = {0, 4, BLOCKS}};
    for (int k = 0; k < RANK_LAYOUT; k++) c.r.layout[k] = "Et*3|t*2L"[k < 9 ? k : 9];
    check_types(&c);
    c.r.pipeline = OT_PIPELINE_INTERLEAVED;
    c.r.vpp = 2;
    c = (run_case){.r = c.r, .first_block = {0, 2, 4, 6, BLOCKS}};
    for (int k = 0; k < RANK_LAYOUT; k++) c.r.layout[k] = "Et|t*2|t*2|L"[k < 12 ? k : 12];
    check_types(&c);
  }
}

static void of_all_of_them(void **state) {
  (void)state;
  run_case c = base();
  c.r.pp = c.r.dp_shard = c.r.cp = c.r.tp = 2;
  c.r.zero = 3;
  c.r.accumulate = OT_ACCUMULATE_SHARDED;
  c = (run_case){.r = c.r, .first_block = {0, 4, BLOCKS}};
  for (int k = 0; k < RANK_LAYOUT; k++) c.r.layout[k] = "Et*3|t*2L"[k < 9 ? k : 9];
  check_types(&c);
  for (int i = 0; i < BLOCKS; i++) c.r.keep[i] = i % 3 == 0;
  check_types(&c);
}

// ---- experts ----

// RANK_MOE: experts, experts per token, layers with experts.
enum { E = 8, K = 2, EXPERT_LAYERS = LAYERS - 1 };

// A layer with experts all-gathers the token counts per expert over the n ranks of ep x etp. Ranks
// that share sequences reduce the counts of choices, again with full recompute, and gather logits
// if the routing needs them all.
static void check_expert_rank(const run_case *c, int rank, const rank_result *result) {
  const rank_request *const r = &c->r;
  const int n = (r->ep > 1 ? r->ep : 1) * (r->etp > 1 ? r->etp : 1);
  const double layers =
      (double)(r->batch / r->micro_batch / r->dp_replicate / r->dp_shard) * EXPERT_LAYERS;
  const double counts =
      2 * others(r->tp * r->cp) * (double)r->micro_batch * E * (double)ot_dtype_bytes(r->dtype);
  const double own = (double)(r->micro_batch * r->length / (r->tp * r->cp));
  const double logits = r->routing == OT_MOE_DROPLESS
                            ? 0
                            : (r->tp * r->cp - 1) * own * E * (double)ot_dtype_bytes(r->dtype);
  const struct {
    ot_group_kind group;
    ot_comm_kind kind;
    double bytes;
  } asked[] = {{OT_GROUP_SEQUENCE, OT_COMM_ALL_GATHER, layers * logits},
               {OT_GROUP_EXPERT, OT_COMM_ALL_GATHER, layers * (n - 1) * (E + 1) * sizeof(int32_t)},
               {OT_GROUP_EXPERT, OT_COMM_REDUCE_SCATTER, 0},
               {OT_GROUP_EXPERT, OT_COMM_ALL_REDUCE, 0},
               {OT_GROUP_EXPERT, OT_COMM_ALL_TO_ALL, 0},
               {OT_GROUP_SEQUENCE, OT_COMM_ALL_REDUCE, layers * (1 + again(r)) * counts}};
  for (int i = 0; i < OT_COUNT(asked); i++) {
    const double sent = result->sent[rank][asked[i].group][asked[i].kind];
    if (fabs(sent - asked[i].bytes) <= 1e-9 * asked[i].bytes) continue;
    char text[RANK_TEXT];
    fail_msg("%s: rank %d, collective %d of %s: %.17g bytes sent, %.17g by formula",
             rank_describe(r, text), rank, (int)asked[i].kind, ot_group_name(asked[i].group), sent,
             asked[i].bytes);
  }
}

// A token of a remote expert is sent with its gate and its output returns. Its gradient is sent and
// returns with that of the gate. Full recompute sends token and gate twice. Some tokens are sent,
// at most K copies of each, to each rank with columns of the expert.
static void check_rows(const run_case *c, const rank_result *result) {
  const rank_request *const r = &c->r;
  const double size = (double)ot_dtype_bytes(r->dtype);
  const double of_row = (4 * C + 2 + again(r) * (C + 1)) * size;
  const double most =
      (double)(r->batch * r->length) * K * EXPERT_LAYERS * (r->etp > 1 ? r->etp : 1);
  double sent = 0;
  for (int rank = 0; rank < rank_count(r); rank++) {
    sent += result->sent[rank][OT_GROUP_EXPERT][OT_COMM_ALL_TO_ALL_V];
  }
  char text[RANK_TEXT];
  if (fmod(sent, of_row) != 0) {
    fail_msg("%s: %.17g bytes of tokens, %.17g each", rank_describe(r, text), sent, of_row);
  }
  if (sent <= 0.25 * most * of_row || sent >= most * of_row) {
    fail_msg("%s: %g of %g tokens sent", rank_describe(r, text), sent / of_row, most);
  }
}

static void check_experts(const run_case *c) {
  rank_result result;
  if (rank_run(&c->r, &result) != OT_OK) fail_msg("%s", ot_fail_message());
  for (int rank = 0; rank < rank_count(&c->r); rank++) check_expert_rank(c, rank, &result);
  check_rows(c, &result);
  rank_release(&result);
}

static void of_experts(void **state) {
  (void)state;
  run_case c = base();
  c.r.model = RANK_MOE;
  c.r.dp_replicate = 4;
  c.r.ep = 2;
  c.r.expert_buffer = 64;  // one pass
  check_experts(&c);
  c.r.etp = 2;
  check_experts(&c);
  recompute(&c, OT_RECOMPUTE_SELECTIVE);
  check_experts(&c);
  recompute(&c, OT_RECOMPUTE_FULL);
  check_experts(&c);
  c.r.dtype = OT_F64;
  c.r.dp_replicate = c.r.cp = c.r.tp = 2;
  check_experts(&c);
  c.r.ep = 4;
  check_experts(&c);
  c.r.routing = OT_MOE_DROP_BY_SCORE;
  check_experts(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(of_replicas_and_shards),
      cmocka_unit_test(of_sharded_weights),
      cmocka_unit_test(of_tensors),
      cmocka_unit_test(of_contexts),
      cmocka_unit_test(of_pipelines),
      cmocka_unit_test(of_pipelines_with_a_stack),
      cmocka_unit_test(of_all_of_them),
      cmocka_unit_test(of_experts),
  };
  return cmocka_run_group_tests_name("bytes on the wire", tests, NULL, NULL);
}
