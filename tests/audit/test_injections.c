// SPDX-License-Identifier: Apache-2.0
// run: ranks=4 as threads. Bits that flip and numbers that become NaN or infinite, at places drawn
// by a seed: the step stops before its update, or the audits of the run name the tensor and the
// rank at their next check. `test_injections TRIALS [SEED]` injects TRIALS times in each row and
// prints what was found (tools/torture.py); without arguments, a few times.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "audit/compute_check.h"
#include "audit/replicas.h"
#include "audit/state_watch.h"
#include "base/rng.h"
#include "base/text.h"
#include "support/audit_case.h"

// What is spoiled, and when.
typedef enum row {
  ROW_REST_NONFINITE,    // a weight or moment between two steps
  ROW_REST_FLIP,         // the same, one bit
  ROW_STEP_NONFINITE,    // an activation or a gradient before some kernel of a step
  ROW_SUMMED_NONFINITE,  // a reduced gradient, the gradient norm's terms not yet taken
  ROW_SUMMED_FLIP,       // the same, one bit of a gradient with a replica
  ROW_RESULT_NONFINITE,  // loss or gradient norm that one rank reads after a step
  ROW_RESULT_FLIP,       // a scalar that ranks hold alike, after a step
  ROW_COMPUTED,          // an operand, during one computation that the audit repeats, or each
  ROW_TRANSIENT,         // one bit of an activation or a local gradient before some kernel
  ROWS,
} row;

static const char *const row_names[ROWS] = {
    [ROW_REST_NONFINITE] = "NaN or Inf in weights or moments",
    [ROW_REST_FLIP] = "bit flips in weights or moments",
    [ROW_STEP_NONFINITE] = "NaN or Inf in activations or gradients",
    [ROW_SUMMED_NONFINITE] = "NaN or Inf in reduced gradients",
    [ROW_SUMMED_FLIP] = "bit flips in replicated gradients",
    [ROW_RESULT_NONFINITE] = "NaN or Inf in loss or gradient norm",
    [ROW_RESULT_FLIP] = "bit flips in loss, norm, rates",
    [ROW_COMPUTED] = "wrong arithmetic that is recomputed",
    [ROW_TRANSIENT] = "transient bit flips in a step",
};

// Of one row, on the leader.
typedef struct tally {
  int found, missed, harmless;
} tally;

typedef struct job {
  row row;
  int trials;  // with an effect
  uint64_t seed;
  tally tally;
} job;

enum { BASES = 5, NAME_BYTES = 128 };  // states from which a row's trials start

// One rank's part of a trial.
typedef struct rig {
  audit_rank *rank;
  const job *job;
  ot_executor *executor;
  ot_heap heap;
  ot_arena arena;
  ot_unit_list list;
  int64_t *holders;  // [list.num_units] ranks with a unit of the same key
  char *kept;        // the arena before the trial
  ot_position position;
  uint64_t end;  // hash of the state after the step that nothing disturbs
  ot_replicas *replicas;
  ot_state_watch *watch;
  ot_compute_audit compute;
  int64_t trial, draws;  // of random numbers in this trial, the same on all ranks
  int victim;
  bool in_result;         // spoil the results of the next step
  bool in_step;           // spoil before kernel `at` of the next step
  int64_t at, kernels;    // kernels of this run so far
  int64_t step_kernels;   // of a step
  int64_t offset, bytes;  // what is spoiled
  bool lasts;             // wrong in each computation, not only in computation `at`
  int computations;
  unsigned char before[8];
  bool spoiled;
  char name[NAME_BYTES];  // of the spoiled tensor; empty: any place will do
} rig;

static uint64_t draw(rig *g, uint64_t bound) {
  const uint64_t counter = (uint64_t)(g->trial * 64 + g->draws++);
  return ot_rng_below(g->job->seed, (uint64_t)g->job->row + 1, counter, bound);
}

static bool is_victim(const rig *g) { return g->rank->rank == g->victim; }

// ---- damage ----

static bool is_nonfinite(row r) {
  return r == ROW_REST_NONFINITE || r == ROW_STEP_NONFINITE || r == ROW_SUMMED_NONFINITE;
}

// Everything is float but scalars, which are double.
static void spoil(rig *g) {
  const float strange[] = {NAN, INFINITY, -INFINITY};
  unsigned char bytes[8];
  ot_executor_read(g->executor, g->offset, bytes, g->bytes);
  memcpy(g->before, bytes, sizeof bytes);
  const uint64_t bit = draw(g, 8 * (uint64_t)g->bytes);
  if (is_nonfinite(g->job->row)) {
    memcpy(bytes, &strange[bit % 3], sizeof *strange);
  } else {
    bytes[bit / 8] = (unsigned char)(bytes[bit / 8] ^ 1u << bit % 8);
  }
  ot_executor_write(g->executor, g->offset, bytes, g->bytes);
  g->spoiled = true;
}

// An element of a unit of this rank that `wants` accepts.
static void choose_unit(rig *g, bool (*wants)(const rig *, int)) {
  int accepted = 0;
  for (int i = 0; i < g->list.num_units; i++) accepted += wants(g, i);
  assert_true(accepted > 0);
  int left = (int)draw(g, (uint64_t)accepted), i = 0;
  while (!wants(g, i) || left-- > 0) i++;
  const ot_unit *const unit = &g->list.units[i];
  g->bytes = unit->size;
  g->offset = unit->offset + unit->size * (int64_t)draw(g, (uint64_t)unit->count);
  snprintf(g->name, sizeof g->name, "%s of %s", ot_unit_kind_name(unit->kind),
           ot_unit_name(ot_trainer_runtime(g->rank->trainer), unit->kind, unit->index));
  if (unit->kind == OT_UNIT_SCALAR) {
    snprintf(g->name, sizeof g->name, "%s",
             ot_unit_name(ot_trainer_runtime(g->rank->trainer), unit->kind, unit->index));
  }
}

static bool is_state(const rig *g, int i) {
  const ot_unit_kind kind = g->list.units[i].kind;
  return kind < OT_UNIT_SCALAR && kind != OT_UNIT_GRADIENT;
}

static bool is_gradient(const rig *g, int i) { return g->list.units[i].kind == OT_UNIT_GRADIENT; }
static bool is_replicated_gradient(const rig *g, int i) {
  return is_gradient(g, i) && g->holders[i] > 1;
}
static bool is_scalar(const rig *g, int i) { return g->list.units[i].kind == OT_UNIT_SCALAR; }
static bool is_weight(const rig *g, int i) { return g->list.units[i].kind == OT_UNIT_WEIGHT; }

// A float of the activations or of the gradients of a step.
static void choose_memory(rig *g) {
  const ot_schedule *const schedule = ot_runtime_schedule(ot_trainer_runtime(g->rank->trainer));
  int accepted[64], count = 0;
  for (int i = 0; i < schedule->num_regions && count < 64; i++) {
    const ot_region *const region = &schedule->regions[i];
    const bool of_step = !region->persistent && region->order == (int)OT_ORDER_STEP;
    const bool kind =
        region->class == OT_MEMORY_GRADIENTS || (of_step && region->class == OT_MEMORY_ACTIVATIONS);
    if (kind && region->bytes >= 4) accepted[count++] = i;
  }
  const ot_region *const region = &schedule->regions[accepted[draw(g, (uint64_t)count)]];
  g->bytes = 4;
  g->offset = region->offset + 4 * (int64_t)draw(g, (uint64_t)region->bytes / 4);
  g->name[0] = '\0';
}

// Before each kernel.
static bool count_kernel(void *context) {
  rig *const g = context;
  if (g->in_step && !g->spoiled && g->kernels == g->at) spoil(g);
  g->kernels++;
  return false;
}

// Before the squares of the gradients are taken.
static void spoil_gradient(void *context) {
  rig *const g = context;
  if (is_victim(g)) spoil(g);
}

// Before each computation of the compute audit.
static void spoil_operand(ot_trainer *trainer, void *context) {
  rig *const all = context, *const g = &all[ot_world_rank(ot_trainer_world(trainer))];
  if (g->job == NULL || g->job->row != ROW_COMPUTED || g->bytes == 0) return;
  if (g->spoiled) ot_executor_write(g->executor, g->offset, g->before, g->bytes);
  g->spoiled = false;
  if (!is_victim(g) || !(g->lasts || g->computations++ == g->at)) return;
  const int64_t draws = g->draws;  // the same bit each time
  spoil(g);
  g->draws = draws;
}

// When a step has run, before its results are read.
static void spoil_scalar(ot_trainer *trainer, void *context) {
  rig *const all = context, *const g = &all[ot_world_rank(ot_trainer_world(trainer))];
  const ot_step_scalar scalars[] = {OT_SCALAR_LOSS, OT_SCALAR_GRADIENT_NORM};
  const double strange[] = {(double)NAN, (double)INFINITY};
  if (!g->in_result) return;
  ot_executor_set_scalar(g->executor, scalars[draw(g, 2)], strange[draw(g, 2)]);
  g->spoiled = true;
}

// ---- states ----

static uint64_t hash_state(rig *g) {
  const ot_schedule *const schedule = ot_runtime_schedule(ot_trainer_runtime(g->rank->trainer));
  uint64_t hash = OT_HASH_START;
  char *const now = malloc((size_t)schedule->arena_bytes);
  assert_non_null(now);
  ot_executor_read(g->executor, 0, now, schedule->arena_bytes);
  for (int i = 0; i < g->list.num_units; i++) {
    const ot_unit *const unit = &g->list.units[i];
    if (!is_state(g, i)) continue;
    hash = ot_hash_bytes(hash, now + unit->offset, (size_t)(unit->count * unit->size));
  }
  free(now);
  return hash;
}

static int64_t arena_bytes(const rig *g) {
  return ot_runtime_schedule(ot_trainer_runtime(g->rank->trainer))->arena_bytes;
}

static void go_back(rig *g) {
  ot_executor_write(g->executor, 0, g->kept, arena_bytes(g));
  ot_trainer_set_position(g->rank->trainer, &g->position);
  g->bytes = 0;
}

// Trains on, and keeps the state from which the next trials start and that one step later.
static ot_status take_base(rig *g) {
  ot_step_report step;
  OT_TRY(audit_step(g->rank, &step));
  ot_executor_read(g->executor, 0, g->kept, arena_bytes(g));
  g->position = ot_trainer_position(g->rank->trainer);
  g->kernels = 0;
  OT_TRY(audit_step(g->rank, &step));
  g->step_kernels = g->kernels;
  g->end = hash_state(g);
  go_back(g);
  return OT_OK;
}

// ---- trials ----

// Sums of what single ranks know.
typedef struct verdict {
  double found, changed;
} verdict;

static ot_status add_verdicts(const rig *g, verdict *v) {
  double values[] = {v->found, v->changed};
  OT_TRY(ot_world_allreduce(g->rank->world, values, 2));
  *v = (verdict){values[0], values[1]};
  return OT_OK;
}

// Whether the findings of an audit name what this rank spoiled.
static bool names(const rig *g, const ot_loop_findings *found) {
  char rank[24];
  snprintf(rank, sizeof rank, "rank %d", g->victim);
  if (found->count == 0 || !is_victim(g)) return false;
  return strstr(found->text, g->name) && strstr(found->text, rank);
}

static ot_status audit(rig *g, bool stepped, verdict *v) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_loop_findings ranks = {0}, state = {0};
  ot_status status = ot_ranks_check(&g->replicas, g->rank->trainer, &arena, &ranks);
  if (status == OT_OK && stepped) status = ot_state_watch_report(g->watch, &arena, &state);
  if (is_victim(g)) v->found += names(g, &ranks) || names(g, &state);
  ot_heap_release(&heap);
  return status;
}

// Says which block, tensor or rank was not finite, and that nothing was updated.
static bool explains(const char *text) {
  return strstr(text, "step ") && (strstr(text, "layers.") || strstr(text, ".weight"));
}

static ot_status step_and_audit(rig *g, verdict *v) {
  ot_step_report step;
  const ot_status status = audit_step(g->rank, &step);
  if (status != OT_OK && status != OT_NUMERIC) return status;
  g->in_step = g->in_result = false;
  if (status == OT_NUMERIC) {
    v->found += explains(ot_fail_message());
    v->changed = 1;
    return OT_OK;
  }
  OT_TRY(audit(g, true, v));
  v->changed += hash_state(g) != g->end;
  return OT_OK;
}

// A moment that is hashed, spoiled, and compared before the next update.
static ot_status spoil_rest(rig *g, verdict *v) {
  ot_state_watch_take(g->watch);
  if (is_victim(g)) choose_unit(g, is_state);
  if (is_victim(g)) spoil(g);
  v->changed = is_victim(g);
  return step_and_audit(g, v);
}

static ot_status spoil_memory(rig *g, verdict *v) {
  ot_state_watch_take(g->watch);
  g->at = (int64_t)draw(g, (uint64_t)g->step_kernels);
  if (is_victim(g)) choose_memory(g);
  g->in_step = is_victim(g);
  return step_and_audit(g, v);
}

static void before_update(void *watch) { ot_state_watch_before_update(watch); }

static ot_status create_watch(rig *g) {
  OT_TRY(ot_state_watch_create(g->rank->trainer, &g->watch));
  const ot_executor_pause pause = {OT_PHASE_UPDATE, before_update, g->watch};
  ot_executor_set_pause(g->executor, &pause);
  return OT_OK;
}

static ot_status spoil_sum(rig *g, verdict *v) {
  const bool flips = g->job->row == ROW_SUMMED_FLIP;
  // Flips come when all sums over ranks have ended.
  const ot_executor_pause pause = {flips ? OT_PHASE_CLIP : OT_PHASE_NORM, spoil_gradient, g};
  if (is_victim(g)) choose_unit(g, flips ? is_replicated_gradient : is_gradient);
  ot_executor_set_pause(g->executor, &pause);
  OT_TRY(step_and_audit(g, v));
  ot_state_watch_destroy(&g->watch);
  return create_watch(g);
}

static ot_status spoil_result(rig *g, verdict *v) {
  ot_step_report step;
  OT_TRY(audit_step(g->rank, &step));
  if (is_victim(g)) choose_unit(g, is_scalar);
  if (is_victim(g)) spoil(g);
  v->changed = is_victim(g);
  return audit(g, false, v);
}

// Whether the rank is one of those before the verdict: "rank 2 computes", "the group of ranks 2 3".
static bool suspects(const char *worst, int rank) {
  char number[16];
  const char *const does = strstr(worst, " does not"), *const is = strstr(worst, " computes it");
  snprintf(number, sizeof number, " %d ", rank);
  const char *const at = strstr(worst, number);
  return at && at < (does ? does + 1 : is ? is + 1 : worst);
}

static ot_status spoil_computation(rig *g, verdict *v) {
  ot_loop_findings found = {0};
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const int parts = g->list.num_parts;
  int64_t *const right = ot_arena_array(&arena, parts + 1, sizeof *right);
  int64_t *const wrong = ot_arena_array(&arena, parts + 1, sizeof *wrong);
  OT_TRY(ot_trainer_hash_gradients(g->rank->trainer, ot_world_data_index(g->rank->world), right));
  if (is_victim(g)) choose_unit(g, is_weight);
  g->at = 0;
  OT_TRY(ot_trainer_hash_gradients(g->rank->trainer, ot_world_data_index(g->rank->world), wrong));
  v->changed = memcmp(right, wrong, (size_t)parts * sizeof *right) != 0;
  g->lasts = draw(g, 2) == 0;
  g->computations = 0;
  g->at = (int64_t)draw(g, 2);
  const ot_status status = ot_compute_check(&g->compute, g->rank->trainer, &arena, &found);
  if (is_victim(g)) v->found = found.count > 0 && suspects(found.worst, g->victim);
  ot_heap_release(&heap);
  return status;
}

static ot_status take_trial(rig *g, verdict *v) {
  *v = (verdict){0, 0};
  g->draws = 0;
  g->spoiled = g->in_step = g->in_result = false;
  g->kernels = g->bytes = 0;
  g->lasts = false;
  g->computations = 0;
  g->victim = (int)draw(g, (uint64_t)g->rank->ranks);
  switch (g->job->row) {
    case ROW_REST_NONFINITE:
    case ROW_REST_FLIP:
      return spoil_rest(g, v);
    case ROW_STEP_NONFINITE:
    case ROW_TRANSIENT:
      return spoil_memory(g, v);
    case ROW_SUMMED_NONFINITE:
    case ROW_SUMMED_FLIP:
      return spoil_sum(g, v);
    case ROW_RESULT_NONFINITE:
      g->in_result = is_victim(g);
      return step_and_audit(g, v);
    case ROW_RESULT_FLIP:
      return spoil_result(g, v);
    case ROW_COMPUTED:
      return spoil_computation(g, v);
    case ROWS:
      break;
  }
  return OT_BUG;
}

static void count(tally *t, const verdict *v, const rig *g) {
  if (v->found > 0) {
    t->found++;
  } else if (v->changed > 0) {
    t->missed++;
    if (g->job->row != ROW_TRANSIENT)
      printf("missed: %s, trial %lld on rank %d\n", row_names[g->job->row], (long long)g->trial,
             g->victim);
  } else {
    t->harmless++;
  }
}

static ot_status run_trials(rig *g, job *j) {
  tally t = {0};
  for (g->trial = 0; t.found + t.missed < j->trials; g->trial++) {
    verdict v;
    if (g->trial % (j->trials / BASES + 1) == 0) OT_TRY(take_base(g));
    OT_TRY(take_trial(g, &v));
    OT_TRY(add_verdicts(g, &v));
    count(&t, &v, g);
    go_back(g);
  }
  if (g->rank->rank == 0) j->tally = t;
  return OT_OK;
}

// How many ranks have a unit of the key of each of this rank's units.
static ot_status count_holders(rig *g) {
  ot_world *const world = g->rank->world;
  int64_t *const all = ot_arena_array(&g->arena, g->rank->ranks, sizeof *all);
  double most = g->list.num_units;
  g->holders = ot_arena_array(&g->arena, g->list.num_units, sizeof *g->holders);
  OT_TRY(ot_world_allreduce(world, &most, 1));
  for (int i = 0; i < (int)most; i++) {
    const bool has = i < g->list.num_units;
    OT_TRY(ot_world_allgather(world, has ? (int64_t)g->list.units[i].key : 0, all));
    for (int k = 0; k < g->rank->ranks * g->list.num_units; k++) {
      const int unit = k % g->list.num_units;
      g->holders[unit] += (uint64_t)all[k / g->list.num_units] == g->list.units[unit].key;
    }
  }
  return OT_OK;
}

static ot_status run_job(rig *g, job *j) {
  const ot_executor_leave counter = {.asks = count_kernel, .context = g};
  ot_runtime *const runtime = ot_trainer_runtime(g->rank->trainer);
  ot_units_list(runtime, ot_world_mesh(g->rank->world), g->rank->rank, &g->arena, &g->list);
  OT_TRY(count_holders(g));
  OT_TRY(create_watch(g));
  ot_executor_set_leave(g->executor, &counter);
  return run_trials(g, j);
}

typedef struct jobs {
  job *job;
  rig *rigs;  // [ranks]
} jobs;

static ot_status body(audit_rank *rank) {
  const jobs *const all = rank->context;
  rig *const g = &all->rigs[rank->rank];
  g->rank = rank;
  g->job = all->job;
  g->executor = ot_runtime_executor(ot_trainer_runtime(rank->trainer));
  g->arena = ot_heap_arena_create(&g->heap);
  g->kept = ot_arena_take(&g->arena, arena_bytes(g));
  const ot_status status = run_job(g, all->job);
  ot_executor_set_pause(g->executor, NULL);
  ot_replicas_destroy(&g->replicas);
  ot_state_watch_destroy(&g->watch);
  ot_heap_release(&g->heap);
  return status;
}

static void audit_compute(ot_run *run, void *context) {
  static ot_audit_check checks[] = {OT_AUDIT_COMPUTE};
  (void)context;
  run->audit = (ot_run_audit){.every = 1, .checks = checks, .num_checks = 1};
}

static void inject(audit_request request, job *j) {
  rig rigs[8];
  memset(rigs, 0, sizeof rigs);
  jobs all = {.job = j, .rigs = rigs};
  const ot_trainer_hooks hooks = {.before = spoil_operand, .after = spoil_scalar, .context = rigs};
  request.model = audit_model(2, false);
  request.batch = 8;
  request.micro_batch = 1;
  request.watchdog_seconds = 10;
  request.hooks = &hooks;
  if (j->row == ROW_COMPUTED) request.settings = audit_compute;
  const ot_status status = audit_run(&request, body, &all);
  const bool differ = status == OT_RANKS && strstr(ot_fail_message(), "ranks differ in call");
  // A rank that alone reads a strange result does not go on as the others do: all of them end.
  if (j->row == ROW_RESULT_NONFINITE && differ) {
    j->tally.found++;
  } else if (status != OT_OK) {
    fail_msg("%s, %s: %s", row_names[j->row], audit_describe(&request), ot_fail_message());
  }
}

// Each trial ends the run.
static void inject_one_by_one(audit_request request, job *j) {
  const int trials = j->trials;
  j->trials = 1;
  for (int i = 0; i < trials; i++) {
    j->seed += 1000;
    inject(request, j);
  }
}

// ---- rows ----

static int asked_trials = 6;  // of each row
static uint64_t asked_seed = 1;

// The trials of a row, on each of the meshes in turn.
static void fill_row(row r) {
  static const audit_request meshes[] = {
      {.dp_replicate = 4, .zero = 0}, {.dp_replicate = 2, .tp = 2, .zero = 0},
      {.dp_shard = 4, .zero = 1},     {.pp = 2, .dp_shard = 2, .zero = 2},
      {.dp_shard = 4, .zero = 3},     {.dp_shard = 2, .cp = 2, .zero = 1, .bf16 = true},
  };
  const int count = r == ROW_SUMMED_FLIP ? 2 : r == ROW_COMPUTED ? 3 : OT_COUNT(meshes);
  tally sum = {0};
  for (int i = 0; i < count; i++) {
    job j = {.row = r, .seed = asked_seed * 100 + (uint64_t)i};
    j.trials = asked_trials * (i + 1) / count - asked_trials * i / count;
    if (r == ROW_RESULT_NONFINITE)
      inject_one_by_one(meshes[i], &j);
    else if (j.trials > 0)
      inject(meshes[i], &j);
    sum.found += j.tally.found;
    sum.missed += j.tally.missed;
    sum.harmless += j.tally.harmless;
  }
  printf("row\t%s\t%d\t%d\t%d\n", row_names[r], sum.found, sum.found + sum.missed, sum.harmless);
  assert_int_equal(sum.found + sum.missed, asked_trials);
  if (r != ROW_TRANSIENT) assert_int_equal(sum.missed, 0);
}

static void numbers_that_are_not_finite_are_named(void **state) {
  (void)state;
  fill_row(ROW_REST_NONFINITE);
  fill_row(ROW_STEP_NONFINITE);
  fill_row(ROW_SUMMED_NONFINITE);
  fill_row(ROW_RESULT_NONFINITE);
}

static void flipped_bits_of_the_state_are_named(void **state) {
  (void)state;
  fill_row(ROW_REST_FLIP);
  fill_row(ROW_SUMMED_FLIP);
  fill_row(ROW_RESULT_FLIP);
}

static void wrong_arithmetic_is_named_where_it_is_repeated(void **state) {
  (void)state;
  fill_row(ROW_COMPUTED);
}

// No check computes a step twice: a bit that flips in it shows only if ranks or numbers then
// disagree. Counted, not asserted.
static void transient_flips_are_counted(void **state) {
  (void)state;
  fill_row(ROW_TRANSIENT);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(numbers_that_are_not_finite_are_named),
      cmocka_unit_test(flipped_bits_of_the_state_are_named),
      cmocka_unit_test(wrong_arithmetic_is_named_where_it_is_repeated),
      cmocka_unit_test(transient_flips_are_counted),
  };
  if (argc > 1) asked_trials = (int)strtol(argv[1], NULL, 10);
  if (argc > 2) asked_seed = strtoull(argv[2], NULL, 10);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
