// SPDX-License-Identifier: Apache-2.0
// run: any machine; in builds for a machine with a GPU on that GPU, with its NCCL. Every call of
// NCCL that communication makes, in a world of one rank: what it sends to itself arrives.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "comm/nccl_api.h"
#include "device/device.h"

enum { COUNT = 1 << 20, PIECE = 4096 };  // bytes

typedef struct world {
  ot_nccl_api api;
  ot_nccl_comm *comm;
  ot_device *device;
  ot_stream *stream;
  void *memory;  // [3 * COUNT] sent, gathered, received
  unsigned char host[COUNT];
} world;

static void must(ot_status status) {
  if (status != OT_OK) fail_msg("%s", ot_fail_message());
}

static void succeed(const world *w, int result, const char *what) {
  if (result != 0) fail_msg("%s: %s", what, w->api.describe(result));
}

static int open_world(void **state) {
  static world w;
  ot_nccl_id id;
  *state = &w;
  must(ot_device_create(OT_BACKEND_CUDA, 0, &w.device));
  if (ot_nccl_open(&w.api) != OT_OK) {
    printf("skipped: %s\n", ot_fail_message());
    return 0;
  }
  must(ot_stream_create(w.device, &w.stream));
  must(ot_device_allocate(w.device, 3 * COUNT, &w.memory));
  for (int i = 0; i < COUNT; i++) w.host[i] = (unsigned char)(i * 7 + i / 251);
  must(ot_device_write(w.device, w.memory, 0, w.host, COUNT));
  must(ot_device_fill(w.device, w.memory, COUNT, 0, 2 * COUNT));
  succeed(&w, w.api.make_id(&id), "making an id");
  succeed(&w, w.api.create(&w.comm, 1, id, 0), "creating a communicator");
  return 0;
}

static int close_world(void **state) {
  world *const w = *state;
  if (w->comm) {
    succeed(w, w->api.finalize(w->comm), "finalizing");
    succeed(w, w->api.destroy(w->comm), "destroying");
  }
  ot_device_release(w->device, &w->memory, 3 * COUNT);
  ot_stream_destroy(&w->stream);
  ot_device_destroy(&w->device);
  return 0;
}

// Waits, and expects that `count` bytes at `to` are the first ones sent.
static void expect_arrived(world *w, int64_t to, int count) {
  unsigned char got[PIECE];
  int failure = 0;
  must(ot_stream_synchronize(w->stream));
  succeed(w, w->api.failure(w->comm, &failure), "asking for failures");
  assert_int_equal(failure, 0);
  for (int i = 0; i < count; i += PIECE) {
    must(ot_device_read(w->device, w->memory, to + i, got, PIECE));
    assert_memory_equal(got, w->host + i, PIECE);
  }
}

static void an_all_gather_copies(void **state) {
  world *const w = *state;
  if (!w->comm) skip();
  char *const memory = w->memory;
  void *const stream = ot_stream_native(w->stream);
  succeed(w, w->api.all_gather(memory, memory + COUNT, COUNT, OT_NCCL_UINT8, w->comm, stream),
          "all-gather");
  expect_arrived(w, COUNT, COUNT);
}

static void a_rank_sends_to_itself(void **state) {
  world *const w = *state;
  if (!w->comm) skip();
  char *const memory = w->memory;
  void *const stream = ot_stream_native(w->stream);
  succeed(w, w->api.begin(), "beginning a group");
  succeed(w, w->api.send(memory, COUNT, OT_NCCL_UINT8, 0, w->comm, stream), "sending");
  succeed(w, w->api.receive(memory + 2 * (int64_t)COUNT, COUNT, OT_NCCL_UINT8, 0, w->comm, stream),
          "receiving");
  succeed(w, w->api.end(), "ending a group");
  expect_arrived(w, 2 * (int64_t)COUNT, COUNT);
}

int main(void) {
  setenv("OT_TEST_DEVICE", "cuda", 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_all_gather_copies),
      cmocka_unit_test(a_rank_sends_to_itself),
  };
  return cmocka_run_group_tests(tests, open_world, close_world);
}
