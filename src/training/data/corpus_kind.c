// SPDX-License-Identifier: Apache-2.0
// Names by their ending, contents by an attempt to read the first JSON value.
#include "data/corpus_kind.h"

#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "files/json_file.h"

// ---- names ----

typedef enum claim { CLAIM_NONE, CLAIM_LINES, CLAIM_TEXT, CLAIM_JSON } claim;

static const struct {
  const char *ending;
  claim claim;
} endings[] = {{".jsonl", CLAIM_LINES}, {".ndjson", CLAIM_LINES}, {".jl", CLAIM_LINES},
               {".json", CLAIM_JSON},   {".txt", CLAIM_TEXT},     {".text", CLAIM_TEXT},
               {".md", CLAIM_TEXT}};

static const char *const packings[] = {".gz", ".zst", ".zstd"};

static bool ends_with(const char *path, int64_t length, const char *ending) {
  const int64_t n = ot_text_length(ending);
  return length > n && strncasecmp(path + length - n, ending, (size_t)n) == 0;
}

static claim claim_of(const char *path) {
  int64_t length = ot_text_length(path);
  for (int i = 0; i < OT_COUNT(packings); i++) {
    if (!ends_with(path, length, packings[i])) continue;
    length -= ot_text_length(packings[i]);
    break;
  }
  for (int i = 0; i < OT_COUNT(endings); i++) {
    if (ends_with(path, length, endings[i].ending)) return endings[i].claim;
  }
  return CLAIM_NONE;
}

// ---- contents ----

typedef enum shape {
  SHAPE_OTHER,
  SHAPE_RECORD,   // the first line is an object with a text under the key
  SHAPE_OBJECTS,  // the first line begins as an object, the second is one
  SHAPE_SPREAD,   // an object with a text under the key, over several lines
  SHAPE_ARRAY,    // an array of such objects
} shape;

static int64_t skip_blanks(const ot_file_head *head, int64_t at) {
  while (at < head->length && head->text[at] && strchr(" \t\r\n", head->text[at])) at++;
  return at;
}

static int64_t end_of_line(const ot_file_head *head, int64_t at) {
  const char *const newline = memchr(head->text + at, '\n', (size_t)(head->length - at));
  return newline ? newline - head->text : head->length;
}

// The JSON value at text[at .. end); more may follow it. Null if it is none, or not complete.
static json_t *read_value(const ot_file_head *head, int64_t at, int64_t end, size_t flags) {
  json_error_t error;
  return json_loadb(head->text + at, (size_t)(end - at),
                    flags | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &error);
}

static bool is_object(const ot_file_head *head, int64_t at, int64_t end, bool *has_text) {
  if (at >= end || head->text[at] != '{') return false;
  json_t *const root = read_value(head, at, end, 0);
  *has_text = json_is_string(json_object_get(root, head->key));
  const bool found = root != NULL;
  json_decref(root);
  return found;
}

static bool begins_with_record(const ot_file_head *head, int64_t at) {
  json_t *const root = read_value(head, at, head->length, JSON_DISABLE_EOF_CHECK);
  const bool found = json_is_string(json_object_get(root, head->key));
  json_decref(root);
  return found;
}

// A byte order mark does not make JSON text.
static int64_t begin_of(const ot_file_head *head) {
  const bool marked = head->length >= 3 && memcmp(head->text, "\xef\xbb\xbf", 3) == 0;
  return skip_blanks(head, marked ? 3 : 0);
}

static shape shape_of(const ot_file_head *head) {
  bool has_text = false, ignored;
  const int64_t at = begin_of(head);
  if (at == head->length) return SHAPE_OTHER;
  if (head->text[at] == '[') {
    const int64_t inner = skip_blanks(head, at + 1);
    return begins_with_record(head, inner) ? SHAPE_ARRAY : SHAPE_OTHER;
  }
  if (head->text[at] != '{') return SHAPE_OTHER;
  const int64_t end = end_of_line(head, at), second = skip_blanks(head, end);
  const bool object = is_object(head, at, end, &has_text);
  if (object && has_text) return SHAPE_RECORD;
  if (!object && begins_with_record(head, at)) return SHAPE_SPREAD;
  // The first line may be a bad one.
  return is_object(head, second, end_of_line(head, second), &ignored) ? SHAPE_OBJECTS : SHAPE_OTHER;
}

bool ot_file_head_is_short(const ot_file_head *head) {
  const int64_t at = begin_of(head);
  if (at == head->length) return true;
  return head->text[at] == '{' && end_of_line(head, at) == head->length;
}

// Text has almost no control characters; compressed data, images and UTF-16 have many.
static bool is_binary(const ot_file_head *head) {
  enum { LOOKED_AT = 1 << 16, FEW = 4, PART = 20 };
  static const char pdf[] = "%PDF-";
  const int64_t length = head->length < LOOKED_AT ? head->length : LOOKED_AT;
  int64_t controls = 0;
  for (int64_t i = 0; i < length; i++) {
    const unsigned char byte = (unsigned char)head->text[i];
    controls += byte < 0x20 && (byte == 0 || !strchr("\t\n\v\f\r\b\x1b", byte));
  }
  const bool is_pdf =
      length >= (int64_t)sizeof pdf - 1 && memcmp(head->text, pdf, sizeof pdf - 1) == 0;
  return is_pdf || controls > FEW + length / PART;
}

// ---- both ----

static ot_status refuse(const ot_file_head *head, const char *what) {
  ot_fail(OT_ENVIRONMENT, "%s: %s", head->path, what);
  return ot_fail_hint(OT_ENVIRONMENT,
                      "--format lines reads lines of JSON, --format text takes the file as one "
                      "text");
}

ot_status ot_file_kind_find(const ot_file_head *head, ot_file_kind *kind) {
  const claim named = claim_of(head->path);
  const shape found = shape_of(head);
  *kind = named == CLAIM_LINES ? OT_FILE_LINES : OT_FILE_TEXT;
  if (named == CLAIM_TEXT && found == SHAPE_RECORD) {
    return refuse(head, "its first line is a JSON object with a text, but its name says text");
  }
  if (named == CLAIM_TEXT) {
    if (is_binary(head)) *kind = OT_FILE_BINARY;
    return OT_OK;
  }
  switch (found) {
    case SHAPE_RECORD:
    case SHAPE_OBJECTS:
      *kind = OT_FILE_LINES;
      return OT_OK;
    case SHAPE_SPREAD:
      return refuse(head,
                    "a JSON object over several lines; lines of JSON have a whole object each "
                    "(jq -c . makes them)");
    case SHAPE_ARRAY:
      return refuse(head,
                    "one JSON array of objects; lines of JSON have an object each (jq -c '.[]' "
                    "makes them)");
    case SHAPE_OTHER:
      break;
  }
  if (*kind == OT_FILE_TEXT && is_binary(head)) *kind = OT_FILE_BINARY;
  return OT_OK;
}
