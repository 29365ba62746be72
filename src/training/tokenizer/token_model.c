// SPDX-License-Identifier: Apache-2.0
// The table of models.
#include "tokenizer/token_model.h"

#include "tokenizer/bpe.h"
#include "tokenizer/unigram.h"

static const ot_part_kind kinds[] = {
    {.type = "BPE",
     .keys = {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
              "byte_fallback", "ignore_merges", "vocab", "merges"},
     .read = ot_bpe_read},
    {.type = "Unigram", .keys = {"unk_id", "vocab", "byte_fallback"}, .read = ot_unigram_read},
};

ot_status ot_token_model_read(ot_tokenizer_reader *reader, const json_t *json, bool byte_level,
                              ot_vocabulary *vocabulary, ot_token_model *out) {
  static const ot_part_table table = {
      .place = "model", .kinds = kinds, .num_kinds = OT_COUNT(kinds)};
  ot_token_model_reading reading = {
      .byte_level = byte_level, .vocabulary = vocabulary, .model = out};
  OT_CHECK(json_is_object(json), OT_USAGE, "%s: no model", reader->name);
  // The first versions of tokenizers did not name BPE.
  if (!ot_part_is_unset(json_object_get(json, "type"))) {
    return ot_part_read(reader, &table, json, &reading);
  }
  return ot_part_read_as(reader, &table, "BPE", json, &reading);
}

void ot_token_model_destroy(ot_token_model *model) {
  if (model->self) model->kind->destroy(&model->self);
}

int64_t ot_vocabulary_id_bound(int64_t count) {
  enum { SPARE = 1 << 16 };  // ids that a file may leave unused, beyond one for each entry
  const int64_t bound = 2 * count + SPARE;
  return bound < OT_VOCABULARY_MAX ? bound : OT_VOCABULARY_MAX;
}
