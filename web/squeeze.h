// SPDX-License-Identifier: Apache-2.0
// Packs bytes well: texts, and WebAssembly, whose code takes most of the page. A model predicts
// each bit from what came before, by mixing the predictions of several contexts (Mahoney 2005,
// "Adaptive weighing of context models", PAQ); an arithmetic coder stores the bits in as little as
// their probability allows. The packer and the page run the same model: it uses only + - * / of
// float and integers, so both predict the same.
#pragma once

#include <stdbool.h>
#include <stdint.h>

// The bits of `bytes` [size], whose range [code_from, code_to) is the code section of a module.
typedef struct ot_squeeze {
  const uint8_t *bytes;
  int64_t size, code_from, code_to;
} ot_squeeze;

enum { OT_SQUEEZE_HEAD = 12 };  // size, code_from, code_to: little-endian, before the coded bits

// Appends the packed form of `of` to `out`, which has room for `room` bytes; the length, or -1.
int64_t ot_squeeze_pack(const ot_squeeze *of, uint8_t *out, int64_t room);

// Unpacks `packed` [length] to `out` [size], `count` bytes with each further call, which tells
// whether more are left. Browsers replace their first, slow translation of a function between its
// calls.
void ot_squeeze_unpack_begin(const uint8_t *packed, int64_t length, uint8_t *out);
bool ot_squeeze_unpack(int64_t count);
