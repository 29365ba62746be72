// SPDX-License-Identifier: Apache-2.0
// An evaluation model runtime on the mesh of the run. The input of its head is read from the buffer
// that the head's entry is bound to. Tokens are numbered by sharding a micro-batch whose token ids
// are their own numbers, so this file does not depend on how sequences are sharded.
#include "audit/layout_probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "audit/variant.h"
#include "checkpoint/elements.h"
#include "runtime/host_allreduce.h"

struct ot_layout_probe {
  ot_trainer *trainer;
  ot_world *world;
  ot_run run;  // the trainer's, with the probed model
  int64_t B, T, sequences;
  ot_runtime *runtime;
  ot_micro_batch part;    // this rank's shards of the sequences
  int64_t rows, columns;  // of its part of an answer, per plane
  int64_t *number;        // [rows] global row number of each row of this rank
  int64_t planes;         // inputs of the head: the last block's output, or those on a stack
  int64_t *offset;        // [planes] in the arena; null: on another stage
  char *answer, *other;   // [planes * rows * columns] of dtype: the kept one, one to compare
  ot_dtype dtype;
  ot_host_allreduce *exchange;
};

// ---- shapes ----

int64_t ot_layout_tokens(const ot_world *world, int64_t sequence, int64_t most) {
  const int64_t unit =
      2 * (int64_t)ot_world_degree(world, OT_AXIS_CP) * (int64_t)ot_world_degree(world, OT_AXIS_TP);
  if (sequence <= most || sequence < unit) return sequence;
  return most < unit ? unit : most / unit * unit;
}

int64_t ot_layout_sequences(const ot_world *world, int64_t wanted) {
  const int dp = ot_world_data_degree(world);
  return (wanted + dp - 1) / dp;
}

int64_t ot_layout_probe_sequences(const ot_layout_probe *probe) { return probe->sequences; }

ot_status ot_layout_probe_keep(ot_layout_probe *probe, int64_t layers, bool silenced) {
  return ot_variant_keep_layers(ot_trainer_runtime(probe->trainer), probe->runtime, layers,
                                silenced);
}

// ---- create ----

static const ot_entry *head_entry(const ot_schedule *schedule) {
  const ot_order *const order =
      &schedule->orders[ot_schedule_find_order(schedule, OT_ORDER_EVALUATE, 0)];
  for (int i = 0; i < order->num_entries; i++) {
    const ot_entry *const entry = &order->entries[i];
    const bool forward = entry->phase == OT_PHASE_FORWARD && entry->lane == OT_LANE_COMPUTE;
    if (forward && entry->block == schedule->num_blocks - 1) return entry;
  }
  return NULL;
}

static ot_sequence_shard piece_of(const ot_layout_probe *p) {
  return (ot_sequence_shard){.size = ot_world_degree(p->world, OT_AXIS_CP),
                             .index = ot_world_index(p->world, OT_AXIS_CP),
                             .context = p->run.parallel.context};
}

static void number_rows(ot_layout_probe *p, const ot_micro_batch *numbered) {
  const ot_sequence_shard piece = piece_of(p);
  const int64_t first = ot_world_data_index(p->world) * p->B * p->T;
  const int64_t first_row = ot_world_index(p->world, OT_AXIS_TP) * p->rows;
  for (int64_t i = 0; i < p->B * p->T; i++) numbered->tokens[i] = (int32_t)i;
  ot_micro_batch_shard(numbered, &piece, &p->part);
  for (int64_t r = 0; r < p->rows; r++) p->number[r] = first + p->part.tokens[first_row + r];
}

static ot_status allocate_memory(ot_layout_probe *p) {
  const int cp = ot_world_degree(p->world, OT_AXIS_CP), tp = ot_world_degree(p->world, OT_AXIS_TP);
  p->sequences = p->B * ot_world_data_degree(p->world);
  p->rows = p->B * p->T / cp / tp;
  p->columns = p->run.model.hidden_size;
  p->dtype = p->run.precision.params;
  ot_micro_batch numbered;
  OT_TRY(ot_micro_batch_create(p->B, p->T / cp, &p->part));
  p->number = malloc((size_t)(p->rows + 1) * sizeof *p->number);
  OT_CHECK(p->number, OT_ENVIRONMENT, "out of memory");
  OT_TRY(ot_micro_batch_create(p->B, p->T, &numbered));
  number_rows(p, &numbered);
  ot_micro_batch_release(&numbered);
  return ot_host_allreduce_create(ot_world_comm(p->world), p->sequences * p->T, &p->exchange);
}

static ot_status find_answer(ot_layout_probe *p) {
  const ot_graph *const graph = ot_runtime_graph(p->runtime, OT_MODE_EVALUATE);
  const ot_program *const program = &graph->programs[graph->blocks[graph->num_blocks - 1].program];
  const ot_entry *const head = head_entry(ot_runtime_schedule(p->runtime));
  const int64_t plane = p->rows * p->columns * ot_dtype_bytes(p->dtype);
  const bool enters = program->input >= 0;
  const int64_t on_stack = ot_program_stack_size(program);
  p->planes = enters + on_stack;
  if (!head) return OT_OK;
  p->offset = malloc((size_t)(p->planes + 1) * sizeof *p->offset);
  p->answer = malloc((size_t)(p->planes * plane) + 1);
  p->other = malloc((size_t)(p->planes * plane) + 1);
  OT_CHECK(p->offset && p->answer && p->other, OT_ENVIRONMENT, "out of memory for two answers");
  if (enters) p->offset[0] = head->base[OT_BASE_INPUT];
  for (int64_t i = 0; i < on_stack; i++) {
    p->offset[enters + i] = head->base[OT_BASE_STACK] + i * plane;
  }
  return OT_OK;
}

static ot_status create_instance(ot_layout_probe *p) {
  const ot_run *const run = &p->run;
  const ot_trainer_hooks *const hooks = ot_trainer_get_hooks(p->trainer);
  const ot_runtime_faults faults = {
      .amend = hooks->amend, .context = hooks->context, .unchecked = hooks->unchecked};
  const ot_runtime_request request = {
      .rank = {.modes = 1u << OT_MODE_EVALUATE,
               .graph = {.model = &run->model,
                         .micro_batch_size = p->B,
                         .sequence_length = p->T,
                         .compute = ot_run_compute(&run->precision),
                         .storage = p->dtype,
                         .threads = run->threads > 0 ? run->threads : ot_world_threads(p->world),
                         .backend = ot_runtime_backend(ot_trainer_runtime(p->trainer)),
                         .seed = (uint64_t)run->seed},
               .schedule = {.run = run,
                            .mesh = ot_world_mesh(p->world),
                            .rank = ot_world_rank(p->world)}},
      .comm = ot_world_comm(p->world),
      .faults = &faults};
  OT_TRY(ot_runtime_create(&request, &p->runtime));
  return ot_world_agree(p->world, find_answer(p));
}

// Every row is held by exactly one rank.
static ot_status check_rows(ot_layout_probe *p) {
  const int64_t n = p->sequences * p->T;
  int64_t *const words = ot_host_allreduce_words(p->exchange);
  memset(words, 0, (size_t)n * sizeof *words);
  for (int64_t r = 0; p->offset && r < p->rows; r++) words[p->number[r]]++;
  OT_TRY(ot_host_allreduce_integers(p->exchange, n));
  for (int64_t i = 0; i < n; i++) {
    OT_CHECK(words[i] == 1, OT_BUG, "audit: %lld ranks have row %lld of the answer",
             (long long)words[i], (long long)i);
  }
  return OT_OK;
}

static ot_status create(ot_layout_probe *p) {
  OT_TRY(ot_world_agree(p->world, allocate_memory(p)));
  OT_TRY(create_instance(p));
  OT_TRY(check_rows(p));
  return ot_variant_copy_weights(ot_trainer_runtime(p->trainer), p->runtime);
}

ot_status ot_layout_probe_create(const ot_layout_probe_request *request, ot_layout_probe **out) {
  ot_world *const world = ot_trainer_world(request->trainer);
  ot_layout_probe *p = calloc(1, sizeof *p);
  OT_TRY(ot_world_agree(world, p ? OT_OK : ot_fail(OT_ENVIRONMENT, "out of memory")));
  p->trainer = request->trainer;
  p->world = world;
  p->run = *ot_trainer_run(request->trainer);
  p->run.model = *request->model;
  if (request->wide) p->run.precision.params = ot_run_compute(&p->run.precision);
  p->B = request->rank_sequences;
  p->T = request->tokens;
  const ot_status status = create(p);
  if (status != OT_OK) ot_layout_probe_destroy(&p);
  *out = p;
  return status;
}

void ot_layout_probe_destroy(ot_layout_probe **probe) {
  if (!probe || !*probe) return;
  ot_layout_probe *const p = *probe;
  ot_runtime_destroy(&p->runtime);
  ot_host_allreduce_destroy(&p->exchange);
  ot_micro_batch_release(&p->part);
  free(p->number);
  free(p->offset);
  free(p->answer);
  free(p->other);
  free(p);
  *probe = NULL;
}

// ---- evaluation ----

static ot_status evaluate(ot_layout_probe *p, const ot_micro_batch *rows) {
  const ot_sequence_shard piece = piece_of(p);
  const ot_mode mode = OT_MODE_EVALUATE;
  const int64_t sequence = ot_world_data_index(p->world) * p->B, first = sequence * p->T;
  const ot_micro_batch mine = {.B = p->B,
                               .T = p->T,
                               .tokens = rows->tokens + first,
                               .targets = rows->targets + first,
                               .positions = rows->positions + first,
                               .doc_starts = rows->doc_starts + first,
                               .sample_ids = rows->sample_ids + sequence};
  OT_ASSERT(rows->B == p->sequences && rows->T == p->T);
  ot_micro_batch_shard(&mine, &piece, &p->part);
  ot_runtime_load_batch(p->runtime, mode, 0, OT_BATCH_TOKENS, p->part.tokens);
  ot_runtime_load_batch(p->runtime, mode, 0, OT_BATCH_TARGETS, p->part.targets);
  ot_runtime_load_batch(p->runtime, mode, 0, OT_BATCH_POSITIONS, p->part.positions);
  ot_runtime_load_batch(p->runtime, mode, 0, OT_BATCH_DOC_STARTS, p->part.doc_starts);
  ot_runtime_load_batch(p->runtime, mode, 0, OT_BATCH_SAMPLE_IDS, p->part.sample_ids);
  return ot_runtime_run(p->runtime, mode, 0);
}

static ot_status compute_answer(ot_layout_probe *p, const ot_micro_batch *rows, char *answer) {
  const int64_t plane = p->rows * p->columns * ot_dtype_bytes(p->dtype);
  OT_TRY(evaluate(p, rows));
  for (int64_t i = 0; p->offset && i < p->planes; i++) {
    ot_executor_read(ot_runtime_executor(p->runtime), p->offset[i], answer + i * plane, plane);
  }
  return OT_OK;
}

ot_status ot_layout_probe_ask(ot_layout_probe *probe, const ot_micro_batch *rows) {
  return compute_answer(probe, rows, probe->answer);
}

ot_status ot_layout_probe_score(ot_layout_probe *probe, const ot_micro_batch *rows, double *nats) {
  const ot_layout_probe *const p = probe;
  const ot_executor *const executor = ot_runtime_executor(p->runtime);
  double sums[2] = {0, 0};
  OT_TRY(evaluate(probe, rows));
  // All ranks of tp hold the same.
  if (p->offset && ot_world_index(p->world, OT_AXIS_TP) == 0) {
    sums[0] = ot_executor_scalar(executor, OT_SCALAR_EVALUATE_LOSS);
    sums[1] = ot_executor_scalar(executor, OT_SCALAR_EVALUATE_TOKENS);
  }
  OT_TRY(ot_world_allreduce(p->world, sums, 2));
  *nats = sums[0] / sums[1];
  return OT_OK;
}

// ---- compare ----

// The largest |difference| of rows that differ in any bit.
static double change_of(const ot_layout_probe *p, const char *before, const char *after) {
  const int64_t size = ot_dtype_bytes(p->dtype);
  double largest = 0;
  for (int64_t c = 0; c < p->columns; c++) {
    double x, y;
    ot_elements_convert(p->dtype, before + c * size, OT_F64, &x, 1);
    ot_elements_convert(p->dtype, after + c * size, OT_F64, &y, 1);
    const double change = fabs(x - y);
    largest = change > largest || change != change ? change : largest;
  }
  if (largest != largest) return INFINITY;
  return largest > 0 ? largest : 4.9e-324;  // the sign of a zero
}

ot_status ot_layout_probe_compare(ot_layout_probe *probe, const ot_micro_batch *rows,
                                  double *changes) {
  const ot_layout_probe *const p = probe;
  const int64_t n = p->sequences * p->T, stride = p->columns * ot_dtype_bytes(p->dtype);
  double *const words = (double *)ot_host_allreduce_words(p->exchange);
  OT_TRY(compute_answer(probe, rows, p->other));
  memset(words, 0, (size_t)n * sizeof *words);
  for (int64_t i = 0; p->offset && i < p->planes * p->rows; i++) {
    const char *const x = p->answer + i * stride, *const y = p->other + i * stride;
    double *const change = &words[p->number[i % p->rows]];
    if (memcmp(x, y, (size_t)stride) != 0) *change = fmax(*change, change_of(p, x, y));
  }
  OT_TRY(ot_host_allreduce_integers(p->exchange, n));
  memcpy(changes, words, (size_t)n * sizeof *changes);
  return OT_OK;
}
