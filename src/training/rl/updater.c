// SPDX-License-Identifier: Apache-2.0
#include "rl/updater.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/extremes.h"

enum { LEAK_TOKENS = 8 };

struct ot_rl_updater {
  ot_rl_updater_request request;
  const ot_run_rl *rl;
  ot_policy_loss loss;
  ot_rl_learner *learner;
  ot_rewarder *rewarder;
  int64_t most_documents, most_tokens;
  ot_rl_document *documents;              // [most_documents]
  int64_t *first;                         // [batch + 1]
  double *logprob, *behaviour, *weights;  // [most_tokens]
  double *advantages, *rewards;           // [batch]
  double gain_sum;                        // of the last judged responses
};

// ---- create ----

static ot_policy_loss loss_of(const ot_run_rl *rl) {
  ot_policy_loss loss = ot_policy_loss_default(rl->objective);
  loss.average = rl->average;
  if (rl->cap >= 0) loss.cap = rl->cap;
  if (rl->low >= 0) loss.low = rl->low;
  if (rl->high >= 0) loss.high = rl->high;
  return loss;
}

static int64_t longest_answer(const ot_rl_updater *u) {
  const ot_rl_prompts *const more = u->request.validation;
  return ot_larger_whole(u->request.prompts->longest_answer, more ? more->longest_answer : 0);
}

static ot_status check_lengths(const ot_rl_updater *u) {
  const ot_rl_prompts *const prompts = u->request.prompts, *const more = u->request.validation;
  const int64_t prompt = ot_larger_whole(prompts->longest, more ? more->longest : 0);
  const bool scored = u->rl->reward == OT_REWARD_ANSWER_LOGPROB;
  const int64_t answer = scored ? longest_answer(u) : 0;
  const int64_t tokens = prompt + u->rl->max_tokens + answer;
  const int64_t places = u->request.run->data.sequence_length + 1;
  OT_CHECK(tokens <= places, OT_USAGE,
           "data.sequence_length=%lld holds %lld tokens, but the longest prompt has %lld, "
           "rl.max_tokens is %lld%s (try sequence_length %lld)",
           (long long)places - 1, (long long)places, (long long)prompt,
           (long long)u->rl->max_tokens,
           answer > 0 ? ", and the longest answer comes after it" : "", (long long)tokens - 1);
  return OT_OK;
}

static ot_status allocate(ot_rl_updater *u) {
  const size_t batch = (size_t)u->rl->batch, tokens = (size_t)u->most_tokens;
  u->documents = calloc((size_t)u->most_documents, sizeof *u->documents);
  u->first = calloc(batch + 1, sizeof *u->first);
  u->logprob = calloc(tokens, sizeof *u->logprob);
  u->behaviour = calloc(tokens, sizeof *u->behaviour);
  u->weights = calloc(tokens, sizeof *u->weights);
  u->advantages = calloc(batch, sizeof *u->advantages);
  u->rewards = calloc(batch, sizeof *u->rewards);
  const bool all = u->documents && u->first && u->logprob && u->behaviour && u->weights &&
                   u->advantages && u->rewards;
  OT_CHECK(all, OT_ENVIRONMENT, "out of memory for a batch of %d responses", u->rl->batch);
  return OT_OK;
}

static ot_status prepare(ot_rl_updater *u) {
  OT_TRY(check_lengths(u));
  OT_TRY(allocate(u));
  return ot_rewarder_create(u->rl, u->request.tokenizer, &u->rewarder);
}

static ot_status create(ot_rl_updater *u) {
  OT_TRY(ot_world_agree(u->request.world, prepare(u)));
  return ot_rl_learner_create(u->request.run, u->request.world, u->most_documents, &u->learner);
}

// With answer_logprob, each response and its answer, with and without the response.
int64_t ot_rl_updater_documents(const ot_run *run) {
  return run->rl.batch * (run->rl.reward == OT_REWARD_ANSWER_LOGPROB ? 2 : 1);
}

ot_status ot_rl_updater_create(const ot_rl_updater_request *request, ot_rl_updater **out) {
  const ot_run_rl *const rl = &request->run->rl;
  ot_rl_updater *const u = calloc(1, sizeof *u);
  *out = u;
  OT_CHECK(u, OT_ENVIRONMENT, "out of memory");
  const bool scored = rl->reward == OT_REWARD_ANSWER_LOGPROB;
  *u = (ot_rl_updater){.request = *request,
                       .rl = rl,
                       .loss = loss_of(rl),
                       .most_documents = ot_rl_updater_documents(request->run)};
  const int64_t answer = scored ? longest_answer(u) : 0;
  u->most_tokens = rl->batch * (rl->max_tokens + 2 * answer);
  const ot_status status = create(u);
  if (status != OT_OK) ot_rl_updater_destroy(out);
  return status;
}

void ot_rl_updater_destroy(ot_rl_updater **updater) {
  if (!updater || !*updater) return;
  ot_rl_updater *const u = *updater;
  ot_rl_learner_destroy(&u->learner);
  ot_rewarder_destroy(&u->rewarder);
  void *const owned[] = {u->documents, u->first,      u->logprob, u->behaviour,
                         u->weights,   u->advantages, u->rewards};
  for (int i = 0; i < OT_COUNT(owned); i++) free(owned[i]);
  free(u);
  *updater = NULL;
}

ot_rl_learner *ot_rl_updater_learner(ot_rl_updater *updater) { return updater->learner; }

// ---- rewards ----

static int64_t reasoning_tokens(const ot_rl_answer *a) { return a->count - (a->ended ? 1 : 0); }

// The answer after the response, without its end-of-text token, or right after the prompt.
static ot_rl_document answer_document(const ot_rl_answer *a, bool with_response, double *values) {
  const ot_rl_prompt *const p = a->prompt;
  const int64_t reasoning = with_response ? reasoning_tokens(a) : 0;
  return (ot_rl_document){.prompt = p->tokens,
                          .num_prompt = p->num_tokens,
                          .rest = a->tokens,
                          .num_rest = reasoning,
                          .last = p->answer_tokens,
                          .num_last = p->num_answer_tokens,
                          .first = p->num_tokens + reasoning,
                          .values = values};
}

static double sum_of(const ot_rl_document *d) {
  double sum = 0;
  for (int64_t i = 0; i < d->num_last; i++) sum += d->values[i];
  return sum;
}

// log p(answer | prompt, response) / length^power; a response that tells the answer gains nothing.
static ot_status score_answers(ot_rl_updater *u, ot_rl_answer *const *answers, int64_t count) {
  double *values = u->logprob;
  for (int64_t i = 0; i < 2 * count; i++) {
    const ot_rl_answer *const a = answers[i / 2];
    OT_CHECK(a->prompt->num_answer_tokens > 0, OT_USAGE,
             "rl.reward: answer_logprob needs an \"answer\" for each prompt");
    u->documents[i] = answer_document(a, i % 2 == 0, values);
    values += a->prompt->num_answer_tokens;
  }
  OT_TRY(ot_rl_learner_score(u->learner, u->documents, 2 * count));
  for (int64_t i = 0; i < count; i++) {
    const double with = sum_of(&u->documents[2 * i]), without = sum_of(&u->documents[2 * i + 1]);
    const double length = (double)u->documents[2 * i].num_last;
    const bool leaks = ot_answer_leaks(answers[i], LEAK_TOKENS);
    answers[i]->reward = (leaks ? without : with) / pow(length, u->rl->length_power);
    u->gain_sum += (leaks ? 0 : with - without) / length;
  }
  return OT_OK;
}

ot_status ot_rl_updater_judge(ot_rl_updater *updater, ot_rl_answer *const *answers, int64_t count) {
  ot_rl_updater *const u = updater;
  u->gain_sum = 0;
  if (u->rl->reward != OT_REWARD_ANSWER_LOGPROB) {
    for (int64_t i = 0; i < count; i++) OT_TRY(ot_rewarder_judge(u->rewarder, answers[i]));
    return OT_OK;
  }
  for (int64_t i = 0; i < count; i += u->rl->batch) {
    OT_TRY(score_answers(u, answers + i, ot_smaller_whole(u->rl->batch, count - i)));
  }
  return OT_OK;
}

// ---- the step ----

static ot_rl_document response_document(const ot_rl_answer *a, double *values) {
  return (ot_rl_document){.prompt = a->prompt->tokens,
                          .num_prompt = a->prompt->num_tokens,
                          .rest = a->tokens,
                          .num_rest = a->count,
                          .first = a->prompt->num_tokens,
                          .values = values};
}

// Sets advantages; returns the share of groups that have any.
static double compare_groups(ot_rl_updater *u, ot_rl_answer *const *answers, int64_t count) {
  double groups = 0, useful = 0;
  for (int64_t i = 0, next; i < count; i = next) {
    double largest = 0;
    for (next = i; next < count && answers[next]->group == answers[i]->group; next++) {
      u->rewards[next] = answers[next]->reward;
    }
    ot_policy_advantages(u->rewards + i, next - i, u->advantages + i);
    for (int64_t k = i; k < next; k++) {
      largest = fmax(largest, fabs(u->advantages[k]));
      answers[k]->advantage = u->advantages[k];
    }
    groups++;
    useful += largest > 0;
  }
  return useful / groups;
}

static ot_status score_policy(ot_rl_updater *u, ot_rl_answer *const *answers, int64_t count) {
  int64_t at = 0;
  for (int64_t i = 0; i < count; i++) {
    u->first[i] = at;
    memcpy(u->behaviour + at, answers[i]->behaviour,
           (size_t)answers[i]->count * sizeof *u->behaviour);
    u->documents[i] = response_document(answers[i], u->logprob + at);
    at += answers[i]->count;
  }
  u->first[count] = at;
  return ot_rl_learner_score(u->learner, u->documents, count);
}

// Cross-entropy of the answers after their responses, next to the policy's documents.
static int64_t add_answers(ot_rl_updater *u, ot_rl_answer *const *answers, int64_t count) {
  if (u->rl->reward != OT_REWARD_ANSWER_LOGPROB || u->rl->answer_weight <= 0) return count;
  double *values = u->weights + u->first[count];
  for (int64_t i = 0; i < count; i++) {
    ot_rl_document *const d = &u->documents[count + i];
    *d = answer_document(answers[i], true, values);
    for (int64_t k = 0; k < d->num_last; k++) {
      values[k] = u->rl->answer_weight / (double)(count * d->num_last);
    }
    values += d->num_last;
  }
  return 2 * count;
}

static void describe(const ot_rl_updater *u, ot_rl_answer *const *answers, int64_t count,
                     ot_rl_update *update) {
  double sum = 0, squares = 0, ended = 0;
  for (int64_t i = 0; i < count; i++) {
    sum += answers[i]->reward;
    ended += answers[i]->ended;
  }
  const double n = (double)count, mean = sum / n;
  for (int64_t i = 0; i < count; i++) {
    squares += (answers[i]->reward - mean) * (answers[i]->reward - mean);
  }
  update->sequences = count;
  update->tokens = u->first[count];
  update->reward = mean;
  update->reward_deviation = sqrt(squares / n);
  update->length = (double)update->tokens / n;
  update->ended = ended / n;
  update->failures = ot_rewarder_failures(u->rewarder);
  update->answer_gain = u->rl->reward == OT_REWARD_ANSWER_LOGPROB ? u->gain_sum / n : NAN;
}

ot_status ot_rl_updater_step(ot_rl_updater *updater, ot_rl_answer *const *answers, int64_t count,
                             int64_t step, ot_rl_update *update) {
  ot_rl_updater *const u = updater;
  *update = (ot_rl_update){.useful = compare_groups(u, answers, count)};
  OT_TRY(score_policy(u, answers, count));
  const ot_policy_batch batch = {.sequences = count,
                                 .first = u->first,
                                 .logprob = u->logprob,
                                 .behaviour = u->behaviour,
                                 .advantage = u->advantages};
  ot_policy_measure(&u->loss, &batch, &update->policy);
  ot_policy_weights(&u->loss, &batch, u->weights);
  for (int64_t i = 0; i < count; i++) u->documents[i].values = u->weights + u->first[i];
  describe(u, answers, count, update);
  const int64_t documents = add_answers(u, answers, count);
  return ot_rl_learner_step(u->learner, u->documents, documents, step, &update->step);
}
