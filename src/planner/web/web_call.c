// SPDX-License-Identifier: Apache-2.0
// One table of operations.
#include "base/text.h"
#include "web/web_parts.h"

static const struct {
  const char *name;
  ot_web_operation *run;
} operations[] = {
    {"stages", ot_web_stages},       {"timeline", ot_web_timeline}, {"devices", ot_web_devices},
    {"crossover", ot_web_crossover}, {"pareto", ot_web_pareto},     {"remedies", ot_web_remedies},
    {"calibrate", ot_web_calibrate}, {"emit", ot_web_emit},         {"sweep", ot_web_sweep},
};

ot_web *ot_web_create(ot_arena *own, ot_web_memory plan, ot_web_memory call) {
  ot_web *const web = ot_arena_take(own, sizeof *web);
  web->plan_memory = plan;
  web->call_memory = call;
  web->plan = ot_arena_from(plan.source, plan.context);
  web->call = ot_arena_from(call.source, call.context);
  return web;
}

static ot_arena renew(const ot_web_memory *memory) {
  memory->release(memory->context);
  return ot_arena_from(memory->source, memory->context);
}

static ot_web_answer failure(ot_web *web, ot_status status) {
  ot_json_writer w = ot_json_begin(&web->call, 0);
  ot_json_object(&w, NULL);
  ot_json_text(&w, "error", ot_fail_message());
  ot_json_text(&w, "hint", ot_fail_hint_text());
  ot_json_integer(&w, "status", status);
  ot_json_end(&w);
  return (ot_web_answer){w.text, w.length};
}

static ot_status operate(ot_web *web, const ot_node *request, const char *name, ot_json_writer *w) {
  for (int i = 0; i < OT_COUNT(operations); i++) {
    if (!ot_text_equal(operations[i].name, name)) continue;
    OT_CHECK(web->asked || operations[i].run == ot_web_sweep, OT_USAGE, "%s: there is no plan yet",
             name);
    ot_json_object(w, NULL);
    OT_TRY(operations[i].run(web, request, w));
    ot_json_end(w);
    return OT_OK;
  }
  return ot_fail(OT_USAGE, "op: there is no operation \"%s\"", name);
}

ot_status ot_web_begin(ot_web *web, const char *request, int64_t length, ot_node **tree) {
  web->asked = false;
  web->plan = renew(&web->plan_memory);
  web->call = renew(&web->call_memory);
  return ot_web_tree_read(request, length, &web->plan, tree);
}

static bool is_question(const char *op) {
  return ot_text_equal(op, "plan") || ot_text_equal(op, "point") || ot_text_equal(op, "deadline");
}

// Its tree is read again, since the job keeps parts of it.
static ot_status plan(ot_web *web, const char *request, int64_t length, ot_web_answer *answer) {
  ot_node *tree;
  OT_TRY(ot_web_begin(web, request, length, &tree));
  const char *const op = ot_node_child(tree, "op")->text;
  if (ot_text_equal(op, "plan")) {
    OT_TRY(ot_web_ask(web, tree, false));
    const char *const text = ot_plan_json(&web->page, &web->call);
    *answer = (ot_web_answer){text, ot_text_length(text)};
    return OT_OK;
  }
  ot_json_writer w = ot_json_begin(&web->call, 0);
  OT_TRY(ot_text_equal(op, "point") ? ot_web_point(web, tree, &w)
                                    : ot_web_deadline(web, tree, request, length, &w));
  *answer = (ot_web_answer){w.text, w.length};
  return OT_OK;
}

static ot_status answer(ot_web *web, const char *request, int64_t length, ot_web_answer *out) {
  ot_node *tree;
  OT_TRY(ot_web_tree_read(request, length, &web->call, &tree));
  const ot_node *const op = ot_node_child(tree, "op");
  OT_CHECK(op && op->text, OT_USAGE, "op: it is missing");
  if (is_question(op->text)) return plan(web, request, length, out);
  ot_json_writer w = ot_json_begin(&web->call, 0);
  OT_TRY(operate(web, tree, op->text, &w));
  *out = (ot_web_answer){w.text, w.length};
  return OT_OK;
}

ot_web_answer ot_web_call(ot_web *web, const char *request, int64_t length) {
  ot_web_answer out = {0};
  web->call = renew(&web->call_memory);
  const ot_status status = answer(web, request, length, &out);
  return status == OT_OK ? out : failure(web, status);
}
