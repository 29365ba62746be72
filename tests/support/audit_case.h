// SPDX-License-Identifier: Apache-2.0
// A training run of a tiny model on ranks as threads of this process, for tests that look at it
// between its steps. The data are random tokens in a file of the test's own.
#pragma once

#include "audit/audit.h"
#include "support/tiny_model.h"
#include "train/trainer.h"

enum { AUDIT_TOKENS = 20000, AUDIT_DOCUMENT_END = 256 };

// Zero fields of degrees mean 1.
typedef struct audit_request {
  ot_model model;
  int pp, dp_replicate, dp_shard, cp, tp, zero;
  int ep;  // folds over dp, cp and tp
  ot_accumulate accumulate;
  int64_t batch, micro_batch;  // sequences of a step and of a micro-batch
  double watchdog_seconds;     // 0: never
  bool fp64;                   // everything
  bool bf16;                   // weights and activations, with master weights
  bool bf16_on_wire;           // gradients are summed in bf16, each partial sum rounded
  bool documents;              // some tokens end documents, so that targets are masked
  // Changes the settings that follow from the above, or null.
  void (*settings)(ot_run *run, void *context);
  void *settings_context;
  const ot_trainer_hooks *hooks;  // of every rank's trainer, or null
} audit_request;

// A model of four heads and `kv_heads`, with 300 tokens, tied or not.
ot_model audit_model(int kv_heads, bool tied);

// Writes DIRECTORY/tokens.bin: AUDIT_TOKENS random tokens, some of which are AUDIT_DOCUMENT_END if
// `documents`.
void audit_write_tokens(const char *directory, bool documents);

typedef struct audit_rank {
  const audit_request *request;
  const ot_run *run;
  ot_team *team;
  ot_comm *comm;
  ot_trainer *trainer;
  int rank, ranks;
  void *context;
} audit_rank;

typedef ot_status (*audit_body)(audit_rank *rank);

// Calls `body` on every rank, with a trainer that has taken no step.
ot_status audit_run(const audit_request *request, audit_body body, void *context);

// What an audit of one run said, kept beyond it.
typedef struct audit_said {
  ot_verdict verdict;
  int num_findings;
  char what[64], where[160];  // of the first finding
  char figures[2048], table[2048];
  int64_t report_bytes;  // that the report keeps; of audit_ask
} audit_said;

// Keeps `report` in `said`; cuts texts that are longer.
void audit_hear(const ot_audit_report *report, audit_said *said);

// What an audit says of a run whose trainer has taken no step; `how` it is asked, but for the
// trainer. Fails the test where the audit fails.
audit_said audit_ask(const audit_request *request, ot_audit_call call, const ot_audit_request *how);

// A model of `layers` layers on one rank, one sequence a micro-batch, two a step.
audit_request audit_plain(int layers);

// The same as a mixtral whose layers, at most two, have `experts` experts, two of them for a token,
// dropless and not balanced.
audit_request audit_experts(int layers, int experts);

// Takes a step.
ot_status audit_step(audit_rank *rank, ot_step_report *report);

// "pp 2 dp 1x2 cp 1 tp 2 ep 1 zero 3", in static storage.
const char *audit_describe(const audit_request *request);
