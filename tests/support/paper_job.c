// SPDX-License-Identifier: Apache-2.0
// Reads models and frameworks from the preset files.
#include "support/paper_job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/text.h"
#include "describe/model_keys.h"
#include "files/config_file.h"
#include "files/tree_file.h"

void paper_job_create(const char *preset, int devices, int64_t sequences, int64_t length,
                      paper_job *out) {
  *out = (paper_job){0};
  out->arena = ot_heap_arena_create(&out->heap);
  ot_node *tree;
  const char *const path =
      ot_arena_format(&out->arena, OT_SOURCE_DIR "/presets/models/%s.json", preset);
  if (ot_tree_load(path, &out->arena, &tree) != OT_OK) fail_msg("%s", ot_fail_message());
  if (ot_model_read(tree, &out->arena, &out->model) != OT_OK) fail_msg("%s", ot_fail_message());
  out->cluster = (ot_cluster){
      .name = "paper",
      .num_devices = devices,
      .device = {.name = "h100",
                 .flops = {[OT_BF16] = 989e12, [OT_F32] = 67e12},
                 .other_flops_per_s = 60e12,
                 .memory_bytes_per_s = 3.35e12,
                 .memory_bytes = 80000000000},
      .num_levels = 2,
      .level = {{.name = "nvlink", .size = 8, .bytes_per_s = 450e9, .latency_s = 3e-6},
                {.name = "net", .size = 1 << 20, .bytes_per_s = 50e9, .latency_s = 10e-6}}};
  out->job = (ot_job){.model = &out->model,
                      .cluster = &out->cluster,
                      .engine = &ot_engine_orthant,
                      .recipe = *ot_recipe_find("bf16"),
                      .devices = devices,
                      .global_batch_size = sequences,
                      .sequence_length = length};
}

void paper_job_destroy(paper_job *job) { ot_heap_release(&job->heap); }

static const char *const directory = OT_SOURCE_DIR "/presets";
static const ot_presets presets = {&directory, 1};

const ot_engine *paper_engine(const char *name) {
  enum { MOST_ENGINES = 32 };
  static ot_heap heap;
  static const ot_engine *read[MOST_ENGINES];
  static int num_read;
  for (int i = 0; i < num_read; i++) {
    if (ot_text_equal(read[i]->name, name)) return read[i];
  }
  assert_true(num_read < MOST_ENGINES);
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_status status = ot_engine_file_load(name, &presets, &arena, &read[num_read]);
  if (status != OT_OK) fail_msg("%s", ot_fail_message());
  return read[num_read++];
}

const ot_engine *paper_engine_at(int index) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_preset_names names = ot_presets_list(&presets, OT_PRESET_ENGINE, &arena);
  const ot_engine *found = index == 0 ? &ot_engine_orthant : NULL;
  if (index > 0 && index <= names.count) found = paper_engine(names.name[index - 1]);
  ot_heap_release(&heap);
  return found;
}

ot_cluster paper_machine(int devices) {
  ot_cluster cluster = {
      .name = "paper",
      .num_devices = devices,
      .device = {.name = "abacus",
                 .other_flops_per_s = 4e9,
                 .memory_bytes_per_s = 1e10,
                 .packs = true,
                 .launch_s = 2e-6,
                 .memory_bytes = 1 << 30},
      .num_levels = 2,
      .level = {{.name = "node", .size = 4, .bytes_per_s = 5e9, .latency_s = 1e-6},
                {.name = "net", .size = 1024, .bytes_per_s = 1e9, .latency_s = 5e-6}}};
  cluster.device.flops[OT_F32] = 3e10;
  cluster.device.flops[OT_F64] = 1e10;
  return cluster;
}
