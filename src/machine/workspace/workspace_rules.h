// SPDX-License-Identifier: Apache-2.0
// A table of rules for each back end, by op kind. Private to this folder.
#pragma once

#include "ops/op.h"

// One execution of an op.
typedef struct ot_op_execution {
  ot_op_kind kind;
  const ot_op_attributes *attributes;
  const ot_op_types *types;
} ot_op_execution;

// Bytes of scratch (on the CPU, also by attributes.threads).
typedef int64_t (*ot_workspace_rule)(const ot_op_execution *op);

typedef struct ot_kernel_needs {
  ot_workspace_rule workspace;  // null: none
  int joined;                   // ot_op_joined
} ot_kernel_needs;

extern const ot_kernel_needs ot_cpu_needs[OT_OP_COUNT];
extern const ot_kernel_needs ot_cuda_needs[OT_OP_COUNT];

// Rules of several back ends: staging memory of reductions, and the losses of a chunk of tokens in
// nats (head_parts.h).
int64_t ot_reduce_scatter_workspace(const ot_op_execution *op);
int64_t ot_all_reduce_workspace(const ot_op_execution *op);
int64_t ot_head_nats_workspace(const ot_op_execution *op);
