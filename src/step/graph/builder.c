// SPDX-License-Identifier: Apache-2.0
// Values, ops and parameters of a block under construction.
#include "graph/builder.h"

#include "ops/operands.h"

enum { BUCKET_ALIGNMENT = 32 };  // elements; 64 bytes or more for every storage type

static const ot_placement invariant = {OT_INVARIANT, 0};
static const ot_placement replicated = {OT_REPLICATED, 0};
static const ot_placement varying = {OT_VARYING, 0};
static const ot_placement partial = {OT_PARTIAL, 0};
static const ot_placement by_rows = {OT_SHARDED, 0};
static const ot_placement by_columns = {OT_SHARDED, 1};  // of a stack: its tokens

ot_op_attributes ot_builder_attributes(const ot_builder *builder) {
  const ot_graph_request *const request = &builder->graph->request;
  return (ot_op_attributes){
      .threads = request->threads,
      .backend = request->backend,
      .compute = request->compute,
      .independent_rows = ot_mode_is_cached(request->mode),
      .sequence_length = builder->graph->share.length,
  };
}

void ot_builder_set_group(const ot_builder *builder, ot_group_kind group,
                          ot_op_attributes *attributes) {
  const ot_local_shape *const share = &builder->graph->share;
  const struct {
    ot_group_kind group;
    int size, index;
  } axes[] = {{OT_GROUP_TENSOR, share->tp, share->tp_index},
              {OT_GROUP_CONTEXT, share->cp, share->cp_index},
              {OT_GROUP_EXPERT, share->expert_ranks, share->expert_index},
              {OT_GROUP_SEQUENCE, share->sequence_ranks, share->sequence_index}};
  int i = 0;
  while (i < OT_COUNT(axes) && axes[i].group != group) i++;
  OT_ASSERT(i < OT_COUNT(axes));
  if (axes[i].size == 1) return;
  attributes->group = group;
  attributes->group_size = axes[i].size;
  attributes->group_index = axes[i].index;
}

void ot_builder_set_context(const ot_builder *builder, ot_op_attributes *attributes) {
  const ot_local_shape *const share = &builder->graph->share;
  if (share->cp == 1) return;
  attributes->context_size = share->cp;
  attributes->context_index = share->cp_index;
  attributes->context = builder->graph->request.split.context;
}

ot_module_set ot_builder_enter(ot_builder *builder, ot_recompute_module module) {
  const ot_module_set before = builder->program->modules;
  builder->program->modules |= OT_MODULE_SET(module);
  return before;
}

void ot_builder_leave(ot_builder *builder, ot_module_set before) {
  builder->program->modules = before;
}

int ot_builder_emit(ot_builder *builder, const ot_op_description *description, ot_op *made) {
  if (builder->status == OT_OK) {
    builder->status =
        ot_program_emit(builder->program, builder->arena, OT_PART_FORWARD, description, made);
  }
  for (int i = 0; i < OT_MAX_OUTPUTS && builder->status != OT_OK; i++) made->out[i] = -1;
  return made->out[0];
}

int ot_builder_op(ot_builder *builder, const ot_op_description *description) {
  ot_op made;
  return ot_builder_emit(builder, description, &made);
}

// ---- values from outside ----

int ot_builder_external(ot_builder *builder, const ot_value *value, ot_axis_placements lives) {
  ot_program *const program = builder->program;
  for (int i = 0; i < program->num_values; i++) {
    const ot_value *const other = &program->values[i];
    const bool same = other->kind == value->kind && other->index == value->index;
    if (same && other->first == value->first) return i;
  }
  const ot_local_shape *const share = &builder->graph->share;
  ot_value made = *value;
  made.placement[OT_PLACED_TP] = share->tp > 1 ? lives.tensor : invariant;
  made.placement[OT_PLACED_CP] = share->cp > 1 && !share->expert_view ? lives.context : invariant;
  made.placement[OT_PLACED_DP] = lives.data;
  const bool experts = share->expert_view && share->expert_ranks > 1;
  made.placement[OT_PLACED_EP] = experts ? lives.experts : invariant;
  return ot_program_add_value(program, builder->arena, &made);
}

int ot_builder_input(ot_builder *builder) {
  const ot_graph *const graph = builder->graph;
  const ot_value value = {.name = "x",
                          .kind = OT_VALUE_INPUT,
                          .index = OT_PORT_HIDDEN,
                          .type = ot_type_matrix(graph->request.storage, graph->share.own_rows,
                                                 graph->request.model->hidden_size)};
  builder->program->input = ot_builder_external(
      builder, &value, (ot_axis_placements){by_rows, by_rows, varying, by_rows});
  return builder->program->input;
}

int ot_builder_stack(ot_builder *builder, int64_t size) {
  const ot_graph *const graph = builder->graph;
  const ot_value value = {
      .name = "stack",
      .kind = OT_VALUE_INPUT,
      .index = OT_PORT_STACK,
      .type = {.dtype = graph->request.storage,
               .rank = 3,
               .dim = {size, graph->share.own_rows, graph->request.model->hidden_size}}};
  builder->program->stack = ot_builder_external(
      builder, &value, (ot_axis_placements){by_columns, by_columns, varying, by_columns});
  return builder->program->stack;
}

void ot_builder_push(ot_builder *builder, int x) {
  ot_program *const program = builder->program;
  if (builder->status != OT_OK) return;
  OT_ASSERT(program->num_pushed < OT_MAX_PUSHED);
  program->d_pushed[program->num_pushed] = -1;
  program->pushed[program->num_pushed++] = x;
}

int ot_builder_constant(ot_builder *builder, int index, const char *name) {
  const ot_value value = {.name = name,
                          .kind = OT_VALUE_CONSTANT,
                          .index = index,
                          .type = builder->graph->constants[index].type};
  return ot_builder_external(builder, &value,
                             (ot_axis_placements){invariant, invariant, invariant, invariant});
}

int ot_builder_own(ot_builder *builder, ot_value_kind kind, int index, const char *name,
                   ot_tensor_type type) {
  const ot_value value = {.name = name, .kind = kind, .index = index, .type = type};
  return ot_builder_external(builder, &value,
                             (ot_axis_placements){varying, invariant, varying, varying});
}

static ot_value batch_value(const ot_builder *builder, ot_batch_field field) {
  static const char *const names[OT_BATCH_FIELDS] = {
      "tokens",  "targets", "positions", "doc_starts", "sample_ids", "ids",
      "weights", "picks",   "sequences", "pages",      "keys"};
  return (ot_value){.name = names[field],
                    .kind = OT_VALUE_BATCH,
                    .index = (int)field,
                    .type = ot_graph_batch_type(builder->graph, field)};
}

int ot_builder_batch(ot_builder *builder, ot_batch_field field) {
  const ot_value value = batch_value(builder, field);
  const bool whole = field == OT_BATCH_DOC_STARTS && builder->graph->share.ulysses;
  const bool per_sequence = field == OT_BATCH_SAMPLE_IDS || field == OT_BATCH_PICKS;
  const ot_placement context = whole || per_sequence ? invariant : by_rows;
  return ot_builder_external(builder, &value,
                             (ot_axis_placements){invariant, context, varying, by_rows});
}

int ot_builder_batch_rows(ot_builder *builder, ot_batch_field field, int64_t first, int64_t rows) {
  ot_value value = batch_value(builder, field);
  value.name = ot_arena_format(builder->arena, "%s.own", value.name);
  value.first = first;
  value.type.dim[0] = rows;
  return ot_builder_external(builder, &value,
                             (ot_axis_placements){by_rows, by_rows, varying, by_rows});
}

static int scalar(ot_builder *builder, ot_step_scalar index, const char *name,
                  ot_axis_placements lives) {
  const ot_value value = {.name = name,
                          .kind = OT_VALUE_SCALAR,
                          .index = (int)index,
                          .type = ot_type_vector(OT_F64, 1)};
  return ot_builder_external(builder, &value, lives);
}

int ot_builder_sum(ot_builder *builder, ot_step_scalar index, const char *name) {
  return scalar(builder, index, name, (ot_axis_placements){invariant, partial, partial, partial});
}

int ot_builder_scalar(ot_builder *builder, ot_step_scalar index, const char *name) {
  return scalar(builder, index, name,
                (ot_axis_placements){invariant, invariant, invariant, invariant});
}

int ot_builder_expert_sums(ot_builder *builder) {
  const ot_value value = {.name = "expert_sums",
                          .kind = OT_VALUE_STATISTIC,
                          .index = OT_STATISTIC_EXPERTS,
                          .type = ot_type_vector(OT_F64, OT_EXPERT_SUMS)};
  return ot_builder_external(builder, &value,
                             (ot_axis_placements){partial, partial, partial, partial});
}

int ot_builder_statistic(ot_builder *builder, ot_block_statistic statistic, const char *name) {
  const ot_value value = {.name = name,
                          .kind = OT_VALUE_STATISTIC,
                          .index = (int)statistic,
                          .type = ot_type_vector(OT_F64, 1)};
  return ot_builder_external(builder, &value,
                             (ot_axis_placements){varying, varying, varying, varying});
}

// ---- collectives ----

static int over(ot_builder *builder, ot_group_kind group, ot_op_kind kind, int x,
                const char *name) {
  ot_op_attributes attributes = ot_builder_attributes(builder);
  ot_builder_set_group(builder, group, &attributes);
  if (attributes.group_size == 0) return x;
  return ot_builder_op(builder, &(ot_op_description){kind, &attributes, name, 1, {x}, NULL});
}

int ot_builder_gather(ot_builder *builder, int x, const char *name) {
  return over(builder, OT_GROUP_TENSOR, OT_OP_ALL_GATHER, x, name);
}

int ot_builder_scatter(ot_builder *builder, int x, const char *name) {
  return over(builder, OT_GROUP_TENSOR, OT_OP_REDUCE_SCATTER, x, name);
}

int ot_builder_gather_over(ot_builder *builder, ot_group_kind group, int x, const char *name) {
  return over(builder, group, OT_OP_ALL_GATHER, x, name);
}

// ---- parameters ----

static int64_t pad(int64_t elements) {
  return (elements + BUCKET_ALIGNMENT - 1) / BUCKET_ALIGNMENT * BUCKET_ALIGNMENT;
}

static ot_placement tensor_placement(ot_shard_axis cut) {
  switch (cut) {
    case OT_SHARD_NOT:
    case OT_SHARD_BY_EXPERTS:
      return replicated;
    case OT_SHARD_BY_ROWS:
      return by_rows;
    case OT_SHARD_BY_COLUMNS:
      return by_columns;
  }
  OT_UNREACHABLE();
}

int ot_builder_parameter(ot_builder *builder, const ot_parameter *parameter, ot_shard_axis cut) {
  ot_graph *const graph = builder->graph;
  ot_block *const block = builder->block;
  const int index = block->num_parameters;
  ot_parameter made = *parameter;
  made.name = block->layer < 0
                  ? ot_arena_format(builder->arena, "%s.%s", block->name, parameter->name)
                  : ot_arena_format(builder->arena, "layers.%d.%s", block->layer, parameter->name);
  made.block = (int)(block - graph->blocks);
  graph->parameters = ot_arena_grow(builder->arena, graph->parameters, graph->num_parameters,
                                    &builder->parameters_capacity, sizeof *graph->parameters);
  graph->parameters[graph->num_parameters++] = made;
  block->num_parameters++;
  const ot_value value = {
      .name = parameter->name,
      .kind = OT_VALUE_PARAMETER,
      .index = index,
      .type = {.dtype = graph->request.storage,
               .rank = parameter->rank,
               .dim = {parameter->rows, parameter->rank > 1 ? parameter->cols : 0}},
  };
  // Parameters enter as I. Those used on values that differ between ranks are R from the start.
  return ot_builder_external(
      builder, &value,
      (ot_axis_placements){tensor_placement(cut), replicated, replicated,
                           cut == OT_SHARD_BY_EXPERTS ? by_rows : replicated});
}

static bool summed_over_tensor(const ot_parameter *parameter) {
  if (parameter->num_parts == 0) return false;
  const int group = parameter->parts[0].sum_group;
  return group == OT_GROUP_TENSOR_SUM || group == OT_GROUP_EXPERT_SUM;
}

// Parameters of a bucket, in their order: matrices that keep one moment come last.
typedef enum parameter_class { SUMMED, OTHER, MATRIX } parameter_class;

static parameter_class class_of(const ot_parameter *parameter,
                                const ot_optimizer_rules *optimizer) {
  if (summed_over_tensor(parameter)) return SUMMED;
  const bool last = optimizer && optimizer->moments == 1;
  return last && parameter->kind == OT_PARAMETER_MATRIX ? MATRIX : OTHER;
}

// Places the parameters of one class from `top` on; returns the end.
static int64_t lay(ot_builder *builder, parameter_class class, int64_t top) {
  const ot_optimizer_rules *const optimizer = builder->graph->request.optimizer;
  const ot_block *const block = builder->block;
  for (int i = 0; i < block->num_parameters; i++) {
    ot_parameter *const parameter = &builder->graph->parameters[block->first_parameter + i];
    if (parameter->tied_to >= 0 || class_of(parameter, optimizer) != class) continue;
    parameter->offset = top;
    top += pad(ot_parameter_elements(parameter));
  }
  return top;
}

void ot_builder_place_parameters(ot_builder *builder) {
  ot_graph *const graph = builder->graph;
  ot_block *const block = builder->block;
  block->summed_elements = lay(builder, SUMMED, 0);
  const int64_t matrices = lay(builder, OTHER, block->summed_elements);
  block->weight_elements = lay(builder, MATRIX, matrices);
  // A tied use has no storage: it reads its owner's weights and has an accumulator of that shape.
  for (int i = 0; i < block->num_parameters; i++) {
    ot_parameter *const parameter = &graph->parameters[block->first_parameter + i];
    if (parameter->tied_to < 0) continue;
    parameter->offset = graph->parameters[parameter->tied_to].offset;
  }
}
