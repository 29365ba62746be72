// SPDX-License-Identifier: Apache-2.0
// Reads a tokenizer.json (HF tokenizers). Every object is checked against the keys known here: what
// would change the ids and is not supported is refused by name, never passed over. Passed over on
// purpose: post_processor (nothing is prepended), unk_token and fuse_unk (every byte has a token).
#include <string.h>

#include "base/text.h"
#include "files/json_file.h"
#include "host/heap.h"
#include "tokenizer/tokenizer_parts.h"

static const char gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

enum { MAX_VOCAB = 1 << 24 };

typedef struct reader {
  const char *name;
  ot_tokenizer *tokenizer;
  ot_arena arena;
} reader;

static const char *where(reader *r, const char *place) {
  return ot_arena_format(&r->arena, "%s: %s", r->name, place);
}

static ot_status refuse(const reader *r, const char *place, const char *what) {
  return ot_fail(OT_USAGE, "%s: %s: %s is not supported", r->name, place, what);
}

static bool is_unset(const json_t *value) { return !value || json_is_null(value); }

// A member that must be a boolean when it is there.
static ot_status read_flag(const reader *r, const json_t *object, const char *key, bool *value) {
  const json_t *const member = json_object_get(object, key);
  if (is_unset(member)) return OT_OK;
  OT_CHECK(json_is_boolean(member), OT_USAGE, "%s: %s is not true or false", r->name, key);
  *value = json_is_true(member);
  return OT_OK;
}

static const char *type_of(const json_t *object) {
  const char *const type = json_string_value(json_object_get(object, "type"));
  return type ? type : "(no type)";
}

// ---- normalizer, decoder ----

static ot_status read_normalizer(reader *r, const json_t *normalizer) {
  if (is_unset(normalizer)) return OT_OK;
  const char *const type = type_of(normalizer);
  if (strcmp(type, "NFC") == 0) {
    r->tokenizer->normalize = true;
    return OT_OK;
  }
  if (strcmp(type, "Sequence") != 0) return refuse(r, "normalizer", type);
  const json_t *const parts = json_object_get(normalizer, "normalizers");
  OT_CHECK(json_is_array(parts), OT_USAGE, "%s: normalizer: Sequence without normalizers", r->name);
  for (size_t i = 0; i < json_array_size(parts); i++) {
    const json_t *const part = json_array_get(parts, i);
    if (strcmp(type_of(part), "NFC") != 0) return refuse(r, "normalizer", type_of(part));
    r->tokenizer->normalize = true;
  }
  return OT_OK;
}

static ot_status check_decoder(const reader *r, const json_t *decoder) {
  if (is_unset(decoder) || strcmp(type_of(decoder), "ByteLevel") == 0) return OT_OK;
  if (strcmp(type_of(decoder), "Sequence") != 0) return refuse(r, "decoder", type_of(decoder));
  const json_t *const parts = json_object_get(decoder, "decoders");
  for (size_t i = 0; i < json_array_size(parts); i++) {
    const char *const type = type_of(json_array_get(parts, i));
    if (strcmp(type, "ByteLevel") != 0 && strcmp(type, "Fuse") != 0) {
      return refuse(r, "decoder", type);
    }
  }
  return OT_OK;
}

// ---- pre-tokenizer ----

static ot_status add_step(const reader *r, ot_split_step **step) {
  ot_tokenizer *const t = r->tokenizer;
  OT_CHECK(t->num_steps < OT_MAX_SPLIT_STEPS, OT_USAGE, "%s: pre_tokenizer: more than %d steps",
           r->name, OT_MAX_SPLIT_STEPS);
  *step = &t->steps[t->num_steps];
  **step = (ot_split_step){0};
  return OT_OK;
}

static ot_status add_pattern(const reader *r, const char *regex, int64_t length, bool literal) {
  ot_split_step *step = NULL;
  OT_TRY(add_step(r, &step));
  const ot_status status = ot_split_pattern_create(regex, length, literal, &step->pattern);
  if (status != OT_OK) return ot_fail(status, "%s: %s", r->name, ot_fail_message());
  r->tokenizer->num_steps++;
  return OT_OK;
}

static ot_status add_byte_level(reader *r, const json_t *part) {
  static const char *const keys[] = {"type", "add_prefix_space", "trim_offsets", "use_regex", NULL};
  OT_TRY(ot_json_check_keys(where(r, "pre_tokenizer ByteLevel"), part, keys));
  bool prefix = true, use_regex = true;
  OT_TRY(read_flag(r, part, "add_prefix_space", &prefix));
  OT_TRY(read_flag(r, part, "use_regex", &use_regex));
  if (prefix) {
    ot_split_step *step;
    OT_TRY(add_step(r, &step));
    r->tokenizer->num_steps++;
  }
  if (!use_regex) return OT_OK;
  return add_pattern(r, gpt2_pattern, (int64_t)sizeof gpt2_pattern - 1, false);
}

static ot_status add_split(reader *r, const json_t *part) {
  static const char *const keys[] = {"type", "pattern", "behavior", "invert", NULL};
  OT_TRY(ot_json_check_keys(where(r, "pre_tokenizer Split"), part, keys));
  const json_t *const pattern = json_object_get(part, "pattern");
  const json_t *const regex = json_object_get(pattern, "Regex");
  const json_t *const text = regex ? regex : json_object_get(pattern, "String");
  OT_CHECK(json_is_string(text), OT_USAGE,
           "%s: pre_tokenizer: Split without a pattern of kind Regex or String", r->name);
  bool invert = false;
  OT_TRY(read_flag(r, part, "invert", &invert));
  const char *const behavior = json_string_value(json_object_get(part, "behavior"));
  const bool removed = behavior && strcmp(behavior, "Removed") == 0;
  if (!behavior || (strcmp(behavior, "Isolated") != 0 && !(removed && invert))) {
    ot_fail(OT_USAGE, "%s: pre_tokenizer: Split with behavior %s%s is not supported", r->name,
            behavior ? behavior : "(none)", invert ? ", inverted," : "");
    return ot_fail_hint(OT_USAGE, "supported: Isolated, and Removed with invert");
  }
  OT_TRY(add_pattern(r, json_string_value(text), (int64_t)json_string_length(text), !regex));
  r->tokenizer->steps[r->tokenizer->num_steps - 1].drop_unmatched = removed;
  return OT_OK;
}

static ot_status add_digits(reader *r, const json_t *part) {
  static const char *const keys[] = {"type", "individual_digits", NULL};
  OT_TRY(ot_json_check_keys(where(r, "pre_tokenizer Digits"), part, keys));
  bool individual = false;
  OT_TRY(read_flag(r, part, "individual_digits", &individual));
  return individual ? add_pattern(r, "\\p{N}", 5, false) : add_pattern(r, "\\p{N}+", 6, false);
}

// One part of the pre-tokenizer; `bytes` is set by the one that goes over to the byte alphabet,
// after which nothing may split.
static ot_status read_part(reader *r, const json_t *part, bool *bytes) {
  const char *const type = type_of(part);
  OT_CHECK(!*bytes, OT_USAGE, "%s: pre_tokenizer: %s after ByteLevel is not supported", r->name,
           type);
  if (strcmp(type, "Split") == 0) return add_split(r, part);
  if (strcmp(type, "Digits") == 0) return add_digits(r, part);
  if (strcmp(type, "ByteLevel") != 0) return refuse(r, "pre_tokenizer", type);
  *bytes = true;
  return add_byte_level(r, part);
}

static ot_status read_pre_tokenizer(reader *r, const json_t *pre_tokenizer) {
  bool bytes = false;
  if (!is_unset(pre_tokenizer) && strcmp(type_of(pre_tokenizer), "Sequence") == 0) {
    static const char *const keys[] = {"type", "pretokenizers", NULL};
    OT_TRY(ot_json_check_keys(where(r, "pre_tokenizer Sequence"), pre_tokenizer, keys));
    const json_t *const parts = json_object_get(pre_tokenizer, "pretokenizers");
    for (size_t i = 0; i < json_array_size(parts); i++) {
      OT_TRY(read_part(r, json_array_get(parts, i), &bytes));
    }
  } else if (!is_unset(pre_tokenizer)) {
    OT_TRY(read_part(r, pre_tokenizer, &bytes));
  }
  if (bytes) return OT_OK;
  ot_fail(OT_USAGE, "%s: pre_tokenizer has no ByteLevel: not a byte-level BPE", r->name);
  return ot_fail_hint(OT_USAGE, "tokenizers of the SentencePiece kind are not supported");
}

// ---- added tokens ----

static ot_status read_added_token(reader *r, const json_t *token, ot_added_token *out) {
  static const char *const keys[] = {"id",     "content",    "single_word", "lstrip",
                                     "rstrip", "normalized", "special",     NULL};
  OT_CHECK(json_is_object(token), OT_USAGE, "%s: added_tokens: not an object", r->name);
  OT_TRY(ot_json_check_keys(where(r, "added_tokens"), token, keys));
  const json_t *const content = json_object_get(token, "content");
  const json_t *const id = json_object_get(token, "id");
  OT_CHECK(json_is_string(content) && json_is_integer(id), OT_USAGE,
           "%s: added_tokens: an entry without content or id", r->name);
  OT_CHECK(json_integer_value(id) >= 0 && json_integer_value(id) < MAX_VOCAB, OT_USAGE,
           "%s: added_tokens: id %lld is out of range; allowed: 0 to %d", r->name,
           (long long)json_integer_value(id), MAX_VOCAB - 1);
  *out = (ot_added_token){.content = json_string_value(content),
                          .length = (int64_t)json_string_length(content),
                          .id = (int32_t)json_integer_value(id)};
  OT_TRY(read_flag(r, token, "special", &out->special));
  out->normalized = !out->special;
  OT_TRY(read_flag(r, token, "single_word", &out->single_word));
  OT_TRY(read_flag(r, token, "lstrip", &out->lstrip));
  OT_TRY(read_flag(r, token, "rstrip", &out->rstrip));
  return read_flag(r, token, "normalized", &out->normalized);
}

static ot_status read_added_tokens(reader *r, const json_t *list, ot_tokenizer_description *d) {
  if (is_unset(list)) return OT_OK;
  OT_CHECK(json_is_array(list), OT_USAGE, "%s: added_tokens is not a list", r->name);
  const int64_t count = (int64_t)json_array_size(list);
  ot_added_token *const added = ot_arena_array(&r->arena, count + 1, sizeof *added);
  for (int64_t i = 0; i < count; i++) {
    OT_TRY(read_added_token(r, json_array_get(list, (size_t)i), &added[i]));
  }
  d->added = added;
  d->num_added = count;
  return OT_OK;
}

// ---- model ----

static ot_status check_model(reader *r, const json_t *model) {
  static const char *const keys[] = {"type",
                                     "dropout",
                                     "unk_token",
                                     "continuing_subword_prefix",
                                     "end_of_word_suffix",
                                     "fuse_unk",
                                     "byte_fallback",
                                     "ignore_merges",
                                     "vocab",
                                     "merges",
                                     NULL};
  OT_CHECK(json_is_object(model), OT_USAGE, "%s: no model", r->name);
  const json_t *const type = json_object_get(model, "type");
  if (!is_unset(type) && strcmp(type_of(model), "BPE") != 0)
    return refuse(r, "model", type_of(model));
  OT_TRY(ot_json_check_keys(where(r, "model"), model, keys));
  const json_t *const dropout = json_object_get(model, "dropout");
  OT_CHECK(is_unset(dropout) || (json_is_number(dropout) && json_number_value(dropout) == 0),
           OT_USAGE, "%s: model.dropout would make tokens random; set it to null", r->name);
  bool byte_fallback = false;
  OT_TRY(read_flag(r, model, "byte_fallback", &byte_fallback));
  if (byte_fallback) return refuse(r, "model", "byte_fallback (SentencePiece)");
  const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
  for (int i = 0; i < 2; i++) {
    const json_t *const affix = json_object_get(model, affixes[i]);
    if (!is_unset(affix) && json_string_length(affix) > 0) return refuse(r, "model", affixes[i]);
  }
  return read_flag(r, model, "ignore_merges", &r->tokenizer->ignore_merges);
}

static ot_status read_vocab(reader *r, const json_t *vocab, ot_tokenizer_description *d) {
  OT_CHECK(json_is_object(vocab), OT_USAGE, "%s: model has no vocab", r->name);
  ot_tokenizer_entry *const entries =
      ot_arena_array(&r->arena, (int64_t)json_object_size(vocab) + 1, sizeof *entries);
  const char *key;
  json_t *value;
  int64_t n = 0;
  json_object_foreach((json_t *)(uintptr_t)vocab, key, value) {
    OT_CHECK(json_is_integer(value) && json_integer_value(value) >= 0 &&
                 json_integer_value(value) < MAX_VOCAB,
             OT_USAGE, "%s: vocab: id of \"%s\" is not a whole number from 0 to %d", r->name, key,
             MAX_VOCAB - 1);
    entries[n++] = (ot_tokenizer_entry){
        .text = key, .length = (int64_t)strlen(key), .id = json_integer_value(value)};
  }
  d->vocab = entries;
  d->num_vocab = n;
  return OT_OK;
}

static ot_status vocab_id(const reader *r, const json_t *vocab, const char *text, int64_t rank,
                          int32_t *id) {
  const json_t *const found = json_object_get(vocab, text);
  OT_CHECK(found, OT_USAGE, "%s: merges[%lld]: \"%s\" is not in the vocabulary", r->name,
           (long long)rank, text);
  *id = (int32_t)json_integer_value(found);
  return OT_OK;
}

// The two halves of a merge, "a b" or ["a", "b"].
static ot_status split_merge(reader *r, const json_t *merge, int64_t rank, const char *half[2]) {
  if (json_is_array(merge)) {
    half[0] = json_string_value(json_array_get(merge, 0));
    half[1] = json_string_value(json_array_get(merge, 1));
    OT_CHECK(json_array_size(merge) == 2 && half[0] && half[1], OT_USAGE,
             "%s: merges[%lld] is not a pair", r->name, (long long)rank);
    return OT_OK;
  }
  const char *const text = json_string_value(merge);
  const char *const space = text ? strchr(text, ' ') : NULL;
  OT_CHECK(space && !strchr(space + 1, ' '), OT_USAGE,
           "%s: merges[%lld] is not two words with one space between", r->name, (long long)rank);
  half[0] = ot_arena_text(&r->arena, text, space - text);
  half[1] = space + 1;
  return OT_OK;
}

static ot_status read_merges(reader *r, const json_t *model, ot_tokenizer_description *d) {
  const json_t *const list = json_object_get(model, "merges");
  const json_t *const vocab = json_object_get(model, "vocab");
  OT_CHECK(json_is_array(list), OT_USAGE, "%s: model has no merges", r->name);
  const int64_t count = (int64_t)json_array_size(list);
  ot_bpe_merge *const merges = ot_arena_array(&r->arena, count + 1, sizeof *merges);
  for (int64_t i = 0; i < count; i++) {
    const char *half[2] = {NULL, NULL};
    OT_TRY(split_merge(r, json_array_get(list, (size_t)i), i, half));
    OT_TRY(vocab_id(r, vocab, half[0], i, &merges[i].left));
    OT_TRY(vocab_id(r, vocab, half[1], i, &merges[i].right));
    OT_TRY(vocab_id(r, vocab, ot_arena_format(&r->arena, "%s%s", half[0], half[1]), i,
                    &merges[i].result));
  }
  d->merges = merges;
  d->num_merges = count;
  return OT_OK;
}

// ---- the whole ----

static ot_status read_root(reader *r, const json_t *root) {
  static const char *const keys[] = {
      "version",       "truncation",     "padding", "added_tokens", "normalizer",
      "pre_tokenizer", "post_processor", "decoder", "model",        NULL};
  OT_CHECK(json_is_object(root), OT_USAGE, "%s: not a tokenizer.json: no object", r->name);
  OT_TRY(ot_json_check_keys(r->name, root, keys));
  const char *const resizing[] = {"truncation", "padding"};
  for (int i = 0; i < 2; i++) {
    OT_CHECK(is_unset(json_object_get(root, resizing[i])), OT_USAGE,
             "%s: %s would change the tokens of a document; set it to null", r->name, resizing[i]);
  }
  const json_t *const model = json_object_get(root, "model");
  ot_tokenizer_description description = {.name = r->name};
  OT_TRY(check_model(r, model));
  OT_TRY(read_normalizer(r, json_object_get(root, "normalizer")));
  OT_TRY(read_pre_tokenizer(r, json_object_get(root, "pre_tokenizer")));
  OT_TRY(check_decoder(r, json_object_get(root, "decoder")));
  OT_TRY(read_added_tokens(r, json_object_get(root, "added_tokens"), &description));
  OT_TRY(read_vocab(r, json_object_get(model, "vocab"), &description));
  OT_TRY(read_merges(r, model, &description));
  return ot_tokenizer_fill(r->tokenizer, &description);
}

ot_status ot_tokenizer_read_json(const char *json, int64_t length, const char *name,
                                 ot_tokenizer *tokenizer) {
  json_t *root;
  OT_TRY(ot_json_parse(name, json, length, &root));
  ot_heap heap = {0};
  reader r = {.name = name, .tokenizer = tokenizer, .arena = ot_heap_arena_create(&heap)};
  const ot_status status = read_root(&r, root);
  ot_heap_release(&heap);
  json_decref(root);
  return status;
}
