// SPDX-License-Identifier: Apache-2.0
// The regular expressions of pre-tokenizers. tokenizer.json has them in Oniguruma's Ruby syntax;
// they are rewritten for PCRE2 where the two read the same letters differently (\s, \w, \h, ^,
// script names), and refused by name where no exact rewriting is known. Unicode tables are PCRE2's
// own.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "tokenizer/buffer.h"

typedef struct ot_split_pattern ot_split_pattern;  // immutable, shared by threads
typedef struct ot_split_matcher ot_split_matcher;  // working memory of one thread

// Compiles `regex` [length], or, when `literal`, the text itself. OT_USAGE naming what is not
// supported, among it patterns that match the empty text.
ot_status ot_split_pattern_create(const char *regex, int64_t length, bool literal,
                                  ot_split_pattern **out);
void ot_split_pattern_destroy(ot_split_pattern **pattern);

// True when a match depends on nothing before its start, so that a scan may start at any boundary.
bool ot_split_pattern_is_memoryless(const ot_split_pattern *pattern);

ot_status ot_split_matcher_create(ot_split_matcher **out);
void ot_split_matcher_destroy(ot_split_matcher **matcher);

typedef struct ot_split_subject {
  const uint8_t *text;  // valid UTF-8
  int64_t length;
  bool final;  // false: more text follows, so what touches the end is undecided
} ot_split_subject;

typedef enum ot_split_outcome {
  OT_SPLIT_NONE,       // no match from there on
  OT_SPLIT_FOUND,      // [start, stop)
  OT_SPLIT_UNDECIDED,  // no match starts before `start`; one may start there when more text comes
} ot_split_outcome;

typedef struct ot_split_match {
  ot_split_outcome outcome;
  int64_t start, stop;
} ot_split_match;

// The first match at or after byte `from` of `subject`.
ot_status ot_split_pattern_next(const ot_split_pattern *pattern, ot_split_matcher *matcher,
                                const ot_split_subject *subject, int64_t from,
                                ot_split_match *match);

// The version of the Unicode tables that patterns use, as "14.0.0".
enum { OT_UNICODE_VERSION_CHARS = 24 };
void ot_split_unicode_version(char version[OT_UNICODE_VERSION_CHARS]);

// Appends `regex` [length], in Oniguruma's syntax, in PCRE2's to `out` (see split_pattern.c);
// `looks_back` is set when it has an anchor. OT_USAGE naming what is not supported.
ot_status ot_split_syntax_translate(const char *regex, int64_t length, ot_buffer *out,
                                    bool *looks_back);
