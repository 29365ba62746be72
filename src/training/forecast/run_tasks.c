// SPDX-License-Identifier: Apache-2.0
// The price of an evaluation is that of its iterations, each of which the simulator prices.
#include "forecast/run_tasks.h"

#include <math.h>

#include "base/backend_rules.h"
#include "base/text.h"
#include "describe/engine.h"
#include "device/device.h"
#include "host/available.h"
#include "simulate/simulate.h"

ot_status ot_run_tasks_open(const ot_run *run, ot_arena *arena, ot_run_tasks *tasks) {
  const ot_run_evaluate *const settings = &run->evaluate;
  *tasks = (ot_run_tasks){.hash = OT_HASH_START};
  if (settings->num_tasks == 0) return OT_OK;
  OT_CHECK(run->data.tokenizer[0] != '\0', OT_USAGE,
           "evaluate.tasks are texts, so data.tokenizer is needed");
  OT_TRY(ot_tokenizer_create(run->data.tokenizer, &tasks->tokenizer));
  tasks->task = ot_arena_array(arena, settings->num_tasks, sizeof *tasks->task);
  for (; tasks->count < (int)settings->num_tasks; tasks->count++) {
    const ot_text_task_source source = {.name = settings->tasks[tasks->count].name,
                                        .path = settings->tasks[tasks->count].path,
                                        .model = &run->model,
                                        .tokenizer = tasks->tokenizer};
    ot_text_task *const task = &tasks->task[tasks->count];
    OT_TRY(ot_text_task_read(&source, arena, task));
    tasks->hash = ot_hash_bytes(tasks->hash, &task->hash, sizeof task->hash);
    for (int i = 0; i < tasks->count; i++) {
      OT_CHECK(!ot_text_equal(tasks->task[i].name, task->name), OT_USAGE,
               "evaluate.tasks: two tasks are called %s (try NAME: FILE)", task->name);
    }
  }
  return OT_OK;
}

void ot_run_tasks_close(ot_run_tasks *tasks) { ot_tokenizer_destroy(&tasks->tokenizer); }

ot_runtime_request ot_run_tasks_request(const ot_run *run, const ot_run_tasks *tasks, int threads,
                                        const ot_mesh *mesh, int rank) {
  const ot_inference_shape shape = ot_evaluation_shape(tasks->task, tasks->count);
  ot_runtime_request request = {
      .rank = {.graph = {.model = &run->model,
                         .compute = OT_F32,
                         .storage = OT_F32,
                         .backend = ot_runtime_choose_device(run->device, mesh ? mesh->ranks : 1),
                         .threads = threads},
               .schedule = {.mesh = mesh, .rank = rank}},
      .may_fall_back = !mesh && run->device == OT_DEVICE_AUTO};
  ot_inference_complete(&shape, &request.rank);
  return request;
}

// ---- place ----

static ot_status bytes_of(const ot_rank_request *rank, ot_arena *arena, int64_t *bytes) {
  ot_graph *const graphs = ot_arena_array(arena, OT_MODES, sizeof *graphs);
  ot_schedule *const schedule = ot_arena_take(arena, sizeof *schedule);
  OT_TRY(ot_runtime_plan(rank, arena, graphs, schedule));
  *bytes = schedule->memory.peak_bytes;
  return OT_OK;
}

typedef struct placing {
  const ot_run *run;
  const ot_run_tasks *tasks;
  const ot_run_tasks_ranks *ranks;
  ot_arena *arena;
} placing;

// Engines of `stages` stages; those of a memory are taken to be as large as the largest.
static ot_status place(const placing *p, int stages, ot_run_tasks_engines *out) {
  const ot_run_tasks_ranks *const ranks = p->ranks;
  *out = (ot_run_tasks_engines){.stages = stages};
  if (stages == 1) {
    const ot_runtime_request whole =
        ot_run_tasks_request(p->run, p->tasks, ranks->threads * ranks->sharing, NULL, 0);
    return bytes_of(&whole.rank, p->arena, &out->bytes);
  }
  const ot_run_parallel parallel = {
      .tp = 1, .pp = stages, .vpp = 1, .cp = 1, .ep = 1, .etp = 1, .dp_replicate = 1};
  OT_TRY(ot_mesh_build(&parallel, ranks->count, &out->mesh));
  for (int stage = 0; stage < stages; stage++) {
    int64_t bytes;
    const int rank = stage * (ranks->count / stages);
    const ot_runtime_request part =
        ot_run_tasks_request(p->run, p->tasks, ranks->threads, &out->mesh, rank);
    OT_TRY(bytes_of(&part.rank, p->arena, &bytes));
    if (bytes * ranks->sharing > out->bytes) out->bytes = bytes * ranks->sharing;
  }
  return OT_OK;
}

static int most_stages(const ot_run *run, int ranks) {
  const int64_t blocks = run->model.num_layers + 2;
  return blocks < ranks ? (int)blocks : ranks;
}

ot_status ot_run_tasks_check_stages(const ot_run *run, int ranks) {
  const int64_t asked = run->evaluate.stages;
  const int most = most_stages(run, ranks);
  if (run->evaluate.num_tasks == 0 || asked == 0) return OT_OK;
  OT_CHECK(asked <= most && ranks % asked == 0, OT_USAGE,
           "evaluate.stages=%lld: it must divide the %d rank%s and be at most %d (layers and two)",
           (long long)asked, ranks, ot_text_plural(ranks, "s"), most);
  return OT_OK;
}

ot_status ot_run_tasks_memory(ot_backend backend, int ordinal, ot_run_tasks_ranks *ranks) {
  ranks->memory_bytes = ot_host_memory_bytes(NULL);
  if (ot_backend_rules_of(backend)->host) return OT_OK;
  ot_device_info gpu;
  OT_TRY(ot_device_query(backend, ordinal, &gpu));
  ranks->memory_bytes = gpu.total_bytes - 2 * ranks->sharing * ot_gpu_reserve_bytes;
  return OT_OK;
}

ot_status ot_run_tasks_place(const ot_run *run, const ot_run_tasks *tasks,
                             const ot_run_tasks_ranks *ranks, ot_arena *arena,
                             ot_run_tasks_engines *out) {
  const int asked = (int)run->evaluate.stages, most = most_stages(run, ranks->count);
  OT_TRY(ot_run_tasks_check_stages(run, ranks->count));
  const placing p = {run, tasks, ranks, arena};
  OT_TRY(place(&p, asked > 0 ? asked : 1, out));
  for (int stages = 2; asked == 0 && stages <= most; stages++) {
    if (ranks->training_bytes * ranks->sharing + out->bytes < ranks->memory_bytes) break;
    if (ranks->count % stages == 0) OT_TRY(place(&p, stages, out));
  }
  return OT_OK;
}

int64_t ot_run_tasks_times(const ot_run *run) {
  const int64_t every = run->evaluate.every, steps = ot_run_total_steps(run);
  if (run->evaluate.num_tasks == 0) return 0;
  return 2 + (every > 0 ? (steps - 1) / every : 0);
}

// ---- cost ----

// Seconds of an iteration on the slowest stage.
typedef struct iteration_cost {
  double prefill_s, decode_s;
} iteration_cost;

typedef struct pricing {
  const ot_run_tasks_ranks *ranks;
  const ot_run_tasks_engines *engines;
  ot_inference_shape shape;
  ot_simulation machine;
  ot_arena *arena;
} pricing;

// Rows of an iteration: with several under way each takes its share.
static int64_t share_of(int64_t all, int stages) { return (all + stages - 1) / stages; }

// The narrowest mode for `rows` of `most`, as the engine chooses it.
static ot_mode narrowest(const ot_rank_request *rank, ot_mode widest, int64_t most, int64_t rows) {
  ot_mode found = widest;
  for (int i = 1; i < OT_MODE_WIDTHS; i++) {
    const ot_mode mode = (ot_mode)(widest + i);
    const bool has = rank->modes & 1u << mode;
    if (has && ot_mode_width(mode, most, 1) >= rows) found = mode;
  }
  return found;
}

static ot_status add_time(const pricing *p, const ot_schedule *schedule, ot_mode mode,
                          double *slowest) {
  const int order = ot_schedule_find_order(schedule, ot_order_of_mode(mode), 0);
  ot_timeline timeline;
  OT_TRY(ot_schedule_simulate(schedule, order, &p->machine, p->arena, &timeline));
  if (timeline.total_s > *slowest) *slowest = timeline.total_s;
  return OT_OK;
}

static ot_status add_stage(const pricing *p, const ot_rank_request *rank, iteration_cost *cost) {
  const int stages = p->engines->stages;
  const int64_t chunk = p->shape.chunk, slots = p->shape.slots;
  const ot_mode prefill = narrowest(rank, OT_MODE_PREFILL, chunk, share_of(chunk, stages));
  const ot_mode decode = narrowest(rank, OT_MODE_DECODE, slots, share_of(slots, stages));
  ot_graph *const graphs = ot_arena_array(p->arena, OT_MODES, sizeof *graphs);
  ot_schedule *const schedule = ot_arena_take(p->arena, sizeof *schedule);
  OT_TRY(ot_runtime_plan(rank, p->arena, graphs, schedule));
  OT_TRY(add_time(p, schedule, prefill, &cost->prefill_s));
  return add_time(p, schedule, decode, &cost->decode_s);
}

static int threads_of(const ot_run_tasks_ranks *ranks, const ot_run_tasks_engines *engines) {
  return engines->stages == 1 ? ranks->threads * ranks->sharing : ranks->threads;
}

static ot_status price_iterations(const pricing *p, const ot_run *run, const ot_run_tasks *tasks,
                                  iteration_cost *cost) {
  const ot_run_tasks_engines *const e = p->engines;
  const int threads = threads_of(p->ranks, e);
  *cost = (iteration_cost){0};
  if (e->stages == 1) {
    ot_runtime_request whole = ot_run_tasks_request(run, tasks, threads, NULL, 0);
    whole.rank.graph.backend = ot_device_kind_backend(&p->machine.cluster->device);
    return add_stage(p, &whole.rank, cost);
  }
  for (int stage = 0; stage < e->stages; stage++) {
    const int rank = stage * (p->ranks->count / e->stages);
    const ot_runtime_request part = ot_run_tasks_request(run, tasks, threads, &e->mesh, rank);
    OT_TRY(add_stage(p, &part.rank, cost));
  }
  return OT_OK;
}

// Rows of prompts fill iterations; texts are generated in all slots, one token in an iteration.
// Engines share the sequences out, and a pipeline takes turns to fill.
static ot_status price(const pricing *p, const ot_run *run, const ot_run_tasks *tasks,
                       ot_run_tasks_cost *cost) {
  const int stages = p->engines->stages;
  const int engines =
      stages == 1 ? (int)share_of(p->ranks->count, p->ranks->sharing) : p->ranks->count / stages;
  iteration_cost one;
  OT_TRY(price_iterations(p, run, tasks, &one));
  const double rows = (double)cost->prompt_tokens / engines;
  const double made = (double)cost->made_tokens / engines;
  const double fill = stages - 1;
  cost->seconds = 0;
  if (rows > 0)
    cost->seconds += one.prefill_s * (ceil(rows / (double)share_of(p->shape.chunk, stages)) + fill);
  if (made > 0)
    cost->seconds += one.decode_s * (ceil(made / (double)share_of(p->shape.slots, stages)) + fill);
  return OT_OK;
}

ot_status ot_run_tasks_predict(const ot_run *run, const ot_run_tasks *tasks,
                               const ot_run_tasks_machine *machine, ot_arena *arena,
                               ot_run_tasks_cost *cost) {
  *cost = (ot_run_tasks_cost){.seconds = NAN};
  for (int i = 0; i < tasks->count; i++) {
    for (int64_t k = 0; k < tasks->task[i].num_sequences; k++) {
      const ot_text_task_sequence *const s = &tasks->task[i].sequences[k];
      cost->sequences++;
      cost->prompt_tokens += s->count;
      cost->made_tokens += s->max_tokens;
    }
  }
  if (!machine->cluster) return OT_OK;
  const ot_run_tasks_ranks *const ranks = machine->ranks;
  const ot_run_tasks_engines *const engines = machine->engines;
  const int computing = engines->stages == 1 ? 1 : ranks->count;
  ot_cluster cluster;
  OT_TRY(ot_cluster_share(machine->cluster, computing, threads_of(ranks, engines), &cluster));
  const pricing p = {.ranks = ranks,
                     .engines = engines,
                     .shape = ot_evaluation_shape(tasks->task, tasks->count),
                     .machine = ot_simulation_of(
                         &cluster, ot_engine_style(&ot_engine_orthant, &cluster.device), OT_F32),
                     .arena = arena};
  return price(&p, run, tasks, cost);
}
