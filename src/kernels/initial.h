// SPDX-License-Identifier: Apache-2.0
// Draws of initial weights by each back end.
#pragma once

#include "ops/initial_draw.h"

// Draws into host memory `arena` on `threads` threads.
void ot_initial_draw_cpu(const ot_initial_draw *draw, int threads, void *arena);

// Queues the draw into device memory `arena` on `stream` (a cudaStream_t), whose device is the
// calling thread's.
void ot_initial_draw_cuda(void *stream, const ot_initial_draw *draw, void *arena);
