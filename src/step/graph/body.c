// SPDX-License-Identifier: Apache-2.0
// The body of a loop is the run of ops after its repeat op. Loops do not nest.
#include "graph/body.h"

#include "graph/expand.h"
#include "ops/catalog.h"
#include "ops/repeat.h"

static bool is_loop_output(const ot_op *repeat, int value) {
  for (int i = 0; i < OT_REPEAT_CARRIED; i++) {
    if (value >= 0 && repeat->out[i] == value) return true;
  }
  return false;
}

bool ot_program_updates(const ot_program *program, int op, int output) {
  const ot_op *const made = &program->ops[op];
  const bool adds = (ot_op_info_of(made->kind)->accumulated_outputs >> output & 1u) != 0;
  if (!adds || !made->attributes.accumulate) return false;
  const int repeat = ot_program_repeat_of(program, op);
  return repeat >= 0 && is_loop_output(&program->ops[repeat], made->out[output]);
}

// ---- check ----

static const char *name_of(const ot_program *program, int op) {
  return ot_op_info_of(program->ops[op].kind)->name;
}

static ot_status check_body(const ot_program *program, int repeat) {
  const int repeated = program->ops[repeat].attributes.repeated;
  OT_CHECK(repeated >= 1 && repeated < program->num_ops - repeat, OT_BUG,
           "program %s: op %d repeats %d ops, only %d follow it", program->name, repeat, repeated,
           program->num_ops - repeat - 1);
  for (int i = repeat + 1; i <= repeat + repeated; i++) {
    OT_CHECK(program->ops[i].part == program->ops[repeat].part, OT_BUG,
             "program %s: op %d repeats op %d (%s), which belongs to another part", program->name,
             repeat, i, name_of(program, i));
    OT_CHECK(program->ops[i].kind != OT_OP_REPEAT && !ot_op_is_composite(&program->ops[i]), OT_BUG,
             "program %s: op %d repeats op %d (%s), which a loop body may not contain",
             program->name, repeat, i, name_of(program, i));
  }
  return OT_OK;
}

static bool is_made_inside(const ot_program *program, int value) {
  const ot_value_kind kind = program->values[value].kind;
  return kind == OT_VALUE_ACTIVATION || kind == OT_VALUE_GRADIENT;
}

static ot_status check_adding(const ot_program *program, int op) {
  const ot_op *const made = &program->ops[op];
  const uint32_t accumulated = ot_op_info_of(made->kind)->accumulated_outputs;
  for (int i = 0; i < OT_MAX_OUTPUTS && made->attributes.accumulate; i++) {
    const int value = made->out[i];
    if (value < 0 || !(accumulated >> i & 1u) || !is_made_inside(program, value)) continue;
    OT_CHECK(ot_program_updates(program, op, i), OT_BUG,
             "program %s: op %d (%s) adds to %s, which its enclosing repeat does not output",
             program->name, op, name_of(program, op), program->values[value].name);
  }
  return OT_OK;
}

// For each value: the repeat whose body defines it or that outputs it, or -1. Walks from the last
// op to the first, so that the defining op decides.
static void find_defining_repeats(const ot_program *program, int *homes) {
  for (int i = 0; i < program->num_values; i++) homes[i] = -1;
  for (int i = program->num_ops - 1; i >= 0; i--) {
    const ot_op *const op = &program->ops[i];
    const int around = ot_program_repeat_of(program, i);
    for (int k = 0; k < OT_MAX_OUTPUTS; k++) {
      if (op->out[k] < 0 || !is_made_inside(program, op->out[k])) continue;
      const bool counter = op->kind == OT_OP_REPEAT && k == OT_REPEAT_INDEX;
      homes[op->out[k]] = counter ? i : around;
    }
  }
}

static ot_status check_reads(const ot_program *program, const int *homes, int op) {
  const int around = ot_program_repeat_of(program, op);
  for (int i = 0; i < OT_MAX_INPUTS; i++) {
    const int value = program->ops[op].in[i];
    if (value < 0 || homes[value] < 0) continue;
    OT_CHECK(homes[value] == around, OT_BUG,
             "program %s: op %d (%s) reads %s, which is local to the body of op %d", program->name,
             op, name_of(program, op), program->values[value].name, homes[value]);
  }
  return OT_OK;
}

static ot_status check_leaves(const ot_program *program, const int *homes, int value) {
  OT_CHECK(value < 0 || homes[value] < 0, OT_BUG,
           "program %s: its result %s is local to the body of op %d", program->name,
           program->values[value].name, homes[value]);
  return OT_OK;
}

static ot_status check_values(const ot_program *program, ot_arena *scratch) {
  int *const homes = ot_arena_array(scratch, program->num_values, sizeof *homes);
  find_defining_repeats(program, homes);
  for (int i = 0; i < program->num_ops; i++) OT_TRY(check_reads(program, homes, i));
  OT_TRY(check_leaves(program, homes, program->output));
  OT_TRY(check_leaves(program, homes, program->d_input));
  for (int i = 0; i < program->num_pushed; i++) {
    OT_TRY(check_leaves(program, homes, program->pushed[i]));
  }
  return OT_OK;
}

ot_status ot_program_check_bodies(const ot_program *program, ot_arena *scratch) {
  bool repeats = false;
  for (int i = 0; i < program->num_ops; i++) {
    OT_TRY(check_adding(program, i));
    if (program->ops[i].kind != OT_OP_REPEAT) continue;
    repeats = true;
    OT_TRY(check_body(program, i));
  }
  return repeats ? check_values(program, scratch) : OT_OK;
}
