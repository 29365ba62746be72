// SPDX-License-Identifier: Apache-2.0
// The regular expressions of pre-tokenizers. tokenizer.json has them in Oniguruma's Ruby syntax;
// they are translated for PCRE2 where the two differ (\s, \w, \h, ^, script names), and rejected by
// name where no exact translation is known. Unicode tables are PCRE2's own.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "tokenizer/buffer.h"

typedef struct ot_split_pattern ot_split_pattern;  // immutable, shared by threads
typedef struct ot_split_matcher ot_split_matcher;  // work memory of one thread

// Compiles `regex` [length], or, if `literal`, the text itself. OT_USAGE names an unsupported
// feature, such as patterns that match the empty text.
ot_status ot_split_pattern_create(const char *regex, int64_t length, bool literal,
                                  ot_split_pattern **out);
void ot_split_pattern_destroy(ot_split_pattern **pattern);

// True if matches do not depend on text before their start, so a scan may start at any boundary.
bool ot_split_pattern_is_memoryless(const ot_split_pattern *pattern);

ot_status ot_split_matcher_create(ot_split_matcher **out);
void ot_split_matcher_destroy(ot_split_matcher **matcher);

typedef struct ot_split_subject {
  const uint8_t *text;  // valid UTF-8
  int64_t length;
  bool final;  // false: more text follows, so matches at the end are undecided
} ot_split_subject;

typedef enum ot_split_outcome {
  OT_SPLIT_NONE,       // no match from there on
  OT_SPLIT_FOUND,      // [start, stop)
  OT_SPLIT_UNDECIDED,  // none starts before `start`; one may start there
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

// Translates `regex` [length] from Oniguruma's to PCRE2's syntax and appends it to `out` (see
// split_pattern.c); `looks_back` is set if it has an anchor. OT_USAGE names an unsupported feature.
ot_status ot_split_syntax_translate(const char *regex, int64_t length, ot_buffer *out,
                                    bool *looks_back);
