// SPDX-License-Identifier: Apache-2.0
// The order that gives the weights to the generators of a run that learns from rewards: one entry
// for each block, on the gather lane. All ranks have the same entries, whatever they hold of the
// block. It is an order of its own, not the end of a step: an update that is not finite is never
// published, a generator that was started again needs weights without a step, and one that decodes
// in this process takes them when its own step ends.
#include "schedule/builder_state.h"
#include "schedule/tasks.h"

// The elements of the model on one rank: each once, without padding.
static int64_t whole_elements(const ot_graph *whole, int block) {
  int64_t elements = 0;
  for (int i = 0; i < whole->num_parameters; i++) {
    const ot_parameter *const p = &whole->parameters[i];
    if (p->block == block && p->tied_to < 0) elements += ot_parameter_elements(p);
  }
  return elements;
}

static ot_segment publish_segment(const ot_build *b, int block, int64_t elements) {
  const ot_bucket *const bucket = &b->schedule->buckets[block];
  const ot_bucket_range *const held = &bucket->copy[OT_BUCKET_WEIGHT];
  const ot_dtype storage = b->shape->request.storage;
  ot_segment segment;
  ot_task task = ot_task_of(b->shape, OT_OP_PUBLISH);
  if (b->schedule->ranks > 1) ot_task_set_group(&task, b->schedule, OT_GROUP_WORLD);
  task.attributes.generators = ot_run_generators(b->request->run);
  task.attributes.whole_elements = elements;
  task.in[0].type.dtype = storage;
  if (b->held[block] && bucket->counted) {
    const ot_base base = b->buckets[block].gathers ? OT_BASE_WEIGHT_PIECE : OT_BASE_WEIGHT;
    task.in[0] = ot_operand_vector(base, storage, 0, held->count);
  }
  ot_tasks_begin(&segment, "publish", OT_PHASE_PUBLISH, 1, b->arena);
  ot_tasks_append(&segment, &task, 0);
  return segment;
}

void ot_build_publish_order(ot_build *b) {
  const ot_graph *const whole = b->request->whole ? b->request->whole : b->shape;
  ot_order *const order = ot_build_add_order(b, OT_ORDER_PUBLISH, 0);
  for (int block = 0; block < whole->num_blocks; block++) {
    const int64_t elements = whole_elements(whole, block);
    if (elements == 0) continue;
    const ot_segment segment = publish_segment(b, block, elements);
    ot_entry *const entry = ot_build_add_entry(b, order, ot_build_add_segment(b, &segment), block);
    entry->lane = OT_LANE_GATHER;
    entry->base[OT_BASE_WEIGHT] = b->weights[block];
    entry->base[OT_BASE_WEIGHT_PIECE] = b->pieces[block];
  }
}
