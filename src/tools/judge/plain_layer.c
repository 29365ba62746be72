// SPDX-License-Identifier: Apache-2.0
// A layer: two sub-layers, attention and MLP. Each reads the stream, norms what it read if it has a
// norm before, runs its branch, norms the result if it has a norm after, and joins it to the
// stream. And the plain model in one type: its state and its calls.
#include "describe/residuals.h"
#include "judge/plain_parts.h"

static ot_plain_value *branch(ot_plain_state *s, int sub, ot_plain_value *u) {
  const ot_model *const m = s->model;
  const int64_t F = m->intermediate_size;
  const ot_plain_mlp gated = {
      {"mlp.gate_up", 0, F, false}, {"mlp.gate_up", F, F, false}, {.name = "mlp.down"}};
  const ot_plain_mlp simple = {.up = {.name = "mlp.up"}, .down = {.name = "mlp.down"}};
  if (sub == 0 && m->mla.kv_rank > 0) return OT_KERNEL(ot_plain_latent)(s, u);
  if (sub == 0) return OT_KERNEL(ot_plain_attention)(s, u);
  if (m->moe.layer[s->layer]) return OT_KERNEL(ot_plain_experts)(s, u);
  return OT_KERNEL(ot_plain_feed)(s, u, m->gated_mlp ? &gated : &simple);
}

static void run_sub_layer(ot_plain_state *s, int sub, ot_plain_stream *stream) {
  static const char *const queries[] = {"attention_residual", "mlp_residual"};
  static const char *const before[] = {"attention_norm", "mlp_norm"};
  static const char *const after[] = {"attention.output_post_norm", "mlp.down_post_norm"};
  const ot_plain_norm norm = OT_KERNEL(ot_plain_norm_of)(s, before[sub]);
  const ot_plain_norm post = OT_KERNEL(ot_plain_norm_of)(s, after[sub]);
  ot_plain_value *y = OT_KERNEL(ot_plain_mix)(s, stream, queries[sub]);
  y = OT_KERNEL(ot_plain_norm)(s, y, &norm);
  y = OT_KERNEL(ot_plain_norm)(s, branch(s, sub, y), &post);
  if (stream->sum) y = OT_KERNEL(ot_plain_add)(s, stream->part[--stream->count], y);
  stream->part[stream->count++] = y;
}

// The stream that leaves the layer.
static ot_plain_stream run_layer(ot_plain_state *s, const void *x, void *dx) {
  const ot_residual_position at = ot_residual_position_of(s->model, s->layer);
  ot_plain_stream stream = OT_KERNEL(ot_plain_enter)(s, x, dx);
  run_sub_layer(s, 0, &stream);
  stream.sum = !at.attention_ends;
  run_sub_layer(s, 1, &stream);
  return stream;
}

static void layer_forward(ot_plain_state *s, const void *x, ot_real *y) {
  const ot_plain_stream stream = run_layer(s, x, NULL);
  for (int i = 0; i < stream.count; i++) {
    memcpy(y + i * s->R * s->C, stream.part[i]->x, (size_t)(s->R * s->C) * sizeof *y);
  }
}

static void layer_backward(ot_plain_state *s, const void *x, const ot_real *dy, void *dx) {
  const ot_plain_stream stream = run_layer(s, x, dx);
  for (int i = 0; i < stream.count; i++) {
    OT_KERNEL(ot_plain_give)(s, stream.part[i], dy + i * s->R * s->C);
  }
  OT_KERNEL(ot_plain_run_back)(s, (ot_plain_mark){0});
}

// ---- calls ----

static void *create(const ot_plain_request *request, ot_arena *arena) {
  ot_plain_state *const s = ot_arena_take(arena, sizeof *s);
  *s = (ot_plain_state){.graph = request->graph,
                        .model = request->graph->request.model,
                        .batch = request->batch,
                        .narrow = request->type == OT_PLAIN_BF16,
                        .cast = request->type == OT_PLAIN_AUTOCAST,
                        .reversed = request->reversed,
                        .losses = request->losses,
                        .threads = request->threads > 0 ? request->threads : 1,
                        .R = request->batch->rows,
                        .C = request->graph->request.model->hidden_size,
                        .scratch = request->scratch};
  OT_KERNEL(ot_plain_rope_create)(s, arena);
  OT_KERNEL(ot_plain_heads_create)(s, arena);
  return s;
}

// Prepares the state for a block; scratch is free again.
static ot_plain_state *begin(void *state, const ot_plain_block *block, bool gradient) {
  ot_plain_state *const s = state;
  s->block = block;
  s->layer = s->graph->blocks[block->index].layer;
  s->gradient = gradient;
  s->router = (ot_plain_router){0};
  OT_KERNEL(ot_plain_release)(s, (ot_plain_mark){0});
  return s;
}

static void forward(void *state, const ot_plain_block *block, const void *x, void *y) {
  ot_plain_state *const s = begin(state, block, false);
  if (s->layer < 0) {
    OT_KERNEL(ot_plain_embed)(s, y);
  } else {
    layer_forward(s, x, y);
  }
  if (block->router) *block->router = s->router;
}

static void backward(void *state, const ot_plain_block *block, const void *x, const void *dy,
                     void *dx) {
  ot_plain_state *const s = begin(state, block, true);
  if (s->layer < 0) {
    OT_KERNEL(ot_plain_embed_back)(s, dy);
  } else {
    layer_backward(s, x, dy, dx);
  }
  if (block->router) *block->router = s->router;
}

static double head(void *state, const ot_plain_block *block, const void *x, void *dx) {
  return OT_KERNEL(ot_plain_loss)(begin(state, block, dx), x, dx);
}

static void logits(void *state, const ot_plain_block *block, const void *x, ot_plain_row *receive,
                   void *context) {
  OT_KERNEL(ot_plain_show)(begin(state, block, false), x, receive, context);
}

const ot_plain_functions OT_KERNEL(ot_plain_functions) = {
    .create = create, .forward = forward, .backward = backward, .head = head, .logits = logits};
