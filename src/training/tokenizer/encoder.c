// SPDX-License-Identifier: Apache-2.0
// The path of a text through a tokenizer: valid stretches, added tokens, normalizer, split steps,
// model. Each level splits its text and passes the parts down; all levels have a `stop` (see
// encoder.h), which makes encoding by windows exact: a part is passed on as unfinished if only the
// end of the window ends it. A cache of short pre-tokens precedes the model.
#include "tokenizer/encoder.h"

#include <stdlib.h>
#include <string.h>

#include "tokenizer/pre_token_cache.h"
#include "tokenizer/tokenizer_parts.h"
#include "tokenizer/unicode.h"

static const int64_t no_stop = INT64_MAX;

// A part of the text on its way down. `stop` is no_stop, or within the text.
typedef struct part {
  const uint8_t *text;
  int64_t length;
  int64_t stop;
  bool final;           // false: the window ends it, not the document
  int64_t first_bytes;  // length at its start of the first character of the text; 0: none
} part;

typedef enum progress {
  ALL_DONE,  // the whole part, which is final, is encoded
  AT_STOP,   // pre-tokens up to exactly `stop` are encoded
  LOST,      // no pre-token ends at `stop`, or more text is needed
} progress;

struct ot_encoder {
  const ot_tokenizer *tokenizer;
  int64_t vocab_size;  // ids must be below it; 0: no limit
  ot_split_matcher *matcher;
  ot_pre_token_cache *cache;
  ot_token_list *ids;      // of the call
  ot_pre_token_sink sink;  // of the call; null: encode
  void *sink_context;
  ot_buffer normal[3];                      // normalized text, and two work buffers
  ot_buffer rewritten[OT_MAX_SPLIT_STEPS];  // text changed by a split step
  ot_buffer scratch;                        // of the model
};

// ---- pre-tokens ----

static ot_status add_piece(ot_encoder *e, const uint8_t *text, int64_t length) {
  if (length == 0) return OT_OK;
  if (e->sink) return e->sink(e->sink_context, text, length);
  OT_TRY(ot_token_list_reserve(e->ids, length > OT_PRE_TOKEN_IDS ? length : OT_PRE_TOKEN_IDS));
  int32_t *const ids = e->ids->ids + e->ids->count;
  ot_pre_token_slot *slot = NULL;
  if (length <= OT_PRE_TOKEN_BYTES) {
    slot = ot_pre_token_cache_slot(e->cache, text, length);
    if (slot->length == length) {
      memcpy(ids, slot->ids, sizeof slot->ids);
      e->ids->count += slot->count;
      return OT_OK;
    }
  }
  int64_t count = 0;
  const ot_token_model *const model = &e->tokenizer->model;
  const ot_token_text piece = {.bytes = text, .length = length};
  OT_TRY(model->kind->encode(model->self, piece, &e->scratch, ids, &count));
  e->ids->count += count;
  if (slot && count <= OT_PRE_TOKEN_IDS) ot_pre_token_slot_fill(slot, length, ids, count);
  return OT_OK;
}

static int64_t next_cut(const ot_encoder *e, ot_token_text piece, int64_t from) {
  const ot_token_model *const model = &e->tokenizer->model;
  return model->kind->next_cut ? model->kind->next_cut(model->self, piece, from) : piece.length;
}

// A pre-token from the split steps; encoded part by part if the model allows it.
static inline ot_status add_split(ot_encoder *e, const uint8_t *text, int64_t length) {
  if (!e->tokenizer->model.cut_pieces) return add_piece(e, text, length);
  const ot_token_text piece = {.bytes = text, .length = length};
  for (int64_t at = 0, cut; at < length; at = cut) {
    cut = next_cut(e, piece, at + 1);
    OT_TRY(add_piece(e, text + at, cut - at));
  }
  return OT_OK;
}

// ---- split steps ----

static ot_status split(ot_encoder *e, part p, int step, progress *done);

// The stop of `whole` relative to its part at `from` with `length` bytes.
static int64_t stop_within(part whole, int64_t from, int64_t length) {
  const bool inside = whole.stop > from && whole.stop < from + length;
  return inside ? whole.stop - from : no_stop;
}

// The first bytes of `whole` relative to its part at `from`.
static int64_t first_within(part whole, int64_t from) {
  return whole.first_bytes > from ? whole.first_bytes - from : 0;
}

// The progress when everything before byte `at` of `p` is done and a pre-token ends there.
static progress progress_at(part p, int64_t at) {
  if (at == p.stop) return AT_STOP;
  if (at > p.stop) return LOST;
  return ALL_DONE;
}

// The last level: the part is one pre-token, or ends at the stop if the model may split it there.
static ot_status add_last(ot_encoder *e, part p, progress *done) {
  const ot_token_text piece = {.bytes = p.text, .length = p.length};
  const bool cut = p.stop < p.length && next_cut(e, piece, p.stop) == p.stop;
  *done = cut ? AT_STOP : p.final && p.stop == no_stop ? ALL_DONE : LOST;
  if (*done == LOST) return OT_OK;
  return add_split(e, p.text, cut ? p.stop : p.length);
}

// Texts that a step changes are never split into windows, so positions need not be mapped.
static ot_status split_rewritten(ot_encoder *e, part p, int step, progress *done) {
  p.text = e->rewritten[step].data;
  p.length = e->rewritten[step].length;
  return split(e, p, step + 1, done);
}

static ot_status split_prefixed(ot_encoder *e, part p, int step, progress *done) {
  if (p.length == 0 || p.text[0] == ' ') return split(e, p, step + 1, done);
  OT_ASSERT(p.final && p.stop == no_stop);
  ot_buffer *const text = &e->rewritten[step];
  text->length = 0;
  OT_TRY(ot_buffer_append(text, " ", 1));
  OT_TRY(ot_buffer_append(text, p.text, p.length));
  return split_rewritten(e, p, step, done);
}

// Writes `p` with marks for spaces, and one before it if configured.
static ot_status write_marks(ot_encoder *e, part p, int step) {
  const ot_split_step *const s = &e->tokenizer->pre_tokenizer.steps[step];
  const int64_t width = (int64_t)strlen(s->mark);
  ot_buffer *const text = &e->rewritten[step];
  text->length = 0;
  const bool wanted =
      s->prefix == OT_METASPACE_ALWAYS || (s->prefix == OT_METASPACE_FIRST && p.first_bytes > 0);
  const bool marked =
      p.text[0] == ' ' || (p.length >= width && memcmp(p.text, s->mark, (size_t)width) == 0);
  if (wanted && !marked) OT_TRY(ot_buffer_append(text, s->mark, width));
  for (int64_t at = 0; at < p.length;) {
    const uint8_t *const space = memchr(p.text + at, ' ', (size_t)(p.length - at));
    const int64_t stop = space ? space - p.text : p.length;
    OT_TRY(ot_buffer_append(text, p.text + at, stop - at));
    if (space) OT_TRY(ot_buffer_append(text, s->mark, width));
    at = stop + (space != NULL);
  }
  return OT_OK;
}

// Each mark starts a pre-token.
static ot_status split_at_marks(ot_encoder *e, part p, int step, progress *done) {
  if (p.length == 0) return split(e, p, step + 1, done);
  OT_ASSERT(p.final && p.stop == no_stop);
  OT_TRY(write_marks(e, p, step));
  const ot_split_step *const s = &e->tokenizer->pre_tokenizer.steps[step];
  if (s->whole) return split_rewritten(e, p, step, done);
  const ot_buffer *const text = &e->rewritten[step];
  const size_t width = strlen(s->mark);
  *done = ALL_DONE;
  for (int64_t at = 0, stop; at < text->length; at = stop) {
    const uint8_t *const next =
        memmem(text->data + at + 1, (size_t)(text->length - at - 1), s->mark, width);
    stop = next ? next - text->data : text->length;
    part piece = p;
    piece.text = text->data + at;
    piece.length = stop - at;
    piece.first_bytes = first_within(p, at);
    OT_TRY(split(e, piece, step + 1, done));
  }
  return OT_OK;
}

// The text of `p` between two matches, [from, to).
static ot_status split_gap(ot_encoder *e, part p, int step, part gap, progress *done) {
  *done = ALL_DONE;
  if (gap.length == 0) return OT_OK;
  gap.stop = stop_within(p, gap.text - p.text, gap.length);
  gap.first_bytes = first_within(p, gap.text - p.text);
  if (!e->tokenizer->pre_tokenizer.steps[step].drop_unmatched) {
    return split(e, gap, step + 1, done);
  }
  *done = gap.stop == no_stop && gap.final ? ALL_DONE : LOST;
  return OT_OK;
}

// A match of step `step` in `p`, final whatever follows.
static inline ot_status add_match(ot_encoder *e, part p, int step, ot_token_text match,
                                  progress *done) {
  const ot_pre_tokenizer *const pre = &e->tokenizer->pre_tokenizer;
  if (pre->steps[step].drop_matched) return OT_OK;
  // The last step's matches are pre-tokens: no further level.
  if (step + 1 == pre->num_steps) return add_split(e, match.bytes, match.length);
  const part matched = {.text = match.bytes,
                        .length = match.length,
                        .stop = no_stop,
                        .final = true,
                        .first_bytes = first_within(p, match.bytes - p.text)};
  return split(e, matched, step + 1, done);
}

// One match of step `step` at or after byte `*at` of `p`, with the gap before it. Moves `*at` after
// it; `done` is ALL_DONE while there is more to do.
static ot_status split_once(ot_encoder *e, part p, int step, int64_t *at, progress *done) {
  const ot_split_step *const s = &e->tokenizer->pre_tokenizer.steps[step];
  const ot_split_subject subject = {.text = p.text, .length = p.length, .final = p.final};
  ot_split_match match;
  OT_TRY(ot_split_pattern_next(s->pattern, e->matcher, &subject, *at, &match));
  const bool found = match.outcome == OT_SPLIT_FOUND;
  const bool no_gap = found && (match.start == *at || s->joined_with_previous);
  if (!no_gap) {
    const int64_t gap_end = match.outcome == OT_SPLIT_NONE ? p.length : match.start;
    const bool gap_final = found || (match.outcome == OT_SPLIT_NONE && p.final);
    const part gap = {.text = p.text + *at, .length = gap_end - *at, .final = gap_final};
    OT_TRY(split_gap(e, p, step, gap, done));
    if (*done == ALL_DONE && match.outcome == OT_SPLIT_UNDECIDED) *done = LOST;
    if (*done != ALL_DONE) return OT_OK;
    *at = gap_end;
    *done = progress_at(p, *at);
    if (*done != ALL_DONE || !found) return OT_OK;
  }
  OT_TRY(add_match(e, p, step, (ot_token_text){p.text + *at, match.stop - *at}, done));
  *at = match.stop;
  *done = progress_at(p, *at);
  return OT_OK;
}

static ot_status split(ot_encoder *e, part p, int step, progress *done) {
  const ot_pre_tokenizer *const pre = &e->tokenizer->pre_tokenizer;
  if (step == pre->num_steps) return add_last(e, p, done);
  if (pre->steps[step].kind == OT_SPLIT_PREFIX_SPACE) return split_prefixed(e, p, step, done);
  if (pre->steps[step].kind == OT_SPLIT_METASPACE) return split_at_marks(e, p, step, done);
  *done = ALL_DONE;
  int64_t at = 0;
  while (at < p.length && *done == ALL_DONE) OT_TRY(split_once(e, p, step, &at, done));
  if (*done == ALL_DONE && !p.final) *done = LOST;
  return OT_OK;
}

// ---- added tokens and normalizer ----

typedef ot_status (*level)(ot_encoder *e, part p, progress *done);

static ot_status add_added(ot_encoder *e, int32_t id) {
  return e->sink ? OT_OK : ot_token_list_append(e->ids, &id, 1);
}

// Splits `p` at the added tokens of `set`; passes the gaps to `below`.
static ot_status cut_at_added(ot_encoder *e, const ot_added_tokens *set, part p, level below,
                              progress *done) {
  if (!set) return below(e, p, done);
  const ot_added_text text = {.text = p.text, .length = p.length, .final = p.final};
  *done = ALL_DONE;
  for (int64_t at = 0; at < p.length && *done == ALL_DONE;) {
    const ot_added_match match = ot_added_tokens_next(set, &text, at);
    const bool found = match.outcome == OT_ADDED_FOUND;
    part gap = {.text = p.text + at, .final = found, .first_bytes = first_within(p, at)};
    gap.length = (match.outcome == OT_ADDED_NONE ? p.length : match.start) - at;
    if (match.outcome == OT_ADDED_NONE) gap.final = p.final;
    gap.stop = stop_within(p, at, gap.length);
    if (gap.length > 0) OT_TRY(below(e, gap, done));
    if (*done == ALL_DONE && match.outcome == OT_ADDED_UNDECIDED) *done = LOST;
    if (*done != ALL_DONE) return OT_OK;
    at += gap.length;
    *done = progress_at(p, at);
    if (*done != ALL_DONE || !found) return OT_OK;
    OT_TRY(add_added(e, match.id));
    at = match.stop;
    *done = progress_at(p, at);
  }
  if (*done == ALL_DONE && !p.final) *done = LOST;
  return OT_OK;
}

static ot_status add_normal_span(ot_encoder *e, part p, progress *done) {
  return split(e, p, 0, done);
}

static ot_status cut_normal(ot_encoder *e, part p, progress *done) {
  return cut_at_added(e, e->tokenizer->of_normal, p, add_normal_span, done);
}

static ot_status append_normal(ot_encoder *e, part p, int64_t from, int64_t to) {
  ot_normal_text text = {.text = p.text + from, .length = to - from};
  OT_TRY(ot_normalizer_apply(e->tokenizer->normalizer, e->matcher, &text, &e->normal[1]));
  return ot_buffer_append(&e->normal[0], text.text, text.length);
}

// A part of a window, with a normalizer that treats both sides of an ASCII character separately.
static ot_status normalize_window(ot_encoder *e, part p, progress *done) {
  const int64_t stop = p.stop == no_stop ? 0 : p.stop;
  const bool cuts_cleanly = p.stop == no_stop || (p.text[stop - 1] < 0x80 && p.text[stop] < 0x80);
  // The text after the last ASCII character may still compose with text beyond the window.
  while (!p.final && p.length > stop && p.text[p.length - 1] >= 0x80) p.length--;
  if (!p.final && p.length > stop) p.length--;
  if (!cuts_cleanly || p.length <= stop) {
    *done = LOST;
    return OT_OK;
  }
  e->normal[0].length = 0;
  OT_TRY(append_normal(e, p, 0, stop));
  if (p.stop != no_stop) p.stop = e->normal[0].length;
  OT_TRY(append_normal(e, p, stop, p.length));
  p.text = e->normal[0].data;
  p.length = e->normal[0].length;
  return cut_normal(e, p, done);
}

static ot_status normalize(ot_encoder *e, part p, progress *done) {
  const ot_normalizer *const normalizer = e->tokenizer->normalizer;
  if (ot_normalizer_is_identity(normalizer)) return cut_normal(e, p, done);
  if (ot_normalizer_keeps_ascii(normalizer) && ot_unicode_is_ascii(p.text, p.length)) {
    return cut_normal(e, p, done);
  }
  if (!p.final || p.stop != no_stop) return normalize_window(e, p, done);
  int width = 0;
  if (p.first_bytes > 0 && p.length > 0) (void)ot_unicode_first(p.text, p.length, &width);
  ot_normal_text text = {.text = p.text, .length = p.length, .first_bytes = width};
  OT_TRY(ot_normalizer_apply(normalizer, e->matcher, &text, &e->normal[1]));
  p.text = text.text;
  p.length = text.length;
  p.first_bytes = text.first_bytes;
  return cut_normal(e, p, done);
}

// ---- the text ----

static ot_status add_valid(ot_encoder *e, part p, int64_t at, int64_t valid, progress *done) {
  part span = p;
  span.text = p.text + at;
  span.length = valid;
  span.stop = stop_within(p, at, valid);
  span.final = p.final || at + valid < p.length;
  span.first_bytes = first_within(p, at);
  return cut_at_added(e, e->tokenizer->raw, span, normalize, done);
}

static ot_status encode_text(ot_encoder *e, part p, progress *done) {
  *done = ALL_DONE;
  for (int64_t at = 0; at < p.length && *done == ALL_DONE;) {
    bool truncated;
    int64_t width = ot_unicode_valid_prefix(p.text + at, p.length - at, &truncated);
    if (!p.final && truncated) p.length = at + width;
    if (at == p.length) break;
    if (width > 0) {
      OT_TRY(add_valid(e, p, at, width, done));
    } else {
      width = 1;
      OT_TRY(add_piece(e, p.text + at, 1));
    }
    if (*done != ALL_DONE) return OT_OK;
    at += width;
    *done = progress_at(p, at);
  }
  if (*done == ALL_DONE && !p.final) *done = LOST;
  return OT_OK;
}

static ot_status add_window(ot_encoder *e, const ot_text_window *window, bool *reached) {
  OT_ASSERT(window->stop <= window->length && (!window->final || window->stop == window->length));
  const part p = {.text = window->text,
                  .length = window->length,
                  .stop = window->stop < window->length ? window->stop : no_stop,
                  .final = window->final,
                  .first_bytes = 1};
  progress done;
  OT_TRY(encode_text(e, p, &done));
  *reached = done != LOST;
  return OT_OK;
}

// ---- public ----

bool ot_tokenizer_is_splittable(const ot_tokenizer *tokenizer) {
  const ot_added_tokens *const sets[] = {tokenizer->raw, tokenizer->of_normal};
  return ot_normalizer_is_local(tokenizer->normalizer) &&
         ot_pre_tokenizer_is_memoryless(&tokenizer->pre_tokenizer) &&
         !(sets[0] && ot_added_tokens_look_back(sets[0])) &&
         !(sets[1] && ot_added_tokens_look_back(sets[1]));
}

ot_status ot_encoder_create(const ot_tokenizer *tokenizer, ot_encoder **out) {
  *out = NULL;
  ot_encoder *encoder = calloc(1, sizeof *encoder);
  OT_CHECK(encoder, OT_ENVIRONMENT, "out of memory (encoder)");
  encoder->tokenizer = tokenizer;
  ot_status status = ot_split_matcher_create(&encoder->matcher);
  if (status == OT_OK) status = ot_pre_token_cache_create(&encoder->cache);
  if (status != OT_OK) ot_encoder_destroy(&encoder);
  *out = encoder;
  return status;
}

void ot_encoder_destroy(ot_encoder **encoder) {
  ot_encoder *const e = *encoder;
  if (!e) return;
  ot_split_matcher_destroy(&e->matcher);
  ot_pre_token_cache_destroy(&e->cache);
  for (int i = 0; i < OT_COUNT(e->normal); i++) ot_buffer_release(&e->normal[i]);
  for (int i = 0; i < OT_COUNT(e->rewritten); i++) ot_buffer_release(&e->rewritten[i]);
  ot_buffer_release(&e->scratch);
  free(e);
  *encoder = NULL;
}

ot_status ot_encoder_encode_window(ot_encoder *encoder, const ot_text_window *window,
                                   ot_token_list *ids, bool *reached) {
  encoder->ids = ids;
  encoder->sink = NULL;
  return add_window(encoder, window, reached);
}

ot_status ot_encoder_split_window(ot_encoder *encoder, const ot_text_window *window,
                                  ot_pre_token_sink sink, void *context, bool *reached) {
  encoder->sink = sink;
  encoder->sink_context = context;
  return add_window(encoder, window, reached);
}

void ot_encoder_limit(ot_encoder *encoder, int64_t vocab_size) {
  const bool binds = vocab_size < ot_tokenizer_vocab_size(encoder->tokenizer);
  encoder->vocab_size = binds ? vocab_size : 0;
}

static ot_status check_limit(const ot_encoder *e, const ot_token_list *ids, int64_t from) {
  for (int64_t i = from; e->vocab_size > 0 && i < ids->count; i++) {
    if (ids->ids[i] < e->vocab_size) continue;
    const ot_spelled_token token = e->tokenizer->spelled[ids->ids[i]];
    return ot_fail(OT_USAGE,
                   "the text has the token \"%.*s\" (id %d), which the model lacks: it has the ids "
                   "0 to %lld",
                   (int)token.length, token.text, ids->ids[i], (long long)e->vocab_size - 1);
  }
  return OT_OK;
}

ot_status ot_encoder_encode(ot_encoder *encoder, const char *text, int64_t length,
                            ot_token_list *ids) {
  const ot_text_window whole = {
      .text = (const uint8_t *)text, .length = length, .stop = length, .final = true};
  const int64_t before = ids->count;
  bool reached;
  OT_TRY(ot_encoder_encode_window(encoder, &whole, ids, &reached));
  return check_limit(encoder, ids, before);
}
