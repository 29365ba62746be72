// SPDX-License-Identifier: Apache-2.0
// ctest: waits
// run: any machine; in builds without CUDA on emulated GPUs. The conformance suite with buffers on
// GPUs: ranks that share one and read each other's memory, and ranks with a GPU each, by NCCL. And
// how a GPU that fails ends the run on all ranks.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/comm_cases.h"
#include "support/comm_place.h"
#include "support/op_device.h"

enum { MOST_RANKS = 4, VALUES = 700 };

// ---- the suite ----

// Messages around a ring, of two tags; odd ranks receive first.
static ot_status pass_messages(ot_comm *comm, int32_t *memory) {
  const int size = ot_comm_size(comm), rank = ot_comm_rank(comm);
  const int next = (rank + 1) % size, last = (rank + size - 1) % size;
  for (int i = 0; i < 2; i++) {
    const int tag = (rank + i) % 2, theirs = (last + i) % 2;
    for (int e = 0; e < VALUES; e++) memory[e] = 100 * rank + 10 * tag + e;
    const ot_comm_call send = {.kind = OT_COMM_SEND,
                               .peer = next,
                               .tag = tag,
                               .send = memory,
                               .count = VALUES,
                               .dtype = OT_I32,
                               .name = "forward"};
    ot_comm_call receive = send;
    receive.kind = OT_COMM_RECEIVE;
    receive.peer = last;
    receive.tag = theirs;
    receive.receive = memory + VALUES;
    OT_TRY(comm_run(comm, rank % 2 ? &receive : &send));
    OT_TRY(comm_run(comm, rank % 2 ? &send : &receive));
    for (int e = 0; e < VALUES; e++) {
      COMM_EXPECT(memory[VALUES + e] == 100 * last + 10 * theirs + e);
    }
  }
  return OT_OK;
}

static ot_status messages(ot_comm *comm) {
  int32_t memory[2 * VALUES];
  // On odd rings two neighbours would both send first.
  return ot_comm_size(comm) % 2 ? OT_OK : pass_messages(comm, memory);
}

// A message on a stream of its own.
typedef struct parcel {
  ot_stream *stream;
  ot_event *event;
  void *memory;  // [VALUES + tag]
  ot_comm_request request;
} parcel;

static ot_status start_parcel(ot_comm *comm, ot_device *device, int tag, parcel *p) {
  const int size = ot_comm_size(comm), rank = ot_comm_rank(comm);
  const bool sends = rank % 2 == 0;
  int32_t values[VALUES + 1];
  for (int e = 0; e < VALUES + tag; e++) values[e] = sends ? 1000 * tag + e : -1;
  OT_TRY(ot_stream_create(device, &p->stream));
  OT_TRY(ot_event_create(device, &p->event));
  OT_TRY(ot_device_allocate(device, sizeof values, &p->memory));
  OT_TRY(ot_device_write(device, p->memory, 0, values, (int64_t)sizeof *values * (VALUES + tag)));
  const ot_comm_call call = {.kind = sends ? OT_COMM_SEND : OT_COMM_RECEIVE,
                             .peer = (rank + (sends ? 1 : size - 1)) % size,
                             .tag = tag,
                             .send = p->memory,
                             .receive = p->memory,
                             .count = VALUES + tag,
                             .dtype = OT_I32,
                             .stream = p->stream,
                             .event = p->event,
                             .name = "parcel"};
  ot_comm_start(comm, &call, &p->request);
  return OT_OK;
}

static ot_status end_parcel(ot_comm *comm, ot_device *device, int tag, parcel *p) {
  int32_t values[VALUES + 1];
  OT_TRY(ot_comm_wait(comm, &p->request));
  OT_TRY(ot_comm_synchronize(comm, p->stream));
  OT_TRY(ot_device_read(device, p->memory, 0, values, (int64_t)sizeof *values * (VALUES + tag)));
  for (int e = 0; e < VALUES + tag; e++) COMM_EXPECT(values[e] == 1000 * tag + e);
  ot_device_release(device, &p->memory, sizeof values);
  ot_event_destroy(&p->event);
  ot_stream_destroy(&p->stream);
  return OT_OK;
}

// The sender starts with tag 0, the receiver with tag 1.
static ot_status messages_overtake(ot_comm *comm) {
  const int rank = ot_comm_rank(comm), first = rank % 2;
  if (ot_comm_size(comm) % 2) return OT_OK;
  const int ordinal = ot_comm_ordinal(comm, ot_device_count(OT_BACKEND_CUDA));
  ot_device *device = NULL;
  parcel parcels[2] = {0};
  OT_TRY(ot_device_create(OT_BACKEND_CUDA, ordinal, &device));
  OT_TRY(start_parcel(comm, device, first, &parcels[first]));
  OT_TRY(start_parcel(comm, device, 1 - first, &parcels[1 - first]));
  for (int tag = 0; tag < 2; tag++) OT_TRY(end_parcel(comm, device, tag, &parcels[tag]));
  ot_device_destroy(&device);
  return OT_OK;
}

static ot_status run_suite(ot_comm *comm) {
  static const comm_case cases[] = {
      {"every_kind_and_type", comm_every_kind_and_type},
      {"exchanges_of_any_rows", comm_exchanges_of_any_rows},
      {"exchanges_of_many_runs", comm_exchanges_of_many_runs},
      {"exchange_of_nothing", comm_exchange_of_nothing},
      {"messages", messages},
      {"messages_overtake", messages_overtake},
      {"groups_of_some_ranks", comm_groups_of_some_ranks},
  };
  for (int i = 0; i < OT_COUNT(cases); i++) {
    OT_TRY(comm_case_main(comm, (void *)&cases[i]));
  }
  return OT_OK;
}

static ot_status suite_main(ot_comm *comm, void *context) {
  (void)context;
  OT_TRY(comm_place_on_gpu(comm));
  const ot_status status = run_suite(comm);
  comm_place_on_host();
  return status;
}

static void run_worlds(int devices) {
  static const int sizes[] = {1, 2, 3, 4};
  if (op_device_set_count(devices) < devices) skip();
  for (int i = 0; i < OT_COUNT(sizes); i++) {
    op_device_set_order(i);
    const ot_status status = ot_comm_run_threads(sizes[i], suite_main, NULL);
    op_device_set_order(0);
    if (status != OT_OK) fail_msg("%d ranks, %d GPUs: %s", sizes[i], devices, ot_fail_message());
  }
}

static void ranks_that_share_a_gpu_pass(void **state) {
  (void)state;
  run_worlds(1);
}

static void ranks_with_a_gpu_each_pass(void **state) {
  (void)state;
  run_worlds(MOST_RANKS);
}

// ---- failures ----

// Of the emulated GPU alone.
enum { UNCORRECTABLE = 214, UNKNOWN = 999 };  // cudaError_t
extern void shim_fail(const char *call, int64_t n, int error) __attribute__((weak));
extern void shim_reset(void) __attribute__((weak));

static ot_status add_up(ot_comm *comm) {
  static const float values[VALUES];
  float sums[VALUES], workspace[VALUES + MOST_RANKS];
  return comm_run(comm, &(ot_comm_call){.kind = OT_COMM_ALL_REDUCE,
                                        .send = values,
                                        .receive = sums,
                                        .count = VALUES,
                                        .workspace = workspace,
                                        .name = "sum"});
}

static ot_status sum_often(ot_comm *comm) {
  for (int i = 0; i < 50; i++) OT_TRY(add_up(comm));
  return OT_OK;
}

// The last rank waits elsewhere.
static ot_status sum_without_one(ot_comm *comm) {
  ot_comm_set_timeout(comm, 0.3);
  if (ot_comm_rank(comm) < ot_comm_size(comm) - 1) return add_up(comm);
  ot_comm_set_timeout(comm, 60.0);
  return ot_comm_run(comm, &(ot_comm_call){.kind = OT_COMM_BARRIER, .name = "elsewhere"});
}

static ot_status failing_main(ot_comm *comm, void *context) {
  ot_status (*const run)(ot_comm *) = *(ot_status(**)(ot_comm *))context;
  OT_TRY(comm_place_on_gpu(comm));
  const char *const fails = getenv("OT_TEST_FAILS");
  if (shim_fail && fails && ot_comm_rank(comm) == 0) {
    shim_fail(fails, 20, strcmp(fails, "kernel") == 0 ? UNCORRECTABLE : UNKNOWN);
  }
  const ot_status status = run(comm);
  comm_place_on_host();
  return status;
}

// Runs it on three ranks; the status and the message's parts are expected.
static void expect_failure(ot_status (*run)(ot_comm *), ot_status status, const char *first,
                           const char *second) {
  if (!shim_fail || op_device_set_count(MOST_RANKS) < MOST_RANKS) skip();
  const ot_status got = ot_comm_run_threads(3, failing_main, &run);
  shim_reset();
  unsetenv("OT_TEST_FAILS");
  if (got != status || !strstr(ot_fail_message(), first) || !strstr(ot_fail_message(), second)) {
    fail_msg("%d: %s", got, ot_fail_message());
  }
}

static void a_gpu_that_fails_ends_the_run(void **state) {
  (void)state;
  setenv("OT_TEST_FAILS", "kernel", 1);
  expect_failure(sum_often, OT_RANKS, "the GPU failed: ", "uncorrectable ECC error");
}

static void work_that_nccl_gives_up_ends_the_run(void **state) {
  (void)state;
  setenv("OT_TEST_FAILS", "nccl", 1);
  expect_failure(sum_often, OT_RANKS, "NCCL: remote process exited", "'sum' (all_reduce");
}

static void a_call_that_does_not_finish_is_named(void **state) {
  (void)state;
  expect_failure(sum_without_one, OT_RANKS, "waits in 'sum' (all_reduce",
                 "which has not finished in 0.3 s");
}

static void without_nccl_the_run_does_not_start(void **state) {
  (void)state;
  setenv("OT_SHIM_NCCL", "none", 1);
  expect_failure(sum_often, OT_ENVIRONMENT, "rank 0", "NCCL is not found");
  unsetenv("OT_SHIM_NCCL");
}

// Four ranks on three GPUs would share some of them.
static void ranks_share_one_gpu_or_none(void **state) {
  (void)state;
  if (op_device_set_count(3) != 3) skip();
  ot_status (*run)(ot_comm *) = add_up;
  if (ot_comm_run_threads(4, failing_main, &run) != OT_OK) fail_msg("%s", ot_fail_message());
}

// One kernel adds up what the ranks of a group have, which is said at once.
static ot_status many_main(ot_comm *comm, void *context) {
  const ot_comm_route route = {.group = OT_GROUP_WORLD, .kind = *(const ot_comm_kind *)context};
  return ot_comm_use_device(comm, 0, &route, 1);
}

static void more_ranks_than_can_add_up_are_refused(void **state) {
  (void)state;
  ot_comm_kind kind = OT_COMM_ALL_GATHER;
  if (op_device_set_count(1) != 1) skip();
  if (ot_comm_run_threads(65, many_main, &kind) != OT_OK) fail_msg("%s", ot_fail_message());
  kind = OT_COMM_ALL_REDUCE;
  if (ot_comm_run_threads(64, many_main, &kind) != OT_OK) fail_msg("%s", ot_fail_message());
  assert_int_equal(ot_comm_run_threads(65, many_main, &kind), OT_RANKS);
  if (!strstr(ot_fail_message(), "65 ranks of group world add up values on GPUs, at most 64 can")) {
    fail_msg("%s", ot_fail_message());
  }
}

int main(void) {
  setenv("OT_TEST_DEVICE", "cuda", 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranks_that_share_a_gpu_pass),
      cmocka_unit_test(ranks_with_a_gpu_each_pass),
      cmocka_unit_test(ranks_share_one_gpu_or_none),
      cmocka_unit_test(more_ranks_than_can_add_up_are_refused),
      cmocka_unit_test(without_nccl_the_run_does_not_start),
      cmocka_unit_test(a_call_that_does_not_finish_is_named),
      cmocka_unit_test(work_that_nccl_gives_up_ends_the_run),
      cmocka_unit_test(a_gpu_that_fails_ends_the_run),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
