// SPDX-License-Identifier: Apache-2.0
// The planning half as one function, for the web page: a request as lines, an answer as JSON.
// A request is a tree (base/tree.h) with the key `op`:
//   sweep      the values of each KEY=VALUES of the list `sweep`, and the number of points
//   plan       question, model_name, model_source, model, cluster, engine, settings: the document
//              of `orthant plan --json`. With a `script` {name, text} that of `--from`: the script
//              has the model, and without an engine, its own of the map `engines` is priced.
//              `compare` [{name, text of a script or run}] are the files of `--compare`.
//   point      the same question as a row of `orthant plan --sweep`, whose list `sweep` has one
//              value of each key
//   deadline   the same question: the fewest devices, at most its `gpus`, that end the run within
//              the text `deadline`, and what was tried; then there is no last plan
//              What follows is about the job of the last plan
//   stages     estimate of the plan `index` (the nearest if none fits), its chunks and stages
//   timeline   the actions of its replayed step
//   devices    its step on fewer and more devices
//   crossover  compute and gathers of sharded weights against devices
//   pareto     plans and rejected configurations, as points of time and memory
//   remedies   changes that would fit, if nothing does
//   calibrate  the cluster, corrected by the measured `seconds` of a step
//   emit       a file that starts the plan `index`, of the given `kind`
// Pure: memory comes from the caller.
#pragma once

#include "base/arena.h"

// Memory of one lifetime; `release` frees all of its blocks.
typedef struct ot_web_memory {
  ot_block_source source;
  void (*release)(void *context);
  void *context;
} ot_web_memory;

typedef struct ot_web ot_web;

typedef struct ot_web_answer {
  const char *text;  // JSON, valid until the next call; {"error", "hint", "status"} on failure
  int64_t length;
} ot_web_answer;

// Lives in memory of `own`, which is never released here.
//   plan  memory of a question and its answer, released by the next
//   call  memory of one call
ot_web *ot_web_create(ot_arena *own, ot_web_memory plan, ot_web_memory call);

// Answers the request [length].
ot_web_answer ot_web_call(ot_web *web, const char *request, int64_t length);
