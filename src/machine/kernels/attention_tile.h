// SPDX-License-Identifier: Apache-2.0
// Shared by the forward and backward attention kernels: problem sizes, packing of heads into tiles,
// and the visible keys of a query tile. Scores are stored transposed, [key][query]: a vector holds
// neighbouring queries, so maxima and sums over keys need no horizontal reductions. The queries of
// a tile are processed in panels, one per register-tile width; transposed data is stored panel by
// panel, [panel][row][OT_PANEL], so that a panel is contiguous.
#pragma once

#include <assert.h>
#include <string.h>

#include "kernels/dropout_mask.h"
#include "kernels/register_tile.h"
#include "ops/attention.h"
#include "ops/kernel.h"
#include "ops/zigzag.h"
#include "workspace/cpu_workspace.h"

enum {
  OT_QUERIES = OT_ATTENTION_QUERIES,
  OT_KEYS = OT_ATTENTION_KEYS,
  OT_PREFETCH_ROWS = 8,  // head rows to prefetch: each is in another page
};
static_assert(OT_QUERIES % OT_PANEL == 0, "whole panels");

// Heads of D elements in the rows of a tensor: starting at `first`, `row` elements per row.
typedef struct ot_heads {
  const ot_tensor *tensor;
  int64_t row, first;
} ot_heads;

typedef struct ot_attention {
  const ot_op_attributes *attributes;
  ot_attention_layout layout;
  int64_t B, T, H, G, D;
  int64_t width;           // layout.width, elements between packed rows
  int64_t heads;           // H / G
  int64_t tiles;           // tiles of queries of a sequence
  ot_heads queries, keys;  // in keys, head G + g has the values of key head g
  ot_positions query_places, key_places;
  int64_t key_begin, key_end;  // keys that some query may see by position, in whole groups
  const int32_t *doc_start;    // [R] or null
  const int64_t *sample_ids;   // [B] or null
} ot_attention;

// A unit of work: query tiles `part`, `part` + parts, ... of the heads of one key head.
typedef struct ot_attention_unit {
  int64_t b, g, part;
} ot_attention_unit;

// A tile of queries of one head.
typedef struct ot_query_tile {
  int64_t b, h;
  int64_t first, n;                   // queries [first, first + n) of the sequence
  int32_t low[OT_ATTENTION_QUERIES];  // query i sees keys low[i] .. high[i]; none when low > high
  int32_t high[OT_ATTENTION_QUERIES];
  int64_t key_begin, key_end;  // keys that any query sees, in whole groups; begin >= end when none
} ot_query_tile;

// A tile of queries against a tile of keys.
typedef struct ot_tile_pair {
  const ot_attention *p;
  const ot_query_tile *q;
  int64_t first, n;  // keys
  bool edge;         // some query does not see some key
} ot_tile_pair;

// Keys [begin, end), relative to the first of a tile.
typedef struct ot_key_range {
  int64_t begin, end;
} ot_key_range;

// Rounds down or up to a whole group of keys; the sequence may end within the last group.
static inline int64_t ot_group_begin(int64_t key) { return key / OT_TILE_ROWS * OT_TILE_ROWS; }

static inline int64_t ot_group_end(const ot_attention *p, int64_t end) {
  const int64_t whole = ot_group_begin(end + OT_TILE_ROWS - 1);
  return whole < p->T ? whole : p->T;
}

// The first key visible to the query at `place`, and the one after the last.
static inline int64_t ot_first_key(const ot_attention *p, int64_t place, int64_t doc_start) {
  const int64_t window = p->attributes->window;
  const int64_t oldest = window > 0 ? place - window + 1 : 0;
  return ot_tokens_before(&p->key_places, doc_start > oldest ? doc_start : oldest);
}

static inline int64_t ot_after_last_key(const ot_attention *p, int64_t place) {
  return ot_tokens_before(&p->key_places, place + 1);
}

// The problem of a call whose inputs from `first` on are qkv, kv (for blocks), doc_start,
// sample_ids.
static inline ot_attention ot_attention_of(const ot_kernel_call *call, ot_op_kind kind, int first) {
  const ot_op_attributes *const a = call->attributes;
  const bool block = ot_attention_is_block(kind);
  const int context_size = block ? a->context_size : 1;
  const ot_tensor *const qkv = &call->in[first];
  const ot_tensor *const batch = block ? qkv + 2 : qkv + 1;
  const int64_t T = a->sequence_length;
  const int64_t H = a->num_heads;
  const int64_t G = a->num_kv_heads;
  ot_attention p = {.attributes = a,
                    .layout = ot_attention_layout_of(kind, a, &qkv->type),
                    .B = qkv->type.dim[0] / T,
                    .T = T,
                    .H = H,
                    .G = G,
                    .D = a->head_dim,
                    .heads = H / G,
                    .tiles = (T + OT_QUERIES - 1) / OT_QUERIES,
                    .queries = {qkv, H + 2 * G, 0},
                    .keys = {qkv, H + 2 * G, H},
                    .query_places = ot_positions_of(T, context_size, a->context_index),
                    .key_places = ot_positions_of(T, context_size, a->key_index),
                    .doc_start = batch[0].data,
                    .sample_ids = batch[1].data};
  if (block) p.keys = (ot_heads){qkv + 1, 2 * G, 0};
  p.width = p.layout.width;
  p.key_begin = ot_group_begin(ot_first_key(&p, ot_token_position(&p.query_places, 0), 0));
  p.key_end = ot_group_end(&p, ot_after_last_key(&p, ot_token_position(&p.query_places, T - 1)));
  return p;
}

static inline ot_attention_unit ot_attention_unit_of(const ot_attention *p, int64_t unit) {
  const int64_t group = unit / p->layout.parts;
  return (ot_attention_unit){.b = group / p->G, .g = group % p->G, .part = unit % p->layout.parts};
}

// Element offset of head `head` (from heads->first on) of token `t` of sequence `b`.
static inline int64_t ot_head_element(const ot_attention *p, const ot_heads *heads, int64_t b,
                                      int64_t t, int64_t head) {
  return ((b * p->T + t) * heads->row + heads->first + head) * p->D;
}

// Rows of `n` tokens of one head as `rows` [rounded up to `padded`][width], zero beyond D and n.
// `step` is the number of elements between tokens in the tensor.
typedef struct ot_head_rows {
  const ot_tensor *tensor;
  int64_t first, step;
  int64_t n, padded;
} ot_head_rows;

static inline void ot_head_rows_prefetch(const ot_attention *p, const ot_head_rows *from,
                                         int64_t t) {
  if (t >= from->n) return;
  const int64_t size = ot_dtype_bytes(from->tensor->type.dtype);
  const char *const row = (const char *)from->tensor->data + (from->first + t * from->step) * size;
  for (int64_t byte = 0; byte < p->D * size; byte += 64) __builtin_prefetch(row + byte);
}

static inline void ot_head_rows_pack(const ot_attention *p, const ot_head_rows *from,
                                     ot_real *restrict rows) {
  for (int64_t t = 0; t < from->padded; t++) {
    ot_real *const row = rows + t * p->width;
    const int64_t given = t < from->n ? p->D : 0;
    ot_head_rows_prefetch(p, from, t + OT_PREFETCH_ROWS);
    if (given > 0) {
      ot_load_row(row, from->tensor->data, from->tensor->type.dtype, from->first + t * from->step,
                  given);
    }
    memset(row + given, 0, (size_t)(p->width - given) * sizeof *row);
  }
}

// Packs the queries of a tile, or another tensor with their layout: [OT_QUERIES][width].
static inline void ot_tile_pack(const ot_attention *p, const ot_heads *heads,
                                const ot_query_tile *q, ot_real *rows) {
  const ot_head_rows from = {.tensor = heads->tensor,
                             .first = ot_head_element(p, heads, q->b, q->first, q->h),
                             .step = heads->row * p->D,
                             .n = q->n,
                             .padded = OT_QUERIES};
  ot_head_rows_pack(p, &from, rows);
}

// Packs the keys (head g) or values (head G + g) of a unit that some query may see, at their
// indices in `rows` [layout.keys][width]; the others stay undefined.
static inline void ot_sequence_pack(const ot_attention *p, int64_t b, int64_t head, ot_real *rows) {
  if (p->key_begin >= p->key_end) return;
  const int64_t end = p->key_end < p->T ? p->key_end : p->layout.keys;
  const ot_head_rows from = {.tensor = p->keys.tensor,
                             .first = ot_head_element(p, &p->keys, b, p->key_begin, head),
                             .step = p->keys.row * p->D,
                             .n = p->key_end - p->key_begin,
                             .padded = end - p->key_begin};
  ot_head_rows_pack(p, &from, rows + p->key_begin * p->width);
}

// to[panel][column][query of panel] = factor * from[query][column] for OT_QUERIES rows of `width`.
static inline void ot_panels_transpose(const ot_real *restrict from, int64_t width, ot_real factor,
                                       ot_real *restrict to) {
  for (int64_t i = 0; i < OT_QUERIES; i += OT_PANEL) {
    for (int64_t c = 0; c < width; c++) {
      ot_real *const column = to + i * width + c * OT_PANEL;
      for (int64_t r = 0; r < OT_PANEL; r++) column[r] = factor * from[(i + r) * width + c];
    }
  }
}

static inline ot_query_tile ot_query_tile_of(const ot_attention *p, int64_t b, int64_t h,
                                             int64_t tile) {
  ot_query_tile q = {.b = b, .h = h, .first = tile * OT_QUERIES};
  q.n = p->T - q.first < OT_QUERIES ? p->T - q.first : OT_QUERIES;
  int64_t begin = p->T;
  int64_t end = 0;
  for (int64_t i = 0; i < OT_QUERIES; i++) {
    const int64_t place = ot_token_position(&p->query_places, q.first + i);
    const int64_t start = p->doc_start && i < q.n ? p->doc_start[b * p->T + q.first + i] : 0;
    const int64_t low = ot_first_key(p, place, start);
    const int64_t high = ot_after_last_key(p, place);
    const bool sees = i < q.n && low < high;
    q.low[i] = sees ? (int32_t)low : INT32_MAX;
    q.high[i] = sees ? (int32_t)(high - 1) : -1;
    begin = sees && low < begin ? low : begin;
    end = sees && high > end ? high : end;
  }
  q.key_begin = ot_group_begin(begin);
  q.key_end = ot_group_end(p, end);
  return q;
}

// The key tile that starts at `first`.
static inline ot_tile_pair ot_tile_pair_of(const ot_attention *p, const ot_query_tile *q,
                                           int64_t first) {
  ot_tile_pair pair = {.p = p, .q = q, .first = first};
  pair.n = q->key_end - first < OT_KEYS ? q->key_end - first : OT_KEYS;
  int32_t low = 0;
  int32_t high = INT32_MAX;
  for (int i = 0; i < OT_QUERIES; i++) {
    low = q->low[i] > low ? q->low[i] : low;
    high = q->high[i] < high ? q->high[i] : high;
  }
  pair.edge = low > first || high < first + pair.n - 1;
  return pair;
}

// The keys visible to some query of the panel that starts at query `i` of the tile.
static inline ot_key_range ot_visible_keys(const ot_tile_pair *pair, int i) {
  ot_key_range range = {0, pair->n};
  if (!pair->edge) return range;
  int32_t low = INT32_MAX;
  int32_t high = -1;
  for (int c = i; c < i + OT_PANEL; c++) {
    low = pair->q->low[c] < low ? pair->q->low[c] : low;
    high = pair->q->high[c] > high ? pair->q->high[c] : high;
  }
  if (low > pair->first) range.begin = low - pair->first;
  if (high + 1 < pair->first + pair->n) range.end = high + 1 - pair->first;
  return range;
}

// Scores of a panel: query `i` of the tile, in the panel from query `first` on, and key `j` of the
// key tile are at data[j * stride + i - first].
typedef struct ot_panel_scores {
  ot_real *data;
  int64_t stride;
  int first;
} ot_panel_scores;

// Writes `value` where a query does not see a key.
static inline void ot_mask_scores(const ot_tile_pair *pair, ot_panel_scores scores, ot_real value) {
  const int32_t *const low = pair->q->low + scores.first;
  const int32_t *const high = pair->q->high + scores.first;
  for (int64_t j = 0; j < pair->n; j++) {
    const int32_t key = (int32_t)(pair->first + j);
    ot_real *const row = scores.data + j * scores.stride;
    for (int i = 0; i < OT_PANEL; i++) row[i] = key >= low[i] && key <= high[i] ? row[i] : value;
  }
}

// Multiplies by the dropout mask: 0 or 1 / (1 - dropout).
static inline void ot_drop_scores(const ot_tile_pair *pair, ot_panel_scores scores) {
  const ot_attention *const p = pair->p;
  const ot_query_tile *const q = pair->q;
  const uint32_t threshold = ot_dropout_threshold(p->attributes->dropout);
  const ot_real factor = (ot_real)(1 / (1 - p->attributes->dropout));
  const uint64_t key = ot_rng_key(p->attributes->seed, p->attributes->rng_stream);
  const uint64_t sample = (uint64_t)p->sample_ids[q->b];
  const int64_t head = p->attributes->first_head + q->h;
  uint32_t position[OT_PANEL];
  for (int i = 0; i < OT_PANEL; i++) {
    const int64_t place = ot_token_position(&p->query_places, q->first + scores.first + i);
    position[i] = (uint32_t)((head << 24) + place);
  }
  uint32_t word[OT_PANEL][4];
  int64_t drawn = -1;
  for (int64_t j = 0; j < pair->n; j++) {
    const int64_t key_place = ot_token_position(&p->key_places, pair->first + j);
    const int64_t block = key_place / 4;
    const int64_t place = key_place % 4;
    if (block != drawn) {
#pragma omp simd
      for (int i = 0; i < OT_PANEL; i++) {
        const ot_dropout_row row = {key, sample, position[i]};
        ot_dropout_block(&row, (uint32_t)block, word[i]);
      }
      drawn = block;
    }
    ot_real *const row = scores.data + j * scores.stride;
    for (int i = 0; i < OT_PANEL; i++) row[i] *= word[i][place] >= threshold ? factor : 0;
  }
}

// scores of key j and query i = rows[j] . columns of i, for the keys visible to the panel; others
// stay undefined. `rows` [.][width] from the tile's first key on, columns [panel][width][OT_PANEL].
static inline void ot_scores(const ot_tile_pair *pair, const ot_real *rows, const ot_real *columns,
                             ot_panel_scores scores) {
  const ot_attention *const p = pair->p;
  const ot_key_range keys = ot_visible_keys(pair, scores.first);
  for (int64_t j = keys.begin / OT_TILE_ROWS * OT_TILE_ROWS; j < keys.end; j += OT_TILE_ROWS) {
    const ot_register_tile tile = {.a = rows + j * p->width,
                                   .a_row = p->width,
                                   .a_depth = 1,
                                   .b = columns + scores.first * p->width,
                                   .b_stride = OT_PANEL,
                                   .c = scores.data + j * scores.stride,
                                   .c_stride = scores.stride,
                                   .depth = p->D};
    ot_tile_multiply(&tile, OT_TILE_VECTORS, OT_TILE_ZERO, NULL);
  }
}

// sums[panel][d][i] = start + sum over visible keys j of rows[j][d] * scores of (j, i). `rows` is
// [.][width] from the tile's first key on; `scale` [OT_PANEL] as in ot_tile_multiply.
static inline __attribute__((always_inline)) void ot_add_rows(const ot_tile_pair *pair,
                                                              const ot_real *rows,
                                                              ot_panel_scores scores, ot_real *sums,
                                                              const ot_real *scale) {
  const ot_attention *const p = pair->p;
  const ot_key_range keys = ot_visible_keys(pair, scores.first);
  if (keys.begin >= keys.end) return;
  for (int64_t d = 0; d < p->D; d += OT_TILE_ROWS) {
    const ot_register_tile tile = {.a = rows + keys.begin * p->width + d,
                                   .a_row = 1,
                                   .a_depth = p->width,
                                   .b = scores.data + keys.begin * scores.stride,
                                   .b_stride = scores.stride,
                                   .c = sums + scores.first * p->width + d * OT_PANEL,
                                   .c_stride = OT_PANEL,
                                   .depth = keys.end - keys.begin};
    ot_tile_multiply(&tile, OT_TILE_VECTORS, scale ? OT_TILE_SCALE : OT_TILE_ADD, scale);
  }
}
