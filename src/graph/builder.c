// SPDX-License-Identifier: Apache-2.0
// Values, ops and parameters of a block under construction.
#include "graph/builder.h"

#include "base/text.h"
#include "ops/catalog.h"
#include "ops/operands.h"

enum { BUCKET_ALIGNMENT = 32 };  // elements; 64 bytes or more for every storage type

ot_op_attributes ot_builder_attributes(const ot_builder *builder) {
  const ot_graph_request *const request = &builder->graph->request;
  return (ot_op_attributes){
      .threads = request->threads,
      .compute = request->compute,
      .sequence_length = request->sequence_length,
  };
}

static int add_output(ot_builder *builder, const char *name, int output, ot_tensor_type type) {
  const ot_value value = {
      .name = output == 0 ? name : ot_arena_format(builder->arena, "%s.%d", name, output),
      .kind = OT_VALUE_ACTIVATION,
      .type = type,
  };
  return ot_program_add_value(builder->program, builder->arena, &value);
}

int ot_builder_op(ot_builder *builder, const ot_op_description *description) {
  if (builder->status != OT_OK) return -1;
  const ot_op_info *const info = ot_op_info_of(description->kind);
  ot_op op = {
      .kind = description->kind, .part = OT_PART_FORWARD, .attributes = *description->attributes};
  for (int i = 0; i < OT_MAX_INPUTS; i++) {
    op.in[i] = i < description->num_in ? description->in[i] : -1;
  }
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) op.out[i] = description->out ? description->out[i] : -1;
  ot_op_types types;
  ot_program_types(builder->program, &op, &types);
  builder->status = ot_op_infer(op.kind, &op.attributes, &types);
  if (builder->status != OT_OK) return -1;
  for (int i = 0; i < info->num_outputs; i++) {
    const bool given = ((info->accumulated_outputs | info->effect_outputs) >> i) & 1u;
    if (given || op.out[i] >= 0 || !ot_type_present(&types.out[i])) continue;
    op.out[i] = add_output(builder, description->name, i, types.out[i]);
  }
  ot_program_add_op(builder->program, builder->arena, &op);
  return op.out[0];
}

int ot_builder_external(ot_builder *builder, ot_value_kind kind, int index, const char *name,
                        ot_tensor_type type) {
  ot_program *const program = builder->program;
  for (int i = 0; i < program->num_values; i++) {
    if (program->values[i].kind == kind && program->values[i].index == index) return i;
  }
  const ot_value value = {.name = name, .kind = kind, .type = type, .index = index};
  return ot_program_add_value(program, builder->arena, &value);
}

int ot_builder_batch(ot_builder *builder, ot_batch_field field) {
  static const char *const names[OT_BATCH_FIELDS] = {"tokens",     "targets",    "positions",
                                                     "doc_starts", "sample_ids", "lengths"};
  return ot_builder_external(builder, OT_VALUE_BATCH, (int)field, names[field],
                             ot_graph_batch_type(builder->graph, field));
}

int ot_builder_scalar(ot_builder *builder, ot_step_scalar scalar, const char *name) {
  const ot_tensor_type one = ot_type_vector(OT_F64, 1);
  return ot_builder_external(builder, OT_VALUE_SCALAR, (int)scalar, name, one);
}

static int64_t pad(int64_t elements) {
  return (elements + BUCKET_ALIGNMENT - 1) / BUCKET_ALIGNMENT * BUCKET_ALIGNMENT;
}

int ot_builder_parameter(ot_builder *builder, const ot_parameter *parameter) {
  ot_graph *const graph = builder->graph;
  ot_block *const block = builder->block;
  const int index = block->num_parameters;
  ot_parameter made = *parameter;
  made.name = ot_arena_format(builder->arena, "%s.%s", block->name, parameter->name);
  made.block = (int)(block - graph->blocks);
  made.offset = made.tied_to < 0 ? block->weight_elements : graph->parameters[made.tied_to].offset;
  const int64_t elements = pad(ot_parameter_elements(&made));
  // A tied use takes no room: it reads its owner's weights and adds up in a bucket of that shape.
  if (made.tied_to < 0) block->weight_elements += elements;

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
  return ot_program_add_value(builder->program, builder->arena, &value);
}
