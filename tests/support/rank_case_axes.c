// SPDX-License-Identifier: Apache-2.0
// Levels, constraints between them, and the run requests they give.
#include "support/rank_case_axes.h"

#include "base/text.h"
#include "describe/pipeline_rules.h"
#include "support/op_device.h"

enum { DEGREES = 4, MAX_DEGREE = 8 };
static const int degrees[DEGREES] = {1, 2, 4, 8};
static const int prefetches[] = {1, 0, 2};
// Receive buffers of experts: default, so small that several passes are needed, large enough for
// all.
static const double rooms[] = {0, 0.3, 64};
static const int rounds[] = {4, 1, 3};
static const ot_pipeline pipelines[] = {
    OT_PIPELINE_1F1B,  OT_PIPELINE_GPIPE, OT_PIPELINE_INTERLEAVED, OT_PIPELINE_ZB_H1,
    OT_PIPELINE_ZB_H2, OT_PIPELINE_ZB_V,  OT_PIPELINE_DUALPIPE_V};
enum { BY_COST, UNEVEN, LAYOUTS };
enum { NONE, SELECTIVE, FULL, MIXED, RECOMPUTES };

const int rank_levels[] = {
    [RANK_PP] = DEGREES,
    [RANK_DP_REPLICATE] = DEGREES,
    [RANK_DP_SHARD] = DEGREES,
    [RANK_CP] = DEGREES,
    [RANK_TP] = DEGREES,
    [RANK_ZERO] = 4,
    [RANK_ACCUMULATE] = 2,
    [RANK_RESHARD] = 2,
    [RANK_PREFETCH] = OT_COUNT(prefetches),
    [RANK_PIPELINE] = OT_COUNT(pipelines),
    [RANK_LAYOUT_KIND] = LAYOUTS,
    [RANK_RECOMPUTE] = RECOMPUTES,
    [RANK_MODEL] = RANK_MODELS,
    [RANK_CONTEXT] = 2,
    [RANK_OVERLAP] = 2,
    [RANK_ROUNDS] = OT_COUNT(rounds),
    [RANK_MICRO_BATCH] = 2,
    [RANK_EP] = DEGREES,
    [RANK_ETP] = 2,
    [RANK_LOADS] = 2,
    [RANK_ROOM] = OT_COUNT(rooms),
};

// ---- rules ----

static bool open(const cover_row *row, rank_factor f) { return row->level[f] < 0; }

static int degree_of(const cover_row *row, rank_factor f) {
  return open(row, f) ? 1 : degrees[row->level[f]];
}

// True when factor `f` is closed and of another level than the first.
static bool chosen(const cover_row *row, rank_factor f) { return row->level[f] > 0; }

static bool fits_data(const cover_row *row) {
  if (chosen(row, RANK_ZERO) && row->level[RANK_DP_SHARD] == 0) return false;
  if (row->level[RANK_ZERO] == 0 && chosen(row, RANK_DP_SHARD)) return false;
  const bool alone = row->level[RANK_DP_SHARD] == 0 && row->level[RANK_DP_REPLICATE] == 0;
  if (alone && row->level[RANK_ACCUMULATE] == OT_ACCUMULATE_SHARDED) return false;
  const bool whole = !open(row, RANK_ZERO) && row->level[RANK_ZERO] < 3;
  return !whole || !(chosen(row, RANK_RESHARD) || chosen(row, RANK_PREFETCH));
}

static int chunks_of(ot_pipeline kind, int pp) {
  return ot_pipeline_chunks(kind, pp, kind == OT_PIPELINE_INTERLEAVED && pp > 1 ? 2 : 1);
}

static bool fits_stages(const cover_row *row) {
  if (open(row, RANK_PP)) return true;
  const int pp = degree_of(row, RANK_PP);
  if (pp == 1 && chosen(row, RANK_LAYOUT_KIND)) return false;
  if (open(row, RANK_PIPELINE)) return true;
  const ot_pipeline kind = pipelines[row->level[RANK_PIPELINE]];
  if (pp == 1) return kind == OT_PIPELINE_1F1B || kind == OT_PIPELINE_GPIPE;
  const int chunks = chunks_of(kind, pp);
  // Sixteen layers with norms after their branches lose float32 digits on one rank, too.
  const int model = row->level[RANK_MODEL];
  const bool normed = model == RANK_OLMO || model == RANK_GEMMA || model == RANK_GEMMA2;
  if (chunks * pp > 8 && normed) return false;
  if (open(row, RANK_ROUNDS)) return true;
  return ot_pipeline_check(kind, pp, chunks, rounds[row->level[RANK_ROUNDS]]) == OT_OK;
}

static bool fits_context(const cover_row *row) {
  if (!chosen(row, RANK_CONTEXT)) return true;
  if (row->level[RANK_CP] == 0) return false;
  if (open(row, RANK_MODEL)) return true;
  const ot_model model = rank_model((rank_model_kind)row->level[RANK_MODEL], RANK_LAYERS, false);
  const int ways = degree_of(row, RANK_CP) * degree_of(row, RANK_TP);
  return model.num_kv_heads % ways == 0;
}

// Experts are sharded over ranks of a stage: over any axes but pp, on at most as many ranks.
static bool fits_experts(const cover_row *row) {
  const bool spread = chosen(row, RANK_EP) || chosen(row, RANK_ETP);
  const bool together = row->level[RANK_EP] == 0 && row->level[RANK_ETP] == 0;
  if (together && chosen(row, RANK_ROOM)) return false;
  if (!spread && !chosen(row, RANK_LOADS)) return true;
  if (!open(row, RANK_MODEL) && !rank_has_experts((rank_model_kind)row->level[RANK_MODEL])) {
    return false;
  }
  int ranks = 1;
  bool all = true;
  for (int f = RANK_DP_REPLICATE; f <= RANK_TP; f++) {
    ranks *= degree_of(row, (rank_factor)f);
    all = all && !open(row, (rank_factor)f);
  }
  const int wanted = degree_of(row, RANK_EP) * degree_of(row, RANK_ETP);
  return wanted <= (all ? ranks : MAX_DEGREE / degree_of(row, RANK_PP));
}

bool rank_fits(const cover_row *row) {
  int ranks = 1;
  for (int f = RANK_PP; f <= RANK_TP; f++) ranks *= degree_of(row, (rank_factor)f);
  if (ranks > MAX_DEGREE) return false;
  return fits_data(row) && fits_stages(row) && fits_context(row) && fits_experts(row);
}

int rank_factorisations(ot_arena *arena, cover_row **rows) {
  *rows = ot_arena_array(arena, DEGREES * DEGREES * DEGREES * DEGREES * DEGREES, sizeof **rows);
  int count = 0;
  for (int i = 0; i < DEGREES * DEGREES * DEGREES * DEGREES * DEGREES; i++) {
    cover_row row;
    for (int f = 0; f < COVER_FACTORS; f++) row.level[f] = -1;
    int rest = i;
    for (int f = RANK_PP; f <= RANK_TP; f++, rest /= DEGREES) row.level[f] = rest % DEGREES;
    if (rank_fits(&row)) (*rows)[count++] = row;
  }
  return count;
}

// ---- requests ----

// The embedding with the surplus layers, one layer per chunk, the head alone.
static void write_layout(int layers, int chunks, char *text) {
  const int middle = chunks > 2 ? chunks - 2 : 0;
  int64_t n = ot_text_format(text, RANK_LAYOUT, "E");
  for (int c = 0; c < middle; c++) {
    n += ot_text_format(text + n, RANK_LAYOUT - n, "|t*%d", c == 0 ? layers - middle + 1 : 1);
  }
  if (middle > 0) {
    ot_text_format(text + n, RANK_LAYOUT - n, "|L");
  } else {
    ot_text_format(text + n, RANK_LAYOUT - n, "|t*%dL", layers);
  }
}

static void set_stages(const cover_row *row, rank_request *r) {
  r->pp = degree_of(row, RANK_PP);
  r->pipeline = pipelines[row->level[RANK_PIPELINE]];
  r->vpp = r->pipeline == OT_PIPELINE_INTERLEAVED && r->pp > 1 ? 2 : 1;
  const int chunks = r->pp * chunks_of(r->pipeline, r->pp);
  r->layers = chunks > RANK_LAYERS ? chunks : RANK_LAYERS;
  if (row->level[RANK_LAYOUT_KIND] == UNEVEN) write_layout(r->layers, chunks, r->layout);
}

static void set_recompute(int level, rank_request *r) {
  for (int i = 0; i < RANK_MAX_LAYERS; i++) {
    r->recompute[i] = (ot_recompute)(level == MIXED ? (i + 1) % 3 : level);
  }
}

void rank_request_of(const cover_row *row, ot_dtype dtype, rank_request *request) {
  *request = (rank_request){.backend = op_device_backend(),
                            .model = (rank_model_kind)row->level[RANK_MODEL],
                            .dtype = dtype,
                            .length = 32,
                            .micro_batch = 1 + row->level[RANK_MICRO_BATCH],
                            .steps = RANK_STEPS,
                            .dp_replicate = degree_of(row, RANK_DP_REPLICATE),
                            .dp_shard = degree_of(row, RANK_DP_SHARD),
                            .cp = degree_of(row, RANK_CP),
                            .tp = degree_of(row, RANK_TP),
                            .ep = degree_of(row, RANK_EP),
                            .etp = degree_of(row, RANK_ETP),
                            .loads = (rank_loads)row->level[RANK_LOADS],
                            .expert_buffer = rooms[row->level[RANK_ROOM]],
                            .zero = row->level[RANK_ZERO],
                            .prefetch = prefetches[row->level[RANK_PREFETCH]],
                            .accumulate = (ot_accumulate)row->level[RANK_ACCUMULATE],
                            .context = (ot_context_parallel)row->level[RANK_CONTEXT],
                            .overlap = row->level[RANK_OVERLAP] == 0};
  set_stages(row, request);
  set_recompute(row->level[RANK_RECOMPUTE], request);
  for (int i = 0; i < RANK_MAX_LAYERS + 2; i++) request->keep[i] = row->level[RANK_RESHARD] > 0;
  request->batch = (int64_t)rounds[row->level[RANK_ROUNDS]] * request->micro_batch *
                   request->dp_replicate * request->dp_shard;
}
