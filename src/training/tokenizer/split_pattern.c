// SPDX-License-Identifier: Apache-2.0
// PCRE2 with its just-in-time compiler, in UTF and UCP mode. Unfinished text is matched in hard
// partial mode: PCRE2 then reports when a decision depends on the end of the text.
#include "tokenizer/split_pattern.h"

#include <stdlib.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum {
  JIT_STACK_BYTES = 1 << 20,
  HEAP_KIB_MAX = 1 << 16,
  MESSAGE_BYTES = 160,
  // A pattern may take exponential time. One match may take this many of PCRE2's steps, and so many
  // for each byte that is left; patterns of real tokenizers take a few for each byte of the match.
  STEPS = 1 << 20,
  STEPS_PER_BYTE = 64,
};

struct ot_split_pattern {
  pcre2_code *code;
  bool jit;
  bool memoryless;
};

struct ot_split_matcher {
  pcre2_match_data *data;
  pcre2_match_context *context;
  pcre2_jit_stack *stack;
};

static ot_status compile(ot_split_pattern *pattern, const uint8_t *regex, int64_t length,
                         uint32_t options) {
  pcre2_compile_context *const context = pcre2_compile_context_create(NULL);
  OT_CHECK(context, OT_ENVIRONMENT, "out of memory (pattern)");
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE where = 0;
  pattern->code = pcre2_compile(regex, (PCRE2_SIZE)length, options, &error, &where, context);
  pcre2_compile_context_free(context);
  if (pattern->code) return OT_OK;
  PCRE2_UCHAR text[MESSAGE_BYTES];
  pcre2_get_error_message(error, text, sizeof text);
  return ot_fail(OT_USAGE, "pattern does not compile: %s (at %lld of %.*s)", (const char *)text,
                 (long long)where, (int)(length < 200 ? length : 200), (const char *)regex);
}

static ot_status fill(ot_split_pattern *pattern, const char *regex, int64_t length, bool literal) {
  bool looks_back = false;
  if (literal) {
    OT_TRY(compile(pattern, (const uint8_t *)regex, length, PCRE2_UTF | PCRE2_LITERAL));
  } else {
    ot_buffer translated = {0};
    ot_status status = ot_split_syntax_translate(regex, length, &translated, &looks_back);
    if (status == OT_OK) {
      status = compile(pattern, translated.data, translated.length,
                       PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C);
    }
    ot_buffer_release(&translated);
    OT_TRY(status);
  }
  uint32_t matches_empty = 0, max_lookbehind = 0;
  pcre2_pattern_info(pattern->code, PCRE2_INFO_MATCHEMPTY, &matches_empty);
  pcre2_pattern_info(pattern->code, PCRE2_INFO_MAXLOOKBEHIND, &max_lookbehind);
  OT_CHECK(matches_empty == 0, OT_USAGE,
           "pattern can match the empty text, which is not supported: %.*s",
           (int)(length < 200 ? length : 200), regex);
  pattern->memoryless = !looks_back && max_lookbehind == 0;
  pattern->jit = pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD) == 0;
  return OT_OK;
}

ot_status ot_split_pattern_create(const char *regex, int64_t length, bool literal,
                                  ot_split_pattern **out) {
  *out = NULL;
  ot_split_pattern *pattern = calloc(1, sizeof *pattern);
  OT_CHECK(pattern, OT_ENVIRONMENT, "out of memory (pattern)");
  const ot_status status = fill(pattern, regex, length, literal);
  if (status != OT_OK) ot_split_pattern_destroy(&pattern);
  *out = pattern;
  return status;
}

void ot_split_pattern_destroy(ot_split_pattern **pattern) {
  if (!*pattern) return;
  pcre2_code_free((*pattern)->code);
  free(*pattern);
  *pattern = NULL;
}

bool ot_split_pattern_is_memoryless(const ot_split_pattern *pattern) { return pattern->memoryless; }

ot_status ot_split_matcher_create(ot_split_matcher **out) {
  ot_split_matcher *matcher = calloc(1, sizeof *matcher);
  *out = matcher;
  OT_CHECK(matcher, OT_ENVIRONMENT, "out of memory (pattern matcher)");
  matcher->data = pcre2_match_data_create(8, NULL);
  matcher->context = pcre2_match_context_create(NULL);
  matcher->stack = pcre2_jit_stack_create(32 * 1024, JIT_STACK_BYTES, NULL);
  if (matcher->data && matcher->context) {
    if (matcher->stack) pcre2_jit_stack_assign(matcher->context, NULL, matcher->stack);
    pcre2_set_heap_limit(matcher->context, HEAP_KIB_MAX);
    return OT_OK;
  }
  ot_split_matcher_destroy(out);
  return ot_fail(OT_ENVIRONMENT, "out of memory (pattern matcher)");
}

void ot_split_matcher_destroy(ot_split_matcher **matcher) {
  if (!*matcher) return;
  pcre2_match_data_free((*matcher)->data);
  pcre2_match_context_free((*matcher)->context);
  pcre2_jit_stack_free((*matcher)->stack);
  free(*matcher);
  *matcher = NULL;
}

static ot_status match_failed(int code, int64_t from) {
  PCRE2_UCHAR text[MESSAGE_BYTES];
  pcre2_get_error_message(code, text, sizeof text);
  return ot_fail(OT_ENVIRONMENT, "pattern failed at byte %lld of the text: %s", (long long)from,
                 (const char *)text);
}

ot_status ot_split_pattern_next(const ot_split_pattern *pattern, ot_split_matcher *matcher,
                                const ot_split_subject *subject, int64_t from,
                                ot_split_match *match) {
  const uint32_t partial = subject->final ? 0 : PCRE2_PARTIAL_HARD;
  const int64_t steps = STEPS + STEPS_PER_BYTE * (subject->length - from);
  pcre2_set_match_limit(matcher->context, steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX);
  const int code =
      pattern->jit
          ? pcre2_jit_match(pattern->code, subject->text, (PCRE2_SIZE)subject->length,
                            (PCRE2_SIZE)from, partial, matcher->data, matcher->context)
          : pcre2_match(pattern->code, subject->text, (PCRE2_SIZE)subject->length, (PCRE2_SIZE)from,
                        partial | PCRE2_NO_UTF_CHECK, matcher->data, matcher->context);
  if (code == PCRE2_ERROR_NOMATCH) {
    *match = (ot_split_match){.outcome = OT_SPLIT_NONE};
    return OT_OK;
  }
  if (code < 0 && code != PCRE2_ERROR_PARTIAL) return match_failed(code, from);
  const PCRE2_SIZE *const ends = pcre2_get_ovector_pointer(matcher->data);
  *match = (ot_split_match){
      .outcome = code == PCRE2_ERROR_PARTIAL ? OT_SPLIT_UNDECIDED : OT_SPLIT_FOUND,
      .start = (int64_t)ends[0],
      .stop = (int64_t)ends[1],
  };
  return OT_OK;
}

void ot_split_unicode_version(char version[OT_UNICODE_VERSION_CHARS]) {
  version[0] = '\0';
  // The length that PCRE2 requires is that of a version number, far below the capacity.
  if (pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, NULL) > OT_UNICODE_VERSION_CHARS) return;
  pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, version);
}
