// SPDX-License-Identifier: Apache-2.0
// The table of kernels, indexed by op kind and compute type. A missing entry means "not available",
// which the caller reports; there is no silent fallback.
#pragma once

#include "ops/kernel.h"

// The CPU kernel of `kind` for `compute` (OT_F32 or OT_F64), or null.
ot_kernel ot_kernel_cpu(ot_op_kind kind, ot_dtype compute);
