// SPDX-License-Identifier: Apache-2.0
// Each rank creates its model runtime, trains, and joins the collective reads of the results; rank
// 0 records them.
#include "support/rank_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "data/micro_batch.h"
#include "support/tiny_model.h"

// State shared by all ranks.
typedef struct world {
  const rank_request *request;
  ot_model model;
  ot_run run;
  bool reshard[RANK_MAX_LAYERS + 2];  // by block
  ot_mesh mesh;
  int ranks, micro_batches;
  rank_result *result;
  ot_runtime_faults faults;
} world;

enum { SEED = 7, HEAD_CHUNK_ROWS = 5 };

static int degree(int asked) { return asked > 1 ? asked : 1; }

int rank_count(const rank_request *r) {
  return degree(r->pp) * degree(r->dp_replicate) * degree(r->dp_shard) * degree(r->cp) *
         degree(r->tp);
}

// ---- settings ----

static ot_dtype narrow_or(ot_dtype asked, ot_dtype dtype) {
  return asked == OT_BF16 ? OT_BF16 : dtype;
}

// Some models train with mup, at sizes whose factors are no powers of two.
static ot_parametrization parametrization_of(const rank_request *r) {
  const bool scaled = r->model == RANK_GEMMA2 || r->model == RANK_QWEN || r->model == RANK_OLMO ||
                      r->model == RANK_LATENT;
  return (ot_parametrization){.name = scaled ? OT_PARAMETRIZATION_MUP : OT_PARAMETRIZATION_STANDARD,
                              .base_hidden_size = 17,
                              .base_head_dim = r->model == RANK_GEMMA2 ? 0 : 3,
                              .base_layers = r->residual_block > 0 ? 0 : 3,
                              .depth_alpha = 0.75};
}

static ot_run settings_of(const rank_request *r, const ot_model *model) {
  ot_run run = tiny_run(model);
  run.parametrization = parametrization_of(r);
  run.optimizer.eps = r->dtype == OT_F64 ? 1e-6 : 1e-3;
  run.seed = SEED;
  run.data.sequence_length = r->length;
  run.batch.micro_batch_size = r->micro_batch;
  run.batch.global_batch_size = r->batch;
  run.precision = (ot_run_precision){.compute = r->dtype,
                                     .params = narrow_or(r->storage, r->dtype),
                                     .gradients = narrow_or(r->gradients, r->dtype),
                                     .master = r->dtype,
                                     .moments = narrow_or(r->moments, r->dtype),
                                     .reduce = narrow_or(r->wire, r->dtype),
                                     .sum = OT_SUM_WIDE};
  run.parallel =
      (ot_run_parallel){.tp = degree(r->tp),
                        .pp = degree(r->pp),
                        .vpp = degree(r->vpp),
                        .cp = degree(r->cp),
                        .ep = degree(r->ep),
                        .etp = degree(r->etp),
                        .dp_replicate = degree(r->dp_replicate),
                        .context = r->context,
                        .zero = r->zero,
                        .accumulate = r->accumulate,
                        .pipeline = r->pipeline,
                        .recompute = (ot_recompute *)r->recompute,
                        .num_recompute = model->num_layers,
                        .layout = r->layout,
                        .order_csv = "",
                        .expert_buffer = r->expert_buffer > 0 ? r->expert_buffer : OT_EXPERT_BUFFER,
                        .prefetch = r->prefetch};
  return run;
}

static ot_model world_model(const rank_request *r) {
  ot_model model = rank_model(r->model, r->layers > 0 ? r->layers : RANK_LAYERS, r->wide);
  model.moe.routing = r->routing;
  if (r->routing == OT_MOE_EXPERT_CHOICE) model.moe.balance = OT_MOE_BALANCE_NONE;
  if (r->residual_block > 0) rank_model_mix(&model, r->residual_block);
  if (r->experts > 0) model.moe.num_experts = r->experts;
  if (r->lone) model.moe.experts_per_token = 1;
  return model;
}

static ot_status build_world(const rank_request *r, rank_result *result, world *w) {
  *w = (world){.request = r, .ranks = rank_count(r), .result = result, .model = world_model(r)};
  w->model.max_positions = r->length;  // so that every row of a table is used
  w->run = settings_of(r, &w->model);
  w->run.parallel.reshard = w->reshard;
  w->run.parallel.num_reshard = w->model.num_layers + 2;
  for (int i = 0; i < w->model.num_layers + 2; i++) w->reshard[i] = !r->keep[i];
  OT_ASSERT(w->ranks <= RANK_MAX && w->model.num_layers <= RANK_MAX_LAYERS);
  OT_TRY(ot_model_check(&w->model));
  OT_TRY(ot_run_check(&w->run));
  OT_TRY(ot_mesh_build(&w->run.parallel, w->ranks, &w->mesh));
  const int64_t round = r->micro_batch * degree(r->dp_replicate) * degree(r->dp_shard);
  OT_CHECK(r->batch % round == 0, OT_USAGE, "a batch of %lld in rounds of %lld",
           (long long)r->batch, (long long)round);
  w->micro_batches = (int)(r->batch / round);
  w->faults = (ot_runtime_faults){.amend = r->amend,
                                  .context = r->amend_context,
                                  .poison = r->poison && r->backend == OT_BACKEND_CPU};
  return OT_OK;
}

static ot_runtime_request instance_request(const world *w, int rank, ot_comm *comm) {
  const rank_request *const r = w->request;
  return (ot_runtime_request){.rank = {.modes = 1u << OT_MODE_TRAIN,
                                       .graph = {.backend = r->backend,
                                                 .model = &w->model,
                                                 .micro_batch_size = r->micro_batch,
                                                 .sequence_length = r->length,
                                                 .compute = r->dtype,
                                                 .storage = w->run.precision.params,
                                                 .threads = 1,
                                                 .head_chunk_rows = HEAD_CHUNK_ROWS,
                                                 .seed = SEED},
                                       .schedule = {.run = &w->run,
                                                    .micro_batches = &w->micro_batches,
                                                    .num_micro_batches = 1,
                                                    .mesh = w->ranks > 1 ? &w->mesh : NULL,
                                                    .rank = rank,
                                                    .guard_bytes = w->faults.poison ? 64 : 0}},
                              .serial = !r->overlap,
                              .no_graphs = r->no_graphs,
                              .comm = w->ranks > 1 ? comm : NULL,
                              .faults = &w->faults};
}

// ---- data ----

// Samples [first, first + B).
static void fill_rows(const world *w, int64_t first, ot_micro_batch *rows) {
  rank_token tokens[64];
  OT_ASSERT(rows->T <= 64);
  rows->num_targets = 0;
  for (int64_t b = 0; b < rows->B; b++) {
    rows->sample_ids[b] = first + b;
    rank_sequence(first + b, rows->T, w->model.vocab_size, tokens);
    for (int64_t t = 0; t < rows->T; t++) {
      rows->tokens[b * rows->T + t] = tokens[t].token;
      rows->targets[b * rows->T + t] = tokens[t].target;
      rows->positions[b * rows->T + t] = tokens[t].position;
      rows->doc_starts[b * rows->T + t] = tokens[t].doc_start;
      rows->num_targets += tokens[t].target >= 0;
    }
  }
}

static int64_t load(ot_runtime *runtime, int micro_batch, const ot_micro_batch *rows) {
  ot_runtime_load_batch(runtime, OT_MODE_TRAIN, micro_batch, OT_BATCH_TOKENS, rows->tokens);
  ot_runtime_load_batch(runtime, OT_MODE_TRAIN, micro_batch, OT_BATCH_TARGETS, rows->targets);
  ot_runtime_load_batch(runtime, OT_MODE_TRAIN, micro_batch, OT_BATCH_POSITIONS, rows->positions);
  ot_runtime_load_batch(runtime, OT_MODE_TRAIN, micro_batch, OT_BATCH_DOC_STARTS, rows->doc_starts);
  ot_runtime_load_batch(runtime, OT_MODE_TRAIN, micro_batch, OT_BATCH_SAMPLE_IDS, rows->sample_ids);
  return rows->num_targets;
}

// Loads the rank's share of a step and returns its number of targets. Micro-batch m of data rank d
// is micro-batch m * dp + d of the step.
static ot_status load_step(const world *w, int rank, int step, ot_runtime *runtime,
                           int64_t *targets) {
  const rank_request *const r = w->request;
  const int shards = w->mesh.degree[OT_AXIS_DP_SHARD];
  const int dp = shards * w->mesh.degree[OT_AXIS_DP_REPLICATE];
  const int d = ot_mesh_coordinate(&w->mesh, rank, OT_AXIS_DP_REPLICATE) * shards +
                ot_mesh_coordinate(&w->mesh, rank, OT_AXIS_DP_SHARD);
  const ot_sequence_shard piece = {.size = w->mesh.degree[OT_AXIS_CP],
                                   .index = ot_mesh_coordinate(&w->mesh, rank, OT_AXIS_CP),
                                   .context = r->context};
  ot_micro_batch whole, part;
  OT_TRY(ot_micro_batch_create(r->micro_batch, r->length, &whole));
  OT_TRY(ot_micro_batch_create(r->micro_batch, r->length / piece.size, &part));
  *targets = 0;
  for (int m = 0; m < w->micro_batches; m++) {
    fill_rows(w, r->first_sample + step * r->batch + ((int64_t)m * dp + d) * r->micro_batch,
              &whole);
    if (piece.size > 1) ot_micro_batch_shard(&whole, &piece, &part);
    *targets += load(runtime, m, piece.size > 1 ? &part : &whole);
  }
  ot_micro_batch_release(&whole);
  ot_micro_batch_release(&part);
  return OT_OK;
}

// ---- results ----

static double element(ot_dtype dtype, const void *data, int64_t i) {
  if (dtype == OT_BF16) return (double)ot_bf16_to_float(((const uint16_t *)data)[i]);
  return dtype == OT_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

static void list_tensors(const world *w, ot_runtime *runtime) {
  rank_result *const result = w->result;
  const ot_graph *const graph = ot_runtime_whole_graph(runtime);
  for (int i = 0; i < graph->num_parameters; i++)
    result->num_tensors += graph->parameters[i].num_parts;
  result->tensors = ot_arena_array(&result->arena, result->num_tensors, sizeof(rank_tensor));
  rank_tensor *tensor = result->tensors;
  for (int i = 0; i < graph->num_parameters; i++) {
    const ot_parameter *const p = &graph->parameters[i];
    for (int k = 0; k < p->num_parts; k++, tensor++) {
      const char *const name = p->parts[k].hf_name;
      tensor->name = ot_arena_text(&result->arena, name, ot_text_length(name));
      tensor->count = p->parts[k].rows * p->cols;
      double *const values = ot_arena_array(&result->arena, 3 * tensor->count, sizeof(double));
      tensor->gradient = values;
      tensor->last = values + tensor->count;
      tensor->weight = values + 2 * tensor->count;
    }
  }
}

// Where rank 0 stores a copy: gradients by step; moments only in the hash.
static double *place_of(rank_tensor *tensor, ot_parameter_copy copy, int step) {
  if (copy == OT_COPY_WEIGHT) return tensor->weight;
  return copy == OT_COPY_GRADIENT && step == 0 ? tensor->gradient : tensor->last;
}

static void keep_part(const char *raw, ot_dtype dtype, int64_t count, double *values) {
  for (int64_t i = 0; i < count; i++) values[i] = element(dtype, raw, i);
}

// Reads a copy of all parameters, one at a time; rank 0 stores their tensors and hashes the bits.
static ot_status collect_copy(const world *w, ot_runtime *runtime, ot_parameter_copy copy,
                              int step) {
  rank_result *const result = w->result;
  const ot_graph *const graph = ot_runtime_whole_graph(runtime);
  const ot_dtype dtype = ot_runtime_copy_dtype(runtime, copy);
  const bool writes = ot_runtime_schedule(runtime)->rank == 0;
  rank_tensor *tensor = writes ? result->tensors : NULL;
  for (int i = 0; i < graph->num_parameters; i++) {
    const ot_parameter *const p = &graph->parameters[i];
    const ot_parameter_rows range = {i, copy, 0, p->rows};
    const int64_t bytes = p->rows * p->cols * ot_dtype_bytes(dtype);
    char *const raw = writes ? ot_arena_take(&result->arena, bytes) : NULL;
    OT_TRY(ot_runtime_read(runtime, &range, raw));
    for (int k = 0; writes && k < p->num_parts; k++, tensor++) {
      keep_part(raw + p->parts[k].first_row * p->cols * ot_dtype_bytes(dtype), dtype, tensor->count,
                place_of(tensor, copy, step));
    }
    if (writes) result->bits = ot_hash_bytes(result->bits, raw, bytes);
  }
  return OT_OK;
}

static void note_experts(const world *w, ot_runtime *runtime, int step) {
  const ot_schedule *const schedule = ot_runtime_schedule(runtime);
  if (w->model.moe.num_experts == 0) return;
  const ot_region *const region = ot_schedule_region(schedule, "expert_sums");
  for (int i = 0; i < schedule->num_blocks; i++) {
    double block[OT_EXPERT_SUMS];
    ot_executor_read(ot_runtime_executor(runtime),
                     region->offset + (int64_t)i * (int64_t)sizeof block, block, sizeof block);
    for (int k = 0; k < OT_EXPERT_SUMS; k++) w->result->experts[step][k] += block[k];
  }
}

static void note_scalars(const world *w, ot_runtime *runtime, int step) {
  rank_result *const result = w->result;
  const ot_executor *const executor = ot_runtime_executor(runtime);
  result->loss[step] = ot_executor_scalar(executor, OT_SCALAR_LOSS);
  result->norm[step] = ot_executor_scalar(executor, OT_SCALAR_GRADIENT_NORM);
  result->bits = ot_hash_bytes(result->bits, &result->loss[step], sizeof(double));
  result->bits = ot_hash_bytes(result->bits, &result->norm[step], sizeof(double));
  note_experts(w, runtime, step);
}

// ---- one rank ----

static void count_bytes(const world *w, const ot_comm *comm, int rank, double sign) {
  for (int group = 0; group < OT_GROUP_KINDS; group++) {
    for (int kind = 0; kind < OT_COMM_KINDS; kind++) {
      w->result->sent[rank][group][kind] +=
          sign * ot_comm_sent_bytes(comm, (ot_group_kind)group, (ot_comm_kind)kind);
    }
  }
}

static ot_status run_step(const world *w, ot_comm *comm, ot_runtime *runtime, int step) {
  const int rank = ot_comm_rank(comm);
  const ot_run_optimizer *const o = &w->run.optimizer;
  ot_executor *const executor = ot_runtime_executor(runtime);
  int64_t targets;
  OT_TRY(load_step(w, rank, step, runtime, &targets));
  const double t = step + 1;
  ot_executor_set_scalar(executor, OT_SCALAR_LEARNING_RATE, o->lr);
  ot_executor_set_scalar(executor, OT_SCALAR_CORRECTION_1, 1 / (1 - pow(o->betas[0], t)));
  ot_executor_set_scalar(executor, OT_SCALAR_CORRECTION_2, 1 / (1 - pow(o->betas[1], t)));
  ot_executor_set_scalar(executor, OT_SCALAR_TARGETS, (double)targets);
  ot_executor_set_scalar(executor, OT_SCALAR_INVERSE_SEQUENCES, 1.0 / (double)w->request->batch);
  ot_executor_set_scalar(executor, OT_SCALAR_TARGET_SQUARES, (double)(targets * targets));
  const bool last = step == w->request->steps - 1;
  if (last) count_bytes(w, comm, rank, -1);
  OT_TRY(ot_runtime_run(runtime, OT_MODE_TRAIN, w->micro_batches));
  if (last) count_bytes(w, comm, rank, 1);
  for (int i = 0; i < OT_STEP_SCALARS; i++) {
    w->result->scalars[rank][i] = ot_executor_scalar(executor, (ot_step_scalar)i);
  }
  if (rank == 0) note_scalars(w, runtime, step);
  if (w->request->observe) w->request->observe(runtime, step, w->request->observe_context);
  return collect_copy(w, runtime, OT_COPY_GRADIENT, step);
}

float rank_initial_bias(const rank_request *request, int expert) {
  const int experts = (int)world_model(request).moe.num_experts;
  if (request->loads == RANK_LOADS_FREE) return 0;
  return expert >= experts - experts / 4 ? -4.0f : -0.05f * (float)expert;
}

static void set_biases(const world *w, ot_runtime *runtime) {
  const ot_graph *const graph = ot_runtime_whole_graph(runtime);
  if (w->request->loads == RANK_LOADS_FREE) return;
  for (int i = 0; i < graph->num_parameters; i++) {
    const ot_parameter *const p = &graph->parameters[i];
    if (p->kind != OT_PARAMETER_BUFFER) continue;
    for (int64_t e = 0; e < p->rows; e++) {
      const ot_parameter_rows range = {i, OT_COPY_WEIGHT, e, 1};
      const float bias = rank_initial_bias(w->request, (int)e);
      const double wide = (double)bias;
      const uint16_t narrow = ot_bf16_from_float(bias);
      const ot_dtype stored = w->run.precision.params;
      ot_runtime_write(runtime, &range,
                       stored == OT_F64    ? (const void *)&wide
                       : stored == OT_BF16 ? (const void *)&narrow
                                           : &bias);
    }
  }
}

static ot_status train(const world *w, ot_comm *comm, ot_runtime *runtime) {
  if (ot_comm_rank(comm) == 0) list_tensors(w, runtime);
  OT_TRY(ot_runtime_initialize(runtime, SEED));
  set_biases(w, runtime);
  for (int step = 0; step < w->request->steps; step++) {
    OT_TRY(run_step(w, comm, runtime, step));
  }
  const ot_parameter_copy copies[] = {OT_COPY_MOMENT_1, OT_COPY_MOMENT_2, OT_COPY_MASTER,
                                      OT_COPY_WEIGHT};
  const bool has_master = w->run.precision.params != w->run.precision.master;
  for (int i = 0; i < OT_COUNT(copies); i++) {
    if (copies[i] == OT_COPY_MASTER && !has_master) continue;
    OT_TRY(collect_copy(w, runtime, copies[i], w->request->steps - 1));
  }
  return OT_OK;
}

static ot_status run_rank(ot_comm *comm, void *context) {
  const world *const w = context;
  if (w->request->timeout_s > 0) ot_comm_set_timeout(comm, w->request->timeout_s);
  const ot_runtime_request request = instance_request(w, ot_comm_rank(comm), comm);
  ot_runtime *runtime = NULL;
  OT_TRY(ot_runtime_create(&request, &runtime));
  const ot_status status = train(w, comm, runtime);
  ot_runtime_destroy(&runtime);
  return status;
}

static ot_status begin(const rank_request *request, rank_result *result, world *w) {
  *result = (rank_result){.bits = OT_HASH_START, .micro_batch = request->micro_batch};
  result->arena = ot_heap_arena_create(&result->heap);
  return build_world(request, result, w);
}

ot_status rank_run(const rank_request *request, rank_result *result) {
  world w;
  OT_TRY(begin(request, result, &w));
  return ot_comm_run_threads(w.ranks, run_rank, &w);
}

ot_status rank_run_processes(const rank_request *request, rank_result *result) {
  world w;
  OT_TRY(begin(request, result, &w));
  return ot_comm_run_mpi(run_rank, &w);
}

void rank_release(rank_result *result) { ot_heap_release(&result->heap); }

ot_status rank_plan(const rank_request *request, ot_arena *arena, ot_schedule *schedules) {
  world *const w = ot_arena_take(arena, sizeof *w);
  OT_TRY(build_world(request, NULL, w));
  for (int rank = 0; rank < w->ranks; rank++) {
    ot_runtime_request wanted = instance_request(w, rank, NULL);
    ot_graph *const graphs = ot_arena_array(arena, OT_MODES, sizeof *graphs);
    OT_TRY(ot_runtime_plan(&wanted.rank, arena, graphs, &schedules[rank]));
    OT_TRY(ot_schedule_check(&schedules[rank], arena));
  }
  return OT_OK;
}

bool rank_sampled(void) {
  static int cases;
  const char *const text = getenv("OT_TESTS");
  return cases++ % 7 == 0 || !text || strcmp(text, "few") != 0;
}

bool rank_full(void) {
  const char *const text = getenv("OT_TESTS");
  return text && strcmp(text, "full") == 0;
}
