// SPDX-License-Identifier: Apache-2.0
// Generators in this process, and the simulated clock, on which they and the trainer take turns.
#include <stdlib.h>
#include <string.h>

#include "rl/rl_state.h"

struct ot_rl_local_fleet {
  int num_generators;
  ot_rl_generator **generators;
  ot_rl_actions actions;
  ot_rl_flow *flow;  // of the simulated clock
};

typedef struct ot_rl_local_fleet local_fleet;

static local_fleet *fleet_of(const ot_rl_state *r) { return r->fleet_here; }

// ---- actions ----

static ot_status start(void *context, ot_rl_sequence *sequence) {
  ot_rl_state *const r = context;
  ot_rl_answer *const answer = ot_rl_answer_take(r);
  answer->id = sequence->id;
  answer->group = sequence->group;
  answer->prompt = ot_rl_prompt_of_group(&r->prompts, (uint64_t)r->run->seed, sequence->group);
  answer->versions = sequence->versions;
  sequence->data = answer;
  sequence->prompt_tokens = answer->prompt->num_tokens;
  return ot_rl_generator_start(fleet_of(r)->generators[sequence->generator], answer);
}

static ot_status decode(void *context, ot_rl_sequence *const *running, int count,
                        ot_rl_decoded *decoded) {
  ot_rl_state *const r = context;
  for (int i = 0; i < count; i++) ((ot_rl_answer *)running[i]->data)->fresh = false;
  OT_TRY(ot_rl_generator_step(fleet_of(r)->generators[running[0]->generator], &decoded->rows));
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
  ot_rl_state *const r = context;
  ot_rl_generator_cancel(fleet_of(r)->generators[sequence->generator], sequence->data);
  ot_rl_answer_leave(r, sequence->data);
  return OT_OK;
}

static void drop(void *context, ot_rl_sequence *sequence) {
  ot_rl_answer_leave(context, sequence->data);
}

static ot_status train(void *context, ot_rl_sequence *const *batch, int count, int64_t version) {
  return ot_rl_state_train(context, batch, count, version);
}

// Counts the parameters whose rows are not the trainer's, bit for bit.
static ot_status compare_weights(ot_rl_state *r, ot_runtime *with) {
  ot_runtime *const trainer = ot_rl_learner_runtime(ot_rl_updater_learner(r->updater));
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

static ot_status renew(void *context, int generator, int64_t version) {
  ot_rl_state *const r = context;
  const ot_rl_faults *const faults = &r->request->faults;
  ot_rl_generator *const g = fleet_of(r)->generators[generator];
  (void)version;
  OT_TRY(ot_rl_generator_take(g, ot_rl_updater_learner(r->updater)));
  if (faults->taken) faults->taken(faults->context, ot_rl_generator_runtime(g));
  return r->request->compare_weights ? compare_weights(r, ot_rl_generator_runtime(g)) : OT_OK;
}

// ---- life ----

ot_status ot_rl_local_create(ot_rl_state *r) {
  local_fleet *const f = ot_arena_take(r->arena, sizeof *f);
  *f = (local_fleet){.actions = {start, decode, cancel, train, renew, drop, r}};
  r->fleet_here = f;
  const ot_rl_generator_request request = ot_rl_state_generator(r);
  f->num_generators = ot_rl_fleet_generators(&r->fleet);
  f->generators = ot_arena_array(r->arena, f->num_generators, sizeof(ot_rl_generator *));
  for (int i = 0; i < f->num_generators; i++) {
    OT_TRY(ot_rl_generator_create(&request, &f->generators[i]));
    OT_TRY(ot_rl_generator_take(f->generators[i], ot_rl_updater_learner(r->updater)));
  }
  return OT_OK;
}

void ot_rl_local_destroy(ot_rl_state *r) {
  local_fleet *const f = fleet_of(r);
  for (int i = 0; f && i < f->num_generators; i++) ot_rl_generator_destroy(&f->generators[i]);
}

const ot_rl_actions *ot_rl_local_actions(const ot_rl_state *r) { return &fleet_of(r)->actions; }

// ---- the simulated clock ----

static ot_status create(ot_rl_state *r) {
  OT_TRY(ot_rl_local_create(r));
  const ot_rl_flow_request flow = {.fleet = &r->fleet,
                                   .actions = ot_rl_local_actions(r),
                                   .max_tokens = r->run->rl.max_tokens,
                                   .failures = r->request->failures,
                                   .num_failures = r->request->num_failures};
  return ot_rl_flow_create(&flow, r->arena, &fleet_of(r)->flow);
}

static ot_status advance(ot_rl_state *r) {
  const ot_rl_flow *const flow = fleet_of(r)->flow;
  OT_TRY(ot_rl_flow_advance(fleet_of(r)->flow));
  r->version = ot_rl_flow_version(flow);
  r->time_s = ot_rl_flow_time_s(flow);
  r->record = ot_rl_flow_record(flow);
  return OT_OK;
}

static ot_status rest(ot_rl_state *r, ot_rl_point *point) {
  *point = (ot_rl_point){.queue = ot_rl_flow_queue(fleet_of(r)->flow)};
  return ot_rl_flow_rest(fleet_of(r)->flow, &point->flow);
}

static ot_rl_queue *queue(ot_rl_state *r) { return ot_rl_flow_queue(fleet_of(r)->flow); }

static void set(ot_rl_state *r, const ot_rl_point *point) {
  ot_rl_flow_set(fleet_of(r)->flow, &point->flow);
  r->record = ot_rl_flow_record(fleet_of(r)->flow);
}

const ot_rl_clock ot_rl_simulated_clock = {create, advance, rest, queue, set, ot_rl_local_destroy};
