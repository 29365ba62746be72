// SPDX-License-Identifier: Apache-2.0
// What a device can do at most, in this run: bytes per second of a copy (read and written), FLOP/s
// of a large bf16 product of random matrices, and the time to launch a kernel.
#include <stdio.h>

#include "base/json_writer.h"
#include "host/clock.h"
#include "kernels/kernels.h"
#include "ops/catalog.h"
#include "ops/operands.h"
#include "support/bench_op.h"
#include "support/bench_program.h"
#include "support/bench_step.h"

typedef struct limits {
  ot_device_info info;
  double copy_bytes_per_s, product_flops_per_s;
  double launch_s;      // of a kernel in a queue that never runs empty
  double round_trip_s;  // from the launch of a kernel until the host knows its end
  const char *library;  // of products, and its version
  int64_t bytes, size;
} limits;

static ot_status time_copies(ot_bench_stream *s, void *const memory[2], limits *l, int repeats) {
  double times[OT_BENCH_REPEATS];
  double start_s;
  for (int i = -1; i < repeats; i++) {
    OT_TRY(ot_bench_stream_begin(s, &start_s));
    OT_TRY(ot_stream_copy(s->stream, memory[1], memory[0], l->bytes));
    OT_TRY(ot_bench_stream_end(s, start_s, &times[i < 0 ? 0 : i]));
  }
  l->copy_bytes_per_s = 2 * (double)l->bytes / ot_bench_median(times, repeats);
  return OT_OK;
}

static ot_status measure_copy(ot_bench_stream *s, limits *l, int repeats) {
  void *memory[2] = {NULL, NULL};
  ot_status status = ot_device_allocate(s->device, l->bytes, &memory[0]);
  if (status == OT_OK) status = ot_device_allocate(s->device, l->bytes, &memory[1]);
  if (status == OT_OK) {
    const ot_bench_block block = {.memory = memory[0], .bytes = l->bytes, .dtype = OT_BF16};
    status = ot_bench_fill(s, &block, 3);
  }
  if (status == OT_OK) status = time_copies(s, memory, l, repeats);
  for (int i = 0; i < 2; i++) ot_device_release(s->device, &memory[i], l->bytes);
  return status;
}

static ot_status measure_product(ot_bench_stream *s, limits *l, int repeats) {
  const ot_tensor_type square = ot_type_matrix(OT_BF16, l->size, l->size);
  ot_bench_op op = {.kind = OT_OP_LINEAR,
                    .attributes = {.threads = 1, .backend = s->backend, .compute = OT_F32},
                    .types = {.in = {square, square}}};
  double seconds;
  OT_TRY(ot_op_infer(op.kind, &op.attributes, &op.types));
  OT_TRY(ot_bench_op_time(s, &op, repeats, &seconds));
  l->product_flops_per_s = 2.0 * (double)l->size * (double)l->size * (double)l->size / seconds;
  return OT_OK;
}

enum { LAUNCHES = 1000 };

static ot_status launch(ot_bench_stream *s, const ot_tensor *to, int count) {
  const ot_op_attributes attributes = {.threads = 1, .backend = s->backend, .compute = OT_F32};
  const ot_tensor none[OT_MAX_INPUTS] = {{0}};
  const ot_kernel_call call = {
      .attributes = &attributes, .in = none, .out = to, .context = s->context};
  const ot_kernel zero = ot_kernel_find(s->backend, OT_OP_ZERO, OT_F32);
  for (int i = 0; i < count; i++) zero(&call);
  return ot_stream_synchronize(s->stream);
}

static ot_status time_launches(ot_bench_stream *s, ot_tensor *to, limits *l) {
  double start_s;
  OT_TRY(launch(s, to, 10));
  start_s = ot_clock_s();
  OT_TRY(launch(s, to, LAUNCHES));
  l->launch_s = (ot_clock_s() - start_s) / LAUNCHES;
  start_s = ot_clock_s();
  for (int i = 0; i < 100; i++) OT_TRY(launch(s, to, 1));
  l->round_trip_s = (ot_clock_s() - start_s) / 100;
  return OT_OK;
}

static ot_status measure_launch(ot_bench_stream *s, limits *l) {
  ot_tensor to[OT_MAX_OUTPUTS] = {{.type = ot_type_vector(OT_F32, 256)}};
  OT_TRY(ot_device_allocate(s->device, 1024, &to[0].data));
  const ot_status status = time_launches(s, to, l);
  ot_device_release(s->device, &to[0].data, 1024);
  return status;
}

static ot_status measure(ot_bench_stream *s, const ot_options *options, limits *l) {
  const int repeats = (int)ot_options_integer(options, "repeats");
  OT_TRY(ot_device_describe(s->device, &l->info));
  OT_TRY(measure_copy(s, l, repeats));
  OT_TRY(measure_product(s, l, repeats));
  OT_TRY(measure_launch(s, l));
  l->library = ot_kernel_algorithms_print(s->backend, s->context, ot_options_arena(options));
  return OT_OK;
}

// The line of gemm.table that names the library and the device.
static const char *library_of(const limits *l, ot_arena *arena) {
  const char *at = l->library ? l->library : "";
  while (*at && *at != '\n') at++;
  if (*at == '\0') return "none";
  const char *const first = ++at;
  while (*at && *at != '\n') at++;
  return ot_arena_text(arena, first, at - first);
}

static void print(const limits *l, ot_arena *arena) {
  ot_json_writer json = ot_json_begin(arena, 0);
  ot_json_object(&json, NULL);
  ot_json_text(&json, "device", l->info.name);
  ot_json_text(&json, "driver", l->info.driver);
  ot_json_text(&json, "library", library_of(l, arena));
  ot_json_integer(&json, "memory_bytes", l->info.total_bytes);
  ot_json_integer(&json, "copied_bytes", l->bytes);
  ot_json_integer(&json, "product_size", l->size);
  ot_json_real(&json, "copy_bytes_per_s", l->copy_bytes_per_s);
  ot_json_real(&json, "product_flops_per_s", l->product_flops_per_s);
  ot_json_real(&json, "launch_s", l->launch_s);
  ot_json_real(&json, "round_trip_s", l->round_trip_s);
  ot_json_end(&json);
  puts(json.text);
}

static ot_status run_program(const ot_options *options) {
  limits l = {.bytes = ot_options_integer(options, "bytes"),
              .size = ot_options_integer(options, "size")};
  ot_bench_stream stream;
  OT_TRY(ot_bench_stream_create((ot_backend)ot_options_choice(options, "device"), &stream));
  const ot_status status = measure(&stream, options, &l);
  ot_bench_stream_destroy(&stream);
  OT_TRY(status);
  print(&l, ot_options_arena(options));
  return OT_OK;
}

static const ot_option options[] = {
    {"device", OT_OPTION_CHOICE, "cpu|cuda", "cuda", .help = "what computes"},
    {"bytes", OT_OPTION_INTEGER, "BYTES", "2GiB", 64, (int64_t)1 << 40,
     .help = "that a copy reads"},
    {"size", OT_OPTION_INTEGER, "N", "8192", 16, 65536, .help = "rows of the square matrices"},
    {"repeats", OT_OPTION_INTEGER, "R", "20", 1, OT_BENCH_REPEATS, .help = "runs per median"},
};

const ot_verb ot_bench_program = {
    .prefix = OT_BENCH_PREFIX,
    .name = "gpu_limits",
    .summary = "rates of copies, products and launches on a device, as JSON",
    .arguments = "",
    .options = options,
    .num_options = OT_COUNT(options),
    .run = run_program,
};
