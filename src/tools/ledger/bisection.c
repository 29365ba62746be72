// SPDX-License-Identifier: Apache-2.0
#include "ledger/bisection.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/failure.h"
#include "base/text.h"
#include "base/text_builder.h"
#include "files/disk.h"
#include "ledger/analysis.h"
#include "ledger/rerun.h"
#include "ledger/work_tree.h"

typedef enum finding { UNTRIED, SAME, OTHER, BROKEN } finding;

typedef struct bisection {
  const ot_ledger *ledger;
  const ot_bisection_request *request;
  int64_t count;
  finding *known;      // [count]
  const char **label;  // [count]
  const char *lead;    // before a label, in messages
  // Finds out about candidate i. Failures are those that end the search.
  ot_status (*judge)(struct bisection *b, int64_t i, finding *out);
  const ot_record_line **merge;  // [count] that wrote a base
  ot_ledger_sets sets;           // [count] keys that are given other values, one after another
  ot_work_tree tree;             // of commits
  int pairs, scale;
  double level;             // one-sided
  double rounding;          // least standard deviation of the difference of a pair
  ot_measured *difference;  // [count] of the loss
} bisection;

static void begin_list(bisection *b, const char **labels, int64_t count) {
  ot_arena *const arena = b->ledger->arena;
  b->count = count;
  b->label = labels;
  b->known = ot_arena_array(arena, count + 1, sizeof *b->known);
  b->difference = ot_arena_array(arena, count + 1, sizeof *b->difference);
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
  OT_TRY(ot_ledger_find_bits(&l, b->request->program, &bits));
  if (ot_text_equal(bits, ot_record_text(line, "bits"))) *out = SAME;
  ot_ledger_announce(&l, "line %lld: %s", (long long)b->merge[i]->number,
                     *out == SAME ? "the recorded bits" : "other bits");
  return OT_OK;
}

static ot_status list_merges(bisection *b) {
  const ot_record *const r = &b->ledger->record;
  const char *const from = b->request->from, *const to = b->request->to;
  const char **const labels = ot_arena_array(b->ledger->arena, r->count + 1, sizeof *labels);
  bool inside = from == NULL;
  int64_t count = 0;
  b->judge = judge_merge;
  b->merge = ot_arena_array(b->ledger->arena, r->count + 1, sizeof *b->merge);
  for (int64_t i = 0; i < r->count; i++) {
    const ot_record_line *const line = &r->line[i];
    if (from && ot_text_starts_with(line->id, from)) inside = true;
    const bool merge =
        ot_text_equal(line->kind, "merge") && ot_record_text(line->tree, "bits")[0] != '\0';
    if (inside && merge) {
      labels[count] = ot_record_text(line->tree, "new_base");
      b->merge[count++] = line;
    }
    if (to && ot_text_starts_with(line->id, to)) inside = false;
  }
  OT_CHECK(count > 0, OT_USAGE,
           "no merge in this part of the record wrote a base (merge --write FILE)");
  begin_list(b, labels, count);
  return OT_OK;
}

// ---- the loss ----

static const char *scale_of(const bisection *b) { return b->ledger->policy.scales[b->scale].name; }

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

static ot_status run_seed(const bisection *b, const ot_ledger_variation *variation, int seed,
                          double *difference, bool *same_bits) {
  const ot_node *recorded;
  ot_ledger_job job;
  ot_ledger_result now;
  OT_TRY(find_recorded(b, seed, &job, &recorded));
  OT_TRY(ot_ledger_run_varied(b->ledger, variation, &job, &now));
  *difference = now.loss - ot_record_real(recorded, "loss");
  *same_bits = ot_text_equal(now.weights_hash, ot_record_text(recorded, "weights_hash"));
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

static ot_status judge_loss(bisection *b, int64_t i, const ot_ledger_variation *variation,
                            finding *out) {
  const ot_ledger *const l = b->ledger;
  double difference[OT_LEDGER_SEEDS];
  bool same_bits = false;
  for (int k = 0; k < b->pairs && !same_bits; k++) {
    const ot_status status = run_seed(b, variation, k, &difference[k], &same_bits);
    if (status == OT_STOPPED) return status;
    if (status != OT_OK) {
      ot_ledger_announce(l, "%s%s: cannot be tried: %s", b->lead, b->label[i], ot_fail_message());
      *out = BROKEN;
      return OT_OK;
    }
  }
  *out = SAME;
  if (same_bits) {
    ot_ledger_announce(l, "%s%s: the recorded bits", b->lead, b->label[i]);
    return OT_OK;
  }
  const ot_measured d = b->difference[i] = measure(b, difference);
  if (isnan(d.value) || d.p <= b->level || 1 - d.p <= b->level) *out = OTHER;
  ot_ledger_announce(l, "%s%s: the loss differs by %.3g [%.3g, %.3g] in %d pairs at %s: %s",
                     b->lead, b->label[i], d.value, d.low, d.high, b->pairs, scale_of(b),
                     *out == OTHER ? "another loss" : "seeds explain it");
  return OT_OK;
}

static ot_status find_scale(bisection *b) {
  const ot_ledger_policy *const p = &b->ledger->policy;
  const char *const wanted = b->request->scale;
  ot_text_builder names = {.arena = b->ledger->arena};
  b->scale = wanted ? ot_ledger_find_scale(b->ledger, wanted) : 0;
  for (int i = 0; i < p->num_scales; i++)
    ot_text_appendf(&names, "%s%s", i > 0 ? ", " : "", p->scales[i].name);
  OT_CHECK(b->scale >= 0, OT_USAGE, "--scale: the ladder has no \"%s\" (it has %s)", wanted,
           ot_text_builder_text(&names));
  return OT_OK;
}

// Half of the error for each side, shared by all looks.
static ot_status begin_losses(bisection *b) {
  const ot_ledger *const l = b->ledger;
  int looks = 1;
  OT_TRY(find_scale(b));
  OT_TRY(ot_ledger_choose_pairs(l, b->request->pairs, &b->pairs));
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
  const ot_ledger_variation first = {.name = "bisect",
                                     .program = b->request->program,
                                     .num_defaults = (int)i + 1,
                                     .defaults = b->sets.text};
  return judge_loss(b, i, &first, out);
}

static ot_status list_keys(bisection *b) {
  const ot_ledger *const l = b->ledger;
  const char *const path = b->request->against;
  OT_TRY(ot_ledger_sets_between(l->policy.base, path, &l->presets, l->arena, &b->sets));
  OT_CHECK(b->sets.count > 0, OT_USAGE, "--against: %s sets nothing else than %s", path,
           l->policy.base);
  begin_list(b, b->sets.written, b->sets.count);
  b->judge = judge_keys;
  b->lead = "all up to ";
  return begin_losses(b);
}

// ---- commits ----

static ot_status judge_commit(bisection *b, int64_t i, finding *out) {
  const ot_work_tree *const t = &b->tree;
  const char *const within = b->request->program;
  OT_TRY(ot_work_tree_move(t, ot_arena_text(t->arena, b->label[i], strcspn(b->label[i], " "))));
  const ot_status built = ot_work_tree_build(t, b->request->build);
  if (built == OT_STOPPED) return built;
  const ot_ledger_variation commit = {
      .name = "bisect",
      .program = ot_disk_join(t->arena, t->path, within ? within : "build/orthant")};
  if (built == OT_OK && ot_disk_is_file(commit.program)) return judge_loss(b, i, &commit, out);
  ot_ledger_announce(b->ledger, "%s: cannot be tried: %s", b->label[i],
                     built == OT_OK ? "its build leaves no --program" : ot_fail_message());
  *out = BROKEN;
  return OT_OK;
}

// The commits of A..B, and before them A.
static ot_status list_commits(bisection *b) {
  const char *const range = b->request->commits;
  const char *const dots = ot_text_find(range, "..");
  const char **labels;
  int64_t count;
  OT_CHECK(dots && dots > range && range[0] != '-', OT_USAGE,
           "--commits %s: a range GOOD..BAD of git is needed", range);
  const char *const good = ot_arena_text(b->tree.arena, range, dots - range);
  OT_TRY(ot_work_tree_list(&b->tree, good, dots[2] ? dots + 2 : "HEAD", &labels, &count));
  begin_list(b, labels, count);
  OT_CHECK(b->count > 1, OT_USAGE, "--commits %s: there are none", range);
  b->judge = judge_commit;
  OT_TRY(begin_losses(b));
  return ot_work_tree_create(&b->tree, good);
}

static ot_status begin_commits(bisection *b) {
  ot_arena *const arena = b->ledger->arena;
  char runs[OT_PATH_BYTES];
  const char *const folder = ot_disk_join(arena, b->ledger->directory, "runs");
  OT_TRY(ot_disk_make_directory(folder));
  if (!realpath(folder, runs)) return ot_disk_fail("find", folder, errno);
  b->tree = (ot_work_tree){.arena = arena,
                           .source = b->request->source ? b->request->source : ".",
                           .path = ot_disk_join(arena, runs, "bisect")};
  OT_TRY(ot_disk_remove(ot_arena_format(arena, "%s.log", b->tree.path)));
  OT_TRY(ot_work_tree_remove(&b->tree));  // left by a search that was killed
  return list_commits(b);
}

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

// The last is another than recorded: halves between the last that is the same, and `first`. Those
// that remain between them cannot be tried.
static ot_status halve(bisection *b, ot_bisection_result *out) {
  int64_t low = -1, high = b->count - 1;
  for (int64_t i = middle_of(b, low, high); i < high; i = middle_of(b, low, high)) {
    out->looks++;
    OT_TRY(b->judge(b, i, &b->known[i]));
    if (b->known[i] == SAME) low = i;
    if (b->known[i] == OTHER) high = i;
  }
  out->first = b->label[high];
  out->merge = b->merge ? b->merge[high] : NULL;
  out->difference = b->difference[high];
  out->num_untried = high - low - 1;
  out->untried = &b->label[low + 1];
  out->all = high == 0 && b->count > 1 && b->sets.count == 0;
  out->ended = true;
  return ot_fail(OT_FINDINGS, "%s", "");
}

static ot_status search(bisection *b, ot_bisection_result *out) {
  const int64_t last = b->count - 1;
  out->scale = scale_of(b);
  out->pairs = b->pairs;
  OT_TRY(b->judge(b, last, &b->known[last]));
  OT_CHECK(b->known[last] != BROKEN, OT_ENVIRONMENT, "%s cannot be tried: no end to search from",
           b->label[last]);
  if (b->known[last] == OTHER) return halve(b, out);
  out->ended = true;
  return OT_OK;
}

ot_status ot_ledger_bisect(const ot_ledger *ledger, const ot_bisection_request *request,
                           ot_bisection_result *out) {
  bisection b = {.ledger = ledger, .request = request, .lead = ""};
  *out = (ot_bisection_result){.kind = request->commits   ? OT_BISECTION_COMMITS
                                       : request->against ? OT_BISECTION_KEYS
                                                          : OT_BISECTION_MERGES};
  OT_CHECK(request->commits || request->against || !request->scale, OT_USAGE,
           "--scale is of --commits and --against: bases are compared by their bits");
  if (!request->commits) {
    OT_TRY(request->against ? list_keys(&b) : list_merges(&b));
    return search(&b, out);
  }
  ot_failure failure = {0};
  ot_failure_take(&failure, begin_commits(&b));
  if (failure.status == OT_OK) ot_failure_take(&failure, search(&b, out));
  ot_failure_take(&failure, ot_work_tree_remove(&b.tree));
  return ot_failure_repeat(&failure);
}
