// SPDX-License-Identifier: Apache-2.0
// run: any machine. Parameters sharded by rows, by columns, replicated and split into shards:
// assembled from all ranks, each element of the whole appears once, where its HF tensor says.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/slices.h"

enum { COLS = 6, TP = 2, PIECES = 4, OFFSET = 32, BUCKET = 256, MAX_ELEMENTS = 256 };

// Encodes an element of an HF tensor as a unique number.
static int id_of(const char *name, int64_t row, int64_t col) {
  return (int)(name[0] * 10000 + row * 100 + col);
}

// The content of the bucket of a rank.
static void fill_bucket(const ot_parameter *p, int *bucket) {
  for (int i = 0; i < BUCKET; i++) bucket[i] = -1;
  for (int k = 0; k < p->num_parts; k++) {
    const ot_parameter_part *const part = &p->parts[k];
    for (int64_t row = 0; row < part->rows; row++) {
      for (int64_t col = 0; col < p->cols; col++) {
        bucket[p->offset + (part->first_row + row) * p->cols + col] =
            id_of(part->hf_name, part->hf_first + row, part->hf_first_col + col);
      }
    }
  }
}

typedef struct gathering {
  const int *bucket;
  int64_t first;  // element of the whole at values[0]
  int *values;
  int *times;
} gathering;

static void gather(const gathering *g, const ot_slice_request *request) {
  ot_slices slices = ot_slices_of(request);
  for (ot_slice slice; ot_slices_next(&slices, &slice);) {
    assert_true(slice.count > 0);
    for (int64_t i = 0; i < slice.count; i++) {
      g->values[slice.whole - g->first + i] = g->bucket[slice.bucket + i];
      g->times[slice.whole - g->first + i]++;
    }
  }
}

typedef struct layout {
  ot_parameter whole;
  ot_parameter rank[TP];
  int pieces;
} layout;

// Checks elements [first, first + count) from every shard of every rank; each must appear once.
static void check_range(const layout *l, int64_t first, int64_t count) {
  int values[MAX_ELEMENTS] = {0}, times[MAX_ELEMENTS] = {0};
  for (int r = 0; r < TP; r++) {
    int bucket[BUCKET];
    fill_bucket(&l->rank[r], bucket);
    const gathering g = {bucket, first, values, times};
    for (int piece = 0; piece < l->pieces; piece++) {
      const int64_t n = BUCKET / l->pieces;
      const ot_slice_request request = {.whole = &l->whole,
                                        .local = &l->rank[r],
                                        .first = first,
                                        .count = count,
                                        .held_first = piece * n,
                                        .held_count = n,
                                        .counted = true};
      gather(&g, &request);
    }
  }
  int expected[BUCKET];
  fill_bucket(&l->whole, expected);
  for (int64_t i = 0; i < count; i++) {
    if (times[i] != 1) fail_msg("element %d was found %d times", (int)(first + i), times[i]);
    assert_int_equal(values[i], expected[l->whole.offset + first + i]);
  }
}

static void check_layout(layout *l) {
  const int64_t elements = ot_parameter_elements(&l->whole);
  for (l->pieces = 1; l->pieces <= PIECES; l->pieces *= 2) {
    for (int64_t first = 0; first < elements; first++) {
      for (int64_t count = 1; first + count <= elements; count += 1 + count / 3) {
        check_range(l, first, count);
      }
    }
  }
}

static void finds_rows_of_several_tensors_in_one_parameter(void **state) {
  (void)state;
  // q has 8 rows, v 4; each rank has half of them.
  ot_parameter_part whole[] = {
      {.hf_name = "q", .first_row = 0, .rows = 8, .hf_rows = 8, .hf_cols = COLS, .counted = true},
      {.hf_name = "v", .first_row = 8, .rows = 4, .hf_rows = 4, .hf_cols = COLS, .counted = true}};
  ot_parameter_part parts[TP][2];
  layout l = {.whole = {.rows = 12, .cols = COLS, .num_parts = 2, .parts = whole}};
  for (int r = 0; r < TP; r++) {
    parts[r][0] = whole[0];
    parts[r][0].rows = 4;
    parts[r][0].hf_first = 4 * r;
    parts[r][1] = whole[1];
    parts[r][1].first_row = 4;
    parts[r][1].rows = 2;
    parts[r][1].hf_first = 2 * r;
    l.rank[r] = (ot_parameter){
        .offset = OFFSET, .rows = 6, .cols = COLS, .num_parts = 2, .parts = parts[r]};
  }
  check_layout(&l);
}

static void finds_columns(void **state) {
  (void)state;
  ot_parameter_part whole[] = {
      {.hf_name = "o", .rows = 5, .hf_rows = 5, .hf_cols = COLS, .counted = true},
      {.hf_name = "p", .first_row = 5, .rows = 4, .hf_rows = 4, .hf_cols = COLS, .counted = true}};
  ot_parameter_part parts[TP][2];
  layout l = {.whole = {.rows = 9, .cols = COLS, .num_parts = 2, .parts = whole}};
  for (int r = 0; r < TP; r++) {
    // Intentionally uneven: 4 columns and 2.
    memcpy(parts[r], whole, sizeof whole);
    parts[r][0].hf_first_col = parts[r][1].hf_first_col = r * 4;
    l.rank[r] = (ot_parameter){
        .offset = OFFSET, .rows = 9, .cols = r == 0 ? 4 : 2, .num_parts = 2, .parts = parts[r]};
  }
  check_layout(&l);
}

static void takes_copies_from_the_rank_that_counts_them(void **state) {
  (void)state;
  // Both ranks hold the single kv head; both hold a norm, too.
  ot_parameter_part whole[] = {
      {.hf_name = "q", .first_row = 0, .rows = 6, .hf_rows = 6, .hf_cols = COLS, .counted = true},
      {.hf_name = "k", .first_row = 6, .rows = 2, .hf_rows = 2, .hf_cols = COLS, .counted = true}};
  ot_parameter_part parts[TP][2];
  layout l = {.whole = {.rows = 8, .cols = COLS, .num_parts = 2, .parts = whole}};
  for (int r = 0; r < TP; r++) {
    parts[r][0] = whole[0];
    parts[r][0].rows = 3;
    parts[r][0].hf_first = 3 * r;
    parts[r][1] = whole[1];
    parts[r][1].first_row = 3;
    parts[r][1].counted = r == 0;
    l.rank[r] = (ot_parameter){
        .offset = OFFSET, .rows = 5, .cols = COLS, .num_parts = 2, .parts = parts[r]};
  }
  check_layout(&l);
  ot_parameter_part vector = {
      .hf_name = "b", .rows = 11, .hf_rows = 11, .hf_cols = 1, .counted = true};
  ot_parameter_part copy = vector;
  copy.counted = false;
  layout norm = {.whole = {.rows = 11, .cols = 1, .num_parts = 1, .parts = &vector}};
  norm.rank[0] = norm.rank[1] = norm.whole;
  norm.rank[1].parts = &copy;
  check_layout(&norm);
}

static void every_holder_gets_its_copy(void **state) {
  (void)state;
  ot_parameter_part part = {.hf_name = "b", .rows = 11, .hf_rows = 11, .hf_cols = 1};
  const ot_parameter p = {.offset = OFFSET, .rows = 11, .cols = 1, .num_parts = 1, .parts = &part};
  int bucket[BUCKET], values[MAX_ELEMENTS] = {0}, times[MAX_ELEMENTS] = {0};
  fill_bucket(&p, bucket);
  gathering g = {bucket, 2, values, times};
  ot_slice_request request = {
      .whole = &p, .local = &p, .first = 2, .count = 5, .held_first = 0, .held_count = BUCKET};
  gather(&g, &request);
  for (int i = 0; i < 5; i++) assert_int_equal(times[i], 1);
  request.counted = true;
  gather(&g, &request);
  for (int i = 0; i < 5; i++) assert_int_equal(times[i], 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(finds_rows_of_several_tensors_in_one_parameter),
      cmocka_unit_test(finds_columns),
      cmocka_unit_test(takes_copies_from_the_rank_that_counts_them),
      cmocka_unit_test(every_holder_gets_its_copy),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
