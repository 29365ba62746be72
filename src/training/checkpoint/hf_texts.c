// SPDX-License-Identifier: Apache-2.0
// config.json is written from the model's table of keys, with the special tokens of the tokenizer
// (tokenizer/special_tokens.h). The files next to the tokenizer are saved as they are.
#include "checkpoint/hf_texts.h"

#include "base/text.h"
#include "describe/model_keys.h"
#include "tokenizer/special_tokens.h"

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

static void put_ids(ot_json_writer *json, const char *key, const int64_t *ids, int count) {
  if (count == 1) ot_json_integer(json, key, ids[0]);
  if (count <= 1) return;
  ot_json_array(json, key);
  for (int i = 0; i < count; i++) ot_json_integer(json, NULL, ids[i]);
  ot_json_end(json);
}

static void add_generation_config(ot_arena *arena, const ot_model *model, ot_hf_texts *out) {
  ot_json_writer json = ot_json_begin(arena, 2);
  ot_json_object(&json, NULL);
  if (model->bos_id >= 0) ot_json_integer(&json, "bos_token_id", model->bos_id);
  put_ids(&json, "eos_token_id", model->eos_id, model->num_eos);
  if (model->pad_id >= 0) ot_json_integer(&json, "pad_token_id", model->pad_id);
  ot_json_end(&json);
  add_json(arena, out, "generation_config.json", &json);
}

// ---- the tokenizer ----

static bool lists_end(const ot_model *model, int64_t id) {
  for (int i = 0; i < model->num_eos; i++) {
    if (model->eos_id[i] == id) return true;
  }
  return false;
}

static void add_end(ot_model *model, int64_t id) {
  if (lists_end(model, id) || model->num_eos == OT_MAX_EOS) return;
  model->eos_id[model->num_eos++] = id;
}

static void set_ends(const ot_special_tokens *special, ot_model *model) {
  model->num_eos = 0;
  for (int i = 0; i < special->num_ends; i++) add_end(model, special->ends[i]);
}

// The ids of the configuration in their order, if they are ends, then the ends that it lacks. An
// end of documents that it lacks comes first.
static void fit_ids(const ot_tokenizer *tokenizer, const ot_special_tokens *special,
                    ot_model *model) {
  const ot_model stated = *model;
  ot_model ends = *model;
  set_ends(special, &ends);
  model->num_eos = 0;
  if (special->eos >= 0 && !lists_end(&stated, special->eos)) add_end(model, special->eos);
  for (int i = 0; i < stated.num_eos; i++) {
    if (lists_end(&ends, stated.eos_id[i])) add_end(model, stated.eos_id[i]);
  }
  for (int i = 0; i < ends.num_eos; i++) add_end(model, ends.eos_id[i]);
  if (special->bos >= 0) model->bos_id = special->bos;
  if (!ot_tokenizer_is_added(tokenizer, model->bos_id) && special->bos < 0) model->bos_id = -1;
  if (special->pad >= 0) model->pad_id = special->pad;
  if (!ot_tokenizer_is_added(tokenizer, model->pad_id) && special->pad < 0) model->pad_id = -1;
}

// The text of the added token `id`; without one there is no key.
static void put_token(ot_json_writer *json, const char *key, const ot_tokenizer *tokenizer,
                      int64_t id) {
  int64_t length = 0;
  if (!ot_tokenizer_is_added(tokenizer, id)) return;
  const uint8_t *const bytes = ot_tokenizer_bytes(tokenizer, id, &length);
  ot_json_text_bytes(json, key, (const char *)bytes, length);
}

// Copies the files in the folder of the tokenizer unchanged; makes a configuration where there is
// none.
static void add_tokenizer_files(ot_arena *arena, const ot_tokenizer *tokenizer,
                                const ot_special_tokens *special, const ot_model *model,
                                ot_hf_texts *out) {
  const ot_tokenizer_file *const files = ot_tokenizer_files(tokenizer);
  for (int i = 0; i < OT_TOKENIZER_FILES; i++) {
    if (files[i].text) add_text(out, files[i].name, files[i].text, files[i].length);
  }
  if (files[OT_TOKENIZER_CONFIG].text) return;
  ot_json_writer json = ot_json_begin(arena, 2);
  ot_json_object(&json, NULL);
  ot_json_text(&json, "tokenizer_class", "PreTrainedTokenizerFast");
  put_token(&json, "bos_token", tokenizer, special->bos);
  put_token(&json, "eos_token", tokenizer, special->eos);
  put_token(&json, "pad_token", tokenizer, model->pad_id);
  ot_json_boolean(&json, "clean_up_tokenization_spaces", false);
  ot_json_integer(&json, "model_max_length", model->max_positions);
  ot_json_end(&json);
  add_json(arena, out, "tokenizer_config.json", &json);
}

ot_status ot_hf_texts_build(ot_arena *arena, const ot_model *model, ot_dtype dtype,
                            const ot_tokenizer *tokenizer, ot_hf_texts *out) {
  out->count = 0;
  ot_model *const saved = ot_arena_take(arena, sizeof *saved);
  *saved = *model;
  saved->dtype = dtype;
  ot_model *const generating = ot_arena_take(arena, sizeof *generating);
  if (tokenizer != NULL) {
    const ot_special_tokens special = ot_special_tokens_of(tokenizer, model);
    int64_t length = 0;
    const char *const text = ot_tokenizer_json(tokenizer, &length);
    fit_ids(tokenizer, &special, saved);
    add_text(out, "tokenizer.json", text, length);
    add_tokenizer_files(arena, tokenizer, &special, saved, out);
    *generating = *saved;
    set_ends(&special, generating);
  } else {
    *generating = *saved;
  }
  add_config(arena, saved, out);
  add_generation_config(arena, generating, out);
  return OT_OK;
}
