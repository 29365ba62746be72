// SPDX-License-Identifier: Apache-2.0
// Shared memory that killed Open MPI jobs left behind on this machine.
#pragma once

#include <stdint.h>

// Segments of this user's jobs in /dev/shm that no process maps, and the memory they hold.
typedef struct ot_left_segments {
  int64_t count, bytes;
} ot_left_segments;

ot_left_segments ot_left_segments_find(void);
