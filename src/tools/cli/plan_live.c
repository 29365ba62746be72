// SPDX-License-Identifier: Apache-2.0
// The plan and the options as JSON in the page's element "given"; the report in its <noscript>.
#include "cli/plan_live.h"

#include <string.h>

#include "base/text.h"
#include "cli/installed.h"
#include "cli/plan_compare.h"
#include "describe/cluster_keys.h"
#include "describe/model_keys.h"
#include "files/disk.h"
#include "files/tree_file.h"
#include "report/markup.h"
#include "report/plan_report.h"

enum { PAGE_BYTES_MAX = 1 << 22 };

typedef struct live {
  const ot_options *options;
  const ot_plan_page *plan;
  const ot_cluster *cluster;
  const ot_plan_live_rows *rows;  // of a sweep; null: none
  ot_presets presets;
  ot_arena *arena;
  const char *script;           // of --from; null: none
  int num_compared;             // of --compare
  const char *const *compared;  // [num_compared] files
  const char **texts;           // [num_compared] as the page takes them
} live;

// ---- state: the knobs of the page ----

static bool is_preset(const live *l, ot_preset_kind kind, const char *option) {
  const char *const name = ot_options_text(l->options, option);
  return name && ot_presets_find(&l->presets, kind, name, l->arena) != NULL;
}

static void put_state(const live *l, ot_json_writer *w) {
  static const struct {
    const char *option;
    ot_preset_kind kind;
  } presets[] = {
      {"model", OT_PRESET_MODEL}, {"cluster", OT_PRESET_CLUSTER}, {"engine", OT_PRESET_ENGINE}};
  const ot_options *const o = l->options;
  ot_json_object(w, "state");
  for (int i = 0; i < OT_COUNT(presets); i++) {
    const char *const name = ot_options_text(o, presets[i].option);
    const bool own = name && ot_text_equal(name, ot_engine_orthant.name);
    const bool asked = presets[i].kind != OT_PRESET_ENGINE || ot_options_given(o, "engine");
    if (asked && (own || is_preset(l, presets[i].kind, presets[i].option)))
      ot_json_text(w, presets[i].option, name);
  }
  const ot_node *const given = ot_plan_question(o, l->arena);
  for (const ot_node *n = given->first; n; n = n->next) ot_json_text(w, n->key, n->text);
  ot_json_end(w);
}

static void put_settings(const live *l, ot_json_writer *w) {
  ot_json_object(w, "settings");
  for (int i = 0; i < ot_options_count(l->options, "set"); i++) {
    const char *const set = ot_options_values(l->options, "set")[i];
    const size_t length = strcspn(set, "=");
    const char *const value = set[length] == '=' ? set + length + 1 : "";
    ot_json_text(w, ot_arena_text(l->arena, set, (int64_t)length), value);
  }
  ot_json_end(w);
}

static void put_text(const char *key, const char *name, const char *text, ot_json_writer *w) {
  ot_json_object(w, key);
  ot_json_text(w, "name", ot_disk_base_name(name));
  ot_json_text(w, "text", text);
  ot_json_end(w);
}

static void put_tree(const live *l, const char *key, const char *name, const ot_node *tree,
                     ot_json_writer *w) {
  ot_json_writer text = ot_json_begin(l->arena, 0);
  ot_node_write_json(tree, NULL, &text);
  put_text(key, name, text.text, w);
}

// Models, clusters and engines that are no presets, and a script, as the page would have them
// dropped on it.
static ot_status put_files(const live *l, ot_json_writer *w) {
  const ot_job *const job = l->plan->job;
  const char *const engine = ot_options_text(l->options, "engine");
  ot_node *tree;
  ot_json_object(w, "files");
  if (l->script) {
    put_text("script", ot_options_text(l->options, "from"), l->script, w);
  } else if (!is_preset(l, OT_PRESET_MODEL, "model")) {
    tree = ot_model_write_config(job->model, l->arena);
    put_tree(l, "model", l->plan->model_name, tree, w);
  }
  if (!is_preset(l, OT_PRESET_CLUSTER, "cluster")) {
    put_tree(l, "cluster", ot_arena_format(l->arena, "%s.yaml", l->cluster->name),
             ot_cluster_write(l->cluster, l->arena), w);
  }
  if (!ot_text_equal(engine, ot_engine_orthant.name) && !is_preset(l, OT_PRESET_ENGINE, "engine")) {
    ot_text_builder yaml = {.arena = l->arena};
    OT_TRY(ot_tree_load(engine, l->arena, &tree));
    ot_node_print_yaml(tree, 0, &yaml);
    put_text("engine", engine, ot_text_builder_text(&yaml), w);
  }
  ot_json_end(w);
  ot_json_array(w, "compared");
  for (int i = 0; i < l->num_compared; i++) put_text(NULL, l->compared[i], l->texts[i], w);
  ot_json_end(w);
  return OT_OK;
}

// Reads the files of --from and --compare. `taken`: whether the page can answer the question; only
// the program reads other formats and meets deadlines.
static ot_status read_imports(live *l, bool *taken) {
  const ot_options *const o = l->options;
  const char *const from = ot_options_text(o, "from");
  l->num_compared = ot_options_count(o, "compare");
  l->compared = ot_options_values(o, "compare");
  l->texts = ot_arena_array(l->arena, l->num_compared + 1, sizeof *l->texts);
  if (from) OT_TRY(ot_plan_page_script(from, l->arena, &l->script));
  *taken = (from ? l->script != NULL : l->plan->run != NULL) && !ot_options_given(o, "calibrate") &&
           !ot_options_given(o, "deadline") && !l->plan->teacher;
  for (int i = 0; i < l->num_compared; i++) {
    OT_TRY(ot_plan_page_text(l->compared[i], l->arena, &l->texts[i]));
    *taken = *taken && l->texts[i];
  }
  return OT_OK;
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

static ot_status put_given(const live *l, ot_text_builder *out) {
  ot_json_writer w = ot_json_begin(l->arena, 0);
  ot_json_object(&w, NULL);
  put_state(l, &w);
  put_settings(l, &w);
  OT_TRY(put_files(l, &w));
  ot_json_end(&w);
  w.text[w.length - 1] = '\0';
  put_script_text(w.text, out);
  if (l->rows) {
    ot_text_put(out, ",\"swept\":");
    put_script_text(l->rows->json, out);
  }
  ot_text_put(out, ",\"answer\":");
  put_script_text(ot_plan_json(l->plan, l->arena), out);
  ot_text_put(out, "}");
  return OT_OK;
}

// For readers without scripts: the lines of a sweep, or the style and body of the report.
static ot_status put_report(const live *l, ot_text_builder *out) {
  if (l->rows) {
    ot_markup_element(out, "pre", l->rows->csv);
    return OT_OK;
  }
  ot_text_builder text = {.arena = l->arena};
  OT_TRY(ot_plan_html(l->plan, &text));
  const char *const report = ot_text_builder_text(&text);
  const char *const style = strstr(report, "<style>"), *const style_end = strstr(style, "</style>");
  const char *const body = strstr(report, "<body>"), *const body_end = strstr(body, "</body>");
  ot_text_append(out, style, style_end - style);
  ot_text_put(out, "</style>");
  ot_text_append(out, body + strlen("<body>"), body_end - body - (int64_t)strlen("<body>"));
  return OT_OK;
}

// The report stands alone; a sweep has none.
static ot_status write_alone(const live *l, ot_text_builder *out) {
  if (!l->rows) return ot_plan_html(l->plan, out);
  ot_fail(OT_USAGE, "--html: the page cannot answer this question, so it shows no sweep of it");
  return ot_fail_hint(OT_USAGE, "leave --html out: the lines have all figures");
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
                             const ot_cluster *cluster, const ot_plan_live_rows *rows,
                             ot_text_builder *out) {
  live l = {.options = options,
            .plan = plan,
            .cluster = cluster,
            .rows = rows,
            .presets = ot_installed_presets(out->arena),
            .arena = out->arena};
  const char *const path = ot_installed_page(l.arena);
  bool taken = false;
  if (path) OT_TRY(read_imports(&l, &taken));
  if (!taken) return write_alone(&l, out);
  char *page;
  int64_t bytes;
  OT_TRY(ot_disk_read(l.arena, path, PAGE_BYTES_MAX, &page, &bytes));
  const char *at = page;
  OT_TRY(pass_mark(path, "<noscript>", &at, out));
  OT_TRY(put_report(&l, out));
  OT_TRY(pass_mark(path, "id=\"given\">", &at, out));
  OT_TRY(put_given(&l, out));
  ot_text_put(out, at);
  return OT_OK;
}
