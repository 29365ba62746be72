// SPDX-License-Identifier: Apache-2.0
// The kernel tables of the .cu files.
#pragma once

#include "ops/kernel.h"

extern const ot_kernel_entry ot_activation_cuda_f32[], ot_activation_cuda_f64[];
extern const ot_kernel_entry ot_attention_cuda_f32[], ot_attention_cuda_f64[];
extern const ot_kernel_entry ot_attention_grad_cuda_f32[], ot_attention_grad_cuda_f64[];
extern const ot_kernel_entry ot_checksum_cuda_f32[], ot_checksum_cuda_f64[];
extern const ot_kernel_entry ot_context_cuda_f32[], ot_context_cuda_f64[];
extern const ot_kernel_entry ot_decode_cuda_f32[], ot_decode_cuda_f64[];
extern const ot_kernel_entry ot_dispatch_cuda_f32[], ot_dispatch_cuda_f64[];
extern const ot_kernel_entry ot_dropout_cuda_f32[], ot_dropout_cuda_f64[];
extern const ot_kernel_entry ot_elementwise_cuda_f32[], ot_elementwise_cuda_f64[];
extern const ot_kernel_entry ot_embedding_cuda_f32[], ot_embedding_cuda_f64[];
extern const ot_kernel_entry ot_exchange_cuda_f32[], ot_exchange_cuda_f64[];
extern const ot_kernel_entry ot_expert_bias_cuda_f32[], ot_expert_bias_cuda_f64[];
extern const ot_kernel_entry ot_grouped_cuda_f32[], ot_grouped_cuda_f64[];
extern const ot_kernel_entry ot_head_cuda_f32[], ot_head_cuda_f64[];
extern const ot_kernel_entry ot_head_norm_cuda_f32[], ot_head_norm_cuda_f64[];
extern const ot_kernel_entry ot_head_parts_cuda_f32[], ot_head_parts_cuda_f64[];
extern const ot_kernel_entry ot_latent_cuda_f32[], ot_latent_cuda_f64[];
extern const ot_kernel_entry ot_latent_decode_cuda_f32[], ot_latent_decode_cuda_f64[];
extern const ot_kernel_entry ot_linear_cuda_f32[], ot_linear_cuda_f64[];
extern const ot_kernel_entry ot_muon_cuda_f32[], ot_muon_cuda_f64[];
extern const ot_kernel_entry ot_norm_cuda_f32[], ot_norm_cuda_f64[];
extern const ot_kernel_entry ot_optimizer_cuda_f32[], ot_optimizer_cuda_f64[];
extern const ot_joined_entry ot_optimizer_cuda_joined[];
extern const ot_kernel_entry ot_residual_cuda_f32[], ot_residual_cuda_f64[];
extern const ot_kernel_entry ot_rope_cuda_f32[], ot_rope_cuda_f64[];
extern const ot_kernel_entry ot_route_cuda_f32[], ot_route_cuda_f64[];
extern const ot_kernel_entry ot_route_balance_cuda_f32[], ot_route_balance_cuda_f64[];

// False if none was compiled for the GPU that is bound.
bool ot_cuda_has_kernels(void);
