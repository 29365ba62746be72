// SPDX-License-Identifier: Apache-2.0
// Growing text in an arena, for the _print functions of products.
#pragma once

#include "base/arena.h"

typedef struct ot_text_builder {
  ot_arena *arena;
  char *text;        // [length], zero-terminated; null before the first append
  int64_t length;    // bytes without the zero
  int64_t capacity;  // bytes of `text`
} ot_text_builder;

// Appends `length` bytes.
void ot_text_append(ot_text_builder *builder, const char *text, int64_t length);

// Appends all of `text`.
void ot_text_put(ot_text_builder *builder, const char *text);

// Appends formatted text; conversions as ot_text_format, at most 4 KiB per call.
void ot_text_appendf(ot_text_builder *builder, const char *format, ...);

// The text so far; "" before the first append.
const char *ot_text_builder_text(const ot_text_builder *builder);
