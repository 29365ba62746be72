// SPDX-License-Identifier: Apache-2.0
// Orthant as an engine, and consistency checks of engines.
#include "describe/engine.h"

#include <stddef.h>

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
