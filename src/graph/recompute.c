// SPDX-License-Identifier: Apache-2.0
// A backward slice: starts from the operands of the backward ops, decides what is saved, and
// re-emits the producers of the rest until only saved values, inputs and parameters are read.
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
// instead.
static bool worth_emitting(const ot_program *program, const ot_op *op, const bool *needed) {
  return ot_op_info_of(op->kind)->cheap && inputs_there(program, op, needed);
}

static bool re_emits(const ot_program *program, int index, ot_recompute policy,
                     const bool *needed) {
  const ot_op *const op = &program->ops[index];
  if (!is_forward(op) || ot_op_info_of(op->kind)->purity != OT_PURITY_PURE) return false;
  if (ot_program_repeat_of(program, index) >= 0) return false;
  switch (policy) {
    case OT_RECOMPUTE_NONE:
      return false;
    case OT_RECOMPUTE_SELECTIVE:
      return worth_emitting(program, op, needed);
    case OT_RECOMPUTE_FULL:
      return true;
    case OT_RECOMPUTES:
      break;
  }
  OT_UNREACHABLE();
}

void ot_recompute_build(const ot_program *program, ot_recompute policy, ot_arena *arena,
                        ot_recompute_set *set) {
  bool *const needed = ot_arena_array(arena, program->num_values + 1, sizeof(bool));
  bool *const direct = ot_arena_array(arena, program->num_values + 1, sizeof(bool));
  set->kept = ot_arena_array(arena, program->num_values + 1, sizeof(bool));
  set->emitted = ot_arena_array(arena, program->num_ops + 1, sizeof(bool));
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
}
