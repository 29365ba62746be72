// SPDX-License-Identifier: Apache-2.0
// `orthant train`: runs a training run, or checks it (--dry-run).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/json_writer.h"
#include "cli/run_options.h"
#include "cli/verbs.h"
#include "train/loop.h"

typedef struct talk {
  bool terminal;         // the status line is written over itself
  bool line_is_open;     // a status line stands without its end
  ot_json_writer *json;  // collects validation losses, or null
  double last_status_s;
} talk;

static int terminal_columns(void) {
  struct winsize size;
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

static void end_line(talk *t) {
  if (t->line_is_open) fputc('\n', stderr);
  t->line_is_open = false;
}

static void say_status(talk *t, const ot_status_line *status) {
  char line[256];
  // A terminal is not written faster than anyone reads; the last step always is.
  const double now_s = ot_device_now_s();
  const bool last = status->step == status->num_steps;
  if (t->terminal && !last && now_s - t->last_status_s < 0.1) return;
  t->last_status_s = now_s;
  ot_status_line_print(line, sizeof line, status, t->terminal ? terminal_columns() : 0);
  fprintf(stderr, t->terminal ? "\r\033[K%s" : "%s\n", line);
  t->line_is_open = t->terminal;
  fflush(stderr);
}

static void hear(void *context, const ot_loop_event *event) {
  talk *const t = context;
  switch (event->kind) {
    case OT_LOOP_STATUS:
      say_status(t, event->status);
      return;
    case OT_LOOP_NOTE:
      end_line(t);
      fprintf(stderr, "%s\n", event->text);
      return;
    case OT_LOOP_VALIDATION:
      end_line(t);
      fprintf(stderr, "step %lld  validation%s%s  loss %.4f\n", (long long)event->step,
              event->name[0] ? " " : "", event->name, event->loss);
      if (!t->json) return;
      ot_json_object(t->json, NULL);
      ot_json_integer(t->json, "step", event->step);
      ot_json_text(t->json, "set", event->name);
      ot_json_real(t->json, "loss", event->loss);
      ot_json_end(t->json);
      return;
  }
  OT_UNREACHABLE();
}

// FILE, or FILE:FROM-TO (completed steps).
static ot_status read_trace(const char *text, ot_arena *arena, ot_loop_request *request) {
  const char *const colon = strrchr(text, ':');
  request->trace_path = text;
  if (!colon) return OT_OK;
  char *end = NULL;
  request->trace_from = strtoll(colon + 1, &end, 10);
  const bool range = end != colon + 1 && *end == '-';
  if (range) request->trace_to = strtoll(end + 1, &end, 10);
  const bool fits =
      range && *end == '\0' && request->trace_from >= 1 && request->trace_to >= request->trace_from;
  OT_CHECK(fits, OT_USAGE, "--trace takes FILE or FILE:FROM-TO with steps from 1, not %s", text);
  request->trace_path = ot_arena_text(arena, text, colon - text);
  return OT_OK;
}

static void read_resume(const char *text, ot_loop_request *request) {
  request->resume_path = text;
  request->resume = strcmp(text, "auto") == 0    ? OT_RESUME_AUTO
                    : strcmp(text, "never") == 0 ? OT_RESUME_NEVER
                                                 : OT_RESUME_FROM;
}

// Ranks come from --ranks or a launcher; what is not built yet is refused, never ignored.
static ot_status check_ranks(const ot_options *options) {
  static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
  const int64_t ranks = ot_options_integer(options, "ranks");
  OT_CHECK(ranks == 1, OT_ENVIRONMENT, "--ranks %lld: this build trains on one rank",
           (long long)ranks);
  for (int i = 0; i < 3; i++) {
    const char *const value = getenv(sizes[i]);
    OT_CHECK(!value || strcmp(value, "1") == 0, OT_RANKS,
             "the launcher started %s processes (%s), this build trains on one rank", value,
             sizes[i]);
  }
  return OT_OK;
}

static ot_status check_degrees(const ot_run *run) {
  const ot_run_parallel *const p = &run->parallel;
  const struct {
    const char *name;
    int degree;
  } degrees[] = {
      {"tp", p->tp}, {"pp", p->pp},   {"vpp", p->vpp}, {"cp", p->cp},
      {"ep", p->ep}, {"etp", p->etp}, {"dp", p->dp},   {"dp_replicate", p->dp_replicate}};
  for (int i = 0; i < OT_COUNT(degrees); i++) {
    OT_CHECK(degrees[i].degree <= 1, OT_RANKS, "parallel: %s=%d needs %d ranks, there is 1",
             degrees[i].name, degrees[i].degree, degrees[i].degree);
  }
  return OT_OK;
}

static ot_status train(const ot_options *options, ot_arena *arena, talk *t) {
  ot_config config;
  OT_TRY(check_ranks(options));
  OT_TRY(ot_run_options_load(options, arena, &config));
  OT_TRY(check_degrees(&config.run));
  ot_loop_request request = {
      .run = &config.run,
      .settings = config.settings,
      .show_batch = ot_options_flag(options, "show-batch"),
      .sink = hear,
      .context = t,
  };
  read_resume(ot_options_text(options, "resume"), &request);
  const char *const trace = ot_options_text(options, "trace");
  if (trace) OT_TRY(read_trace(trace, arena, &request));
  if (ot_options_flag(options, "dry-run")) return ot_loop_dry_run(&request);
  const ot_status status = ot_loop_run(&request);
  end_line(t);
  OT_TRY(status);
  fprintf(stderr, "done: %s\n", config.run.output);
  return OT_OK;
}

static ot_status run(const ot_options *options) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_json_writer json = ot_json_begin(&arena, 2);
  talk t = {.terminal = isatty(STDERR_FILENO), .json = ot_options_json(options) ? &json : NULL};
  if (t.json) {
    ot_json_object(&json, NULL);
    ot_json_array(&json, "validation");
  }
  const ot_status status = train(options, &arena, &t);
  if (t.json && status == OT_OK) {
    ot_json_end(&json);
    ot_json_end(&json);
    puts(json.text);
  }
  ot_heap_release(&heap);
  return status;
}

static const ot_option rows[] = {
    {.name = "ranks",
     .kind = OT_OPTION_INTEGER,
     .value = "N",
     .fallback = "1",
     .minimum = 1,
     .maximum = 1 << 20,
     .help = "ranks as threads of this process"},
    {.name = "set",
     .kind = OT_OPTION_SETTING,
     .value = "KEY=VALUE",
     .help = "override a setting; lists as [a, b]"},
    {.name = "resume",
     .kind = OT_OPTION_TEXT,
     .value = "auto|never|DIR",
     .fallback = "auto",
     .help = "go on from the newest checkpoint in output, never, or from DIR"},
    {.name = "dry-run",
     .kind = OT_OPTION_FLAG,
     .help = "check files, memory and disk, print the bill, train nothing"},
    {.name = "show-batch", .kind = OT_OPTION_FLAG, .help = "print the first sequence as text"},
    {.name = "trace",
     .kind = OT_OPTION_TEXT,
     .value = "FILE[:FROM-TO]",
     .help = "Chrome trace of these steps (the third of this run)"},
};

const ot_verb ot_verb_train = {
    .name = "train",
    .summary = "train a model",
    .arguments = "RUN.yaml",
    .min_arguments = 1,
    .max_arguments = 1,
    .details =
        "Writes to the run's `output`: config.yaml, metrics.jsonl, tensorboard/, checkpoints/.\n"
        "SIGTERM, SIGUSR1 or the first Ctrl-C: finish the step, save, exit 75; the same command\n"
        "goes on from there, bit for bit.",
    .examples =
        "  orthant train run.yaml\n"
        "  orthant train run.yaml --dry-run\n"
        "  orthant train run.yaml --set optimizer.lr=1e-3 --trace step.json:10-12",
    .options = rows,
    .num_options = OT_COUNT(rows),
    .json = true,
    .run = run,
};
