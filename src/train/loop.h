// SPDX-License-Identifier: Apache-2.0
// A whole run: its directory and lock, resuming, steps, metrics, validation, checkpoints, signals.
// Everything it has to say goes to a sink; it prints nothing. Every rank runs the loop; the leader
// of the team alone touches the run directory and speaks.
#pragma once

#include "describe/cluster.h"
#include "train/status_line.h"
#include "train/step_means.h"
#include "train/trainer.h"

typedef enum ot_resume { OT_RESUME_AUTO, OT_RESUME_NEVER, OT_RESUME_FROM } ot_resume;

typedef enum ot_loop_event_kind {
  OT_LOOP_NOTE,        // a sentence for the user
  OT_LOOP_STATUS,      // where the run is
  OT_LOOP_VALIDATION,  // a validation loss
  OT_LOOP_SUMMARY,     // what this process did, after its last step
} ot_loop_event_kind;

// What one start of a run did, from its first step to its last.
typedef struct ot_loop_summary {
  int64_t steps, tokens;
  double seconds;                          // validation and checkpoints included
  double first_loss_nats, last_loss_nats;  // NaN without a step
  int64_t memory_peak_bytes, memory_planned_bytes;
  const char *checkpoint;  // the newest of this run; null: none
} ot_loop_summary;

typedef struct ot_loop_event {
  ot_loop_event_kind kind;
  const char *text;                // note
  const ot_status_line *status;    // status
  const ot_loop_summary *summary;  // summary
  const char *name;                // validation: of the set, "" for the unnamed one
  int64_t step;                    // validation
  double loss;                     // validation, nats
} ot_loop_event;

typedef void (*ot_loop_sink)(void *context, const ot_loop_event *event);

// What an audit of the state after a step says.
typedef struct ot_loop_findings {
  const char *audit;  // its name; null: nothing yet
  int count;          // of findings, the same on all ranks
  const char *text;   // lines for the user
  const char *worst;  // a sentence, of the first finding
  const char *note;   // a sentence where nothing can be concluded, or null
} ot_loop_findings;

// An audit within training. `look` is called on every rank after the steps that run->audit names,
// before the checkpoint of the step. Texts live in `arena`. Collective over the world.
typedef struct ot_loop_check {
  ot_status (*look)(void *context, ot_trainer *trainer, ot_arena *arena,
                    ot_loop_findings *findings);
  void *context;  // of this rank
  bool follows;   // called after the step behind those, too
} ot_loop_check;

typedef struct ot_loop_request {
  const ot_run *run;
  const ot_node *settings;  // resolved, of ot_config_load
  ot_resume resume;
  const char *resume_path;       // of OT_RESUME_FROM: a checkpoint or a run directory
  bool show_batch;               // decode the first batch, as a note
  const char *trace_path;        // Chrome trace of the steps below, or null
  int64_t trace_from, trace_to;  // completed steps, inclusive; 0, 0: the third step of this process
  const ot_cluster *cluster;     // for MFU and predictions, of devices that are ranks; or null
  ot_team *team;                 // null: one rank
  const ot_loop_check *checks;   // [num_checks], the same on all ranks
  int num_checks;
  ot_loop_sink sink;
  void *context;
} ot_loop_request;

// Trains to the end, or until one rank is asked to stop: then OT_STOPPED after a complete
// checkpoint. OT_FINDINGS when an audit finds something: the step is not saved then. Collective
// over the world. Blocks.
ot_status ot_loop_run(const ot_loop_request *request);

// The ranks that a dry run plans for.
typedef struct ot_dry_run {
  const ot_mesh *mesh;
  int local_ranks;  // of them on this machine
} ot_dry_run;

// What a run would take.
typedef struct ot_dry_run_report {
  int64_t parameters;
  int fullest_rank;          // the rank whose memory this is
  ot_memory_bill memory;     // arena planned of that rank
  int64_t memory_bytes;      // of this machine, for all ranks on it
  int64_t checkpoint_bytes;  // of one checkpoint
  int64_t disk_free_bytes;   // where the run goes
  int64_t steps, tokens;     // of the whole run
  int micro_batches;         // of the first step, of a rank
  double model_flops;        // of the first step, of all ranks
  const char *cluster;       // that the step is predicted for; null: no prediction
  ot_step_figures expected;  // of the first step, of a rank
  double tokens_per_s, mfu;  // of it, of all ranks
} ot_dry_run_report;

// Says what a run would take, as notes and in `report`, whose texts live as long as the request;
// trains nothing, writes nothing. For one rank to call.
ot_status ot_loop_dry_run(const ot_loop_request *request, const ot_dry_run *how,
                          ot_dry_run_report *report);
