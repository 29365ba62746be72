// SPDX-License-Identifier: Apache-2.0
// Operands of an op under test: memory between canaries, values as double, clones of other types.
#include "support/op_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "support/op_device.h"
#include "workspace/workspace.h"

enum { GUARD_BYTES = OP_GUARD_BYTES, CANARY = 0xA5, POISON = 0xFF };

// ---- memory ----

// `bytes` at a multiple of 64, with GUARD_BYTES of canary before and at least as many after.
static void *guarded_create(int64_t bytes) {
  unsigned char *const base =
      aligned_alloc(64, (size_t)(op_device_padded(bytes) + 2 * GUARD_BYTES));
  assert_non_null(base);
  memset(base, CANARY, (size_t)(op_device_padded(bytes) + 2 * GUARD_BYTES));
  memset(base + GUARD_BYTES, POISON, (size_t)bytes);
  return base + GUARD_BYTES;
}

static void guarded_check(const void *data, int64_t bytes, const char *what) {
  const unsigned char *const at = data;
  for (int64_t i = 1; i <= GUARD_BYTES; i++) {
    if (at[-i] != CANARY) fail_msg("%s: wrote %d bytes before its start", what, (int)i);
  }
  for (int64_t i = bytes; i < op_device_padded(bytes) + GUARD_BYTES; i++) {
    if (at[i] != CANARY) fail_msg("%s: wrote %d bytes past its end", what, (int)(i - bytes));
  }
}

static void guarded_destroy(void *data) {
  if (data) free((unsigned char *)data - GUARD_BYTES);
}

// ---- values ----

double ot_case_get(const ot_tensor *tensor, int64_t i) {
  switch (tensor->type.dtype) {
    case OT_F32:
      return (double)((const float *)tensor->data)[i];
    case OT_F64:
      return ((const double *)tensor->data)[i];
    case OT_BF16:
      return (double)ot_bf16_to_float(((const uint16_t *)tensor->data)[i]);
    case OT_I32:
      return (double)((const int32_t *)tensor->data)[i];
    case OT_I64:
      return (double)((const int64_t *)tensor->data)[i];
    default:
      fail_msg("no values of dtype %s", ot_dtype_name(tensor->type.dtype));
  }
  return 0;
}

void ot_case_set(const ot_tensor *tensor, int64_t i, double value) {
  switch (tensor->type.dtype) {
    case OT_F32:
      ((float *)tensor->data)[i] = (float)value;
      break;
    case OT_F64:
      ((double *)tensor->data)[i] = value;
      break;
    case OT_BF16:
      ((uint16_t *)tensor->data)[i] = ot_bf16_from_float((float)value);
      break;
    case OT_I32:
      ((int32_t *)tensor->data)[i] = (int32_t)value;
      break;
    case OT_I64:
      ((int64_t *)tensor->data)[i] = (int64_t)value;
      break;
    default:
      fail_msg("no values of dtype %s", ot_dtype_name(tensor->type.dtype));
  }
}

static double uniform(uint64_t state) {
  state += 0x9E3779B97F4A7C15u;
  state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9u;
  state = (state ^ (state >> 27)) * 0x94D049BB133111EBu;
  return ((double)((state ^ (state >> 31)) >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(uint64_t stream, int64_t i) {
  const uint64_t at = stream * 1000003u + (uint64_t)i * 2u;
  return sqrt(-2 * log(uniform(at))) * cos(6.283185307179586 * uniform(at + 1));
}

void ot_case_fill(const ot_tensor *tensor, uint64_t stream, double scale, double shift) {
  for (int64_t i = 0; i < ot_type_elements(&tensor->type); i++) {
    const double value = scale * normal(stream, i) + shift;
    ot_case_set(tensor, i, (double)ot_bf16_to_float(ot_bf16_from_float((float)value)));
  }
}

void ot_case_pattern(const ot_tensor *tensor, int64_t stream) {
  for (int64_t i = 0; i < ot_type_elements(&tensor->type); i++) {
    ot_case_set(tensor, i, (double)((i * 37 + stream * 11) % 29 - 14) / 8);
  }
}

static void fill_zero(const ot_tensor *tensor) {
  memset(tensor->data, 0, (size_t)ot_type_bytes(&tensor->type));
}

void ot_case_expect(const ot_tensor *tensor, const double *expected, double tolerance,
                    const char *name) {
  double largest = 1e-30;
  for (int64_t i = 0; i < ot_type_elements(&tensor->type); i++) {
    largest = fmax(largest, fabs(expected[i]));
  }
  for (int64_t i = 0; i < ot_type_elements(&tensor->type); i++) {
    const double found = ot_case_get(tensor, i);
    if (fabs(found - expected[i]) <= tolerance * largest) continue;
    fail_msg("%s[%d] is %.17g, expected %.17g (error %.3g of the largest, allowed %.3g)", name,
             (int)i, found, expected[i], fabs(found - expected[i]) / largest, tolerance);
  }
}

// ---- a case ----

static bool keeps_contents(const ot_op_info *info, int output) {
  return ((info->accumulated_outputs | info->effect_outputs) >> output & 1) != 0;
}

void ot_case_create(ot_case *c) {
  const ot_op_info *const info = ot_op_info_of(c->kind);
  c->attributes.backend = op_device_backend();
  if (ot_op_infer(c->kind, &c->attributes, &c->types) != OT_OK) fail_msg("%s", ot_fail_message());
  for (int i = 0; i < info->num_inputs; i++) {
    c->in[i] = (ot_tensor){.type = c->types.in[i]};
    if (!ot_type_present(&c->types.in[i])) continue;
    c->in[i].data = guarded_create(ot_type_bytes(&c->types.in[i]));
    fill_zero(&c->in[i]);
    if (ot_dtype_is_real(c->types.in[i].dtype)) ot_case_fill(&c->in[i], 10 + (uint64_t)i, 1, 0);
  }
  for (int i = 0; i < info->num_outputs; i++) {
    c->out[i] = (ot_tensor){.type = c->types.out[i]};
    if (!ot_type_present(&c->types.out[i])) continue;
    c->out[i].data = guarded_create(ot_type_bytes(&c->types.out[i]));
    if (keeps_contents(info, i)) fill_zero(&c->out[i]);
  }
}

void ot_case_destroy(ot_case *c) {
  for (int i = 0; i < OT_MAX_INPUTS; i++) guarded_destroy(c->in[i].data);
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) guarded_destroy(c->out[i].data);
  memset(c->in, 0, sizeof c->in);
  memset(c->out, 0, sizeof c->out);
}

static void check_guards(const ot_case *c, const ot_op_info *info) {
  char what[64];
  for (int i = 0; i < info->num_inputs; i++) {
    ot_text_format(what, sizeof what, "%s input %d", info->name, i);
    if (c->in[i].data) guarded_check(c->in[i].data, ot_type_bytes(&c->types.in[i]), what);
  }
  for (int i = 0; i < info->num_outputs; i++) {
    ot_text_format(what, sizeof what, "%s output %d", info->name, i);
    if (c->out[i].data) guarded_check(c->out[i].data, ot_type_bytes(&c->types.out[i]), what);
  }
}

static void run_kernel(ot_case *c, const ot_op_info *info) {
  const int64_t bytes = ot_op_workspace(c->kind, &c->attributes, &c->types);
  void *const workspace = guarded_create(bytes);
  const ot_kernel_call call = {
      .attributes = &c->attributes, .in = c->in, .out = c->out, .workspace = workspace};
  op_device_run(c->kind, &call, bytes);
  guarded_check(workspace, bytes, "workspace");
  guarded_destroy(workspace);
  check_guards(c, info);
}

void ot_case_run(ot_case *c) {
  const ot_op_info *const info = ot_op_info_of(c->kind);
  for (int i = 0; i < info->num_outputs; i++) {
    const bool effect = (info->effect_outputs >> i & 1) != 0;
    const bool added = effect || (keeps_contents(info, i) && c->attributes.accumulate);
    if (!c->out[i].data || added) continue;
    memset(c->out[i].data, POISON, (size_t)ot_type_bytes(&c->out[i].type));
  }
  run_kernel(c, info);
}

void ot_case_run_joined(ot_case *cases, int count) {
  enum { MOST = 64 };
  ot_kernel_call calls[MOST];
  int64_t bytes[MOST];
  assert_true(count <= MOST);
  for (int i = 0; i < count; i++) {
    const ot_case *const c = &cases[i];
    bytes[i] = ot_op_workspace(c->kind, &c->attributes, &c->types);
    calls[i] = (ot_kernel_call){.attributes = &c->attributes,
                                .in = c->in,
                                .out = c->out,
                                .workspace = guarded_create(bytes[i])};
  }
  op_device_run_joined(cases[0].kind, calls, bytes, count);
  for (int i = 0; i < count; i++) {
    guarded_check(calls[i].workspace, bytes[i], "workspace");
    guarded_destroy(calls[i].workspace);
    check_guards(&cases[i], ot_op_info_of(cases[i].kind));
  }
}

void ot_case_run_in_place(ot_case *c) { ot_case_run_over_first(c, 0); }

void ot_case_run_over_first(ot_case *c, int output) {
  const ot_op_info *const info = ot_op_info_of(c->kind);
  assert_int_equal(ot_op_shared_input(info, output), 0);
  void *const input = c->in[0].data;
  assert_int_equal(ot_type_bytes(&c->in[0].type), ot_type_bytes(&c->out[output].type));
  memcpy(c->out[output].data, input, (size_t)ot_type_bytes(&c->in[0].type));
  c->in[0].data = c->out[output].data;
  run_kernel(c, info);
  c->in[0].data = input;
}

static void copy_values(const ot_tensor *from, const ot_tensor *to) {
  for (int64_t i = 0; from->data && i < ot_type_elements(&from->type); i++) {
    ot_case_set(to, i, ot_case_get(from, i));
  }
}

void ot_case_clone(const ot_case *from, ot_dtype compute, ot_dtype storage, ot_case *clone) {
  const ot_op_info *const info = ot_op_info_of(from->kind);
  *clone = (ot_case){.kind = from->kind,
                     .attributes = from->attributes,
                     .types = from->types,
                     .fixed_inputs = from->fixed_inputs,
                     .statistic_inputs = from->statistic_inputs,
                     .roundings = from->roundings};
  clone->attributes.compute = compute;
  for (int i = 0; i < info->num_inputs; i++) {
    ot_tensor_type *const type = &clone->types.in[i];
    if (!ot_dtype_is_real(type->dtype) || (from->fixed_inputs >> i & 1) != 0) continue;
    type->dtype = (from->statistic_inputs >> i & 1) != 0 ? compute : storage;
  }
  for (int i = 0; i < info->num_outputs; i++) {
    if ((info->accumulated_outputs >> i & 1) != 0 && ot_dtype_is_real(clone->types.out[i].dtype)) {
      clone->types.out[i].dtype = compute;
    }
  }
  ot_case_create(clone);
  for (int i = 0; i < info->num_inputs; i++) copy_values(&from->in[i], &clone->in[i]);
  for (int i = 0; i < info->num_outputs; i++) {
    if (keeps_contents(info, i)) copy_values(&from->out[i], &clone->out[i]);
  }
}

int ot_case_narrow(ot_case *c) {
  const ot_op_info *const info = ot_op_info_of(c->kind);
  int count = 0;
  for (int i = 0; i < info->num_outputs; i++) {
    const bool accumulator = (info->accumulated_outputs >> i & 1) != 0;
    if (!accumulator || !c->out[i].data || c->out[i].type.dtype != c->attributes.compute) continue;
    const ot_tensor wide = c->out[i];
    c->types.out[i].dtype = OT_BF16;
    c->out[i] = (ot_tensor){.type = c->types.out[i]};
    c->out[i].data = guarded_create(ot_type_bytes(&c->types.out[i]));
    copy_values(&wide, &c->out[i]);
    guarded_destroy(wide.data);
    count++;
  }
  if (ot_op_infer(c->kind, &c->attributes, &c->types) != OT_OK) fail_msg("%s", ot_fail_message());
  return count;
}
