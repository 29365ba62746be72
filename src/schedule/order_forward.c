// SPDX-License-Identifier: Apache-2.0
// Orders without a backward: one micro-batch through all blocks, activations in two buffers that
// change roles from block to block.
#include "schedule/builder_state.h"
#include "schedule/layout.h"
#include "schedule/segment.h"
#include "schedule/update.h"

static ot_segment forward_segment(ot_build *b, const ot_graph *graph, int block) {
  ot_storage storage;
  const ot_storage_request request = {.program = &graph->programs[graph->blocks[block].program],
                                      .recompute = OT_RECOMPUTE_NONE,
                                      .guard_bytes = b->request->guard_bytes};
  ot_storage_build(&request, b->arena, &storage);
  const ot_segment_request lowered = {
      .graph = graph, .storage = &storage, .block = block, .phase = OT_PHASE_FORWARD};
  ot_segment segment;
  ot_segment_build(&lowered, b->arena, &segment);
  return segment;
}

void ot_build_forward_order(ot_build *b, ot_order_kind kind, const ot_graph *graph) {
  const int n = graph->num_blocks;
  const ot_graph_request *const r = &graph->request;
  const int64_t hidden =
      r->micro_batch_size * r->sequence_length * r->model->hidden_size * ot_dtype_bytes(r->storage);
  int *const segments = ot_arena_array(b->arena, n, sizeof(int));
  int64_t scratch_bytes = 0;
  for (int i = 0; i < n; i++) {
    const ot_segment segment = forward_segment(b, graph, i);
    segments[i] = ot_build_add_segment(b, &segment);
    if (segment.scratch_bytes > scratch_bytes) scratch_bytes = segment.scratch_bytes;
  }
  ot_region_begin_order(&b->map);
  ot_region_map *const map = &b->map;
  const int64_t batch =
      ot_region_transient(map, OT_MEMORY_BUFFERS, kind, ot_segment_batch_bytes(graph), "batch");
  const int64_t result =
      ot_region_transient(map, OT_MEMORY_BUFFERS, kind, ot_segment_result_bytes(graph), "result");
  const int64_t hand[2] = {
      ot_region_transient(map, OT_MEMORY_ACTIVATIONS, kind, hidden, "activation.0"),
      ot_region_transient(map, OT_MEMORY_ACTIVATIONS, kind, hidden, "activation.1")};
  const int64_t scratch =
      ot_region_transient(map, OT_MEMORY_BUFFERS, kind, scratch_bytes, "scratch");

  ot_order *const order = ot_build_add_order(b, kind, 1);
  if (r->mode == OT_MODE_EVALUATE) {
    ot_segment zero;
    ot_update_begin(graph, b->arena, &zero);
    ot_build_add_entry(b, order, ot_build_add_segment(b, &zero), -1);
  }
  for (int i = 0; i < n; i++) {
    ot_entry *const entry = ot_build_add_entry(b, order, segments[i], i);
    ot_build_bind_block(b, entry);
    entry->micro_batch = 0;
    entry->base[OT_BASE_BATCH] = batch;
    entry->base[OT_BASE_RESULT] = result;
    entry->base[OT_BASE_INPUT] = i > 0 ? hand[i % 2] : -1;
    entry->base[OT_BASE_OUTPUT] = hand[(i + 1) % 2];
    entry->base[OT_BASE_SCRATCH] = scratch;
  }
}
