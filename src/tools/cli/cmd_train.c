// SPDX-License-Identifier: Apache-2.0
// `orthant train`: executes a training run, or checks it (--dry-run).
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "audit/audit.h"
#include "base/backend_rules.h"
#include "base/json_writer.h"
#include "base/quantity.h"
#include "base/quote.h"
#include "base/text.h"
#include "base/text_builder.h"
#include "cli/installed.h"
#include "cli/output.h"
#include "cli/output_queue.h"
#include "cli/ranks.h"
#include "cli/run_options.h"
#include "cli/verbs.h"
#include "distill/teacher_ranks.h"
#include "files/config_file.h"
#include "files/disk.h"
#include "forecast/run_tasks.h"
#include "host/clock.h"
#include "host/heap.h"
#include "launch/supervise.h"
#include "runtime/rank_hosts.h"
#include "runtime/stop_signal.h"
#include "runtime/training_request.h"
#include "train/loop.h"

typedef struct console {
  ot_arena *arena;
  bool terminal;           // each status line overwrites the last one
  bool line_is_open;       // the last status line has no newline yet
  ot_json_writer *json;    // collects validation losses, or null
  ot_json_writer figures;  // collects figures of evaluations
  double last_status_s;
  ot_loop_summary summary;
} console;

static int terminal_columns(void) {
  struct winsize size;
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

static void end_line(console *t) {
  if (t->line_is_open) fputc('\n', stderr);
  t->line_is_open = false;
}

static void print_status(console *t, const ot_status_line *status) {
  char line[256];
  // At most ten lines per second on a terminal, and always the last step.
  const double now_s = ot_clock_s();
  const bool last = status->step == status->num_steps;
  if (t->terminal && !last && now_s - t->last_status_s < 0.1) return;
  t->last_status_s = now_s;
  ot_status_line_print(line, sizeof line, status, t->terminal ? terminal_columns() : 0);
  fprintf(stderr, t->terminal ? "\r\033[K%s" : "%s\n", line);
  t->line_is_open = t->terminal;
  fflush(stderr);
}

static void print_memory(const ot_loop_summary *s) {
  const double planned_mb = (double)s->memory_planned_bytes / 1e6;
  const double used_mb = (double)s->memory_peak_bytes / 1e6;
  if (s->memory_capacity_bytes > 0)
    fprintf(stderr, "memory: arena planned %.1f MB, in use on the GPU %.1f of %.1f MB\n",
            planned_mb, used_mb, (double)s->memory_capacity_bytes / 1e6);
  else
    fprintf(stderr, "memory: arena planned %.1f MB, process resident %.1f MB at most\n", planned_mb,
            used_mb);
}

static void print_refusals(const ot_loop_refusals *refusals) {
  if (refusals->own + refusals->replaced == 0) return;
  fprintf(
      stderr,
      "products: cuBLASLt refused %d shape%s, which a slower kernel of our own ran, and %d stored "
      "algorithm%s, which others replaced\n",
      refusals->own, ot_text_plural(refusals->own, "s"), refusals->replaced,
      ot_text_plural(refusals->replaced, "s"));
}

static void print_summary(const ot_loop_summary *s) {
  char rate[32], time[32];
  if (s->steps == 0) return;
  const bool later = s->later_s > 0;
  const double seconds = later ? s->later_s : s->seconds;
  const double tokens = (double)(later ? s->later_tokens : s->tokens);
  ot_rate_print(rate, sizeof rate, seconds > 0 ? tokens / seconds : 0);
  ot_seconds_print(time, sizeof time, s->seconds);
  fprintf(stderr, "%lld step%s, %lld tokens in %s, %s tok/s%s; loss %.4f at first, %.4f at last\n",
          (long long)s->steps, ot_text_plural(s->steps, "s"), (long long)s->tokens, time, rate,
          later ? " after the first step" : "", s->first_loss_nats, s->last_loss_nats);
  print_memory(s);
  if (s->lost_lines > 0)
    fprintf(stderr,
            "warning: %lld line%s of metrics, TensorBoard and events could not be written\n",
            (long long)s->lost_lines, ot_text_plural(s->lost_lines, "s"));
  print_refusals(&s->refusals);
  if (s->checkpoint) fprintf(stderr, "checkpoint: %s\n", s->checkpoint);
}

static void put_figure(ot_json_writer *w, const ot_loop_event *event) {
  ot_json_object(w, NULL);
  ot_json_integer(w, "step", event->step);
  ot_json_real(w, event->name, event->value);
  ot_json_end(w);
}

static void on_loop_event(void *context, const ot_loop_event *event) {
  console *const t = context;
  switch (event->kind) {
    case OT_LOOP_STATUS:
      print_status(t, event->status);
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
    case OT_LOOP_EVALUATION:
      end_line(t);
      fprintf(stderr, "step %lld  %s  %.6g\n", (long long)event->step, event->name, event->value);
      if (t->json) put_figure(&t->figures, event);
      return;
    case OT_LOOP_SUMMARY:
      end_line(t);
      print_summary(event->summary);
      t->summary = *event->summary;
      if (t->summary.checkpoint)
        t->summary.checkpoint = ot_arena_format(t->arena, "%s", t->summary.checkpoint);
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

// STEP=DIR.
static ot_status read_record(const char *text, ot_loop_request *request) {
  char *end = NULL;
  request->record_step = strtoll(text, &end, 10);
  const bool fits = end != text && *end == '=' && end[1] != '\0' && request->record_step >= 1;
  OT_CHECK(fits, OT_USAGE, "--record takes STEP=DIR with a step from 1, not %s", text);
  request->record_path = end + 1;
  return OT_OK;
}

static void read_resume(const char *text, ot_loop_request *request) {
  request->resume_path = text;
  request->resume = strcmp(text, "auto") == 0    ? OT_RESUME_AUTO
                    : strcmp(text, "never") == 0 ? OT_RESUME_NEVER
                                                 : OT_RESUME_FROM;
}

// Shared by the ranks of a process.
typedef struct training {
  const ot_options *options;
  ot_arena *arena;
  console console;
  ot_config config;
  ot_cluster cluster;
  bool processes;  // ranks are processes started by a launcher
  ot_mesh mesh;
  ot_loop_request request;  // without the world
  bool leads;               // the leading rank is in this process
} training;

// Checks hand-written stages and pipeline schedules once before ranks start, because their errors
// are not failures of a rank.
static ot_status check_handwritten(const training *t) {
  const ot_run *const run = &t->config.run;
  if (run->parallel.layout[0] == '\0' && run->parallel.order_csv[0] == '\0') return OT_OK;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_graph *const graphs = ot_arena_array(&arena, OT_MODES, sizeof *graphs);
  ot_schedule schedule;
  ot_rank_request request;
  ot_status status = ot_training_request(run, &t->mesh, 0, &arena, &request);
  if (status == OT_OK) status = ot_runtime_plan(&request, &arena, graphs, &schedule);
  ot_heap_release(&heap);
  return status;
}

// Before ranks start, for the same reason.
static ot_status check_tasks(const ot_run *run, int ranks) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_run_tasks tasks;
  ot_status status = ot_run_tasks_open(run, &arena, &tasks);
  if (status == OT_OK) status = ot_run_tasks_check_stages(run, ranks);
  ot_run_tasks_close(&tasks);
  ot_heap_release(&heap);
  return status;
}

// Fills the request from the settings and the options, without the mesh.
static ot_status read_request(training *t) {
  const ot_presets presets = ot_installed_presets(t->arena);
  const char *const trace = ot_options_text(t->options, "trace");
  const char *const record = ot_options_text(t->options, "record");
  bool known;
  t->request = (ot_loop_request){
      .run = &t->config.run,
      .settings = t->config.settings,
      .show_batch = ot_options_flag(t->options, "show-batch"),
      .hangs = ot_ranks_end_at_hang,
      .sink = on_loop_event,
      .context = &t->console,
  };
  OT_TRY(ot_cluster_file_load(t->config.run.cluster, &presets, t->arena, &t->cluster, &known));
  if (known) t->request.cluster = &t->cluster;
  read_resume(ot_options_text(t->options, "resume"), &t->request);
  if (record) OT_TRY(read_record(record, &t->request));
  return trace ? read_trace(trace, t->arena, &t->request) : OT_OK;
}

static ot_status prepare(void *context, int ranks) {
  training *const t = context;
  OT_TRY(ot_run_options_load(t->options, t->arena, &t->config));
  OT_TRY(ot_run_options_check_init(&t->config, t->arena));
  OT_TRY(ot_trainer_check(&t->config.run));
  OT_TRY(read_request(t));
  const int teachers = ot_run_teacher_ranks(&t->config.run);
  OT_TRY(ot_run_check_teacher_ranks(&t->config.run, OT_RANKS, ranks, "rank", "--ranks"));
  OT_TRY(ot_run_options_mesh(&t->config, ranks - teachers, t->arena, &t->mesh));
  ot_rank_request one_rank;
  OT_TRY(ot_training_request(&t->config.run, &t->mesh, 0, t->arena, &one_rank));
  OT_TRY(check_handwritten(t));
  return check_tasks(&t->config.run, ranks);
}

static void print_done(const training *t) {
  if (!t->request.cluster && t->console.summary.steps > 0) {
    fprintf(stderr,
            "note: this machine was never measured; after `orthant bench`, runs show MFU and "
            "predicted times\n");
  }
  fprintf(stderr, "done: %s\n", t->config.run.output);
}

// Ranks stand on hosts as the cluster of the predictions has them: one of measured hosts, or one of
// GPUs if the ranks use GPUs of several hosts.
static ot_status check_hosts(const training *t, ot_comm *comm) {
  const ot_cluster *const c = t->request.cluster;
  if (!c || !comm) return OT_OK;
  const bool spread = ot_comm_local_size(comm) < ot_comm_size(comm);
  const ot_backend backend = ot_runtime_choose_device(t->config.run.device, t->mesh.ranks);
  const bool gpus =
      !ot_device_is_host(&c->device) && c->num_levels > 0 && !ot_backend_rules_of(backend)->host;
  if (!ot_cluster_has_hosts(c) && !(spread && gpus)) return OT_OK;
  const int per_host = c->host_devices > 0 ? c->host_devices : c->level[0].size;
  return ot_rank_hosts_check(comm, per_host, t->config.run.cluster);
}

static ot_status teach_rank(const training *t, ot_comm *comm) {
  OT_TRY(ot_comm_divide(comm, t->mesh.ranks));
  ot_stop_signal_defer();  // the students stop, and let it go
  const ot_executor_leave leave = {.asks = ot_stop_signal_leaves, .context = comm};
  return ot_teacher_rank_run(&t->config.run, comm, &leave);
}

static void print_notes(const training *t) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const char *const exposure = ot_disk_exposure(&arena, t->config.run.distill.server_key);
  ot_output_notes(&t->config.notes);
  if (exposure) fprintf(stderr, "warning: distill.server_key: %s\n", exposure);
  ot_heap_release(&heap);
}

static ot_status train_rank(ot_comm *comm, void *context) {
  training *const t = context;
  ot_loop_request request = t->request;
  OT_TRY(check_hosts(t, comm));
  if (ot_comm_rank(comm) >= t->mesh.ranks) return teach_rank(t, comm);
  if (ot_comm_size(comm) > t->mesh.ranks) OT_TRY(ot_comm_divide(comm, t->mesh.ranks));
  OT_TRY(ot_world_create(&request.run->parallel, comm, &request.world));
  const bool leads = ot_world_is_leader(request.world);
  if (leads) print_notes(t);
  ot_run_audits *audits = NULL;
  ot_status status = ot_run_audits_create(request.run, request.world, &audits);
  if (status == OT_OK) {
    request.checks = ot_run_audits_checks(audits, &request.num_checks);
    status = ot_loop_run(&request);
  }
  ot_run_audits_destroy(&audits);
  const bool ended = status == OT_OK || status == OT_STOPPED || status == OT_FINDINGS;
  if (ended) OT_TRY(ot_teacher_ranks_dismiss(comm));
  ot_world_destroy(&request.world);
  if (leads) {
    t->leads = true;
    end_line(&t->console);
    if (status == OT_OK) print_done(t);
  }
  // All ranks stop together; one reports it.
  const bool together = status == OT_STOPPED || status == OT_FINDINGS;
  if (together && !leads) return ot_fail(status, "%s", "");
  return status;
}

// ---- dry runs ----

static void append_word(ot_text_builder *text, const char *word) {
  ot_text_put(text, " ");
  ot_quote_shell(text, word);
}

// The command that starts the checked run.
static const char *command_of(const training *t) {
  const int ranks = t->mesh.ranks + ot_run_teacher_ranks(&t->config.run);
  ot_text_builder text = {.arena = t->arena};
  if (t->processes) ot_text_appendf(&text, "mpirun -n %d ", ranks);
  ot_text_put(&text, "orthant train");
  append_word(&text, ot_options_argument(t->options, 0));
  for (int i = 0; i < ot_options_count(t->options, "set"); i++) {
    ot_text_put(&text, " --set");
    append_word(&text, ot_options_values(t->options, "set")[i]);
  }
  if (!t->processes && ranks > 1) ot_text_appendf(&text, " --ranks %d", ranks);
  return ot_text_builder_text(&text);
}

static void print_dry_json(const training *t, const ot_dry_run_report *r, const char *command) {
  ot_json_writer w = ot_json_begin(t->arena, 2);
  ot_json_object(&w, NULL);
  ot_json_integer(&w, "parameters", r->parameters);
  ot_json_integer(&w, "ranks", t->mesh.ranks);
  ot_json_object(&w, "memory");
  for (int i = 0; i < OT_MEMORY_CLASSES; i++)
    ot_json_integer(&w, ot_memory_class_name((ot_memory_class)i), r->memory.class_bytes[i]);
  ot_json_integer(&w, "peak", r->memory.peak_bytes);
  ot_json_integer(&w, "rank", r->fullest_rank);
  ot_json_integer(&w, "machine", r->memory_bytes);
  ot_json_end(&w);
  ot_json_integer(&w, "async_bytes", r->async_bytes);
  ot_json_integer(&w, "copies_bytes", r->copies_bytes);
  ot_json_integer(&w, "checkpoint_bytes", r->checkpoint_bytes);
  ot_json_integer(&w, "disk_free_bytes", r->disk_free_bytes);
  ot_json_integer(&w, "steps", r->steps);
  ot_json_integer(&w, "tokens", r->tokens);
  ot_json_integer(&w, "micro_batches", r->micro_batches);
  ot_json_real(&w, "model_flops", r->model_flops);
  ot_json_text(&w, "cluster", r->cluster);
  ot_json_real(&w, "step_seconds", r->cluster ? r->expected.step_s : NAN);
  ot_json_real(&w, "tokens_per_second", r->cluster ? r->tokens_per_s : NAN);
  ot_json_real(&w, "mfu", r->cluster ? r->mfu : NAN);
  ot_json_real(&w, "bubble_fraction", r->cluster ? r->expected.bubble_fraction : NAN);
  ot_json_object(&w, "exposed_seconds");
  for (int i = 0; i < OT_TIMELINE_AXES; i++)
    ot_json_real(&w, ot_timeline_axis_name((ot_timeline_axis)i),
                 r->cluster ? r->expected.exposed_axis_s[i] : NAN);
  ot_json_end(&w);
  ot_json_integer(&w, "teacher_bytes", r->teacher_bytes);
  ot_json_real(&w, "teacher_seconds", r->cluster ? r->teacher_s : NAN);
  ot_json_integer(&w, "evaluations", r->evaluations);
  ot_json_integer(&w, "evaluation_stages", r->evaluation_stages);
  ot_json_integer(&w, "evaluation_bytes", r->evaluation_bytes);
  ot_json_real(&w, "evaluation_seconds", r->evaluations > 0 ? r->evaluation_s : NAN);
  ot_json_text(&w, "command", command);
  ot_json_end(&w);
  puts(w.text);
}

static ot_status check(const training *t, int local_ranks) {
  const ot_dry_run how = {
      .mesh = &t->mesh,
      .local_ranks = local_ranks,
      .process_ranks = t->processes ? 1 : local_ranks,
      .backend = ot_runtime_choose_device(t->config.run.device, t->mesh.ranks),
      .gpu_ranks = ot_gpu_sharers(local_ranks),
  };
  ot_dry_run_report report;
  ot_output_notes(&t->config.notes);
  OT_TRY(ot_loop_dry_run(&t->request, &how, &report));
  const char *const command = command_of(t);
  fprintf(stderr, "to start it: %s\n", command);
  if (ot_options_json(t->options)) print_dry_json(t, &report, command);
  return OT_OK;
}

static ot_status check_process(ot_comm *comm, void *context) {
  const bool leads = ot_comm_rank(comm) == 0;
  OT_TRY(check_hosts(context, comm));
  return ot_comm_agree(comm, leads ? check(context, ot_comm_local_size(comm)) : OT_OK);
}

// ---- supervision ----

static void note_supervision(void *context, const char *text) {
  (void)context;
  fprintf(stderr, "supervisor: %s\n", text);
}

static ot_status supervise(const ot_options *o, const ot_config *config) {
  ot_arena *const arena = ot_options_arena(o);
  const char *const own = ot_disk_own_program(arena);
  const int ranks = (int)ot_options_integer(o, "ranks");
  const int least =
      ot_options_given(o, "min-ranks") ? (int)ot_options_integer(o, "min-ranks") : ranks;
  const int num_words = ot_options_num_words(o);
  const char **const launcher = ot_arena_array(arena, num_words + 1, sizeof *launcher);
  for (int i = 0; i < num_words; i++) launcher[i] = ot_options_word(o, i);
  int inside;
  OT_CHECK(
      !ot_comm_launched(&inside), OT_USAGE,
      "--supervise starts the launcher; it does not run under one (try `orthant train RUN.yaml "
      "--supervise --ranks N -- mpirun -n {ranks}`)");
  OT_CHECK(!ot_options_given(o, "record"), OT_USAGE,
           "--record is not for supervised runs: record the step in a run without --supervise");
  OT_CHECK(least <= ranks, OT_USAGE, "--min-ranks %d is more than --ranks %d", least, ranks);
  ot_mesh mesh;
  OT_TRY(ot_run_options_mesh(config, ranks - ot_run_teacher_ranks(&config->run), arena, &mesh));
  const ot_supervision request = {.run = &config->run,
                                  .program = own ? own : "orthant",
                                  .launcher = launcher,
                                  .num_launcher = num_words,
                                  .file = ot_options_argument(o, 0),
                                  .sets = ot_options_values(o, "set"),
                                  .num_sets = ot_options_count(o, "set"),
                                  .resume = ot_options_text(o, "resume"),
                                  .trace = ot_options_text(o, "trace"),
                                  .show_batch = ot_options_flag(o, "show-batch"),
                                  .json = ot_options_json(o),
                                  .ranks = ranks,
                                  .min_ranks = least,
                                  .restarts = (int)ot_options_integer(o, "restarts"),
                                  .note = note_supervision};
  ot_output_queue_begin();
  return ot_supervise(&request, arena);
}

static ot_status train(training *t) {
  int ranks;
  const bool dry = ot_options_flag(t->options, "dry-run");
  if (ot_options_flag(t->options, "supervise") && !dry) {
    OT_TRY(ot_run_options_load(t->options, t->arena, &t->config));
    return supervise(t->options, &t->config);
  }
  OT_CHECK(ot_options_num_words(t->options) == 0, OT_USAGE,
           "a launcher after -- needs --supervise (orthant train)");
  if (!dry) ot_stop_signal_install(ot_ranks_end_at_start);
  OT_TRY(ot_ranks_count(t->options, &ranks, &t->processes));
  const ot_ranks_verb verb = {prepare, dry ? check_process : train_rank, t};
  if (!dry || t->processes) return ot_ranks_run(t->options, &verb);
  OT_TRY(prepare(t, ranks));
  return check(t, ranks);
}

// The summary of a run, after its validation losses.
static void print_run_json(training *t) {
  ot_json_writer *const w = t->console.json;
  const ot_loop_summary *const s = &t->console.summary;
  ot_json_end(w);
  ot_json_end(&t->console.figures);
  ot_json_raw(w, "evaluation", t->console.figures.text);
  ot_json_text(w, "output", t->config.run.output);
  ot_json_integer(w, "steps", s->steps);
  ot_json_integer(w, "tokens", s->tokens);
  ot_json_real(w, "seconds", s->seconds);
  ot_json_real(w, "first_loss", s->first_loss_nats);
  ot_json_real(w, "last_loss", s->last_loss_nats);
  ot_json_integer(w, "memory_planned_bytes", s->memory_planned_bytes);
  ot_json_integer(w, "memory_peak_bytes", s->memory_peak_bytes);
  ot_json_integer(w, "lost_lines", s->lost_lines);
  ot_json_integer(w, "products_by_own_kernel", s->refusals.own);
  ot_json_integer(w, "algorithms_replaced", s->refusals.replaced);
  ot_json_text(w, "checkpoint", s->checkpoint);
  ot_json_end(w);
  puts(w->text);
}

static ot_status run(const ot_options *options) {
  ot_arena *const arena = ot_options_arena(options);
  ot_json_writer json = ot_json_begin(arena, 2);
  training t = {.options = options, .arena = arena};
  t.console = (console){.arena = arena,
                        .terminal = isatty(STDERR_FILENO),
                        .json = ot_options_json(options) ? &json : NULL,
                        .summary = {.first_loss_nats = NAN, .last_loss_nats = NAN}};
  if (t.console.json) {
    ot_json_object(&json, NULL);
    ot_json_array(&json, "validation");
    t.console.figures = ot_json_begin(arena, 0);
    ot_json_array(&t.console.figures, NULL);
  }
  const ot_status status = train(&t);
  if (!t.console.json || !t.leads || status != OT_OK) return status;
  ot_stop_signal_release();  // the reader of the result may not read
  print_run_json(&t);
  return status;
}

static const ot_option rows[] = {
    {.shared = &ot_option_ranks},
    {.shared = &ot_option_set},
    {"resume", OT_OPTION_TEXT, "auto|never|DIR", "auto",
     .help = "resume from the newest intact checkpoint of output, never, or from DIR"},
    {"dry-run", OT_OPTION_FLAG,
     .help = "check files, memory and disk, print the memory breakdown, train nothing"},
    {"show-batch", OT_OPTION_FLAG, .help = "print the first sequence as text"},
    {"trace", OT_OPTION_TEXT, "FILE[:FROM-TO]",
     .help = "Chrome trace of these steps (default: the third of this run)"},
    {"record", OT_OPTION_TEXT, "STEP=DIR",
     .help = "write this one step, from 1, as a record that `orthant judge DIR` judges"},
    {"supervise", OT_OPTION_FLAG, .help = "start the run, watch it, start it again after failures"},
    {"restarts", OT_OPTION_INTEGER, "N", "10", 0, 1000000,
     .help = "with --supervise: restarts, renewed after ten minutes and a new checkpoint"},
    {"min-ranks", OT_OPTION_INTEGER, "N", .minimum = 1, .maximum = 1 << 20,
     .help = "with --supervise: go on with fewer ranks where some are missing, at least N"},
};

const ot_verb ot_verb_train = {
    .name = "train",
    .summary = "train a model",
    .arguments = "RUN.yaml [-- LAUNCHER...]",
    .command = true,
    .min_arguments = 1,
    .max_arguments = 1,
    .details =
        "Writes to the run's `output`: config.yaml, metrics.jsonl, tensorboard/, checkpoints/.\n"
        "SIGTERM, SIGUSR1, SIGUSR2, SIGHUP, SIGXCPU or the first Ctrl-C: finish the step, save,\n"
        "exit 75; the same command resumes from there, bit for bit. A step that is not done half\n"
        "a second later is left: the state of the step before is saved. A kernel that has not\n"
        "ended 20 s later ends the run unsaved, with exit code 4. A second SIGTERM or Ctrl-C ends\n"
        "the run at once.\n"
        "A checkpoint is verified before it is used. A damaged one is skipped and named; if no\n"
        "checkpoint is intact, the exit code is 3 and training does not restart. --resume DIR\n"
        "uses that checkpoint: one of output, whose newer ones then move to checkpoints/aside-N,\n"
        "or one of another run, unless output has checkpoints of another origin. --resume never\n"
        "refuses an output that is not empty.\n"
        "Ranks are threads (--ranks) or the processes of mpirun or srun; `parallel` sets the\n"
        "parallel configuration. A run may resume with other ranks and another configuration.\n"
        "--record STEP=DIR: one step of the run, as its ranks hold it, becomes the folder DIR,\n"
        "which must be empty or absent and on a disk that all ranks see (docs/record.md). It has\n"
        "up to nine values for each parameter. The run has the same bits as without it.\n"
        "--json: validation losses and a summary, or with --dry-run the planned resources.\n"
        "--supervise runs the training in a process of its own and starts it again, from the "
        "newest\n"
        "checkpoint, after a crash, a kill or a hang (twice parallel.watchdog_seconds without\n"
        "progress). A command after -- launches the ranks; {ranks} in it is their number. Exit\n"
        "codes 0, 2, 5 and 75 end it; when it gives up, its exit code is the last one.\n"
        "Waiting threads sleep after tens of microseconds; OMP_WAIT_POLICY=active lets them spin,\n"
        "for steps of milliseconds on a machine without other load.",
    .examples =
        "  orthant train run.yaml\n"
        "  orthant train run.yaml --dry-run\n"
        "  orthant train run.yaml --ranks 4 --set parallel.tp=2\n"
        "  mpirun -n 16 orthant train run.yaml\n"
        "  orthant train run.yaml --supervise --ranks 16 -- mpirun -n {ranks}\n"
        "  orthant train run.yaml --set optimizer.lr=1e-3 --trace step.json:10-12\n"
        "  orthant train run.yaml --ranks 4 --record 2=records/step2",
    .options = rows,
    .num_options = OT_COUNT(rows),
    .json = true,
    .run = run,
};
