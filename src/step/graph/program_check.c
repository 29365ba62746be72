// SPDX-License-Identifier: Apache-2.0
// Checks loop bodies, then the ops in order, then placements.
#include "graph/program_check.h"

#include "graph/body.h"
#include "graph/place.h"
#include "ops/catalog.h"

static bool is_made_inside(const ot_value *value) {
  return value->kind == OT_VALUE_ACTIVATION || value->kind == OT_VALUE_GRADIENT;
}

static bool is_step_level(const ot_value *value) {
  return value->kind == OT_VALUE_SCALAR || value->kind == OT_VALUE_STATISTIC;
}

static ot_status check_inputs(const ot_program *program, const ot_op *op, const bool *written) {
  const ot_op_info *const info = ot_op_info_of(op->kind);
  for (int i = 0; i < info->num_inputs; i++) {
    const int value = op->in[i];
    const bool optional = (info->optional_inputs >> i) & 1u;
    OT_CHECK(value >= 0 || optional, OT_BUG, "program %s: op %s lacks input %d", program->name,
             info->name, i);
    if (value < 0) continue;
    OT_CHECK(!is_made_inside(&program->values[value]) || written[value] ||
                 ot_program_enters_backwards(program, value),
             OT_BUG, "program %s: op %s reads %s before it is written", program->name, info->name,
             program->values[value].name);
  }
  return OT_OK;
}

static ot_status check_outputs(const ot_program *program, int index, bool *written) {
  const ot_op *const op = &program->ops[index];
  const ot_op_info *const info = ot_op_info_of(op->kind);
  for (int i = 0; i < info->num_outputs; i++) {
    const int value = op->out[i];
    if (value < 0) continue;
    const ot_value *const target = &program->values[value];
    const bool twice = written[value] && !ot_program_updates(program, index, i);
    OT_CHECK(!is_made_inside(target) || !twice, OT_BUG, "program %s: op %s writes %s a second time",
             program->name, info->name, target->name);
    OT_CHECK(((info->effect_outputs >> i) & 1u) == 0 || is_step_level(target), OT_BUG,
             "program %s: effect of op %s goes to %s, expected a step-level value", program->name,
             info->name, target->name);
    written[value] = true;
  }
  return OT_OK;
}

ot_status ot_program_check(const ot_program *program, ot_arena *scratch) {
  bool *const written = ot_arena_array(scratch, program->num_values, sizeof *written);
  OT_TRY(ot_program_check_bodies(program, scratch));
  for (int i = 0; i < program->num_ops; i++) {
    OT_TRY(check_inputs(program, &program->ops[i], written));
    OT_TRY(check_outputs(program, i, written));
  }
  return ot_place_check(program, scratch);
}
