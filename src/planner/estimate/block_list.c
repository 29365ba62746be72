// SPDX-License-Identifier: Apache-2.0
// Lists the blocks of a candidate's graph, from the model's layers and the graph's split.
#include "estimate/framework.h"

const ot_block_list *ot_estimator_blocks(const ot_estimator *e, const ot_candidate *c) {
  const ot_candidate built = e->framework->built(c);
  return built.ep * built.etp > 1 ? &e->apart : &e->joined;
}

ot_split ot_estimator_split(const ot_estimator *e, const ot_candidate *c,
                            ot_context_parallel context) {
  const ot_candidate built = e->framework->built(c);
  const int ep = built.ep, etp = built.etp, rank = ot_estimator_rank(c);
  return (ot_split){.tp = c->tp,
                    .tp_index = rank,
                    .cp = c->cp,
                    .context = context,
                    .ep = ep,
                    .ep_index = rank / etp % ep,
                    .etp = etp,
                    .etp_index = rank % etp,
                    .separate_expert_block = ep * etp > 1};
}

// `first_kind` receives the index of the first block kind of each layer kind.
static void list_kinds(const ot_estimator *e, const ot_split *split, int *first_kind,
                       ot_block_list *out) {
  const int layers = (int)e->layers.num_layers;
  int kinds = 1;
  out->experts = ot_arena_array(e->arena, 2 * (int64_t)layers + 2, sizeof(bool));
  for (int i = 0; i < layers; i++) {
    const int blocks = ot_graph_layer_blocks(&e->layers, split, i);
    first_kind[i] = kinds;
    for (int k = 1; k < blocks; k++) out->experts[kinds + k] = true;
    kinds += blocks;
  }
  out->num_kinds = kinds + 1;
  out->count = ot_arena_array(e->arena, out->num_kinds, sizeof(int));
}

static void add_block(ot_block_list *list, int kind, int place) {
  list->count[kind]++;
  list->kind_of[list->num_blocks] = kind;
  list->place_of[list->num_blocks++] = place;
}

void ot_block_list_build(const ot_estimator *e, const int *layer_kind, const ot_split *split,
                         ot_block_list *out) {
  const int layers = (int)e->job.model->num_layers;
  int *const first_kind = ot_arena_array(e->arena, e->layers.num_layers, sizeof(int));
  *out = (ot_block_list){0};
  list_kinds(e, split, first_kind, out);
  out->kind_of = ot_arena_array(e->arena, 2 * (int64_t)layers + 2, sizeof(int));
  out->place_of = ot_arena_array(e->arena, 2 * (int64_t)layers + 2, sizeof(int));
  add_block(out, 0, 0);
  for (int i = 0; i < layers; i++) {
    const int blocks = ot_graph_layer_blocks(&e->layers, split, layer_kind[i]);
    for (int k = 0; k < blocks; k++) add_block(out, first_kind[layer_kind[i]] + k, i + 1);
  }
  add_block(out, out->num_kinds - 1, layers + 1);
}
