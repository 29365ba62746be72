// SPDX-License-Identifier: Apache-2.0
// The files that a user writes: policy.yaml (metric, ladder, seeds, looks, margins) and
// changes/NAME.yaml (what is changed, and what it claims). Relative paths are relative to the file.
#pragma once

#include "base/arena.h"
#include "base/status.h"
#include "base/tree.h"
#include "files/config_file.h"
#include "ledger/decision.h"

// Settings of a run, as --set takes them.
typedef struct ot_ledger_sets {
  int count;
  const char **text;     // [count] KEY=VALUE with absolute paths
  const char **written;  // [count] as in the file: what hashes and records use
} ot_ledger_sets;

typedef struct ot_ledger_scale {
  const char *name;
  int64_t tokens;  // of a full run
  ot_ledger_sets sets;
} ot_ledger_scale;

// The cluster and the run for which planned seconds are compared.
typedef struct ot_ledger_planned {
  const char *cluster;  // preset or file; "": none
  int gpus;             // 0: the cluster's
  const char *scale;    // RUN.yaml
} ot_ledger_planned;

typedef struct ot_ledger_policy {
  const char *path, *directory;
  const char *base;  // RUN.yaml
  struct {
    const char *data;  // validation set; "": that of the base
    int64_t tokens;    // 0: all of it
    int unit;          // 0: nats a token, 1: bits a byte, for arms whose tokenizers differ
  } metric;
  ot_ledger_planned planned;
  int64_t num_scales;
  ot_ledger_scale *scales;
  struct {
    int64_t base;
    int count;
  } seeds;
  struct {
    int from;  // 0: budgets of each scale, 1: along the ladder
    double *factors;
    int64_t num_factors;
    int seeds;  // the first that also run the other budgets
  } slope;
  struct {
    int *pairs;
    int64_t num_pairs;
    double one_sided;
    double *levels;
    int64_t num_levels;
  } look_keys;
  ot_looks looks;
  ot_ledger_margins margins;
  int candidates;  // 0: each at the level of the looks, 1: LOND
  struct {
    const char **keys;
    int64_t num_keys;
    double *factors;
    int64_t num_factors;
  } tuning;
  double target;  // compute; 0: none
  int audit;      // ot_ledger_audit
  int ranks, threads;
} ot_ledger_policy;

typedef enum ot_ledger_audit {
  OT_LEDGER_AUDIT_ALL,
  OT_LEDGER_AUDIT_CAUSALITY,
  OT_LEDGER_AUDIT_NONE,
} ot_ledger_audit;

// Reads DIRECTORY/policy.yaml. OT_USAGE naming the place.
ot_status ot_ledger_policy_load(const char *directory, ot_arena *arena, ot_ledger_policy *out);

// The claim of a change.
typedef enum ot_ledger_class {
  OT_LEDGER_QUALITY,
  OT_LEDGER_SPEED,    // the same bits, sooner
  OT_LEDGER_NEUTRAL,  // the same loss within margins.neutral
} ot_ledger_class;

extern const char *const ot_ledger_class_names[];

typedef struct ot_ledger_change {
  const char *name;
  int class;
  ot_ledger_sets sets;
  double hypothesis;    // expected multiplier; 0: none
  const char *program;  // the program that runs its arms; "": this one
  const char *commit;   // of it, for the record
  double budget;        // its arms train on this many times a scale's tokens, all counted
  bool seeds_only;      // pairs share seeds, but not data: another tokenizer, length or batch
  // For tests of a ledger: its arms train longer by this factor at each scale (the last repeats),
  // and the additional compute is not counted, so that ln m is known. Of several the largest holds.
  double *forged;
  int64_t num_forged;
  const char *note;
  const ot_node *tree;  // of the file
} ot_ledger_change;

// Reads DIRECTORY/changes/NAME.yaml.
ot_status ot_ledger_change_load(const char *directory, const char *name, ot_arena *arena,
                                ot_ledger_change *out);

// The keys that the RUN.yaml at `to` sets to other values than that at `from`, in its order; then
// the keys that only `from` sets, with the defaults of `to`.
ot_status ot_ledger_sets_between(const char *from, const char *to, const ot_presets *presets,
                                 ot_arena *arena, ot_ledger_sets *out);

// Whether `word` as the value of a run's key is a relative path.
bool ot_ledger_is_path(const char *key, const char *word);

// The forged factor of several changes at a scale; 1: none.
double ot_ledger_forged(const ot_ledger_change *const *changes, int count, int scale);

// A change is called by letters, digits, '-', '_' and '.', and not "base".
ot_status ot_ledger_check_name(const char *name);
