// SPDX-License-Identifier: Apache-2.0
// run: any machine. The type system of placements: its table, and that it rejects every program
// from which a collective, a hop or a retype was removed.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "graph/graph.h"
#include "graph/place.h"
#include "graph/place_rules.h"
#include "ops/catalog.h"
#include "ops/collective.h"
#include "support/arena_fixture.h"
#include "support/split_model.h"

// ---- the table ----

static void expect_row(ot_op_kind kind, const char *row) {
  const ot_op_info *const info = ot_op_info_of(kind);
  const int64_t length = ot_text_length(row);
  if (length != info->num_inputs + 1 + info->num_outputs || row[info->num_inputs] != '>') {
    fail_msg("%s has %d inputs and %d outputs, its row is %s", info->name, info->num_inputs,
             info->num_outputs, row);
  }
  for (int i = 0; i < length; i++) {
    if (i != info->num_inputs && !strchr("IRPV01.", row[i])) fail_msg("%s: %s", info->name, row);
  }
}

static void rules_have_one_letter_for_each_operand(void **state) {
  (void)state;
  for (int kind = 0; kind < OT_OP_COUNT; kind++) {
    const ot_place_rule *const rule = ot_place_rule_of((ot_op_kind)kind);
    for (int i = 0; i < OT_MAX_PLACE_ROWS; i++) {
      if (rule->rows[i]) expect_row((ot_op_kind)kind, rule->rows[i]);
      if (rule->own[i]) expect_row((ot_op_kind)kind, rule->own[i]);
    }
  }
}

// If a forward op accepts inputs so placed, its gradient ops must accept the duals: the rows of a
// VJP step are those of its forward op with duals inserted.
static char dual_letter(char letter) { return letter == 'R' ? 'P' : letter == 'P' ? 'R' : letter; }

static char letter_of(const ot_op_info *info, const char *row, ot_ref ref) {
  switch (ref.kind) {
    case OT_REF_INPUT:
      return row[ref.index];
    case OT_REF_OUTPUT:
      return row[info->num_inputs + 1 + ref.index];
    case OT_REF_DOUTPUT:
      return dual_letter(row[info->num_inputs + 1 + ref.index]);
    case OT_REF_PARTIAL:
    case OT_REF_DINPUT:
    case OT_REF_ACCUMULATOR:
      return dual_letter(row[ref.index]);
    case OT_REF_NONE:
      break;
  }
  return '.';
}

static bool agrees(char rule, char wanted, bool absent) { return absent || rule == wanted; }

static bool has_row(const ot_place_rule *rule, const ot_vjp_step *step, const char *wanted) {
  const ot_op_info *const info = ot_op_info_of(step->op);
  for (int r = 0; r < OT_MAX_PLACE_ROWS && rule->rows[r]; r++) {
    bool same = true;
    for (int i = 0; i < info->num_inputs; i++) {
      same = same && agrees(rule->rows[r][i], wanted[i], step->in[i].kind == OT_REF_NONE);
    }
    for (int i = 0; i < info->num_outputs; i++) {
      const int at = info->num_inputs + 1 + i;
      const bool absent = step->out[i].kind == OT_REF_NONE || wanted[at] == '.';
      same = same && agrees(rule->rows[r][at], wanted[at], absent || rule->rows[r][at] == '.');
    }
    if (same) return true;
  }
  return false;
}

static void expect_gradient_rows(ot_op_kind kind, const char *row) {
  const ot_op_info *const info = ot_op_info_of(kind);
  for (int s = 0; s < info->num_vjp_steps; s++) {
    const ot_vjp_step *const step = &info->vjp[s];
    if (step->pass) {
      const char from = letter_of(info, row, step->in[0]);
      const char to = letter_of(info, row, step->out[0]);
      const bool unused = row[step->out[0].index] == '.';
      if (!unused && from != to) fail_msg("%s %s passes %c as %c", info->name, row, from, to);
      continue;
    }
    const ot_op_info *const gradient = ot_op_info_of(step->op);
    char wanted[OT_MAX_INPUTS + OT_MAX_OUTPUTS + 2] = {0};
    bool used = true;
    for (int i = 0; i < gradient->num_inputs; i++) {
      wanted[i] = letter_of(info, row, step->in[i]);
      used = used && (wanted[i] != '.' || step->in[i].kind == OT_REF_NONE);
    }
    wanted[gradient->num_inputs] = '>';
    for (int i = 0; i < gradient->num_outputs; i++) {
      wanted[gradient->num_inputs + 1 + i] = letter_of(info, row, step->out[i]);
    }
    if (used && !has_row(ot_place_rule_of(step->op), step, wanted)) {
      fail_msg("%s %s: its gradient %s needs a row %s", info->name, row, gradient->name, wanted);
    }
  }
}

static void gradients_of_every_row_have_a_row_of_duals(void **state) {
  (void)state;
  for (int kind = 0; kind < OT_OP_COUNT; kind++) {
    const ot_place_rule *const rule = ot_place_rule_of((ot_op_kind)kind);
    if (rule->passes) continue;
    for (int i = 0; i < OT_MAX_PLACE_ROWS && rule->rows[i]; i++) {
      expect_gradient_rows((ot_op_kind)kind, rule->rows[i]);
    }
  }
}

// ---- mutations ----

typedef void (*program_visitor)(const ot_program *program);

static void visit_split(const ot_model *model, ot_split split, program_visitor visit) {
  for (int index = 0; index < split.tp * split.cp; index++) {
    split.tp_index = index % split.tp;
    split.cp_index = index / split.tp;
    const ot_graph graph = split_graph(model, OT_MODE_TRAIN, split, &arena);
    for (int i = 0; i < graph.num_programs; i++) visit(&graph.programs[i]);
  }
}

// Experts in both layers, which drop tokens beyond their capacity per sequence.
static ot_model dropping(void) {
  ot_model model = split_experts(split_llama(8, 4), 4, OT_MOE_DROP_BY_SCORE);
  model.moe.balance = OT_MOE_BALANCE_BIAS;
  return model;
}

static void for_each_split(program_visitor visit) {
  const ot_model models[] = {split_gpt2(4), split_llama(8, 4), split_gemma(4, 4), dropping()};
  const ot_split splits[] = {
      {.tp = 1, .cp = 1},
      {.tp = 2, .cp = 1},
      {.tp = 4, .cp = 1},
      {.tp = 1, .cp = 2, .context = OT_CONTEXT_RING},
      {.tp = 1, .cp = 4, .context = OT_CONTEXT_RING},
      {.tp = 1, .cp = 2, .context = OT_CONTEXT_ULYSSES},
      {.tp = 2, .cp = 2, .context = OT_CONTEXT_RING},
      {.tp = 2, .cp = 2, .context = OT_CONTEXT_ULYSSES},
  };
  for (int m = 0; m < OT_COUNT(models); m++) {
    for (int s = 0; s < OT_COUNT(splits); s++) visit_split(&models[m], splits[s], visit);
  }
}

static ot_program copy_of(const ot_program *program) {
  ot_program copy = *program;
  copy.ops = ot_arena_array(&arena, program->num_ops, sizeof *copy.ops);
  copy.values = ot_arena_array(&arena, program->num_values, sizeof *copy.values);
  memcpy(copy.ops, program->ops, (size_t)program->num_ops * sizeof *copy.ops);
  memcpy(copy.values, program->values, (size_t)program->num_values * sizeof *copy.values);
  return copy;
}

// `program` without op `index`; its readers use its input instead.
static ot_program without(const ot_program *program, int index) {
  ot_program copy = copy_of(program);
  const int from = program->ops[index].out[0];
  const int to = program->ops[index].in[0];
  for (int i = index; i + 1 < copy.num_ops; i++) copy.ops[i] = copy.ops[i + 1];
  copy.num_ops--;
  for (int i = 0; i < copy.num_ops; i++) {
    for (int k = 0; k < OT_MAX_INPUTS; k++) {
      if (copy.ops[i].in[k] == from) copy.ops[i].in[k] = to;
    }
  }
  if (copy.output == from) copy.output = to;
  if (copy.d_input == from) copy.d_input = to;
  return copy;
}

static int refused;

static void expect_collectives_to_be_missed(const ot_program *program) {
  if (ot_place_check(program, &arena) != OT_OK) fail_msg("%s", ot_fail_message());
  for (int i = 0; i < program->num_ops; i++) {
    if (!ot_op_communicates(program->ops[i].kind)) continue;
    const ot_program broken = without(program, i);
    if (ot_place_check(&broken, &arena) == OT_OK) {
      fail_msg("%s: %s may be left out, which makes %s", program->name,
               ot_op_info_of(program->ops[i].kind)->name,
               program->values[program->ops[i].out[0]].name);
    }
    refused++;
  }
}

static void no_collective_can_be_left_out(void **state) {
  (void)state;
  refused = 0;
  for_each_split(expect_collectives_to_be_missed);
  assert_true(refused > 500);
}

static void expect_retypes_to_be_missed(const ot_program *program) {
  for (int i = 0; i < program->num_values; i++) {
    if (program->values[i].kind != OT_VALUE_PARAMETER) continue;
    for (int axis = 0; axis < OT_PLACED_AXES; axis++) {
      if (program->values[i].placement[axis].kind == OT_INVARIANT) continue;
      ot_program broken = copy_of(program);
      broken.values[i].placement[axis] = (ot_placement){OT_INVARIANT, 0};
      if (ot_place_check(&broken, &arena) == OT_OK) {
        fail_msg("%s may be I on %s", program->values[i].name,
                 ot_placed_axis_name((ot_placed_axis)axis));
      }
    }
  }
}

static void every_parameter_needs_its_reduction(void **state) {
  (void)state;
  for_each_split(expect_retypes_to_be_missed);
}

static void expect_keys_to_be_known(const ot_program *program) {
  for (int i = 0; i < program->num_ops; i++) {
    const bool block = program->ops[i].kind == OT_OP_ATTENTION_BLOCK ||
                       program->ops[i].kind == OT_OP_ATTENTION_BLOCK_GRAD;
    if (!block) continue;
    ot_program broken = copy_of(program);
    const int c = broken.ops[i].attributes.context_size;
    broken.ops[i].attributes.key_index = (broken.ops[i].attributes.key_index + 1) % c;
    assert_int_equal(ot_place_check(&broken, &arena), OT_BUG);
    assert_non_null(ot_text_find(ot_fail_message(), "as the keys of rank"));
  }
}

static void ring_blocks_cover_the_stated_keys(void **state) {
  (void)state;
  for_each_split(expect_keys_to_be_known);
}

// ---- messages ----

static void placement_errors_name_op_operand_axis_and_choices(void **state) {
  (void)state;
  const ot_model model = split_llama(4, 2);
  const ot_graph graph = split_graph(&model, OT_MODE_TRAIN, (ot_split){.tp = 2, .cp = 1}, &arena);
  const ot_program *const layer = &graph.programs[graph.blocks[1].program];
  for (int i = 0; i < layer->num_ops; i++) {
    if (layer->ops[i].kind != OT_OP_ALL_GATHER) continue;
    const ot_program broken = without(layer, i);
    assert_int_equal(ot_place_check(&broken, &arena), OT_BUG);
    assert_string_equal(ot_fail_message(),
                        "program layer_0: op linear (attention.qkv.out) reads "
                        "attention.qkv.weight, which is S0 on tp, but may be R");
    return;
  }
  fail_msg("nothing is gathered");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rules_have_one_letter_for_each_operand),
      cmocka_unit_test(gradients_of_every_row_have_a_row_of_duals),
      cmocka_unit_test(no_collective_can_be_left_out),
      cmocka_unit_test(every_parameter_needs_its_reduction),
      cmocka_unit_test(ring_blocks_cover_the_stated_keys),
      cmocka_unit_test(placement_errors_name_op_operand_axis_and_choices),
  };
  return cmocka_run_group_tests(tests, begin, finish);
}
