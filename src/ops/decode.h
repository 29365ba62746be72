// SPDX-License-Identifier: Apache-2.0
// Attention of new tokens against a KV cache.
//
// A row of the cache [B, P, 2 G D] is the G key heads, then the G value heads of one token of
// sequence b; rows are slots in token order. length [B] int32 is the number of tokens in the cache
// before the new ones: the slot of the first new token.
// OT_OP_APPEND_KV        cache[b, length[b] + t] = the key and value parts of qkv[b * n + t]
//   qkv [B n, (H + 2G) D] real, length [B] -> cache [B, P, 2 G D] real. Other slots are kept,
//   whatever attributes.accumulate says. length[b] + n <= P, asserted on the CPU; a GPU drops rows
//   beyond the cache.
// OT_OP_ATTENTION_DECODE  o_b = attention of the one query in qkv[b] over slots 0 .. length[b]
//   qkv [B, (H + 2G) D] (its key and value parts are not read), cache, length -> o [B, H D] stored
//   like qkv. The new token is in the cache already, at slot length[b]. With window w > 0, slots
//   length[b] - w < j are visible. sinks? [H] real, as in attention.h.
// attributes: threads, num_heads, num_kv_heads, head_dim, window, scale, soft_cap.
#pragma once

#include "ops/kernel.h"

extern const ot_op_info ot_append_kv_info;
extern const ot_op_info ot_attention_decode_info;

enum { OT_DECODE_SLOTS = 64 };  // that one block of a GPU has

// Number of such blocks for a cache of `slots`.
static inline int64_t ot_decode_parts(int64_t slots) {
  return (slots + OT_DECODE_SLOTS - 1) / OT_DECODE_SLOTS;
}

extern const ot_kernel_entry ot_decode_cpu_f32[];
extern const ot_kernel_entry ot_decode_cpu_f64[];
