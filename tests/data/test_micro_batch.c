// SPDX-License-Identifier: Apache-2.0
// run: any machine. Micro-batches sharded over context-parallel ranks.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/micro_batch.h"

enum { B = 3, T = 24 };

// Self-describing tokens: row (b, place) has token 100 b + place.
static void fill(ot_micro_batch *rows) {
  assert_int_equal(ot_micro_batch_create(B, T, rows), OT_OK);
  for (int b = 0; b < B; b++) {
    rows->sample_ids[b] = 1000 + b;
    for (int t = 0; t < T; t++) {
      const int i = b * T + t;
      rows->tokens[i] = 100 * b + t;
      rows->targets[i] = t % 5 == b ? -1 : 100 * b + t + 1;
      rows->positions[i] = t % 7;
      rows->doc_starts[i] = t / 7 * 7;
      rows->num_targets += rows->targets[i] >= 0;
    }
  }
}

// Positions of the tokens of a rank, computed by hand.
static int ring_place(int size, int index, int i) {
  const int half = T / size / 2;
  return i < half ? index * half + i : (2 * size - 1 - index) * half + i - half;
}

static void check_part(const ot_micro_batch *whole, const ot_sequence_shard *piece,
                       const ot_micro_batch *part) {
  const int length = T / piece->size;
  const bool ring = piece->context == OT_CONTEXT_RING;
  for (int b = 0; b < B; b++) {
    assert_int_equal(part->sample_ids[b], 1000 + b);
    for (int i = 0; i < length; i++) {
      const int place = ring ? ring_place(piece->size, piece->index, i) : piece->index * length + i;
      const int from = b * T + place, at = b * length + i;
      assert_int_equal(part->tokens[at], 100 * b + place);
      assert_int_equal(part->targets[at], whole->targets[from]);
      assert_int_equal(part->positions[at], place % 7);
      if (ring) assert_int_equal(part->doc_starts[at], place / 7 * 7);
    }
  }
}

static void check_all_ranks(int size, ot_context_parallel context) {
  ot_micro_batch whole = {0};
  fill(&whole);
  int64_t targets = 0;
  for (int index = 0; index < size; index++) {
    ot_micro_batch part;
    assert_int_equal(ot_micro_batch_create(B, T / size, &part), OT_OK);
    const ot_sequence_shard piece = {size, index, context};
    ot_micro_batch_shard(&whole, &piece, &part);
    check_part(&whole, &piece, &part);
    if (context == OT_CONTEXT_ULYSSES) assert_ptr_equal(part.doc_starts, whole.doc_starts);
    targets += part.num_targets;
    ot_micro_batch_release(&part);
  }
  assert_int_equal(targets, whole.num_targets);
  ot_micro_batch_release(&whole);
}

static void ring_takes_a_piece_from_each_end(void **state) {
  (void)state;
  for (int size = 2; size <= 4; size++) check_all_ranks(size, OT_CONTEXT_RING);
}

static void ulysses_takes_one_piece_and_sees_whole_documents(void **state) {
  (void)state;
  for (int size = 2; size <= 4; size++) check_all_ranks(size, OT_CONTEXT_ULYSSES);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ring_takes_a_piece_from_each_end),
      cmocka_unit_test(ulysses_takes_one_piece_and_sees_whole_documents),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
