// SPDX-License-Identifier: Apache-2.0
// The table of kernels, indexed by back end, op kind and compute type. A missing entry means "not
// available", which the caller reports; there is no silent fallback.
#pragma once

#include "base/arena.h"
#include "kernels/initial.h"
#include "kernels/rank_sum.h"
#include "ops/kernel.h"

// The functions and tables of a back end.
typedef struct ot_kernel_backend {
  const ot_kernel_entry *const *f32, *const *f64;  // lists of tables, each ended by null
  const ot_joined_entry *joined;                   // null: none
  bool (*fits)(void);                              // null: always. See ot_kernel_fits_device
  const char *(*refuses)(ot_op_kind kind, const ot_op_attributes *attributes);  // null: never
  // Creates what kernels on one stream share (library handles, their workspace). Null: nothing.
  ot_status (*open)(void *stream, void **context);
  void (*close)(void *context);
  void (*sum_ranks)(void *stream, const ot_rank_sum *job);  // null: host memory has its own
  void (*draw_initial)(void *stream, const ot_initial_draw *draw, void *arena);  // likewise
  // See ot_kernel_algorithms_print and _read. Null: kernels choose nothing.
  const char *(*print_algorithms)(const void *context, ot_arena *arena);
  const char *(*read_algorithms)(void *context, const char *text, ot_arena *arena);
  void (*count_refusals)(const void *context, int *own, int *replaced);         // null: none
  const char *(*race_algorithms)(void *context, int repeats, ot_arena *arena);  // null: none
} ot_kernel_backend;

// Null in builds without CUDA.
extern const ot_kernel_backend *const ot_kernels_cuda;

// The kernel of `kind` for `compute` (OT_F32 or OT_F64), or null.
ot_kernel ot_kernel_find(ot_backend backend, ot_op_kind kind, ot_dtype compute);

// The same for several calls at once, or null.
ot_joined_kernel ot_kernel_find_joined(ot_backend backend, ot_op_kind kind, ot_dtype compute);

// Why the kernel of `kind` cannot run with these attributes; null: it can.
const char *ot_kernel_refuses(ot_backend backend, ot_op_kind kind,
                              const ot_op_attributes *attributes);

// Whether this build has kernels for the bound device of a back end; false if it lacks the back
// end.
bool ot_kernel_fits_device(ot_backend backend);

// The `context` of calls on `stream` (ot_stream_native); null on the CPU. The device must be bound.
ot_status ot_kernel_context_create(ot_backend backend, void *stream, void **context);
void ot_kernel_context_destroy(ot_backend backend, void **context);

// Queues a sum over ranks on a stream of a GPU. The device must be bound.
void ot_kernel_sum_ranks(void *stream, const ot_rank_sum *job);

// Draws initial weights into `arena`, host memory on `threads` threads, or queues that on a stream
// of a GPU, whose device must be bound.
void ot_kernel_draw_initial(ot_backend backend, void *stream, int threads,
                            const ot_initial_draw *draw, void *arena);

// The algorithms that kernels of this context have chosen at run time so far and on which bits
// depend, as text in `arena`; null: none.
const char *ot_kernel_algorithms_print(ot_backend backend, const void *context, ot_arena *arena);

// Takes over such a text of an earlier run. Returns a note, in `arena`, that later results may have
// other bits than those of that run; null: they have the same. The device must be bound.
const char *ot_kernel_algorithms_read(ot_backend backend, void *context, const char *text,
                                      ot_arena *arena);

// Refusals of the library of products so far: shapes that a slower kernel of our own runs, and
// algorithms of tables that others replace.
void ot_kernel_algorithms_refused(ot_backend backend, const void *context, int *own, int *replaced);

// Times other algorithms for everything that kernels of this context have run, and takes the
// fastest: later results may have other bits. Returns a JSON array in `arena`, an element with
// shape, types and `seconds` of each algorithm, 0 where it failed, the present one first; null:
// there is nothing to choose from. Each time is the median of `repeats` runs. Allocates device
// memory; blocks.
const char *ot_kernel_algorithms_race(ot_backend backend, void *context, int repeats,
                                      ot_arena *arena);
