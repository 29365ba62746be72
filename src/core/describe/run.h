// SPDX-License-Identifier: Apache-2.0
// The settings of a training run (RUN.yaml) as plain values, one field per key, with defaults
// filled in. Text and lists are in the arena that the settings were read into. The table of keys,
// with ranges, defaults and help, is run_keys.c; files/config_file.h reads files.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/choices.h"
#include "base/dtype.h"
#include "base/status.h"
#include "describe/distill.h"
#include "describe/model.h"
#include "describe/parametrization.h"
#include "describe/recompute_modules.h"
#include "describe/rl.h"

typedef enum ot_data_format {
  OT_DATA_AUTO,       // an .idx file next to it, or a magic number
  OT_DATA_MEGATRON,   // PREFIX.bin + PREFIX.idx
  OT_DATA_LLMC,       // llm.c: header of 256 int32
  OT_DATA_NANOGPT,    // headerless uint16
  OT_DATA_NANOGPT32,  // headerless uint32
} ot_data_format;

// Position of the end-of-text id in documents of shards without an index.
typedef enum ot_document_boundary {
  OT_BOUNDARY_AUTO,   // the convention of the format: llmc start, nanogpt end
  OT_BOUNDARY_END,    // the last token of its document
  OT_BOUNDARY_START,  // the first token
} ot_document_boundary;

// One source of training tokens; sources of a mixture are sampled in proportion to their weights.
typedef struct ot_data_source {
  const char *path;  // prefix; PREFIX, PREFIX.bin and PREFIX.idx name the same set
  double weight;     // > 0
} ot_data_source;

// The sources from one step until the next mixture.
typedef struct ot_data_mixture {
  int64_t from_step;  // the first step (counted from 0) that samples from it
  ot_data_source *sources;
  int64_t num_sources;  // >= 1
} ot_data_mixture;

typedef struct ot_validation_set {
  const char *name;  // "" when there is one unnamed set
  const char *path;
} ot_validation_set;

typedef struct ot_run_data {
  ot_data_source *train;
  int64_t num_train;  // >= 1: the mixture from step 0
  ot_data_mixture *mixtures;
  int64_t num_mixtures;  // later mixtures, increasing from_step > 0
  ot_validation_set *validation;
  int64_t num_validation;
  int64_t validation_every;   // steps; 0 = after the last step only
  int64_t validation_tokens;  // of each set; 0 = all of it
  const char *tokenizer;      // path of tokenizer.json, "bytes", or "" (none)
  int64_t sequence_length;    // tokens of a sample
  ot_data_format format;
  ot_document_boundary document_boundary;
  bool document_mask;    // attention and positions restart at each document
  bool tokenizer_check;  // token files must match `tokenizer`, if they name theirs
} ot_run_data;

// The global batch from a step or token count on; exactly one of the two fields is >= 0.
typedef struct ot_batch_ramp {
  int64_t from_step;    // -1 = not given
  int64_t from_tokens;  // -1 = not given
  int64_t global_batch_size;
} ot_batch_ramp;

typedef struct ot_run_batch {
  int64_t global_batch_size;  // sequences per step, over all ranks
  int64_t micro_batch_size;   // sequences per forward and backward
  ot_batch_ramp *ramp;        // in increasing order; before the first: global_batch_size
  int64_t num_ramp;
} ot_run_batch;

typedef enum ot_accumulate {
  OT_ACCUMULATE_WHOLE,    // over micro-batches first, then over ranks
  OT_ACCUMULATE_SHARDED,  // over ranks after every micro-batch
} ot_accumulate;

typedef enum ot_pipeline {
  OT_PIPELINE_GPIPE,
  OT_PIPELINE_1F1B,
  OT_PIPELINE_INTERLEAVED,
  OT_PIPELINE_ZB_H1,
  OT_PIPELINE_ZB_H2,
  OT_PIPELINE_ZB_V,
  OT_PIPELINE_DUALPIPE_V,
  OT_PIPELINES,
} ot_pipeline;

// Defaults that the planner uses, too: capacity for tokens received by a rank's experts, in even
// shares, and blocks gathered ahead of use.
#define OT_EXPERT_BUFFER 1.25
#define OT_PREFETCH 1

typedef struct ot_run_parallel {
  int tp, pp, vpp, cp, ep, etp;
  int dp;  // dp_replicate x dp_shard; 0 = the remaining ranks
  int dp_replicate;
  ot_context_parallel context;  // how cp shards sequences
  int zero;                     // [0, 3]
  ot_accumulate accumulate;     // default whole at zero 0 and 1, sharded at 2 and 3
  ot_pipeline pipeline;
  ot_recompute *recompute;  // one value for all layers, or one per layer (ot_run_recompute)
  int64_t num_recompute;
  ot_recompute_module *recompute_modules;  // limit of selective recompute; none: cheap ops
  int64_t num_recompute_modules;
  const char *layout;     // explicit stages (pipeline/stage_layout.h), "" = balanced by cost
  const char *order_csv;  // file with the pipeline schedule, "" = none
  int prefetch;           // blocks gathered ahead of use
  bool *reshard;          // gathered weights of a block are released after each use; one value for
                          // all blocks, or one per block: embedding, layers, head (ot_run_reshard)
  int64_t num_reshard;
  double expert_buffer;     // rows that a rank's experts receive per pass, over their even share
  double watchdog_seconds;  // timeout after which a rank that others wait for, or whose kernel does
                            // not end, is reported; 0 = never
} ot_run_parallel;

// Names of optimizers as in files, null after the last.
extern const char *const ot_optimizer_names[OT_OPTIMIZERS + 1];

// Overrides for parameters whose name matches `pattern`. The first match applies.
typedef struct ot_optimizer_group {
  const char *pattern;  // of HF tensor names; * any run of characters, ? one
  double lr_factor;     // multiplies the learning rate
  double lr;            // peak, instead of optimizer.lr; -1 = not given
  double weight_decay;  // -1 = not given
} ot_optimizer_group;

typedef struct ot_run_optimizer {
  ot_optimizer_name name;
  double lr;            // peak learning rate
  double betas[2];      // adamw
  double eps;           // adamw
  double weight_decay;  // decoupled, times the learning rate; never on norms and biases
  double clip;          // global gradient norm; 0 = off
  double momentum;      // decay of the moment of an optimizer that keeps one
  double adamw_lr;      // peak of the parameters that AdamW updates where another optimizer updates
                        // matrices; 0 = lr
  ot_optimizer_group *groups;
  int64_t num_groups;
} ot_run_optimizer;

typedef enum ot_decay {
  OT_DECAY_CONSTANT,
  OT_DECAY_LINEAR,
  OT_DECAY_COSINE,
  OT_DECAY_WSD,  // warmup, constant, then linear decay over the last decay_steps
} ot_decay;

typedef struct ot_run_learning_rate {
  int64_t warmup_steps;  // linear warmup from 0 to the peak
  ot_decay decay;
  int64_t decay_steps;  // after warmup until min; wsd: of the final decay; 0 = to the end (wsd: a
                        // tenth)
  double min;           // learning rate after the decay
} ot_run_learning_rate;

typedef enum ot_reduce_sum {
  OT_SUM_WIDE,  // reductions over ranks in fp64 when compute is fp64, else fp32
  OT_SUM_WIRE,  // in the dtype that is sent: a fault for the precision audit to find
} ot_reduce_sum;

typedef struct ot_run_precision {
  ot_dtype compute;    // fp32, fp64, bf16, fp16 or fp8
  ot_dtype params;     // storage of weights [compute; bf16 with fp8]
  ot_dtype gradients;  // accumulators [fp64 with fp64, else fp32]
  ot_dtype master;     // [fp64 with fp64, else fp32]; equal to params: no copy
  ot_dtype moments;    // [fp64 with fp64, else fp32]
  ot_dtype reduce;     // gradients in communication [fp64 with fp64, else fp32]
  ot_reduce_sum sum;   // key accumulate
} ot_run_precision;

// A value of ot_run_checkpoint.every: from measured times and the time between failures.
enum { OT_CHECKPOINT_AUTO = -1 };

typedef struct ot_run_checkpoint {
  int64_t every;            // steps; 0 = only after the last; OT_CHECKPOINT_AUTO
  double mtbf_hours;        // mean time between failures of the job; 0 = unknown
  int64_t keep;             // number of checkpoints to keep; 0 = all
  bool async;               // written concurrently with training
  int64_t memory;           // steps between copies in memory; 0 = none
  const char *memory_path;  // a folder in memory, for these
} ot_run_checkpoint;

typedef enum ot_audit_check {
  OT_AUDIT_CAUSALITY,
  OT_AUDIT_PRECISION,
  OT_AUDIT_RANKS,
  OT_AUDIT_DRIFT,
  OT_AUDIT_OVERLAP,
  OT_AUDIT_STATE,
  OT_AUDIT_COMPUTE,
} ot_audit_check;

typedef struct ot_run_audit {
  int64_t every;           // steps; 0 = never
  ot_audit_check *checks;  // [num_checks]
  int64_t num_checks;
} ot_run_audit;

// A task, by the name that its figures have.
typedef struct ot_evaluate_task {
  const char *name;  // "": that of the file
  const char *path;  // JSON lines (evaluate/text_task.h)
} ot_evaluate_task;

typedef struct ot_run_evaluate {
  int64_t every;   // steps; 0 = before the first step and after the last only
  int64_t stages;  // ranks that share a copy of the model; 0 = as few as have the memory
  ot_evaluate_task *tasks;
  int64_t num_tasks;
} ot_run_evaluate;

// The answer to an outlier of the loss or of the gradient norm (record/spike_watch.h).
typedef enum ot_spike_action {
  OT_SPIKE_NOTE,    // report it and go on
  OT_SPIKE_STOP,    // end the run
  OT_SPIKE_SKIP,    // go back to the checkpoint before it and leave out the samples since then
  OT_SPIKE_REWIND,  // go back to the checkpoint before it and repeat the same samples
} ot_spike_action;

typedef struct ot_run_log {
  int64_t every;         // steps between status lines
  int64_t health_every;  // steps between per-layer health metrics; 0 = never
  bool tensorboard;      // write event files
} ot_run_log;

// The device of a run: auto takes a GPU where there is one that the run can use.
typedef enum ot_run_device { OT_DEVICE_AUTO, OT_DEVICE_CPU, OT_DEVICE_CUDA } ot_run_device;

typedef struct ot_run {
  ot_model model;
  const char *model_source;  // source of `model`: preset, path, or "" for inline keys
  const char *init;          // "random", or a HF directory or checkpoint
  const char *const *sets;   // [num_sets] "model.KEY=VALUE" overrides that also apply to the files
                             // of `init`
  int num_sets;
  ot_run_data data;
  ot_run_batch batch;
  ot_run_parallel parallel;
  ot_run_optimizer optimizer;
  ot_parametrization parametrization;
  int64_t steps;   // 0 when the run is by tokens
  int64_t tokens;  // 0 when the run is by steps
  ot_run_learning_rate learning_rate;
  ot_run_precision precision;
  ot_run_distill distill;
  ot_run_checkpoint checkpoint;
  ot_run_audit audit;
  ot_run_evaluate evaluate;
  ot_run_rl rl;
  ot_spike_action on_spike;
  ot_run_log log;
  const char *cluster;  // preset or file for predictions; "this-machine"
  int64_t seed;
  ot_run_device device;
  int threads;         // per rank; 0 = an equal share of the machine's cores
  const char *output;  // the run directory
} ot_run;

// Checks the consistency of all values, model included (not both steps and tokens, micro batches
// divide the global batch, ...). OT_USAGE naming keys, values and valid alternatives.
ot_status ot_run_check(const ot_run *run);

// Checks that depend on the number of ranks: their product of degrees, and that each global batch
// of the run is whole micro-batches on every rank of dp, in a number that the pipeline schedule
// supports. OT_RANKS, OT_USAGE or (unsupported) OT_ENVIRONMENT, naming the nearest valid values.
ot_status ot_run_check_ranks(const ot_run *run, int ranks);

// Checks the additional requirements of training: data, a length in steps or tokens, and positions
// for whole sequences.
ot_status ot_run_check_training(const ot_run *run);

// The dtype of sums and products: OT_F64 or OT_F32, for bf16 operands, too.
ot_dtype ot_run_compute(const ot_run_precision *precision);

// The dtype in which a graph stores weights and activations: that of the weights, with bf16 for
// fp16, which has the same size and no kernels.
ot_dtype ot_run_storage(const ot_run_precision *precision);

// True when gradient accumulators are stored as bf16; fp16 is mapped to it.
bool ot_run_narrow_gradients(const ot_run_precision *precision);

// Likewise moments of the optimizer.
bool ot_run_narrow_moments(const ot_run_precision *precision);

// True for a run of `orthant rl`. `run` may be null.
bool ot_run_learns_from_rewards(const ot_run *run);

// Generators of such a run, for which its weights are published: at least 1, where the split of
// workers is still to be chosen. 0: the run does not learn from rewards.
int ot_run_generators(const ot_run *run);

// Ranks of a job that only run a teacher, in addition to those of the mesh. `run` may be null.
int ot_run_teacher_ranks(const ot_run *run);

void ot_run_set_teacher_ranks(ot_run *run, int ranks);

// OT_USAGE or OT_RANKS, as `failure` says, if they leave none of `count` devices or ranks (`unit`,
// which `option` sets) for the model.
ot_status ot_run_check_teacher_ranks(const ot_run *run, ot_status failure, int count,
                                     const char *unit, const char *option);

// Whether the run learns from a teacher, wherever its answers come from.
bool ot_run_has_teacher(const ot_run *run);

// Whether the run learns from a teacher that runs in its job, or also from one that a server runs;
// neither if the answers are stored. `run` may be null.
bool ot_run_has_live_teacher(const ot_run *run);
bool ot_run_has_answering_teacher(const ot_run *run);

// Whether the teacher judges sequences that the model itself writes, after prompts of the data.
bool ot_run_teacher_judges(const ot_run *run);

// Weighted targets of each token (ops/head.h); 0: the data's next token alone. `run` may be null.
int64_t ot_run_weighted_targets(const ot_run *run);

// Whether they are drawn from a distribution: their weights sum to 1.
bool ot_run_targets_are_drawn(const ot_run *run);

// True when the run recomputes gradients on other ranks (audit.checks). `run` may be null.
bool ot_run_checks_compute(const ot_run *run);

// Moments per element that the optimizer keeps, 1 or 2, of matrices inside blocks or of all other
// parameters. `run` may be null: AdamW.
int ot_run_moments(const ot_run *run, bool matrix);

// Recompute mode of a layer (-1: of a block that is no layer).
ot_recompute ot_run_recompute(const ot_run_parallel *parallel, int layer);

// The modules that selective recompute is limited to; empty: cheap ops.
ot_module_set ot_run_modules(const ot_run_parallel *parallel);

// Whether gathered weights of `block` (0 the embedding, then layers, then the head) are released
// after each use. Without entries: no.
bool ot_run_reshard(const ot_run *run, int block);

// The global batch (sequences) of `step`, counted from 0, after `tokens` tokens.
int64_t ot_run_global_batch(const ot_run *run, int64_t step, int64_t tokens);

// Tokens of the first `steps` steps of the run, with the batch ramp.
int64_t ot_run_tokens_after(const ot_run *run, int64_t steps);

// Steps of the whole run: the given number, or the fewest that reach its tokens.
int64_t ot_run_total_steps(const ot_run *run);
