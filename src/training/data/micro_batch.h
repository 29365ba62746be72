// SPDX-License-Identifier: Apache-2.0
// A micro-batch on the host, and the shard of it for a context-parallel rank: every sequence is
// sharded after its targets were computed, so that no shard lacks its last target.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/choices.h"
#include "base/status.h"

// B sequences of T tokens, R = B*T.
typedef struct ot_micro_batch {
  int64_t B, T;
  int32_t *tokens;      // [R]
  int32_t *targets;     // [R], -1 = masked
  int32_t *positions;   // [R]
  int32_t *doc_starts;  // [R], or [B * tokens of the whole sequence], see ot_micro_batch_shard
  int64_t *sample_ids;  // [B]
  int64_t num_targets;  // unmasked
  int64_t K;            // weighted targets of a token (ops/head.h); 0: none
  int32_t *ids;         // [R, K]
  float *weights;       // [R, K]
} ot_micro_batch;

// The shard of rank `index` of `size` ranks. Ring attention: chunks `index` and 2*size-1-index of
// 2*size (zig-zag, for equal numbers of keys per rank); Ulysses: chunk `index` of size.
typedef struct ot_sequence_shard {
  int size, index;
  ot_context_parallel context;
} ot_sequence_shard;

ot_status ot_micro_batch_create(int64_t B, int64_t T, ot_micro_batch *rows);

// With places for K weighted targets of each token, zeros.
ot_status ot_micro_batch_create_weighted(int64_t B, int64_t T, int64_t K, ot_micro_batch *rows);
void ot_micro_batch_release(ot_micro_batch *rows);

// Fills `part`, created with whole->T / size tokens and the same K; the chunks must have equal
// lengths. positions and doc_starts stay those of the whole sequence; with Ulysses, where attention
// sees whole sequences, part->doc_starts points into that of the whole.
void ot_micro_batch_shard(const ot_micro_batch *whole, const ot_sequence_shard *piece,
                          ot_micro_batch *part);
