// SPDX-License-Identifier: Apache-2.0
// Recorded runs again: to the same bits, or with a program and settings that should not matter.
// They run in directories of their own and append nothing.
#pragma once

#include "ledger/ledger.h"

typedef struct ot_ledger_rerun_request {
  const char *runs;     // how many finished runs, drawn without repetition, or the name of one
  uint64_t seed;        // of the choice
  const char *program;  // null: that of the run
  int ranks;            // another number of ranks; 0: that of the policy
  int num_sets;
  const char *const *sets;  // [num_sets] KEY=VALUE of another split
} ot_ledger_rerun_request;

// Chooses the runs that run again: their lines in the record, in the arena. OT_USAGE if there are
// none.
//   runs  [*count], in the order in which they run
ot_status ot_ledger_choose_reruns(const ot_ledger *ledger, const ot_ledger_rerun_request *request,
                                  const ot_node ***runs, int64_t *count);

typedef struct ot_ledger_rerun_result {
  const char *text;  // a sentence
  bool finding;      // other bits without another split, or files that say something else
} ot_ledger_rerun_result;

// Runs the finished run of the line `run` again and compares weights and loss.
ot_status ot_ledger_rerun(const ot_ledger *ledger, const ot_ledger_rerun_request *request,
                          const ot_node *run, ot_ledger_rerun_result *out);

// Another program or other settings for a job.
typedef struct ot_ledger_variation {
  const char *name;     // ends the name of the directory
  const char *program;  // null: that of the job
  int num_defaults, num_sets;
  const char *const *defaults;  // [num_defaults] KEY=VALUE below the settings of the job
  const char *const *sets;      // [num_sets] KEY=VALUE above them
} ot_ledger_variation;

// Runs `job`, which is built, with a variation, and describes it. The loss is in the unit of the
// metric; NaN: diverged.
ot_status ot_ledger_run_varied(const ot_ledger *ledger, const ot_ledger_variation *variation,
                               ot_ledger_job *job, ot_ledger_result *out);

// The hash of the weights of the baseline after ten steps at the first scale and seed, as `program`
// computes them; null: this one.
ot_status ot_ledger_find_bits(const ot_ledger *ledger, const char *program, const char **bits);
