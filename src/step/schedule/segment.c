// SPDX-License-Identifier: Apache-2.0
// One pass over the ops of a phase.
#include "schedule/segment.h"

#include "base/text.h"
#include "graph/body.h"
#include "ops/attributes.h"
#include "ops/catalog.h"
#include "ops/collective.h"
#include "schedule/layout.h"
#include "workspace/workspace.h"

// ---- step-level layouts that depend on the graph only ----

int64_t ot_segment_batch_offset(const ot_graph *graph, ot_batch_field field) {
  int64_t offset = 0;
  for (int i = 0; i < (int)field; i++) {
    const ot_tensor_type type = ot_graph_batch_type(graph, (ot_batch_field)i);
    offset += ot_align(ot_type_bytes(&type));
  }
  return offset;
}

int64_t ot_segment_batch_bytes(const ot_graph *graph) {
  return ot_segment_batch_offset(graph, OT_BATCH_FIELDS);
}

static int64_t result_bytes(const ot_graph *graph, ot_result result) {
  const ot_graph_request *const request = &graph->request;
  const int64_t rows = request->micro_batch_size * request->sequence_length;
  const int64_t logits = graph->share.vocab * ot_dtype_bytes(request->compute);
  const bool prefill = ot_mode_is_prefill(request->mode);
  const bool scores = request->mode == OT_MODE_SCORE || prefill;
  const bool all = ot_mode_is_decode(request->mode) || request->mode == OT_MODE_LOGITS;
  switch (result) {
    case OT_RESULT_LOGPROBS:
      return scores ? rows * 8 : 0;
    case OT_RESULT_GREEDY:
      return scores ? rows * 4 : 0;
    case OT_RESULT_BEST:
      return prefill || (scores && graph->share.tp > 1) ? rows * 8 : 0;
    case OT_RESULT_SUM:
      return scores && graph->share.tp > 1 ? rows * 8 : 0;
    case OT_RESULT_LOGITS:
      return prefill ? request->cache.sequences * logits : all ? rows * logits : 0;
    case OT_RESULT_IDS:
    case OT_RESULT_WEIGHTS:
      return scores ? rows * request->draw_ids * 4 : 0;
    case OT_RESULT_ENTROPY:
      return scores && request->draw_ids > 0 ? rows * 8 : 0;
    case OT_RESULTS:
      break;
  }
  OT_UNREACHABLE();
}

int64_t ot_segment_result_offset(const ot_graph *graph, ot_result result) {
  int64_t offset = 0;
  for (int i = 0; i < (int)result; i++) offset += ot_align(result_bytes(graph, (ot_result)i));
  return offset;
}

int64_t ot_segment_result_bytes(const ot_graph *graph) {
  return ot_segment_result_offset(graph, OT_RESULTS);
}

// ---- operands ----

typedef struct lowering {
  const ot_segment_request *request;
  const ot_program *program;
  ot_side side;
  bool *added;  // [num_parameters of the block] accumulator already written in this segment
} lowering;

static const ot_parameter *parameter_of(const lowering *l, int index) {
  const ot_graph *const graph = l->request->graph;
  return &graph->parameters[graph->blocks[l->request->block].first_parameter + index];
}

static ot_place weight_place(const lowering *l, const ot_value *value) {
  const ot_parameter *parameter = parameter_of(l, value->index);
  const bool tied = parameter->tied_to >= 0;
  if (tied) parameter = &l->request->graph->parameters[parameter->tied_to];
  return (ot_place){tied ? OT_BASE_TIED : OT_BASE_WEIGHT,
                    parameter->offset * ot_dtype_bytes(value->type.dtype)};
}

// A tied use accumulates into a bucket like its owner's.
static ot_place accumulator_place(const lowering *l, const ot_value *value) {
  const ot_parameter *parameter = parameter_of(l, value->index);
  const bool tied = parameter->tied_to >= 0;
  if (tied) parameter = &l->request->graph->parameters[parameter->tied_to];
  return (ot_place){tied ? OT_BASE_TIED_GRADIENT : OT_BASE_GRADIENT,
                    parameter->offset * ot_dtype_bytes(value->type.dtype)};
}

static ot_place place_of(const lowering *l, int index) {
  const ot_value *const value = &l->program->values[index];
  const ot_graph *const graph = l->request->graph;
  switch (value->kind) {
    case OT_VALUE_INPUT:
      return (ot_place){value->index == OT_PORT_STACK ? OT_BASE_STACK : OT_BASE_INPUT, 0};
    case OT_VALUE_ACTIVATION:
    case OT_VALUE_GRADIENT:
      return ot_storage_place(l->request->storage, index, l->side);
    case OT_VALUE_PARAMETER:
      return weight_place(l, value);
    case OT_VALUE_ACCUMULATOR:
      return accumulator_place(l, value);
    case OT_VALUE_BATCH:
      return (ot_place){OT_BASE_BATCH,
                        ot_segment_batch_offset(graph, (ot_batch_field)value->index) +
                            value->first * ot_dtype_bytes(value->type.dtype)};
    case OT_VALUE_CONSTANT:
      return (ot_place){OT_BASE_CONSTANT,
                        value->index == 0 ? 0 : ot_align(ot_type_bytes(&graph->constants[0].type))};
    case OT_VALUE_SCALAR:
      return (ot_place){OT_BASE_SCALAR, value->index * 8};
    case OT_VALUE_STATISTIC:
      if (value->index == OT_STATISTIC_EXPERTS) return (ot_place){OT_BASE_EXPERTS, 0};
      return (ot_place){OT_BASE_STATISTIC, value->index * 8};
    case OT_VALUE_CACHE:
      return (ot_place){OT_BASE_CACHE, 0};
    case OT_VALUE_RESULT:
      return (ot_place){OT_BASE_RESULT, ot_segment_result_offset(graph, (ot_result)value->index)};
  }
  OT_UNREACHABLE();
}

static ot_operand operand(const lowering *l, int value) {
  if (value < 0) return (ot_operand){.base = OT_BASE_NONE, .value = -1};
  const ot_place place = place_of(l, value);
  return (ot_operand){.base = place.base,
                      .value = value,
                      .offset = place.offset,
                      .type = l->program->values[value].type};
}

// ---- tasks ----

// The first op that writes an accumulator in the first micro-batch overwrites it. An op in a loop
// body, which may not run, always accumulates. Other outputs accumulate if the op says so.
static bool accumulates(lowering *l, int index) {
  const ot_op *const op = &l->program->ops[index];
  const bool repeated = ot_program_repeat_of(l->program, index) >= 0;
  bool adds = op->attributes.accumulate;
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) {
    if (op->out[i] < 0) continue;
    const ot_value *const value = &l->program->values[op->out[i]];
    if (value->kind != OT_VALUE_ACCUMULATOR) continue;
    adds = repeated || !l->request->first || l->added[value->index];
    if (!repeated) l->added[value->index] = true;
  }
  return adds;
}

static ot_task lower(lowering *l, int index) {
  const ot_op *const op = &l->program->ops[index];
  const ot_op_info *const info = ot_op_info_of(op->kind);
  const bool again = l->request->phase == OT_PHASE_RECOMPUTE;
  ot_task task = {
      .kind = ot_task_kind_of(op->kind), .op = op->kind, .attributes = op->attributes, .wait = -1};
  task.lane = ot_op_communicates(op->kind) ? OT_LANE_TENSOR : OT_LANE_COMPUTE;
  for (int i = 0; i < OT_MAX_INPUTS; i++) task.in[i] = operand(l, op->in[i]);
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) {
    const bool dropped = again && ((info->effect_outputs >> i) & 1u);
    task.out[i] = operand(l, dropped ? -1 : op->out[i]);
  }
  if (info->accumulated_outputs != 0) task.attributes.accumulate = accumulates(l, index);
  ot_op_types types;
  ot_program_types(l->program, op, &types);
  task.workspace = l->request->storage->workspace[l->side][index];
  task.workspace_bytes = ot_op_workspace(op->kind, &op->attributes, &types);
  return task;
}

// The last collective of the segment so far that accesses a value, -1: none.
typedef struct collectives {
  int *writes;  // [num_values] writes it
  int *reads;   // [num_values] reads it
} collectives;

static collectives collectives_create(int num_values, ot_arena *arena) {
  const collectives made = {ot_arena_array(arena, num_values + 1, sizeof(int)),
                            ot_arena_array(arena, num_values + 1, sizeof(int))};
  for (int i = 0; i < num_values; i++) made.writes[i] = made.reads[i] = -1;
  return made;
}

static void wait_for(ot_task *task, int other) {
  if (other > task->wait) task->wait = other;
}

// Makes task `index` wait for the last collective of the segment that writes one of its inputs or
// accumulated outputs, or reads one of the latter.
static void set_wait(const ot_segment *segment, const ot_op *op, int index, collectives *last) {
  ot_task *const task = &segment->tasks[index];
  for (int i = 0; i < OT_MAX_INPUTS; i++) {
    if (op->in[i] >= 0) wait_for(task, last->writes[op->in[i]]);
  }
  for (int o = 0; o < OT_MAX_OUTPUTS; o++) {
    if (op->out[o] < 0) continue;
    wait_for(task, last->writes[op->out[o]]);
    wait_for(task, last->reads[op->out[o]]);
  }
  if (task->lane != OT_LANE_TENSOR) return;
  for (int i = 0; i < OT_MAX_INPUTS; i++) {
    if (op->in[i] >= 0) last->reads[op->in[i]] = index;
  }
  for (int o = 0; o < OT_MAX_OUTPUTS; o++) {
    if (op->out[o] >= 0) last->writes[op->out[o]] = index;
  }
}

static ot_scratch_group scratch_group_of(ot_phase phase) {
  if (phase == OT_PHASE_FORWARD) return OT_SCRATCH_FORWARD;
  return phase == OT_PHASE_WEIGHT ? OT_SCRATCH_WEIGHT : OT_SCRATCH_BACKWARD;
}

static int runs_in(const ot_storage *storage, ot_phase phase) {
  int count = 0;
  for (int i = 0; i < storage->num_runs; i++) count += storage->runs[i].phase == phase;
  return count;
}

void ot_segment_build(const ot_segment_request *request, ot_arena *arena, ot_segment *segment) {
  const ot_storage *const storage = request->storage;
  const ot_program *const program = storage->program;
  const ot_block *const block = &request->graph->blocks[request->block];
  const int count = runs_in(storage, request->phase);
  lowering l = {
      .request = request,
      .program = program,
      .side = request->phase == OT_PHASE_FORWARD ? OT_SIDE_FORWARD : OT_SIDE_BACKWARD,
      .added = ot_arena_array(arena, block->num_parameters + 1, sizeof(bool)),
  };
  *segment = (ot_segment){
      .name = ot_arena_format(arena, "%s.%s%s", program->name, ot_phase_name(request->phase),
                              request->first ? ".first" : ""),
      .phase = request->phase,
      .tasks = ot_arena_array(arena, count + 1, sizeof(ot_task)),
      .scratch_bytes = storage->scratch_bytes[scratch_group_of(request->phase)],
  };
  collectives last = collectives_create(program->num_values, arena);
  for (int i = 0; i < storage->num_runs; i++) {
    if (storage->runs[i].phase != request->phase) continue;
    segment->tasks[segment->num_tasks] = lower(&l, storage->runs[i].op);
    set_wait(segment, &program->ops[storage->runs[i].op], segment->num_tasks++, &last);
  }
}

// ---- hash ----

// The hash includes values: they identify a tensor across the phases of a block (access.c), so
// phases of two programs with different numbering are two segments.
static uint64_t hash_operand(uint64_t hash, const ot_operand *operand) {
  static const unsigned char absent = 0;
  if (operand->base == OT_BASE_NONE) return ot_hash_bytes(hash, &absent, 1);
  const int64_t fields[] = {operand->base,        operand->value,       operand->offset,
                            operand->type.dtype,  operand->type.rank,   operand->type.dim[0],
                            operand->type.dim[1], operand->type.dim[2], operand->type.dim[3]};
  return ot_hash_bytes(hash, fields, sizeof fields);
}

bool ot_segment_reads(const ot_segment *segment, ot_base base) {
  for (int i = 0; i < segment->num_tasks; i++) {
    for (int k = 0; k < OT_MAX_INPUTS; k++) {
      if (segment->tasks[i].in[k].base == base) return true;
    }
  }
  return false;
}

bool ot_segment_writes(const ot_segment *segment, ot_base base) {
  for (int i = 0; i < segment->num_tasks; i++) {
    for (int k = 0; k < OT_MAX_OUTPUTS; k++) {
      if (segment->tasks[i].out[k].base == base) return true;
    }
  }
  return false;
}

uint64_t ot_segment_hash(const ot_segment *segment) {
  uint64_t hash = OT_HASH_START;
  const int64_t head[] = {segment->phase, segment->num_tasks, segment->scratch_bytes};
  hash = ot_hash_bytes(hash, head, sizeof head);
  for (int t = 0; t < segment->num_tasks; t++) {
    const ot_task *const task = &segment->tasks[t];
    const int64_t fields[] = {
        task->kind, task->lane, task->op, task->workspace, task->workspace_bytes, task->wait};
    if (task->joins) hash = ot_hash_bytes(hash, &task->joins, sizeof task->joins);
    hash = ot_hash_bytes(hash, fields, sizeof fields);
    hash = ot_attributes_hash(hash, &task->attributes);
    for (int i = 0; i < OT_MAX_INPUTS; i++) hash = hash_operand(hash, &task->in[i]);
    for (int i = 0; i < OT_MAX_OUTPUTS; i++) hash = hash_operand(hash, &task->out[i]);
  }
  return hash;
}
