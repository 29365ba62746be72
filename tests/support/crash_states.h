// SPDX-License-Identifier: Apache-2.0
// The states of a directory that a power failure may leave, computed from a record of calls
// (support/faults.h). What a completed fsync covers is there: of a file its size and bytes, of a
// directory its names. Anything later is there or not, each name and each block of 4,096 bytes by
// itself; only a rename is indivisible. This allows more states than any one file system does.
#pragma once

#include <stdint.h>

#include "support/faults.h"

typedef struct crash_disk crash_disk;

// What remains of the calls that no fsync covers.
typedef enum crash_loss {
  CRASH_LOSES_ALL,
  CRASH_LOSES_DATA,   // names are there, contents are not
  CRASH_LOSES_NAMES,  // contents are there, names are not
  CRASH_LOSES_SOME,   // by the draw
  CRASH_LOSSES
} crash_loss;

// The events beneath directory `root`, which existed and was empty when the record began. The
// events must outlive the disk. Fails the test for an exchange of two names and for unknown paths.
crash_disk *crash_disk_create(const char *root, const faults_event *events, int count);
void crash_disk_destroy(crash_disk *disk);

int crash_disk_calls(const crash_disk *disk);

// Writes to the new directory `to` a state that a power failure after the first `calls` calls may
// leave. Equal `seed`s draw equal states.
void crash_disk_write(const crash_disk *disk, int calls, crash_loss loss, uint64_t seed,
                      const char *to);

// The calls of the disk among the first `events` events of the record.
int crash_disk_calls_among(const crash_disk *disk, int events);
