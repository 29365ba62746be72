// SPDX-License-Identifier: Apache-2.0
// A ledger: its policy and record, and the runs that they ask for. A run is identified by the hash
// of what determines its bits (`key`); a run that the record has is never run again.
#pragma once

#include <stdarg.h>

#include "ledger/policy.h"
#include "ledger/record.h"

typedef struct ot_ledger {
  // Set by the caller before the ledger is opened or begun.
  const char *directory;
  ot_arena *arena;  // everything lives in it
  ot_presets presets;
  int jobs;  // processes at a time, at least 1
  // A line about what happened, as printf has it, without a line break; null: none.
  void (*progress)(const char *format, va_list arguments);
  ot_ledger_policy policy;
  ot_record record;
  const char *base_hash;    // of the file of the baseline
  const char *policy_hash;  // of policy.yaml
} ot_ledger;

// Reads policy and record of the directory.
ot_status ot_ledger_open(ot_ledger *ledger);

// Writes the policy of a new ledger, with a ladder below the RUN.yaml at `base`, and opens it.
// OT_USAGE if the directory has a policy, or the run does not have exactly one validation set.
ot_status ot_ledger_begin(ot_ledger *ledger, const char *base);

// Passes a line to `progress`.
void ot_ledger_announce(const ot_ledger *ledger, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// Takes another file as the baseline.
ot_status ot_ledger_set_base(ot_ledger *ledger, const char *path);

// The path of the file `name` next to the baseline; in the arena.
const char *ot_ledger_base_path(const ot_ledger *ledger, const char *name);

// The path of a file, of the current directory unless it is absolute, as the files of the existing
// directory `from` name it; in `arena`.
ot_status ot_ledger_path_from(ot_arena *arena, const char *path, const char *from,
                              const char **out);

// The index of the scale `name`; -1: the policy has none.
int ot_ledger_find_scale(const ot_ledger *ledger, const char *name);

// The pairs that are `wanted`; 0: those of the first look. OT_USAGE if there are fewer seeds.
ot_status ot_ledger_choose_pairs(const ot_ledger *ledger, int wanted, int *pairs);

enum { OT_LEDGER_TUNED = 4 };

// The change of `ledger fit`, which no file describes: rounding alone.
#define OT_LEDGER_NULL_CHANGE "a-a"

// The baseline (no changes) or changes together, at a scale, a seed and a share of the budget.
typedef struct ot_ledger_arm {
  const ot_ledger_change *const *changes;
  int num_changes;
  int scale, seed;                // indices
  double budget;                  // 1: the scale's tokens
  double tuned[OT_LEDGER_TUNED];  // factors of tuning.keys; 0 stands for 1
  int64_t steps;                  // 0: all
} ot_ledger_arm;

// "base", "qk-norm", "a+b"; in `arena`.
const char *ot_ledger_arm_name(const ot_ledger_arm *arm, ot_arena *arena);

// The arm of `changes` with its tuned factors, else those of the baseline; scale and seed 0.
ot_ledger_arm ot_ledger_arm_of(const ot_ledger *ledger, const ot_ledger_change *const *changes,
                               int num_changes);

// An arm as a run: what to start, and what it will be.
typedef struct ot_ledger_job {
  ot_ledger_arm arm;
  const char *name, *key, *id;
  const char *directory;  // of the run
  const char *program;    // "": this one
  int num_sets;
  const char **sets;  // [num_sets] KEY=VALUE, the output last
  int64_t steps, tokens;
  double model_flops;  // of the whole run, from its schedules; with the optimizer's
  double unit;         // of the metric, in nats a token
  const char *schedule_hash, *config_hash, *data_hash, *validation_hash;
} ot_ledger_job;

// Its key, directory and settings.
ot_status ot_ledger_job_build(const ot_ledger *ledger, const ot_ledger_arm *arm,
                              ot_ledger_job *out);

// Reads settings and data: what the run will take, and its hashes. The data hash covers the tokens
// of the scale's budget in training order, also if the run reads more or fewer.
ot_status ot_ledger_job_describe(const ot_ledger *ledger, ot_ledger_job *job);

// The line of the finished run of `job`, or null.
const ot_record_line *ot_ledger_find_run(const ot_ledger *ledger, const ot_ledger_job *job);

// The result of a run that has ended, from its run directory.
typedef struct ot_ledger_result {
  double loss;  // at its end, of the validation set; NaN: diverged
  double seconds;
  int64_t spikes;
  const char *weights_hash;
} ot_ledger_result;

ot_status ot_ledger_read_result(const ot_ledger *ledger, const ot_ledger_job *job,
                                ot_ledger_result *out);

// Appends the line of a run; `diverged`: it ended with numbers that are not finite.
ot_status ot_ledger_record_run(ot_ledger *ledger, const ot_ledger_job *job, bool diverged);

// ---- what a look needs ----

typedef struct ot_ledger_arms {
  int64_t count, capacity;
  ot_ledger_arm *arm;  // [count]
} ot_ledger_arms;

// The arms of `changes` for `pairs` pairs at all scales, after those of the baseline and its
// slopes; scale by scale, so that what a scale says of the next is known before that runs.
ot_ledger_arms ot_ledger_list_arms(const ot_ledger *ledger, const ot_ledger_change *const *changes,
                                   int num_changes, int pairs);
// The same for the baseline alone.
ot_ledger_arms ot_ledger_list_base(const ot_ledger *ledger, int pairs);

// The runs that tuning compares at the first scale, with a seed of their own.
ot_ledger_arms ot_ledger_list_tuning(const ot_ledger *ledger,
                                     const ot_ledger_change *const *changes, int num_changes);

// Chooses the best of them and records it ("tune").
ot_status ot_ledger_tune(ot_ledger *ledger, const ot_ledger_change *const *changes,
                         int num_changes);

// The index of the next look of a change; -1 after the last.
int ot_ledger_next_look(const ot_ledger *ledger, const char *change);

// FLOPs of `pairs` pairs of a new change, and of the runs of the baseline below them.
ot_status ot_ledger_forecast(const ot_ledger *ledger, int pairs, double *change_flops,
                             double *base_flops);
