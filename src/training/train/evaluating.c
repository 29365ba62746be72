// SPDX-License-Identifier: Apache-2.0
// Ranks meet about once a second while engines run: those that wait are not taken for hanging.
#include "train/evaluating.h"

#include "base/backend_rules.h"
#include "base/text.h"
#include "host/clock.h"
#include "host/heap.h"
#include "runtime/stop_signal.h"

enum { KEY_BYTES = 512 };

// ---- begin ----

static ot_status most_of(const ot_session *s, int64_t mine, int64_t *most) {
  ot_world *const world = s->request->world;
  int64_t *const all = ot_arena_array(s->arena, ot_world_size(world), sizeof *all);
  OT_TRY(ot_world_allgather(world, mine, all));
  *most = all[0];
  for (int i = 1; i < ot_world_size(world); i++) *most = all[i] > *most ? all[i] : *most;
  return OT_OK;
}

// The GPU of this rank; 0 on the CPU.
static int ordinal_of(const ot_session *s) {
  const ot_backend backend = ot_runtime_backend(ot_session_runtime(s));
  ot_comm *const comm = ot_world_comm(s->request->world);
  return comm ? ot_comm_ordinal(comm, ot_device_count(backend)) : 0;
}

static ot_status place_engines(ot_evaluating *e, const ot_session *s) {
  ot_world *const world = s->request->world;
  const ot_schedule *const schedule = ot_runtime_schedule(ot_session_runtime(s));
  ot_comm *const comm = ot_world_comm(world);
  ot_run_tasks_ranks ranks = {.count = ot_world_size(world)};
  int64_t sharing, threads, memory;
  OT_TRY(most_of(s, comm ? ot_comm_local_size(comm) : 1, &sharing));
  if (!ot_backend_rules_of(schedule->backend)->host) sharing = ot_gpu_sharers((int)sharing);
  ranks.sharing = (int)sharing;
  OT_TRY(most_of(s, schedule->threads, &threads));
  OT_TRY(most_of(s, schedule->memory.peak_bytes, &ranks.training_bytes));
  OT_TRY(ot_world_agree(world, ot_run_tasks_memory(schedule->backend, ordinal_of(s), &ranks)));
  OT_TRY(most_of(s, -ranks.memory_bytes, &memory));
  ranks.threads = (int)threads;
  ranks.memory_bytes = -memory;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_status status = ot_run_tasks_place(s->run, &e->tasks, &ranks, &arena, &e->engines);
  ot_heap_release(&heap);
  return status;
}

// The ranks of the first stage have the engines of several stages.
static void find_stage(ot_evaluating *e, const ot_session *s, bool *leads) {
  e->shares = ot_world_size(s->request->world) / e->engines.stages;
  e->share = ot_world_rank(s->request->world);
  *leads = e->share < e->shares;
}

// The first rank of each machine, or of each GPU, computes; they are counted in the order of their
// ranks.
static ot_status find_share(ot_evaluating *e, const ot_session *s, bool *computes) {
  ot_world *const world = s->request->world;
  const int size = ot_world_size(world), rank = ot_world_rank(world);
  int64_t *const places = ot_arena_array(s->arena, size, sizeof *places);
  const int ordinal = ordinal_of(s);
  const uint64_t machine = (uint64_t)ot_world_machine(world);
  const int64_t place = (int64_t)ot_hash_bytes(machine, &ordinal, sizeof ordinal);
  OT_TRY(ot_world_allgather(world, place, places));
  e->shares = e->share = 0;
  for (int i = 0; i < size; i++) {
    bool first = true;
    for (int k = 0; k < i; k++) first = first && places[k] != places[i];
    if (i == rank) *computes = first;
    if (i == rank) e->share = e->shares;
    e->shares += first;
  }
  return OT_OK;
}

static ot_status create_runtime(ot_evaluating *e, const ot_session *s) {
  ot_world *const world = s->request->world;
  const int threads = ot_runtime_schedule(ot_session_runtime(s))->threads;
  const bool whole = e->engines.stages == 1;
  ot_runtime_request request = ot_run_tasks_request(
      s->run, &e->tasks, whole ? threads * ot_world_core_sharers(world) : threads,
      whole ? NULL : &e->engines.mesh, ot_world_rank(world));
  request.ordinal = ordinal_of(s);
  if (!whole) request.comm = ot_world_comm(world);
  return ot_runtime_create(&request, &e->runtime);
}

static ot_status create_engine(ot_evaluating *e, const ot_session *s) {
  bool leads = false;
  OT_TRY(place_engines(e, s));
  if (e->engines.stages > 1) {
    find_stage(e, s, &leads);
  } else {
    OT_TRY(find_share(e, s, &leads));
  }
  const bool computes = leads || e->engines.stages > 1;
  ot_status status = computes ? create_runtime(e, s) : OT_OK;
  if (status == OT_OK && leads) {
    status =
        ot_inference_create(e->runtime, ot_tokenizer_vocab_size(e->tasks.tokenizer), &e->engine);
  }
  return ot_world_agree(s->request->world, status);
}

ot_status ot_evaluating_begin(ot_evaluating *e, const ot_session *s) {
  ot_world *const world = s->request->world;
  if (s->run->evaluate.num_tasks == 0) return OT_OK;
  OT_TRY(ot_world_agree(world, ot_run_tasks_open(s->run, s->arena, &e->tasks)));
  OT_TRY(ot_world_check_equal(world, e->tasks.hash, "the tasks of evaluate"));
  return create_engine(e, s);
}

void ot_evaluating_end(ot_evaluating *e) {
  ot_inference_destroy(&e->engine);
  ot_runtime_destroy(&e->runtime);
  ot_run_tasks_close(&e->tasks);
}

int64_t ot_evaluating_bytes(const ot_evaluating *e) {
  const ot_runtime *const runtime = e->runtime;
  return runtime ? ot_runtime_schedule(runtime)->memory.peak_bytes : 0;
}

double ot_evaluating_remaining_s(const ot_evaluating *e, const ot_session *s, int64_t step) {
  const int64_t total = ot_trainer_total_steps(s->start.trainer), every = s->run->evaluate.every;
  if (e->times == 0 || step >= total) return 0;
  const int64_t left = 1 + (every > 0 ? (total - 1) / every - step / every : 0);
  return (double)left * e->spent_s / (double)e->times;
}

// ---- figures ----

static void report(const ot_evaluating *own, ot_session *s, int64_t step, const double *results) {
  for (int i = 0; i < own->tasks.count; i++) {
    const ot_text_task *const task = &own->tasks.task[i];
    ot_text_task_figure figures[OT_TEXT_TASK_FIGURES];
    const int count = ot_text_task_figures(task, results, figures);
    for (int k = 0; k < count; k++) {
      char key[KEY_BYTES];
      ot_text_format(key, sizeof key, OT_METRICS_EVALUATE "%s/%s", task->name, figures[k].name);
      ot_step_log_figure(s, step, key, figures[k].value);
    }
    results += task->num_sequences;
  }
}

// ---- running ----

static ot_status iterate(const ot_session *s, ot_evaluation *e, double seconds, bool *done) {
  const double until_s = ot_clock_s() + seconds;
  do {
    OT_TRY(ot_evaluation_step(e, done));
    ot_heartbeat_beat(s->heartbeat);
  } while (!*done && !ot_stop_signal_seen() && ot_clock_s() < until_s);
  return OT_OK;
}

// Stages follow their engine until it has iterated for that long.
static ot_status run_for(ot_evaluating *own, const ot_session *s, ot_evaluation *e, double seconds,
                         bool *done) {
  if (own->engines.stages == 1) return iterate(s, e, seconds, done);
  *done = true;
  ot_status status = own->engine ? iterate(s, e, seconds, done) : ot_inference_follow(own->runtime);
  if (status == OT_OK && own->engine) status = ot_inference_dismiss(own->engine);
  // Others wait for this rank's part of an iteration.
  if (status != OT_OK) ot_comm_fail(ot_world_comm(s->request->world), status);
  ot_heartbeat_beat(s->heartbeat);
  return status;
}

// *left: a rank was asked to stop.
static ot_status run_all(ot_evaluating *own, const ot_session *s, ot_evaluation *e, bool *left) {
  ot_world *const world = s->request->world;
  const double watchdog_s = s->run->parallel.watchdog_seconds;
  const double round_s = watchdog_s > 0 && watchdog_s < 4 ? watchdog_s / 4 : 1;
  while (true) {
    bool done = false;
    OT_TRY(ot_world_agree(world, run_for(own, s, e, round_s, &done)));
    double values[] = {!done, ot_stop_signal_seen()};
    OT_TRY(ot_world_allreduce(world, values, OT_COUNT(values)));
    *left = values[1] > 0;
    if (*left || values[0] == 0) return OT_OK;
  }
}

// Adds the results of all shares: each sequence has one that is not zero.
static ot_status join(ot_evaluating *own, const ot_session *s, ot_evaluation *e) {
  double *const results = ot_evaluation_results(e);
  const int64_t count = ot_evaluation_count(e);
  if (own->shares < 2) return OT_OK;
  for (int64_t at = 0; at < count; at += OT_WORLD_VALUES) {
    const int64_t n = count - at < OT_WORLD_VALUES ? count - at : OT_WORLD_VALUES;
    OT_TRY(ot_world_allreduce(s->request->world, results + at, (int)n));
  }
  return OT_OK;
}

static ot_status evaluate(ot_evaluating *own, ot_session *s, ot_evaluation *e, int64_t step) {
  bool left = false;
  OT_TRY(ot_runtime_copy_weights(ot_session_runtime(s), own->runtime));
  if (own->engine) ot_inference_renew(own->engine, true);
  OT_TRY(run_all(own, s, e, &left));
  if (left) {
    if (own->engine) ot_inference_cancel_all(own->engine);
    ot_loop_note(s->request,
                 "the evaluation after step %lld was left; `orthant score --tasks` on its "
                 "checkpoint gives the figures",
                 (long long)step);
    return OT_OK;
  }
  OT_TRY(join(own, s, e));
  if (ot_session_leads(s)) report(own, s, step, ot_evaluation_results(e));
  return OT_OK;
}

ot_status ot_evaluating_run(ot_evaluating *own, ot_session *s, int64_t step) {
  const double begin_s = ot_clock_s();
  ot_evaluation *e = NULL;
  if (own->tasks.count == 0) return OT_OK;
  const ot_evaluation_request request = {.tasks = own->tasks.task,
                                         .num_tasks = own->tasks.count,
                                         .tokenizer = own->tasks.tokenizer,
                                         .engine = own->engine,
                                         .share = own->share,
                                         .shares = own->shares};
  ot_status status = ot_world_agree(s->request->world, ot_evaluation_create(&request, &e));
  if (status == OT_OK) status = evaluate(own, s, e, step);
  ot_evaluation_destroy(&e);
  OT_TRY(status);
  const double took_s = ot_clock_s() - begin_s;
  own->spent_s += took_s;
  own->after_begin_s += took_s;
  own->times++;
  ot_loop_log_timed(&s->start, OT_RUN_EVENT_EVALUATION, step, begin_s);
  return OT_OK;
}

// ---- validation ----

ot_status ot_evaluating_validate(ot_session *s, int64_t step) {
  const double begin_s = ot_clock_s();
  if (s->run->data.num_validation == 0) return OT_OK;
  for (int i = 0; i < (int)s->run->data.num_validation; i++) {
    double loss;
    OT_TRY(ot_trainer_validate(s->start.trainer, i, &loss));
    if (ot_session_leads(s)) ot_step_log_validation(s, step, s->run->data.validation[i].name, loss);
  }
  ot_loop_log_timed(&s->start, OT_RUN_EVENT_VALIDATION, step, begin_s);
  return OT_OK;
}
