// SPDX-License-Identifier: Apache-2.0
// `orthant rl`: a run that learns from rewards, or its forecast (--dry-run).
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json_writer.h"
#include "base/quote.h"
#include "base/text.h"
#include "base/text_builder.h"
#include "cli/installed.h"
#include "cli/output.h"
#include "cli/output_queue.h"
#include "cli/ranks.h"
#include "cli/run_options.h"
#include "cli/verbs.h"
#include "describe/run_keys.h"
#include "files/disk.h"
#include "host/clock.h"
#include "host/cores.h"
#include "launch/child_keeper.h"
#include "launch/child_socket.h"
#include "rl/generator_service.h"
#include "rl/rl_run.h"
#include "runtime/stop_signal.h"

// ---- forecasts ----

static void write_forecast(ot_json_writer *w, const char *key, const ot_rl_forecast *f) {
  ot_json_object(w, key);
  ot_json_real(w, "tokens_per_second", f->tokens_per_s);
  ot_json_real(w, "updates_per_second", f->updates_per_s);
  ot_json_real(w, "generators_busy", f->generators_busy);
  ot_json_real(w, "trainers_busy", f->trainers_busy);
  ot_json_real(w, "running", f->running);
  ot_json_real(w, "queue", f->left);
  ot_json_real(w, "group_wait_updates", f->wait);
  ot_json_real(w, "lag", f->lag);
  ot_json_real(w, "first_lag", f->first_lag);
  if (f->lag_p99 >= 0) ot_json_integer(w, "lag_p99", f->lag_p99);
  ot_json_integer(w, "lag_max", f->lag_max);
  ot_json_end(w);
}

static void write_fleet(ot_json_writer *w, const ot_rl_fleet *fleet) {
  ot_json_integer(w, "generators", ot_rl_fleet_generators(fleet));
  ot_json_integer(w, "trainers", ot_rl_fleet_trainers(fleet));
  ot_json_integer(w, "slots", fleet->slots);
}

static void print_row(const char *name, const ot_rl_forecast *f) {
  printf("%-22s %9.4g %10.4g %8.0f%% %7.0f%% %7.2f %5lld\n", name, f->tokens_per_s,
         f->updates_per_s, 100 * f->generators_busy, 100 * f->trainers_busy, f->lag,
         (long long)f->lag_max);
}

static void print_head(const char *name) {
  printf("%-22s %9s %10s %9s %8s %7s %5s\n", name, "tokens/s", "updates/s", "generate", "train",
         "lag", "max");
}

static void print_split(const ot_rl_split *split, ot_arena *arena) {
  print_head("generators x slots");
  for (int i = 0; i < split->num_choices; i++) {
    const ot_rl_choice *const c = &split->choices[i];
    print_row(ot_arena_format(arena, "%d of %d x %d", c->fleet.generators, c->fleet.workers,
                              c->fleet.slots),
              &c->played);
  }
  print_row("synchronous", &split->synchronous.played);
  for (int i = 0; i < split->num_reasons; i++) printf("%s\n", split->reasons[i]);
}

static void print_split_json(const ot_rl_split *split, ot_arena *arena) {
  ot_json_writer w = ot_json_begin(arena, 2);
  ot_json_object(&w, NULL);
  ot_json_array(&w, "splits");
  for (int i = 0; i < split->num_choices; i++) {
    ot_json_object(&w, NULL);
    write_fleet(&w, &split->choices[i].fleet);
    write_forecast(&w, "closed_form", &split->choices[i].closed);
    write_forecast(&w, "played", &split->choices[i].played);
    ot_json_end(&w);
  }
  ot_json_end(&w);
  write_forecast(&w, "synchronous", &split->synchronous.played);
  ot_json_array(&w, "why");
  for (int i = 0; i < split->num_reasons; i++) ot_json_text(&w, NULL, split->reasons[i]);
  ot_json_end(&w);
  ot_json_end(&w);
  puts(w.text);
}

static ot_status load_cluster(const char *name, ot_arena *arena, ot_cluster *cluster) {
  const ot_presets presets = ot_installed_presets(arena);
  bool found;
  OT_TRY(ot_cluster_file_load(name, &presets, arena, cluster, &found));
  OT_CHECK(found, OT_ENVIRONMENT, "this machine was never measured (`orthant bench` does it)");
  return OT_OK;
}

static void print_prices(const ot_cluster *cluster, const ot_rl_prices *prices) {
  const ot_rl_costs *const c = &prices->costs;
  printf(
      "%s, one device a worker, memory for %lld slots\n"
      "weights: %.4g MB in %d buckets of up to %.4g MB\n"
      "costs: {decode_step: %.4g, row: %.4g, train_token: %.4g, publish: %.4g}\n",
      cluster->name, (long long)prices->most_slots, 1e-6 * (double)prices->weight_bytes,
      prices->num_buckets, 1e-6 * (double)prices->largest_bucket_bytes, c->decode_s, c->row_s,
      c->train_token_s, c->publish_s);
}

static ot_status forecast(const ot_options *options, const ot_run *run, ot_arena *arena) {
  const char *const name = ot_options_text(options, "cluster");
  ot_cluster *const cluster = ot_arena_take(arena, sizeof *cluster);
  ot_rl_question question = {.prompt_tokens = ot_options_integer(options, "prompt-tokens"),
                             .dollars_per_worker_hour = ot_options_real(options, "price")};
  ot_rl_split split;
  ot_rl_prices prices;
  if (name) {
    OT_TRY(load_cluster(name, arena, cluster));
    question.cluster = cluster;
  }
  OT_TRY(ot_rl_choose_split(run, &question, arena, &split, &prices));
  if (ot_options_json(options)) {
    print_split_json(&split, arena);
    return OT_OK;
  }
  if (name) print_prices(cluster, &prices);
  print_split(&split, arena);
  return OT_OK;
}

// ---- the run ----

static void show(void *context, const ot_rl_event *event) {
  const ot_run *const run = context;
  const ot_rl_update *const u = event->update;
  switch (event->kind) {
    case OT_RL_EVENT_NOTE:
      fprintf(stderr, "%s\n", event->text);
      return;
    case OT_RL_EVENT_BATCH:
      return;
    case OT_RL_EVENT_VALIDATION:
      fprintf(stderr, "update %lld, time %.6g: validation reward %.4f\n", (long long)event->version,
              event->time_s, event->reward);
      return;
    case OT_RL_EVENT_UPDATE:
      break;
  }
  if (event->version % run->log.every != 0 && event->version != event->updates) return;
  fprintf(stderr,
          "update %lld/%lld, time %.6g: reward %.4f, length %.1f, lag %.2f (at most %.0f), "
          "ESS %.4f, KL %.2g, grad norm %.3g\n",
          (long long)event->version, (long long)event->updates, event->time_s, u->reward, u->length,
          event->lag, event->lag_max, u->policy.ess, u->policy.kl, u->step.gradient_norm);
}

static void print_summary(const ot_rl_summary *s, ot_arena *arena) {
  print_head(
      ot_arena_format(arena, "%d x %d slots", ot_rl_fleet_generators(&s->fleet), s->fleet.slots));
  if (s->predicted_from > 0) print_row("predicted", &s->predicted);
  print_row("measured", &s->measured);
  printf("%lld updates on %lld responses, %lld tokens in %s %.6g", (long long)s->record.updates,
         (long long)s->record.sequences, (long long)s->record.tokens,
         s->real ? "seconds" : "simulated time", s->record.time_s);
  if (!isnan(s->last_reward)) {
    printf("; validation reward %.4f at first, %.4f at last", s->first_reward, s->last_reward);
  }
  printf("\nsaved %s\n", s->checkpoint);
}

static void print_summary_json(const ot_rl_summary *s, ot_arena *arena) {
  ot_json_writer w = ot_json_begin(arena, 2);
  ot_json_object(&w, NULL);
  write_fleet(&w, &s->fleet);
  ot_json_integer(&w, "updates", s->record.updates);
  ot_json_integer(&w, "sequences", s->record.sequences);
  ot_json_integer(&w, "tokens", s->record.tokens);
  ot_json_integer(&w, "cancelled", s->record.cancelled);
  ot_json_integer(&w, "dropped", s->record.dropped);
  ot_json_real(&w, s->real ? "seconds" : "simulated_seconds", s->record.time_s);
  if (s->predicted_from > 0) write_forecast(&w, "predicted", &s->predicted);
  write_forecast(&w, "measured", &s->measured);
  ot_json_real(&w, "first_val_reward", s->first_reward);
  ot_json_real(&w, "last_val_reward", s->last_reward);
  ot_json_text(&w, "checkpoint", s->checkpoint);
  ot_json_end(&w);
  puts(w.text);
}

// Shared by the ranks of a process.
typedef struct training {
  const ot_options *options;
  ot_arena *arena;
  ot_config config;
  int num_processes;
  pid_t *processes;        // [rl.generators] of the real clock
  ot_rl_summary *summary;  // of the leading rank, once the run is done; else null
} training;

// ---- generators as processes ----

// `word` with the first `place` in it replaced.
static const char *put_at(const training *t, const char *word, const char *place, const char *by) {
  const char *const at = strstr(word, place);
  if (!at) return word;
  return ot_arena_format(t->arena, "%.*s%s%s", (int)(at - word), word, by, at + strlen(place));
}

// The words as a shell reads them.
static const char *quoted(const training *t, const char *const *words) {
  ot_text_builder text = {.arena = t->arena};
  for (int i = 0; words[i]; i++) {
    if (i > 0) ot_text_put(&text, " ");
    ot_quote_shell(&text, words[i]);
  }
  return ot_text_builder_text(&text);
}

// This command as generator `index` of `count`.
static const char **own_command(const training *t, int index, int count) {
  const int sets = ot_options_count(t->options, "set");
  const char **const words = ot_arena_array(t->arena, 2 * sets + 6, sizeof *words);
  const char **at = words;
  *at++ = ot_disk_own_program(t->arena);
  *at++ = "rl";
  *at++ = ot_options_argument(t->options, 0);
  for (int i = 0; i < sets; i++) {
    *at++ = "--set";
    *at++ = ot_options_values(t->options, "set")[i];
  }
  *at++ = "--generator";
  *at++ = ot_arena_format(t->arena, "%d/%d", index, count);
  return words;
}

// With the words of rl.launch before it, of which one may have it as "{command}", for a shell. "{}"
// is the number of the generator.
static const char *const *command_of(const training *t, int index, int count) {
  const ot_run_rl *const rl = &t->config.run.rl;
  const char **const own = own_command(t, index, count);
  const char *const number = ot_arena_format(t->arena, "%d", index);
  const char *const command = quoted(t, own);
  int length = 0;
  while (own[length]) length++;
  const char **const words = ot_arena_array(t->arena, rl->num_launch + length + 1, sizeof *words);
  bool placed = false;
  for (int64_t i = 0; i < rl->num_launch; i++) {
    words[i] = put_at(t, rl->launch[i], "{}", number);
    placed = placed || strstr(words[i], "{command}");
    words[i] = put_at(t, words[i], "{command}", command);
  }
  for (int i = 0; i < length && !placed; i++) words[rl->num_launch + i] = own[i];
  return words;
}

static ot_status connect_generator(void *context, int index, int count, int *in, int *out) {
  training *const t = context;
  const ot_child_program program = {.words = command_of(t, index, count), .what = "a generator"};
  OT_CHECK(ot_disk_own_program(t->arena), OT_ENVIRONMENT, "the path of this program is unknown");
  if (!t->processes) t->processes = ot_arena_array(t->arena, count, sizeof *t->processes);
  ot_child_end(t->processes[index]);  // if it is started again
  t->processes[index] = 0;
  OT_TRY(ot_child_socket_start(&program, &t->processes[index], in));
  *out = *in;
  t->num_processes = count;
  return OT_OK;
}

// They end when the trainer is gone; one that does not is killed.
static void end_generators(training *t) {
  static const double patience_s = 10;
  const double until_s = ot_clock_s() + patience_s;
  for (int i = 0; i < t->num_processes; i++) {
    while (t->processes[i] > 0 && waitpid(t->processes[i], NULL, WNOHANG) == 0) {
      if (ot_clock_s() > until_s) ot_child_end(t->processes[i]);
      usleep(2000);
    }
  }
}

static ot_status generate(training *t, const char *place) {
  int index = 0, count = 0;
  const bool read = sscanf(place, "%d/%d", &index, &count) == 2;
  OT_CHECK(read && index >= 0 && index < count, OT_USAGE, "--generator takes I/N, not %s", place);
  const ot_rl_service_request request = {
      .run = &t->config.run, .index = index, .count = count, .in = 0, .out = 1};
  return ot_rl_service_run(&request);
}

static ot_status load(training *t) {
  OT_TRY(ot_run_options_load(t->options, t->arena, &t->config));
  OT_TRY(ot_run_options_check_init(&t->config, t->arena));
  return ot_rl_check(&t->config.run);
}

// On the real clock processes share the cores of this machine.
static void share_cores(ot_run *run, int ranks) {
  if (run->rl.clock != OT_RL_REAL || run->threads > 0) return;
  run->threads = ot_host_threads(run->rl.generators + ranks);
}

static ot_status prepare(void *context, int ranks) {
  training *const t = context;
  ot_mesh mesh;
  OT_TRY(load(t));
  share_cores(&t->config.run, ranks);
  return ot_run_place_failure(ot_mesh_build(&t->config.run.parallel, ranks, &mesh),
                              t->config.settings, t->arena);
}

static void print_result(const training *t, const ot_rl_summary *summary) {
  if (ot_options_json(t->options)) {
    print_summary_json(summary, t->arena);
  } else {
    print_summary(summary, t->arena);
  }
}

static ot_status train_rank(ot_comm *comm, void *context) {
  training *const t = context;
  const ot_run *const run = &t->config.run;
  ot_rl_request request = {.run = run,
                           .settings = t->config.settings,
                           .sink = show,
                           .context = (void *)run,
                           .replay = ot_options_text(t->options, "replay"),
                           .connect = connect_generator,
                           .connect_context = t};
  OT_TRY(ot_world_create(&run->parallel, comm, &request.world));
  const bool leads = ot_world_is_leader(request.world);
  if (leads) ot_output_notes(&t->config.notes);
  ot_rl_summary *const summary = leads ? ot_arena_take(t->arena, sizeof *summary) : NULL;
  const ot_status status = ot_rl_run(&request, t->arena, summary);
  ot_world_destroy(&request.world);
  if (leads) end_generators(t);
  if (leads && status == OT_OK) t->summary = summary;
  // All ranks stop together; one reports it.
  return status == OT_STOPPED && !leads ? ot_fail(status, "%s", "") : status;
}

static ot_status run(const ot_options *options) {
  training *const t = &(training){.options = options, .arena = ot_options_arena(options)};
  const bool dry = ot_options_flag(options, "dry-run");
  const char *const generator = ot_options_text(options, "generator");
  if (!dry && !generator) {
    ot_stop_signal_install(ot_ranks_end_at_start);
    OT_TRY(ot_ranks_run(options, &(ot_ranks_verb){prepare, train_rank, t}));
    ot_stop_signal_release();  // the reader of the result may not read
    if (t->summary) print_result(t, t->summary);
    return OT_OK;
  }
  OT_TRY(load(t));
  if (generator) {
    ot_output_queue_begin();
    share_cores(&t->config.run, 1);
    return generate(t, generator);
  }
  ot_output_notes(&t->config.notes);
  return forecast(options, &t->config.run, t->arena);
}

static const ot_option rows[] = {
    {"dry-run", OT_OPTION_FLAG, .help = "only forecast: splits of the workers, speed and lag"},
    {"prompt-tokens", OT_OPTION_INTEGER, "N", "16", 1, 1 << 24,
     .help = "of a prompt on average, for --dry-run"},
    {"cluster", OT_OPTION_TEXT, "C",
     .help = "with --dry-run: its prices instead of rl.costs; preset or cluster file"},
    {"price", OT_OPTION_REAL, "DOLLARS", "0", 0, 1e9,
     .help = "of a worker and hour, for --dry-run with rl.costs in seconds"},
    {"replay", OT_OPTION_TEXT, "TAPE",
     .help = "play the tape of a run on the real clock again: the same bits"},
    {"generator", OT_OPTION_TEXT, "I/N",
     .help = "be generator I of N of the real clock: the trainer starts it"},
    {.shared = &ot_option_ranks},
    {.shared = &ot_option_set},
};

const ot_verb ot_verb_rl = {
    .name = "rl",
    .summary = "train a model on rewards of what it writes",
    .arguments = "RUN.yaml",
    .min_arguments = 1,
    .max_arguments = 1,
    .details =
        "Generators write responses to the prompts of rl.prompts, a trainer learns from their\n"
        "rewards, and generators take new weights between two tokens (rl.updates: in_flight) or\n"
        "after each batch (synchronous). The clock is simulated by the prices of rl.costs, so a\n"
        "run gives the same bits under any load; rl.workers are those of the clock. Ranks train,\n"
        "in a layout as `orthant train` has it; the first one decodes. With rl.clock: real\n"
        "generators are processes, started again when they end, and --replay gives the bits of\n"
        "such a run again. metrics.jsonl has reward, lag, effective sample size and KL of each\n"
        "update.\n"
        "The same command continues a run from its newest checkpoint (checkpoint.every). SIGTERM\n"
        "or Ctrl-C saves after the update and ends with exit code 75. docs/rl.md explains the\n"
        "keys of rl:.",
    .examples =
        "  orthant rl run.yaml --dry-run --cluster h100 --price 3\n"
        "  orthant rl run.yaml --set checkpoint.every=100     # again: continues\n"
        "  orthant audit rl run.yaml --steps 6\n"
        "  orthant rl run.yaml --set rl.updates=synchronous --set output=runs/synchronous",
    .options = rows,
    .num_options = OT_COUNT(rows),
    .json = true,
    .run = run,
};
