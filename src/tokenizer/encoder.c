// SPDX-License-Identifier: Apache-2.0
// The way of a text through a tokenizer: valid stretches, added tokens, normalizer, split steps,
// BPE. Each level cuts its text and hands the parts down; all levels take a `stop` (see encoder.h),
// which makes reading by windows exact: a part is handed on as unfinished when only the end of the
// window ends it. A cache of short pieces stands before the BPE.
#include "tokenizer/encoder.h"

#include <stdlib.h>
#include <string.h>

#include "tokenizer/piece_cache.h"
#include "tokenizer/tokenizer_parts.h"
#include "tokenizer/unicode.h"

static const int64_t no_stop = INT64_MAX;

// A part of the text on its way down. `stop` is no_stop, or within the text.
typedef struct part {
  const uint8_t *text;
  int64_t length;
  int64_t stop;
  bool final;  // false: what ends it is the window, not the document
} part;

typedef enum progress {
  ALL_DONE,  // the whole part, which is final, is encoded
  AT_STOP,   // pieces up to exactly `stop` are encoded
  LOST,      // no piece ends at `stop`, or more text is needed to know
} progress;

struct ot_encoder {
  const ot_tokenizer *tokenizer;
  ot_split_matcher *matcher;
  ot_piece_cache *cache;
  ot_token_list *ids;  // of the call
  ot_piece_sink sink;  // of the call; null: encode
  void *sink_context;
  ot_buffer normal;    // normalized text
  ot_buffer prefixed;  // text with a space put before
  ot_buffer scratch;   // of the BPE
};

// ---- pieces ----

static ot_status encode_by_merging(ot_encoder *e, ot_bpe_token piece, int32_t *ids,
                                   int64_t *count) {
  const ot_tokenizer *const t = e->tokenizer;
  if (t->ignore_merges) {
    ids[0] = ot_bpe_find(t->bpe, piece.bytes, piece.length);
    *count = 1;
    if (ids[0] >= 0) return OT_OK;
  }
  return ot_bpe_encode(t->bpe, piece, &e->scratch, ids, count);
}

static ot_status take_piece(ot_encoder *e, const uint8_t *text, int64_t length) {
  if (length == 0) return OT_OK;
  if (e->sink) return e->sink(e->sink_context, text, length);
  OT_TRY(ot_token_list_reserve(e->ids, length > OT_PIECE_IDS ? length : OT_PIECE_IDS));
  int32_t *const ids = e->ids->ids + e->ids->count;
  ot_piece_slot *slot = NULL;
  if (length <= OT_PIECE_BYTES) {
    slot = ot_piece_cache_slot(e->cache, text, length);
    if (slot->length == length) {
      memcpy(ids, slot->ids, sizeof slot->ids);
      e->ids->count += slot->count;
      return OT_OK;
    }
  }
  int64_t count = 0;
  OT_TRY(encode_by_merging(e, (ot_bpe_token){.bytes = text, .length = length}, ids, &count));
  e->ids->count += count;
  if (slot && count <= OT_PIECE_IDS) ot_piece_slot_fill(slot, length, ids, count);
  return OT_OK;
}

// ---- split steps ----

static ot_status split(ot_encoder *e, part p, int step, progress *done);

// The stop of `whole` as seen from its part that begins at `from` and has `length` bytes.
static int64_t stop_within(part whole, int64_t from, int64_t length) {
  const bool inside = whole.stop > from && whole.stop < from + length;
  return inside ? whole.stop - from : no_stop;
}

// What it means that everything before byte `at` of `p` is done and a piece ends there.
static progress progress_at(part p, int64_t at) {
  if (at == p.stop) return AT_STOP;
  if (at > p.stop) return LOST;
  return ALL_DONE;
}

// The last level: the part is one piece, or, without any merges, as many as it has bytes.
static ot_status take_last(ot_encoder *e, part p, progress *done) {
  const ot_tokenizer *const t = e->tokenizer;
  const bool bytewise = ot_bpe_num_merges(t->bpe) == 0 && !t->ignore_merges;
  const bool cut = bytewise && p.stop < p.length;
  *done = cut ? AT_STOP : p.final && p.stop == no_stop ? ALL_DONE : LOST;
  if (*done == LOST) return OT_OK;
  return take_piece(e, p.text, cut ? p.stop : p.length);
}

static ot_status split_prefixed(ot_encoder *e, part p, int step, progress *done) {
  if (p.length == 0 || p.text[0] == ' ') return split(e, p, step + 1, done);
  // Texts that get a space are never cut into windows, so positions need not be kept.
  OT_ASSERT(p.final && p.stop == no_stop);
  e->prefixed.length = 0;
  OT_TRY(ot_buffer_append(&e->prefixed, " ", 1));
  OT_TRY(ot_buffer_append(&e->prefixed, p.text, p.length));
  p.text = e->prefixed.data;
  p.length = e->prefixed.length;
  return split(e, p, step + 1, done);
}

// The text of `p` between two matches, [from, to).
static ot_status split_gap(ot_encoder *e, part p, int step, part gap, progress *done) {
  *done = ALL_DONE;
  if (gap.length == 0) return OT_OK;
  gap.stop = stop_within(p, gap.text - p.text, gap.length);
  if (!e->tokenizer->steps[step].drop_unmatched) return split(e, gap, step + 1, done);
  *done = gap.stop == no_stop && gap.final ? ALL_DONE : LOST;
  return OT_OK;
}

// One match of step `step` at or after byte `*at` of `p`, with the gap before it. `*at` moves
// behind it; `done` is ALL_DONE while there is more to do.
static ot_status split_once(ot_encoder *e, part p, int step, int64_t *at, progress *done) {
  const ot_tokenizer *const t = e->tokenizer;
  const ot_split_subject subject = {.text = p.text, .length = p.length, .final = p.final};
  ot_split_match match;
  OT_TRY(ot_split_pattern_next(t->steps[step].pattern, e->matcher, &subject, *at, &match));
  const bool found = match.outcome == OT_SPLIT_FOUND;
  const int64_t gap_end = match.outcome == OT_SPLIT_NONE ? p.length : match.start;
  const bool gap_final = found || (match.outcome == OT_SPLIT_NONE && p.final);
  const part gap = {.text = p.text + *at, .length = gap_end - *at, .final = gap_final};
  OT_TRY(split_gap(e, p, step, gap, done));
  if (*done == ALL_DONE && match.outcome == OT_SPLIT_UNDECIDED) *done = LOST;
  if (*done != ALL_DONE) return OT_OK;
  *at = gap_end;
  *done = progress_at(p, *at);
  if (*done != ALL_DONE || !found) return OT_OK;
  const part matched = {.text = p.text + match.start,
                        .length = match.stop - match.start,
                        .stop = no_stop,
                        .final = true};
  // The last step's matches are pieces: no need to go down for each.
  OT_TRY(step + 1 == t->num_steps ? take_piece(e, matched.text, matched.length)
                                  : split(e, matched, step + 1, done));
  *at = match.stop;
  *done = progress_at(p, *at);
  return OT_OK;
}

static ot_status split(ot_encoder *e, part p, int step, progress *done) {
  const ot_tokenizer *const t = e->tokenizer;
  if (step == t->num_steps) return take_last(e, p, done);
  if (!t->steps[step].pattern) return split_prefixed(e, p, step, done);
  *done = ALL_DONE;
  int64_t at = 0;
  while (at < p.length && *done == ALL_DONE) OT_TRY(split_once(e, p, step, &at, done));
  if (*done == ALL_DONE && !p.final) *done = LOST;
  return OT_OK;
}

// ---- added tokens and normalizer ----

typedef ot_status (*level)(ot_encoder *e, part p, progress *done);

static ot_status take_added(ot_encoder *e, int32_t id) {
  return e->sink ? OT_OK : ot_token_list_append(e->ids, &id, 1);
}

// Cuts `p` at the added tokens of `set`; what lies between goes to `below`.
static ot_status cut_at_added(ot_encoder *e, const ot_added_tokens *set, part p, level below,
                              progress *done) {
  if (!set) return below(e, p, done);
  const ot_added_text text = {.text = p.text, .length = p.length, .final = p.final};
  *done = ALL_DONE;
  for (int64_t at = 0; at < p.length && *done == ALL_DONE;) {
    const ot_added_match match = ot_added_tokens_next(set, &text, at);
    const bool found = match.outcome == OT_ADDED_FOUND;
    part gap = {.text = p.text + at, .final = found};
    gap.length = (match.outcome == OT_ADDED_NONE ? p.length : match.start) - at;
    if (match.outcome == OT_ADDED_NONE) gap.final = p.final;
    gap.stop = stop_within(p, at, gap.length);
    if (gap.length > 0) OT_TRY(below(e, gap, done));
    if (*done == ALL_DONE && match.outcome == OT_ADDED_UNDECIDED) *done = LOST;
    if (*done != ALL_DONE) return OT_OK;
    at += gap.length;
    *done = progress_at(p, at);
    if (*done != ALL_DONE || !found) return OT_OK;
    OT_TRY(take_added(e, match.id));
    at = match.stop;
    *done = progress_at(p, at);
  }
  if (*done == ALL_DONE && !p.final) *done = LOST;
  return OT_OK;
}

static ot_status take_normal_span(ot_encoder *e, part p, progress *done) {
  return split(e, p, 0, done);
}

static ot_status cut_normal(ot_encoder *e, part p, progress *done) {
  return cut_at_added(e, e->tokenizer->of_normal, p, take_normal_span, done);
}

static ot_status normalize(ot_encoder *e, part p, progress *done) {
  if (!e->tokenizer->normalize || ot_unicode_is_ascii(p.text, p.length)) {
    return cut_normal(e, p, done);
  }
  const int64_t stop = p.stop == no_stop ? 0 : p.stop;
  const bool cuts_cleanly = p.stop == no_stop || (p.text[stop - 1] < 0x80 && p.text[stop] < 0x80);
  // What follows the last ASCII character may yet compose with text beyond the window.
  while (!p.final && p.length > stop && p.text[p.length - 1] >= 0x80) p.length--;
  if (!p.final && p.length > stop) p.length--;
  if (!cuts_cleanly || p.length <= stop) {
    *done = LOST;
    return OT_OK;
  }
  e->normal.length = 0;
  OT_TRY(ot_unicode_append_nfc(p.text, stop, &e->normal));
  if (p.stop != no_stop) p.stop = e->normal.length;
  OT_TRY(ot_unicode_append_nfc(p.text + stop, p.length - stop, &e->normal));
  p.text = e->normal.data;
  p.length = e->normal.length;
  return cut_normal(e, p, done);
}

// ---- the text ----

static ot_status take_valid(ot_encoder *e, part p, int64_t at, int64_t valid, progress *done) {
  part span = p;
  span.text = p.text + at;
  span.length = valid;
  span.stop = stop_within(p, at, valid);
  span.final = p.final || at + valid < p.length;
  return cut_at_added(e, e->tokenizer->raw, span, normalize, done);
}

static ot_status take_text(ot_encoder *e, part p, progress *done) {
  *done = ALL_DONE;
  for (int64_t at = 0; at < p.length && *done == ALL_DONE;) {
    bool truncated;
    int64_t width = ot_unicode_valid_prefix(p.text + at, p.length - at, &truncated);
    if (!p.final && truncated) p.length = at + width;
    if (at == p.length) break;
    if (width > 0) {
      OT_TRY(take_valid(e, p, at, width, done));
    } else {
      width = 1;
      OT_TRY(take_piece(e, p.text + at, 1));
    }
    if (*done != ALL_DONE) return OT_OK;
    at += width;
    *done = progress_at(p, at);
  }
  if (*done == ALL_DONE && !p.final) *done = LOST;
  return OT_OK;
}

static ot_status take_window(ot_encoder *e, const ot_text_window *window, bool *reached) {
  OT_ASSERT(window->stop <= window->length && (!window->final || window->stop == window->length));
  const part p = {.text = window->text,
                  .length = window->length,
                  .stop = window->stop < window->length ? window->stop : no_stop,
                  .final = window->final};
  progress done;
  OT_TRY(take_text(e, p, &done));
  *reached = done != LOST;
  return OT_OK;
}

// ---- public ----

bool ot_tokenizer_is_splittable(const ot_tokenizer *tokenizer) {
  for (int i = 0; i < tokenizer->num_steps; i++) {
    const ot_split_pattern *const pattern = tokenizer->steps[i].pattern;
    if (!pattern || !ot_split_pattern_is_memoryless(pattern)) return false;
  }
  const ot_added_tokens *const sets[] = {tokenizer->raw, tokenizer->of_normal};
  return !(sets[0] && ot_added_tokens_look_back(sets[0])) &&
         !(sets[1] && ot_added_tokens_look_back(sets[1]));
}

ot_status ot_encoder_create(const ot_tokenizer *tokenizer, ot_encoder **out) {
  *out = NULL;
  ot_encoder *encoder = calloc(1, sizeof *encoder);
  OT_CHECK(encoder, OT_ENVIRONMENT, "out of memory (encoder)");
  encoder->tokenizer = tokenizer;
  ot_status status = ot_split_matcher_create(&encoder->matcher);
  if (status == OT_OK) status = ot_piece_cache_create(&encoder->cache);
  if (status != OT_OK) ot_encoder_destroy(&encoder);
  *out = encoder;
  return status;
}

void ot_encoder_destroy(ot_encoder **encoder) {
  ot_encoder *const e = *encoder;
  if (!e) return;
  ot_split_matcher_destroy(&e->matcher);
  ot_piece_cache_destroy(&e->cache);
  ot_buffer_release(&e->normal);
  ot_buffer_release(&e->prefixed);
  ot_buffer_release(&e->scratch);
  free(e);
  *encoder = NULL;
}

ot_status ot_encoder_encode_window(ot_encoder *encoder, const ot_text_window *window,
                                   ot_token_list *ids, bool *reached) {
  encoder->ids = ids;
  encoder->sink = NULL;
  return take_window(encoder, window, reached);
}

ot_status ot_encoder_split_window(ot_encoder *encoder, const ot_text_window *window,
                                  ot_piece_sink sink, void *context, bool *reached) {
  encoder->sink = sink;
  encoder->sink_context = context;
  return take_window(encoder, window, reached);
}

ot_status ot_encoder_encode(ot_encoder *encoder, const char *text, int64_t length,
                            ot_token_list *ids) {
  const ot_text_window whole = {
      .text = (const uint8_t *)text, .length = length, .stop = length, .final = true};
  bool reached;
  return ot_encoder_encode_window(encoder, &whole, ids, &reached);
}
