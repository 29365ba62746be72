// SPDX-License-Identifier: Apache-2.0
// The framework of a row: the single table from names of software and of sources to frameworks.
// Earlier lines take precedence. After the published sources it lists names of frameworks, for
// unknown sources; a row that mentions none of them, or whose names are not read, has unknown
// software.
#include <stddef.h>
#include <string.h>

#include "files/config_file.h"
#include "published_job.h"

static const struct {
  const char *word;     // in the source's name
  const char *engine;   // presets/engines/NAME.yaml
  const char *version;  // in the row's notes; null: any
} engines[] = {
    // sources
    {"SC21", "megatron-2021", NULL},
    {"Jan-2021", "megatron-2021", NULL},
    {"Reducing Activation Recomputation", "megatron-2022", NULL},
    {"Megatron-LM examples/llama", "megatron-core", NULL},
    {"vTrain", "megatron-deepspeed", NULL},
    {"BLOOM", "megatron-deepspeed-blocking", NULL},
    {"MT-NLG", "megatron-deepspeed", NULL},
    {"Frontier", "megatron-deepspeed", NULL},
    {"MosaicML", "fsdp", NULL},
    {"LLaMA-1", "fsdp", NULL},
    {"TinyLlama", "fsdp", NULL},
    {"torchtitan", "torchtitan", NULL},
    {"NeMo long-sequence", "megatron-core", NULL},
    {"MLPerf Training v3", "megatron-core", NULL},
    {"Megatron-Bridge", "megatron-bridge-26.06", "26.06"},
    {"Megatron-Bridge", "megatron-bridge-26.06", "26.08"},
    {"Megatron-Bridge", "megatron-bridge", NULL},
    {"Megatron-MoE-ModelZoo", "megatron-bridge", NULL},
    {"MaxText", "jax", NULL},
    {"tpu-recipes", "jax", NULL},
    {"JAX-Toolbox", "jax", NULL},
    {"PaLM", "jax", NULL},
    {"nanotron", "nanotron", NULL},
    {"llmq", "llmq", NULL},
    {"OneFlow", "oneflow", NULL},
    {"ColossalAI", "deepspeed", NULL},
    {"stas00", "deepspeed", NULL},
    // words
    {"Megatron-DeepSpeed", "megatron-deepspeed", NULL},
    {"DeepSpeed", "deepspeed", NULL},
    {"llm-foundry", "fsdp", NULL},
    {"titan", "torchtitan", NULL},
    {"FSDP", "fsdp", NULL},
    {"JAX", "jax", NULL},
    {"TPU", "jax", NULL},
    {"AutoModel", "unknown", NULL},  // NVIDIA NeMo AutoModel: no file describes it
    {"NeMo", "megatron-core", NULL},
    {"MLPerf", "megatron-core", NULL},
    {"Megatron-Core", "megatron-core", NULL},
    {"Megatron", "megatron-core", NULL},
};

// Software that no name tells: TPUs run JAX; nothing is known of any other. No rule guesses it from
// other properties of a row, since those would be a source's fingerprint.
static const char *engine_of_device(const ot_published_row *row) {
  return ot_published_mentions(row->gpu.name, "TPU") ? "jax" : "unknown";
}

// The engine that `name` mentions, or null.
static const char *engine_named(const ot_published_row *row, const char *name) {
  for (int i = 0; i < OT_COUNT(engines); i++) {
    const char *const version = engines[i].version;
    if (version && !ot_published_mentions(row->notes, version)) continue;
    if (ot_published_mentions(name, engines[i].word)) return engines[i].engine;
  }
  return NULL;
}

static const char *engine_of(const ot_published_row *row, bool hidden, bool *unnamed) {
  const char *named = hidden ? NULL : engine_named(row, row->software);
  if (!named && !hidden) named = engine_named(row, row->source);
  *unnamed = named == NULL;
  return named ? named : engine_of_device(row);
}

ot_status ot_published_engine_read(ot_published_setup *setup, const ot_published_row *row,
                                   ot_engine *out, bool *unnamed) {
  static const char *const directory = OT_SOURCE_DIR "/presets";
  const ot_presets presets = {&directory, 1};
  const char *const name = engine_of(row, setup->unnamed, unnamed);
  const ot_engine **const read = setup->engines;
  int at = 0;
  while (at < setup->num_engines && strcmp(read[at]->name, name) != 0) at++;
  if (at == setup->num_engines) {
    OT_CHECK(at < OT_PUBLISHED_MAX_ENGINES, OT_BUG, "too many engines");
    OT_TRY(ot_engine_file_load(name, &presets, setup->arena, &read[at]));
    setup->num_engines++;
  }
  *out = *read[at];
  out->name = name;  // estimates keep it for longer than the arena exists
  return OT_OK;
}
