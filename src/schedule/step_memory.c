// SPDX-License-Identifier: Apache-2.0
// Regions of a step.
#include "schedule/step_memory.h"

#include "schedule/layout.h"
#include "schedule/segment.h"

static int64_t region(const ot_step_memory_request *r, ot_memory_class class, int64_t bytes,
                      const char *name) {
  return ot_region_transient(&r->build->map, class, OT_ORDER_STEP, bytes, name);
}

static const char *named(const ot_step_memory_request *r, const char *what, int block) {
  return ot_arena_format(r->build->arena, "%s.%s", what, r->graph->blocks[block].name);
}

// `count` buffers of `bytes`.
static ot_step_buffers buffers(const ot_step_memory_request *r, ot_memory_class class,
                               int64_t bytes, int count, const char *name) {
  const int64_t stride = ot_align(bytes) + ot_align(r->build->schedule->guard_bytes);
  if (count == 0) return (ot_step_buffers){.offset = -1};
  const int64_t whole = (count - 1) * stride + bytes;
  return (ot_step_buffers){.offset = region(r, class, whole, name), .stride = stride};
}

// Micro-batches of which the chunk keeps `kind` at once, in the most demanding plan.
static int most_kept(const ot_step_memory_request *r, ot_kept kind, int chunk) {
  int most = 0;
  for (int i = 0; i < r->num_plans; i++) {
    const int needed = r->plans[i].flow.most[kind][chunk];
    if (needed > most) most = needed;
  }
  return most;
}

static const ot_program *program_of(const ot_step_memory_request *r, int block) {
  return &r->graph->programs[r->graph->blocks[block].program];
}

static void place_block(const ot_step_memory_request *r, int block, ot_step_memory *m) {
  static const char *const names[] = {"slot", "slot_long", "slot_weight"};
  static const ot_kept kinds[] = {OT_KEPT_SHORT, OT_KEPT_LONG, OT_KEPT_WEIGHT};
  const ot_stages *const stages = &r->build->stages;
  const int chunk = ot_stages_chunk(stages, block);
  const ot_program *const program = program_of(r, block);
  const bool split = r->plans[0].flow.split;
  const bool first = block == stages->first_block[chunk];
  const bool last = block == stages->first_block[chunk + 1] - 1;
  const bool kept = ot_program_reads(program, program->input, OT_PART_WEIGHT);
  m->input[block] = m->d_output[block] = (ot_step_buffers){.offset = -1};
  m->input_kept[block] = first ? OT_KEPT_INPUT : kept ? OT_KEPT_LONG : OT_KEPT_SHORT;
  m->d_output_kept[block] = last ? OT_KEPT_D_OUTPUT : OT_KEPT_WEIGHT;
  const int64_t stack = ot_build_stack_end_bytes(r->graph, stages->first_block[chunk + 1] - 1);
  const int64_t in = ot_build_input_bytes(r->graph, block) + (first ? stack : 0);
  const int64_t back = ot_build_output_bytes(r->graph, block) + (last ? stack : 0);
  if (in > 0) {
    m->input[block] = buffers(r, OT_MEMORY_ACTIVATIONS, in,
                              most_kept(r, m->input_kept[block], chunk), named(r, "input", block));
  }
  for (int class = 0; class < OT_SLOT_CLASSES; class ++) {
    const int64_t bytes = r->storage[block].slot_bytes[class];
    if (bytes == 0 && class != OT_SLOT_SHORT) continue;
    m->slot[class][block] =
        buffers(r, OT_MEMORY_ACTIVATIONS, bytes, most_kept(r, kinds[class], chunk),
                named(r, names[class], block));
  }
  if (back > 0 && (last || split)) {
    m->d_output[block] =
        buffers(r, OT_MEMORY_ACTIVATIONS, back, most_kept(r, m->d_output_kept[block], chunk),
                named(r, "gradient", block));
  }
}

static int64_t gradient_bytes(const ot_step_memory_request *r) {
  return ot_dtype_bytes(r->build->schedule->gradients);
}

// The ring of the block's size of bucket: made once, shared by blocks of that size.
static ot_step_buffers shared_ring(const ot_step_memory_request *r, int block,
                                   const ot_step_buffers *made, bool gathered) {
  const ot_build *const b = r->build;
  const int64_t elements = b->schedule->buckets[block].elements;
  for (int i = 0; i < block; i++) {
    if (b->held[i] && b->schedule->buckets[i].elements == elements && made[i].offset >= 0) {
      return made[i];
    }
  }
  int places = 0;
  for (int i = 0; i < r->num_plans; i++) {
    const ot_step_outline *const o = &r->plans[i].outline;
    const int needed = ot_outline_places(r->buckets, gathered ? &o->gathers : &o->sums, elements);
    if (needed > places) places = needed;
  }
  const int64_t weight = ot_dtype_bytes(r->graph->request.storage);
  return gathered ? buffers(r, OT_MEMORY_GATHERED, elements * weight, places,
                            named(r, "gathered", block))
                  : buffers(r, OT_MEMORY_GRADIENTS, elements * gradient_bytes(r), places,
                            named(r, "gradient_part", block));
}

static void place_buckets(const ot_step_memory_request *r, ot_step_memory *m) {
  const ot_build *const b = r->build;
  for (int i = 0; i < r->graph->num_blocks; i++) {
    if (!b->held[i]) continue;
    if (ot_build_gathers(b, i)) m->gathered[i] = shared_ring(r, i, m->gathered, true);
    if (ot_build_eachtime(b, i) && b->runs[i]) m->sums[i] = shared_ring(r, i, m->sums, false);
  }
  if (b->tied_user < 0 || !ot_build_eachtime(b, b->tied_block)) return;
  const int64_t elements = b->schedule->buckets[b->tied_block].elements;
  int places = 0;
  for (int i = 0; i < r->num_plans; i++) {
    const int needed = ot_outline_places(r->buckets, &r->plans[i].outline.tied_sums, elements);
    if (needed > places) places = needed;
  }
  m->tied_sums =
      buffers(r, OT_MEMORY_GRADIENTS, elements * gradient_bytes(r), places, "gradient_part.tied");
}

// The largest message that the stage sends forwards or backwards, 0 for none.
static int64_t message_bytes(const ot_step_memory_request *r, bool backward) {
  const ot_build *const b = r->build;
  int64_t most = 0;
  for (int c = 0; c < b->stages.num_chunks; c++) {
    if (!ot_stages_chunk_sends(&b->stages, c, b->stage, backward)) continue;
    const int edge = b->stages.first_block[backward ? c : c + 1];
    const int64_t bytes = ot_build_edge_bytes(r->graph, edge);
    if (bytes > most) most = bytes;
  }
  return most;
}

static void place_messages(const ot_step_memory_request *r, ot_step_memory *m) {
  ot_build *const b = r->build;
  int most = 0;
  for (int i = 0; i < r->num_plans; i++) {
    if (r->plans[i].flow.send_buffers > most) most = r->plans[i].flow.send_buffers;
  }
  m->send = ot_arena_array(b->arena, most + 1, sizeof *m->send);
  m->back = ot_arena_array(b->arena, most + 1, sizeof *m->back);
  const int64_t sent = message_bytes(r, false), back = message_bytes(r, true);
  for (int i = 0; i < most; i++) {
    m->send[i] = m->back[i] = -1;
    if (sent > 0)
      m->send[i] = region(r, OT_MEMORY_BUFFERS, sent, ot_arena_format(b->arena, "send.%d", i));
    if (back == 0) continue;
    m->back[i] =
        region(r, OT_MEMORY_BUFFERS, back, ot_arena_format(b->arena, "send_gradient.%d", i));
  }
}

static void place_hands(const ot_step_memory_request *r, ot_step_memory *m) {
  static const char *const names[] = {"gradient.0", "gradient.1"};
  const ot_build *const b = r->build;
  const int n = r->graph->num_blocks;
  bool *const gives = ot_arena_array(b->arena, n, sizeof *gives);
  for (int i = 0; i < n; i++) gives[i] = ot_build_output_bytes(r->graph, i) > 0;
  for (int i = 0; i < 2; i++) {
    m->hand[i] = -1;
    if (r->plans[0].flow.split || !ot_stages_uses_hand(&b->stages, b->stage, i, gives)) continue;
    m->hand[i] = region(r, OT_MEMORY_ACTIVATIONS, ot_build_hidden_bytes(r->graph), names[i]);
  }
}

static ot_step_buffers *none(const ot_step_memory_request *r) {
  const int n = r->graph->num_blocks;
  ot_step_buffers *const made = ot_arena_array(r->build->arena, n, sizeof *made);
  for (int i = 0; i < n; i++) made[i].offset = -1;
  return made;
}

// Scratch, whose last bytes a kernel need not touch, comes before what is always written whole, so
// that the highest byte touched is the planned peak.
void ot_step_memory_build(const ot_step_memory_request *request, ot_step_memory *memory) {
  const ot_step_memory_request *const r = request;
  ot_build *const b = r->build;
  const int n = r->graph->num_blocks;
  int most = 1;
  for (int i = 0; i < r->num_plans; i++) {
    if (r->plans[i].flow.micro_batches > most) most = r->plans[i].flow.micro_batches;
  }
  *memory = (ot_step_memory){.input = none(r),
                             .d_output = none(r),
                             .gathered = none(r),
                             .sums = none(r),
                             .tied_sums = {.offset = -1}};
  for (int i = 0; i < OT_SLOT_CLASSES; i++) memory->slot[i] = none(r);
  memory->input_kept = ot_arena_array(b->arena, n, sizeof(ot_kept));
  memory->d_output_kept = ot_arena_array(b->arena, n, sizeof(ot_kept));
  ot_region_begin_order(&b->map);
  memory->batch_bytes = ot_segment_batch_bytes(r->graph);
  memory->batch = region(r, OT_MEMORY_BUFFERS, memory->batch_bytes * most, "batch");
  memory->scratch = region(r, OT_MEMORY_BUFFERS, r->scratch_bytes, "scratch");
  if (r->staging_bytes > 0) {
    memory->staging = region(r, OT_MEMORY_BUFFERS, r->staging_bytes, "staging");
  }
  place_messages(r, memory);
  place_buckets(r, memory);
  for (int i = 0; i < n; i++) {
    if (b->runs[i]) place_block(r, i, memory);
  }
  place_hands(r, memory);
}
