// SPDX-License-Identifier: Apache-2.0
// Shapes, cost and VJP of the token embedding.
#include "ops/embedding.h"

#include "ops/operands.h"

static ot_status embedding_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "embedding";
  const ot_tensor_type *const table = &types->in[1];
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "tokens", OT_I32, 1, {0}}));
  OT_TRY(ot_operand_check(table, (ot_expected){op, "table", OT_ANY_REAL, 2, {0, 0}}));
  const int64_t rows = types->in[0].dim[0];
  const int64_t columns = table->dim[1];
  const bool positions = ot_type_present(&types->in[2]);
  OT_CHECK(positions == ot_type_present(&types->in[3]), OT_BUG,
           "embedding: one of positions and position_table is absent, must be both or neither");
  OT_CHECK(!positions || attributes->scale == 0 || attributes->scale == 1, OT_BUG,
           "embedding: scale %g together with positions is not supported", attributes->scale);
  OT_TRY(
      ot_operand_check_optional(&types->in[2], (ot_expected){op, "positions", OT_I32, 1, {rows}}));
  OT_TRY(ot_operand_check_optional(
      &types->in[3], (ot_expected){op, "position_table", OT_ANY_REAL, 2, {0, columns}}));
  const ot_dtype dtype = ot_type_present(&types->out[0]) ? types->out[0].dtype : types->in[1].dtype;
  types->out[0] = ot_type_matrix(dtype, rows, columns);
  return OT_OK;
}

// The fraction of tokens that a vocabulary shard looks up, assuming equal shares.
static double share_of(const ot_op_attributes *attributes) {
  return attributes->group_size > 1 ? 1.0 / attributes->group_size : 1.0;
}

// Only the looked-up rows of the tables are read.
static ot_cost embedding_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double elements = (double)ot_type_elements(&types->out[0]) * share_of(attributes);
  const bool positions = ot_type_present(&types->in[2]);
  const int64_t position_bytes = positions ? ot_dtype_bytes(types->in[3].dtype) : 0;
  return (ot_cost){
      .other_flops = elements * (positions ? 1 : 0),
      .bytes_read = elements * (double)(ot_dtype_bytes(types->in[1].dtype) + position_bytes) +
                    (double)(ot_type_bytes(&types->in[0]) + ot_type_bytes(&types->in[2])),
      .bytes_written = (double)ot_type_bytes(&types->out[0]),
  };
}

static ot_status check_rows(const char *op, const char *ids, ot_op_types *types) {
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "dy", OT_ANY_REAL, 2, {0, 0}}));
  const int64_t rows = types->in[0].dim[0];
  return ot_operand_check(&types->in[1], (ot_expected){op, ids, OT_I32, 1, {rows}});
}

static ot_status embedding_grad_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  (void)attributes;
  return check_rows("embedding_grad", "tokens", types);
}

static ot_status position_grad_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  (void)attributes;
  return check_rows("position_grad", "positions", types);
}

// A share of the rows of dy is added to rows of the table; without accumulation the whole table is
// written first.
static ot_cost scatter_cost(const ot_op_attributes *attributes, const ot_op_types *types,
                            double share) {
  const double elements = (double)ot_type_elements(&types->in[0]) * share;
  const double touched = elements * (double)ot_dtype_bytes(types->out[0].dtype);
  const double cleared = attributes->accumulate ? 0 : (double)ot_type_bytes(&types->out[0]);
  return (ot_cost){
      .other_flops = 2 * elements,
      .bytes_read = (double)ot_type_bytes(&types->in[0]) * share +
                    (double)ot_type_bytes(&types->in[1]) + touched,
      .bytes_written = touched + cleared,
  };
}

static ot_cost embedding_grad_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  return scatter_cost(attributes, types, share_of(attributes));
}

static ot_cost position_grad_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  return scatter_cost(attributes, types, 1);
}

const ot_op_info ot_embedding_info = {
    .name = "embedding",
    .num_inputs = 4,
    .num_outputs = 1,
    .cost_kind = OT_COST_PASS,
    .optional_inputs = 1u << 2 | 1u << 3,
    .infer = embedding_infer,
    .cost = embedding_cost,
    .num_vjp_steps = 2,
    .vjp = {{.op = OT_OP_EMBEDDING_GRAD,
             .phase = OT_VJP_WEIGHT,
             .in = {{OT_REF_DOUTPUT, 0}, {OT_REF_INPUT, 0}},
             .out = {{OT_REF_ACCUMULATOR, 1}}},
            {.op = OT_OP_POSITION_GRAD,
             .phase = OT_VJP_WEIGHT,
             .in = {{OT_REF_DOUTPUT, 0}, {OT_REF_INPUT, 2}},
             .out = {{OT_REF_ACCUMULATOR, 3}}}},
};

const ot_op_info ot_embedding_grad_info = {
    .name = "embedding_grad",
    .num_inputs = 2,
    .num_outputs = 1,
    .cost_kind = OT_COST_PASS,
    .accumulated_outputs = 1u << 0,
    .infer = embedding_grad_infer,
    .cost = embedding_grad_cost,
};

const ot_op_info ot_position_grad_info = {
    .name = "position_grad",
    .num_inputs = 2,
    .num_outputs = 1,
    .cost_kind = OT_COST_PASS,
    .accumulated_outputs = 1u << 0,
    .infer = position_grad_infer,
    .cost = position_grad_cost,
};
