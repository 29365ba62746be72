// SPDX-License-Identifier: Apache-2.0
// From a request to a run: its fleet, what all clocks do with responses, validations.
#include "rl/rl_run.h"

#include <math.h>
#include <stdlib.h>

#include "base/extremes.h"
#include "rl/rl_state.h"
#include "runtime/stop_signal.h"

enum { VALIDATION_SEED = 0x76616c, VALIDATION_SLOTS = 64 };

// ---- description ----

ot_rl_fleet ot_rl_fleet_of(const ot_run *run) {
  const ot_run_rl *const rl = &run->rl;
  return (ot_rl_fleet){.updates = rl->updates,
                       .workers = rl->workers,
                       .generators = rl->generators,
                       .slots = rl->slots,
                       .group = rl->group,
                       .batch = rl->batch,
                       .queue = rl->queue > 0 ? rl->queue : 2 * rl->batch,
                       .max_lag = rl->max_lag,
                       .recompute = rl->recompute != 0,
                       .apart = rl->clock == OT_RL_REAL,
                       .cost = rl->costs};
}

ot_status ot_rl_choose_split(const ot_run *run, const ot_rl_question *question, ot_arena *arena,
                             ot_rl_split *split, ot_rl_prices *prices) {
  enum { SAMPLE = 2048 };
  const ot_run_rl *const rl = &run->rl;
  const double mean =
      rl->length_mean > 0 ? rl->length_mean : ot_larger(1, 0.25 * (double)rl->max_tokens);
  ot_rl_split_request request = {.fleet = ot_rl_fleet_of(run),
                                 .most_slots = rl->slots,
                                 .dollars_per_worker_hour = question->dollars_per_worker_hour};
  request.lengths = ot_rl_lengths_lognormal(mean, rl->length_cv2, rl->max_tokens, SAMPLE, arena);
  request.lengths.prompt_tokens = question->prompt_tokens;
  if (question->cluster) {
    const ot_rl_price_request priced = {.run = run,
                                        .cluster = question->cluster,
                                        .tokens = mean + (double)question->prompt_tokens,
                                        .generated = mean};
    OT_TRY(ot_rl_prices_build(&priced, arena, prices));
    request.fleet.cost = prices->costs;
    request.publish_s = prices->publish_s;
    request.fleet.slots = 0;
    request.most_slots = prices->most_slots;
  }
  OT_TRY(ot_rl_split_build(&request, arena, split));
  if (question->cluster) prices->costs = split->choices[0].fleet.cost;
  return OT_OK;
}

ot_status ot_rl_check(const ot_run *run) {
  OT_CHECK(ot_run_learns_from_rewards(run), OT_USAGE,
           "rl.prompts is required: a file of lines {\"prompt\", \"answer\"}");
  OT_CHECK(run->steps > 0, OT_USAGE, "the length of the run is required: steps, its updates");
  OT_CHECK(run->data.tokenizer[0] != '\0', OT_USAGE,
           "data.tokenizer is required for prompts (try bytes)");
  OT_CHECK(run->rl.clock == OT_RL_SIMULATED || run->rl.generators > 0, OT_USAGE,
           "rl.generators is required with rl.clock: real (try 1)");
  OT_CHECK(run->data.num_validation == 0 && run->evaluate.num_tasks == 0, OT_USAGE,
           "data.validation, evaluate: orthant rl validates on rl.validation");
  return OT_OK;
}

// ---- responses ----

void ot_rl_tell(const ot_rl_state *r, ot_rl_event event) {
  event.updates = r->run->steps;
  r->request->sink(r->request->context, &event);
}

ot_rl_answer *ot_rl_answer_take(ot_rl_state *r) {
  ot_rl_answer *answer = r->spare;
  if (answer) {
    r->spare = answer->next;
    return answer;
  }
  answer = ot_arena_take(r->arena, sizeof *answer);
  answer->tokens = ot_arena_array(r->arena, r->run->rl.max_tokens, sizeof *answer->tokens);
  answer->behaviour = ot_arena_array(r->arena, r->run->rl.max_tokens, sizeof *answer->behaviour);
  return answer;
}

void ot_rl_answer_leave(ot_rl_state *r, ot_rl_answer *answer) {
  const bool real = r->run->rl.clock == OT_RL_REAL;
  if (answer->versions && (real || answer->id < OT_RL_FORECAST_FROM)) {
    const int64_t place = real ? r->num_lengths++ % OT_RL_FORECAST_LATEST : answer->id;
    r->lengths[place] = (int32_t)ot_larger_whole(1, answer->count);
  }
  answer->next = r->spare;
  r->spare = answer;
}

static void measure_lags(ot_rl_state *r, ot_rl_sequence *const *batch, int count, int64_t version) {
  double sum = 0, tokens = 0;
  r->batch_lag_max = 0;
  for (int i = 0; i < count; i++) {
    for (int64_t t = 0; t < batch[i]->tokens; t++) {
      const double lag = (double)(version - batch[i]->versions[t]);
      sum += lag;
      r->batch_lag_max = fmax(r->batch_lag_max, lag);
    }
    tokens += (double)batch[i]->tokens;
  }
  r->batch_lag = sum / tokens;
}

ot_status ot_rl_state_train(ot_rl_state *r, ot_rl_sequence *const *batch, int count,
                            int64_t version) {
  for (int i = 0; i < count; i++) r->batch[i] = batch[i]->data;
  measure_lags(r, batch, count, version);
  OT_TRY(ot_rl_updater_judge(r->updater, r->batch, count));
  const ot_rl_faults *const faults = &r->request->faults;
  if (faults->judged) faults->judged(faults->context, r->batch, count);
  OT_TRY(ot_rl_updater_step(r->updater, r->batch, count, version, &r->update));
  ot_rl_tell(r, (ot_rl_event){.kind = OT_RL_EVENT_BATCH,
                              .version = version,
                              .answers = r->batch,
                              .num_answers = count});
  for (int i = 0; i < count; i++) ot_rl_answer_leave(r, r->batch[i]);
  return OT_OK;
}

// ---- validation ----

static ot_status generate(ot_rl_state *r, ot_rl_answer **answers, int64_t count) {
  OT_TRY(ot_rl_generator_take(r->validator, ot_rl_updater_learner(r->updater)));
  for (int64_t i = 0; i < count; i++) {
    answers[i] = ot_rl_answer_take(r);
    answers[i]->id = answers[i]->group = i;
    answers[i]->versions = NULL;
    answers[i]->prompt = &r->validation.prompt[i % r->validation.count];
    OT_TRY(ot_rl_generator_start(r->validator, answers[i]));
  }
  int64_t rows;
  while (!ot_rl_generator_is_idle(r->validator)) OT_TRY(ot_rl_generator_step(r->validator, &rows));
  return ot_rl_updater_judge(r->updater, answers, count);
}

static ot_status validate(ot_rl_state *r) {
  const int64_t version = r->version, every = r->run->rl.validation_every;
  const bool due = version == 0 || version == r->run->steps || (every > 0 && version % every == 0);
  if (!r->validator || !r->metrics || !due) return OT_OK;
  const int64_t count = r->validation.count * r->run->rl.validation_samples;
  ot_rl_answer **const answers = malloc((size_t)count * sizeof *answers);
  OT_CHECK(answers, OT_ENVIRONMENT, "out of memory for %lld responses", (long long)count);
  const ot_status status = generate(r, answers, count);
  double sum = 0;
  for (int64_t i = 0; status == OT_OK && i < count; i++) {
    sum += answers[i]->reward;
    ot_rl_answer_leave(r, answers[i]);
  }
  free((void *)answers);
  OT_TRY(status);
  const double reward = sum / (double)count;
  if (version == 0) r->summary->first_reward = reward;
  r->summary->last_reward = reward;
  const double time_s = r->time_s;
  const ot_metric values[] = {{"time", time_s}, {"val_reward", reward}};
  ot_metrics_write_values(r->metrics, version, values, OT_COUNT(values));
  ot_rl_tell(
      r,
      (ot_rl_event){
          .kind = OT_RL_EVENT_VALIDATION, .version = version, .time_s = time_s, .reward = reward});
  return OT_OK;
}

// ---- creation ----

static ot_status open_prompts(ot_rl_state *r) {
  const ot_run *const run = r->run;
  OT_TRY(ot_tokenizer_create(run->data.tokenizer, &r->tokenizer));
  const char *const note = ot_tokenizer_note(r->tokenizer, run->model.vocab_size, r->arena);
  if (note) ot_rl_tell(r, (ot_rl_event){.kind = OT_RL_EVENT_NOTE, .text = note});
  r->special = ot_special_tokens_of(r->tokenizer, &run->model);
  OT_CHECK(r->special.num_ends > 0, OT_USAGE,
           "the tokenizer has no end-of-text token, which ends responses");
  OT_TRY(ot_encoder_create(r->tokenizer, &r->encoder));
  ot_encoder_limit(r->encoder, run->model.vocab_size);
  OT_TRY(ot_rl_prompts_read(run->rl.prompts, r->encoder, r->arena, &r->prompts));
  if (run->rl.validation[0] == '\0') return OT_OK;
  return ot_rl_prompts_read(run->rl.validation, r->encoder, r->arena, &r->validation);
}

int64_t ot_rl_state_mean_prompt(const ot_rl_state *r) {
  int64_t tokens = 0;
  for (int64_t i = 0; i < r->prompts.count; i++) tokens += r->prompts.prompt[i].num_tokens;
  return ot_larger_whole(1, (tokens + r->prompts.count / 2) / r->prompts.count);
}

static ot_status choose_fleet(ot_rl_state *r) {
  r->fleet = ot_rl_fleet_of(r->run);
  if (r->run->rl.clock == OT_RL_REAL) {
    r->fleet.workers = r->fleet.generators + ot_world_size(r->request->world);
    return ot_rl_fleet_check(&r->fleet);
  }
  if (r->fleet.updates == OT_RL_SYNCHRONOUS || r->fleet.generators > 0) {
    return ot_rl_fleet_check(&r->fleet);
  }
  ot_rl_split split;
  const ot_rl_question question = {.prompt_tokens = ot_rl_state_mean_prompt(r)};
  OT_TRY(ot_rl_choose_split(r->run, &question, r->arena, &split, NULL));
  r->fleet = split.choices[0].fleet;
  for (int i = 0; i < split.num_reasons; i++) {
    ot_rl_tell(r, (ot_rl_event){.kind = OT_RL_EVENT_NOTE, .text = split.reasons[i]});
  }
  return OT_OK;
}

static ot_status create_validator(ot_rl_state *r) {
  if (r->validation.count == 0) return OT_OK;
  ot_rl_generator_request request = ot_rl_state_generator(r);
  request.slots = VALIDATION_SLOTS;
  request.prompt_tokens = r->validation.longest;
  request.seed ^= VALIDATION_SEED;
  return ot_rl_generator_create(&request, &r->validator);
}

ot_rl_generator_request ot_rl_state_generator(const ot_rl_state *r) {
  return (ot_rl_generator_request){.run = r->run,
                                   .slots = r->fleet.slots,
                                   .prompt_tokens = r->prompts.longest,
                                   .max_tokens = r->run->rl.max_tokens,
                                   .recompute = r->fleet.recompute,
                                   .special = r->special,
                                   .seed = (uint64_t)r->run->seed};
}

static ot_status prepare(ot_rl_state *r) {
  ot_mesh mesh;
  OT_TRY(ot_rl_check(r->run));
  OT_TRY(ot_mesh_build(&r->run->parallel, ot_world_size(r->request->world), &mesh));
  OT_TRY(open_prompts(r));
  return choose_fleet(r);
}

static ot_status create(ot_rl_state *r) {
  ot_world *const world = r->request->world;
  OT_TRY(ot_world_agree(world, prepare(r)));
  const ot_rl_updater_request request = {
      .run = r->run,
      .world = world,
      .prompts = &r->prompts,
      .validation = r->validation.count > 0 ? &r->validation : NULL,
      .tokenizer = r->tokenizer};
  OT_TRY(ot_rl_updater_create(&request, &r->updater));
  OT_TRY(r->clock->create(r));
  OT_TRY(create_validator(r));
  r->batch = ot_arena_array(r->arena, r->fleet.batch, sizeof *r->batch);
  return ot_rl_report_open(r);
}

static void release(ot_rl_state *r) {
  r->clock->destroy(r);
  ot_rl_generator_destroy(&r->validator);
  ot_rl_updater_destroy(&r->updater);
  ot_metrics_destroy(&r->metrics);
  ot_run_directory_destroy(&r->directory);
  ot_encoder_destroy(&r->encoder);
  ot_tokenizer_destroy(&r->tokenizer);
}

// ---- the run ----

static void summarize(ot_rl_state *r) {
  r->summary->real = r->run->rl.clock == OT_RL_REAL;
  r->summary->fleet = r->fleet;
  r->summary->record = *r->record;
  ot_rl_record_forecast(&r->fleet, &r->summary->record, &r->summary->measured);
}

// All that the run has to keep is saved.
static ot_status stop(ot_rl_state *r) {
  OT_TRY(ot_rl_report_save(r, true));
  OT_TRY(ot_rl_learner_dismiss(ot_rl_updater_learner(r->updater)));
  ot_fail(OT_STOPPED, "stopped by a signal after update %lld", (long long)r->version);
  ot_fail_hint(OT_STOPPED, "run the same command to continue");
  return ot_world_agree(r->request->world, OT_STOPPED);
}

static ot_status run_updates(ot_rl_state *r) {
  if (r->directory) ot_stop_signal_defer();
  if (r->version == 0) OT_TRY(validate(r));
  if (r->version > 0) summarize(r);
  while (r->version < r->run->steps) {
    const int64_t before = r->version;
    OT_TRY(r->clock->advance(r));
    if (r->version == before) return stop(r);
    OT_TRY(ot_rl_report_update(r));
    OT_TRY(ot_rl_report_predict(r));
    OT_TRY(validate(r));
    summarize(r);
    const bool stops = r->directory && ot_stop_signal_seen();
    OT_TRY(ot_rl_report_save(r, stops));
    if (stops && r->version < r->run->steps) return stop(r);
  }
  OT_TRY(ot_rl_learner_dismiss(ot_rl_updater_learner(r->updater)));
  return ot_world_agree(r->request->world, OT_OK);
}

static const ot_rl_clock *clock_of(const ot_rl_request *request) {
  if (request->replay) return &ot_rl_replay_clock;
  return request->run->rl.clock == OT_RL_REAL ? &ot_rl_real_clock : &ot_rl_simulated_clock;
}

// A rank that does not lead.
static ot_status follow(const ot_rl_request *request) {
  ot_rl_learner *learner = NULL;
  if (request->settings) ot_stop_signal_defer();
  ot_status status = ot_world_agree(request->world, OT_OK);  // on what the leader prepares
  if (status == OT_OK) status = ot_world_agree(request->world, OT_OK);  // and its updater
  if (status == OT_OK) {
    status = ot_rl_learner_create(request->run, request->world,
                                  ot_rl_updater_documents(request->run), &learner);
  }
  if (status == OT_OK) status = ot_rl_learner_follow(learner);
  if (status == OT_OK) status = ot_world_agree(request->world, OT_OK);  // on how the run ends
  ot_rl_learner_destroy(&learner);
  return status;
}

ot_status ot_rl_run(const ot_rl_request *request, ot_arena *arena, ot_rl_summary *summary) {
  if (!ot_world_is_leader(request->world)) return follow(request);
  *summary = (ot_rl_summary){.first_reward = NAN, .last_reward = NAN};
  ot_rl_state *const r = ot_arena_take(arena, sizeof *r);
  *r = (ot_rl_state){.request = request,
                     .run = request->run,
                     .arena = arena,
                     .clock = clock_of(request),
                     .summary = summary};
  ot_status status = create(r);
  if (status == OT_OK) status = run_updates(r);
  release(r);
  return status;
}
