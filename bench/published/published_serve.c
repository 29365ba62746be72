// SPDX-License-Identifier: Apache-2.0
// One arena per line, so memory does not grow with the number of lines.
#include "published_serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_writer.h"
#include "files/tree_file.h"
#include "host/heap.h"

static void answer(const ot_published_prices *prices, ot_arena *arena) {
  ot_json_writer w = ot_json_begin(arena, 0);
  ot_json_object(&w, NULL);
  ot_json_object(&w, "seconds");
  for (int64_t i = 0; i < prices->num_rows; i++) {
    const ot_published_price *const price = &prices->price[i];
    if (price->priced) ot_json_real(&w, price->row->id, price->step_s);
  }
  ot_json_end(&w);
  ot_json_object(&w, "memory");
  for (int64_t i = 0; i < prices->num_rows; i++) {
    const ot_published_price *const price = &prices->price[i];
    if (price->priced) ot_json_real(&w, price->row->id, price->memory_gb);
  }
  ot_json_end(&w);
  ot_json_object(&w, "exposed");
  for (int64_t i = 0; i < prices->num_rows; i++) {
    const ot_published_price *const price = &prices->price[i];
    if (!price->priced) continue;
    ot_json_real(&w, price->row->id, price->traits.exposed);
  }
  ot_json_end(&w);
  ot_json_end(&w);
  puts(w.text);
  fflush(stdout);
}

static ot_status serve_line(const char *clusters, bool unnamed, const char *line,
                            ot_published_prices *prices) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_tree_origin origin = {.name = "stdin"};
  ot_node *constants = NULL;
  ot_status status = ot_tree_parse_json(&origin, line, (int64_t)strlen(line), &arena, &constants);
  ot_published_setup setup = {
      .clusters = clusters, .constants = constants, .unnamed = unnamed, .arena = &arena};
  if (status == OT_OK) status = ot_published_prices_update(&setup, &arena, prices);
  if (status == OT_OK) answer(prices, &arena);
  for (int64_t i = 0; i < prices->num_rows; i++) prices->price[i].reason = NULL;
  ot_heap_release(&heap);
  return status;
}

ot_status ot_published_serve(const char *clusters, bool unnamed, const ot_published_rows *rows) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_published_prices prices;
  ot_published_prices_create(rows, &arena, &prices);
  char *line = NULL;
  size_t capacity = 0;
  ot_status status = OT_OK;
  while (status == OT_OK && getline(&line, &capacity, stdin) > 0) {
    status = serve_line(clusters, unnamed, line, &prices);
  }
  free(line);
  ot_heap_release(&heap);
  return status;
}
