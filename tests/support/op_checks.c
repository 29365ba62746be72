// SPDX-License-Identifier: Apache-2.0
// Checks that every operator passes: precisions against float64, equal bits for any number of
// threads, and the VJP table against central differences of the forward kernel.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "support/blas_bits.h"
#include "support/op_case.h"
#include "support/op_device.h"

enum { NAME_BYTES = 96 };

static double *values_create(const ot_tensor *tensor) {
  const int64_t n = ot_type_elements(&tensor->type);
  double *const values = calloc((size_t)(n > 0 ? n : 1), sizeof *values);
  assert_non_null(values);
  for (int64_t i = 0; i < n; i++) values[i] = ot_case_get(tensor, i);
  return values;
}

static void expect_outputs(const ot_case *found, const ot_case *expected, double tolerance,
                           const char *how) {
  const ot_op_info *const info = ot_op_info_of(found->kind);
  for (int i = 0; i < info->num_outputs; i++) {
    if (!found->out[i].data) continue;
    char name[NAME_BYTES];
    ot_text_format(name, sizeof name, "%s in %s: output %d", info->name, how, i);
    double *const values = values_create(&expected->out[i]);
    ot_case_expect(&found->out[i], values, tolerance, name);
    free(values);
  }
}

static void expect_same_bits(const ot_case *found, const ot_case *expected) {
  const ot_op_info *const info = ot_op_info_of(found->kind);
  for (int i = 0; i < info->num_outputs; i++) {
    const size_t bytes = (size_t)ot_type_bytes(&found->out[i].type);
    if (!found->out[i].data || memcmp(found->out[i].data, expected->out[i].data, bytes) == 0) {
      continue;
    }
    fail_msg("%s: bits of output %d differ between %d and %d threads", info->name, i,
             found->attributes.threads, expected->attributes.threads);
  }
}

// Kernels whose products are as many calls of the BLAS as there are threads.
static bool uses_blas(ot_op_kind kind) {
  static const ot_op_kind kinds[] = {
      OT_OP_LINEAR,        OT_OP_LINEAR_DX,     OT_OP_LINEAR_DW,         OT_OP_MUON,
      OT_OP_HEAD_LOSS,     OT_OP_HEAD_SCORE,    OT_OP_HEAD_LOGITS,       OT_OP_HEAD_STATISTICS,
      OT_OP_HEAD_EVALUATE, OT_OP_HEAD_GRADIENT, OT_OP_HEAD_GRADIENT_LAST};
  for (int i = 0; i < OT_COUNT(kinds); i++) {
    if (kinds[i] == kind) return true;
  }
  return false;
}

static void check_threads(const ot_case *c, ot_dtype compute) {
  static const int threads[] = {2, 3, 8};
  ot_case one;
  ot_case_clone(c, compute, compute, &one);
  one.attributes.threads = 1;
  ot_case_run(&one);
  for (int i = 0; i < (int)(sizeof threads / sizeof threads[0]); i++) {
    ot_case many;
    ot_case_clone(c, compute, compute, &many);
    many.attributes.threads = threads[i];
    ot_case_run(&many);
    if (uses_blas(c->kind) && !blas_bits_are_fixed()) {
      expect_outputs(&many, &one, compute == OT_F64 ? 1e-13 : 1e-5, "more threads");
    } else {
      expect_same_bits(&many, &one);
    }
    ot_case_destroy(&many);
  }
  ot_case_destroy(&one);
}

static void check_against(const ot_case *exact, const ot_case *c, ot_dtype storage,
                          double tolerance) {
  ot_case clone;
  ot_case_clone(c, OT_F32, storage, &clone);
  ot_case_run(&clone);
  expect_outputs(&clone, exact, tolerance, ot_dtype_name(storage));
  ot_case_destroy(&clone);
}

// A matrix that the library of the device adds to.
static bool is_of_library(const ot_case *c, int index) {
  return op_device_has_library() && uses_blas(c->kind) && c->types.out[index].rank == 2;
}

// As near to the float32 sum as a rounding of what was added to `before` and one of the sum leave
// it, in units of 2^-8; `slack`: of the sums in float32.
static void expect_rounded_twice(const ot_tensor *found, const double *wide, const double *before,
                                 double slack, const char *name) {
  const double unit = 1.0 / 256;
  for (int64_t k = 0; k < ot_type_elements(&found->type); k++) {
    const double first = before ? unit * fabs(wide[k] - before[k]) : 0;
    const double bound = first + unit * (fabs(wide[k]) + first) + slack;
    const double error = fabs(ot_case_get(found, k) - wide[k]);
    if (error <= bound) continue;
    fail_msg("%s[%d] is %.17g, of %.17g (error %.3g, allowed %.3g)", name, (int)k,
             ot_case_get(found, k), wide[k], error, bound);
  }
}

static double largest_of(const double *values, int64_t count) {
  double largest = 0;
  for (int64_t k = 0; k < count; k++) largest = fmax(largest, fabs(values[k]));
  return largest;
}

// Output `index` in bf16 against the same in float32, to which one run has added to `before`, or
// null.
static void expect_rounded(const ot_case *narrow, const ot_case *wide, int index,
                           const double *before, double tolerance_f32) {
  const ot_tensor *const found = &narrow->out[index];
  const bool library = is_of_library(narrow, index);
  double *const expected = values_create(&wide->out[index]);
  char name[NAME_BYTES];
  ot_text_format(name, sizeof name, "%s: output %d in bf16", ot_op_info_of(wide->kind)->name,
                 index);
  if (narrow->roundings > 1) {
    const int64_t steps = library ? 2 * narrow->roundings : narrow->roundings;
    ot_case_expect(found, expected, (double)steps / 256, name);
  } else if (library) {
    const double largest = largest_of(expected, ot_type_elements(&found->type));
    expect_rounded_twice(found, expected, before, 2 * tolerance_f32 * largest, name);
  } else {
    for (int64_t k = 0; k < ot_type_elements(&found->type); k++) {
      expected[k] = (double)ot_bf16_to_float(ot_bf16_from_float((float)expected[k]));
    }
    ot_case_expect(found, expected, 0, name);
  }
  free(expected);
}

static void check_narrow(const ot_case *c, bool accumulate, double tolerance_f32) {
  const ot_op_info *const info = ot_op_info_of(c->kind);
  double *before[OT_MAX_OUTPUTS] = {0};
  ot_case wide, narrow;
  ot_case_clone(c, OT_F32, OT_BF16, &wide);
  wide.attributes.accumulate = accumulate;
  for (int i = 0; i < info->num_outputs && accumulate; i++) {
    const bool accumulator = (info->accumulated_outputs >> i & 1) != 0;
    if (!accumulator || !wide.out[i].data) continue;
    ot_case_fill(&wide.out[i], 400 + (uint64_t)i, 1, 0);
    before[i] = values_create(&wide.out[i]);
  }
  ot_case_clone(&wide, OT_F32, OT_BF16, &narrow);
  if (ot_case_narrow(&narrow) > 0) {
    ot_case_run(&wide);
    ot_case_run(&narrow);
    for (int i = 0; i < info->num_outputs; i++) {
      if (narrow.out[i].data && narrow.out[i].type.dtype != wide.out[i].type.dtype) {
        expect_rounded(&narrow, &wide, i, before[i], tolerance_f32);
      }
    }
  }
  for (int i = 0; i < info->num_outputs; i++) free(before[i]);
  ot_case_destroy(&wide);
  ot_case_destroy(&narrow);
}

void ot_case_check_precisions(const ot_case *c, double tolerance_f32, double tolerance_bf16) {
  ot_case exact;
  ot_case_clone(c, OT_F64, OT_F64, &exact);
  ot_case_run(&exact);
  check_against(&exact, c, OT_F32, tolerance_f32);
  check_against(&exact, c, OT_BF16, tolerance_bf16);
  ot_case_destroy(&exact);
  check_narrow(c, false, tolerance_f32);
  check_narrow(c, true, tolerance_f32);
  check_threads(c, OT_F32);
  check_threads(c, OT_F64);
}

// ---- gradients ----

// The gradients of the forward inputs as the VJP steps compute them, and inputs of the checks.
typedef struct gradients {
  ot_tensor doutput[OT_MAX_OUTPUTS];  // random; zero if no step reads it
  double *dinput[OT_MAX_INPUTS];      // null if no step computes it
} gradients;

// By the CPU's forward kernel, whatever runs the gradients.
static double objective(ot_case *c, const gradients *g) {
  const ot_op_info *const info = ot_op_info_of(c->kind);
  const ot_backend backend = c->attributes.backend;
  double sum = 0;
  c->attributes.backend = OT_BACKEND_CPU;
  ot_case_run(c);
  c->attributes.backend = backend;
  for (int i = 0; i < info->num_outputs; i++) {
    if (!g->doutput[i].data) continue;
    for (int64_t k = 0; k < ot_type_elements(&c->out[i].type); k++) {
      sum += ot_case_get(&g->doutput[i], k) * ot_case_get(&c->out[i], k);
    }
  }
  return sum;
}

static void doutput_create(const ot_case *c, int index, gradients *g) {
  if (g->doutput[index].data) return;
  ot_tensor *const tensor = &g->doutput[index];
  tensor->type = c->out[index].type;
  tensor->data = calloc((size_t)ot_type_elements(&tensor->type), sizeof(double));
  ot_case_fill(tensor, 200 + (uint64_t)index, 1, 0);
}

static ot_tensor_type type_of_ref(const ot_case *c, ot_ref ref) {
  switch (ref.kind) {
    case OT_REF_OUTPUT:
    case OT_REF_DOUTPUT:
      return c->types.out[ref.index];
    case OT_REF_INPUT:
    case OT_REF_PARTIAL:
    case OT_REF_DINPUT:
    case OT_REF_ACCUMULATOR:
      return c->types.in[ref.index];
    case OT_REF_NONE:
      break;
  }
  return (ot_tensor_type){0};
}

static const ot_tensor *source_of_ref(const ot_case *c, const gradients *g, ot_ref ref) {
  if (ref.kind == OT_REF_INPUT) return &c->in[ref.index];
  if (ref.kind == OT_REF_OUTPUT) return &c->out[ref.index];
  if (ref.kind == OT_REF_DOUTPUT) return &g->doutput[ref.index];
  return NULL;
}

// Optional operands of a step.
enum { WITH_PARTIAL = 1, WITH_OUTPUTS = 2 };

// False if a required operand is absent; the step is then skipped.
static bool step_create(const ot_case *c, const gradients *g, const ot_vjp_step *step, int with,
                        ot_case *result) {
  const ot_op_info *const info = ot_op_info_of(step->op);
  *result = (ot_case){.kind = step->op, .attributes = c->attributes};
  for (int i = 0; i < info->num_inputs; i++) {
    if (step->in[i].kind == OT_REF_PARTIAL && (with & WITH_PARTIAL) == 0) continue;
    result->types.in[i] = type_of_ref(c, step->in[i]);
    const bool optional = (info->optional_inputs >> i & 1) != 0;
    if (!ot_type_present(&result->types.in[i]) && !optional) return false;
  }
  for (int i = 0; i < info->num_outputs; i++) {
    if (step->out[i].kind == OT_REF_OUTPUT && (with & WITH_OUTPUTS) != 0) {
      result->types.out[i] = type_of_ref(c, step->out[i]);
    }
    if (step->out[i].kind == OT_REF_ACCUMULATOR) {
      result->types.out[i] = type_of_ref(c, step->out[i]);
      const bool optional = (info->optional_outputs >> i & 1) != 0;
      if (!ot_type_present(&result->types.out[i]) && !optional) return false;
    }
  }
  ot_case_create(result);
  for (int i = 0; i < info->num_inputs; i++) {
    const ot_tensor *const source = source_of_ref(c, g, step->in[i]);
    if (!source || !source->data) continue;
    memcpy(result->in[i].data, source->data, (size_t)ot_type_bytes(&source->type));
  }
  return true;
}

// Runs the step again with `partial` given and accumulators added to.
static void check_step_added(const ot_case *c, const gradients *g, const ot_vjp_step *step) {
  const ot_op_info *const info = ot_op_info_of(step->op);
  ot_case again;
  if (!step_create(c, g, step, WITH_PARTIAL, &again)) return;
  again.attributes.accumulate = true;
  double *before[OT_MAX_OUTPUTS] = {0};
  for (int i = 0; i < info->num_outputs; i++) {
    if (!again.out[i].data || (info->accumulated_outputs >> i & 1) == 0) continue;
    ot_case_fill(&again.out[i], 300 + (uint64_t)i, 1, 0);
    before[i] = values_create(&again.out[i]);
  }
  ot_case_run(&again);
  for (int i = 0; i < info->num_outputs; i++) {
    if (!again.out[i].data || step->out[i].kind == OT_REF_NONE) continue;
    const double *const gradient = g->dinput[step->out[i].index];
    double *const expected = values_create(&again.out[i]);
    const int64_t n = ot_type_elements(&again.out[i].type);
    for (int64_t k = 0; k < n; k++) expected[k] = gradient[k] + (before[i] ? before[i][k] : 0);
    for (int p = 0; p < info->num_inputs && !before[i]; p++) {
      if (step->in[p].kind != OT_REF_PARTIAL || step->in[p].index != step->out[i].index) continue;
      for (int64_t k = 0; k < n; k++) expected[k] += ot_case_get(&again.in[p], k);
    }
    ot_case_expect(&again.out[i], expected, 1e-13, "accumulated gradient");
    free(expected);
    free(before[i]);
  }
  ot_case_destroy(&again);
}

static void run_step(const ot_case *c, gradients *g, const ot_vjp_step *step) {
  if (step->pass) {
    assert_int_equal(step->in[0].kind, OT_REF_DOUTPUT);
    assert_int_equal(step->out[0].kind, OT_REF_DINPUT);
    assert_null(g->dinput[step->out[0].index]);
    g->dinput[step->out[0].index] = values_create(&g->doutput[step->in[0].index]);
    return;
  }
  const ot_op_info *const info = ot_op_info_of(step->op);
  ot_case once;
  if (!step_create(c, g, step, 0, &once)) return;
  ot_case_run(&once);
  for (int i = 0; i < info->num_outputs; i++) {
    if (!once.out[i].data || step->out[i].kind == OT_REF_NONE) continue;
    assert_null(g->dinput[step->out[i].index]);
    g->dinput[step->out[i].index] = values_create(&once.out[i]);
  }
  ot_case_destroy(&once);
  check_step_added(c, g, step);
}

static void expect_bits(const ot_tensor *found, const ot_tensor *expected, const char *what) {
  const size_t bytes = (size_t)ot_type_bytes(&expected->type);
  if (memcmp(found->data, expected->data, bytes) != 0) fail_msg("%s: other bits", what);
}

static void expect_written_again(const ot_case *c, const gradients *g, const ot_vjp_step *step,
                                 int output) {
  const ot_op_info *const info = ot_op_info_of(step->op);
  const ot_tensor *const y = &c->out[step->out[output].index];
  ot_case without, with;
  assert_true(step_create(c, g, step, WITH_PARTIAL, &without));
  assert_true(step_create(c, g, step, WITH_PARTIAL | WITH_OUTPUTS, &with));
  for (int i = 0; i < info->num_inputs; i++) {
    const bool partial = step->in[i].kind == OT_REF_PARTIAL;
    const int64_t bytes = partial ? ot_type_bytes(&with.in[i].type) : 0;
    if (bytes > 0) memcpy(with.in[i].data, without.in[i].data, (size_t)bytes);
  }
  ot_case_run(&without);
  const bool over_first = ot_op_shared_input(info, output) == 0;
  for (int in_place = 0; in_place < (over_first ? 2 : 1); in_place++) {
    if (in_place) {
      ot_case_run_over_first(&with, output);
    } else {
      ot_case_run(&with);
    }
    expect_bits(&with.out[output], y, info->name);
    for (int i = 0; i < info->num_outputs; i++) {
      if (without.out[i].data) expect_bits(&with.out[i], &without.out[i], "its gradients");
    }
  }
  ot_case_destroy(&with);
  ot_case_destroy(&without);
}

static void check_written_again(ot_case *c) {
  const ot_op_info *const info = ot_op_info_of(c->kind);
  gradients g = {0};
  int found = 0;
  ot_case_run(c);
  for (int s = 0; s < info->num_vjp_steps; s++) {
    for (int i = 0; i < OT_MAX_INPUTS; i++) {
      const ot_ref ref = info->vjp[s].in[i];
      if (ref.kind == OT_REF_DOUTPUT) doutput_create(c, ref.index, &g);
    }
    for (int i = 0; i < OT_MAX_OUTPUTS; i++) {
      if (info->vjp[s].out[i].kind != OT_REF_OUTPUT) continue;
      expect_written_again(c, &g, &info->vjp[s], i);
      found++;
    }
  }
  assert_true(found > 0);
  for (int i = 0; i < info->num_outputs; i++) free(g.doutput[i].data);
}

void ot_case_check_written_again(const ot_case *c) {
  static const ot_dtype types[3][2] = {{OT_F64, OT_F64}, {OT_F32, OT_F32}, {OT_F32, OT_BF16}};
  for (int i = 0; i < 3; i++) {
    ot_case clone;
    ot_case_clone(c, types[i][0], types[i][1], &clone);
    check_written_again(&clone);
    ot_case_destroy(&clone);
  }
}

static void compare_differences(ot_case *c, const gradients *g, int input, double step,
                                double tolerance) {
  const ot_tensor *const tensor = &c->in[input];
  const int64_t n = ot_type_elements(&tensor->type);
  double *const differences = calloc((size_t)n, sizeof *differences);
  assert_non_null(differences);
  for (int64_t k = 0; k < n; k++) {
    const double value = ot_case_get(tensor, k);
    ot_case_set(tensor, k, value + step);
    const double above = objective(c, g);
    ot_case_set(tensor, k, value - step);
    const double below = objective(c, g);
    ot_case_set(tensor, k, value);
    differences[k] = (above - below) / (2 * step);
  }
  char name[NAME_BYTES];
  ot_text_format(name, sizeof name, "%s: gradient of input %d", ot_op_info_of(c->kind)->name,
                 input);
  ot_tensor found = {.data = g->dinput[input], .type = ot_type_vector(OT_F64, n)};
  ot_case_expect(&found, differences, tolerance, name);
  free(differences);
}

void ot_case_check_gradients(ot_case *c, double step, double tolerance) {
  const ot_op_info *const info = ot_op_info_of(c->kind);
  gradients g = {0};
  // Thousands of tiny runs: waking threads would dominate the time.
  c->attributes.threads = 1;
  assert_int_equal(c->attributes.compute, OT_F64);
  assert_true(info->num_vjp_steps > 0);
  ot_case_run(c);
  for (int s = 0; s < info->num_vjp_steps; s++) {
    for (int i = 0; i < OT_MAX_INPUTS; i++) {
      const ot_ref ref = info->vjp[s].in[i];
      if (ref.kind == OT_REF_DOUTPUT) doutput_create(c, ref.index, &g);
    }
  }
  for (int s = 0; s < info->num_vjp_steps; s++) run_step(c, &g, &info->vjp[s]);
  for (int i = 0; i < info->num_inputs; i++) {
    if (g.dinput[i]) compare_differences(c, &g, i, step, tolerance);
    free(g.dinput[i]);
  }
  for (int i = 0; i < info->num_outputs; i++) free(g.doutput[i].data);
}
