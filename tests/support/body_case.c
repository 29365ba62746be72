// SPDX-License-Identifier: Apache-2.0
// Values are small integers, so all sums are exact.
#include "support/body_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops/operands.h"
#include "ops/repeat.h"
#include "schedule/layout.h"
#include "schedule/tasks.h"

enum { R = BODY_ROWS, C = BODY_COLUMNS, SCALAR_BYTES = 1024, GUARD_BYTES = 64 };

// ---- program ----

static ot_op *add_op(body_case *c, ot_op_kind kind, const int *in, const int *out) {
  ot_op op = {.kind = kind, .attributes = {.threads = 1, .compute = OT_F32}};
  for (int i = 0; i < OT_MAX_INPUTS; i++) op.in[i] = i < 3 ? in[i] : -1;
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) op.out[i] = i < 3 ? out[i] : -1;
  if (kind == OT_OP_ALL_REDUCE) {
    op.attributes.group = OT_GROUP_TENSOR;
    op.attributes.group_size = c->ranks;
    op.attributes.group_index = c->rank;
  }
  const int index = ot_program_add_op(&c->program, &c->arena, &op);
  return &c->program.ops[index];
}

static ot_op *add_two(body_case *c, ot_op_kind kind, int a, int b, int made) {
  return add_op(c, kind, (int[]){a, b, -1}, (int[]){made, -1, -1});
}

static void add_values(body_case *c) {
  const ot_tensor_type rows = ot_type_matrix(OT_F32, R, C), square = ot_type_matrix(OT_F32, C, C);
  const ot_tensor_type count = ot_type_vector(OT_I32, 1);
  const ot_value values[BODY_VALUES] = {
      [BODY_X] = {.name = "x", .kind = OT_VALUE_INPUT, .type = rows, .index = OT_PORT_HIDDEN},
      [BODY_LENGTHS] = {.name = "rounds",
                        .kind = OT_VALUE_BATCH,
                        .type = count,
                        .index = OT_BATCH_PICKS},
      [BODY_H] = {.name = "h", .kind = OT_VALUE_ACTIVATION, .type = rows},
      [BODY_A0] = {.name = "a0", .kind = OT_VALUE_ACTIVATION, .type = square},
      [BODY_A] = {.name = "a", .kind = OT_VALUE_ACTIVATION, .type = square},
      [BODY_B] = {.name = "b", .kind = OT_VALUE_ACTIVATION, .type = square},
      [BODY_ROUND] = {.name = "round", .kind = OT_VALUE_ACTIVATION, .type = count},
      [BODY_T] = {.name = "t", .kind = OT_VALUE_ACTIVATION, .type = rows},
      [BODY_S] = {.name = "s", .kind = OT_VALUE_ACTIVATION, .type = rows},
      [BODY_U] = {.name = "u", .kind = OT_VALUE_ACTIVATION, .type = rows},
      [BODY_T2] = {.name = "t2", .kind = OT_VALUE_ACTIVATION, .type = rows},
      [BODY_Y] = {.name = "y", .kind = OT_VALUE_ACTIVATION, .type = square},
      [BODY_DW] = {.name = "dw", .kind = OT_VALUE_ACCUMULATOR, .type = square, .index = 0},
  };
  for (int i = 0; i < BODY_VALUES; i++) ot_program_add_value(&c->program, &c->arena, &values[i]);
}

void body_case_begin(body_case *c, int rank, int ranks) {
  *c = (body_case){.rank = rank, .ranks = ranks};
  c->arena = ot_heap_arena_create(&c->heap);
  c->program = (ot_program){.name = "rounds",
                            .input = BODY_X,
                            .output = BODY_Y,
                            .d_output = -1,
                            .d_input = -1,
                            .stack = -1,
                            .d_stack = -1};
  add_values(c);
  add_two(c, OT_OP_ADD, BODY_X, BODY_X, BODY_H);
  add_two(c, OT_OP_LINEAR_DW, BODY_H, BODY_X, BODY_A0);
  add_two(c, OT_OP_LINEAR_DW, BODY_H, BODY_X, BODY_DW);
  c->repeat = c->program.num_ops;
  add_op(c, OT_OP_REPEAT, (int[]){BODY_A0, -1, BODY_LENGTHS}, (int[]){BODY_A, -1, BODY_ROUND});
  add_two(c, OT_OP_ADD, BODY_H, BODY_X, BODY_T);
  if (ranks > 1) add_two(c, OT_OP_ALL_REDUCE, BODY_T, -1, BODY_S);
  add_two(c, OT_OP_ADD, BODY_X, BODY_X, BODY_U);
  add_two(c, OT_OP_ADD, ranks > 1 ? BODY_S : BODY_T, BODY_U, BODY_T2);
  add_two(c, OT_OP_LINEAR_DW, BODY_T2, BODY_X, BODY_A)->attributes.accumulate = true;
  add_two(c, OT_OP_LINEAR_DW, BODY_T2, BODY_X, BODY_DW);
  c->program.ops[c->repeat].attributes.repeated = c->program.num_ops - 1 - c->repeat;
  add_two(c, OT_OP_ADD, BODY_A, BODY_A, BODY_Y);
}

// ---- schedule ----

static void create_graph(body_case *c) {
  c->block = (ot_block){.name = "rounds", .layer = 0, .num_parameters = 1};
  c->parameter = (ot_parameter){.name = "w", .tied_to = -1};
  c->graph = (ot_graph){.request = {.micro_batch_size = 1,
                                    .sequence_length = R,
                                    .threads = 1,
                                    .compute = OT_F32,
                                    .storage = OT_F32},
                        .share = {.rows = R},
                        .num_blocks = 1,
                        .blocks = &c->block,
                        .num_programs = 1,
                        .programs = &c->program,
                        .num_parameters = 1,
                        .parameters = &c->parameter};
}

static ot_segment copy(body_case *c, const char *name, ot_base from, ot_base to, int64_t elements) {
  ot_segment segment;
  ot_task task = ot_task_of(&c->graph, OT_OP_CAST);
  task.in[0] = ot_operand_vector(from, OT_F32, 0, elements);
  task.out[0] = ot_operand_vector(to, OT_F32, 0, elements);
  ot_tasks_begin(&segment, name, OT_PHASE_FORWARD, 1, &c->arena);
  ot_tasks_append(&segment, &task, 0);
  return segment;
}

static int64_t take(int64_t *top, int64_t bytes) {
  const int64_t at = *top;
  *top = ot_align(at + bytes + GUARD_BYTES);
  return at;
}

static void add_entry(body_case *c, int index, int block) {
  ot_entry *const entry = &c->entries[index];
  *entry = (ot_entry){.phase = OT_PHASE_FORWARD,
                      .lane = OT_LANE_COMPUTE,
                      .segment = index,
                      .block = block,
                      .micro_batch = 0};
  for (int i = 0; i < OT_LANES; i++) entry->wait[i] = -1;
  for (int i = 0; i < OT_BASES; i++) entry->base[i] = -1;
}

static void place(body_case *c) {
  const int64_t row_bytes = R * C * 4, square_bytes = C * C * 4;
  int64_t top = SCALAR_BYTES;
  const int64_t batch = take(&top, ot_segment_batch_bytes(&c->graph));
  c->lengths_at = batch + ot_segment_batch_offset(&c->graph, OT_BATCH_PICKS);
  c->x_at = take(&top, row_bytes);
  const int64_t rest = top;
  const int64_t input = take(&top, row_bytes);
  const int64_t output = take(&top, square_bytes);
  c->y_at = take(&top, square_bytes);
  c->dw_at = take(&top, square_bytes);
  const int64_t scratch = take(&top, c->segments[1].scratch_bytes);
  c->entries[0].base[OT_BASE_BATCH] = c->x_at;
  c->entries[0].base[OT_BASE_OUTPUT] = input;
  c->entries[1].base[OT_BASE_BATCH] = batch;
  c->entries[1].base[OT_BASE_INPUT] = input;
  c->entries[1].base[OT_BASE_OUTPUT] = output;
  c->entries[1].base[OT_BASE_GRADIENT] = c->dw_at;
  c->entries[1].base[OT_BASE_SCRATCH] = scratch;
  c->entries[2].base[OT_BASE_INPUT] = output;
  c->entries[2].base[OT_BASE_RESULT] = c->y_at;
  c->regions[0] = (ot_region){.name = "scalars", .persistent = true, .bytes = SCALAR_BYTES};
  c->regions[1] = (ot_region){.name = "batch",
                              .order = OT_ORDER_STEP,
                              .offset = SCALAR_BYTES,
                              .bytes = rest - SCALAR_BYTES};
  c->regions[2] =
      (ot_region){.name = "rest", .order = OT_ORDER_STEP, .offset = rest, .bytes = top - rest};
  c->schedule.arena_bytes = top;
}

void body_case_lower(body_case *c) {
  create_graph(c);
  ot_storage_build(&(ot_storage_request){.program = &c->program, .guard_bytes = GUARD_BYTES},
                   &c->arena, &c->storage);
  ot_segment_build(
      &(ot_segment_request){
          .graph = &c->graph, .storage = &c->storage, .phase = OT_PHASE_FORWARD, .first = true},
      &c->arena, &c->segments[1]);
  c->segments[0] = copy(c, "load", OT_BASE_BATCH, OT_BASE_OUTPUT, R * C);
  c->segments[2] = copy(c, "store", OT_BASE_INPUT, OT_BASE_RESULT, C * C);
  for (int i = 0; i < 3; i++) add_entry(c, i, i - 1);
  c->order = (ot_order){
      .kind = OT_ORDER_STEP, .micro_batches = 1, .num_entries = 3, .entries = c->entries};
  c->schedule = (ot_schedule){.rank = c->rank,
                              .ranks = c->ranks,
                              .threads = 1,
                              .compute = OT_F32,
                              .num_segments = 3,
                              .segments = c->segments,
                              .num_orders = 1,
                              .orders = &c->order,
                              .num_regions = OT_COUNT(c->regions),
                              .regions = c->regions,
                              .guard_bytes = GUARD_BYTES};
  for (int i = 0; i < c->ranks; i++) c->members[i] = i;
  const ot_group all = {.size = c->ranks, .index = c->rank, .ranks = c->members};
  if (c->ranks > 1) c->schedule.group[OT_GROUP_WORLD] = all;
  if (c->ranks > 1) c->schedule.group[OT_GROUP_TENSOR] = all;
  place(c);
}

void body_case_destroy(body_case *c) { ot_heap_release(&c->heap); }

const ot_task *body_case_task(const body_case *c, ot_op_kind kind, int number) {
  const ot_segment *const segment = &c->segments[1];
  for (int i = 0; i < segment->num_tasks; i++) {
    if (segment->tasks[i].op == kind && number-- == 0) return &segment->tasks[i];
  }
  fail_msg("no such task");
  return NULL;
}

// ---- runs ----

static void fill_x(int rank, float *x) {
  for (int i = 0; i < R * C; i++) x[i] = (float)((i * 7 + rank * 3) % 5 - 2);
}

static void read_square(const ot_executor *executor, int64_t at, double *to) {
  float values[C * C];
  ot_executor_read(executor, at, values, sizeof values);
  for (int i = 0; i < C * C; i++) to[i] = values[i];
}

static ot_status run(body_case *c, body_run *game, ot_comm *comm) {
  if (c->ranks > 1) OT_TRY(ot_executor_join(&c->schedule, comm, 0));
  ot_executor *executor = NULL;
  OT_TRY(ot_executor_create(
      &c->schedule,
      &(ot_executor_options){
          .comm = c->ranks > 1 ? comm : NULL, .overlap = game->overlap, .poison = game->poison},
      &executor));
  float x[R * C];
  fill_x(c->rank, x);
  const int32_t rounds = game->rounds;
  ot_executor_write(executor, c->x_at, x, sizeof x);
  ot_executor_write(executor, c->lengths_at, &rounds, sizeof rounds);
  const ot_status status = ot_executor_run(executor, 0);
  read_square(executor, c->y_at, game->y[c->rank]);
  read_square(executor, c->dw_at, game->dw[c->rank]);
  ot_executor_destroy(&executor);
  return status;
}

static ot_status rank_main(ot_comm *comm, void *context) {
  body_run *const game = context;
  body_case c;
  body_case_begin(&c, ot_comm_rank(comm), game->ranks);
  body_case_lower(&c);
  ot_status status = ot_schedule_check(&c.schedule, &c.arena);
  if (status == OT_OK) status = run(&c, game, comm);
  body_case_destroy(&c);
  return status;
}

void body_run_schedules(body_run *game) {
  if (ot_comm_run_threads(game->ranks, rank_main, game) != OT_OK) fail_msg("%s", ot_fail_message());
}

void body_run_expect(const body_run *game) {
  float x[BODY_MAX_RANKS][R * C];
  for (int rank = 0; rank < game->ranks; rank++) fill_x(rank, x[rank]);
  for (int rank = 0; rank < game->ranks; rank++) {
    for (int i = 0; i < C * C; i++) {
      double first = 0, each = 0;
      for (int r = 0; r < R; r++) {
        double t = 0;
        for (int k = 0; k < game->ranks; k++) t += 3 * x[k][r * C + i / C];
        first += 2 * x[rank][r * C + i / C] * x[rank][r * C + i % C];
        each += (t + 2 * x[rank][r * C + i / C]) * x[rank][r * C + i % C];
      }
      const double sum = first + (game->rounds > 1 ? game->rounds - 1 : 0) * each;
      if (game->dw[rank][i] != sum || game->y[rank][i] != 2 * sum) {
        fail_msg("rank %d, %d iterations, element %d: dw %g, y %g, sum %g", rank, game->rounds, i,
                 game->dw[rank][i], game->y[rank][i], sum);
      }
    }
  }
}
