// SPDX-License-Identifier: Apache-2.0
// Tokens and positions are drawn by counter-based RNG.
#include "audit/swap.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"

enum { STREAM_TOKENS = 0x746f6b, STREAM_PLACES = 0x706c61, STREAM_NEW = 0x6e6577 };

const char *ot_swap_name(ot_swap_kind kind) {
  static const char *const names[] = {
      [OT_SWAP_SUFFIX] = "suffix",
      [OT_SWAP_TOKEN] = "token",
      [OT_SWAP_DOCUMENT] = "document",
      [OT_SWAP_SEQUENCES] = "sequences",
  };
  return names[kind];
}

// Uneven, so that document boundaries rarely coincide with tile boundaries.
int64_t ot_swap_document(int64_t tokens, int index) {
  static const int64_t sevenths[] = {0, 2, 5, 7};
  return tokens * sevenths[index] / 7;
}

void ot_swap_fill(uint64_t seed, int64_t vocab, bool document_mask, ot_micro_batch *rows) {
  for (int64_t b = 0; b < rows->B; b++) {
    rows->sample_ids[b] = b;
    for (int document = 0; document < OT_SWAP_DOCUMENTS; document++) {
      const int64_t first = ot_swap_document(rows->T, document);
      for (int64_t t = first; t < ot_swap_document(rows->T, document + 1); t++) {
        const int64_t i = b * rows->T + t;
        rows->tokens[i] = (int32_t)ot_rng_below(seed, STREAM_TOKENS, (uint64_t)i, (uint64_t)vocab);
        rows->positions[i] = (int32_t)(document_mask ? t - first : t);
        rows->doc_starts[i] = (int32_t)(document_mask ? first : 0);
      }
    }
  }
}

static int64_t draw(uint64_t seed, ot_swap_kind kind, int trial, int which, int64_t below) {
  const uint64_t counter = ((uint64_t)trial * OT_SWAP_KINDS + kind) * 4 + (uint64_t)which;
  return (int64_t)ot_rng_below(seed, STREAM_PLACES, counter, (uint64_t)below);
}

ot_swap ot_swap_choose(uint64_t seed, ot_swap_kind kind, int trial, const ot_micro_batch *rows) {
  const int64_t tokens = rows->T;
  ot_swap swap = {.kind = kind, .draw = seed + (uint64_t)trial * OT_SWAP_KINDS + kind};
  swap.sequence = draw(seed, kind, trial, 0, rows->B);
  switch (kind) {
    case OT_SWAP_SUFFIX:
    case OT_SWAP_TOKEN:
      swap.first = 1 + draw(seed, kind, trial, 1, tokens - 1);
      swap.last = kind == OT_SWAP_TOKEN ? swap.first + 1 : tokens;
      break;
    case OT_SWAP_DOCUMENT: {
      const int document = (int)draw(seed, kind, trial, 1, OT_SWAP_DOCUMENTS);
      swap.first = ot_swap_document(tokens, document);
      swap.last = ot_swap_document(tokens, document + 1);
      break;
    }
    case OT_SWAP_SEQUENCES:
    case OT_SWAP_KINDS:
      break;
  }
  return swap;
}

static bool is_changed(const ot_swap *swap, int64_t sequence, int64_t position) {
  if (swap->kind == OT_SWAP_SEQUENCES) return sequence != swap->sequence;
  return sequence == swap->sequence && position >= swap->first && position < swap->last;
}

void ot_swap_apply(const ot_swap *swap, int64_t vocab, const ot_micro_batch *rows,
                   ot_micro_batch *changed) {
  const int64_t n = rows->B * rows->T;
  memcpy(changed->tokens, rows->tokens, (size_t)n * sizeof *rows->tokens);
  memcpy(changed->positions, rows->positions, (size_t)n * sizeof *rows->positions);
  memcpy(changed->doc_starts, rows->doc_starts, (size_t)n * sizeof *rows->doc_starts);
  memcpy(changed->sample_ids, rows->sample_ids, (size_t)rows->B * sizeof *rows->sample_ids);
  for (int64_t i = 0; i < n; i++) {
    if (!is_changed(swap, i / rows->T, i % rows->T)) continue;
    // Always a token other than the original.
    const uint64_t step = 1 + ot_rng_below(swap->draw, STREAM_NEW, (uint64_t)i,
                                           (uint64_t)(vocab > 1 ? vocab - 1 : 1));
    changed->tokens[i] = (int32_t)(((uint64_t)rows->tokens[i] + step) % (uint64_t)vocab);
  }
}

static bool is_protected(const ot_swap *swap, int64_t sequence, int64_t position) {
  if (sequence != swap->sequence) return swap->kind != OT_SWAP_SEQUENCES;
  switch (swap->kind) {
    case OT_SWAP_SUFFIX:
    case OT_SWAP_TOKEN:
      return position < swap->first;
    case OT_SWAP_DOCUMENT:
      return position < swap->first || position >= swap->last;
    case OT_SWAP_SEQUENCES:
    case OT_SWAP_KINDS:
      break;
  }
  return true;
}

ot_swap_difference ot_swap_compare(const ot_swap *swap, const ot_micro_batch *rows,
                                   const double *changes) {
  ot_swap_difference d = {.sequence = -1};
  for (int64_t i = 0; i < rows->B * rows->T; i++) {
    const int64_t sequence = i / rows->T, position = i % rows->T;
    d.seen += is_changed(swap, sequence, position) && changes[i] != 0;
    if (!is_protected(swap, sequence, position)) continue;
    // Dependence of a sequence on the others of its batch is not a leak within it.
    const bool own = sequence == swap->sequence && swap->kind != OT_SWAP_SEQUENCES;
    *(own ? &d.own_protected : &d.others_protected) += 1;
    if (changes[i] == 0) continue;
    *(own ? &d.own : &d.others) += 1;
    if (d.sequence < 0) {
      d.sequence = sequence;
      d.position = position;
    }
    d.largest = fmax(d.largest, changes[i]);
  }
  return d;
}
