// SPDX-License-Identifier: Apache-2.0
// run: alone. The batches of recorded steps as rows: what each row predicts and may see, batches
// that are on several ranks, and the message of each thing that may be wrong with them.
#include <math.h>

#include "judge/assemble.h"
#include "judge/test_record_files.h"

typedef struct batch_text {
  bool shifted;
  int64_t sequences, length;
  const int32_t *ids, *labels, *positions, *documents;  // null: not recorded
  const float *weight;
} batch_text;

static ot_status read_rows(ot_step_rows *rows) {
  if (read_step() != OT_OK) fail_msg("%s", ot_fail_message());
  return ot_assemble_rows(&step, &arena, rows);
}

static void write_batches(int rank, int world, const char *mesh, const batch_text *batches,
                          int count) {
  static const char *const names[] = {"ids", "labels", "positions", "documents", "weight"};
  stored_tensor *const stored = ot_arena_array(&arena, 5 * count, sizeof *stored);
  ot_text_builder list = {.arena = &arena}, places = {.arena = &arena};
  int num = 0;
  for (int i = 0; i < count; i++) {
    const batch_text *const b = &batches[i];
    const void *const values[] = {b->ids, b->labels, b->positions, b->documents, b->weight};
    ot_text_appendf(&list, "%s{\"micro\": %d, \"shifted\": %s}", i > 0 ? ", " : "", i,
                    b->shifted ? "true" : "false");
    for (int k = 0; k < 5; k++) {
      if (values[k] == NULL) continue;
      const char *const key = ot_arena_format(&arena, "batch/%d.%s", i, names[k]);
      stored[num] = (stored_tensor){.key = key,
                                    .dtype = k == 4 ? OT_F32 : OT_I32,
                                    .rank = 2,
                                    .dim = {b->sequences, b->length},
                                    .data = values[k]};
      ot_text_appendf(&places, "%s\"%s\": {}", num++ > 0 ? ", " : "", key);
    }
  }
  write_tensors(rank, stored, num);
  write_rank(rank, world,
             ot_arena_format(&arena, "%s \"batches\": [%s],", mesh, ot_text_builder_text(&list)),
             ot_text_builder_text(&places));
}

static const int32_t ids_a[] = {1, 2, 3, 4, 5, 6, 7, 8}, ids_b[] = {9, 8, 7, 6};
static const int32_t labels_a[] = {2, 3, -100, 5, 6, 7, 8, -1}, labels_b[] = {9, 8, 7, 6};

static void puts_batches_in_rows(void **state) {
  (void)state;
  static const int32_t documents[] = {0, 0, 5, 5, 7, 7, 7, 7},
                       positions[] = {0, 1, 0, 1, 0, 1, 2, 3};
  static const float weight[] = {0.5f, 2, 3, 4};
  const batch_text batches[] = {{true, 2, 4, ids_a, labels_a, positions, documents, NULL},
                                {false, 1, 4, ids_b, labels_b, NULL, NULL, weight}};
  ot_step_rows rows;
  write_batches(0, 1, "", batches, 2);
  if (read_rows(&rows) != OT_OK) fail_msg("%s", ot_fail_message());
  static const int32_t ids[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 8, 7, 6};
  static const int32_t targets[] = {2, 3, -1, 5, 6, 7, 8, -1, 8, 7, 6, -1};
  static const int32_t at[] = {0, 1, 0, 1, 0, 1, 2, 3, 0, 1, 2, 3};
  static const int32_t sequences[] = {0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8};
  static const int32_t first[] = {0, 0, 2, 2, 4, 4, 4, 4, 8, 8, 8, 8};
  static const float weights[] = {1, 1, 0, 1, 1, 1, 1, 0, 2, 3, 4, 0};
  static const int32_t of_batch[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1};
  assert_int_equal(rows.count, 12);
  assert_memory_equal(rows.ids, ids, sizeof ids);
  assert_memory_equal(rows.targets, targets, sizeof targets);
  assert_memory_equal(rows.positions, at, sizeof at);
  assert_memory_equal(rows.sequences, sequences, sizeof sequences);
  assert_memory_equal(rows.documents, first, sizeof first);
  assert_memory_equal(rows.weights, weights, sizeof weights);
  assert_memory_equal(rows.batches, of_batch, sizeof of_batch);
  assert_int_equal(rows.num_batches, 2);
  assert_int_equal(rows.batch[0].targets, 6);
  assert_int_equal(rows.batch[0].sequences, 2);
  assert_int_equal(rows.batch[1].first_row, 8);
  assert_true(rows.batch[1].weight == 9);
}

// On dp 2 x tp 2, with the labels on one of the ranks of each replica only, and one faulty rank.
static void counts_batches_on_many_ranks_once(void **state) {
  (void)state;
  static const char *const axes[] = {"dp", "tp"};
  static const int sizes[] = {2, 2};
  const batch_text good = {true, 1, 4, ids_b, labels_b, NULL, NULL, NULL};
  const batch_text ids_only = {true, 1, 4, ids_b, NULL, NULL, NULL, NULL};
  const batch_text other = {true, 1, 4, ids_a, labels_b, NULL, NULL, NULL};
  ot_step_rows rows;
  for (int rank = 0; rank < 4; rank++)
    write_batches(rank, 4, mesh_of(axes, sizes, 2, rank), rank % 2 == 0 ? &ids_only : &good, 1);
  if (read_rows(&rows) != OT_OK) fail_msg("%s", ot_fail_message());
  assert_int_equal(rows.count, 8);
  assert_int_equal(rows.num_batches, 2);
  assert_int_equal(rows.num_differences, 0);
  assert_int_equal(rows.batch[1].dp_rank, 1);
  assert_int_equal(rows.batch[1].rank, 2);
  write_batches(3, 4, mesh_of(axes, sizes, 2, 3), &other, 1);
  assert_int_equal(read_rows(&rows), OT_OK);
  assert_int_equal(rows.count, 8);
  assert_int_equal(rows.num_differences, 1);
  assert_string_equal(rows.differences[0].field, "ids");
  assert_int_equal(rows.differences[0].rank, 3);
  assert_int_equal(rows.differences[0].other, 2);
}

static void names_what_is_wrong_with_batches(void **state) {
  (void)state;
  static const int32_t large[] = {1, 31, 2, 3}, negative[] = {1, -2, 2, 3}, back[] = {0, 1, 0, 0};
  static const float nan_weight[] = {1, NAN, 1, 1};
  static const struct {
    batch_text batch;
    const char *message;
  } cases[] = {
      {{true, 1, 4, large, labels_b, NULL, NULL, NULL},
       "tensor batch/0.ids: element 1 is 31, allowed: 0 to 30"},
      {{true, 1, 4, ids_b, large, NULL, NULL, NULL},
       "tensor batch/0.labels: element 1 is 31, allowed: 0 to 30, and -100 or -1 for none"},
      {{true, 1, 4, ids_b, negative, NULL, NULL, NULL}, "tensor batch/0.labels: element 1 is -2"},
      {{true, 1, 4, ids_b, labels_b, negative, NULL, NULL},
       "tensor batch/0.positions: element 1 is -2, allowed: 0 to 2147483647"},
      {{true, 1, 4, ids_b, labels_b, NULL, back, NULL},
       "tensor batch/0.documents: document 0 is in two parts of sequence 0"},
      {{true, 1, 4, ids_b, labels_b, NULL, NULL, nan_weight},
       "tensor batch/0.weight: element 1 is nan, allowed: finite numbers"},
      {{true, 1, 4, ids_b, NULL, NULL, NULL, NULL},
       "tensor batch/0.ids: no rank recorded its labels"},
      {{true, 1, 4, NULL, labels_b, NULL, NULL, NULL}, "batch 0 of rank 0 has no ids there"},
      {{true, 1, 0, ids_b, labels_b, NULL, NULL, NULL},
       "tensor batch/0.ids has shape [1, 0], allowed"},
  };
  ot_step_rows rows;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    write_batches(0, 1, "", &cases[i].batch, 1);
    if (read_rows(&rows) != OT_USAGE) fail_msg("expected: %s", cases[i].message);
    assert_message_has(cases[i].message);
    assert_message_has(folder);
  }
}

static void names_batches_that_do_not_fit(void **state) {
  (void)state;
  ot_step_rows rows;
  const stored_tensor stored[] = {STORED("batch/0.ids", OT_I32, ids_a, 2, 4),
                                  STORED("batch/0.labels", OT_I32, labels_a, 8)};
  write_tensors(0, stored, 2);
  write_rank(0, 1, "\"batches\": [{\"micro\": 0}],", "\"batch/0.ids\": {}, \"batch/0.labels\": {}");
  assert_int_equal(read_rows(&rows), OT_USAGE);
  assert_message_has("tensor batch/0.labels has shape [8], the ids have [2, 4]");
  write_rank(0, 1, "\"batches\": [{\"micro\": 0}],",
             "\"batch/0.ids\": {}, \"batch/0.labels\": {\"shape\": [2, 4], \"flat\": [0, 8]}");
  assert_int_equal(read_rows(&rows), OT_OK);
  write_rank(0, 1, "\"batches\": [{\"micro\": 1}],",
             "\"batch/0.ids\": {}, \"batch/0.labels\": {\"shape\": [2, 4], \"flat\": [0, 8]}");
  assert_int_equal(read_rows(&rows), OT_USAGE);
  assert_message_has("batch 1 of rank 0 has no ids");
  write_rank(0, 1, "", "\"batch/0.ids\": {}, \"batch/0.labels\": {}");
  assert_int_equal(read_rows(&rows), OT_USAGE);
  assert_message_has("neither rank 0 nor another rank with its data recorded a batch");

  const char *const axes[] = {"cp"};
  const int sizes[] = {2};
  const stored_tensor half[] = {STORED("batch/0.ids", OT_I32, ids_a, 1, 4),
                                STORED("batch/0.labels", OT_I32, labels_a, 1, 4)};
  for (int rank = 0; rank < 2; rank++) {
    const char *const place =
        ot_arena_format(&arena, "{\"shape\": [1, 8], \"offset\": [0, %d]}", 4 * rank);
    write_tensors(rank, half, 2);
    write_rank(
        rank, 2,
        ot_arena_format(&arena, "%s \"batches\": [{\"micro\": 0, \"shifted\": %s}],",
                        mesh_of(axes, sizes, 1, rank), rank == 0 ? "true" : "false"),
        ot_arena_format(&arena, "\"batch/0.ids\": %s, \"batch/0.labels\": %s", place, place));
  }
  assert_int_equal(read_rows(&rows), OT_USAGE);
  assert_message_has("tensor batch/0.ids: rank 0 recorded 4 of its 8 elements");
  for (int rank = 0; rank < 2; rank++) {
    const batch_text whole_batch = {rank == 0, 1, 4, ids_b, labels_b, NULL, NULL, NULL};
    write_batches(rank, 2, mesh_of(axes, sizes, 1, rank), &whole_batch, 1);
  }
  assert_int_equal(read_rows(&rows), OT_USAGE);
  assert_message_has(
      "tensor batch/0.labels: shifted at one of ranks 0 and 1, but not at the other");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, finish)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(puts_batches_in_rows),
      TEST(counts_batches_on_many_ranks_once),
      TEST(names_what_is_wrong_with_batches),
      TEST(names_batches_that_do_not_fit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
