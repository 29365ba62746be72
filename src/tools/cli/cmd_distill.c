// SPDX-License-Identifier: Apache-2.0
// `orthant distill targets`: what a teacher says of the training data of a run, as stores.
#include <stdio.h>

#include "base/json_writer.h"
#include "base/quantity.h"
#include "base/text.h"
#include "cli/installed.h"
#include "cli/output.h"
#include "cli/output_queue.h"
#include "cli/run_options.h"
#include "cli/verbs.h"
#include "distill/make_targets.h"

enum { FORECAST_ROWS = 1000 };  // tokens before the size is forecast
static const double BETWEEN_LINES_S = 5;

typedef struct session {
  const ot_options *options;
  ot_arena *arena;
  ot_config config;
  ot_json_writer json;
  int64_t forecast_done;  // windows of the store when it was told; -1: not yet
  double told_s;
  const char *path;  // of the current store
} session;

static double per(double sum, int64_t n) { return n > 0 ? sum / (double)n : 0; }

// Size and time of a store, once enough tokens were read, and at times.
static void print_forecast(session *s, const ot_targets_progress *p) {
  const int64_t T = s->config.run.data.sequence_length;
  const bool first = s->forecast_done < 0 && p->fresh * T >= FORECAST_ROWS;
  if (!first && (s->forecast_done < 0 || p->seconds - s->told_s < BETWEEN_LINES_S)) return;
  char left[32];
  ot_duration_print(left, sizeof left,
                    p->seconds / (double)p->fresh * (double)(p->windows - p->done));
  fprintf(stderr, "%s: %.0f%%, %.1f bytes a token, %.1f ids; in all %s, %s left\n", p->path,
          100 * (double)p->done / (double)p->windows, p->forecast_bytes / (double)p->tokens,
          per(p->ids, p->targets), ot_figure_bytes(s->arena, (int64_t)p->forecast_bytes), left);
  s->told_s = p->seconds;
  s->forecast_done = p->done;
}

static void print_store(session *s, const ot_targets_progress *p) {
  const double bytes = (double)p->bytes;
  if (ot_options_json(s->options)) {
    ot_json_writer *const json = &s->json;
    ot_json_object(json, NULL);
    ot_json_text(json, "path", p->path);
    ot_json_integer(json, "windows", p->windows);
    ot_json_integer(json, "done", p->done);
    ot_json_integer(json, "new", p->fresh);
    ot_json_integer(json, "bytes", p->bytes);
    ot_json_real(json, "forecast_bytes", p->forecast_bytes);
    ot_json_real(json, "ids_per_token", per(p->ids, p->targets));
    ot_json_real(json, "teacher_loss", per(p->loss, p->targets));
    ot_json_real(json, "teacher_entropy", per(p->entropy, p->targets));
    ot_json_real(json, "seconds", p->seconds);
    ot_json_end(json);
    return;
  }
  printf("%s: %lld of %lld windows", p->path, (long long)p->done, (long long)p->windows);
  if (p->fresh == 0) {
    printf("\n");
    return;
  }
  printf(", %.0f bytes; %.1f ids a token; teacher: loss %.4f, entropy %.4f nats\n", bytes,
         per(p->ids, p->targets), per(p->loss, p->targets), per(p->entropy, p->targets));
}

static void print_progress(void *context, const ot_targets_progress *p) {
  session *const s = context;
  const int64_t most = ot_options_integer(s->options, "windows");
  if (p->path != s->path) s->forecast_done = -1;
  s->path = p->path;
  if (p->fresh > 0) print_forecast(s, p);
  if (p->done == p->windows || (most > 0 && p->fresh >= most)) print_store(s, p);
}

static ot_status make_targets(session *s) {
  const ot_config_request wanted = {
      .path = ot_options_argument(s->options, 1),
      .sets = ot_options_values(s->options, "set"),
      .num_sets = ot_options_count(s->options, "set"),
      .presets = ot_installed_presets(s->arena),
  };
  OT_TRY(ot_config_load(&wanted, s->arena, &s->config));
  ot_output_notes(&s->config.notes);
  const ot_run_distill *const d = &s->config.run.distill;
  OT_CHECK(d->objective == OT_DISTILL_SAMPLED || d->objective == OT_DISTILL_TOP_K, OT_USAGE,
           "distill.objective has no store; allowed: sampled, top_k (%s)", wanted.path);
  OT_CHECK(d->teacher[0] != '\0' && d->from != OT_DISTILL_SERVER, OT_USAGE,
           "a store is made by distill.teacher on this machine, which %s (%s)",
           d->teacher[0] == '\0' ? "is not given" : "from=server leaves out", wanted.path);
  if (d->objective == OT_DISTILL_TOP_K) {
    fprintf(stderr,
            "note: top_k is biased: a student of it becomes too sure of these tokens and forgets "
            "the rest; objective=sampled is not, at the same size\n");
  }
  const ot_targets_request request = {
      .run = &s->config.run,
      .threads = (int)ot_options_integer(s->options, "threads"),
      .most_windows = ot_options_integer(s->options, "windows"),
      .progress = print_progress,
      .context = s,
  };
  return ot_targets_make(&request);
}

static ot_status run(const ot_options *options) {
  session s = {.options = options, .arena = ot_options_arena(options), .forecast_done = -1};
  const char *const what = ot_options_argument(options, 0);
  OT_CHECK(ot_text_equal(what, "targets"), OT_USAGE, "distill: \"%s\" is unknown (try targets)",
           what);
  const bool json = ot_options_json(options);
  ot_output_queue_begin();
  s.json = ot_json_begin(s.arena, 0);
  ot_json_object(&s.json, NULL);
  ot_json_array(&s.json, "stores");
  OT_TRY(make_targets(&s));
  ot_json_end(&s.json);
  ot_json_end(&s.json);
  if (json) puts(s.json.text);
  return OT_OK;
}

static const ot_option rows[] = {
    {"windows", OT_OPTION_INTEGER, "N", "0", 0, INT32_MAX,
     .help = "stop after N windows of each set, to be continued; 0: all"},
    {.shared = &ot_option_threads},
    {.shared = &ot_option_set},
};

const ot_verb ot_verb_distill = {
    .name = "distill",
    .summary = "what a teacher says of training data, to learn from",
    .arguments = "targets RUN.yaml",
    .min_arguments = 2,
    .max_arguments = 2,
    .details =
        "Runs distill.teacher over the training sets of a run and writes PREFIX.teacher next to\n"
        "each: distill.draws ids drawn from its distribution for every token, about 37 bytes. A\n"
        "run with distill: {objective: sampled} learns from them as from data. The expected\n"
        "gradient is that of the whole distribution. Size and time are told after the first\n"
        "tokens; a command that was ended is continued by the same command. A store that was\n"
        "made for other data, another tokenizer, teacher or sequence length is refused.",
    .examples =
        "  orthant distill targets student.yaml --windows 8      size and time\n"
        "  orthant distill targets student.yaml\n"
        "  orthant train student.yaml",
    .options = rows,
    .num_options = OT_COUNT(rows),
    .json = true,
    .run = run,
};
