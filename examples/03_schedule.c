// SPDX-License-Identifier: Apache-2.0
// A training step as data: builds the schedule of a model and prints its memory and FLOPs, without
// a device, without files, and without allocating the memory.
//   examples/03_schedule          (built by make; prints a table)
#include <stdio.h>

#include "describe/run_keys.h"
#include "runtime/model_runtime.h"

int main(void) {
  const ot_model model = {.family = OT_FAMILY_GPT2,
                          .model_type = "gpt2",
                          .vocab_size = 50257,
                          .hidden_size = 768,
                          .intermediate_size = 3072,
                          .num_layers = 12,
                          .num_heads = 12,
                          .num_kv_heads = 12,
                          .head_dim = 64,
                          .max_positions = 1024,
                          .activation = OT_ACTIVATION_GELU_TANH,
                          .qkv_bias = true,
                          .output_bias = true,
                          .mlp_bias = true,
                          .tie_word_embeddings = true,
                          .norm_epsilon = 1e-5,
                          .embedding_scale = 1,
                          .attention_scale = 0.125,
                          .learned_positions = true,
                          .initializer_range = 0.02};
  const int micro_batches = 1;
  printf("%-10s %12s %12s %14s\n", "recompute", "peak MB", "model TFLOP", "with recompute");
  for (int policy = 0; policy < 3; policy++) {
    ot_heap heap = {0};
    ot_arena arena = ot_heap_arena_create(&heap);
    ot_run run;
    if (ot_run_defaults(&model, OT_F32, &arena, &run) != OT_OK) return 1;
    run.parallel.recompute[0] = (ot_recompute)policy;
    const ot_rank_request request = {
        .modes = 1u << OT_MODE_TRAIN,
        .graph = {.model = &model, .micro_batch_size = 4, .sequence_length = 1024, .threads = 2},
        .schedule = {.run = &run, .micro_batches = &micro_batches, .num_micro_batches = 1}};
    ot_graph graphs[OT_MODES];
    ot_schedule schedule;
    if (ot_runtime_plan(&request, &arena, graphs, &schedule) != OT_OK) return 1;
    const int step = ot_schedule_find_order(&schedule, OT_ORDER_STEP, 0);
    static const char *const names[] = {"none", "selective", "full"};
    printf("%-10s %12.1f %12.3f %14.3f\n", names[policy], (double)schedule.arena_bytes * 1e-6,
           ot_order_flops(&schedule, step, true) * 1e-12,
           ot_order_flops(&schedule, step, false) * 1e-12);
    ot_heap_release(&heap);
  }
  return 0;
}
