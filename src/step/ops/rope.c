// SPDX-License-Identifier: Apache-2.0
// Frequencies, shapes, cost and VJP of the rotary position embedding.
#include "ops/rope.h"

#include "base/math.h"
#include "ops/operands.h"

static const double two_pi = 6.283185307179586476925;

// Llama 3.1: wavelengths longer than the original context are multiplied by the factor, short ones
// kept, those between interpolated (transformers, modeling_rope_utils: _compute_llama3_parameters).
static double llama3_frequency(const ot_op_attributes *attributes, double frequency) {
  const double original = (double)attributes->rope_original_positions;
  const double low = attributes->rope_low_frequency_factor;
  const double high = attributes->rope_high_frequency_factor;
  const double wavelength = two_pi / frequency;
  const double stretched = frequency / attributes->rope_factor;
  if (wavelength > original / low) return stretched;
  if (wavelength < original / high) return frequency;
  const double blend = (original / wavelength - low) / (high - low);
  return (1 - blend) * stretched + blend * frequency;
}

// The (fractional) index of the pair with `turns` rotations within the original positions.
static double pair_with_turns(const ot_op_attributes *attributes, double turns) {
  const double original = (double)attributes->rope_original_positions;
  return (double)attributes->rotary_dim * ot_log(original / (turns * two_pi)) /
         (2 * ot_log(attributes->rope_theta));
}

static double whole_below(double x) {
  const double whole = (double)(int64_t)x;
  return whole > x ? whole - 1 : whole;
}

// YaRN (Peng et al. 2023, sec. 3.2): pairs of high frequency are kept, those of low frequency are
// interpolated, those between blended along a ramp over the pair index. The ends of the ramp are
// rounded to integers unless rope_exact_ramp is set (transformers, modeling_rope_utils:
// _compute_yarn_parameters).
static double yarn_frequency(const ot_op_attributes *attributes, double frequency, int64_t i) {
  const double last = (double)attributes->rotary_dim - 1;
  double low = pair_with_turns(attributes, attributes->rope_beta_fast);
  double high = pair_with_turns(attributes, attributes->rope_beta_slow);
  if (!attributes->rope_exact_ramp) {
    low = whole_below(low);
    high = -whole_below(-high);
  }
  low = low > 0 ? low : 0;
  high = high < last ? high : last;
  if (low == high) high += 0.001;
  double ramp = ((double)i - low) / (high - low);
  ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
  return frequency / attributes->rope_factor * ramp + frequency * (1 - ramp);
}

// The magnitude factor of yarn, for numerator and denominator.
static double yarn_growth(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * ot_log(factor) + 1;
}

double ot_rope_magnitude(const ot_op_attributes *attributes) {
  if (attributes->rope_type != OT_ROPE_YARN) return 1;
  const double factor = attributes->rope_factor;
  const bool both = attributes->rope_mscale > 0 && attributes->rope_mscale_all > 0;
  if (!both) return yarn_growth(factor, 1);
  return yarn_growth(factor, attributes->rope_mscale) /
         yarn_growth(factor, attributes->rope_mscale_all);
}

double ot_rope_frequency(const ot_op_attributes *attributes, int64_t i) {
  const double exponent = 2 * (double)i / (double)attributes->rotary_dim;
  const double frequency = 1 / ot_pow(attributes->rope_theta, exponent);
  switch (attributes->rope_type) {
    case OT_ROPE_DEFAULT:
      return frequency;
    case OT_ROPE_LINEAR:
      return frequency / attributes->rope_factor;
    case OT_ROPE_LLAMA3:
      return llama3_frequency(attributes, frequency);
    case OT_ROPE_YARN:
      return yarn_frequency(attributes, frequency, i);
  }
  OT_UNREACHABLE();
}

static ot_cost rope_table_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double elements = (double)ot_type_elements(&types->out[0]);
  return ot_cost_of_traffic(&ot_rope_table_info, attributes, types, 20 * elements);
}

ot_status ot_rope_check(const char *op, const ot_op_attributes *attributes, int64_t rows,
                        const ot_tensor_type *positions, const ot_tensor_type *table) {
  const int64_t rotary_dim = attributes->rotary_dim;
  OT_CHECK(rotary_dim > 0 && rotary_dim % 2 == 0 && rotary_dim <= attributes->head_dim, OT_BUG,
           "%s: rotary_dim is %lld, expected an even number up to head_dim %lld", op,
           (long long)rotary_dim, (long long)attributes->head_dim);
  OT_TRY(ot_operand_check(positions, (ot_expected){op, "positions", OT_I32, 1, {rows}}));
  return ot_operand_check(
      table, (ot_expected){op, "table", (int)attributes->compute, 3, {0, rotary_dim / 2, 2}});
}

static ot_status check_rotation(const char *op, const ot_op_attributes *attributes,
                                ot_op_types *types, const char *first) {
  const int64_t width =
      (attributes->num_heads + 2 * attributes->num_kv_heads) * attributes->head_dim;
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, first, OT_ANY_REAL, 2, {0, width}}));
  types->out[0] = types->in[0];
  return ot_rope_check(op, attributes, types->in[0].dim[0], &types->in[1], &types->in[2]);
}

static ot_status rope_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  return check_rotation("rope", attributes, types, "qkv");
}

// One table row is read per token; in place, only rotated elements are accessed.
static ot_cost rope_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double rows = (double)types->in[0].dim[0];
  const double heads = (double)(attributes->num_heads + attributes->num_kv_heads);
  const double rotated = rows * heads * (double)attributes->rotary_dim;
  const double bytes = (double)ot_type_bytes(&types->in[0]);
  return (ot_cost){
      .other_flops = 3 * rotated,
      .bytes_read = bytes + (double)ot_type_bytes(&types->in[1]) +
                    rows * (double)(attributes->rotary_dim * ot_dtype_bytes(attributes->compute)),
      .bytes_written = bytes,
  };
}

static ot_status rope_grad_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  return check_rotation("rope_grad", attributes, types, "dy");
}

const ot_op_info ot_rope_table_info = {
    .name = "rope_table",
    .num_outputs = 1,
    .cost_kind = OT_COST_PASS,
    .cost = rope_table_cost,
};

const ot_op_info ot_rope_info = {
    .name = "rope",
    .num_inputs = 3,
    .num_outputs = 1,
    .cost_kind = OT_COST_PASS,
    .in_place = 1u << 0,
    .cheap = true,
    .infer = rope_infer,
    .cost = rope_cost,
    .num_vjp_steps = 1,
    .vjp = {{.op = OT_OP_ROPE_GRAD,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_DOUTPUT, 0}, {OT_REF_INPUT, 1}, {OT_REF_INPUT, 2}},
             .out = {{OT_REF_DINPUT, 0}}}},
};

const ot_op_info ot_rope_grad_info = {
    .name = "rope_grad",
    .num_inputs = 3,
    .num_outputs = 1,
    .cost_kind = OT_COST_PASS,
    .in_place = 1u << 0,
    .infer = rope_grad_infer,
    .cost = rope_cost,
};
