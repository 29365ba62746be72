// SPDX-License-Identifier: Apache-2.0
// Each kind of step has a reader and a function that appends the new text; `kinds` is the table of
// readers, and a step holds its function. A new kind needs both functions and a row.
#include "tokenizer/normalizer.h"

#include <stdlib.h>
#include <string.h>

#include "host/heap.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/unicode.h"

// A few replacements in a file can make any text 10^9 times longer. Normal forms make it at most 12
// times longer.
enum { MAX_STEPS = 16, GROWTH_MAX = 64, SHORT_BYTES = 1 << 20 };

typedef struct step step;

// The state of a step: appends the new text for `in` to `out`, unless `changed` stays false. A
// nonzero `first_bytes` is updated for `out`.
typedef struct work {
  ot_normal_text in;
  ot_buffer *out;
  ot_split_matcher *matcher;
  int64_t first_bytes;
  int64_t bytes_max;  // of `out`
  bool changed;
} work;

static ot_status check_growth(const work *w) {
  OT_CHECK(w->out->length <= w->bytes_max, OT_USAGE,
           "normalizer: it makes a text more than %d times longer", GROWTH_MAX);
  return OT_OK;
}

struct step {
  ot_status (*apply)(const step *s, work *w);
  const uint8_t *content;  // [content_length] Prepend, Replace: the inserted text
  int64_t content_length;
  const uint8_t *literal;  // [literal_length] Replace: the replaced text; null: `pattern`
  int64_t literal_length;
  ot_split_pattern *pattern;
  ot_charsmap *map;  // Precompiled
  bool left, right;  // Strip
  bool keeps_ascii, local;
};

struct ot_normalizer {
  ot_heap heap;  // of the texts
  ot_arena arena;
  step steps[MAX_STEPS];
  int num_steps;
};

static void release_step(step *s) {
  ot_split_pattern_destroy(&s->pattern);
  ot_charsmap_destroy(&s->map);
}

// The width of the first character of `text` [length], 0 if there is none.
static int64_t first_width(const uint8_t *text, int64_t length) {
  int width = 0;
  if (length > 0) (void)ot_unicode_first(text, length, &width);
  return width;
}

static ot_status add_step(ot_tokenizer_reader *r, ot_normalizer *n, step added) {
  if (n->num_steps == MAX_STEPS) {
    release_step(&added);
    return ot_fail(OT_USAGE, "%s: normalizer: more than %d steps", r->name, MAX_STEPS);
  }
  n->steps[n->num_steps++] = added;
  return OT_OK;
}

// Keeps a text member.
static ot_status keep_text(ot_tokenizer_reader *r, ot_normalizer *n, const json_t *part,
                           const char *key, step *s) {
  const char *text;
  OT_TRY(ot_part_text(r, "normalizer", part, key, &text));
  s->content_length = (int64_t)strlen(text);
  s->content = (const uint8_t *)ot_arena_text(&n->arena, text, s->content_length);
  return OT_OK;
}

// ---- NFC ----

static ot_status apply_nfc(const step *s, work *w) {
  (void)s;
  if (ot_unicode_is_ascii(w->in.text, w->in.length)) return OT_OK;
  w->changed = true;
  OT_TRY(ot_unicode_append_nfc(w->in.text, w->in.length, w->out));
  w->first_bytes = first_width(w->out->data, w->out->length);
  return OT_OK;
}

static ot_status read_nfc(ot_tokenizer_reader *r, const json_t *part, void *into) {
  (void)part;
  return add_step(r, into, (step){.apply = apply_nfc, .keeps_ascii = true, .local = true});
}

// ---- Prepend ----

static ot_status apply_prepend(const step *s, work *w) {
  if (w->in.length == 0) return OT_OK;
  w->changed = true;
  w->first_bytes += s->content_length;
  OT_TRY(ot_buffer_append(w->out, s->content, s->content_length));
  return ot_buffer_append(w->out, w->in.text, w->in.length);
}

static ot_status read_prepend(ot_tokenizer_reader *r, const json_t *part, void *into) {
  step added = {.apply = apply_prepend};
  OT_TRY(keep_text(r, into, part, "prepend", &added));
  return add_step(r, into, added);
}

// ---- Replace ----

// The next match at or after byte `from`; false if there is none.
static ot_status find(const step *s, const work *w, int64_t from, ot_split_match *match) {
  if (!s->literal) {
    const ot_split_subject subject = {.text = w->in.text, .length = w->in.length, .final = true};
    return ot_split_pattern_next(s->pattern, w->matcher, &subject, from, match);
  }
  const uint8_t *const found = memmem(w->in.text + from, (size_t)(w->in.length - from), s->literal,
                                      (size_t)s->literal_length);
  *match = (ot_split_match){.outcome = found ? OT_SPLIT_FOUND : OT_SPLIT_NONE};
  if (!found) return OT_OK;
  match->start = found - w->in.text;
  match->stop = match->start + s->literal_length;
  return OT_OK;
}

static ot_status apply_replace(const step *s, work *w) {
  ot_split_match match;
  int64_t at = 0;
  OT_TRY(find(s, w, 0, &match));
  if (match.outcome == OT_SPLIT_NONE) return OT_OK;
  w->changed = true;
  // The replacement of several characters counts as the last of them.
  if (match.start == 0) {
    const int64_t left = w->first_bytes - match.stop;
    w->first_bytes = left >= 0 ? left + s->content_length : 0;
  }
  while (match.outcome == OT_SPLIT_FOUND) {
    OT_TRY(ot_buffer_append(w->out, w->in.text + at, match.start - at));
    OT_TRY(ot_buffer_append(w->out, s->content, s->content_length));
    OT_TRY(check_growth(w));
    at = match.stop;
    OT_TRY(find(s, w, at, &match));
  }
  return ot_buffer_append(w->out, w->in.text + at, w->in.length - at);
}

static ot_status read_replace(ot_tokenizer_reader *r, const json_t *part, void *into) {
  ot_normalizer *const n = into;
  ot_part_pattern pattern;
  OT_TRY(ot_part_pattern_read(r, "normalizer: Replace", part, &pattern));
  step added = {.apply = apply_replace};
  OT_TRY(keep_text(r, n, part, "content", &added));
  if (pattern.literal) {
    added.literal = (const uint8_t *)ot_arena_text(&n->arena, pattern.text, pattern.length);
    added.literal_length = pattern.length;
    added.local = first_width(added.literal, pattern.length) == pattern.length;
  } else {
    OT_TRY(ot_part_pattern_compile(r, "normalizer: Replace", &pattern, &added.pattern));
  }
  return add_step(r, n, added);
}

// ---- Strip ----

static ot_status apply_strip(const step *s, work *w) {
  int64_t start = 0, stop = w->in.length;
  int width;
  while (s->left && start < stop &&
         ot_unicode_is_space(ot_unicode_first(w->in.text + start, stop - start, &width))) {
    start += width;
  }
  while (s->right && stop > start &&
         ot_unicode_is_space(ot_unicode_last(w->in.text + start, stop - start, &width))) {
    stop -= width;
  }
  w->changed = true;
  w->first_bytes = start < w->first_bytes ? w->first_bytes - start : 0;
  return ot_buffer_append(w->out, w->in.text + start, stop - start);
}

static ot_status read_strip(ot_tokenizer_reader *r, const json_t *part, void *into) {
  step added = {.apply = apply_strip};
  OT_TRY(ot_part_flag(r, "normalizer: Strip", part, "strip_left", &added.left));
  OT_TRY(ot_part_flag(r, "normalizer: Strip", part, "strip_right", &added.right));
  return add_step(r, into, added);
}

// ---- Precompiled ----

static ot_status apply_map(const step *s, work *w) {
  w->changed = true;
  OT_TRY(ot_charsmap_apply(s->map, w->in.text, w->in.length, w->out, &w->first_bytes));
  // After a dropped first character, the next one counts as first.
  if (w->first_bytes == 0) w->first_bytes = first_width(w->out->data, w->out->length);
  return OT_OK;
}

static ot_status read_map(ot_tokenizer_reader *r, const json_t *part, void *into) {
  const char *text;
  step added = {.apply = apply_map};
  OT_TRY(ot_part_text(r, "normalizer: Precompiled", part, "precompiled_charsmap", &text));
  const ot_status status = ot_charsmap_create(text, (int64_t)strlen(text), &added.map);
  if (status != OT_OK) {
    return ot_fail(status, "%s: normalizer: Precompiled: precompiled_charsmap: %s", r->name,
                   ot_fail_message());
  }
  return add_step(r, into, added);
}

// ---- the normalizer ----

static const ot_part_kind kinds[] = {
    {.type = "NFC", .read = read_nfc},
    {.type = "Prepend", .keys = {"prepend"}, .read = read_prepend},
    {.type = "Replace", .keys = {"pattern", "content"}, .read = read_replace},
    {.type = "Strip", .keys = {"strip_left", "strip_right"}, .read = read_strip},
    {.type = "Precompiled", .keys = {"precompiled_charsmap"}, .read = read_map},
};

ot_status ot_normalizer_read(ot_tokenizer_reader *reader, const json_t *json, ot_normalizer **out) {
  static const ot_part_table table = {.place = "normalizer",
                                      .sequence = "normalizers",
                                      .kinds = kinds,
                                      .num_kinds = OT_COUNT(kinds)};
  *out = calloc(1, sizeof **out);
  OT_CHECK(*out, OT_ENVIRONMENT, "out of memory (normalizer)");
  (*out)->arena = ot_heap_arena_create(&(*out)->heap);
  const ot_status status = ot_part_read(reader, &table, json, *out);
  if (status != OT_OK) ot_normalizer_destroy(out);
  return status;
}

void ot_normalizer_destroy(ot_normalizer **normalizer) {
  ot_normalizer *const n = *normalizer;
  if (!n) return;
  for (int i = 0; i < n->num_steps; i++) release_step(&n->steps[i]);
  ot_heap_release(&n->heap);
  free(n);
  *normalizer = NULL;
}

bool ot_normalizer_is_identity(const ot_normalizer *normalizer) {
  return normalizer->num_steps == 0;
}

bool ot_normalizer_keeps_ascii(const ot_normalizer *normalizer) {
  bool all = true;
  for (int i = 0; i < normalizer->num_steps; i++) all &= normalizer->steps[i].keeps_ascii;
  return all;
}

bool ot_normalizer_is_local(const ot_normalizer *normalizer) {
  bool all = true;
  for (int i = 0; i < normalizer->num_steps; i++) all &= normalizer->steps[i].local;
  return all;
}

ot_status ot_normalizer_apply(const ot_normalizer *normalizer, ot_split_matcher *matcher,
                              ot_normal_text *text, ot_buffer work_buffers[2]) {
  const int64_t bytes_max = GROWTH_MAX * text->length + SHORT_BYTES;
  int turn = 0;
  for (int i = 0; i < normalizer->num_steps; i++) {
    const step *const s = &normalizer->steps[i];
    work w = {.in = *text,
              .out = &work_buffers[turn],
              .matcher = matcher,
              .first_bytes = text->first_bytes,
              .bytes_max = bytes_max};
    w.out->length = 0;
    OT_TRY(s->apply(s, &w));
    if (!w.changed) continue;
    OT_TRY(check_growth(&w));
    // A buffer without appended bytes may have no memory.
    text->text = w.out->length > 0 ? w.out->data : (const uint8_t *)"";
    text->length = w.out->length;
    text->first_bytes = text->first_bytes > 0 ? w.first_bytes : 0;
    turn = 1 - turn;
  }
  return OT_OK;
}
