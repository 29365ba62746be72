// SPDX-License-Identifier: Apache-2.0
// A sweep on the page: its grid, then one question for each point, which the page asks. A deadline,
// whose questions are asked here.
#include "answer/sweep.h"
#include "base/number.h"
#include "base/text.h"
#include "describe/cluster_keys.h"
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

// ---- a deadline ----

typedef struct deadline {
  ot_web *web;
  const char *request;  // [length]
  int64_t length;
} deadline;

static ot_status try_devices(void *context, int devices, double *elapsed_s) {
  const deadline *const d = context;
  ot_web *const web = d->web;
  ot_node *tree;
  OT_TRY(ot_web_begin(web, d->request, d->length, &tree));
  ot_node_child(ot_node_child(tree, "question"), "gpus")->text =
      ot_arena_format(&web->plan, "%d", devices);
  const ot_status status = ot_web_ask(web, tree, true);
  if (status != OT_OK && status != OT_USAGE) return status;
  *elapsed_s = ot_sweep_reason(status, &web->page, &web->call) ? 0 : ot_sweep_elapsed_s(&web->page);
  return OT_OK;
}

ot_status ot_web_deadline(ot_web *web, const ot_node *tree, const char *request, int64_t length,
                          ot_json_writer *w) {
  const ot_node *const question = ot_node_child(tree, "question");
  const ot_node *const time = ot_node_child(tree, "deadline");
  const ot_node *const gpus = question ? ot_node_child(question, "gpus") : NULL;
  deadline d = {web, request, length};
  ot_deadline met;  // here, as trials release the memory of the call
  char text[32];
  int64_t most = 0;
  OT_CHECK(time && time->text, OT_USAGE, "deadline: it is missing");
  ot_text_format(text, sizeof text, "%s", time->text);
  OT_CHECK(gpus && gpus->text && ot_number_parse_size(gpus->text, &most) && most >= 1 &&
               most <= OT_QUESTION_MOST,
           OT_USAGE, "gpus: not the most devices of a deadline");
  ot_cluster *const cluster = ot_arena_take(&web->call, sizeof *cluster);
  OT_TRY(ot_cluster_read(ot_node_child(tree, "cluster"), &web->call, cluster));
  const ot_deadline_search search = {(int)most, ot_cluster_host(cluster), try_devices, &d};
  OT_TRY(ot_deadline_meet(text, &search, &web->call, &met));
  web->asked = false;
  *w = ot_json_begin(&web->call, 0);
  ot_json_object(w, NULL);
  ot_json_integer(w, "devices", met.fewest);
  ot_json_text(w, "text", met.text);
  ot_json_end(w);
  return OT_OK;
}
