// SPDX-License-Identifier: Apache-2.0
// Shapes, cost, workspace and VJP of attention.
#include "ops/attention.h"

#include "ops/operands.h"

enum {
  KEY_UNIT = 8,
  VECTOR_BYTES = 64,
  UNITS_A_THREAD = 4,       // forward: units for each thread, so that the last one waits little
  BACKWARD_UNITS_LEAST = 8  // backward: a property of the shape alone, since parts join in order
};

static ot_status check_attributes(const char *op, const ot_op_attributes *a, int64_t rows) {
  OT_CHECK(a->num_heads > 0 && a->num_kv_heads > 0 && a->num_heads % a->num_kv_heads == 0, OT_BUG,
           "%s: %lld kv heads do not divide %lld heads", op, (long long)a->num_kv_heads,
           (long long)a->num_heads);
  OT_CHECK(a->head_dim > 0, OT_BUG, "%s: head_dim is %lld, must be positive", op,
           (long long)a->head_dim);
  OT_CHECK(a->sequence_length > 0 && rows % a->sequence_length == 0, OT_BUG,
           "%s: %lld rows are not whole sequences of %lld", op, (long long)rows,
           (long long)a->sequence_length);
  const bool counted = a->num_heads <= 1 << 8 && a->sequence_length <= 1 << 24;
  OT_CHECK(a->dropout == 0 || counted, OT_BUG,
           "%s: %lld heads and sequence_length %lld, at most 256 and 16777216 with dropout", op,
           (long long)a->num_heads, (long long)a->sequence_length);
  return OT_OK;
}

// qkv, doc_start and sample_ids, which are inputs `first` and the two after it.
static ot_status check_shared(const char *op, const ot_op_attributes *a, const ot_op_types *types,
                              int first) {
  const int64_t width = (a->num_heads + 2 * a->num_kv_heads) * a->head_dim;
  const ot_tensor_type *const in = types->in + first;
  OT_TRY(ot_operand_check(&in[0], (ot_expected){op, "qkv", OT_ANY_REAL, 2, {0, width}}));
  const int64_t R = in[0].dim[0];
  OT_TRY(check_attributes(op, a, R));
  OT_TRY(ot_operand_check_optional(&in[1], (ot_expected){op, "doc_start", OT_I32, 1, {R}}));
  const int64_t B = R / a->sequence_length;
  const ot_expected ids = {op, "sample_ids", OT_I64, 1, {B}};
  return a->dropout > 0 ? ot_operand_check(&in[2], ids) : ot_operand_check_optional(&in[2], ids);
}

static ot_status attention_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "attention";
  OT_TRY(check_shared(op, attributes, types, 0));
  OT_TRY(ot_operand_check_optional(&types->out[2], (ot_expected){op, "max_logit", OT_F64, 1, {1}}));
  const int64_t R = types->in[0].dim[0];
  types->out[0] =
      ot_type_matrix(types->in[0].dtype, R, attributes->num_heads * attributes->head_dim);
  types->out[1] = ot_type_matrix(attributes->compute, R, attributes->num_heads);
  return OT_OK;
}

static ot_status attention_grad_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "attention_grad";
  OT_TRY(check_shared(op, attributes, types, 1));
  const int64_t R = types->in[1].dim[0];
  const int64_t H = attributes->num_heads;
  const int64_t width = H * attributes->head_dim;
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "do", OT_ANY_REAL, 2, {R, width}}));
  OT_TRY(ot_operand_check(&types->in[4], (ot_expected){op, "o", OT_ANY_REAL, 2, {R, width}}));
  OT_TRY(ot_operand_check(&types->in[5],
                          (ot_expected){op, "lse", (int)attributes->compute, 2, {R, H}}));
  types->out[0] = types->in[1];
  return OT_OK;
}

// Pairs (query, key) of one sequence that are visible to a head; documents are not known here.
static double visible_pairs(const ot_op_attributes *a) {
  const double T = (double)a->sequence_length;
  const bool windowed = a->window > 0 && a->window < a->sequence_length;
  const double W = windowed ? (double)a->window : T;
  return W * (W + 1) / 2 + (T - W) * W;
}

static ot_cost cost_of(const ot_op_info *info, const ot_op_attributes *a, const ot_op_types *types,
                       int products) {
  const double B = (double)(types->out[0].dim[0] / a->sequence_length);
  const double pairs = B * (double)a->num_heads * visible_pairs(a);
  ot_cost cost = ot_cost_of_traffic(info, a, types, 6 * pairs);
  cost.matrix_flops = 2 * products * pairs * (double)a->head_dim;
  return cost;
}

static ot_cost attention_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  return cost_of(&ot_attention_info, attributes, types, 2);
}

// Five products: scores again, dp, dq, dk, dv.
static ot_cost attention_grad_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  ot_cost cost = cost_of(&ot_attention_grad_info, attributes, types, 5);
  cost.repeated_flops = cost.matrix_flops / 5;
  return cost;
}

static int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

ot_attention_layout ot_attention_layout_of(ot_op_kind kind, const ot_op_attributes *attributes,
                                           const ot_tensor_type *qkv) {
  const bool backward = kind == OT_OP_ATTENTION_GRAD;
  const int64_t T = attributes->sequence_length;
  const int64_t groups = qkv->dim[0] / T * attributes->num_kv_heads;
  const int64_t tiles = (T + OT_ATTENTION_QUERIES - 1) / OT_ATTENTION_QUERIES *
                        (attributes->num_heads / attributes->num_kv_heads);
  const int64_t wanted =
      backward ? BACKWARD_UNITS_LEAST : (int64_t)attributes->threads * UNITS_A_THREAD;
  const int64_t parts = (wanted + groups - 1) / groups;
  const int64_t width =
      round_up(attributes->head_dim, VECTOR_BYTES / ot_dtype_bytes(attributes->compute));
  ot_attention_layout layout = {
      .parts = parts < tiles ? parts : tiles, .keys = round_up(T, KEY_UNIT), .width = width};
  layout.units = groups * layout.parts;
  const int64_t sequences = layout.keys * width;
  const int64_t tile = OT_ATTENTION_QUERIES * width;
  const int64_t scores = OT_ATTENTION_QUERIES * OT_ATTENTION_KEYS;
  // forward: k, v; q and o transposed; scores.
  // backward: k, v, dk, dv; q, do, each also transposed, and dq transposed; p, ds.
  layout.slot =
      backward ? 4 * sequences + 5 * tile + 2 * scores : 2 * sequences + 2 * tile + scores;
  layout.partial = backward && layout.parts > 1 ? 2 * sequences : 0;
  layout.maxima = attributes->threads * layout.slot + layout.units * layout.partial;
  layout.elements = layout.maxima + (backward ? 0 : round_up(layout.units * 2, 16));
  return layout;
}

static int64_t attention_workspace(const ot_op_attributes *attributes, const ot_op_types *types) {
  return ot_attention_layout_of(OT_OP_ATTENTION, attributes, &types->in[0]).elements *
         ot_dtype_bytes(attributes->compute);
}

static int64_t attention_grad_workspace(const ot_op_attributes *attributes,
                                        const ot_op_types *types) {
  return ot_attention_layout_of(OT_OP_ATTENTION_GRAD, attributes, &types->in[1]).elements *
         ot_dtype_bytes(attributes->compute);
}

const ot_op_info ot_attention_info = {
    .name = "attention",
    .num_inputs = 3,
    .num_outputs = 3,
    .optional_inputs = 1u << 1 | 1u << 2,
    .optional_outputs = 1u << 2,
    .effect_outputs = 1u << 2,
    .class = OT_CLASS_PURE,
    .infer = attention_infer,
    .cost = attention_cost,
    .workspace = attention_workspace,
    .num_vjp_steps = 1,
    .vjp = {{.op = OT_OP_ATTENTION_GRAD,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_DOUTPUT, 0},
                    {OT_REF_INPUT, 0},
                    {OT_REF_INPUT, 1},
                    {OT_REF_INPUT, 2},
                    {OT_REF_OUTPUT, 0},
                    {OT_REF_OUTPUT, 1}},
             .out = {{OT_REF_DINPUT, 0}}}},
};

const ot_op_info ot_attention_grad_info = {
    .name = "attention_grad",
    .num_inputs = 6,
    .num_outputs = 1,
    .optional_inputs = 1u << 2 | 1u << 3,
    .class = OT_CLASS_PURE,
    .infer = attention_grad_infer,
    .cost = attention_grad_cost,
    .workspace = attention_grad_workspace,
};
