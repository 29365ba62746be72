// SPDX-License-Identifier: Apache-2.0
// Trains a tiny model on ranks that are threads of this process, for tests that inspect it between
// steps. The data are random tokens in a file that each test writes for itself.
#pragma once

#include "audit/audit.h"
#include "support/tiny_model.h"
#include "train/trainer.h"

enum { AUDIT_TOKENS = 20000, AUDIT_DOCUMENT_END = 256 };

// Zero fields of degrees mean 1.
typedef struct audit_request {
  ot_model model;
  int pp, dp_replicate, dp_shard, cp, tp, zero;
  int ep;  // folded over dp, cp and tp
  ot_accumulate accumulate;
  int64_t batch, micro_batch;  // sequences of a step and of a micro-batch
  double watchdog_seconds;     // 0: never
  bool fp64;                   // all tensors
  bool bf16;                   // weights and activations, with master weights
  bool bf16_on_wire;           // gradients are reduced in bf16, each partial sum rounded
  bool documents;              // some tokens end documents, so some targets are masked
  // Changes the settings that follow from the fields above, or null.
  void (*settings)(ot_run *run, void *context);
  void *settings_context;
  int threads;                    // of each rank; 0: 1
  const ot_trainer_hooks *hooks;  // for the trainer of every rank, or null
} audit_request;

// A model of four query heads, `kv_heads` KV heads and a vocabulary of 300, tied or not.
ot_model audit_model(int kv_heads, bool tied);

// Writes DIRECTORY/tokens.bin: AUDIT_TOKENS random tokens, some of which are AUDIT_DOCUMENT_END if
// `documents`.
void audit_write_tokens(const char *directory, bool documents);

typedef struct audit_rank {
  const audit_request *request;
  const ot_run *run;
  ot_world *world;
  ot_comm *comm;
  ot_trainer *trainer;
  int rank, ranks;
  void *context;
} audit_rank;

typedef ot_status (*audit_body)(audit_rank *rank);

// Calls `body` on every rank with a trainer that has not run a step.
ot_status audit_run(const audit_request *request, audit_body body, void *context);

// Result of an audit of one run; outlives the run.
typedef struct audit_outcome {
  ot_verdict verdict;
  int num_findings;
  char what[64], where[160];  // of the first finding
  char summary[512], figures[2048], table[2048];
  int64_t report_bytes;  // size of the report; set by audit_run_one
} audit_outcome;

// Copies `report` into `said`; truncates longer texts.
void audit_copy_report(const ot_audit_report *report, audit_outcome *said);

// Result of `call` on a run whose trainer has not run a step. `how` gives the audit request without
// its trainer. Fails the test if the audit returns an error.
audit_outcome audit_run_one(const audit_request *request, ot_audit_call call,
                            const ot_audit_request *how);

// A model of `layers` layers on one rank, one sequence per micro-batch, two per step.
audit_request audit_dense_request(int layers);

// The same as a Mixtral model: at most two layers, each with `experts` experts, top-2 routing,
// dropless, no load-balancing loss.
audit_request audit_moe_request(int layers, int experts);

// Runs one training step.
ot_status audit_step(audit_rank *rank, ot_step_report *report);

// "pp 2 dp 1x2 cp 1 tp 2 ep 1 zero 3", in static storage.
const char *audit_describe(const audit_request *request);
