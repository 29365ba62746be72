// SPDX-License-Identifier: Apache-2.0
// run: any machine. The chunked head as a program (ops/head_parts.h describes it): the dx of the
// last chunk reaches its input, one accumulator collects all chunks, and the chain of dx and each
// chunk's logits share one buffer.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "host/heap.h"
#include "schedule/storage.h"
#include "support/split_model.h"

enum { CHUNKS = 7 };  // of SPLIT_CHUNK_ROWS each; the last one has the remainder

typedef struct head_program {
  ot_heap heap;
  ot_arena arena;
  ot_program program;
  int e[CHUNKS], dlogits[CHUNKS], dx[CHUNKS];
} head_program;

// Outputs of the ops of `kind`, chunk by chunk.
static void find_outputs(const ot_program *program, ot_op_kind kind, int *out) {
  int count = 0;
  for (int i = 0; i < program->num_ops; i++) {
    const ot_op_kind found = program->ops[i].kind;
    const bool last = found == OT_OP_HEAD_GRADIENT_LAST && kind == OT_OP_HEAD_GRADIENT;
    if (found != kind && !last) continue;
    assert_true(count < CHUNKS && last == (kind == OT_OP_HEAD_GRADIENT && count == CHUNKS - 1));
    out[count++] = program->ops[i].out[0];
  }
  assert_int_equal(count, CHUNKS);
}

static void head_program_create(head_program *h) {
  const ot_model model = split_llama(4, 2);
  *h = (head_program){.e = {0}};
  h->arena = ot_heap_arena_create(&h->heap);
  const ot_graph graph = split_graph(&model, OT_MODE_TRAIN, (ot_split){.tp = 2}, &h->arena);
  assert_int_equal((graph.share.rows + SPLIT_CHUNK_ROWS - 1) / SPLIT_CHUNK_ROWS, CHUNKS);
  h->program = graph.programs[graph.blocks[graph.num_blocks - 1].program];
  find_outputs(&h->program, OT_OP_HEAD_STATISTICS, h->e);
  find_outputs(&h->program, OT_OP_HEAD_DLOGITS, h->dlogits);
  find_outputs(&h->program, OT_OP_HEAD_GRADIENT, h->dx);
}

// Backward: the transpose of the gather that produced x, then the norm.
static void only_the_last_chunk_is_the_gradient_of_x(void **state) {
  (void)state;
  head_program h;
  head_program_create(&h);
  int backward_ops = 0;
  for (int i = 0; i < h.program.num_ops; i++) {
    const ot_op *const op = &h.program.ops[i];
    if (op->part == OT_PART_FORWARD) continue;
    assert_int_equal(op->kind, backward_ops == 0 ? OT_OP_REDUCE_SCATTER : OT_OP_RMSNORM_GRAD);
    if (backward_ops++ == 0) assert_int_equal(op->in[0], h.dx[CHUNKS - 1]);
  }
  assert_int_equal(backward_ops, 2);
  ot_heap_release(&h.heap);
}

// One accumulator for the norm weight, one for the head weight.
static void all_chunks_add_to_one_accumulator(void **state) {
  (void)state;
  head_program h;
  head_program_create(&h);
  int accumulators = 0;
  for (int i = 0; i < h.program.num_values; i++) {
    accumulators += h.program.values[i].kind == OT_VALUE_ACCUMULATOR;
  }
  assert_int_equal(accumulators, 2);
  ot_heap_release(&h.heap);
}

static void expect_same_place(const ot_storage *storage, int a, int b) {
  const ot_place first = ot_storage_place(storage, a, OT_SIDE_FORWARD);
  const ot_place second = ot_storage_place(storage, b, OT_SIDE_FORWARD);
  assert_int_equal(first.base, second.base);
  assert_int_equal(first.offset, second.offset);
}

// I needs dx under every recompute policy. Logits are computed once and replaced by their gradient.
static void chunks_are_computed_in_place(void **state) {
  (void)state;
  static const ot_recompute policies[] = {OT_RECOMPUTE_NONE, OT_RECOMPUTE_SELECTIVE,
                                          OT_RECOMPUTE_FULL};
  for (int i = 0; i < 3; i++) {
    head_program h;
    ot_storage storage;
    head_program_create(&h);
    ot_storage_build(
        &(ot_storage_request){.program = &h.program, .recompute = {.mode = policies[i]}}, &h.arena,
        &storage);
    for (int j = 0; j < CHUNKS; j++) {
      expect_same_place(&storage, h.e[j], h.dlogits[j]);
      expect_same_place(&storage, h.dx[0], h.dx[j]);
      assert_int_equal(storage.place[OT_SIDE_FORWARD][h.e[j]].base, OT_BASE_SCRATCH);
    }
    assert_int_equal(storage.place[OT_SIDE_FORWARD][h.dx[0]].base, OT_BASE_SLOT);
    for (int k = 0; k < h.program.num_ops; k++) {
      assert_true(!storage.set.emitted[k] || h.program.ops[k].kind == OT_OP_RMSNORM);
    }
    ot_heap_release(&h.heap);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(only_the_last_chunk_is_the_gradient_of_x),
      cmocka_unit_test(all_chunks_add_to_one_accumulator),
      cmocka_unit_test(chunks_are_computed_in_place),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
