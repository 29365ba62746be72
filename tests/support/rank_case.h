// SPDX-License-Identifier: Apache-2.0
// Runs a few training steps of a model on ranks that are threads of this process. Returns results
// in the form of the whole model, so that any two parallel configurations can be compared. The data
// of a step depend only on its sequence indices, not on the rank that holds them.
#pragma once

#include "comm/comm.h"
#include "runtime/model_runtime.h"
#include "support/rank_case_models.h"

enum { RANK_MAX = 16, RANK_STEPS = 2, RANK_MAX_LAYERS = 32, RANK_LAYOUT = 96 };

// Initial router bias: zero, or such that later experts are chosen less often and the last quarter
// never.
typedef enum rank_loads { RANK_LOADS_FREE, RANK_LOADS_CROWDED } rank_loads;

// One run configuration. Zero degrees mean 1.
typedef struct rank_request {
  ot_backend backend;  // of the mesh; one rank is always run on the CPU
  rank_model_kind model;
  int layers;           // 0: RANK_LAYERS
  bool wide;            // 12 heads, for degrees with a 3
  ot_dtype dtype;       // OT_F32 or OT_F64
  ot_dtype storage;     // of weights and activations; OT_BF16, any other value: dtype
  ot_dtype gradients;   // of accumulators, likewise
  ot_dtype moments;     // of the optimizer, likewise
  ot_dtype wire;        // of gradients, likewise
  int64_t length;       // T of a sequence
  int64_t batch;        // global batch in sequences
  int64_t micro_batch;  // sequences of a micro-batch; divides batch / dp
  int steps;            // 1 .. RANK_STEPS
  int pp, vpp, dp_replicate, dp_shard, cp, tp;
  int ep, etp;           // over the ranks of a stage; not factors of their number
  double expert_buffer;  // receive buffer in balanced loads (below 1 too); 0: default
  ot_moe_routing routing;
  int experts;           // experts of a layer; 0: the model's number
  bool lone;             // top-1 instead of top-2 routing
  rank_loads loads;      //
  int64_t first_sample;  // sample index of the first step
  int residual_block;    // sub-layers per block of Attention Residuals; 0: the model's number
  int zero, prefetch;
  ot_accumulate accumulate;
  ot_pipeline pipeline;
  ot_recompute recompute[RANK_MAX_LAYERS];  // per layer
  ot_context_parallel context;
  char layout[RANK_LAYOUT];        // of stages; "": by cost
  bool keep[RANK_MAX_LAYERS + 2];  // keep gathered weights of a block: embedding, layers, head
  bool overlap;
  bool poison;  // on the CPU only
  bool no_graphs;
  double timeout_s;  // timeout of a wait; 0: none
  // Changes the schedule of a rank before it is checked and run, or null. Called on each rank's
  // thread.
  void (*amend)(ot_schedule *schedule, ot_arena *arena, void *context);
  void *amend_context;
  // Inspects a rank after each step, on its thread; or null.
  void (*observe)(ot_runtime *runtime, int step, void *context);
  void *observe_context;
} rank_request;

// A slice of an HF tensor in the order of its parameter; q, k, v, gate and up are separate.
typedef struct rank_tensor {
  const char *name;  // HF tensor name
  int64_t count;
  double *gradient;  // [count] of the first step
  double *last;      // [count] of the last step
  double *weight;    // [count] after the last step
} rank_tensor;

typedef struct rank_result {
  ot_heap heap;
  ot_arena arena;
  int num_tensors;
  rank_tensor *tensors;
  double loss[RANK_STEPS], norm[RANK_STEPS];
  double experts[RANK_STEPS][OT_EXPERT_SUMS];  // summed over layers; zero without experts
  int64_t micro_batch;                         // of the request
  uint64_t bits;  // hash of the bits of losses, norms, gradients, weights and moments
  double scalars[RANK_MAX][OT_STEP_SCALARS];             // last step, on each rank
  double sent[RANK_MAX][OT_GROUP_KINDS][OT_COMM_KINDS];  // bytes in the last step
} rank_result;

int rank_count(const rank_request *request);

// Initial router bias of expert `expert`.
float rank_initial_bias(const rank_request *request, int expert);

// Runs it. The caller releases `result` even after an error.
ot_status rank_run(const rank_request *request, rank_result *result);
void rank_release(rank_result *result);

// Runs it on the processes of this MPI job, whose number must match. Rank 0 gets the result and the
// bytes that it sent; the other ranks get no tensors.
ot_status rank_run_processes(const rank_request *request, rank_result *result);

// Plans all ranks without running them and checks each schedule: schedules [RANK_MAX] in `arena`.
ot_status rank_plan(const rank_request *request, ot_arena *arena, ot_schedule *schedules);

// The same model, data and types on one rank, unsharded.
rank_request rank_unsharded_request(const rank_request *request);

// True if both have the same run on one rank.
bool rank_same_reference(const rank_request *a, const rank_request *b);

// Result of that run, cached for all callers. Fails the test on an error.
const rank_result *rank_reference(const rank_request *request);

// Releases the cached runs: the teardown of a group of tests.
int rank_references_release(void **state);

// ---- comparison ----

// The largest difference of a kind and its tensor.
typedef struct rank_worst {
  double difference;
  const char *tensor;
} rank_worst;

// Differences of one result from another, each divided by its reference scale.
typedef struct rank_difference {
  double loss, norm;  // relative, maximum over all steps
  double experts;     // expert statistics; loads only if micro-batches are equally large
  // max |a-b| / max(max |b|, 1e-2 rms over all tensors): gradients of the first step (computed from
  // equal weights), gradients of the last step, weights after it
  rank_worst gradient, last, weight;
  rank_worst update;  // of weights: max |a-b| / (lr steps)
} rank_difference;

rank_difference rank_compare(const rank_result *result, const rank_result *reference);

// "pp2 dp2x2 cp1 tp2 zero3 ..." into `text` [RANK_TEXT].
enum { RANK_TEXT = 320 };
const char *rank_describe(const rank_request *request, char *text);

// Whether to run the next case: one in seven with OT_TESTS=few (for slow sanitizer runs), else
// every case.
bool rank_sampled(void);

// Whether OT_TESTS=full is in the environment.
bool rank_full(void);
