// SPDX-License-Identifier: Apache-2.0
// `orthant audit`: why a run would fail, before it does.
#include <stdio.h>
#include <string.h>

#include "audit/audit_ranks.h"
#include "audit/causality.h"
#include "audit/drift.h"
#include "audit/overlap.h"
#include "audit/precision.h"
#include "cli/installed.h"
#include "cli/ranks.h"
#include "cli/verbs.h"
#include "train/checkpoint_list.h"
#include "train/config_file.h"
#include "train/disk.h"

typedef enum audit_kind {
  AUDIT_RANKS,
  AUDIT_OVERLAP,
  AUDIT_DRIFT,
  AUDIT_CAUSALITY,
  AUDIT_PRECISION,
  AUDIT_LATER
} audit_kind;

static const struct {
  const char *name;
  audit_kind kind;
  int steps;  // that it takes when --steps does not say
} audits[] = {
    {"ranks", AUDIT_RANKS, 2},         {"overlap", AUDIT_OVERLAP, 5},
    {"causality", AUDIT_CAUSALITY, 0}, {"precision", AUDIT_PRECISION, 0},
    {"drift", AUDIT_DRIFT, 0},         {"all", AUDIT_LATER, 0},
};

// What the ranks of a process share.
typedef struct auditing {
  const ot_options *options;
  ot_arena *arena;
  int audit;  // index in `audits`
  int steps;
  ot_config config;
  const char *checkpoint;  // the state to begin with, or null: the initial weights
  ot_audit_report report;
  bool leads;  // the rank that has the report is of this process
} auditing;

// ---- what is audited ----

static ot_status find_audit(auditing *a) {
  const char *const name = ot_options_argument(a->options, 0);
  for (a->audit = 0; a->audit < OT_COUNT(audits); a->audit++) {
    if (strcmp(audits[a->audit].name, name) == 0) break;
  }
  if (a->audit == OT_COUNT(audits)) {
    ot_fail(OT_USAGE, "there is no audit \"%s\"", name);
    return ot_fail_hint(OT_USAGE, "ranks, overlap, drift, causality or precision");
  }
  if (audits[a->audit].kind == AUDIT_LATER) {
    ot_fail(OT_ENVIRONMENT, "the audit %s is not there in this build", name);
    return ot_fail_hint(OT_ENVIRONMENT, "all others are");
  }
  a->steps = ot_options_given(a->options, "steps") ? (int)ot_options_integer(a->options, "steps")
                                                   : audits[a->audit].steps;
  return OT_OK;
}

// The settings that a checkpoint was made with.
static ot_status read_checkpoint(auditing *a, const char *path, const char **text) {
  char *found = NULL;
  OT_TRY(ot_checkpoint_resolve(a->arena, path, &found));
  const char *const manifest_path = ot_disk_join(a->arena, found, "manifest.json");
  if (!ot_disk_is_file(manifest_path)) {
    ot_fail(OT_USAGE, "%s has no manifest.json: it is no checkpoint of a run", found);
    return ot_fail_hint(OT_USAGE, "audit a RUN.yaml with init: %s", found);
  }
  ot_manifest manifest;
  OT_TRY(ot_checkpoint_check(a->arena, found, false, &manifest));
  a->checkpoint = found;
  *text = manifest.config;
  return OT_OK;
}

static ot_status load_settings(auditing *a) {
  const char *const path = ot_options_argument(a->options, 1);
  const int given = ot_options_count(a->options, "set");
  const char **const sets = ot_arena_array(a->arena, given + 1, sizeof *sets);
  ot_config_request request = {
      .path = path, .sets = sets, .num_sets = given, .presets = ot_installed_presets(a->arena)};
  for (int i = 0; i < given; i++) sets[i] = ot_options_values(a->options, "set")[i];
  if (ot_options_given(a->options, "seed")) {
    sets[request.num_sets++] =
        ot_arena_format(a->arena, "seed=%lld", (long long)ot_options_integer(a->options, "seed"));
  }
  if (ot_disk_is_directory(path)) OT_TRY(read_checkpoint(a, path, &request.text));
  return ot_config_load(&request, a->arena, &a->config);
}

static ot_status prepare(void *context, int ranks) {
  auditing *const a = context;
  OT_TRY(load_settings(a));
  OT_TRY(ot_run_check_ranks(&a->config.run, ranks));
  ot_mesh mesh;
  OT_TRY(ot_mesh_build(&a->config.run.parallel, ranks, &mesh));
  ot_instance_request one_rank = {.mesh = &mesh};
  return ot_trainer_request(&a->config.run, a->arena, &one_rank);
}

// ---- one rank ----

static ot_status audit_drift(ot_trainer *trainer, ot_team *team, ot_arena *arena,
                             ot_audit_report *report) {
  enum { DRIFT_TOKENS = 128 };
  const ot_drift_request request = {.trainer = trainer, .team = team, .tokens = DRIFT_TOKENS};
  return ot_audit_drift(&request, arena, report);
}

static ot_status audit_causality(const auditing *a, ot_trainer *trainer, ot_team *team,
                                 ot_audit_report *report) {
  enum { TRIALS = 16 };
  const ot_causality_request request = {
      .trainer = trainer, .team = team, .trials = TRIALS, .seed = (uint64_t)a->config.run.seed};
  return ot_audit_causality(&request, a->arena, report);
}

// Gradients are summed over data and context parallelism.
static ot_status audit_precision(const auditing *a, ot_trainer *trainer, ot_team *team,
                                 ot_audit_report *report) {
  const int64_t planned = ot_options_integer(a->options, "planned-ranks");
  const int live = ot_team_data_degree(team) * ot_team_degree(team, OT_AXIS_CP);
  const ot_precision_request request = {.trainer = trainer,
                                        .team = team,
                                        .ranks = planned > 0 ? planned : live,
                                        .seed = (uint64_t)a->config.run.seed};
  return ot_audit_precision(&request, a->arena, report);
}

static ot_status look(const auditing *a, ot_trainer *trainer, ot_team *team, ot_arena *arena,
                      ot_audit_report *report) {
  if (a->checkpoint) OT_TRY(ot_trainer_resume(trainer, a->checkpoint));
  switch (audits[a->audit].kind) {
    case AUDIT_RANKS:
      return ot_audit_ranks(trainer, team, a->steps, arena, report);
    case AUDIT_OVERLAP:
      return ot_audit_overlap(trainer, team, a->steps, arena, report);
    case AUDIT_DRIFT:
      return audit_drift(trainer, team, arena, report);
    case AUDIT_CAUSALITY:
      return audit_causality(a, trainer, team, report);
    case AUDIT_PRECISION:
      return audit_precision(a, trainer, team, report);
    case AUDIT_LATER:
      break;
  }
  OT_UNREACHABLE();
}

// The leader's report stays; those of the others are the same.
static ot_status audit_team(auditing *a, ot_team *team) {
  ot_heap heap = {0};
  ot_arena own = ot_heap_arena_create(&heap);
  ot_trainer *trainer = NULL;
  ot_audit_report report = {0};
  const bool leads = ot_team_leads(team);
  ot_status status = ot_trainer_create(&a->config.run, a->config.settings, team, &trainer);
  if (status == OT_OK) status = look(a, trainer, team, leads ? a->arena : &own, &report);
  ot_trainer_destroy(&trainer);
  ot_heap_release(&heap);
  if (status != OT_OK || !leads) return status;
  a->report = report;
  a->leads = true;
  return OT_OK;
}

static ot_status audit_rank(ot_comm *comm, void *context) {
  auditing *const a = context;
  ot_team *team = NULL;
  OT_TRY(ot_team_create(&a->config.run.parallel, comm, &team));
  const ot_status status = audit_team(a, team);
  ot_team_destroy(&team);
  return status;
}

// ---- the verb ----

// Settings that no data could make good are found without a model, even where this build could not
// train with them.
static ot_status audit_settings(auditing *a) {
  if (audits[a->audit].kind != AUDIT_PRECISION) return OT_OK;
  OT_TRY(load_settings(a));
  a->report = (ot_audit_report){.audit = "precision",
                                .summary = "the settings alone; no sums were played with them"};
  ot_precision_lint(&a->config.run, a->arena, &a->report);
  a->leads = a->report.num_findings > 0;
  return OT_OK;
}

static ot_status audit(auditing *a) {
  OT_TRY(find_audit(a));
  OT_TRY(audit_settings(a));
  const ot_ranks_verb verb = {prepare, audit_rank, a};
  if (!a->leads) OT_TRY(ot_ranks_run(a->options, &verb));
  if (!a->leads) return OT_OK;
  if (ot_options_json(a->options)) {
    ot_json_writer json = ot_json_begin(a->arena, 2);
    ot_audit_report_write(&a->report, &json, NULL);
    puts(json.text);
  } else {
    fputs(ot_audit_report_print(&a->report, a->arena), stdout);
  }
  return OT_OK;
}

static ot_status run(const ot_options *options) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  auditing a = {.options = options, .arena = &arena};
  ot_status status = audit(&a);
  // A finding is a result and no failure: it has been printed, and ends in a code of its own.
  if (status == OT_OK && a.report.num_findings > 0) status = ot_fail(OT_FINDINGS, "%s", "");
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
     .help = "ranks as threads of this process (without a launcher)"},
    {.name = "set",
     .kind = OT_OPTION_SETTING,
     .value = "KEY=VALUE",
     .help = "override a setting; lists as [a, b]"},
    {.name = "seed",
     .kind = OT_OPTION_INTEGER,
     .value = "N",
     .help = "of initial weights and data, in place of the run's"},
    {.name = "planned-ranks",
     .kind = OT_OPTION_INTEGER,
     .value = "N",
     .fallback = "0",
     .minimum = 0,
     .maximum = 1 << 20,
     .help = "precision: ranks that gradients will be summed over; 0: those of the run"},
    {.name = "steps",
     .kind = OT_OPTION_INTEGER,
     .value = "N",
     .minimum = 1,
     .maximum = 1000,
     .help = "training steps to look at; ranks: 2, overlap: 5"},
};

const ot_verb ot_verb_audit = {
    .name = "audit",
    .summary = "find out why a run would fail",
    .arguments = "ranks|overlap|drift|causality|precision RUN.yaml|CHECKPOINT",
    .min_arguments = 2,
    .max_arguments = 2,
    .details =
        "ranks    every number that several ranks hold copies of has the same bits on all: "
        "weights,\n"
        "         gradients, optimizer state, scalars, counters, batches; over whatever axis\n"
        "overlap  how much of a step is communication in the open, by axis and kind\n"
        "causality  no token depends on later ones, on other documents or on other sequences\n"
        "precision  sums of gradients over micro-batches and ranks lean to no side in the planned\n"
        "         formats; moments, updates and epsilon fit theirs\n"
        "drift    the forward of training gives what decoding token by token, other lengths and\n"
        "         batches, and the exported model give\n"
        "A RUN.yaml is audited from its initial weights on, a checkpoint or a run directory from\n"
        "its state; nothing is written. The exit code is 1 when there is a finding.",
    .examples =
        "  orthant audit ranks run.yaml --ranks 4\n"
        "  mpirun -n 8 orthant audit overlap run.yaml --set parallel.zero=3\n"
        "  orthant audit ranks runs/run --ranks 2 --json",
    .options = rows,
    .num_options = OT_COUNT(rows),
    .json = true,
    .run = run,
};
