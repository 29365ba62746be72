// SPDX-License-Identifier: Apache-2.0
// Readers of the kinds of decoders, and the decoding of one token. Rejects decoders for which a
// token's bytes depend on more context than whether it is the first.
#include "tokenizer/token_decoder.h"

#include <string.h>

#include "base/text.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/unicode.h"

typedef struct reading {
  ot_token_decoder *decoder;
  ot_arena *arena;
  bool byte_level;  // the vocabulary
} reading;

static ot_status add_step(const ot_tokenizer_reader *r, const reading *d, const char *type,
                          ot_token_decoder_step step) {
  ot_token_decoder *const to = d->decoder;
  OT_CHECK(!to->byte_level && !to->byte_fallback && !to->fused && !to->strip, OT_USAGE,
           "%s: decoder: %s after ByteLevel, ByteFallback, Fuse or Strip is not supported", r->name,
           type);
  OT_CHECK(to->num_steps < OT_MAX_DECODER_STEPS, OT_USAGE, "%s: decoder: more than %d steps",
           r->name, OT_MAX_DECODER_STEPS);
  to->steps[to->num_steps++] = step;
  return OT_OK;
}

static const char *keep(const reading *d, const char *text) {
  return ot_arena_text(d->arena, text, ot_text_length(text));
}

static ot_status read_byte_level(ot_tokenizer_reader *r, const json_t *part, void *into) {
  (void)part;
  const reading *const d = into;
  OT_CHECK(d->byte_level, OT_USAGE, "%s: decoder is ByteLevel, but pre_tokenizer has no ByteLevel",
           r->name);
  d->decoder->byte_level = true;
  return OT_OK;
}

static ot_status read_replace(ot_tokenizer_reader *r, const json_t *part, void *into) {
  const reading *const d = into;
  ot_part_pattern pattern;
  const char *content;
  OT_TRY(ot_part_pattern_read(r, "decoder: Replace", part, &pattern));
  OT_TRY(ot_part_text(r, "decoder: Replace", part, "content", &content));
  if (!pattern.literal) {
    (void)ot_part_refuse(r, "decoder: Replace", "a pattern of kind Regex");
    return ot_fail_hint(OT_USAGE, "supported: {\"String\": TEXT}");
  }
  return add_step(r, d, "Replace",
                  (ot_token_decoder_step){.from = keep(d, pattern.text), .to = keep(d, content)});
}

static ot_status read_metaspace(ot_tokenizer_reader *r, const json_t *part, void *into) {
  static const char place[] = "decoder: Metaspace";
  const reading *const d = into;
  char mark[OT_MARK_BYTES];
  ot_metaspace_prefix prefix;
  OT_TRY(ot_metaspace_mark_read(r, place, part, mark));
  OT_TRY(ot_metaspace_prefix_read(r, place, part, &prefix));
  return add_step(
      r, d, "Metaspace",
      (ot_token_decoder_step){
          .from = keep(d, mark), .to = " ", .dropped_first = prefix != OT_METASPACE_NEVER});
}

static ot_status read_byte_fallback(ot_tokenizer_reader *r, const json_t *part, void *into) {
  (void)r;
  (void)part;
  ((const reading *)into)->decoder->byte_fallback = true;
  return OT_OK;
}

static ot_status read_fuse(ot_tokenizer_reader *r, const json_t *part, void *into) {
  (void)r;
  (void)part;
  ((const reading *)into)->decoder->fused = true;
  return OT_OK;
}

// Strips at most one leading character, as existing files do: so the first token determines the
// result.
static ot_status read_strip(ot_tokenizer_reader *r, const json_t *part, void *into) {
  static const char place[] = "decoder: Strip";
  const reading *const d = into;
  const char *content;
  OT_TRY(ot_part_text(r, place, part, "content", &content));
  const json_int_t start = json_integer_value(json_object_get(part, "start"));
  const json_int_t stop = json_integer_value(json_object_get(part, "stop"));
  int width = 0;
  if (content[0]) (void)ot_unicode_first((const uint8_t *)content, ot_text_length(content), &width);
  OT_CHECK(width > 0 && content[width] == '\0', OT_USAGE,
           "%s: %s: content is \"%s\"; allowed: one character", r->name, place, content);
  OT_CHECK(start >= 0 && start <= 1 && stop == 0, OT_USAGE,
           "%s: %s: start is %lld, stop %lld; allowed: start 0 or 1, stop 0", r->name, place,
           (long long)start, (long long)stop);
  OT_CHECK(d->decoder->fused, OT_USAGE, "%s: %s without Fuse before it is not supported", r->name,
           place);
  if (start == 1) d->decoder->strip = keep(d, content);
  return OT_OK;
}

static const ot_part_kind kinds[] = {
    {.type = "ByteLevel",
     .keys = {"add_prefix_space", "trim_offsets", "use_regex"},
     .read = read_byte_level},
    {.type = "Replace", .keys = {"pattern", "content"}, .read = read_replace},
    {.type = "Metaspace",
     .keys = {"replacement", "prepend_scheme", "add_prefix_space", "split", "str_rep"},
     .read = read_metaspace},
    {.type = "ByteFallback", .read = read_byte_fallback},
    {.type = "Fuse", .read = read_fuse},
    {.type = "Strip", .keys = {"content", "start", "stop"}, .read = read_strip},
};

ot_status ot_token_decoder_read(ot_tokenizer_reader *reader, const json_t *json, bool byte_level,
                                ot_arena *arena, ot_token_decoder *out) {
  static const ot_part_table table = {
      .place = "decoder", .sequence = "decoders", .kinds = kinds, .num_kinds = OT_COUNT(kinds)};
  reading d = {.decoder = out, .arena = arena, .byte_level = byte_level};
  OT_TRY(ot_part_read(reader, &table, json, &d));
  if (!byte_level) {
    OT_CHECK(!ot_part_is_unset(json), OT_USAGE,
             "%s: decoder is null, and pre_tokenizer has no ByteLevel: the text of tokens is "
             "undefined",
             reader->name);
    return OT_OK;
  }
  const bool alone = out->num_steps == 0 && !out->byte_fallback && !out->strip;
  OT_CHECK(alone, OT_USAGE, "%s: decoder: only ByteLevel and Fuse are supported with ByteLevel",
           reader->name);
  out->byte_level = true;
  return OT_OK;
}

// ---- bytes of a token ----

// Replaces `from` by `to` in `out` from byte `start` on.
static ot_status replace_from(ot_buffer *out, int64_t start, const char *from, const char *to) {
  const int64_t width = ot_text_length(from), to_width = ot_text_length(to);
  ot_buffer old = {0};
  ot_status status = ot_buffer_append(&old, out->data + start, out->length - start);
  out->length = start;
  int64_t at = 0;
  while (status == OT_OK && at < old.length) {
    const uint8_t *const found =
        memmem(old.data + at, (size_t)(old.length - at), from, (size_t)width);
    const int64_t stop = found ? found - old.data : old.length;
    status = ot_buffer_append(out, old.data + at, stop - at);
    if (status == OT_OK && found) status = ot_buffer_append(out, to, to_width);
    at = found ? stop + width : stop;
  }
  ot_buffer_release(&old);
  return status;
}

static ot_status append_byte_level(ot_spelled_token token, ot_buffer *out) {
  OT_TRY(ot_buffer_reserve(out, token.length));
  const int64_t n = ot_byte_alphabet_read(token.text, token.length, out->data + out->length);
  if (n <= 0) return ot_buffer_append(out, token.text, token.length);
  out->length += n;
  return OT_OK;
}

ot_status ot_token_decoder_append(const ot_token_decoder *decoder, ot_spelled_token token,
                                  ot_buffer *out) {
  const int64_t start = out->length;
  if (decoder->byte_level) return append_byte_level(token, out);
  OT_TRY(ot_buffer_append(out, token.text, token.length));
  for (int i = 0; i < decoder->num_steps; i++) {
    const ot_token_decoder_step *const step = &decoder->steps[i];
    if (out->length == start || !memmem(out->data + start, (size_t)(out->length - start),
                                        step->from, (size_t)ot_text_length(step->from))) {
      continue;
    }
    const char *const to = token.first && step->dropped_first ? "" : step->to;
    OT_TRY(replace_from(out, start, step->from, to));
  }
  const char *const text = (const char *)out->data + start;
  const int byte =
      decoder->byte_fallback ? ot_byte_alphabet_read_fallback(text, out->length - start) : -1;
  if (byte >= 0) {
    out->data[start] = (uint8_t)byte;
    out->length = start + 1;
  }
  const int64_t width = decoder->strip ? ot_text_length(decoder->strip) : 0;
  const bool stripped = token.first && width > 0 && out->length - start >= width &&
                        memcmp(out->data + start, decoder->strip, (size_t)width) == 0;
  if (!stripped) return OT_OK;
  memmove(out->data + start, out->data + start + width, (size_t)(out->length - start - width));
  out->length -= width;
  return OT_OK;
}
