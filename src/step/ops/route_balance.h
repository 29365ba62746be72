// SPDX-License-Identifier: Apache-2.0
// Load balancing of experts. For a sequence of T tokens with k slots each, f_i = slots of expert i
// / (T k) and P_i = mean over tokens of p_i, where p is the softmax of the logits or the normalised
// sigmoids. The loss is per sequence (DeepSeek-AI 2024, sec. 2.1.2), so that it is independent of
// micro-batch size and sharding.
//
// OT_OP_ROUTE_COUNT  slots of each expert per sequence, including dropped ones. Row r belongs to
//   sequence (first_row + r) / sequence_length; the ranks of a sequence reduce their counts.
// OT_OP_ROUTE_LOSS   adds to the statistics of the block (ot_expert_sum), means over the tokens of
//   the step: E sum_i f_i P_i (Fedus et al. 2021), (log sum_i exp logits_i)^2 (Zoph et al. 2022);
//   over the whole sequences of the micro-batch the maximum load over the mean, and the entropy of
//   the loads over ln E; of the slots of these rows the dropped share, and the passes of the
//   all-to-all-v (expert_exchange.h)
// OT_OP_ROUTE_LOSS_GRAD  dlogits = partial + aux_coefficient, z_coefficient times the gradients of
//   the first two; f has none
// OT_OP_ROUTE_LOAD   acc load [E] += slots of each expert, including dropped ones; real. A load in
//   bf16 is rounded once per call: one above 256 has an error of up to 1/512, and the mean of
//   OT_OP_ROUTE_BIAS has none
// OT_OP_ROUTE_BIAS   after a step: b += bias_rate sign(mean load - load) (Wang et al. 2024)
//   load [n] real, scalars f64 -> bias [n] real, master? [n] compute type, read and written like
//   weights (optimizer.h); stats? [2]. The mean is over all experts, from the number of sequences.
//   The bias is unchanged when the clip factor is not finite.
#pragma once

#include "ops/kernel.h"

extern const ot_op_info ot_route_count_info;
extern const ot_op_info ot_route_loss_info;
extern const ot_op_info ot_route_loss_grad_info;
extern const ot_op_info ot_route_load_info;
extern const ot_op_info ot_route_bias_info;
