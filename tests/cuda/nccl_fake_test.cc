// SPDX-License-Identifier: Apache-2.0
// run: any machine. NCCL of the emulated devices: what moves when, what is refused, and the words
// with which it ends the process. Prints what is wrong and exits with 1.
#include <cstring>
#include <thread>

#include "shim_expect.h"

extern "C" {
#include "comm/nccl_api.h"
}

namespace {

enum { COUNT = 4, BYTES = COUNT * sizeof(int) };

ot_nccl_api api;

// Runs `rank_main` on threads with a device and a communicator each.
using rank_main = std::function<void(int rank, ot_nccl_comm *comm)>;
void on_ranks(int size, const rank_main &main) {
  ot_nccl_id id;
  expect(api.make_id(&id) == 0, "no id");
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; rank++) {
    threads.emplace_back([=, &main] {
      ot_nccl_comm *comm = nullptr;
      must(cudaSetDevice(rank));
      expect(api.create(&comm, size, id, rank) == 0, "no communicator");
      main(rank, comm);
    });
  }
  for (std::thread &t : threads) t.join();
}

void leave(ot_nccl_comm *comm) {
  expect(api.finalize(comm) == 0 && api.destroy(comm) == 0, "it is not destroyed");
}

int send(const device_array<int> &from, int peer, ot_nccl_comm *comm, cudaStream_t stream) {
  return api.send(from.get(), BYTES, OT_NCCL_UINT8, peer, comm, stream);
}

int receive(const device_array<int> &to, int peer, ot_nccl_comm *comm, cudaStream_t stream) {
  return api.receive(to.get(), BYTES, OT_NCCL_UINT8, peer, comm, stream);
}

std::vector<int> values_of(int rank) { return std::vector<int>(COUNT, 10 + rank); }

// ---- what moves ----

void all_to_all_of(int rank, ot_nccl_comm *comm) {
  const device_array<int> own(values_of(rank)), first(COUNT), second(COUNT);
  const test_stream stream;
  api.begin();
  for (int step = 1; step < 3; step++) {
    const int to = (rank + step) % 3, from = (rank + 3 - step) % 3;
    expect(send(own, to, comm, stream) == 0, "a send is refused");
    expect(receive(step == 1 ? first : second, from, comm, stream) == 0, "a receive is refused");
  }
  expect(api.end() == 0, "a group is refused");
  must(cudaStreamSynchronize(stream));
  expect(first.read() == values_of((rank + 2) % 3), "the neighbour's values");
  expect(second.read() == values_of((rank + 1) % 3), "the other's values");
  leave(comm);
}

void gather_of(int rank, ot_nccl_comm *comm) {
  const device_array<int> all(2 * COUNT);
  const test_stream stream;
  int *const own = all.get() + rank * COUNT;
  must(cudaMemcpy(own, values_of(rank).data(), BYTES, cudaMemcpyHostToDevice));
  must(cudaDeviceSynchronize());
  expect(api.all_gather(own, all.get(), BYTES, OT_NCCL_UINT8, comm, stream) == 0, "refused");
  must(cudaStreamSynchronize(stream));
  expect(all.read() == std::vector<int>({10, 10, 10, 10, 11, 11, 11, 11}), "gathered values");
  leave(comm);
}

// A communicator of one: every call, as copies.
void alone(int, ot_nccl_comm *comm) {
  const device_array<int> from(values_of(0)), to(COUNT), all(COUNT);
  const test_stream stream;
  api.begin();
  expect(send(from, 0, comm, stream) == 0 && receive(to, 0, comm, stream) == 0, "to itself");
  expect(api.end() == 0, "the group is refused");
  expect(api.all_gather(from.get(), all.get(), BYTES, OT_NCCL_UINT8, comm, stream) == 0, "gather");
  int failure = 1;
  expect(api.failure(comm, &failure) == 0 && failure == 0, "it has failed");
  must(cudaStreamSynchronize(stream));
  expect(to.read() == values_of(0) && all.read() == values_of(0), "values of its own");
  leave(comm);
}

void bytes_arrive_in_any_order() {
  for (uint64_t seed = 1; seed <= 20; seed++) {
    shim_set_order(SHIM_RANDOM, seed);
    on_ranks(3, all_to_all_of);
    on_ranks(2, gather_of);
    on_ranks(1, alone);
  }
}

// How often in 40 seeds a stream that does not wait for the receive sees the values.
void a_missing_wait_shows() {
  int seen = 0;
  for (uint64_t seed = 1; seed <= 40; seed++) {
    shim_set_order(SHIM_FORWARD, seed);
    on_ranks(2, [&](int rank, ot_nccl_comm *comm) {
      const device_array<int> memory(values_of(rank)), copy(COUNT);
      const test_stream stream, other;
      if (rank == 0) send(memory, 1, comm, stream);
      if (rank == 1) receive(memory, 0, comm, stream);
      must(cudaMemcpyAsync(copy.get(), memory.get(), BYTES, cudaMemcpyDeviceToDevice, other));
      must(cudaStreamSynchronize(other));
      if (rank == 1) seen += copy.read() == values_of(0);
      leave(comm);
    });
  }
  expect(seen < 30, "a reader that does not wait sees the message in 30 of 40 seeds");
}

// ---- what is refused ----

void two_ranks_on_a_device_are_refused() {
  ot_nccl_id id;
  api.make_id(&id);
  int results[2];
  std::string text;
  std::thread second([&] {
    ot_nccl_comm *comm;
    results[1] = api.create(&comm, 2, id, 1);
  });
  ot_nccl_comm *comm;
  results[0] = api.create(&comm, 2, id, 0);
  text = api.last_error(nullptr);
  second.join();
  expect(results[0] == OT_NCCL_INVALID_USAGE && results[1] == results[0], "they are not refused");
  expect(text.find("Duplicate GPU") != std::string::npos, "the reason");
}

void foreign_peers_memory_and_streams_are_refused() {
  on_ranks(2, [](int rank, ot_nccl_comm *comm) {
    const device_array<int> own(values_of(rank));
    const test_stream stream;
    expect(send(own, 2, comm, stream) == OT_NCCL_INVALID_ARGUMENT, "a peer that does not exist");
    expect(api.send(own.get(), BYTES + 4, OT_NCCL_UINT8, 1 - rank, comm, stream) ==
               OT_NCCL_INVALID_ARGUMENT,
           "more than the memory");
    must(cudaSetDevice(1 - rank));
    {
      const device_array<int> theirs(COUNT);
      const test_stream there;
      expect(send(theirs, 1 - rank, comm, stream) == OT_NCCL_INVALID_ARGUMENT, "foreign memory");
      expect(send(own, 1 - rank, comm, there) == OT_NCCL_INVALID_USAGE, "a foreign stream");
    }
    must(cudaSetDevice(rank));
    leave(comm);
  });
}

// ---- what ends the process ----

void meet(int rank, ot_nccl_comm *comm, bool sends_first) {
  const device_array<int> from(values_of(rank)), to(COUNT);
  const test_stream stream;
  for (int i = 0; i < 2; i++) {
    if ((i == 0) == sends_first) send(from, 1 - rank, comm, stream);
    if ((i == 0) != sends_first) receive(to, 1 - rank, comm, stream);
  }
  must(cudaStreamSynchronize(stream));
}

void mistakes_end_the_process() {
  expect_words(
      last_words([] { on_ranks(2, [](int rank, ot_nccl_comm *comm) { meet(rank, comm, true); }); }),
      "streams wait for each other");
  expect_words(last_words([] {
                 on_ranks(2, [](int rank, ot_nccl_comm *comm) {
                   const device_array<int> memory(COUNT);
                   const test_stream stream;
                   if (rank == 0) send(memory, 1, comm, stream);
                   const size_t fewer = BYTES - 4;
                   if (rank == 1) {
                     api.receive(memory.get(), fewer, OT_NCCL_UINT8, 0, comm, stream);
                   }
                   must(cudaStreamSynchronize(stream));
                 });
               }),
               "rank 0 sends 16 bytes to rank 1, which expects 12");
  expect_words(last_words([] {
                 on_ranks(2, [](int rank, ot_nccl_comm *comm) {
                   const device_array<int> memory(COUNT);
                   const test_stream stream;
                   if (rank == 0) send(memory, 1, comm, stream);
                   must(cudaStreamSynchronize(stream));
                   std::this_thread::sleep_for(std::chrono::seconds(rank * 9));
                 });
               }),
               "(to 1) waits for rank 1, which has queued no more");
}

// ---- the end of a communicator ----

void aborted_work_ends_undone() {
  on_ranks(2, [](int rank, ot_nccl_comm *comm) {
    const device_array<int> memory(values_of(rank));
    const test_stream stream;
    if (rank == 0) receive(memory, 1, comm, stream);
    expect(api.abort(comm) == 0, "it is not aborted");
    must(cudaStreamSynchronize(stream));
    expect((memory.read() == values_of(rank)) == (rank == 1),
           "what was to be received is undefined");
  });
}

void broken_work_is_reported() {
  shim_fail("nccl", 1, cudaErrorUnknown);
  on_ranks(1, [](int, ot_nccl_comm *comm) {
    const device_array<int> memory(COUNT);
    const test_stream stream;
    api.all_gather(memory.get(), memory.get(), BYTES, OT_NCCL_UINT8, comm, stream);
    int failure = 0;
    expect(api.failure(comm, &failure) == 0 && failure == OT_NCCL_REMOTE_ERROR, "no failure");
    expect_error(cudaStreamQuery(stream), cudaErrorNotReady);
    api.abort(comm);
    must(cudaStreamSynchronize(stream));
  });
}

}  // namespace

int main() {
  setenv("OT_SHIM_DEVICES", "3", 1);
  setenv("OT_SHIM_PATIENCE_S", "1", 1);
  expect(ot_nccl_open(&api) == OT_OK, "it is not found");
  mistakes_end_the_process();
  bytes_arrive_in_any_order();
  a_missing_wait_shows();
  two_ranks_on_a_device_are_refused();
  foreign_peers_memory_and_streams_are_refused();
  aborted_work_ends_undone();
  broken_work_is_reported();
  cudaGetLastError();
  expect(shim_live_objects() == 0, "objects are left");
  return num_wrong > 0;
}
