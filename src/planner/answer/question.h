// SPDX-License-Identifier: Apache-2.0
// A question to the planner, with defaults for what it leaves open, and the page that answers it.
// The program asks with options and files, the web page with its controls; from here on both are
// the same. Pure.
//   ot_plan_request_begin   cluster, engine, precision
//   ... the caller reads the run, whose precision is ot_plan_request_precision
//   ot_plan_request_end     sequence length, tokens, batch
//   ot_plan_page_build      search, limits, reasons, goodput
#pragma once

#include "advise/model_totals.h"
#include "answer/plan_page.h"
#include "base/schema.h"
#include "simulate/teacher_price.h"
#include "software/imported.h"

// The request for a plan. Null, 0 and -1 (enumerations): the default, or searched.
typedef struct ot_question {
  const ot_cluster *cluster;  // as described
  const ot_engine *engine;
  const char *precision;  // a recipe's name
  double gather_bytes;    // of a weight in an all-gather; 0: the precision's
  double moment_bytes;    // of both moments of a parameter; 0: the precision's
  int devices;
  int64_t global_batch_size, sequence_length, tokens, critical_batch_tokens;
  double expert_imbalance;
  double memory_margin;  // share of a plan's memory (ot_job); negative: none
  ot_candidate given;
  double price;   // dollars of a device hour; 0: no costs
  int top;        // plans kept
  bool variants;  // keep slower plans with the same degrees and ZeRO stage
  bool simple;    // also slower plans, if simpler and not to be told from the fastest
  int num_notes;
  const char *const *notes;  // [num_notes] assumptions made before: the first of the request's
} ot_question;

enum { OT_QUESTION_MOST = 1 << 24 };  // devices, sequences, tokens of one, and degrees

// The options of a question: their names, with underscores, ranges, and words.
extern const ot_schema ot_question_schema;

// The help of one of its keys.
const char *ot_question_help(const ot_key *key, ot_arena *arena);

// Reads a map of them, or null; cluster, engine and notes remain. OT_USAGE names the option.
ot_status ot_question_read(const ot_node *tree, ot_arena *arena, ot_question *out);

// The option of a key: "--micro-batch-size" of micro_batch_size.
const char *ot_question_option(const char *key, ot_arena *arena);

// A configuration of another file, to price next to the plans.
typedef struct ot_plan_compared {
  const char *name;  // of its file
  ot_candidate candidate;
  const ot_engine *engine;  // with the file's switches; null: as the job's
  const ot_run *run;        // engine orthant: settings other than degrees; null: as the job's
  const int *layers;        // [num_chunks] of each of its pipeline chunks, in model order
  int num_chunks;           // 0: as its software divides them
} ot_plan_compared;

typedef struct ot_plan_request {
  ot_question question;
  ot_job job;  // points into this request, which must not be moved
  ot_model_totals totals;
  ot_cluster cluster;        // with the devices of the job
  ot_run run;                // that engine orthant would train; without has_run only its model
  const ot_node *settings;   // of the run, as read
  const char *model_name;    // as given by the user
  const char *model_source;  // for a run: preset or absolute path; null: its keys
  bool has_run;              // false for imported models without an HF family
  const ot_teacher_pricer *teacher;  // of a live one; null: its price is not known
  ot_plan_compared *own;             // of --from; null: none
  int num_compared;
  ot_plan_compared *compared;  // [num_compared]
  int num_notes, max_notes;
  const char **notes;  // [num_notes]
} ot_plan_request;

// Sizes the cluster, chooses the precision, and adds a note on each default. Everything lives in
// `arena`. OT_USAGE for values that do not fit.
ot_status ot_plan_request_begin(const ot_question *question, ot_arena *arena, ot_plan_request *out);

// The precision as settings of a run: a map of data types.
ot_node *ot_plan_request_precision(const ot_plan_request *request, ot_arena *arena);

// Merges an imported configuration of other software into the question: its assumptions come first;
// its devices and precision apply where the question has none, its switches if the question's
// engine is its own. Before ot_plan_request_begin.
void ot_question_take_import(const ot_imported *imported, ot_arena *arena, ot_question *question);

// Fits the configuration to the devices of the job, which takes its batch and sequence length where
// it has none, and prices it as request->own. Between reading the run and ot_plan_request_end.
ot_status ot_plan_request_fit_import(ot_imported *imported, ot_arena *arena,
                                     ot_plan_request *request);

// The configuration of `imported`, whose dp is known, for the job of `request`.
void ot_plan_take_import(const ot_imported *imported, const ot_plan_request *request,
                         ot_plan_compared *out);

// Adds the configuration of a run, or of other software, to request->compared, which has room;
// after ot_plan_request_end. OT_USAGE, with the file's `name`, if it is for another model, batch or
// sequence length than the job, or does not divide its devices.
//   engine  of the imported configuration, without its switches
ot_status ot_plan_compare_run(ot_plan_request *request, const char *name, const ot_run *run,
                              ot_arena *arena);
ot_status ot_plan_compare_import(ot_plan_request *request, const char *name, ot_imported *imported,
                                 const ot_engine *engine, ot_arena *arena);

// Completes the job once run, settings, model_name, model_source and has_run are set.
ot_status ot_plan_request_end(ot_arena *arena, ot_plan_request *request);

// Adds an assumption that the answer states.
void ot_plan_request_note(ot_plan_request *request, const char *text);

typedef struct ot_plan_build {
  const ot_plan_request *request;
  bool brief;  // the best plan alone, without remedies if nothing fits
  // Called from time to time while the search goes on; null: never.
  void (*progress)(void *context, const ot_search *so_far);
  void *progress_context;
} ot_plan_build;

// The page lives in `arena` and points into the request. OT_OK also when nothing fits: the page
// then has no plans, but remedies if there are any. OT_USAGE if no configuration is valid.
ot_status ot_plan_page_build(const ot_plan_build *build, ot_arena *arena, ot_plan_page *out);
