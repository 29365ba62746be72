// SPDX-License-Identifier: Apache-2.0
// Whether the BLAS gives a row of a product the same bits in any shape. OpenBLAS's kernels for
// AVX-512 do; those for Haswell and Zen compute the last rows and columns of a call by other
// instructions (docs/blas.md).
#pragma once

#include <stdbool.h>

bool blas_bits_are_fixed(void);
