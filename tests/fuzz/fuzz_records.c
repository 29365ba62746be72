// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl of an earlier run, which a resumed run continues.
#include "files/disk.h"
#include "fuzz/fuzz.h"
#include "record/metrics.h"

enum { STEP = 2 };

ot_status fuzz_one(const uint8_t *data, size_t size, ot_arena *arena) {
  const char *const path = fuzz_file("metrics.jsonl", data, size);
  ot_metrics_extent extent;
  OT_TRY(ot_metrics_measure(path, STEP, &extent));
  fuzz_require(extent.newest >= 0, "steps are counted from 0");
  OT_TRY(ot_metrics_copy_later(path, STEP, ot_disk_join(arena, fuzz_directory(), "later.jsonl")));
  ot_metrics *metrics = NULL;
  OT_TRY(ot_metrics_create(path, STEP, &metrics));
  ot_metrics_destroy(&metrics);
  return ot_metrics_measure(path, STEP, &extent);
}
