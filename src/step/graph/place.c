// SPDX-License-Identifier: Apache-2.0
// Matches operands against placement rules, one axis at a time; checks a whole program.
#include "graph/place.h"

#include "base/text.h"
#include "graph/place_ring.h"
#include "graph/place_rules.h"
#include "ops/catalog.h"

// One op on one axis.
typedef struct matching {
  const ot_program *program;
  const ot_op *op;
  const ot_op_info *info;
  ot_placed_axis axis;
  const char *const *rows;  // [OT_MAX_PLACE_ROWS], null-terminated when there are fewer
} matching;

static ot_placement letter_placement(char letter) {
  switch (letter) {
    case 'R':
      return (ot_placement){OT_REPLICATED, 0};
    case 'P':
      return (ot_placement){OT_PARTIAL, 0};
    case 'V':
      return (ot_placement){OT_VARYING, 0};
    case '0':
    case '1':
      return (ot_placement){OT_SHARDED, letter - '0'};
    default:
      return (ot_placement){OT_INVARIANT, 0};
  }
}

static const ot_value *input_of(const matching *m, int input) {
  const int value = m->op->in[input];
  return value < 0 ? NULL : &m->program->values[value];
}

static bool operand_fits(const matching *m, const char *row, int input) {
  const ot_value *const value = input_of(m, input);
  if (!value) return true;
  if (row[input] == '.') return false;
  return ot_placement_equal(letter_placement(row[input]), value->placement[m->axis]);
}

// True when the first `count` inputs fit `row`.
static bool fits(const matching *m, const char *row, int count) {
  for (int i = 0; i < count; i++) {
    if (!operand_fits(m, row, i)) return false;
  }
  return true;
}

static const char *row_at(const matching *m, int index) {
  return index < OT_MAX_PLACE_ROWS ? m->rows[index] : NULL;
}

static const char *result_name(const matching *m) {
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) {
    if (m->op->out[i] >= 0) return m->program->values[m->op->out[i]].name;
  }
  return "nothing";
}

enum { LIST_BYTES = 32 };

// The placements that input `input` may have after the inputs before it matched, as "S0 or R".
static void list_choices(const matching *m, int input, char *list) {
  int64_t length = 0;
  for (int r = 0; row_at(m, r); r++) {
    if (!fits(m, row_at(m, r), input)) continue;
    const char letter = row_at(m, r)[input];
    const char *const name = letter == '.' ? "absent" : ot_placement_name(letter_placement(letter));
    if (ot_text_find(list, name)) continue;
    length +=
        ot_text_format(list + length, LIST_BYTES - length, "%s%s", length ? " or " : "", name);
  }
}

// Error for the first input that no rule accepts after the inputs before it.
static ot_status refuse(const matching *m) {
  int input = 0;
  for (bool taken = true; taken && input < m->info->num_inputs;) {
    taken = false;
    for (int r = 0; row_at(m, r); r++) taken = taken || fits(m, row_at(m, r), input + 1);
    if (taken) input++;
  }
  char list[LIST_BYTES] = "";
  list_choices(m, input, list);
  const ot_value *const value = input_of(m, input);
  return ot_fail(OT_BUG, "program %s: op %s (%s) reads %s, which is %s on %s, but may be %s",
                 m->program->name, m->info->name, result_name(m), value ? value->name : "nothing",
                 value ? ot_placement_name(value->placement[m->axis]) : "absent",
                 ot_placed_axis_name(m->axis), list[0] ? list : "I");
}

static bool all_invariant(const matching *m) {
  for (int i = 0; i < m->info->num_inputs; i++) {
    const ot_value *const value = input_of(m, i);
    if (value && value->placement[m->axis].kind != OT_INVARIANT) return false;
  }
  return true;
}

// Values carried through the op keep their placement.
static void carry(const matching *m, ot_placement out[OT_MAX_OUTPUTS][OT_PLACED_AXES]) {
  for (int i = 0; i < m->info->num_outputs; i++) {
    const int value = m->op->in[i] >= 0 ? m->op->in[i] : m->op->out[i];
    if (value >= 0) out[i][m->axis] = m->program->values[value].placement[m->axis];
  }
}

static ot_status match(matching *m, ot_placement out[OT_MAX_OUTPUTS][OT_PLACED_AXES]) {
  const ot_place_rule *const rule = ot_place_rule_of(m->op->kind);
  const bool own = ot_place_own_axis(m->op->kind, &m->op->attributes) == m->axis;
  m->rows = own ? rule->own : rule->rows;
  const ot_value *const first = input_of(m, 0);
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) out[i][m->axis] = letter_placement('I');
  if (rule->carries) {
    carry(m, out);
    return OT_OK;
  }
  if (!own && all_invariant(m)) return OT_OK;
  if (!own && rule->passes) {
    out[0][m->axis] = first->placement[m->axis];
    return OT_OK;
  }
  for (int r = 0; row_at(m, r); r++) {
    const char *const row = row_at(m, r);
    if (!fits(m, row, m->info->num_inputs)) continue;
    for (int i = 0; i < m->info->num_outputs; i++) {
      const char letter = row[m->info->num_inputs + 1 + i];
      out[i][m->axis] = letter_placement(letter);
      OT_CHECK(letter != '.' || m->op->out[i] < 0, OT_BUG,
               "program %s: op %s cannot make %s from inputs sharded on %s", m->program->name,
               m->info->name, m->program->values[m->op->out[i]].name, ot_placed_axis_name(m->axis));
    }
    return OT_OK;
  }
  return refuse(m);
}

// Norms over the whole q or k row cannot be computed from some of its heads.
static ot_status check_row_norm(const ot_program *program, const ot_op *op) {
  const bool normed = op->kind == OT_OP_HEAD_NORM || op->kind == OT_OP_HEAD_NORM_GRAD;
  if (!normed || op->attributes.norm_width > 0) return OT_OK;
  const int means = op->in[op->kind == OT_OP_HEAD_NORM ? 3 : 5];
  if (op->attributes.group_size > 1 || means >= 0) return OT_OK;
  for (int axis = 0; axis < OT_PLACED_AXES; axis++) {
    const ot_placement placement = program->values[op->in[0]].placement[axis];
    OT_CHECK(placement.kind != OT_SHARDED || placement.dim != 1, OT_BUG,
             "program %s: %s normalises whole rows, but its heads are sharded on %s", program->name,
             program->values[op->in[0]].name, ot_placed_axis_name((ot_placed_axis)axis));
  }
  return OT_OK;
}

ot_status ot_place_outputs(const ot_program *program, const ot_op *op,
                           ot_placement out[OT_MAX_OUTPUTS][OT_PLACED_AXES]) {
  OT_TRY(check_row_norm(program, op));
  for (int axis = 0; axis < OT_PLACED_AXES; axis++) {
    matching m = {.program = program,
                  .op = op,
                  .info = ot_op_info_of(op->kind),
                  .axis = (ot_placed_axis)axis};
    OT_TRY(match(&m, out));
  }
  return OT_OK;
}

// ---- a whole program ----

static ot_status compare(const ot_program *program, const ot_op *op, int value,
                         const ot_placement *derived) {
  const ot_value *const v = &program->values[value];
  for (int axis = 0; axis < OT_PLACED_AXES; axis++) {
    OT_CHECK(ot_placement_equal(v->placement[axis], derived[axis]), OT_BUG,
             "program %s: op %s makes %s %s on %s, but it is declared %s", program->name,
             ot_op_info_of(op->kind)->name, v->name, ot_placement_name(derived[axis]),
             ot_placed_axis_name((ot_placed_axis)axis), ot_placement_name(v->placement[axis]));
  }
  return OT_OK;
}

// `gradient` must be placed as the gradient of `value` is; either may be absent.
static ot_status check_dual(const ot_program *program, int value, int gradient) {
  if (value < 0 || gradient < 0) return OT_OK;
  const ot_value *const v = &program->values[value];
  const ot_value *const d = &program->values[gradient];
  for (int axis = 0; axis < OT_PLACED_AXES; axis++) {
    const ot_placement dual = ot_placement_dual(v->placement[axis]);
    OT_CHECK(ot_placement_equal(dual, d->placement[axis]), OT_BUG,
             "program %s: %s is %s on %s, the gradient of %s must be %s", program->name, d->name,
             ot_placement_name(d->placement[axis]), ot_placed_axis_name((ot_placed_axis)axis),
             v->name, ot_placement_name(dual));
  }
  return OT_OK;
}

static ot_status check_accumulators(const ot_program *program) {
  for (int i = 0; i < program->num_values; i++) {
    if (program->values[i].kind != OT_VALUE_PARAMETER) continue;
    for (int k = 0; k < program->num_values; k++) {
      const ot_value *const value = &program->values[k];
      const bool accumulates = value->kind == OT_VALUE_ACCUMULATOR;
      if (!accumulates || value->index != program->values[i].index) continue;
      OT_TRY(check_dual(program, i, k));
    }
  }
  return OT_OK;
}

ot_status ot_place_check(const ot_program *program, ot_arena *scratch) {
  for (int i = 0; i < program->num_ops; i++) {
    const ot_op *const op = &program->ops[i];
    ot_placement derived[OT_MAX_OUTPUTS][OT_PLACED_AXES];
    OT_TRY(ot_place_outputs(program, op, derived));
    for (int k = 0; k < OT_MAX_OUTPUTS; k++) {
      if (op->out[k] >= 0) OT_TRY(compare(program, op, op->out[k], derived[k]));
    }
  }
  OT_TRY(check_accumulators(program));
  OT_TRY(check_dual(program, program->output, program->d_output));
  OT_TRY(check_dual(program, program->input, program->d_input));
  OT_TRY(check_dual(program, program->stack, program->d_stack));
  for (int i = 0; i < program->num_pushed; i++) {
    OT_TRY(check_dual(program, program->pushed[i], program->d_pushed[i]));
  }
  return ot_place_ring_check(program, scratch);
}
