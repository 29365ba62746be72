// SPDX-License-Identifier: Apache-2.0
// run: alone. Reads token shards of every format, written by hand. Every kind of damage gives an
// error that names file and offset. Thousands of mutated shards never crash.
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/text.h"
#include "data/sampler.h"
#include "data/token_shard.h"
#include "support/scratch.h"
#include "support/shards.h"

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

static ot_status open_as(const char *name, ot_data_format format, int64_t vocab_size,
                         ot_token_shard **tokens) {
  const ot_token_shard_request request = {
      .path = scratch_path(directory, name), .format = format, .vocab_size = vocab_size, .eod = -1};
  return ot_token_shard_create(&request, tokens);
}

static ot_token_shard *open_shard(const char *name, ot_data_format format) {
  ot_token_shard *tokens;
  if (open_as(name, format, 0, &tokens) != OT_OK) fail_msg("%s", ot_fail_message());
  return tokens;
}

static void assert_document(const ot_token_shard *tokens, int64_t document, int64_t first,
                            int64_t count) {
  int64_t found_first, found_count;
  assert_int_equal(ot_token_shard_document(tokens, document, &found_first, &found_count), OT_OK);
  assert_int_equal(found_first, first);
  assert_int_equal(found_count, count);
}

// ---- formats ----

static void reads_a_megatron_shard_by_any_of_its_names(void **state) {
  (void)state;
  const int32_t lengths[] = {3, 0, 5, 1};
  shard_write(directory, "m", lengths, 4, 10);
  const char *const names[] = {"m", "m.bin", "m.idx"};
  for (int i = 0; i < 3; i++) {
    ot_token_shard *tokens = open_shard(names[i], OT_DATA_AUTO);
    const ot_token_shard_info *const about = ot_token_shard_describe(tokens);
    assert_int_equal(about->format, OT_DATA_MEGATRON);
    assert_string_equal(about->dtype, "uint16");
    assert_int_equal(about->tokens, 9);
    assert_int_equal(about->documents, 4);
    int32_t ids[9];
    assert_int_equal(ot_token_shard_read(tokens, 0, 9, ids), OT_OK);
    for (int k = 0; k < 9; k++) assert_int_equal(ids[k], 10 + k);
    assert_document(tokens, 0, 0, 3);
    assert_document(tokens, 1, 3, 0);
    assert_document(tokens, 2, 3, 5);
    assert_document(tokens, 3, 8, 1);
    int64_t first, count;
    assert_int_equal(ot_token_shard_document(tokens, 4, &first, &count), OT_USAGE);
    assert_message_has("no document 4; it has 4");
    ot_token_shard_destroy(&tokens);
  }
}

static void reads_llmc_files_of_both_kinds(void **state) {
  (void)state;
  const int32_t narrow[] = {5, 50256, 7, 8, 50256, 9}, wide[] = {128000, 100000, 5, 128000, 6};
  shard_write_llmc(directory, "gpt2.bin", narrow, 6, 0);
  shard_write_llmc(directory, "llama3.bin", wide, 5, 1);
  ot_token_shard *tokens = open_shard("gpt2", OT_DATA_AUTO);
  assert_int_equal(ot_token_shard_describe(tokens)->format, OT_DATA_LLMC);
  assert_int_equal(ot_token_shard_describe(tokens)->documents, -1);
  int32_t ids[6];
  assert_int_equal(ot_token_shard_read(tokens, 0, 6, ids), OT_OK);
  assert_memory_equal(ids, narrow, sizeof narrow);
  ot_token_shard_scan_result scan;
  assert_int_equal(ot_token_shard_scan(tokens, &scan), OT_OK);
  assert_int_equal(scan.documents, 3);
  assert_int_equal(scan.max_id, 50256);
  assert_document(tokens, 0, 0, 1);
  assert_document(tokens, 1, 1, 3);
  assert_document(tokens, 2, 4, 2);
  ot_token_shard_destroy(&tokens);
  tokens = open_shard("llama3.bin", OT_DATA_LLMC);
  assert_document(tokens, 0, 0, 3);
  assert_document(tokens, 1, 3, 2);
  assert_int_equal(ot_token_shard_read(tokens, 0, 5, ids), OT_OK);
  assert_memory_equal(ids, wide, sizeof wide);
  assert_string_equal(ot_token_shard_describe(tokens)->dtype, "uint32");
  ot_token_shard_destroy(&tokens);
}

// As nanoGPT documents do by default.
static void documents_of_llmc_files_end_with_the_id_when_told(void **state) {
  (void)state;
  const int32_t ids[] = {5, 50256, 7, 8, 50256, 9};
  shard_write_llmc(directory, "gpt2.bin", ids, 6, 0);
  const ot_token_shard_request request = {
      .path = scratch_path(directory, "gpt2"), .eod = -1, .boundary = OT_BOUNDARY_END};
  ot_token_shard *tokens;
  assert_int_equal(ot_token_shard_create(&request, &tokens), OT_OK);
  assert_document(tokens, 0, 0, 2);
  assert_document(tokens, 1, 2, 3);
  assert_document(tokens, 2, 5, 1);
  ot_token_shard_destroy(&tokens);
}

static void reads_headerless_files_only_when_told(void **state) {
  (void)state;
  const uint16_t raw[] = {4, 3, 2, 1};
  scratch_write(scratch_path(directory, "n.bin"), raw, sizeof raw);
  ot_token_shard *tokens;
  assert_int_equal(open_as("n", OT_DATA_AUTO, 0, &tokens), OT_ENVIRONMENT);
  assert_message_has("n.bin: no .idx next to it and no known magic number");
  assert_non_null(strstr(ot_fail_hint_text(), "nanogpt"));
  tokens = open_shard("n", OT_DATA_NANOGPT);
  int32_t ids[3];
  assert_int_equal(ot_token_shard_read(tokens, 1, 3, ids), OT_OK);
  assert_int_equal(ids[0] * 100 + ids[1] * 10 + ids[2], 321);
  ot_token_shard_destroy(&tokens);
}

static void headerless_files_that_contradict_their_format_are_refused(void **state) {
  (void)state;
  uint32_t wide[100];
  uint16_t narrow[200];
  for (int i = 0; i < 100; i++) wide[i] = (uint32_t)(100000 + i);
  for (int i = 0; i < 200; i++) narrow[i] = (uint16_t)(i % 7);
  scratch_write(scratch_path(directory, "w.bin"), wide, sizeof wide);
  scratch_write(scratch_path(directory, "n.bin"), narrow, sizeof narrow);
  ot_token_shard *tokens;
  assert_int_equal(open_as("w", OT_DATA_NANOGPT, 128256, &tokens), OT_ENVIRONMENT);
  assert_message_has("w.bin: 16-bit tokens cannot hold a vocabulary of 128256");
  assert_non_null(strstr(ot_fail_hint_text(), "nanogpt32"));
  assert_int_equal(open_as("w", OT_DATA_NANOGPT32, 128256, &tokens), OT_OK);
  int32_t ids[100];
  assert_int_equal(ot_token_shard_read(tokens, 0, 100, ids), OT_OK);
  for (int i = 0; i < 100; i++) assert_int_equal(ids[i], 100000 + i);
  assert_string_equal(ot_token_shard_describe(tokens)->dtype, "uint32");
  ot_token_shard_destroy(&tokens);
  // The upper halves are 0 where all ids are below 65,536.
  for (int i = 0; i < 100; i++) wide[i] = (uint32_t)(1 + i);
  scratch_write(scratch_path(directory, "w.bin"), wide, sizeof wide);
  assert_int_equal(open_as("w", OT_DATA_NANOGPT, 50257, &tokens), OT_ENVIRONMENT);
  assert_message_has("every second 16-bit value is 0");
  assert_int_equal(open_as("n", OT_DATA_NANOGPT32, 50257, &tokens), OT_ENVIRONMENT);
  assert_message_has("n.bin: token 0 (byte 0) has id 65536; allowed: 0 to 50256");
  assert_int_equal(open_as("n", OT_DATA_NANOGPT, 6, &tokens), OT_ENVIRONMENT);
  assert_message_has("has id 6; allowed: 0 to 5");
  ot_token_shard_destroy(&tokens);
  // Headers of other formats.
  shard_write_llmc(directory, "c.bin", ids, 6, 1);
  scratch_write(scratch_path(directory, "p.bin"), "\x93NUMPY\1\0", 8);
  for (int i = 0; i < 2; i++) {
    const ot_data_format format = i == 0 ? OT_DATA_NANOGPT : OT_DATA_NANOGPT32;
    assert_int_equal(open_as("c", format, 0, &tokens), OT_ENVIRONMENT);
    assert_message_has("the header of llm.c");
    assert_int_equal(open_as("p", format, 0, &tokens), OT_ENVIRONMENT);
    assert_message_has("the header of a NumPy file");
  }
}

static void reads_documents_of_several_sequences(void **state) {
  (void)state;
  const int32_t lengths[] = {2, 3, 4};
  shard_write(directory, "s", lengths, 3, 0);
  int64_t bytes;
  char *idx = scratch_read(scratch_path(directory, "s.idx"), &bytes);
  // Two documents: sequences 0 and 1, sequence 2.
  idx[26] = 3;
  const int64_t table[] = {0, 2, 3};
  memcpy(idx + 34 + 12 * 3, table, sizeof table);
  scratch_write(scratch_path(directory, "s.idx"), idx, bytes - 8);
  free(idx);
  ot_token_shard *tokens = open_shard("s", OT_DATA_AUTO);
  assert_document(tokens, 0, 0, 5);
  assert_document(tokens, 1, 5, 4);
  ot_token_shard_destroy(&tokens);
}

// ---- damage ----

typedef struct damage {
  const char *file;
  int64_t at;  // byte to change, or -1: none
  int value;
  int64_t change;  // of the length
  const char *message;
} damage;

static void assert_refused(const damage *d) {
  const int32_t lengths[] = {3, 5, 1};
  shard_write(directory, "d", lengths, 3, 0);
  const int32_t ids[] = {1, 2, 3};
  shard_write_llmc(directory, "c.bin", ids, 3, 0);
  int64_t bytes;
  char *const original = scratch_read(scratch_path(directory, d->file), &bytes);
  char *const data = calloc(1, (size_t)bytes + 64);
  memcpy(data, original, (size_t)bytes);
  if (d->at >= 0) data[d->at] = (char)d->value;
  scratch_write(scratch_path(directory, d->file), data, bytes + d->change);
  ot_token_shard *tokens;
  const bool llmc = d->file[0] == 'c';
  if (open_as(llmc ? "c" : "d", OT_DATA_AUTO, 9, &tokens) == OT_OK)
    fail_msg("accepted: %s", d->message);
  assert_null(tokens);
  assert_message_has(d->message);
  free(original);
  free(data);
}

static void names_what_is_wrong_with_a_shard_and_where(void **state) {
  (void)state;
  static const damage cases[] = {
      {"d.idx", 0, 'X', 0, "d.idx: byte 0: not a Megatron index"},
      {"d.idx", 9, 2, 0, "d.idx: byte 9: version 2"},
      {"d.idx", 17, 7, 0, "d.idx: byte 17: token type 7"},
      {"d.idx", 17, 4, 0, "sequence 1 begins at byte 6 of the tokens, expected 12"},
      {"d.idx", 18, 9, 0, "d.idx: byte 18: 9 sequences and 3 documents"},
      {"d.idx", 25, 0x80, 0, "d.idx: byte 18"},
      {"d.idx", 33, 0x7f, 0, "d.idx: byte 18"},
      {"d.idx", 37, 0x80, 0, "d.idx: byte 34: sequence 0 has length -"},
      {"d.idx", 34 + 12 + 8, 4, 0, "d.idx: byte 54: sequence 1 begins at byte 4"},
      {"d.idx", 34 + 36 + 8, 0xff, 0, "d.idx: byte 78: document 1"},
      {"d.idx", 34 + 36, 1, 0, "d.idx: byte 70: document 0"},
      {"d.idx", 34 + 36 + 24, 2, 0, "document 3 begins with sequence 2"},
      {"d.idx", -1, 0, -90, "d.idx: truncated: 12 bytes"},
      {"d.idx", -1, 0, -1, "d.idx: byte 18"},
      {"d.idx", -1, 0, 8, "d.idx: byte 18"},
      {"d.bin", -1, 0, -2,
       "d.bin: truncated: 16 bytes, but the index has sequence 2 end at byte 18"},
      {"d.bin", -1, 0, 2, "d.bin: 20 bytes, but the index covers 18"},
      {"d.bin", 9, 1, 0, "d.bin: token 4 (byte 8) has id 260; allowed: 0 to 8"},
      {"c.bin", 0, 1, 0, "c.bin: no .idx next to it and no known magic"},
      {"c.bin", 4, 3, 0, "c.bin: byte 4: version 3, expected 1"},
      {"c.bin", 8, 4, 0, "c.bin: the header says 4 tokens (1032 bytes), but the file has 1030"},
      {"c.bin", 11, 0x80, 0, "c.bin: the header says -"},
      {"c.bin", -1, 0, -1, "c.bin: the header says 3 tokens"},
      {"c.bin", 1027, 1, 0, "c.bin: token 1 (byte 1026) has id 258"},
  };
  for (int i = 0; i < OT_COUNT(cases); i++) assert_refused(&cases[i]);
}

static void names_the_file_that_is_missing(void **state) {
  (void)state;
  ot_token_shard *tokens;
  assert_int_equal(open_as("nothing", OT_DATA_AUTO, 0, &tokens), OT_ENVIRONMENT);
  assert_message_has("nothing.bin does not exist");
  const int32_t lengths[] = {3};
  shard_write(directory, "m", lengths, 1, 0);
  assert_int_equal(unlink(scratch_path(directory, "m.bin")), 0);
  assert_int_equal(open_as("m", OT_DATA_AUTO, 0, &tokens), OT_ENVIRONMENT);
  assert_message_has("m.bin does not exist");
  shard_write(directory, "m", lengths, 1, 0);
  assert_int_equal(unlink(scratch_path(directory, "m.idx")), 0);
  assert_int_equal(open_as("m", OT_DATA_MEGATRON, 0, &tokens), OT_ENVIRONMENT);
  assert_message_has("m.idx");
}

// ---- files that change while they are read ----

static void cut(const char *path) { assert_int_equal(truncate(path, 50), 0); }

static void delete_it(const char *path) { assert_int_equal(unlink(path), 0); }

// Puts a file of the same size in its place.
static void replace(const char *path) {
  const int32_t lengths[] = {100};
  shard_write(directory, "other", lengths, 1, 7);
  const bool tokens = ot_text_ends_with(path, ".bin");
  assert_int_equal(rename(scratch_path(directory, tokens ? "other.bin" : "other.idx"), path), 0);
}

// Writes other bytes of the same number into it, later than it was made on any clock.
static void overwrite(const char *path) {
  const struct timespec later[2] = {{.tv_nsec = UTIME_NOW}, {.tv_sec = 4000000000}};
  FILE *const file = fopen(path, "r+b");
  assert_non_null(file);
  fseek(file, 60, SEEK_SET);
  fputc(1, file);
  fclose(file);
  assert_int_equal(utimensat(AT_FDCWD, path, later, 0), 0);
}

static ot_status read_shard(const ot_token_shard *tokens) {
  int32_t ids[40];
  int64_t first, count;
  OT_TRY(ot_token_shard_document(tokens, 0, &first, &count));
  return ot_token_shard_read(tokens, 10, OT_COUNT(ids), ids);
}

static void a_shard_that_changes_while_open_is_an_error(void **state) {
  (void)state;
  static const struct {
    void (*change)(const char *path);
    const char *what;
  } changes[] = {{cut, "was cut after it was opened, noticed at byte"},
                 {delete_it, "was removed or replaced after it was opened, noticed at byte"},
                 {replace, "was removed or replaced after it was opened, noticed at byte"},
                 {overwrite, "was written to after it was opened, noticed at byte"}};
  static const char *const names[] = {"m.bin", "m.idx"};
  for (int i = 0; i < 2 * OT_COUNT(changes); i++) {
    const int32_t lengths[] = {100};
    shard_write(directory, "m", lengths, 1, 0);
    ot_token_shard *tokens = open_shard("m", OT_DATA_AUTO);
    assert_int_equal(read_shard(tokens), OT_OK);
    changes[i / 2].change(scratch_path(directory, names[i % 2]));
    assert_int_equal(read_shard(tokens), OT_ENVIRONMENT);
    assert_message_has(names[i % 2]);
    assert_message_has(changes[i / 2].what);
    ot_token_shard_destroy(&tokens);
  }
}

// ---- fuzzing ----

// Opens the shard and, if it is accepted, reads all of it.
static int use_shard(const char *name) {
  ot_token_shard *tokens;
  if (open_as(name, OT_DATA_AUTO, 0, &tokens) != OT_OK) {
    assert_message_has(name);
    return 0;
  }
  const int64_t count = ot_token_shard_describe(tokens)->tokens;
  int32_t *const ids = calloc((size_t)count + 1, sizeof *ids);
  ot_token_shard_scan_result scan = {0};
  const ot_status status = ot_token_shard_read(tokens, 0, count, ids);
  const ot_status scanned = ot_token_shard_scan(tokens, &scan);
  assert_true((status == OT_OK) == (scanned == OT_OK));
  for (int64_t i = 0; scanned == OT_OK && i < scan.documents; i++) {
    int64_t first, length;
    assert_int_equal(ot_token_shard_document(tokens, i, &first, &length), OT_OK);
    assert_true(first >= 0 && length >= 0 && first + length <= count);
  }
  free(ids);
  ot_token_shard_destroy(&tokens);
  return 1;
}

static void use_in_sampler(const char *name) {
  const ot_data_source source = {.path = scratch_path(directory, name), .weight = 1};
  const ot_sampler_mixture mixture = {.sources = &source, .num_sources = 1};
  const ot_sampler_request request = {
      .mixtures = &mixture, .num_mixtures = 1, .sequence_length = 7, .document_mask = true};
  ot_sampler *sampler;
  if (ot_sampler_create(&request, &sampler) != OT_OK) return;
  int32_t numbers[4][7];
  const ot_sample_rows rows = {numbers[0], numbers[1], numbers[2], numbers[3]};
  for (int64_t i = 0; i < 5; i++) {
    int64_t targets;
    if (ot_sampler_read(sampler, &i, 1, &rows, &targets) != OT_OK) break;
    for (int k = 0; k < 7; k++) assert_in_range(rows.doc_starts[k], 0, k);
  }
  ot_sampler_destroy(&sampler);
}

static void mutated_shards_never_crash(void **state) {
  (void)state;
  const int32_t lengths[] = {3, 0, 5, 1, 20};
  shard_write(directory, "f", lengths, 5, 0);
  const int32_t ids[] = {1, 50256, 3, 4};
  shard_write_llmc(directory, "g.bin", ids, 4, 0);
  static const char *const files[] = {"f.idx", "f.bin", "g.bin"};
  int accepted = 0;
  for (int which = 0; which < 3; which++) {
    int64_t bytes;
    char *const base = scratch_read(scratch_path(directory, files[which]), &bytes);
    char *const data = malloc((size_t)bytes);
    const char name[2] = {files[which][0], '\0'};
    // The headers decide; 12 of llm.c's 1,024 header bytes are used.
    const uint64_t span = which == 2 ? 16 : (uint64_t)bytes;
    for (uint64_t n = 0; n < 1000; n++) {
      memcpy(data, base, (size_t)bytes);
      const uint64_t changes = ot_rng_below(5, n, 0, 4);
      for (uint64_t k = 1; k <= changes; k++) {
        data[ot_rng_below(5, n, 2 * k, span)] = (char)ot_rng_below(5, n, 2 * k + 1, 256);
      }
      const int64_t length = n % 4 ? bytes : (int64_t)ot_rng_below(6, n, 0, (uint64_t)bytes + 1);
      scratch_write(scratch_path(directory, files[which]), data, length);
      accepted += use_shard(name);
      use_in_sampler(name);
    }
    scratch_write(scratch_path(directory, files[which]), base, bytes);
    free(base);
    free(data);
  }
  assert_in_range(accepted, 300, 2700);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(reads_a_megatron_shard_by_any_of_its_names),
      TEST(reads_llmc_files_of_both_kinds),
      TEST(documents_of_llmc_files_end_with_the_id_when_told),
      TEST(reads_headerless_files_only_when_told),
      TEST(headerless_files_that_contradict_their_format_are_refused),
      TEST(reads_documents_of_several_sequences),
      TEST(names_what_is_wrong_with_a_shard_and_where),
      TEST(names_the_file_that_is_missing),
      TEST(a_shard_that_changes_while_open_is_an_error),
      TEST(mutated_shards_never_crash),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
