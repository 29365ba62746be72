// SPDX-License-Identifier: Apache-2.0
// A line has one of the forms of a table, by its first known key.
#include "judge/logprobs_read.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "files/disk.h"
#include "files/json_file.h"

enum {
  MOST_BYTES = 1 << 30,   // of a file
  MOST_TOKENS = 1 << 22,  // of a file
  MOST_LINE = 1 << 26,    // bytes
  MOST_LISTS = 1 << 20,   // of a line
  MOST_TOP = 64,          // of a token; further ones are left out
};

// Servers write this in place of infinity, which JSON lacks (vLLM: -9999).
static const double least_logprob = -9998;
static const double most_logprob = 0.01;  // rounding of a softmax

typedef struct reading {
  ot_arena *arena;
  ot_logprob_file *file;
  int64_t capacity;
  const char *line;  // its name
  // The sequence that is read.
  ot_logprob_sequence *sequence;
  int64_t tokens_capacity;
} reading;

// ---- tokens ----

static ot_status read_logprob(const reading *r, const json_t *value, double *out) {
  *out = NAN;
  if (!value || json_is_null(value)) return OT_OK;
  const double number = json_is_number(value) ? json_number_value(value) : INFINITY;
  if (!(number <= most_logprob)) {
    ot_fail(OT_USAGE, "%s: token %lld has %s; allowed: numbers up to 0, null", r->line,
            (long long)r->sequence->count,
            json_is_number(value) ? ot_arena_format(r->arena, "log-probability %g", number)
                                  : "a log-probability that is no number");
    return ot_fail_hint(OT_USAGE, "log-probabilities are natural logarithms of probabilities");
  }
  *out = number < least_logprob ? -INFINITY : number;
  return OT_OK;
}

static ot_status read_id(const reading *r, const json_t *value, int32_t *out) {
  const json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
  OT_CHECK(id >= 0 && id <= INT32_MAX, OT_USAGE, "%s: token %lld has no id from 0 to %d", r->line,
           (long long)r->sequence->count, INT32_MAX);
  *out = (int32_t)id;
  return OT_OK;
}

// "token_id:345" is an id (vLLM, Orthant).
static int32_t id_in_text(const char *text) {
  static const char prefix[] = "token_id:";
  if (!ot_text_starts_with(text, prefix)) return -1;
  char *end;
  const long id = strtol(text + sizeof prefix - 1, &end, 10);
  return *end == '\0' && id >= 0 && id <= INT32_MAX ? (int32_t)id : -1;
}

static void name_token(const reading *r, const json_t *text, int32_t *id, const char **out) {
  if (!json_is_string(text)) return;
  const int32_t written = id_in_text(json_string_value(text));
  if (*id < 0) *id = written;
  if (written >= 0) return;
  *out = ot_arena_text(r->arena, json_string_value(text), (int64_t)json_string_length(text));
}

static ot_status add_token(reading *r, ot_logprob_token token) {
  ot_logprob_sequence *const s = r->sequence;
  OT_CHECK(r->file->num_tokens < MOST_TOKENS, OT_USAGE, "%s: more than %d tokens in the file",
           r->line, MOST_TOKENS);
  s->tokens = ot_arena_grow(r->arena, s->tokens, s->count, &r->tokens_capacity, sizeof *s->tokens);
  s->tokens[s->count++] = token;
  r->file->num_tokens++;
  return OT_OK;
}

static ot_status check_list(const reading *r, const json_t *list, const char *key) {
  OT_CHECK(json_is_array(list), OT_USAGE, "%s: %s is not a list", r->line, key);
  return OT_OK;
}

// Lists that have an entry for each token.
static ot_status check_lengths(const reading *r, const json_t *a, const char *a_key,
                               const json_t *b, const char *b_key) {
  OT_TRY(check_list(r, a, a_key));
  OT_TRY(check_list(r, b, b_key));
  OT_CHECK(json_array_size(a) == json_array_size(b), OT_USAGE,
           "%s: %s has %lld entries, %s has %lld; allowed: one for each token", r->line, a_key,
           (long long)json_array_size(a), b_key, (long long)json_array_size(b));
  return OT_OK;
}

// Tokens without log-probabilities.
static ot_status add_ids(reading *r, const json_t *ids, const char *key) {
  if (!ids || json_is_null(ids)) return OT_OK;
  OT_TRY(check_list(r, ids, key));
  for (size_t i = 0; i < json_array_size(ids); i++) {
    ot_logprob_token token = {.logprob = NAN};
    OT_TRY(read_id(r, json_array_get(ids, i), &token.id));
    OT_TRY(add_token(r, token));
  }
  return OT_OK;
}

// Gives the last tokens of the sequence their ids, where the list has all of them.
static ot_status name_last(const reading *r, const json_t *ids, int64_t first) {
  const int64_t count = r->sequence->count - first;
  if (!json_is_array(ids) || (int64_t)json_array_size(ids) != count) return OT_OK;
  for (int64_t i = 0; i < count; i++)
    OT_TRY(read_id(r, json_array_get(ids, (size_t)i), &r->sequence->tokens[first + i].id));
  return OT_OK;
}

// ---- the most probable tokens ----

static ot_logprob_top *make_top(const reading *r, size_t count) {
  const int64_t most = count < MOST_TOP ? (int64_t)count : MOST_TOP;
  return ot_arena_array(r->arena, most + 1, sizeof(ot_logprob_top));
}

typedef ot_status read_member(const reading *r, const char *key, const json_t *value,
                              ot_logprob_top *to);

// The members of an object, in their order.
static ot_status read_top_map(const reading *r, const json_t *map, read_member *read,
                              ot_logprob_token *token) {
  ot_logprob_top *const top = make_top(r, json_object_size(map));
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)map, key, value) {
    if (token->num_top == MOST_TOP) break;
    OT_TRY(read(r, key, value, &top[token->num_top++]));
  }
  token->top = top;
  return OT_OK;
}

// "text": logprob
static ot_status read_text_member(const reading *r, const char *key, const json_t *value,
                                  ot_logprob_top *to) {
  *to = (ot_logprob_top){.id = id_in_text(key)};
  if (to->id < 0) to->text = ot_arena_format(r->arena, "%s", key);
  return read_logprob(r, value, &to->logprob);
}

static ot_status read_top_texts(const reading *r, const json_t *map, ot_logprob_token *token) {
  return json_is_object(map) ? read_top_map(r, map, read_text_member, token) : OT_OK;
}

// [logprob, id, text] of SGLang
static ot_status read_triple(const reading *r, const json_t *triple, ot_logprob_top *to) {
  *to = (ot_logprob_top){.id = -1};
  OT_CHECK(json_is_array(triple) && json_array_size(triple) >= 2, OT_USAGE,
           "%s: token %lld is not [logprob, id, text]", r->line, (long long)r->sequence->count);
  OT_TRY(read_logprob(r, json_array_get(triple, 0), &to->logprob));
  OT_TRY(read_id(r, json_array_get(triple, 1), &to->id));
  name_token(r, json_array_get(triple, 2), &to->id, &to->text);
  return OT_OK;
}

// {"token", "logprob", "id"} of OpenAI's chats and of llama.cpp
static ot_status read_entry(const reading *r, const json_t *entry, ot_logprob_top *to) {
  const json_t *const id = json_object_get(entry, "id");
  *to = (ot_logprob_top){.id = -1};
  OT_CHECK(json_is_object(entry), OT_USAGE, "%s: token %lld is not an object", r->line,
           (long long)r->sequence->count);
  OT_TRY(read_logprob(r, json_object_get(entry, "logprob"), &to->logprob));
  if (json_is_integer(id)) OT_TRY(read_id(r, id, &to->id));
  name_token(r, json_object_get(entry, "token"), &to->id, &to->text);
  return OT_OK;
}

typedef ot_status read_one(const reading *r, const json_t *value, ot_logprob_top *to);

static ot_status read_top_list(const reading *r, const json_t *list, read_one *read,
                               ot_logprob_token *token) {
  if (!json_is_array(list)) return OT_OK;
  ot_logprob_top *const top = make_top(r, json_array_size(list));
  for (size_t i = 0; i < json_array_size(list) && token->num_top < MOST_TOP; i++)
    OT_TRY(read(r, json_array_get(list, i), &top[token->num_top++]));
  token->top = top;
  return OT_OK;
}

// ---- lists of tokens ----

// [{"token", "logprob", "top_logprobs"}]
static ot_status add_entries(reading *r, const json_t *list, const char *key) {
  OT_TRY(check_list(r, list, key));
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *const entry = json_array_get(list, i);
    ot_logprob_top own;
    OT_TRY(read_entry(r, entry, &own));
    ot_logprob_token token = {.id = own.id, .text = own.text, .logprob = own.logprob};
    OT_TRY(read_top_list(r, json_object_get(entry, "top_logprobs"), read_entry, &token));
    OT_TRY(add_token(r, token));
  }
  return OT_OK;
}

// [[logprob, id, text]] with [[[logprob, id, text]]]
static ot_status add_triples(reading *r, const json_t *list, const json_t *tops, const char *key) {
  if (!list || json_is_null(list)) return OT_OK;
  OT_TRY(check_list(r, list, key));
  for (size_t i = 0; i < json_array_size(list); i++) {
    ot_logprob_top own;
    OT_TRY(read_triple(r, json_array_get(list, i), &own));
    ot_logprob_token token = {.id = own.id, .text = own.text, .logprob = own.logprob};
    OT_TRY(read_top_list(r, json_array_get(tops, i), read_triple, &token));
    OT_TRY(add_token(r, token));
  }
  return OT_OK;
}

// {"tokens", "token_logprobs", "top_logprobs"} of OpenAI's completions
static ot_status add_texts(reading *r, const json_t *logprobs) {
  const json_t *const texts = json_object_get(logprobs, "tokens");
  const json_t *const values = json_object_get(logprobs, "token_logprobs");
  const json_t *const tops = json_object_get(logprobs, "top_logprobs");
  OT_TRY(check_lengths(r, texts, "tokens", values, "token_logprobs"));
  for (size_t i = 0; i < json_array_size(texts); i++) {
    ot_logprob_token token = {.id = -1};
    name_token(r, json_array_get(texts, i), &token.id, &token.text);
    OT_TRY(read_logprob(r, json_array_get(values, i), &token.logprob));
    OT_TRY(read_top_texts(r, json_array_get(tops, i), &token));
    OT_TRY(add_token(r, token));
  }
  return OT_OK;
}

// "ID": {"logprob", "decoded_token"}
static ot_status read_id_member(const reading *r, const char *key, const json_t *value,
                                ot_logprob_top *to) {
  OT_TRY(read_entry(r, value, to));
  to->id = id_in_text(ot_arena_format(r->arena, "token_id:%s", key));
  OT_CHECK(to->id >= 0, OT_USAGE, "%s: prompt_logprobs: \"%s\" is not an id", r->line, key);
  name_token(r, json_object_get(value, "decoded_token"), &to->id, &to->text);
  return OT_OK;
}

// An entry of vLLM's prompt_logprobs, an object of such members: the token of the prompt
// comes first, the most probable ones after it.
static ot_status read_prompt_entry(const reading *r, const json_t *map, ot_logprob_token *token) {
  if (json_object_size(map) == 0) return OT_OK;
  OT_TRY(read_top_map(r, map, read_id_member, token));
  token->id = token->top[0].id;
  token->text = token->top[0].text;
  token->logprob = token->top[0].logprob;
  return OT_OK;
}

static ot_status add_prompt(reading *r, const json_t *list) {
  OT_TRY(check_list(r, list, "prompt_logprobs"));
  for (size_t i = 0; i < json_array_size(list); i++) {
    ot_logprob_token token = {.id = -1, .logprob = NAN};
    OT_TRY(read_prompt_entry(r, json_array_get(list, i), &token));
    OT_TRY(add_token(r, token));
  }
  return OT_OK;
}

// ---- forms of lines ----

static ot_status begin_sequence(reading *r, const json_t *line, const char *part) {
  ot_logprob_file *const f = r->file;
  const json_t *const id = json_object_get(line, "custom_id") ? json_object_get(line, "custom_id")
                                                              : json_object_get(line, "id");
  f->sequences =
      ot_arena_grow(r->arena, f->sequences, f->count, &r->capacity, sizeof *f->sequences);
  r->sequence = &f->sequences[f->count++];
  r->tokens_capacity = 0;
  *r->sequence = (ot_logprob_sequence){.name = ot_arena_format(r->arena, "%s%s", r->line, part)};
  if (json_is_string(id))
    r->sequence->id = ot_arena_format(r->arena, "%s%s", json_string_value(id), part);
  if (json_is_integer(id))
    r->sequence->id = ot_arena_format(r->arena, "%lld%s", (long long)json_integer_value(id), part);
  return OT_OK;
}

// {"tokens", "logprobs", "context_tokens"} of `orthant score` and of trainers
static ot_status read_scores(reading *r, const json_t *line, const json_t *values) {
  const json_t *const tokens = json_object_get(line, "tokens");
  OT_TRY(begin_sequence(r, line, ""));
  OT_TRY(check_lengths(r, tokens, "tokens", values, "logprobs"));
  OT_TRY(add_ids(r, json_object_get(line, "context_tokens"), "context_tokens"));
  for (size_t i = 0; i < json_array_size(tokens); i++) {
    ot_logprob_token token = {.id = -1};
    const json_t *const name = json_array_get(tokens, i);
    if (!json_is_string(name)) OT_TRY(read_id(r, name, &token.id));
    name_token(r, name, &token.id, &token.text);
    OT_TRY(read_logprob(r, json_array_get(values, i), &token.logprob));
    OT_TRY(add_token(r, token));
  }
  return OT_OK;
}

static const json_t *of_either(const json_t *choice, const json_t *answer, const char *key) {
  const json_t *const own = json_object_get(choice, key);
  const json_t *const found = own && !json_is_null(own) ? own : json_object_get(answer, key);
  return found && !json_is_null(found) ? found : NULL;
}

// True if the completion repeats its prompt: then its first token, which follows nothing, has no
// log-probability.
static bool echoes(const json_t *logprobs) {
  const json_t *const values = json_object_get(logprobs, "token_logprobs");
  return json_array_size(values) > 0 && json_is_null(json_array_get(values, 0));
}

static ot_status read_choice(reading *r, const json_t *answer, const json_t *choice) {
  const json_t *const logprobs = json_object_get(choice, "logprobs");
  const json_t *const prompt = of_either(choice, answer, "prompt_logprobs");
  const json_t *const prompt_ids = of_either(choice, answer, "prompt_token_ids");
  const bool chat = json_object_get(logprobs, "content") != NULL;
  const bool whole = echoes(logprobs);
  OT_CHECK(json_is_object(logprobs) || prompt, OT_USAGE,
           "%s: there are no logprobs; ask the server for them", r->sequence->name);
  if (prompt && !whole) OT_TRY(add_prompt(r, prompt));
  if (prompt && !whole) OT_TRY(name_last(r, prompt_ids, 0));
  if (!prompt && !whole) OT_TRY(add_ids(r, prompt_ids, "prompt_token_ids"));
  const int64_t first = whole ? (int64_t)json_array_size(prompt_ids) : r->sequence->count;
  if (!json_is_object(logprobs)) return OT_OK;
  OT_TRY(chat ? add_entries(r, json_object_get(logprobs, "content"), "content")
              : add_texts(r, logprobs));
  for (int64_t i = 0; whole && i < first && i < r->sequence->count; i++)
    OT_TRY(read_id(r, json_array_get(prompt_ids, (size_t)i), &r->sequence->tokens[i].id));
  return name_last(r, json_object_get(choice, "token_ids"), first);
}

static ot_status read_answer(reading *r, const json_t *line, const json_t *choices) {
  OT_TRY(check_list(r, choices, "choices"));
  const size_t count = json_array_size(choices);
  for (size_t i = 0; i < count; i++) {
    const char *const part = count > 1 ? ot_arena_format(r->arena, " choice %d", (int)i) : "";
    OT_TRY(begin_sequence(r, line, part));
    OT_TRY(read_choice(r, line, json_array_get(choices, i)));
  }
  return OT_OK;
}

static ot_status read_sglang(reading *r, const json_t *line, const json_t *meta) {
  OT_TRY(begin_sequence(r, line, ""));
  OT_TRY(add_triples(r, json_object_get(meta, "input_token_logprobs"),
                     json_object_get(meta, "input_top_logprobs"), "input_token_logprobs"));
  return add_triples(r, json_object_get(meta, "output_token_logprobs"),
                     json_object_get(meta, "output_top_logprobs"), "output_token_logprobs");
}

static ot_status read_llama(reading *r, const json_t *line, const json_t *list) {
  OT_TRY(begin_sequence(r, line, ""));
  return add_entries(r, list, "completion_probabilities");
}

// A line that the software could not score keeps its place.
static ot_status read_error(reading *r, const json_t *line, const json_t *error) {
  (void)error;
  return begin_sequence(r, line, "");
}

static const struct {
  const char *key;
  ot_status (*read)(reading *r, const json_t *line, const json_t *value);
} forms[] = {
    {"choices", read_answer},  {"meta_info", read_sglang}, {"completion_probabilities", read_llama},
    {"logprobs", read_scores}, {"error", read_error},
};

static ot_status read_object(reading *r, const json_t *line) {
  // Batches of OpenAI: {"custom_id", "response": {"body": answer}}
  const json_t *const body = json_object_get(json_object_get(line, "response"), "body");
  const json_t *const from = body ? body : line;
  for (int i = 0; i < OT_COUNT(forms); i++) {
    const json_t *const value = json_object_get(from, forms[i].key);
    if (!value || json_is_null(value)) continue;
    OT_TRY(forms[i].read(r, from, value));
    const json_t *const id = json_object_get(line, "custom_id");
    if (body && json_is_string(id) && r->sequence)
      r->sequence->id = ot_arena_format(r->arena, "%s", json_string_value(id));
    return OT_OK;
  }
  ot_fail(OT_USAGE, "%s: there are no log-probabilities", r->line);
  return ot_fail_hint(OT_USAGE,
                      "lines are those of `orthant score`, {\"tokens\", \"logprobs\"}, or answers "
                      "of a server that was asked for logprobs");
}

static bool is_blank(const char *text, int64_t length) {
  for (int64_t i = 0; i < length; i++) {
    if (!ot_is_space(text[i])) return false;
  }
  return true;
}

static ot_status read_line(reading *r, const char *text, int64_t length) {
  json_t *object = NULL;
  r->sequence = NULL;
  OT_CHECK(length <= MOST_LINE, OT_USAGE, "%s: the line has more than %d bytes", r->line,
           MOST_LINE);
  if (is_blank(text, length)) return OT_OK;
  OT_TRY(ot_json_check_lists(r->line, text, length, MOST_LISTS));
  OT_TRY(ot_json_parse(r->line, text, length, &object));
  const ot_status status = read_object(r, object);
  json_decref(object);
  return status;
}

ot_status ot_logprob_file_read(const char *path, ot_arena *arena, ot_logprob_file *out) {
  char *text = NULL;
  int64_t bytes = 0, number = 1;
  *out = (ot_logprob_file){.path = path};
  reading r = {.arena = arena, .file = out};
  OT_TRY(ot_disk_read(arena, path, MOST_BYTES, &text, &bytes));
  for (int64_t at = 0; at < bytes; number++) {
    const char *const end = memchr(text + at, '\n', (size_t)(bytes - at));
    const int64_t length = end ? end - text - at : bytes - at;
    r.line = ot_arena_format(arena, "%s:%lld", path, (long long)number);
    OT_TRY(read_line(&r, text + at, length));
    at += length + 1;
  }
  OT_CHECK(out->num_tokens > 0, OT_USAGE, "%s: there are no log-probabilities", path);
  return OT_OK;
}

// ---- tokens of two files ----

bool ot_logprob_same(const ot_logprob_top *a, const ot_logprob_top *b, bool *known) {
  *known = true;
  if (a->id >= 0 && b->id >= 0) return a->id == b->id;
  if (a->text && b->text) return ot_text_equal(a->text, b->text);
  *known = false;
  return false;
}

const char *ot_logprob_words(const ot_logprob_token *t, ot_arena *arena) {
  return t->id >= 0 ? ot_arena_format(arena, "%d", t->id)
                    : ot_arena_format(arena, "'%s'", t->text ? t->text : "");
}
