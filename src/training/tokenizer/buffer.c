// SPDX-License-Identifier: Apache-2.0
// Arrays that double.
#include "tokenizer/buffer.h"

#include <stdlib.h>
#include <string.h>

// `array` with capacity for `needed` elements of `size` bytes; null when out of memory.
static void *grow(void *array, int64_t needed, int64_t *capacity, int64_t size) {
  int64_t larger = *capacity > 0 ? *capacity : 256;
  while (larger < needed) larger *= 2;
  void *const grown = realloc(array, (size_t)(larger * size));
  if (grown) *capacity = larger;
  return grown;
}

ot_status ot_buffer_reserve(ot_buffer *buffer, int64_t more) {
  OT_ASSERT(more >= 0 && more < INT64_MAX / 4);
  if (buffer->length + more <= buffer->capacity) return OT_OK;
  void *const grown = grow(buffer->data, buffer->length + more, &buffer->capacity, 1);
  OT_CHECK(grown, OT_ENVIRONMENT, "out of memory (%lld bytes)", (long long)buffer->length + more);
  buffer->data = grown;
  return OT_OK;
}

ot_status ot_buffer_append(ot_buffer *buffer, const void *bytes, int64_t length) {
  if (length == 0) return OT_OK;
  OT_TRY(ot_buffer_reserve(buffer, length));
  memcpy(buffer->data + buffer->length, bytes, (size_t)length);
  buffer->length += length;
  return OT_OK;
}

ot_status ot_buffer_append_text(ot_buffer *buffer, const char *text) {
  return ot_buffer_append(buffer, text, (int64_t)strlen(text));
}

void ot_buffer_release(ot_buffer *buffer) {
  free(buffer->data);
  *buffer = (ot_buffer){0};
}

ot_status ot_token_list_reserve(ot_token_list *list, int64_t more) {
  OT_ASSERT(more >= 0 && more < INT64_MAX / 16);
  if (list->count + more <= list->capacity) return OT_OK;
  void *const grown = grow(list->ids, list->count + more, &list->capacity, sizeof(int32_t));
  OT_CHECK(grown, OT_ENVIRONMENT, "out of memory (%lld tokens)", (long long)list->count + more);
  list->ids = grown;
  return OT_OK;
}

ot_status ot_token_list_append(ot_token_list *list, const int32_t *ids, int64_t count) {
  if (count == 0) return OT_OK;
  OT_TRY(ot_token_list_reserve(list, count));
  memcpy(list->ids + list->count, ids, (size_t)count * sizeof *ids);
  list->count += count;
  return OT_OK;
}

void ot_token_list_release(ot_token_list *list) {
  free(list->ids);
  *list = (ot_token_list){0};
}
