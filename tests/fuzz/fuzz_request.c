// SPDX-License-Identifier: Apache-2.0
// Bodies of requests to `orthant serve`. The first letter says which: p completions, c chat, t
// tokenize, d detokenize, l micro-batches for a teacher; and what a run reads from its teacher's
// server: a answers, f facts.
#include <string.h>

#include "distill/lesson.h"
#include "fuzz/fuzz.h"
#include "runtime/inference.h"
#include "serve/completion_request.h"

static ot_status check_request(const ot_completion_request *r, bool chat) {
  fuzz_require(chat ? r->num_messages >= 1 : r->num_prompts >= 1, "there is something to complete");
  fuzz_require(chat || r->n * r->num_prompts <= OT_MOST_CHOICES, "choices are limited");
  fuzz_require(r->n >= 1 && r->max_tokens >= -1, "counts are not negative");
  fuzz_require(r->logprobs >= -1 && r->logprobs <= OT_MOST_TOP, "log-probabilities are limited");
  fuzz_require(r->num_stops >= 0 && r->num_stops <= OT_MOST_STOPS, "stop texts are limited");
  for (int i = 0; i < r->num_stops; i++) {
    fuzz_require(r->stops[i].length > 0, "a stop text is not empty");
  }
  for (int i = 0; i < r->num_prompts; i++) {
    fuzz_require((r->prompts[i].text != NULL) != (r->prompts[i].ids != NULL),
                 "a prompt is text or ids");
    for (int64_t k = 0; k < r->prompts[i].count; k++) {
      fuzz_require(r->prompts[i].ids[k] >= 0, "ids are not negative");
    }
  }
  for (int i = 0; i < r->num_messages; i++) {
    fuzz_require(r->messages[i].role && r->messages[i].content, "a message has role and content");
  }
  return OT_OK;
}

enum { SEQUENCES = 2, LENGTH = 3, ROWS = SEQUENCES * LENGTH, IDS = 2, VOCAB = 5 };

static ot_status read_lesson(const ot_request_body *body, const ot_lesson_facts *facts,
                             ot_arena *arena) {
  ot_lesson lesson;
  OT_TRY(ot_lesson_read(body->text, body->length, facts, arena, &lesson));
  const ot_micro_batch *const rows = &lesson.rows;
  for (int i = 0; i < ROWS; i++) {
    fuzz_require(rows->tokens[i] >= 0 && rows->tokens[i] < VOCAB, "a token is in the vocabulary");
    fuzz_require(rows->targets[i] >= -1 && rows->targets[i] < VOCAB, "as is a target");
    fuzz_require(rows->positions[i] >= 0 && rows->positions[i] < LENGTH, "positions exist");
    fuzz_require(rows->doc_starts[i] >= 0 && rows->doc_starts[i] <= i % LENGTH,
                 "a document begins before its tokens");
  }
  return OT_OK;
}

static ot_status read_answer(const ot_buffer *text, const ot_lesson_facts *facts) {
  double logprobs[ROWS], entropy[ROWS];
  int32_t ids[ROWS * IDS];
  float weights[ROWS * IDS];
  const ot_lesson_places places = {logprobs, entropy, ids, weights};
  OT_TRY(ot_lesson_answer_read("server", text, facts, &places));
  for (int i = 0; i < ROWS * IDS; i++) {
    fuzz_require(ids[i] >= 0 && ids[i] < VOCAB, "an id is in the vocabulary");
  }
  return OT_OK;
}

static ot_status read_of_teacher(char kind, const ot_request_body *body, ot_arena *arena) {
  ot_lesson_facts facts = {.sequences = SEQUENCES,
                           .sequence_length = LENGTH,
                           .vocab_size = VOCAB,
                           .positions = LENGTH,
                           .draws = 4,
                           .ids = IDS};
  const ot_buffer text = {.data = (uint8_t *)(uintptr_t)body->text, .length = body->length};
  memset(facts.teacher, 'a', sizeof facts.teacher - 1);
  if (kind == 'l') return read_lesson(body, &facts, arena);
  return kind == 'a' ? read_answer(&text, &facts) : ot_lesson_facts_read("server", &text, &facts);
}

ot_status fuzz_one(const uint8_t *data, size_t size, ot_arena *arena) {
  const bool chat = size > 0 && data[0] == 'c';
  const ot_request_body rest = {(const char *)data + 1, (int64_t)size - 1, chat, false};
  const ot_request_body *const body = &rest;
  ot_completion_request request;
  ot_prompt_source source;
  if (size == 0) return ot_fail(OT_USAGE, "nothing");
  switch (data[0]) {
    case 't':
      return ot_tokenize_request_read(body, arena, &source);
    case 'd':
      return ot_detokenize_request_read(body, arena, &source);
    case 'l':
    case 'a':
    case 'f':
      return read_of_teacher((char)data[0], body, arena);
    default:
      OT_TRY(ot_completion_request_read(body, arena, &request));
      return check_request(&request, chat);
  }
}
