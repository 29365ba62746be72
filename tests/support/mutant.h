// SPDX-License-Identifier: Apache-2.0
// Seeded bugs: silent failures reported for real runs and issues (each row names its source). They
// are injected into a correct engine from outside: by changing the schedule, loaded batches, memory
// and scalars around a step, settings, files or the model used for decoding.
#pragma once

#include "support/audit_case.h"

// Parallel layouts on which each bug is tried.
typedef enum mutant_layout {
  ON_TENSOR,   // tp2 dp2 zero1, one kv head, a sliding window
  ON_STAGES,   // pp2 dp2 zero2, tied
  ON_CONTEXT,  // cp2 dp2 zero0, biases, learned positions, dropout, tied
  ON_SHARDED,  // dp2x2 zero3, bf16 with master weights
  ON_BOTH,     // pp2 tp2, dropout, tied
  ON_EXPERTS,  // dp2 zero1, routed and shared experts
  ON_SPREAD,   // dp4 ep2 zero1, load-balancing loss
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

// Location of the bug.
typedef enum mutant_place {
  IN_SHARED_CODE,  // on every rank, and where audits run a model on one rank
  IN_LAYOUT,       // on every rank of a multi-rank run
  ON_LAST_RANK,    // on one rank of several
} mutant_place;

// Which check must detect it.
typedef enum mutant_catch {
  BY_CHECK,     // rejected before it runs: schedule check, or comparison between ranks at start
  BY_SETTINGS,  // rejected, or found in the settings alone
  BY_RANKS,     // audits, in the order in which they run
  BY_STEP,
  BY_CAUSALITY,
  BY_DRIFT,
  BY_PRECISION,
  BY_MONITOR,  // during training: spikes, non-finite numbers, replicas checked again
  NOT_CAUGHT,
  NOT_THERE,  // the layout contains nothing that the bug could change
  MUTANT_CATCHES,
} mutant_catch;

// Arguments of the hooks of a bug.
typedef struct mutant_site {
  ot_trainer *trainer;
  const ot_run *run;
  ot_world *world;
  ot_runtime *runtime;
  int64_t step;  // index of the current step, counted from 0
  int rank, ranks, micro_batch;
  double (*memory)[64];  // of this rank, for the bug's own use
} mutant_site;

typedef struct mutant {
  const char *name, *source;
  const char *effect;  // one line
  unsigned layouts;
  mutant_place place;
  mutant_catch expected;  // the last audit that may find it if the check passes
  bool unchecked;         // the check would detect how the bug is injected, not the bug
  const char *escapes;    // why it is not detected although it should be; null: detected
  void (*settings)(ot_run *run);
  void (*amend)(ot_schedule *schedule, ot_arena *arena);
  void (*created)(const mutant_site *site);  // before the first step
  void (*rows)(const mutant_site *site, ot_micro_batch *rows);
  void (*before)(const mutant_site *site);
  void (*after)(const mutant_site *site);
  void (*resumed)(const mutant_site *site);  // if set, the run is first saved and resumed
  void (*decoder)(ot_model *model);          // the model used for inference
  void (*exported)(const char *path);        // exported files
  void (*swapped)(ot_micro_batch *rows);     // data loader's batches of the audit's own documents
} mutant;

typedef struct mutant_list {
  const mutant *mutants;
  int count;
} mutant_list;

// Lists by kind of fault; mutant_at concatenates them.
mutant_list mutants_of_sums(void);
mutant_list mutants_of_micro_batches(void);
mutant_list mutants_of_updates(void);
mutant_list mutants_of_data(void);
mutant_list mutants_of_mathematics(void);
mutant_list mutants_of_state(void);
mutant_list mutants_of_experts(void);

int mutant_count(void);
const mutant *mutant_at(int index);

// ---- running a mutant ----

typedef struct mutant_verdict {
  mutant_catch by;
  mutant_catch without_check;  // if by is BY_CHECK: who finds it when the check is ignored
  char text[400];              // the finding or the rejection
} mutant_verdict;

const char *mutant_layout_name(mutant_layout layout);
const char *mutant_catch_name(mutant_catch by);

// Runs what a user would run on the layout with the bug injected (null: none): checks, audits,
// training.
mutant_verdict mutant_run(const mutant *mutant, mutant_layout layout);
