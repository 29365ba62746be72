// SPDX-License-Identifier: Apache-2.0
// The signature of every kernel. A kernel is a plain function over prepared memory: it cannot fail,
// allocates nothing, and gives the same bits for the same call. On the CPU it has run when it
// returns; elsewhere it has queued its work on a stream, which keeps failures.
#pragma once

#include "ops/op.h"

// One operand in memory. data is null when the operand is absent.
typedef struct ot_tensor {
  void *data;  // contiguous, 64-byte aligned unless it is a row range of a larger tensor
  ot_tensor_type type;
} ot_tensor;

typedef struct ot_kernel_call {
  const ot_op_attributes *attributes;
  const ot_tensor *in;   // [OT_MAX_INPUTS] in the order of ot_op_kind's comments
  const ot_tensor *out;  // [OT_MAX_OUTPUTS]; out[0].data may equal in[0].data for in-place ops
  void *workspace;       // [ot_op_workspace(...)] bytes, 64-byte aligned, contents undefined
  void *context;         // of the stream that runs it (kernels.h); null on the CPU
} ot_kernel_call;

typedef void (*ot_kernel)(const ot_kernel_call *call);

// Runs calls [count] as one, with the bits of one after the other. Their operands have the same
// dtypes, and no call touches what another writes, but for accumulated outputs. `count` is at most
// ot_op_joined (workspace/workspace.h).
typedef void (*ot_joined_kernel)(const ot_kernel_call *calls, int count);

// One entry of the table that each kernel file exports, once per compute type; a null `run` ends
// it.
typedef struct ot_kernel_entry {
  ot_op_kind kind;
  ot_kernel run;
} ot_kernel_entry;

// The same for several calls; null ends the table.
typedef struct ot_joined_entry {
  ot_op_kind kind;
  ot_joined_kernel f32, f64;  // by compute type
} ot_joined_entry;
