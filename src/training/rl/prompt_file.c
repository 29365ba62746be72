// SPDX-License-Identifier: Apache-2.0
#include "rl/prompt_file.h"

#include <string.h>

#include "base/extremes.h"
#include "base/rng.h"
#include "files/disk.h"
#include "files/json_file.h"

enum { MOST_BYTES = 1 << 30, PROMPT_STREAM = 0x70726f6d };

static const char *const keys[] = {"prompt", "answer", NULL};

static ot_bytes keep(const json_t *text, ot_arena *arena) {
  const int64_t bytes = text ? (int64_t)json_string_length(text) : 0;
  return (ot_bytes){ot_arena_text(arena, text ? json_string_value(text) : "", bytes), bytes};
}

static ot_status encode(ot_encoder *encoder, ot_bytes text, ot_arena *arena, const int32_t **tokens,
                        int64_t *count) {
  ot_token_list list = {0};
  const ot_status status = ot_encoder_encode(encoder, text.text, text.bytes, &list);
  if (status == OT_OK) {
    int32_t *const to = ot_arena_array(arena, list.count + 1, sizeof *to);
    if (list.count > 0) memcpy(to, list.ids, (size_t)list.count * sizeof *to);
    *tokens = to;
    *count = list.count;
  }
  ot_token_list_release(&list);
  return status;
}

static ot_status read_object(const char *where, const json_t *object, ot_encoder *encoder,
                             ot_arena *arena, ot_rl_prompt *to) {
  OT_CHECK(json_is_object(object), OT_USAGE, "%s: not a JSON object", where);
  OT_TRY(ot_json_check_keys(where, object, keys));
  const json_t *const prompt = json_object_get(object, "prompt");
  const json_t *const answer = json_object_get(object, "answer");
  OT_CHECK(json_is_string(prompt), OT_USAGE, "%s: needs the text \"prompt\"", where);
  OT_CHECK(!answer || json_is_string(answer), OT_USAGE, "%s: \"answer\" is not a text", where);
  to->text = keep(prompt, arena);
  to->answer = keep(answer, arena);
  ot_status status = encode(encoder, to->text, arena, &to->tokens, &to->num_tokens);
  if (status == OT_OK) {
    status = encode(encoder, to->answer, arena, &to->answer_tokens, &to->num_answer_tokens);
  }
  if (status != OT_OK) return ot_fail(status, "%s: %s", where, ot_fail_message());
  OT_CHECK(to->num_tokens > 0, OT_USAGE, "%s: the prompt is empty", where);
  return OT_OK;
}

typedef struct reading {
  const char *path;
  ot_encoder *encoder;
  ot_arena *arena;
  int64_t line, capacity;
} reading;

static ot_status read_line(reading *r, const char *text, int64_t bytes, ot_rl_prompts *out) {
  json_t *object = NULL;
  const char *const where = ot_arena_format(r->arena, "%s:%lld", r->path, (long long)r->line);
  OT_TRY(ot_json_parse(where, text, bytes, &object));
  out->prompt = ot_arena_grow(r->arena, out->prompt, out->count, &r->capacity, sizeof *out->prompt);
  ot_rl_prompt *const to = &out->prompt[out->count++];
  *to = (ot_rl_prompt){0};
  const ot_status status = read_object(where, object, r->encoder, r->arena, to);
  json_decref(object);
  out->longest = ot_larger_whole(out->longest, to->num_tokens);
  out->longest_answer = ot_larger_whole(out->longest_answer, to->num_answer_tokens);
  return status;
}

ot_status ot_rl_prompts_read(const char *path, ot_encoder *encoder, ot_arena *arena,
                             ot_rl_prompts *out) {
  *out = (ot_rl_prompts){0};
  reading r = {.path = path, .encoder = encoder, .arena = arena};
  char *text = NULL;
  int64_t bytes = 0;
  OT_TRY(ot_disk_read(arena, path, MOST_BYTES, &text, &bytes));
  for (int64_t at = 0; at < bytes;) {
    const char *const end = memchr(text + at, '\n', (size_t)(bytes - at));
    const int64_t length = end ? end - (text + at) : bytes - at;
    r.line++;
    if ((int64_t)strspn(text + at, " \t\r") < length) OT_TRY(read_line(&r, text + at, length, out));
    at += length + 1;
  }
  OT_CHECK(out->count > 0, OT_USAGE, "%s has no prompt", path);
  return OT_OK;
}

const ot_rl_prompt *ot_rl_prompt_of_group(const ot_rl_prompts *prompts, uint64_t seed,
                                          int64_t group) {
  const uint64_t n = (uint64_t)prompts->count, pass = (uint64_t)group / n;
  return &prompts->prompt[ot_rng_permute(seed, PROMPT_STREAM + pass, (uint64_t)group % n, n)];
}
