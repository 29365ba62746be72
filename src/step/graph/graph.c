// SPDX-License-Identifier: Apache-2.0
// Model to blocks: builds each block's program, deduplicates equal programs, differentiates.
#include "graph/graph.h"

#include "base/text.h"
#include "graph/builder.h"
#include "graph/decoder.h"
#include "graph/differentiate.h"
#include "graph/expand.h"
#include "graph/program_check.h"
#include "ops/decode.h"
#include "ops/operands.h"

ot_tensor_type ot_graph_batch_type(const ot_graph *graph, ot_batch_field field) {
  const ot_local_shape *const share = &graph->share;
  const ot_cache_shape *const cache = &graph->request.cache;
  const bool cached = ot_mode_is_cached(graph->request.mode);
  const int64_t sequences = cached ? cache->sequences : graph->request.micro_batch_size;
  const bool per_sequence = field == OT_BATCH_SAMPLE_IDS || field == OT_BATCH_PICKS;
  const bool whole = field == OT_BATCH_DOC_STARTS && share->ulysses;
  if (field == OT_BATCH_PAGES) {
    const int64_t pages = cached ? cache->positions / OT_PAGE_SLOTS : 0;
    return (ot_tensor_type){.dtype = OT_I32, .rank = 2, .dim = {cached ? sequences : 0, pages}};
  }
  if (field == OT_BATCH_IDS || field == OT_BATCH_WEIGHTS) {
    const bool trains = graph->request.mode == OT_MODE_TRAIN;
    const int64_t K = trains ? graph->request.weighted_targets : 0;
    return ot_type_matrix(field == OT_BATCH_IDS ? OT_I32 : OT_F32, share->rows, K);
  }
  if (field == OT_BATCH_KEYS) {
    const bool draws = graph->request.mode == OT_MODE_SCORE && graph->request.draw_ids > 0;
    return ot_type_vector(OT_I64, draws ? share->rows : 0);
  }
  if (field == OT_BATCH_SEQUENCES && !cached) return ot_type_vector(OT_I32, 0);
  return (ot_tensor_type){
      .dtype = field == OT_BATCH_SAMPLE_IDS ? OT_I64 : OT_I32,
      .rank = 1,
      .dim = {per_sequence ? sequences : share->rows * (whole ? share->cp : 1)},
  };
}

int64_t ot_graph_largest_parameter(const ot_graph *graph) {
  int64_t most = 0;
  for (int i = 0; i < graph->num_parameters; i++) {
    const int64_t elements = ot_parameter_elements(&graph->parameters[i]);
    if (elements > most) most = elements;
  }
  return most;
}

int64_t ot_graph_widest_row(const ot_graph *graph) {
  int64_t widest = 1;
  for (int i = 0; i < graph->num_parameters; i++) {
    if (graph->parameters[i].cols > widest) widest = graph->parameters[i].cols;
  }
  return widest;
}

const ot_parameter *ot_graph_parameter(const ot_graph *graph, const char *name) {
  for (int i = 0; i < graph->num_parameters; i++) {
    if (ot_text_equal(graph->parameters[i].name, name)) return &graph->parameters[i];
  }
  return NULL;
}

// ---- rope tables ----

static ot_constant rope_table(const ot_graph_request *request, const ot_rope *rope) {
  const ot_model *const model = request->model;
  const bool cached = ot_mode_is_cached(request->mode);
  return (ot_constant){
      .op = OT_OP_ROPE_TABLE,
      .attributes = {.threads = request->threads,
                     .backend = request->backend,
                     .compute = request->compute,
                     .head_dim = model->head_dim,
                     .rotary_dim = model->rotary_dim,
                     .rope_type = rope->type,
                     .rope_theta = rope->theta,
                     .rope_factor = rope->factor,
                     .rope_low_frequency_factor = rope->low_frequency_factor,
                     .rope_high_frequency_factor = rope->high_frequency_factor,
                     .rope_original_positions = rope->original_positions,
                     .rope_beta_fast = rope->beta_fast,
                     .rope_beta_slow = rope->beta_slow,
                     .rope_mscale = rope->mscale,
                     .rope_mscale_all = rope->mscale_all,
                     .rope_exact_ramp = rope->exact_ramp},
      .type = {.dtype = request->compute,
               .rank = 3,
               .dim = {cached ? request->cache.positions : request->sequence_length,
                       model->rotary_dim / 2, 2}},
  };
}

static void build_constants(ot_graph *graph) {
  const ot_model *const model = graph->request.model;
  if (model->rotary_dim == 0) return;
  graph->constants[graph->num_constants++] = rope_table(&graph->request, &model->rope);
  bool local = false;
  for (int i = 0; i < model->num_layers; i++) local = local || model->window[i] > 0;
  if (local && !ot_rope_same(&model->rope, &model->rope_local)) {
    graph->constants[graph->num_constants++] = rope_table(&graph->request, &model->rope_local);
  }
}

// ---- blocks ----

static void begin_block(ot_builder *builder, const char *name, int layer) {
  ot_block *const block = &builder->graph->blocks[builder->graph->num_blocks++];
  *block =
      (ot_block){.name = name, .layer = layer, .first_parameter = builder->graph->num_parameters};
  builder->block = block;
  *builder->program = (ot_program){.name = name,
                                   .input = -1,
                                   .output = -1,
                                   .d_input = -1,
                                   .d_output = -1,
                                   .stack = -1,
                                   .d_stack = -1};
}

// A gradient must be reduced over tp (in the expert view, ep) exactly when the ranks use the
// parameter on different values.
static ot_status check_sums(const ot_graph *graph, const ot_block *block,
                            const ot_program *program) {
  for (int i = 0; i < program->num_values; i++) {
    const ot_value *const value = &program->values[i];
    if (value->kind != OT_VALUE_PARAMETER) continue;
    const ot_parameter *const p = &graph->parameters[block->first_parameter + value->index];
    const ot_placed_axis axis = block->experts ? OT_PLACED_EP : OT_PLACED_TP;
    const int group = block->experts ? OT_GROUP_EXPERT_SUM : OT_GROUP_TENSOR_SUM;
    const bool retyped = value->placement[axis].kind == OT_REPLICATED;
    for (int k = 0; k < p->num_parts; k++) {
      OT_CHECK(retyped == (p->parts[k].sum_group == group), OT_BUG,
               "graph: %s is %s on %s, but its gradient is %sreduced over it", p->name,
               ot_placement_name(value->placement[axis]), ot_placed_axis_name(axis),
               retyped ? "not " : "");
    }
  }
  return OT_OK;
}

// Differentiates and expands the finished block, and reuses an equal program if one exists.
static ot_status end_block(ot_builder *builder) {
  OT_TRY(builder->status);
  ot_graph *const graph = builder->graph;
  ot_program *const program = builder->program;
  ot_builder_place_parameters(builder);
  if (graph->request.mode == OT_MODE_TRAIN) {
    const ot_dtype gradients = ot_graph_gradient_type(&graph->request);
    OT_TRY(ot_program_differentiate(program, builder->arena, gradients));
  }
  OT_TRY(ot_program_expand(program, builder->arena));
  OT_TRY(ot_program_check(program, builder->arena));
  OT_TRY(check_sums(graph, builder->block, program));
  for (int i = 0; i < graph->num_programs; i++) {
    const ot_program *const other = &graph->programs[i];
    if (other->num_ops != program->num_ops || other->num_values != program->num_values) continue;
    if (ot_program_hash(other) != ot_program_hash(program)) continue;
    builder->block->program = i;
    return OT_OK;
  }
  const char *const kind = builder->block->experts ? "experts" : "layer";
  program->name = builder->block->layer < 0
                      ? builder->block->name
                      : ot_arena_format(builder->arena, "%s_%d", kind, builder->block->layer);
  builder->block->program = graph->num_programs;
  graph->programs[graph->num_programs++] = *program;
  return OT_OK;
}

int ot_graph_layer_blocks(const ot_model *model, const ot_split *split, int layer) {
  return (split->separate_expert_block || split->ep > 1 || split->etp > 1) &&
                 model->moe.layer[layer]
             ? 2
             : 1;
}

static ot_status build_layer(ot_builder *builder, int layer) {
  ot_graph *const graph = builder->graph;
  const ot_model *const model = graph->request.model;
  const bool apart = ot_graph_layer_blocks(model, &graph->request.split, layer) > 1;
  begin_block(builder, ot_arena_format(builder->arena, "layers.%d", layer), layer);
  if (!apart) {
    ot_decoder_layer(builder, layer);
    return end_block(builder);
  }
  ot_decoder_layer_attention(builder, layer);
  OT_TRY(end_block(builder));
  const ot_local_shape dense = graph->share;
  begin_block(builder, ot_arena_format(builder->arena, "layers.%d.experts", layer), layer);
  builder->block->experts = true;
  graph->share = ot_local_shape_of_experts(&dense, model);
  ot_decoder_layer_experts(builder, layer);
  graph->share = dense;
  return end_block(builder);
}

int ot_graph_block_of_layer(const ot_graph *graph, int layer) {
  int block = 1;
  while (graph->blocks[block].layer < layer) block++;
  return block;
}

ot_status ot_graph_build(const ot_graph_request *request, ot_arena *arena, ot_graph *graph) {
  const int layers = (int)request->model->num_layers;
  const int most = 2 * layers + 2;
  *graph = (ot_graph){.request = *request};
  OT_TRY(ot_local_shape_build(request, &graph->share));
  graph->blocks = ot_arena_array(arena, most, sizeof *graph->blocks);
  graph->programs = ot_arena_array(arena, most, sizeof *graph->programs);
  build_constants(graph);
  ot_program program;
  ot_builder builder = {.graph = graph, .arena = arena, .program = &program};

  begin_block(&builder, "embedding", -1);
  ot_decoder_embedding(&builder);
  OT_TRY(end_block(&builder));
  for (int i = 0; i < layers; i++) OT_TRY(build_layer(&builder, i));
  begin_block(&builder, "head", -1);
  ot_decoder_head(&builder, graph->blocks[0].first_parameter);
  return end_block(&builder);
}
