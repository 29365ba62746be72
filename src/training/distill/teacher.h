// SPDX-License-Identifier: Apache-2.0
// A trained model that another one learns from: it reads micro-batches of the run and says what
// follows each token. It runs on one rank with all its weights, in fp64 if the run computes so,
// else in fp32.
#pragma once

#include "data/micro_batch.h"
#include "describe/run.h"
#include "distill/teacher_store.h"
#include "runtime/model_files.h"

typedef struct ot_teacher ot_teacher;

typedef struct ot_teacher_request {
  const ot_run *run;  // whose micro-batches it reads; run->distill names the teacher; kept
  int64_t ids;        // of each token at most: K of ops/head_draw.h; 0: scores only
  int threads;        // 0: all cores of this process
  ot_backend backend;
  int ordinal;  // of its GPU
} ot_teacher_request;

// K of a teacher whose answers the run learns from.
int64_t ot_teacher_ids(const ot_run *run);

// Loads the teacher. OT_USAGE if its vocabulary, tokenizer or positions do not suit the run.
ot_status ot_teacher_create(const ot_teacher_request *request, const ot_tokenizer *tokenizer,
                            ot_teacher **out);
void ot_teacher_destroy(ot_teacher **teacher);

// Reads `rows`, of the run's micro_batch_size and sequence_length. Results are valid until the next
// call: of token i, whose target is not masked, the log-probability that the teacher gives the
// target and, if ids are drawn, by keys [R], K ids with their weights.
typedef struct ot_teacher_answer {
  const double *logprobs;  // [R] nats
  const double *entropy;   // [R] nats; null without ids
  const int32_t *ids;      // [R, K]
  const float *weights;    // [R, K]
} ot_teacher_answer;
ot_status ot_teacher_ask(ot_teacher *teacher, const ot_micro_batch *rows, const int64_t *keys,
                         ot_teacher_answer *answer);

// Builds the schedule of such a teacher in `arena`, without its memory: a micro-batch is its order
// OT_ORDER_SCORE. `parameters`: of its model.
ot_status ot_teacher_plan(const ot_teacher_request *request, ot_arena *arena, ot_schedule *schedule,
                          int64_t *parameters);

// Hash of the weights and the configuration in a checkpoint, run or HF directory; reads all of it.
ot_status ot_teacher_hash(const char *path, char hex[OT_CONTENT_HASH_BYTES]);
