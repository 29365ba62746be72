// SPDX-License-Identifier: Apache-2.0
// Biases of the experts' down projection. Each is multiplied by the gate of its token, like the
// GEMM output, and so can be added at the token: no rank needs the sources of its experts' rows,
// and every rank holds the biases of all experts.
//
// OT_OP_EXPERT_BIAS     y[r] = addend[r] + sum over slots j of gates[r, j] * bias[experts[r, j]]
//   gates [R, S] compute type, experts [R, S] i32, bias [E*C] real, addend? [R, C] real
//   -> y [R, C] stored like the addend, without one like the bias; may be the addend. A slot that
//   was dropped (experts < 0: route.h) adds nothing.
// OT_OP_EXPERT_BIAS_DX  dgates[r, j] = partial[r, j] + dy[r] . bias[experts[r, j]]
//   dy [R, C], experts, bias, partial? [R, S] compute type -> dgates [R, S] compute type
// OT_OP_EXPERT_BIAS_DW  acc dbias[e] = sum over slots of e of gates[r, j] dy[r], rows in their
// order
//   dy, gates, experts -> dbias [E*C] real
// attributes: threads, num_experts (E).
#pragma once

#include "ops/kernel.h"

extern const ot_op_info ot_expert_bias_info;
extern const ot_op_info ot_expert_bias_dx_info;
extern const ot_op_info ot_expert_bias_dw_info;
