// SPDX-License-Identifier: Apache-2.0
// A sweep on the page: its grid, then one question for each point, which the page asks.
#include "answer/sweep.h"
#include "web/web_parts.h"

static ot_status read_sweep(const ot_node *request, ot_arena *arena, ot_sweep *out) {
  const ot_node *const list = ot_node_child(request, "sweep");
  *out = (ot_sweep){0};
  for (const ot_node *axis = list ? list->first : NULL; axis; axis = axis->next) {
    OT_CHECK(axis->text, OT_USAGE, "sweep: not a list of KEY=VALUES");
    OT_TRY(ot_sweep_add(out, axis->text, arena));
  }
  OT_CHECK(out->num_axes > 0, OT_USAGE, "sweep: nothing varies");
  return OT_OK;
}

ot_status ot_web_sweep(ot_web *web, const ot_node *request, ot_json_writer *w) {
  ot_sweep *const sweep = ot_arena_take(&web->call, sizeof *sweep);
  OT_TRY(read_sweep(request, &web->call, sweep));
  ot_sweep_write_json(sweep, w);
  return OT_OK;
}

ot_status ot_web_point(ot_web *web, ot_node *request, ot_json_writer *w) {
  ot_sweep *const sweep = ot_arena_take(&web->call, sizeof *sweep);
  ot_sweep_row *const row = ot_arena_take(&web->call, sizeof *row);
  ot_text_builder names = {.arena = &web->call};
  OT_TRY(read_sweep(request, &web->call, sweep));
  const ot_status status = ot_web_ask(web, request, true);
  if (status != OT_OK && status != OT_USAGE) return status;
  const char *const reason = ot_sweep_reason(status, &web->page, &web->call);
  ot_sweep_row_build(sweep, 0, &(ot_sweep_planned){&web->request, &web->page, reason}, row);
  ot_sweep_row_print_names(row, &names);
  ot_json_object(w, NULL);
  ot_json_text(w, "names", ot_text_builder_text(&names));
  ot_sweep_row_write_members(row, w);
  ot_json_end(w);
  return OT_OK;
}
