// SPDX-License-Identifier: Apache-2.0
// Reverse-mode differentiation, op by op, from tables.
#include "graph/differentiate.h"

#include "graph/program_check.h"
#include "ops/attributes.h"
#include "ops/catalog.h"

// State of the reverse walk.
typedef struct backward {
  ot_program *program;
  ot_arena *arena;
  int *gradient;  // [num forward values] value that holds the gradient so far, or -1
  int *again;     // the value all-gathered again, or -1
  ot_dtype accumulators;
  int num_forward_ops;
} backward;

static bool wants_gradient(const ot_value *value) {
  return value->kind == OT_VALUE_INPUT || value->kind == OT_VALUE_ACTIVATION;
}

static int gradient_like(backward *b, int value) {
  const ot_value *const source = &b->program->values[value];
  ot_value gradient = {
      .name = ot_arena_format(b->arena, "d_%s", source->name),
      .kind = OT_VALUE_GRADIENT,
      .type = source->type,
      .index = value,
  };
  for (int i = 0; i < OT_PLACED_AXES; i++) {
    gradient.placement[i] = ot_placement_dual(source->placement[i]);
  }
  return ot_program_add_value(b->program, b->arena, &gradient);
}

int ot_program_accumulator(ot_program *program, ot_arena *arena, int parameter, ot_dtype dtype) {
  const ot_value *const source = &program->values[parameter];
  for (int i = 0; i < program->num_values; i++) {
    const ot_value *const value = &program->values[i];
    if (value->kind == OT_VALUE_ACCUMULATOR && value->index == source->index) return i;
  }
  ot_value accumulator = {
      .name = ot_arena_format(arena, "d_%s", source->name),
      .kind = OT_VALUE_ACCUMULATOR,
      .type = source->type,
      .index = source->index,
  };
  accumulator.type.dtype = dtype;
  for (int i = 0; i < OT_PLACED_AXES; i++) {
    accumulator.placement[i] = ot_placement_dual(source->placement[i]);
  }
  return ot_program_add_value(program, arena, &accumulator);
}

// The value of a VJP step's operand, or -1 when it is absent.
static int resolve(backward *b, const ot_op *op, ot_ref ref) {
  switch (ref.kind) {
    case OT_REF_NONE:
      return -1;
    case OT_REF_INPUT:
      return op->in[ref.index];
    case OT_REF_OUTPUT:
      return op->out[ref.index];
    case OT_REF_DOUTPUT:
      return op->out[ref.index] < 0 ? -1 : b->gradient[op->out[ref.index]];
    case OT_REF_PARTIAL:
      return op->in[ref.index] < 0 ? -1 : b->gradient[op->in[ref.index]];
    case OT_REF_DINPUT:
    case OT_REF_ACCUMULATOR:
      break;
  }
  OT_UNREACHABLE();
}

// Accumulates `made` into the gradient of `value`: it becomes the gradient, or is added to it.
static void contribute(backward *b, int value, int made, bool has_partial) {
  const int before = b->gradient[value];
  if (before < 0 || has_partial) {
    b->gradient[value] = made;
    return;
  }
  const int sum = gradient_like(b, value);
  ot_op add = {.kind = OT_OP_ADD, .part = OT_PART_INPUT};
  for (int i = 0; i < OT_MAX_INPUTS; i++) add.in[i] = -1;
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) add.out[i] = -1;
  add.attributes = ot_op_attributes_like(&b->program->ops[0].attributes);
  add.in[0] = before;
  add.in[1] = made;
  add.out[0] = sum;
  ot_program_add_op(b->program, b->arena, &add);
  b->gradient[value] = sum;
}

// The output value of a VJP step at `ref` of the forward op, or -1 when no op reads it.
static int make_output(backward *b, const ot_op *op, ot_ref ref) {
  // Which outputs are written again depends on the recompute policy (recompute.h).
  const bool absent = ref.kind == OT_REF_NONE || ref.kind == OT_REF_OUTPUT;
  const int input = absent ? -1 : op->in[ref.index];
  if (input < 0) return -1;
  if (ref.kind == OT_REF_ACCUMULATOR) {
    return ot_program_accumulator(b->program, b->arena, input, b->accumulators);
  }
  return wants_gradient(&b->program->values[input]) ? gradient_like(b, input) : -1;
}

// True when every required operand of the step is present.
static bool step_applies(backward *b, const ot_op *op, const ot_vjp_step *step) {
  const ot_op_info *const info = ot_op_info_of(step->op);
  for (int i = 0; i < info->num_inputs; i++) {
    const bool optional = (info->optional_inputs >> i) & 1u;
    if (!optional && resolve(b, op, step->in[i]) < 0) return false;
  }
  const ot_ref first = step->out[0];
  return first.kind == OT_REF_NONE || op->in[first.index] >= 0;
}

// The forward op that all-gathered `value` over tp, or null.
static const ot_op *gather_of(const backward *b, int value) {
  for (int i = 0; i < b->num_forward_ops; i++) {
    const ot_op *const op = &b->program->ops[i];
    const bool gathers = op->kind == OT_OP_ALL_GATHER && op->attributes.group == OT_GROUP_TENSOR;
    if (gathers && op->out[0] == value) return op;
  }
  return NULL;
}

// The operand of a weight gradient for `value`. Gathered tokens are not saved but gathered again,
// under every recompute policy: only this rank's tokens are saved (Korthikanti et al. 2022, sec.
// 4.2.2).
static int weight_operand(backward *b, int value) {
  if (value < 0 || !gather_of(b, value)) return value;
  if (b->again[value] >= 0) return b->again[value];
  ot_op again = *gather_of(b, value);
  ot_value made = b->program->values[value];
  made.name = ot_arena_format(b->arena, "%s.again", made.name);
  made.kind = OT_VALUE_GRADIENT;
  made.index = value;
  again.part = OT_PART_WEIGHT;
  again.out[0] = ot_program_add_value(b->program, b->arena, &made);
  ot_program_add_op(b->program, b->arena, &again);
  b->again[value] = again.out[0];
  return again.out[0];
}

static void emit_pass(backward *b, const ot_op *op, const ot_vjp_step *step) {
  const int made = resolve(b, op, step->in[0]);
  const int input = op->in[step->out[0].index];
  if (made < 0 || input < 0 || !wants_gradient(&b->program->values[input])) return;
  contribute(b, input, made, false);
}

// True when output `output` of the step's op includes the previous partial sum.
static bool adds_partial(const ot_vjp_step *step, const ot_op *made, int output) {
  for (int i = 0; i < OT_MAX_INPUTS; i++) {
    const bool same = step->in[i].index == step->out[output].index;
    if (step->in[i].kind == OT_REF_PARTIAL && same && made->in[i] >= 0) return true;
  }
  return false;
}

static void emit_step(backward *b, const ot_op *forward, const ot_vjp_step *step) {
  const ot_op op = *forward;  // appending ops may reallocate the array
  if (!step_applies(b, &op, step)) return;
  ot_op made = {.kind = step->op,
                .part = step->phase == OT_VJP_INPUT ? OT_PART_INPUT : OT_PART_WEIGHT,
                .attributes = op.attributes};
  for (int i = 0; i < OT_MAX_INPUTS; i++) made.in[i] = resolve(b, &op, step->in[i]);
  bool wanted = false;
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) {
    made.out[i] = make_output(b, &op, step->out[i]);
    wanted = wanted || made.out[i] >= 0;
  }
  if (!wanted) return;
  for (int i = 0; i < OT_MAX_INPUTS && made.part == OT_PART_WEIGHT; i++) {
    made.in[i] = weight_operand(b, made.in[i]);
  }
  ot_program_add_op(b->program, b->arena, &made);
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) {
    if (step->out[i].kind != OT_REF_DINPUT || made.out[i] < 0) continue;
    contribute(b, op.in[step->out[i].index], made.out[i], adds_partial(step, &made, i));
  }
}

static void differentiate_op(backward *b, int index) {
  const ot_op_info *const info = ot_op_info_of(b->program->ops[index].kind);
  for (int i = 0; i < info->num_vjp_steps; i++) {
    const ot_op op = b->program->ops[index];
    const ot_vjp_step *const step = &info->vjp[i];
    if (step->pass) {
      emit_pass(b, &op, step);
    } else {
      emit_step(b, &op, step);
    }
  }
}

// Gradients from later blocks: of the output, of pushed values, and the partial gradient of the
// rest of the stack. No block follows the head.
static void enter(backward *b) {
  ot_program *const program = b->program;
  const bool last = program->output < 0 && program->num_pushed == 0;
  if (program->output >= 0) {
    program->d_output = gradient_like(b, program->output);
    b->gradient[program->output] = program->d_output;
  }
  for (int i = 0; i < program->num_pushed; i++) {
    program->d_pushed[i] = gradient_like(b, program->pushed[i]);
    b->gradient[program->pushed[i]] = program->d_pushed[i];
  }
  if (program->stack < 0 || last) return;
  program->d_stack = gradient_like(b, program->stack);
  b->gradient[program->stack] = program->d_stack;
}

ot_status ot_program_differentiate(ot_program *program, ot_arena *arena, ot_dtype accumulators) {
  const int num_values = program->num_values;
  const int num_ops = program->num_ops;
  backward b = {
      .program = program,
      .arena = arena,
      .gradient = ot_arena_array(arena, num_values, sizeof(int)),
      .again = ot_arena_array(arena, num_values, sizeof(int)),
      .accumulators = accumulators,
      .num_forward_ops = num_ops,
  };
  for (int i = 0; i < num_values; i++) b.gradient[i] = b.again[i] = -1;
  enter(&b);
  for (int i = num_ops - 1; i >= 0; i--) differentiate_op(&b, i);
  if (program->input >= 0) program->d_input = b.gradient[program->input];
  OT_CHECK(program->input < 0 || program->d_input >= 0, OT_BUG,
           "program %s: no gradient reaches its input", program->name);
  OT_CHECK(program->stack < 0 || b.gradient[program->stack] >= 0, OT_BUG,
           "program %s: no gradient reaches its stack input", program->name);
  return ot_program_check(program, arena);
}
