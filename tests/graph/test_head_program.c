// SPDX-License-Identifier: Apache-2.0
// run: any machine. The head in parts as a program (ops/head_parts.h says how it is written): what
// reaches its input is the dx of the last chunk, one accumulator takes all chunks, and the chain of
// dx and each chunk's logits are one piece of memory.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/heap.h"
#include "graph/builder.h"
#include "graph/differentiate.h"
#include "ops/head.h"
#include "ops/operands.h"
#include "schedule/storage.h"

enum { ROWS = 10, HIDDEN = 4, VOCABULARY = 12, CHUNK = 4, CHUNKS = 3 };

typedef struct head_program {
  ot_heap heap;
  ot_arena arena;
  ot_graph graph;
  ot_block block;
  ot_program program;
  ot_builder builder;
  int x, weight;
  int e[CHUNKS], dlogits[CHUNKS], dx[CHUNKS];
} head_program;

static int append(head_program *h, ot_op_description description) {
  const int value = ot_builder_op(&h->builder, &description);
  if (h->builder.status != OT_OK) fail_msg("%s", ot_fail_message());
  return value;
}

static void write_chunk(head_program *h, int j) {
  ot_builder *const b = &h->builder;
  ot_op_attributes a = ot_builder_attributes(b);
  a.first_row = j * CHUNK;
  a.chunk_rows = j < CHUNKS - 1 ? CHUNK : ROWS - a.first_row;
  const int targets = ot_builder_batch(b, OT_BATCH_TARGETS);
  const int inverse_tokens = ot_builder_scalar(b, OT_SCALAR_INVERSE_TOKENS, "inverse_tokens");
  const int loss[] = {-1, ot_builder_scalar(b, OT_SCALAR_LOSS, "loss"), -1, -1, -1};
  const int accumulator = ot_program_accumulator(&h->program, &h->arena, h->weight, OT_F64);
  const int dw[] = {-1, accumulator, -1, -1, -1};
  h->e[j] = append(
      h, (ot_op_description){OT_OP_HEAD_STATISTICS, &a, "e", 3, {h->x, h->weight, targets}, NULL});
  h->dlogits[j] = append(h, (ot_op_description){OT_OP_HEAD_DLOGITS,
                                                &a,
                                                "dlogits",
                                                4,
                                                {h->e[j], h->e[j] + 1, targets, inverse_tokens},
                                                loss});
  h->dx[j] =
      append(h, (ot_op_description){j < CHUNKS - 1 ? OT_OP_HEAD_GRADIENT : OT_OP_HEAD_GRADIENT_LAST,
                                    &a,
                                    "dx",
                                    4,
                                    {j > 0 ? h->dx[j - 1] : -1, h->dlogits[j], h->x, h->weight},
                                    dw});
}

static void head_program_create(head_program *h) {
  *h = (head_program){.program = {.name = "head", .output = -1, .d_output = -1, .d_input = -1}};
  h->arena = ot_heap_arena_create(&h->heap);
  h->block = (ot_block){.name = "head", .layer = -1};
  h->graph = (ot_graph){.request = {.mode = OT_MODE_TRAIN,
                                    .micro_batch_size = 1,
                                    .sequence_length = ROWS,
                                    .compute = OT_F64,
                                    .storage = OT_F64,
                                    .threads = 1},
                        .num_blocks = 1,
                        .blocks = &h->block};
  h->builder = (ot_builder){
      .graph = &h->graph, .arena = &h->arena, .block = &h->block, .program = &h->program};
  const ot_op_attributes a = ot_builder_attributes(&h->builder);
  h->program.input = ot_builder_external(&h->builder, OT_VALUE_INPUT, 0, "x",
                                         ot_type_matrix(OT_F64, ROWS, HIDDEN));
  h->x = append(h, (ot_op_description){OT_OP_ACTIVATION, &a, "final", 1, {h->program.input}, NULL});
  h->weight = ot_builder_parameter(
      &h->builder,
      &(ot_parameter){
          .name = "output.weight", .rank = 2, .rows = VOCABULARY, .cols = HIDDEN, .tied_to = -1});
  for (int j = 0; j < CHUNKS; j++) write_chunk(h, j);
  if (ot_program_differentiate(&h->program, &h->arena) != OT_OK) fail_msg("%s", ot_fail_message());
}

static void only_the_last_chunk_is_the_gradient_of_x(void **state) {
  (void)state;
  head_program h;
  head_program_create(&h);
  int backward_ops = 0;
  for (int i = 0; i < h.program.num_ops; i++) {
    const ot_op *const op = &h.program.ops[i];
    if (op->part == OT_PART_FORWARD) continue;
    backward_ops++;
    assert_int_equal(op->kind, OT_OP_ACTIVATION_GRAD);
    assert_int_equal(op->in[0], h.dx[CHUNKS - 1]);
  }
  assert_int_equal(backward_ops, 1);
  ot_heap_release(&h.heap);
}

static void all_chunks_add_to_one_accumulator(void **state) {
  (void)state;
  head_program h;
  head_program_create(&h);
  int accumulators = 0;
  for (int i = 0; i < h.program.num_values; i++) {
    accumulators += h.program.values[i].kind == OT_VALUE_ACCUMULATOR;
  }
  assert_int_equal(accumulators, 1);
  ot_heap_release(&h.heap);
}

static void expect_same_place(const ot_storage *storage, int a, int b) {
  const ot_place first = ot_storage_place(storage, a, OT_SIDE_FORWARD);
  const ot_place second = ot_storage_place(storage, b, OT_SIDE_FORWARD);
  assert_int_equal(first.base, second.base);
  assert_int_equal(first.offset, second.offset);
}

// dx is kept for I whatever is recomputed; logits are made once and turn into their gradient.
static void chunks_are_made_in_place(void **state) {
  (void)state;
  static const ot_recompute policies[] = {OT_RECOMPUTE_NONE, OT_RECOMPUTE_SELECTIVE,
                                          OT_RECOMPUTE_FULL};
  for (int i = 0; i < 3; i++) {
    head_program h;
    ot_storage storage;
    head_program_create(&h);
    ot_storage_build(&(ot_storage_request){.program = &h.program, .recompute = policies[i]},
                     &h.arena, &storage);
    for (int j = 0; j < CHUNKS; j++) {
      expect_same_place(&storage, h.e[j], h.dlogits[j]);
      expect_same_place(&storage, h.dx[0], h.dx[j]);
      assert_int_equal(storage.place[OT_SIDE_FORWARD][h.e[j]].base, OT_BASE_SCRATCH);
    }
    assert_int_equal(storage.place[OT_SIDE_FORWARD][h.dx[0]].base, OT_BASE_SLOT);
    assert_int_equal(storage.set.num_emitted, 0);
    ot_heap_release(&h.heap);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(only_the_last_chunk_is_the_gradient_of_x),
      cmocka_unit_test(all_chunks_add_to_one_accumulator),
      cmocka_unit_test(chunks_are_made_in_place),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
