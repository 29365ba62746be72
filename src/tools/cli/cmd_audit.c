// SPDX-License-Identifier: Apache-2.0
// `orthant audit`: finds silent failures of a run.
#include <stdio.h>
#include <string.h>

#include "audit/audit.h"
#include "base/text.h"
#include "checkpoint/checkpoint_list.h"
#include "cli/audit_rl.h"
#include "cli/installed.h"
#include "cli/output.h"
#include "cli/ranks.h"
#include "cli/run_options.h"
#include "cli/verbs.h"
#include "files/config_file.h"
#include "files/disk.h"
#include "runtime/training_request.h"

// Audits without training steps come first.
static const struct {
  const char *name;
  ot_audit_call call;  // null: those before it
} audits[] = {
    {"causality", ot_audit_causality},
    {"precision", ot_audit_precision},
    {"drift", ot_audit_drift},
    {"step", ot_audit_step},
    {"ranks", ot_audit_ranks},
    {"overlap", ot_audit_overlap},
    {"all", NULL},
    {"coordinates", ot_audit_coordinates},
};

enum { MOST_REPORTS = OT_COUNT(audits) - 1, RL_UPDATES = 6 };

// Shared by the ranks of a process.
typedef struct auditing {
  const ot_options *options;
  ot_arena *arena;
  int audit;  // index in `audits`
  ot_config config;
  const char *checkpoint;  // the state to audit, or null: the initial weights
  int64_t step;            // of it
  const char *saved_config;
  const char *note;  // names newer, damaged checkpoints; null: none
  int num_reports;   // 0: the leading rank is in another process
  ot_audit_report reports[MOST_REPORTS];
} auditing;

// ---- arguments ----

static ot_status find_audit(auditing *a) {
  const char *const name = ot_options_argument(a->options, 0);
  for (a->audit = 0; a->audit < OT_COUNT(audits); a->audit++) {
    if (strcmp(audits[a->audit].name, name) == 0) break;
  }
  if (a->audit == OT_COUNT(audits)) {
    ot_fail(OT_USAGE, "there is no audit \"%s\"", name);
    return ot_fail_hint(
        OT_USAGE, "causality, precision, drift, step, ranks, overlap, coordinates, rl or all");
  }
  return OT_OK;
}

static ot_status check_against(const ot_options *options) {
  const char *const name = ot_options_argument(options, 0);
  const bool fits = ot_text_equal(name, "drift") || ot_text_equal(name, "all");
  OT_CHECK(fits || !ot_options_text(options, "against"), OT_USAGE,
           "audit %s: --against is for drift", name);
  return OT_OK;
}

// The settings of the run that wrote a checkpoint.
static ot_status read_checkpoint(auditing *a, const char *path, const char **text) {
  static const ot_checkpoint_search headers = {.hashes = OT_CHECKPOINT_HASH_HEADERS};
  ot_checkpoint_found found;
  OT_TRY(ot_checkpoint_find(a->arena, path, &headers, &found));
  if (found.manifest == NULL) {
    ot_fail(OT_USAGE, "%s has no manifest.json: it is not a checkpoint of a run", found.path);
    return ot_fail_hint(OT_USAGE, "audit a RUN.yaml with init: %s", found.path);
  }
  a->checkpoint = found.path;
  a->step = found.manifest->step;
  a->saved_config = found.manifest->config;
  a->note = found.note;
  *text = found.manifest->config;
  return OT_OK;
}

static ot_status load_settings(auditing *a) {
  const char *const path = ot_options_argument(a->options, 1);
  const int given = ot_options_count(a->options, "set");
  const char **const sets = ot_arena_array(a->arena, given + 2, sizeof *sets);
  ot_config_request request = {
      .path = path, .sets = sets, .num_sets = given, .presets = ot_installed_presets(a->arena)};
  for (int i = 0; i < given; i++) sets[i] = ot_options_values(a->options, "set")[i];
  if (ot_options_given(a->options, "seed")) {
    sets[request.num_sets++] =
        ot_arena_format(a->arena, "seed=%lld", (long long)ot_options_integer(a->options, "seed"));
  }
  if (ot_options_given(a->options, "device")) {
    sets[request.num_sets++] =
        ot_arena_format(a->arena, "device=%s", ot_options_text(a->options, "device"));
  }
  if (ot_disk_is_directory(path)) OT_TRY(read_checkpoint(a, path, &request.text));
  return ot_config_load(&request, a->arena, &a->config);
}

static ot_status prepare(void *context, int ranks) {
  auditing *const a = context;
  OT_TRY(load_settings(a));
  OT_TRY(ot_run_options_check_init(&a->config, a->arena));
  OT_TRY(ot_trainer_check(&a->config.run));
  ot_mesh mesh;
  OT_TRY(ot_run_options_mesh(&a->config, ranks, a->arena, &mesh));
  ot_rank_request one_rank;
  return ot_training_request(&a->config.run, &mesh, 0, a->arena, &one_rank);
}

// ---- one rank ----

// The newest checkpoint before those in `damages`; its path to `path`.
static ot_status find_older(const auditing *a, const ot_checkpoint_damage_list *damages,
                            ot_checkpoint_found *found, char *path) {
  const ot_checkpoint_search search = {.hashes = OT_CHECKPOINT_HASH_HEADERS, .known = damages};
  OT_TRY(ot_checkpoint_find(a->arena, ot_options_argument(a->options, 1), &search, found));
  fprintf(stderr, "%s\nauditing %s\n", found->note, found->path);
  if (!ot_text_equal(found->manifest->config, a->saved_config)) {
    ot_fail(OT_ENVIRONMENT, "checkpoint is damaged: %s", damages->text[damages->count - 1]);
    return ot_fail_hint(OT_ENVIRONMENT, "an older one has other settings: name %s", found->path);
  }
  ot_text_format(path, OT_WORLD_TEXT, "%s", found->path);
  return OT_OK;
}

// Loads the checkpoint at `path`, or, if it is damaged, the newest one before it that is not.
static ot_status resume(const auditing *a, ot_trainer *trainer, ot_world *world, char *path) {
  ot_checkpoint_damage_list damages = {0};
  const bool leads = ot_world_is_leader(world);
  for (int64_t step = a->step;;) {
    ot_checkpoint_found found = {0};
    const ot_status status = ot_trainer_resume(trainer, path);
    if (status == OT_OK || !ot_trainer_found_damage(trainer)) return status;
    if (leads) ot_checkpoint_damage_add(a->arena, &damages, step, ot_fail_message());
    OT_TRY(ot_world_agree(world, leads ? find_older(a, &damages, &found, path) : OT_OK));
    OT_TRY(ot_world_broadcast(world, path));
    if (leads) step = found.manifest->step;
  }
}

static ot_status run_audit(const auditing *a, const ot_audit_request *request, ot_arena *arena,
                           ot_audit_report *reports, int *count) {
  *count = 0;
  for (int i = 0; i < OT_COUNT(audits); i++) {
    const bool wanted = i == a->audit || (!audits[a->audit].call && i < a->audit);
    if (wanted && audits[i].call) OT_TRY(audits[i].call(request, arena, &reports[(*count)++]));
  }
  return OT_OK;
}

// Creates the trainer in the state to audit. `path`: of its checkpoint; empty: initial weights.
static ot_status prepare_trainer(const auditing *a, ot_world *world, char *path,
                                 ot_trainer **trainer) {
  OT_TRY(ot_trainer_create(&a->config.run, a->config.settings, world, trainer));
  if (ot_trainer_note(*trainer)) fprintf(stderr, "%s\n", ot_trainer_note(*trainer));
  if (!a->checkpoint) return OT_OK;
  ot_text_format(path, OT_WORLD_TEXT, "%s", a->checkpoint);
  return resume(a, *trainer, world, path);
}

// Keeps the leader's report; those of the other ranks are the same.
static ot_status audit_team(auditing *a, ot_world *world) {
  ot_heap heap = {0};
  ot_arena own = ot_heap_arena_create(&heap);
  const bool leads = ot_world_is_leader(world);
  if (leads) ot_output_notes(&a->config.notes);
  if (leads && a->note) fprintf(stderr, "%s\nauditing %s\n", a->note, a->checkpoint);
  ot_trainer *trainer = NULL;
  ot_audit_report reports[MOST_REPORTS] = {0};
  int count = 0;
  char path[OT_WORLD_TEXT] = "";
  ot_status status = prepare_trainer(a, world, path, &trainer);
  const bool limited = ot_options_given(a->options, "steps");
  const ot_audit_request request = {
      .trainer = trainer,
      .seed = (uint64_t)a->config.run.seed,
      .trials = (int)ot_options_integer(a->options, "trials"),
      .against = ot_options_text(a->options, "against"),
      .planned_ranks = ot_options_integer(a->options, "planned-ranks"),
      .steps = limited ? (int)ot_options_integer(a->options, "steps") : 0,
      .checkpoint = a->checkpoint ? path : NULL};
  if (status == OT_OK) status = run_audit(a, &request, leads ? a->arena : &own, reports, &count);
  ot_trainer_destroy(&trainer);
  ot_heap_release(&heap);
  if (status != OT_OK || !leads) return status;
  for (int i = 0; i < count; i++) a->reports[i] = reports[i];
  a->num_reports = count;
  return OT_OK;
}

static ot_status audit_rank(ot_comm *comm, void *context) {
  auditing *const a = context;
  ot_world *world = NULL;
  OT_TRY(ot_world_create(&a->config.run.parallel, comm, &world));
  const ot_status status = audit_team(a, world);
  ot_world_destroy(&world);
  return status;
}

// ---- the verb ----

// Settings that fail with any data are found without a model, even if this build cannot train with
// them.
static ot_status audit_settings(auditing *a) {
  if (audits[a->audit].call != ot_audit_precision) return OT_OK;
  OT_TRY(load_settings(a));
  a->reports[0] = (ot_audit_report){.audit = "precision",
                                    .arena = a->arena,
                                    .summary = "the settings alone; no sums were made with them"};
  ot_precision_lint(&a->config.run, &a->reports[0]);
  a->num_reports = a->reports[0].num_findings > 0;
  return OT_OK;
}

// The worst verdict: a finding, else inconclusive.
static ot_verdict verdict_of(const auditing *a) {
  ot_verdict worst = OT_VERDICT_CLEAN;
  for (int i = 0; i < a->num_reports; i++) {
    const ot_verdict verdict = a->reports[i].verdict;
    if (worst != OT_VERDICT_FINDING && verdict != OT_VERDICT_CLEAN) worst = verdict;
  }
  return worst;
}

// Several audits: their verdict, all findings, and each report.
static void write_all(const auditing *a, ot_json_writer *json) {
  ot_json_object(json, NULL);
  ot_json_text(json, "audit", audits[a->audit].name);
  ot_json_text(json, "verdict", ot_verdict_name(verdict_of(a)));
  ot_json_array(json, "findings");
  for (int i = 0; i < a->num_reports; i++) ot_audit_report_write_findings(&a->reports[i], json);
  ot_json_end(json);
  ot_json_array(json, "audits");
  for (int i = 0; i < a->num_reports; i++) ot_audit_report_write(&a->reports[i], json, NULL);
  ot_json_end(json);
  ot_json_end(json);
}

static void print_json(const auditing *a) {
  ot_json_writer json = ot_json_begin(a->arena, 2);
  if (!audits[a->audit].call) {
    write_all(a, &json);
  } else {
    ot_audit_report_write(&a->reports[0], &json, NULL);
  }
  puts(json.text);
}

static ot_status audit(auditing *a) {
  OT_TRY(find_audit(a));
  OT_TRY(check_against(a->options));
  OT_TRY(audit_settings(a));
  const ot_ranks_verb verb = {prepare, audit_rank, a};
  if (a->num_reports == 0) OT_TRY(ot_ranks_run(a->options, &verb));
  if (a->num_reports == 0) return OT_OK;
  if (ot_options_json(a->options)) {
    print_json(a);
    return OT_OK;
  }
  for (int i = 0; i < a->num_reports; i++) {
    fputs(ot_audit_report_print(&a->reports[i]), stdout);
  }
  return OT_OK;
}

// Such a run has no training data, so it shares no more than its settings with the others.
static ot_status audit_rl(auditing *a) {
  const bool limited = ot_options_given(a->options, "steps");
  OT_TRY(check_against(a->options));
  OT_TRY(load_settings(a));
  OT_TRY(ot_run_options_check_init(&a->config, a->arena));
  ot_output_notes(&a->config.notes);
  return ot_audit_rl(a->options, &a->config.run,
                     limited ? ot_options_integer(a->options, "steps") : RL_UPDATES);
}

static ot_status run(const ot_options *options) {
  auditing a = {.options = options, .arena = ot_options_arena(options)};
  if (ot_text_equal(ot_options_argument(options, 0), "rl")) return audit_rl(&a);
  ot_status status = audit(&a);
  // A finding is a result, not a failure: it has been printed and has an exit code of its own.
  if (status == OT_OK && verdict_of(&a) == OT_VERDICT_FINDING)
    status = ot_fail(OT_FINDINGS, "%s", "");
  return status;
}

static const ot_option rows[] = {
    {.shared = &ot_option_ranks},
    {.shared = &ot_option_set},
    {"seed", OT_OPTION_INTEGER, "N", .help = "of initial weights and data, in place of the run's"},
    {"device", OT_OPTION_CHOICE, "auto|cpu|cuda", .help = "what computes, in place of the run's"},
    {"planned-ranks", OT_OPTION_INTEGER, "N", "0", 0, 1 << 20,
     .help = "precision: ranks of the planned gradient reduction; 0: those of the run"},
    {"against", OT_OPTION_PATH, "FILE",
     .help = "drift: log-probabilities of the model by other software, as for judge logprobs"},
    {"trials", OT_OPTION_INTEGER, "N", "0", 0, 4096, .help = "causality: of each kind; 0: 16"},
    {"steps", OT_OPTION_INTEGER, "N", NULL, 1, 1000,
     .help = "training steps to audit; ranks: 2, overlap and coordinates: 5, rl: 6"},
};

const ot_verb ot_verb_audit = {
    .name = "audit",
    .summary = "find silent failures of a run",
    .arguments =
        "causality|precision|drift|step|ranks|overlap|coordinates|rl|all RUN.yaml|CHECKPOINT",
    .min_arguments = 2,
    .max_arguments = 2,
    .details =
        "causality  no token depends on later ones, on other documents or on other sequences\n"
        "precision  gradient reductions over micro-batches and ranks are unbiased in the planned\n"
        "           formats; moments, updates and epsilon are representable in theirs\n"
        "drift      the training forward pass agrees with decoding token by token, with other\n"
        "           lengths and batches, with the exported model and with the ranks of the run;\n"
        "           --against: an inference server or another trainer agrees with it, too\n"
        "step       a training step agrees with an independent computation of its batches, loss,\n"
        "           gradients, norm and update; for a checkpoint, also its initial state\n"
        "ranks      replicas have the same bits on all ranks: weights, gradients, optimizer\n"
        "           state, scalars, counters, batches; every tensor changes in a step; a step\n"
        "           agrees with that of one rank\n"
        "overlap    exposed communication of a step, by axis and kind\n"
        "coordinates\n"
        "           activations, and what steps change of them, keep their size as models grow:\n"
        "           learning rates transfer (parametrization: mup)\n"
        "rl         of a run that learns from rewards: generators and trainer agree; weights,\n"
        "           rewards and advantages are right; what a kept cache costs\n"
        "all        the first six, one after the other\n"
        "A RUN.yaml is audited at its initial weights, a checkpoint or a run directory at its\n"
        "saved state; nothing is written. The exit code is 1 when there is a finding.",
    .examples =
        "  orthant audit ranks run.yaml --ranks 4\n"
        "  mpirun -n 8 orthant audit overlap run.yaml --set parallel.zero=3\n"
        "  orthant audit precision run.yaml --planned-ranks 1024\n"
        "  orthant audit drift runs/run --against vllm.jsonl\n"
        "  orthant audit all runs/run --ranks 2 --json",
    .options = rows,
    .num_options = OT_COUNT(rows),
    .json = true,
    .run = run,
};
