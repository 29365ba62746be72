// SPDX-License-Identifier: Apache-2.0
// ledger.jsonl: what was proposed, run and concluded, one JSON object a line, appended and never
// changed. Each line names the hash of the line before it (`prev`) and ends with the hash of its
// own text (`id`), so that an edited, removed or exchanged line is found. XXH3-128 detects edits by
// mistake; against forgery, publish the newest id or keep the file in git.
#pragma once

#include "base/arena.h"
#include "base/json_writer.h"
#include "base/status.h"
#include "base/tree.h"

typedef struct ot_record_line {
  int64_t number;  // from 1
  const char *id, *kind;
  const ot_node *tree;
} ot_record_line;

typedef struct ot_record {
  const char *path;
  const char *build;  // of this program: its version and the hash of its file
  int64_t count, capacity;
  ot_record_line *line;  // [count]
} ot_record;

// Reads the file at `path`, which need not exist, and checks the chain: OT_FINDINGS naming the line
// at which it breaks.
ot_status ot_record_read(const char *path, ot_arena *arena, ot_record *out);

// Begins a line of `kind`, with time, build, machine and user; the caller adds members.
ot_json_writer ot_record_begin(const ot_record *record, const char *kind, ot_arena *arena);

// Adds the member `key`, a list of two numbers.
void ot_record_add_pair(ot_json_writer *line, const char *key, double first, double second);

// The user of this process, as its lines name it.
const char *ot_record_user(ot_arena *arena);

// Ends the line, appends it durably to file and record. Lines of another process that came in
// between are read first.
ot_status ot_record_append(ot_record *record, ot_json_writer *line, ot_arena *arena);

// Members of a line: "", NaN, -1 and null where it has none.
const char *ot_record_text(const ot_node *line, const char *key);
double ot_record_real(const ot_node *line, const char *key);
int64_t ot_record_integer(const ot_node *line, const char *key);
// Element `index` of a list of numbers.
double ot_record_bound(const ot_node *line, const char *key, int64_t index);

// The newest line of `kind` with this text under `key`, or null.
const ot_record_line *ot_record_find(const ot_record *record, const char *kind, const char *key,
                                     const char *text);
