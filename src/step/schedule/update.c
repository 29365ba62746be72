// SPDX-License-Identifier: Apache-2.0
// Builds the tasks of the optimizer and of gradient norms.
#include "schedule/update.h"

#include "base/text.h"
#include "ops/operands.h"
#include "ops/optimizer.h"
#include "schedule/layout.h"
#include "schedule/tasks.h"

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

// ---- tables ----

void ot_update_setup(const ot_graph *graph, ot_arena *arena, ot_segment *segment) {
  ot_tasks_begin(segment, "setup", OT_PHASE_SETUP, OT_MAX_CONSTANTS, arena);
  int64_t offset = 0;
  for (int i = 0; i < graph->num_constants; i++) {
    const ot_constant *const constant = &graph->constants[i];
    ot_task task = ot_task_of(graph, constant->op);
    task.attributes = constant->attributes;
    task.out[0] = ot_operand_at(OT_BASE_CONSTANT, offset, constant->type);
    ot_tasks_append(segment, &task, 0);
    offset += ot_align(ot_type_bytes(&constant->type));
  }
}

// ---- tied uses ----

static const ot_parameter *tied_use(const ot_graph *graph, int user) {
  const ot_block *const block = &graph->blocks[user];
  for (int i = 0; i < block->num_parameters; i++) {
    const ot_parameter *const use = &graph->parameters[block->first_parameter + i];
    if (use->tied_to >= 0) return use;
  }
  OT_UNREACHABLE();
}

// Clips [first, first + count) to the view and makes it relative to the view's start.
static void cut(const ot_update_view *view, int64_t *first, int64_t *count) {
  const int64_t begin = *first > view->first ? *first : view->first;
  const int64_t end = *first + *count;
  const int64_t limit = end < view->first + view->count ? end : view->first + view->count;
  *first = begin - view->first;
  *count = limit > begin ? limit - begin : 0;
}

void ot_update_tied_range(const ot_update_view *view, int user, int64_t *first, int64_t *count) {
  const ot_parameter *const use = tied_use(view->graph, user);
  const ot_parameter *const owner = &view->graph->parameters[use->tied_to];
  *first = owner->offset;
  *count = ot_parameter_elements(owner);
  cut(view, first, count);
}

void ot_update_tie(const ot_update_view *view, int user, ot_arena *arena, ot_segment *segment) {
  const ot_dtype dtype = ot_graph_gradient_type(&view->graph->request);
  int64_t first, count;
  ot_update_tied_range(view, user, &first, &count);
  ot_tasks_begin(segment, "tie", OT_PHASE_TIE, 1, arena);
  if (count > 0) {
    ot_task task = ot_task_of(view->graph, OT_OP_ADD);
    task.in[0] = ot_operand_vector(OT_BASE_GRADIENT_PIECE, dtype, first, count);
    task.in[1] = ot_operand_vector(OT_BASE_TIED_GRADIENT, dtype, first, count);
    task.out[0] = task.in[0];
    ot_tasks_append(segment, &task, 0);
  }
}

// ---- parts ----

// The elements of one part inside the view, for the loops below.
typedef struct part_view {
  const ot_parameter *parameter;
  const ot_parameter_part *part;
  int index;      // within the block
  int64_t first;  // element relative to the start of the view
  int64_t count;
} part_view;

typedef struct update_context {
  const ot_update_view *view;
  const ot_run *run;
  ot_segment *segment;
} update_context;

typedef void (*part_visitor)(const part_view *part, const update_context *context);

bool ot_update_is_tied_to(const ot_graph *graph, const ot_parameter *parameter) {
  for (int i = 0; i < graph->num_parameters; i++) {
    const int tied_to = graph->parameters[i].tied_to;
    if (tied_to >= 0 && &graph->parameters[tied_to] == parameter) return true;
  }
  return false;
}

static void for_each_part(part_visitor visit, const update_context *context) {
  const ot_update_view *const view = context->view;
  const ot_block *const b = &view->graph->blocks[view->block];
  int index = 0;
  for (int i = 0; i < b->num_parameters; i++) {
    const ot_parameter *const parameter = &view->graph->parameters[b->first_parameter + i];
    const bool skipped = view->tied_only && !ot_update_is_tied_to(view->graph, parameter);
    for (int k = 0; k < parameter->num_parts; k++) {
      const ot_parameter_part *const part = &parameter->parts[k];
      part_view p = {.parameter = parameter,
                     .part = part,
                     .index = index++,
                     .first = parameter->offset + part->first_row * parameter->cols,
                     .count = part->rows * parameter->cols};
      cut(view, &p.first, &p.count);
      if (skipped || p.count == 0 || (view->counted_only && !part->counted)) continue;
      visit(&p, context);
    }
  }
}

static int64_t slot_of(const part_view *p, const ot_update_view *view) {
  return (int64_t)p->index * view->slots + view->slot;
}

double ot_update_norm_scale(const ot_parameter_part *part) {
  return part->constant == 1 ? 0 : part->constant;
}

static void append_norm(const part_view *p, const update_context *c) {
  const ot_dtype dtype = ot_graph_gradient_type(&c->view->graph->request);
  if (p->parameter->kind == OT_PARAMETER_BUFFER) {  // expert loads, no gradient
    ot_tasks_zero(c->view->graph, OT_BASE_SQUARES, 8 * slot_of(p, c->view), 1, c->segment);
    return;
  }
  ot_task task = ot_task_of(c->view->graph, OT_OP_SUM_SQUARES);
  task.attributes.scale = ot_update_norm_scale(p->part);
  task.in[0] = ot_operand_vector(OT_BASE_GRADIENT_PIECE, dtype, p->first, p->count);
  task.out[0] = ot_operand_vector(OT_BASE_SQUARES, OT_F64, slot_of(p, c->view), 1);
  ot_tasks_append(c->segment, &task, 0);
}

void ot_update_norm(const ot_update_view *view, ot_arena *arena, ot_segment *segment) {
  const update_context context = {.view = view, .segment = segment};
  ot_tasks_begin(segment, ot_arena_format(arena, "norm.%s", view->graph->blocks[view->block].name),
                 OT_PHASE_NORM, ot_update_parts(view->graph, view->block), arena);
  for_each_part(append_norm, &context);
}

static void append_checksum(const part_view *p, const update_context *c) {
  const ot_dtype dtype = ot_graph_gradient_type(&c->view->graph->request);
  ot_task task = ot_task_of(c->view->graph, OT_OP_CHECKSUM);
  task.attributes.accumulate = true;
  task.in[0] = ot_operand_vector(OT_BASE_GRADIENT, dtype, p->first, p->count);
  task.out[0] = ot_operand_vector(OT_BASE_SQUARES, OT_I64, slot_of(p, c->view), 1);
  ot_tasks_append(c->segment, &task, 0);
}

void ot_update_checksum(const ot_update_view *view, ot_arena *arena, ot_segment *segment) {
  const update_context context = {.view = view, .segment = segment};
  const char *const block = view->graph->blocks[view->block].name;
  ot_tasks_begin(segment, ot_arena_format(arena, "checksum.%s", block), OT_PHASE_NORM,
                 ot_update_parts(view->graph, view->block), arena);
  for_each_part(append_checksum, &context);
}

// ---- optimizer ----

static const ot_optimizer_rules *rules_of(const ot_run *run, const ot_parameter *parameter) {
  return ot_optimizer_rules_of(run, parameter->kind == OT_PARAMETER_MATRIX);
}

int64_t ot_update_second_moments(const ot_graph *graph, int block, const ot_run *run,
                                 int64_t elements) {
  const ot_block *const b = &graph->blocks[block];
  int64_t most = 0;
  if (ot_optimizer_rules_of(run, true)->moments == 2) return elements;
  for (int i = 0; i < b->num_parameters; i++) {
    const ot_parameter *const p = &graph->parameters[b->first_parameter + i];
    const int64_t end = p->offset + ot_parameter_elements(p);
    if (p->tied_to < 0 && rules_of(run, p)->moments == 2 && end > most) most = end;
  }
  return most;
}

static const ot_optimizer_group *group_of(const ot_run *run, const char *name) {
  for (int64_t i = 0; i < run->optimizer.num_groups; i++) {
    if (ot_text_matches(name, run->optimizer.groups[i].pattern)) return &run->optimizer.groups[i];
  }
  return NULL;
}

// Learning rate, weight decay and epsilon of a part: the optimizer's, adjusted by kind, group and
// parametrization.
static void set_rates(const ot_run *run, const part_view *v, ot_op_attributes *attributes) {
  const ot_run_optimizer *const o = &run->optimizer;
  const ot_optimizer_group *const group = group_of(run, v->part->hf_name);
  const bool decays = v->parameter->kind != OT_PARAMETER_VECTOR;
  const bool as_matrices = rules_of(run, v->parameter) == ot_optimizer_rules_of(run, true);
  attributes->weight_decay = decays ? o->weight_decay : 0;
  double factor = !as_matrices && o->adamw_lr > 0 ? o->adamw_lr / o->lr : 1;
  if (group && group->weight_decay >= 0) attributes->weight_decay = group->weight_decay;
  // A rate of the group replaces the peak, whichever optimizer has it; its factor multiplies it.
  if (group) factor = group->lr >= 0 ? group->lr / o->lr : factor * group->lr_factor;
  attributes->learning_rate_factor = factor * v->part->rate_factor;
  attributes->weight_decay *= v->part->decay_factor;
  attributes->epsilon = o->eps * v->part->epsilon_factor;
}

// Whole matrices are not sharded (describe/parallel_check.c).
static ot_tensor_type type_of(const part_view *p, const ot_optimizer_rules *rules, ot_dtype dtype) {
  return rules->whole_matrices ? ot_type_matrix(dtype, p->part->rows, p->parameter->cols)
                               : ot_type_vector(dtype, p->count);
}

// A router's bias is updated from expert loads. All ranks together hold whole sequences.
static void append_bias(const part_view *p, const update_context *c) {
  const ot_graph_request *const request = &c->view->graph->request;
  const ot_moe *const moe = &request->model->moe;
  const int64_t wide = p->first * ot_dtype_bytes(request->compute);
  ot_task task = ot_task_of(c->view->graph, OT_OP_ROUTE_BIAS);
  task.attributes.num_experts = moe->num_experts;
  task.attributes.experts_per_token = moe->experts_per_token;
  task.attributes.bias_rate = moe->bias_rate;
  task.attributes.sequence_length = request->sequence_length;
  task.in[0] = ot_operand_vector(OT_BASE_GRADIENT_PIECE, ot_graph_gradient_type(request), p->first,
                                 p->count);
  task.in[1] = ot_operand_vector(OT_BASE_SCALAR, OT_F64, 0, OT_STEP_SCALARS);
  task.out[0] = ot_operand_vector(OT_BASE_WEIGHT_PIECE, request->storage, p->first, p->count);
  if (request->storage != request->compute) {
    task.out[1] = ot_operand_at(OT_BASE_MASTER, wide, ot_type_vector(request->compute, p->count));
  }
  task.out[2] = ot_operand_vector(OT_BASE_UPDATES, OT_F64, 2 * slot_of(p, c->view), 2);
  ot_tasks_append(c->segment, &task, 0);
}

static void append_update(const part_view *p, const update_context *c) {
  if (p->parameter->kind == OT_PARAMETER_BUFFER) {
    append_bias(p, c);
    return;
  }
  const ot_run *const run = c->run;
  const ot_optimizer_rules *const rules = rules_of(run, p->parameter);
  const ot_dtype compute = c->view->graph->request.compute;
  const ot_dtype storage = c->view->graph->request.storage;
  const ot_dtype gradients = ot_graph_gradient_type(&c->view->graph->request);
  const ot_dtype moments = ot_graph_moment_type(&c->view->graph->request);
  ot_task task = ot_task_of(c->view->graph, ot_optimizer_op(rules->name));
  task.attributes.beta1 = ot_optimizer_decay(run, rules, 0);
  task.attributes.beta2 = ot_optimizer_decay(run, rules, 1);
  set_rates(run, p, &task.attributes);

  const ot_tensor_type type = type_of(p, rules, moments);
  const int64_t place = p->first * ot_dtype_bytes(moments);
  int out = 0;
  task.in[0] = ot_operand_at(OT_BASE_GRADIENT_PIECE, p->first * ot_dtype_bytes(gradients),
                             type_of(p, rules, gradients));
  task.in[1] = ot_operand_vector(OT_BASE_SCALAR, OT_F64, 0, OT_STEP_SCALARS);
  task.out[out++] = ot_operand_at(OT_BASE_WEIGHT_PIECE, p->first * ot_dtype_bytes(storage),
                                  type_of(p, rules, storage));
  task.out[out++] = ot_operand_at(OT_BASE_MOMENT_1, place, type);
  if (rules->moments == 2) task.out[out++] = ot_operand_at(OT_BASE_MOMENT_2, place, type);
  if (storage != compute) {
    task.out[out] = ot_operand_at(OT_BASE_MASTER, p->first * ot_dtype_bytes(compute),
                                  type_of(p, rules, compute));
  }
  task.out[out + 1] = ot_operand_vector(OT_BASE_UPDATES, OT_F64, 2 * slot_of(p, c->view), 2);
  ot_tasks_append(c->segment, &task, 0);
}

void ot_update_apply(const ot_update_view *view, const ot_run *run, ot_arena *arena,
                     ot_segment *segment) {
  const update_context context = {.view = view, .run = run, .segment = segment};
  ot_tasks_begin(segment,
                 ot_arena_format(arena, "update.%s", view->graph->blocks[view->block].name),
                 OT_PHASE_UPDATE, ot_update_parts(view->graph, view->block), arena);
  for_each_part(append_update, &context);
}
