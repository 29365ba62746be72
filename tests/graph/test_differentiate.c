// SPDX-License-Identifier: Apache-2.0
// run: any machine. Derived backward programs: which part writes which gradient, and how gradients
// of values with several uses are added. test_parity checks the numbers.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/text.h"
#include "graph/differentiate.h"
#include "support/tiny_plan.h"

enum { NUM_MODELS = 5 };

// The three tiny models, norms after branches as in OLMo 2, and dropout between branch and residual
// sum.
static ot_model model_of(int index) {
  if (index == 0) return tiny_gpt2();
  if (index == 1) return tiny_llama();
  if (index == 2) return tiny_gemma();
  ot_model model = index == 3 ? tiny_llama() : tiny_gpt2();
  if (index == 3) {
    model.family = OT_FAMILY_OLMO2;
    model.norm_placement = OT_NORM_POST;
    model.qk_norm = OT_QK_NORM_ROW;
  } else {
    model.embedding_dropout = model.attention_dropout = model.residual_dropout = 0.1;
  }
  return model;
}

typedef void (*program_visitor)(const ot_graph *graph, const ot_block *block,
                                const ot_program *program);

// Each block of each model with its program.
static void for_each_block(program_visitor visit) {
  for (int m = 0; m < NUM_MODELS; m++) {
    const ot_model model = model_of(m);
    tiny_plan plan;
    tiny_plan_create(&model, &(tiny_request){.micro_batches = 1}, &plan);
    const ot_graph *const graph = &plan.graphs[OT_MODE_TRAIN];
    for (int i = 0; i < graph->num_blocks; i++) {
      visit(graph, &graph->blocks[i], &graph->programs[graph->blocks[i].program]);
    }
    tiny_plan_destroy(&plan);
  }
}

static const ot_parameter *parameter_of(const ot_graph *graph, const ot_block *block, int index) {
  assert_in_range(index, 0, block->num_parameters - 1);
  return &graph->parameters[block->first_parameter + index];
}

// ---- parameter gradients ----

// The op that writes the accumulator of parameter `index`; exactly one must.
static const ot_op *writer_of(const ot_program *program, int index) {
  const ot_op *writer = NULL;
  for (int i = 0; i < program->num_ops; i++) {
    for (int k = 0; k < OT_MAX_OUTPUTS; k++) {
      const int value = program->ops[i].out[k];
      if (value < 0 || program->values[value].kind != OT_VALUE_ACCUMULATOR) continue;
      if (program->values[value].index != index) continue;
      assert_null(writer);
      writer = &program->ops[i];
    }
  }
  assert_non_null(writer);
  return writer;
}

static void expect_one_accumulator_each(const ot_graph *graph, const ot_block *block,
                                        const ot_program *program) {
  for (int p = 0; p < block->num_parameters; p++) {
    const ot_parameter *const parameter = parameter_of(graph, block, p);
    int accumulators = 0;
    for (int i = 0; i < program->num_values; i++) {
      const ot_value *const value = &program->values[i];
      if (value->kind != OT_VALUE_ACCUMULATOR || value->index != p) continue;
      assert_int_equal(ot_type_elements(&value->type), ot_parameter_elements(parameter));
      assert_int_equal(value->type.dtype, graph->request.compute);
      accumulators++;
    }
    if (accumulators != 1) fail_msg("%s has %d accumulators", parameter->name, accumulators);
    writer_of(program, p);
  }
}

static void every_parameter_has_one_accumulator_written_once(void **state) {
  (void)state;
  for_each_block(expect_one_accumulator_each);
}

// The part that the operators declare, by the parameter's role: the head computes its gradient in
// the forward, norms together with their input gradient, all others separately.
static ot_part declared_part(const ot_parameter *parameter) {
  if (ot_text_equal(parameter->name, "head.output.weight")) return OT_PART_FORWARD;
  return ot_text_find(parameter->name, "norm.") ? OT_PART_INPUT : OT_PART_WEIGHT;
}

static void expect_declared_parts(const ot_graph *graph, const ot_block *block,
                                  const ot_program *program) {
  for (int p = 0; p < block->num_parameters; p++) {
    const ot_parameter *const parameter = parameter_of(graph, block, p);
    const ot_part part = writer_of(program, p)->part;
    if (part != declared_part(parameter)) fail_msg("%s: part %d", parameter->name, (int)part);
  }
}

static void parameter_gradients_are_written_in_the_part_declared(void **state) {
  (void)state;
  for_each_block(expect_declared_parts);
}

// ---- parts ----

static void expect_outputs_of_parts(const ot_graph *graph, const ot_block *block,
                                    const ot_program *program) {
  int input_ops = 0, weight_ops = 0;
  for (int i = 0; i < program->num_ops; i++) {
    const ot_op *const op = &program->ops[i];
    input_ops += op->part == OT_PART_INPUT;
    weight_ops += op->part == OT_PART_WEIGHT;
    for (int k = 0; op->part != OT_PART_FORWARD && k < OT_MAX_OUTPUTS; k++) {
      if (op->out[k] < 0) continue;
      const ot_value *const value = &program->values[op->out[k]];
      const bool accumulator = value->kind == OT_VALUE_ACCUMULATOR;
      const ot_parameter *const parameter =
          accumulator ? parameter_of(graph, block, value->index) : NULL;
      assert_true(accumulator || value->kind == OT_VALUE_GRADIENT);
      if (op->part == OT_PART_WEIGHT) {
        if (!accumulator) fail_msg("a weight op writes %s", value->name);
      } else if (accumulator && parameter->kind != OT_PARAMETER_VECTOR) {
        fail_msg("an input op writes the gradient of %s", parameter->name);
      }
    }
  }
  const bool is_layer = block->layer >= 0, is_head = program->output < 0;
  const bool drops = graph->request.model->embedding_dropout > 0;
  assert_true((input_ops > 0) == (is_layer || is_head || drops));
  assert_true((weight_ops > 0) == !is_head);
}

static void input_and_weight_ops_keep_to_their_outputs(void **state) {
  (void)state;
  for_each_block(expect_outputs_of_parts);
}

// I alone must suffice for the backward of the previous block: it reads no result of W.
static void expect_input_ops_to_stand_alone(const ot_graph *graph, const ot_block *block,
                                            const ot_program *program) {
  (void)graph;
  for (int i = 0; i < program->num_ops; i++) {
    for (int k = 0; k < OT_MAX_INPUTS; k++) {
      if (program->ops[i].in[k] < 0) continue;
      assert_int_not_equal(program->values[program->ops[i].in[k]].kind, OT_VALUE_ACCUMULATOR);
    }
  }
  const bool first = program->input < 0;
  assert_true((program->d_input < 0) == first);
  assert_true((program->d_output < 0) == (program->output < 0));
  if (first) return;
  const ot_value *const in = &program->values[program->input];
  const ot_value *const d_in = &program->values[program->d_input];
  assert_int_equal(ot_type_elements(&in->type), ot_type_elements(&d_in->type));
  assert_int_equal(block->layer < 0, program->output < 0);
}

static void nothing_reads_an_accumulator(void **state) {
  (void)state;
  for_each_block(expect_input_ops_to_stand_alone);
}

// ---- sums ----

static int count_adds(const ot_program *program, bool forward) {
  int adds = 0;
  for (int i = 0; i < program->num_ops; i++) {
    const bool is_forward = program->ops[i].part == OT_PART_FORWARD;
    adds += program->ops[i].kind == OT_OP_ADD && is_forward == forward;
  }
  return adds;
}

// Only the residual stream has two uses. The second use of a layer's input is a norm or a GEMM,
// which accepts a partial sum. So the backward contains no add; the forward adds only if a norm or
// dropout separates a projection from the residual sum.
static void expect_fused_sums(const ot_graph *graph, const ot_block *block,
                              const ot_program *program) {
  const ot_model *const model = graph->request.model;
  const bool apart = model->norm_placement != OT_NORM_PRE || model->residual_dropout > 0;
  assert_int_equal(count_adds(program, true), block->layer >= 0 && apart ? 2 : 0);
  assert_int_equal(count_adds(program, false), 0);
}

static void residual_gradients_are_summed_by_the_ops_that_make_them(void **state) {
  (void)state;
  for_each_block(expect_fused_sums);
}

enum { ROWS = 4, COLUMNS = 6 };

typedef struct hand_program {
  ot_heap heap;
  ot_arena arena;
  ot_program program;
} hand_program;

static int add_value(hand_program *h, const char *name, ot_value_kind kind) {
  const ot_value value = {
      .name = name, .kind = kind, .type = {.dtype = OT_F32, .rank = 2, .dim = {ROWS, COLUMNS}}};
  return ot_program_add_value(&h->program, &h->arena, &value);
}

static int add_op(hand_program *h, ot_op_kind kind, int a, int b, const char *name) {
  const int out = add_value(h, name, OT_VALUE_ACTIVATION);
  ot_op op = {.kind = kind, .attributes = {.threads = 1, .compute = OT_F32}};
  for (int i = 0; i < OT_MAX_INPUTS; i++) op.in[i] = -1;
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) op.out[i] = -1;
  op.in[0] = a;
  op.in[1] = b;
  op.out[0] = out;
  ot_program_add_op(&h->program, &h->arena, &op);
  return out;
}

// y = (f(x) + g(x)) + h(x): three uses by ops that accept no partial sum need two adds, the last
// use first.
static void uses_without_a_partial_sum_are_added_last_first(void **state) {
  (void)state;
  hand_program h = {
      .program = {
          .name = "fan", .output = -1, .d_output = -1, .d_input = -1, .stack = -1, .d_stack = -1}};
  h.arena = ot_heap_arena_create(&h.heap);
  const int x = h.program.input = add_value(&h, "x", OT_VALUE_INPUT);
  const int f = add_op(&h, OT_OP_ACTIVATION, x, -1, "f");
  const int g = add_op(&h, OT_OP_ACTIVATION, x, -1, "g");
  const int third = add_op(&h, OT_OP_ACTIVATION, x, -1, "h");
  const int sum = add_op(&h, OT_OP_ADD, f, g, "f+g");
  h.program.output = add_op(&h, OT_OP_ADD, sum, third, "y");
  const int forward_ops = h.program.num_ops;
  assert_int_equal(ot_program_differentiate(&h.program, &h.arena, OT_F32), OT_OK);
  assert_int_equal(h.program.num_ops, forward_ops + 5);  // three gradients, two sums
  assert_int_equal(count_adds(&h.program, false), 2);
  const ot_op *const back = h.program.ops + forward_ops;
  const ot_op_kind kinds[] = {OT_OP_ACTIVATION_GRAD, OT_OP_ACTIVATION_GRAD, OT_OP_ADD,
                              OT_OP_ACTIVATION_GRAD, OT_OP_ADD};
  for (int i = 0; i < 5; i++) {
    assert_int_equal(back[i].kind, kinds[i]);
    assert_int_equal(back[i].part, OT_PART_INPUT);
  }
  // Residual branches pass dy through without an op.
  const int gradients[] = {0, 1, 3};
  for (int i = 0; i < 3; i++) {
    assert_int_equal(back[gradients[i]].in[0], h.program.d_output);
    assert_int_equal(back[gradients[i]].in[1], x);
  }
  assert_int_equal(back[2].in[0], back[0].out[0]);
  assert_int_equal(back[2].in[1], back[1].out[0]);
  assert_int_equal(back[4].in[0], back[2].out[0]);
  assert_int_equal(back[4].in[1], back[3].out[0]);
  assert_int_equal(h.program.d_input, back[4].out[0]);
  ot_heap_release(&h.heap);
}

// A parameter used twice in its block has one accumulator, to which both uses add.
static void tied_uses_in_a_block_share_an_accumulator(void **state) {
  (void)state;
  hand_program h = {.program = {.name = "twice",
                                .output = -1,
                                .d_output = -1,
                                .d_input = -1,
                                .stack = -1,
                                .d_stack = -1}};
  h.arena = ot_heap_arena_create(&h.heap);
  const int x = h.program.input = add_value(&h, "x", OT_VALUE_INPUT);
  const int w = add_value(&h, "w", OT_VALUE_PARAMETER);
  h.program.values[w].type.dim[0] = COLUMNS;
  const int once = add_op(&h, OT_OP_LINEAR, x, w, "once");
  h.program.output = add_op(&h, OT_OP_LINEAR, once, w, "y");
  assert_int_equal(ot_program_differentiate(&h.program, &h.arena, OT_F32), OT_OK);
  int accumulator = -1, writers = 0;
  for (int i = 0; i < h.program.num_ops; i++) {
    const ot_op *const op = &h.program.ops[i];
    if (op->part != OT_PART_WEIGHT) continue;
    assert_int_equal(op->kind, OT_OP_LINEAR_DW);
    assert_true(accumulator < 0 || op->out[0] == accumulator);
    accumulator = op->out[0];
    writers++;
  }
  assert_int_equal(writers, 2);
  assert_int_equal(h.program.values[accumulator].kind, OT_VALUE_ACCUMULATOR);
  assert_int_equal(ot_program_accumulator(&h.program, &h.arena, w, OT_F32), accumulator);
  ot_heap_release(&h.heap);
}

// y = bias(x, b, residual): both values get dy itself; only b's accumulator needs an op.
static void a_bias_alone_has_one_weight_op(void **state) {
  (void)state;
  for (int with_bias = 0; with_bias < 2; with_bias++) {
    hand_program h = {.program = {.name = "bias",
                                  .output = -1,
                                  .d_output = -1,
                                  .d_input = -1,
                                  .stack = -1,
                                  .d_stack = -1}};
    h.arena = ot_heap_arena_create(&h.heap);
    const int x = h.program.input = add_value(&h, "x", OT_VALUE_INPUT);
    const int b = with_bias ? add_value(&h, "b", OT_VALUE_PARAMETER) : -1;
    const int product = add_op(&h, OT_OP_ACTIVATION, x, -1, "product");
    h.program.output = add_op(&h, OT_OP_BIAS, product, b, "y");
    h.program.ops[1].in[2] = x;
    assert_int_equal(ot_program_differentiate(&h.program, &h.arena, OT_F32), OT_OK);
    int weight_ops = 0;
    for (int i = 2; i < h.program.num_ops; i++) {
      const ot_op *const op = &h.program.ops[i];
      if (op->kind == OT_OP_ACTIVATION_GRAD) assert_int_equal(op->in[0], h.program.d_output);
      if (op->kind == OT_OP_ADD) assert_int_equal(op->in[0], h.program.d_output);
      if (op->part != OT_PART_WEIGHT) continue;
      weight_ops++;
      assert_int_equal(op->kind, OT_OP_LINEAR_DW);
      assert_int_equal(op->in[0], h.program.d_output);
      assert_int_equal(op->in[1], h.program.d_output);
      assert_int_equal(op->out[0], -1);
      assert_int_equal(op->out[1], ot_program_accumulator(&h.program, &h.arena, b, OT_F32));
    }
    assert_int_equal(weight_ops, with_bias);
    // dy for the residual, the gradient of the GEMM, their sum.
    assert_int_equal(h.program.num_ops, 2 + 2 + with_bias);
    ot_heap_release(&h.heap);
  }
}

static void a_program_that_ignores_its_input_is_rejected(void **state) {
  (void)state;
  hand_program h = {
      .program = {
          .name = "deaf", .output = -1, .d_output = -1, .d_input = -1, .stack = -1, .d_stack = -1}};
  h.arena = ot_heap_arena_create(&h.heap);
  h.program.input = add_value(&h, "x", OT_VALUE_INPUT);
  const int other = add_value(&h, "table", OT_VALUE_CONSTANT);
  h.program.output = add_op(&h, OT_OP_ACTIVATION, other, -1, "y");
  assert_int_equal(ot_program_differentiate(&h.program, &h.arena, OT_F32), OT_BUG);
  assert_non_null(ot_text_find(ot_fail_message(), "no gradient reaches its input"));
  ot_heap_release(&h.heap);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_parameter_has_one_accumulator_written_once),
      cmocka_unit_test(parameter_gradients_are_written_in_the_part_declared),
      cmocka_unit_test(input_and_weight_ops_keep_to_their_outputs),
      cmocka_unit_test(nothing_reads_an_accumulator),
      cmocka_unit_test(residual_gradients_are_summed_by_the_ops_that_make_them),
      cmocka_unit_test(uses_without_a_partial_sum_are_added_last_first),
      cmocka_unit_test(tied_uses_in_a_block_share_an_accumulator),
      cmocka_unit_test(a_bias_alone_has_one_weight_op),
      cmocka_unit_test(a_program_that_ignores_its_input_is_rejected),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
