// SPDX-License-Identifier: Apache-2.0
// Readers of the kinds of pre-tokenizers; most become patterns.
#include "tokenizer/pre_tokenizer.h"

#include <string.h>

#include "tokenizer/unicode.h"

static const char gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

// No step may follow ByteLevel, which converts to the byte alphabet.
static ot_status add_step(const ot_tokenizer_reader *r, ot_pre_tokenizer *p, const char *type,
                          ot_split_step **step) {
  OT_CHECK(!p->byte_level, OT_USAGE, "%s: pre_tokenizer: %s after ByteLevel is not supported",
           r->name, type);
  OT_CHECK(p->num_steps < OT_MAX_SPLIT_STEPS, OT_USAGE, "%s: pre_tokenizer: more than %d steps",
           r->name, OT_MAX_SPLIT_STEPS);
  *step = &p->steps[p->num_steps++];
  return OT_OK;
}

static ot_status add_regex(ot_tokenizer_reader *r, ot_pre_tokenizer *p, const char *type,
                           const char *regex, ot_split_step **step) {
  const ot_part_pattern pattern = {.text = regex, .length = (int64_t)strlen(regex)};
  OT_TRY(add_step(r, p, type, step));
  return ot_part_pattern_compile(r, "pre_tokenizer", &pattern, &(*step)->pattern);
}

static ot_status read_byte_level(ot_tokenizer_reader *r, const json_t *part, void *into) {
  static const char type[] = "ByteLevel";
  ot_pre_tokenizer *const p = into;
  bool prefix = true, use_regex = true;
  OT_TRY(ot_part_flag(r, "pre_tokenizer: ByteLevel", part, "add_prefix_space", &prefix));
  OT_TRY(ot_part_flag(r, "pre_tokenizer: ByteLevel", part, "use_regex", &use_regex));
  ot_split_step *step = NULL;
  if (prefix) {
    OT_TRY(add_step(r, p, type, &step));
    step->kind = OT_SPLIT_PREFIX_SPACE;
  }
  if (use_regex) OT_TRY(add_regex(r, p, type, gpt2_pattern, &step));
  OT_CHECK(!p->byte_level, OT_USAGE, "%s: pre_tokenizer: ByteLevel twice is not supported",
           r->name);
  p->byte_level = true;
  return OT_OK;
}

static ot_status read_split(ot_tokenizer_reader *r, const json_t *part, void *into) {
  static const char place[] = "pre_tokenizer: Split";
  ot_part_pattern pattern;
  bool invert = false;
  const char *behavior;
  OT_TRY(ot_part_pattern_read(r, place, part, &pattern));
  OT_TRY(ot_part_flag(r, place, part, "invert", &invert));
  OT_TRY(ot_part_text(r, place, part, "behavior", &behavior));
  const bool removed = strcmp(behavior, "Removed") == 0;
  const bool joined = strcmp(behavior, "MergedWithPrevious") == 0 && !invert;
  if (!removed && !joined && strcmp(behavior, "Isolated") != 0) {
    ot_fail(OT_USAGE, "%s: %s: behavior %s%s is not supported", r->name, place, behavior,
            invert ? ", inverted," : "");
    return ot_fail_hint(OT_USAGE,
                        "supported: Isolated, Removed, and MergedWithPrevious without invert");
  }
  ot_split_step *step = NULL;
  OT_TRY(add_step(r, into, "Split", &step));
  step->drop_unmatched = removed && invert;
  step->drop_matched = removed && !invert;
  step->joined_with_previous = joined;
  return ot_part_pattern_compile(r, place, &pattern, &step->pattern);
}

static ot_status read_digits(ot_tokenizer_reader *r, const json_t *part, void *into) {
  bool individual = false;
  ot_split_step *step = NULL;
  OT_TRY(ot_part_flag(r, "pre_tokenizer: Digits", part, "individual_digits", &individual));
  return add_regex(r, into, "Digits", individual ? "\\p{N}" : "\\p{N}+", &step);
}

static ot_status read_whitespace_split(ot_tokenizer_reader *r, const json_t *part, void *into) {
  (void)part;
  ot_split_step *step = NULL;
  OT_TRY(add_regex(r, into, "WhitespaceSplit", "\\s", &step));
  step->drop_matched = true;
  return OT_OK;
}

// ---- Metaspace ----

ot_status ot_metaspace_mark_read(ot_tokenizer_reader *reader, const char *place, const json_t *part,
                                 char mark[OT_MARK_BYTES]) {
  const char *text;
  OT_TRY(ot_part_text(reader, place, part, "replacement", &text));
  const int64_t length = (int64_t)strlen(text);
  int width = 0;
  if (length > 0) (void)ot_unicode_first((const uint8_t *)text, length, &width);
  OT_CHECK(length > 0 && width == length, OT_USAGE,
           "%s: %s: replacement is \"%s\"; allowed: one character", reader->name, place, text);
  memcpy(mark, text, (size_t)length + 1);
  return OT_OK;
}

// Older files have add_prefix_space: true or false, newer ones prepend_scheme.
ot_status ot_metaspace_prefix_read(ot_tokenizer_reader *reader, const char *place,
                                   const json_t *part, ot_metaspace_prefix *prefix) {
  static const char *const names[] = {[OT_METASPACE_ALWAYS] = "always",
                                      [OT_METASPACE_FIRST] = "first",
                                      [OT_METASPACE_NEVER] = "never"};
  bool add = true;
  OT_TRY(ot_part_flag(reader, place, part, "add_prefix_space", &add));
  *prefix = add ? OT_METASPACE_ALWAYS : OT_METASPACE_NEVER;
  if (ot_part_is_unset(json_object_get(part, "prepend_scheme"))) return OT_OK;
  const char *name;
  OT_TRY(ot_part_text(reader, place, part, "prepend_scheme", &name));
  int scheme = 0;
  while (scheme < OT_COUNT(names) && strcmp(names[scheme], name) != 0) scheme++;
  OT_CHECK(scheme < OT_COUNT(names), OT_USAGE,
           "%s: %s: prepend_scheme is \"%s\"; allowed: always, first, never", reader->name, place,
           name);
  OT_CHECK(add || scheme == OT_METASPACE_NEVER, OT_USAGE,
           "%s: %s: add_prefix_space is false, prepend_scheme \"%s\"; allowed with it: never",
           reader->name, place, name);
  *prefix = (ot_metaspace_prefix)scheme;
  return OT_OK;
}

static ot_status read_metaspace(ot_tokenizer_reader *r, const json_t *part, void *into) {
  static const char place[] = "pre_tokenizer: Metaspace";
  ot_split_step *step = NULL;
  OT_TRY(add_step(r, into, "Metaspace", &step));
  step->kind = OT_SPLIT_METASPACE;
  OT_TRY(ot_metaspace_mark_read(r, place, part, step->mark));
  OT_TRY(ot_metaspace_prefix_read(r, place, part, &step->prefix));
  bool split = true;
  OT_TRY(ot_part_flag(r, place, part, "split", &split));
  step->whole = !split;
  return OT_OK;
}

// ---- the pre-tokenizer ----

static const ot_part_kind kinds[] = {
    {.type = "ByteLevel",
     .keys = {"add_prefix_space", "trim_offsets", "use_regex"},
     .read = read_byte_level},
    {.type = "Split", .keys = {"pattern", "behavior", "invert"}, .read = read_split},
    {.type = "Digits", .keys = {"individual_digits"}, .read = read_digits},
    {.type = "WhitespaceSplit", .read = read_whitespace_split},
    {.type = "Metaspace",
     .keys = {"replacement", "prepend_scheme", "add_prefix_space", "split", "str_rep"},
     .read = read_metaspace},
};

ot_status ot_pre_tokenizer_read(ot_tokenizer_reader *reader, const json_t *json,
                                ot_pre_tokenizer *out) {
  static const ot_part_table table = {.place = "pre_tokenizer",
                                      .sequence = "pretokenizers",
                                      .kinds = kinds,
                                      .num_kinds = OT_COUNT(kinds)};
  return ot_part_read(reader, &table, json, out);
}

void ot_pre_tokenizer_release(ot_pre_tokenizer *pre_tokenizer) {
  for (int i = 0; i < pre_tokenizer->num_steps; i++) {
    ot_split_pattern_destroy(&pre_tokenizer->steps[i].pattern);
  }
}

bool ot_pre_tokenizer_is_memoryless(const ot_pre_tokenizer *pre_tokenizer) {
  for (int i = 0; i < pre_tokenizer->num_steps; i++) {
    const ot_split_pattern *const pattern = pre_tokenizer->steps[i].pattern;
    if (!pattern || !ot_split_pattern_is_memoryless(pattern)) return false;
  }
  return true;
}
