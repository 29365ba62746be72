// SPDX-License-Identifier: Apache-2.0
// Sums that are independent of the number of threads. The items are partitioned into blocks whose
// bounds depend only on their number; one thread sums each block into its own slot of the
// workspace; the slots are added in order. Pure: the same functions size the workspace.
#pragma once

#include <stdint.h>

enum {
  OT_ROW_BLOCKS = 64,          // blocks of rows for gradients of weights, at most
  OT_ROW_BLOCK_ROWS = 16,      // rows of a block, at least
  OT_FLAT_BLOCKS = 256,        // blocks of elements for sums over whole tensors, at most
  OT_FLAT_BLOCK_ITEMS = 8192,  // elements of a block, at least
};

// Number of blocks for `n` items: at most `most`, each of at least `least` items if possible; 1 for
// n = 0.
static inline int64_t ot_block_count(int64_t n, int64_t most, int64_t least) {
  const int64_t count = n / least < most ? n / least : most;
  return count > 0 ? count : 1;
}

// First item of block `i` of `count`; block `i` ends where block i + 1 begins.
static inline int64_t ot_block_begin(int64_t n, int64_t count, int64_t i) {
  return n / count * i + n % count * i / count;
}

static inline int64_t ot_row_blocks(int64_t rows) {
  return ot_block_count(rows, OT_ROW_BLOCKS, OT_ROW_BLOCK_ROWS);
}

static inline int64_t ot_flat_blocks(int64_t items) {
  return ot_block_count(items, OT_FLAT_BLOCKS, OT_FLAT_BLOCK_ITEMS);
}
