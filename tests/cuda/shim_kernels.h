// SPDX-License-Identifier: Apache-2.0
// Kernels for the test of the emulated device, as functions that queue them on a stream (C++17).
// Pointers are device memory.
#pragma once

#include <cuda_runtime_api.h>

// y[b]: the sum of block b's part of x[blocks][1000]; 256 threads a block. `barriers`: false leaves
// out the barriers, so the result depends on the order of threads.
enum { PER_BLOCK = 1000 };
void queue_block_sums(cudaStream_t stream, const float *x, float *y, int blocks, bool barriers);

// out[5][width choice][lane]: shuffle, up, down, xor by 5 of the values 100 + lane, and xor by 16
// of doubles; for the widths 32, 16, 8, 4, 2, 1.
enum { NUM_WIDTHS = 6, NUM_SHUFFLES = 5 };
void queue_shuffles(cudaStream_t stream, double *out);

// One block of 100 threads. out[i][thread]: count, or, and over the block of thread % 3 == 0; of a
// predicate that holds for all; then ballot, any, all over each half warp of thread % 5 == 0.
enum { VOTE_THREADS = 100, NUM_VOTES = 7 };
void queue_votes(cudaStream_t stream, int *out);

// Of 96 threads the last 40 exit before barriers; out[0]: how many a barrier counted, negative when
// "and" over them is not true.
void queue_early_exit(cudaStream_t stream, int *out);

// Two blocks of 64 threads count in the order in which they run. out[4 + 64 (2 b + i) + thread]:
// the count at the start of the thread (i = 0) and behind a barrier (i = 1). The first 4 must be 0.
enum { TICKET_THREADS = 64, NUM_TICKETS = 4 + 4 * TICKET_THREADS };
void queue_tickets(cudaStream_t stream, int *out);

// Blocks of 64 threads write what they find in static shared memory (declared in a template) and in
// 4096 bytes of dynamic shared memory, then numbers of their own. out[3 b]: 1 if the dynamic bytes
// were NaN; 1 if block and thread numbers were right; the static value of the block before.
void queue_shared_memory(cudaStream_t stream, int *out, int blocks);

// out[0]: 1 if CUDA's integer and bit functions are right; out[1]: those on floats; out[2]:
// atomics.
void queue_functions(cudaStream_t stream, int *out);

// out[i] = in[i] + add for i < n.
void queue_add(cudaStream_t stream, const int *in, int *out, int n, int add);

// Writes a byte `offset` bytes from `memory`.
void queue_write(cudaStream_t stream, char *memory, long offset);

// A launch of 1024 threads with so much dynamic shared memory, checked by the kernel's address.
void queue_large_shared(cudaStream_t stream, size_t bytes);
cudaError_t allow_large_shared(int bytes);
void queue_empty(cudaStream_t stream, unsigned grid_y, unsigned threads);

// Kernels that do one thing wrong; the emulated device ends the process when they run.
enum misuse {
  DIVERGENT_BARRIER,
  BARRIER_KINDS,
  MASK_WITHOUT_SELF,
  MASK_OF_EXITED,
  EXIT_WHILE_AWAITED,
  DIFFERENT_OPERATIONS,
  DIFFERENT_MASKS,
  SHUFFLE_OUTSIDE_MASK,
  LANE_AT_BARRIER,
  SHARED_OVERRUN,
  NULL_ADDRESS,
  NUM_MISUSES
};
void queue_misuse(cudaStream_t stream, misuse kind);
