// SPDX-License-Identifier: Apache-2.0
// A template is what stands before and after the role and after the content.
#include "serve/chat_template.h"

#include <string.h>

#include "base/text.h"

struct ot_chat_template {
  const char *name;
  const char *start;      // of the whole text
  const char *before;     // a role
  const char *after;      // the role, before the content
  const char *end;        // after the content
  const char *separator;  // after that
  const char *assistant;  // name of that role
  bool trims;             // white space around the content is removed
  bool merges_system;     // a system message is the beginning of the next one
};

static const ot_chat_template templates[] = {
    {.name = "chatml",
     .start = "",
     .before = "<|im_start|>",
     .after = "\n",
     .end = "<|im_end|>",
     .separator = "\n",
     .assistant = "assistant"},
    {.name = "llama3",
     .start = "<|begin_of_text|>",
     .before = "<|start_header_id|>",
     .after = "<|end_header_id|>\n\n",
     .end = "<|eot_id|>",
     .separator = "",
     .assistant = "assistant",
     .trims = true},
    {.name = "gemma",
     .start = "<bos>",
     .before = "<start_of_turn>",
     .after = "\n",
     .end = "<end_of_turn>",
     .separator = "\n",
     .assistant = "model",
     .trims = true,
     .merges_system = true},
};

const char ot_chat_template_names[] = "chatml, llama3, gemma";

const ot_chat_template *ot_chat_template_find(const char *name) {
  for (int i = 0; i < OT_COUNT(templates); i++) {
    if (ot_text_equal(templates[i].name, name)) return &templates[i];
  }
  return NULL;
}

const ot_chat_template *ot_chat_template_guess(const ot_tokenizer *tokenizer) {
  for (int i = 0; i < OT_COUNT(templates); i++) {
    const bool begins = ot_tokenizer_find(tokenizer, templates[i].before) >= 0;
    if (begins && ot_tokenizer_find(tokenizer, templates[i].end) >= 0) return &templates[i];
  }
  return NULL;
}

static bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static ot_status append_content(const ot_chat_template *chat, const char *content, ot_buffer *out) {
  int64_t length = ot_text_length(content);
  while (chat->trims && length > 0 && is_blank(content[length - 1])) length--;
  while (chat->trims && length > 0 && is_blank(*content)) {
    content++;
    length--;
  }
  return ot_buffer_append(out, content, length);
}

static ot_status append_head(const ot_chat_template *chat, const char *role, ot_buffer *out) {
  OT_TRY(ot_buffer_append_text(out, chat->before));
  OT_TRY(ot_buffer_append_text(out, ot_text_equal(role, "assistant") ? chat->assistant : role));
  return ot_buffer_append_text(out, chat->after);
}

static bool is_merged(const ot_chat_template *chat, const ot_chat_message *message) {
  return chat->merges_system && ot_text_equal(message->role, "system");
}

static ot_status check_role(const char *role) {
  const bool known = ot_text_equal(role, "system") || ot_text_equal(role, "user") ||
                     ot_text_equal(role, "assistant") || ot_text_equal(role, "tool");
  OT_CHECK(known, OT_USAGE, "a message has the role %s (known: system, user, assistant, tool)",
           role);
  return OT_OK;
}

ot_status ot_chat_template_render(const ot_chat_template *chat, const ot_chat_message *messages,
                                  int count, ot_buffer *out) {
  OT_TRY(ot_buffer_append_text(out, chat->start));
  for (int i = 0; i < count; i++) {
    OT_TRY(check_role(messages[i].role));
    const bool merged = i > 0 && is_merged(chat, &messages[i - 1]);
    if (is_merged(chat, &messages[i]) && i + 1 < count) continue;
    OT_TRY(append_head(chat, messages[i].role, out));
    if (merged) {
      OT_TRY(append_content(chat, messages[i - 1].content, out));
      OT_TRY(ot_buffer_append_text(out, "\n\n"));
    }
    OT_TRY(append_content(chat, messages[i].content, out));
    OT_TRY(ot_buffer_append_text(out, chat->end));
    OT_TRY(ot_buffer_append_text(out, chat->separator));
  }
  return append_head(chat, "assistant", out);
}

const char *ot_chat_template_end(const ot_chat_template *chat) { return chat->end; }
