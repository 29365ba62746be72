// SPDX-License-Identifier: Apache-2.0
// `orthant report`: what a run directory tells of its run. Reads only, so a running run is reported
// too.
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "checkpoint/checkpoint_list.h"
#include "cli/installed.h"
#include "cli/verbs.h"
#include "files/config_file.h"
#include "files/output_file.h"
#include "report/run_page.h"

// A run directory has metrics, events, settings or checkpoints.
static ot_status check_directory(const char *path, ot_arena *arena) {
  static const char *const files[] = {"config.yaml", "metrics.jsonl", OT_RUN_EVENTS_FILE};
  for (int i = 0; i < OT_COUNT(files); i++)
    if (ot_disk_is_file(ot_disk_join(arena, path, files[i]))) return OT_OK;
  if (ot_disk_is_directory(ot_disk_join(arena, path, "checkpoints"))) return OT_OK;
  const bool exists = ot_disk_is_directory(path);
  ot_fail(OT_USAGE,
          exists ? "%s is not a run directory: it has no config.yaml, metrics.jsonl or checkpoints"
                 : "%s is not a directory",
          path);
  return ot_fail_hint(OT_USAGE, "give the `output` of a run");
}

// The process that the lock names, "process 7 on n1"; it may have ended.
static void find_holder(ot_run_page *page, ot_arena *arena) {
  static const char lead[] = "process ";
  enum { HOLDER_MAX = 4096 };
  char *text = NULL;
  char host[256] = "";
  int64_t bytes = 0;
  const char *const path = ot_disk_join(arena, page->path, ".lock");
  if (!ot_disk_is_file(path) || ot_disk_read(arena, path, HOLDER_MAX, &text, &bytes) != OT_OK)
    return;
  if (!ot_text_starts_with(text, lead)) return;
  page->holder = text;
  const long pid = strtol(text + sizeof lead - 1, NULL, 10);
  gethostname(host, sizeof host - 1);
  const char *const on = strstr(text, " on ");
  if (!on || !ot_text_equal(on + 4, host) || pid <= 0) return;
  page->alive = kill((pid_t)pid, 0) == 0 || errno == EPERM;
  if (!page->alive) page->holder = NULL;
}

// A run whose settings cannot be read is reported without them.
static void read_settings(ot_run_page *page, ot_arena *arena) {
  ot_config *const config = ot_arena_take(arena, sizeof *config);
  ot_mesh *const mesh = ot_arena_take(arena, sizeof *mesh);
  const ot_config_request request = {.path = ot_disk_join(arena, page->path, "config.yaml"),
                                     .presets = ot_installed_presets(arena)};
  if (!ot_disk_is_file(request.path)) {
    page->no_run = "the run has no config.yaml";
    return;
  }
  if (ot_config_load(&request, arena, config) != OT_OK) {
    page->no_run = ot_arena_format(arena, "%s", ot_fail_message());
    return;
  }
  page->run = &config->run;
  page->parameters = ot_model_parameters(&config->run.model);
  const ot_run_account *const a = &page->record->account;
  const int64_t ranks = a->num_attempts > 0 ? a->attempts[a->num_attempts - 1].ranks : 0;
  if (ranks > 0 && ot_mesh_build(&config->run.parallel, (int)ranks, mesh) == OT_OK)
    page->mesh = mesh;
}

// The folder's name, after that of its parent where many runs have it: "first/run".
static const char *name_of(const char *path, ot_arena *arena) {
  char absolute[PATH_MAX];
  if (!realpath(path, absolute)) return NULL;
  const char *const name = ot_disk_base_name(absolute);
  if (!ot_text_equal(name, "run")) return ot_arena_format(arena, "%s", name);
  const char *const parent = ot_disk_base_name(dirname(absolute));
  return ot_arena_format(arena, "%s/run", parent);
}

static ot_status read_page(const char *path, ot_arena *arena, ot_run_page *page) {
  ot_run_record *const record = ot_arena_take(arena, sizeof *record);
  *page = (ot_run_page){.path = path, .name = name_of(path, arena), .record = record};
  OT_TRY(check_directory(path, arena));
  OT_TRY(ot_run_record_read(arena, ot_disk_join(arena, path, "metrics.jsonl"),
                            ot_disk_join(arena, path, OT_RUN_EVENTS_FILE), record));
  ot_checkpoint_steps steps;
  OT_TRY(ot_checkpoint_list(arena, ot_disk_join(arena, path, "checkpoints"), &steps));
  page->num_checkpoints = steps.count;
  page->checkpoints = steps.step;
  find_holder(page, arena);
  read_settings(page, arena);
  return OT_OK;
}

static ot_status write_charts(const ot_figure_list *list, const char *directory, ot_arena *arena) {
  OT_TRY(ot_disk_make_directory(directory));
  for (int64_t i = 0; i < list->count; i++) {
    ot_text_builder text = {.arena = arena};
    ot_figure_print(&list->figure[i], &text);
    const char *const name = ot_figure_file(&list->figure[i], arena);
    OT_TRY(ot_output_file_replace(ot_disk_join(arena, directory, name), ot_text_builder_text(&text),
                                  text.length));
  }
  fprintf(stderr, "charts: %lld files in %s\n", (long long)list->count, directory);
  return OT_OK;
}

static ot_status report(const ot_options *options) {
  ot_arena *const arena = ot_options_arena(options);
  const char *const html = ot_options_text(options, "html");
  ot_run_page page;
  if (html && ot_output_file_is_stdout(html) && ot_options_json(options)) {
    ot_fail(OT_USAGE, "--html %s and --json both print on stdout", html);
    return ot_fail_hint(OT_USAGE, "give --html a file of its own");
  }
  OT_TRY(read_page(ot_options_argument(options, 0), arena, &page));
  const char *const svg = ot_options_text(options, "svg");
  ot_text_builder drawn = {.arena = arena};
  ot_figure_list figures = {0};
  if (html || svg) ot_run_html(&page, &drawn, &figures);
  if (svg) OT_TRY(write_charts(&figures, svg, arena));
  if (html) {
    OT_TRY(ot_output_file_replace(html, ot_text_builder_text(&drawn), drawn.length));
    if (ot_output_file_is_stdout(html)) return OT_OK;
    fprintf(stderr, "page: %s\n", html);
  }
  ot_text_builder text = {.arena = arena};
  if (ot_options_json(options)) {
    puts(ot_run_json(&page, arena));
    return OT_OK;
  }
  ot_run_report(&page, &text);
  fputs(ot_text_builder_text(&text), stdout);
  return OT_OK;
}

static const ot_option rows[] = {
    {"html", OT_OPTION_PATH, "FILE", .help = "also write a page with curves, without scripts"},
    {"svg", OT_OPTION_PATH, "DIR", .help = "also write each curve and chart as a file NAME.svg"},
};

const ot_verb ot_verb_report = {
    .name = "report",
    .summary = "where a run stands: loss, speed, goodput, failures",
    .arguments = "RUN",
    .min_arguments = 1,
    .max_arguments = 1,
    .details =
        "RUN is a run directory, of a run that has ended or still runs. The report compares the\n"
        "measured step, MFU and memory with the prediction, and says where the time went: steps\n"
        "that count, steps that were repeated, checkpoints, restarts (detection, waiting,\n"
        "loading), time in which nothing ran. Percentages add up to 100; what no event explains\n"
        "is `other`. `expected` is the goodput that the model of `orthant plan` gives for\n"
        "failures, saves and restarts as measured, with the interval of saves that is best for\n"
        "them.",
    .examples =
        "  orthant report runs/demo\n"
        "  orthant report runs/demo --html report.html\n"
        "  orthant report runs/demo --svg charts",
    .options = rows,
    .num_options = OT_COUNT(rows),
    .json = true,
    .run = report,
};
