// SPDX-License-Identifier: Apache-2.0
// run: alone. From files to a shard: layout against Megatron's, written down byte by byte;
// documents of text, JSON lines and compressed files; order of folders; threads and windows have no
// effect.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <cmocka.h>

#include "base/text.h"
#include "data/shard_writer.h"
#include "data/token_shard.h"
#include "data/tokenize.h"
#include "files/disk.h"
#include "files/json_file.h"
#include "support/scratch.h"
#include "tokenizer/buffer.h"

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

static void put(const char *name, const char *text) {
  scratch_write(scratch_path(directory, name), text, (int64_t)strlen(text));
}

static ot_status tokenize(const char *const *names, int count, ot_tokenize_request request,
                          ot_tokenize_result *result) {
  char copies[8][SCRATCH_BYTES + 64];
  const char *paths[8];
  char out[SCRATCH_BYTES + 64];
  for (int i = 0; i < count; i++) {
    ot_text_format(copies[i], sizeof copies[i], "%s", scratch_path(directory, names[i]));
    paths[i] = copies[i];
  }
  ot_text_format(out, sizeof out, "%s", scratch_path(directory, request.out ? request.out : "out"));
  request.out = out;
  request.paths = paths;
  request.num_paths = count;
  if (!request.tokenizer) request.tokenizer = "bytes";
  return ot_tokenize_run(&request, result);
}

static ot_token_shard *open_shard(const char *name) {
  ot_token_shard *tokens;
  const ot_token_shard_request request = {.path = scratch_path(directory, name), .vocab_size = 257};
  if (ot_token_shard_create(&request, &tokens) != OT_OK) fail_msg("%s", ot_fail_message());
  return tokens;
}

// Fails unless document `document` of byte ids is `text`, followed by 256 if `ended`.
static void assert_document(const ot_token_shard *tokens, int64_t document, const char *text,
                            bool ended) {
  int64_t first, count;
  int32_t ids[256];
  assert_int_equal(ot_token_shard_document(tokens, document, &first, &count), OT_OK);
  const int64_t length = (int64_t)strlen(text);
  assert_int_equal(count, length + ended);
  assert_int_equal(ot_token_shard_read(tokens, first, count, ids), OT_OK);
  for (int64_t i = 0; i < length; i++) assert_int_equal(ids[i], (uint8_t)text[i]);
  if (ended) assert_int_equal(ids[length], 256);
}

static void writes_the_layout_that_megatron_reads(void **state) {
  (void)state;
  ot_shard_writer *writer;
  assert_int_equal(ot_shard_writer_create(scratch_path(directory, "m"), 1000, &writer), OT_OK);
  const int32_t first[] = {1, 2, 3}, second[] = {4, 5};
  assert_int_equal(ot_shard_writer_append(writer, first, 3), OT_OK);
  assert_int_equal(ot_shard_writer_end_document(writer), OT_OK);
  assert_int_equal(ot_shard_writer_append(writer, second, 2), OT_OK);
  assert_int_equal(ot_shard_writer_end_document(writer), OT_OK);
  const ot_shard_meta meta = {.tokenizer = "t", .tokenizer_hash = "h", .eod = -1};
  assert_int_equal(ot_shard_writer_commit(writer, &meta), OT_OK);
  ot_shard_writer_destroy(&writer);
  // Two documents of 3 and 2 u16 tokens, as Megatron-LM's IndexedDataset writes them.
  static const uint8_t expected[82] = {
      0x4d, 0x4d, 0x49, 0x44, 0x49, 0x44, 0x58, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8,  // to type
      2,    0,    0,    0,    0,    0,    0,    0, 3, 0, 0, 0, 0, 0, 0, 0,        // counts
      3,    0,    0,    0,    2,    0,    0,    0,                                // lengths
      0,    0,    0,    0,    0,    0,    0,    0, 6, 0, 0, 0, 0, 0, 0, 0,        // offsets
      0,    0,    0,    0,    0,    0,    0,    0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0,
      0,    0,    0,    0,    0,    0};  // documents
  int64_t bytes;
  char *index = scratch_read(scratch_path(directory, "m.idx"), &bytes);
  assert_int_equal(bytes, sizeof expected);
  assert_memory_equal(index, expected, sizeof expected);
  free(index);
  char *bin = scratch_read(scratch_path(directory, "m.bin"), &bytes);
  assert_int_equal(bytes, 10);
  assert_memory_equal(bin, "\1\0\2\0\3\0\4\0\5\0", 10);
  free(bin);
  assert_false(ot_disk_is_file(scratch_path(directory, "m.bin.partial")));
  assert_false(ot_disk_is_file(scratch_path(directory, "m.idx.partial")));
}

static void writes_large_vocabularies_as_int32(void **state) {
  (void)state;
  for (int wide = 0; wide < 2; wide++) {
    ot_shard_writer *writer;
    assert_int_equal(
        ot_shard_writer_create(scratch_path(directory, "v"), wide ? 65500 : 65499, &writer), OT_OK);
    const int32_t id = 65498;
    assert_int_equal(ot_shard_writer_append(writer, &id, 1), OT_OK);
    assert_int_equal(ot_shard_writer_end_document(writer), OT_OK);
    const ot_shard_meta meta = {.tokenizer = "t", .tokenizer_hash = "h", .eod = -1};
    assert_int_equal(ot_shard_writer_commit(writer, &meta), OT_OK);
    ot_shard_writer_destroy(&writer);
    int64_t bytes;
    char *bin = scratch_read(scratch_path(directory, "v.bin"), &bytes);
    assert_int_equal(bytes, wide ? 4 : 2);
    free(bin);
  }
}

static void write_gzip(const char *name, const char *text) {
  const gzFile file = gzopen(scratch_path(directory, name), "wb");
  assert_true(gzwrite(file, text, (unsigned)strlen(text)) > 0);
  gzclose(file);
}

static void write_zstd(const char *name, const char *text) {
  char packed[512];
  const size_t n = ZSTD_compress(packed, sizeof packed, text, strlen(text), 3);
  assert_false(ZSTD_isError(n));
  scratch_write(scratch_path(directory, name), packed, (int64_t)n);
}

static void takes_documents_in_order_from_every_kind_of_file(void **state) {
  (void)state;
  put("z.txt", "last");
  put("empty.txt", "");
  put("lines.jsonl",
      "{\"text\":\"one\",\"id\":1}\n\n{\"id\":2,\"text\":\"tw\\u00f6\\u0000\"}\n  \n"
      "{\"text\":\"\"}");
  write_gzip("a.txt.gz", "zipped");
  write_zstd("b.jsonl.zst", "{\"text\":\"four\"}\n{\"text\":\"five\"}\n");
  const char *const names[] = {"a.txt.gz", "lines.jsonl", "empty.txt", "b.jsonl.zst", "z.txt"};
  ot_tokenize_result result;
  assert_int_equal(tokenize(names, 5, (ot_tokenize_request){0}, &result), OT_OK);
  assert_int_equal(result.documents, 8);
  assert_int_equal(result.files, 5);
  assert_int_equal(result.text_bytes, 6 + 3 + 5 + 0 + 0 + 4 + 4 + 4);
  assert_int_equal(result.tokens, result.text_bytes + 8);
  assert_int_equal(result.eod, 256);
  ot_token_shard *tokens = open_shard("out");
  const char *const texts[] = {"zipped", "one", NULL, "", "", "four", "five", "last"};
  for (int i = 0; i < 8; i++) {
    if (texts[i]) assert_document(tokens, i, texts[i], true);
  }
  int64_t first, count;
  assert_int_equal(ot_token_shard_document(tokens, 2, &first, &count), OT_OK);
  assert_int_equal(count, 6);
  ot_token_shard_destroy(&tokens);
}

static void walks_folders_in_the_order_of_names(void **state) {
  (void)state;
  char folder[SCRATCH_BYTES + 32];
  ot_text_format(folder, sizeof folder, "%s", scratch_path(directory, "tree"));
  assert_int_equal(ot_disk_make_directory(scratch_path(folder, "b")), OT_OK);
  scratch_write(scratch_path(folder, "c.txt"), "3", 1);
  scratch_write(scratch_path(folder, "b/x.txt"), "2", 1);
  scratch_write(scratch_path(folder, "B.txt"), "0", 1);
  scratch_write(scratch_path(folder, "a.txt"), "1", 1);
  scratch_write(scratch_path(folder, ".hidden"), "9", 1);
  const char *const names[] = {"tree"};
  ot_tokenize_result result;
  assert_int_equal(tokenize(names, 1, (ot_tokenize_request){.no_eod = true}, &result), OT_OK);
  assert_int_equal(result.documents, 4);
  ot_token_shard *tokens = open_shard("out");
  const char *const texts[] = {"0", "1", "2", "3"};
  for (int i = 0; i < 4; i++) assert_document(tokens, i, texts[i], false);
  ot_token_shard_destroy(&tokens);
}

// Prose with split points, points that only look like one, and long passages without any.
static void write_large_document(const char *name) {
  ot_buffer text = {0};
  for (int i = 0; i < 3000; i++) {
    ot_buffer_append_text(&text, "The miller's daughter doesn't mind 1234567 of them;\n\n  indeed");
    if (i % 7 == 0) ot_buffer_append_text(&text, "\xc3\xa9t\xc3\xa9 \xff <|endoftext|> x");
    if (i % 500 == 499) {
      for (int k = 0; k < 3000; k++) ot_buffer_append_text(&text, k % 2 ? "ab" : "ba");
    }
  }
  scratch_write(scratch_path(directory, name), text.data, text.length);
  ot_buffer_release(&text);
}

// A document that can be split only between characters, with bytes that belong to none.
static void counts_bytes_that_are_not_utf_8_whatever_the_windows(void **state) {
  (void)state;
  ot_buffer text = {0};
  for (int i = 0; i < 3000; i++) {
    ot_buffer_append_text(&text, "\xe6\xb0\xb4\xe8\xbb\x8a\xf0\x9f\x98\x80");
    // A truncated character, stray continuation bytes, and an invalid byte.
    if (i % 100 == 50) ot_buffer_append_text(&text, "\xe6\xb0\xe6\xb0\x80\x80\x80\xff");
  }
  scratch_write(scratch_path(directory, "cjk.txt"), text.data, text.length);
  ot_buffer_release(&text);
  const char *const names[] = {"cjk.txt"};
  const int64_t windows[] = {1 << 22, 100, 101, 102, 103, 5000};
  char tokenizer[SCRATCH_BYTES + 64];
  ot_text_format(tokenizer, sizeof tokenizer, "%s", fixture_path("tokenizers/llama3.json"));
  for (int i = 0; i < OT_COUNT(windows); i++) {
    ot_tokenize_result result;
    const ot_tokenize_request request = {.tokenizer = tokenizer, .window_bytes = windows[i]};
    assert_int_equal(tokenize(names, 1, request, &result), OT_OK);
    assert_int_equal(result.invalid_bytes, 30 * 5);
  }
}

static void ids_do_not_depend_on_threads_or_windows(void **state) {
  (void)state;
  write_large_document("large.txt");
  put("small.txt", "small");
  const char *const names[] = {"small.txt", "large.txt", "small.txt"};
  const int64_t windows[] = {1 << 22, 100, 5000, 5000, 65536};
  const int threads[] = {1, 1, 1, 3, 2};
  char tokenizer[SCRATCH_BYTES + 64];
  ot_text_format(tokenizer, sizeof tokenizer, "%s", fixture_path("tokenizers/llama3.json"));
  for (int i = 0; i < 5; i++) {
    ot_tokenize_result result;
    const ot_tokenize_request request = {.tokenizer = tokenizer,
                                         .out = i == 0 ? "whole" : "parts",
                                         .window_bytes = windows[i],
                                         .num_threads = threads[i]};
    assert_int_equal(tokenize(names, 3, request, &result), OT_OK);
    assert_int_equal(result.documents, 3);
    if (i == 0) continue;
    char expected[SCRATCH_BYTES + 64];
    ot_text_format(expected, sizeof expected, "%s", scratch_path(directory, "whole.bin"));
    assert_files_equal(scratch_path(directory, "parts.bin"), expected);
    ot_text_format(expected, sizeof expected, "%s", scratch_path(directory, "whole.idx"));
    assert_files_equal(scratch_path(directory, "parts.idx"), expected);
  }
}

static void says_what_is_wrong_with_the_input_and_leaves_nothing(void **state) {
  (void)state;
  put("good.txt", "good");
  put("bad.jsonl", "{\"text\":\"one\"}\n{\"text\":\"two\"\n");
  put("key.jsonl", "{\"text\":\"one\"}\n{\"body\":\"two\"}\n");
  put("twice.jsonl", "{\"text\":\"one\",\"text\":\"two\"}\n");
  put("plain.txt.gz", "not gzip at all");
  write_gzip("cut.txt.gz", "this text is long enough to be cut");
  write_zstd("cut.txt.zst", "this text is long enough to be cut");
  int64_t bytes;
  char *const gz = scratch_read(scratch_path(directory, "cut.txt.gz"), &bytes);
  scratch_write(scratch_path(directory, "cut.txt.gz"), gz, bytes - 9);
  free(gz);
  char *const zst = scratch_read(scratch_path(directory, "cut.txt.zst"), &bytes);
  scratch_write(scratch_path(directory, "cut.txt.zst"), zst, bytes - 9);
  free(zst);
  static const char *const cases[][2] = {
      {"bad.jsonl", "bad.jsonl:2"},
      {"key.jsonl", "key.jsonl:2: no text under the key \"text\""},
      {"twice.jsonl", "twice.jsonl:1"},
      {"plain.txt.gz", "plain.txt.gz: not gzip data"},
      {"cut.txt.gz", "cut.txt.gz"},
      {"cut.txt.zst", "cut.txt.zst"},
      {"missing.txt", "missing.txt"},
  };
  for (int i = 0; i < OT_COUNT(cases); i++) {
    const char *const names[] = {"good.txt", cases[i][0]};
    ot_tokenize_result result;
    for (int threads = 1; threads <= 3; threads += 2) {
      assert_int_equal(tokenize(names, 2, (ot_tokenize_request){.num_threads = threads}, &result),
                       OT_ENVIRONMENT);
      assert_message_has(cases[i][1]);
    }
    assert_false(ot_disk_is_file(scratch_path(directory, "out.bin")));
    assert_false(ot_disk_is_file(scratch_path(directory, "out.idx")));
    assert_false(ot_disk_is_file(scratch_path(directory, "out.bin.partial")));
  }
}

static void asks_for_an_end_of_document_that_the_tokenizer_lacks(void **state) {
  (void)state;
  put("good.txt", "good");
  json_error_t error;
  json_t *const root = json_load_file(fixture_path("tokenizers/gpt2.json"), 0, &error);
  json_array_clear(json_object_get(root, "added_tokens"));
  json_dump_file(root, scratch_path(directory, "bare.json"), 0);
  json_decref(root);
  char tokenizer[SCRATCH_BYTES + 64];
  ot_text_format(tokenizer, sizeof tokenizer, "%s", scratch_path(directory, "bare.json"));
  const char *const names[] = {"good.txt"};
  ot_tokenize_result result;
  assert_int_equal(tokenize(names, 1, (ot_tokenize_request){.tokenizer = tokenizer}, &result),
                   OT_USAGE);
  assert_string_equal(ot_fail_hint_text(), "set it with --eod, or use --no-eod for none");
  const ot_tokenize_request named = {.tokenizer = tokenizer, .eod = "!"};
  assert_int_equal(tokenize(names, 1, named, &result), OT_OK);
  assert_int_equal(result.eod, 0);
  const ot_tokenize_request wrong = {.tokenizer = tokenizer, .eod = "<none>"};
  assert_int_equal(tokenize(names, 1, wrong, &result), OT_USAGE);
}

static void eos_comes_from_the_configuration_beside_the_tokenizer(void **state) {
  (void)state;
  put("good.txt", "good");
  int64_t bytes;
  char *const json = scratch_read(fixture_path("tokenizers/gpt2.json"), &bytes);
  scratch_write(scratch_path(directory, "tokenizer.json"), json, bytes);
  free(json);
  // An integer beyond 63 bits, as many such files have one.
  put("tokenizer_config.json",
      "{\"model_max_length\":1000000000000000019884624838656,\"eos_token\":{\"content\":\"?\"}}");
  const char *const names[] = {"good.txt"};
  ot_tokenize_result result;
  assert_int_equal(tokenize(names, 1, (ot_tokenize_request){.tokenizer = directory}, &result),
                   OT_OK);
  assert_int_equal(result.eod, '?' - '!');
}

static void tokens_that_are_not_those_that_were_written_are_refused(void **state) {
  (void)state;
  put("a.txt", "a text of some words");
  ot_tokenize_result result;
  const char *const names[] = {"a.txt"};
  assert_int_equal(tokenize(names, 1, (ot_tokenize_request){0}, &result), OT_OK);
  int64_t bytes;
  char *const bin = scratch_read(scratch_path(directory, "out.bin"), &bytes);
  bin[4]++;
  scratch_write(scratch_path(directory, "out.bin"), bin, bytes);
  ot_token_shard *tokens;
  const ot_token_shard_request request = {.path = scratch_path(directory, "out")};
  assert_int_equal(ot_token_shard_create(&request, &tokens), OT_ENVIRONMENT);
  assert_message_has("out.bin: its content (hash ");
  assert_message_has("out.meta.json");
  assert_int_equal(unlink(scratch_path(directory, "out.meta.json")), 0);
  assert_int_equal(ot_token_shard_create(&request, &tokens), OT_OK);
  ot_token_shard_destroy(&tokens);
  free(bin);
}

// ---- what a file is ----

static ot_status tokenize_as(const char *name, ot_corpus_format format,
                             ot_tokenize_result *result) {
  return tokenize(&name, 1, (ot_tokenize_request){.format = format}, result);
}

static void assert_documents(const char *name, ot_corpus_format format, int64_t documents) {
  ot_tokenize_result result;
  if (tokenize_as(name, format, &result) != OT_OK) fail_msg("%s: %s", name, ot_fail_message());
  if (result.documents != documents)
    fail_msg("%s: %lld documents", name, (long long)result.documents);
}

static const char two_lines[] = "{\"text\":\"one\"}\n{\"text\":\"two\"}\n";

static void lines_are_lines_whatever_the_name(void **state) {
  (void)state;
  static const char *const names[] = {"a.json",  "a.ndjson", "a.jl",
                                      "A.JSONL", "a.jsonl",  "part-000"};
  for (int i = 0; i < OT_COUNT(names); i++) {
    put(names[i], two_lines);
    assert_documents(names[i], OT_CORPUS_AUTO, 2);
    assert_documents(names[i], OT_CORPUS_AS_TEXT, 1);
  }
  static const char *const packed[] = {"b.json.gz", "b.jsonl.GZ", "b.JSON.gz", "b.data"};
  for (int i = 0; i < OT_COUNT(packed); i++) {
    write_gzip(packed[i], two_lines);
    assert_documents(packed[i], OT_CORPUS_AUTO, 2);
  }
  write_zstd("b.json.zst", two_lines);
  assert_documents("b.json.zst", OT_CORPUS_AUTO, 2);
  // A first line longer than what is read at first.
  char *const long_line = calloc(1, 200000);
  memset(long_line, 'x', 150000);
  memcpy(long_line, "{\"text\":\"", 9);
  memcpy(long_line + 150000, "\"}\n", 3);
  put("long", long_line);
  assert_documents("long", OT_CORPUS_AUTO, 1);
  free(long_line);
}

static void other_files_are_text(void **state) {
  (void)state;
  put("code.json", "{\n  \"name\": \"a package\"\n}\n");
  put("list.json", "[1, 2, {\"a\": 3}]\n");
  put("braces", "{ this is no JSON }\n");
  put("prose", "a text\nof two lines");
  put("empty", "");
  static const char *const names[] = {"code.json", "list.json", "braces", "prose", "empty"};
  for (int i = 0; i < OT_COUNT(names); i++) assert_documents(names[i], OT_CORPUS_AUTO, 1);
  put("empty.jsonl", "");
  assert_documents("empty.jsonl", OT_CORPUS_AUTO, 0);
}

static void names_and_contents_that_disagree_are_refused(void **state) {
  (void)state;
  put("lines.txt", two_lines);
  put("array.json", "[{\"text\": \"one\"},\n {\"text\": \"two\"}]\n");
  put("array", "[\n{\"text\": \"one\"}]");
  put("spread.json", "{\n \"text\": \"one\"\n}\n{\n \"text\": \"two\"\n}\n");
  put("other.json", "{\"body\":\"one\"}\n{\"body\":\"two\"}\n");
  put("prose.jsonl", "a text\nof two lines");
  put("broken", "{\"text\":\"one\n{\"text\":\"two\"}\n");
  put("marked.json", "\xef\xbb\xbf{\"text\":\"one\"}\n{\"text\":\"two\"}\n");
  static const char *const cases[][3] = {
      {"broken", "broken:1:", "--skip-bad-lines"},
      {"marked.json", "marked.json:1:1: not valid JSON", "--format text"},
      {"lines.txt", "lines.txt: its first line is a JSON object with a text", "--format lines"},
      {"array.json", "array.json: one JSON array of objects", "--format text"},
      {"array", "array: one JSON array of objects", "--format text"},
      {"spread.json", "spread.json: a JSON object over several lines", "--format text"},
      {"other.json", "other.json:1: no text under the key \"text\"", "--key"},
      {"prose.jsonl", "prose.jsonl:1:1: not valid JSON", "--format text"},
  };
  ot_tokenize_result result;
  for (int i = 0; i < OT_COUNT(cases); i++) {
    assert_int_equal(tokenize_as(cases[i][0], OT_CORPUS_AUTO, &result), OT_ENVIRONMENT);
    assert_message_has(cases[i][1]);
    assert_non_null(strstr(ot_fail_hint_text(), cases[i][2]));
    assert_documents(cases[i][0], OT_CORPUS_AS_TEXT, 1);
  }
  assert_documents("lines.txt", OT_CORPUS_AS_LINES, 2);
}

static void files_that_are_not_text_are_noticed(void **state) {
  (void)state;
  static const uint8_t png[] = {0x89, 'P', 'N', 'G', 13,  10, 26, 10,   0,    0,   0,
                                13,   'I', 'H', 'D', 'R', 0,  0,  0,    16,   0,   0,
                                0,    16,  8,   6,   0,   0,  0,  0x1f, 0xf3, 0xff};
  char folder[SCRATCH_BYTES + 8];
  ot_text_format(folder, sizeof folder, "%s/in", directory);
  assert_int_equal(mkdir(folder, 0700), 0);
  put("in/a.txt", "one");
  put("in/z.txt", "caf\xe9 and na\xefve");
  scratch_write(scratch_path(directory, "in/b.png"), png, sizeof png);
  scratch_write(scratch_path(directory, "in/c.txt"), "h\0e\0l\0l\0o\0 \0t\0h\0e\0r\0e\0", 22);
  put("in/d.txt", "a page\fand a bell\a");
  ot_tokenize_result result;
  const char *name = "in";
  assert_int_equal(tokenize(&name, 1, (ot_tokenize_request){.num_threads = 2}, &result), OT_OK);
  assert_int_equal(result.documents, 3);
  assert_int_equal(result.files, 3);
  assert_int_equal(result.skipped_files, 2);
  assert_non_null(strstr(result.skipped_path, "in/b.png"));
  assert_int_equal(result.invalid_bytes, 2);
  assert_non_null(strstr(result.invalid_path, "in/z.txt"));
  assert_int_equal(tokenize_as("in/b.png", OT_CORPUS_AUTO, &result), OT_ENVIRONMENT);
  assert_message_has("in/b.png is not text");
  assert_documents("in", OT_CORPUS_AS_TEXT, 5);
}

// ---- bad lines ----

static void integers_of_any_size_are_no_fault(void **state) {
  (void)state;
  put("a.jsonl", "{\"text\":\"one\",\"hash\":18446744073709551615,\"id\":-99999999999999999999}\n");
  assert_documents("a.jsonl", OT_CORPUS_AUTO, 1);
}

static void bad_lines_are_skipped_and_counted_up_to_a_limit(void **state) {
  (void)state;
  put("a.jsonl",
      "{\"text\":\"one\"}\n{\"text\":\"tw\n{\"body\":\"three\"}\n{\"text\":4}\n"
      "{\"text\":\"\xff\"}\n[5]\n{\"text\":\"six\"}\n");
  const char *name = "a.jsonl";
  ot_tokenize_result result;
  assert_int_equal(tokenize_as(name, OT_CORPUS_AUTO, &result), OT_ENVIRONMENT);
  assert_message_has("a.jsonl:2:");
  assert_non_null(strstr(ot_fail_hint_text(), "--skip-bad-lines"));
  for (int threads = 1; threads <= 3; threads++) {
    ot_tokenize_request request = {.skip_bad_lines = 5, .num_threads = threads};
    assert_int_equal(tokenize(&name, 1, request, &result), OT_OK);
    assert_int_equal(result.documents, 2);
    assert_int_equal(result.bad_lines, 5);
    assert_non_null(strstr(result.bad_line, "a.jsonl:2:"));
    request.skip_bad_lines = 4;
    assert_int_equal(tokenize(&name, 1, request, &result), OT_ENVIRONMENT);
    assert_message_has("a.jsonl:2:");
    assert_message_has("; more than 4 lines are bad");
  }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(writes_the_layout_that_megatron_reads),
      TEST(writes_large_vocabularies_as_int32),
      TEST(takes_documents_in_order_from_every_kind_of_file),
      TEST(walks_folders_in_the_order_of_names),
      TEST(counts_bytes_that_are_not_utf_8_whatever_the_windows),
      TEST(ids_do_not_depend_on_threads_or_windows),
      TEST(says_what_is_wrong_with_the_input_and_leaves_nothing),
      TEST(asks_for_an_end_of_document_that_the_tokenizer_lacks),
      TEST(eos_comes_from_the_configuration_beside_the_tokenizer),
      TEST(tokens_that_are_not_those_that_were_written_are_refused),
      TEST(lines_are_lines_whatever_the_name),
      TEST(other_files_are_text),
      TEST(names_and_contents_that_disagree_are_refused),
      TEST(files_that_are_not_text_are_noticed),
      TEST(integers_of_any_size_are_no_fault),
      TEST(bad_lines_are_skipped_and_counted_up_to_a_limit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
