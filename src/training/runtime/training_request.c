// SPDX-License-Identifier: Apache-2.0
// The compute order of parallel.order_csv is the one thing of a training request that is in a file.
#include "runtime/training_request.h"

#include "base/text.h"
#include "files/disk.h"

static ot_status read_order(const ot_run *run, ot_arena *arena, const char **order_csv) {
  enum { ORDER_BYTES_MAX = 1 << 26 };
  if (!run->parallel.order_csv || run->parallel.order_csv[0] == '\0') return OT_OK;
  char *text = NULL;
  int64_t bytes = 0;
  OT_TRY(ot_disk_read(arena, run->parallel.order_csv, ORDER_BYTES_MAX, &text, &bytes));
  OT_CHECK(ot_text_length(text) == bytes, OT_USAGE, "parallel.order_csv: a zero byte at %lld (%s)",
           (long long)ot_text_length(text), run->parallel.order_csv);
  *order_csv = text;
  return OT_OK;
}

ot_status ot_training_request(const ot_run *run, const ot_mesh *mesh, int rank, ot_arena *arena,
                              ot_rank_request *out) {
  OT_TRY(ot_rank_request_train(run, mesh, rank, arena, out));
  return read_order(run, arena, &out->schedule.order_csv);
}

ot_status ot_training_read_order(ot_planned_run *planned, ot_arena *arena) {
  return read_order(planned->run, arena, &planned->order_csv);
}
