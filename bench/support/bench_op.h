// SPDX-License-Identifier: Apache-2.0
// One operator alone on a device: its time, and whether two runs give equal bits.
#pragma once

#include "device/device.h"
#include "ops/op.h"

// A stream of a device, with what its kernels share and two events.
typedef struct ot_bench_stream {
  ot_backend backend;
  ot_device *device;
  ot_stream *stream;
  void *context;
  ot_event *begin, *end;
} ot_bench_stream;

ot_status ot_bench_stream_create(ot_backend backend, ot_bench_stream *out);
void ot_bench_stream_destroy(ot_bench_stream *stream);

// Seconds of the work queued between ot_bench_stream_begin and this call, which waits for it: by
// events, on the CPU by the clock.
ot_status ot_bench_stream_begin(ot_bench_stream *stream, double *start_s);
ot_status ot_bench_stream_end(ot_bench_stream *stream, double start_s, double *seconds);

// Fills `bytes` of device memory: reals in (-1, 1), except float64, which is in (0.25, 1);
// integers are below `limit` [1..].
typedef struct ot_bench_block {
  void *memory;
  int64_t bytes;
  ot_dtype dtype;
  int64_t limit;
} ot_bench_block;
ot_status ot_bench_fill(ot_bench_stream *stream, const ot_bench_block *block, uint64_t seed);

// `attributes` and `types` as in a task; output i lies in the place of input alias[i] - 1, 0: in
// its own.
typedef struct ot_bench_op {
  ot_op_kind kind;
  ot_op_attributes attributes;
  ot_op_types types;
  int alias[OT_MAX_OUTPUTS];
} ot_bench_op;

// Median seconds of `repeats` runs after one that is not timed. Runs rotate among several sets of
// operands, so that caches hold none of them, and each time is of as many runs as there are sets.
ot_status ot_bench_op_time(ot_bench_stream *stream, const ot_bench_op *op, int repeats,
                           double *seconds);

// Runs the op twice on equal operands; outputs of the second start with other bytes, except those
// that it adds to. `same` is false if a byte differs.
ot_status ot_bench_op_repeat(ot_bench_stream *stream, const ot_bench_op *op, bool *same);
