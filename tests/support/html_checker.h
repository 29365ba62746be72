// SPDX-License-Identifier: Apache-2.0
// An independent checker of pages: tags nest, attributes are quoted, all text is escaped, nothing
// comes from elsewhere.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "base/text.h"

enum { DEEPEST = 32, TAG_BYTES = 16 };

typedef struct checker {
  const char *at;
  char open[DEEPEST][TAG_BYTES];
  int depth;
} checker;

// One attribute: space, name, =, quoted value without <.
static inline void check_attribute(checker *c) {
  c->at += strspn(c->at, " \n");
  const size_t name = strspn(c->at, "abcdefghijklmnopqrstuvwxyz-0123456789VB");
  if (name == 0 || c->at[name] != '=' || c->at[name + 1] != '"') fail_msg("at %.40s", c->at);
  c->at += name + 2;
  const size_t value = strcspn(c->at, "\"<>");
  if (c->at[value] != '"') fail_msg("value at %.40s", c->at);
  c->at += value + 1;
}

static inline void check_start_tag(checker *c) {
  const size_t name = strspn(c->at, "abcdefghijklmnopqrstuvwxyz123");
  assert_in_range(name, 1, TAG_BYTES - 1);
  assert_true(c->depth < DEEPEST);
  memcpy(c->open[c->depth], c->at, name);
  c->open[c->depth++][name] = '\0';
  c->at += name;
  while (*c->at == ' ') check_attribute(c);
  if (strncmp(c->at, "/>", 2) == 0) {
    c->depth--;
    c->at += 2;
  } else {
    assert_int_equal(*c->at++, '>');
  }
}

static inline void check_end_tag(checker *c) {
  assert_true(c->depth > 0);
  const char *const name = c->open[--c->depth];
  const size_t length = strlen(name);
  if (strncmp(c->at, name, length) != 0 || c->at[length] != '>') {
    fail_msg("</%.20s closes <%s>", c->at, name);
  }
  c->at += length + 1;
}

static inline void check_text(checker *c) {
  static const char *const entities[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
  if (*c->at != '&') {
    assert_int_not_equal(*c->at, '>');
    c->at++;
    return;
  }
  for (int i = 0; i < OT_COUNT(entities); i++) {
    if (strncmp(c->at, entities[i], strlen(entities[i])) != 0) continue;
    c->at += strlen(entities[i]);
    return;
  }
  fail_msg("at %.20s", c->at);
}

static inline void check_document(const char *text) {
  static const char head[] = "<!DOCTYPE html>";
  assert_true(ot_text_starts_with(text, head));
  checker c = {.at = text + strlen(head)};
  while (*c.at != '\0') {
    if (strncmp(c.at, "</", 2) == 0) {
      c.at += 2;
      check_end_tag(&c);
    } else if (*c.at == '<') {
      c.at++;
      check_start_tag(&c);
      if (c.depth > 0 && strcmp(c.open[c.depth - 1], "style") == 0) c.at = strstr(c.at, "</style>");
    } else {
      check_text(&c);
    }
  }
  assert_int_equal(c.depth, 0);
}

// No scripts, and no references but those within the page.
static inline void check_self_contained(const char *text) {
  static const char *const outside[] = {"http:",   "https:",  "//",    "src=",    "url(",
                                        "@import", "<script", "<link", "<iframe", "<img"};
  for (int i = 0; i < OT_COUNT(outside); i++) {
    if (ot_text_find(text, outside[i])) fail_msg("has %s", outside[i]);
  }
  for (const char *at = text; (at = strstr(at, "href=\"")) != NULL; at++) {
    assert_int_equal(at[6], '#');
  }
}
