// SPDX-License-Identifier: Apache-2.0
// Causal attention of a micro-batch of B = R / T sequences with grouped queries, a sliding window
// and documents, without any T x T tensor (online softmax: Milakov and Gimelshein 2018; tiles and
// the backward from lse: Dao et al. 2022).
//
// A row of qkv is H query heads, then G key heads, then G value heads, each of D. Query head h uses
// key and value head h / (H / G). Query i of a sequence sees key j of it when
//   doc_start[i] <= j <= i and (window == 0 or i - window < j).
// OT_OP_ATTENTION, s_ij = scale * q_i . k_j over visible j, p_ij = exp(s_ij - lse_i):
//   o_i = sum_j p_ij v_j, lse_i = log sum_j exp(s_ij), max_logit = max(max_logit, max s_ij)
//   qkv [R, (H + 2G) D] real, doc_start? [R] int32 (absent: 0), sample_ids? [B] int64 (read when
//   dropout > 0) -> o [R, H D] stored like qkv, lse [R, H] compute type, max_logit? [1] f64
// OT_OP_ATTENTION_GRAD: the gradient of o with respect to qkv, from do, o and lse; dqkv is stored
//   like qkv. Each sum has one order, whatever the number of threads.
// Dropout sets p_ij of (sequence b, head h) to 0 or p_ij / (1 - dropout) after the sum of lse. It
// is dropped when word j % 4 of ot_rng_philox(seed, rng_stream, low, sample_ids[b]) is below
// dropout * 2^32, with low = (h * 2^24 + i) * 2^32 + floor(j / 4): H <= 256 and T <= 2^24 then.
// attributes: threads, sequence_length (T), num_heads, num_kv_heads, head_dim, window, scale,
// dropout, seed, rng_stream.
#pragma once

#include "ops/kernel.h"

extern const ot_op_info ot_attention_info;
extern const ot_op_info ot_attention_grad_info;

extern const ot_kernel_entry ot_attention_cpu_f32[];
extern const ot_kernel_entry ot_attention_cpu_f64[];
extern const ot_kernel_entry ot_attention_grad_cpu_f32[];
extern const ot_kernel_entry ot_attention_grad_cpu_f64[];

enum {
  OT_ATTENTION_QUERIES = 64,  // queries of a tile
  OT_ATTENTION_KEYS = 128,    // keys of a tile
};

// How the work is cut and where its workspace lies, in elements of the compute type. A unit is one
// part of the query tiles of the heads that share a key head; a thread takes units and has one
// slot.
typedef struct ot_attention_layout {
  int64_t parts;     // units of each (sequence, key head)
  int64_t units;     // B * G * parts
  int64_t keys;      // T rounded up to whole groups of keys
  int64_t width;     // D rounded up to whole vectors
  int64_t slot;      // elements of a thread's slot
  int64_t partial;   // elements of a unit's own dk and dv, 0 with one part; after the slots
  int64_t maxima;    // start of [units] f64, after the partials
  int64_t elements;  // of the whole workspace
} ot_attention_layout;

ot_attention_layout ot_attention_layout_of(ot_op_kind kind, const ot_op_attributes *attributes,
                                           const ot_tensor_type *qkv);
