// SPDX-License-Identifier: Apache-2.0
// Lines for `orthant score`, with a tokenizer of bytes.
#include "cli/score_lines.h"
#include "fuzz/fuzz.h"

enum { VOCAB = 300, POSITIONS = 64 };

static ot_status check_line(const ot_score_line *line) {
  if (line->error) return ot_fail(OT_USAGE, "%s", line->error);
  fuzz_require(line->tokens.count >= 1 && line->tokens.count <= POSITIONS,
               "a line has 1 to max_positions tokens");
  fuzz_require(line->first >= 1, "the first token has no probability");
  for (int64_t i = 0; i < line->tokens.count; i++)
    fuzz_require(line->tokens.ids[i] >= 0 && line->tokens.ids[i] < VOCAB,
                 "ids are in the vocabulary");
  return OT_OK;
}

static ot_status read_lines(const char *path, ot_encoder *encoder, ot_arena *arena) {
  const ot_model model = {.vocab_size = VOCAB, .max_positions = POSITIONS};
  const ot_score_source source = {path, "model", &model, encoder};
  ot_score_lines lines;
  ot_status status = ot_score_lines_read(&source, arena, &lines);
  for (int64_t i = 0; i < lines.count && status == OT_OK; i++) status = check_line(&lines.line[i]);
  ot_score_lines_release(&lines);
  return status;
}

ot_status fuzz_one(const uint8_t *data, size_t size, ot_arena *arena) {
  // Made once: that takes longer than most inputs.
  static ot_tokenizer *tokenizer;
  static ot_encoder *encoder;
  if (!tokenizer) OT_TRY(ot_tokenizer_create("bytes", &tokenizer));
  if (!encoder) OT_TRY(ot_encoder_create(tokenizer, &encoder));
  return read_lines(fuzz_file("lines.jsonl", data, size), encoder, arena);
}
