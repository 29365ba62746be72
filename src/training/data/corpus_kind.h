// SPDX-License-Identifier: Apache-2.0
// The kind of a file of a corpus, decided by its first bytes: lines of JSON, text, or neither. Its
// name may claim one of them (.jsonl, .ndjson, .jl: lines; .txt, .text, .md: text; .json: some
// JSON); where it claims another one than the content shows, the user has to say.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef enum ot_corpus_format {
  OT_CORPUS_AUTO,
  OT_CORPUS_AS_LINES,
  OT_CORPUS_AS_TEXT,
} ot_corpus_format;

typedef enum ot_file_kind { OT_FILE_LINES, OT_FILE_TEXT, OT_FILE_BINARY } ot_file_kind;

// The beginning of a file, decompressed.
typedef struct ot_file_head {
  const char *path;
  const char *text;  // [length]
  int64_t length;
  const char *key;  // of the text in lines of JSON
} ot_file_head;

// True if the first line is not complete, but may decide.
bool ot_file_head_is_short(const ot_file_head *head);

// OT_ENVIRONMENT, naming the file, if name and content contradict each other, or if it is JSON that
// is not in lines, but has a text under the key.
ot_status ot_file_kind_find(const ot_file_head *head, ot_file_kind *kind);
