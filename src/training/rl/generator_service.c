// SPDX-License-Identifier: Apache-2.0
#include "rl/generator_service.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "describe/run_keys.h"
#include "host/clock.h"
#include "host/heap.h"
#include "rl/generator.h"
#include "rl/rl_link.h"
#include "rl/tape.h"

static const ot_rl_part nothing;

typedef struct made_group made_group;

// A response that is made.
typedef struct member {
  ot_rl_answer answer;  // first
  int32_t *versions;    // [max_tokens]
  made_group *group;
  bool lost;
  double end_s;
} member;

struct made_group {
  int64_t id;
  int started, done;
  member *members;   // [group]
  made_group *next;  // unused ones
};

typedef struct service {
  const ot_rl_service_request *request;
  const ot_run *run;
  ot_heap heap;
  ot_arena arena;
  ot_tokenizer *tokenizer;
  ot_encoder *encoder;
  ot_rl_prompts prompts;
  ot_rl_generator *generator;
  ot_rl_link *link;
  bool stopped;
  int64_t version;  // of its weights, -1: none yet
  int64_t next_group, sent;
  ot_rl_limits limits;
  made_group *open, *spare;
  member **slots;  // [rl.slots] or null
  int running;
  ot_rl_decode_sums decode;
  int64_t *events;  // [capacity]
  int64_t num_events, capacity;
} service;

uint64_t ot_rl_service_hash(const ot_run *run) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_run same = *run;
  same.threads = 0;
  const uint64_t hash = ot_run_hash(&same, &arena);
  ot_heap_release(&heap);
  return hash;
}

// ---- events ----

static ot_status note(service *s, ot_tape_event event, int64_t value) {
  int64_t *const last = s->num_events > 0 ? &s->events[s->num_events - 1] : NULL;
  const bool step = event == OT_TAPE_STEPS;
  if (step && last && *last % OT_TAPE_EVENTS == OT_TAPE_STEPS) {
    *last += value * OT_TAPE_EVENTS;
    return OT_OK;
  }
  if (s->num_events == s->capacity) {
    const int64_t capacity = 2 * s->capacity + 64;
    int64_t *const grown = realloc(s->events, (size_t)capacity * sizeof *grown);
    OT_CHECK(grown, OT_ENVIRONMENT, "out of memory for events");
    s->events = grown;
    s->capacity = capacity;
  }
  s->events[s->num_events++] = ot_tape_word(event, value);
  return OT_OK;
}

// ---- groups ----

static made_group *create_group(service *s) {
  const int64_t most = s->run->rl.max_tokens;
  made_group *const group = ot_arena_take(&s->arena, sizeof *group);
  group->members = ot_arena_array(&s->arena, s->run->rl.group, sizeof *group->members);
  for (int i = 0; i < s->run->rl.group; i++) {
    member *const m = &group->members[i];
    *m = (member){.group = group, .versions = ot_arena_array(&s->arena, most, sizeof(int32_t))};
    m->answer.tokens = ot_arena_array(&s->arena, most, sizeof *m->answer.tokens);
    m->answer.behaviour = ot_arena_array(&s->arena, most, sizeof *m->answer.behaviour);
  }
  return group;
}

static int64_t next_group(const service *s) {
  return s->request->index + s->next_group * s->request->count;
}

// Synchronous: of the batch that its weights make.
static bool may_open(const service *s) {
  if (s->run->rl.updates == OT_RL_SYNCHRONOUS) {
    return next_group(s) * s->run->rl.group < s->run->rl.batch * (s->version + 1);
  }
  return s->sent - s->limits.consumed < s->limits.waiting;
}

static void open_group(service *s) {
  made_group *const group = s->spare ? s->spare : create_group(s);
  if (group == s->spare) s->spare = group->next;
  group->id = next_group(s);
  s->next_group++;
  group->started = group->done = 0;
  s->open = group;
}

static ot_status fill_slots(service *s) {
  for (int i = 0; i < s->run->rl.slots && (s->open || may_open(s)); i++) {
    if (s->slots[i]) continue;
    if (!s->open) open_group(s);
    member *const m = &s->open->members[s->open->started];
    m->answer.id = s->open->id * s->run->rl.group + s->open->started;
    m->answer.group = s->open->id;
    m->answer.prompt = ot_rl_prompt_of_group(&s->prompts, (uint64_t)s->run->seed, s->open->id);
    m->lost = false;
    if (++s->open->started == s->run->rl.group) s->open = NULL;
    s->slots[i] = m;
    s->running++;
    OT_TRY(note(s, OT_TAPE_START, m->answer.id));
    OT_TRY(ot_rl_generator_start(s->generator, &m->answer));
  }
  return OT_OK;
}

static int64_t padded(int64_t bytes) { return (bytes + 7) / 8 * 8; }

static char *put(char *at, const void *data, int64_t bytes) {
  memcpy(at, data, (size_t)bytes);
  return at + padded(bytes);
}

static char *put_member(char *at, const member *m, double now_s) {
  const ot_rl_finished_member head = {m->answer.id, m->answer.count, m->answer.ended,
                                      now_s - m->end_s};
  at = put(at, &head, sizeof head);
  at = put(at, m->answer.behaviour, head.count * 8);
  at = put(at, m->answer.tokens, head.count * 4);
  return put(at, m->versions, head.count * 4);
}

static ot_status send_group(service *s, made_group *group) {
  ot_rl_finished_group head = {
      .group = group->id, .num_events = s->num_events, .decode = s->decode};
  int64_t bytes = s->num_events * 8;
  for (int i = 0; i < s->run->rl.group; i++) {
    const member *const m = &group->members[i];
    if (m->lost) continue;
    head.members++;
    bytes += (int64_t)sizeof(ot_rl_finished_member) + m->answer.count * 8 +
             2 * padded(m->answer.count * 4);
  }
  char *const rest = calloc(1, (size_t)bytes + 8);
  OT_CHECK(rest, OT_ENVIRONMENT, "out of memory for a group");
  char *at = put(rest, s->events, s->num_events * 8);
  const double now_s = ot_clock_s();
  for (int i = 0; i < s->run->rl.group; i++) {
    if (!group->members[i].lost) at = put_member(at, &group->members[i], now_s);
  }
  const ot_status status = ot_rl_link_send(s->link, OT_RL_GROUP, (ot_rl_part){&head, sizeof head},
                                           (ot_rl_part){rest, bytes});
  free(rest);
  s->sent++;
  s->num_events = 0;
  group->next = s->spare;
  s->spare = group;
  return status;
}

// The response in slot `i` has ended, or is lost.
static ot_status leave_slot(service *s, int i, bool lost) {
  member *const m = s->slots[i];
  s->slots[i] = NULL;
  s->running--;
  m->lost = lost;
  m->end_s = ot_clock_s();
  return ++m->group->done == s->run->rl.group ? send_group(s, m->group) : OT_OK;
}

// ---- decode steps ----

static ot_status step(service *s) {
  for (int i = 0; i < s->run->rl.slots; i++) {
    if (s->slots[i]) s->slots[i]->answer.fresh = false;
  }
  const double start_s = ot_clock_s();
  int64_t rows = 0;
  OT_TRY(note(s, OT_TAPE_STEPS, 1));
  OT_TRY(ot_rl_generator_step(s->generator, &rows));
  const double seconds = ot_clock_s() - start_s, n = (double)rows;
  ot_rl_decode_sums *const d = &s->decode;
  *d = (ot_rl_decode_sums){d->steps + 1,
                           d->rows + n,
                           d->squares + n * n,
                           d->seconds + seconds,
                           d->products + n * seconds,
                           d->slots_s + seconds * s->running,
                           d->tokens};
  for (int i = 0; i < s->run->rl.slots; i++) {
    member *const m = s->slots[i];
    if (!m) continue;
    OT_CHECK(!m->answer.failed, OT_NUMERIC, "response %lld: the logits are NaN",
             (long long)m->answer.id);
    if (m->answer.fresh) m->versions[m->answer.count - 1] = (int32_t)s->version;
    d->tokens += m->answer.fresh;
    if (m->answer.done) OT_TRY(leave_slot(s, i, false));
  }
  return OT_OK;
}

// ---- messages ----

static ot_status cancel_old(service *s) {
  const int64_t bound = s->run->rl.max_lag;
  for (int i = 0; bound > 0 && i < s->run->rl.slots; i++) {
    member *const m = s->slots[i];
    if (!m || m->answer.count == 0 || m->versions[0] + bound >= s->version) continue;
    ot_rl_generator_cancel(s->generator, &m->answer);
    OT_TRY(note(s, OT_TAPE_CANCEL, m->answer.id));
    OT_TRY(leave_slot(s, i, true));
  }
  return OT_OK;
}

static ot_status receive_tensor(service *s, const ot_rl_message *message) {
  const ot_graph *const whole = ot_runtime_whole_graph(ot_rl_generator_runtime(s->generator));
  ot_rl_tensor t;
  OT_CHECK(message->bytes >= (int64_t)sizeof t, OT_RANKS, "weights are cut off");
  memcpy(&t, message->data, sizeof t);
  t.name[sizeof t.name - 1] = '\0';
  const ot_parameter *const p = ot_graph_parameter(whole, t.name);
  const int64_t count = t.rows * t.cols;
  const bool same = p && p->rows == t.rows && p->cols == t.cols && t.dtype >= 0 &&
                    t.dtype < OT_DTYPE_COUNT &&
                    message->bytes == (int64_t)sizeof t + count * ot_dtype_bytes((ot_dtype)t.dtype);
  OT_CHECK(same, OT_RANKS, "weights of another model: %s", t.name);
  ot_rl_generator_put(s->generator, p, (ot_dtype)t.dtype, message->data + sizeof t, t.last != 0);
  if (!t.last) return OT_OK;
  s->version = t.version;
  OT_TRY(note(s, OT_TAPE_TAKE, s->version));
  return cancel_old(s);
}

// Reads what has arrived; weights of which a part is there, to their end.
static ot_status receive_messages(service *s, double seconds) {
  bool partial = false;
  do {
    ot_rl_message m;
    OT_TRY(ot_rl_links_move(&s->link, 1, partial ? 1 : seconds));
    while (ot_rl_link_next(s->link, &m)) {
      if (m.kind == OT_RL_STOP) s->stopped = true;
      if (m.kind == OT_RL_LIMITS && m.bytes == sizeof s->limits) {
        memcpy(&s->limits, m.data, sizeof s->limits);
      }
      if (m.kind == OT_RL_START && m.bytes == sizeof(ot_rl_start)) {
        s->next_group = ((const ot_rl_start *)(const void *)m.data)->first_group;
      }
      if (m.kind != OT_RL_WEIGHTS) continue;
      const int64_t before = s->version;
      OT_TRY(receive_tensor(s, &m));
      partial = s->version == before;
    }
  } while (partial && !s->stopped && !ot_rl_link_is_lost(s->link));
  return OT_OK;
}

static ot_status work(service *s) {
  const ot_rl_hello hello = {.run = ot_rl_service_hash(s->run)};
  OT_TRY(ot_rl_link_send(s->link, OT_RL_HELLO, (ot_rl_part){&hello, sizeof hello}, nothing));
  while (!s->stopped && !ot_rl_link_is_lost(s->link)) {
    OT_TRY(receive_messages(s, s->running > 0 || (s->version >= 0 && may_open(s)) ? 0 : 1));
    if (s->version < 0) continue;
    OT_TRY(fill_slots(s));
    if (s->running > 0) OT_TRY(step(s));
  }
  return OT_OK;
}

// ---- life ----

static ot_status create(service *s) {
  const ot_run_rl *const rl = &s->run->rl;
  OT_TRY(ot_rl_link_create(s->request->in, s->request->out, &s->link));
  OT_TRY(ot_tokenizer_create(s->run->data.tokenizer, &s->tokenizer));
  OT_TRY(ot_encoder_create(s->tokenizer, &s->encoder));
  ot_encoder_limit(s->encoder, s->run->model.vocab_size);
  OT_TRY(ot_rl_prompts_read(rl->prompts, s->encoder, &s->arena, &s->prompts));
  const ot_rl_generator_request request = {
      .run = s->run,
      .slots = rl->slots,
      .prompt_tokens = s->prompts.longest,
      .max_tokens = rl->max_tokens,
      .recompute = rl->recompute != 0,
      .special = ot_special_tokens_of(s->tokenizer, &s->run->model),
      .seed = (uint64_t)s->run->seed};
  OT_TRY(ot_rl_generator_create(&request, &s->generator));
  s->slots = ot_arena_array(&s->arena, rl->slots, sizeof(member *));
  return OT_OK;
}

ot_status ot_rl_service_run(const ot_rl_service_request *request) {
  service s = {.request = request, .run = request->run, .version = -1};
  s.arena = ot_heap_arena_create(&s.heap);
  ot_status status = create(&s);
  if (status == OT_OK) status = work(&s);
  ot_rl_generator_destroy(&s.generator);
  ot_encoder_destroy(&s.encoder);
  ot_tokenizer_destroy(&s.tokenizer);
  ot_rl_link_destroy(&s.link);
  free(s.events);
  ot_heap_release(&s.heap);
  return status;
}
