// SPDX-License-Identifier: Apache-2.0
// run: any machine. The runtime API of the emulated device: when work of streams runs, what waits
// for what, memory, and failures on purpose. Prints what is wrong and exits with 1.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "shim_expect.h"
#include "shim_kernels.h"

namespace {

// ---- streams ----

// Two streams hand two buffers to each other: one fills them, the other adds to sums. Returns the
// sums; each missing wait lets a piece of work run too early.
enum { HANDOVERS = 8 };
int hand_over(bool reader_waits, bool writer_waits) {
  const device_array<int> numbers(std::vector<int>({1, 10, 100, 1000, 10000, 100000, 7, 70}));
  const device_array<int> buffers(std::vector<int>({0, 0})), sums(HANDOVERS + 1);
  must(cudaMemset(sums.get(), 0, sizeof(int) * (HANDOVERS + 1)));
  must(cudaDeviceSynchronize());
  const test_stream writer, reader;
  const test_event written[2], used[2];
  for (int i = 0; i < HANDOVERS; i++) {
    int *const buffer = buffers.get() + i % 2;
    if (writer_waits) must(cudaStreamWaitEvent(writer, used[i % 2], 0));
    queue_add(writer, numbers.get() + i, buffer, 1, 0);
    must(cudaEventRecord(written[i % 2], writer));
    if (reader_waits) must(cudaStreamWaitEvent(reader, written[i % 2], 0));
    queue_add(reader, buffer, sums.get() + i, 1, 0);
    must(cudaEventRecord(used[i % 2], reader));
  }
  int result = 0;
  for (const int s : sums.read()) result += s;
  return result;
}

void missing_waits_show_under_some_seed() {
  int wrong[3] = {};
  for (uint64_t seed = 1; seed <= 100; seed++) {
    shim_set_order(SHIM_FORWARD, seed);
    wrong[0] += hand_over(true, true) != 111188;
    wrong[1] += hand_over(false, true) != 111188;
    wrong[2] += hand_over(true, false) != 111188;
  }
  expect(wrong[0] == 0, "work runs before what its stream waits for");
  expect(wrong[1] >= 20, "a reader that does not wait shows under fewer than 20 of 100 seeds");
  expect(wrong[2] >= 20, "a writer that does not wait shows under fewer than 20 of 100 seeds");
}

// The value that a blocking copy reads from `memory`.
int peek(const device_array<int> &memory) {
  int value;
  must(cudaMemcpy(&value, memory.get(), sizeof value, cudaMemcpyDeviceToHost));
  return value;
}

// How often in 50 seeds a blocking copy reads what a kernel on a stream with `flags` wrote before.
int times_seen_by_a_blocking_copy(unsigned flags) {
  int seen = 0;
  for (uint64_t seed = 1; seed <= 50; seed++) {
    shim_set_order(SHIM_FORWARD, seed);
    const device_array<int> memory(std::vector<int>({1}));
    const test_stream stream(flags);
    queue_add(stream, memory.get(), memory.get(), 1, 41);
    seen += peek(memory) == 42;
  }
  return seen;
}

void blocking_copies_wait_for_blocking_streams_only() {
  expect(times_seen_by_a_blocking_copy(cudaStreamDefault) == 50,
         "the default stream does not wait for a stream that does not ignore it");
  expect(times_seen_by_a_blocking_copy(cudaStreamNonBlocking) < 50,
         "cudaMemcpy waits for a non-blocking stream");
}

void streams_wait_for_the_default_stream() {
  const device_array<int> memory(std::vector<int>({1}));
  const test_stream stream(cudaStreamDefault);
  queue_add(nullptr, memory.get(), memory.get(), 1, 1);
  queue_add(stream, memory.get(), memory.get(), 1, 10);
  must(cudaStreamSynchronize(stream));
  queue_add(stream, memory.get(), memory.get(), 1, 100);
  must(cudaStreamSynchronize(nullptr));
  expect(peek(memory) == 112, "the default stream and a blocking stream do not keep their order");
}

void work_runs_only_when_something_waits() {
  int *host;
  must(cudaMallocHost(reinterpret_cast<void **>(&host), sizeof *host));
  *host = 5;
  const device_array<int> memory(std::vector<int>({1}));
  const test_stream stream;
  const test_event event;
  must(cudaEventQuery(event));
  must(cudaEventSynchronize(event));
  must(cudaMemcpyAsync(memory.get(), host, sizeof *host, cudaMemcpyHostToDevice, stream));
  *host = 6;  // before the copy runs: the copy reads this
  queue_add(stream, memory.get(), memory.get(), 1, 1);
  must(cudaMemcpyAsync(host, memory.get(), sizeof *host, cudaMemcpyDeviceToHost, stream));
  must(cudaEventRecord(event, stream));
  expect(*host == 6, "a copy to pinned memory blocks");
  expect_error(cudaEventQuery(event), cudaErrorNotReady);
  expect_error(cudaStreamQuery(stream), cudaErrorNotReady);
  must(cudaGetLastError());
  for (int i = 0; i < 10 && cudaEventQuery(event) != cudaSuccess; i++) continue;
  must(cudaEventQuery(event));
  must(cudaStreamQuery(stream));
  expect(*host == 7, "polling an event does not bring it about");
  must(cudaFreeHost(host));
}

void pageable_memory_is_read_at_once_and_written_before_the_call_returns() {
  const device_array<int> memory(std::vector<int>({1}));
  const test_stream stream;
  int value = 20;
  must(cudaMemcpyAsync(memory.get(), &value, sizeof value, cudaMemcpyHostToDevice, stream));
  value = 0;
  must(cudaMemcpyAsync(&value, memory.get(), sizeof value, cudaMemcpyDeviceToHost, stream));
  expect(value == 20, "a copy between pageable memory and the device");
  // A blocking copy from pageable memory may return before its bytes arrive.
  int early = 0;
  for (uint64_t seed = 1; seed <= 20; seed++) {
    shim_set_order(SHIM_FORWARD, seed);
    value = static_cast<int>(seed) + 100;
    must(cudaMemcpy(memory.get(), &value, sizeof value, cudaMemcpyHostToDevice));
    int got;
    must(cudaMemcpyAsync(&got, memory.get(), sizeof got, cudaMemcpyDeviceToHost, stream));
    early += got != value;
  }
  expect(early > 0, "a non-blocking stream always sees what cudaMemcpy wrote");
}

// ---- graphs ----

void a_graph_runs_when_it_is_launched() {
  const device_array<int> memory(std::vector<int>({1}));
  const test_stream stream;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  queue_add(stream, memory.get(), memory.get(), 1, 1);
  must(cudaMemsetAsync(memory.get() + 0, 0, 0, stream));
  queue_add(stream, memory.get(), memory.get(), 1, 10);
  must(cudaStreamEndCapture(stream, &graph));
  must(cudaGraphInstantiate(&executable, graph, 0));
  must(cudaGraphDestroy(graph));
  expect(peek(memory) == 1, "captured work has run");
  queue_add(stream, memory.get(), memory.get(), 1, 100);
  must(cudaGraphLaunch(executable, stream));
  must(cudaGraphLaunch(executable, stream));
  must(cudaGraphExecDestroy(executable));
  must(cudaStreamSynchronize(stream));
  expect(peek(memory) == 123, "a graph does not run as often as it is launched");
}

cudaError_t end_of_capture(const std::function<cudaError_t(cudaStream_t)> &within) {
  const test_stream stream;
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  expect(within(stream) != cudaSuccess, "a call that no capture permits succeeds");
  cudaGraph_t graph;
  const cudaError_t end = cudaStreamEndCapture(stream, &graph);
  expect(!graph, "a broken capture makes a graph");
  (void)cudaGetLastError();
  return end;
}

void what_cannot_be_captured_breaks_the_capture() {
  const test_event event;
  int value = 0;
  const device_array<int> memory(1);
  const std::function<cudaError_t(cudaStream_t)> calls[] = {
      [](cudaStream_t s) { return cudaStreamSynchronize(s); },
      [](cudaStream_t) { return cudaDeviceSynchronize(); },
      [&](cudaStream_t s) { return cudaEventRecord(event, s); },
      [](cudaStream_t) {
        void *more;
        return cudaMalloc(&more, 1);
      },
      [&](cudaStream_t s) {
        return cudaMemcpyAsync(memory.get(), &value, sizeof value, cudaMemcpyHostToDevice, s);
      },
      [](cudaStream_t s) {
        queue_large_shared(s, 300 << 10);
        return cudaGetLastError();
      }};
  for (const auto &call : calls) {
    expect_error(end_of_capture(call), cudaErrorStreamCaptureInvalidated);
  }
  cudaGraph_t graph;
  const test_stream stream;
  expect_error(cudaStreamEndCapture(stream, &graph), cudaErrorIllegalState);
  (void)cudaGetLastError();
}

void a_blocking_upload_waits_for_earlier_default_work() {
  const device_array<int> memory(std::vector<int>({1}));
  int *pinned, value = 9;
  must(cudaMallocHost(reinterpret_cast<void **>(&pinned), sizeof *pinned));
  must(cudaMemcpyAsync(pinned, memory.get(), sizeof value, cudaMemcpyDeviceToHost, nullptr));
  must(cudaMemcpy(memory.get(), &value, sizeof value, cudaMemcpyHostToDevice));
  expect(*pinned == 1, "cudaMemcpy to the device does not wait for the default stream");
  must(cudaFreeHost(pinned));
}

void events_refer_to_the_record_before_the_wait() {
  const device_array<int> memory(std::vector<int>({1}));
  const test_stream first, second;
  const test_event event;
  for (uint64_t seed = 1; seed <= 20; seed++) {
    shim_set_order(SHIM_FORWARD, seed);
    queue_add(first, memory.get(), memory.get(), 1, 1);
    must(cudaEventRecord(event, first));
    must(cudaStreamWaitEvent(second, event, 0));
    must(cudaEventRecord(event, second));  // now it stands for the second stream
    must(cudaEventSynchronize(event));
    must(cudaStreamQuery(first));
  }
  must(cudaDeviceSynchronize());
}

void elapsed_times_need_timed_and_reached_events() {
  enum { SUM_BLOCKS = 7, SUM_COUNT = SUM_BLOCKS * PER_BLOCK };
  const std::vector<float> ones(SUM_COUNT, 1.0f);
  const device_array<float> x(ones), y(SUM_BLOCKS);
  const test_stream stream;
  const test_event begin(cudaEventDefault), end(cudaEventDefault), untimed;
  float elapsed_ms = -1;
  expect_error(cudaEventElapsedTime(&elapsed_ms, begin, end), cudaErrorInvalidResourceHandle);
  must(cudaEventRecord(begin, stream));
  queue_block_sums(stream, x.get(), y.get(), SUM_BLOCKS, true);
  must(cudaEventRecord(end, stream));
  must(cudaEventRecord(untimed, stream));
  expect_error(cudaEventElapsedTime(&elapsed_ms, begin, end), cudaErrorNotReady);
  must(cudaEventSynchronize(untimed));
  expect_error(cudaEventElapsedTime(&elapsed_ms, begin, untimed), cudaErrorInvalidResourceHandle);
  must(cudaEventElapsedTime(&elapsed_ms, begin, end));
  expect(elapsed_ms > 0, "a kernel took no time");
  cudaGetLastError();
}

void destroyed_streams_finish_their_work() {
  const device_array<int> memory(std::vector<int>({1}));
  {
    const test_stream stream;
    queue_add(stream, memory.get(), memory.get(), 1, 41);
  }
  expect(memory.read()[0] == 42, "work of a destroyed stream is lost");
  cudaStream_t gone;
  must(cudaStreamCreateWithFlags(&gone, 0));
  must(cudaStreamDestroy(gone));
  expect_error(cudaStreamSynchronize(gone), cudaErrorInvalidResourceHandle);
  expect_error(cudaGetLastError(), cudaErrorInvalidResourceHandle);
}

// ---- threads ----

// A host function that waits until the other thread's has come as well.
struct rendezvous {
  std::atomic<int> arrived{0};
  std::atomic<cudaError_t> inner{cudaSuccess};
};

void meet(void *argument) {
  rendezvous *const r = static_cast<rendezvous *>(argument);
  r->inner = cudaDeviceSynchronize();
  r->arrived++;
  while (r->arrived < 2) std::this_thread::yield();
}

// Waits for its own stream only: the other's may not end before this one has come.
void add_and_meet(rendezvous *r, cudaStream_t stream, int *sum) {
  for (int i = 1; i <= 20; i++) queue_add(stream, sum, sum, 1, i);
  must(cudaLaunchHostFunc(stream, meet, r));
  for (int i = 1; i <= 20; i++) queue_add(stream, sum, sum, 1, i);
  must(cudaStreamSynchronize(stream));
}

void threads_share_the_device() {
  for (uint64_t seed = 1; seed <= 10; seed++) {
    shim_set_order(SHIM_RANDOM, seed);
    rendezvous r;
    const device_array<int> sums(std::vector<int>({0, 0}));
    const test_stream streams[2];
    std::thread other(add_and_meet, &r, streams[0].get(), sums.get());
    add_and_meet(&r, streams[1], sums.get() + 1);
    other.join();
    expect(sums.read() == std::vector<int>({420, 420}), "two threads disturb each other");
    expect_error(r.inner, cudaErrorNotPermitted);
  }
  shim_set_order(SHIM_FORWARD, 1);
  cudaGetLastError();
}

// ---- memory ----

void memory_starts_poisoned_and_aligned() {
  const device_array<unsigned char> memory(5000);
  expect(reinterpret_cast<uintptr_t>(memory.get()) % 256 == 0, "cudaMalloc aligns to 256 bytes");
  for (const unsigned char byte : memory.read()) expect(byte == 0xFF, "memory is not poisoned");
}

void memory_has_a_limit() {
  size_t free_bytes, total_bytes;
  void *a, *b = &a;
  shim_set_memory_limit(10000);
  must(cudaMalloc(&a, 6000));
  must(cudaMemGetInfo(&free_bytes, &total_bytes));
  expect(free_bytes == 4000 && total_bytes == 10000, "cudaMemGetInfo");
  expect_error(cudaMalloc(&b, 4001), cudaErrorMemoryAllocation);
  expect(!b, "a failed cudaMalloc leaves a pointer");
  expect_error(cudaGetLastError(), cudaErrorMemoryAllocation);
  must(cudaGetLastError());
  shim_set_memory_limit(5000);  // less than is in use
  expect_error(cudaMalloc(&b, 1), cudaErrorMemoryAllocation);
  cudaGetLastError();
  shim_set_memory_limit(10000);
  must(cudaFree(a));
  must(cudaMalloc(&a, 10000));
  must(cudaFree(a));
  shim_set_memory_limit(size_t{8} << 30);
}

void copies_check_their_ends() {
  const device_array<char> memory(100), other(100);
  char host[200] = {};
  char *const m = memory.get();
  const cudaError_t invalid = cudaErrorInvalidValue;
  expect_error(cudaMemcpy(m + 1, host, 100, cudaMemcpyHostToDevice), invalid);
  expect_error(cudaMemcpy(host, m, 100, cudaMemcpyHostToDevice), invalid);
  expect_error(cudaMemcpy(host, m, 100, cudaMemcpyHostToHost), invalid);
  expect_error(cudaMemcpy(m, host, 100, cudaMemcpyDeviceToDevice), invalid);
  expect_error(cudaMemset(host, 0, 100), invalid);
  expect_error(cudaMemset(m + 50, 0, 51), invalid);
  expect_error(cudaFree(m + 1), invalid);
  expect_error(cudaFreeHost(m), invalid);
  expect_error(cudaFree(host), invalid);
  must(cudaMemset(m, 7, 100));
  must(cudaMemcpy(other.get(), m, 100, cudaMemcpyDefault));
  must(cudaMemcpy(host, other.get() + 50, 50, cudaMemcpyDefault));
  expect(host[0] == 7 && host[49] == 7 && host[50] == 0, "copies move the bytes asked for");
  must(cudaMemcpy(m + 100, host, 0, cudaMemcpyHostToDevice));
  must(cudaMemset(m + 100, 0, 0));
  must(cudaFree(nullptr));
  cudaGetLastError();
}

// ---- failures ----

void the_nth_call_fails_on_purpose() {
  void *memory;
  shim_fail("cudaMalloc", 2, cudaErrorMemoryAllocation);
  must(cudaMalloc(&memory, 100));
  must(cudaFree(memory));
  expect_error(cudaMalloc(&memory, 100), cudaErrorMemoryAllocation);
  expect_error(cudaGetLastError(), cudaErrorMemoryAllocation);
  must(cudaMalloc(&memory, 100));
  must(cudaFree(memory));
}

void launches_fail_as_in_cuda() {
  const int large = 200 << 10;
  shim_fail("launch", 1, cudaErrorLaunchOutOfResources);
  queue_empty(nullptr, 1, 64);
  expect_error(cudaGetLastError(), cudaErrorLaunchOutOfResources);
  queue_empty(nullptr, 1, 1025);
  expect_error(cudaGetLastError(), cudaErrorInvalidConfiguration);
  queue_empty(nullptr, 65536, 64);
  expect_error(cudaGetLastError(), cudaErrorInvalidConfiguration);
  queue_empty(nullptr, 0, 64);
  expect_error(cudaPeekAtLastError(), cudaErrorInvalidConfiguration);
  expect_error(cudaGetLastError(), cudaErrorInvalidConfiguration);
  queue_large_shared(nullptr, large);
  expect_error(cudaGetLastError(), cudaErrorInvalidValue);
  must(allow_large_shared(large));
  queue_large_shared(nullptr, large);
  must(cudaGetLastError());
  must(cudaDeviceSynchronize());
  expect_error(allow_large_shared(228 << 10), cudaErrorInvalidValue);
  cudaGetLastError();
}

void a_failed_kernel_ends_the_context() {
  const int64_t before = shim_live_objects();
  {
    const device_array<int> memory(std::vector<int>({1}));
    shim_fail("kernel", 2, cudaErrorIllegalAddress);
    for (int i = 0; i < 3; i++) queue_add(nullptr, memory.get(), memory.get(), 1, 1);
    must(cudaGetLastError());
    expect_error(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    void *more;
    expect_error(cudaMalloc(&more, 1), cudaErrorIllegalAddress);
    expect_error(cudaGetLastError(), cudaErrorIllegalAddress);
    expect_error(cudaGetLastError(), cudaErrorIllegalAddress);
    shim_reset();
    must(cudaGetLastError());
    expect(memory.read()[0] == 2, "other kernels than the first ran");
  }
  expect(shim_live_objects() == before, "objects are left");
}

// The environment is read at the first call, so this runs before all others, in other processes.
void the_environment_sets_the_device() {
  expect_words(last_words([] {
                 setenv("OT_SHIM_FAIL", "cudaMalloc:2:2,cudaGetDeviceCount:1:100", 1);
                 setenv("OT_SHIM_MEMORY", "1000", 1);
                 int count;
                 void *memory;
                 const cudaError_t errors[] = {cudaGetDeviceCount(&count),
                                               cudaMalloc(&memory, 1001), cudaMalloc(&memory, 1),
                                               cudaMalloc(&memory, 1)};
                 for (const cudaError_t e : errors) fprintf(stderr, "%d ", e);
                 _exit(1);
               }),
               "100 2 2 0 ");
  expect_words(last_words([] {
                 setenv("OT_SHIM_ORDER", "backward", 1);
                 queue_misuse(nullptr, NULL_ADDRESS);
                 cudaDeviceSynchronize();
               }),
               "block (2,0,0), thread (63,0,0)");
  expect_words(last_words([] {
                 setenv("OT_SHIM_ORDER", "sideways", 1);
                 cudaDeviceSynchronize();
               }),
               "OT_SHIM_ORDER=sideways is not understood");
}

void check_device() {
  int count = 0, number = -1, value = 0;
  struct cudaDeviceProp properties;
  must(cudaGetDeviceCount(&count));
  must(cudaSetDevice(0));
  must(cudaGetDevice(&number));
  expect(count == 1 && number == 0, "there is one device");
  expect_error(cudaSetDevice(1), cudaErrorInvalidDevice);
  must(cudaGetDeviceProperties(&properties, 0));
  must(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0));
  expect(value == properties.multiProcessorCount, "two numbers of multiprocessors");
  expect(strcmp(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory") == 0,
         "error texts");
  cudaGetLastError();
}

}  // namespace

int main() {
  the_environment_sets_the_device();
  check_device();
  missing_waits_show_under_some_seed();
  a_graph_runs_when_it_is_launched();
  what_cannot_be_captured_breaks_the_capture();
  blocking_copies_wait_for_blocking_streams_only();
  streams_wait_for_the_default_stream();
  work_runs_only_when_something_waits();
  pageable_memory_is_read_at_once_and_written_before_the_call_returns();
  a_blocking_upload_waits_for_earlier_default_work();
  events_refer_to_the_record_before_the_wait();
  elapsed_times_need_timed_and_reached_events();
  destroyed_streams_finish_their_work();
  threads_share_the_device();
  memory_starts_poisoned_and_aligned();
  memory_has_a_limit();
  copies_check_their_ends();
  the_nth_call_fails_on_purpose();
  launches_fail_as_in_cuda();
  a_failed_kernel_ends_the_context();
  must(cudaGetLastError());
  expect(shim_live_objects() == 0, "objects are left");
  return num_wrong > 0;
}
