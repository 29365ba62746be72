// SPDX-License-Identifier: Apache-2.0
// Shapes, staging memory and transposes of communication.
#include "ops/collective.h"

#include "ops/operands.h"
#include "ops/route.h"

static ot_status check_group(const char *op, const ot_op_attributes *a) {
  OT_CHECK(a->group_size >= 2, OT_BUG, "%s: group_size is %d, must be at least 2", op,
           a->group_size);
  OT_CHECK(a->group_index >= 0 && a->group_index < a->group_size, OT_BUG,
           "%s: group_index %d is not in [0, %d)", op, a->group_index, a->group_size);
  return OT_OK;
}

static ot_status check_blocks(const char *op, const ot_op_attributes *a, const ot_tensor_type *x) {
  OT_TRY(check_group(op, a));
  OT_CHECK(x->dim[0] % a->group_size == 0, OT_BUG, "%s: %d ranks do not divide %lld rows", op,
           a->group_size, (long long)x->dim[0]);
  return OT_OK;
}

static ot_status all_gather_infer(const ot_op_attributes *a, ot_op_types *types) {
  OT_TRY(check_group("all_gather", a));
  types->out[0] = types->in[0];
  types->out[0].dim[0] *= a->group_size;
  return OT_OK;
}

static ot_status reduce_scatter_infer(const ot_op_attributes *a, ot_op_types *types) {
  OT_TRY(check_blocks("reduce_scatter", a, &types->in[0]));
  ot_tensor_type made = types->in[0];
  made.dim[0] /= a->group_size;
  if (ot_type_present(&types->out[0])) made.dtype = types->out[0].dtype;
  types->out[0] = made;
  return OT_OK;
}

static ot_status all_to_all_infer(const ot_op_attributes *a, ot_op_types *types) {
  OT_TRY(check_blocks("all_to_all", a, &types->in[0]));
  types->out[0] = types->in[0];
  return OT_OK;
}

static ot_status same_infer(const ot_op_attributes *a, ot_op_types *types) {
  OT_TRY(check_group("collective", a));
  types->out[0] = types->in[0];
  return OT_OK;
}

static ot_status send_infer(const ot_op_attributes *a, ot_op_types *types) {
  (void)types;
  return check_group("send", a);
}

static ot_status receive_infer(const ot_op_attributes *a, ot_op_types *types) {
  (void)types;
  return check_group("receive", a);
}

static ot_status publish_infer(const ot_op_attributes *a, ot_op_types *types) {
  (void)types;
  OT_CHECK(a->generators >= 1 && a->whole_elements >= 1, OT_BUG,
           "publish: %lld elements to %d generators", (long long)a->whole_elements, a->generators);
  return OT_OK;
}

static ot_cost traffic(const ot_op_info *info, const ot_op_attributes *a,
                       const ot_op_types *types) {
  return ot_cost_of_traffic(info, a, types, 0);
}

static ot_cost all_gather_cost(const ot_op_attributes *a, const ot_op_types *types) {
  return traffic(&ot_all_gather_info, a, types);
}

static ot_cost reduce_scatter_cost(const ot_op_attributes *a, const ot_op_types *types) {
  ot_cost cost = traffic(&ot_reduce_scatter_info, a, types);
  cost.other_flops = (double)ot_type_elements(&types->in[0]);
  return cost;
}

static ot_cost all_reduce_cost(const ot_op_attributes *a, const ot_op_types *types) {
  ot_cost cost = traffic(&ot_all_reduce_info, a, types);
  cost.other_flops = (double)ot_type_elements(&types->in[0]);
  return cost;
}

static ot_cost all_to_all_cost(const ot_op_attributes *a, const ot_op_types *types) {
  return traffic(&ot_all_to_all_info, a, types);
}

static ot_cost shift_cost(const ot_op_attributes *a, const ot_op_types *types) {
  return traffic(&ot_shift_info, a, types);
}

const ot_op_info ot_all_gather_info = {
    .name = "all_gather",
    .num_inputs = 1,
    .num_outputs = 1,
    .cost_kind = OT_COST_COMMUNICATION,
    .infer = all_gather_infer,
    .cost = all_gather_cost,
    .num_vjp_steps = 1,
    .vjp = {{.op = OT_OP_REDUCE_SCATTER,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_DOUTPUT, 0}},
             .out = {{OT_REF_DINPUT, 0}}}},
};

const ot_op_info ot_reduce_scatter_info = {
    .name = "reduce_scatter",
    .num_inputs = 1,
    .num_outputs = 1,
    .cost_kind = OT_COST_COMMUNICATION,
    .accumulated_outputs = 1u << 0,
    .infer = reduce_scatter_infer,
    .cost = reduce_scatter_cost,
    .num_vjp_steps = 1,
    .vjp = {{.op = OT_OP_ALL_GATHER,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_DOUTPUT, 0}},
             .out = {{OT_REF_DINPUT, 0}}}},
};

const ot_op_info ot_all_reduce_info = {
    .name = "all_reduce",
    .num_inputs = 1,
    .num_outputs = 1,
    .cost_kind = OT_COST_COMMUNICATION,
    .in_place = 1u << 0,
    .infer = same_infer,
    .cost = all_reduce_cost,
};

const ot_op_info ot_all_to_all_info = {
    .name = "all_to_all",
    .num_inputs = 1,
    .num_outputs = 1,
    .cost_kind = OT_COST_COMMUNICATION,
    .infer = all_to_all_infer,
    .cost = all_to_all_cost,
    .num_vjp_steps = 1,
    .vjp = {{.op = OT_OP_ALL_TO_ALL,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_DOUTPUT, 0}},
             .out = {{OT_REF_DINPUT, 0}}}},
};

const ot_op_info ot_shift_info = {
    .name = "shift",
    .num_inputs = 1,
    .num_outputs = 1,
    .cost_kind = OT_COST_COMMUNICATION,
    .infer = same_infer,
    .cost = shift_cost,
};

const ot_op_info ot_send_info = {.name = "send",
                                 .num_inputs = 1,
                                 .num_outputs = 0,
                                 .cost_kind = OT_COST_COMMUNICATION,
                                 .infer = send_infer};

const ot_op_info ot_receive_info = {.name = "receive",
                                    .num_inputs = 0,
                                    .num_outputs = 1,
                                    .cost_kind = OT_COST_COMMUNICATION,
                                    .infer = receive_infer};

const ot_op_info ot_publish_info = {.name = "publish",
                                    .num_inputs = 1,
                                    .num_outputs = 0,
                                    .optional_inputs = 1u << 0,
                                    .cost_kind = OT_COST_COMMUNICATION,
                                    .infer = publish_infer};

const ot_op_kind ot_communications[OT_COMMUNICATIONS] = {
    OT_OP_ALL_GATHER, OT_OP_REDUCE_SCATTER, OT_OP_ALL_REDUCE,
    OT_OP_ALL_TO_ALL, OT_OP_SHIFT,          OT_OP_SEND,
    OT_OP_RECEIVE,    OT_OP_ALL_TO_ALL_V,   OT_OP_ALL_TO_ALL_V_BACK,
    OT_OP_PUBLISH,
};

int ot_communication_index(ot_op_kind kind) {
  for (int i = 0; i < OT_COMMUNICATIONS; i++) {
    if (ot_communications[i] == kind) return i;
  }
  return -1;
}

bool ot_op_communicates(ot_op_kind kind) { return ot_communication_index(kind) >= 0; }

double ot_collective_bytes(ot_op_kind kind, const ot_op_attributes *attributes,
                           const ot_op_types *types) {
  const ot_tensor_type *const sent = &types->in[ot_op_sent_input(kind)];
  if (kind == OT_OP_ALL_GATHER) return (double)ot_type_bytes(&types->out[0]);
  if (kind == OT_OP_PUBLISH) {
    return (double)(attributes->whole_elements * ot_dtype_bytes(sent->dtype));
  }
  if (!ot_op_is_all_to_all_v(kind)) return (double)ot_type_bytes(sent);
  return (double)ot_type_bytes(sent) / (double)sent->dim[0] *
         ot_route_used(attributes, attributes->exchange_rows);
}

double ot_collective_sent_bytes(ot_op_kind kind, const ot_op_attributes *attributes,
                                const ot_op_types *types) {
  const double size = attributes->group_size, others = size > 1 ? (size - 1) / size : 0;
  const double whole = ot_collective_bytes(kind, attributes, types);
  switch (kind) {
    case OT_OP_RECEIVE:
      return 0;
    case OT_OP_SHIFT:
    case OT_OP_SEND:
      return whole;
    case OT_OP_ALL_REDUCE:
      return 2 * others * whole;
    case OT_OP_PUBLISH:
      return whole * attributes->generators;
    default:
      return others * whole;
  }
}
