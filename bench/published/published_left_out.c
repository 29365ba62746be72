// SPDX-License-Identifier: Apache-2.0
// One set of presets per source.
#include "published_left_out.h"

#include <string.h>

static ot_published_rows rows_of(const ot_published_rows *rows, const char *source,
                                 ot_arena *arena) {
  ot_published_rows out = {.row = ot_arena_array(arena, rows->num_rows + 1, sizeof *out.row)};
  for (int64_t i = 0; i < rows->num_rows; i++) {
    if (strcmp(rows->row[i].source, source) == 0) out.row[out.num_rows++] = rows->row[i];
  }
  return out;
}

ot_status ot_published_left_out(const ot_published_left_out_request *request, ot_arena *arena,
                                ot_published_prices *out) {
  const ot_published_rows *const rows = request->rows;
  *out =
      (ot_published_prices){.price = ot_arena_array(arena, rows->num_rows + 1, sizeof *out->price)};
  for (const ot_node *source = request->constants->first; source; source = source->next) {
    const ot_published_rows mine = rows_of(rows, source->key, arena);
    ot_published_setup *const setup = ot_arena_take(arena, sizeof *setup);
    *setup = (ot_published_setup){.clusters = request->clusters,
                                  .constants = source,
                                  .unnamed = !request->named,
                                  .arena = arena};
    ot_published_prices prices;
    ot_published_prices_create(&mine, arena, &prices);
    OT_TRY(ot_published_prices_update(setup, arena, &prices));
    for (int64_t i = 0; i < prices.num_rows; i++) out->price[out->num_rows++] = prices.price[i];
  }
  return OT_OK;
}
