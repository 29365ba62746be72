// SPDX-License-Identifier: Apache-2.0
// Growing arrays of bytes and of token ids, for output of unknown length. Open structs: a zeroed
// one is empty and ready; its owner releases it.
#pragma once

#include <stdint.h>

#include "base/status.h"

typedef struct ot_buffer {
  uint8_t *data;  // [capacity]; null while capacity is 0
  int64_t length;
  int64_t capacity;
} ot_buffer;

// Reserves `more` bytes after `length`. OT_ENVIRONMENT when out of memory.
ot_status ot_buffer_reserve(ot_buffer *buffer, int64_t more);
ot_status ot_buffer_append(ot_buffer *buffer, const void *bytes, int64_t length);
ot_status ot_buffer_append_text(ot_buffer *buffer, const char *text);
void ot_buffer_release(ot_buffer *buffer);

// Borrowed bytes: a piece of text, or the bytes of a token.
typedef struct ot_token_text {
  const uint8_t *bytes;  // null if there is no such token
  int64_t length;
} ot_token_text;

typedef struct ot_token_list {
  int32_t *ids;  // [capacity]
  int64_t count;
  int64_t capacity;
} ot_token_list;

ot_status ot_token_list_reserve(ot_token_list *list, int64_t more);
ot_status ot_token_list_append(ot_token_list *list, const int32_t *ids, int64_t count);
void ot_token_list_release(ot_token_list *list);
