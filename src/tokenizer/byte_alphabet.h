// SPDX-License-Identifier: Apache-2.0
// The byte alphabet of byte-level BPE (GPT-2): each byte is written as one printable character, so
// that token strings are text. Bytes 33-126, 161-172 and 174-255 stand for themselves as code
// points; the other 68, in increasing order, are U+0100 and up (space is U+0120, newline U+010A).
#pragma once

#include <stdint.h>

// The code point that stands for `byte`, below U+0144.
uint32_t ot_byte_alphabet_code(uint8_t byte);

// Writes `bytes` [length] in the alphabet as UTF-8 into `text` [2 * length]; returns its length.
int64_t ot_byte_alphabet_write(const uint8_t *bytes, int64_t length, char *text);

// Reads `text` [length], UTF-8 in the alphabet, into `bytes` [length]. Returns the number of bytes,
// or -1 when a character is outside the alphabet.
int64_t ot_byte_alphabet_read(const char *text, int64_t length, uint8_t *bytes);
