// SPDX-License-Identifier: Apache-2.0
// Files of log-probabilities: JSON lines of `orthant score`, of trainers in the same form, and
// answers of servers (OpenAI's API with vLLM's additions, SGLang, llama.cpp). docs/judge.md lists
// the keys. A file is untrusted: lines, tokens and lists have limits.
#pragma once

#include "base/arena.h"
#include "base/status.h"

// One of the most probable tokens of a place.
typedef struct ot_logprob_top {
  int32_t id;        // -1: not known
  const char *text;  // null: not known
  double logprob;    // nats; -INFINITY: the token cannot be drawn
} ot_logprob_top;

typedef struct ot_logprob_token {
  int32_t id;        // -1: not known
  const char *text;  // null: not known
  double logprob;    // nats; NAN: not scored; -INFINITY: the token cannot be drawn
  int num_top;
  const ot_logprob_top *top;  // [num_top]
} ot_logprob_token;

typedef struct ot_logprob_sequence {
  const char *name;          // in messages: "a.jsonl:3", "a.jsonl:3 choice 1"
  const char *id;            // of the user; null: none
  int64_t count;             // 0: the line is an error of the software
  ot_logprob_token *tokens;  // [count] tokens that are not scored, the prompt, come first
} ot_logprob_sequence;

typedef struct ot_logprob_file {
  const char *path;
  int64_t count, num_tokens;
  ot_logprob_sequence *sequences;  // [count] in the order of the file
} ot_logprob_file;

// Reads all lines, in `arena`. OT_ENVIRONMENT for a file that is not readable or not JSON, OT_USAGE
// for values that are not allowed; messages name file, line and key.
ot_status ot_logprob_file_read(const char *path, ot_arena *arena, ot_logprob_file *out);

// True if two tokens are equal: by ids, else by texts; *known false: neither decides.
bool ot_logprob_same(const ot_logprob_top *a, const ot_logprob_top *b, bool *known);

// A token without its log-probability, for messages: "345", "'the'".
const char *ot_logprob_words(const ot_logprob_token *token, ot_arena *arena);

// The identity of a token.
static inline ot_logprob_top ot_logprob_identity(const ot_logprob_token *token) {
  return (ot_logprob_top){token->id, token->text, token->logprob};
}
