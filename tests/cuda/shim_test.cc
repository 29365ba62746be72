// SPDX-License-Identifier: Apache-2.0
// run: any machine. Kernels on the emulated device against plain loops and CUDA's rules, in each
// order of threads, and what every misuse says. Prints what is wrong and exits with 1.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "shim_expect.h"
#include "shim_kernels.h"

namespace {

const shim_order orders[] = {SHIM_FORWARD, SHIM_BACKWARD, SHIM_RANDOM};

void in_every_order(const std::function<void()> &check) {
  for (const shim_order order : orders) {
    shim_set_order(order, 3);
    check();
  }
  shim_set_order(SHIM_FORWARD, 1);
}

// ---- kernels ----

enum { SUM_BLOCKS = 7, SUM_COUNT = SUM_BLOCKS * PER_BLOCK };

std::vector<float> block_sums(bool barriers) {
  std::vector<float> x(SUM_COUNT);
  for (int i = 0; i < SUM_COUNT; i++) x[static_cast<size_t>(i)] = 1.0f / static_cast<float>(1 + i);
  const device_array<float> input(x), sums(SUM_BLOCKS);
  queue_block_sums(nullptr, input.get(), sums.get(), SUM_BLOCKS, barriers);
  return sums.read();
}

void sums_have_the_same_bits_in_every_order() {
  const std::vector<float> first = block_sums(true);
  for (size_t b = 0; b < SUM_BLOCKS; b++) {
    double sum = 0;
    for (size_t i = 0; i < 1000; i++) sum += 1.0 / static_cast<double>(1 + b * 1000 + i);
    expect(std::fabs(first[b] - sum) <= 1e-6 * sum, "a block's sum is off");
  }
  for (uint64_t seed = 1; seed <= 20; seed++) {
    shim_set_order(orders[seed % 3], seed);
    expect(block_sums(true) == first, "a sum with barriers depends on the order of threads");
  }
  shim_set_order(SHIM_FORWARD, 1);
}

void sums_without_barriers_depend_on_the_order() {
  const std::vector<float> right = block_sums(true);
  int same = 0;
  in_every_order([&] { same += block_sums(false) == right; });
  expect(same < 3, "a missing barrier does not show in any order");
}

// The lane that CUDA's manual says a shuffle reads.
int lane_read(int kind, int lane, int width) {
  const int first = lane / width * width, last = first + width - 1;
  const int xor_bits = kind == 3 ? 5 : 16;
  if (kind == 0) return first + 5 % width;
  if (kind == 1) return lane - 5 >= first ? lane - 5 : lane;
  if (kind == 2) return lane + 5 <= last ? lane + 5 : lane;
  return (lane ^ xor_bits) <= last ? lane ^ xor_bits : lane;
}

void check_shuffles() {
  const device_array<double> out(NUM_SHUFFLES * NUM_WIDTHS * 32);
  queue_shuffles(nullptr, out.get());
  const std::vector<double> got = out.read();
  for (size_t i = 0; i < got.size(); i++) {
    const int lane = static_cast<int>(i % 32), width = 32 >> i / 32 % NUM_WIDTHS;
    const int kind = static_cast<int>(i / 32 / NUM_WIDTHS);
    const double expected = 100 + lane_read(kind, lane, width) + (kind == 4 ? 0.5 : 0);
    expect(got[i] == expected, "a shuffle reads another lane than CUDA's");
  }
}

int half_warp_votes(int vote, int thread) {
  const int first = thread / 16 * 16, end = std::min(first + 16, int(VOTE_THREADS));
  int ballot = 0, any = 0, all = 1;
  for (int t = first; t < end; t++) {
    if (t % 5 == 0) ballot |= 1 << t % 32;
    any |= t % 50 == 0;
    all &= t < 90;
  }
  return vote == 4 ? ballot : vote == 5 ? any : all;
}

void check_votes() {
  const device_array<int> out(NUM_VOTES * VOTE_THREADS);
  queue_votes(nullptr, out.get());
  const std::vector<int> got = out.read();
  for (int i = 0; i < NUM_VOTES * VOTE_THREADS; i++) {
    const int vote = i / VOTE_THREADS, thread = i % VOTE_THREADS;
    const int of_block[] = {34, 1, 0, 1};
    const int expected = vote < 4 ? of_block[vote] : half_warp_votes(vote, thread);
    expect(got[static_cast<size_t>(i)] == expected, "a vote counts other threads than CUDA's");
  }
}

void check_early_exit() {
  const device_array<int> out(1);
  queue_early_exit(nullptr, out.get());
  expect(out.read()[0] == 56, "threads that have exited take part in a barrier");
}

// The order in which threads ran: NUM_TICKETS - 4 numbers.
std::vector<int> run_order(shim_order order, uint64_t seed) {
  shim_set_order(order, seed);
  const device_array<int> out(NUM_TICKETS);
  must(cudaMemset(out.get(), 0, sizeof(int) * NUM_TICKETS));
  queue_tickets(nullptr, out.get());
  const std::vector<int> all = out.read();
  return std::vector<int>(all.begin() + 4, all.end());
}

// Whether the threads of a block ran in the same order, at their start or behind a barrier.
bool same_part(const std::vector<int> &a, int part_a, const std::vector<int> &b, int part_b) {
  const auto first = a.begin() + part_a * TICKET_THREADS;
  return std::equal(first, first + TICKET_THREADS, b.begin() + part_b * TICKET_THREADS);
}

// When a block's threads went on behind the barrier, by when they started.
std::vector<int> went_on(const std::vector<int> &order, int block) {
  std::vector<int> by_start(TICKET_THREADS);
  for (int t = 0; t < TICKET_THREADS; t++) {
    const size_t at = static_cast<size_t>(block * 2 * TICKET_THREADS + t);
    by_start[static_cast<size_t>(order[at])] = order[at + TICKET_THREADS];
  }
  return by_start;
}

void orders_differ_and_repeat() {
  const std::vector<int> forward = run_order(SHIM_FORWARD, 1),
                         backward = run_order(SHIM_BACKWARD, 1);
  const std::vector<int> random = run_order(SHIM_RANDOM, 1), other = run_order(SHIM_RANDOM, 2);
  expect(run_order(SHIM_RANDOM, 1) == random, "a seed does not repeat its order");
  for (int t = 0; t < TICKET_THREADS; t++) {
    expect(forward[static_cast<size_t>(t)] == t, "threads do not start in ascending order");
    expect(backward[static_cast<size_t>(t)] == TICKET_THREADS - 1 - t, "nor in descending order");
  }
  expect(!same_part(forward, 1, backward, 1), "forward and backward are equal behind a barrier");
  expect(!same_part(random, 0, random, 2), "two blocks start in the same random order");
  expect(!same_part(random, 1, random, 3), "two blocks go on in the same random order");
  expect(went_on(random, 0) != went_on(random, 1), "who started when decides who goes on");
  expect(!same_part(random, 0, other, 0) && !same_part(random, 1, other, 1), "two seeds are equal");
  shim_set_order(SHIM_FORWARD, 1);
}

void check_shared_memory() {
  const device_array<int> out(3 * 20);
  queue_shared_memory(nullptr, out.get(), 20);
  const std::vector<int> got = out.read();
  for (size_t b = 0; b < 20; b++) {
    expect(got[3 * b] == 1, "dynamic shared memory does not start as NaN");
    expect(got[3 * b + 1] == 1, "a thread does not see another's shared memory after a barrier");
  }
}

void check_functions() {
  const device_array<int> out(3);
  queue_functions(nullptr, out.get());
  expect(out.read() == std::vector<int>({1, 1, 1}), "a function of integers, floats or atomics");
}

// ---- misuses ----

struct misuse_case {
  misuse kind;
  shim_order order;
  const char *words;
};

void misuses_of_kernels_are_named() {
  const misuse_case cases[] = {
      {DIVERGENT_BARRIER, SHIM_FORWARD, "__syncthreads in divergent code: thread (0,0,0) waits in"},
      {BARRIER_KINDS, SHIM_FORWARD, "__syncthreads_and in divergent code: thread (0,0,0) waits in"},
      {MASK_WITHOUT_SELF, SHIM_FORWARD, "by lane 16, which its mask 0000ffff leaves out"},
      {MASK_OF_EXITED, SHIM_BACKWARD, "names lanes that have exited or do not exist (fff00000)"},
      {MASK_OF_EXITED, SHIM_FORWARD, "exits, while lanes of its warp wait for it here in __ballot"},
      {EXIT_WHILE_AWAITED, SHIM_FORWARD, "thread (31,0,0), "},
      {DIFFERENT_OPERATIONS, SHIM_FORWARD, "while a lane that it names waits in __shfl_xor_sync"},
      {DIFFERENT_MASKS, SHIM_FORWARD, "waits in __any_sync with mask ffffffff"},
      {SHUFFLE_OUTSIDE_MASK, SHIM_FORWARD, "reads lane 16, which the mask leaves out"},
      {LANE_AT_BARRIER, SHIM_FORWARD, "deadlock, no thread can go on"},
      {LANE_AT_BARRIER, SHIM_RANDOM, "thread (3,0,0) waits in __syncthreads at "},
      {SHARED_OVERRUN, SHIM_FORWARD, "past the end of its 1024 bytes of dynamic shared memory"},
      {NULL_ADDRESS, SHIM_FORWARD, "thread (0,0,0): no access to address"},
      {NULL_ADDRESS, SHIM_BACKWARD, "block (2,0,0), thread (63,0,0)"}};
  for (const misuse_case &c : cases) {
    const std::string words = last_words([&] {
      shim_set_order(c.order, 1);
      queue_misuse(nullptr, c.kind);
      cudaDeviceSynchronize();
    });
    expect_words(words, c.words);
    expect_words(words, "shim: kernel do_wrong, block (");
  }
}

void write_with_kernel(char *memory, long offset) {
  queue_write(nullptr, memory, offset);
  cudaDeviceSynchronize();
}

void writes_outside_allocations_are_found() {
  const device_array<char> memory(1000);
  char *const at = memory.get();
  expect_words(last_words([=] { write_with_kernel(at, 1000); }),
               "write_byte wrote at byte 1000 of an allocation of 1000 bytes");
  expect_words(last_words([=] { write_with_kernel(at, -1); }), "wrote at byte -1 of an allocation");
  expect_words(last_words([=] { write_with_kernel(at, 10000); }),
               "kernel write_byte, block (0,0,0), thread (0,0,0): no access to address");
  expect_words(last_words([=] { at[10] = 1; }),
               "byte 10 of an allocation of 1000 bytes on the device: the host may only copy it");
  write_with_kernel(at, 999);
}

}  // namespace

int main() {
  sums_have_the_same_bits_in_every_order();
  sums_without_barriers_depend_on_the_order();
  orders_differ_and_repeat();
  in_every_order(check_shuffles);
  in_every_order(check_votes);
  in_every_order(check_early_exit);
  in_every_order(check_shared_memory);
  in_every_order(check_functions);
  misuses_of_kernels_are_named();
  writes_outside_allocations_are_found();
  must(cudaGetLastError());
  expect(shim_live_objects() == 0, "objects are left");
  return num_wrong > 0;
}
