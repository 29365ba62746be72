// SPDX-License-Identifier: Apache-2.0
// A few training steps of a model on ranks as threads of this process, and all that came out of
// them in the form of the whole model, so that any two ways of splitting the same run can be laid
// side by side. The data of a step are a function of its sequences alone, whoever has them.
#pragma once

#include "comm/comm.h"
#include "runtime/instance.h"
#include "support/rank_case_models.h"

enum { RANK_MAX = 16, RANK_STEPS = 2, RANK_MAX_LAYERS = 32, RANK_LAYOUT = 96 };

// How the bias of routers begins: at nothing, or so that later experts are chosen less and the last
// quarter never.
typedef enum rank_loads { RANK_LOADS_FREE, RANK_LOADS_CROWDED } rank_loads;

// One way to run. Zero fields of degrees mean 1.
typedef struct rank_request {
  rank_model_kind model;
  int layers;           // 0: RANK_LAYERS
  bool wide;            // 12 heads, for degrees with a 3
  ot_dtype dtype;       // OT_F32 or OT_F64
  ot_dtype storage;     // of weights and activations; OT_BF16, or anything else for dtype
  ot_dtype gradients;   // of accumulators, likewise
  ot_dtype wire;        // of gradients, likewise
  int64_t length;       // T of a sequence
  int64_t batch;        // sequences of a step, over all ranks
  int64_t micro_batch;  // sequences of a micro-batch, which divide batch / dp
  int steps;            // 1 .. RANK_STEPS
  int pp, vpp, dp_replicate, dp_shard, cp, tp;
  int ep, etp;           // over the ranks of a stage; no factors of their number
  double expert_buffer;  // even shares that come to experts at a time, below 1, too; 0: as usual
  ot_moe_routing routing;
  int experts;           // of a layer; 0: the model's
  bool lone;             // one expert a token, not two
  rank_loads loads;      //
  int64_t first_sample;  // of the first step
  int residual_block;    // sub-layers of a block of Attention Residuals; 0: the model's own
  int zero, prefetch;
  ot_accumulate accumulate;
  ot_pipeline pipeline;
  ot_recompute recompute[RANK_MAX_LAYERS];  // by layer
  ot_context_parallel context;
  char layout[RANK_LAYOUT];        // of stages; "": by cost
  bool keep[RANK_MAX_LAYERS + 2];  // gathered weights of a block stay: embedding, layers, head
  bool overlap, poison;
  double patience_s;  // after which a wait gives up, 0: never
  // Changes the schedule of a rank before it is checked and run, or null. Called on each rank's
  // thread.
  void (*amend)(ot_schedule *schedule, ot_arena *arena, void *context);
  void *amend_context;
  // Looks at a rank after each step, on its thread, or null.
  void (*observe)(ot_instance *instance, int step, void *context);
  void *observe_context;
} rank_request;

// A slice of an HF tensor in the order of its parameter: q, k, v, gate and up apart.
typedef struct rank_tensor {
  const char *name;  // of the HF tensor
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
  uint64_t bits;  // of losses, norms, gradients, weights and moments as they are
  double scalars[RANK_MAX][OT_STEP_SCALARS];             // of the last step, on each rank
  double sent[RANK_MAX][OT_GROUP_KINDS][OT_COMM_KINDS];  // bytes of the last step
} rank_result;

int rank_count(const rank_request *request);

// What expert `expert`'s bias begins with.
float rank_initial_bias(const rank_request *request, int expert);

// Runs it. `result` is to be released whatever comes back.
ot_status rank_run(const rank_request *request, rank_result *result);
void rank_release(rank_result *result);

// Runs it on the processes of the MPI job that this one is of, which must be as many. The result is
// on rank 0, with the bytes that rank 0 sent; elsewhere it has no tensors.
ot_status rank_run_processes(const rank_request *request, rank_result *result);

// Plans all ranks without running them, each schedule checked: schedules [RANK_MAX] in `arena`.
ot_status rank_plan(const rank_request *request, ot_arena *arena, ot_schedule *schedules);

// The same model, data and types on one rank, everything whole.
rank_request rank_whole(const rank_request *request);

// True when both are the same run on one rank.
bool rank_same_whole(const rank_request *a, const rank_request *b);

// That run, kept for all who ask. Fails the
// test on an error.
const rank_result *rank_reference(const rank_request *request);

// Forgets those runs: the teardown of a group of tests.
int rank_references_release(void **state);

// ---- comparison ----

// The largest difference of a kind, and the tensor it was found in.
typedef struct rank_worst {
  double difference;
  const char *tensor;
} rank_worst;

// Differences of a result from another one, each divided by what it is told against.
typedef struct rank_difference {
  double loss, norm;  // relative, largest of all steps
  double experts;     // of what is reported of experts; of loads, which are those of a micro-batch,
                      // where micro-batches are as large
  // max |a-b| / max(max |b|, 1e-2 rms over all tensors): gradients of the first step, from equal
  // weights; of the last one; weights after it
  rank_worst gradient, last, weight;
  rank_worst update;  // of weights: max |a-b| / (lr steps)
} rank_difference;

rank_difference rank_compare(const rank_result *result, const rank_result *reference);

// "pp2 dp2x2 cp1 tp2 zero3 ..." into `text` [RANK_TEXT].
enum { RANK_TEXT = 320 };
const char *rank_describe(const rank_request *request, char *text);

// Whether to run the next case: one in seven with OT_TESTS=few (where sanitizers make runs slow),
// else all of them.
bool rank_sampled(void);
