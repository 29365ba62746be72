// SPDX-License-Identifier: Apache-2.0
// Finds the rule of a back end.
#include "workspace/workspace.h"

#include <assert.h>

#include "workspace/workspace_rules.h"

static const ot_kernel_needs *const needs[] = {
    [OT_BACKEND_CPU] = ot_cpu_needs, [OT_BACKEND_CUDA] = ot_cuda_needs};
static_assert(OT_COUNT(needs) == OT_BACKENDS, "one table for each back end");

int64_t ot_op_workspace(ot_op_kind kind, const ot_op_attributes *attributes,
                        const ot_op_types *types) {
  const ot_workspace_rule rule = needs[attributes->backend][kind].workspace;
  const ot_op_execution op = {kind, attributes, types};
  return rule ? (rule(&op) + 63) / 64 * 64 : 0;
}

int ot_op_joined(ot_op_kind kind, ot_backend backend) { return needs[backend][kind].joined; }

// Blocks of the other ranks before the reduction: an all-to-all, then additions in rank order.
int64_t ot_reduce_scatter_workspace(const ot_op_execution *op) {
  return ot_type_bytes(&op->types->in[0]);
}

// Like a reduce_scatter of the padded vector, plus one block.
int64_t ot_all_reduce_workspace(const ot_op_execution *op) {
  const int ranks = op->attributes->group_size;
  const int64_t n = ot_type_elements(&op->types->in[0]);
  const int64_t block = (n + ranks - 1) / ranks;
  return block * ranks * ot_dtype_bytes(op->types->in[0].dtype);
}

// For the data's targets, and with weights for the weighted ones.
int64_t ot_head_nats_workspace(const ot_op_execution *op) {
  return op->attributes->chunk_rows * 8 * (ot_type_present(&op->types->in[5]) ? 2 : 1);
}
