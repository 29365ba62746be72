// SPDX-License-Identifier: Apache-2.0
#include "ledger/processes.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/failure.h"
#include "base/text.h"
#include "checkpoint/checkpoint_list.h"
#include "files/disk.h"
#include "files/tree_file.h"
#include "launch/child_process.h"
#include "launch/stop_count.h"
#include "ledger/preregistration.h"

enum { LOG_BYTES_MAX = 1 << 26, WORDS_MAX = 400 };

// ---- processes ----

static const char *program_of(const ot_ledger_job *job, ot_arena *arena) {
  if (ot_text_find(job->program, "/")) return job->program;
  if (job->program[0]) return ot_disk_join(arena, ".", job->program);  // not one of PATH
  const char *const own = ot_disk_own_program(arena);
  return own ? own : "orthant";
}

// The words of `PROGRAM train|audit NAME BASE --ranks N --set ...`, null after the last.
static char **words_of(const ot_ledger *ledger, const ot_ledger_job *job,
                       const char *const *leading) {
  ot_arena *const arena = ledger->arena;
  char **const words = ot_arena_array(arena, WORDS_MAX, sizeof *words);
  int n = 0;
  words[n++] = (char *)program_of(job, arena);
  for (int i = 0; leading[i]; i++) words[n++] = (char *)leading[i];
  words[n++] = (char *)"--ranks";
  words[n++] = ot_arena_format(arena, "%d", ledger->policy.ranks);
  for (int i = 0; i < job->num_sets && n < WORDS_MAX - 2; i++) {
    words[n++] = (char *)"--set";
    words[n++] = (char *)job->sets[i];
  }
  return words;
}

// The last line of a log that begins with "error: ", from there on.
static const char *last_error(const char *log, ot_arena *arena) {
  char *text;
  int64_t bytes;
  const char *found = NULL;
  if (ot_disk_read(arena, log, LOG_BYTES_MAX, &text, &bytes) != OT_OK) return NULL;
  for (const char *at = strstr(text, "error: "); at; at = strstr(at + 1, "error: "))
    if (at == text || at[-1] == '\n') found = at + 7;
  return found ? ot_arena_text(arena, found, (int64_t)strcspn(found, "\n")) : NULL;
}

// ---- training ----

typedef struct running {
  pid_t process;  // 0: none
  ot_ledger_job job;
} running;

typedef struct pool {
  ot_ledger *ledger;
  int active;
  running *slots;  // [ledger->jobs]
  int64_t done, wanted;
  bool told;           // the processes to stop
  ot_failure failure;  // the first: that of a process which is stopped comes later
} pool;

static const char *log_of(const ot_ledger *ledger, const ot_ledger_job *job) {
  return ot_arena_format(ledger->arena, "%s.log", job->directory);
}

// A run that ended, whose line the record has lost, has no checkpoint to continue from.
static ot_status remove_remains(const ot_ledger *ledger, const ot_ledger_job *job) {
  ot_checkpoint_steps saved;
  OT_TRY(ot_checkpoint_list(ledger->arena,
                            ot_disk_join(ledger->arena, job->directory, "checkpoints"), &saved));
  return saved.count > 0 ? OT_OK : ot_disk_remove(job->directory);
}

static ot_status begin(pool *p, const ot_ledger_job *job) {
  const char *const leading[] = {"train", p->ledger->policy.base, NULL};
  OT_TRY(remove_remains(p->ledger, job));
  running *slot = p->slots;
  while (slot->process != 0) slot++;
  slot->job = *job;
  const char *const log = log_of(p->ledger, job);
  const ot_child_files train = {words_of(p->ledger, job, leading), NULL, "/dev/null", log};
  OT_TRY(ot_child_start_with_files(&train, &slot->process));
  p->active++;
  return OT_OK;
}

static ot_status failed(const ot_ledger *ledger, const ot_ledger_job *job, int status) {
  const char *const log = log_of(ledger, job);
  const char *const error = last_error(log, ledger->arena);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : OT_BUG;
  const ot_status result = code == OT_USAGE ? OT_USAGE : OT_ENVIRONMENT;
  if (WIFSIGNALED(status))
    return ot_fail(result, "the run %s was ended by signal %d (%s)", job->id, WTERMSIG(status),
                   log);
  return ot_fail(result, "the run %s failed with exit code %d: %s (%s)", job->id, code,
                 error ? error : "no message", log);
}

static ot_status finish(pool *p, const ot_ledger_job *job, int status) {
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  const bool ended = p->told && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM;  // a script
  if (code == OT_STOPPED || ended)
    return ot_fail(OT_STOPPED, "stopped; the same command continues");
  if (code != 0 && code != OT_NUMERIC) return failed(p->ledger, job, status);
  OT_TRY(ot_ledger_record_run(p->ledger, job, code == OT_NUMERIC));
  OT_TRY(ot_disk_remove(ot_disk_join(p->ledger->arena, job->directory, "checkpoints")));
  const ot_record *const r = &p->ledger->record;
  const ot_node *const line = r->line[r->count - 1].tree;
  ot_ledger_announce(p->ledger, "run %lld/%lld %s: loss %.5f, %.1f s", (long long)++p->done,
                     (long long)p->wanted, job->id, ot_record_real(line, "loss"),
                     ot_record_real(line, "seconds"));
  return OT_OK;
}

static void signal_all(pool *p) {
  for (int i = 0; i < p->ledger->jobs; i++)
    if (p->slots[i].process > 0) kill(p->slots[i].process, SIGTERM);
  p->told = true;
}

// Waits for one process to end.
static void await(pool *p) {
  int status;
  const pid_t ended = waitpid(-1, &status, 0);
  if (ot_stop_count() > 0 && !p->told) signal_all(p);
  for (int i = 0; ended > 0 && i < p->ledger->jobs; i++) {
    running *const slot = &p->slots[i];
    if (slot->process != ended) continue;
    slot->process = 0;
    p->active--;
    ot_failure_take(&p->failure, finish(p, &slot->job, status));
  }
  if (p->failure.status != OT_OK && !p->told) signal_all(p);
}

// The jobs of `arms` without a line, described; each once.
static ot_status list_jobs(const ot_ledger *ledger, const ot_ledger_arms *arms,
                           ot_ledger_job **jobs, int64_t *count) {
  *jobs = ot_arena_array(ledger->arena, arms->count + 1, sizeof **jobs);
  *count = 0;
  for (int64_t i = 0; i < arms->count; i++) {
    ot_ledger_job job;
    OT_TRY(ot_ledger_job_build(ledger, &arms->arm[i], &job));
    bool known = ot_ledger_find_run(ledger, &job) != NULL;
    for (int64_t k = 0; k < *count; k++) known = known || ot_text_equal((*jobs)[k].key, job.key);
    if (!known) (*jobs)[(*count)++] = job;
  }
  return OT_OK;
}

// Before the first run of a scale: waits for those of the smaller ones, and predicts its loss.
static ot_status enter_scale(pool *p, const ot_ledger_arms *arms, const ot_ledger_job *job) {
  int pairs = 0;
  for (int64_t i = 0; i < arms->count; i++)
    if (arms->arm[i].seed >= pairs) pairs = arms->arm[i].seed + 1;
  while (p->active > 0) await(p);
  return p->failure.status == OT_OK ? ot_ledger_predict(p->ledger, job, pairs) : OT_OK;
}

static bool is_first_of_scale(const ot_ledger_job *jobs, int64_t i) {
  return jobs[i].arm.scale > 0 && (i == 0 || jobs[i].arm.scale != jobs[i - 1].arm.scale ||
                                   jobs[i].arm.num_changes != jobs[i - 1].arm.num_changes);
}

ot_status ot_ledger_run_arms(ot_ledger *ledger, const ot_ledger_arms *arms) {
  ot_ledger_job *jobs;
  pool p = {.ledger = ledger};
  OT_TRY(list_jobs(ledger, arms, &jobs, &p.wanted));
  OT_TRY(ot_disk_make_directory(ot_disk_join(ledger->arena, ledger->directory, "runs")));
  p.slots = ot_arena_array(ledger->arena, ledger->jobs, sizeof *p.slots);
  ot_stop_count_begin();
  for (int64_t i = 0; i < p.wanted && p.failure.status == OT_OK; i++) {
    ot_failure_take(&p.failure, ot_ledger_job_describe(ledger, &jobs[i]));
    if (p.failure.status == OT_OK && is_first_of_scale(jobs, i))
      ot_failure_take(&p.failure, enter_scale(&p, arms, &jobs[i]));
    while (p.active == ledger->jobs) await(&p);
    if (ot_stop_count() > 0)
      ot_failure_take(&p.failure, ot_fail(OT_STOPPED, "stopped; the same command continues"));
    if (p.failure.status == OT_OK) ot_failure_take(&p.failure, begin(&p, &jobs[i]));
  }
  while (p.active > 0) await(&p);
  return ot_failure_repeat(&p.failure);
}

// Runs a process that is alone to its end: how it ended, and its exit code, -1 after a signal.
static ot_status run_one(const ot_child_files *c, int *status, int *code) {
  pid_t process;
  OT_TRY(ot_child_start_with_files(c, &process));
  while (waitpid(process, status, 0) < 0 && errno == EINTR)
    if (ot_stop_count() > 0) kill(process, SIGTERM);
  *code = WIFEXITED(*status) ? WEXITSTATUS(*status) : -1;
  return OT_OK;
}

ot_status ot_ledger_run_command(const char *const *words, const char *folder, const char *out,
                                const char *errors, int *code) {
  const ot_child_files c = {(char *const *)words, folder, out, errors};
  int status = 0;
  ot_stop_count_begin();
  OT_TRY(run_one(&c, &status, code));
  return ot_stop_count() > 0 ? ot_fail(OT_STOPPED, "stopped") : OT_OK;
}

ot_status ot_ledger_run_apart(const ot_ledger *ledger, const ot_ledger_job *job,
                              ot_ledger_result *out) {
  const char *const leading[] = {"train", ledger->policy.base, "--resume", "never", NULL};
  int status = 0, code;
  ot_stop_count_begin();
  OT_TRY(ot_disk_remove(job->directory));
  OT_TRY(ot_disk_make_directory(ot_disk_join(ledger->arena, ledger->directory, "runs")));
  const ot_child_files train = {words_of(ledger, job, leading), NULL, "/dev/null",
                                log_of(ledger, job)};
  OT_TRY(run_one(&train, &status, &code));
  *out = (ot_ledger_result){.loss = NAN, .weights_hash = ""};
  if (code == OT_STOPPED) return ot_fail(OT_STOPPED, "stopped");
  if (code != 0 && code != OT_NUMERIC) return failed(ledger, job, status);
  if (code == 0) OT_TRY(ot_ledger_read_result(ledger, job, out));
  return ot_disk_remove(job->directory);
}

// ---- audits ----

static ot_status record_audit(ot_ledger *ledger, const ot_ledger_job *job, const char *path,
                              const char *key) {
  ot_node *tree;
  OT_TRY(ot_tree_load(path, ledger->arena, &tree));
  ot_json_writer line = ot_record_begin(&ledger->record, "audit", ledger->arena);
  ot_json_text(&line, "change", job->name);
  ot_json_text(&line, "key", key);
  ot_json_text(&line, "run", job->id);
  ot_json_text(&line, "audit", ot_record_text(tree, "audit"));
  ot_json_text(&line, "verdict", ot_record_text(tree, "verdict"));
  ot_json_array(&line, "findings");
  const ot_node *const findings = ot_node_child(tree, "findings");
  for (const ot_node *at = findings ? findings->first : NULL; at; at = at->next)
    ot_json_text(&line, NULL, ot_record_text(at, "what"));
  ot_json_end(&line);
  return ot_record_append(&ledger->record, &line, ledger->arena);
}

static ot_status audit(ot_ledger *ledger, const ot_ledger_job *job,
                       const ot_ledger_audit_request *request, const char *key) {
  ot_arena *const arena = ledger->arena;
  const char *const value = ot_arena_format(arena, "%lld", (long long)request->value);
  const char *const leading[] = {
      "audit", request->audit, ledger->policy.base, "--json", request->option, value, NULL};
  const char *const out = ot_arena_format(arena, "%s.%s.json", job->directory, request->audit);
  int status = 0, code;
  ot_ledger_announce(ledger, "audit %s of %s", request->audit, job->id);
  OT_TRY(ot_disk_make_directory(ot_disk_join(arena, ledger->directory, "runs")));
  const ot_child_files look = {words_of(ledger, job, leading), NULL, out, log_of(ledger, job)};
  OT_TRY(run_one(&look, &status, &code));
  if (code != 0 && code != OT_FINDINGS) return failed(ledger, job, status);
  return record_audit(ledger, job, out, key);
}

ot_status ot_ledger_audit_arm(ot_ledger *ledger, const ot_ledger_arm *arm,
                              const ot_ledger_audit_request *request, const char **finding) {
  ot_ledger_job job;
  *finding = NULL;
  OT_TRY(ot_ledger_job_build(ledger, arm, &job));
  const char *const key =
      ot_arena_format(ledger->arena, "%s %s %s %lld", job.key, request->audit,
                      request->option ? request->option : "", (long long)request->value);
  if (!ot_record_find(&ledger->record, "audit", "key", key))
    OT_TRY(audit(ledger, &job, request, key));
  const ot_node *const line = ot_record_find(&ledger->record, "audit", "key", key)->tree;
  const ot_node *const findings = ot_node_child(line, "findings");
  if (findings && findings->first) *finding = findings->first->text;
  return OT_OK;
}
