// SPDX-License-Identifier: Apache-2.0
// Multi-head latent attention (DeepSeek-AI 2024, DeepSeek-V2, sec. 2.1) around the attention of
// attention.h: a head has N elements without and P with rotation, D = N + P. Keys and values of all
// heads are projected from K latent dims per token; all key heads share one rotated part of P.
//
// OT_OP_LATENT_SPLIT       x [R, K+P] -> latent [R, K], rotary [R, P]
// OT_OP_LATENT_JOIN        the inverse
// OT_OP_LATENT_HEADS       packed q|k|v with H heads of D each, as attention reads it
//   q [R, H*D], a head is N | P; kv [R, H*(N+V)], a head is N of its key | V of its value; rotary
//   [R, P], positions [R], table (rope.h) -> qkv [R, 3*H*D]: q N | rotated P, k N | rotated rotary,
//   v V | zeros. Input pairs that rotate together are (i, i + P/2), or (2i, 2i + 1) if interleaved;
//   output pairs are always (i, i + P/2).
// OT_OP_LATENT_HEADS_GRAD  dqkv -> dq, dkv, drotary (the sum over heads)
// OT_OP_VALUE_TRIM         o [R, H*D] -> y [R, H*V]
// OT_OP_VALUE_PAD          its gradient, padded with zeros after V
// OT_OP_APPEND_LATENT      cache [N, 16, K+P] receives latent | rotated rotary, like append_kv
// OT_OP_LATENT_DECODE      tokens against that cache, without keys in memory: with w [H*(N+V), K]
//   the projection to k and v, a score is (w_k^T q_N) . latent + q_P . rotary, and the output of a
//   head w_v times the mean of latents; slots 0 to positions[r] are visible, as in decode.h
// Attributes: num_heads, head_dim D, rotary_dim P, value_dim V, interleaved; scale (decode).
#pragma once

#include "ops/kernel.h"

extern const ot_op_info ot_latent_split_info;
extern const ot_op_info ot_latent_join_info;
extern const ot_op_info ot_latent_heads_info;
extern const ot_op_info ot_latent_heads_grad_info;
extern const ot_op_info ot_value_trim_info;
extern const ot_op_info ot_value_pad_info;
extern const ot_op_info ot_append_latent_info;
extern const ot_op_info ot_latent_decode_info;
