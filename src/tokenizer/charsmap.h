// SPDX-License-Identifier: Apache-2.0
// The rewriting of characters that SentencePiece models carry with them (precompiled_charsmap: a
// double-array trie from characters to their normal forms; mostly NFKC with changes of its own).
// Applied as HF tokenizers does: to grapheme clusters of less than 6 bytes as a whole, to the
// characters of others one by one; what stands for a text is what its shortest prefix in the trie
// maps to, and the rest of the text is dropped.
#pragma once

#include <stdint.h>

#include "base/status.h"
#include "tokenizer/buffer.h"

typedef struct ot_charsmap ot_charsmap;  // immutable, shared by threads

// From the base64 text of the map. OT_USAGE saying what is wrong with it.
ot_status ot_charsmap_create(const char *base64, int64_t length, ot_charsmap **out);
void ot_charsmap_destroy(ot_charsmap **map);

// Appends the normal form of `text` [length], valid UTF-8, to `out`; `first_bytes` of them are what
// the first character became, 0 when `text` is empty.
ot_status ot_charsmap_apply(const ot_charsmap *map, const uint8_t *text, int64_t length,
                            ot_buffer *out, int64_t *first_bytes);
