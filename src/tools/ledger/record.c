// SPDX-License-Identifier: Apache-2.0
#include "ledger/record.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/number.h"
#include "base/text.h"
#include "files/content_hash.h"
#include "files/disk.h"
#include "files/tree_file.h"

enum { RECORD_BYTES_MAX = 1 << 30 };

// ---- reading ----

static const char id_lead[] = ",\"id\":\"";
enum { ID_BYTES = sizeof id_lead - 1 + OT_CONTENT_HASH_BYTES - 1 + 2 };  // with `"}`

// The hash of what comes before the id, or null where there is no id.
static bool hash_of_line(const char *text, int64_t length, char hash[OT_CONTENT_HASH_BYTES]) {
  const int64_t own = length - ID_BYTES;
  if (own < 0 || strncmp(text + own, id_lead, sizeof id_lead - 1) != 0) return false;
  ot_content_hash_memory(text, own, hash);
  return true;
}

static ot_status broken(const ot_record *record, int64_t number, const char *why) {
  ot_fail(OT_FINDINGS, "%s:%lld: %s", record->path, (long long)number, why);
  return ot_fail_hint(OT_FINDINGS,
                      "restore the file from version control; lines are appended, never edited");
}

// Adds the line `text` [length], which must follow the newest.
static ot_status add_line(ot_record *record, const char *text, int64_t length, ot_arena *arena) {
  char hash[OT_CONTENT_HASH_BYTES];
  const int64_t number = record->count + 1;
  const char *const copy = ot_arena_text(arena, text, length);
  const ot_tree_origin origin = {
      .name = ot_arena_format(arena, "%s:%lld", record->path, (long long)number)};
  ot_node *tree;
  const bool hashed = hash_of_line(copy, length, hash);
  if (!hashed) return broken(record, number, "the line does not end with its id");
  if (ot_tree_parse_json(&origin, copy, length, arena, &tree) != OT_OK)
    return broken(record, number, "the line is not JSON");
  const char *const id = ot_record_text(tree, "id"), *const prev = ot_record_text(tree, "prev");
  if (!ot_text_equal(id, hash))
    return broken(record, number, "the line was changed: its hash is another");
  const char *const before = record->count > 0 ? record->line[record->count - 1].id : "";
  if (!ot_text_equal(prev, before))
    return broken(record, number, "the line before it is missing or another");
  record->line =
      ot_arena_grow(arena, record->line, record->count, &record->capacity, sizeof *record->line);
  record->line[record->count++] = (ot_record_line){number, id, ot_record_text(tree, "kind"), tree};
  return OT_OK;
}

// Adds the lines of `text` [bytes] after those known. A last line without an end was cut off by a
// crash.
static ot_status add_lines(ot_record *record, const char *text, int64_t bytes, ot_arena *arena) {
  int64_t number = 0;
  const char *const zero = memchr(text, '\0', (size_t)bytes);
  if (zero) {
    for (const char *at = text; at < zero; at++) number += *at == '\n';
    return broken(record, number + 1, "the line has a zero byte");
  }
  for (const char *at = text, *end; (end = strchr(at, '\n')) != NULL; at = end + 1)
    if (++number > record->count) OT_TRY(add_line(record, at, end - at, arena));
  return OT_OK;
}

static const char *find_build(ot_arena *arena) {
  ot_content_record own;
  const char *const path = ot_disk_own_program(arena);
  if (!path || ot_content_record_read(arena, path, &own) != OT_OK) return OT_VERSION;
  return ot_arena_format(arena, "%s-%.12s", OT_VERSION, own.hash);
}

ot_status ot_record_read(const char *path, ot_arena *arena, ot_record *out) {
  char *text;
  int64_t bytes;
  *out = (ot_record){.path = path, .build = find_build(arena)};
  if (access(path, F_OK) != 0) return OT_OK;
  OT_TRY(ot_disk_read(arena, path, RECORD_BYTES_MAX, &text, &bytes));
  return add_lines(out, text, bytes, arena);
}

const char *ot_record_text(const ot_node *line, const char *key) {
  const ot_node *const node = ot_node_child(line, key);
  return node && node->kind == OT_NODE_SCALAR ? node->text : "";
}

double ot_record_real(const ot_node *line, const char *key) {
  double value;
  return ot_number_parse(ot_record_text(line, key), false, &value) ? value : NAN;
}

int64_t ot_record_integer(const ot_node *line, const char *key) {
  int64_t value;
  return ot_number_parse_size(ot_record_text(line, key), &value) ? value : -1;
}

double ot_record_bound(const ot_node *line, const char *key, int64_t index) {
  const ot_node *const list = ot_node_child(line, key);
  const ot_node *const node = list ? ot_node_at(list, index) : NULL;
  double value;
  const bool known =
      node && node->kind == OT_NODE_SCALAR && ot_number_parse(node->text, false, &value);
  return known ? value : NAN;
}

const ot_record_line *ot_record_find(const ot_record *record, const char *kind, const char *key,
                                     const char *text) {
  for (int64_t i = record->count - 1; i >= 0; i--) {
    const ot_record_line *const line = &record->line[i];
    if (ot_text_equal(line->kind, kind) && ot_text_equal(ot_record_text(line->tree, key), text))
      return line;
  }
  return NULL;
}

// ---- writing ----

const char *ot_record_user(ot_arena *arena) {
  struct passwd entry, *found = NULL;
  char names[1024];
  const bool known = getpwuid_r(getuid(), &entry, names, sizeof names, &found) == 0 && found;
  return ot_arena_format(arena, "%s", known ? entry.pw_name : "");
}

ot_json_writer ot_record_begin(const ot_record *record, const char *kind, ot_arena *arena) {
  char time_text[32] = "", host[256] = "";
  const time_t now = time(NULL);
  struct tm utc;
  strftime(time_text, sizeof time_text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
  gethostname(host, sizeof host - 1);
  ot_json_writer line = ot_json_begin(arena, 0);
  ot_json_object(&line, NULL);
  ot_json_text(&line, "kind", kind);
  ot_json_text(&line, "time", time_text);
  ot_json_text(&line, "build", record->build);
  ot_json_text(&line, "machine", host);
  ot_json_text(&line, "user", ot_record_user(arena));
  return line;
}

void ot_record_add_pair(ot_json_writer *line, const char *key, double first, double second) {
  ot_json_array(line, key);
  ot_json_real(line, NULL, first);
  ot_json_real(line, NULL, second);
  ot_json_end(line);
}

// With the file locked: reads what others appended, and writes the line.
static ot_status append(ot_record *record, int file, ot_json_writer *line, ot_arena *arena) {
  char id[OT_CONTENT_HASH_BYTES];
  int64_t bytes, kept;
  OT_TRY(ot_disk_size(file, record->path, RECORD_BYTES_MAX, &bytes));
  char *const text = ot_arena_take(arena, bytes + 1);
  OT_TRY(ot_disk_read_at(file, record->path, 0, text, bytes));
  OT_TRY(add_lines(record, text, bytes, arena));
  const char *const end = strrchr(text, '\n');
  kept = end ? end + 1 - text : 0;
  ot_json_text(line, "prev", record->count > 0 ? record->line[record->count - 1].id : "");
  ot_content_hash_memory(line->text, line->length, id);
  ot_json_text(line, "id", id);
  ot_json_end(line);
  const char *const whole = ot_arena_format(arena, "%s", line->text);
  const int64_t length = line->length;
  line->text[length] = '\n';
  OT_TRY(add_line(record, whole, length, arena));
  if (kept < bytes && ftruncate(file, kept) != 0) return ot_disk_fail("cut", record->path, errno);
  OT_TRY(ot_disk_write_at(file, record->path, kept, line->text, length + 1));
  if (fsync(file) != 0) return ot_disk_fail("sync", record->path, errno);
  return OT_OK;
}

ot_status ot_record_append(ot_record *record, ot_json_writer *line, ot_arena *arena) {
  const int file = open(record->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) return ot_disk_fail("open", record->path, errno);
  ot_status status = OT_OK;
  if (flock(file, LOCK_EX) != 0) status = ot_disk_fail("lock", record->path, errno);
  if (status == OT_OK) status = append(record, file, line, arena);
  close(file);
  return status;
}
