// SPDX-License-Identifier: Apache-2.0
// The kernel tables of the *_cpu.c files, by compute type (real.h).
#pragma once

#include "ops/kernel.h"

extern const ot_kernel_entry ot_activation_cpu_f32[], ot_activation_cpu_f64[];
extern const ot_kernel_entry ot_attention_cpu_f32[], ot_attention_cpu_f64[];
extern const ot_kernel_entry ot_attention_grad_cpu_f32[], ot_attention_grad_cpu_f64[];
extern const ot_kernel_entry ot_checksum_cpu_f32[], ot_checksum_cpu_f64[];
extern const ot_kernel_entry ot_context_cpu_f32[], ot_context_cpu_f64[];
extern const ot_kernel_entry ot_decode_cpu_f32[], ot_decode_cpu_f64[];
extern const ot_kernel_entry ot_dispatch_cpu_f32[], ot_dispatch_cpu_f64[];
extern const ot_kernel_entry ot_dropout_cpu_f32[], ot_dropout_cpu_f64[];
extern const ot_kernel_entry ot_elementwise_cpu_f32[], ot_elementwise_cpu_f64[];
extern const ot_kernel_entry ot_embedding_cpu_f32[], ot_embedding_cpu_f64[];
extern const ot_kernel_entry ot_exchange_cpu_f32[], ot_exchange_cpu_f64[];
extern const ot_kernel_entry ot_expert_bias_cpu_f32[], ot_expert_bias_cpu_f64[];
extern const ot_kernel_entry ot_grouped_cpu_f32[], ot_grouped_cpu_f64[];
extern const ot_kernel_entry ot_head_cpu_f32[], ot_head_cpu_f64[];
extern const ot_kernel_entry ot_head_norm_cpu_f32[], ot_head_norm_cpu_f64[];
extern const ot_kernel_entry ot_head_parts_cpu_f32[], ot_head_parts_cpu_f64[];
extern const ot_kernel_entry ot_latent_cpu_f32[], ot_latent_cpu_f64[];
extern const ot_kernel_entry ot_latent_decode_cpu_f32[], ot_latent_decode_cpu_f64[];
extern const ot_kernel_entry ot_linear_cpu_f32[], ot_linear_cpu_f64[];
extern const ot_kernel_entry ot_muon_cpu_f32[], ot_muon_cpu_f64[];
extern const ot_kernel_entry ot_norm_cpu_f32[], ot_norm_cpu_f64[];
extern const ot_kernel_entry ot_optimizer_cpu_f32[], ot_optimizer_cpu_f64[];
extern const ot_kernel_entry ot_residual_cpu_f32[], ot_residual_cpu_f64[];
extern const ot_kernel_entry ot_rope_cpu_f32[], ot_rope_cpu_f64[];
extern const ot_kernel_entry ot_route_balance_cpu_f32[], ot_route_balance_cpu_f64[];
extern const ot_kernel_entry ot_route_cpu_f32[], ot_route_cpu_f64[];
