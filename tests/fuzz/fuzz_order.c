// SPDX-License-Identifier: Apache-2.0
// The pipeline's order of actions as CSV, and a layout of its stages: the first byte tells which,
// and the shape of the pipeline.
#include "base/text.h"
#include "fuzz/fuzz.h"
#include "pipeline/pipeline_schedule.h"
#include "pipeline/stage_layout.h"

enum { RANKS_MAX = 4, CHUNKS_MAX = 2 * RANKS_MAX, LAYERS = 8, MICRO_BATCHES = 4 };

static ot_status read_order(const char *text, int ranks, int chunks, ot_arena *arena) {
  int rank_of[CHUNKS_MAX];
  for (int i = 0; i < chunks; i++) rank_of[i] = i % ranks;
  const ot_pipeline_request request = {.num_ranks = ranks,
                                       .num_chunks = chunks,
                                       .micro_batches = MICRO_BATCHES,
                                       .rank_of = rank_of,
                                       .csv = text};
  ot_pipeline_schedule order, again;
  OT_TRY(ot_pipeline_schedule_build(&request, arena, &order));
  ot_pipeline_request printed = request;
  printed.csv = ot_pipeline_schedule_print(&order, arena);
  fuzz_require(ot_pipeline_schedule_build(&printed, arena, &again) == OT_OK,
               "an order that is printed is read again");
  return OT_OK;
}

ot_status fuzz_one(const uint8_t *data, size_t size, ot_arena *arena) {
  if (size == 0) return ot_fail(OT_USAGE, "nothing");
  const int ranks = 1 + (data[0] >> 1) % RANKS_MAX, chunks = ranks * (1 + (data[0] >> 3) % 2);
  const char *const text = ot_arena_text(arena, (const char *)data + 1, (int64_t)size - 1);
  int first[CHUNKS_MAX + 1];
  return data[0] % 2 == 0 ? read_order(text, ranks, chunks, arena)
                          : ot_stage_layout_read(text, LAYERS, chunks, first);
}
