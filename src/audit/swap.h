// SPDX-License-Identifier: Apache-2.0
// Pairs of batches that differ in some tokens, and what must not depend on them:
//
//   suffix     all tokens of a sequence from some place on; what comes before is protected
//   token      a single one
//   document   one of the documents in a sequence; the others are protected
//   sequences  all others of the batch; the one is protected
#pragma once

#include "data/rows.h"

typedef enum ot_swap_kind {
  OT_SWAP_SUFFIX,
  OT_SWAP_TOKEN,
  OT_SWAP_DOCUMENT,
  OT_SWAP_SEQUENCES,
  OT_SWAP_KINDS,
} ot_swap_kind;

enum { OT_SWAP_DOCUMENTS = 3 };

// A batch of packed documents, and one trial on it.
typedef struct ot_swap {
  ot_swap_kind kind;
  int64_t sequence;     // in which tokens change; of OT_SWAP_SEQUENCES: the one that stays
  int64_t first, last;  // tokens [first, last) of it change; of OT_SWAP_SEQUENCES: none
  uint64_t draw;        // of the new tokens
} ot_swap;

// Random tokens; OT_SWAP_DOCUMENTS documents a sequence, apart when `document_mask`.
void ot_swap_fill(uint64_t seed, int64_t vocab, bool document_mask, ot_rows *rows);

// Place of trial number `trial` in `rows`.
ot_swap ot_swap_choose(uint64_t seed, ot_swap_kind kind, int trial, const ot_rows *rows);

// `changed` becomes `rows` with other tokens where the swap says.
void ot_swap_apply(const ot_swap *swap, int64_t vocab, const ot_rows *rows, ot_rows *changed);

// What differs between the answers before and after.
typedef struct ot_swap_difference {
  int64_t own, others;  // protected positions of the changed sequence, of other sequences
  int64_t own_protected, others_protected;  // how many were looked at
  int64_t seen;                             // positions of other tokens that differ, as they should
  double largest;                           // change of a row
  int64_t sequence, position;               // of the first that differs
} ot_swap_difference;

//   changes  [sequences * tokens] as ot_layout_probe_compare
ot_swap_difference ot_swap_compare(const ot_swap *swap, const ot_rows *rows, const double *changes);

// First token of document `index` of a sequence of `tokens`.
int64_t ot_swap_document(int64_t tokens, int index);

const char *ot_swap_name(ot_swap_kind kind);
