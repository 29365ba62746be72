// SPDX-License-Identifier: Apache-2.0
// `orthant ledger bisect`: the first of a sequence that is no longer what was recorded, by halving.
// Bases of merges are compared by their bits. Commits, and settings of another run, are compared by
// the loss of pairs at one scale: bits change with every order of a sum, so only a difference
// that seeds do not explain is one.
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/failure.h"
#include "base/text.h"
#include "cli/ledger_actions.h"
#include "cli/ledger_processes.h"
#include "files/config_file.h"
#include "files/disk.h"
#include "files/tree_file.h"
#include "ledger/analysis.h"

enum { LIST_BYTES_MAX = 1 << 24 };

typedef enum finding { UNTRIED, SAME, OTHER, BROKEN } finding;

typedef struct bisection {
  const ot_ledger_command *command;
  const ot_ledger *ledger;
  int64_t count, looks;
  finding *known;      // [count]
  const char **label;  // [count]
  const char *lead;    // before a label, in messages
  // Finds out about candidate i. Failures are those that end the search.
  ot_status (*judge)(struct bisection *b, int64_t i, finding *out);
  const ot_record_line **merge;  // [count] that wrote a base
  ot_ledger_sets sets;           // [count] keys that are given other values, one after another
  const char *program;           // null: this one; of commits: within their tree
  const char *source, *tree;     // repository, and the work tree in which commits are built
  int pairs, scale;
  double level;             // one-sided
  double rounding;          // least standard deviation of the difference of a pair
  ot_measured *difference;  // [count] of the loss
} bisection;

// ---- halving ----

// The untried one nearest to the middle of (low, high); high where there is none.
static int64_t middle_of(const bisection *b, int64_t low, int64_t high) {
  const int64_t middle = low + (high - low) / 2;
  for (int64_t away = 0; away < high - low; away++) {
    const int64_t sides[] = {middle - away, middle + away};
    for (int k = 0; k < 2; k++)
      if (sides[k] > low && sides[k] < high && b->known[sides[k]] == UNTRIED) return sides[k];
  }
  return high;
}

static ot_status judge(bisection *b, int64_t i) {
  b->looks++;
  return b->judge(b, i, &b->known[i]);
}

// The last is another than recorded: halves between `low`, the last that is the same or -1, and
// `high`. Those that remain between them cannot be tried.
static ot_status halve(bisection *b, int64_t *low, int64_t *high) {
  *low = -1;
  *high = b->count - 1;
  b->looks = 0;
  for (int64_t i = middle_of(b, *low, *high); i < *high; i = middle_of(b, *low, *high)) {
    OT_TRY(judge(b, i));
    if (b->known[i] == SAME) *low = i;
    if (b->known[i] == OTHER) *high = i;
  }
  return OT_OK;
}

static void begin_list(bisection *b, int64_t most) {
  ot_arena *const arena = b->ledger->arena;
  b->known = ot_arena_array(arena, most + 1, sizeof *b->known);
  b->label = ot_arena_array(arena, most + 1, sizeof *b->label);
  b->difference = ot_arena_array(arena, most + 1, sizeof *b->difference);
}

// ---- merges ----

// Whether the base of a merge still gives the recorded bits.
static ot_status judge_merge(bisection *b, int64_t i, finding *out) {
  const ot_node *const line = b->merge[i]->tree;
  ot_ledger l = *b->ledger;
  const char *bits;
  OT_TRY(ot_ledger_set_base(&l, ot_ledger_base_path(&l, ot_record_text(line, "new_base"))));
  *out = OTHER;
  if (!ot_text_equal(l.base_hash, ot_record_text(line, "new_base_hash"))) return OT_OK;
  OT_TRY(ot_ledger_find_bits(&l, b->program, &bits));
  if (ot_text_equal(bits, ot_record_text(line, "bits"))) *out = SAME;
  fprintf(stderr, "line %lld: %s\n", (long long)b->merge[i]->number,
          *out == SAME ? "the recorded bits" : "other bits");
  return OT_OK;
}

static ot_status list_merges(bisection *b) {
  const ot_options *const o = b->command->options;
  const ot_record *const r = &b->ledger->record;
  const char *const from = ot_options_text(o, "from"), *const to = ot_options_text(o, "to");
  bool inside = from == NULL;
  begin_list(b, r->count);
  b->judge = judge_merge;
  b->merge = ot_arena_array(b->ledger->arena, r->count + 1, sizeof *b->merge);
  for (int64_t i = 0; i < r->count; i++) {
    const ot_record_line *const line = &r->line[i];
    if (from && ot_text_starts_with(line->id, from)) inside = true;
    const bool merge =
        ot_text_equal(line->kind, "merge") && ot_record_text(line->tree, "bits")[0] != '\0';
    if (inside && merge) {
      b->label[b->count] = ot_record_text(line->tree, "new_base");
      b->merge[b->count++] = line;
    }
    if (to && ot_text_starts_with(line->id, to)) inside = false;
  }
  OT_CHECK(b->count > 0, OT_USAGE,
           "no merge in this part of the record wrote a base (merge --write FILE)");
  return OT_OK;
}

// ---- the loss ----

static const ot_ledger_scale *scale_of(const bisection *b) {
  return &b->ledger->policy.scales[b->scale];
}

// The baseline of a seed, and its recorded run.
static ot_status find_recorded(const bisection *b, int seed, ot_ledger_job *job,
                               const ot_node **run) {
  ot_ledger_arm arm = ot_ledger_arm_of(b->ledger, NULL, 0);
  arm.seed = seed;
  arm.scale = b->scale;
  *run = NULL;
  OT_TRY(ot_ledger_job_build(b->ledger, &arm, job));
  const ot_record_line *const line = ot_ledger_find_run(b->ledger, job);
  if (!line) {
    ot_fail(OT_USAGE, "the run %s is missing: there is no loss to compare with", job->id);
    return ot_fail_hint(OT_USAGE, "`orthant ledger fit` runs the baseline");
  }
  *run = line->tree;
  return OT_OK;
}

// A trial of the baseline: its program (null: this one), and the first of the other settings, below
// the ledger's own.
typedef struct trial {
  const char *program;
  int num_sets;
} trial;

static ot_status run_seed(const bisection *b, const trial *t, int seed, double *difference,
                          bool *same_bits) {
  const ot_ledger *const l = b->ledger;
  const ot_node *recorded;
  ot_ledger_job job;
  ot_ledger_result result;
  OT_TRY(find_recorded(b, seed, &job, &recorded));
  const char **const sets = ot_arena_array(l->arena, job.num_sets + t->num_sets, sizeof *sets);
  for (int i = 0; i < t->num_sets; i++) sets[i] = b->sets.text[i];
  for (int i = 0; i < job.num_sets; i++) sets[t->num_sets + i] = job.sets[i];
  job.num_sets += t->num_sets;
  job.sets = sets;
  job.directory = ot_arena_format(l->arena, "%s.bisect", job.directory);
  job.sets[job.num_sets - 1] = ot_config_setting(l->arena, "output", job.directory);
  if (t->program) job.program = t->program;
  OT_TRY(ot_ledger_job_describe(l, &job));
  OT_TRY(ot_ledger_run_apart(l, &job, &result));
  OT_TRY(ot_disk_remove(job.directory));
  *difference = result.loss / job.unit - ot_record_real(recorded, "loss");
  *same_bits = ot_text_equal(result.weights_hash, ot_record_text(recorded, "weights_hash"));
  return OT_OK;
}

// The mean difference of pairs; a standard error below that of rounding is taken to be that.
static ot_measured measure(const bisection *b, const double *difference) {
  double mean = 0, squares = 0;
  for (int k = 0; k < b->pairs; k++) mean += difference[k] / b->pairs;
  for (int k = 0; k < b->pairs; k++) squares += (difference[k] - mean) * (difference[k] - mean);
  const double sd = sqrt(squares / (b->pairs - 1));
  return ot_measured_of(mean, fmax(sd, b->rounding) / sqrt(b->pairs), b->pairs, 0.95);
}

static ot_status judge_loss(bisection *b, int64_t i, const trial *t, finding *out) {
  double difference[OT_LEDGER_SEEDS];
  bool same_bits = false;
  for (int k = 0; k < b->pairs && !same_bits; k++) {
    const ot_status status = run_seed(b, t, k, &difference[k], &same_bits);
    if (status == OT_STOPPED) return status;
    if (status != OT_OK) {
      fprintf(stderr, "%s%s: cannot be tried: %s\n", b->lead, b->label[i], ot_fail_message());
      *out = BROKEN;
      return OT_OK;
    }
  }
  *out = SAME;
  if (same_bits) {
    fprintf(stderr, "%s%s: the recorded bits\n", b->lead, b->label[i]);
    return OT_OK;
  }
  const ot_measured d = b->difference[i] = measure(b, difference);
  if (isnan(d.value) || d.p <= b->level || 1 - d.p <= b->level) *out = OTHER;
  fprintf(stderr, "%s%s: the loss differs by %.3g [%.3g, %.3g] in %d pairs at %s: %s\n", b->lead,
          b->label[i], d.value, d.low, d.high, b->pairs, scale_of(b)->name,
          *out == OTHER ? "another loss" : "seeds explain it");
  return OT_OK;
}

// The first, or that of --scale.
static ot_status find_scale(bisection *b) {
  const ot_ledger_policy *const p = &b->ledger->policy;
  const char *const wanted = ot_options_text(b->command->options, "scale");
  ot_text_builder names = {.arena = b->ledger->arena};
  b->scale = 0;
  for (int i = 0; wanted && i < p->num_scales; i++) {
    if (ot_text_equal(p->scales[i].name, wanted)) {
      b->scale = i;
      return OT_OK;
    }
    ot_text_appendf(&names, "%s%s", i > 0 ? ", " : "", p->scales[i].name);
  }
  OT_CHECK(!wanted, OT_USAGE, "--scale: the ladder has no \"%s\" (it has %s)", wanted,
           ot_text_builder_text(&names));
  return OT_OK;
}

// Half of the error for each side, shared by all looks.
static ot_status begin_losses(bisection *b) {
  const ot_ledger *const l = b->ledger;
  const ot_options *const o = b->command->options;
  int looks = 1;
  OT_TRY(find_scale(b));
  b->pairs =
      ot_options_given(o, "pairs") ? (int)ot_options_integer(o, "pairs") : l->policy.looks.pairs[0];
  OT_CHECK(b->pairs <= l->policy.seeds.count, OT_USAGE, "--pairs %d: the policy has %d seeds",
           b->pairs, l->policy.seeds.count);
  for (int64_t n = b->count; n > 1; n = (n + 1) / 2) looks++;
  b->level = l->policy.looks.one_sided / looks;
  for (int k = 0; k < b->pairs; k++) {
    ot_ledger_job job;
    const ot_node *run;
    OT_TRY(find_recorded(b, k, &job, &run));
    if (k == 0) b->rounding = ot_ledger_find_rounding(l, b->scale, ot_record_real(run, "loss"));
  }
  return OT_OK;
}

// ---- keys ----

static ot_status judge_keys(bisection *b, int64_t i, finding *out) {
  return judge_loss(b, i, &(trial){b->program, (int)i + 1}, out);
}

static ot_status list_keys(bisection *b) {
  const ot_ledger *const l = b->ledger;
  const char *const path = ot_options_text(b->command->options, "against");
  OT_TRY(ot_ledger_sets_between(l->policy.base, path, &l->presets, l->arena, &b->sets));
  OT_CHECK(b->sets.count > 0, OT_USAGE, "--against: %s sets nothing else than %s", path,
           l->policy.base);
  begin_list(b, b->sets.count);
  b->count = b->sets.count;
  b->judge = judge_keys;
  b->lead = "all up to ";
  for (int64_t i = 0; i < b->count; i++) b->label[i] = b->sets.written[i];
  return begin_losses(b);
}

// ---- commits ----

// Runs a command in `folder` (null: this one); what it says goes to `out`.
static ot_status run_command(const bisection *b, const char *const *words, const char *folder,
                             const char *out, const char *doing) {
  int code;
  const char *const log = ot_arena_format(b->ledger->arena, "%s.log", b->tree);
  OT_TRY(ot_ledger_run_command(words, folder, out ? out : log, log, &code));
  OT_CHECK(code == 0, OT_ENVIRONMENT, "cannot %s: %s ended with code %d (%s)", doing, words[0],
           code, log);
  return OT_OK;
}

static ot_status judge_commit(bisection *b, int64_t i, finding *out) {
  const ot_ledger *const l = b->ledger;
  const char *const commit = ot_arena_text(l->arena, b->label[i], strcspn(b->label[i], " "));
  const char *const checkout[] = {"git",     "-C",       b->tree, "checkout",
                                  "--quiet", "--detach", commit,  NULL};
  const char *const build[] = {"sh", "-c", ot_options_text(b->command->options, "build"), NULL};
  OT_TRY(run_command(b, checkout, NULL, NULL, "check out a commit"));
  const ot_status built = run_command(b, build, b->tree, NULL, "build");
  if (built == OT_STOPPED) return built;
  const char *const program = ot_disk_join(l->arena, b->tree, b->program);
  if (built == OT_OK && ot_disk_is_file(program))
    return judge_loss(b, i, &(trial){program, 0}, out);
  fprintf(stderr, "%s: cannot be tried: %s\n", b->label[i],
          built == OT_OK ? "its build leaves no --program" : ot_fail_message());
  *out = BROKEN;
  return OT_OK;
}

// Takes the lines "HASH SUBJECT" that git wrote.
static ot_status read_commits(bisection *b, const char *path) {
  char *text;
  int64_t bytes, lines = 0;
  OT_TRY(ot_disk_read(b->ledger->arena, path, LIST_BYTES_MAX, &text, &bytes));
  for (const char *at = text; *at; at++) lines += *at == '\n';
  begin_list(b, lines + 1);
  for (const char *at = text, *end; (end = strchr(at, '\n')) != NULL; at = end + 1)
    b->label[b->count++] = ot_arena_text(b->ledger->arena, at, end - at);
  return OT_OK;
}

// The commits of A..B, and before them A, in a work tree of their own.
static ot_status list_commits(bisection *b) {
  ot_arena *const arena = b->ledger->arena;
  const char *const range = ot_options_text(b->command->options, "commits");
  const char *const dots = ot_text_find(range, "..");
  OT_CHECK(dots && dots > range && range[0] != '-', OT_USAGE,
           "--commits %s: a range GOOD..BAD of git is needed", range);
  const char *const good = ot_arena_text(arena, range, dots - range);
  const char *const list = ot_arena_format(arena, "%s.txt", b->tree);
  const char *const last = dots[2] ? dots + 2 : "HEAD";
  const char *const log[] = {"sh",
                             "-c",
                             "git -C \"$1\" log -1 --format='%H %s' \"$2\" && git -C \"$1\" log "
                             "--reverse --first-parent --format='%H %s' \"$2..$3\"",
                             "git",
                             b->source,
                             good,
                             last,
                             NULL};
  const char *const add[] = {"git",      "-C", b->source, "worktree", "add", "--quiet",
                             "--detach", "-f", b->tree,   good,       NULL};
  OT_TRY(run_command(b, log, NULL, list, "list the commits"));
  OT_TRY(read_commits(b, list));
  OT_CHECK(b->count > 1, OT_USAGE, "--commits %s: there are none", range);
  b->judge = judge_commit;
  OT_TRY(begin_losses(b));
  return run_command(b, add, NULL, NULL, "make a work tree");
}

// The work tree of a search that was killed is removed first.
static ot_status remove_tree(const bisection *b) {
  const char *const remove[] = {"git",    "-C",      b->source, "worktree",
                                "remove", "--force", b->tree,   NULL};
  if (!ot_disk_is_directory(b->tree)) return OT_OK;
  return run_command(b, remove, NULL, NULL, "remove a work tree");
}

static ot_status begin_commits(bisection *b) {
  const ot_options *const o = b->command->options;
  ot_arena *const arena = b->ledger->arena;
  char runs[OT_PATH_BYTES];
  const char *const folder = ot_disk_join(arena, b->ledger->directory, "runs");
  const char *const source = ot_options_text(o, "source");
  OT_TRY(ot_disk_make_directory(folder));
  if (!realpath(folder, runs)) return ot_disk_fail("find", folder, errno);
  b->source = source ? source : ".";
  b->tree = ot_disk_join(arena, runs, "bisect");
  if (!b->program) b->program = "build/orthant";
  OT_TRY(ot_disk_remove(ot_arena_format(arena, "%s.log", b->tree)));
  OT_TRY(remove_tree(b));
  return list_commits(b);
}

// ---- the answer ----

// The words for what is searched: merges, keys or commits.
typedef struct wording {
  const char *one, *same, *other;
} wording;

static const wording *wording_of(const bisection *b) {
  static const wording merge = {"base", "the newest base has the recorded bits",
                                "the first base that is not what was recorded"};
  static const wording key = {"key", "all keys together leave the loss as it was recorded",
                              "the first key that changes the loss"};
  static const wording commit = {"commit", "the last commit has the recorded loss",
                                 "the first commit that changes the loss"};
  return b->merge ? &merge : b->tree ? &commit : &key;
}

static void write_answer(const bisection *b, int64_t low, int64_t high, ot_json_writer *json) {
  const ot_measured *const d = &b->difference[high];
  ot_json_text(json, wording_of(b)->one, b->label[high]);
  if (b->merge) {
    ot_json_integer(json, "line", b->merge[high]->number);
    ot_node_write_json(ot_node_child(b->merge[high]->tree, "stack"), "stack", json);
    return;
  }
  ot_json_text(json, "scale", scale_of(b)->name);
  ot_json_integer(json, "pairs", b->pairs);
  ot_json_real(json, "difference", d->value);
  ot_json_array(json, "ci");
  ot_json_real(json, NULL, d->low);
  ot_json_real(json, NULL, d->high);
  ot_json_end(json);
  ot_json_array(json, "not_tried");
  for (int64_t i = low + 1; i < high; i++) ot_json_text(json, NULL, b->label[i]);
  ot_json_end(json);
}

static ot_status print_step(const bisection *b, int64_t low, int64_t high) {
  const wording *const w = wording_of(b);
  ot_json_writer json = ot_json_begin(b->ledger->arena, b->command->as_json ? 2 : 0);
  ot_json_object(&json, NULL);
  ot_json_integer(&json, "looks", b->looks);
  write_answer(b, low, high, &json);
  ot_json_end(&json);
  if (b->command->as_json)
    puts(json.text);
  else if (b->merge)
    printf("%s: %s, by the merge of line %lld (%lld looks)\n", w->other, b->label[high],
           (long long)b->merge[high]->number, (long long)b->looks);
  else
    printf("%s: %s (%lld looks)\n", w->other, b->label[high], (long long)b->looks);
  for (int64_t i = low + 1; i < high; i++)
    fprintf(stderr, "note: or %s, which cannot be tried\n", b->label[i]);
  if (high == 0 && b->count > 1 && !b->sets.count)
    fprintf(stderr, "note: all %ss differ; the program or the machine is another (build %s)\n",
            w->one, b->ledger->record.build);
  return ot_fail(OT_FINDINGS, "%s", "");
}

static ot_status search(bisection *b) {
  int64_t low, high;
  const int64_t last = b->count - 1;
  OT_TRY(judge(b, last));
  OT_CHECK(b->known[last] != BROKEN, OT_ENVIRONMENT, "%s cannot be tried: no end to search from",
           b->label[last]);
  if (b->known[last] == SAME) {
    if (b->command->as_json)
      puts("{\"looks\": 1, \"line\": null}");
    else
      printf("%s: nothing to search\n", wording_of(b)->same);
    if (!b->merge && b->ledger->policy.num_scales > 1)
      fprintf(stderr, "note: at %s; --scale names another scale\n", scale_of(b)->name);
    return OT_OK;
  }
  OT_TRY(halve(b, &low, &high));
  return print_step(b, low, high);
}

ot_status ot_ledger_bisect(ot_ledger_command *c) {
  bisection b = {.command = c,
                 .ledger = &c->ledger,
                 .lead = "",
                 .program = ot_options_text(c->options, "program")};
  const bool commits = ot_options_given(c->options, "commits");
  const bool keys = ot_options_given(c->options, "against");
  OT_CHECK(commits || keys || !ot_options_given(c->options, "scale"), OT_USAGE,
           "--scale is of --commits and --against: bases are compared by their bits");
  if (!commits) {
    OT_TRY(keys ? list_keys(&b) : list_merges(&b));
    return search(&b);
  }
  ot_failure failure = {0};
  ot_failure_take(&failure, begin_commits(&b));
  if (failure.status == OT_OK) ot_failure_take(&failure, search(&b));
  ot_failure_take(&failure, remove_tree(&b));
  return ot_failure_repeat(&failure);
}
