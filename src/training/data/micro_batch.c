// SPDX-License-Identifier: Apache-2.0
// Micro-batches; runs of tokens are copied field by field.
#include "data/micro_batch.h"

#include <stdlib.h>
#include <string.h>

ot_status ot_micro_batch_create(int64_t B, int64_t T, ot_micro_batch *rows) {
  const size_t n = (size_t)(B * T);
  *rows = (ot_micro_batch){.B = B, .T = T};
  rows->tokens = calloc(4 * n, sizeof *rows->tokens);
  rows->sample_ids = calloc((size_t)B, sizeof *rows->sample_ids);
  if (!rows->tokens || !rows->sample_ids) {
    ot_micro_batch_release(rows);
    return ot_fail(OT_ENVIRONMENT, "out of memory for a micro-batch of %ld tokens", B * T);
  }
  rows->targets = rows->tokens + n;
  rows->positions = rows->tokens + 2 * n;
  rows->doc_starts = rows->tokens + 3 * n;
  return OT_OK;
}

ot_status ot_micro_batch_create_weighted(int64_t B, int64_t T, int64_t K, ot_micro_batch *rows) {
  OT_TRY(ot_micro_batch_create(B, T, rows));
  if (K == 0) return OT_OK;
  rows->K = K;
  rows->ids = calloc((size_t)(B * T * K), sizeof *rows->ids);
  rows->weights = calloc((size_t)(B * T * K), sizeof *rows->weights);
  if (rows->ids && rows->weights) return OT_OK;
  ot_micro_batch_release(rows);
  return ot_fail(OT_ENVIRONMENT, "out of memory for %ld targets of %ld tokens", K, B * T);
}

void ot_micro_batch_release(ot_micro_batch *rows) {
  free(rows->tokens);
  free(rows->ids);
  free(rows->weights);
  free(rows->sample_ids);
  *rows = (ot_micro_batch){0};
}

// Copies `count` tokens from token `from` of the whole to token `to` of the shard.
static void copy_run(const ot_micro_batch *whole, int64_t from, ot_micro_batch *part, int64_t to,
                     int64_t count) {
  const size_t bytes = (size_t)count * sizeof *part->tokens;
  memcpy(part->tokens + to, whole->tokens + from, bytes);
  memcpy(part->targets + to, whole->targets + from, bytes);
  memcpy(part->positions + to, whole->positions + from, bytes);
  if (part->doc_starts != whole->doc_starts) {
    memcpy(part->doc_starts + to, whole->doc_starts + from, bytes);
  }
  const int64_t K = part->K;
  if (K == 0) return;
  memcpy(part->ids + to * K, whole->ids + from * K, (size_t)(count * K) * sizeof *part->ids);
  memcpy(part->weights + to * K, whole->weights + from * K,
         (size_t)(count * K) * sizeof *part->weights);
}

void ot_micro_batch_shard(const ot_micro_batch *whole, const ot_sequence_shard *piece,
                          ot_micro_batch *part) {
  const bool ring = piece->context == OT_CONTEXT_RING && piece->size > 1;
  const int runs = ring ? 2 : 1;
  const int64_t length = part->T / runs;
  OT_ASSERT(part->B == whole->B && length * runs * piece->size == whole->T);
  if (!ring) part->doc_starts = whole->doc_starts;
  const int places[2] = {piece->index, 2 * piece->size - 1 - piece->index};
  for (int64_t b = 0; b < whole->B; b++) {
    part->sample_ids[b] = whole->sample_ids[b];
    for (int i = 0; i < runs; i++) {
      copy_run(whole, b * whole->T + places[i] * length, part, b * part->T + i * length, length);
    }
  }
  part->num_targets = 0;
  for (int64_t i = 0; i < part->B * part->T; i++) part->num_targets += part->targets[i] >= 0;
}
