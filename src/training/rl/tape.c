// SPDX-License-Identifier: Apache-2.0
#include "rl/tape.h"

#include <errno.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "files/disk.h"

enum { MOST_GENERATORS = 1 << 16 };
static const char letters[OT_TAPE_EVENTS] = {'t', 's', 'd', 'c'};

// ---- writing ----

struct ot_tape {
  FILE *file;
  int64_t whole_bytes;  // up to the last flush
  char path[OT_PATH_BYTES];
};

ot_status ot_tape_create(const char *path, int generators, bool append, ot_tape **out) {
  ot_tape *const tape = calloc(1, sizeof *tape);
  *out = tape;
  OT_CHECK(tape, OT_ENVIRONMENT, "out of memory (%s)", path);
  ot_text_format(tape->path, sizeof tape->path, "%s", path);
  tape->file = fopen(path, append ? "ae" : "we");
  const int error = errno;
  if (tape->file && !append) fprintf(tape->file, "orthant tape 1 generators %d\n", generators);
  if (tape->file) return OT_OK;
  ot_tape_destroy(out);
  return ot_disk_fail("write", path, error);
}

void ot_tape_destroy(ot_tape **tape) {
  if (!tape || !*tape) return;
  if ((*tape)->file) fclose((*tape)->file);
  free(*tape);
  *tape = NULL;
}

void ot_tape_write_events(ot_tape *tape, int generator, const int64_t *events, int64_t count) {
  fprintf(tape->file, "g %d", generator);
  for (int64_t i = 0; i < count; i++) {
    fprintf(tape->file, " %c%lld", letters[events[i] % OT_TAPE_EVENTS],
            (long long)(events[i] / OT_TAPE_EVENTS));
  }
  fputc('\n', tape->file);
}

void ot_tape_write_loss(ot_tape *tape, int generator) { fprintf(tape->file, "x %d\n", generator); }

uint64_t ot_tape_hash(ot_rl_answer *const *answers, int64_t count, const ot_rl_update *update) {
  const double figures[] = {update->step.loss, update->step.gradient_norm};
  uint64_t hash = OT_HASH_START;
  for (int64_t i = 0; i < count; i++) {
    const ot_rl_answer *const a = answers[i];
    hash = ot_hash_bytes(hash, a->tokens, a->count * (int64_t)sizeof *a->tokens);
    hash = ot_hash_bytes(hash, a->behaviour, a->count * (int64_t)sizeof *a->behaviour);
  }
  return ot_hash_bytes(hash, figures, sizeof figures);
}

void ot_tape_write_update(ot_tape *tape, int64_t version, ot_rl_answer *const *answers,
                          int64_t count, const ot_tape_figures *figures) {
  fprintf(tape->file, "u %lld", (long long)version);
  for (int64_t i = 0; i < count; i++) fprintf(tape->file, " %lld", (long long)answers[i]->id);
  fprintf(tape->file, " a %.17g %lld %lld h %016llx\n", figures->time_s,
          (long long)figures->cancelled, (long long)figures->dropped,
          (unsigned long long)figures->hash);
}

ot_status ot_tape_flush(ot_tape *tape) {
  if (fflush(tape->file) == 0 && !ferror(tape->file)) {
    tape->whole_bytes = ftello(tape->file);
    return OT_OK;
  }
  const int error = errno;
  __fpurge(tape->file);
  (void)!ftruncate(fileno(tape->file), tape->whole_bytes);  // a device has no length
  return ot_disk_fail("write", tape->path, error);
}

// ---- reading ----

struct ot_tape_reader {
  FILE *file;
  char path[OT_PATH_BYTES];
  char *text;
  size_t bytes;
  int64_t line, capacity;
  int64_t *words;  // [capacity]
};

static ot_status refuse(const ot_tape_reader *r, const char *what) {
  return ot_fail(OT_USAGE, "%s:%lld: %s", r->path, (long long)r->line, what);
}

ot_status ot_tape_reader_create(const char *path, ot_tape_reader **out, int *generators) {
  ot_tape_reader *const r = calloc(1, sizeof *r);
  *out = r;
  OT_CHECK(r, OT_ENVIRONMENT, "out of memory (%s)", path);
  ot_text_format(r->path, sizeof r->path, "%s", path);
  r->file = fopen(path, "re");
  if (!r->file) return ot_disk_fail("read", path, errno);
  r->line = 1;
  const bool read = getline(&r->text, &r->bytes, r->file) > 0;
  const bool head = read && sscanf(r->text, "orthant tape 1 generators %d", generators) == 1;
  if (head && *generators >= 1 && *generators <= MOST_GENERATORS) return OT_OK;
  return refuse(r, "no head of a tape");
}

void ot_tape_reader_destroy(ot_tape_reader **reader) {
  if (!reader || !*reader) return;
  if ((*reader)->file) fclose((*reader)->file);
  free((*reader)->text);
  free((*reader)->words);
  free(*reader);
  *reader = NULL;
}

static ot_status add_word(ot_tape_reader *r, ot_tape_line *line, int64_t word) {
  if (line->count == r->capacity) {
    const int64_t capacity = 2 * r->capacity + 64;
    int64_t *const grown = realloc(r->words, (size_t)capacity * sizeof *grown);
    OT_CHECK(grown, OT_ENVIRONMENT, "out of memory (%s)", r->path);
    r->words = grown;
    r->capacity = capacity;
  }
  r->words[line->count++] = word;
  line->words = r->words;
  return OT_OK;
}

// A whole number from 0 at *at, which moves on.
static bool read_number(const char **at, int64_t *value) {
  char *end = NULL;
  if (**at < '0' || **at > '9') return false;
  errno = 0;
  *value = strtoll(*at, &end, 10);
  *at = end;
  return errno == 0 && *value < INT64_MAX / OT_TAPE_EVENTS;
}

static ot_status read_event(ot_tape_reader *r, ot_tape_line *line, const char **at) {
  const char *const letter = memchr(letters, **at, sizeof letters);
  int64_t value;
  if (!letter) return refuse(r, "no event of a generator");
  ++*at;
  if (!read_number(at, &value)) return refuse(r, "an event without a number");
  return add_word(r, line, ot_tape_word((ot_tape_event)(letter - letters), value));
}

static ot_status read_figures(const ot_tape_reader *r, ot_tape_line *line, const char **at) {
  long long cancelled = 0, dropped = 0;
  unsigned long long hash = 0;
  int end = 0;
  const int found = sscanf(*at, "a %lf %lld %lld h %llx%n", &line->figures.time_s, &cancelled,
                           &dropped, &hash, &end);
  if (found != 4 || !(line->figures.time_s >= 0) || cancelled < 0 || dropped < 0) {
    return refuse(r, "no figures of an update");
  }
  line->figures.cancelled = cancelled;
  line->figures.dropped = dropped;
  line->figures.hash = hash;
  *at += end;
  return OT_OK;
}

static ot_status read_response(ot_tape_reader *r, ot_tape_line *line, const char **at) {
  int64_t value;
  if (**at == 'a') return read_figures(r, line, at);
  if (!read_number(at, &value)) return refuse(r, "no number of a response");
  return add_word(r, line, value);
}

ot_status ot_tape_reader_next(ot_tape_reader *r, ot_tape_line *line) {
  *line = (ot_tape_line){0};
  r->line++;
  const ssize_t length = getline(&r->text, &r->bytes, r->file);
  // A run that was killed may leave a part of a line.
  if (length <= 0 || r->text[length - 1] != '\n') return OT_OK;
  r->text[length - 1] = '\0';
  const char *at = r->text + 2;
  const bool known = length > 3 && strchr("gux", r->text[0]) && r->text[1] == ' ';
  if (!known || !read_number(&at, &line->number)) return refuse(r, "no line of a tape");
  line->kind = r->text[0];
  while (*at == ' ') {
    at++;
    OT_TRY(line->kind == 'u' ? read_response(r, line, &at) : read_event(r, line, &at));
  }
  return *at == '\0' ? OT_OK : refuse(r, "no line of a tape");
}
