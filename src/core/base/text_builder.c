// SPDX-License-Identifier: Apache-2.0
// Growing text by doubling inside an arena.
#include "base/text_builder.h"

#include <stdarg.h>
#include <string.h>

#include "base/text.h"

enum { FORMAT_BYTES = 4096, FIRST_BYTES = 256 };

static void reserve(ot_text_builder *builder, int64_t bytes) {
  if (bytes <= builder->capacity) return;
  int64_t capacity = builder->capacity > 0 ? builder->capacity : FIRST_BYTES;
  while (capacity < bytes) capacity *= 2;
  char *const grown = ot_arena_take(builder->arena, capacity);
  if (builder->length > 0) memcpy(grown, builder->text, (size_t)builder->length);
  builder->text = grown;
  builder->capacity = capacity;
}

void ot_text_append(ot_text_builder *builder, const char *text, int64_t length) {
  reserve(builder, builder->length + length + 1);
  memcpy(builder->text + builder->length, text, (size_t)length);
  builder->length += length;
  builder->text[builder->length] = '\0';
}

void ot_text_put(ot_text_builder *builder, const char *text) {
  ot_text_append(builder, text, ot_text_length(text));
}

void ot_text_appendf(ot_text_builder *builder, const char *format, ...) {
  char text[FORMAT_BYTES];
  va_list arguments;
  va_start(arguments, format);
  const int64_t length = ot_text_format_list(text, sizeof text, format, arguments);
  va_end(arguments);
  ot_text_append(builder, text, length);
}

const char *ot_text_builder_text(const ot_text_builder *builder) {
  return builder->text ? builder->text : "";
}
