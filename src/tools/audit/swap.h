// SPDX-License-Identifier: Apache-2.0
// Pairs of batches that differ in some tokens, and the positions that must not depend on these:
//
//   suffix     all tokens of a sequence from some position on; the ones before are protected
//   token      a single token
//   document   one of the documents in a sequence; the others are protected
//   sequences  all other sequences of the batch; the one is protected
#pragma once

#include "data/micro_batch.h"

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
  int64_t sequence;     // sequence that changes; for OT_SWAP_SEQUENCES: the one that does not
  int64_t first, last;  // tokens [first, last) of it change; for OT_SWAP_SEQUENCES: none
  uint64_t draw;        // random stream of the new tokens
} ot_swap;

// Random tokens in OT_SWAP_DOCUMENTS documents per sequence, separated if `document_mask`.
void ot_swap_fill(uint64_t seed, int64_t vocab, bool document_mask, ot_micro_batch *rows);

// Position of trial number `trial` in `rows`.
ot_swap ot_swap_choose(uint64_t seed, ot_swap_kind kind, int trial, const ot_micro_batch *rows);

// Sets `changed` to `rows` with the tokens of the swap replaced.
void ot_swap_apply(const ot_swap *swap, int64_t vocab, const ot_micro_batch *rows,
                   ot_micro_batch *changed);

// The differences between the answers before and after.
typedef struct ot_swap_difference {
  int64_t own, others;  // protected positions of the changed sequence, of other sequences
  int64_t own_protected, others_protected;  // protected positions compared
  int64_t seen;                             // changed positions whose output differs, as expected
  double largest;                           // largest change of a row
  int64_t sequence, position;               // first position that differs
} ot_swap_difference;

//   changes  [sequences * tokens] as ot_layout_probe_compare
ot_swap_difference ot_swap_compare(const ot_swap *swap, const ot_micro_batch *rows,
                                   const double *changes);

// First token of document `index` of a sequence of `tokens`.
int64_t ot_swap_document(int64_t tokens, int index);

const char *ot_swap_name(ot_swap_kind kind);
