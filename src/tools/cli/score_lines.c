// SPDX-License-Identifier: Apache-2.0
// Reads line by line; a faulty line keeps its place.
#include "cli/score_lines.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/json_file.h"

typedef struct reading {
  const ot_score_source *source;
  ot_arena *arena;
  ot_score_lines *lines;
  int64_t capacity;
} reading;

static ot_status append_text(reading *s, int64_t line, const json_t *text, ot_score_line *to) {
  OT_CHECK(json_is_string(text), OT_USAGE, "%s:%ld: a text is not a string", s->source->path, line);
  OT_CHECK(s->source->encoder, OT_USAGE,
           "%s:%ld: text needs a tokenizer, and %s has none; use --tokenizer", s->source->path,
           line, s->source->model_path);
  const ot_status status = ot_encoder_encode(s->source->encoder, json_string_value(text),
                                             (int64_t)json_string_length(text), &to->tokens);
  return status == OT_OK ? OT_OK
                         : ot_fail(status, "%s:%ld: %s", s->source->path, line, ot_fail_message());
}

static ot_status append_ids(reading *s, int64_t line, const json_t *ids, ot_score_line *to) {
  OT_CHECK(json_is_array(ids), OT_USAGE, "%s:%ld: tokens is not a list", s->source->path, line);
  for (size_t i = 0; i < json_array_size(ids); i++) {
    const json_t *const id = json_array_get(ids, i);
    const json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
    OT_CHECK(value >= 0 && value < s->source->model->vocab_size, OT_USAGE,
             "%s:%ld: tokens[%d] is not an id from 0 to %ld", s->source->path, line, (int)i,
             s->source->model->vocab_size - 1);
    const int32_t token = (int32_t)value;
    OT_TRY(ot_token_list_append(&to->tokens, &token, 1));
  }
  return OT_OK;
}

static ot_status read_object(reading *s, int64_t line, const json_t *object, ot_score_line *to) {
  OT_CHECK(json_is_object(object), OT_USAGE, "%s:%ld: not a JSON object", s->source->path, line);
  const json_t *const text = json_object_get(object, "text");
  const json_t *const context = json_object_get(object, "context");
  const json_t *const continuation = json_object_get(object, "continuation");
  const json_t *const tokens = json_object_get(object, "tokens");
  to->first = 1;
  if (text) {
    OT_TRY(append_text(s, line, text, to));
  } else if (context && continuation) {
    OT_TRY(append_text(s, line, context, to));
    to->first = to->tokens.count > 0 ? to->tokens.count : 1;
    OT_TRY(append_text(s, line, continuation, to));
  } else if (tokens) {
    OT_TRY(append_ids(s, line, tokens, to));
  } else {
    return ot_fail(OT_USAGE,
                   "%s:%ld: needs \"text\", \"context\" and \"continuation\", or "
                   "\"tokens\"",
                   s->source->path, line);
  }
  const ot_model *const model = s->source->model;
  OT_CHECK(to->tokens.count > 0, OT_USAGE, "%s:%ld: no tokens to score", s->source->path, line);
  OT_CHECK(to->tokens.count <= model->max_positions, OT_USAGE,
           "%s:%ld: %ld tokens, the model has positions for %ld", s->source->path, line,
           to->tokens.count, model->max_positions);
  return OT_OK;
}

static ot_status read_item(reading *s, int64_t line, const char *text, int64_t length,
                           ot_score_line *to) {
  json_t *object = NULL;
  const char *const name = ot_arena_format(s->arena, "%s:%ld", s->source->path, line);
  OT_CHECK(strspn(text, " \t\r\n") < (size_t)length, OT_USAGE, "%s: the line is empty", name);
  OT_TRY(ot_json_parse(name, text, length, &object));
  const ot_status status = read_object(s, line, object, to);
  json_decref(object);
  return status;
}

// A faulty line gives an error in its place; the others are scored.
static void read_line(reading *s, int64_t line, const char *text, int64_t length) {
  ot_score_lines *const all = s->lines;
  all->line = ot_arena_grow(s->arena, all->line, all->count, &s->capacity, sizeof *all->line);
  ot_score_line *const to = &all->line[all->count++];
  *to = (ot_score_line){0};
  if (read_item(s, line, text, length, to) == OT_OK) return;
  ot_token_list_release(&to->tokens);
  to->error = ot_arena_format(s->arena, "%s", ot_fail_message());
}

ot_status ot_score_lines_read(const ot_score_source *source, ot_arena *arena,
                              ot_score_lines *lines) {
  *lines = (ot_score_lines){0};
  reading r = {.source = source, .arena = arena, .lines = lines};
  reading *const s = &r;
  FILE *const file = fopen(s->source->path, "r");
  OT_CHECK(file, OT_ENVIRONMENT, "cannot open %s: %s", s->source->path, strerror(errno));
  char *text = NULL;
  size_t capacity = 0;
  ssize_t length;
  for (int64_t line = 1; (length = getline(&text, &capacity, file)) >= 0; line++) {
    read_line(s, line, text, length);
  }
  const bool failed = ferror(file) != 0;
  const int error = errno;
  free(text);
  fclose(file);
  OT_CHECK(!failed, OT_ENVIRONMENT, "cannot read %s: %s", s->source->path, strerror(error));
  return OT_OK;
}

void ot_score_lines_release(ot_score_lines *lines) {
  for (int64_t i = 0; i < lines->count; i++) ot_token_list_release(&lines->line[i].tokens);
}
