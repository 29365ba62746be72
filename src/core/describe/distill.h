// SPDX-License-Identifier: Apache-2.0
// The section `distill:` of a run: what it learns from a teacher, and where the teacher runs. Keys
// and defaults: distill_keys.c.
#pragma once

#include <stdint.h>

#include "base/status.h"

struct ot_run;
struct ot_schema;

// The objective of a run that learns from a teacher, a trained model with the same vocabulary.
typedef enum ot_distill_objective {
  OT_DISTILL_NONE,
  OT_DISTILL_SAMPLED,     // its distribution, by draws from it: forward KL, unbiased
  OT_DISTILL_TOP_K,       // its most probable tokens: biased
  OT_DISTILL_REVERSE_KL,  // its opinion of text that the model itself generates
} ot_distill_objective;

typedef enum ot_distill_source {
  OT_DISTILL_STORE,   // PREFIX.teacher next to each training set (distill/teacher_store.h)
  OT_DISTILL_LIVE,    // the teacher runs in this job
  OT_DISTILL_SERVER,  // that of `orthant serve --teach` answers
} ot_distill_source;

typedef struct ot_run_distill {
  ot_distill_objective objective;
  ot_distill_source from;
  const char *teacher;     // a checkpoint, run or HF directory; "" = not given
  const char *server;      // http://HOST:PORT; "" = not given
  const char *server_key;  // file whose first line is its bearer key; "" = none
  double server_timeout;   // seconds without an answer after which the run ends
  int64_t draws;           // sampled: of each token [1..127]
  int64_t targets;         // most weighted targets of a token [1..256]; others are merged
  double alpha;            // weight of the teacher [0, 1]; the data's next token has the rest
  int64_t prompt_tokens;   // reverse_kl: of each sequence, from the data
  int teacher_ranks;  // the last ranks of the job, which only run the teacher; 0: every rank with
                      // the head does
} ot_run_distill;

extern const struct ot_schema ot_distill_schema;

// Checks the section and what it requires of the run. OT_USAGE naming keys and values.
ot_status ot_distill_check(const struct ot_run *run);
