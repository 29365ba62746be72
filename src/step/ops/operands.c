// SPDX-License-Identifier: Apache-2.0
// Operand types: constructors, checks, byte counts.
#include "ops/operands.h"

#include "base/text.h"

enum { SHAPE_TEXT_BYTES = 128 };

// "[4, 5]"; a zero prints as '?'.
static void print_shape(char *out, int rank, const int64_t *dim) {
  int64_t used = ot_text_format(out, SHAPE_TEXT_BYTES, "[");
  for (int i = 0; i < rank; i++) {
    const char *const comma = i > 0 ? ", " : "";
    if (dim[i] == 0) {
      used += ot_text_format(out + used, SHAPE_TEXT_BYTES - used, "%s?", comma);
    } else {
      used +=
          ot_text_format(out + used, SHAPE_TEXT_BYTES - used, "%s%lld", comma, (long long)dim[i]);
    }
  }
  ot_text_format(out + used, SHAPE_TEXT_BYTES - used, "]");
}

static bool fits(const ot_tensor_type *type, const ot_expected *expected) {
  const bool real = type->dtype == OT_F32 || type->dtype == OT_F64 || type->dtype == OT_BF16;
  if (expected->dtype == OT_ANY_REAL ? !real : (int)type->dtype != expected->dtype) return false;
  if (type->rank != expected->rank) return false;
  for (int i = 0; i < type->rank; i++) {
    if (type->dim[i] < 1) return false;
    if (expected->dim[i] != 0 && type->dim[i] != expected->dim[i]) return false;
  }
  return true;
}

ot_status ot_operand_check(const ot_tensor_type *type, ot_expected expected) {
  if (fits(type, &expected)) return OT_OK;
  OT_CHECK(type->rank > 0, OT_BUG, "%s: %s is absent", expected.op, expected.operand);
  char found[SHAPE_TEXT_BYTES];
  char wanted[SHAPE_TEXT_BYTES];
  print_shape(found, type->rank, type->dim);
  print_shape(wanted, expected.rank, expected.dim);
  const char *const dtype = expected.dtype == OT_ANY_REAL ? "fp32, fp64 or bf16"
                                                          : ot_dtype_name((ot_dtype)expected.dtype);
  return ot_fail(OT_BUG, "%s: %s is %s %s, expected %s %s", expected.op, expected.operand,
                 ot_dtype_name(type->dtype), found, dtype, wanted);
}

ot_status ot_operand_check_optional(const ot_tensor_type *type, ot_expected expected) {
  return ot_type_present(type) ? ot_operand_check(type, expected) : OT_OK;
}

ot_tensor_type ot_type_vector(ot_dtype dtype, int64_t n) {
  return (ot_tensor_type){.dtype = dtype, .rank = 1, .dim = {n}};
}

ot_tensor_type ot_type_matrix(ot_dtype dtype, int64_t rows, int64_t columns) {
  return (ot_tensor_type){.dtype = dtype, .rank = 2, .dim = {rows, columns}};
}

ot_cost ot_cost_of_traffic(const ot_op_info *info, const ot_op_attributes *attributes,
                           const ot_op_types *types, double other_flops) {
  ot_cost cost = {.other_flops = other_flops};
  const uint32_t added =
      info->effect_outputs | (attributes->accumulate ? info->accumulated_outputs : (uint32_t)0);
  for (int i = 0; i < info->num_inputs; i++) {
    cost.bytes_read += (double)ot_type_bytes(&types->in[i]);
  }
  for (int i = 0; i < info->num_outputs; i++) {
    const double bytes = (double)ot_type_bytes(&types->out[i]);
    cost.bytes_written += bytes;
    if ((added >> i & 1) != 0) cost.bytes_read += bytes;
  }
  return cost;
}
