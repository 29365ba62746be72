// SPDX-License-Identifier: Apache-2.0
// A temporary directory for a test that writes files; helpers to read and compare whole files.
#pragma once

#include <stdint.h>

enum { SCRATCH_BYTES = 256 };

// Creates an empty directory under $TMPDIR, /dev/shm (where syncing is free) or /tmp and writes its
// path. If it is not destroyed, the end of this process removes it, or, if that is killed, the next
// process that creates one a minute later.
void scratch_create(char path[SCRATCH_BYTES]);
// Removes it with its contents.
void scratch_destroy(const char *path);

// "DIRECTORY/NAME" in static storage, valid for the next 63 calls.
const char *scratch_path(const char *directory, const char *name);

// The source tree: that of the build or, where it has moved, OT_TEST_SOURCE in the environment.
const char *source_directory(void);

// The path of a file under tests/fixtures, in the same storage.
const char *fixture_path(const char *name);

// The whole file, malloced to its exact size (so that sanitizers see overreads).
char *scratch_read(const char *path, int64_t *bytes);
void scratch_write(const char *path, const void *data, int64_t bytes);

// Fails the test unless both files hold the same bytes.
void assert_files_equal(const char *path, const char *expected_path);

// Fails the test unless the message of the last recorded failure contains `part`.
void assert_message_has(const char *part);
