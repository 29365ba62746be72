// SPDX-License-Identifier: Apache-2.0
// Translates Oniguruma's Ruby syntax to PCRE2 in one pass over the pattern. It bridges these
// differences: White_Space has no U+180E, word characters include marks and letter numbers, \uHHHH,
// \v is one character, {,n}, and \p{Script} is the script without its extensions. It rejects: \h \R
// \X \K \b, nested or intersected classes, POSIX classes, flags m s x, {n,m}+.
#include <string.h>

#include "tokenizer/split_pattern.h"

static const char space_class[] = "\\t-\\r\\x{20}\\x{85}\\p{Z}";
static const char other_than_space_class[] =
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}"
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}"
    "\\x{3001}-\\x{10ffff}";
static const char word_class[] =
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-"
    "\\x{1f169}\\x{1f170}-\\x{1f189}";
// Outside of classes, by Oniguruma's table for characters below 256: also superscripts and
// fractions.
static const char more_word_class[] = "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";
static const char general_categories[] =
    " Any C Cc Cf Cn Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm"
    " So Z Zl Zp Zs Alphabetic Uppercase Lowercase White_Space Emoji ";

typedef struct translation {
  const char *regex;
  int64_t length;
  int64_t at;
  ot_buffer *out;
  bool in_class;
  bool looks_back;
} translation;

static ot_status refuse(const translation *t, const char *what) {
  return ot_fail(OT_USAGE, "pattern has %s, which is not supported (at %lld of %.*s)", what,
                 (long long)t->at, (int)(t->length < 200 ? t->length : 200), t->regex);
}

static char peek(const translation *t, int64_t ahead) {
  return t->at + ahead < t->length ? t->regex[t->at + ahead] : '\0';
}

static ot_status copy(translation *t, int64_t count) {
  OT_TRY(ot_buffer_append(t->out, t->regex + t->at, count));
  t->at += count;
  return OT_OK;
}

static ot_status replace(translation *t, int64_t count, const char *text) {
  t->at += count;
  return ot_buffer_append_text(t->out, text);
}

static ot_status replace_by_class(translation *t, const char *set, bool inverted) {
  t->at += 2;
  if (t->in_class) return ot_buffer_append_text(t->out, set);
  OT_TRY(ot_buffer_append_text(t->out, inverted ? "[^" : "["));
  OT_TRY(ot_buffer_append_text(t->out, set));
  return ot_buffer_append_text(t->out, "]");
}

// \p{Name} and \P{Name}: general categories unchanged, scripts without extensions.
static ot_status translate_property(translation *t) {
  const char *const open = t->regex + t->at + 2;
  if (peek(t, 2) != '{') return refuse(t, "\\p without braces");
  const char *const close = memchr(open, '}', (size_t)(t->length - t->at - 2));
  if (!close) return refuse(t, "\\p{ without }");
  const char *name = open + 1;
  int64_t width = close - name;
  const bool inverted = width > 0 && name[0] == '^';
  name += inverted;
  width -= inverted;
  char word[40];
  if (width <= 0 || width > 32) return refuse(t, "an unknown property");
  word[0] = ' ';
  memcpy(word + 1, name, (size_t)width);
  memcpy(word + 1 + width, " ", 2);
  const bool category = strstr(general_categories, word) != NULL;
  const bool negative = (peek(t, 1) == 'P') != inverted;
  OT_TRY(ot_buffer_append_text(t->out, negative ? "\\P{" : "\\p{"));
  if (!category) OT_TRY(ot_buffer_append_text(t->out, "sc:"));
  OT_TRY(ot_buffer_append(t->out, name, width));
  t->at = close + 1 - t->regex;
  return ot_buffer_append_text(t->out, "}");
}

static ot_status translate_word(translation *t, bool inverted) {
  if (t->in_class) return inverted ? refuse(t, "\\W in a class") : replace(t, 2, word_class);
  OT_TRY(replace(t, 2, inverted ? "[^" : "["));
  OT_TRY(ot_buffer_append_text(t->out, word_class));
  OT_TRY(ot_buffer_append_text(t->out, more_word_class));
  return ot_buffer_append_text(t->out, "]");
}

static ot_status translate_code_point(translation *t) {
  for (int i = 2; i < 6; i++) {
    const char digit = peek(t, i);
    const bool hexadecimal = (digit >= '0' && digit <= '9') || (digit >= 'a' && digit <= 'f') ||
                             (digit >= 'A' && digit <= 'F');
    if (!hexadecimal) return refuse(t, "\\u without four digits");
  }
  OT_TRY(ot_buffer_append_text(t->out, "\\x{"));
  t->at += 2;
  OT_TRY(copy(t, 4));
  return ot_buffer_append_text(t->out, "}");
}

static ot_status translate_escape(translation *t) {
  const char letter = peek(t, 1);
  switch (letter) {
    case '\0':
      return refuse(t, "a backslash at its end");
    case 's':
      return replace_by_class(t, space_class, false);
    case 'S':
      return replace_by_class(t, t->in_class ? other_than_space_class : space_class, true);
    case 'w':
      return translate_word(t, false);
    case 'W':
      return translate_word(t, true);
    case 'p':
    case 'P':
      return translate_property(t);
    case 'u':
      return translate_code_point(t);
    case 'v':
      return replace(t, 2, "\\x0b");
    case 'A':
    case 'G':
      t->looks_back = true;
      return copy(t, 2);
    case 'd':
    case 'D':
    case 'n':
    case 'r':
    case 't':
    case 'f':
    case 'a':
    case 'e':
    case 'x':
    case 'z':
    case 'Z':
      return copy(t, 2);
    default:
      break;
  }
  const bool letter_or_digit = (letter >= 'a' && letter <= 'z') ||
                               (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9');
  if (letter_or_digit) return refuse(t, "an escape");
  return copy(t, 2);
}

// After "(?": only groups and flags with the same meaning in both engines.
static ot_status translate_group(translation *t) {
  if (peek(t, 1) == '*') return refuse(t, "a verb (*");
  if (peek(t, 1) != '?') return copy(t, 1);
  int64_t i = 2;
  if (peek(t, i) == '<') {
    t->looks_back = true;
    i++;
    if (peek(t, i) != '=' && peek(t, i) != '!') return refuse(t, "a named group");
    return copy(t, i + 1);
  }
  if (strchr(":=!>", peek(t, i)) && peek(t, i) != '\0') return copy(t, i + 1);
  while (peek(t, i) == 'i' || peek(t, i) == '-') i++;
  if (peek(t, i) != ':' && peek(t, i) != ')') return refuse(t, "a group or flag of this kind");
  return copy(t, i + 1);
}

static ot_status translate_interval(translation *t) {
  int64_t i = 1;
  while ((peek(t, i) >= '0' && peek(t, i) <= '9') || peek(t, i) == ',') i++;
  if (i == 1 || peek(t, i) != '}') return copy(t, 1);
  if (peek(t, i + 1) == '+') return refuse(t, "{n,m}+");
  if (peek(t, 1) != ',') return copy(t, i + 1);
  OT_TRY(replace(t, 1, "{0"));
  return copy(t, i);
}

static ot_status translate_in_class(translation *t) {
  switch (peek(t, 0)) {
    case ']':
      t->in_class = false;
      return copy(t, 1);
    case '[':
      return refuse(t, "a class within a class");
    case '&':
      return peek(t, 1) == '&' ? refuse(t, "an intersection of classes") : copy(t, 1);
    case '\\':
      return translate_escape(t);
    default:
      return copy(t, 1);
  }
}

static ot_status open_class(translation *t) {
  t->in_class = true;
  OT_TRY(copy(t, peek(t, 1) == '^' ? 2 : 1));
  return peek(t, 0) == ']' ? refuse(t, "an empty class") : OT_OK;
}

static ot_status translate_one(translation *t) {
  if (t->in_class) return translate_in_class(t);
  switch (peek(t, 0)) {
    case '[':
      return open_class(t);
    case '\\':
      return translate_escape(t);
    case '(':
      return translate_group(t);
    case '{':
      return translate_interval(t);
    case '^':
      t->looks_back = true;
      return copy(t, 1);
    default:
      return copy(t, 1);
  }
}

ot_status ot_split_syntax_translate(const char *regex, int64_t length, ot_buffer *out,
                                    bool *looks_back) {
  translation t = {.regex = regex, .length = length, .out = out};
  while (t.at < length) OT_TRY(translate_one(&t));
  if (t.in_class) return refuse(&t, "a class without ]");
  *looks_back = t.looks_back;
  return OT_OK;
}
