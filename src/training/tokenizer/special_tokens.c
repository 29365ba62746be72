// SPDX-License-Identifier: Apache-2.0
// Reads the files next to a tokenizer, and joins what they say with the model.
#include "tokenizer/special_tokens.h"

#include <string.h>

#include "base/text.h"
#include "files/disk.h"
#include "files/json_file.h"
#include "tokenizer/tokenizer_parts.h"

static const char *const file_names[OT_TOKENIZER_FILES] = {
    [OT_TOKENIZER_CONFIG] = "tokenizer_config.json",
    [OT_TOKENIZER_TOKENS_MAP] = "special_tokens_map.json",
    [OT_TOKENIZER_TEMPLATE] = "chat_template.jinja",
};

typedef struct reading {
  ot_tokenizer *tokenizer;
  const char *directory;
  bool own;                          // a checkpoint of ours: no links in it are followed
  json_t *root[OT_TOKENIZER_FILES];  // of those that are JSON, or null
} reading;

// ---- files ----

// The text of the file `name` [length], or null: there is none.
static ot_status read_text(const reading *r, const char *name, const char **text, int64_t *length) {
  ot_arena *const arena = &r->tokenizer->arena;
  const char *const path = ot_disk_join(arena, r->directory, name);
  char *found = NULL;
  *text = NULL;
  if (!ot_disk_is_file(path)) return OT_OK;
  OT_TRY(r->own ? ot_disk_read_own(arena, path, OT_TOKENIZER_BYTES_MAX, &found, length)
                : ot_disk_read(arena, path, OT_TOKENIZER_BYTES_MAX, &found, length));
  *text = found;
  return OT_OK;
}

// Programs of Jinja have marks; another text would be published as it is.
static bool is_template(const char *text) { return strstr(text, "{{") || strstr(text, "{%"); }

static ot_status read_file(reading *r, ot_tokenizer_file_kind kind) {
  ot_tokenizer *const t = r->tokenizer;
  ot_tokenizer_file *const file = &t->files[kind];
  file->name = file_names[kind];
  OT_TRY(read_text(r, file->name, &file->text, &file->length));
  if (!file->text) return OT_OK;
  const char *const path = ot_disk_join(&t->arena, r->directory, file->name);
  if (kind == OT_TOKENIZER_TEMPLATE) {
    if (is_template(file->text)) return OT_OK;
    file->text = NULL;
    ot_tokenizer_add_note(
        t, ot_arena_format(&t->arena,
                           "%s is ignored: it has no {{ and no {%%, so it is no template", path));
    return OT_OK;
  }
  OT_TRY(ot_json_parse(path, file->text, file->length, &r->root[kind]));
  OT_CHECK(json_is_object(r->root[kind]), OT_USAGE, "%s: not a JSON object", path);
  return OT_OK;
}

// ---- tokens by name ----

// A text, or an object with the text as `content`.
static const char *text_of(const json_t *value) {
  return json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
}

// The token `key` of the first file that has one. A token that the tokenizer lacks is noted.
static int32_t named_token(const reading *r, const char *key) {
  ot_tokenizer *const t = r->tokenizer;
  const json_t *value = json_object_get(r->root[OT_TOKENIZER_CONFIG], key);
  if (!value || json_is_null(value)) value = json_object_get(r->root[OT_TOKENIZER_TOKENS_MAP], key);
  const char *const text = text_of(value);
  const int32_t id = text ? ot_tokenizer_find(t, text) : -1;
  if (text && id < 0) {
    ot_tokenizer_add_note(
        t, ot_arena_format(&t->arena,
                           "%s/%s: %s is \"%s\", which is no token of the "
                           "tokenizer, and is ignored",
                           r->directory, file_names[OT_TOKENIZER_CONFIG], key, text));
  }
  return id;
}

// ---- the chat template ----

static const char *listed_template(const json_t *list) {
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *const one = json_array_get(list, i);
    const char *const name = json_string_value(json_object_get(one, "name"));
    if (name && strcmp(name, "default") == 0) {
      return json_string_value(json_object_get(one, "template"));
    }
  }
  return NULL;
}

static void find_template(const reading *r) {
  ot_tokenizer *const t = r->tokenizer;
  const json_t *const stated = json_object_get(r->root[OT_TOKENIZER_CONFIG], "chat_template");
  const char *const text =
      json_is_array(stated) ? listed_template(stated) : json_string_value(stated);
  t->chat_template = t->files[OT_TOKENIZER_TEMPLATE].text;
  if (!t->chat_template && text) {
    t->chat_template = ot_arena_text(&t->arena, text, ot_text_length(text));
  }
}

// ---- ids of the model's files ----

// Adds an id that `ids` [OT_MAX_EOS] lacks; false: it is full.
static bool add_id(int32_t *ids, int *count, int64_t id) {
  for (int i = 0; i < *count; i++) {
    if (ids[i] == id) return true;
  }
  if (*count == OT_MAX_EOS) return false;
  ids[(*count)++] = (int32_t)id;
  return true;
}

static ot_status add_end(ot_tokenizer *t, const char *path, const json_t *id) {
  const json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
  OT_CHECK(value >= 0 && value <= INT32_MAX, OT_USAGE,
           "%s: eos_token_id is not an id or a list of ids", path);
  OT_CHECK(add_id(t->ends, &t->num_ends, value), OT_USAGE,
           "%s: config.json and generation_config.json have more than %d ids as eos_token_id", path,
           OT_MAX_EOS);
  return OT_OK;
}

static ot_status add_ends(ot_tokenizer *t, const char *path, const json_t *root) {
  const json_t *const stated = json_object_get(root, "eos_token_id");
  if (!stated || json_is_null(stated)) return OT_OK;
  if (!json_is_array(stated)) return add_end(t, path, stated);
  for (size_t i = 0; i < json_array_size(stated); i++) {
    OT_TRY(add_end(t, path, json_array_get(stated, i)));
  }
  return OT_OK;
}

// A config.json that is no JSON may be that of other software; if it is the model's, reading the
// model fails.
static ot_status read_ends(const reading *r, const char *name, bool may_be_other) {
  ot_tokenizer *const t = r->tokenizer;
  const char *const path = ot_disk_join(&t->arena, r->directory, name);
  json_t *root = NULL;
  const char *text;
  int64_t length = 0;
  OT_TRY(read_text(r, name, &text, &length));
  if (!text) return OT_OK;
  ot_status status = ot_json_parse(path, text, length, &root);
  if (status != OT_OK) return may_be_other ? OT_OK : status;
  status = add_ends(t, path, root);
  json_decref(root);
  return status;
}

// ---- all of them ----

static ot_status read_all(reading *r, bool of_model) {
  ot_tokenizer *const t = r->tokenizer;
  for (int i = 0; i < OT_TOKENIZER_FILES; i++) OT_TRY(read_file(r, (ot_tokenizer_file_kind)i));
  const int32_t eos = named_token(r, "eos_token");
  if (eos >= 0) t->eos = eos;
  t->bos = named_token(r, "bos_token");
  t->pad = named_token(r, "pad_token");
  find_template(r);
  if (!of_model) return OT_OK;
  OT_TRY(read_ends(r, "config.json", true));
  return read_ends(r, "generation_config.json", false);
}

ot_status ot_special_tokens_read(ot_tokenizer *tokenizer, const char *path) {
  const char *const base = ot_disk_base_name(path);
  const bool directory = ot_disk_is_directory(path);
  const char *const parent =
      base > path ? ot_arena_text(&tokenizer->arena, path, base - path) : "./";
  reading r = {.tokenizer = tokenizer, .directory = directory ? path : parent};
  r.own = ot_disk_is_file(ot_disk_join(&tokenizer->arena, r.directory, "manifest.json"));
  // Only a directory of a model has a config.json that is the model's.
  const bool of_model =
      directory || ot_text_equal(base, "tokenizer.json") || ot_text_equal(base, "vocab.json");
  const ot_status status = read_all(&r, of_model);
  for (int i = 0; i < OT_TOKENIZER_FILES; i++) json_decref(r.root[i]);
  return status;
}

// ---- queries ----

bool ot_tokenizer_is_added(const ot_tokenizer *tokenizer, int64_t id) {
  for (int64_t i = 0; i < tokenizer->num_added; i++) {
    if (tokenizer->added[i].id == id) return true;
  }
  return false;
}

static void keep_end(ot_special_tokens *s, const ot_model *model, int64_t id) {
  if (id >= 0 && id < model->vocab_size) (void)add_id(s->ends, &s->num_ends, id);
}

ot_special_tokens ot_special_tokens_of(const ot_tokenizer *tokenizer, const ot_model *model) {
  ot_special_tokens s = {.eos = -1};
  keep_end(&s, model, tokenizer->eos);
  for (int i = 0; i < tokenizer->num_ends; i++) keep_end(&s, model, tokenizer->ends[i]);
  for (int i = 0; i < model->num_eos; i++) {
    if (ot_tokenizer_is_added(tokenizer, model->eos_id[i])) keep_end(&s, model, model->eos_id[i]);
  }
  if (s.num_ends > 0) s.eos = s.ends[0];
  s.bos = tokenizer->bos < model->vocab_size ? tokenizer->bos : -1;
  s.pad = tokenizer->pad < model->vocab_size ? tokenizer->pad : -1;
  s.prefix = s.bos >= 0 ? s.bos : s.eos;
  return s;
}

const ot_tokenizer_file *ot_tokenizer_files(const ot_tokenizer *tokenizer) {
  return tokenizer->files;
}

const char *ot_tokenizer_chat_template(const ot_tokenizer *tokenizer) {
  return tokenizer->chat_template;
}

// ---- notes ----

void ot_tokenizer_add_note(ot_tokenizer *tokenizer, const char *note) {
  ot_tokenizer *const t = tokenizer;
  t->note = t->note ? ot_arena_format(&t->arena, "%s\nnote: %s", t->note, note) : note;
}

const char *ot_tokenizer_note(const ot_tokenizer *tokenizer, int64_t vocab_size, ot_arena *arena) {
  const int64_t more = tokenizer->vocab_size - vocab_size;
  if (more <= 0) return tokenizer->note;
  const char *const note = ot_arena_format(
      arena,
      "the tokenizer has %lld entries, the model only %lld: a text with one of the last %lld is "
      "refused, and none of them is generated",
      (long long)tokenizer->vocab_size, (long long)vocab_size, (long long)more);
  return tokenizer->note ? ot_arena_format(arena, "%s\nnote: %s", tokenizer->note, note) : note;
}
