// SPDX-License-Identifier: Apache-2.0
// run: serial. The operator tables: every kind has a row and kernels, VJP steps refer to existing
// operands, costs count the bytes that an op accesses, absent inputs are named.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/text.h"
#include "kernels/kernels.h"
#include "ops/catalog.h"
#include "ops/collective.h"
#include "ops/operands.h"
#include "workspace/workspace.h"

static void every_kind_has_a_row_of_its_own(void **state) {
  (void)state;
  for (int kind = 0; kind < OT_OP_COUNT; kind++) {
    const ot_op_info *const info = ot_op_info_of((ot_op_kind)kind);
    assert_true(info->num_inputs >= 0 && info->num_inputs <= OT_MAX_INPUTS);
    assert_true(info->num_inputs + info->num_outputs > 0);
    if (info->cost_kind == OT_COST_UNKNOWN) fail_msg("%s has no kind of cost", info->name);
    assert_int_equal(info->cost_kind == OT_COST_COMMUNICATION,
                     ot_op_communicates((ot_op_kind)kind));
    assert_true(info->num_outputs >= 0 && info->num_outputs <= OT_MAX_OUTPUTS);
    for (const char *c = info->name; *c; c++) assert_true((*c >= 'a' && *c <= 'z') || *c == '_');
    for (int other = 0; other < kind; other++) {
      const ot_op_info *const earlier = ot_op_info_of((ot_op_kind)other);
      assert_false(ot_text_equal(info->name, earlier->name));
    }
  }
}

static void every_kind_has_a_kernel_for_both_compute_types(void **state) {
  (void)state;
  for (int kind = 0; kind < OT_OP_COUNT; kind++) {
    const char *const name = ot_op_info_of((ot_op_kind)kind)->name;
    const bool rounds = kind == OT_OP_OVERFLOW_PASSES || kind == OT_OP_OVERFLOW_PASSES_DX ||
                        kind == OT_OP_OVERFLOW_PASSES_DW;
    if (ot_op_communicates((ot_op_kind)kind) || kind == OT_OP_REPEAT || rounds) {
      assert_null(ot_kernel_find(OT_BACKEND_CPU, (ot_op_kind)kind, OT_F32));
      continue;
    }
    if (!ot_kernel_find(OT_BACKEND_CPU, (ot_op_kind)kind, OT_F32))
      fail_msg("%s has no float32 kernel", name);
    if (!ot_kernel_find(OT_BACKEND_CPU, (ot_op_kind)kind, OT_F64))
      fail_msg("%s has no float64 kernel", name);
  }
  assert_null(ot_kernel_find(OT_BACKEND_CPU, OT_OP_ADD, OT_BF16));
}

static bool exists(const ot_op_info *info, ot_ref ref) {
  switch (ref.kind) {
    case OT_REF_NONE:
      return true;
    case OT_REF_INPUT:
    case OT_REF_DINPUT:
    case OT_REF_PARTIAL:
    case OT_REF_ACCUMULATOR:
      return ref.index >= 0 && ref.index < info->num_inputs;
    case OT_REF_OUTPUT:
    case OT_REF_DOUTPUT:
      return ref.index >= 0 && ref.index < info->num_outputs;
  }
  return false;
}

// Inputs of a step read the forward pass or gradients; only outputs are written.
static bool written(ot_ref ref) {
  return ref.kind == OT_REF_DINPUT || ref.kind == OT_REF_ACCUMULATOR;
}

// A step may write an output of a pure op again, as an optional output of its own.
static bool written_again(const ot_op_info *info, const ot_op_info *op, int output, ot_ref ref) {
  const bool optional = op && (op->optional_outputs >> output & 1) != 0;
  return ref.kind == OT_REF_OUTPUT && info->purity == OT_PURITY_PURE && optional;
}

static void check_step(const ot_op_info *info, const ot_vjp_step *step) {
  const ot_op_info *const op = step->pass ? NULL : ot_op_info_of(step->op);
  for (int i = 0; i < OT_MAX_INPUTS; i++) {
    const bool needed = op && i < op->num_inputs && (op->optional_inputs >> i & 1) == 0;
    if (!exists(info, step->in[i]) || written(step->in[i]) ||
        (needed && step->in[i].kind == OT_REF_NONE)) {
      fail_msg("%s: input %d of a step of its gradient", info->name, i);
    }
  }
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) {
    const ot_ref ref = step->out[i];
    if (ref.kind == OT_REF_NONE) continue;
    const bool adds = op && (op->accumulated_outputs >> i & 1) != 0;
    const bool either = op && ot_op_communicates(step->op);
    if (!exists(info, ref) || !(written(ref) || written_again(info, op, i, ref)) ||
        (!either && adds != (ref.kind == OT_REF_ACCUMULATOR))) {
      fail_msg("%s: output %d of a step of its gradient", info->name, i);
    }
  }
}

static void gradient_steps_refer_to_operands_that_exist(void **state) {
  (void)state;
  for (int kind = 0; kind < OT_OP_COUNT; kind++) {
    const ot_op_info *const info = ot_op_info_of((ot_op_kind)kind);
    for (int s = 0; s < info->num_vjp_steps; s++) check_step(info, &info->vjp[s]);
  }
}

static void costs_count_what_is_read_and_written(void **state) {
  (void)state;
  ot_op_attributes attributes = {.threads = 1, .compute = OT_F32};
  const ot_tensor_type x = ot_type_matrix(OT_F32, 10, 20);
  ot_op_types types = {.in = {x, x}, .out = {x}};
  ot_cost cost = ot_op_cost(OT_OP_ADD, &attributes, &types);
  assert_true(cost.bytes_read == 1600 && cost.bytes_written == 800 && cost.other_flops == 200);
  const ot_tensor_type w = ot_type_vector(OT_F32, 20);
  const ot_tensor_type rstd = ot_type_vector(OT_F32, 10);
  types = (ot_op_types){.in = {x, x, w, rstd}, .out = {x, w}};
  cost = ot_op_cost(OT_OP_RMSNORM_GRAD, &attributes, &types);
  assert_true(cost.bytes_read == 800 + 800 + 80 + 40 && cost.bytes_written == 800 + 80);
  attributes.accumulate = true;
  cost = ot_op_cost(OT_OP_RMSNORM_GRAD, &attributes, &types);
  assert_true(cost.bytes_read == 800 + 800 + 80 + 40 + 80);
}

static void costs_of_updates_read_a_parameter_only_without_master(void **state) {
  (void)state;
  const ot_op_attributes attributes = {.threads = 1, .compute = OT_F32};
  const ot_tensor_type n = ot_type_vector(OT_F32, 100);
  const ot_tensor_type scalars = ot_type_vector(OT_F64, OT_STEP_SCALARS);
  const ot_tensor_type stats = ot_type_vector(OT_F64, 2);
  const double scalar_bytes = 8 * OT_STEP_SCALARS;
  ot_op_types types = {.in = {n, scalars}, .out = {n, n, n, {0}, stats}};
  ot_cost cost = ot_op_cost(OT_OP_ADAMW, &attributes, &types);
  assert_true(cost.bytes_read == 1600 + scalar_bytes && cost.bytes_written == 1200 + 16);
  types.out[0] = ot_type_vector(OT_BF16, 100);
  types.out[3] = n;
  cost = ot_op_cost(OT_OP_ADAMW, &attributes, &types);
  assert_true(cost.bytes_read == 1600 + scalar_bytes && cost.bytes_written == 1400 + 16);
}

static void workspace_is_a_multiple_of_a_cache_line(void **state) {
  (void)state;
  const ot_op_attributes attributes = {.threads = 1, .compute = OT_F32};
  const ot_op_types types = {.in = {ot_type_vector(OT_F32, 100)}};
  assert_int_equal(ot_op_workspace(OT_OP_SUM_SQUARES, &attributes, &types), 64);
  assert_int_equal(ot_op_workspace(OT_OP_ADD, &attributes, &types), 0);
}

static void an_absent_input_is_named(void **state) {
  (void)state;
  const ot_op_attributes attributes = {.threads = 1, .compute = OT_F32};
  ot_op_types types = {.in = {ot_type_matrix(OT_F32, 2, 3)}};
  assert_int_equal(ot_op_infer(OT_OP_ADD, &attributes, &types), OT_BUG);
  assert_string_equal(ot_fail_message(), "add: input 1 is absent");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_kind_has_a_row_of_its_own),
      cmocka_unit_test(every_kind_has_a_kernel_for_both_compute_types),
      cmocka_unit_test(gradient_steps_refer_to_operands_that_exist),
      cmocka_unit_test(costs_count_what_is_read_and_written),
      cmocka_unit_test(costs_of_updates_read_a_parameter_only_without_master),
      cmocka_unit_test(workspace_is_a_multiple_of_a_cache_line),
      cmocka_unit_test(an_absent_input_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
