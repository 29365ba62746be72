// SPDX-License-Identifier: Apache-2.0
// Settings of the OpenMP and BLAS libraries that they read from the environment when they are
// loaded.
#pragma once

#include <stdint.h>

// Sets, unless the environment has a value:
// - how long waiting OpenMP threads spin before they sleep (OMP_WAIT_POLICY, GOMP_SPINCOUNT or
//   KMP_BLOCKTIME): tens of microseconds. A spinning thread takes its core from other programs, and
//   libgomp's default is milliseconds.
// - the kernels of OpenBLAS (OPENBLAS_CORETYPE), if it does not know this CPU. It then chooses
// those
//   of the oldest x86-64 CPUs, at a fifth of the rate of AVX-512.
// - one thread of OpenBLAS (OPENBLAS_NUM_THREADS), where the address space is limited.
// Must be called first in main, with its `words`: the program re-executes itself in the same
// process with the variables set. If that is impossible (no /proc), the libraries' defaults remain.
void ot_libraries_configure(char **words);

// Bytes of a buffer that the BLAS maps for each thread that calls it, at most; 0: none is known.
int64_t ot_libraries_buffer_bytes(void);
