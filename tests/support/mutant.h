// SPDX-License-Identifier: Apache-2.0
// Seeded bugs: silent failures that runs and issues have told of (each row names its source), put
// into a sound engine from outside, as changes of the schedule, of the rows that are loaded, of
// memory and scalars around a step, of settings, files or the model that decodes.
#pragma once

#include "support/audit_case.h"

// The layouts that bugs are tried on.
typedef enum mutant_layout {
  ON_TENSOR,   // tp2 dp2 zero1, one kv head, a window
  ON_STAGES,   // pp2 dp2 zero2, tied
  ON_CONTEXT,  // cp2 dp2 zero0, biases, learned positions, dropout, tied
  ON_SHARDED,  // dp2x2 zero3, bf16 with master weights
  ON_BOTH,     // pp2 tp2, dropout, tied
  ON_EXPERTS,  // dp2 zero1, routed and shared experts
  ON_SPREAD,   // dp4 ep2 zero1, a loss that balances
  ON_FOLDED,   // tp2 dp2 ep2 zero2
  ON_HYBRID,   // dp2x2 ep2 zero3
  MUTANT_LAYOUTS,
} mutant_layout;

enum {
  TENSOR = 1 << ON_TENSOR,
  STAGES = 1 << ON_STAGES,
  CONTEXT = 1 << ON_CONTEXT,
  SHARDED = 1 << ON_SHARDED,
  BOTH = 1 << ON_BOTH,
  EXPERTS = 1 << ON_EXPERTS,
  SPREAD = 1 << ON_SPREAD,
  FOLDED = 1 << ON_FOLDED,
  HYBRID = 1 << ON_HYBRID,
  DENSE = TENSOR | STAGES | CONTEXT | SHARDED | BOTH,
};

// Where the bug is.
typedef enum mutant_place {
  IN_SHARED_CODE,  // on every rank, and where audits run a model on one rank
  IN_LAYOUT,       // on every rank of a run of several
  ON_LAST_RANK,    // on one of several
} mutant_place;

// Who has to catch it.
typedef enum mutant_catch {
  BY_CHECK,     // refused before it runs: the proof of the schedule, or what ranks compare at start
  BY_SETTINGS,  // refused, or found in the settings alone
  BY_RANKS,     // audits, in the order in which they are run
  BY_STEP,
  BY_CAUSALITY,
  BY_DRIFT,
  BY_PRECISION,
  BY_MONITOR,  // while training: spikes, numbers that are not finite, replicas looked at again
  NOT_CAUGHT,
  NOT_THERE,  // the layout has nothing that it could change
  MUTANT_CATCHES,
} mutant_catch;

// What hooks of a bug see.
typedef struct mutant_site {
  ot_trainer *trainer;
  const ot_run *run;
  ot_team *team;
  ot_instance *instance;
  int64_t step;  // that is taken, counted from 0
  int rank, ranks, micro_batch;
  double (*memory)[64];  // of this rank, for the bug's own use
} mutant_site;

typedef struct mutant {
  const char *name, *source;
  const char *effect;  // in one line
  unsigned layouts;
  mutant_place place;
  mutant_catch expected;  // the last audit that may find it, should the check let it pass
  bool unchecked;         // the check would see how the bug is put in, and not the bug
  const char *escapes;    // why it is not caught, though it should be; null: it is
  void (*settings)(ot_run *run);
  void (*amend)(ot_schedule *schedule, ot_arena *arena);
  void (*created)(const mutant_site *site);  // before the first step
  void (*rows)(const mutant_site *site, ot_rows *rows);
  void (*before)(const mutant_site *site);
  void (*after)(const mutant_site *site);
  void (*resumed)(const mutant_site *site);  // the run is then saved and resumed first
  void (*decoder)(ot_model *model);          // of inference
  void (*exported)(const char *path);        // files of an export
  void (*swapped)(ot_rows *rows);            // what a loader makes of the audit's own documents
} mutant;

typedef struct mutant_list {
  const mutant *mutants;
  int count;
} mutant_list;

// By what is wrong; all together in mutant_at.
mutant_list mutants_of_sums(void);
mutant_list mutants_of_micro_batches(void);
mutant_list mutants_of_updates(void);
mutant_list mutants_of_data(void);
mutant_list mutants_of_mathematics(void);
mutant_list mutants_of_state(void);
mutant_list mutants_of_experts(void);

int mutant_count(void);
const mutant *mutant_at(int index);

// ---- running one ----

typedef struct mutant_verdict {
  mutant_catch by;
  mutant_catch without_check;  // where by is BY_CHECK: who finds it when the proof is not heard
  char text[400];              // the finding, or the refusal
} mutant_verdict;

const char *mutant_layout_name(mutant_layout layout);
const char *mutant_catch_name(mutant_catch by);

// What a user would run of the layout with the bug in it (null: none): checks, audits, training.
mutant_verdict mutant_run(const mutant *mutant, mutant_layout layout);
