// SPDX-License-Identifier: Apache-2.0
// Functions of headers that kernels for GPUs use as well.
#pragma once

#if defined(__CUDACC__)
#define OT_LANE_CODE static inline __host__ __device__
#else
#define OT_LANE_CODE static inline
#endif
