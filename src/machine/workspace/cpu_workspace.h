// SPDX-License-Identifier: Apache-2.0
// Layouts of the workspaces of CPU kernels, which size them and place their regions. In elements of
// the compute type. Pure.
#pragma once

#include "ops/op.h"

// ---- linear.h ----

// Offsets of the widened operands; -1 for an operand that needs no widening.
typedef struct ot_linear_layout {
  int64_t block;  // outputs (of O) that are widened at a time; O without widening
  int64_t w;      // [block, C]: w or dw
  int64_t wide;   // [R, C]: x or dx
  int64_t tall;   // [R, block]: y or dy
  int64_t sums;   // [row blocks, O]: partial sums of dbias
  int64_t elements;
} ot_linear_layout;

// `rows` is the [R, C] operand, `outputs` the [R, O] one, `w` the [O, C] one, absent (rank 0) when
// only dbias is computed; `has_bias_gradient` reserves `sums`.
ot_linear_layout ot_linear_layout_of(ot_dtype compute, const ot_tensor_type *rows,
                                     const ot_tensor_type *outputs, const ot_tensor_type *w,
                                     bool has_bias_gradient);

// ---- grouped.h ----

// A multiple of the register tile of every target (register_tile.h), as OT_GROUPED_ROWS.
enum { OT_GROUPED_COLUMNS = 64 };

// The blocking of one op; each work item is an expert and a block of columns.
typedef struct ot_grouped_layout {
  int64_t E;
  int64_t tile;      // rows of y or dx per tile, a multiple of OT_GROUPED_ROWS
  int64_t block;     // columns of y or dx, or rows of dw, per work item
  int64_t depth;     // of the contraction (dw: rows that are added at a time)
  int64_t matrix;    // scratch elements of a thread for a block of w, ...
  int64_t operand;   // ... for a tile of rows
  int64_t result;    // ... and for a tile of results (dw: if stored in bf16)
  int64_t elements;  // total, a multiple of 16
} ot_grouped_layout;

ot_grouped_layout ot_grouped_layout_of(const ot_op_attributes *attributes, ot_op_kind kind,
                                       const ot_op_types *types);

// ---- attention.h ----

// How the work is partitioned. A unit is a share of the query tiles of the heads that share a key
// head; a thread processes units and has one slot.
typedef struct ot_attention_layout {
  int64_t parts;     // units per (sequence, key head)
  int64_t units;     // B * G * parts
  int64_t keys;      // T rounded up to whole groups of keys
  int64_t width;     // D rounded up to whole vectors
  int64_t slot;      // elements per thread
  int64_t partial;   // elements of a unit's own dk and dv, 0 with one part; after the slots
  int64_t maxima;    // start of [units] f64, after the partials
  int64_t elements;  // of the whole workspace
} ot_attention_layout;

// The layout of an attention op of any of the four kinds.
ot_attention_layout ot_attention_layout_of(ot_op_kind kind, const ot_op_attributes *attributes,
                                           const ot_tensor_type *qkv);

// ---- decode.h ----

enum {
  OT_DECODE_KEYS = 64,  // keys of a tile, whole pages
  OT_DECODE_ROWS = 16,  // tokens of a sequence that share the reads of a tile
};

typedef struct ot_decode_layout {
  int64_t width;     // D rounded up to whole vectors
  int64_t queries;   // [rows * heads, width] of a unit
  int64_t keys;      // [OT_DECODE_KEYS, width]
  int64_t values;    // [OT_DECODE_KEYS, width]
  int64_t scores;    // [rows * heads, OT_DECODE_KEYS]
  int64_t sums;      // [rows * heads, width] of values
  int64_t state;     // [rows * heads, 2] largest score and sum of exponentials
  int64_t elements;  // per thread
} ot_decode_layout;

ot_decode_layout ot_decode_layout_of(const ot_op_attributes *attributes);

// ---- head.h ----

// -1 for an unused region.
typedef struct ot_head_layout {
  int64_t chunk;   // tokens whose logits exist at once
  int64_t stride;  // elements between tokens of logits
  int64_t block;   // rows of w and dw that are widened at a time; V when both are in the compute
                   // type
  int64_t logits;  // [chunk, stride]
  int64_t x;       // [chunk, C] widened
  int64_t w;       // [block, C]: w or dw
  int64_t dx;      // [chunk, C] before narrowing
  int64_t nats;    // [chunk] f64; with weights twice: of them, and of the targets
  int64_t elements;
} ot_head_layout;

ot_head_layout ot_head_layout_of(ot_op_kind kind, const ot_op_attributes *attributes,
                                 const ot_op_types *types);
