// SPDX-License-Identifier: Apache-2.0
// A micro-batch on the host, and the part of it that a rank of context parallelism trains on: every
// sequence is cut into pieces, after its targets were made, so that no piece lacks its last target.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/choices.h"
#include "base/status.h"

// B sequences of T tokens, R = B*T.
typedef struct ot_rows {
  int64_t B, T;
  int32_t *tokens;      // [R]
  int32_t *targets;     // [R], -1 = masked
  int32_t *positions;   // [R]
  int32_t *doc_starts;  // [R], or [B * tokens of the whole sequence], see ot_rows_cut
  int64_t *sample_ids;  // [B]
  int64_t num_targets;  // unmasked
} ot_rows;

// Which pieces: those of rank `index` of `size` ranks. Ring attention: pieces `index` and
// 2*size-1-index of 2*size (zig-zag, so that all see as many keys); Ulysses: piece `index` of size.
typedef struct ot_rows_piece {
  int size, index;
  ot_context_parallel context;
} ot_rows_piece;

ot_status ot_rows_create(int64_t B, int64_t T, ot_rows *rows);
void ot_rows_release(ot_rows *rows);

// Fills `part`, created with whole->T / size tokens; the pieces must come out even. Places in the
// sequence stay those of the whole sequence (positions, doc_starts), and with Ulysses, where
// attention sees whole sequences, part->doc_starts is that of the whole, which it points into.
void ot_rows_cut(const ot_rows *whole, const ot_rows_piece *piece, ot_rows *part);
