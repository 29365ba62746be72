// SPDX-License-Identifier: Apache-2.0
// The jobs that a ledger needs, and their order.
#include "ledger/ledger.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/text.h"
#include "files/content_hash.h"
#include "files/disk.h"

enum { FILE_BYTES_MAX = 1 << 20 };

static ot_status hash_file(ot_arena *arena, const char *path, const char **out) {
  char hash[OT_CONTENT_HASH_BYTES];
  char *text;
  int64_t bytes;
  OT_TRY(ot_disk_read(arena, path, FILE_BYTES_MAX, &text, &bytes));
  ot_content_hash_memory(text, bytes, hash);
  *out = ot_arena_text(arena, hash, OT_CONTENT_HASH_BYTES - 1);
  return OT_OK;
}

ot_status ot_ledger_set_base(ot_ledger *ledger, const char *path) {
  ledger->policy.base = path;
  return hash_file(ledger->arena, path, &ledger->base_hash);
}

ot_status ot_ledger_open(ot_ledger *l) {
  OT_TRY(ot_ledger_policy_load(l->directory, l->arena, &l->policy));
  OT_CHECK(l->policy.tuning.num_keys <= OT_LEDGER_TUNED, OT_USAGE, "tuning.keys: at most %d (%s)",
           OT_LEDGER_TUNED, l->policy.path);
  OT_TRY(ot_ledger_set_base(l, l->policy.base));
  OT_TRY(hash_file(l->arena, l->policy.path, &l->policy_hash));
  return ot_record_read(ot_disk_join(l->arena, l->directory, "ledger.jsonl"), l->arena, &l->record);
}

void ot_ledger_announce(const ot_ledger *ledger, const char *format, ...) {
  va_list arguments;
  if (!ledger->progress) return;
  va_start(arguments, format);
  ledger->progress(format, arguments);
  va_end(arguments);
}

const char *ot_ledger_base_path(const ot_ledger *l, const char *name) {
  const int64_t folder = ot_disk_base_name(l->policy.base) - l->policy.base;
  return ot_arena_format(l->arena, "%s%s", ot_arena_text(l->arena, l->policy.base, folder), name);
}

ot_status ot_ledger_path_from(ot_arena *arena, const char *path, const char *from,
                              const char **out) {
  char here[OT_PATH_BYTES], there[OT_PATH_BYTES];
  *out = path;
  if (path[0] == '/') return OT_OK;
  if (!getcwd(here, sizeof here)) return ot_disk_fail("find", "the current directory", errno);
  if (!realpath(from, there)) return ot_disk_fail("find", from, errno);
  *out = ot_disk_path_from(arena, ot_disk_join(arena, here, path), there);
  return OT_OK;
}

int ot_ledger_find_scale(const ot_ledger *l, const char *name) {
  for (int i = 0; i < l->policy.num_scales; i++)
    if (ot_text_equal(l->policy.scales[i].name, name)) return i;
  return -1;
}

ot_status ot_ledger_choose_pairs(const ot_ledger *l, int wanted, int *pairs) {
  *pairs = wanted > 0 ? wanted : l->policy.looks.pairs[0];
  OT_CHECK(*pairs <= l->policy.seeds.count, OT_USAGE, "--pairs %d: the policy has %d seeds", *pairs,
           l->policy.seeds.count);
  return OT_OK;
}

int ot_ledger_next_look(const ot_ledger *ledger, const char *change) {
  int done = 0;
  for (int64_t i = 0; i < ledger->record.count; i++) {
    const ot_record_line *const line = &ledger->record.line[i];
    done += ot_text_equal(line->kind, "look") &&
            ot_text_equal(ot_record_text(line->tree, "change"), change);
  }
  return done < ledger->policy.looks.count ? done : -1;
}

// ---- arms ----

static void add(const ot_ledger *ledger, ot_ledger_arms *arms, ot_ledger_arm arm) {
  arms->arm =
      ot_arena_grow(ledger->arena, arms->arm, arms->count, &arms->capacity, sizeof *arms->arm);
  arms->arm[arms->count++] = arm;
}

// The tuned factors of the arms of `name`; all 1 where nothing was tuned.
static void apply_tuned(const ot_ledger *ledger, const char *name, double *tuned) {
  for (int64_t i = 0; i < ledger->record.count; i++) {
    const ot_record_line *const line = &ledger->record.line[i];
    const bool own = ot_text_equal(line->kind, "tune") &&
                     ot_text_equal(ot_record_text(line->tree, "change"), name) &&
                     ot_text_equal(ot_record_text(line->tree, "base"), ledger->base_hash);
    for (int k = 0; own && k < ledger->policy.tuning.num_keys; k++)
      if (ot_text_equal(ot_record_text(line->tree, "key"), ledger->policy.tuning.keys[k]))
        tuned[k] = ot_record_real(line->tree, "factor");
  }
}

ot_ledger_arm ot_ledger_arm_of(const ot_ledger *ledger, const ot_ledger_change *const *changes,
                               int num_changes) {
  ot_ledger_arm arm = {.changes = changes, .num_changes = num_changes, .budget = 1};
  apply_tuned(ledger, "base", arm.tuned);  // where an arm was not tuned itself
  apply_tuned(ledger, ot_ledger_arm_name(&arm, ledger->arena), arm.tuned);
  return arm;
}

// The baseline of a scale and seed at all budgets.
static void add_budgets(const ot_ledger *ledger, ot_ledger_arm arm, ot_ledger_arms *arms) {
  const ot_ledger_policy *const p = &ledger->policy;
  add(ledger, arms, arm);
  if (p->slope.from == 1 || arm.seed >= p->slope.seeds) return;
  for (int i = 0; i < p->slope.num_factors; i++) {
    arm.budget = p->slope.factors[i];
    add(ledger, arms, arm);
  }
}

ot_ledger_arms ot_ledger_list_base(const ot_ledger *ledger, int pairs) {
  ot_ledger_arms arms = {0};
  ot_ledger_arm arm = ot_ledger_arm_of(ledger, NULL, 0);
  for (arm.scale = 0; arm.scale < ledger->policy.num_scales; arm.scale++)
    for (arm.seed = 0; arm.seed < pairs; arm.seed++) add_budgets(ledger, arm, &arms);
  return arms;
}

ot_ledger_arms ot_ledger_list_arms(const ot_ledger *ledger, const ot_ledger_change *const *changes,
                                   int num_changes, int pairs) {
  ot_ledger_arm own = ot_ledger_arm_of(ledger, changes, num_changes);
  ot_ledger_arms arms = ot_ledger_list_base(ledger, pairs);
  for (own.scale = 0; own.scale < ledger->policy.num_scales; own.scale++)
    for (own.seed = 0; own.seed < pairs; own.seed++) add(ledger, &arms, own);
  return arms;
}

// ---- tuning ----

static void add_factors(const ot_ledger *ledger, ot_ledger_arm arm, ot_ledger_arms *arms) {
  const ot_ledger_policy *const p = &ledger->policy;
  arm.seed = p->seeds.count;  // of no pair
  for (int k = 0; k < p->tuning.num_keys; k++) {
    for (int f = 0; f < p->tuning.num_factors; f++) {
      ot_ledger_arm tried = arm;
      for (int other = 0; other < OT_LEDGER_TUNED; other++) tried.tuned[other] = 1;
      tried.tuned[k] = p->tuning.factors[f];
      add(ledger, arms, tried);
    }
  }
}

ot_ledger_arms ot_ledger_list_tuning(const ot_ledger *ledger,
                                     const ot_ledger_change *const *changes, int num_changes) {
  const ot_ledger_arm base = {.budget = 1};
  const ot_ledger_arm own = {.changes = changes, .num_changes = num_changes, .budget = 1};
  ot_ledger_arms arms = {0};
  add_factors(ledger, base, &arms);
  if (num_changes > 0) add_factors(ledger, own, &arms);
  return arms;
}

static bool has_tuned(const ot_ledger *ledger, const char *name) {
  double tuned[OT_LEDGER_TUNED] = {0};
  apply_tuned(ledger, name, tuned);
  return tuned[0] != 0;
}

// The best factor of a key, from the runs of `arms` [first, first + num_factors).
static ot_status choose(ot_ledger *ledger, const ot_ledger_arm *arms, int key) {
  const ot_ledger_policy *const p = &ledger->policy;
  double best = INFINITY, factor = 1;
  ot_json_writer line = ot_record_begin(&ledger->record, "tune", ledger->arena);
  ot_json_text(&line, "change", ot_ledger_arm_name(arms, ledger->arena));
  ot_json_text(&line, "base", ledger->base_hash);
  ot_json_text(&line, "key", p->tuning.keys[key]);
  ot_json_array(&line, "losses");
  for (int f = 0; f < p->tuning.num_factors; f++) {
    ot_ledger_job job;
    OT_TRY(ot_ledger_job_build(ledger, &arms[f], &job));
    const ot_record_line *const run = ot_ledger_find_run(ledger, &job);
    OT_CHECK(run, OT_BUG, "a run of tuning is not recorded: %s", job.id);
    const double loss = ot_record_real(run->tree, "loss");
    ot_json_real(&line, NULL, loss);
    if (!(loss < best)) continue;
    best = loss;
    factor = p->tuning.factors[f];
  }
  ot_json_end(&line);
  ot_json_real(&line, "factor", factor);
  return ot_record_append(&ledger->record, &line, ledger->arena);
}

ot_status ot_ledger_tune(ot_ledger *ledger, const ot_ledger_change *const *changes,
                         int num_changes) {
  const ot_ledger_policy *const p = &ledger->policy;
  const ot_ledger_arms arms = ot_ledger_list_tuning(ledger, changes, num_changes);
  for (int64_t i = 0; i < arms.count; i += p->tuning.num_keys * p->tuning.num_factors) {
    if (has_tuned(ledger, ot_ledger_arm_name(&arms.arm[i], ledger->arena))) continue;
    for (int k = 0; k < p->tuning.num_keys; k++)
      OT_TRY(choose(ledger, &arms.arm[i + k * p->tuning.num_factors], k));
  }
  return OT_OK;
}
