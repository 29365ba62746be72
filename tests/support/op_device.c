// SPDX-License-Identifier: Apache-2.0
// Blocks of host memory and their copies on the device.
#include "support/op_device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/device.h"
#include "host/heap.h"
#include "ops/catalog.h"
#include "workspace/workspace.h"

enum { MOST_BLOCKS = 2 * OT_JOINED_MOST * (OT_MAX_INPUTS + OT_MAX_OUTPUTS + 1) };

// A block of host memory with its canaries, and its copy; null: the copy waits for the next block
// of as many bytes.
typedef struct block {
  char *host;
  int64_t bytes;
  void *copy;
} block;

// The device of this process and copies on it, kept from run to run: a GPU needs milliseconds to
// create and to release them, more while other tests use it.
typedef struct device_run {
  ot_device *device;
  ot_stream *stream;
  void *context;
  int num_blocks;
  block blocks[MOST_BLOCKS];
} device_run;

ot_backend op_device_backend(void) {
  const char *const text = getenv("OT_TEST_DEVICE");
  return text && strcmp(text, "cuda") == 0 ? OT_BACKEND_CUDA : OT_BACKEND_CPU;
}

bool op_device_has_library(void) {
  const char *const products = getenv("OT_PRODUCTS");
  return op_device_backend() == OT_BACKEND_CUDA && !(products && strcmp(products, "own") == 0);
}

// Of the emulated GPU alone.
enum { SHIM_FORWARD, SHIM_BACKWARD, SHIM_RANDOM };
extern void shim_set_order(int order, uint64_t seed) __attribute__((weak));

void op_device_set_order(int seed) {
  if (shim_set_order) shim_set_order(seed < SHIM_RANDOM ? seed : SHIM_RANDOM, (uint64_t)seed);
}

extern int64_t shim_count_kernels(const char *name) __attribute__((weak));

int64_t op_device_count_kernels(const char *name) {
  return shim_count_kernels ? shim_count_kernels(name) : -1;
}

extern void shim_set_devices(int count) __attribute__((weak));

int op_device_set_count(int wanted) {
  if (shim_set_devices) shim_set_devices(wanted);
  return ot_device_count(OT_BACKEND_CUDA);
}

int64_t op_device_padded(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// OT_TEST_CASES=PATTERN: only the cases whose names match.
__attribute__((constructor)) static void choose_cases(void) {
  cmocka_set_test_filter(getenv("OT_TEST_CASES"));
}

static void must(ot_status status) {
  if (status != OT_OK) fail_msg("%s", ot_fail_message());
}

static device_run kept;

// The extents of a line of a table of algorithms; false if it is that of no bf16 product.
static bool read_extents(const char *line, long long extents[3]) {
  enum { BF16 = 14 };  // of cuBLASLt
  int type = 0;
  const int read = sscanf(line, "%lld %lld %lld %*d %*d %*d %*d %*d %*d %*d %*d %*d %d",
                          &extents[0], &extents[1], &extents[2], &type);
  return read == 4 && type == BF16;
}

void op_device_expect_aligned(int64_t marker, int least) {
  if (!op_device_has_library()) return;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const char *line = ot_kernel_algorithms_print(OT_BACKEND_CUDA, kept.context, &arena);
  int found = 0;
  for (; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
    long long e[3];
    if (!read_extents(line, e) || (e[0] != marker && e[1] != marker && e[2] != marker)) continue;
    found++;
    if (e[0] > 8 && e[0] % 8 != 0) fail_msg("a product of %lld rows", e[0]);
    if (e[1] % 8 != 0 || e[2] % 8 != 0) fail_msg("a product of %lld x %lld", e[1], e[2]);
  }
  if (found < least) fail_msg("%d products with an extent of %d", found, (int)marker);
  ot_heap_release(&heap);
}

static void release_idle(device_run *r) {
  int left = 0;
  for (int i = 0; i < r->num_blocks; i++) {
    block *const b = &r->blocks[i];
    if (b->host) {
      r->blocks[left++] = *b;
    } else {
      ot_device_release(r->device, &b->copy, b->bytes);
    }
  }
  r->num_blocks = left;
}

// An idle copy of `bytes`, or a new one.
static block *find_idle(device_run *r, int64_t bytes) {
  for (int i = 0; i < r->num_blocks; i++) {
    if (!r->blocks[i].host && r->blocks[i].bytes == bytes) return &r->blocks[i];
  }
  if (r->num_blocks == MOST_BLOCKS) release_idle(r);
  block *const made = &r->blocks[r->num_blocks++];
  *made = (block){.bytes = bytes};
  must(ot_device_allocate(r->device, bytes, &made->copy));
  return made;
}

// The device address of `data`, a block of `bytes` with canaries; equal addresses share a copy.
static void *copy_of(device_run *r, void *data, int64_t bytes) {
  if (!data) return NULL;
  char *const host = (char *)data - OP_GUARD_BYTES;
  int i = 0;
  while (i < r->num_blocks && r->blocks[i].host != host) i++;
  if (i < r->num_blocks) return (char *)r->blocks[i].copy + OP_GUARD_BYTES;
  block *const b = find_idle(r, op_device_padded(bytes) + 2 * OP_GUARD_BYTES);
  b->host = host;
  must(ot_device_write(r->device, b->copy, 0, host, b->bytes));
  return (char *)b->copy + OP_GUARD_BYTES;
}

static void copy_back(device_run *r) {
  for (int i = 0; i < r->num_blocks; i++) {
    block *const b = &r->blocks[i];
    if (b->host) must(ot_device_read(r->device, b->copy, 0, b->host, b->bytes));
    b->host = NULL;
  }
}

static device_run *open_run(void) {
  device_run *const r = &kept;
  if (r->context) return r;
  must(ot_device_create(OT_BACKEND_CUDA, 0, &r->device));
  must(ot_device_bind(r->device));
  must(ot_stream_create(r->device, &r->stream));
  must(ot_kernel_context_create(OT_BACKEND_CUDA, ot_stream_native(r->stream), &r->context));
  return r;
}

// The operands of a call on the device.
typedef struct moved {
  ot_tensor in[OT_MAX_INPUTS], out[OT_MAX_OUTPUTS];
} moved;

static ot_kernel_call move_call(device_run *r, const ot_kernel_call *call, int64_t workspace_bytes,
                                moved *to) {
  for (int i = 0; i < OT_MAX_INPUTS; i++) {
    to->in[i] = call->in[i];
    to->in[i].data = copy_of(r, to->in[i].data, ot_type_bytes(&to->in[i].type));
  }
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) {
    to->out[i] = call->out[i];
    to->out[i].data = copy_of(r, to->out[i].data, ot_type_bytes(&to->out[i].type));
  }
  return (ot_kernel_call){.attributes = call->attributes,
                          .in = to->in,
                          .out = to->out,
                          .workspace = copy_of(r, call->workspace, workspace_bytes),
                          .context = r->context};
}

static void run_on_device(ot_kernel run, const ot_kernel_call *call, int64_t workspace_bytes) {
  device_run *const r = open_run();
  moved operands;
  const ot_kernel_call there = move_call(r, call, workspace_bytes, &operands);
  run(&there);
  must(ot_stream_synchronize(r->stream));
  copy_back(r);
}

void op_device_run(ot_op_kind kind, const ot_kernel_call *call, int64_t workspace_bytes) {
  const ot_op_attributes *const a = call->attributes;
  const ot_kernel run = ot_kernel_find(a->backend, kind, a->compute);
  if (!run) fail_msg("%s has no kernel for this device", ot_op_info_of(kind)->name);
  if (a->backend == OT_BACKEND_CPU) {
    run(call);
  } else {
    run_on_device(run, call, workspace_bytes);
  }
}

void op_device_run_joined(ot_op_kind kind, const ot_kernel_call *calls,
                          const int64_t *workspace_bytes, int count) {
  const ot_op_attributes *const a = calls[0].attributes;
  const ot_joined_kernel run = ot_kernel_find_joined(a->backend, kind, a->compute);
  if (!run) fail_msg("%s has no kernel for several calls", ot_op_info_of(kind)->name);
  device_run *const r = open_run();
  moved operands[OT_JOINED_MOST];
  ot_kernel_call there[OT_JOINED_MOST];
  for (int i = 0; i < count; i++) {
    there[i] = move_call(r, &calls[i], workspace_bytes[i], &operands[i]);
  }
  run(there, count);
  must(ot_stream_synchronize(r->stream));
  copy_back(r);
}
