// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back. Tokenizers are HF tokenizer.json files: byte-level BPE (GPT-2, Llama
// 3, Qwen families), BPE of characters with byte fallback (Llama 2, Mistral, Gemma) and Unigram
// (T5, XLM-R); GPT-2's vocab.json with merges.txt; or `bytes`: one id per byte and 256 as end of
// document.
//
// Every byte string can be encoded. In text that is not UTF-8, each invalid byte is a separate
// pre-token and the valid text between is encoded as if alone. decode(encode(x)) == x, unless the
// tokenizer itself changes text: a normalizer, a prepended space, unknown characters without byte
// fallback, or an added token with lstrip or rstrip. Nothing is prepended or appended:
// post-processors are not run.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "files/content_hash.h"
#include "tokenizer/buffer.h"

typedef struct ot_tokenizer ot_tokenizer;  // immutable, shared by threads
typedef struct ot_encoder ot_encoder;      // one per thread: work memory and a pre-token cache

// Opens `path`: a tokenizer.json, a directory that holds one or vocab.json and merges.txt, a GPT-2
// vocabulary (*vocab.json with *merges.txt next to it), or "bytes". OT_ENVIRONMENT if a file cannot
// be read, OT_USAGE if it is malformed or has an unsupported setting that would change the ids; the
// message names file and key.
ot_status ot_tokenizer_create(const char *path, ot_tokenizer **out);

// As above from the text of a tokenizer.json, `json` [length]; `name` is used in messages.
ot_status ot_tokenizer_create_from_json(const char *json, int64_t length, const char *name,
                                        ot_tokenizer **out);
void ot_tokenizer_destroy(ot_tokenizer **tokenizer);

// One more than the largest id.
int64_t ot_tokenizer_vocab_size(const ot_tokenizer *tokenizer);

// The end-of-document id: `bytes`: 256; else eos_token of a tokenizer_config.json next to the file
// (special_tokens.h has the other special tokens), else the first of <|endoftext|>,
// <|end_of_text|>, </s>, <eos>, <|eos|> in the vocabulary; -1 if there is none.
int32_t ot_tokenizer_eos(const ot_tokenizer *tokenizer);

// The id of the token `text` (as written in the vocabulary or as an added token), or -1.
int32_t ot_tokenizer_find(const ot_tokenizer *tokenizer, const char *text);

// The bytes of `id` within a text; null if there is no such token, then `length` is 0.
const uint8_t *ot_tokenizer_bytes(const ot_tokenizer *tokenizer, int64_t id, int64_t *length);

// Appends the bytes of `ids` [count], a text from its start, to `out`: its first token may lose the
// prepended space. OT_USAGE, naming position and id, if one is unknown.
ot_status ot_tokenizer_decode(const ot_tokenizer *tokenizer, const int32_t *ids, int64_t count,
                              ot_buffer *out);

// The same for `ids` that continue a text.
ot_status ot_tokenizer_decode_more(const ot_tokenizer *tokenizer, const int32_t *ids, int64_t count,
                                   ot_buffer *out);

// The tokenizer as tokenizer.json text: the file itself, or an equivalent with the same ids for a
// GPT-2 pair or `bytes`. Valid until destroy.
const char *ot_tokenizer_json(const ot_tokenizer *tokenizer, int64_t *length);

// XXH3-128 of that text as 32 hexadecimal digits: identifies the tokenizer in token shards.
void ot_tokenizer_hash(const ot_tokenizer *tokenizer, char hash[OT_CONTENT_HASH_BYTES]);

// Keeps `tokenizer` until destroy.
ot_status ot_encoder_create(const ot_tokenizer *tokenizer, ot_encoder **out);
void ot_encoder_destroy(ot_encoder **encoder);

// From here on a text with an id that is not below `vocab_size`, a token for which the model has no
// row, is refused (OT_USAGE).
void ot_encoder_limit(ot_encoder *encoder, int64_t vocab_size);

// Appends the ids of `text` [length], any bytes, to `ids`. Linear in `length`.
ot_status ot_encoder_encode(ot_encoder *encoder, const char *text, int64_t length,
                            ot_token_list *ids);
