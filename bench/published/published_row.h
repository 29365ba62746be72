// SPDX-License-Identifier: Apache-2.0
// One published, measured run as its file states it: the format of docs/published.md. Missing
// values are null there and remain open here; published_job.h fills them.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

enum { OT_PUBLISHED_OPEN = -1 };  // value of a flag or ZeRO stage that is not stated

typedef struct ot_published_experts {
  int64_t experts, topk, moe_ffn, shared_experts, shared_ffn, dense_first_layers, mtp_layers;
} ot_published_experts;

typedef struct ot_published_latent {
  int64_t q_lora, kv_lora, qk_nope, qk_rope, v_head;
} ot_published_latent;

typedef struct ot_published_model {
  const char *name, *ffn_kind;  // gelu, swiglu, squared-relu
  int64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
  int tied_embeddings;  // flag
  bool has_experts, has_latent;
  ot_published_experts moe;
  ot_published_latent mla;
} ot_published_model;

typedef struct ot_published_gpu {
  const char *name;
  double bf16, fp8;  // dense peak, TFLOP/s
  double mem, hbm;   // GB, TB/s
  double nvl;        // GB/s in one direction within the domain
  int64_t dom;       // devices per domain
} ot_published_gpu;

// What a row may state of its software, beyond its name; OT_PUBLISHED_OPEN, 0 or "": not stated.
typedef struct ot_published_software {
  int compile, cuda_graphs, async_tp;               // flags
  int overlap_reduce, overlap_gather, overlap_moe;  // flags
  const char *gradient_dtype, *gather_dtype;        // on the wire
  const char *dispatcher;                           // of tokens to experts
  const char *routing_groups;                       // "4 of 8 nodes"
} ot_published_software;

// Numbers are 0 and texts "" if the source does not state them.
typedef struct ot_published_row {
  const char *id, *source, *notes;
  const char *software;  // name and version
  ot_published_model model;
  ot_published_gpu gpu;
  int64_t gpus, tp, pp, dp, cp, ep, vpp;
  int64_t zero;          // [0, 3] or OT_PUBLISHED_OPEN
  int sp, core, usable;  // flags
  int flash_attention;   // flag
  const char *schedule, *hsdp, *recompute, *dtype, *optimizer, *memory_def;
  int64_t seq_len, mbs, gbs;  // gbs in sequences
  double inter_gbps;          // GB/s in one direction per device, between domains
  double power_limit_w;
  ot_published_software does;
  double step_time_s;
  double memory_gb;
} ot_published_row;

typedef struct ot_published_rows {
  int64_t num_rows, capacity;
  ot_published_row *row;  // [num_rows]
} ot_published_rows;

// Appends the rows of the file at `path` to `rows`, in `arena`. OT_USAGE, naming file, row and key,
// if the file is no list of runs, a row lacks id, source, model or GPU, an id is repeated, or a
// value has the wrong type.
ot_status ot_published_rows_read(const char *path, ot_arena *arena, ot_published_rows *rows);

// Whether `text` contains `word`, ignoring case.
bool ot_published_mentions(const char *text, const char *word);
