// SPDX-License-Identifier: Apache-2.0
// Dropout: each direction regenerates the mask from vectorised Philox blocks, so that no mask is
// saved or read.
#include <stddef.h>

#include "kernels/cpu_tables.h"
#include "kernels/dropout_mask.h"
#include "kernels/tiles.h"
#include "ops/elementwise.h"
#include "ops/zigzag.h"

static void drop_row(const ot_kernel_call *call, int64_t row, int64_t columns) {
  ot_real scratch[2][OT_TILE];
  uint32_t word[OT_TILE];
  const ot_op_attributes *const attributes = call->attributes;
  const int64_t among_all = attributes->first_row + row;
  const int64_t sequence = among_all / attributes->sequence_length;
  const int64_t sample = ((const int64_t *)call->in[1].data)[sequence];
  const int64_t place = ot_position_in_sequence(attributes, attributes->context_index,
                                                among_all % attributes->sequence_length);
  const ot_dropout_row mask = {
      .key = ot_rng_key(attributes->seed, attributes->rng_stream),
      .sample = (uint64_t)sample,
      .position = (uint32_t)place,
  };
  const uint32_t threshold = ot_dropout_threshold(attributes->dropout);
  const ot_real factor = (ot_real)(1 / (1 - attributes->dropout));
  for (int64_t c = 0; c < columns; c += OT_TILE) {
    const int64_t n = columns - c < OT_TILE ? columns - c : OT_TILE;
    const int64_t first = row * columns + c;
    const ot_real *const x = ot_tile_in(&call->in[0], first, n, scratch[0]);
    ot_real *const y = ot_tile_out(&call->out[0], first, scratch[1]);
    ot_dropout_words(&mask, c, n, word);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = word[i] >= threshold ? x[i] * factor : 0;
    ot_tile_done(&call->out[0], first, y, n);
  }
}

static void dropout(const ot_kernel_call *call) {
  const int64_t rows = call->in[0].type.dim[0];
  const int64_t columns = call->in[0].type.dim[1];
#pragma omp parallel for num_threads(ot_threads_for(call, rows *columns)) schedule(static)
  for (int64_t row = 0; row < rows; row++) drop_row(call, row, columns);
}

const ot_kernel_entry OT_KERNEL(ot_dropout_cpu)[] = {
    {OT_OP_DROPOUT, dropout},
    {OT_OP_DROPOUT_GRAD, dropout},
    {OT_OP_COUNT, NULL},
};
