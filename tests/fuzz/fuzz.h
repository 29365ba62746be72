// SPDX-License-Identifier: Apache-2.0
// What the readers of untrusted files are tested with. A target is tests/fuzz/fuzz_NAME.c, which
// defines fuzz_one; the harness gives it memory and holds it to the limits of
// docs/untrusted-input.md. Built plainly it replays the files of tests/fuzz/corpus/NAME
// (replay.c); with OT_FUZZ libFuzzer drives it.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "base/tree.h"

enum { FUZZ_MEMORY_FACTOR = 4, FUZZ_MEMORY_BYTES = 64 << 20 };

// Reads `data` [size] as a file of its kind: OT_OK, or a refusal with a message. Releases all but
// `arena` and what fuzz_file made.
ot_status fuzz_one(const uint8_t *data, size_t size, ot_arena *arena);

// One input: fuzz_one with a fresh arena. Aborts if a refusal is not OT_USAGE or OT_ENVIRONMENT or
// has no message, or if more than FUZZ_MEMORY_FACTOR x size + FUZZ_MEMORY_BYTES are in use at once
// (where a sanitizer counts them).
ot_status fuzz_input(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Aborts, for a rule that every accepted input keeps.
void fuzz_require(int condition, const char *rule);

// Reads `tree` by the tables of clusters, engines, models and runs: OT_OK if one accepts it.
ot_status fuzz_tables(ot_node *tree, ot_arena *arena);

// Writes the file `name` into a directory of this process in memory; its path, valid until the next
// call with this name. The directory goes when the process ends.
const char *fuzz_file(const char *name, const void *data, size_t size);

// Removes that file, if it is there.
void fuzz_remove(const char *name);

// The directory.
const char *fuzz_directory(void);

// libFuzzer's own mutation; only where it drives.
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t capacity);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t capacity, unsigned seed);
