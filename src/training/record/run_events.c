// SPDX-License-Identifier: Apache-2.0
// One table of keys for writing and reading. A lock on the file orders the writers, so that one's
// unfinished line is never taken for the remains of a crash by another.
#include "record/run_events.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/json_writer.h"
#include "base/text.h"
#include "files/disk.h"
#include "files/json_file.h"
#include "host/clock.h"
#include "host/heap.h"

static const char *const names[] = {
    [OT_RUN_EVENT_OTHER] = "other",         [OT_RUN_EVENT_START] = "start",
    [OT_RUN_EVENT_REWIND] = "rewind",       [OT_RUN_EVENT_FIRST_STEP] = "first_step",
    [OT_RUN_EVENT_SAVE] = "save",           [OT_RUN_EVENT_SAVE_FAILED] = "save_failed",
    [OT_RUN_EVENT_FALLBACK] = "fallback",   [OT_RUN_EVENT_LOG] = "log",
    [OT_RUN_EVENT_STOP] = "stop",           [OT_RUN_EVENT_VALIDATION] = "validation",
    [OT_RUN_EVENT_AUDIT] = "audit",         [OT_RUN_EVENT_EVALUATION] = "evaluation",
    [OT_RUN_EVENT_FAILURE] = "failure",     [OT_RUN_EVENT_RESTART] = "restart",
    [OT_RUN_EVENT_STRAGGLER] = "straggler", [OT_RUN_EVENT_SPIKE] = "spike"};
static_assert(OT_COUNT(names) == OT_RUN_EVENT_KINDS, "every event has a name");

const char *ot_run_event_name(ot_run_event_kind kind) { return names[kind]; }

// ---- keys ----

typedef enum value_type { VALUE_COUNT, VALUE_REAL, VALUE_TEXT } value_type;

typedef struct event_key {
  const char *key;
  value_type type;
  size_t offset;   // in ot_run_event
  unsigned kinds;  // bit k: events of kind k have it
} event_key;

enum {
  START = 1 << OT_RUN_EVENT_START,
  SAVE = 1 << OT_RUN_EVENT_SAVE,
  FAILURE = 1 << OT_RUN_EVENT_FAILURE,
  RESTART = 1 << OT_RUN_EVENT_RESTART,
  STRAGGLER = 1 << OT_RUN_EVENT_STRAGGLER,
  SPIKE = 1 << OT_RUN_EVENT_SPIKE,
  REPEATS = START | 1 << OT_RUN_EVENT_REWIND,
  TIMED =
      SAVE | 1 << OT_RUN_EVENT_VALIDATION | 1 << OT_RUN_EVENT_AUDIT | 1 << OT_RUN_EVENT_EVALUATION,
  REASONED = 1 << OT_RUN_EVENT_SAVE_FAILED | 1 << OT_RUN_EVENT_FALLBACK | 1 << OT_RUN_EVENT_LOG |
             1 << OT_RUN_EVENT_STOP,
  STEPPED = REPEATS | TIMED | REASONED | 1 << OT_RUN_EVENT_FIRST_STEP | STRAGGLER | SPIKE,
};

#define PLACE(member) offsetof(ot_run_event, member)

static const event_key keys[] = {
    {"step", VALUE_COUNT, PLACE(step), STEPPED},
    {"attempt", VALUE_COUNT, PLACE(attempt), START | FAILURE | RESTART},
    {"ranks", VALUE_COUNT, PLACE(ranks), START | RESTART},
    {"from", VALUE_TEXT, PLACE(from), START},
    {"last_step", VALUE_COUNT, PLACE(last_step), REPEATS},
    {"lost_seconds", VALUE_REAL, PLACE(lost_s), REPEATS},
    {"load_seconds", VALUE_REAL, PLACE(load_s), START},
    {"seconds", VALUE_REAL, PLACE(seconds), TIMED},
    {"blocked_seconds", VALUE_REAL, PLACE(blocked_s), SAVE},
    {"bytes", VALUE_COUNT, PLACE(bytes), SAVE},
    {"every", VALUE_COUNT, PLACE(every), SAVE},
    {"reason", VALUE_TEXT, PLACE(reason), REASONED},
    {"kind", VALUE_TEXT, PLACE(failure), FAILURE},
    {"rank", VALUE_COUNT, PLACE(rank), FAILURE | STRAGGLER},
    {"host", VALUE_TEXT, PLACE(host), FAILURE | STRAGGLER},
    {"exit", VALUE_COUNT, PLACE(exit), FAILURE},
    {"detail", VALUE_TEXT, PLACE(detail), FAILURE},
    {"waited_seconds", VALUE_REAL, PLACE(waited_s), RESTART},
    {"slowdown", VALUE_REAL, PLACE(slowdown), STRAGGLER},
    {"name", VALUE_TEXT, PLACE(name), SPIKE},
    {"z", VALUE_REAL, PLACE(z), SPIKE},
    {"first_sample", VALUE_COUNT, PLACE(first_sample), SPIKE},
    {"last_sample", VALUE_COUNT, PLACE(last_sample), SPIKE},
    {"action", VALUE_TEXT, PLACE(action), SPIKE},
};

static bool has_key(ot_run_event_kind kind, const event_key *key) {
  return (key->kinds >> kind & 1) != 0;
}

// ---- writing ----

static void print_value(ot_json_writer *json, const event_key *key, const ot_run_event *event) {
  const char *const at = (const char *)event + key->offset;
  switch (key->type) {
    case VALUE_COUNT:
      ot_json_integer(json, key->key, *(const int64_t *)at);
      return;
    case VALUE_REAL:
      ot_json_real(json, key->key, *(const double *)at);
      return;
    case VALUE_TEXT:
      ot_json_text(json, key->key, *(const char *const *)at);
      return;
  }
  OT_UNREACHABLE();
}

// The line ends in a zero, which the caller makes the end of the line.
static ot_json_writer print_event(ot_arena *arena, const ot_run_event *event) {
  ot_json_writer json = ot_json_begin(arena, 0);
  ot_json_object(&json, NULL);
  ot_json_text(&json, "event", names[event->kind]);
  ot_json_real(&json, "time", event->time_s > 0 ? event->time_s : ot_clock_unix_s());
  for (int i = 0; i < OT_COUNT(keys); i++)
    if (has_key(event->kind, &keys[i])) print_value(&json, &keys[i], event);
  ot_json_end(&json);
  return json;
}

static ot_status append_line(int file, const char *path, const char *line, int64_t bytes) {
  int64_t length = 0;
  if (flock(file, LOCK_EX) != 0) return ot_disk_fail("lock", path, errno);
  OT_TRY(ot_disk_whole_lines(file, path, &length));
  if (ftruncate(file, length) != 0) return ot_disk_fail("cut", path, errno);
  // With O_APPEND the position counts only for what a partial write left to do.
  ot_status status = ot_disk_write_at(file, path, length, line, bytes);
  if (status == OT_OK && fsync(file) != 0) status = ot_disk_fail("sync", path, errno);
  if (status != OT_OK) (void)!ftruncate(file, length);
  return status;
}

ot_status ot_run_event_append(const char *path, const ot_run_event *event) {
  const int file = open(path, O_RDWR | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0666);
  if (file < 0) return ot_disk_fail("create", path, errno);
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_json_writer json = print_event(&arena, event);
  json.text[json.length] = '\n';
  const ot_status status = append_line(file, path, json.text, json.length + 1);
  close(file);  // also unlocks
  ot_heap_release(&heap);
  return status;
}

// ---- reading ----

// A line's place, for messages.
typedef struct event_place {
  const char *path;
  int64_t line;  // from 1
} event_place;

static ot_status wrong_value(const event_place *place, const char *key, const char *wanted) {
  return ot_fail(OT_ENVIRONMENT, "%s:%lld: \"%s\" is not %s", place->path, (long long)place->line,
                 key, wanted);
}

// Sums and differences of such numbers do not overflow, and doubles hold them.
static bool is_whole(const json_t *value) {
  const json_int_t most = INT64_C(1) << 53;
  return json_is_integer(value) && json_integer_value(value) < most &&
         json_integer_value(value) > -most;
}

// An absent value and null are unknown.
static ot_status read_value(const event_place *place, const json_t *object, const event_key *key,
                            ot_arena *arena, ot_run_event *event) {
  char *const at = (char *)event + key->offset;
  const json_t *const value = has_key(event->kind, key) ? json_object_get(object, key->key) : NULL;
  const bool known = value && !json_is_null(value);
  switch (key->type) {
    case VALUE_COUNT:
      if (known && !is_whole(value))
        return wrong_value(place, key->key, "a whole number below 2^53");
      *(int64_t *)at = known ? json_integer_value(value) : -1;
      return OT_OK;
    case VALUE_REAL:
      if (known && !json_is_number(value)) return wrong_value(place, key->key, "a number");
      *(double *)at = known ? json_number_value(value) : NAN;
      return OT_OK;
    case VALUE_TEXT: {
      const char *const text = known ? json_string_value(value) : "";
      if (!text) return wrong_value(place, key->key, "a text");
      *(const char **)at = ot_arena_text(arena, text, ot_text_length(text));
      return OT_OK;
    }
  }
  OT_UNREACHABLE();
}

static ot_run_event_kind kind_of(const char *name) {
  for (int i = OT_RUN_EVENT_OTHER + 1; i < OT_RUN_EVENT_KINDS; i++)
    if (ot_text_equal(name, names[i])) return (ot_run_event_kind)i;
  return OT_RUN_EVENT_OTHER;
}

static ot_status read_object(const event_place *place, const json_t *object, ot_arena *arena,
                             ot_run_event *event) {
  const char *const name = json_string_value(json_object_get(object, "event"));
  const json_t *const time = json_object_get(object, "time");
  if (!name) return wrong_value(place, "event", "a text");
  if (!json_is_number(time)) return wrong_value(place, "time", "a number");
  *event = (ot_run_event){.kind = kind_of(name), .time_s = json_number_value(time)};
  for (int i = 0; i < OT_COUNT(keys); i++)
    OT_TRY(read_value(place, object, &keys[i], arena, event));
  return OT_OK;
}

static ot_status read_line(const event_place *place, const char *line, int64_t bytes,
                           ot_arena *arena, ot_run_event *event) {
  json_error_t error;
  json_t *const root = json_loadb(line, (size_t)bytes, JSON_REJECT_DUPLICATES, &error);
  OT_CHECK(root != NULL, OT_ENVIRONMENT, "%s:%lld:%d: not valid JSON: %s", place->path,
           (long long)place->line, error.column, error.text);
  const ot_status status = read_object(place, root, arena, event);
  json_decref(root);
  return status;
}

static ot_status read_lines(FILE *file, const char *path, ot_arena *arena,
                            ot_run_event_list *list) {
  char *line = NULL;
  size_t line_capacity = 0;
  int64_t capacity = 0;
  event_place place = {.path = path};
  ot_status status = OT_OK;
  for (ssize_t length; status == OT_OK && (length = getline(&line, &line_capacity, file)) > 0;) {
    if (line[length - 1] != '\n') break;
    place.line++;
    list->event = ot_arena_grow(arena, list->event, list->count, &capacity, sizeof *list->event);
    status = read_line(&place, line, length, arena, &list->event[list->count]);
    list->count++;
  }
  free(line);
  if (status == OT_OK && ferror(file)) return ot_disk_fail("read", path, errno);
  return status;
}

ot_status ot_run_events_read(ot_arena *arena, const char *path, ot_run_event_list *list) {
  int descriptor = -1;
  *list = (ot_run_event_list){0};
  if (access(path, F_OK) != 0 && errno == ENOENT) return OT_OK;
  OT_TRY(ot_disk_open(path, &descriptor));
  FILE *const file = fdopen(descriptor, "rb");
  if (file == NULL) {
    close(descriptor);
    return ot_fail(OT_ENVIRONMENT, "out of memory (%s)", path);
  }
  const ot_status status = read_lines(file, path, arena, list);
  fclose(file);
  return status;
}

double ot_run_event_begin(const ot_run_event *start) {
  return start->time_s - (start->load_s > 0 ? start->load_s : 0);
}

int64_t ot_run_events_starts(const char *path, double *begin_s) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_run_event_list list;
  int64_t starts = 0;
  if (ot_run_events_read(&arena, path, &list) != OT_OK) list.count = 0;
  double first_s = NAN;
  for (int64_t i = 0; i < list.count; i++) {
    const ot_run_event *const e = &list.event[i];
    if (e->kind != OT_RUN_EVENT_START) continue;
    if (starts++ == 0) first_s = ot_run_event_begin(e);
  }
  if (begin_s) *begin_s = first_s;
  ot_heap_release(&heap);
  return starts;
}
