// SPDX-License-Identifier: Apache-2.0
// The table.
#include "base/backend_rules.h"

#include <assert.h>

#include "base/status.h"

// clang-format off
static const ot_backend_rules rules_of[] = {
    [OT_BACKEND_CPU] = {.key = "cpu", .where = "the CPU", .host = true, .scores_shards = true},
    [OT_BACKEND_CUDA] = {.key = "cuda", .where = "a GPU", .queued = true, .bits_of_widths = true,
                         .widest_head = 256, .logits_bytes = 1280 << 20, .narrow_logits = true},
};
// clang-format on
static_assert(OT_COUNT(rules_of) == OT_BACKENDS, "one row for each back end");

const ot_backend_rules *ot_backend_rules_of(ot_backend backend) {
  OT_ASSERT((int)backend >= 0 && backend < OT_BACKENDS);
  return &rules_of[backend];
}
