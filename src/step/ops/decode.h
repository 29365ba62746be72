// SPDX-License-Identifier: Apache-2.0
// Attention of new tokens against a paged KV cache (Kwon et al. 2023).
//
// A row of the cache is the G key heads, then the G value heads of one token. Rows are kept in
// pages of OT_PAGE_SLOTS: the token at position p of sequence s has row p % 16 of page
// pages[s][p / 16], so sequences that begin alike can share pages. The R new tokens belong to any
// of the S sequences, in any order; sequences [R] int32 and positions [R] int32 tell where. A
// negative sequence marks an idle row.
// OT_OP_APPEND_KV         the row of token r = the key and value parts of qkv[r]
//   qkv [R, (H + 2G) D] real, sequences, positions, pages [S, M] int32 -> cache [N, 16, 2 G D]
//   real. Other rows are kept, whatever attributes.accumulate says; idle rows are dropped.
// OT_OP_ATTENTION_DECODE  o_r = attention of the query in qkv[r] over positions 0 .. positions[r]
//   qkv [R, (H + 2G) D] (its key and value parts are not read), cache, sequences, positions, pages,
//   sinks? [H] real as in attention.h -> o [R, H D] stored like qkv, 0 in idle rows. The new tokens
//   are in the cache already. With window w > 0, positions[r] - w < j are visible. On the CPU the
//   bits of o_r depend on its query and its keys and values only, not on the other rows.
// attributes: threads, num_heads, num_kv_heads, head_dim, window, scale, soft_cap.
#pragma once

#include "ops/kernel.h"

enum { OT_PAGE_SLOTS = 16 };  // tokens of a page

extern const ot_op_info ot_append_kv_info;
extern const ot_op_info ot_attention_decode_info;

// Slots of a sequence with all pages of its row in `pages` [S, M].
static inline int64_t ot_paged_slots(const ot_tensor_type *pages) {
  return pages->dim[1] * OT_PAGE_SLOTS;
}

// Checks the operands that say where `rows` tokens are, and a cache of that width.
ot_status ot_pages_check(const char *op, int64_t rows, const ot_tensor_type *sequences,
                         const ot_tensor_type *pages);
ot_status ot_cache_check(const char *op, int64_t width, const ot_tensor_type *cache);

// Row of the cache of position `position` of sequence `sequence`; pages [S, M].
static inline int64_t ot_page_row(const ot_tensor *pages, int64_t sequence, int64_t position) {
  const int32_t *const table = (const int32_t *)pages->data + sequence * pages->type.dim[1];
  return (int64_t)table[position / OT_PAGE_SLOTS] * OT_PAGE_SLOTS + position % OT_PAGE_SLOTS;
}
