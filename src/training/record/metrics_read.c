// SPDX-License-Identifier: Apache-2.0
// A streaming parser and a table of keys: a long run has a million lines of dozens of keys.
#include "record/metrics_read.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "files/disk.h"
#include "files/json_reader.h"
#include "host/heap.h"

// ---- keys ----

typedef struct metrics_key {
  const char *key;
  bool count;     // int64_t, else double
  size_t offset;  // in ot_metrics_step
} metrics_key;

#define PLACE(member) offsetof(ot_metrics_step, member)

static const metrics_key keys[] = {
    {"loss", false, PLACE(loss_nats)},
    {"data_loss", false, PLACE(data_loss_nats)},
    {"teacher_kl", false, PLACE(teacher_kl_nats)},
    {"grad_norm", false, PLACE(gradient_norm)},
    {"lr", false, PLACE(learning_rate)},
    {"tokens", true, PLACE(tokens)},
    {"step_seconds", false, PLACE(step_s)},
    {"tokens_per_second", false, PLACE(tokens_per_s)},
    {"mfu", false, PLACE(mfu)},
    {"goodput", false, PLACE(goodput)},
    {"predicted_step_seconds", false, PLACE(predicted_step_s)},
    {"bubble_fraction", false, PLACE(bubble_fraction)},
    {"memory_peak_bytes", true, PLACE(memory_peak_bytes)},
    {"memory_planned_bytes", true, PLACE(memory_planned_bytes)},
    {"products_by_own_kernel", true, PLACE(products_by_own_kernel)},
    {"algorithms_replaced", true, PLACE(algorithms_replaced)},
    {"noise_scale_tokens", false, PLACE(noise_scale_tokens)},
    {"moe_aux_loss", false, PLACE(experts.aux_loss)},
    {"moe_z_loss", false, PLACE(experts.z_loss)},
    {"moe_load_max", false, PLACE(experts.load_max)},
    {"moe_load_entropy", false, PLACE(experts.load_entropy)},
    {"moe_drop_share", false, PLACE(experts.drop_share)},
    {"moe_rounds", false, PLACE(experts.rounds)},
};

static const metrics_key exposed_keys[] = {
    {"tp", false, PLACE(exposed.tp_s)}, {"cp", false, PLACE(exposed.cp_s)},
    {"ep", false, PLACE(exposed.ep_s)}, {"pp", false, PLACE(exposed.pp_s)},
    {"dp", false, PLACE(exposed.dp_s)},
};

// ---- values ----

typedef struct line_reader {
  ot_json_reader json;
  char *text;  // of the line, where strings are terminated in place
  ot_metrics_line line;
  ot_metric *health;  // [capacity]
  int capacity;
} line_reader;

static void store(ot_metrics_step *values, const metrics_key *key, double value) {
  char *const at = (char *)values + key->offset;
  if (key->count)
    *(int64_t *)at = fabs(value) < 9e18 ? (int64_t)value : -1;
  else
    *(double *)at = value;
}

static void forget(ot_metrics_step *values) {
  *values = (ot_metrics_step){0};
  for (int i = 0; i < OT_COUNT(keys); i++) store(values, &keys[i], keys[i].count ? -1 : NAN);
  for (int i = 0; i < OT_COUNT(exposed_keys); i++) store(values, &exposed_keys[i], NAN);
}

static bool skip_word(ot_json_reader *json, const char *word) {
  const int64_t length = ot_text_length(word);
  if (json->length - json->at < length || memcmp(json->text + json->at, word, (size_t)length) != 0)
    return false;
  json->at += length;
  return true;
}

// A number, or NaN for null.
static ot_status read_number(ot_json_reader *json, double *value) {
  *value = NAN;
  while (json->at < json->length && json->text[json->at] == ' ') json->at++;
  if (skip_word(json, "null")) return OT_OK;
  const char first = json->at < json->length ? json->text[json->at] : '\0';
  char *end = NULL;
  OT_CHECK(first == '-' || (first >= '0' && first <= '9'), OT_ENVIRONMENT, "no number");
  *value = strtod(json->text + json->at, &end);
  if (isinf(*value)) *value = NAN;  // beyond a double: unknown
  json->at = end - json->text;
  return OT_OK;
}

// Any value without structure, of a key of another version.
static ot_status skip_value(ot_json_reader *json) {
  ot_json_string string;
  double value;
  if (ot_json_reader_at_string(json)) return ot_json_reader_string(json, &string);
  if (skip_word(json, "true") || skip_word(json, "false")) return OT_OK;
  return read_number(json, &value);
}

static const metrics_key *find_key(const metrics_key *table, int count, ot_json_string name) {
  for (int i = 0; i < count; i++)
    if (ot_json_string_equal(name, table[i].key)) return &table[i];
  return NULL;
}

static ot_status read_exposed(line_reader *r) {
  bool first = true, more = false;
  OT_TRY(ot_json_reader_take(&r->json, '{'));
  for (;;) {
    ot_json_string name;
    double value;
    OT_TRY(ot_json_reader_more(&r->json, '}', &first, &more));
    if (!more) return OT_OK;
    OT_TRY(ot_json_reader_string(&r->json, &name));
    OT_TRY(ot_json_reader_take(&r->json, ':'));
    const metrics_key *const key = find_key(exposed_keys, OT_COUNT(exposed_keys), name);
    if (!key) OT_TRY(skip_value(&r->json));
    if (!key) continue;
    OT_TRY(read_number(&r->json, &value));
    store(&r->line.values, key, value);
  }
}

static bool begins(ot_json_string name, const char *prefix) {
  const int64_t length = ot_text_length(prefix);
  return name.length >= length && memcmp(name.text, prefix, (size_t)length) == 0;
}

// The name, terminated: its closing quote has been read, or it is a copy that ends in zero.
static const char *terminate(line_reader *r, ot_json_string name) {
  const ptrdiff_t at = name.text - r->json.text;
  if (at >= 0 && at < r->json.length) r->text[at + name.length] = '\0';
  return name.text;
}

static ot_status add_health(line_reader *r, ot_json_string name, double value) {
  const int count = r->line.values.num_health;
  if (count == r->capacity) {
    const int capacity = r->capacity > 0 ? 2 * r->capacity : 64;
    ot_metric *const grown = realloc(r->health, (size_t)capacity * sizeof *grown);
    OT_CHECK(grown != NULL, OT_ENVIRONMENT, "out of memory");
    r->health = grown;
    r->capacity = capacity;
  }
  r->health[count] = (ot_metric){terminate(r, name), value};
  r->line.values.num_health++;
  return OT_OK;
}

// A key with a name after "/": of its own line, or a further key of a step.
static ot_status read_named(line_reader *r, ot_json_string name, double value) {
  static const struct {
    const char *prefix;
    ot_metrics_line_kind kind;
  } kinds[] = {{"val_loss", OT_METRICS_VALIDATION},
               {"audit_findings/", OT_METRICS_AUDIT},
               {"spike/", OT_METRICS_SPIKE},
               {OT_METRICS_EVALUATE, OT_METRICS_FIGURE}};
  for (int i = 0; i < OT_COUNT(kinds); i++) {
    if (!begins(name, kinds[i].prefix)) continue;
    const char *const rest = terminate(r, name) + ot_text_length(kinds[i].prefix);
    r->line.kind = kinds[i].kind;
    r->line.name = rest[0] == '/' ? rest + 1 : rest;
    r->line.value = value;
    return OT_OK;
  }
  return add_health(r, name, value);
}

static ot_status read_member(line_reader *r, ot_json_string name) {
  if (ot_json_string_equal(name, "exposed_seconds")) return read_exposed(r);
  const char next = r->json.at < r->json.length ? r->json.text[r->json.at] : '\0';
  if (next == '"' || next == 't' || next == 'f') return skip_value(&r->json);
  double value;
  OT_TRY(read_number(&r->json, &value));
  if (ot_json_string_equal(name, "step")) {
    r->line.step = value >= 0 && value < 9e15 ? (int64_t)value : -1;
    return OT_OK;
  }
  const metrics_key *const key = find_key(keys, OT_COUNT(keys), name);
  if (key) {
    store(&r->line.values, key, value);
    if (key == &keys[0]) r->line.kind = OT_METRICS_STEP;
    return OT_OK;
  }
  return read_named(r, name, value);
}

static ot_status parse_line(line_reader *r) {
  bool first = true, more = true;
  OT_TRY(ot_json_reader_take(&r->json, '{'));
  for (;;) {
    ot_json_string name;
    OT_TRY(ot_json_reader_more(&r->json, '}', &first, &more));
    if (!more) break;
    OT_TRY(ot_json_reader_string(&r->json, &name));
    OT_TRY(ot_json_reader_take(&r->json, ':'));
    OT_TRY(read_member(r, name));
  }
  OT_TRY(ot_json_reader_finish(&r->json));
  OT_CHECK(r->line.step >= 0, OT_ENVIRONMENT, "no step");
  return OT_OK;
}

static ot_status read_lines(line_reader *r, FILE *file, const char *path, ot_metrics_visitor visit,
                            void *context) {
  size_t capacity = 0;
  int64_t number = 0;
  for (ssize_t length; (length = getline(&r->text, &capacity, file)) > 0;) {
    if (r->text[length - 1] != '\n') break;
    number++;
    ot_heap heap = {0};
    ot_arena arena = ot_heap_arena_create(&heap);
    r->json = (ot_json_reader){.text = r->text, .length = length, .arena = &arena, .name = path};
    r->line = (ot_metrics_line){.step = -1, .name = "", .value = NAN};
    forget(&r->line.values);
    ot_status status = parse_line(r);
    if (status != OT_OK)
      status = ot_fail(OT_ENVIRONMENT, "%s:%lld: not a line of metrics", path, (long long)number);
    r->line.values.step = r->line.step;
    r->line.values.health = r->health;
    if (status == OT_OK) status = visit(context, &r->line);
    ot_heap_release(&heap);
    OT_TRY(status);
  }
  return ferror(file) ? ot_disk_fail("read", path, errno) : OT_OK;
}

ot_status ot_metrics_read(const char *path, ot_metrics_visitor visit, void *context) {
  int descriptor = -1;
  if (access(path, F_OK) != 0 && errno == ENOENT) return OT_OK;
  OT_TRY(ot_disk_open(path, &descriptor));
  FILE *const file = fdopen(descriptor, "rb");
  if (file == NULL) {
    close(descriptor);
    return ot_fail(OT_ENVIRONMENT, "out of memory (%s)", path);
  }
  line_reader r = {0};
  const ot_status status = read_lines(&r, file, path, visit, context);
  free(r.text);
  free(r.health);
  fclose(file);
  return status;
}
