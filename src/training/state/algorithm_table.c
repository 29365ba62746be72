// SPDX-License-Identifier: Apache-2.0
// Texts travel in pieces of a broadcast. A table has two lines of title, which name the library and
// the GPU, and a line for each product (kernels/cuda/gemm_table.c).
#include "state/algorithm_table.h"

#include "base/text.h"
#include "base/text_builder.h"

enum { PIECE = OT_WORLD_TEXT - 1, TITLE_LINES = 2 };

// The text of `rank`, on all ranks.
static ot_status hand_over(ot_world *world, int rank, const char *mine, int64_t bytes,
                           ot_text_builder *out) {
  const bool owner = ot_world_rank(world) == rank;
  for (int64_t at = 0; at < bytes; at += PIECE) {
    char piece[OT_WORLD_TEXT] = "";
    if (owner) ot_text_format(piece, sizeof piece, "%s", mine + at);
    OT_TRY(ot_world_broadcast_from(world, rank, piece));
    ot_text_put(out, piece);
  }
  return OT_OK;
}

// The line at `at` with its end, in `arena`.
static const char *line_at(const char *at, ot_arena *arena) {
  const char *const end = ot_text_find(at, "\n");
  return ot_arena_text(arena, at, end ? end + 1 - at : ot_text_length(at));
}

static bool same_title(const char *a, const char *b, ot_arena *arena) {
  for (int i = 0; i < TITLE_LINES; i++) {
    const char *const line = line_at(a, arena);
    if (!ot_text_equal(line, line_at(b, arena))) return false;
    a += ot_text_length(line);
    b += ot_text_length(line);
  }
  return true;
}

// Appends the rows of `table` that `all` lacks.
static void merge(const char *table, ot_arena *arena, ot_text_builder *all) {
  if (!same_title(ot_text_builder_text(all), table, arena)) return;
  int line = 0;
  for (const char *at = table; *at != '\0'; line++) {
    const char *const row = line_at(at, arena);
    at += ot_text_length(row);
    if (line >= TITLE_LINES && !ot_text_find(ot_text_builder_text(all), row)) ot_text_put(all, row);
  }
}

ot_status ot_algorithm_table_gather(const ot_executor *executor, ot_world *world, ot_arena *arena,
                                    const char **table) {
  const char *const mine = ot_executor_print_algorithms(executor, arena);
  const int ranks = ot_world_size(world);
  const bool leads = ot_world_is_leader(world);
  ot_text_builder all = {.arena = arena};
  *table = leads ? mine : NULL;
  if (ranks == 1 || !mine) return OT_OK;
  int64_t *const bytes = ot_arena_array(arena, ranks, sizeof *bytes);
  OT_TRY(ot_world_allgather(world, ot_text_length(mine), bytes));
  if (leads) ot_text_put(&all, mine);
  for (int rank = 0; rank < ranks; rank++) {
    ot_text_builder theirs = {.arena = arena};
    OT_TRY(hand_over(world, rank, mine, bytes[rank], &theirs));
    if (leads) merge(ot_text_builder_text(&theirs), arena, &all);
  }
  if (leads) *table = ot_text_builder_text(&all);
  return OT_OK;
}
