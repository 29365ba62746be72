// SPDX-License-Identifier: Apache-2.0
// The residual stream. Ordinarily it is one sum that every sub-layer reads and adds to. With
// Attention Residuals a sub-layer reads a mix (ops/residual.h) of the stack (the embedding and the
// outputs of finished blocks) and of the partial sum of its own block, and adds to that sum. The
// last sub-layer of a block pushes the sum on the stack. The head reads one more mix of all of
// them: the paper does not specify this, the reproduction ilml/Attention-Residuals does it. The
// first sub-layer can only read the embedding and has no query, since its gradient would be zero.
#include "describe/residuals.h"
#include "graph/decoder_parts.h"

ot_residual_stream ot_residual_enter(ot_builder *b, int layer, int after) {
  const ot_residual_position at = ot_residual_position_of(ot_model_of(b), layer);
  ot_residual_stream stream = {-1, -1, -1};
  if (at.finished == 0) {
    stream.sum = ot_builder_input(b);
    return stream;
  }
  const bool ended = after > 0 && at.attention_ends;
  stream.stack = ot_builder_stack(b, at.finished + ended);
  if (after > 0 ? !ended : at.begun) stream.sum = stream.last = ot_builder_input(b);
  return stream;
}

int ot_residual_read(ot_builder *b, const ot_residual_stream *stream, ot_role query,
                     const char *name) {
  if (stream->stack < 0) return stream->sum;
  ot_op_attributes attributes = ot_builder_attributes(b);
  attributes.epsilon = ot_model_of(b)->norm_epsilon;
  const int64_t size = b->program->values[stream->stack].type.dim[0];
  const bool chooses = size > 1 || stream->last >= 0;
  const int weight = chooses ? ot_decoder_query(b, query, name) : -1;
  return ot_builder_op(b, &(ot_op_description){OT_OP_RESIDUAL_ATTENTION,
                                               &attributes,
                                               ot_arena_format(b->arena, "%s.mix", name),
                                               3,
                                               {stream->stack, stream->last, weight},
                                               NULL});
}

void ot_residual_add(ot_builder *b, ot_residual_stream *stream, int x, bool ends) {
  stream->sum = ends ? -1 : x;
  stream->last = stream->stack < 0 ? -1 : x;
  if (ends) ot_builder_push(b, x);
}

void ot_residual_end_block(ot_builder *b, const ot_residual_stream *stream) {
  b->program->output = stream->sum;
}
