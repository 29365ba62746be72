// SPDX-License-Identifier: Apache-2.0
// Files of ranks that do not see their folder, read and written by ranks that do (folder_access.h).
// Writes of a rank travel as runs of bytes, packed into frames; its reads, as requests and answers.
// Waits have no timeout: the other rank may wait for its disk.
#pragma once

#include "files/file_source.h"
#include "state/folder_access.h"

typedef struct ot_file_relay ot_file_relay;

// For a rank with a server or clients; else *out is null. Keeps both until destroy. Local.
ot_status ot_file_relay_create(ot_world *world, const ot_folder_access *access,
                               ot_file_relay **out);
void ot_file_relay_destroy(ot_file_relay **relay);

// ---- writing ----

// Bytes of a file: what set and file are is up to the two ranks.
typedef struct ot_file_run {
  int64_t set, file;
  int64_t offset, bytes;
} ot_file_run;

// Sends `data` [run.bytes] to the server, which calls ot_file_relay_receive. Blocks.
ot_status ot_file_relay_put(ot_file_relay *relay, ot_file_run run, const void *data);
// After the last one, also after a failure: the server waits for it. Blocks.
ot_status ot_file_relay_finish(ot_file_relay *relay);

// Calls `put` with each run of each client, client by client. After a failure of `put` the rest is
// received and dropped. Blocks until all clients have finished.
typedef struct ot_file_receiver {
  ot_status (*put)(void *context, ot_file_run run, const void *data);
  void *context;
} ot_file_receiver;
ot_status ot_file_relay_receive(ot_file_relay *relay, ot_file_receiver receiver);

// ---- reading ----

// Files of the server's directory, by their names, whatever the directory of a path; null on a rank
// that sees them. Valid until destroy.
const ot_file_source *ot_file_relay_source(const ot_file_relay *relay);
// After the last one, also after a failure: the server waits for it. Blocks.
ot_status ot_file_relay_leave(ot_file_relay *relay);

// Answers the questions of each client, client by client, from files in `directory`; links are not
// followed. Blocks until all clients have left.
ot_status ot_file_relay_answer(ot_file_relay *relay, const char *directory);
