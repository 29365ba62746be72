// SPDX-License-Identifier: Apache-2.0
// run: alone. Samples: tokens, targets, positions and document starts against a sequence built
// naively from the token stream; each epoch is a permutation; the order depends only on seed and
// index.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data/sampler.h"
#include "support/scratch.h"
#include "support/shards.h"

enum { T = 8, MAX_ROWS = 4 };

static char directory[SCRATCH_BYTES];

static int set_up(void **state) {
  (void)state;
  scratch_create(directory);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  scratch_destroy(directory);
  return 0;
}

typedef struct numbers {
  int32_t tokens[MAX_ROWS * T], targets[MAX_ROWS * T], positions[MAX_ROWS * T],
      doc_starts[MAX_ROWS * T];
} numbers;

static ot_sample_rows rows_of(numbers *n) {
  return (ot_sample_rows){n->tokens, n->targets, n->positions, n->doc_starts};
}

static ot_data_source source_of(const char *name, double weight) {
  // scratch_path reuses its storage soon; tests keep few sources.
  static char paths[8][SCRATCH_BYTES + 16];
  static int next;
  char *const path = paths[next++ % 8];
  strcpy(path, scratch_path(directory, name));
  return (ot_data_source){.path = path, .weight = weight};
}

static ot_sampler *create(ot_sampler_request request, const ot_data_source *sources, int count) {
  const ot_sampler_mixture mixture = {.sources = sources, .num_sources = count};
  if (request.num_mixtures == 0) {
    request.mixtures = &mixture;
    request.num_mixtures = 1;
  }
  request.sequence_length = T;
  request.eod = -1;
  ot_sampler *sampler;
  if (ot_sampler_create(&request, &sampler) != OT_OK) fail_msg("%s", ot_fail_message());
  return sampler;
}

static int64_t read_one(const ot_sampler *sampler, int64_t sample, numbers *out) {
  const ot_sample_rows rows = rows_of(out);
  int64_t targets;
  if (ot_sampler_read(sampler, &sample, 1, &rows, &targets) != OT_OK)
    fail_msg("%s", ot_fail_message());
  return targets;
}

// The document of token `position` in documents of `lengths`.
static int document_of(const int32_t *lengths, int64_t position) {
  int document = 0;
  for (int64_t end = lengths[0]; position >= end; end += lengths[document]) document++;
  return document;
}

// Checks one sequence of a stream of tokens 0, 1, 2, ... that starts at `first`.
static void assert_row(const numbers *row, int64_t first, int64_t total, const int32_t *lengths) {
  for (int64_t i = 0; i < T; i++) {
    const int64_t at = first + i;
    if (at >= total) {
      assert_int_equal(row->tokens[i], 0);
      assert_int_equal(row->targets[i], -1);
      assert_int_equal(row->doc_starts[i], i);
      assert_int_equal(row->positions[i], 0);
      continue;
    }
    int64_t start = i;
    while (start > 0 &&
           (!lengths || document_of(lengths, first + start - 1) == document_of(lengths, at))) {
      start--;
    }
    const bool last =
        at + 1 == total || (lengths && document_of(lengths, at + 1) != document_of(lengths, at));
    assert_int_equal(row->tokens[i], at);
    assert_int_equal(row->targets[i], last ? -1 : at + 1);
    assert_int_equal(row->doc_starts[i], start);
    assert_int_equal(row->positions[i], i - start);
  }
}

static void rows_mask_across_documents(void **state) {
  (void)state;
  // Boundaries within sequences and at their ends; documents of one token, empty, of many
  // sequences.
  const int32_t lengths[] = {3, 5, 0, 1, 1, 6, 8, 0, 0, 30, 2, 9};
  shard_write(directory, "a", lengths, 12, 0);
  const ot_data_source source = source_of("a", 1);
  for (int masked = 0; masked < 2; masked++) {
    ot_sampler *sampler = create((ot_sampler_request){.document_mask = masked}, &source, 1);
    assert_int_equal(ot_sampler_source_at(sampler, 0).windows, 64 / T);
    for (int64_t i = 0; i < 64 / T; i++) {
      numbers row;
      const int64_t targets = read_one(sampler, i, &row);
      ot_sample_place place;
      ot_sampler_locate(sampler, i, &place);
      assert_int_equal(place.first, place.window * T);
      assert_row(&row, place.first, 65, masked ? lengths : NULL);
      int64_t counted = 0;
      for (int k = 0; k < T; k++) counted += row.targets[k] >= 0;
      assert_int_equal(targets, counted);
    }
    ot_sampler_destroy(&sampler);
  }
}

static void documents_end_by_id_where_there_is_no_index(void **state) {
  (void)state;
  const int32_t ids[] = {7, 50256, 8, 9, 50256, 50256, 1, 2, 3};
  shard_write_llmc(directory, "l.bin", ids, 9, 0);
  const ot_data_source source = source_of("l", 1);
  const ot_sampler_request request = {.document_mask = true, .boundary = OT_BOUNDARY_END};
  ot_sampler *sampler = create(request, &source, 1);
  numbers row;
  assert_int_equal(read_one(sampler, 0, &row), 5);
  const int32_t targets[T] = {50256, -1, 9, 50256, -1, -1, 2, 3};
  const int32_t starts[T] = {0, 0, 2, 2, 2, 5, 6, 6};
  assert_memory_equal(row.tokens, ids, sizeof targets);
  assert_memory_equal(row.targets, targets, sizeof targets);
  assert_memory_equal(row.doc_starts, starts, sizeof starts);
  ot_sampler_destroy(&sampler);
}

// As the scripts of llm.c write them; the token after the sequence also begins a document.
static void documents_of_llmc_files_begin_with_the_id(void **state) {
  (void)state;
  const int32_t ids[] = {50256, 8, 9, 50256, 50256, 1, 2, 3, 50256, 4};
  shard_write_llmc(directory, "l.bin", ids, 10, 0);
  const ot_data_source source = source_of("l", 1);
  ot_sampler *sampler = create((ot_sampler_request){.document_mask = true}, &source, 1);
  numbers row;
  assert_int_equal(read_one(sampler, 0, &row), 5);
  const int32_t targets[T] = {8, 9, -1, -1, 1, 2, 3, -1};
  const int32_t starts[T] = {0, 0, 0, 3, 4, 4, 4, 4};
  const int32_t positions[T] = {0, 1, 2, 0, 0, 1, 2, 3};
  assert_memory_equal(row.targets, targets, sizeof targets);
  assert_memory_equal(row.doc_starts, starts, sizeof starts);
  assert_memory_equal(row.positions, positions, sizeof positions);
  ot_sampler_destroy(&sampler);
}

static void every_epoch_reads_each_window_once_in_another_order(void **state) {
  (void)state;
  const int32_t lengths[] = {50 * T + 1};
  shard_write(directory, "a", lengths, 1, 0);
  const ot_data_source source = source_of("a", 1);
  ot_sampler *sampler = create((ot_sampler_request){.seed = 3}, &source, 1);
  int64_t order[3][50];
  for (int64_t epoch = 0; epoch < 3; epoch++) {
    int seen[50] = {0};
    for (int64_t i = 0; i < 50; i++) {
      ot_sample_place place;
      ot_sampler_locate(sampler, epoch * 50 + i, &place);
      assert_int_equal(place.epoch, epoch);
      assert_in_range(place.window, 0, 49);
      seen[place.window]++;
      order[epoch][i] = place.window;
    }
    for (int i = 0; i < 50; i++) assert_int_equal(seen[i], 1);
  }
  assert_memory_not_equal(order[0], order[1], sizeof order[0]);
  assert_memory_not_equal(order[1], order[2], sizeof order[1]);
  ot_sampler_destroy(&sampler);
}

static void a_sample_depends_on_seed_and_index_alone(void **state) {
  (void)state;
  const int32_t lengths[] = {300, 301};
  shard_write(directory, "a", lengths, 2, 0);
  shard_write(directory, "b", lengths, 1, 1000);
  const ot_data_source sources[] = {source_of("a", 2), source_of("b", 1)};
  ot_sampler *first = create((ot_sampler_request){.seed = 1}, sources, 2);
  ot_sampler *second = create((ot_sampler_request){.seed = 1}, sources, 2);
  ot_sampler *other = create((ot_sampler_request){.seed = 2}, sources, 2);
  int different = 0;
  for (int64_t i = 0; i < 200; i++) {
    numbers a, b, c;
    read_one(first, i, &a);
    // In another order and as part of a batch.
    const int64_t batch[MAX_ROWS] = {1000 + i, 199 - i, i, 5};
    const ot_sample_rows rows = rows_of(&b);
    int64_t targets;
    assert_int_equal(ot_sampler_read(second, batch, MAX_ROWS, &rows, &targets), OT_OK);
    assert_memory_equal(a.tokens, b.tokens + 2 * T, T * sizeof *a.tokens);
    assert_memory_equal(a.targets, b.targets + 2 * T, T * sizeof *a.targets);
    assert_int_equal(targets, MAX_ROWS * T);
    read_one(other, i, &c);
    different += memcmp(a.tokens, c.tokens, T * sizeof *a.tokens) != 0;
  }
  assert_true(different > 150);
  ot_sampler_destroy(&first);
  ot_sampler_destroy(&second);
  ot_sampler_destroy(&other);
}

static void mixtures_change_at_a_sample_and_sources_go_on(void **state) {
  (void)state;
  const int32_t lengths[] = {400};
  const char *const names[] = {"a", "b", "c"};
  for (int i = 0; i < 3; i++) shard_write(directory, names[i], lengths, 1, 1000 * i);
  const ot_data_source early[] = {source_of("a", 3), source_of("b", 1)};
  const ot_data_source late[] = {source_of("c", 1), source_of("a.bin", 1)};
  const ot_sampler_mixture mixtures[] = {
      {.from_sample = 0, .sources = early, .num_sources = 2},
      {.from_sample = 40, .sources = late, .num_sources = 2},
      {.from_sample = 60, .sources = early, .num_sources = 1},
  };
  ot_sampler *sampler =
      create((ot_sampler_request){.mixtures = mixtures, .num_mixtures = 3}, NULL, 0);
  assert_int_equal(ot_sampler_num_sources(sampler), 3);
  int64_t counts[3][3] = {{0}};
  int seen_of_a[49] = {0};
  int64_t of_a = 0;
  for (int64_t i = 0; i < 70; i++) {
    ot_sample_place place;
    ot_sampler_locate(sampler, i, &place);
    counts[i < 40 ? 0 : i < 60 ? 1 : 2][place.source]++;
    // The first epoch of a spans all three mixtures: no window twice.
    if (place.source == 0 && of_a++ < 49) assert_int_equal(seen_of_a[place.window]++, 0);
  }
  const int64_t expected[3][3] = {{30, 10, 0}, {10, 0, 10}, {10, 0, 0}};
  assert_memory_equal(counts, expected, sizeof expected);
  ot_sampler_destroy(&sampler);
}

static void a_sequential_sampler_covers_every_token_once(void **state) {
  (void)state;
  const int32_t lengths[] = {20, 3};
  shard_write(directory, "v", lengths, 2, 0);
  const ot_data_source source = source_of("v", 1);
  ot_sampler *sampler =
      create((ot_sampler_request){.sequential = true, .document_mask = true}, &source, 1);
  assert_int_equal(ot_sampler_num_rows(sampler), 3);
  int64_t total = 0;
  for (int64_t i = 0; i < 5; i++) {
    numbers row;
    total += read_one(sampler, i, &row);
    assert_row(&row, i < 3 ? i * T : 23, 23, lengths);
  }
  // Every token but the first of each document is a target once.
  assert_int_equal(total, 21);
  ot_sampler_destroy(&sampler);
}

static void a_source_shorter_than_a_row_is_padded(void **state) {
  (void)state;
  const int32_t lengths[] = {4, 1};
  shard_write(directory, "s", lengths, 2, 0);
  const ot_data_source source = source_of("s", 1);
  ot_sampler *sampler = create((ot_sampler_request){.document_mask = true}, &source, 1);
  for (int64_t i = 0; i < 3; i++) {
    numbers row;
    assert_int_equal(read_one(sampler, i, &row), 3);
    assert_row(&row, 0, 5, lengths);
  }
  ot_sampler_destroy(&sampler);
}

static void says_what_is_wrong_with_a_source(void **state) {
  (void)state;
  const int32_t one[] = {1}, many[] = {30};
  shard_write(directory, "one", one, 1, 0);
  shard_write(directory, "many", many, 1, 0);
  const ot_data_source twice[] = {source_of("many", 1), source_of("many.idx", 2)};
  const ot_data_source cases[] = {source_of("one", 1), source_of("none", 1), source_of("many", 0)};
  const char *const messages[] = {"at least 2 are needed", "does not exist", "weight 0"};
  for (int i = 0; i < 4; i++) {
    const ot_sampler_mixture mixture = {.sources = i < 3 ? &cases[i] : twice,
                                        .num_sources = i < 3 ? 1 : 2};
    const ot_sampler_request request = {
        .mixtures = &mixture, .num_mixtures = 1, .sequence_length = T, .eod = -1};
    ot_sampler *sampler;
    assert_int_not_equal(ot_sampler_create(&request, &sampler), OT_OK);
    assert_null(sampler);
    assert_message_has(i < 3 ? messages[i] : "listed twice");
  }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(rows_mask_across_documents),
      TEST(documents_end_by_id_where_there_is_no_index),
      TEST(documents_of_llmc_files_begin_with_the_id),
      TEST(every_epoch_reads_each_window_once_in_another_order),
      TEST(a_sample_depends_on_seed_and_index_alone),
      TEST(mixtures_change_at_a_sample_and_sources_go_on),
      TEST(a_sequential_sampler_covers_every_token_once),
      TEST(a_source_shorter_than_a_row_is_padded),
      TEST(says_what_is_wrong_with_a_source),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
