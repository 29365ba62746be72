// SPDX-License-Identifier: Apache-2.0
// One pass: every letter must be the next block.
#include "pipeline/stage_layout.h"

#include <stdbool.h>

#include "base/text.h"

enum { MAX_NAME = 64, MAX_REPEAT = 1 << 20 };

typedef struct layout_reader {
  const char *text, *at;
  int layers, chunks;
  int block;  // next block
  int chunk;  // current chunk
  int *first;
} layout_reader;

static int column(const layout_reader *r) { return (int)(r->at - r->text) + 1; }

// The letter of block `block`, '\0' after the last.
static char letter_of(const layout_reader *r, int block) {
  if (block == 0) return 'E';
  if (block <= r->layers) return 't';
  return block == r->layers + 1 ? 'L' : '\0';
}

static void name_due(const layout_reader *r, char *out) {
  const char due = letter_of(r, r->block);
  if (due == 'E') ot_text_format(out, MAX_NAME, "E (the embedding)");
  if (due == 't') ot_text_format(out, MAX_NAME, "t (layer %d of %d)", r->block, r->layers);
  if (due == 'L') ot_text_format(out, MAX_NAME, "L (the loss head, after %d layers)", r->layers);
  if (due == '\0') ot_text_format(out, MAX_NAME, "the end");
}

// Digits after '*'; 0 if there are none or the number is too large.
static int read_repeat(layout_reader *r) {
  int value = 0;
  while (*r->at >= '0' && *r->at <= '9') {
    if (value < MAX_REPEAT) value = value * 10 + (*r->at - '0');
    r->at++;
  }
  return value < MAX_REPEAT ? value : 0;
}

static ot_status read_block(layout_reader *r, char letter) {
  char due[MAX_NAME];
  name_due(r, due);
  OT_CHECK(letter_of(r, r->block) == letter, OT_USAGE,
           "parallel.layout: character %d: '%c', expected %s", column(r), letter, due);
  r->block++;
  return OT_OK;
}

static ot_status read_layers(layout_reader *r) {
  const layout_reader begun = *r;
  r->at++;
  int count = 1;
  if (*r->at == '*') {
    r->at++;
    count = read_repeat(r);
    OT_CHECK(count > 0, OT_USAGE,
             "parallel.layout: character %d: '*' needs a number of layers, such as t*12",
             column(&begun) + 1);
  }
  const int left = r->layers - (begun.block - 1);
  OT_CHECK(count == 1 || begun.block == 0 || count <= left, OT_USAGE,
           "parallel.layout: character %d: t*%d, but only %d of the model's %d layers remain",
           column(&begun), count, left > 0 ? left : 0, r->layers);
  layout_reader here = begun;
  for (int i = 0; i < count; i++) OT_TRY(read_block(&here, 't'));
  r->block = here.block;
  return OT_OK;
}

static ot_status end_chunk(layout_reader *r) {
  OT_CHECK(r->block > r->first[r->chunk], OT_USAGE,
           "parallel.layout: character %d: chunk %d is empty; each needs at least one of E, t and "
           "L",
           column(r), r->chunk);
  r->chunk++;
  if (r->chunk <= r->chunks) r->first[r->chunk] = r->block;
  return OT_OK;
}

static int count_chunks(const char *text) {
  int n = 1;
  for (; *text != '\0'; text++) n += *text == '|';
  return n;
}

static ot_status read_token(layout_reader *r) {
  switch (*r->at) {
    case 't':
      return read_layers(r);
    case 'E':
    case 'L':
      OT_TRY(read_block(r, *r->at));
      break;
    case '|':
      OT_TRY(end_chunk(r));
      break;
    case ' ':
      break;
    default:
      return ot_fail(OT_USAGE,
                     "parallel.layout: character %d: '%c'; allowed: E (embedding), t (a layer), "
                     "t*12 (twelve layers), L (loss head), | (next chunk)",
                     column(r), *r->at);
  }
  r->at++;
  return OT_OK;
}

ot_status ot_stage_layout_read(const char *text, int layers, int num_chunks, int *first) {
  layout_reader r = {
      .text = text, .at = text, .layers = layers, .chunks = num_chunks, .first = first};
  first[0] = 0;
  const int found = count_chunks(text);
  OT_CHECK(found == num_chunks, OT_USAGE,
           "parallel.layout has %d chunk%s; the stages need %d (each | begins the next)", found,
           ot_text_plural(found, "s"), num_chunks);
  while (*r.at != '\0') OT_TRY(read_token(&r));
  OT_TRY(end_chunk(&r));
  char due[MAX_NAME];
  name_due(&r, due);
  OT_CHECK(letter_of(&r, r.block) == '\0', OT_USAGE, "parallel.layout ends, expected %s", due);
  return OT_OK;
}
