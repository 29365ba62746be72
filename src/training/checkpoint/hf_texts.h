// SPDX-License-Identifier: Apache-2.0
// The small files of an HF directory, so that transformers and tools based on it load a checkpoint
// or an export unchanged: config.json, generation_config.json, tokenizer.json,
// tokenizer_config.json, and of the tokenizer's directory special_tokens_map.json and
// chat_template.jinja.
#pragma once

#include "checkpoint/checkpoint.h"
#include "describe/model.h"
#include "tokenizer/tokenizer.h"

enum { OT_HF_TEXTS_MAX = 6 };

typedef struct ot_hf_texts {
  int count;
  ot_checkpoint_text text[OT_HF_TEXTS_MAX];
} ot_hf_texts;

// Builds the files for `model` with weights of `dtype`; those of the tokenizer only if `tokenizer`,
// which must outlive them, is not null. Those next to it are kept as they are; the ids of the
// others are then its special tokens (ot_special_tokens_of), of which generation_config.json lists
// the end of documents first. Build them once per run: tokenizers are large.
ot_status ot_hf_texts_build(ot_arena *arena, const ot_model *model, ot_dtype dtype,
                            const ot_tokenizer *tokenizer, ot_hf_texts *out);
