// SPDX-License-Identifier: Apache-2.0
// run: any machine. Runs that learn from rewards: bits that repeat, the synchronous mode as a plain
// loop, versions as the simulator has them, on-policy ratios of 1, lost generators, bounds.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/text.h"
#include "checkpoint/checkpoint_list.h"
#include "rl/generator.h"
#include "rl/rl_audit.h"
#include "support/reward_run.h"

// What a run told.
typedef struct told {
  int64_t updates;
  double loss[STEPS], norm[STEPS], ess[STEPS];
  int32_t lengths[SEQUENCES];  // by id; 0: not trained on
  int64_t lags[64];
  int64_t oldest;
  ot_rl_summary summary;
} told;

static void note(void *context, const ot_rl_event *event) {
  told *const r = context;
  for (int64_t i = 0; i < event->num_answers; i++) {
    const ot_rl_answer *const a = event->answers[i];
    assert_true(a->id < SEQUENCES && r->lengths[a->id] == 0 && a->count > 0);
    assert_true(a->reward >= 0 && a->reward <= 1);
    r->lengths[a->id] = (int32_t)a->count;
    for (int64_t t = 0; t < a->count; t++) {
      const int64_t lag = event->version - a->versions[t];
      r->lags[lag]++;
      r->oldest = lag > r->oldest ? lag : r->oldest;
    }
  }
  if (event->kind != OT_RL_EVENT_UPDATE) return;
  r->loss[r->updates] = event->update->step.loss;
  r->norm[r->updates] = event->update->step.gradient_norm;
  r->ess[r->updates++] = event->update->policy.ess;
}

static told *play(const ot_run *run, const ot_rl_failure *failures, int num_failures) {
  told *const r = ot_arena_array(&arena, 1, sizeof *r);
  const ot_rl_request request = {.run = run,
                                 .settings = ot_node_create(&arena, OT_NODE_MAP),
                                 .failures = failures,
                                 .num_failures = num_failures,
                                 .sink = note,
                                 .context = r};
  const ot_status status = ot_rl_run(&request, &arena, &r->summary);
  if (status != OT_OK) fail_msg("%s", ot_fail_message());
  assert_int_equal(r->updates, run->steps);
  return r;
}

static void same_bits_with_any_threads(void **state) {
  (void)state;
  for (int recompute = 0; recompute < 2; recompute++) {
    ot_run run = run_of(recompute ? "recompute1" : "keep1", OT_F32);
    run.rl.recompute = recompute;
    const told *const one = play(&run, NULL, 0);
    run.output = scratch_path(directory, recompute ? "recompute2" : "keep2");
    run.threads = 2;
    const told *const two = play(&run, NULL, 0);
    assert_memory_equal(one->loss, two->loss, sizeof one->loss);
    assert_memory_equal(one->norm, two->norm, sizeof one->norm);
    assert_memory_equal(one->lags, two->lags, sizeof one->lags);
    assert_true(one->oldest > 0);
    assert_files_equal(
        scratch_path(directory, recompute ? "recompute1/metrics.jsonl" : "keep1/metrics.jsonl"),
        scratch_path(directory, recompute ? "recompute2/metrics.jsonl" : "keep2/metrics.jsonl"));
  }
}

// ---- ranks ----

typedef struct ranked {
  const ot_run *run;
  told *told;
} ranked;

static ot_status play_rank(ot_comm *comm, void *context) {
  const ranked *const x = context;
  ot_rl_request request = {.run = x->run, .sink = note, .context = x->told};
  OT_TRY(ot_world_create(&x->run->parallel, comm, &request.world));
  const ot_status status = ot_rl_run(&request, &arena, &x->told->summary);
  ot_world_destroy(&request.world);
  return status;
}

// Sums of gradients have another order, which float64 shows in the last bits only.
static void trainers_may_be_many_ranks(void **state) {
  (void)state;
  ot_run run = run_of("ranks", OT_F64);
  run.model.num_heads = 4;
  run.model.num_kv_heads = 2;
  const told *const one = play(&run, NULL, 0);
  const struct {
    int ranks, tp, cp, pp, zero;
  } layouts[] = {{2, 1, 1, 1, 0}, {4, 2, 1, 1, 3}, {4, 2, 2, 1, 1}, {4, 1, 1, 2, 0}};
  for (int k = 0; k < OT_COUNT(layouts); k++) {
    run.parallel.tp = layouts[k].tp;
    run.parallel.cp = layouts[k].cp;
    run.parallel.pp = layouts[k].pp;
    run.parallel.zero = layouts[k].zero;
    ranked x = {&run, ot_arena_array(&arena, 1, sizeof *x.told)};
    const ot_status status = ot_comm_run_threads(layouts[k].ranks, play_rank, &x);
    if (status != OT_OK) fail_msg("%d ranks: %s", layouts[k].ranks, ot_fail_message());
    assert_memory_equal(x.told->lengths, one->lengths, sizeof one->lengths);
    for (int i = 0; i < STEPS; i++) {
      assert_float_equal(x.told->loss[i], one->loss[i], 1e-12);
      assert_float_equal(x.told->norm[i], one->norm[i], 1e-12);
      assert_true(one->norm[i] > 1e-3);
    }
  }
}

// A loop that generates a batch by one engine and then trains on it.
static void plain_loop(const ot_run *run, double loss[STEPS], double norm[STEPS]) {
  ot_tokenizer *tokenizer = NULL;
  ot_encoder *encoder = NULL;
  ot_rl_prompts prompts;
  ot_rl_updater *updater = NULL;
  ot_rl_generator *generator = NULL;
  assert_int_equal(ot_tokenizer_create("bytes", &tokenizer), OT_OK);
  assert_int_equal(ot_encoder_create(tokenizer, &encoder), OT_OK);
  assert_int_equal(ot_rl_prompts_read(run->rl.prompts, encoder, &arena, &prompts), OT_OK);
  const ot_rl_updater_request request = {.run = run, .prompts = &prompts, .tokenizer = tokenizer};
  assert_int_equal(ot_rl_updater_create(&request, &updater), OT_OK);
  const ot_rl_generator_request engine = {.run = run,
                                          .slots = BATCH,
                                          .prompt_tokens = 5,
                                          .max_tokens = MOST,
                                          .special = ot_special_tokens_of(tokenizer, &run->model),
                                          .seed = (uint64_t)run->seed};
  assert_int_equal(ot_rl_generator_create(&engine, &generator), OT_OK);
  for (int v = 0; v < STEPS; v++) {
    ot_rl_answer *answers[BATCH];
    ot_rl_update update;
    int64_t rows;
    assert_int_equal(ot_rl_generator_take(generator, ot_rl_updater_learner(updater)), OT_OK);
    for (int i = 0; i < BATCH; i++) {
      ot_rl_answer *const a = answers[i] = ot_arena_array(&arena, 1, sizeof *a);
      a->id = v * BATCH + i;
      a->group = a->id / run->rl.group;
      a->prompt = ot_rl_prompt_of_group(&prompts, (uint64_t)run->seed, a->group);
      a->tokens = ot_arena_array(&arena, MOST, sizeof *a->tokens);
      a->behaviour = ot_arena_array(&arena, MOST, sizeof *a->behaviour);
      assert_int_equal(ot_rl_generator_start(generator, a), OT_OK);
    }
    while (!ot_rl_generator_is_idle(generator)) {
      assert_int_equal(ot_rl_generator_step(generator, &rows), OT_OK);
    }
    // The trainer takes groups in the order in which they are complete, which can be another one.
    assert_int_equal(ot_rl_updater_judge(updater, answers, BATCH), OT_OK);
    assert_int_equal(ot_rl_updater_step(updater, answers, BATCH, v, &update), OT_OK);
    loss[v] = update.step.loss;
    norm[v] = update.step.gradient_norm;
  }
  ot_rl_generator_destroy(&generator);
  ot_rl_updater_destroy(&updater);
  ot_encoder_destroy(&encoder);
  ot_tokenizer_destroy(&tokenizer);
}

static void synchronous_run_is_a_plain_loop(void **state) {
  (void)state;
  ot_run run = run_of("plain", OT_F64);
  run.rl.updates = OT_RL_SYNCHRONOUS;
  run.rl.group = BATCH;  // one group, so the order of groups is that of the loop
  double loss[STEPS], norm[STEPS];
  const told *const found = play(&run, NULL, 0);
  plain_loop(&run, loss, norm);
  assert_memory_equal(found->loss, loss, sizeof loss);
  assert_memory_equal(found->norm, norm, sizeof norm);
  assert_true(found->oldest == 0);
  for (int i = 0; i < STEPS; i++) assert_float_equal(found->ess[i], 1, 1e-12);
}

static void versions_are_those_of_the_simulator(void **state) {
  (void)state;
  for (int recompute = 0; recompute < 2; recompute++) {
    ot_run run = run_of(recompute ? "versions1" : "versions0", OT_F32);
    run.rl.recompute = recompute;
    told *const found = play(&run, NULL, 0);
    for (int i = 0; i < SEQUENCES; i++) {
      if (found->lengths[i] == 0) found->lengths[i] = MOST;  // trained on by no update
    }
    const ot_rl_lengths lengths = {
        .tokens = found->lengths, .count = SEQUENCES, .prompt_tokens = 5, .in_order = true};
    const ot_rl_play same = {.fleet = &found->summary.fleet, .lengths = &lengths, .updates = STEPS};
    ot_rl_record *const record = ot_arena_take(&arena, sizeof *record);
    assert_int_equal(ot_rl_play_run(&same, &arena, record), OT_OK);
    for (int lag = 0; lag < 64; lag++) assert_true(record->lags[lag] == (double)found->lags[lag]);
    assert_true(record->time_s == found->summary.record.time_s);
  }
}

static void with_equal_weights_ratios_are_one(void **state) {
  (void)state;
  ot_run run = run_of("frozen", OT_F64);
  run.optimizer.lr = 0;
  run.learning_rate.min = 0;
  const told *const found = play(&run, NULL, 0);
  assert_true(found->oldest > 0);
  for (int i = 0; i < STEPS; i++) assert_float_equal(found->ess[i], 1, 1e-12);
}

static void lost_generator_costs_its_sequences(void **state) {
  (void)state;
  ot_run run = run_of("lost", OT_F32);
  const ot_rl_failure failure = {.generator = 1, .at_s = 30};
  const told *const found = play(&run, &failure, 1);
  const ot_rl_record *const record = &found->summary.record;
  assert_true(record->cancelled > 0 && record->cancelled <= run.rl.slots);
  assert_true(record->sequences + record->dropped + record->cancelled >= STEPS * BATCH);
  assert_true(record->sequences >= STEPS * BATCH - run.rl.slots * GROUP);
}

static void old_tokens_are_never_trained_on(void **state) {
  (void)state;
  ot_run run = run_of("bound", OT_F32);
  run.rl.max_lag = 1;
  const told *const found = play(&run, NULL, 0);
  assert_true(found->oldest <= 1);
  assert_true(found->summary.record.cancelled + found->summary.record.dropped > 0);
}

// Stopped after update 6, of which the checkpoint is lost, and continued from that of update 3.
static void continued_runs_have_the_same_bits(void **state) {
  (void)state;
  static const struct {
    ot_rl_updates updates;
    int recompute, max_lag;
  } cases[] = {{OT_RL_IN_FLIGHT, 0, 0}, {OT_RL_IN_FLIGHT, 1, 2}, {OT_RL_SYNCHRONOUS, 0, 0}};
  for (int k = 0; k < OT_COUNT(cases); k++) {
    ot_run run = run_of(ot_arena_format(&arena, "whole%d", k), OT_F32);
    run.checkpoint.every = 3;
    run.rl.updates = cases[k].updates;
    run.rl.recompute = cases[k].recompute;
    run.rl.max_lag = cases[k].max_lag;
    run.rl.slots = 5;  // no whole groups: one is open at a checkpoint
    const told *const whole = play(&run, NULL, 0);
    const char *const first = run.output;
    run.output = scratch_path(directory, ot_arena_format(&arena, "part%d", k));
    run.steps = 6;
    (void)play(&run, NULL, 0);
    const char *const checkpoints = ot_arena_format(&arena, "%s/checkpoints", run.output);
    assert_int_equal(ot_checkpoint_remove(&arena, checkpoints, 6), OT_OK);
    run.steps = STEPS;
    told *const rest = ot_arena_array(&arena, 1, sizeof *rest);
    const ot_rl_request request = {.run = &run,
                                   .settings = ot_node_create(&arena, OT_NODE_MAP),
                                   .sink = note,
                                   .context = rest};
    const ot_status status = ot_rl_run(&request, &arena, &rest->summary);
    if (status != OT_OK) fail_msg("%s", ot_fail_message());
    assert_int_equal(rest->updates, STEPS - 3);
    assert_memory_equal(rest->loss, whole->loss + 3, (STEPS - 3) * sizeof *rest->loss);
    assert_memory_equal(&rest->summary.record, &whole->summary.record, sizeof(ot_rl_record));
    assert_files_equal(ot_arena_format(&arena, "%s/metrics.jsonl", run.output),
                       ot_arena_format(&arena, "%s/metrics.jsonl", first));
  }
}

static void what_cannot_run_is_refused(void **state) {
  (void)state;
  ot_rl_summary *const summary = ot_arena_array(&arena, 1, sizeof *summary);
  told unused = {0};
  ot_run run = run_of("refused", OT_F32);
  const ot_rl_request request = {.run = &run,
                                 .settings = ot_node_create(&arena, OT_NODE_MAP),
                                 .sink = note,
                                 .context = &unused};
  run.data.sequence_length = 20;
  run.rl.max_tokens = MOST + 1;
  assert_int_equal(ot_rl_run(&request, &arena, summary), OT_USAGE);
  assert_message_has("try sequence_length 21");
  run = run_of("refused", OT_F32);
  run.parallel.tp = 2;
  assert_int_equal(ot_rl_run(&request, &arena, summary), OT_RANKS);
  run = run_of("refused", OT_F32);
  scratch_write(run.rl.prompts, "{\"prompt\": \"a\", \"gold\": \"b\"}\n", 30);
  assert_int_equal(ot_rl_run(&request, &arena, summary), OT_USAGE);
  assert_message_has("prompts:1");
}

// ---- rewards that need more than the response ----

enum { SCORED = 5 };

// Responses and rewards of the first update, whose weights are the initial ones.
typedef struct first_batch {
  ot_rl_answer answers[BATCH];
  int64_t count;
  double rewards[STEPS];
  int64_t updates, failures;
} first_batch;

static void keep_first(void *context, const ot_rl_event *event) {
  first_batch *const f = context;
  if (event->kind == OT_RL_EVENT_UPDATE) {
    f->failures = event->update->failures;
    f->rewards[f->updates++] = event->update->reward;
  }
  if (event->kind != OT_RL_EVENT_BATCH || f->count > 0) return;
  for (; f->count < event->num_answers; f->count++) {
    ot_rl_answer *const to = &f->answers[f->count];
    *to = *event->answers[f->count];
    int32_t *const tokens = ot_arena_array(&arena, MOST, sizeof *tokens);
    memcpy(tokens, to->tokens, (size_t)to->count * sizeof *tokens);
    to->tokens = tokens;
    ot_rl_prompt *const prompt = ot_arena_take(&arena, sizeof *prompt);
    *prompt = *to->prompt;
    to->prompt = prompt;
  }
}

static first_batch *play_first(const ot_run *run) {
  first_batch *const f = ot_arena_array(&arena, 1, sizeof *f);
  ot_rl_summary *const summary = ot_arena_array(&arena, 1, sizeof *summary);
  const ot_rl_request request = {.run = run, .sink = keep_first, .context = f};
  const ot_status status = ot_rl_run(&request, &arena, summary);
  if (status != OT_OK) fail_msg("%s", ot_fail_message());
  return f;
}

static bool add_score(void *context, const ot_token_event *event) {
  double *const scores = context;
  scores[event->index] = event->score.logprob;
  return true;
}

// The mean log-probability of an answer after a response, by an inference engine.
static double score_answer(const ot_run *run, const ot_rl_answer *a, int64_t response) {
  int32_t tokens[256];
  double scores[256], sum = 0;
  const ot_rl_prompt *const p = a->prompt;
  const int64_t first = p->num_tokens + response, count = first + p->num_answer_tokens;
  memcpy(tokens, p->tokens, (size_t)p->num_tokens * sizeof *tokens);
  memcpy(tokens + p->num_tokens, a->tokens, (size_t)response * sizeof *tokens);
  memcpy(tokens + first, p->answer_tokens, (size_t)p->num_answer_tokens * sizeof *tokens);
  const ot_inference_shape shape = {.slots = 1, .chunk = 128, .positions = 128};
  ot_runtime_request request = {
      .rank = {
          .graph = {.model = &run->model, .compute = OT_F64, .storage = OT_F64, .threads = 1}}};
  ot_runtime *runtime = NULL;
  ot_inference *engine = NULL;
  ot_inference_complete(&shape, &request.rank);
  assert_int_equal(ot_runtime_create(&request, &runtime), OT_OK);
  assert_int_equal(ot_runtime_initialize(runtime, (uint64_t)run->seed), OT_OK);
  assert_int_equal(ot_inference_create(runtime, run->model.vocab_size, &engine), OT_OK);
  const ot_sequence_request one = {
      .prompt = tokens, .num_prompt = count, .scores = true, .token = add_score, .context = scores};
  assert_int_equal(ot_inference_add(engine, &one, NULL), OT_OK);
  assert_int_equal(ot_inference_run(engine), OT_OK);
  ot_inference_destroy(&engine);
  ot_runtime_destroy(&runtime);
  for (int64_t i = first; i < count; i++) sum += scores[i];
  return sum / (double)p->num_answer_tokens;
}

static void answers_are_scored_after_responses(void **state) {
  (void)state;
  ot_run run = run_of("logprob", OT_F64);
  run.data.sequence_length = 120;
  run.rl.reward = OT_REWARD_ANSWER_LOGPROB;
  run.rl.length_power = 1;
  run.rl.answer_weight = 1;
  const first_batch *const f = play_first(&run);
  for (int i = 0; i < SCORED; i++) {
    const ot_rl_answer *const a = &f->answers[i];
    const int64_t response = a->count - (a->ended ? 1 : 0);
    assert_float_equal(a->reward, score_answer(&run, a, response), 1e-12);
    assert_true(fabs(a->reward - score_answer(&run, a, 0)) > 1e-9);
  }
  // The cross-entropy of the answers makes them more probable.
  assert_true(f->rewards[STEPS - 1] > f->rewards[0] + 0.01);
}

static void responses_that_tell_the_answer_leak(void **state) {
  (void)state;
  int32_t answer[12], response[20] = {0};
  for (int i = 0; i < 12; i++) answer[i] = 100 + i;
  const ot_rl_prompt prompt = {.answer_tokens = answer, .num_answer_tokens = 12};
  const ot_rl_answer a = {.prompt = &prompt, .tokens = response, .count = 20};
  memcpy(response + 5, answer + 2, 8 * sizeof *answer);
  assert_true(ot_answer_leaks(&a, 8));
  response[12] = 7;
  assert_false(ot_answer_leaks(&a, 8));
  assert_true(ot_answer_leaks(&a, 7));
}

// Half a point for each response, except for every fifth, of which the program says nothing.
static void a_program_judges_responses(void **state) {
  (void)state;
  static const char script[] =
      "#!/usr/bin/env bash\n"
      "while IFS= read -r line; do\n"
      "  id=${line#*:}; id=${id%%,*}\n"
      "  if [ $((id % 5)) = 4 ]; then echo nothing; else\n"
      "    printf '{\"id\": %s, \"reward\": 0.5}\\n' \"$id\"; fi\n"
      "done\n";
  const char *path = scratch_path(directory, "judge.sh");
  scratch_write(path, script, (int64_t)strlen(script));
  assert_int_equal(chmod(path, 0755), 0);
  ot_run run = run_of("command", OT_F32);
  run.steps = 2;
  run.rl.reward = OT_REWARD_COMMAND;
  run.rl.command = &path;
  run.rl.num_command = 1;
  run.rl.command_seconds = 20;
  const first_batch *const f = play_first(&run);
  for (int i = 0; i < BATCH; i++) {
    assert_true(f->answers[i].reward == (f->answers[i].id % 5 == 4 ? 0 : 0.5));
  }
  assert_true(f->failures > 0 && f->failures <= 4);
}

// ---- the audit ----

static ot_rl_audit audit(const ot_run *run, const ot_rl_faults *faults) {
  ot_rl_audit out;
  const ot_status status = ot_rl_audit_run(run, 3, faults, &arena, &out);
  if (status != OT_OK) fail_msg("%s", ot_fail_message());
  return out;
}

static bool has(const ot_rl_audit *audit, const char *what) {
  for (int i = 0; i < audit->num_findings; i++) {
    if (ot_text_starts_with(audit->findings[i], what)) return true;
  }
  return false;
}

// A matrix of a generator a thousandth too large.
static void drift_away(void *context, ot_runtime *generator) {
  const ot_graph *const whole = ot_runtime_whole_graph(generator);
  const int p = whole->num_parameters - 1;
  const ot_parameter_rows rows = {p, OT_COPY_WEIGHT, 0, whole->parameters[p].rows};
  const int64_t n = whole->parameters[p].rows * whole->parameters[p].cols;
  float *const values = ot_arena_array(&arena, n, sizeof(double));
  (void)context;
  assert_int_equal(ot_runtime_read(generator, &rows, values), OT_OK);
  for (int64_t i = 0; i < n; i++) values[i] *= 1.001f;
  ot_runtime_write(generator, &rows, values);
}

// Log-probabilities as at another temperature.
static void heat(void *context, ot_rl_answer *const *answers, int64_t count) {
  (void)context;
  for (int64_t i = 0; i < count; i++) {
    for (int64_t t = 0; t < answers[i]->count; t++) answers[i]->behaviour[t] *= 0.7;
  }
}

static void reward_neighbours(void *context, ot_rl_answer *const *answers, int64_t count) {
  (void)context;
  const double last = answers[count - 1]->reward;
  for (int64_t i = count - 1; i > 0; i--) answers[i]->reward = answers[i - 1]->reward;
  answers[0]->reward = last;
}

static void mix_groups(void *context, ot_rl_answer *const *answers, int64_t count) {
  (void)context;
  for (int64_t i = 0; i < count; i++) answers[i]->group = 0;
}

static void faults_of_a_run_are_found(void **state) {
  (void)state;
  const ot_run run = run_of("audited", OT_F32);
  const struct {
    const char *what;
    ot_rl_faults faults;
  } cases[] = {{"drift", {.taken = drift_away}},
               {"weights", {.taken = drift_away}},
               {"drift", {.judged = heat}},
               {"rewards", {.judged = reward_neighbours}},
               {"advantages", {.judged = mix_groups}}};
  const ot_rl_audit clean = audit(&run, NULL);
  assert_int_equal(clean.num_findings, 0);
  assert_true(clean.drift > 0 && clean.kept.lag > 0);
  assert_true(clean.kept.kl != clean.recomputed.kl && clean.kept.ess < 1);
  for (int i = 0; i < OT_COUNT(cases); i++) {
    const ot_rl_audit found = audit(&run, &cases[i].faults);
    if (!has(&found, cases[i].what)) fail_msg("fault %d: no finding of %s", i, cases[i].what);
  }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_directory, close_directory)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(trainers_may_be_many_ranks),          TEST(same_bits_with_any_threads),
      TEST(synchronous_run_is_a_plain_loop),     TEST(versions_are_those_of_the_simulator),
      TEST(with_equal_weights_ratios_are_one),   TEST(lost_generator_costs_its_sequences),
      TEST(old_tokens_are_never_trained_on),     TEST(continued_runs_have_the_same_bits),
      TEST(what_cannot_run_is_refused),          TEST(answers_are_scored_after_responses),
      TEST(responses_that_tell_the_answer_leak), TEST(a_program_judges_responses),
      TEST(faults_of_a_run_are_found),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
