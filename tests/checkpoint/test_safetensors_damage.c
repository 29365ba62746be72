// SPDX-License-Identifier: Apache-2.0
// run: alone. Damaged tensor files: each kind of damage has its message. No mutation of a valid
// file is read beyond its end (run it with sanitizers) or accepted with tensors that do not tile
// it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/safetensors_header.h"
#include "host/heap.h"
#include "support/scratch.h"

enum { MUTANTS = 20000, DATA_BYTES = 123 };  // the data of mixed.safetensors

static ot_status build(const void *data, int64_t bytes, ot_safetensors_header *header,
                       ot_heap *heap) {
  ot_arena arena = ot_heap_arena_create(heap);
  return ot_safetensors_header_build(&arena, "t.safetensors", data, bytes, header);
}

static void store_length(char *file, uint64_t length) {
  for (int i = 0; i < 8; i++) file[i] = (char)(length >> 8 * i);
}

// A file with header text `json` and `data_bytes` zeros, in a block of its exact size.
static char *make_file(const char *json, int64_t data_bytes, int64_t *bytes) {
  const size_t length = strlen(json);
  *bytes = 8 + (int64_t)length + data_bytes;
  char *const file = calloc(1, (size_t)*bytes);
  store_length(file, length);
  memcpy(file + 8, json, length);
  return file;
}

#define ONE(dtype, shape, offsets) \
  "{\"w\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define TWO(offsets_a, offsets_b)                                       \
  "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":" offsets_a \
  "},"                                                                  \
  "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":" offsets_b "}}"

#define EMPTY "{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}"

typedef struct bad_header {
  const char *json;
  int64_t data_bytes;
  const char *message;
} bad_header;

static const bad_header bad_headers[] = {
    {"[]      ", 0, "does not start with '{'"},
    {"", 0, "does not start with '{'"},
    {"{\"w\":", 0, "tensor w: its entry is not an object"},
    {"{\"w\"", 0, "t.safetensors:1:5: not valid JSON: ':' is expected"},
    {"{} x", 0, "not valid JSON"},
    {"{\"a\\u0000b\":{}}", 0, "not valid JSON"},
    {"{\"w\xff\":{}}", 0, "not valid JSON"},
    {ONE("F99", "[1]", "[0,4]"), 4, "tensor w: unknown dtype \"F99\""},
    {ONE("F32", "[2]", "[0,4]"), 4, "tensor w: data_offsets [0, 4] hold 4 bytes, the shape of F32"},
    {ONE("F32", "[-1]", "[0,4]"), 4, "tensor w: dimension 0 of the shape is not a count"},
    {ONE("F32", "[1.0]", "[0,4]"), 4, "dimension 0 of the shape is not a count"},
    {ONE("F32", "1", "[0,4]"), 4, "key \"shape\" is not a list"},
    {ONE("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, "9 dimensions"},
    {ONE("F32", "[4294967296,4294967296]", "[0,4]"), 4, "size overflows 64 bits"},
    {ONE("F32", "[4611686018427387904]", "[0,4]"), 4, "size overflows 64 bits"},
    {ONE("F32", "[9223372036854775808]", "[0,4]"), 4, "not valid JSON: too big integer"},
    {ONE("F4", "[3]", "[0,1]"), 1, "3 elements of F4 do not end on a byte"},
    {ONE("F32", "[1]", "[0,4]"), 3, "pass the end of the file's 3 bytes of data"},
    {ONE("F32", "[1]", "[4,0]"), 4, "data_offsets [4, 0]: no range"},
    {ONE("F32", "[1]", "[-4,0]"), 4, ": no range"},
    {ONE("F32", "[1]", "[0]"), 4, "data_offsets are not two integers"},
    {ONE("F32", "[1]", "[0,4,4]"), 4, "data_offsets are not two integers"},
    {ONE("F32", "[1]", "[0,4]"), 6, "2 bytes after the last tensor belong to no tensor"},
    {ONE("F32", "[1]", "[2,6]"), 6, "data bytes 0 to 2 before tensor w belong to no tensor"},
    {ONE("F32", "[1]", "[0,4],\"x\":1"), 4, "tensor w: keys other than dtype"},
    {TWO("[0,4]", "[2,6]"), 6, "tensor b starts at data byte 2, inside tensor a, which ends at 4"},
    {TWO("[0,4]", "[0,4]"), 4, "starts at data byte 0, inside tensor"},
    {TWO("[0,4]", "[6,10]"), 10, "data bytes 4 to 6 before tensor b"},
    {"{\"w\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "key \"data_offsets\" is missing"},
    {"{\"w\":7}", 0, "tensor w: its entry is not an object"},
    {"{\"w\":" EMPTY ",\"w\":" EMPTY "}", 0, "tensor w appears twice"},
    {"{\"w\":" EMPTY ",\"\\u0077\":" EMPTY "}", 0, "tensor w appears twice"},
    {ONE("F32", "[1]", "[0,4],\"shape\":[1]"), 4, "key \"shape\" appears twice"},
    {ONE("F32", "[01]", "[0,4]"), 4, "not valid JSON: a number that begins with 0"},
    {ONE("F32", "[1 2]", "[0,4]"), 4, "not valid JSON: ',' is expected"},
    {"{\"w\\ud800\":{}}", 0, "not valid JSON: an invalid character in a string"},
    {"{\"w\\", 0, "t.safetensors:1:5: not valid JSON: an invalid character in a string"},
    {"{\"\":{}}", 0, "a tensor name has 0 bytes"},
    {"{\"a\\nb\":{}}", 0, "control character 0x0a at byte 1"},
    {"{\"__metadata__\":[]}", 0, "__metadata__ is not an object"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__ has a value that is no text"},
};

static void names_every_kind_of_damage(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof bad_headers / sizeof bad_headers[0]; i++) {
    int64_t bytes;
    char *const file = make_file(bad_headers[i].json, bad_headers[i].data_bytes, &bytes);
    ot_heap heap = {0};
    ot_safetensors_header header;
    if (build(file, bytes, &header, &heap) == OT_OK) fail_msg("accepted %s", bad_headers[i].json);
    assert_message_has(bad_headers[i].message);
    assert_message_has("t.safetensors");
    ot_heap_release(&heap);
    free(file);
  }
}

static void accepts_padding_scalars_and_empty_tensors(void **state) {
  (void)state;
  static const char *const good[] = {"{}",
                                     "{\"__metadata__\":{}}      ",
                                     ONE("F32", "[]", "[0,4]"),
                                     ONE("F4", "[8]", "[0,4]"),
                                     ONE("F8_E4M3", "[2,2]", "[0,4]"),
                                     TWO("[4,8]", "[0,4]")};
  static const int64_t data_bytes[] = {0, 0, 4, 4, 4, 8};
  for (int i = 0; i < 6; i++) {
    int64_t bytes;
    char *const file = make_file(good[i], data_bytes[i], &bytes);
    ot_heap heap = {0};
    ot_safetensors_header header;
    if (build(file, bytes, &header, &heap) != OT_OK) fail_msg("%s", ot_fail_message());
    ot_heap_release(&heap);
    free(file);
  }
}

static void refuses_header_lengths_that_lie(void **state) {
  (void)state;
  static const struct {
    const char bytes[9];
    int64_t num_bytes;
    const char *message;
  } cases[] = {
      {"\x02\0\0", 3, "3 bytes, at least 8 are needed"},
      {"\xff\xff\xff\xff\xff\xff\xff\xff", 8, "18446744073709551615 bytes (at most 100000000)"},
      {"\x01\xe1\xf5\x05\0\0\0\0", 8, "100000001 bytes (at most 100000000)"},
      {"\x00\xe1\xf5\x05\0\0\0\0", 8, "header of 100000000 bytes passes the end at 8"},
      {"\0\0\0\0\0\0\0\0", 8, "does not start with '{'"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char *const file = malloc((size_t)cases[i].num_bytes);
    memcpy(file, cases[i].bytes, (size_t)cases[i].num_bytes);
    ot_heap heap = {0};
    ot_safetensors_header header;
    assert_int_equal(build(file, cases[i].num_bytes, &header, &heap), OT_ENVIRONMENT);
    assert_message_has(cases[i].message);
    ot_heap_release(&heap);
    free(file);
  }
}

static void refuses_every_truncation(void **state) {
  (void)state;
  int64_t bytes;
  char *const good = scratch_read(fixture_path("train/mixed.safetensors"), &bytes);
  for (int64_t cut = 0; cut < bytes; cut++) {
    char *const file = malloc((size_t)cut + (cut == 0));
    memcpy(file, good, (size_t)cut);
    ot_heap heap = {0};
    ot_safetensors_header header;
    assert_int_equal(build(file, cut, &header, &heap), OT_ENVIRONMENT);
    ot_heap_release(&heap);
    free(file);
  }
  free(good);
}

static uint64_t random_state = 0x9e3779b97f4a7c15ULL;

static int64_t random_below(int64_t bound) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (int64_t)(random_state % (uint64_t)bound);
}

static const char *const tokens[] = {
    "{",       "}",  "[",      "]",         ",",      ":",    "\"",
    "-",       "0",  "1",      "\"F64\"",   "\"U8\"", "null", "1e3",
    "\\u0041", "[]", "\"w\":", "\"dtype\"", "\xc3",   "    ", "9223372036854775807"};

// One edit of `mutant` [*n], which has space for 32 more bytes.
static void edit(char *mutant, int64_t *n) {
  const int64_t at = random_below(*n);
  const char *const token = tokens[random_below(sizeof tokens / sizeof tokens[0])];
  const int64_t length = (int64_t)strlen(token);
  int64_t digit = at;
  switch (random_below(6)) {
    case 0:
      mutant[at] ^= (char)(1u << random_below(8));
      return;
    case 1:
      mutant[at] = (char)random_below(256);
      return;
    case 2:
      memcpy(mutant + at, token, (size_t)(length < *n - at ? length : *n - at));
      return;
    case 3:
      memmove(mutant + at + length, mutant + at, (size_t)(*n - at));
      memcpy(mutant + at, token, (size_t)length);
      *n += length;
      return;
    case 4:
      while (digit < *n - 1 && (mutant[digit] < '0' || mutant[digit] > '9')) digit++;
      mutant[digit] = (char)('0' + random_below(10));
      return;
    default:
      *n -= *n > 32 ? random_below(16) : 0;
  }
}

// One to four edits of a copy of `good`; the result is malloced to its exact size.
static char *mutate(const char *good, int64_t bytes, int64_t *mutant_bytes) {
  char *const mutant = malloc((size_t)bytes + 4 * 32);
  memcpy(mutant, good, (size_t)bytes);
  int64_t n = bytes;
  for (int64_t i = random_below(4); i >= 0; i--) edit(mutant, &n);
  // Half of the mutants keep a valid header length, so that the JSON is parsed.
  if (random_below(2) == 0 && n > 8 + DATA_BYTES)
    store_length(mutant, (uint64_t)(n - 8 - DATA_BYTES));
  *mutant_bytes = n;
  char *const exact = malloc((size_t)n);
  memcpy(exact, mutant, (size_t)n);
  free(mutant);
  return exact;
}

// An accepted file must be safe to read: tensors inside the file, one after another.
static void check_accepted(const ot_safetensors_header *header, int64_t file_bytes) {
  int64_t sum = 0, least = file_bytes;
  for (int i = 0; i < header->num_tensors; i++) {
    const ot_safetensors_tensor *const tensor = &header->tensors[i];
    assert_true(tensor->offset >= 8 && tensor->bytes >= 0);
    assert_true(tensor->bytes <= file_bytes - tensor->offset);
    sum += tensor->bytes;
    if (tensor->offset < least) least = tensor->offset;
  }
  assert_true(header->num_tensors == 0 || sum == file_bytes - least);
}

static void survives_thousands_of_mutants(void **state) {
  (void)state;
  int64_t bytes;
  char *const good = scratch_read(fixture_path("train/mixed.safetensors"), &bytes);
  int accepted = 0;
  for (int i = 0; i < MUTANTS; i++) {
    int64_t mutant_bytes;
    char *const mutant = mutate(good, bytes, &mutant_bytes);
    ot_heap heap = {0};
    ot_safetensors_header header;
    const ot_status status = build(mutant, mutant_bytes, &header, &heap);
    if (status == OT_OK) {
      accepted++;
      check_accepted(&header, mutant_bytes);
    } else {
      assert_int_equal(status, OT_ENVIRONMENT);
      assert_message_has("t.safetensors");
    }
    ot_heap_release(&heap);
    free(mutant);
  }
  // The header cannot detect damage to the data alone; it mostly detects damage to itself.
  assert_in_range(accepted, MUTANTS / 50, MUTANTS / 2);
  free(good);
}

// ---- indexes of directories ----

#define INDEX(map) "{\"weight_map\":" map "}"

static const char *const bad_indexes[][2] = {
    {"{}", "key \"weight_map\" is missing"},
    {INDEX("[]"), "key \"weight_map\" is not an object"},
    {INDEX("{}"), "weight_map names no file"},
    {INDEX("{\"a\":1}"), "tensor a is not mapped to the plain name of a file"},
    {INDEX("{\"a\":\"../1.safetensors\"}"), "tensor a is not mapped to the plain name"},
    {INDEX("{\"a\":\"none.safetensors\"}"), "none.safetensors)"},
    {INDEX("{\"a\":\"1.safetensors\",\"b\":\"1.safetensors\"}"), "b is not in 1.safetensors"},
    {INDEX("{\"a\":\"2.safetensors\",\"c\":\"1.safetensors\",\"d\":\"2.safetensors\"}"),
     "is not in 2.safetensors but in"},
    {INDEX("{\"c\":\"2.safetensors\"}"), "tensor d of"},
    {INDEX("{\"a\":\"1.safetensors\",\"d\":\"3.safetensors\"}"), "tensor a is in two files"},
    {INDEX("{\"a\":\"1.safetensors\",\"a\":\"1.safetensors\"}"), "duplicate object key"},
};

static void write_tensor_file(const char *directory, const char *name, const char *json,
                              int64_t data_bytes) {
  int64_t bytes;
  char *const file = make_file(json, data_bytes, &bytes);
  scratch_write(scratch_path(directory, name), file, bytes);
  free(file);
}

#define BYTE(name, offsets) \
  "\"" name "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":" offsets "}"

static void refuses_indexes_that_do_not_match_the_files(void **state) {
  (void)state;
  char directory[SCRATCH_BYTES];
  scratch_create(directory);
  write_tensor_file(directory, "1.safetensors", "{" BYTE("a", "[0,1]") "}", 1);
  write_tensor_file(directory, "2.safetensors", "{" BYTE("c", "[0,1]") "," BYTE("d", "[1,2]") "}",
                    2);
  write_tensor_file(directory, "3.safetensors", "{" BYTE("a", "[0,1]") "," BYTE("d", "[1,2]") "}",
                    2);
  const char *const index_path = scratch_path(directory, "model.safetensors.index.json");
  ot_safetensors *set = NULL;
  for (size_t i = 0; i < sizeof bad_indexes / sizeof bad_indexes[0]; i++) {
    const char *const index = bad_indexes[i][0];
    scratch_write(index_path, index, (int64_t)strlen(index));
    if (ot_safetensors_create(directory, "model", &set) == OT_OK) fail_msg("accepted %s", index);
    assert_null(set);
    assert_message_has(bad_indexes[i][1]);
  }
  static const char good[] = INDEX("{\"a\":\"1.safetensors\"}");
  scratch_write(index_path, good, sizeof good - 1);
  assert_int_equal(ot_safetensors_create(directory, "model", &set), OT_OK);
  ot_safetensors_destroy(&set);
  scratch_destroy(directory);
}

static void says_which_file_it_looked_for(void **state) {
  (void)state;
  char directory[SCRATCH_BYTES];
  scratch_create(directory);
  const char *const single = scratch_path(directory, "model.safetensors");
  scratch_write(single, "", 0);
  ot_safetensors *set = NULL;
  assert_int_equal(ot_safetensors_create(single, "model", &set), OT_ENVIRONMENT);
  assert_message_has("it is empty");
  assert_int_equal(ot_safetensors_create(directory, "optimizer", &set), OT_ENVIRONMENT);
  assert_message_has("neither optimizer.safetensors nor optimizer.safetensors.index.json exists");
  scratch_write(scratch_path(directory, "model.safetensors.index.json"), "{}", 2);
  assert_int_equal(ot_safetensors_create(directory, "model", &set), OT_ENVIRONMENT);
  assert_message_has("both model.safetensors and model.safetensors.index.json exist");
  scratch_destroy(directory);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_every_kind_of_damage),
      cmocka_unit_test(accepts_padding_scalars_and_empty_tensors),
      cmocka_unit_test(refuses_header_lengths_that_lie),
      cmocka_unit_test(refuses_every_truncation),
      cmocka_unit_test(survives_thousands_of_mutants),
      cmocka_unit_test(refuses_indexes_that_do_not_match_the_files),
      cmocka_unit_test(says_which_file_it_looked_for),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
