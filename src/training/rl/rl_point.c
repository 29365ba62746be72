// SPDX-License-Identifier: Apache-2.0
// Numbers are printed so that they are read back bit by bit.
#include <math.h>
#include <string.h>

#include "base/json_writer.h"
#include "base/text.h"
#include "files/json_file.h"
#include "rl/rl_state.h"

// ---- the record ----

// Its numbers by name, so that a newer program can have more.
typedef struct field {
  const char *name;
  double *real;  // one of the two
  int64_t *whole;
} field;

enum { FIELDS = 16 };

static int list_fields(ot_rl_record *r, field fields[FIELDS]) {
  const field all[] = {
      {"updates", NULL, &r->updates},        {"sequences", NULL, &r->sequences},
      {"tokens", NULL, &r->tokens},          {"made_tokens", NULL, &r->made_tokens},
      {"cancelled", NULL, &r->cancelled},    {"dropped", NULL, &r->dropped},
      {"lag_max", NULL, &r->lag_max},        {"time", &r->time_s, NULL},
      {"lag_sum", &r->lag_sum, NULL},        {"first_lag_sum", &r->first_lag_sum, NULL},
      {"slots_time", &r->slots_s, NULL},     {"generators_time", &r->generators_s, NULL},
      {"trainer_time", &r->trainer_s, NULL}, {"publish_time", &r->publish_s, NULL},
      {"left_sum", &r->left_sum, NULL},      {"wait_time", &r->wait_s, NULL}};
  memcpy(fields, all, sizeof all);
  return OT_COUNT(all);
}

static void print_record(ot_json_writer *w, const ot_rl_record *record) {
  ot_rl_record copy = *record;
  field fields[FIELDS];
  const int count = list_fields(&copy, fields);
  ot_json_object(w, "record");
  for (int i = 0; i < count; i++) {
    if (fields[i].real) {
      ot_json_real(w, fields[i].name, *fields[i].real);
    } else {
      ot_json_integer(w, fields[i].name, *fields[i].whole);
    }
  }
  ot_json_real(w, "first_wait_time", record->first_wait_s);
  ot_json_array(w, "lags");
  for (int64_t i = 0; i <= record->lag_max && i < OT_RL_LAGS; i++) {
    ot_json_real(w, NULL, record->lags[i]);
  }
  ot_json_end(w);
  ot_json_end(w);
}

static double real_of(const json_t *object, const char *key) {
  const json_t *const value = json_object_get(object, key);
  return json_is_number(value) ? json_number_value(value) : NAN;
}

static void read_record(const json_t *from, ot_rl_record *record) {
  field fields[FIELDS];
  const int count = list_fields(record, fields);
  *record = (ot_rl_record){.first_wait_s = real_of(from, "first_wait_time")};
  for (int i = 0; i < count; i++) {
    if (fields[i].real) *fields[i].real = real_of(from, fields[i].name);
    if (fields[i].whole) {
      *fields[i].whole = json_integer_value(json_object_get(from, fields[i].name));
    }
  }
  const json_t *const lags = json_object_get(from, "lags");
  for (size_t i = 0; i < json_array_size(lags) && i < OT_RL_LAGS; i++) {
    record->lags[i] = json_number_value(json_array_get(lags, i));
  }
}

// ---- printing ----

static void print_member(ot_json_writer *w, const ot_rl_sequence *sequence) {
  const ot_rl_answer *const a = sequence->data;
  ot_json_object(w, NULL);
  ot_json_integer(w, "id", sequence->id);
  ot_json_real(w, "end", sequence->end_s);
  ot_json_boolean(w, "ended", a->ended);
  ot_json_array(w, "tokens");
  for (int64_t t = 0; t < a->count; t++) ot_json_integer(w, NULL, a->tokens[t]);
  ot_json_end(w);
  ot_json_array(w, "behaviour");
  for (int64_t t = 0; t < a->count; t++) ot_json_real(w, NULL, a->behaviour[t]);
  ot_json_end(w);
  ot_json_array(w, "versions");
  for (int64_t t = 0; t < a->count; t++) ot_json_integer(w, NULL, sequence->versions[t]);
  ot_json_end(w);
  ot_json_end(w);
}

static void print_group(ot_json_writer *w, const ot_rl_group *group) {
  ot_json_object(w, NULL);
  ot_json_integer(w, "id", group->id);
  ot_json_integer(w, "started", group->started);
  ot_json_array(w, "members");
  for (int i = 0; i < group->kept; i++) print_member(w, group->members[i]);
  ot_json_end(w);
  ot_json_end(w);
}

const char *ot_rl_point_print(const ot_rl_state *r, const ot_rl_point *point) {
  ot_json_writer w = ot_json_begin(r->arena, 0);
  ot_json_object(&w, NULL);
  ot_json_real(&w, "time", point->flow.time_s);
  ot_json_real(&w, "record_from", point->flow.record_from_s);
  ot_json_integer(&w, "started", point->flow.started);
  ot_json_real(&w, "first_reward", r->summary->first_reward);
  ot_json_array(&w, "next");
  for (int i = 0; i < point->num_next; i++) ot_json_integer(&w, NULL, point->next[i]);
  ot_json_end(&w);
  ot_json_array(&w, "lengths");
  for (int i = 0; i < OT_RL_FORECAST_FROM; i++) ot_json_integer(&w, NULL, r->lengths[i]);
  ot_json_end(&w);
  print_record(&w, &point->queue->record);
  ot_json_array(&w, "groups");  // in the order in which they wait, the one that is open last
  for (const ot_rl_group *g = point->queue->first; g; g = g->next) print_group(&w, g);
  if (point->flow.open) print_group(&w, point->flow.open);
  ot_json_end(&w);
  ot_json_end(&w);
  return w.text;
}

// ---- reading ----

typedef struct reading {
  ot_rl_state *state;
  ot_rl_queue *queue;
  const char *path;
} reading;

static ot_status refuse(const reading *in, const char *what) {
  return ot_fail(OT_ENVIRONMENT, "the state of responses is not readable: %s (%s)", what, in->path);
}

static ot_status fill_answer(const reading *in, const json_t *member, ot_rl_sequence *sequence) {
  ot_rl_state *const r = in->state;
  ot_rl_answer *const a = ot_rl_answer_take(r);
  const json_t *const tokens = json_object_get(member, "tokens");
  const json_t *const behaviour = json_object_get(member, "behaviour");
  const json_t *const versions = json_object_get(member, "versions");
  const size_t count = json_array_size(tokens);
  if (count < 1 || (int64_t)count > r->run->rl.max_tokens || json_array_size(behaviour) != count ||
      json_array_size(versions) != count) {
    return refuse(in, "tokens of a response");
  }
  for (size_t t = 0; t < count; t++) {
    const json_int_t token = json_integer_value(json_array_get(tokens, t));
    if (token < 0 || token >= r->run->model.vocab_size) return refuse(in, "a token");
    a->tokens[t] = (int32_t)token;
    a->behaviour[t] = json_number_value(json_array_get(behaviour, t));
    sequence->versions[t] = (int32_t)json_integer_value(json_array_get(versions, t));
  }
  a->id = sequence->id;
  a->group = sequence->group;
  a->prompt = ot_rl_prompt_of_group(&r->prompts, (uint64_t)r->run->seed, sequence->group);
  a->count = sequence->tokens = (int64_t)count;
  a->ended = json_is_true(json_object_get(member, "ended"));
  a->versions = sequence->versions;
  sequence->data = a;
  sequence->prompt_tokens = a->prompt->num_tokens;
  return OT_OK;
}

// Members that are not there were lost. Leaves *open null if all have begun.
static ot_status fill_group(const reading *in, const json_t *from, ot_rl_group **open) {
  const int64_t size = in->queue->fleet->group;
  const json_int_t id = json_integer_value(json_object_get(from, "id"));
  const json_int_t started = json_integer_value(json_object_get(from, "started"));
  const json_t *const members = json_object_get(from, "members");
  if (id < 0 || started < 1 || started > size) return refuse(in, "a group");
  ot_rl_group *const group = ot_rl_queue_open(in->queue, id);
  size_t next = 0;
  *open = started < size ? group : NULL;
  for (json_int_t i = 0; i < started; i++) {
    ot_rl_sequence *const sequence = ot_rl_queue_begin(in->queue, group);
    const json_t *const member = json_array_get(members, next);
    if (!member || json_integer_value(json_object_get(member, "id")) != sequence->id) {
      ot_rl_queue_lose(in->queue, sequence, 0);
      continue;
    }
    next++;
    OT_TRY(fill_answer(in, member, sequence));
    sequence->end_s = real_of(member, "end");
    ot_rl_queue_end(in->queue, sequence, sequence->end_s);
  }
  return next == json_array_size(members) ? OT_OK : refuse(in, "members of a group");
}

static ot_status fill(const reading *in, const json_t *from) {
  ot_rl_state *const r = in->state;
  ot_rl_point point = {.queue = in->queue,
                       .flow = {.time_s = real_of(from, "time"),
                                .record_from_s = real_of(from, "record_from"),
                                .version = r->version,
                                .started = json_integer_value(json_object_get(from, "started"))}};
  if (!isfinite(point.flow.time_s) || !isfinite(point.flow.record_from_s)) {
    return refuse(in, "its time");
  }
  const json_t *const groups = json_object_get(from, "groups");
  const json_t *const lengths = json_object_get(from, "lengths");
  const json_t *const next = json_object_get(from, "next");
  for (size_t i = 0; i < json_array_size(groups); i++) {
    if (point.flow.open) return refuse(in, "two open groups");
    OT_TRY(fill_group(in, json_array_get(groups, i), &point.flow.open));
  }
  for (size_t i = 0; i < OT_RL_FORECAST_FROM && i < json_array_size(lengths); i++) {
    r->lengths[i] = (int32_t)json_integer_value(json_array_get(lengths, i));
  }
  point.num_next = (int)json_array_size(next);
  point.next = ot_arena_array(r->arena, point.num_next, sizeof *point.next);
  for (int i = 0; i < point.num_next; i++) {
    point.next[i] = json_integer_value(json_array_get(next, (size_t)i));
  }
  read_record(json_object_get(from, "record"), &in->queue->record);
  r->summary->first_reward = real_of(from, "first_reward");
  r->time_s = point.flow.time_s;
  r->clock->set(r, &point);
  return OT_OK;
}

ot_status ot_rl_point_read(ot_rl_state *r, const char *path, const char *text) {
  json_t *from = NULL;
  const reading in = {r, r->clock->queue(r), path};
  OT_TRY(ot_json_parse(path, text, ot_text_length(text), &from));
  const ot_status status = fill(&in, from);
  json_decref(from);
  return status;
}
