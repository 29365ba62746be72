// SPDX-License-Identifier: Apache-2.0
// The plain model for its callers: what it accepts, and the choice of the type.
#include "judge/plain.h"

#include <stdlib.h>

#include "base/text.h"
#include "describe/residuals.h"
#include "host/heap.h"
#include "judge/plain_parts.h"

struct ot_plain {
  ot_heap heap;
  ot_arena arena;
  ot_plain_request request;
  ot_plain_scratch own;
  const ot_plain_functions *functions;
  void *state;
};

ot_dtype ot_plain_dtype(ot_plain_type type) { return type == OT_PLAIN_F64 ? OT_F64 : OT_F32; }

// ---- what is accepted ----

// Names of parameters after that of their block, between spaces.
static const char known[] =
    " tokens.weight positions.weight final_residual.weight final_norm.weight final_norm.bias "
    "output.weight attention_residual.weight mlp_residual.weight attention_norm.weight "
    "attention_norm.bias mlp_norm.weight mlp_norm.bias attention.qkv.weight attention.qkv.bias "
    "attention.q_norm.weight attention.k_norm.weight attention.sinks attention.output.weight "
    "attention.output.bias attention.output_post_norm.weight attention.q.weight "
    "attention.q_down.weight attention.q_down.bias attention.q_latent_norm.weight "
    "attention.q_up.weight attention.kv_down.weight attention.kv_down.bias "
    "attention.kv_latent_norm.weight attention.kv_up.weight mlp.gate_up.weight mlp.gate_up.bias "
    "mlp.up.weight mlp.up.bias mlp.down.weight mlp.down.bias mlp.down_post_norm.weight "
    "router.weight router.bias router.e_score_correction_bias experts.gate_up.weight "
    "experts.gate_up.bias experts.down.weight experts.down.bias shared.gate_up.weight "
    "shared.down.weight shared.gate.weight ";

static bool is_known(const char *name) {
  char word[64];
  ot_text_format(word, sizeof word, " %s ", name);
  return ot_text_find(known, word) != NULL;
}

static ot_status check_graph(const ot_graph *graph) {
  const ot_moe *const moe = &graph->request.model->moe;
  OT_CHECK(graph->request.mode == OT_MODE_TRAIN && graph->share.tp == 1 && graph->share.cp == 1 &&
               graph->num_blocks == graph->request.model->num_layers + 2,
           OT_USAGE, "judge: the plain model needs the graph of a whole model in train mode");
  OT_CHECK(moe->num_experts == 0 || moe->routing == OT_MOE_DROPLESS, OT_USAGE,
           "judge: moe_routing other than dropless is not supported");
  for (int i = 0; i < graph->num_parameters; i++) {
    const ot_parameter *const p = &graph->parameters[i];
    const int64_t block = ot_text_length(graph->blocks[p->block].name);
    OT_CHECK(is_known(p->name + block + 1), OT_USAGE,
             "judge: parameter %s is not known to the plain model", p->name);
  }
  return OT_OK;
}

static ot_status check_range(const char *what, int64_t row, int64_t value, int64_t least,
                             int64_t end) {
  OT_CHECK(value >= least && value < end, OT_USAGE,
           "judge: row %lld has %s %lld; allowed: %lld to %lld", (long long)row, what,
           (long long)value, (long long)least, (long long)end - 1);
  return OT_OK;
}

static ot_status check_row(const ot_model *m, const ot_plain_batch *b, int64_t r) {
  OT_TRY(check_range("token", r, b->ids[r], 0, m->vocab_size));
  OT_TRY(check_range("target", r, b->targets[r], -1, m->vocab_size));
  OT_TRY(check_range("position", r, b->positions[r], 0, m->max_positions));
  OT_CHECK(
      b->first[r] == r || (r > 0 && b->first[r] == b->first[r - 1]), OT_USAGE,
      "judge: row %lld sees rows from %lld on; allowed: itself, or what the row before it sees",
      (long long)r, (long long)b->first[r]);
  return OT_OK;
}

// The experts of row `r` are k different ones.
static ot_status check_choices(const ot_moe *moe, const int32_t *choices, int64_t r) {
  const int32_t *const own = choices + r * moe->experts_per_token;
  for (int64_t j = 0; j < moe->experts_per_token; j++) {
    OT_TRY(check_range("expert", r, own[j], 0, moe->num_experts));
    for (int64_t i = 0; i < j; i++) {
      OT_CHECK(own[i] != own[j], OT_USAGE, "judge: row %lld has expert %d twice", (long long)r,
               own[j]);
    }
  }
  return OT_OK;
}

static ot_status check_experts(const ot_model *m, const ot_plain_batch *b) {
  int64_t begin = 0;
  for (int g = 0; g < b->num_groups; g++) {
    OT_CHECK(b->group_end[g] > begin, OT_USAGE, "judge: group %d has no rows", g);
    begin = b->group_end[g];
  }
  OT_CHECK(begin == b->rows, OT_USAGE, "judge: groups end at row %lld, the batch has %lld",
           (long long)begin, (long long)b->rows);
  for (int64_t i = 0; b->choices && i < m->num_layers; i++) {
    for (int64_t r = 0; m->moe.layer[i] && b->choices[i] && r < b->rows; r++) {
      OT_TRY(check_choices(&m->moe, b->choices[i], r));
    }
  }
  return OT_OK;
}

static ot_status check_request(const ot_plain_request *request) {
  const ot_model *const model = request->graph->request.model;
  OT_CHECK(request->batch->rows > 0, OT_USAGE, "judge: the batch has no rows");
  OT_TRY(check_graph(request->graph));
  for (int64_t r = 0; r < request->batch->rows; r++) {
    OT_TRY(check_row(model, request->batch, r));
  }
  return model->moe.num_experts > 0 ? check_experts(model, request->batch) : OT_OK;
}

// ---- calls ----

ot_status ot_plain_build_graph(const ot_model *model, int64_t rows, ot_arena *arena,
                               ot_graph *out) {
  const ot_graph_request request = {.model = model,
                                    .mode = OT_MODE_TRAIN,
                                    .micro_batch_size = 1,
                                    .sequence_length = rows,
                                    .compute = OT_F64,
                                    .storage = OT_F64,
                                    .threads = 1};
  return ot_graph_build(&request, arena, out);
}

ot_status ot_plain_create(const ot_plain_request *request, ot_plain **out) {
  *out = NULL;
  OT_TRY(check_request(request));
  ot_plain *const plain = calloc(1, sizeof *plain);
  OT_CHECK(plain, OT_ENVIRONMENT, "judge: out of memory");
  plain->request = *request;
  plain->functions =
      request->type == OT_PLAIN_F64 ? &ot_plain_functions_f64 : &ot_plain_functions_f32;
  if (!request->scratch) plain->request.scratch = &plain->own;
  plain->arena = ot_heap_arena_create(&plain->heap);
  plain->state = plain->functions->create(&plain->request, &plain->arena);
  *out = plain;
  return OT_OK;
}

void ot_plain_destroy(ot_plain **plain) {
  if (!*plain) return;
  ot_heap_release(&(*plain)->own.heap);
  ot_heap_release(&(*plain)->heap);
  free(*plain);
  *plain = NULL;
}

int64_t ot_plain_inputs(const ot_plain *plain, int block) {
  const ot_graph *const graph = plain->request.graph;
  const ot_model *const model = graph->request.model;
  const int layer = graph->blocks[block].layer;
  if (block == 0) return 0;
  const ot_residual_position at =
      ot_residual_position_of(model, layer < 0 ? model->num_layers : layer);
  return at.finished == 0 ? 1 : at.finished + at.begun;
}

void ot_plain_forward(ot_plain *plain, const ot_plain_block *block, const void *x, void *y) {
  plain->functions->forward(plain->state, block, x, y);
}

void ot_plain_backward(ot_plain *plain, const ot_plain_block *block, const void *x, const void *dy,
                       void *dx) {
  plain->functions->backward(plain->state, block, x, dy, dx);
}

double ot_plain_head(ot_plain *plain, const ot_plain_block *block, const void *x, void *dx) {
  return plain->functions->head(plain->state, block, x, dx);
}

void ot_plain_logits(ot_plain *plain, const ot_plain_block *block, const void *x,
                     ot_plain_row *receive, void *context) {
  plain->functions->logits(plain->state, block, x, receive, context);
}
