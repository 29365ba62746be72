// SPDX-License-Identifier: Apache-2.0
// The table of a verb with the rows that stand elsewhere: those that verbs share, and the keys of a
// question (answer/question_keys.c).
#include "answer/question.h"
#include "base/text.h"
#include "cli/options.h"

static ot_option_kind kind_of(const ot_key *key) {
  switch (key->type) {
    case OT_KEY_INTEGER:
    case OT_KEY_INT:
      return OT_OPTION_INTEGER;
    case OT_KEY_REAL:
      return OT_OPTION_REAL;
    case OT_KEY_BOOL:
      return OT_OPTION_FLAG;
    case OT_KEY_CHOICE:
      return OT_OPTION_CHOICE;
    default:
      return OT_OPTION_TEXT;
  }
}

// A number that has a default; the other keys are searched, empty, or off.
static const char *fallback_of(const ot_key *key) {
  const ot_option_kind kind = kind_of(key);
  const bool number = kind == OT_OPTION_INTEGER || kind == OT_OPTION_REAL;
  return number && !ot_text_equal(key->fallback, "null") ? key->fallback : NULL;
}

// The question itself checks the range of a real number, whose limits may be excluded.
static ot_option option_of_key(const ot_option *row, ot_arena *arena) {
  const ot_key *const key = ot_schema_find(&ot_question_schema, 0, row->key);
  ot_option out = {.name = ot_question_option(row->key, arena) + 2,
                   .kind = kind_of(key),
                   .value = row->value ? row->value : "N",
                   .fallback = fallback_of(key),
                   .help = ot_question_help(key, arena)};
  if (out.kind == OT_OPTION_CHOICE) out.value = ot_key_choices(key, arena);
  if (out.kind != OT_OPTION_INTEGER) return out;
  out.minimum = (int64_t)key->minimum;
  out.maximum = key->maximum < (double)INT64_MAX ? (int64_t)key->maximum : INT64_MAX;
  return out;
}

const ot_option *ot_verb_rows(const ot_verb *verb, ot_arena *arena) {
  ot_option *const rows = ot_arena_array(arena, verb->num_options + 1, sizeof *rows);
  for (int i = 0; i < verb->num_options; i++) {
    const ot_option *const row = &verb->options[i];
    rows[i] = row->shared ? *row->shared : *row;
    if (row->key) rows[i] = option_of_key(row, arena);
  }
  return rows;
}
