// SPDX-License-Identifier: Apache-2.0
// Readers of the parts of a tokenizer.json: normalizer, pre_tokenizer, decoder and model are each
// an object whose "type" is in a table of kinds, or a Sequence of such objects. Unknown keys and
// kinds are rejected by name, never ignored.
#pragma once

#include <stdbool.h>

#include "base/arena.h"
#include "files/json_file.h"
#include "tokenizer/split_pattern.h"

typedef struct ot_tokenizer_reader {
  const char *name;  // of the file, for messages
  ot_arena arena;    // memory used while reading
} ot_tokenizer_reader;

enum { OT_PART_KEYS_MAX = 10 };

typedef struct ot_part_kind {
  const char *type;
  const char *keys[OT_PART_KEYS_MAX];  // "type" and these are allowed
  ot_status (*read)(ot_tokenizer_reader *reader, const json_t *part, void *into);
} ot_part_kind;

typedef struct ot_part_table {
  const char *place;     // key of the part, for messages
  const char *sequence;  // key of the list in a Sequence; null: no sequences
  const ot_part_kind *kinds;
  int num_kinds;
} ot_part_table;

// Calls `read` of the kind of `part`, or, for a Sequence, of each of its parts in order. Reads
// nothing if `part` is missing or null.
ot_status ot_part_read(ot_tokenizer_reader *reader, const ot_part_table *table, const json_t *part,
                       void *into);

// The same for a part of kind `type`, whatever its "type" is.
ot_status ot_part_read_as(ot_tokenizer_reader *reader, const ot_part_table *table, const char *type,
                          const json_t *part, void *into);

// OT_USAGE: `what` at `place` is not supported.
ot_status ot_part_refuse(const ot_tokenizer_reader *reader, const char *place, const char *what);

bool ot_part_is_unset(const json_t *value);  // missing or null

// Members of `object`, at `place` of the file. A flag may be missing, a text may not.
ot_status ot_part_flag(ot_tokenizer_reader *reader, const char *place, const json_t *object,
                       const char *key, bool *value);
ot_status ot_part_text(ot_tokenizer_reader *reader, const char *place, const json_t *object,
                       const char *key, const char **value);

// The member "pattern", {"String": TEXT} or {"Regex": TEXT}.
typedef struct ot_part_pattern {
  const char *text;  // of the file's JSON
  int64_t length;    // > 0
  bool literal;
} ot_part_pattern;
ot_status ot_part_pattern_read(ot_tokenizer_reader *reader, const char *place, const json_t *object,
                               ot_part_pattern *pattern);
ot_status ot_part_pattern_compile(ot_tokenizer_reader *reader, const char *place,
                                  const ot_part_pattern *pattern, ot_split_pattern **out);
