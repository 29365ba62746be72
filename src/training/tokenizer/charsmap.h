// SPDX-License-Identifier: Apache-2.0
// The character rewriting of SentencePiece models (precompiled_charsmap: a double-array trie from
// characters to normal forms; mostly NFKC with changes). Applied as in HF tokenizers: grapheme
// clusters of less than 6 bytes as a whole, other clusters character by character; the shortest
// prefix in the trie determines the replacement of a text, and the rest of the text is dropped.
#pragma once

#include <stdint.h>

#include "base/status.h"
#include "tokenizer/buffer.h"

typedef struct ot_charsmap ot_charsmap;  // immutable, shared by threads

// From the base64 text of the map. OT_USAGE with the fault.
ot_status ot_charsmap_create(const char *base64, int64_t length, ot_charsmap **out);
void ot_charsmap_destroy(ot_charsmap **map);

// Appends the normal form of `text` [length], valid UTF-8, to `out`; `first_bytes` of them come
// from the first character, 0 if `text` is empty.
ot_status ot_charsmap_apply(const ot_charsmap *map, const uint8_t *text, int64_t length,
                            ot_buffer *out, int64_t *first_bytes);
