// SPDX-License-Identifier: Apache-2.0
// run: serial. Stores of a teacher: what was written is read; a writer that was stopped anywhere is
// continued to the same bytes; a store of other tokens, with its windows shifted, damaged, or made
// for another run is refused and told how it differs.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "distill/teacher_store.h"
#include "files/content_hash.h"
#include "host/heap.h"
#include "support/scratch.h"

enum { T = 12, WINDOWS = 9, DRAWS = 20, VOCABULARY = 300, HEADER_BYTES = 256 };

typedef struct fixture {
  ot_heap heap;
  ot_arena arena;
  char directory[SCRATCH_BYTES];
  const char *path;
  ot_teacher_header header;
  ot_micro_batch rows;
  ot_teacher_window window;
} fixture;

static ot_teacher_header header_of_test(void) {
  ot_teacher_header h = {.sequence_length = T,
                         .eod = 256,
                         .vocab_size = VOCABULARY,
                         .windows = WINDOWS,
                         .draws = DRAWS,
                         .ids = DRAWS,
                         .seed = 5,
                         .document_mask = true,
                         .id_bits = 17,
                         .count_bits = 7};
  ot_content_hash_memory("teacher", 7, h.teacher);
  ot_content_hash_memory("tokenizer", 9, h.tokenizer);
  ot_content_hash_memory("tokens", 6, h.tokens);
  return h;
}

static int create(void **state) {
  fixture *const f = calloc(1, sizeof *f);
  f->arena = ot_heap_arena_create(&f->heap);
  f->header = header_of_test();
  scratch_create(f->directory);
  f->path = ot_arena_format(&f->arena, "%s/set.teacher", f->directory);
  assert_int_equal(ot_micro_batch_create(1, T, &f->rows), OT_OK);
  ot_teacher_window_take(&f->header, &f->arena, &f->window);
  *state = f;
  return 0;
}

static int destroy(void **state) {
  fixture *const f = *state;
  scratch_destroy(f->directory);
  ot_micro_batch_release(&f->rows);
  ot_heap_release(&f->heap);
  free(f);
  return 0;
}

// The tokens of window `w`, and what a teacher could say of them: 1 to 4 ids.
static void make_window(fixture *f, int64_t w) {
  f->window.entropy = 1.5f + (float)w;
  f->window.loss = 2.5f - (float)w;
  for (int t = 0; t < T; t++) {
    f->rows.tokens[t] = (int32_t)(w * 31 + t * 7) % VOCABULARY;
    f->rows.targets[t] = t == 5 ? -1 : (int32_t)(w * 31 + t * 7 + 7) % VOCABULARY;
    f->rows.doc_starts[t] = t > 5 ? 6 : 0;
    const int num = f->rows.targets[t] < 0 ? 0 : 1 + (int)((w + t) % 4);
    int left = DRAWS;
    for (int k = 0; k < num; k++) {
      const int count = k == num - 1 ? left : 2 + k;
      f->window.drawn[t * DRAWS + k] =
          (ot_drawn){(int32_t)(t * 5 + k * 70 + w) % VOCABULARY, count};
      left -= count;
    }
    f->window.num[t] = (uint8_t)num;
  }
}

// Writes windows up to `end`; the writer is closed as by a kill unless all were.
static void write_until(fixture *f, int64_t end) {
  ot_teacher_writer *writer = NULL;
  assert_int_equal(ot_teacher_writer_create(f->path, &f->header, &writer), OT_OK);
  while (ot_teacher_writer_next(writer) < end) {
    make_window(f, ot_teacher_writer_next(writer));
    assert_int_equal(ot_teacher_writer_add(writer, &f->rows, 0, &f->window), OT_OK);
  }
  if (end == WINDOWS) assert_int_equal(ot_teacher_writer_commit(writer), OT_OK);
  ot_teacher_writer_destroy(&writer);
}

static ot_status read_window(fixture *f, int64_t window, int64_t tokens_of,
                             ot_teacher_window *out) {
  ot_teacher_store *store = NULL;
  ot_status status = ot_teacher_store_open(f->path, &store);
  make_window(f, tokens_of);
  if (status == OT_OK) status = ot_teacher_store_read(store, window, &f->rows, 0, out);
  ot_teacher_store_close(&store);
  return status;
}

static void what_was_written_is_read(void **state) {
  fixture *const f = *state;
  ot_teacher_window found;
  ot_teacher_window_take(&f->header, &f->arena, &found);
  write_until(f, WINDOWS);
  for (int64_t i = 0; i < WINDOWS; i++) {
    const int64_t w = (i * 4) % WINDOWS;
    assert_int_equal(read_window(f, w, w, &found), OT_OK);
    assert_true(found.entropy == f->window.entropy && found.loss == f->window.loss);
    assert_memory_equal(found.num, f->window.num, T);
    for (int t = 0; t < T; t++) {
      assert_memory_equal(found.drawn + t * DRAWS, f->window.drawn + t * DRAWS,
                          found.num[t] * sizeof *found.drawn);
    }
  }
}

static void cut(const char *path, int64_t bytes) {
  int64_t all;
  char *const data = scratch_read(path, &all);
  assert_true(bytes <= all);
  scratch_write(path, data, bytes);
  free(data);
}

// Stopped after any window; then also with the end of the file lost, as after a power failure.
static void a_stopped_writer_is_continued_to_the_same_bytes(void **state) {
  fixture *const f = *state;
  const char *const whole = ot_arena_format(&f->arena, "%s/whole.teacher", f->directory);
  const char *const path = f->path;
  f->path = whole;
  write_until(f, WINDOWS);
  f->path = path;
  const char *const partial = ot_arena_format(&f->arena, "%s.partial", path);
  for (int64_t stop = 0; stop < WINDOWS; stop++) {
    write_until(f, stop);
    int64_t bytes;
    free(scratch_read(partial, &bytes));
    if (stop > 0) cut(partial, bytes - 1 - stop % 3);
    write_until(f, WINDOWS);
    assert_files_equal(path, whole);
  }
}

static void a_partial_file_of_another_header_is_begun_again(void **state) {
  fixture *const f = *state;
  ot_teacher_writer *writer = NULL;
  write_until(f, 4);
  f->header.seed++;
  assert_int_equal(ot_teacher_writer_create(f->path, &f->header, &writer), OT_OK);
  assert_int_equal(ot_teacher_writer_next(writer), 0);
  ot_teacher_writer_destroy(&writer);
}

static void other_tokens_are_refused(void **state) {
  fixture *const f = *state;
  write_until(f, WINDOWS);
  assert_int_equal(read_window(f, 2, 3, &f->window), OT_USAGE);
  assert_message_has("window 2 of the store was made for other tokens");
}

// The record of each window in the place of the one before it.
static void a_store_with_one_window_shifted_is_refused(void **state) {
  fixture *const f = *state;
  int64_t bytes;
  write_until(f, WINDOWS);
  char *const data = scratch_read(f->path, &bytes);
  memmove(data + HEADER_BYTES, data + HEADER_BYTES + 8, 8 * (WINDOWS - 1));
  scratch_write(f->path, data, bytes);
  free(data);
  for (int64_t w = 0; w < WINDOWS - 2; w++) {
    assert_int_equal(read_window(f, w, w, &f->window), OT_USAGE);
    assert_message_has("was made for other tokens");
  }
}

// A flip of any bit is found: when the store is opened, or in the window where it is.
static void damage_is_found(void **state) {
  fixture *const f = *state;
  int64_t bytes;
  write_until(f, WINDOWS);
  char *const data = scratch_read(f->path, &bytes);
  for (int64_t at = 0; at < bytes; at += at < HEADER_BYTES + 80 ? 3 : 29) {
    data[at] ^= 16;
    scratch_write(f->path, data, bytes);
    ot_status status = OT_OK;
    for (int64_t w = 0; status == OT_OK && w < WINDOWS; w++) {
      status = read_window(f, w, w, &f->window);
    }
    if (status == OT_OK) fail_msg("a flip in byte %lld was not found", (long long)at);
    data[at] ^= 16;
  }
  for (int64_t length = 0; length < bytes; length += 41) {
    scratch_write(f->path, data, length);
    assert_int_equal(read_window(f, WINDOWS - 1, WINDOWS - 1, &f->window), OT_ENVIRONMENT);
  }
  free(data);
}

// Counts that do not sum to the draws would scale the gradient of a token.
static void weights_that_are_not_normalised_are_refused(void **state) {
  fixture *const f = *state;
  ot_teacher_writer *writer = NULL;
  f->header.windows = 1;
  assert_int_equal(ot_teacher_writer_create(f->path, &f->header, &writer), OT_OK);
  make_window(f, 0);
  f->window.drawn[0].count++;
  assert_int_equal(ot_teacher_writer_add(writer, &f->rows, 0, &f->window), OT_OK);
  assert_int_equal(ot_teacher_writer_commit(writer), OT_OK);
  ot_teacher_writer_destroy(&writer);
  assert_int_equal(read_window(f, 0, 0, &f->window), OT_ENVIRONMENT);
  assert_message_has("window 0 of the store is damaged");
}

static void the_first_difference_of_a_store_is_named(void **state) {
  fixture *const f = *state;
  const ot_teacher_header wanted = header_of_test();
  ot_teacher_header found[9];
  const char *const parts[] = {
      "another tokenizer",    "data.sequence_length=13, the run has 12",
      "data.document_mask=0", "end-of-document id=0",
      "model.vocab_size=301", "distill.draws=21",
      "number of windows=8",  "another training set, or another order of it",
      "another teacher"};
  for (int i = 0; i < 9; i++) found[i] = wanted;
  found[0].tokenizer[0] ^= 1;
  found[1].sequence_length++;
  found[2].document_mask = false;
  found[3].eod = 0;
  found[4].vocab_size++;
  found[5].draws++;
  found[6].windows--;
  found[7].tokens[31] ^= 1;
  found[8].teacher[3] ^= 1;
  for (int i = 0; i < 9; i++) {
    assert_int_equal(ot_teacher_header_check(f->path, &found[i], &wanted), OT_USAGE);
    assert_message_has(parts[i]);
    assert_message_has("set.teacher");
  }
  ot_teacher_header unknown = wanted;
  unknown.teacher[0] = '\0';
  assert_int_equal(ot_teacher_header_check(f->path, &wanted, &wanted), OT_OK);
  assert_int_equal(ot_teacher_header_check(f->path, &found[8], &unknown), OT_OK);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, create, destroy)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(what_was_written_is_read),
      TEST(a_stopped_writer_is_continued_to_the_same_bytes),
      TEST(a_partial_file_of_another_header_is_begun_again),
      TEST(other_tokens_are_refused),
      TEST(a_store_with_one_window_shifted_is_refused),
      TEST(damage_is_found),
      TEST(weights_that_are_not_normalised_are_refused),
      TEST(the_first_difference_of_a_store_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
