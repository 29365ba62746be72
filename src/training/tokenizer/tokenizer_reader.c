// SPDX-License-Identifier: Apache-2.0
// Lookup in tables of kinds, and typed access with errors that name file, key, value and allowed
// values.
#include "tokenizer/tokenizer_reader.h"

#include <stdlib.h>
#include <string.h>

#include "base/text_builder.h"

bool ot_part_is_unset(const json_t *value) { return !value || json_is_null(value); }

ot_status ot_part_refuse(const ot_tokenizer_reader *reader, const char *place, const char *what) {
  return ot_fail(OT_USAGE, "%s: %s: %s is not supported", reader->name, place, what);
}

// `value` as written in the file, at most 60 bytes of it.
static const char *text_of(ot_tokenizer_reader *r, const json_t *value) {
  if (!value) return "missing";
  char *const text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
  const char *const copy = ot_arena_format(&r->arena, "%.60s", text ? text : "?");
  free(text);
  return copy;
}

static ot_status wrong(ot_tokenizer_reader *r, const char *place, const char *key,
                       const json_t *value, const char *allowed) {
  return ot_fail(OT_USAGE, "%s: %s: %s is %s; allowed: %s", r->name, place, key, text_of(r, value),
                 allowed);
}

ot_status ot_part_flag(ot_tokenizer_reader *reader, const char *place, const json_t *object,
                       const char *key, bool *value) {
  const json_t *const member = json_object_get(object, key);
  if (ot_part_is_unset(member)) return OT_OK;
  if (!json_is_boolean(member)) return wrong(reader, place, key, member, "true, false");
  *value = json_is_true(member);
  return OT_OK;
}

ot_status ot_part_text(ot_tokenizer_reader *reader, const char *place, const json_t *object,
                       const char *key, const char **value) {
  const json_t *const member = json_object_get(object, key);
  *value = json_string_value(member);
  return *value ? OT_OK : wrong(reader, place, key, member, "a text");
}

ot_status ot_part_pattern_read(ot_tokenizer_reader *reader, const char *place, const json_t *object,
                               ot_part_pattern *pattern) {
  const json_t *const member = json_object_get(object, "pattern");
  const json_t *const regex = json_object_get(member, "Regex");
  const json_t *const text = regex ? regex : json_object_get(member, "String");
  if (json_string_length(text) == 0) {
    return wrong(reader, place, "pattern", member,
                 "{\"String\": TEXT}, {\"Regex\": TEXT}, TEXT not empty");
  }
  *pattern = (ot_part_pattern){.text = json_string_value(text),
                               .length = (int64_t)json_string_length(text),
                               .literal = !regex};
  return OT_OK;
}

ot_status ot_part_pattern_compile(ot_tokenizer_reader *reader, const char *place,
                                  const ot_part_pattern *pattern, ot_split_pattern **out) {
  const ot_status status =
      ot_split_pattern_create(pattern->text, pattern->length, pattern->literal, out);
  if (status == OT_OK) return OT_OK;
  return ot_fail(status, "%s: %s: %s", reader->name, place, ot_fail_message());
}

static const char *names_of(ot_tokenizer_reader *r, const ot_part_table *table) {
  ot_text_builder names = {.arena = &r->arena};
  for (int i = 0; i < table->num_kinds; i++) {
    ot_text_appendf(&names, "%s%s", i > 0 ? ", " : "", table->kinds[i].type);
  }
  return ot_text_builder_text(&names);
}

static ot_status check_keys(ot_tokenizer_reader *r, const char *place, const char *type,
                            const char *const *keys, const json_t *part) {
  const char *allowed[OT_PART_KEYS_MAX + 2] = {"type"};
  for (int i = 0; i < OT_PART_KEYS_MAX && keys[i]; i++) allowed[i + 1] = keys[i];
  const char *const where = ot_arena_format(&r->arena, "%s: %s %s", r->name, place, type);
  return ot_json_check_keys(where, part, allowed);
}

ot_status ot_part_read_as(ot_tokenizer_reader *reader, const ot_part_table *table, const char *type,
                          const json_t *part, void *into) {
  for (int i = 0; i < table->num_kinds; i++) {
    const ot_part_kind *const kind = &table->kinds[i];
    if (strcmp(kind->type, type) != 0) continue;
    OT_TRY(check_keys(reader, table->place, type, kind->keys, part));
    return kind->read(reader, part, into);
  }
  (void)ot_part_refuse(reader, table->place, type);
  return ot_fail_hint(OT_USAGE, "supported: %s", names_of(reader, table));
}

ot_status ot_part_read(ot_tokenizer_reader *reader, const ot_part_table *table, const json_t *part,
                       void *into) {
  if (ot_part_is_unset(part)) return OT_OK;
  const char *type;
  OT_TRY(ot_part_text(reader, table->place, part, "type", &type));
  if (!table->sequence || strcmp(type, "Sequence") != 0) {
    return ot_part_read_as(reader, table, type, part, into);
  }
  OT_TRY(
      check_keys(reader, table->place, type, (const char *const[]){table->sequence, NULL}, part));
  const json_t *const parts = json_object_get(part, table->sequence);
  if (!json_is_array(parts)) {
    return wrong(reader, table->place, table->sequence, parts, "a list of parts");
  }
  for (size_t i = 0; i < json_array_size(parts); i++) {
    const json_t *const one = json_array_get(parts, i);
    OT_TRY(ot_part_text(reader, table->place, one, "type", &type));
    OT_TRY(ot_part_read_as(reader, table, type, one, into));
  }
  return OT_OK;
}
