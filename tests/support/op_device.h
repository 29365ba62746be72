// SPDX-License-Identifier: Apache-2.0
// Runs a kernel of the back end under test on operands in host memory. The back end is the CPU, or
// CUDA (an emulated GPU in builds without nvcc) with OT_TEST_DEVICE=cuda in the environment.
#pragma once

#include "kernels/kernels.h"

// Bytes of canary before and after every block of op_device_run.
enum { OP_GUARD_BYTES = 64 };

ot_backend op_device_backend(void);

// True if cuBLASLt runs the products of the device: bits of a product depend on the algorithm that
// it has for the operands, and a bf16 result is rounded before an addend is added
// (kernels/cuda/matmul.h).
bool op_device_has_library(void);

// Runs the kernel of `kind` for call->attributes. Operands and workspace lie between canaries in
// host memory; on a device, whole blocks are copied there and back. Fails the test if there is no
// such kernel or the device fails.
void op_device_run(ot_op_kind kind, const ot_kernel_call *call, int64_t workspace_bytes);

// Runs the kernel for several calls (ot_kernel_find_joined) on calls [count] likewise.
void op_device_run_joined(ot_op_kind kind, const ot_kernel_call *calls,
                          const int64_t *workspace_bytes, int count);

// Kernels that the emulated GPU has run so far and whose name begins with `name`; -1 on a real one.
int64_t op_device_count_kernels(const char *name);

// Checks the bf16 products by cuBLASLt so far that have an extent of `marker`: fails unless there
// are `least`, and all extents are multiples of 8, but for fewer than 8 rows. Without that library,
// nothing.
void op_device_expect_aligned(int64_t marker, int least);

// Bytes of a block of `bytes` without its canary before it, rounded up to 64.
int64_t op_device_padded(int64_t bytes);

// On the emulated GPU, later kernels run their threads and blocks, and streams their work, in a
// random order drawn from `seed`; 0: in ascending order. Does nothing on a real one.
void op_device_set_order(int seed);

// The number of GPUs. Emulated ones are from now on as many as `wanted`; nothing may exist on them.
int op_device_set_count(int wanted);
