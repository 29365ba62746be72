// SPDX-License-Identifier: Apache-2.0
// Stores a failure outside the thread that had it, whose text the next call may replace. Of several
// failures the first is kept.
#pragma once

#include "base/status.h"

enum { OT_FAILURE_BYTES = 2048 };

typedef struct ot_failure {
  ot_status status;  // OT_OK: none
  char message[OT_FAILURE_BYTES], hint[OT_FAILURE_BYTES];
  char chain[512];  // chain of failing calls
} ot_failure;

// Keeps `status` with this thread's message, if it is a failure and the first.
void ot_failure_take(ot_failure *failure, ot_status status);

// Makes it this thread's failure and returns its status, OT_OK when there is none.
ot_status ot_failure_repeat(const ot_failure *failure);
