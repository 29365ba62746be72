// SPDX-License-Identifier: Apache-2.0
#include "rl/reward.h"

#include <stdlib.h>
#include <string.h>

#include "host/heap.h"

enum { MOST_FAILURES = 10 };  // in a row

struct ot_rewarder {
  const ot_run_rl *rl;
  const ot_tokenizer *tokenizer;
  ot_verifier *verifier;  // null: not a command
  const char **words;     // [num_command + 1] of it
  int64_t failures, in_a_row;
};

static ot_status start_command(ot_rewarder *r) {
  const ot_run_rl *const rl = r->rl;
  OT_CHECK(rl->num_command > 0, OT_USAGE, "rl.reward: command needs rl.command (try [./judge.py])");
  r->words = calloc((size_t)rl->num_command + 1, sizeof *r->words);
  OT_CHECK(r->words, OT_ENVIRONMENT, "out of memory");
  memcpy(r->words, rl->command, (size_t)rl->num_command * sizeof *r->words);
  const ot_verifier_request request = {
      .words = r->words, .timeout_s = rl->command_seconds, .memory_bytes = rl->command_memory};
  return ot_verifier_create(&request, &r->verifier);
}

ot_status ot_rewarder_create(const ot_run_rl *rl, const ot_tokenizer *tokenizer,
                             ot_rewarder **out) {
  ot_rewarder *const r = calloc(1, sizeof *r);
  *out = r;
  OT_CHECK(r, OT_ENVIRONMENT, "out of memory");
  *r = (ot_rewarder){.rl = rl, .tokenizer = tokenizer};
  const ot_status status = rl->reward == OT_REWARD_COMMAND ? start_command(r) : OT_OK;
  if (status != OT_OK) ot_rewarder_destroy(out);
  return status;
}

void ot_rewarder_destroy(ot_rewarder **rewarder) {
  if (!rewarder || !*rewarder) return;
  ot_verifier_destroy(&(*rewarder)->verifier);
  free((void *)(*rewarder)->words);
  free(*rewarder);
  *rewarder = NULL;
}

// ---- one response ----

// The text without the end-of-text token. An id that no token has, which a padded vocabulary can
// give, ends it.
static ot_status read_response(const ot_rewarder *r, const ot_rl_answer *answer, ot_buffer *text) {
  const int64_t count = answer->count - (answer->ended ? 1 : 0);
  int64_t known = 0, length;
  while (known < count && ot_tokenizer_bytes(r->tokenizer, answer->tokens[known], &length)) known++;
  return ot_tokenizer_decode_more(r->tokenizer, answer->tokens, known, text);
}

static ot_status compare(ot_bytes response, ot_bytes answer, double *reward) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_similarity similarity = {0};
  const ot_status status = ot_similarity_build(response, answer, &arena, &similarity);
  ot_heap_release(&heap);
  *reward = similarity.ratio;
  return status;
}

static ot_status query_verifier(ot_rewarder *r, const ot_rl_answer *answer, ot_bytes response,
                                double *reward) {
  const ot_verifier_case one = {.id = answer->id,
                                .prompt = answer->prompt->text,
                                .response = response,
                                .answer = answer->prompt->answer};
  bool judged;
  const char *why;
  *reward = 0;
  OT_TRY(ot_verifier_judge(r->verifier, &one, reward, &judged, &why));
  r->in_a_row = judged ? 0 : r->in_a_row + 1;
  r->failures += !judged;
  OT_CHECK(r->in_a_row < MOST_FAILURES, OT_ENVIRONMENT,
           "rl.command: %s gave no reward for %d responses in a row; the last time: %s",
           r->words[0], MOST_FAILURES, why);
  return OT_OK;
}

static ot_status judge(ot_rewarder *r, const ot_rl_answer *answer, ot_bytes response,
                       double *reward) {
  const ot_bytes gold = answer->prompt->answer;
  switch (r->rl->reward) {
    case OT_REWARD_EXACT_MATCH:
      *reward = answer->ended && response.bytes == gold.bytes &&
                memcmp(response.text, gold.text, (size_t)gold.bytes) == 0;
      return OT_OK;
    case OT_REWARD_EDIT_SIMILARITY:
      return compare(response, gold, reward);
    case OT_REWARD_COMMAND:
      return query_verifier(r, answer, response, reward);
    case OT_REWARD_ANSWER_LOGPROB:
      break;
  }
  return ot_fail(OT_BUG, "rl: this reward needs the policy");
}

ot_status ot_rewarder_judge(ot_rewarder *rewarder, ot_rl_answer *answer) {
  ot_buffer text = {0};
  ot_status status = read_response(rewarder, answer, &text);
  const ot_bytes response = {text.length > 0 ? (const char *)text.data : "", text.length};
  if (status == OT_OK) status = judge(rewarder, answer, response, &answer->reward);
  ot_buffer_release(&text);
  return status;
}

int64_t ot_rewarder_failures(const ot_rewarder *rewarder) { return rewarder->failures; }

bool ot_answer_leaks(const ot_rl_answer *answer, int64_t run) {
  const ot_rl_prompt *const p = answer->prompt;
  for (int64_t i = 0; i + run <= answer->count; i++) {
    for (int64_t k = 0; k + run <= p->num_answer_tokens; k++) {
      const size_t bytes = (size_t)run * sizeof(int32_t);
      if (memcmp(answer->tokens + i, p->answer_tokens + k, bytes) == 0) return true;
    }
  }
  return false;
}
