// SPDX-License-Identifier: Apache-2.0
// Orthant as an engine, and consistency checks of engines.
#include "describe/engine.h"

#include <stddef.h>

#include "describe/recompute_modules.h"

const char *const ot_software_names[OT_SOFTWARES + 1] = {
    "none", "megatron", "torchtitan", "deepspeed", "nanotron", NULL,
};

// Everything in one pass, planned memory, collectives of comm/. The head ops choose how many
// tokens' logits exist at once.
const ot_engine ot_engine_orthant = {
    .name = "orthant",
    .kernels = {.attention = OT_ATTENTION_FLASH_2,
                .pass_factor = 1,
                .loss_bytes = 8,
                .cast_bytes = 3,
                .host_ops = 0.1,
                .host_ahead = true,
                .fused_accumulation = true,
                .fused_sums = true,
                .switch_reductions = true,
                .relays = true},
    .recipe = "bf16",
    .runs = {.modules = {OT_RECOMPUTE_MODULES, ot_recompute_module_names}},
    .chunked_loss = true,
    .sequence_parallel = true,
    .health_metrics = true,
    .overlap_reduce = true,
    .overlap_gather = true,
    .overlap_tensor = OT_TENSOR_OVERLAP_KERNELS,
    .overlap_pipeline = OT_PIPELINE_OVERLAP_ALL,
    .reduce_each_micro_batch = true,
    .reshard_after_forward = true,
    .context_bytes = 2500000000,
};

const ot_kernel_style *ot_engine_style(const ot_engine *engine, const ot_device_kind *device) {
  const bool own = engine == &ot_engine_orthant && ot_device_is_host(device);
  return own ? NULL : &engine->kernels;
}

int64_t ot_engine_context_bytes(const ot_engine *engine, const ot_device_kind *device) {
  return ot_device_is_host(device) ? 0 : engine->context_bytes;
}

bool ot_engine_pairs(const ot_engine *engine) {
  return engine->overlap_pairs || engine->overlap_expert;
}

// The effect of compiled blocks and captured graphs on eager modules, for all frameworks: passes
// are fused, and Python does not dispatch each of them.
static void set_dispatch(const ot_engine_options *o, ot_engine *engine) {
  static const double compiled_ops = 0.5, captured_ops = 0.1, eager_passes = 1.6;
  ot_kernel_style *const k = &engine->kernels;
  if (o->compiled == OT_SWITCH_ON) k->pass_factor = 1;
  if (o->compiled == OT_SWITCH_ON && k->host_ops > compiled_ops) k->host_ops = compiled_ops;
  if (o->compiled == OT_SWITCH_OFF && k->pass_factor < eager_passes) {
    k->pass_factor = eager_passes;
    k->host_ops = 1;
    engine->drops_elementwise = false;
  }
  if (o->captured == OT_SWITCH_ON && k->host_ops > captured_ops) k->host_ops = captured_ops;
  if (o->captured == OT_SWITCH_OFF && k->host_ops < compiled_ops) k->host_ops = compiled_ops;
}

static void set_switch(ot_switch given, bool *value) {
  if (given != OT_SWITCH_OPEN) *value = given == OT_SWITCH_ON;
}

static void set_tensor_overlap(const ot_engine_options *o, ot_engine *engine) {
  const bool backward = o->backward_tp == OT_SWITCH_ON;
  if (o->async_tp == OT_SWITCH_ON) engine->overlap_tensor = OT_TENSOR_OVERLAP_PIECES;
  if (o->async_tp != OT_SWITCH_OFF) return;
  engine->overlap_tensor = backward ? OT_TENSOR_OVERLAP_BACKWARD : OT_TENSOR_OVERLAP_NONE;
}

void ot_engine_apply(const ot_engine_options *o, ot_engine *engine) {
  static const double fused_bytes = 10;
  ot_kernel_style *const k = &engine->kernels;
  set_dispatch(o, engine);
  set_tensor_overlap(o, engine);
  if (o->fused_loss == OT_SWITCH_ON && k->loss_bytes > fused_bytes) k->loss_bytes = fused_bytes;
  set_switch(o->fused_accumulation, &k->fused_accumulation);
  set_switch(o->fp8_attention, &k->fp8_attention);
  set_switch(o->fp8_activation_inputs, &engine->fp8_activation_inputs);
  set_switch(o->overlap_reduce, &engine->overlap_reduce);
  set_switch(o->overlap_gather, &engine->overlap_gather);
  set_switch(o->overlap_update_gather, &engine->overlap_update_gather);
  set_switch(o->overlap_expert, &engine->overlap_expert);
  if (o->overlap_pipeline == OT_SWITCH_ON) engine->overlap_pipeline = OT_PIPELINE_OVERLAP_CHUNKS;
  if (o->overlap_pipeline == OT_SWITCH_OFF) engine->overlap_pipeline = OT_PIPELINE_OVERLAP_NONE;
  if (o->fused_dispatch == OT_SWITCH_ON) engine->sorts_received = engine->sends_copies = false;
  if (o->fused_dispatch == OT_SWITCH_OFF) engine->sends_copies = true;
  if (o->attention > 0) k->attention = (ot_attention_kernel)(o->attention - 1);
  if (o->bucket_bytes > 0) engine->bucket_bytes = o->bucket_bytes;
  if (o->live_elements > 0) engine->live_elements = o->live_elements - 1;
  if (o->selective_share > 0) engine->selective_share = o->selective_share;
}

ot_status ot_engine_check(const ot_engine *engine) {
  OT_CHECK(engine->kernels.pass_factor >= 1, OT_USAGE,
           "engine %s: pass_factor=%g; allowed: at least 1", engine->name,
           engine->kernels.pass_factor);
  OT_CHECK(engine->loss_rows >= 0, OT_USAGE, "engine %s: loss_rows=%lld; allowed: at least 0",
           engine->name, (long long)engine->loss_rows);
  OT_CHECK(engine->allocator_slack >= 0 && engine->allocator_slack < 1, OT_USAGE,
           "engine %s: allocator_slack=%g; allowed: at least 0, below 1", engine->name,
           engine->allocator_slack);
  return ot_abilities_check(&engine->runs, engine->name);
}
