// SPDX-License-Identifier: Apache-2.0
// The byte alphabet of byte-level BPE (GPT-2): each byte is written as one printable character, so
// that token strings are text. Bytes 33-126, 161-172 and 174-255 map to the same code points; the
// other 68, in ascending order, to U+0100 and up (space is U+0120, newline U+010A). Text
// vocabularies instead have tokens <0x00> to <0xFF> for the bytes of characters that they lack
// (SentencePiece's byte fallback).
#pragma once

#include <stdint.h>

// The code point of `byte`, below U+0144.
uint32_t ot_byte_alphabet_code(uint8_t byte);

// Writes `bytes` [length] in the alphabet as UTF-8 into `text` [2 * length]; returns its length.
int64_t ot_byte_alphabet_write(const uint8_t *bytes, int64_t length, char *text);

// Reads `text` [length], UTF-8 in the alphabet, into `bytes` [length]. Returns the number of bytes,
// or -1 if a character is outside the alphabet.
int64_t ot_byte_alphabet_read(const char *text, int64_t length, uint8_t *bytes);

// Writes `byte` as <0x0A>, with digits in upper case, and a zero.
enum { OT_BYTE_FALLBACK_LENGTH = 6 };
void ot_byte_alphabet_write_fallback(uint8_t byte, char text[OT_BYTE_FALLBACK_LENGTH + 1]);

// The byte that `text` [length] spells as <0x0A>, with digits in either case; -1 if it spells none.
int ot_byte_alphabet_read_fallback(const char *text, int64_t length);
