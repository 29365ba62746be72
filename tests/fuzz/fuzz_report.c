// SPDX-License-Identifier: Apache-2.0
// What `orthant report` makes of a run directory: metrics.jsonl and, after a zero byte,
// events.jsonl, as text, JSON and a page.
#include <string.h>

#include "fuzz/fuzz.h"
#include "report/run_page.h"

ot_status fuzz_one(const uint8_t *data, size_t size, ot_arena *arena) {
  const uint8_t *const zero = size > 0 ? memchr(data, '\0', size) : NULL;
  const size_t metrics = zero ? (size_t)(zero - data) : size;
  const char *const path = fuzz_file("metrics.jsonl", data, metrics);
  const char *const events =
      fuzz_file("events.jsonl", zero ? zero + 1 : data, zero ? size - metrics - 1 : 0);
  ot_run_record *const record = ot_arena_take(arena, sizeof *record);
  OT_TRY(ot_run_record_read(arena, path, events, record));
  const ot_run_page page = {.path = fuzz_directory(), .record = record, .no_run = "none"};
  ot_text_builder html = {.arena = arena}, text = {.arena = arena};
  ot_run_report(&page, &text);
  ot_figure_list figures = {0};
  ot_run_html(&page, &html, &figures);
  for (int64_t i = 0; i < figures.count; i++) {
    ot_text_builder file = {.arena = arena};
    ot_figure_print(&figures.figure[i], &file);
  }
  fuzz_require(ot_run_json(&page, arena)[0] == '{', "the report is an object");
  return OT_OK;
}
