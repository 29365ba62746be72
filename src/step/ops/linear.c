// SPDX-License-Identifier: Apache-2.0
// Shapes, cost, workspace and VJP of linear layers.
#include "ops/linear.h"

#include "ops/blocks.h"
#include "ops/operands.h"

// Elements of w that are widened at a time: a compromise between workspace size and the cost of one
// pass over [R, C] per block.
enum { BLOCK_ELEMENTS = 1 << 19, BLOCK_UNIT = 64 };

static ot_status linear_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  (void)attributes;
  const char *const op = "linear";
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "x", OT_ANY_REAL, 2, {0, 0}}));
  const int64_t R = types->in[0].dim[0];
  const int64_t C = types->in[0].dim[1];
  OT_TRY(ot_operand_check(&types->in[1], (ot_expected){op, "w", OT_ANY_REAL, 2, {0, C}}));
  const int64_t O = types->in[1].dim[0];
  OT_TRY(ot_operand_check_optional(&types->in[2], (ot_expected){op, "bias", OT_ANY_REAL, 1, {O}}));
  OT_TRY(ot_operand_check_optional(&types->in[3],
                                   (ot_expected){op, "residual", OT_ANY_REAL, 2, {R, O}}));
  types->out[0] = ot_type_matrix(types->in[0].dtype, R, O);
  return OT_OK;
}

static ot_status linear_dx_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  (void)attributes;
  const char *const op = "linear_dx";
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "dy", OT_ANY_REAL, 2, {0, 0}}));
  const int64_t R = types->in[0].dim[0];
  const int64_t O = types->in[0].dim[1];
  OT_TRY(ot_operand_check(&types->in[1], (ot_expected){op, "w", OT_ANY_REAL, 2, {O, 0}}));
  const int64_t C = types->in[1].dim[1];
  OT_TRY(ot_operand_check_optional(&types->in[2],
                                   (ot_expected){op, "partial", OT_ANY_REAL, 2, {R, C}}));
  types->out[0] = ot_type_matrix(types->in[0].dtype, R, C);
  return OT_OK;
}

static ot_status linear_dw_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  (void)attributes;
  const char *const op = "linear_dw";
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "dy", OT_ANY_REAL, 2, {0, 0}}));
  const int64_t R = types->in[0].dim[0];
  const int64_t O = types->in[0].dim[1];
  OT_TRY(ot_operand_check(&types->in[1], (ot_expected){op, "x", OT_ANY_REAL, 2, {R, 0}}));
  const int64_t C = types->in[1].dim[1];
  OT_TRY(
      ot_operand_check_optional(&types->out[0], (ot_expected){op, "dw", OT_ANY_REAL, 2, {O, C}}));
  OT_TRY(
      ot_operand_check_optional(&types->out[1], (ot_expected){op, "dbias", OT_ANY_REAL, 1, {O}}));
  return OT_OK;
}

static ot_status linear_wide_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  OT_TRY(linear_infer(attributes, types));
  types->out[0].dtype = attributes->compute;
  return OT_OK;
}

static ot_status linear_wide_dx_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  OT_TRY(linear_dx_infer(attributes, types));
  types->out[0].dtype = types->in[1].dtype;
  return OT_OK;
}

// 2 R O C FLOPs. Inputs 0 and 1 share one of the three extents, dimension `shared_dim` of input 0.
static double multiply_flops(const ot_op_types *types, int shared_dim) {
  return 2 * (double)ot_type_elements(&types->in[0]) * (double)ot_type_elements(&types->in[1]) /
         (double)types->in[0].dim[shared_dim];
}

static ot_cost linear_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const int additions = ot_type_present(&types->in[2]) + ot_type_present(&types->in[3]);
  const double elements = (double)ot_type_elements(&types->out[0]);
  ot_cost cost = ot_cost_of_traffic(&ot_linear_info, attributes, types, additions * elements);
  cost.matrix_flops = multiply_flops(types, 1);
  return cost;
}

static ot_cost linear_dx_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double additions = (double)ot_type_elements(&types->in[2]);
  ot_cost cost = ot_cost_of_traffic(&ot_linear_dx_info, attributes, types, additions);
  cost.matrix_flops = multiply_flops(types, 1);
  return cost;
}

static ot_cost linear_dw_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const bool has_bias = ot_type_present(&types->out[1]);
  const double additions = has_bias ? (double)ot_type_elements(&types->in[0]) : 0;
  ot_cost cost = ot_cost_of_traffic(&ot_linear_dw_info, attributes, types, additions);
  if (ot_type_present(&types->out[0])) {
    cost.matrix_flops = multiply_flops(types, 0);
  } else {
    cost.bytes_read -= (double)ot_type_bytes(&types->in[1]);
  }
  return cost;
}

// The offset of `elements` more, a multiple of 64 bytes.
static int64_t take(ot_linear_layout *layout, int64_t elements) {
  const int64_t at = layout->elements;
  layout->elements += (elements + 15) / 16 * 16;
  return at;
}

ot_linear_layout ot_linear_layout_of(ot_dtype compute, const ot_tensor_type *rows,
                                     const ot_tensor_type *outputs, const ot_tensor_type *w,
                                     bool has_bias_gradient) {
  const int64_t R = rows->dim[0];
  const int64_t C = rows->dim[1];
  const int64_t O = outputs->dim[1];
  const bool multiplies = ot_type_present(w);
  const bool widens_w = multiplies && w->dtype != compute;
  const bool widens_outputs = multiplies && outputs->dtype != compute;
  int64_t block = O;
  if (widens_w || widens_outputs) {
    const int64_t wanted = BLOCK_ELEMENTS / C / BLOCK_UNIT * BLOCK_UNIT;
    const int64_t least = wanted > BLOCK_UNIT ? wanted : BLOCK_UNIT;
    block = least < O ? least : O;
  }
  ot_linear_layout layout = {.block = block, .w = -1, .wide = -1, .tall = -1, .sums = -1};
  if (widens_w) layout.w = take(&layout, block * C);
  if (multiplies && rows->dtype != compute) layout.wide = take(&layout, R * C);
  if (widens_outputs) layout.tall = take(&layout, R * block);
  if (has_bias_gradient) layout.sums = take(&layout, ot_row_blocks(R) * O);
  return layout;
}

static int64_t linear_workspace(const ot_op_attributes *attributes, const ot_op_types *types) {
  const ot_linear_layout layout =
      ot_linear_layout_of(attributes->compute, &types->in[0], &types->out[0], &types->in[1], false);
  return layout.elements * ot_dtype_bytes(attributes->compute);
}

static int64_t linear_dx_workspace(const ot_op_attributes *attributes, const ot_op_types *types) {
  const ot_linear_layout layout =
      ot_linear_layout_of(attributes->compute, &types->out[0], &types->in[0], &types->in[1], false);
  return layout.elements * ot_dtype_bytes(attributes->compute);
}

// Sums of blocks of rows.
static int64_t linear_dw_workspace_cuda(const ot_op_attributes *attributes,
                                        const ot_op_types *types) {
  const int64_t R = types->in[0].dim[0], O = types->in[0].dim[1];
  const bool bias = ot_type_present(&types->out[1]);
  return bias ? ot_row_blocks(R) * O * ot_dtype_bytes(attributes->compute) : 0;
}

static int64_t linear_dw_workspace(const ot_op_attributes *attributes, const ot_op_types *types) {
  const ot_linear_layout layout =
      ot_linear_layout_of(attributes->compute, &types->in[1], &types->in[0], &types->out[0],
                          ot_type_present(&types->out[1]));
  return layout.elements * ot_dtype_bytes(attributes->compute);
}

const ot_op_info ot_linear_info = {
    .name = "linear",
    .num_inputs = 4,
    .num_outputs = 1,
    .optional_inputs = 1u << 2 | 1u << 3,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_LINEAR,
    .infer = linear_infer,
    .cost = linear_cost,
    .workspace = {[OT_BACKEND_CPU] = linear_workspace},
    .num_vjp_steps = 3,
    .vjp = {{.op = OT_OP_LINEAR_DX,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_DOUTPUT, 0}, {OT_REF_INPUT, 1}, {OT_REF_PARTIAL, 0}},
             .out = {{OT_REF_DINPUT, 0}}},
            {.pass = true,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_DOUTPUT, 0}},
             .out = {{OT_REF_DINPUT, 3}}},
            {.op = OT_OP_LINEAR_DW,
             .phase = OT_VJP_WEIGHT,
             .in = {{OT_REF_DOUTPUT, 0}, {OT_REF_INPUT, 0}},
             .out = {{OT_REF_ACCUMULATOR, 1}, {OT_REF_ACCUMULATOR, 2}}}},
};

const ot_op_info ot_linear_dx_info = {
    .name = "linear_dx",
    .num_inputs = 3,
    .num_outputs = 1,
    .optional_inputs = 1u << 2,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_LINEAR,
    .infer = linear_dx_infer,
    .cost = linear_dx_cost,
    .workspace = {[OT_BACKEND_CPU] = linear_dx_workspace},
};

const ot_op_info ot_linear_dw_info = {
    .name = "linear_dw",
    .num_inputs = 2,
    .num_outputs = 2,
    .optional_outputs = 1u << 0 | 1u << 1,
    .accumulated_outputs = 1u << 0 | 1u << 1,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_LINEAR,
    .infer = linear_dw_infer,
    .cost = linear_dw_cost,
    .workspace =
        {[OT_BACKEND_CPU] = linear_dw_workspace, [OT_BACKEND_CUDA] = linear_dw_workspace_cuda},
};

static ot_cost linear_wide_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const bool biased = ot_type_present(&types->in[2]);
  const double additions = biased ? (double)ot_type_elements(&types->out[0]) : 0;
  ot_cost cost = ot_cost_of_traffic(&ot_linear_wide_info, attributes, types, additions);
  cost.matrix_flops = multiply_flops(types, 1);
  return cost;
}

static ot_cost linear_wide_dx_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double additions = (double)ot_type_elements(&types->in[2]);
  ot_cost cost = ot_cost_of_traffic(&ot_linear_wide_dx_info, attributes, types, additions);
  cost.matrix_flops = multiply_flops(types, 1);
  return cost;
}

const ot_op_info ot_linear_wide_info = {
    .name = "linear_wide",
    .num_inputs = 3,
    .num_outputs = 1,
    .optional_inputs = 1u << 2,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_PASS,
    .infer = linear_wide_infer,
    .cost = linear_wide_cost,
    .workspace = {[OT_BACKEND_CPU] = linear_workspace},
    .num_vjp_steps = 2,
    .vjp = {{.op = OT_OP_LINEAR_WIDE_DX,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_DOUTPUT, 0}, {OT_REF_INPUT, 1}, {OT_REF_PARTIAL, 0}},
             .out = {{OT_REF_DINPUT, 0}}},
            {.op = OT_OP_LINEAR_DW,
             .phase = OT_VJP_WEIGHT,
             .in = {{OT_REF_DOUTPUT, 0}, {OT_REF_INPUT, 0}},
             .out = {{OT_REF_ACCUMULATOR, 1}, {OT_REF_ACCUMULATOR, 2}}}},
};

const ot_op_info ot_linear_wide_dx_info = {
    .name = "linear_wide_dx",
    .num_inputs = 3,
    .num_outputs = 1,
    .optional_inputs = 1u << 2,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_PASS,
    .infer = linear_wide_dx_infer,
    .cost = linear_wide_dx_cost,
    .workspace = {[OT_BACKEND_CPU] = linear_dx_workspace},
};
