// SPDX-License-Identifier: Apache-2.0
// Meshes that run on GPUs, and their bits.
#pragma once

#include "support/rank_case.h"

// {model, pp, vpp, dp_replicate, dp_shard, cp, tp, zero, accumulate, pipeline, context, ep, etp}
typedef struct cuda_mesh {
  rank_model_kind model;
  int pp, vpp, dp_replicate, dp_shard, cp, tp, zero;
  ot_accumulate accumulate;
  ot_pipeline pipeline;
  ot_context_parallel context;
  int ep, etp;
} cuda_mesh;

// Every axis, alone and with others. The first CUDA_SAMPLE have at most 4 ranks.
enum { CUDA_MESHES = 15, CUDA_SAMPLE = 4 };
extern const cuda_mesh cuda_meshes[CUDA_MESHES];

// A step of it on GPUs.
rank_request cuda_mesh_request(const cuda_mesh *mesh, ot_dtype dtype);

// Runs it and returns its bits. Fails the test on an error.
uint64_t cuda_mesh_bits(const rank_request *request);
