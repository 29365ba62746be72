// SPDX-License-Identifier: Apache-2.0
// The plan and the options as JSON in the page's element "given"; the report in its <noscript>.
#include "cli/plan_live.h"

#include <string.h>

#include "base/text.h"
#include "cli/installed.h"
#include "cli/plan_request.h"
#include "describe/cluster_keys.h"
#include "describe/model_keys.h"
#include "files/disk.h"
#include "report/plan_report.h"

enum { PAGE_BYTES_MAX = 1 << 22 };

typedef struct live {
  const ot_options *options;
  const ot_plan_page *plan;
  ot_presets presets;
  ot_arena *arena;
} live;

// ---- state: the knobs of the page ----

static bool is_preset(const live *l, ot_preset_kind kind, const char *option) {
  const char *const name = ot_options_text(l->options, option);
  return name && ot_presets_find(&l->presets, kind, name, l->arena) != NULL;
}

static const char *state_of(const live *l) {
  const ot_options *const o = l->options;
  ot_json_writer w = ot_json_begin(l->arena, 0);
  ot_json_object(&w, NULL);
  if (is_preset(l, OT_PRESET_MODEL, "model"))
    ot_json_text(&w, "model", ot_options_text(o, "model"));
  if (is_preset(l, OT_PRESET_CLUSTER, "cluster"))
    ot_json_text(&w, "cluster", ot_options_text(o, "cluster"));
  if (ot_options_given(o, "engine")) ot_json_text(&w, "engine", ot_options_text(o, "engine"));
  const ot_node *const given = ot_plan_question(o, l->arena);
  for (const ot_node *n = given->first; n; n = n->next) ot_json_text(&w, n->key, n->text);
  ot_json_end(&w);
  return w.text;
}

static const char *settings_of(const live *l) {
  ot_json_writer w = ot_json_begin(l->arena, 0);
  ot_json_object(&w, NULL);
  for (int i = 0; i < ot_options_count(l->options, "set"); i++) {
    const char *const set = ot_options_values(l->options, "set")[i];
    const size_t length = strcspn(set, "=");
    const char *const value = set[length] == '=' ? set + length + 1 : "";
    ot_json_text(&w, ot_arena_text(l->arena, set, (int64_t)length), value);
  }
  ot_json_end(&w);
  return w.text;
}

static void put_file(const live *l, const char *kind, const char *name, const ot_node *tree,
                     ot_json_writer *w) {
  ot_json_writer text = ot_json_begin(l->arena, 0);
  ot_node_write_json(tree, NULL, &text);
  ot_json_object(w, kind);
  ot_json_text(w, "name", ot_disk_base_name(name));
  ot_json_text(w, "text", text.text);
  ot_json_end(w);
}

// Models and clusters that are no presets, as the page would have them dropped on it.
static const char *files_of(const live *l) {
  const ot_job *const job = l->plan->job;
  ot_json_writer w = ot_json_begin(l->arena, 0);
  ot_json_object(&w, NULL);
  if (!is_preset(l, OT_PRESET_MODEL, "model") && l->plan->run) {
    put_file(l, "model", l->plan->model_name, ot_model_write_config(job->model, l->arena), &w);
  }
  if (!is_preset(l, OT_PRESET_CLUSTER, "cluster")) {
    put_file(l, "cluster", ot_arena_format(l->arena, "%s.yaml", job->cluster->name),
             ot_cluster_write(job->cluster, l->arena), &w);
  }
  ot_json_end(&w);
  return w.text;
}

// Whether the page cannot answer the question itself: only the program reads these files, and knows
// machines whose ranks share cores.
static bool is_of_program(const live *l) {
  static const char *const options[] = {"from", "compare", "calibrate", "deadline"};
  for (int i = 0; i < OT_COUNT(options); i++) {
    if (ot_options_given(l->options, options[i])) return true;
  }
  const char *const engine = ot_options_text(l->options, "engine");
  const bool known =
      ot_text_equal(engine, ot_engine_orthant.name) || is_preset(l, OT_PRESET_ENGINE, "engine");
  return !known || !l->plan->run || l->plan->job->cluster->measured.cores > 0;
}

// ---- the page ----

// An element ends at its end tag, also inside a text of JSON.
static void put_script_text(const char *text, ot_text_builder *out) {
  for (const char *at = text; *at != '\0';) {
    const size_t plain = strcspn(at, "<");
    ot_text_append(out, at, (int64_t)plain);
    at += plain;
    if (*at == '<') ot_text_put(out, "\\u003c");
    at += *at == '<';
  }
}

static void put_given(const live *l, ot_text_builder *out) {
  ot_text_put(out, "{\"state\":");
  put_script_text(state_of(l), out);
  ot_text_put(out, ",\"settings\":");
  put_script_text(settings_of(l), out);
  ot_text_put(out, ",\"files\":");
  put_script_text(files_of(l), out);
  ot_text_put(out, ",\"answer\":");
  put_script_text(ot_plan_json(l->plan, l->arena), out);
  ot_text_put(out, "}");
}

// The style and body of the report.
static void put_report(const char *report, ot_text_builder *out) {
  const char *const style = strstr(report, "<style>"), *const style_end = strstr(style, "</style>");
  const char *const body = strstr(report, "<body>"), *const body_end = strstr(body, "</body>");
  ot_text_append(out, style, style_end - style);
  ot_text_put(out, "</style>");
  ot_text_append(out, body + strlen("<body>"), body_end - body - (int64_t)strlen("<body>"));
}

// The page up to the end of `mark`, from *at on, which moves there.
static ot_status pass_mark(const char *path, const char *mark, const char **at,
                           ot_text_builder *out) {
  const char *const found = strstr(*at, mark);
  OT_CHECK(found, OT_ENVIRONMENT, "%s is no page of this program: it lacks %s (make page)", path,
           mark);
  const char *const end = found + strlen(mark);
  ot_text_append(out, *at, end - *at);
  *at = end;
  return OT_OK;
}

ot_status ot_plan_live_write(const ot_options *options, const ot_plan_page *plan,
                             ot_text_builder *out) {
  const live l = {.options = options,
                  .plan = plan,
                  .presets = ot_installed_presets(out->arena),
                  .arena = out->arena};
  const char *const path = ot_installed_page(l.arena);
  if (!path || is_of_program(&l)) return ot_plan_html(plan, out);
  ot_text_builder report = {.arena = l.arena};
  char *page;
  int64_t bytes;
  OT_TRY(ot_plan_html(plan, &report));
  OT_TRY(ot_disk_read(l.arena, path, PAGE_BYTES_MAX, &page, &bytes));
  const char *at = page;
  OT_TRY(pass_mark(path, "<noscript>", &at, out));
  put_report(ot_text_builder_text(&report), out);
  OT_TRY(pass_mark(path, "id=\"given\">", &at, out));
  put_given(&l, out);
  ot_text_put(out, at);
  return OT_OK;
}
