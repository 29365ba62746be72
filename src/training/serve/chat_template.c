// SPDX-License-Identifier: Apache-2.0
// A template is what stands before and after the role and after the content. Texts of templates
// that render chats the same way are known by their hash.
#include "serve/chat_template.h"

#include <string.h>

#include "base/text.h"
#include "base/text_builder.h"
#include "tokenizer/unicode.h"

struct ot_chat_template {
  const char *name;
  const char *start;      // of the whole text: the usual token that begins texts, or ""
  const char *before;     // a role
  const char *after;      // the role, before the content
  const char *end;        // after the content
  const char *separator;  // after that
  const char *assistant;  // name of that role
  bool trims;             // white space around the content is removed
  bool merges_system;     // system messages are the beginning of the next message, of a user
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

static const ot_chat_template *guess(const ot_tokenizer *tokenizer) {
  for (int i = 0; i < OT_COUNT(templates); i++) {
    const bool begins = ot_tokenizer_find(tokenizer, templates[i].before) >= 0;
    if (begins && ot_tokenizer_find(tokenizer, templates[i].end) >= 0) return &templates[i];
  }
  return NULL;
}

// ---- templates in files ----

typedef struct known_text {
  uint64_t hash;  // of the text as `hash_text` reads it
  const char *name;
} known_text;

// Published texts that render chats as the template NAME does, if both accept them and the
// system messages come first: those of OpenHermes and many others, with and without a default of
// add_generation_prompt; Llama 3; Gemma 1 and 2; Gemma 3.
static const known_text known_texts[] = {
    {0x88bf4138d5c826f0u, "chatml"}, {0x773d13e188afc917u, "chatml"},
    {0x0e60067a5537498eu, "llama3"}, {0x5c10ee65212d93b3u, "gemma"},
    {0xd19b6ff3a49deea5u, "gemma"},
};

static bool is_line_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// The hash of a template's text without space around it; line breaks may be written as \n in it.
static uint64_t hash_text(const char *text) {
  int64_t from = 0, to = ot_text_length(text);
  uint64_t hash = OT_HASH_START;
  while (from < to && is_line_space(text[from])) from++;
  while (from < to && is_line_space(text[to - 1])) to--;
  for (int64_t i = from; i < to; i++) {
    const bool escaped = text[i] == '\\' && i + 1 < to && text[i + 1] == 'n';
    const bool ends_in_two = text[i] == '\r' && i + 1 < to && text[i + 1] == '\n';
    i += escaped || ends_in_two;
    hash = ot_hash_bytes(hash, escaped ? "\n" : text + i, 1);
  }
  return hash;
}

static const ot_chat_template *find_known(const char *text) {
  const uint64_t hash = hash_text(text);
  for (int i = 0; i < OT_COUNT(known_texts); i++) {
    if (known_texts[i].hash == hash) return ot_chat_template_find(known_texts[i].name);
  }
  return NULL;
}

// Features of a template that no built-in one has, by the words in its text.
static const char *describe_text(const char *text, ot_arena *arena) {
  static const struct {
    const char *word, *what;
  } signs[] = {{"You are", "a default system message"},
               {"strftime_now", "the date"},
               {"Today", "the date"},
               {"tools", "descriptions of tools"},
               {"think", "marks of thinking"}};
  ot_text_builder made = {.arena = arena};
  const char *last = "";
  for (int i = 0; i < OT_COUNT(signs); i++) {
    if (!strstr(text, signs[i].word) || ot_text_equal(signs[i].what, last)) continue;
    ot_text_appendf(&made, "%s%s", last[0] ? ", " : " (it seems to write ", signs[i].what);
    last = signs[i].what;
  }
  if (last[0]) ot_text_appendf(&made, ")");
  return ot_text_builder_text(&made);
}

const ot_chat_template *ot_chat_template_choose(const ot_tokenizer *tokenizer, ot_arena *arena,
                                                const char **note) {
  const char *const text = ot_tokenizer_chat_template(tokenizer);
  const ot_chat_template *const known = text ? find_known(text) : NULL;
  *note = NULL;
  if (known) return known;
  const ot_chat_template *const chat = guess(tokenizer);
  if (!text) return chat;
  const char *const why = describe_text(text, arena);
  if (chat) {
    *note = ot_arena_format(arena,
                            "the chat template next to the tokenizer is a program, which is not "
                            "run: chats use the built-in %s, which writes the messages and nothing "
                            "else; the file may write more%s; --chat-template %s accepts this",
                            chat->name, why, chat->name);
  } else {
    *note = ot_arena_format(arena,
                            "the chat template next to the tokenizer is none of the built-in ones "
                            "(%s), so chats are refused; --chat-template NAME chooses one",
                            ot_chat_template_names);
  }
  return chat;
}

const char *ot_chat_template_start(const ot_chat_template *chat, const ot_tokenizer *tokenizer,
                                   const ot_special_tokens *special, ot_arena *arena) {
  int64_t length = 0;
  if (chat->start[0] == '\0') return "";
  if (special->bos >= 0) {
    const uint8_t *const bytes = ot_tokenizer_bytes(tokenizer, special->bos, &length);
    return ot_arena_text(arena, (const char *)bytes, length);
  }
  const bool stated = ot_tokenizer_files(tokenizer)[OT_TOKENIZER_CONFIG].text != NULL;
  return !stated && ot_tokenizer_find(tokenizer, chat->start) >= 0 ? chat->start : "";
}

// ---- rendering ----

// Without white space around it, as Jinja's trim leaves it.
static ot_status append_trimmed(const char *content, ot_buffer *out) {
  const uint8_t *text = (const uint8_t *)content;
  int64_t length = ot_text_length(content);
  int width;
  while (length > 0 && ot_unicode_is_white(ot_unicode_last(text, length, &width))) length -= width;
  while (length > 0 && ot_unicode_is_white(ot_unicode_first(text, length, &width))) {
    text += width;
    length -= width;
  }
  return ot_buffer_append(out, text, length);
}

static ot_status append_content(const ot_chat_template *chat, const char *content, ot_buffer *out) {
  return chat->trims ? append_trimmed(content, out) : ot_buffer_append_text(out, content);
}

static ot_status append_head(const ot_chat_template *chat, const char *role, ot_buffer *out) {
  OT_TRY(ot_buffer_append_text(out, chat->before));
  OT_TRY(ot_buffer_append_text(out, ot_text_equal(role, "assistant") ? chat->assistant : role));
  return ot_buffer_append_text(out, chat->after);
}

static bool has_role(const ot_chat_message *message, const char *role) {
  return ot_text_equal(message->role, role);
}

static ot_status check_message(const ot_chat_template *chat, const ot_chat_message *message,
                               const ot_chat_message *next) {
  const bool tool = has_role(message, "tool"), system = has_role(message, "system");
  const bool known = system || tool || has_role(message, "user") || has_role(message, "assistant");
  OT_CHECK(known, OT_USAGE, "a message has the role %s (known: system, user, assistant, tool)",
           message->role);
  if (!chat->merges_system) return OT_OK;
  OT_CHECK(!tool, OT_USAGE, "the template %s has no messages of the role tool", chat->name);
  const bool fits = !system || (next && (has_role(next, "user") || has_role(next, "system")));
  OT_CHECK(fits, OT_USAGE,
           "the template %s has no turn of the system: a system message comes before one of a user",
           chat->name);
  return OT_OK;
}

ot_status ot_chat_template_render(const ot_chat_template *chat, const char *start,
                                  const ot_chat_message *messages, int count, ot_buffer *out) {
  bool headed = false;  // by system messages that the next message follows
  OT_TRY(ot_buffer_append_text(out, start));
  for (int i = 0; i < count; i++) {
    const ot_chat_message *const message = &messages[i];
    const bool merges = chat->merges_system && has_role(message, "system");
    OT_TRY(check_message(chat, message, i + 1 < count ? message + 1 : NULL));
    if (!headed) OT_TRY(append_head(chat, merges ? "user" : message->role, out));
    headed = merges;
    if (merges) {
      OT_TRY(ot_buffer_append_text(out, message->content));
      OT_TRY(ot_buffer_append_text(out, "\n\n"));
      continue;
    }
    OT_TRY(append_content(chat, message->content, out));
    OT_TRY(ot_buffer_append_text(out, chat->end));
    OT_TRY(ot_buffer_append_text(out, chat->separator));
  }
  return append_head(chat, "assistant", out);
}

const char *ot_chat_template_end(const ot_chat_template *chat) { return chat->end; }
