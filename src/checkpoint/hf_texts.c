// SPDX-License-Identifier: Apache-2.0
// config.json is written from the model's table of keys; the other files hold what generation and
// tokenizers need of it. An id is a special token only if the tokenizer adds that token: ids of a
// configuration for another vocabulary would corrupt text.
#include "checkpoint/hf_texts.h"

#include "base/text.h"
#include "describe/model_keys.h"
#include "files/json_file.h"

static void add_text(ot_hf_texts *out, const char *name, const char *text, int64_t bytes) {
  OT_ASSERT(out->count < OT_HF_TEXTS_MAX);
  out->text[out->count++] = (ot_checkpoint_text){name, text, bytes};
}

// The document ends with a line break, as HF's files do.
static void add_json(ot_arena *arena, ot_hf_texts *out, const char *name,
                     const ot_json_writer *json) {
  char *const text = ot_arena_text(arena, json->text, json->length + 1);
  text[json->length] = '\n';
  add_text(out, name, text, json->length + 1);
}

static void add_config(ot_arena *arena, const ot_model *model, ot_hf_texts *out) {
  ot_json_writer json = ot_json_begin(arena, 2);
  ot_node_write_json(ot_model_write_config(model, arena), NULL, &json);
  add_json(arena, out, "config.json", &json);
}

static void add_generation_config(ot_arena *arena, const ot_model *model, ot_hf_texts *out) {
  ot_json_writer json = ot_json_begin(arena, 2);
  ot_json_object(&json, NULL);
  if (model->bos_id >= 0) ot_json_integer(&json, "bos_token_id", model->bos_id);
  if (model->num_eos == 1) ot_json_integer(&json, "eos_token_id", model->eos_id[0]);
  if (model->num_eos > 1) {
    ot_json_array(&json, "eos_token_id");
    for (int i = 0; i < model->num_eos; i++) ot_json_integer(&json, NULL, model->eos_id[i]);
    ot_json_end(&json);
  }
  if (model->pad_id >= 0) ot_json_integer(&json, "pad_token_id", model->pad_id);
  ot_json_end(&json);
  add_json(arena, out, "generation_config.json", &json);
}

// ---- the tokenizer ----

// The text of the added token `id`, or null.
static const char *added_token(const json_t *added, int64_t id) {
  for (size_t i = 0; i < json_array_size(added); i++) {
    const json_t *const token = json_array_get(added, i);
    const json_t *const number = json_object_get(token, "id");
    if (json_is_integer(number) && json_integer_value(number) == id)
      return json_string_value(json_object_get(token, "content"));
  }
  return NULL;
}

// Keeps the ids that are special in the tokenizer; without one, uses the tokenizer's own end of
// document.
static void fit_ids(const json_t *added, const ot_tokenizer *tokenizer, ot_model *model) {
  if (added_token(added, model->bos_id) == NULL) model->bos_id = -1;
  if (added_token(added, model->pad_id) == NULL) model->pad_id = -1;
  int kept = 0;
  for (int i = 0; i < model->num_eos; i++)
    if (added_token(added, model->eos_id[i]) != NULL) model->eos_id[kept++] = model->eos_id[i];
  model->num_eos = kept;
  const int32_t end = ot_tokenizer_eos(tokenizer);
  if (kept > 0 || end < 0 || end >= model->vocab_size) return;
  model->eos_id[0] = end;
  model->num_eos = 1;
}

static void put_token(ot_json_writer *json, const char *key, const char *text) {
  if (text != NULL) ot_json_text(json, key, text);
}

static void add_tokenizer_config(ot_arena *arena, const json_t *added, const ot_model *model,
                                 ot_hf_texts *out) {
  ot_json_writer json = ot_json_begin(arena, 2);
  ot_json_object(&json, NULL);
  ot_json_text(&json, "tokenizer_class", "PreTrainedTokenizerFast");
  put_token(&json, "bos_token", added_token(added, model->bos_id));
  if (model->num_eos > 0) put_token(&json, "eos_token", added_token(added, model->eos_id[0]));
  put_token(&json, "pad_token", added_token(added, model->pad_id));
  ot_json_boolean(&json, "clean_up_tokenization_spaces", false);
  ot_json_integer(&json, "model_max_length", model->max_positions);
  ot_json_end(&json);
  add_json(arena, out, "tokenizer_config.json", &json);
}

static ot_status add_tokenizer(ot_arena *arena, const ot_tokenizer *tokenizer, ot_model *model,
                               ot_hf_texts *out) {
  int64_t length = 0;
  const char *const text = ot_tokenizer_json(tokenizer, &length);
  json_t *root = NULL;
  OT_TRY(ot_json_parse("tokenizer.json", text, length, &root));
  const json_t *const added = json_object_get(root, "added_tokens");
  fit_ids(added, tokenizer, model);
  add_text(out, "tokenizer.json", text, length);
  add_tokenizer_config(arena, added, model, out);
  json_decref(root);
  return OT_OK;
}

ot_status ot_hf_texts_build(ot_arena *arena, const ot_model *model, ot_dtype dtype,
                            const ot_tokenizer *tokenizer, ot_hf_texts *out) {
  out->count = 0;
  ot_model *const saved = ot_arena_take(arena, sizeof *saved);
  *saved = *model;
  saved->dtype = dtype;
  if (tokenizer != NULL) OT_TRY(add_tokenizer(arena, tokenizer, saved, out));
  add_config(arena, saved, out);
  add_generation_config(arena, saved, out);
  return OT_OK;
}
