// SPDX-License-Identifier: Apache-2.0
// Files of ranks that do not see their folder, read and written by ranks that do (folder_sight.h).
// Writes of a rank travel as runs of bytes, packed into frames; its reads, as requests and answers.
// Waits have no timeout: the other rank may wait for its disk.
#pragma once

#include "files/file_source.h"
#include "state/folder_sight.h"

typedef struct ot_file_relay ot_file_relay;

// For a rank with a server or wards; else *out is null. Keeps both until destroy. Local.
ot_status ot_file_relay_create(ot_world *world, const ot_folder_sight *sight, ot_file_relay **out);
void ot_file_relay_destroy(ot_file_relay **relay);

// ---- writing ----

// Bytes of a file: what set and file are is up to the two ranks.
typedef struct ot_file_run {
  int64_t set, file;
  int64_t offset, bytes;
} ot_file_run;

// Sends `data` [run.bytes] to the server, which takes it in ot_file_relay_take. Blocks.
ot_status ot_file_relay_put(ot_file_relay *relay, ot_file_run run, const void *data);
// After the last one, also after a failure: the server waits for it. Blocks.
ot_status ot_file_relay_finish(ot_file_relay *relay);

// Gives each run of each ward to `put`, ward by ward. After a failure of `put` the rest is received
// and dropped. Blocks until all wards have finished.
typedef struct ot_file_taker {
  ot_status (*put)(void *context, ot_file_run run, const void *data);
  void *context;
} ot_file_taker;
ot_status ot_file_relay_take(ot_file_relay *relay, ot_file_taker taker);

// ---- reading ----

// Files of the server's directory, by their names, whatever the directory of a path; null on a rank
// that sees them. Valid until destroy.
const ot_file_source *ot_file_relay_source(const ot_file_relay *relay);
// After the last one, also after a failure: the server waits for it. Blocks.
ot_status ot_file_relay_leave(ot_file_relay *relay);

// Answers the questions of each ward, ward by ward, from files in `directory`; links are not
// followed. Blocks until all wards have left.
ot_status ot_file_relay_answer(ot_file_relay *relay, const char *directory);
