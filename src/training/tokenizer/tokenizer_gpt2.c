// SPDX-License-Identifier: Apache-2.0
// GPT-2's vocab.json with merges.txt, converted to an equivalent tokenizer.json.
#include <stdlib.h>
#include <string.h>

#include "files/disk.h"
#include "files/json_file.h"
#include "host/heap.h"
#include "tokenizer/tokenizer_parts.h"

static ot_status append_json(const json_t *value, size_t flags, ot_buffer *out) {
  char *const text = json_dumps(value, flags);
  OT_CHECK(text, OT_ENVIRONMENT, "out of memory (tokenizer)");
  const ot_status status = ot_buffer_append_text(out, text);
  free(text);
  return status;
}

// One line of merges.txt as a JSON string.
static ot_status append_merge(const char *line, int64_t length, bool first, ot_buffer *out) {
  json_t *const text = json_stringn(line, (size_t)length);
  OT_CHECK(text, OT_USAGE, "not UTF-8: %.*s", (int)(length < 80 ? length : 80), line);
  ot_status status = first ? OT_OK : ot_buffer_append_text(out, ",");
  if (status == OT_OK) status = append_json(text, JSON_ENCODE_ANY, out);
  json_decref(text);
  return status;
}

static ot_status append_merges(const char *path, const char *text, int64_t total, ot_buffer *out) {
  bool first = true;
  int64_t line_number = 0;
  for (int64_t at = 0; at < total;) {
    const char *const line = text + at;
    const char *const newline = memchr(line, '\n', (size_t)(total - at));
    int64_t length = newline ? newline - line : total - at;
    at += length + 1;
    line_number++;
    if (length > 0 && line[length - 1] == '\r') length--;
    // The first line is "#version: ..."; later ones may begin with the token '#'.
    if (length == 0 || (line_number == 1 && line[0] == '#')) continue;
    if (append_merge(line, length, first, out) != OT_OK) {
      return ot_fail(OT_USAGE, "%s: line %lld: %s", path, (long long)line_number,
                     ot_fail_message());
    }
    first = false;
  }
  return OT_OK;
}

static ot_status append_merges_file(const char *path, ot_buffer *json) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  char *merges;
  int64_t length;
  ot_status status = ot_disk_read(&arena, path, OT_TOKENIZER_BYTES_MAX, &merges, &length);
  if (status == OT_OK) status = append_merges(path, merges, length, json);
  ot_heap_release(&heap);
  return status;
}

static ot_status convert(const char *vocab_path, const json_t *vocab, const char *merges_path,
                         ot_buffer *json) {
  OT_CHECK(json_object_size(vocab) > 0, OT_USAGE, "%s: not a vocabulary: no object with entries",
           vocab_path);
  const json_t *const id = json_object_get(vocab, "<|endoftext|>");
  OT_TRY(ot_tokenizer_write_head(json_is_integer(id) ? json_integer_value(id) : -1, true, json));
  // The head ends inside the braces of the vocabulary.
  json->length--;
  OT_TRY(append_json(vocab, JSON_COMPACT, json));
  OT_TRY(ot_buffer_append_text(json, ",\"merges\":["));
  OT_TRY(append_merges_file(merges_path, json));
  return ot_buffer_append_text(json, "]}}\n");
}

ot_status ot_tokenizer_convert_gpt2(const char *vocab_path, const char *merges_path,
                                    ot_buffer *json) {
  json_t *vocab;
  OT_TRY(ot_json_load(vocab_path, OT_TOKENIZER_BYTES_MAX, &vocab));
  const ot_status status = convert(vocab_path, vocab, merges_path, json);
  json_decref(vocab);
  return status;
}
