// SPDX-License-Identifier: Apache-2.0
// The longest common piece by the table of common suffixes, of which only rows of equal code points
// are visited: for each place in a, the places in b with its code point, in order.
#include "rl/edit_similarity.h"

#include <string.h>

#include "base/sort.h"

typedef struct points {
  int32_t *code;
  int64_t count;
} points;

typedef struct range {
  int32_t a_low, a_high, b_low, b_high;
} range;

typedef struct matcher {
  points a, b;
  int32_t *places;          // [b.count] places of b, by code point and then by place
  int32_t *first, *number;  // [a.count] of the places with the code point at a place of a
  int32_t *now, *before;    // [b.count + 1] length of the common piece that ends before a place
  range *stack;
} matcher;

// ---- code points ----

// The code point that begins at `text`, and its bytes; 0 bytes: none does.
static int read_point(const unsigned char *text, int64_t left, int32_t *code) {
  static const int32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  const int c = text[0];
  const int bytes = c < 0x80 ? 1 : c >= 0xf0 && c < 0xf8 ? 4 : c >= 0xe0 ? 3 : 2;
  if (c >= 0xf8 || (c >= 0x80 && c < 0xc0) || bytes > left) return 0;
  *code = bytes == 1 ? c : c & (0x7f >> bytes);
  for (int i = 1; i < bytes; i++) {
    if ((text[i] & 0xc0) != 0x80) return 0;
    *code = *code << 6 | (text[i] & 0x3f);
  }
  const bool surrogate = *code >= 0xd800 && *code < 0xe000;
  return *code < least[bytes] || *code > 0x10ffff || surrogate ? 0 : bytes;
}

static ot_status read_points(ot_bytes span, ot_arena *arena, points *out) {
  const unsigned char *const text = (const unsigned char *)span.text;
  out->code = ot_arena_array(arena, span.bytes, sizeof *out->code);
  for (int64_t i = 0; i < span.bytes;) {
    int32_t code = 0;
    const int bytes = read_point(text + i, span.bytes - i, &code);
    out->code[out->count++] = bytes > 0 ? code : 0xdc00 + text[i];
    i += bytes > 0 ? bytes : 1;
  }
  OT_CHECK(out->count <= OT_SIMILARITY_POINTS, OT_USAGE,
           "a text of %lld characters is too long for edit similarity; allowed: %d",
           (long long)out->count, OT_SIMILARITY_POINTS);
  return OT_OK;
}

// ---- places ----

static int by_code(const void *x, const void *y, const void *context) {
  const int32_t *const code = context;
  const int32_t i = *(const int32_t *)x, j = *(const int32_t *)y;
  if (code[i] != code[j]) return code[i] < code[j] ? -1 : 1;
  return i < j ? -1 : i > j;
}

// The first of the sorted places whose code point is at least `code`.
static int32_t lower_bound(const matcher *m, int32_t code) {
  int64_t low = 0, high = m->b.count;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (m->b.code[m->places[middle]] < code) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return (int32_t)low;
}

static void find_places(matcher *m, ot_arena *arena) {
  m->places = ot_arena_array(arena, m->b.count, sizeof *m->places);
  m->first = ot_arena_array(arena, m->a.count, sizeof *m->first);
  m->number = ot_arena_array(arena, m->a.count, sizeof *m->number);
  for (int64_t j = 0; j < m->b.count; j++) m->places[j] = (int32_t)j;
  const ot_ordering order = {by_code, m->b.code};
  ot_sort(m->places, m->b.count, sizeof *m->places, order, arena);
  for (int64_t i = 0; i < m->a.count; i++) {
    m->first[i] = lower_bound(m, m->a.code[i]);
    m->number[i] = lower_bound(m, m->a.code[i] + 1) - m->first[i];
  }
}

// ---- blocks ----

// Sets the entries of the row of a's place `i` to zero, wherever they may have been written.
static void clear_row(const matcher *m, int32_t *row, int64_t i) {
  for (int32_t k = 0; k < m->number[i]; k++) row[m->places[m->first[i] + k] + 1] = 0;
}

typedef struct block {
  int32_t a, b, size;
} block;

static block longest_block(matcher *m, const range *r) {
  block best = {r->a_low, r->b_low, 0};
  for (int32_t i = r->a_low; i < r->a_high; i++) {
    if (i >= r->a_low + 2) clear_row(m, m->now, i - 2);
    for (int32_t k = 0; k < m->number[i]; k++) {
      const int32_t j = m->places[m->first[i] + k];
      if (j < r->b_low) continue;
      if (j >= r->b_high) break;
      const int32_t size = m->before[j] + 1;
      m->now[j + 1] = size;
      if (size > best.size) best = (block){i + 1 - size, j + 1 - size, size};
    }
    int32_t *const row = m->before;
    m->before = m->now;
    m->now = row;
  }
  if (r->a_high > r->a_low) clear_row(m, m->before, r->a_high - 1);
  if (r->a_high > r->a_low + 1) clear_row(m, m->now, r->a_high - 2);
  return best;
}

static int64_t count_matches(matcher *m) {
  int64_t matches = 0, depth = 0;
  m->stack[depth++] = (range){0, (int32_t)m->a.count, 0, (int32_t)m->b.count};
  while (depth > 0) {
    const range r = m->stack[--depth];
    if (r.a_low == r.a_high || r.b_low == r.b_high) continue;
    const block best = longest_block(m, &r);
    if (best.size == 0) continue;
    matches += best.size;
    m->stack[depth++] = (range){r.a_low, best.a, r.b_low, best.b};
    m->stack[depth++] = (range){best.a + best.size, r.a_high, best.b + best.size, r.b_high};
  }
  return matches;
}

ot_status ot_similarity_build(ot_bytes a, ot_bytes b, ot_arena *arena, ot_similarity *out) {
  matcher m = {0};
  OT_TRY(read_points(a, arena, &m.a));
  OT_TRY(read_points(b, arena, &m.b));
  find_places(&m, arena);
  m.now = ot_arena_array(arena, m.b.count + 1, sizeof *m.now);
  m.before = ot_arena_array(arena, m.b.count + 1, sizeof *m.before);
  m.stack = ot_arena_array(arena, m.a.count + 2, sizeof *m.stack);
  const int64_t total = m.a.count + m.b.count;
  out->matches = count_matches(&m);
  out->ratio = total > 0 ? 2.0 * (double)out->matches / (double)total : 1;
  return OT_OK;
}
