// SPDX-License-Identifier: Apache-2.0
// A whole run: directory and lock, resuming, steps, metrics, validation, checkpoints, signals. All
// output goes to a sink; the loop prints nothing. Every rank runs the loop; only the leader
// accesses the run directory and reports.
#pragma once

#include "describe/cluster.h"
#include "record/status_line.h"
#include "record/step_means.h"
#include "train/trainer.h"

typedef enum ot_resume { OT_RESUME_AUTO, OT_RESUME_NEVER, OT_RESUME_FROM } ot_resume;

typedef enum ot_loop_event_kind {
  OT_LOOP_NOTE,        // a sentence for the user
  OT_LOOP_STATUS,      // progress of the run
  OT_LOOP_VALIDATION,  // a validation loss
  OT_LOOP_EVALUATION,  // a figure of an evaluation
  OT_LOOP_SUMMARY,     // results of this process, after its last step
} ot_loop_event_kind;

// The results of one process, from its first step to its last.
// Products that cuBLASLt refused (ot_kernel_algorithms_refused), over all ranks.
typedef struct ot_loop_refusals {
  int own, replaced;
} ot_loop_refusals;

typedef struct ot_loop_summary {
  int64_t steps, tokens;
  double seconds;                          // including validation and checkpoints
  int64_t later_tokens;                    // of the steps after the first, in which kernels are
  double later_s;                          // chosen and captured; their time alone
  double first_loss_nats, last_loss_nats;  // NaN without a step
  int64_t memory_peak_bytes, memory_planned_bytes;
  int64_t memory_capacity_bytes;  // of the GPU; -1 on the CPU
  int64_t lost_lines;             // of metrics, TensorBoard and events that could not be written
  ot_loop_refusals refusals;
  const char *checkpoint;  // newest of this run; null: none
} ot_loop_summary;

typedef struct ot_loop_event {
  ot_loop_event_kind kind;
  const char *text;                // note
  const ot_status_line *status;    // status
  const ot_loop_summary *summary;  // summary
  const char *name;  // validation: name of the set, "" for the unnamed one; evaluation: key in
                     // metrics.jsonl
  int64_t step;      // validation, evaluation
  double loss;       // validation, nats
  double value;      // evaluation
} ot_loop_event;

typedef void (*ot_loop_sink)(void *context, const ot_loop_event *event);

// The result of an audit of the state after a step.
typedef struct ot_loop_findings {
  const char *audit;  // its name; null: no result yet
  int count;          // number of findings, the same on all ranks
  const char *text;   // lines for the user
  const char *worst;  // a sentence on the first finding
  const char *note;   // a sentence if inconclusive, else null
} ot_loop_findings;

// An audit during training. `run` is called on every rank after the steps that run->audit selects,
// before the checkpoint of the step. Texts are in `arena`. Collective over the world.
typedef struct ot_loop_check {
  ot_status (*run)(void *context, ot_trainer *trainer, ot_arena *arena, ot_loop_findings *findings);
  // Or null: called once, on every rank, before the first step of this process. Collective.
  ot_status (*begin)(void *context, ot_trainer *trainer);
  void *context;  // of this rank
  bool follows;   // also called one step after each of those
} ot_loop_check;

typedef struct ot_loop_request {
  const ot_run *run;
  const ot_node *settings;  // resolved, of ot_config_load
  ot_resume resume;
  const char *resume_path;       // of OT_RESUME_FROM: a checkpoint or a run directory
  bool show_batch;               // decode the first batch, as a note
  const char *trace_path;        // Chrome trace of the steps below, or null
  int64_t trace_from, trace_to;  // completed steps, inclusive; 0, 0: the third step of this process
  int64_t record_step;           // the step, from 1, that is recorded
  const char *record_path;       // as this folder (step_recording.h); null: none
  const ot_cluster *cluster;     // for MFU and predictions; its devices are ranks; or null
  ot_world *world;               // null: one rank
  const ot_loop_check *checks;   // [num_checks], the same on all ranks
  int num_checks;
  const ot_trainer_hooks *hooks;  // fault injection for tests; null: none
  void (*hangs)(void);            // ot_kernel_watch_request.end; null: kernels are not watched
  ot_loop_sink sink;
  void *context;
} ot_loop_request;

// Trains to the end, or until a rank is asked to stop: then OT_STOPPED after a complete checkpoint.
// OT_FINDINGS if an audit has findings: the step is then not saved. Collective over the world.
// Blocks.
ot_status ot_loop_run(const ot_loop_request *request);

// The ranks that a dry run plans.
typedef struct ot_dry_run {
  const ot_mesh *mesh;
  int local_ranks;    // of these on this machine
  int process_ranks;  // of these in a process
  ot_backend backend;
  int gpu_ranks;  // that share a GPU, on a GPU
} ot_dry_run;

// The requirements of a run.
typedef struct ot_dry_run_report {
  int64_t parameters;
  int fullest_rank;            // rank with this memory
  ot_memory_breakdown memory;  // planned arena of that rank
  int64_t memory_bytes;        // for all ranks on this machine: its own, or that free on the GPU
  int64_t async_bytes;         // of the copy for checkpoint.async of that rank, at most; 0: none
  int64_t copies_bytes;        // a host reserves for checkpoint.memory; 0: none
  int64_t checkpoint_bytes;    // of one checkpoint
  int64_t disk_free_bytes;     // on the disk of the output
  int64_t steps, tokens;       // of the whole run
  int micro_batches;           // of the first step, per rank
  double model_flops;          // of the first step, of all ranks
  const char *cluster;         // for the prediction; null: no prediction
  ot_step_figures expected;    // of the first step, per rank
  double tokens_per_s, mfu;    // of the first step, all ranks
  int64_t teacher_bytes;       // of a live teacher on each rank that runs it; 0: none
  double teacher_s;            // of the first step, in `expected`
  int64_t evaluations;         // of the whole run
  int evaluation_stages;       // ranks that share a copy of the model
  int64_t evaluation_bytes;    // of a machine, or of a GPU
  double evaluation_s;         // of one of them (run_tasks.h); NaN: unknown
} ot_dry_run_report;

// Reports the requirements of a run, as notes and in `report`, whose texts are valid as long as the
// request; trains nothing, writes nothing. Called on one rank.
ot_status ot_loop_dry_run(const ot_loop_request *request, const ot_dry_run *how,
                          ot_dry_run_report *report);
