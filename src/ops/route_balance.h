// SPDX-License-Identifier: Apache-2.0
// What keeps experts equally busy. Of a sequence of T tokens with slots of k experts each, f_i =
// slots of expert i / (T k) and P_i = mean over tokens of p_i, where p is the softmax of the logits
// or the sigmoids divided by their sum. Balance is a matter of each sequence by itself (DeepSeek-AI
// 2024, sec. 2.1.2), so that neither micro-batch size nor the split over ranks changes a loss.
//
// OT_OP_ROUTE_COUNT  slots of each expert by sequence, dropped ones too. Row r is of sequence
//   (first_row + r) / sequence_length; the ranks of a sequence add their counts.
// OT_OP_ROUTE_LOSS   adds to the sums of the block (ot_expert_sum), each a mean over the tokens of
// the step:
//   E sum_i f_i P_i (Fedus et al. 2021), (log sum_i exp logits_i)^2 (Zoph et al. 2022), and of the
//   loads of the micro-batch's sequences, which are whole, the largest over the mean and the
//   entropy over ln E; of the slots of these rows the share dropped, and the rounds in which they
//   go to their experts (expert_exchange.h)
// OT_OP_ROUTE_LOSS_GRAD  dlogits = partial + aux_coefficient, z_coefficient times the gradients of
//   the first two; f has none
// OT_OP_ROUTE_LOAD   acc load [E] += slots of each expert, dropped ones too; real. A load in bf16
// is
//   rounded once a call: one above 256 has an error of up to a part in 512, and the mean of
//   OT_OP_ROUTE_BIAS has none
// OT_OP_ROUTE_BIAS   after a step: b += bias_rate sign(mean load - load) (Wang et al. 2024)
//   load [n] real, scalars f64 -> bias [n] real, master? [n] compute type, read and written as
//   weights are (optimizer.h); stats? [2]. The mean is of all experts, known from the number of
//   sequences. Nothing moves when the clip factor is not finite.
#pragma once

#include "ops/kernel.h"

extern const ot_op_info ot_route_count_info;
extern const ot_op_info ot_route_loss_info;
extern const ot_op_info ot_route_loss_grad_info;
extern const ot_op_info ot_route_load_info;
extern const ot_op_info ot_route_bias_info;

extern const ot_kernel_entry ot_route_balance_cpu_f32[];
extern const ot_kernel_entry ot_route_balance_cpu_f64[];
