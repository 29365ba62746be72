// SPDX-License-Identifier: Apache-2.0
// One attempt after the other. The training processes know nothing of it; progress is what they
// write to the run directory (record/heartbeat.h).
#include "launch/supervise.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/quantity.h"
#include "base/text.h"
#include "base/text_builder.h"
#include "checkpoint/checkpoint_list.h"
#include "comm/comm.h"
#include "describe/mesh.h"
#include "files/disk.h"
#include "host/available.h"
#include "host/clock.h"
#include "host/heap.h"
#include "launch/child_process.h"
#include "launch/restart_policy.h"
#include "launch/stop_count.h"
#include "record/heartbeat.h"
#include "record/metrics.h"
#include "record/run_events.h"
#include "runtime/kernel_watch.h"

static const double look_s = 0.05;      // between looks at the child
static const double patience_s = 5;     // from SIGTERM to SIGKILL for a job that hangs
static const double leftover_s = 1;     // for what a job that has ended leaves behind
static const double start_min_s = 60;   // a start is given at least this time
static const double hang_factor = 1.8;  // of parallel.watchdog_seconds without progress

typedef struct supervisor {
  const ot_supervision *request;
  const ot_run *run;
  ot_arena *arena;
  const char *checkpoints, *metrics, *events;
  bool launched;  // with a launcher
  ot_restart_state state;
  int64_t attempts;  // of this supervisor
  int64_t number;    // of the attempt among all processes of the run, as in events
  bool resumes;      // a former attempt has run steps
  bool hinted;       // at memory
  int forwarded;     // stop signals passed on
} supervisor;

static void note(const supervisor *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void note(const supervisor *s, const char *format, ...) {
  char text[2 * OT_CHILD_LINE];
  va_list arguments;
  va_start(arguments, format);
  ot_text_format_list(text, sizeof text, format, arguments);
  va_end(arguments);
  s->request->note(s->request->context, text);
}

// ---- signals ----

// Launchers whose children are the ranks of this host, or reach those of others.
static bool has_mpirun(const supervisor *s) {
  static const char *const launchers[] = {"mpirun", "mpiexec", "orterun", "prterun"};
  if (!s->launched) return false;
  const char *const word = s->request->launcher[0];
  const char *const slash = strrchr(word, '/');
  for (int i = 0; i < OT_COUNT(launchers); i++) {
    if (ot_text_starts_with(slash ? slash + 1 : word, launchers[i])) return true;
  }
  return false;
}

// Open MPI's mpirun kills the ranks soon after SIGTERM; it and others pass SIGUSR1 on.
static int stop_signal_of(const supervisor *s) {
  if (!s->launched) return ot_stop_count_last();
  const bool slurm = ot_text_equal(s->request->launcher[0], "srun");
  return slurm || has_mpirun(s) ? SIGUSR1 : ot_stop_count_last();
}

static void forward_stop(supervisor *s, ot_child *child) {
  if (s->forwarded == ot_stop_count()) return;
  s->forwarded++;
  if (s->forwarded == 1) {
    ot_child_send(child, stop_signal_of(s));
  } else {
    ot_child_end_all(child, leftover_s);
  }
}

// ---- the run ----

static int64_t newest_step(const supervisor *s) {
  int64_t step = 0;
  return ot_metrics_newest(s->metrics, &step) == OT_OK ? step : 0;
}

static int64_t newest_checkpoint(const supervisor *s) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_checkpoint_steps steps = {0};
  const bool known = ot_checkpoint_list(&arena, s->checkpoints, &steps) == OT_OK;
  const int64_t newest = known && steps.count > 0 ? steps.step[0] : 0;
  ot_heap_release(&heap);
  return newest;
}

// A log that cannot be written must not end the run.
static void log_event(const supervisor *s, const ot_run_event *event) {
  if (!ot_disk_is_directory(s->run->output)) return;
  if (ot_run_event_append(s->events, event) == OT_OK) return;
  note(s, "%s", ot_fail_message());
}

// ---- the command ----

// Former attempts made the run directory of --resume never, and went back to the checkpoint of
// --resume DIR if it is one of this run.
static const char *resume_of(const supervisor *s) {
  const char *const given = s->request->resume;
  if (s->attempts == 1 || strcmp(given, "auto") == 0) return given;
  if (strcmp(given, "never") == 0) return "auto";
  char *const here = realpath(s->run->output, NULL);
  char *const there = realpath(given, NULL);
  const bool own = here && there && ot_text_starts_with(there, here);
  free(here);
  free(there);
  return own && s->resumes ? "auto" : given;
}

static void add(char **words, int *count, const char *word) { words[(*count)++] = (char *)word; }

static const char *with_ranks(const supervisor *s, const char *word, int ranks) {
  const char *const place = strstr(word, "{ranks}");
  if (!place) return word;
  return ot_arena_format(s->arena, "%.*s%d%s", (int)(place - word), word, ranks,
                         place + strlen("{ranks}"));
}

static int degree_besides_dp(const ot_run *run) {
  return run->parallel.tp * run->parallel.cp * run->parallel.pp;
}

static char **command_of(const supervisor *s, int ranks) {
  const ot_supervision *const r = s->request;
  char **const words =
      ot_arena_array(s->arena, 2 * r->num_sets + r->num_launcher + 24, sizeof *words);
  int n = 0;
  for (int i = 0; i < r->num_launcher; i++) add(words, &n, with_ranks(s, r->launcher[i], ranks));
  add(words, &n, r->program);
  add(words, &n, "train");
  add(words, &n, r->file);
  if (!s->launched) {
    add(words, &n, "--ranks");
    add(words, &n, ot_arena_format(s->arena, "%d", ranks));
  }
  for (int i = 0; i < r->num_sets; i++) {
    add(words, &n, "--set");
    add(words, &n, r->sets[i]);
  }
  if (s->run->parallel.dp > 0 && ranks != r->ranks) {
    add(words, &n, "--set");
    add(words, &n, ot_arena_format(s->arena, "parallel.dp=%d", ranks / degree_besides_dp(s->run)));
  }
  add(words, &n, "--resume");
  add(words, &n, resume_of(s));
  if (r->trace) add(words, &n, "--trace");
  if (r->trace) add(words, &n, r->trace);
  if (r->show_batch && s->attempts == 1) add(words, &n, "--show-batch");
  if (r->json) add(words, &n, "--json");
  return words;
}

// ---- an attempt ----

static double limit_s(const supervisor *s, bool began) {
  const double watchdog_s = s->run->parallel.watchdog_seconds;
  if (watchdog_s == 0) return 0;
  const double start_s = ot_kernel_watch_first_s(watchdog_s);
  if (!began) return start_s > start_min_s ? start_s : start_min_s;
  return hang_factor * watchdog_s;
}

// mpirun of Open MPI 4.1 sometimes does not end after its processes: true if it has none any more.
// `idle_s`: since when, 0: it has, or never had any.
static bool is_left_over(const supervisor *s, const ot_child *child, double *idle_s, bool *had) {
  const double now = ot_clock_s();
  if (!has_mpirun(s)) return false;
  if (ot_child_has_children(child)) {
    *had = true;
    *idle_s = 0;
  } else if (*had && *idle_s == 0) {
    *idle_s = now;
  }
  return *idle_s > 0 && now - *idle_s > 2 * patience_s;
}

// Returns how long there was no progress if the job hangs, else 0.
static double watch(supervisor *s, ot_child *child, bool *began) {
  const char *const output = s->run->output;
  const uint64_t before = ot_heartbeat_look_steps(output);
  uint64_t seen = ot_heartbeat_look(output);
  double progress_s = ot_clock_s(), idle_s = 0;
  bool had_children = false;
  while (!ot_child_watch(child, look_s)) {
    const uint64_t now = ot_heartbeat_look(output);
    const double limit = limit_s(s, *began);
    *began = *began || ot_heartbeat_look_steps(output) != before;
    if (now != seen) progress_s = ot_clock_s();
    seen = now;
    forward_stop(s, child);
    const double silent_s = ot_clock_s() - progress_s;
    // Ranks that have found the failure end by themselves.
    const double grace_s = child->error[0] ? patience_s : 0;
    if (limit > 0 && silent_s > limit + grace_s) return silent_s;
    if (is_left_over(s, child, &idle_s, &had_children)) return silent_s;
  }
  *began = *began || ot_heartbeat_look_steps(output) != before;
  return 0;
}

static ot_status attempt(supervisor *s, int ranks, ot_child *child, ot_attempt *result) {
  const double start_s = ot_clock_s();
  char *const *const words = command_of(s, ranks);
  s->number = ot_run_events_starts(s->events, NULL) + 1;
  *result = (ot_attempt){.launched = s->launched, .saved_before = newest_checkpoint(s)};
  OT_TRY(ot_child_start(words, s->launched ? SIGUSR1 : SIGTERM, child));
  const double silent_s = watch(s, child, &result->began);
  result->hung = silent_s > 0;
  char said[OT_CHILD_LINE];  // not what it says when it is ended
  memcpy(said, child->error, sizeof said);
  ot_child_end_all(child, result->hung ? patience_s : leftover_s);
  if (result->hung && said[0] == '\0') {
    ot_text_format(said, sizeof said, "no progress for %.1f s", silent_s);
  }
  if (result->hung) memcpy(child->error, said, sizeof said);
  result->code = child->code;
  result->signal = child->signal;
  result->step = newest_step(s);
  result->saved = newest_checkpoint(s);
  result->seconds = ot_clock_s() - start_s;
  s->resumes = s->resumes || result->began;
  return OT_OK;
}

// ---- reports ----

// Who failed, as far as the last words of the job tell.
typedef struct culprit {
  int rank;  // -1: not known
  char host[128];
  const char *said;
} culprit;

static culprit find_culprit(const ot_child *child) {
  culprit c = {.rank = -1, .said = child->error};
  int rank, signal;
  if (sscanf(child->launcher,
             "%*[^=] process rank %d with PID %*d on node %127s exited on signal %d", &rank, c.host,
             &signal) >= 2 ||
      sscanf(child->error, "rank %d on %127[^:]:", &rank, c.host) >= 1) {
    c.rank = rank;
  }
  const char *const named = strstr(child->launcher, "process rank ");
  if (named && sscanf(named, "process rank %d with PID %*d on node %127s", &rank, c.host) == 2) {
    c.rank = rank;
  }
  if (c.said[0] == '\0') c.said = child->launcher;
  if (c.host[0] == '\0' && gethostname(c.host, sizeof c.host - 1) != 0) c.host[0] = '\0';
  return c;
}

static const char *describe_end(const supervisor *s, const ot_attempt *a) {
  if (a->hung) return "hung and was ended";
  if (a->signal) {
    return ot_arena_format(s->arena, "was killed by signal %d (%s)", a->signal,
                           strsignal(a->signal));
  }
  return ot_arena_format(s->arena, "ended with exit code %d", a->code);
}

static int64_t exit_of(const ot_attempt *a) { return a->signal ? 128 + a->signal : a->code; }

// "the job was killed by signal 9 (Killed) after step 47 (rank 2 on h: ...); 7 steps are lost".
static const char *describe(const supervisor *s, const ot_attempt *a, const ot_child *child) {
  const culprit c = find_culprit(child);
  ot_text_builder text = {.arena = s->arena};
  ot_text_appendf(&text, "the job %s after step %lld", describe_end(s, a), (long long)a->step);
  if (c.rank >= 0 && !ot_text_starts_with(c.said, "rank ")) {
    ot_text_appendf(&text, ", rank %d on %s", c.rank, c.host);
  }
  if (c.said[0]) ot_text_appendf(&text, " (%s)", c.said);
  const int64_t lost = a->step > a->saved ? a->step - a->saved : 0;
  ot_text_appendf(&text, "; %s%lld step%s lost",
                  s->run->checkpoint.memory > 0 && lost > 0 ? "at most " : "", (long long)lost,
                  lost == 1 ? " is" : "s are");
  return ot_text_builder_text(&text);
}

static void log_failure(const supervisor *s, const ot_attempt *a, const ot_child *child) {
  const culprit c = find_culprit(child);
  const ot_run_event event = {.kind = OT_RUN_EVENT_FAILURE,
                              .attempt = s->number,
                              .failure = ot_failure_kind_name(ot_attempt_kind(a)),
                              .rank = c.rank,
                              .host = c.host,
                              .exit = exit_of(a),
                              .detail = c.said};
  log_event(s, &event);
}

// The kernel ends processes by SIGKILL when memory runs out, and says so only in its own log.
static void hint_at_memory(supervisor *s, const ot_attempt *a) {
  const char *what;
  const int64_t bytes = ot_host_memory_bytes(&what);
  if (exit_of(a) != 128 + SIGKILL || a->hung || s->hinted) return;
  s->hinted = true;
  note(s,
       "signal 9 is also how the kernel ends a process for want of memory (dmesg); %s %s, and "
       "--dry-run prints what the run needs",
       what, ot_figure_bytes(s->arena, bytes));
}

// ---- attempts ----

// Waits before the next attempt; false: stopped meanwhile.
static bool rest(double seconds) {
  const double until = ot_clock_s() + seconds;
  while (ot_clock_s() < until && ot_stop_count() == 0) usleep(20000);
  return ot_stop_count() == 0;
}

static ot_status end_stopped(void) {
  ot_fail(OT_STOPPED, "stopped by a signal between two attempts");
  return ot_fail_hint(OT_STOPPED, "run the same command again to continue");
}

static ot_status end_supervision(const supervisor *s, const ot_attempt *a, const char *what,
                                 const char *why) {
  const ot_status status = (ot_status)exit_of(a);
  ot_fail(status, "the supervisor gives up: %s; %s", what, why);
  return ot_fail_hint(status,
                      "%d of %d restarts were used; the same command goes on from step %lld",
                      s->state.used > s->state.restarts ? s->state.restarts : s->state.used,
                      s->state.restarts, (long long)a->saved);
}

static ot_status supervise(supervisor *s) {
  int ranks = s->state.sizes[0];
  for (;;) {
    ot_child child;
    ot_attempt a;
    s->attempts++;
    OT_TRY(attempt(s, ranks, &child, &a));
    const bool stopped = ot_stop_count() > 0 && !a.hung;
    const ot_restart next = ot_restart_decide(&s->state, &a);
    // The child has said why.
    if (next.action == OT_RESTART_ENDS || stopped) return ot_fail((ot_status)exit_of(&a), "%s", "");
    const char *const what = describe(s, &a, &child);
    log_failure(s, &a, &child);
    hint_at_memory(s, &a);
    if (next.action == OT_RESTART_GIVES_UP) return end_supervision(s, &a, what, next.why);
    note(s, "%s; restart %d of %d in %.0f s on %d rank%s", what, s->state.used, s->state.restarts,
         next.wait_s, next.ranks, next.ranks == 1 ? "" : "s");
    if (!rest(next.wait_s)) return end_stopped();
    ranks = next.ranks;
    const ot_run_event event = {.kind = OT_RUN_EVENT_RESTART,
                                .attempt = ot_run_events_starts(s->events, NULL) + 1,
                                .ranks = ranks,
                                .waited_s = next.wait_s};
    log_event(s, &event);
  }
}

// The numbers of ranks from `ranks` down to `min_ranks` that the run can have: dp changes.
static void list_sizes(supervisor *s) {
  const ot_supervision *const r = s->request;
  ot_run_parallel parallel = s->run->parallel;
  ot_run run = *s->run;
  ot_mesh mesh;
  int *const sizes = ot_arena_array(s->arena, r->ranks + 1, sizeof *sizes);
  const int teachers = ot_run_teacher_ranks(s->run), most = r->ranks - teachers;
  for (int ranks = most; ranks + teachers >= r->min_ranks && ranks > 0; ranks--) {
    parallel.dp = 0;
    run.parallel = parallel;
    if (ot_mesh_build(&parallel, ranks, &mesh) != OT_OK) continue;
    if (ot_run_check_ranks(&run, ranks) == OT_OK) sizes[s->state.num_sizes++] = ranks + teachers;
  }
  s->state.sizes = sizes;
}

ot_status ot_supervise(const ot_supervision *request, ot_arena *arena) {
  const char *const output = request->run->output;
  supervisor s = {.request = request,
                  .run = request->run,
                  .arena = arena,
                  .checkpoints = ot_disk_join(arena, output, "checkpoints"),
                  .metrics = ot_disk_join(arena, output, "metrics.jsonl"),
                  .events = ot_disk_join(arena, output, OT_RUN_EVENTS_FILE),
                  .launched = request->num_launcher > 0};
  s.state.restarts = request->restarts;
  list_sizes(&s);
  ot_stop_count_begin();
  ot_child_adopt_all();
  return supervise(&s);
}
