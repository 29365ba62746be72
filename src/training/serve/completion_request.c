// SPDX-License-Identifier: Apache-2.0
// One function for each kind of value; a value of another type is an error that names its key.
#include "serve/completion_request.h"

#include <string.h>

#include "base/text.h"
#include "files/json_file.h"
#include "runtime/inference.h"

enum { DEFAULT_TOKENS = 16, MOST_TOKENS = 1 << 24 };

static const char where[] = "the request";

// ---- values ----

static ot_status read_integer(const json_t *root, const char *key, int64_t least, int64_t most,
                              int64_t *to) {
  const json_t *const value = json_object_get(root, key);
  if (!value || json_is_null(value)) return OT_OK;
  const bool fits = json_is_integer(value) && json_integer_value(value) >= least &&
                    json_integer_value(value) <= most;
  OT_CHECK(fits, OT_USAGE, "%s is not a whole number from %lld to %lld", key, (long long)least,
           (long long)most);
  *to = json_integer_value(value);
  return OT_OK;
}

static ot_status read_real(const json_t *root, const char *key, double least, double most,
                           double *to) {
  const json_t *const value = json_object_get(root, key);
  if (!value || json_is_null(value)) return OT_OK;
  const double number = json_number_value(value);
  OT_CHECK(json_is_number(value) && number >= least && number <= most, OT_USAGE,
           "%s is not a number from %g to %g", key, least, most);
  *to = number;
  return OT_OK;
}

static ot_status read_flag(const json_t *root, const char *key, bool *to) {
  const json_t *const value = json_object_get(root, key);
  if (!value || json_is_null(value)) return OT_OK;
  OT_CHECK(json_is_boolean(value), OT_USAGE, "%s is not true or false", key);
  *to = json_is_true(value);
  return OT_OK;
}

static void copy_text(ot_arena *arena, const json_t *text, ot_prompt_source *to) {
  to->length = (int64_t)json_string_length(text);
  to->text = ot_arena_text(arena, json_string_value(text), to->length);
}

static ot_status read_ids(ot_arena *arena, const json_t *list, const char *key,
                          ot_prompt_source *to) {
  to->count = (int64_t)json_array_size(list);
  int32_t *const ids = ot_arena_array(arena, to->count + 1, sizeof *ids);
  for (int64_t i = 0; i < to->count; i++) {
    const json_t *const id = json_array_get(list, (size_t)i);
    const bool fits =
        json_is_integer(id) && json_integer_value(id) >= 0 && json_integer_value(id) <= INT32_MAX;
    OT_CHECK(fits, OT_USAGE, "%s[%lld] is not the id of a token", key, (long long)i);
    ids[i] = (int32_t)json_integer_value(id);
  }
  to->ids = ids;
  return OT_OK;
}

static bool is_empty(const json_t *value) {
  return json_is_false(value) || (json_is_string(value) && json_string_length(value) == 0) ||
         (json_is_array(value) && json_array_size(value) == 0) ||
         (json_is_object(value) && json_object_size(value) == 0);
}

// ---- prompts ----

static ot_status read_prompt(ot_arena *arena, const json_t *value, ot_prompt_source *to) {
  if (json_is_array(value)) return read_ids(arena, value, "prompt", to);
  OT_CHECK(json_is_string(value), OT_USAGE, "prompt is not a text, ids or a list of those");
  copy_text(arena, value, to);
  return OT_OK;
}

// Text, a list of ids, or a list of texts or of lists of ids.
static ot_status read_prompts(ot_arena *arena, const json_t *root, ot_completion_request *r) {
  const json_t *const prompt = json_object_get(root, "prompt");
  OT_CHECK(prompt, OT_USAGE, "there is no prompt");
  const bool one = !json_is_array(prompt) || json_is_integer(json_array_get(prompt, 0));
  const size_t count = one ? 1 : json_array_size(prompt);
  OT_CHECK(count >= 1 && count <= OT_MOST_CHOICES, OT_USAGE, "%zu prompts, allowed: 1 to %d", count,
           OT_MOST_CHOICES);
  r->prompts = ot_arena_array(arena, (int64_t)count, sizeof *r->prompts);
  r->num_prompts = (int)count;
  for (size_t i = 0; i < count; i++) {
    const json_t *const value = one ? prompt : json_array_get(prompt, i);
    OT_TRY(read_prompt(arena, value, &r->prompts[i]));
  }
  return OT_OK;
}

// The text of a message: a string, or parts {"type": "text", "text": ...}.
static ot_status read_content(ot_arena *arena, const json_t *content, const char **to) {
  int64_t length = (int64_t)json_string_length(content);
  OT_CHECK(json_is_string(content) || json_is_array(content), OT_USAGE,
           "content of a message is not a text");
  for (size_t i = 0; i < json_array_size(content); i++) {
    const json_t *const text = json_object_get(json_array_get(content, i), "text");
    OT_CHECK(json_is_string(text), OT_USAGE, "content of a message has a part that is not text");
    length += (int64_t)json_string_length(text);
  }
  char *const whole = ot_arena_array(arena, length + 1, 1);
  char *at = whole;
  *to = whole;
  if (json_is_string(content)) memcpy(at, json_string_value(content), (size_t)length);
  for (size_t i = 0; i < json_array_size(content); i++) {
    const json_t *const text = json_object_get(json_array_get(content, i), "text");
    memcpy(at, json_string_value(text), json_string_length(text));
    at += json_string_length(text);
  }
  OT_CHECK(ot_text_length(whole) == length, OT_USAGE,
           "content of a message holds a zero character");
  return OT_OK;
}

// Parts of a message other than its text.
static const char *const calls[] = {"tool_calls", "function_call", "audio"};

static ot_status read_messages(ot_arena *arena, const json_t *root, ot_completion_request *r) {
  const json_t *const messages = json_object_get(root, "messages");
  const size_t count = json_array_size(messages);
  OT_CHECK(count >= 1 && count <= OT_MOST_MESSAGES, OT_USAGE,
           "messages is not a list of 1 to %d messages", OT_MOST_MESSAGES);
  r->messages = ot_arena_array(arena, (int64_t)count, sizeof *r->messages);
  r->num_messages = (int)count;
  for (size_t i = 0; i < count; i++) {
    const json_t *const message = json_array_get(messages, i);
    const json_t *const role = json_object_get(message, "role");
    for (int k = 0; k < OT_COUNT(calls); k++) {
      const json_t *const call = json_object_get(message, calls[k]);
      OT_CHECK(!call || json_is_null(call) || is_empty(call), OT_USAGE,
               "messages[%zu] has %s, which are not supported", i, calls[k]);
    }
    OT_CHECK(json_is_string(role), OT_USAGE, "messages[%zu] has no role", i);
    r->messages[i].role = ot_arena_format(arena, "%s", json_string_value(role));
    OT_CHECK(ot_text_length(r->messages[i].role) == (int64_t)json_string_length(role), OT_USAGE,
             "messages[%zu] has a role with a zero character", i);
    OT_TRY(read_content(arena, json_object_get(message, "content"), &r->messages[i].content));
  }
  return OT_OK;
}

// ---- the rest ----

static ot_status add_stop(ot_arena *arena, const json_t *text, ot_completion_request *r) {
  ot_prompt_source copy = {0};
  OT_CHECK(json_is_string(text), OT_USAGE, "stop is not a text or a list of texts");
  if (json_string_length(text) == 0) return OT_OK;
  OT_CHECK(r->num_stops < OT_MOST_STOPS, OT_USAGE, "more than %d texts to stop at", OT_MOST_STOPS);
  copy_text(arena, text, &copy);
  r->stops[r->num_stops++] = (ot_stop_text){copy.text, copy.length};
  return OT_OK;
}

static ot_status read_stops(ot_arena *arena, const json_t *root, ot_completion_request *r) {
  const json_t *const stop = json_object_get(root, "stop");
  if (!stop || json_is_null(stop)) return OT_OK;
  if (!json_is_array(stop)) return add_stop(arena, stop, r);
  for (size_t i = 0; i < json_array_size(stop); i++) {
    OT_TRY(add_stop(arena, json_array_get(stop, i), r));
  }
  return OT_OK;
}

static ot_status read_stop_ids(ot_arena *arena, const json_t *root, ot_completion_request *r) {
  const json_t *const list = json_object_get(root, "stop_token_ids");
  ot_prompt_source ids = {0};
  if (!list || json_is_null(list)) return OT_OK;
  OT_CHECK(json_is_array(list) && json_array_size(list) <= OT_MOST_STOP_IDS, OT_USAGE,
           "stop_token_ids is not a list of up to %d ids", OT_MOST_STOP_IDS);
  OT_TRY(read_ids(arena, list, "stop_token_ids", &ids));
  for (; r->num_stop_ids < ids.count; r->num_stop_ids++) {
    r->stop_ids[r->num_stop_ids] = ids.ids[r->num_stop_ids];
  }
  return OT_OK;
}

// Chat says logprobs: true and top_logprobs: N, completions logprobs: N.
static ot_status read_logprobs(const json_t *root, bool chat, ot_completion_request *r) {
  int64_t count = -1;
  bool wanted = false;
  if (!chat) {
    OT_TRY(read_integer(root, "logprobs", 0, OT_MOST_TOP, &count));
  } else {
    OT_TRY(read_flag(root, "logprobs", &wanted));
    if (wanted) count = 0;
    if (wanted) OT_TRY(read_integer(root, "top_logprobs", 0, OT_MOST_TOP, &count));
  }
  r->logprobs = (int)count;
  return OT_OK;
}

static ot_status read_draw(const json_t *root, ot_draw *draw) {
  int64_t seed = 0;
  *draw = (ot_draw){.temperature = 1, .top_p = 1};
  OT_TRY(read_real(root, "temperature", 0, 100, &draw->temperature));
  OT_TRY(read_real(root, "top_p", 0, 1, &draw->top_p));
  OT_TRY(read_real(root, "min_p", 0, 1, &draw->min_p));
  OT_TRY(read_integer(root, "top_k", -1, INT32_MAX, &draw->top_k));
  OT_TRY(read_integer(root, "seed", INT64_MIN, INT64_MAX, &seed));
  if (draw->top_k < 0) draw->top_k = 0;
  draw->seed = (uint64_t)seed;
  return OT_OK;
}

// ---- what is not supported ----

// A value without effect; null never has one.
typedef enum neutral { EMPTY, ZERO, ONE, NONE } neutral;

typedef struct unsupported {
  const char *key;
  neutral value;
} unsupported;

// Keys of the OpenAI API and of other servers that change the text or add to the answer.
static const unsupported not_done[] = {
    {"add_generation_prompt", ONE},
    {"allowed_token_ids", EMPTY},
    {"audio", EMPTY},
    {"bad_words", EMPTY},
    {"chat_template", EMPTY},
    {"chat_template_kwargs", EMPTY},
    {"continue_final_message", EMPTY},
    {"documents", EMPTY},
    {"frequency_penalty", ZERO},
    {"function_call", NONE},
    {"functions", EMPTY},
    {"guided_choice", EMPTY},
    {"guided_grammar", EMPTY},
    {"guided_json", EMPTY},
    {"guided_regex", EMPTY},
    {"include_stop_str_in_output", EMPTY},
    {"logit_bias", EMPTY},
    {"min_tokens", ZERO},
    {"presence_penalty", ZERO},
    {"prompt_logprobs", EMPTY},
    {"reasoning_effort", NONE},
    {"repetition_penalty", ONE},
    {"return_token_ids", EMPTY},
    {"return_tokens_as_token_ids", EMPTY},
    {"structured_outputs", EMPTY},
    {"suffix", EMPTY},
    {"tool_choice", NONE},
    {"tools", EMPTY},
    {"truncate_prompt_tokens", EMPTY},
    {"typical_p", ONE},
    {"use_beam_search", EMPTY},
    {"web_search_options", EMPTY},
};

static bool has_no_effect(const unsupported *row, const json_t *value) {
  const char *const text = json_string_value(value);
  if (!value || json_is_null(value)) return true;
  switch (row->value) {
    case EMPTY:
      return is_empty(value);
    case ZERO:
      return json_is_number(value) && json_number_value(value) == 0;
    case ONE:
      return json_is_true(value) || (json_is_number(value) && json_number_value(value) == 1);
    case NONE:
      return ot_text_equal(text ? text : "", "none") || ot_text_equal(text ? text : "", "auto");
  }
  OT_UNREACHABLE();
}

// Texts are free of form, and the best of several is chosen by the client.
static ot_status check_form(const json_t *root, const ot_completion_request *r) {
  const json_t *const format = json_object_get(root, "response_format");
  const char *const type = json_string_value(json_object_get(format, "type"));
  OT_CHECK(!format || json_is_null(format) || ot_text_equal(type ? type : "", "text"), OT_USAGE,
           "response_format is not supported, except {\"type\": \"text\"}");
  int64_t best_of = r->n;
  OT_TRY(read_integer(root, "best_of", 1, OT_MOST_CHOICES, &best_of));
  OT_CHECK(best_of == r->n, OT_USAGE, "best_of is not supported, except with the value of n");
  return OT_OK;
}

static ot_status check_supported(const json_t *root) {
  for (int i = 0; i < OT_COUNT(not_done); i++) {
    const bool fine = has_no_effect(&not_done[i], json_object_get(root, not_done[i].key));
    OT_CHECK(fine, OT_USAGE, "%s is not supported: leave it out", not_done[i].key);
  }
  return OT_OK;
}

static ot_status read_object(const json_t *root, bool chat, ot_arena *arena,
                             ot_completion_request *r) {
  OT_CHECK(json_is_object(root), OT_USAGE, "the request is not a JSON object");
  *r = (ot_completion_request){.max_tokens = chat ? -1 : DEFAULT_TOKENS, .n = 1};
  OT_TRY(check_supported(root));
  OT_TRY(chat ? read_messages(arena, root, r) : read_prompts(arena, root, r));
  OT_TRY(read_integer(root, "max_tokens", 0, MOST_TOKENS, &r->max_tokens));
  if (chat) OT_TRY(read_integer(root, "max_completion_tokens", 0, MOST_TOKENS, &r->max_tokens));
  OT_TRY(read_integer(root, "n", 1, OT_MOST_CHOICES, &r->n));
  OT_CHECK(chat || r->n * r->num_prompts <= OT_MOST_CHOICES, OT_USAGE,
           "%d prompts of n=%lld choices, allowed: %d in all", r->num_prompts, (long long)r->n,
           OT_MOST_CHOICES);
  OT_TRY(check_form(root, r));
  OT_TRY(read_draw(root, &r->draw));
  OT_TRY(read_stops(arena, root, r));
  OT_TRY(read_stop_ids(arena, root, r));
  OT_TRY(read_flag(root, "ignore_eos", &r->ignore_eos));
  OT_TRY(read_logprobs(root, chat, r));
  if (!chat) OT_TRY(read_flag(root, "echo", &r->echo));
  OT_TRY(read_flag(root, "stream", &r->stream));
  OT_TRY(read_flag(json_object_get(root, "stream_options"), "include_usage", &r->include_usage));
  OT_CHECK(r->max_tokens != 0 || r->echo, OT_USAGE, "max_tokens 0 needs echo");
  return OT_OK;
}

ot_status ot_completion_request_read(const ot_request_body *body, ot_arena *arena,
                                     ot_completion_request *request) {
  json_t *root = NULL;
  if (ot_json_parse(where, body->text, body->length, &root) != OT_OK) return OT_USAGE;
  const ot_status status = read_object(root, body->chat, arena, request);
  json_decref(root);
  return status;
}

ot_status ot_tokenize_request_read(const ot_request_body *body, ot_arena *arena,
                                   ot_prompt_source *text) {
  json_t *root = NULL;
  if (ot_json_parse(where, body->text, body->length, &root) != OT_OK) return OT_USAGE;
  const json_t *prompt = json_object_get(root, "prompt");
  if (!prompt) prompt = json_object_get(root, "content");
  *text = (ot_prompt_source){0};
  if (json_is_string(prompt)) copy_text(arena, prompt, text);
  json_decref(root);
  return text->text ? OT_OK : ot_fail(OT_USAGE, "prompt is not a text");
}

ot_status ot_detokenize_request_read(const ot_request_body *body, ot_arena *arena,
                                     ot_prompt_source *ids) {
  json_t *root = NULL;
  if (ot_json_parse(where, body->text, body->length, &root) != OT_OK) return OT_USAGE;
  const json_t *const tokens = json_object_get(root, "tokens");
  *ids = (ot_prompt_source){0};
  const ot_status status = json_is_array(tokens) ? read_ids(arena, tokens, "tokens", ids)
                                                 : ot_fail(OT_USAGE, "tokens is not a list of ids");
  json_decref(root);
  return status;
}
