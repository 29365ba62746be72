// SPDX-License-Identifier: Apache-2.0
// Which software ran a row: the one table from what a source calls itself to an engine. Earlier
// lines win. Below the published sources stand words that name software by themselves, for sources
// that are not known here; a row that mentions none of them is told by how it is split.
#include <stddef.h>

#include "published_job.h"

static const struct {
  const char *word;    // in the source's name
  const char *engine;  // describe/engine.h
} engines[] = {
    // sources
    {"SC21", "megatron-2021"},
    {"Jan-2021", "megatron-2021"},
    {"Reducing Activation Recomputation", "megatron-2022"},
    {"Megatron-LM examples/llama", "megatron-core"},
    {"vTrain", "megatron-deepspeed"},
    {"BLOOM", "megatron-deepspeed-blocking"},
    {"MT-NLG", "megatron-deepspeed"},
    {"Frontier", "megatron-deepspeed"},
    {"MosaicML", "fsdp"},
    {"LLaMA-1", "fsdp"},
    {"TinyLlama", "fsdp"},
    {"torchtitan", "torchtitan"},
    {"NeMo long-sequence", "megatron-core"},
    {"MLPerf Training v3", "megatron-core"},
    {"Megatron-Bridge", "megatron-bridge"},
    {"Megatron-MoE-ModelZoo", "megatron-bridge"},
    {"MaxText", "jax"},
    {"tpu-recipes", "jax"},
    {"JAX-Toolbox", "jax"},
    {"PaLM", "jax"},
    {"nanotron", "nanotron"},
    {"llmq", "llmq"},
    {"OneFlow", "oneflow"},
    {"ColossalAI", "deepspeed"},
    {"stas00", "deepspeed"},
    // words
    {"Megatron-DeepSpeed", "megatron-deepspeed"},
    {"DeepSpeed", "deepspeed"},
    {"llm-foundry", "fsdp"},
    {"titan", "torchtitan"},
    {"FSDP", "fsdp"},
    {"JAX", "jax"},
    {"TPU", "jax"},
    {"NeMo", "megatron-core"},
    {"MLPerf", "megatron-core"},
    {"Megatron-Core", "megatron-core"},
    {"Megatron", "megatron-core"},
};

// Weights cut over all of dp and no other split is what FSDP does; the rest is Megatron's.
static const char *engine_by_split(const ot_published_row *row) {
  if (ot_published_mentions(row->gpu.name, "TPU")) return "jax";
  if (row->zero == 3) return row->tp > 1 ? "torchtitan" : "fsdp";
  return row->flash_attention == 0 ? "megatron-2021" : "megatron-core";
}

const ot_engine *ot_published_engine(const ot_published_row *row) {
  for (int i = 0; i < OT_COUNT(engines); i++) {
    if (ot_published_mentions(row->source, engines[i].word)) {
      return ot_engine_find(engines[i].engine);
    }
  }
  return ot_engine_find(engine_by_split(row));
}
