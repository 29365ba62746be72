// SPDX-License-Identifier: Apache-2.0
// run: by test_equality_mpi.sh under an MPI launcher (alone it is skipped). One case of a covering
// sample with one process per rank: equal to one rank, and bit for bit to ranks that are threads.
//   test_equality_ranks [CASE]   CASE counts from 0; without: prints "CASE RANKS" of each
#include <stdio.h>
#include <stdlib.h>

#include "support/rank_case_verdict.h"

enum { SKIPPED = 77 };

// pp, dp_replicate, dp_shard, cp, tp
typedef struct process_case {
  rank_model_kind model;
  ot_dtype dtype;
  int degrees[5];
  int zero;
  ot_accumulate accumulate;
  ot_pipeline pipeline;
  ot_context_parallel context;
  bool overlap;
  int ep;
  double expert_buffer;  // see rank_request
} process_case;

static const process_case cases[] = {
    {.model = RANK_GPT2,
     .dtype = OT_F32,
     .degrees = {2, 1, 2, 1, 1},
     .zero = 3,
     .accumulate = OT_ACCUMULATE_SHARDED,
     .pipeline = OT_PIPELINE_1F1B,
     .context = OT_CONTEXT_RING,
     .overlap = true},
    {.model = RANK_LLAMA,
     .dtype = OT_F64,
     .degrees = {1, 1, 1, 2, 2},
     .accumulate = OT_ACCUMULATE_WHOLE,
     .pipeline = OT_PIPELINE_1F1B,
     .context = OT_CONTEXT_RING,
     .overlap = true},
    {.model = RANK_DROPOUT,
     .dtype = OT_F32,
     .degrees = {1, 2, 1, 2, 1},
     .accumulate = OT_ACCUMULATE_SHARDED,
     .pipeline = OT_PIPELINE_GPIPE,
     .context = OT_CONTEXT_ULYSSES,
     .overlap = false},
    {.model = RANK_GEMMA,
     .dtype = OT_F64,
     .degrees = {1, 2, 2, 1, 1},
     .zero = 1,
     .accumulate = OT_ACCUMULATE_WHOLE,
     .pipeline = OT_PIPELINE_1F1B,
     .context = OT_CONTEXT_RING,
     .overlap = true},
    {.model = RANK_GPT2,
     .dtype = OT_F64,
     .degrees = {4, 1, 1, 1, 1},
     .accumulate = OT_ACCUMULATE_WHOLE,
     .pipeline = OT_PIPELINE_ZB_V,
     .context = OT_CONTEXT_RING,
     .overlap = true},
    {.model = RANK_QWEN,
     .dtype = OT_F32,
     .degrees = {2, 1, 1, 1, 2},
     .accumulate = OT_ACCUMULATE_WHOLE,
     .pipeline = OT_PIPELINE_INTERLEAVED,
     .context = OT_CONTEXT_RING,
     .overlap = false},
    {.model = RANK_GPT2,
     .dtype = OT_F64,
     .degrees = {2, 1, 2, 1, 2},
     .zero = 3,
     .accumulate = OT_ACCUMULATE_SHARDED,
     .pipeline = OT_PIPELINE_ZB_H1,
     .context = OT_CONTEXT_RING,
     .overlap = true},
    {.model = RANK_LLAMA,
     .dtype = OT_F32,
     .degrees = {1, 1, 2, 2, 2},
     .zero = 2,
     .accumulate = OT_ACCUMULATE_SHARDED,
     .pipeline = OT_PIPELINE_1F1B,
     .context = OT_CONTEXT_RING,
     .overlap = true},
    {.model = RANK_QWEN,
     .dtype = OT_F64,
     .degrees = {2, 2, 1, 2, 1},
     .accumulate = OT_ACCUMULATE_WHOLE,
     .pipeline = OT_PIPELINE_ZB_H2,
     .context = OT_CONTEXT_ULYSSES,
     .overlap = true},
    {.model = RANK_RESIDUALS,
     .dtype = OT_F64,
     .degrees = {2, 1, 2, 1, 1},
     .zero = 3,
     .accumulate = OT_ACCUMULATE_SHARDED,
     .pipeline = OT_PIPELINE_INTERLEAVED,
     .context = OT_CONTEXT_RING,
     .overlap = true},
    {.model = RANK_GEMMA,
     .dtype = OT_F32,
     .degrees = {1, 1, 1, 1, 8},
     .accumulate = OT_ACCUMULATE_WHOLE,
     .pipeline = OT_PIPELINE_1F1B,
     .context = OT_CONTEXT_RING,
     .overlap = true},
    // tokens go to the ranks of their experts in several passes
    {.model = RANK_MOE,
     .dtype = OT_F64,
     .degrees = {1, 2, 2, 1, 1},
     .zero = 3,
     .accumulate = OT_ACCUMULATE_SHARDED,
     .pipeline = OT_PIPELINE_1F1B,
     .context = OT_CONTEXT_RING,
     .overlap = true,
     .ep = 2,
     .expert_buffer = 0.3},
};

static rank_request request_of(const process_case *c) {
  const bool looped = c->pipeline == OT_PIPELINE_INTERLEAVED;
  return (rank_request){.model = c->model,
                        .layers = 8,
                        .dtype = c->dtype,
                        .length = 16,
                        .batch = (int64_t)4 * c->degrees[1] * c->degrees[2],
                        .micro_batch = 1,
                        .steps = RANK_STEPS,
                        .pp = c->degrees[0],
                        .vpp = looped ? 2 : 1,
                        .dp_replicate = c->degrees[1],
                        .dp_shard = c->degrees[2],
                        .cp = c->degrees[3],
                        .tp = c->degrees[4],
                        .ep = c->ep,
                        .expert_buffer = c->expert_buffer,
                        .zero = c->zero,
                        .prefetch = 1,
                        .accumulate = c->accumulate,
                        .pipeline = c->pipeline,
                        .context = c->context,
                        .overlap = c->overlap,
                        .timeout_s = 60};
}

// On rank 0, after the processes finish: compares with one rank and with threads.
static int compare(const rank_request *request, const rank_result *result) {
  rank_verdict verdict = {0};
  rank_result threads;
  const bool equal = rank_judge(request, result, &verdict);
  const ot_status status = rank_run(request, &threads);
  const bool same = status == OT_OK && threads.bits == result->bits;
  char text[RANK_TEXT];
  printf("%s: %s one rank, %s threads\n%s", rank_describe(request, text),
         equal ? "equal to" : "NOT equal to", same ? "the bits of" : "NOT the bits of",
         verdict.text);
  rank_release(&threads);
  (void)rank_references_release(NULL);
  return equal && same ? 0 : 1;
}

int main(int argc, char **argv) {
  int ranks = 0;
  if (argc < 2) {
    for (int i = 0; i < OT_COUNT(cases); i++) {
      const rank_request request = request_of(&cases[i]);
      printf("%d %d\n", i, rank_count(&request));
    }
    return SKIPPED;
  }
  const int index = atoi(argv[1]);
  if (!ot_comm_launched(&ranks) || index < 0 || index >= OT_COUNT(cases)) return SKIPPED;
  const rank_request request = request_of(&cases[index]);
  rank_result result;
  const ot_status status = rank_run_processes(&request, &result);
  int code = (int)status;
  if (status != OT_OK) {
    printf("error: %s\n", ot_fail_message());
  } else if (result.num_tensors > 0) {
    code = compare(&request, &result);
  }
  rank_release(&result);
  return code;
}
