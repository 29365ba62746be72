// SPDX-License-Identifier: Apache-2.0
// Messages of a chat as the text that a model was trained on. The templates that are shipped with
// models are programs (Jinja); the formats of the common families are few and known by name.
#pragma once

#include "serve/completion_request.h"
#include "tokenizer/special_tokens.h"

typedef struct ot_chat_template ot_chat_template;

// "chatml", "llama3", "gemma"; null if there is no such template.
const ot_chat_template *ot_chat_template_find(const char *name);

// Names in one text, "chatml, llama3, gemma".
extern const char ot_chat_template_names[];

// The template for the chats of a model: where the tokenizer's directory has a template whose text
// is known, that one; else the one whose marks are tokens of `tokenizer`; null: none. `note`, in
// `arena`: how it may differ from the text in the directory; null: it does not, or there is none.
const ot_chat_template *ot_chat_template_choose(const ot_tokenizer *tokenizer, ot_arena *arena,
                                                const char **note);

// The beginning of a chat in the template `chat`: the token of `special` that begins texts, or
// nothing. Without a configuration of the tokenizer the template's usual one, if it is a token.
const char *ot_chat_template_start(const ot_chat_template *chat, const ot_tokenizer *tokenizer,
                                   const ot_special_tokens *special, ot_arena *arena);

// Appends `start` and the text of `messages` [count] to `out`, up to where the assistant begins. No
// message is left out: OT_USAGE, for the client, if the template has no place for one.
ot_status ot_chat_template_render(const ot_chat_template *chat, const char *start,
                                  const ot_chat_message *messages, int count, ot_buffer *out);

// The text that ends the assistant's turn.
const char *ot_chat_template_end(const ot_chat_template *chat);
