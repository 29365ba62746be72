// SPDX-License-Identifier: Apache-2.0
// What the blocks of a decoder are written with. Private to graph/decoder*.c.
#pragma once

#include "graph/builder.h"

static inline const ot_model *ot_model_of(const ot_builder *b) { return b->graph->request.model; }

static inline const ot_share *ot_share_of(const ot_builder *b) { return &b->graph->share; }

bool ot_builder_trains(const ot_builder *b);

// ---- parameters; rows and columns are those of this rank ----

int ot_decoder_matrix(ot_builder *b, ot_role role, const char *name, int64_t rows, int64_t cols);

// An embedding: `rows` of hidden_size.
int ot_decoder_table(ot_builder *b, ot_role role, const char *name, int64_t rows);

// `suffix` is "weight", "bias" or "sinks".
int ot_decoder_vector(ot_builder *b, ot_role role, const char *name, const char *suffix,
                      int64_t rows);

// Zero at first; OT_PARAMETER_BUFFER.
int ot_decoder_buffer(ot_builder *b, ot_role role, const char *name, const char *suffix,
                      int64_t rows);

// [hidden_size], zero at first.
int ot_decoder_query(ot_builder *b, ot_role role, const char *name);

// ---- ops ----

int ot_decoder_norm(ot_builder *b, ot_role role, const char *name, int x);

// What the activation of MLPs and experts is.
void ot_decoder_set_activation(const ot_builder *b, ot_op_attributes *attributes);

// A key of the dropout masks of the tensor called `name` in this block.
uint64_t ot_decoder_rng_stream(const ot_builder *b, const char *name);

// x [own_rows, C] with some elements dropped; x itself outside training.
int ot_decoder_dropout(ot_builder *b, const char *name, int x, double probability);

typedef struct ot_projection {
  ot_role role;
  const char *name;
  int64_t rows, cols;  // of this rank
  bool bias;
  int residual;  // value added to the product, or -1; of a projection onto the residual stream
} ot_projection;

// x [own_rows, C] -> [R, rows]: outputs of this rank for all rows.
int ot_decoder_into(ot_builder *b, int x, const ot_projection *p);

// x [R, cols], this rank's part of what is summed over -> [own_rows, C] of the whole sum.
int ot_decoder_onto(ot_builder *b, int x, const ot_projection *p);

// A branch's last projection joined to the residual stream `x`: in one op where nothing stands
// between, else projection, norm, dropout, sum. The branch alone where x is -1.
int ot_decoder_join(ot_builder *b, int branch, int x, ot_projection p, ot_role post_norm);

// The residual stream as a sub-layer finds it.
typedef struct ot_residual_stream {
  int sum;    // what the sub-layer's branch is added to, or -1
  int stack;  // outputs of finished blocks, or -1: the branch reads the sum
  int last;   // one more of them, or the sum so far, or -1
} ot_residual_stream;

// The stream where a layer begins (`after` 0 sub-layers), where its MLP does when that is a block
// of its own (1), or, for the number of layers of the model, at the head.
ot_residual_stream ot_residual_enter(ot_builder *b, int layer, int after);

// What the sub-layer reads.
int ot_residual_read(ot_builder *b, const ot_residual_stream *stream, ot_role query,
                     const char *name);

// `x` is what the sub-layer made, joined to the sum; `ends`: it is the last of its block.
void ot_residual_add(ot_builder *b, ot_residual_stream *stream, int x, bool ends);

// The block ends here.
void ot_residual_end_block(ot_builder *b, const ot_residual_stream *stream);

// The attention branch of a layer, which reads `x`, joined to `sum` (or alone).
int ot_decoder_attention(ot_builder *b, int layer, int x, int sum);

// Attention over packed q|k|v [R, (H+2G)*D], whole or over the ranks of cp -> [R, H*D].
int ot_decoder_attend(ot_builder *b, int layer, int qkv);

// The same branch where keys and values are made of latents.
int ot_decoder_latent_attention(ot_builder *b, int layer, int x, int sum);

// The branch of a layer with experts, in place of the MLP, which reads `x`, joined to `sum` (or
// alone).
int ot_decoder_experts(ot_builder *b, int x, int sum);
