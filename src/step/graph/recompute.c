// SPDX-License-Identifier: Apache-2.0
// A backward slice: starts from the operands of the backward ops, decides what is saved, and
// re-emits the producers of the rest until only saved values, inputs and parameters are read. Then
// gradient ops take over from re-emitted ops where they can.
#include "graph/recompute.h"

#include "graph/body.h"
#include "ops/catalog.h"

static bool is_forward(const ot_op *op) { return op->part == OT_PART_FORWARD; }

// True for values that must be saved or recomputed for the backward.
static bool passes(const ot_program *program, int value) {
  return value >= 0 && program->values[value].kind == OT_VALUE_ACTIVATION &&
         !ot_program_is_pushed(program, value);
}

static void mark_read(const ot_program *program, const ot_op *op, bool *read) {
  for (int i = 0; i < OT_MAX_INPUTS; i++) {
    if (passes(program, op->in[i])) read[op->in[i]] = true;
  }
}

// True when every activation that `op` reads is marked in `there`.
static bool inputs_there(const ot_program *program, const ot_op *op, const bool *there) {
  for (int i = 0; i < OT_MAX_INPUTS; i++) {
    if (passes(program, op->in[i]) && !there[op->in[i]]) return false;
  }
  return true;
}

static bool any_output(const ot_op *op, const bool *marked) {
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) {
    if (op->out[i] >= 0 && marked[op->out[i]]) return true;
  }
  return false;
}

// Recomputing a cheap op pays off when it needs no additional saved values, because the backward
// reads its inputs anyway. Chains of cheap ops are not followed: their first input would be saved
// instead. Nor does it for statistics alone, which are small.
static bool worth_emitting(const ot_program *program, const ot_op *op, const bool *needed) {
  const bool wanted = op->out[0] >= 0 && needed[op->out[0]];
  return ot_op_info_of(op->kind)->cheap && wanted && inputs_there(program, op, needed);
}

static bool re_emits(const ot_program *program, int index, ot_recompute_policy policy,
                     const bool *needed) {
  const ot_op *const op = &program->ops[index];
  if (!is_forward(op) || ot_op_info_of(op->kind)->purity != OT_PURITY_PURE) return false;
  if (ot_program_repeat_of(program, index) >= 0) return false;
  switch (policy.mode) {
    case OT_RECOMPUTE_NONE:
      return false;
    case OT_RECOMPUTE_SELECTIVE:
      if (policy.modules) return (op->modules & policy.modules) != 0;
      return worth_emitting(program, op, needed);
    case OT_RECOMPUTE_FULL:
      return true;
    case OT_RECOMPUTES:
      break;
  }
  OT_UNREACHABLE();
}

// ---- outputs that gradient ops write again ----

// A gradient op of a re-emitted op, and which of its outputs takes over which value.
typedef struct takeover {
  int gradient, output, value;
} takeover;

static bool reads(const ot_op *op, int value) {
  for (int i = 0; i < OT_MAX_INPUTS; i++) {
    if (op->in[i] == value) return true;
  }
  return false;
}

// True if `op` is the gradient op that `step` of `forward` describes, and reads what that reads.
static bool is_gradient(const ot_program *program, const ot_op *op, const ot_op *forward,
                        const ot_vjp_step *step) {
  if (is_forward(op) || op->kind != step->op) return false;
  for (int i = 0; i < OT_MAX_INPUTS; i++) {
    const ot_ref ref = step->in[i];
    if (ref.kind == OT_REF_INPUT && op->in[i] != forward->in[ref.index]) return false;
    if (ref.kind == OT_REF_OUTPUT && op->in[i] != forward->out[ref.index]) return false;
    if (passes(program, forward->in[i]) && !reads(op, forward->in[i])) return false;
  }
  return true;
}

static bool find_takeover(const ot_program *program, const ot_op *forward, takeover *found) {
  const ot_op_info *const info = ot_op_info_of(forward->kind);
  for (int s = 0; s < info->num_vjp_steps; s++) {
    const ot_vjp_step *const step = &info->vjp[s];
    for (int k = 0; k < OT_MAX_OUTPUTS; k++) {
      if (step->out[k].kind != OT_REF_OUTPUT) continue;
      for (int i = 0; i < program->num_ops; i++) {
        if (!is_gradient(program, &program->ops[i], forward, step)) continue;
        *found = (takeover){i, k, forward->out[step->out[k].index]};
        return program->ops[i].out[k] < 0;
      }
    }
  }
  return false;
}

// True if `op` writes to memory that `other` accesses: a gradient on the stack, whose versions
// share one location, or an accumulator of both.
static bool disturbs(const ot_program *program, const ot_op *op, const ot_op *other) {
  for (int k = 0; k < OT_MAX_OUTPUTS; k++) {
    if (op->out[k] < 0) continue;
    if (ot_program_stack_index(program, op->out[k]) >= 0) return true;
    for (int i = 0; i < OT_MAX_OUTPUTS; i++) {
      if (op->out[k] == other->out[i]) return true;
    }
  }
  return false;
}

// Whether op `index` may run after op `last`: a weight gradient that nothing in between depends on.
// Not a collective: its output is no accumulator.
static bool may_follow(const ot_program *program, int index, int last) {
  const ot_op *const op = &program->ops[index];
  if (op->part != OT_PART_WEIGHT || ot_program_repeat_of(program, index) >= 0) return false;
  for (int k = 0; k < OT_MAX_OUTPUTS; k++) {
    const int out = op->out[k];
    if (out >= 0 && program->values[out].kind != OT_VALUE_ACCUMULATOR) return false;
  }
  for (int i = index + 1; i <= last; i++) {
    if (disturbs(program, &program->ops[i], op)) return false;
  }
  return true;
}

static bool may_take_over(const ot_program *program, const bool *emitted, const takeover *t) {
  for (int i = 0; i < program->num_ops; i++) {
    const ot_op *const op = &program->ops[i];
    if (!reads(op, t->value) || (is_forward(op) && !emitted[i])) continue;
    if (is_forward(op)) return false;
    if (i <= t->gradient && !may_follow(program, i, t->gradient)) return false;
  }
  return true;
}

// Adds the output to the gradient op, and moves earlier readers of the value to directly after it.
static const ot_program *rewrite(const ot_program *program, const takeover *t, ot_arena *arena) {
  ot_program *const made = ot_arena_array(arena, 1, sizeof *made);
  *made = *program;
  made->ops = ot_arena_array(arena, program->num_ops + 1, sizeof *made->ops);
  int count = 0;
  for (int pass = 0; pass < 3; pass++) {
    const int first = pass < 2 ? 0 : t->gradient + 1;
    const int last = pass < 2 ? t->gradient : program->num_ops - 1;
    for (int i = first; i <= last; i++) {
      const bool moved = !is_forward(&program->ops[i]) && reads(&program->ops[i], t->value);
      if (pass < 2 && moved != (pass == 1)) continue;
      made->ops[count++] = program->ops[i];
      if (i == t->gradient) made->ops[count - 1].out[t->output] = t->value;
    }
  }
  return made;
}

// The other outputs of op `index`, small ones, are kept.
static void adopt(ot_recompute_set *set, int index, const bool *needed, ot_arena *arena) {
  const ot_op *const op = &set->program->ops[index];
  takeover t;
  if (!find_takeover(set->program, op, &t) || !needed[t.value]) return;
  if (!may_take_over(set->program, set->emitted, &t)) return;
  for (int k = 0; k < OT_MAX_OUTPUTS; k++) {
    const int out = op->out[k];
    if (out >= 0 && out != t.value && needed[out]) set->kept[out] = true;
  }
  set->emitted[index] = false;
  set->num_emitted--;
  set->program = rewrite(set->program, &t, arena);
}

void ot_recompute_build(const ot_program *program, ot_recompute_policy policy, ot_arena *arena,
                        ot_recompute_set *set) {
  bool *const needed = ot_arena_array(arena, program->num_values + 1, sizeof(bool));
  bool *const direct = ot_arena_array(arena, program->num_values + 1, sizeof(bool));
  set->kept = ot_arena_array(arena, program->num_values + 1, sizeof(bool));
  set->emitted = ot_arena_array(arena, program->num_ops + 1, sizeof(bool));
  set->program = program;
  set->num_emitted = 0;
  for (int i = 0; i < program->num_ops; i++) {
    if (!is_forward(&program->ops[i])) mark_read(program, &program->ops[i], direct);
  }
  for (int i = 0; i < program->num_values; i++) needed[i] = direct[i];

  for (int i = program->num_ops - 1; i >= 0; i--) {
    const ot_op *const op = &program->ops[i];
    if (!is_forward(op) || !any_output(op, needed)) continue;
    if (re_emits(program, i, policy, direct)) {
      set->emitted[i] = true;
      set->num_emitted++;
      mark_read(program, op, needed);
      continue;
    }
    for (int k = 0; k < OT_MAX_OUTPUTS; k++) {
      if (op->out[k] >= 0 && needed[op->out[k]]) set->kept[op->out[k]] = true;
    }
  }
  for (int i = program->num_ops - 1; i >= 0 && !(policy.separate && policy.modules); i--) {
    if (set->emitted[i]) adopt(set, i, needed, arena);
  }
}
