// SPDX-License-Identifier: Apache-2.0
// Escaping, and the few elements that the page repeats.
#include "report/markup.h"

#include <string.h>

static const char *escape_of(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    case '\'':
      return "&#39;";
    default:
      return ((unsigned char)c < 0x20 && c != '\n') || c == 0x7f ? " " : NULL;
  }
}

void ot_markup_text(ot_text_builder *out, const char *text) {
  for (const char *at = text; *at != '\0';) {
    int64_t plain = 0;
    while (at[plain] != '\0' && !escape_of(at[plain])) plain++;
    ot_text_append(out, at, plain);
    at += plain;
    if (*at != '\0') ot_text_put(out, escape_of(*at++));
  }
}

void ot_markup_element(ot_text_builder *out, const char *tag, const char *text) {
  ot_text_appendf(out, "<%s>", tag);
  ot_markup_text(out, text);
  ot_text_appendf(out, "</%.*s>", (int)strcspn(tag, " "), tag);
}

void ot_markup_pair(ot_text_builder *out, const char *name, const char *value) {
  ot_text_put(out, "<tr>");
  ot_markup_element(out, "th scope=\"row\"", name);
  ot_markup_element(out, "td", value);
  ot_text_put(out, "</tr>\n");
}

void ot_markup_list(ot_text_builder *out, const char *tag, const char *const *texts, int count) {
  ot_text_appendf(out, "<%s>\n", tag);
  for (int i = 0; i < count; i++) {
    ot_markup_element(out, "li", texts[i]);
    ot_text_put(out, "\n");
  }
  ot_text_appendf(out, "</%s>\n", tag);
}
