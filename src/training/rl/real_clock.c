// SPDX-License-Identifier: Apache-2.0
// The real clock: generators are processes that run on while the trainer trains. The leading
// trainer alone has the queue and the versions. After each update it sends the weights to all
// generators, bucket by bucket, and waits until they are on their way: generators take them in
// place between two decode steps. A generator that is gone costs its sequences; it is started again
// a few times. With synchronous updates a generator makes its groups of a batch and waits for
// weights; the batch has its groups in their order, so its bits do not depend on the clock.
#include <stdlib.h>
#include <string.h>

#include "base/extremes.h"
#include "base/text.h"
#include "host/clock.h"
#include "rl/generator_service.h"
#include "rl/rl_link.h"
#include "rl/rl_state.h"
#include "rl/tape.h"
#include "runtime/stop_signal.h"

static const double look_s = 0.2;
enum { SETTLING = 2 };  // updates of a process whose times are not those of later ones
static const ot_rl_part nothing;

typedef enum remote_state {
  STARTING,
  GREETED,  // it is the program that it should be
  WORKING,  // has been told where to begin, and gets all weights
  LOST,     // for good
} remote_state;

typedef struct remote {
  ot_rl_link *link;
  remote_state state;
  double started_s;
  int restarts;
  int64_t received;                   // groups, of this process
  int64_t next_group;                 // after the newest that was received, of its own
  ot_rl_decode_sums decode, earlier;  // of this process, and of those before it
  ot_rl_limits told;                  // the last ones
} remote;

typedef struct real_clock {
  int count, alive;
  remote *remotes;     // [count]
  ot_rl_link **links;  // [count]
  ot_rl_queue queue;
  ot_rl_sequence **batch;  // [fleet.batch]
  ot_tape *tape;
  bool continued;                     // from a checkpoint
  ot_rl_record before;                // what it had then
  ot_rl_record settled;               // after the first updates of this process
  ot_rl_decode_sums settled_decodes;  // the same
  double start_s, left_s, paused_s;   // paused: between updates, for validations and files
} real_clock;

static real_clock *clock_of(const ot_rl_state *r) { return r->clock_state; }

static void drop(void *context, ot_rl_sequence *sequence) {
  ot_rl_answer_leave(context, sequence->data);
}

static double now_s(const real_clock *c) { return ot_clock_s() - c->start_s - c->paused_s; }

// ---- lost generators ----

static ot_status send_limits(ot_rl_state *r) {
  real_clock *const c = clock_of(r);
  for (int i = 0; i < c->count; i++) {
    const ot_rl_limits limits = {
        .consumed = c->remotes[i].received - ot_rl_queue_waiting(&c->queue, i),
        .waiting = ot_rl_fleet_share(&r->fleet, c->alive)};
    if (c->remotes[i].state != WORKING || memcmp(&limits, &c->remotes[i].told, sizeof limits) == 0)
      continue;
    c->remotes[i].told = limits;
    OT_TRY(ot_rl_link_send(c->remotes[i].link, OT_RL_LIMITS, (ot_rl_part){&limits, sizeof limits},
                           nothing));
  }
  return OT_OK;
}

static ot_status start(ot_rl_state *r, int index) {
  real_clock *const c = clock_of(r);
  remote *const m = &c->remotes[index];
  int in = -1, out = -1;
  ot_rl_link_destroy(&m->link);
  OT_TRY(r->request->connect(r->request->connect_context, index, c->count, &in, &out));
  OT_TRY(ot_rl_link_create(in, out, &m->link));
  c->links[index] = m->link;
  m->state = STARTING;
  m->started_s = ot_clock_s();
  return OT_OK;
}

static void add_sums(ot_rl_decode_sums *to, const ot_rl_decode_sums *more) {
  to->steps += more->steps;
  to->rows += more->rows;
  to->squares += more->squares;
  to->seconds += more->seconds;
  to->products += more->products;
  to->slots_s += more->slots_s;
  to->tokens += more->tokens;
}

// No response of the next process has the number of one that the last may have begun: it had a slot
// for each of its groups but the last one.
static ot_status restart(ot_rl_state *r, int index) {
  remote *const m = &clock_of(r)->remotes[index];
  m->restarts++;
  m->received = 0;
  m->next_group += r->fleet.slots + 1;
  add_sums(&m->earlier, &m->decode);
  m->decode = (ot_rl_decode_sums){0};
  m->told = (ot_rl_limits){0};
  return start(r, index);
}

static ot_status lose(ot_rl_state *r, int index, const char *why) {
  real_clock *const c = clock_of(r);
  remote *const m = &c->remotes[index];
  const int most = r->run->rl.restarts;
  const bool again = m->restarts < most && c->start_s != 0;
  m->state = LOST;
  if (!again) c->alive--;
  if (c->tape) ot_tape_write_loss(c->tape, index);
  ot_rl_link_lose(m->link);
  const char *const then =
      again
          ? ot_arena_format(r->arena, "it is started again (%d of %d times)", m->restarts + 1, most)
          : ot_arena_format(r->arena, "%d of %d generators go on", c->alive, c->count);
  ot_rl_tell(r, (ot_rl_event){
                    .kind = OT_RL_EVENT_NOTE,
                    .text = ot_arena_format(
                        r->arena, "generator %d %s after %lld updates: its responses are lost, %s",
                        index, why, (long long)r->version, then)});
  if (again) return restart(r, index);
  OT_CHECK(c->alive > 0, OT_ENVIRONMENT, "all generators have ended after %lld updates",
           (long long)r->version);
  return send_limits(r);
}

static const char *describe_end(const ot_rl_state *r, const remote *m) {
  const char *const nonsense = ot_rl_link_nonsense(m->link);
  if (nonsense[0] == '\0') return "has ended";
  return ot_arena_format(
      r->arena,
      "wrote \"%s\" to its standard output, which is for messages to the trainer "
      "(rl.launch: send other output to stderr)",
      nonsense);
}

static ot_status find_lost(ot_rl_state *r) {
  real_clock *const c = clock_of(r);
  const double patience_s = r->run->parallel.watchdog_seconds;
  for (int i = 0; i < c->count; i++) {
    const remote *const m = &c->remotes[i];
    if (m->state == LOST) continue;
    if (ot_rl_link_is_lost(m->link)) {
      OT_TRY(lose(r, i, describe_end(r, m)));
    } else if (m->state == STARTING && patience_s > 0 && ot_clock_s() > m->started_s + patience_s) {
      OT_TRY(lose(r, i, "has not begun (parallel.watchdog_seconds)"));
    }
  }
  return OT_OK;
}

// ---- synchronous batches ----

static bool waits(const ot_rl_queue *queue, int64_t id) {
  for (const ot_rl_group *g = queue->first; g; g = g->next) {
    if (g->id == id) return true;
  }
  return false;
}

// The number of the first group of the batch that the trainer's weights generate.
static int64_t first_of_batch(const ot_rl_state *r) {
  return r->version * (r->fleet.batch / r->fleet.group);
}

// The first group of its own that a generator has to make.
static int64_t first_group(const ot_rl_state *r, int index) {
  const real_clock *const c = clock_of(r);
  const int64_t first = first_of_batch(r);
  if (r->fleet.updates != OT_RL_SYNCHRONOUS) return c->remotes[index].next_group;
  int64_t own = (first - index + c->count - 1) / c->count;
  while (waits(&c->queue, index + own * c->count)) own++;
  return own;
}

// Groups of the batch that no generator will make.
static int64_t count_missing(const ot_rl_state *r) {
  const real_clock *const c = clock_of(r);
  const int64_t first = first_of_batch(r), groups = r->fleet.batch / r->fleet.group;
  int64_t missing = 0;
  if (r->fleet.updates != OT_RL_SYNCHRONOUS) return 0;
  for (int64_t id = first; id < first + groups; id++) {
    missing += c->remotes[id % c->count].state == LOST && !waits(&c->queue, id);
  }
  return missing;
}

// ---- groups ----

// Reads a message front to back; false: it is too short.
typedef struct reader {
  const char *at;
  int64_t left;
} reader;

static const void *read_bytes(reader *in, int64_t bytes) {
  const char *const at = in->at;
  const int64_t padded = (bytes + 7) / 8 * 8;
  if (bytes < 0 || padded > in->left) return NULL;
  in->at += padded;
  in->left -= padded;
  return at;
}

static bool read_member(ot_rl_state *r, reader *in, ot_rl_group *group, double at_s) {
  real_clock *const c = clock_of(r);
  const ot_rl_finished_member *const head = read_bytes(in, sizeof *head);
  if (!head || head->count < 1 || head->count > r->run->rl.max_tokens) return false;
  const double *const behaviour = read_bytes(in, head->count * 8);
  const int32_t *const tokens = read_bytes(in, head->count * 4);
  const int32_t *const versions = read_bytes(in, head->count * 4);
  if (!behaviour || !tokens || !versions) return false;
  for (int64_t t = 0; t < head->count; t++) {
    if (tokens[t] < 0 || tokens[t] >= r->run->model.vocab_size) return false;
    if (versions[t] < 0 || versions[t] > r->version) return false;
  }
  // Members that were lost come before, by their numbers.
  while (group->started < r->fleet.group &&
         group->id * r->fleet.group + group->started < head->id) {
    ot_rl_queue_lose(&c->queue, ot_rl_queue_begin(&c->queue, group), at_s);
  }
  if (group->started >= r->fleet.group || group->id * r->fleet.group + group->started != head->id) {
    return false;
  }
  ot_rl_sequence *const sequence = ot_rl_queue_begin(&c->queue, group);
  ot_rl_answer *const a = ot_rl_answer_take(r);
  a->id = sequence->id;
  a->group = sequence->group;
  a->prompt = ot_rl_prompt_of_group(&r->prompts, (uint64_t)r->run->seed, group->id);
  a->count = sequence->tokens = head->count;
  a->ended = head->ended != 0;
  memcpy(a->behaviour, behaviour, (size_t)head->count * sizeof *behaviour);
  memcpy(a->tokens, tokens, (size_t)head->count * sizeof *tokens);
  memcpy(sequence->versions, versions, (size_t)head->count * sizeof *versions);
  a->versions = sequence->versions;
  sequence->data = a;
  sequence->prompt_tokens = a->prompt->num_tokens;
  sequence->end_s = at_s - head->waited_s;
  ot_rl_queue_end(&c->queue, sequence, at_s);
  return true;
}

// False: the message is not what a generator of this run sends.
static bool receive_group(ot_rl_state *r, int index, const ot_rl_message *message) {
  real_clock *const c = clock_of(r);
  remote *const from = &c->remotes[index];
  reader in = {message->data, message->bytes};
  const ot_rl_finished_group *const head = read_bytes(&in, sizeof *head);
  if (!head || head->members < 0 || head->members > r->fleet.group || head->num_events < 0 ||
      head->num_events > message->bytes / 8 || head->group % c->count != index ||
      head->group / c->count < 0) {
    return false;
  }
  const int64_t *const events = read_bytes(&in, head->num_events * 8);
  if (!events) return false;
  if (c->tape) ot_tape_write_events(c->tape, index, events, head->num_events);
  from->decode = head->decode;
  from->received++;
  from->next_group = ot_larger_whole(from->next_group, head->group / c->count + 1);
  const double at_s = now_s(c);
  if (r->fleet.updates == OT_RL_SYNCHRONOUS && waits(&c->queue, head->group)) return true;
  ot_rl_group *const group = ot_rl_queue_open(&c->queue, head->group);
  for (int64_t i = 0; i < head->members; i++) {
    if (!read_member(r, &in, group, at_s)) return false;
  }
  while (group->started < r->fleet.group) {
    ot_rl_queue_lose(&c->queue, ot_rl_queue_begin(&c->queue, group), at_s);
  }
  return true;
}

static ot_status receive_hello(ot_rl_state *r, int index, const ot_rl_message *message) {
  ot_rl_hello hello = {0};
  if (message->bytes == sizeof hello) memcpy(&hello, message->data, sizeof hello);
  OT_CHECK(hello.run == ot_rl_service_hash(r->run), OT_RANKS,
           "generator %d has other settings than the trainer", index);
  clock_of(r)->remotes[index].state = GREETED;
  return OT_OK;
}

static ot_status receive_messages(ot_rl_state *r, double seconds) {
  real_clock *const c = clock_of(r);
  OT_TRY(ot_rl_links_move(c->links, c->count, seconds));
  for (int i = 0; i < c->count; i++) {
    ot_rl_message m;
    while (c->remotes[i].state != LOST && ot_rl_link_next(c->remotes[i].link, &m)) {
      if (m.kind == OT_RL_HELLO) OT_TRY(receive_hello(r, i, &m));
      if (m.kind != OT_RL_GROUP || receive_group(r, i, &m)) continue;
      OT_TRY(lose(r, i, "sent nonsense"));
    }
  }
  return find_lost(r);
}

// ---- weights ----

// Until all that is to be sent is on its way.
static ot_status flush(ot_rl_state *r) {
  real_clock *const c = clock_of(r);
  const double patience_s = r->run->parallel.watchdog_seconds;
  const double until_s = ot_clock_s() + patience_s;
  for (int i = 0; i < c->count; i++) {
    while (c->remotes[i].state == WORKING && !ot_rl_link_is_flushed(c->remotes[i].link)) {
      OT_TRY(ot_rl_links_move(c->links, c->count, look_s));
      if (ot_rl_link_is_lost(c->remotes[i].link)) break;
      if (patience_s <= 0 || ot_clock_s() < until_s) continue;
      OT_TRY(lose(r, i, "takes no weights (parallel.watchdog_seconds)"));
    }
  }
  return find_lost(r);
}

typedef struct sending {
  ot_rl_state *state;
  int only;  // generator, or -1: all
  ot_dtype dtype;
} sending;

static ot_status send_parameter(void *context, const ot_parameter *p, const void *data, bool last) {
  const sending *const s = context;
  const real_clock *const c = clock_of(s->state);
  ot_rl_tensor head = {.version = s->state->version,
                       .rows = p->rows,
                       .cols = p->cols,
                       .dtype = (int64_t)s->dtype,
                       .last = last};
  ot_text_format(head.name, sizeof head.name, "%s", p->name);
  const ot_rl_part values = {data, ot_parameter_elements(p) * ot_dtype_bytes(s->dtype)};
  for (int i = 0; i < c->count; i++) {
    if (c->remotes[i].state != WORKING || (s->only >= 0 && i != s->only)) continue;
    OT_TRY(ot_rl_link_send(c->remotes[i].link, OT_RL_WEIGHTS, (ot_rl_part){&head, sizeof head},
                           values));
  }
  return OT_OK;
}

// A bucket is on its way before the next is read.
static ot_status end_bucket(void *context) { return flush(((sending *)context)->state); }

static ot_status publish(ot_rl_state *r, int only) {
  ot_rl_learner *const learner = ot_rl_updater_learner(r->updater);
  sending s = {r, only, ot_runtime_copy_dtype(ot_rl_learner_runtime(learner), OT_COPY_WEIGHT)};
  return ot_rl_learner_publish(learner, &(ot_weight_taker){send_parameter, end_bucket, &s});
}

// ---- figures ----

static ot_rl_decode_sums sum_decodes(const real_clock *c) {
  ot_rl_decode_sums d = {0};
  for (int i = 0; i < c->count; i++) {
    add_sums(&d, &c->remotes[i].earlier);
    add_sums(&d, &c->remotes[i].decode);
  }
  return d;
}

// The costs of the simulated clock that this one has shown since it settled: a line through the
// decode steps. An update takes as long whatever its tokens, as far as they fill as many rows of
// micro-batches.
static void measure_costs(ot_rl_state *r) {
  real_clock *const c = clock_of(r);
  const ot_rl_record *const record = &c->queue.record, *const before = &c->settled;
  ot_rl_decode_sums d = sum_decodes(c);
  if (record->updates - c->before.updates <= SETTLING) {
    c->settled = *record;
    c->settled_decodes = d;
    return;
  }
  const ot_rl_decode_sums *const early = &c->settled_decodes;
  d.steps -= early->steps;
  d.rows -= early->rows;
  d.squares -= early->squares;
  d.seconds -= early->seconds;
  d.products -= early->products;
  if (d.steps < 1 || d.rows < 1) return;
  const double spread = d.steps * d.squares - d.rows * d.rows;
  const double slope = spread > 0 ? (d.steps * d.products - d.rows * d.seconds) / spread : 0;
  const double least = 0.01 * d.seconds / d.steps;
  ot_rl_costs *const cost = &r->fleet.cost;
  cost->row_s = ot_larger(0, ot_smaller(slope, (d.seconds - least * d.steps) / d.rows));
  cost->decode_s = (d.seconds - cost->row_s * d.rows) / d.steps;
  const double updates = (double)(record->updates - before->updates);
  cost->train_token_s = 0;
  cost->train_batch_s = (record->trainer_s - before->trainer_s) / updates;
  cost->publish_s = (record->publish_s - before->publish_s) / updates;
}

static void measure(ot_rl_state *r) {
  real_clock *const c = clock_of(r);
  ot_rl_record *const record = &c->queue.record;
  const ot_rl_decode_sums d = sum_decodes(c);
  record->generators_s = c->before.generators_s + d.seconds;
  record->slots_s = c->before.slots_s + d.slots_s;
  record->made_tokens = c->before.made_tokens + (int64_t)d.tokens;
  record->time_s = r->time_s;
  measure_costs(r);
}

// ---- the clock ----

static ot_status set_to_work(ot_rl_state *r, int index) {
  remote *const m = &clock_of(r)->remotes[index];
  const ot_rl_start where = {first_group(r, index)};
  m->state = WORKING;
  return ot_rl_link_send(m->link, OT_RL_START, (ot_rl_part){&where, sizeof where}, nothing);
}

static ot_status greet(ot_rl_state *r) {
  real_clock *const c = clock_of(r);
  for (int i = 0; i < c->count; i++) {
    while (c->remotes[i].state == STARTING) OT_TRY(receive_messages(r, look_s));
    if (c->remotes[i].state == GREETED) OT_TRY(set_to_work(r, i));
  }
  OT_TRY(send_limits(r));
  return publish(r, -1);
}

// Generators that were started again.
static ot_status greet_again(ot_rl_state *r) {
  real_clock *const c = clock_of(r);
  for (int i = 0; i < c->count; i++) {
    if (c->remotes[i].state != GREETED) continue;
    OT_TRY(set_to_work(r, i));
    OT_TRY(send_limits(r));
    OT_TRY(publish(r, i));
  }
  return OT_OK;
}

static ot_status create(ot_rl_state *r) {
  real_clock *const c = ot_arena_take(r->arena, sizeof *c);
  *c = (real_clock){.count = r->fleet.generators,
                    .alive = r->fleet.generators,
                    .queue = {.fleet = &r->fleet,
                              .max_tokens = r->run->rl.max_tokens,
                              .arena = r->arena,
                              .drop = drop,
                              .context = r}};
  c->remotes = ot_arena_array(r->arena, c->count, sizeof *c->remotes);
  c->links = ot_arena_array(r->arena, c->count, sizeof *c->links);
  c->batch = ot_arena_array(r->arena, r->fleet.batch, sizeof *c->batch);
  r->clock_state = c;
  r->record = &c->queue.record;
  for (int i = 0; i < c->count; i++) OT_TRY(start(r, i));
  return OT_OK;
}

static ot_status begin(ot_rl_state *r) {
  real_clock *const c = clock_of(r);
  if (r->directory && !c->continued) {
    OT_TRY(ot_tape_create(ot_arena_format(r->arena, "%s/tape.txt", r->run->output), c->count,
                          r->version > 0, &c->tape));
  }
  OT_TRY(greet(r));
  c->left_s = ot_clock_s();
  c->start_s = c->left_s - r->time_s;
  return OT_OK;
}

// None if it was asked to stop.
static ot_status start_batch(ot_rl_state *r, int *count) {
  real_clock *const c = clock_of(r);
  for (*count = 0; !ot_stop_signal_seen();) {
    OT_TRY(greet_again(r));
    c->queue.missing = count_missing(r);
    *count = ot_rl_queue_take(&c->queue, r->version, c->batch);
    if (*count > 0) return OT_OK;
    OT_TRY(send_limits(r));  // what was too old waits no more
    OT_TRY(receive_messages(r, look_s));
  }
  return OT_OK;
}

// Before generators can have the new weights, so that no line of theirs comes first. The run needs
// no tape: neither one that was stopped and goes on nor its checkpoints have one.
static void write_tape(ot_rl_state *r, int count) {
  real_clock *const c = clock_of(r);
  if (!c->tape) return;
  const ot_tape_figures figures = {.time_s = r->time_s,
                                   .cancelled = c->queue.record.cancelled,
                                   .dropped = c->queue.record.dropped,
                                   .hash = ot_tape_hash(r->batch, count, &r->update)};
  ot_tape_write_update(c->tape, r->version, r->batch, count, &figures);
  if (ot_tape_flush(c->tape) == OT_OK) return;
  const char *const text =
      ot_arena_format(r->arena, "warning: the tape ends after update %lld: %s; the run goes on",
                      (long long)r->version - 1, ot_fail_message());
  ot_rl_tell(r, (ot_rl_event){.kind = OT_RL_EVENT_NOTE, .text = text});
  ot_tape_destroy(&c->tape);
}

static ot_status advance(ot_rl_state *r) {
  real_clock *const c = clock_of(r);
  ot_rl_record *const record = &c->queue.record;
  int count = 0;
  if (c->start_s == 0) OT_TRY(begin(r));
  c->paused_s += ot_clock_s() - c->left_s;
  OT_TRY(receive_messages(r, 0));
  OT_TRY(start_batch(r, &count));
  if (count == 0) return OT_OK;
  OT_TRY(send_limits(r));
  OT_TRY(ot_rl_links_move(c->links, c->count, 0));
  const double start_s = ot_clock_s();
  OT_TRY(ot_rl_state_train(r, c->batch, count, r->version));
  ot_rl_queue_trained(&c->queue, c->batch, count, r->version++);
  const double trained_s = ot_clock_s();
  record->trainer_s += trained_s - start_s;
  r->time_s = now_s(c);
  write_tape(r, count);
  OT_TRY(publish(r, -1));
  record->publish_s += ot_clock_s() - trained_s;
  measure(r);
  c->left_s = ot_clock_s();
  return OT_OK;
}

static void destroy(ot_rl_state *r) {
  real_clock *const c = clock_of(r);
  if (!c) return;
  for (int i = 0; i < c->count; i++) {
    if (!c->remotes[i].link) continue;
    (void)ot_rl_link_send(c->remotes[i].link, OT_RL_STOP, nothing, nothing);
    (void)ot_rl_links_move(&c->links[i], 1, 0);
    ot_rl_link_destroy(&c->remotes[i].link);
  }
  ot_tape_destroy(&c->tape);
}

// Unfinished sequences are not saved: they belong to their generators.
static ot_status rest(ot_rl_state *r, ot_rl_point *point) {
  real_clock *const c = clock_of(r);
  *point = (ot_rl_point){.queue = &c->queue,
                         .num_next = c->count,
                         .flow = {.time_s = r->time_s, .version = r->version}};
  point->next = ot_arena_array(r->arena, c->count, sizeof *point->next);
  for (int i = 0; i < c->count; i++) point->next[i] = c->remotes[i].next_group;
  return OT_OK;
}

static ot_rl_queue *queue(ot_rl_state *r) { return &clock_of(r)->queue; }

static void set(ot_rl_state *r, const ot_rl_point *point) {
  real_clock *const c = clock_of(r);
  c->continued = true;
  c->before = c->queue.record;
  for (int i = 0; i < c->count && i < point->num_next; i++) {
    c->remotes[i].next_group = point->next[i];
  }
}

const ot_rl_clock ot_rl_real_clock = {create, advance, rest, queue, set, destroy};
