// SPDX-License-Identifier: Apache-2.0
// Bodies of requests to `orthant serve`. The first letter says which: p completions, c chat, t
// tokenize, d detokenize.
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

ot_status fuzz_one(const uint8_t *data, size_t size, ot_arena *arena) {
  const bool chat = size > 0 && data[0] == 'c';
  const ot_request_body rest = {(const char *)data + 1, (int64_t)size - 1, chat};
  const ot_request_body *const body = &rest;
  ot_completion_request request;
  ot_prompt_source source;
  if (size == 0) return ot_fail(OT_USAGE, "nothing");
  switch (data[0]) {
    case 't':
      return ot_tokenize_request_read(body, arena, &source);
    case 'd':
      return ot_detokenize_request_read(body, arena, &source);
    default:
      OT_TRY(ot_completion_request_read(body, arena, &request));
      return check_request(&request, chat);
  }
}
