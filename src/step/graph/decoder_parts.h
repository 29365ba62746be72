// SPDX-License-Identifier: Apache-2.0
// Building blocks of the decoder programs. Private to graph/decoder*.c.
#pragma once

#include "graph/builder.h"

static inline const ot_model *ot_model_of(const ot_builder *b) { return b->graph->request.model; }

static inline const ot_local_shape *ot_share_of(const ot_builder *b) { return &b->graph->share; }

bool ot_builder_trains(const ot_builder *b);

// ---- parameters; rows and columns are per rank ----

int ot_decoder_matrix(ot_builder *b, ot_role role, const char *name, int64_t rows, int64_t cols);

// An embedding table [rows, hidden_size].
int ot_decoder_table(ot_builder *b, ot_role role, const char *name, int64_t rows);

// `suffix` is "weight", "bias" or "sinks".
int ot_decoder_vector(ot_builder *b, ot_role role, const char *name, const char *suffix,
                      int64_t rows);

// Initialised to zero; OT_PARAMETER_BUFFER.
int ot_decoder_buffer(ot_builder *b, ot_role role, const char *name, const char *suffix,
                      int64_t rows);

// [hidden_size], initialised to zero.
int ot_decoder_query(ot_builder *b, ot_role role, const char *name);

// ---- ops ----

int ot_decoder_norm(ot_builder *b, ot_role role, const char *name, int x);

// Sets the activation function of MLPs and experts.
void ot_decoder_set_activation(const ot_builder *b, ot_op_attributes *attributes);

// RNG key for the dropout masks of the tensor called `name` in this block.
uint64_t ot_decoder_rng_stream(const ot_builder *b, const char *name);

// x [own_rows, C] with some elements dropped; x itself outside training.
int ot_decoder_dropout(ot_builder *b, const char *name, int x, double probability);

typedef struct ot_projection {
  ot_role role;
  const char *name;
  int64_t rows, cols;  // of this rank
  bool bias;
  int residual;  // value added to the product, or -1; only for projections onto the residual stream
} ot_projection;

// x [own_rows, C] -> [R, rows]: this rank's outputs for all tokens.
int ot_decoder_into(ot_builder *b, int x, const ot_projection *p);

// x [R, cols], this rank's shard of the contraction -> [own_rows, C] of the reduced result.
int ot_decoder_onto(ot_builder *b, int x, const ot_projection *p);

// Adds the last projection of a branch to the residual stream `x`: one fused op when nothing comes
// between, else projection, norm, dropout, add. Only the branch when x is -1.
int ot_decoder_join(ot_builder *b, int branch, int x, ot_projection p, ot_role post_norm);

// The residual stream at the entry of a sub-layer.
typedef struct ot_residual_stream {
  int sum;    // residual that the branch is added to, or -1
  int stack;  // outputs of finished blocks, or -1: the branch reads the residual
  int last;   // one more mixed input, or the partial residual, or -1
} ot_residual_stream;

// The stream at the start of a layer (`after` 0 sub-layers), at its MLP when that is a separate
// block (1), or, for layer = number of layers, at the head.
ot_residual_stream ot_residual_enter(ot_builder *b, int layer, int after);

// The input of the sub-layer.
int ot_residual_read(ot_builder *b, const ot_residual_stream *stream, ot_role query,
                     const char *name);

// Adds the sub-layer's output `x` to the residual; `ends`: it is the last sub-layer of its block.
void ot_residual_add(ot_builder *b, ot_residual_stream *stream, int x, bool ends);

// Ends the block.
void ot_residual_end_block(ot_builder *b, const ot_residual_stream *stream);

// The attention branch of a layer: reads `x`, result added to `sum` (or alone).
int ot_decoder_attention(ot_builder *b, int layer, int x, int sum);

// Attention over packed q|k|v [R, (H+2G)*D], over whole sequences or over cp -> [R, H*D].
int ot_decoder_attend(ot_builder *b, int layer, int qkv);

// The same branch with keys and values from latents (MLA).
int ot_decoder_latent_attention(ot_builder *b, int layer, int x, int sum);

// The MoE branch of a layer, in place of the MLP: reads `x`, result added to `sum` (or alone).
int ot_decoder_experts(ot_builder *b, int x, int sum);
