// SPDX-License-Identifier: Apache-2.0
// File access for the formats of this folder: whole reads with a limit, durable writes,
// directories. Every failure is OT_ENVIRONMENT and names the path and the system's reason. A failed
// fsync is never retried: the kernel may have dropped the page and would report success. All other
// calls are retried when a signal interrupts them.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

enum { OT_PATH_BYTES = 4096 };

// Fails with "cannot DO: REASON (PATH)" for the errno value `error`, with a hint when the disk is
// full.
ot_status ot_disk_fail(const char *action, const char *path, int error);

// "DIRECTORY/NAME" in `arena`.
char *ot_disk_join(ot_arena *arena, const char *directory, const char *name);

// The absolute `path` as seen from the absolute `directory`, in `arena`; unchanged where they share
// only the root. By their text: a name before ".." must not be a link.
const char *ot_disk_path_from(ot_arena *arena, const char *path, const char *directory);

// The last component of `path`, within it.
const char *ot_disk_base_name(const char *path);

// The path of the running program, in `arena`; null: unknown.
const char *ot_disk_own_program(ot_arena *arena);

bool ot_disk_is_file(const char *path);
bool ot_disk_is_directory(const char *path);

// Bytes that an unprivileged user may still write on the file system of `path`.
ot_status ot_disk_free_bytes(const char *path, int64_t *bytes);

// open(2) with close-on-exec and mode 0666, retried when a signal interrupts it.
int ot_disk_open_file(const char *path, int flags);

// For what another host has just made, which a network file system may show late: waits, longer
// each time, and has the directory of `path` looked at again. *tries: 0 before the first call.
// False, at once and with errno as it was, when all calls together have waited OT_DISK_LATE_MS.
enum { OT_DISK_LATE_MS = 1023 };
bool ot_disk_wait_late(const char *path, int *tries);

// Opens the regular file at `path` for reading. Refuses a FIFO or a device instead of blocking.
// *file is -1 after a failure.
ot_status ot_disk_open(const char *path, int *file);

// The same for a file that lies in a directory of ours: fails if the last component of `path`, a
// plain name, is a link, which could lead to any file of this machine. The directory's own path may
// hold links.
ot_status ot_disk_open_own(const char *path, int *file);

// The size of an open regular file; more than `limit` bytes is an error.
ot_status ot_disk_size(int file, const char *path, int64_t limit, int64_t *bytes);

// The whole file with a terminating zero in `arena`; larger than `limit` bytes is an error.
ot_status ot_disk_read(ot_arena *arena, const char *path, int64_t limit, char **text,
                       int64_t *bytes);
ot_status ot_disk_read_own(ot_arena *arena, const char *path, int64_t limit, char **text,
                           int64_t *bytes);

// The first line of a file that the user names, such as a bearer key, in `arena`; a pipe is read
// too. OT_USAGE if it is empty or does not fit OT_DISK_LINE_BYTES; the message does not hold it.
enum { OT_DISK_LINE_BYTES = 512 };
ot_status ot_disk_read_line(ot_arena *arena, const char *path, const char **line);

// In `arena`, that users other than its owner may read or write the file at `path`, which holds a
// secret, and how to change that; null if they may not, or there is no such file.
const char *ot_disk_exposure(ot_arena *arena, const char *path);

// Writes `bytes` to a new file at `path`, synced. Not atomic: for files in a directory that is
// renamed as a whole. Otherwise use files/output_file.h.
ot_status ot_disk_write(const char *path, const void *data, int64_t bytes);

// pread and pwrite of all `bytes`. A file that ends early is an error with its position.
ot_status ot_disk_read_at(int file, const char *path, int64_t offset, void *data, int64_t bytes);
ot_status ot_disk_write_at(int file, const char *path, int64_t offset, const void *data,
                           int64_t bytes);

// The length of `file` up to the end of its last complete line; 0: none.
ot_status ot_disk_whole_lines(int file, const char *path, int64_t *length);

// Closes a file that was written.
ot_status ot_disk_close(int file, const char *path);

// fsync, then close: always closes and returns the first failure.
ot_status ot_disk_sync_close(int file, const char *path);

// The names in directory `path`, unordered; an absent directory has none. A read failure is an
// error, so the list is never partial.
typedef struct ot_disk_names {
  int64_t count;
  char **name;  // [count]
} ot_disk_names;
ot_status ot_disk_list(ot_arena *arena, const char *path, ot_disk_names *names);

// Creates `path` and its parents; an existing one is no error.
ot_status ot_disk_make_directory(const char *path);

// Creates the directory `path`; an existing one is an error.
ot_status ot_disk_create_directory(const char *path);

// rename(2). Not durable until the directory is synced.
ot_status ot_disk_rename(const char *from, const char *to);

// Makes the names in directory `path` durable, unless the file system has no sync of directories.
ot_status ot_disk_sync_directory(const char *path);

// Makes the name of file `path` durable in its directory.
ot_status ot_disk_sync_parent(const char *path);

// Removes a file, or a directory with its contents (never following links); absence is no error.
ot_status ot_disk_remove(const char *path);
