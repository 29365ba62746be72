// SPDX-License-Identifier: Apache-2.0
// The body of a request for completions, chat or tokens, as the OpenAI API writes it, read into
// plain values. Everything comes from strangers: sizes, counts and ranges are limited, whatever the
// sender says. Keys that would change the text and are not supported are refused; keys that are not
// known are ignored, as clients expect.
#pragma once

#include "base/arena.h"
#include "runtime/draw.h"
#include "tokenizer/text_stream.h"

enum { OT_MOST_CHOICES = 256, OT_MOST_MESSAGES = 1024, OT_MOST_STOP_IDS = 16 };

// The body of a request; any bytes.
typedef struct ot_request_body {
  const char *text;  // [length]
  int64_t length;
  bool chat;    // for /v1/chat/completions, not /v1/completions
  bool lesson;  // for /v1/teacher/targets
} ot_request_body;

// A prompt: text, or ids.
typedef struct ot_prompt_source {
  const char *text;  // [length], or null
  int64_t length;
  const int32_t *ids;  // [count]
  int64_t count;
} ot_prompt_source;

typedef struct ot_chat_message {
  const char *role, *content;  // UTF-8
} ot_chat_message;

typedef struct ot_completion_request {
  int num_prompts;
  ot_prompt_source *prompts;  // [num_prompts] of completions
  int num_messages;
  ot_chat_message *messages;  // [num_messages] of chat
  int64_t max_tokens;         // -1: not given
  int64_t n;                  // choices for each prompt; at most OT_MOST_CHOICES of all prompts
  ot_draw draw;
  int num_stops;
  ot_stop_text stops[OT_MOST_STOPS];
  int num_stop_ids;
  int32_t stop_ids[OT_MOST_STOP_IDS];  // tokens that end a text, next to those of the model
  bool ignore_eos;                     // those of the model do not
  bool echo, stream, include_usage;
  int logprobs;  // -1: none wanted; else how many of the most probable tokens
} ot_completion_request;

// Reads the body of a request for completions. Texts live in `arena`.
// OT_USAGE with a message for the sender.
ot_status ot_completion_request_read(const ot_request_body *body, ot_arena *arena,
                                     ot_completion_request *request);

// The text of {"prompt": TEXT} (or "content"), the body of /tokenize.
ot_status ot_tokenize_request_read(const ot_request_body *body, ot_arena *arena,
                                   ot_prompt_source *text);

// The ids of {"tokens": [ID...]}, the body of /detokenize.
ot_status ot_detokenize_request_read(const ot_request_body *body, ot_arena *arena,
                                     ot_prompt_source *ids);
