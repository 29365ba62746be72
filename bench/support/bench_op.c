// SPDX-License-Identifier: Apache-2.0
// Operands in device memory, and the kernel calls on them.
#include "support/bench_op.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "host/clock.h"
#include "kernels/kernels.h"
#include "ops/catalog.h"
#include "support/bench_step.h"
#include "workspace/workspace.h"

// The pattern is no multiple of the rows of matrices, so no two rows are equal.
enum { MAX_SETS = 8, PATTERN_BYTES = 64 * 4099, ROTATED_BYTES = 256 << 20, POISON = 0xa5 };

// ---- streams ----

static ot_status open_stream(ot_bench_stream *s) {
  OT_TRY(ot_device_create(s->backend, 0, &s->device));
  OT_TRY(ot_device_bind(s->device));
  OT_TRY(ot_stream_create(s->device, &s->stream));
  OT_TRY(ot_event_create(s->device, &s->begin));
  OT_TRY(ot_event_create(s->device, &s->end));
  return ot_kernel_context_create(s->backend, ot_stream_native(s->stream), &s->context);
}

ot_status ot_bench_stream_create(ot_backend backend, ot_bench_stream *out) {
  *out = (ot_bench_stream){.backend = backend};
  const ot_status status = open_stream(out);
  if (status != OT_OK) ot_bench_stream_destroy(out);
  return status;
}

void ot_bench_stream_destroy(ot_bench_stream *s) {
  ot_kernel_context_destroy(s->backend, &s->context);
  ot_event_destroy(&s->begin);
  ot_event_destroy(&s->end);
  ot_stream_destroy(&s->stream);
  ot_device_destroy(&s->device);
}

ot_status ot_bench_stream_begin(ot_bench_stream *s, double *start_s) {
  OT_TRY(ot_stream_synchronize(s->stream));
  *start_s = ot_clock_s();
  return ot_event_record(s->begin, s->stream);
}

ot_status ot_bench_stream_end(ot_bench_stream *s, double start_s, double *seconds) {
  OT_TRY(ot_event_record(s->end, s->stream));
  OT_TRY(ot_stream_synchronize(s->stream));
  *seconds = ot_clock_s() - start_s;
  return s->backend == OT_BACKEND_CPU ? OT_OK : ot_event_elapsed(s->begin, s->end, seconds);
}

// ---- contents ----

static void set_element(void *values, int64_t i, const ot_bench_block *block, uint64_t seed) {
  const uint64_t limit = (uint64_t)(block->limit > 0 ? block->limit : 1);
  const double x = (double)ot_rng_below(seed, 1, (uint64_t)i, 1 << 20) / (1 << 20);
  const float real = (float)(2 * x - 1);
  if (block->dtype == OT_BF16) ((uint16_t *)values)[i] = ot_bf16_from_float(real);
  if (block->dtype == OT_F32) ((float *)values)[i] = real;
  if (block->dtype == OT_F64) ((double *)values)[i] = 0.25 + 0.75 * x;
  if (block->dtype == OT_I32)
    ((int32_t *)values)[i] = (int32_t)ot_rng_below(seed, 2, (uint64_t)i, limit);
  if (block->dtype == OT_I64)
    ((int64_t *)values)[i] = (int64_t)ot_rng_below(seed, 2, (uint64_t)i, limit);
}

// The first PATTERN_BYTES come from the host, the rest repeats them.
ot_status ot_bench_fill(ot_bench_stream *s, const ot_bench_block *block, uint64_t seed) {
  const int64_t pattern = block->bytes < PATTERN_BYTES ? block->bytes : PATTERN_BYTES;
  void *const values = calloc(1, (size_t)pattern + 8);
  OT_CHECK(values, OT_ENVIRONMENT, "out of memory");
  const int64_t n = pattern / ot_dtype_bytes(block->dtype);
  for (int64_t i = 0; i < n; i++) set_element(values, i, block, seed);
  const ot_status status = ot_device_write(s->device, block->memory, 0, values, pattern);
  free(values);
  OT_TRY(status);
  char *const memory = block->memory;
  for (int64_t done = pattern; done < block->bytes;) {
    const int64_t left = block->bytes - done;
    OT_TRY(ot_stream_copy(s->stream, memory + done, memory, left < done ? left : done));
    done += left < done ? left : done;
  }
  return ot_stream_synchronize(s->stream);
}

// ---- operands ----

typedef struct operands {
  ot_tensor in[OT_MAX_INPUTS], out[OT_MAX_OUTPUTS];
  void *workspace;
} operands;

static int64_t workspace_bytes(const ot_bench_op *op) {
  return ot_op_workspace(op->kind, &op->attributes, &op->types);
}

static int64_t operand_bytes(const ot_bench_op *op) {
  int64_t bytes = 0;
  for (int i = 0; i < OT_MAX_INPUTS; i++) bytes += ot_type_bytes(&op->types.in[i]);
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) {
    if (op->alias[i] == 0) bytes += ot_type_bytes(&op->types.out[i]);
  }
  return bytes;
}

// Ids of tokens may be any row of the table; every other integer is 0, which is always valid.
static int64_t limit_of(const ot_bench_op *op, int input) {
  if (op->kind == OT_OP_EMBEDDING && input == 0) return op->types.in[1].dim[0];
  if (op->kind == OT_OP_EMBEDDING_GRAD && input == 1) return op->types.out[0].dim[0];
  return 1;
}

static ot_status fill_inputs(ot_bench_stream *s, const ot_bench_op *op, const operands *o) {
  for (int i = 0; i < OT_MAX_INPUTS; i++) {
    if (!o->in[i].data) continue;
    const ot_bench_block block = {.memory = o->in[i].data,
                                  .bytes = ot_type_bytes(&o->in[i].type),
                                  .dtype = o->in[i].type.dtype,
                                  .limit = limit_of(op, i)};
    OT_TRY(ot_bench_fill(s, &block, (uint64_t)i + 1));
  }
  return OT_OK;
}

static bool adds_to(const ot_bench_op *op, int output) {
  const ot_op_info *const info = ot_op_info_of(op->kind);
  const uint32_t acc = op->attributes.accumulate ? info->accumulated_outputs : 0;
  return ((acc | info->effect_outputs) >> output) & 1u;
}

static ot_status fill_outputs(ot_bench_stream *s, const ot_bench_op *op, const operands *o,
                              unsigned char byte) {
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) {
    if (!o->out[i].data || op->alias[i] > 0) continue;
    const unsigned char used = adds_to(op, i) ? 0 : byte;
    OT_TRY(ot_device_fill(s->device, o->out[i].data, 0, used, ot_type_bytes(&o->out[i].type)));
  }
  return OT_OK;
}

static ot_status allocate(ot_bench_stream *s, const ot_tensor_type *type, ot_tensor *tensor) {
  tensor->type = *type;
  if (ot_type_elements(type) == 0) return OT_OK;
  return ot_device_allocate(s->device, ot_type_bytes(type), &tensor->data);
}

static ot_status create_operands(ot_bench_stream *s, const ot_bench_op *op, operands *o) {
  const int64_t scratch = workspace_bytes(op);
  for (int i = 0; i < OT_MAX_INPUTS; i++) OT_TRY(allocate(s, &op->types.in[i], &o->in[i]));
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) {
    if (op->alias[i] > 0) {
      o->out[i] = (ot_tensor){o->in[op->alias[i] - 1].data, op->types.out[i]};
    } else {
      OT_TRY(allocate(s, &op->types.out[i], &o->out[i]));
    }
  }
  if (scratch > 0) OT_TRY(ot_device_allocate(s->device, scratch, &o->workspace));
  OT_TRY(fill_inputs(s, op, o));
  return fill_outputs(s, op, o, 0);
}

static void destroy_operands(ot_bench_stream *s, const ot_bench_op *op, operands *o) {
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) {
    if (op->alias[i] > 0) continue;
    ot_device_release(s->device, &o->out[i].data, ot_type_bytes(&o->out[i].type));
  }
  for (int i = 0; i < OT_MAX_INPUTS; i++) {
    ot_device_release(s->device, &o->in[i].data, ot_type_bytes(&o->in[i].type));
  }
  ot_device_release(s->device, &o->workspace, workspace_bytes(op));
}

static ot_status run(ot_bench_stream *s, const ot_bench_op *op, const operands *o) {
  const ot_kernel kernel = ot_kernel_find(s->backend, op->kind, op->attributes.compute);
  OT_CHECK(kernel, OT_ENVIRONMENT, "%s has no kernel on this device",
           ot_op_info_of(op->kind)->name);
  const ot_kernel_call call = {.attributes = &op->attributes,
                               .in = o->in,
                               .out = o->out,
                               .workspace = o->workspace,
                               .context = s->context};
  kernel(&call);
  return OT_OK;
}

// ---- time ----

// Sets of operands, one after the other.
typedef struct rotation {
  operands sets[MAX_SETS];
  int num_sets, repeats;
} rotation;

static ot_status time_sets(ot_bench_stream *s, const ot_bench_op *op, const rotation *r,
                           double *seconds) {
  double start_s;
  OT_TRY(ot_bench_stream_begin(s, &start_s));
  for (int i = 0; i < r->num_sets; i++) OT_TRY(run(s, op, &r->sets[i]));
  OT_TRY(ot_bench_stream_end(s, start_s, seconds));
  *seconds /= r->num_sets;
  return OT_OK;
}

static ot_status time_op(ot_bench_stream *s, const ot_bench_op *op, rotation *r, double *seconds) {
  double times[OT_BENCH_REPEATS];
  for (int i = 0; i < r->num_sets; i++) OT_TRY(create_operands(s, op, &r->sets[i]));
  for (int i = -1; i < r->repeats; i++) {
    OT_TRY(time_sets(s, op, r, &times[i < 0 ? 0 : i]));
  }
  *seconds = ot_bench_median(times, r->repeats);
  return OT_OK;
}

ot_status ot_bench_op_time(ot_bench_stream *s, const ot_bench_op *op, int repeats,
                           double *seconds) {
  const int64_t wanted = 1 + ROTATED_BYTES / (operand_bytes(op) + 1);
  rotation r = {.num_sets = (int)(wanted < MAX_SETS ? wanted : MAX_SETS),
                .repeats = repeats < OT_BENCH_REPEATS ? repeats : OT_BENCH_REPEATS};
  const ot_status status = time_op(s, op, &r, seconds);
  for (int i = 0; i < r.num_sets; i++) destroy_operands(s, op, &r.sets[i]);
  return status;
}

// ---- bits ----

static ot_status read_outputs(ot_bench_stream *s, const operands *o, char *to) {
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) {
    const int64_t bytes = o->out[i].data ? ot_type_bytes(&o->out[i].type) : 0;
    if (bytes > 0) OT_TRY(ot_device_read(s->device, o->out[i].data, 0, to, bytes));
    to += bytes;
  }
  return OT_OK;
}

static ot_status run_twice(ot_bench_stream *s, const ot_bench_op *op, operands *o, char *bits[2]) {
  OT_TRY(create_operands(s, op, o));
  for (int i = 0; i < 2; i++) {
    OT_TRY(fill_inputs(s, op, o));
    OT_TRY(fill_outputs(s, op, o, i == 0 ? 0 : POISON));
    OT_TRY(run(s, op, o));
    OT_TRY(ot_stream_synchronize(s->stream));
    OT_TRY(read_outputs(s, o, bits[i]));
  }
  return OT_OK;
}

ot_status ot_bench_op_repeat(ot_bench_stream *s, const ot_bench_op *op, bool *same) {
  operands o = {0};
  int64_t bytes = 0;
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) bytes += ot_type_bytes(&op->types.out[i]);
  char *bits[2] = {calloc(1, (size_t)bytes + 1), calloc(1, (size_t)bytes + 1)};
  ot_status status = OT_ENVIRONMENT;
  if (bits[0] && bits[1]) status = run_twice(s, op, &o, bits);
  destroy_operands(s, op, &o);
  *same = status == OT_OK && memcmp(bits[0], bits[1], (size_t)bytes) == 0;
  free(bits[0]);
  free(bits[1]);
  return status;
}
