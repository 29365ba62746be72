// SPDX-License-Identifier: Apache-2.0
// Lines of JSON, one document each.
#include <string.h>

#include "data/corpus.h"
#include "files/json_file.h"

typedef struct line {
  const ot_corpus_block *block;
  int64_t number;
  const char *text;
  int64_t length;
} line;

static bool is_blank(const line *l) {
  for (int64_t i = 0; i < l->length; i++) {
    if (!strchr(" \t\r", l->text[i]) || l->text[i] == '\0') return false;
  }
  return true;
}

static ot_status take_text(const line *l, const json_t *root, const char *key,
                           ot_corpus_text_sink sink, void *context) {
  const json_t *const text = json_object_get(root, key);
  if (!json_is_string(text)) {
    ot_fail(OT_ENVIRONMENT, "%s:%lld: no text under the key \"%s\"", l->block->path,
            (long long)l->number, key);
    return ot_fail_hint(OT_ENVIRONMENT, "--key names the key that holds the text");
  }
  return sink(context, json_string_value(text), (int64_t)json_string_length(text));
}

static ot_status read_line(const line *l, const char *key, ot_corpus_text_sink sink,
                           void *context) {
  json_error_t error;
  json_t *const root =
      json_loadb(l->text, (size_t)l->length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
  OT_CHECK(root, OT_ENVIRONMENT, "%s:%lld:%d: not valid JSON: %s", l->block->path,
           (long long)l->number, error.column, error.text);
  const ot_status status = take_text(l, root, key, sink, context);
  json_decref(root);
  return status;
}

ot_status ot_corpus_read_lines(const ot_corpus_block *block, const char *key,
                               ot_corpus_text_sink sink, void *context) {
  line l = {.block = block, .number = block->first_line};
  for (int64_t at = 0; at < block->text.length; l.number++) {
    l.text = (const char *)block->text.data + at;
    const int64_t left = block->text.length - at;
    const char *const newline = memchr(l.text, '\n', (size_t)left);
    l.length = newline ? newline - l.text : left;
    at += l.length + 1;
    if (!is_blank(&l)) OT_TRY(read_line(&l, key, sink, context));
  }
  return OT_OK;
}
