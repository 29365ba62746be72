// SPDX-License-Identifier: Apache-2.0
// The alphabet in closed form: three runs of bytes are moved (0-32, 127-160, 173).
#include "tokenizer/byte_alphabet.h"

#include <string.h>

enum { MOVED = 256, SECOND_RUN = MOVED + 33, THIRD_RUN = SECOND_RUN + 34 };

uint32_t ot_byte_alphabet_code(uint8_t byte) {
  if (byte <= 32) return MOVED + byte;
  if (byte >= 127 && byte <= 160) return SECOND_RUN + byte - 127u;
  if (byte == 173) return THIRD_RUN;
  return byte;
}

static int byte_of_code(uint32_t code) {
  if (code >= MOVED) {
    if (code < SECOND_RUN) return (int)(code - MOVED);
    if (code < THIRD_RUN) return (int)(code - SECOND_RUN + 127);
    return code == THIRD_RUN ? 173 : -1;
  }
  return ot_byte_alphabet_code((uint8_t)code) == code ? (int)code : -1;
}

int64_t ot_byte_alphabet_write(const uint8_t *bytes, int64_t length, char *text) {
  int64_t n = 0;
  for (int64_t i = 0; i < length; i++) {
    const uint32_t code = ot_byte_alphabet_code(bytes[i]);
    if (code >= 0x80) text[n++] = (char)(0xC0 | code >> 6);
    text[n++] = (char)(code >= 0x80 ? 0x80 | (code & 0x3F) : code);
  }
  return n;
}

int64_t ot_byte_alphabet_read(const char *text, int64_t length, uint8_t *bytes) {
  int64_t n = 0;
  for (int64_t i = 0; i < length; i++) {
    uint32_t code = (uint8_t)text[i];
    if (code >= 0x80) {
      if (code < 0xC2 || code > 0xC5 || i + 1 == length) return -1;
      const uint8_t next = (uint8_t)text[++i];
      if ((next & 0xC0) != 0x80) return -1;
      code = (code & 0x1F) << 6 | (next & 0x3F);
    }
    const int byte = byte_of_code(code);
    if (byte < 0) return -1;
    bytes[n++] = (uint8_t)byte;
  }
  return n;
}

void ot_byte_alphabet_write_fallback(uint8_t byte, char text[OT_BYTE_FALLBACK_LENGTH + 1]) {
  static const char digits[] = "0123456789ABCDEF";
  memcpy(text, "<0x00>", OT_BYTE_FALLBACK_LENGTH + 1);
  text[3] = digits[byte >> 4];
  text[4] = digits[byte & 15];
}

static int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int ot_byte_alphabet_read_fallback(const char *text, int64_t length) {
  if (length != OT_BYTE_FALLBACK_LENGTH || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
  const int high = digit_of(text[3]), low = digit_of(text[4]);
  return high < 0 || low < 0 ? -1 : high << 4 | low;
}
