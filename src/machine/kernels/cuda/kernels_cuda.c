// SPDX-License-Identifier: Apache-2.0
// The CUDA back end of kernels.h.
#include <stdlib.h>
#include <string.h>

#include "base/backend_rules.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/tables.h"
#include "kernels/kernels.h"

static const ot_kernel_entry *const f32[] = {
    ot_activation_cuda_f32, ot_attention_cuda_f32,     ot_attention_grad_cuda_f32,
    ot_checksum_cuda_f32,   ot_context_cuda_f32,       ot_decode_cuda_f32,
    ot_dispatch_cuda_f32,   ot_dropout_cuda_f32,       ot_elementwise_cuda_f32,
    ot_embedding_cuda_f32,  ot_exchange_cuda_f32,      ot_expert_bias_cuda_f32,
    ot_grouped_cuda_f32,    ot_head_cuda_f32,          ot_head_norm_cuda_f32,
    ot_head_parts_cuda_f32, ot_latent_cuda_f32,        ot_latent_decode_cuda_f32,
    ot_linear_cuda_f32,     ot_muon_cuda_f32,          ot_norm_cuda_f32,
    ot_optimizer_cuda_f32,  ot_residual_cuda_f32,      ot_rope_cuda_f32,
    ot_route_cuda_f32,      ot_route_balance_cuda_f32, NULL,
};

static const ot_kernel_entry *const f64[] = {
    ot_activation_cuda_f64, ot_attention_cuda_f64,     ot_attention_grad_cuda_f64,
    ot_checksum_cuda_f64,   ot_context_cuda_f64,       ot_decode_cuda_f64,
    ot_dispatch_cuda_f64,   ot_dropout_cuda_f64,       ot_elementwise_cuda_f64,
    ot_embedding_cuda_f64,  ot_exchange_cuda_f64,      ot_expert_bias_cuda_f64,
    ot_grouped_cuda_f64,    ot_head_cuda_f64,          ot_head_norm_cuda_f64,
    ot_head_parts_cuda_f64, ot_latent_cuda_f64,        ot_latent_decode_cuda_f64,
    ot_linear_cuda_f64,     ot_muon_cuda_f64,          ot_norm_cuda_f64,
    ot_optimizer_cuda_f64,  ot_residual_cuda_f64,      ot_rope_cuda_f64,
    ot_route_cuda_f64,      ot_route_balance_cuda_f64, NULL,
};

// As wide as the widest instances of attention.cu and attention_grad.cu (ot_for_head_dim).
static const char *refuses(ot_op_kind kind, const ot_op_attributes *attributes) {
  const bool attends = kind == OT_OP_ATTENTION || kind == OT_OP_ATTENTION_GRAD ||
                       kind == OT_OP_ATTENTION_BLOCK || kind == OT_OP_ATTENTION_BLOCK_GRAD;
  return attends && attributes->head_dim > ot_backend_rules_of(OT_BACKEND_CUDA)->widest_head
             ? "attention on a GPU takes heads of at most 256"
             : NULL;
}

static void close_context(void *context) {
  ot_cuda_context *const c = context;
  ot_cuda_matmul_destroy(&c->matmul);
  free(c);
}

// The kernels for Hopper run where the GPU and the driver have what they need, unless
// OT_ATTENTION=mma; OT_ATTENTION=hopper insists on them.
static ot_status choose_attention(ot_tensor_map_encode *encode) {
  const char *const choice = getenv("OT_ATTENTION");
  const bool hopper = choice && strcmp(choice, "hopper") == 0;
  const bool mma = choice && strcmp(choice, "mma") == 0;
  OT_CHECK(!choice || hopper || mma, OT_ENVIRONMENT,
           "OT_ATTENTION is %s, must be hopper (default where the GPU has it) or mma", choice);
  *encode = mma ? NULL : ot_tensor_map_encoder();
  OT_CHECK(
      !hopper || *encode, OT_ENVIRONMENT,
      "OT_ATTENTION is hopper, but the GPU is not one of compute capability 9.0, or its driver "
      "is older than CUDA 12 (try mma)");
  return OT_OK;
}

static ot_status open_context(void *stream, void **context) {
  ot_cuda_context *const made = calloc(1, sizeof *made);
  OT_CHECK(made, OT_ENVIRONMENT, "kernels: out of memory");
  made->stream = stream;
  ot_status status = choose_attention(&made->encode);
  if (status == OT_OK) status = ot_cuda_matmul_create(&made->matmul);
  if (status != OT_OK) close_context(made);
  *context = status == OT_OK ? made : NULL;
  return status;
}

static const char *print_algorithms(const void *context, ot_arena *arena) {
  const ot_cuda_context *const c = context;
  return ot_cuda_matmul_print(c->matmul, arena);
}

static const char *read_algorithms(void *context, const char *text, ot_arena *arena) {
  const ot_cuda_context *const c = context;
  return ot_cuda_matmul_read(c->matmul, text, arena);
}

static void count_refusals(const void *context, int *own, int *replaced) {
  const ot_cuda_context *const c = context;
  ot_cuda_matmul_refusals(c->matmul, own, replaced);
}

static const char *race_algorithms(void *context, int repeats, ot_arena *arena) {
  const ot_cuda_context *const c = context;
  return ot_cuda_matmul_race(c->matmul, c->stream, repeats, arena);
}

static const ot_kernel_backend backend = {
    .f32 = f32,
    .f64 = f64,
    .joined = ot_optimizer_cuda_joined,
    .fits = ot_cuda_has_kernels,
    .refuses = refuses,
    .open = open_context,
    .close = close_context,
    .print_algorithms = print_algorithms,
    .read_algorithms = read_algorithms,
    .count_refusals = count_refusals,
    .race_algorithms = race_algorithms,
    .sum_ranks = ot_rank_sum_cuda,
    .draw_initial = ot_initial_draw_cuda,
};

const ot_kernel_backend *const ot_kernels_cuda = &backend;
