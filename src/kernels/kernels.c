// SPDX-License-Identifier: Apache-2.0
// The linked kernel tables, one entry per kernel file. They are searched when an executor is
// created, never during a step, so a linear search is fast enough.
#include "kernels/kernels.h"

#include <stddef.h>

#include "ops/activation.h"
#include "ops/attention.h"
#include "ops/context.h"
#include "ops/decode.h"
#include "ops/dispatch.h"
#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/expert_bias.h"
#include "ops/expert_exchange.h"
#include "ops/grouped.h"
#include "ops/head.h"
#include "ops/head_norm.h"
#include "ops/head_parts.h"
#include "ops/latent.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/optimizer.h"
#include "ops/residual.h"
#include "ops/rope.h"
#include "ops/route.h"
#include "ops/route_balance.h"

// Each table is declared in the header of its operators.
typedef struct kernel_tables {
  const ot_kernel_entry *f32, *f64;
} kernel_tables;

static const kernel_tables files[] = {
    {ot_activation_cpu_f32, ot_activation_cpu_f64},
    {ot_attention_cpu_f32, ot_attention_cpu_f64},
    {ot_attention_grad_cpu_f32, ot_attention_grad_cpu_f64},
    {ot_context_cpu_f32, ot_context_cpu_f64},
    {ot_dropout_cpu_f32, ot_dropout_cpu_f64},
    {ot_decode_cpu_f32, ot_decode_cpu_f64},
    {ot_dispatch_cpu_f32, ot_dispatch_cpu_f64},
    {ot_elementwise_cpu_f32, ot_elementwise_cpu_f64},
    {ot_embedding_cpu_f32, ot_embedding_cpu_f64},
    {ot_exchange_cpu_f32, ot_exchange_cpu_f64},
    {ot_expert_bias_cpu_f32, ot_expert_bias_cpu_f64},
    {ot_grouped_cpu_f32, ot_grouped_cpu_f64},
    {ot_head_cpu_f32, ot_head_cpu_f64},
    {ot_head_norm_cpu_f32, ot_head_norm_cpu_f64},
    {ot_head_parts_cpu_f32, ot_head_parts_cpu_f64},
    {ot_latent_cpu_f32, ot_latent_cpu_f64},
    {ot_latent_decode_cpu_f32, ot_latent_decode_cpu_f64},
    {ot_linear_cpu_f32, ot_linear_cpu_f64},
    {ot_muon_cpu_f32, ot_muon_cpu_f64},
    {ot_norm_cpu_f32, ot_norm_cpu_f64},
    {ot_optimizer_cpu_f32, ot_optimizer_cpu_f64},
    {ot_residual_cpu_f32, ot_residual_cpu_f64},
    {ot_rope_cpu_f32, ot_rope_cpu_f64},
    {ot_route_cpu_f32, ot_route_cpu_f64},
    {ot_route_balance_cpu_f32, ot_route_balance_cpu_f64},
};

ot_kernel ot_kernel_cpu(ot_op_kind kind, ot_dtype compute) {
  if (compute != OT_F32 && compute != OT_F64) return NULL;
  for (int i = 0; i < (int)(sizeof files / sizeof files[0]); i++) {
    const ot_kernel_entry *entry = compute == OT_F64 ? files[i].f64 : files[i].f32;
    for (; entry->run; entry++) {
      if (entry->kind == kind) return entry->run;
    }
  }
  return NULL;
}
