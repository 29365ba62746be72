// SPDX-License-Identifier: Apache-2.0
// In builds without CUDA, instead of the folder cuda/.
#include <stddef.h>

#include "kernels/kernels.h"

const ot_kernel_backend *const ot_kernels_cuda = NULL;
