// SPDX-License-Identifier: Apache-2.0
// The actions of the flow; validations; files of the run.
#include "rl/rl_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/extremes.h"
#include "base/text_builder.h"
#include "checkpoint/checkpoint_list.h"
#include "files/output_file.h"
#include "rl/generator.h"
#include "train/metrics.h"
#include "train/run_directory.h"
#include "train/training_state.h"

enum { VALIDATION_SEED = 0x76616c, FORECAST_FROM = 256 };
enum { FORECAST_UPDATES = 200, VALIDATION_SLOTS = 64 };

typedef struct rl_run {
  const ot_rl_request *request;
  const ot_run *run;
  ot_arena *arena;
  ot_rl_fleet fleet;
  ot_tokenizer *tokenizer;
  ot_encoder *encoder;
  ot_rl_prompts prompts, validation;
  int32_t end;
  ot_rl_updater *updater;
  int num_generators;
  ot_rl_generator **generators;
  ot_rl_generator *validator;  // null without validation
  ot_rl_flow *flow;
  ot_rl_answer *spare;
  ot_rl_answer **batch;  // [fleet.batch]
  ot_run_directory *directory;
  ot_metrics *metrics;
  int32_t lengths[FORECAST_FROM];  // by id; 0: not yet known
  ot_rl_update update;             // the last one
  double batch_lag, batch_lag_max;
  ot_rl_summary *summary;
} rl_run;

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
    request.fleet.slots = 0;
    request.most_slots = prices->most_slots;
  }
  return ot_rl_split_build(&request, arena, split);
}

ot_status ot_rl_check(const ot_run *run) {
  const ot_run_parallel *const p = &run->parallel;
  OT_CHECK(ot_run_learns_from_rewards(run), OT_USAGE,
           "rl.prompts is required: a file of lines {\"prompt\", \"answer\"}");
  OT_CHECK(run->steps > 0, OT_USAGE, "the length of the run is required: steps, its updates");
  OT_CHECK(run->data.tokenizer[0] != '\0', OT_USAGE,
           "data.tokenizer is required for prompts (try bytes)");
  OT_CHECK(p->tp * p->pp * p->cp * p->ep == 1 && p->dp_replicate == 1 && p->dp <= 1, OT_USAGE,
           "parallel: orthant rl computes on one rank; its workers are those of the simulated "
           "clock (rl.workers)");
  OT_CHECK(run->data.num_validation == 0 && run->evaluate.num_tasks == 0, OT_USAGE,
           "data.validation, evaluate: orthant rl validates on rl.validation");
  return OT_OK;
}

// ---- responses ----

static void tell(const rl_run *r, ot_rl_event event) {
  event.updates = r->run->steps;
  r->request->sink(r->request->context, &event);
}

static ot_rl_answer *take_answer(rl_run *r) {
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

static void leave_answer(rl_run *r, ot_rl_answer *answer) {
  if (answer->versions && answer->id < FORECAST_FROM) {
    r->lengths[answer->id] = (int32_t)ot_larger_whole(1, answer->count);
  }
  answer->next = r->spare;
  r->spare = answer;
}

// ---- actions of the flow ----

static ot_status start(void *context, ot_rl_sequence *sequence) {
  rl_run *const r = context;
  ot_rl_answer *const answer = take_answer(r);
  answer->id = sequence->id;
  answer->group = sequence->group;
  answer->prompt = ot_rl_prompt_of_group(&r->prompts, (uint64_t)r->run->seed, sequence->group);
  answer->versions = sequence->versions;
  sequence->data = answer;
  sequence->prompt_tokens = answer->prompt->num_tokens;
  return ot_rl_generator_start(r->generators[sequence->generator], answer);
}

static ot_status decode(void *context, ot_rl_sequence *const *running, int count,
                        ot_rl_decoded *decoded) {
  rl_run *const r = context;
  for (int i = 0; i < count; i++) ((ot_rl_answer *)running[i]->data)->fresh = false;
  OT_TRY(ot_rl_generator_step(r->generators[running[0]->generator], &decoded->rows));
  for (int i = 0; i < count; i++) {
    const ot_rl_answer *const answer = running[i]->data;
    OT_CHECK(!answer->failed, OT_NUMERIC, "response %lld: the logits of generator %d are NaN",
             (long long)answer->id, running[i]->generator);
    decoded->progress[i] = answer->done    ? OT_RL_LAST_TOKEN
                           : answer->fresh ? OT_RL_TOKEN
                                           : OT_RL_NO_TOKEN;
  }
  return OT_OK;
}

static ot_status cancel(void *context, ot_rl_sequence *sequence) {
  rl_run *const r = context;
  ot_rl_generator_cancel(r->generators[sequence->generator], sequence->data);
  leave_answer(r, sequence->data);
  return OT_OK;
}

static void drop(void *context, ot_rl_sequence *sequence) { leave_answer(context, sequence->data); }

static void measure_lags(rl_run *r, ot_rl_sequence *const *batch, int count, int64_t version) {
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

static ot_status train(void *context, ot_rl_sequence *const *batch, int count, int64_t version) {
  rl_run *const r = context;
  for (int i = 0; i < count; i++) r->batch[i] = batch[i]->data;
  measure_lags(r, batch, count, version);
  OT_TRY(ot_rl_updater_judge(r->updater, r->batch, count));
  const ot_rl_faults *const faults = &r->request->faults;
  if (faults->judged) faults->judged(faults->context, r->batch, count);
  OT_TRY(ot_rl_updater_step(r->updater, r->batch, count, version, &r->update));
  tell(r, (ot_rl_event){.kind = OT_RL_EVENT_BATCH,
                        .version = version,
                        .answers = r->batch,
                        .num_answers = count});
  for (int i = 0; i < count; i++) leave_answer(r, r->batch[i]);
  return OT_OK;
}

// Counts the parameters whose rows are not the trainer's, bit for bit.
static ot_status compare_weights(rl_run *r, ot_runtime *with) {
  ot_runtime *const trainer = ot_rl_updater_runtime(r->updater);
  const ot_graph *const whole = ot_runtime_whole_graph(trainer);
  const int64_t size = ot_dtype_bytes(ot_runtime_copy_dtype(trainer, OT_COPY_WEIGHT));
  for (int p = 0; p < whole->num_parameters; p++) {
    const ot_parameter *const parameter = &whole->parameters[p];
    const int64_t bytes = parameter->rows * parameter->cols * size;
    const ot_parameter_rows rows = {p, OT_COPY_WEIGHT, 0, parameter->rows};
    char *const both = malloc((size_t)(2 * bytes));
    OT_CHECK(both, OT_ENVIRONMENT, "out of memory for the weights of %s", parameter->name);
    ot_status status = ot_runtime_read(trainer, &rows, both);
    if (status == OT_OK) status = ot_runtime_read(with, &rows, both + bytes);
    r->summary->wrong_weights += memcmp(both, both + bytes, (size_t)bytes) != 0;
    free(both);
    OT_TRY(status);
  }
  return OT_OK;
}

static ot_status take(void *context, int generator, int64_t version) {
  rl_run *const r = context;
  const ot_rl_faults *const faults = &r->request->faults;
  ot_rl_generator *const g = r->generators[generator];
  (void)version;
  OT_TRY(ot_rl_generator_take(g, ot_rl_updater_runtime(r->updater)));
  if (faults->taken) faults->taken(faults->context, ot_rl_generator_runtime(g));
  return r->request->compare_weights ? compare_weights(r, ot_rl_generator_runtime(g)) : OT_OK;
}

// ---- validation ----

static ot_status generate(rl_run *r, ot_rl_answer **answers, int64_t count) {
  OT_TRY(ot_rl_generator_take(r->validator, ot_rl_updater_runtime(r->updater)));
  for (int64_t i = 0; i < count; i++) {
    answers[i] = take_answer(r);
    answers[i]->id = answers[i]->group = i;
    answers[i]->versions = NULL;
    answers[i]->prompt = &r->validation.prompt[i % r->validation.count];
    OT_TRY(ot_rl_generator_start(r->validator, answers[i]));
  }
  int64_t rows;
  while (!ot_rl_generator_is_idle(r->validator)) OT_TRY(ot_rl_generator_step(r->validator, &rows));
  return ot_rl_updater_judge(r->updater, answers, count);
}

static ot_status validate(rl_run *r) {
  const int64_t version = ot_rl_flow_version(r->flow), every = r->run->rl.validation_every;
  const bool due = version == 0 || version == r->run->steps || (every > 0 && version % every == 0);
  if (!r->validator || !r->metrics || !due) return OT_OK;
  const int64_t count = r->validation.count * r->run->rl.validation_samples;
  ot_rl_answer **const answers = malloc((size_t)count * sizeof *answers);
  OT_CHECK(answers, OT_ENVIRONMENT, "out of memory for %lld responses", (long long)count);
  const ot_status status = generate(r, answers, count);
  double sum = 0;
  for (int64_t i = 0; status == OT_OK && i < count; i++) {
    sum += answers[i]->reward;
    leave_answer(r, answers[i]);
  }
  free((void *)answers);
  OT_TRY(status);
  const double reward = sum / (double)count;
  if (version == 0) r->summary->first_reward = reward;
  r->summary->last_reward = reward;
  const double time_s = ot_rl_flow_time_s(r->flow);
  const ot_metric values[] = {{"time", time_s}, {"val_reward", reward}};
  OT_TRY(ot_metrics_write_values(r->metrics, version, values, OT_COUNT(values)));
  tell(r,
       (ot_rl_event){
           .kind = OT_RL_EVENT_VALIDATION, .version = version, .time_s = time_s, .reward = reward});
  return OT_OK;
}

// ---- files ----

static ot_status write_update(rl_run *r) {
  const ot_rl_update *const u = &r->update;
  const ot_rl_record *const record = ot_rl_flow_record(r->flow);
  const ot_metric values[] = {
      {"time", ot_rl_flow_time_s(r->flow)},
      {"reward", u->reward},
      {"reward_deviation", u->reward_deviation},
      {"useful_groups", u->useful},
      {"loss", u->step.loss},
      {"grad_norm", u->step.gradient_norm},
      {"lr", u->step.learning_rate},
      {"sequences", (double)u->sequences},
      {"tokens", (double)u->tokens},
      {"packed_rows", (double)u->step.rows},
      {"length", u->length},
      {"ended", u->ended},
      {"ess", u->policy.ess},
      {"ess_sequences", u->policy.sequence_ess},
      {"kl", u->policy.kl},
      {"log_ratio", u->policy.log_ratio},
      {"bounded", u->policy.zero_share},
      {"lag", r->batch_lag},
      {"lag_max", r->batch_lag_max},
      {"cancelled", (double)record->cancelled},
      {"dropped", (double)record->dropped},
      {"answer_gain", u->answer_gain},
      {"reward_failures", (double)u->failures},
  };
  const int64_t version = ot_rl_flow_version(r->flow);
  if (r->metrics) OT_TRY(ot_metrics_write_values(r->metrics, version, values, OT_COUNT(values)));
  tell(r, (ot_rl_event){.kind = OT_RL_EVENT_UPDATE,
                        .version = ot_rl_flow_version(r->flow),
                        .time_s = ot_rl_flow_time_s(r->flow),
                        .update = u,
                        .lag = r->batch_lag,
                        .lag_max = r->batch_lag_max});
  return OT_OK;
}

static ot_status save(rl_run *r) {
  if (!r->directory) return OT_OK;
  const int64_t version = ot_rl_flow_version(r->flow), every = r->run->checkpoint.every;
  if (version != r->run->steps && (every <= 0 || version % every != 0)) return OT_OK;
  const char *const directory = ot_run_directory_checkpoints(r->directory);
  const char *const path = ot_checkpoint_path(r->arena, directory, version);
  const ot_rl_record *const record = ot_rl_flow_record(r->flow);
  const ot_state_request request = {.path = path,
                                    .run = r->run,
                                    .settings = r->request->settings,
                                    .tokenizer = r->tokenizer,
                                    .position = {version, record->sequences, record->tokens}};
  OT_TRY(ot_metrics_sync(r->metrics));
  OT_TRY(ot_training_state_save(ot_rl_updater_runtime(r->updater), &request));
  OT_TRY(ot_run_directory_set_saved(r->directory, ""));
  r->summary->checkpoint = path;
  return ot_checkpoint_prune(r->arena, directory, r->run->checkpoint.keep);
}

static ot_status open_directory(rl_run *r) {
  if (!r->request->settings) return OT_OK;
  const char *const output = r->run->output;
  ot_text_builder text = {.arena = r->arena};
  OT_TRY(ot_run_directory_create(output, &r->directory));
  OT_CHECK(ot_run_directory_found(r->directory) == OT_RUN_EMPTY, OT_USAGE,
           "%s is not empty, and runs of orthant rl are not continued (try --set output=OTHER; "
           "init: %s starts from its weights)",
           output, output);
  ot_node_print_yaml(r->request->settings, 0, &text);
  OT_TRY(ot_output_file_replace(ot_run_directory_config(r->directory), ot_text_builder_text(&text),
                                text.length));
  return ot_metrics_create(ot_run_directory_metrics(r->directory), 0, &r->metrics);
}

// ---- creation ----

static ot_status open_prompts(rl_run *r) {
  const ot_run *const run = r->run;
  OT_TRY(ot_tokenizer_create(run->data.tokenizer, &r->tokenizer));
  OT_CHECK(ot_tokenizer_vocab_size(r->tokenizer) <= run->model.vocab_size, OT_USAGE,
           "the tokenizer has %lld tokens, model.vocab_size is %lld",
           (long long)ot_tokenizer_vocab_size(r->tokenizer), (long long)run->model.vocab_size);
  r->end = ot_tokenizer_eos(r->tokenizer);
  OT_CHECK(r->end >= 0, OT_USAGE, "the tokenizer has no end-of-text token, which ends responses");
  OT_TRY(ot_encoder_create(r->tokenizer, &r->encoder));
  OT_TRY(ot_rl_prompts_read(run->rl.prompts, r->encoder, r->arena, &r->prompts));
  if (run->rl.validation[0] == '\0') return OT_OK;
  return ot_rl_prompts_read(run->rl.validation, r->encoder, r->arena, &r->validation);
}

static int64_t mean_prompt(const rl_run *r) {
  int64_t tokens = 0;
  for (int64_t i = 0; i < r->prompts.count; i++) tokens += r->prompts.prompt[i].num_tokens;
  return ot_larger_whole(1, (tokens + r->prompts.count / 2) / r->prompts.count);
}

static ot_status choose_fleet(rl_run *r) {
  r->fleet = ot_rl_fleet_of(r->run);
  if (r->fleet.updates == OT_RL_SYNCHRONOUS || r->fleet.generators > 0) {
    return ot_rl_fleet_check(&r->fleet);
  }
  ot_rl_split split;
  const ot_rl_question question = {.prompt_tokens = mean_prompt(r)};
  OT_TRY(ot_rl_choose_split(r->run, &question, r->arena, &split, NULL));
  r->fleet = split.choices[0].fleet;
  for (int i = 0; i < split.num_reasons; i++) {
    tell(r, (ot_rl_event){.kind = OT_RL_EVENT_NOTE, .text = split.reasons[i]});
  }
  return OT_OK;
}

static ot_status create_generators(rl_run *r) {
  ot_rl_generator_request request = {.run = r->run,
                                     .slots = r->fleet.slots,
                                     .prompt_tokens = r->prompts.longest,
                                     .max_tokens = r->run->rl.max_tokens,
                                     .recompute = r->fleet.recompute,
                                     .end = r->end,
                                     .seed = (uint64_t)r->run->seed};
  r->num_generators = ot_rl_fleet_generators(&r->fleet);
  r->generators = ot_arena_array(r->arena, r->num_generators, sizeof(ot_rl_generator *));
  for (int i = 0; i < r->num_generators; i++) {
    OT_TRY(ot_rl_generator_create(&request, &r->generators[i]));
    OT_TRY(ot_rl_generator_take(r->generators[i], ot_rl_updater_runtime(r->updater)));
  }
  if (r->validation.count == 0) return OT_OK;
  request.slots = VALIDATION_SLOTS;
  request.prompt_tokens = r->validation.longest;
  request.seed ^= VALIDATION_SEED;
  return ot_rl_generator_create(&request, &r->validator);
}

static ot_status create(rl_run *r, const ot_rl_actions *actions) {
  OT_TRY(ot_rl_check(r->run));
  OT_TRY(open_prompts(r));
  OT_TRY(choose_fleet(r));
  const ot_rl_updater_request request = {
      .run = r->run,
      .prompts = &r->prompts,
      .validation = r->validation.count > 0 ? &r->validation : NULL,
      .tokenizer = r->tokenizer};
  OT_TRY(ot_rl_updater_create(&request, &r->updater));
  OT_TRY(create_generators(r));
  r->batch = ot_arena_array(r->arena, r->fleet.batch, sizeof *r->batch);
  OT_TRY(open_directory(r));
  const ot_rl_flow_request flow = {.fleet = &r->fleet,
                                   .actions = actions,
                                   .max_tokens = r->run->rl.max_tokens,
                                   .failures = r->request->failures,
                                   .num_failures = r->request->num_failures};
  return ot_rl_flow_create(&flow, r->arena, &r->flow);
}

static void release(rl_run *r) {
  for (int i = 0; i < r->num_generators; i++) ot_rl_generator_destroy(&r->generators[i]);
  ot_rl_generator_destroy(&r->validator);
  ot_rl_updater_destroy(&r->updater);
  ot_metrics_destroy(&r->metrics);
  ot_run_directory_destroy(&r->directory);
  ot_encoder_destroy(&r->encoder);
  ot_tokenizer_destroy(&r->tokenizer);
}

// ---- the run ----

// What the lengths of the responses that began first say of the whole run. All of them: those that
// end first are shorter.
static ot_status predict(rl_run *r) {
  const int64_t count = FORECAST_FROM / r->fleet.group * r->fleet.group;
  bool known = count > 0 && r->summary->predicted_from == 0;
  for (int64_t i = 0; i < count; i++) known = known && r->lengths[i] > 0;
  if (!known) return OT_OK;
  const ot_rl_lengths lengths = {
      .tokens = r->lengths, .count = count, .prompt_tokens = mean_prompt(r), .in_order = true};
  const ot_rl_play play = {.fleet = &r->fleet,
                           .lengths = &lengths,
                           .updates = ot_smaller_whole(r->run->steps, FORECAST_UPDATES)};
  ot_rl_record *const record = ot_arena_take(r->arena, sizeof *record);
  OT_TRY(ot_rl_play_run(&play, r->arena, record));
  ot_rl_record_forecast(&r->fleet, record, &r->summary->predicted);
  r->summary->predicted_from = count;
  return OT_OK;
}

static ot_status run_updates(rl_run *r) {
  OT_TRY(validate(r));
  while (ot_rl_flow_version(r->flow) < r->run->steps) {
    OT_TRY(ot_rl_flow_advance(r->flow));
    OT_TRY(write_update(r));
    OT_TRY(predict(r));
    OT_TRY(validate(r));
    OT_TRY(save(r));
  }
  r->summary->fleet = r->fleet;
  r->summary->record = *ot_rl_flow_record(r->flow);
  ot_rl_record_forecast(&r->fleet, &r->summary->record, &r->summary->measured);
  return OT_OK;
}

ot_status ot_rl_run(const ot_rl_request *request, ot_arena *arena, ot_rl_summary *summary) {
  *summary = (ot_rl_summary){.first_reward = NAN, .last_reward = NAN};
  rl_run r = {.request = request, .run = request->run, .arena = arena, .summary = summary};
  const ot_rl_actions actions = {start, decode, cancel, train, take, drop, &r};
  ot_status status = create(&r, &actions);
  if (status == OT_OK) status = run_updates(&r);
  release(&r);
  return status;
}
