// SPDX-License-Identifier: Apache-2.0
// One pass over the text: each line is a rank, each entry an action.
#include "pipeline/pipeline_csv.h"

#include <string.h>

#include "base/text.h"
#include "base/text_builder.h"

typedef struct csv_reader {
  ot_pipeline_schedule *order;
  const char *line;   // start of the current line
  const char *at;     // current character
  const char *entry;  // start of the current entry
  int entry_bytes;
  int rank;  // index of the line, from 0
} csv_reader;

enum { MAX_SHOWN = 24, MAX_NUMBER = 1 << 24 };

static bool ends_line(char c) { return c == '\0' || c == '\n' || c == '\r'; }
static bool is_space(char c) { return c == ' ' || c == '\t'; }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool ot_pipeline_csv_splits(const char *text) {
  for (; *text != '\0'; text++) {
    if (*text == 'I' || *text == 'W') return true;
  }
  return false;
}

// ---- one entry ----

static ot_status refuse(const csv_reader *reader, const char *why) {
  const int shown = reader->entry_bytes < MAX_SHOWN ? reader->entry_bytes : MAX_SHOWN;
  char entry[MAX_SHOWN + 1] = {0};
  for (int i = 0; i < shown; i++) entry[i] = reader->entry[i];
  return ot_fail(OT_USAGE, "parallel.order_csv: line %d, column %d: entry '%s': %s",
                 reader->rank + 1, (int)(reader->entry - reader->line) + 1, entry, why);
}

// Reads digits from `*at`; false if there are none or too many.
static bool read_number(const char **at, const char *end, int *value) {
  const char *const start = *at;
  *value = 0;
  while (*at < end && is_digit(**at) && *value < MAX_NUMBER) *value = *value * 10 + *(*at)++ - '0';
  return *at > start && *value < MAX_NUMBER;
}

static bool read_kind(char letter, ot_action_kind *kind) {
  for (int i = 0; i < OT_ACTIONS; i++) {
    *kind = (ot_action_kind)i;
    if (ot_action_letter(*kind) == letter) return true;
  }
  return false;
}

static ot_status read_action(const csv_reader *reader, ot_action *action) {
  const char *at = reader->entry;
  const char *const end = at + reader->entry_bytes;
  bool fits = read_number(&at, end, &action->chunk) && at < end && read_kind(*at, &action->kind);
  at++;
  fits = fits && read_number(&at, end, &action->micro_batch) && at == end;
  if (fits) return OT_OK;
  return refuse(reader,
                "not an action; allowed: chunk, then F, I, W or B, then micro-batch (2F0), or "
                "nothing");
}

static ot_status check_action(const csv_reader *reader, const ot_action *action) {
  const ot_pipeline_schedule *const order = reader->order;
  char why[128];
  if (action->chunk >= order->num_chunks) {
    ot_text_format(why, sizeof why, "no such chunk; allowed: 0 to %d (pp x vpp chunks)",
                   order->num_chunks - 1);
    return refuse(reader, why);
  }
  if (order->rank_of[action->chunk] != reader->rank) {
    ot_text_format(why, sizeof why, "chunk %d is on stage %d, so it belongs to line %d",
                   action->chunk, order->rank_of[action->chunk], order->rank_of[action->chunk] + 1);
    return refuse(reader, why);
  }
  if (action->micro_batch >= order->micro_batches) {
    ot_text_format(why, sizeof why, "no such micro-batch; allowed: 0 to %d",
                   order->micro_batches - 1);
    return refuse(reader, why);
  }
  return OT_OK;
}

static void append(ot_pipeline_schedule *order, int rank, ot_action action) {
  const bool both = order->split && action.kind == OT_ACTION_BACKWARD;
  if (both) action.kind = OT_ACTION_INPUT;
  order->actions[rank][order->num_actions[rank]++] = action;
  if (!both) return;
  action.kind = OT_ACTION_WEIGHT;
  order->actions[rank][order->num_actions[rank]++] = action;
}

static ot_status read_single(const csv_reader *reader, ot_action *action) {
  OT_TRY(read_action(reader, action));
  return check_action(reader, action);
}

// A forward and a backward that run together: (0F1;3B0)OVERLAP_F_B.
static ot_status read_pair(const csv_reader *reader, ot_action pair[2]) {
  static const char name[] = ")OVERLAP_F_B";
  enum { NAME_BYTES = sizeof name - 1 };
  const char *const begin = reader->entry + 1;
  const char *const end = begin + reader->entry_bytes - 1 - NAME_BYTES;
  const char *between = begin;
  while (between < end && *between != ';') between++;
  if (between >= end || memcmp(end, name, NAME_BYTES) != 0) {
    return refuse(reader, "not a pair; allowed: (2F1;1B0)OVERLAP_F_B");
  }
  csv_reader part = *reader;
  part.entry = begin;
  part.entry_bytes = (int)(between - begin);
  OT_TRY(read_single(&part, &pair[0]));
  part.entry = between + 1;
  part.entry_bytes = (int)(end - part.entry);
  OT_TRY(read_single(&part, &pair[1]));
  if (pair[0].kind == OT_ACTION_FORWARD && pair[1].kind == OT_ACTION_BACKWARD) return OT_OK;
  return refuse(reader, "not a pair; allowed: a forward, then a backward");
}

static ot_status read_entry(const csv_reader *reader) {
  ot_action read[2] = {{0}};
  const bool pair = *reader->entry == '(';
  if (!pair) OT_TRY(read_single(reader, read));
  if (pair) OT_TRY(read_pair(reader, read));
  read[0].paired = pair;
  for (int i = 0; i <= pair; i++) append(reader->order, reader->rank, read[i]);
  return OT_OK;
}

// ---- lines ----

// Number of entries in the line, including empty ones.
static int64_t count_entries(const char *line) {
  int64_t n = 1;
  for (; !ends_line(*line); line++) n += *line == ',';
  return n;
}

static void next_entry(csv_reader *reader) {
  while (is_space(*reader->at)) reader->at++;
  reader->entry = reader->at;
  while (*reader->at != ',' && !ends_line(*reader->at)) reader->at++;
  const char *end = reader->at;
  while (end > reader->entry && is_space(end[-1])) end--;
  reader->entry_bytes = (int)(end - reader->entry);
}

static ot_status read_line(csv_reader *reader, ot_arena *arena) {
  ot_pipeline_schedule *const order = reader->order;
  reader->line = reader->at;
  // A B may become two actions, a pair three.
  const int64_t room = 3 * count_entries(reader->line);
  order->actions[reader->rank] = ot_arena_array(arena, room, sizeof(ot_action));
  for (;;) {
    next_entry(reader);
    if (reader->entry_bytes > 0) OT_TRY(read_entry(reader));
    if (*reader->at != ',') break;
    reader->at++;
  }
  if (*reader->at == '\r') reader->at++;
  if (*reader->at == '\n') reader->at++;
  return OT_OK;
}

static bool only_space(const char *text) {
  while (is_space(*text) || *text == '\n' || *text == '\r') text++;
  return *text == '\0';
}

ot_status ot_pipeline_csv_read(const char *text, ot_arena *arena, ot_pipeline_schedule *order) {
  csv_reader reader = {.order = order, .at = text};
  for (; !only_space(reader.at); reader.rank++) {
    OT_CHECK(reader.rank < order->num_ranks, OT_USAGE,
             "parallel.order_csv: line %d: the pipeline has %d stages, with one line each",
             reader.rank + 1, order->num_ranks);
    OT_TRY(read_line(&reader, arena));
  }
  OT_CHECK(reader.rank == order->num_ranks, OT_USAGE,
           "parallel.order_csv: %d lines; the pipeline has %d stages, with one line each",
           reader.rank, order->num_ranks);
  return OT_OK;
}

const char *ot_pipeline_schedule_print(const ot_pipeline_schedule *order, ot_arena *arena) {
  ot_text_builder text = {.arena = arena};
  for (int r = 0; r < order->num_ranks; r++) {
    for (int i = 0; i < order->num_actions[r]; i++) {
      const ot_action *const action = &order->actions[r][i];
      if (i > 0) ot_text_put(&text, ",");
      if (!action->paired) {
        ot_text_appendf(&text, "%d%c%d", action->chunk, ot_action_letter(action->kind),
                        action->micro_batch);
        continue;
      }
      const ot_action *const with = &action[1];
      ot_text_appendf(&text, "(%dF%d;%dB%d)OVERLAP_F_B", action->chunk, action->micro_batch,
                      with->chunk, with->micro_batch);
      i += order->split ? 2 : 1;
    }
    ot_text_put(&text, "\n");
  }
  return ot_text_builder_text(&text);
}
