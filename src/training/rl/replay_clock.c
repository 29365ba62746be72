// SPDX-License-Identifier: Apache-2.0
// A run on the real clock, played again from its tape by generators in this process. Before each
// update every generator goes on until the event for which it needs newer weights; so the order of
// events on the tape matters only where weights pass.
#include "rl/rl_state.h"
#include "rl/tape.h"

// The recorded events of a generator, and how many of them have been replayed.
typedef struct stream {
  int64_t *events;  // [count]
  int64_t count, capacity, next;
  int64_t version;
  ot_rl_sequence **slots;  // [fleet.slots] or null
} stream;

typedef struct replayed_update {
  int64_t *responses;  // [count]
  int64_t count;
  ot_tape_figures figures;
} replayed_update;

typedef struct replay_clock {
  int generators;
  stream *streams;  // [generators]
  replayed_update *updates;
  int64_t num_updates, update_capacity;
  ot_rl_sequence **ended;  // [num_ended] not trained on
  int64_t num_ended, capacity;
  ot_rl_sequence **batch;    // [fleet.batch]
  ot_rl_progress *progress;  // [fleet.slots]
  ot_rl_sequence **in_step;  // [fleet.slots]
  ot_rl_record record;
} replay_clock;

enum { LOSS = -1 };  // an event: the process of the generator has ended

static replay_clock *clock_of(const ot_rl_state *r) { return r->clock_state; }

static ot_status refuse(const ot_rl_state *r, const char *what, int64_t number) {
  return ot_fail(OT_USAGE, "%s is no tape of this run: %s %lld", r->request->replay, what,
                 (long long)number);
}

// ---- the tape ----

static void keep_event(ot_rl_state *r, stream *s, int64_t word) {
  s->events = ot_arena_grow(r->arena, s->events, s->count, &s->capacity, sizeof *s->events);
  s->events[s->count++] = word;
}

static void keep_update(ot_rl_state *r, const ot_tape_line *line) {
  replay_clock *const c = clock_of(r);
  c->updates =
      ot_arena_grow(r->arena, c->updates, c->num_updates, &c->update_capacity, sizeof *c->updates);
  replayed_update *const update = &c->updates[c->num_updates++];
  *update = (replayed_update){.count = line->count, .figures = line->figures};
  update->responses = ot_arena_array(r->arena, line->count, sizeof *update->responses);
  for (int64_t i = 0; i < line->count; i++) update->responses[i] = line->words[i];
}

static ot_status keep_line(ot_rl_state *r, const ot_tape_line *line) {
  replay_clock *const c = clock_of(r);
  if (line->kind == 'u') {
    if (line->number != c->num_updates + 1) return refuse(r, "it lacks update", c->num_updates + 1);
    if (line->count < 1 || line->count > r->fleet.batch) {
      return refuse(r, "responses of an update:", line->count);
    }
    keep_update(r, line);
    return OT_OK;
  }
  if (line->number >= c->generators) return refuse(r, "generator", line->number);
  stream *const s = &c->streams[line->number];
  if (line->kind == 'x') keep_event(r, s, LOSS);
  for (int64_t i = 0; i < line->count; i++) keep_event(r, s, line->words[i]);
  return OT_OK;
}

static ot_status read_tape(ot_rl_state *r, ot_tape_reader *reader) {
  ot_tape_line line = {.kind = 'g'};
  while (line.kind != 0) {
    OT_TRY(ot_tape_reader_next(reader, &line));
    if (line.kind != 0) OT_TRY(keep_line(r, &line));
  }
  if (clock_of(r)->num_updates < r->run->steps) {
    return refuse(r, "its updates are", clock_of(r)->num_updates);
  }
  return OT_OK;
}

// ---- events ----

static ot_status start(ot_rl_state *r, stream *s, int generator, int64_t id) {
  int slot = 0;
  while (slot < r->fleet.slots && s->slots[slot]) slot++;
  if (slot == r->fleet.slots) return refuse(r, "no slot is free for response", id);
  ot_rl_sequence *const sequence = ot_arena_take(r->arena, sizeof *sequence);
  *sequence = (ot_rl_sequence){
      .id = id, .group = id / r->fleet.group, .generator = generator, .slot = slot};
  sequence->versions = ot_arena_array(r->arena, r->run->rl.max_tokens, sizeof *sequence->versions);
  s->slots[slot] = sequence;
  const ot_rl_actions *const act = ot_rl_local_actions(r);
  return act->start(act->context, sequence);
}

static void add_token(ot_rl_state *r, stream *s, ot_rl_sequence *sequence,
                      ot_rl_progress progress) {
  replay_clock *const c = clock_of(r);
  if (progress == OT_RL_NO_TOKEN) return;
  sequence->versions[sequence->tokens++] = (int32_t)s->version;
  c->record.made_tokens++;
  if (progress != OT_RL_LAST_TOKEN) return;
  s->slots[sequence->slot] = NULL;
  c->ended = ot_arena_grow(r->arena, c->ended, c->num_ended, &c->capacity, sizeof *c->ended);
  c->ended[c->num_ended++] = sequence;
}

static ot_status step(ot_rl_state *r, stream *s) {
  replay_clock *const c = clock_of(r);
  const ot_rl_actions *const act = ot_rl_local_actions(r);
  ot_rl_decoded decoded = {.progress = c->progress};
  int running = 0;
  for (int i = 0; i < r->fleet.slots; i++) {
    if (s->slots[i]) c->in_step[running++] = s->slots[i];
  }
  if (running == 0) return refuse(r, "a step without responses after update", r->version);
  OT_TRY(act->decode(act->context, c->in_step, running, &decoded));
  for (int i = 0; i < running; i++) add_token(r, s, c->in_step[i], c->progress[i]);
  return OT_OK;
}

static ot_status cancel(ot_rl_state *r, stream *s, int64_t id) {
  const ot_rl_actions *const act = ot_rl_local_actions(r);
  for (int i = 0; i < r->fleet.slots; i++) {
    if (!s->slots[i] || s->slots[i]->id != id) continue;
    OT_TRY(act->cancel(act->context, s->slots[i]));
    s->slots[i] = NULL;
    return OT_OK;
  }
  return refuse(r, "cancelled response", id);
}

// Drops the sequences of a lost process. Those that had ended and were not sent are in no update.
static ot_status lose_running(ot_rl_state *r, stream *s) {
  const ot_rl_actions *const act = ot_rl_local_actions(r);
  for (int i = 0; i < r->fleet.slots; i++) {
    if (s->slots[i]) OT_TRY(act->cancel(act->context, s->slots[i]));
    s->slots[i] = NULL;
  }
  return OT_OK;
}

static ot_status play_event(ot_rl_state *r, int generator, int64_t word) {
  stream *const s = &clock_of(r)->streams[generator];
  const ot_rl_actions *const act = ot_rl_local_actions(r);
  const int64_t value = word / OT_TAPE_EVENTS;
  if (word == LOSS) return lose_running(r, s);
  switch ((ot_tape_event)(word % OT_TAPE_EVENTS)) {
    case OT_TAPE_TAKE:
      s->version = value;
      return act->take(act->context, generator, value);
    case OT_TAPE_START:
      return start(r, s, generator, value);
    case OT_TAPE_STEPS:
      for (int64_t i = 0; i < value; i++) OT_TRY(step(r, s));
      return OT_OK;
    case OT_TAPE_CANCEL:
      return cancel(r, s, value);
    case OT_TAPE_EVENTS:
      break;
  }
  OT_UNREACHABLE();
}

// All that a generator did before it took weights that are newer than the trainer's.
static ot_status play_stream(ot_rl_state *r, int generator) {
  stream *const s = &clock_of(r)->streams[generator];
  for (; s->next < s->count; s->next++) {
    const int64_t word = s->events[s->next];
    const bool takes = word % OT_TAPE_EVENTS == OT_TAPE_TAKE;
    if (takes && word / OT_TAPE_EVENTS > r->version) return OT_OK;
    OT_TRY(play_event(r, generator, word));
  }
  return OT_OK;
}

// ---- updates ----

// Takes the response from those that have ended, whose order is kept.
static ot_status find_ended(ot_rl_state *r, int64_t id, ot_rl_sequence **out) {
  replay_clock *const c = clock_of(r);
  for (int64_t i = 0; i < c->num_ended; i++) {
    if (c->ended[i]->id != id) continue;
    *out = c->ended[i];
    c->num_ended--;
    for (; i < c->num_ended; i++) c->ended[i] = c->ended[i + 1];
    return OT_OK;
  }
  return refuse(r, "no end of response", id);
}

static ot_status advance(ot_rl_state *r) {
  replay_clock *const c = clock_of(r);
  const replayed_update *const update = &c->updates[r->version];
  for (int g = 0; g < c->generators; g++) OT_TRY(play_stream(r, g));
  for (int64_t i = 0; i < update->count; i++) {
    OT_TRY(find_ended(r, update->responses[i], &c->batch[i]));
  }
  OT_TRY(ot_rl_state_train(r, c->batch, (int)update->count, r->version));
  for (int64_t i = 0; i < update->count; i++) {
    ot_rl_record_add(&c->record, c->batch[i], r->version);
  }
  r->version++;
  c->record.updates++;
  c->record.time_s = r->time_s = update->figures.time_s;
  c->record.cancelled = update->figures.cancelled;
  c->record.dropped = update->figures.dropped;
  OT_CHECK(ot_tape_hash(r->batch, update->count, &r->update) == update->figures.hash, OT_FINDINGS,
           "update %lld has other bits than on the tape (%s)", (long long)r->version,
           r->request->replay);
  return OT_OK;
}

// ---- life ----

static ot_status create(ot_rl_state *r) {
  replay_clock *const c = ot_arena_take(r->arena, sizeof *c);
  ot_tape_reader *reader = NULL;
  r->clock_state = c;
  r->record = &c->record;
  ot_status status = ot_tape_reader_create(r->request->replay, &reader, &c->generators);
  if (status == OT_OK && c->generators != r->fleet.generators) {
    status = refuse(r, "its generators are", c->generators);
  }
  c->streams = ot_arena_array(r->arena, r->fleet.generators, sizeof *c->streams);
  for (int g = 0; g < r->fleet.generators; g++) {
    c->streams[g].slots = ot_arena_array(r->arena, r->fleet.slots, sizeof(ot_rl_sequence *));
  }
  c->batch = ot_arena_array(r->arena, r->fleet.batch, sizeof *c->batch);
  c->progress = ot_arena_array(r->arena, r->fleet.slots, sizeof *c->progress);
  c->in_step = ot_arena_array(r->arena, r->fleet.slots, sizeof *c->in_step);
  if (status == OT_OK) status = read_tape(r, reader);
  ot_tape_reader_destroy(&reader);
  OT_TRY(status);
  return ot_rl_local_create(r);
}

// The tape has all that follows, so there is no other way to go on.
static ot_status rest(ot_rl_state *r, ot_rl_point *point) {
  (void)r;
  *point = (ot_rl_point){0};
  return OT_OK;
}

const ot_rl_clock ot_rl_replay_clock = {create, advance, rest, NULL, NULL, ot_rl_local_destroy};
