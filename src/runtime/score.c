// SPDX-License-Identifier: Apache-2.0
// One forward: the score of position t is that of token t+1.
#include "runtime/score.h"

#include <math.h>
#include <stdlib.h>

static ot_status check(const ot_instance *instance, const ot_score_request *request) {
  const ot_graph_request *const shape = &ot_instance_graph(instance, OT_MODE_SCORE)->request;
  OT_CHECK(request->count >= 1 && request->count <= shape->sequence_length, OT_BUG,
           "score: %ld tokens, room for %ld", request->count, shape->sequence_length);
  for (int64_t i = 0; i < request->count; i++) {
    OT_CHECK(request->tokens[i] >= 0 && request->tokens[i] < shape->model->vocab_size, OT_USAGE,
             "token %ld is %d, the vocabulary has %ld", i, request->tokens[i],
             shape->model->vocab_size);
  }
  return OT_OK;
}

static void load(ot_instance *instance, const ot_score_request *request, int64_t T,
                 int32_t *fields) {
  const int64_t sample = 0;
  for (int64_t t = 0; t < T; t++) {
    fields[t] = t < request->count ? request->tokens[t] : 0;
    fields[T + t] = t + 1 < request->count ? request->tokens[t + 1] : -1;
    fields[2 * T + t] = (int32_t)t;
    fields[3 * T + t] = 0;
  }
  ot_instance_load_batch(instance, OT_MODE_SCORE, 0, OT_BATCH_TOKENS, fields);
  ot_instance_load_batch(instance, OT_MODE_SCORE, 0, OT_BATCH_TARGETS, fields + T);
  ot_instance_load_batch(instance, OT_MODE_SCORE, 0, OT_BATCH_POSITIONS, fields + 2 * T);
  ot_instance_load_batch(instance, OT_MODE_SCORE, 0, OT_BATCH_DOC_STARTS, fields + 3 * T);
  ot_instance_load_batch(instance, OT_MODE_SCORE, 0, OT_BATCH_SAMPLE_IDS, &sample);
}

static ot_status score(ot_instance *instance, const ot_score_request *request, double *logprobs,
                       bool *greedy, int32_t *fields) {
  const int64_t T = ot_instance_graph(instance, OT_MODE_SCORE)->request.sequence_length;
  load(instance, request, T, fields);
  OT_TRY(ot_instance_run(instance, OT_MODE_SCORE, 0));
  logprobs[0] = NAN;
  greedy[0] = false;
  const int64_t scored = request->count - 1;
  ot_instance_read_result(instance, OT_MODE_SCORE, OT_RESULT_LOGPROBS, logprobs + 1, scored * 8);
  ot_instance_read_result(instance, OT_MODE_SCORE, OT_RESULT_GREEDY, fields, scored * 4);
  for (int64_t i = 0; i < scored; i++) greedy[i + 1] = fields[i] == request->tokens[i + 1];
  return OT_OK;
}

ot_status ot_score(ot_instance *instance, const ot_score_request *request, double *logprobs,
                   bool *greedy) {
  OT_TRY(check(instance, request));
  const int64_t T = ot_instance_graph(instance, OT_MODE_SCORE)->request.sequence_length;
  int32_t *const fields = malloc((size_t)T * 4 * sizeof *fields);
  OT_CHECK(fields, OT_ENVIRONMENT, "score: out of memory");
  const ot_status status = score(instance, request, logprobs, greedy, fields);
  free(fields);
  return status;
}
