// SPDX-License-Identifier: Apache-2.0
// The linked kernel tables, one entry per kernel file. They are searched when an executor is
// created, never during a step, so a linear search is fast enough.
#include "kernels/kernels.h"

#include <stddef.h>

#include "kernels/cpu_tables.h"

static const ot_kernel_entry *const cpu_f32[] = {
    ot_activation_cpu_f32, ot_attention_cpu_f32,     ot_attention_grad_cpu_f32,
    ot_checksum_cpu_f32,   ot_context_cpu_f32,       ot_dropout_cpu_f32,
    ot_decode_cpu_f32,     ot_dispatch_cpu_f32,      ot_elementwise_cpu_f32,
    ot_embedding_cpu_f32,  ot_exchange_cpu_f32,      ot_expert_bias_cpu_f32,
    ot_grouped_cpu_f32,    ot_head_cpu_f32,          ot_head_norm_cpu_f32,
    ot_head_parts_cpu_f32, ot_latent_cpu_f32,        ot_latent_decode_cpu_f32,
    ot_linear_cpu_f32,     ot_muon_cpu_f32,          ot_norm_cpu_f32,
    ot_optimizer_cpu_f32,  ot_residual_cpu_f32,      ot_rope_cpu_f32,
    ot_route_cpu_f32,      ot_route_balance_cpu_f32, NULL,
};

static const ot_kernel_entry *const cpu_f64[] = {
    ot_activation_cpu_f64, ot_attention_cpu_f64,     ot_attention_grad_cpu_f64,
    ot_checksum_cpu_f64,   ot_context_cpu_f64,       ot_dropout_cpu_f64,
    ot_decode_cpu_f64,     ot_dispatch_cpu_f64,      ot_elementwise_cpu_f64,
    ot_embedding_cpu_f64,  ot_exchange_cpu_f64,      ot_expert_bias_cpu_f64,
    ot_grouped_cpu_f64,    ot_head_cpu_f64,          ot_head_norm_cpu_f64,
    ot_head_parts_cpu_f64, ot_latent_cpu_f64,        ot_latent_decode_cpu_f64,
    ot_linear_cpu_f64,     ot_muon_cpu_f64,          ot_norm_cpu_f64,
    ot_optimizer_cpu_f64,  ot_residual_cpu_f64,      ot_rope_cpu_f64,
    ot_route_cpu_f64,      ot_route_balance_cpu_f64, NULL,
};

static const ot_kernel_backend cpu = {.f32 = cpu_f32, .f64 = cpu_f64};

static const ot_kernel_backend *backend_of(ot_backend backend) {
  return backend == OT_BACKEND_CPU ? &cpu : ot_kernels_cuda;
}

ot_kernel ot_kernel_find(ot_backend backend, ot_op_kind kind, ot_dtype compute) {
  const ot_kernel_backend *const found = backend_of(backend);
  if (!found || (compute != OT_F32 && compute != OT_F64)) return NULL;
  const ot_kernel_entry *const *tables = compute == OT_F64 ? found->f64 : found->f32;
  for (; *tables; tables++) {
    for (const ot_kernel_entry *entry = *tables; entry->run; entry++) {
      if (entry->kind == kind) return entry->run;
    }
  }
  return NULL;
}

ot_joined_kernel ot_kernel_find_joined(ot_backend backend, ot_op_kind kind, ot_dtype compute) {
  const ot_kernel_backend *const found = backend_of(backend);
  if (!found || (compute != OT_F32 && compute != OT_F64)) return NULL;
  for (const ot_joined_entry *entry = found->joined; entry && entry->f32; entry++) {
    if (entry->kind == kind) return compute == OT_F64 ? entry->f64 : entry->f32;
  }
  return NULL;
}

void ot_kernel_sum_ranks(void *stream, const ot_rank_sum *job) {
  ot_kernels_cuda->sum_ranks(stream, job);
}

void ot_kernel_draw_initial(ot_backend backend, void *stream, int threads,
                            const ot_initial_draw *draw, void *arena) {
  const ot_kernel_backend *const found = backend_of(backend);
  if (found->draw_initial) {
    found->draw_initial(stream, draw, arena);
  } else {
    ot_initial_draw_cpu(draw, threads, arena);
  }
}

const char *ot_kernel_refuses(ot_backend backend, ot_op_kind kind,
                              const ot_op_attributes *attributes) {
  const ot_kernel_backend *const found = backend_of(backend);
  return found && found->refuses ? found->refuses(kind, attributes) : NULL;
}

bool ot_kernel_fits_device(ot_backend backend) {
  const ot_kernel_backend *const found = backend_of(backend);
  return found && (!found->fits || found->fits());
}

ot_status ot_kernel_context_create(ot_backend backend, void *stream, void **context) {
  const ot_kernel_backend *const found = backend_of(backend);
  *context = NULL;
  return found && found->open ? found->open(stream, context) : OT_OK;
}

void ot_kernel_context_destroy(ot_backend backend, void **context) {
  const ot_kernel_backend *const found = backend_of(backend);
  if (*context && found && found->close) found->close(*context);
  *context = NULL;
}

const char *ot_kernel_algorithms_print(ot_backend backend, const void *context, ot_arena *arena) {
  const ot_kernel_backend *const found = backend_of(backend);
  return found && found->print_algorithms ? found->print_algorithms(context, arena) : NULL;
}

const char *ot_kernel_algorithms_read(ot_backend backend, void *context, const char *text,
                                      ot_arena *arena) {
  const ot_kernel_backend *const found = backend_of(backend);
  return found && found->read_algorithms ? found->read_algorithms(context, text, arena) : NULL;
}

void ot_kernel_algorithms_refused(ot_backend backend, const void *context, int *own,
                                  int *replaced) {
  const ot_kernel_backend *const found = backend_of(backend);
  *own = *replaced = 0;
  if (found && found->count_refusals) found->count_refusals(context, own, replaced);
}

const char *ot_kernel_algorithms_race(ot_backend backend, void *context, int repeats,
                                      ot_arena *arena) {
  const ot_kernel_backend *const found = backend_of(backend);
  return found && found->race_algorithms ? found->race_algorithms(context, repeats, arena) : NULL;
}
