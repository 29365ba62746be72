// SPDX-License-Identifier: Apache-2.0
// Optimizer and bookkeeping as tasks.
#include "schedule/update.h"

#include "base/text.h"
#include "ops/catalog.h"
#include "ops/operands.h"
#include "schedule/layout.h"
#include "schedule/segment.h"

// ---- parts ----

int ot_update_parts(const ot_graph *graph, int block) {
  const ot_block *const b = &graph->blocks[block];
  int parts = 0;
  for (int i = 0; i < b->num_parameters; i++) {
    parts += graph->parameters[b->first_parameter + i].num_parts;
  }
  return parts;
}

int ot_update_first_part(const ot_graph *graph, int block) {
  int parts = 0;
  for (int i = 0; i < block; i++) parts += ot_update_parts(graph, i);
  return parts;
}

// ---- tasks ----

static ot_operand at(ot_base base, int64_t offset, ot_tensor_type type) {
  return (ot_operand){.base = base, .value = -1, .offset = offset, .type = type};
}

static ot_task plain_task(const ot_graph *graph, ot_op_kind op) {
  ot_task task = {
      .kind = OT_TASK_COMPUTE,
      .op = op,
      .wait = -1,
      .attributes = {.threads = graph->request.threads, .compute = graph->request.compute}};
  for (int i = 0; i < OT_MAX_INPUTS; i++) task.in[i].value = -1;
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) task.out[i].value = -1;
  return task;
}

static void begin(ot_segment *segment, const char *name, ot_phase phase, int max_tasks,
                  ot_arena *arena) {
  *segment = (ot_segment){
      .name = name, .phase = phase, .tasks = ot_arena_array(arena, max_tasks + 1, sizeof(ot_task))};
}

// Sizes the workspace of `task`, which has scratch to itself, and appends it.
static void append(ot_segment *segment, ot_task *task) {
  ot_op_types types;
  for (int i = 0; i < OT_MAX_INPUTS; i++) types.in[i] = task->in[i].type;
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) types.out[i] = task->out[i].type;
  task->workspace_bytes = ot_op_workspace(task->op, &task->attributes, &types);
  if (task->workspace_bytes > segment->scratch_bytes) {
    segment->scratch_bytes = task->workspace_bytes;
  }
  segment->tasks[segment->num_tasks++] = *task;
}

static void append_zero(const ot_graph *graph, ot_base base, int64_t offset, int64_t n,
                        ot_segment *segment) {
  ot_task task = plain_task(graph, OT_OP_ZERO);
  task.out[0] = at(base, offset, ot_type_vector(OT_F64, n));
  append(segment, &task);
}

void ot_update_begin(const ot_graph *graph, ot_arena *arena, ot_segment *segment) {
  begin(segment, "begin", OT_PHASE_BEGIN, 3, arena);
  if (graph->request.mode == OT_MODE_TRAIN) {
    append_zero(graph, OT_BASE_SCALAR, OT_SCALAR_LOSS * 8, 1, segment);
    append_zero(graph, OT_BASE_STATISTIC, 0, (int64_t)graph->num_blocks * OT_BLOCK_STATISTICS,
                segment);
  } else {
    append_zero(graph, OT_BASE_SCALAR, OT_SCALAR_EVALUATE_LOSS * 8, 2, segment);
  }
  segment->hash = ot_segment_hash(segment);
}

void ot_update_setup(const ot_graph *graph, ot_arena *arena, ot_segment *segment) {
  begin(segment, "setup", OT_PHASE_SETUP, OT_MAX_CONSTANTS, arena);
  int64_t offset = 0;
  for (int i = 0; i < graph->num_constants; i++) {
    const ot_constant *const constant = &graph->constants[i];
    ot_task task = plain_task(graph, constant->op);
    task.attributes = constant->attributes;
    task.out[0] = at(OT_BASE_CONSTANT, offset, constant->type);
    append(segment, &task);
    offset += ot_align(ot_type_bytes(&constant->type));
  }
  segment->hash = ot_segment_hash(segment);
}

void ot_update_tie(const ot_graph *graph, int user, ot_arena *arena, ot_segment *segment) {
  const ot_block *const block = &graph->blocks[user];
  const ot_dtype dtype = graph->request.compute;
  begin(segment, "tie", OT_PHASE_TIE, block->num_parameters, arena);
  for (int i = 0; i < block->num_parameters; i++) {
    const ot_parameter *const use = &graph->parameters[block->first_parameter + i];
    if (use->tied_to < 0) continue;
    const ot_parameter *const owner = &graph->parameters[use->tied_to];
    const ot_tensor_type type = ot_type_vector(dtype, ot_parameter_elements(use));
    ot_task task = plain_task(graph, OT_OP_ADD);
    task.in[0] = at(OT_BASE_GRADIENT, owner->offset * ot_dtype_bytes(dtype), type);
    task.in[1] = at(OT_BASE_TIED_GRADIENT, use->offset * ot_dtype_bytes(dtype), type);
    task.out[0] = task.in[0];
    append(segment, &task);
  }
  segment->hash = ot_segment_hash(segment);
}

// One part of a parameter, for the loops below.
typedef struct part_view {
  const ot_parameter *parameter;
  const ot_parameter_part *part;
  int index;        // within the block
  int64_t element;  // first element in the bucket
  int64_t elements;
} part_view;

typedef void (*part_visitor)(const part_view *view, void *context);

static void for_each_part(const ot_graph *graph, int block, part_visitor visit, void *context) {
  const ot_block *const b = &graph->blocks[block];
  int index = 0;
  for (int i = 0; i < b->num_parameters; i++) {
    const ot_parameter *const parameter = &graph->parameters[b->first_parameter + i];
    for (int k = 0; k < parameter->num_parts; k++) {
      const ot_parameter_part *const part = &parameter->parts[k];
      const part_view view = {.parameter = parameter,
                              .part = part,
                              .index = index++,
                              .element = parameter->offset + part->first_row * parameter->cols,
                              .elements = part->rows * parameter->cols};
      visit(&view, context);
    }
  }
}

typedef struct update_context {
  const ot_graph *graph;
  const ot_run *run;
  ot_segment *segment;
} update_context;

static void append_norm(const part_view *view, void *context) {
  update_context *const c = context;
  const ot_dtype dtype = c->graph->request.compute;
  ot_task task = plain_task(c->graph, OT_OP_SUM_SQUARES);
  task.in[0] = at(OT_BASE_GRADIENT, view->element * ot_dtype_bytes(dtype),
                  ot_type_vector(dtype, view->elements));
  task.out[0] = at(OT_BASE_SQUARES, view->index * 8, ot_type_vector(OT_F64, 1));
  append(c->segment, &task);
}

void ot_update_norm(const ot_graph *graph, int block, ot_arena *arena, ot_segment *segment) {
  begin(segment, ot_arena_format(arena, "norm.%s", graph->blocks[block].name), OT_PHASE_NORM,
        ot_update_parts(graph, block), arena);
  update_context context = {.graph = graph, .segment = segment};
  for_each_part(graph, block, append_norm, &context);
  segment->hash = ot_segment_hash(segment);
}

void ot_update_clip(const ot_graph *graph, double clip, ot_arena *arena, ot_segment *segment) {
  begin(segment, "clip", OT_PHASE_CLIP, 1, arena);
  ot_task task = plain_task(graph, OT_OP_CLIP_FACTOR);
  task.attributes.clip = clip;
  task.in[0] = at(OT_BASE_SQUARES, 0,
                  ot_type_vector(OT_F64, ot_update_first_part(graph, graph->num_blocks)));
  task.out[0] = at(OT_BASE_SCALAR, OT_SCALAR_GRADIENT_NORM * 8, ot_type_vector(OT_F64, 1));
  task.out[1] = at(OT_BASE_SCALAR, OT_SCALAR_CLIP_FACTOR * 8, ot_type_vector(OT_F64, 1));
  append(segment, &task);
  segment->hash = ot_segment_hash(segment);
}

// ---- optimizer ----

static bool uses_muon(const ot_run *run, const part_view *view) {
  return run->optimizer.name == OT_OPTIMIZER_MUON && view->parameter->kind == OT_PARAMETER_MATRIX;
}

static const ot_optimizer_group *group_of(const ot_run *run, const char *name) {
  for (int64_t i = 0; i < run->optimizer.num_groups; i++) {
    if (ot_text_matches(name, run->optimizer.groups[i].pattern)) return &run->optimizer.groups[i];
  }
  return NULL;
}

// Learning rate and decay of a part: the optimizer's, changed by its kind and by its group.
static void set_rates(const ot_run *run, const part_view *view, ot_op_attributes *attributes) {
  const ot_run_optimizer *const o = &run->optimizer;
  const ot_optimizer_group *const group = group_of(run, view->part->hf_name);
  const bool decays = view->parameter->kind != OT_PARAMETER_VECTOR;
  const bool other_rate = o->name == OT_OPTIMIZER_MUON && !uses_muon(run, view) && o->adamw_lr > 0;
  attributes->weight_decay = decays ? o->weight_decay : 0;
  attributes->learning_rate_factor = other_rate ? o->adamw_lr / o->lr : 1;
  if (!group) return;
  if (group->weight_decay >= 0) attributes->weight_decay = group->weight_decay;
  attributes->learning_rate_factor *= group->lr >= 0 ? group->lr / o->lr : group->lr_factor;
}

static void append_update(const part_view *view, void *context) {
  update_context *const c = context;
  const ot_run *const run = c->run;
  const bool muon = uses_muon(run, view);
  const ot_dtype compute = c->graph->request.compute;
  const ot_dtype storage = c->graph->request.storage;
  ot_task task = plain_task(c->graph, muon ? OT_OP_MUON : OT_OP_ADAMW);
  task.attributes.epsilon = run->optimizer.eps;
  task.attributes.beta1 = muon ? run->optimizer.momentum : run->optimizer.betas[0];
  task.attributes.beta2 = muon ? 0 : run->optimizer.betas[1];
  set_rates(run, view, &task.attributes);

  ot_tensor_type type = ot_type_vector(compute, view->elements);
  if (muon) {
    type = ot_type_matrix(compute, view->part->rows, view->parameter->cols);
  }
  ot_tensor_type weight_type = type;
  weight_type.dtype = storage;
  const int64_t wide = view->element * ot_dtype_bytes(compute);
  int out = 0;
  task.in[0] = at(OT_BASE_GRADIENT, wide, type);
  task.in[1] = at(OT_BASE_SCALAR, 0, ot_type_vector(OT_F64, OT_STEP_SCALARS));
  task.out[out++] = at(OT_BASE_WEIGHT, view->element * ot_dtype_bytes(storage), weight_type);
  task.out[out++] = at(OT_BASE_MOMENT_1, wide, type);
  if (!muon) task.out[out++] = at(OT_BASE_MOMENT_2, wide, type);
  if (storage != compute) task.out[out] = at(OT_BASE_MASTER, wide, type);
  task.out[out + 1] = at(OT_BASE_UPDATES, view->index * 16, ot_type_vector(OT_F64, 2));
  append(c->segment, &task);
}

void ot_update_apply(const ot_graph *graph, const ot_run *run, int block, ot_arena *arena,
                     ot_segment *segment) {
  begin(segment, ot_arena_format(arena, "update.%s", graph->blocks[block].name), OT_PHASE_UPDATE,
        ot_update_parts(graph, block), arena);
  update_context context = {.graph = graph, .run = run, .segment = segment};
  for_each_part(graph, block, append_update, &context);
  segment->hash = ot_segment_hash(segment);
}
