// SPDX-License-Identifier: Apache-2.0
// Inference with a trained model: many sequences at once, against one paged cache. Each iteration
// runs one order of the runtime: one token of every sequence that generates, and as many tokens of
// prompts as fit next to them (continuous batching: Yu et al. 2022; chunked prefill: Agrawal et al.
// 2024). Sequences that begin alike share pages and scores (page_cache.h).
//
// On the CPU the tokens and log-probabilities of a sequence do not depend on other sequences, on
// the number of slots or on what is cached: not in one bit. They do depend on tp, by rounding.
#pragma once

#include "runtime/draw.h"
#include "runtime/model_runtime.h"
#include "runtime/page_cache.h"

typedef struct ot_inference ot_inference;
typedef struct ot_sequence ot_sequence;

// How much runs at once.
typedef struct ot_inference_shape {
  int64_t slots;      // sequences [1..]
  int64_t chunk;      // tokens of an iteration at most [slots..]
  int64_t positions;  // of a sequence at most: all its tokens but the last, if that is generated
  int64_t pages;      // of the cache in all; 0: enough for all slots
} ot_inference_shape;

// Completes a request for a runtime that an engine can use: modes and cache. On the CPU an
// iteration has one of four widths, the slots and the chunk or parts of them: few tokens do not pay
// for many.
void ot_inference_complete(const ot_inference_shape *shape, ot_rank_request *rank);

// A token of a sequence: one of the prompt whose score was wanted, or a generated one.
typedef struct ot_token_event {
  int64_t index;  // in prompt and generated tokens together
  int32_t token;
  bool generated;
  bool ends;             // the end-of-text token, generated
  ot_token_score score;  // NaN for the first token
  const ot_scored_token
      *top;  // [num_top] the most probable tokens with their log-probabilities, or null
  int num_top;
} ot_token_event;

typedef enum ot_finish {
  OT_FINISH_LENGTH,     // max_tokens
  OT_FINISH_STOP,       // the end-of-text token, or the sink said so
  OT_FINISH_CANCELLED,  // ot_inference_cancel
  OT_FINISH_NUMERIC,    // logits are NaN
} ot_finish;

enum { OT_MOST_ENDS = 32 };

typedef struct ot_sequence_request {
  const int32_t *prompt;  // [num_prompt], at least one token, all below the vocabulary; copied
  int64_t num_prompt;
  int64_t max_tokens;  // generated, at most; 0: scores only
  ot_draw draw;
  int num_ends;  // tokens that end the text: up to OT_MOST_ENDS
  int32_t ends[OT_MOST_ENDS];
  bool scores;  // events for tokens of the prompt, too
  int top;      // most probable tokens in events: 0 to OT_MOST_TOP
  // Called for each token, in order, by ot_inference_step; false ends the sequence.
  bool (*token)(void *context, const ot_token_event *event);
  // Called once, last; the sequence is gone.
  void (*finished)(void *context, ot_finish finish);
  void *context;
} ot_sequence_request;

// Adds tokens that end the text, [count] ids; those below 0 are none. At most OT_MOST_ENDS in all.
void ot_sequence_add_ends(ot_sequence_request *request, const int32_t *ids, int count);

// `runtime` was created by a request that ot_inference_complete completed, and has weights; kept.
// Tokens >= vocab_size (padding) are never drawn. OT_USAGE for a model whose experts have a
// capacity or choose their tokens.
ot_status ot_inference_create(ot_runtime *runtime, int64_t vocab_size, ot_inference **out);
void ot_inference_destroy(ot_inference **engine);  // without events

// A model may be sharded over ranks by stages of a pipeline and by tp (its experts over ep x etp =
// tp); other axes of the mesh are replicas, each with an engine of its own. An engine is on the
// first rank of its first stage. The others follow until that one dismisses them, after its last
// iteration; if a rank fails, all do. Blocks. With stages as many iterations are under way, and a
// step may end without results: those of another iteration come first.
ot_status ot_inference_dismiss(ot_inference *engine);
ot_status ot_inference_follow(ot_runtime *runtime);

// Queues a sequence. OT_USAGE if it cannot run: a token outside the vocabulary, too long.
ot_status ot_inference_add(ot_inference *engine, const ot_sequence_request *request,
                           ot_sequence **out);

// Ends a sequence early, within the call; not from its own callbacks.
void ot_inference_cancel(ot_inference *engine, ot_sequence *sequence);

// Ends all sequences.
void ot_inference_cancel_all(ot_inference *engine);

// The weights have changed between iterations (ot_inference_settle) while sequences run, none of
// which wants scores of its prompt. Their K and V stay those of the old weights, and no other
// sequence finds them; with `recompute` the next iterations compute them again.
void ot_inference_renew(ot_inference *engine, bool recompute);

// Waits for the iterations under way.
ot_status ot_inference_settle(ot_inference *engine);

// One iteration, if there is something to do.
ot_status ot_inference_step(ot_inference *engine);
bool ot_inference_is_idle(const ot_inference *engine);

// Iterates until all sequences have ended.
ot_status ot_inference_run(ot_inference *engine);

// Counted since the start.
typedef struct ot_inference_counts {
  int64_t running, waiting;              // sequences now
  int64_t iterations, rows;              // run so far, and tokens computed in them
  int64_t computed;                      // the same with idle rows
  int64_t prompt_tokens, cached_tokens;  // of admitted prompts, and of these found in the cache
  int64_t generated_tokens;
  int64_t pages, unused_pages;  // of the cache
} ot_inference_counts;

ot_inference_counts ot_inference_count(const ot_inference *engine);
