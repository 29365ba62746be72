// SPDX-License-Identifier: Apache-2.0
// Text without libc: formatting, comparing and searching names, for the pure half, which must give
// the same bytes on the command line and on the web page. Numbers: base/number.h.
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

// Writes `format` into `out` [capacity], zero-terminated and truncated if too long. Returns the
// bytes written without the zero. Conversions: %s %c %d %u %x, %ld %lu %lx (int64_t and uint64_t on
// every host; the type long itself is not used here), %lld %llu %zu %%, %.Ng (double, N significant
// digits, default 6) and %.Nf (N decimals). Flags '-', '0', '+'; a width; '*' for either number.
int64_t ot_text_format(char *out, int64_t capacity, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int64_t ot_text_format_list(char *out, int64_t capacity, const char *format, va_list arguments);

// The same for a message, which ends with its place: if it is too long, texts in it are shortened
// in their middle.
int64_t ot_text_format_message(char *out, int64_t capacity, const char *format, va_list arguments);

int64_t ot_text_length(const char *text);
bool ot_text_equal(const char *a, const char *b);
// <0, 0, >0 by unsigned byte order.
int ot_text_compare(const char *a, const char *b);
bool ot_text_starts_with(const char *text, const char *prefix);
bool ot_text_ends_with(const char *text, const char *suffix);
// The first place of `part` in `text`, or null.
const char *ot_text_find(const char *text, const char *part);

// Whether `text` contains `c`, which is not its end.
bool ot_text_has(const char *text, char c);

// Classes of ASCII characters. Space: also tabs and line breaks.
bool ot_is_digit(char c);
bool ot_is_letter(char c);
bool ot_is_space(char c);

// True when `text` matches `pattern`, where '*' stands for any run of characters and '?' for one.
bool ot_text_matches(const char *text, const char *pattern);

// Damerau-Levenshtein distance (adjacent swaps count once); uses at most 64 characters of each.
int ot_text_distance(const char *a, const char *b);

// Stores `candidate` in `nearest` when it is closer to `name` than `best`, which becomes its
// distance. Start with one more than the largest accepted distance.
void ot_text_nearest(const char *name, const char *candidate, const char **nearest, int *best);

// FNV-1a over bytes, to chain: hash = ot_hash_bytes(hash, data, n), starting from OT_HASH_START.
#define OT_HASH_START 14695981039346656037ULL
uint64_t ot_hash_bytes(uint64_t hash, const void *data, int64_t bytes);
uint64_t ot_hash_text(uint64_t hash, const char *text);

// Start and end of bold text on a terminal.
#define OT_TEXT_BOLD "\033[1m"
#define OT_TEXT_PLAIN "\033[0m"

// The plural ending after `count`: "" for 1, else `ending` ("s", "es").
const char *ot_text_plural(int64_t count, const char *ending);

// Bytes of the character at `text` in UTF-8, or 0 if it is malformed (RFC 3629, table of section 4)
// or longer than `available`, at least 1.
int64_t ot_text_character_bytes(const char *text, int64_t available);

// Whether the character at `text` [bytes], which is UTF-8, commands what shows it or ends a line:
// U+0000 to U+001F, U+007F to U+009F, U+2028 and U+2029.
bool ot_text_is_control(const char *text, int64_t bytes);

// Replaces control characters but line breaks and tabs, and what is no UTF-8, by '?', so that names
// from a file cannot command the terminal that shows them.
void ot_text_make_printable(char *text);
