// SPDX-License-Identifier: Apache-2.0
// Messages of a chat as the text that a model was trained on. The templates that are shipped with
// models are programs (Jinja); the formats of the common families are few and known by name.
#pragma once

#include "serve/completion_request.h"

typedef struct ot_chat_template ot_chat_template;

// "chatml", "llama3", "gemma"; null if there is no such template.
const ot_chat_template *ot_chat_template_find(const char *name);

// Names in one text, "chatml, llama3, gemma".
extern const char ot_chat_template_names[];

// The template whose marks are tokens of `tokenizer`, or null.
const ot_chat_template *ot_chat_template_guess(const ot_tokenizer *tokenizer);

// Appends the text of `messages` [count] to `out`, up to where the assistant begins.
ot_status ot_chat_template_render(const ot_chat_template *chat, const ot_chat_message *messages,
                                  int count, ot_buffer *out);

// What ends the assistant's turn.
const char *ot_chat_template_end(const ot_chat_template *chat);
