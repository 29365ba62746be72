// SPDX-License-Identifier: Apache-2.0
#include "fibers.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <pthread.h>
#include <utility>
#include <vector>

#include "fiber_stack.h"
#include "hopper.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace shim {

namespace {

enum { WARP = 32, MAX_THREADS = 1024, MAX_SHARED_BYTES = 227 << 10, CANARY_BYTES = 256, NONE = -1 };

// A warp operation that some lanes of its mask have reached.
struct warp_group {
  warp_work work;
  const char *name;
  place at;
  uint32_t mask, arrived;
};

struct warp_state {
  uint32_t exited;  // also lanes that the block does not have
  std::vector<warp_group> groups;
  void *arguments[WARP];
};

struct thread_state {
  uint3 index;
  fiber *stack;       // null until the thread starts
  const char *waits;  // the name of what it waits for; null if nothing
  place at;
};

struct barrier_state {
  const char *name;
  place at;
  int yes, arrived;
  votes result;
  int waiting[MAX_THREADS];
};

// The block that runs. Threads are numbered as in CUDA, x fastest.
struct block_state {
  const launch_shape *shape;  // null while no grid runs
  pthread_t runner;           // the OS thread that runs the grid
  const std::function<void()> *body;
  int num_threads, num_live;
  int running;      // the thread that runs
  int num_started;  // threads start in the order of `start_order`
  int start_order[MAX_THREADS];
  int ready[MAX_THREADS];  // ring of threads that can go on
  int ready_head, num_ready;
  bool newest_first;  // in random order: mostly, in this block
  thread_state threads[MAX_THREADS];
  warp_state warps[MAX_THREADS / WARP];
  barrier_state barrier;
  fiber os_thread;
  fiber *on;  // the fiber that runs
  std::vector<fiber *> idle;
  int num_fibers;
};

block_state block;
alignas(1024) unsigned char shared_memory[MAX_SHARED_BYTES + CANARY_BYTES];
shim_order order = SHIM_FORWARD;
random_numbers chance(1);

warp_state &warp_of(int thread) { return block.warps[thread / WARP]; }

void print_index(const char *what, uint3 i) {
  fprintf(stderr, "%s (%u,%u,%u)", what, i.x, i.y, i.z);
}

void print_block() {
  fprintf(stderr, "shim: kernel %s, ", block.shape->kernel);
  print_index("block", blockIdx);
}

}  // namespace

uint32_t random_numbers::below(uint32_t limit) {
  state_ ^= state_ >> 12;
  state_ ^= state_ << 25;
  state_ ^= state_ >> 27;
  return static_cast<uint32_t>((state_ * 0x2545F4914F6CDD1Du >> 32) * limit >> 32);
}

void set_thread_order(shim_order new_order, uint64_t seed) {
  order = new_order;
  chance = random_numbers(seed);
}

bool print_running_thread() {
  if (!block.shape || !pthread_equal(block.runner, pthread_self())) return false;
  print_block();
  print_index(", thread", threadIdx);
  return true;
}

void fail(place at, const char *format, ...) {
  print_running_thread();
  fprintf(stderr, ", %s:%d: ", at.file, at.line);
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  abort();
}

int lane() { return block.running % WARP; }
int thread_number() { return block.running; }
unsigned char *dynamic_shared() { return shared_memory; }

namespace {

// ---- which thread runs next ----

[[noreturn]] void report_deadlock() {
  enum { SHOWN = 8 };
  print_block();
  fprintf(stderr, ": deadlock, no thread can go on\n");
  int shown = 0;
  for (int i = 0; i < block.num_threads && shown < SHOWN; i++) {
    const thread_state &t = block.threads[i];
    if (!t.waits) continue;
    print_index("  thread", t.index);
    fprintf(stderr, " waits in %s at %s:%d\n", t.waits, t.at.file, t.at.line);
    shown++;
  }
  if (shown < block.num_live) fprintf(stderr, "  and %d others\n", block.num_live - shown);
  abort();
}

void make_ready(int thread) {
  block.threads[thread].waits = nullptr;
  block.ready[(block.ready_head + block.num_ready++) % MAX_THREADS] = thread;
}

int take_oldest_ready() {
  const int thread = block.ready[block.ready_head];
  block.ready_head = (block.ready_head + 1) % MAX_THREADS;
  block.num_ready--;
  return thread;
}

int take_newest_ready() {
  return block.ready[(block.ready_head + --block.num_ready) % MAX_THREADS];
}

int take_any_ready() {
  const int at = (block.ready_head + chance.below(block.num_ready)) % MAX_THREADS;
  std::swap(block.ready[at], block.ready[block.ready_head]);
  return take_oldest_ready();
}

int take_unstarted() {
  const int thread = block.start_order[block.num_started++];
  block.threads[thread].stack = nullptr;
  return thread;
}

bool prefers_unstarted(int num_unstarted) {
  if (num_unstarted == 0 || block.num_ready == 0) return num_unstarted > 0;
  if (order != SHIM_RANDOM) return order == SHIM_FORWARD;
  return static_cast<int>(chance.below(num_unstarted + block.num_ready)) < num_unstarted;
}

// A thread that can run, removed from its queue; NONE when all have exited.
int take_next() {
  if (prefers_unstarted(block.num_threads - block.num_started)) return take_unstarted();
  while (block.num_ready == 0 && block.num_live > 0 && hopper_land_one()) {
  }
  if (block.num_ready == 0) {
    if (block.num_live > 0) report_deadlock();
    return NONE;
  }
  if (order == SHIM_FORWARD) return take_oldest_ready();
  const bool newest = order == SHIM_BACKWARD || (block.newest_first && chance.below(8) > 0);
  return newest ? take_newest_ready() : take_any_ready();
}

void run_threads();

fiber *take_idle_fiber() {
  if (block.idle.empty()) return fiber_create(run_threads, block.num_fibers++);
  fiber *const f = block.idle.back();
  block.idle.pop_back();
  return f;
}

void switch_fiber(fiber *to) {
  fiber *const from = block.on;
  block.on = to;
  fiber_switch(from, to);
}

void become(int thread) {
  block.running = thread;
  threadIdx = block.threads[thread].index;
}

// The running thread waits until make_ready is called on it.
void wait(const char *name, place at) {
  const int thread = block.running;
  block.threads[thread].waits = name;
  block.threads[thread].at = at;
  const int next = take_next();
  if (next != thread) {
    fiber *const stack = block.threads[next].stack;
    block.running = next;
    switch_fiber(stack ? stack : take_idle_fiber());
  }
  become(thread);
}

// Where nothing else decides it, the thread that completes an operation goes on at once.
void maybe_yield(const char *name, place at) {
  if (order != SHIM_RANDOM) return;
  make_ready(block.running);
  wait(name, at);
}

// ---- barriers ----

void release_barrier() {
  barrier_state &b = block.barrier;
  b.result = {b.yes, b.arrived};
  const int num_waiting = b.arrived;
  b.yes = b.arrived = 0;
  for (int i = 0; i < num_waiting; i++) {
    if (b.waiting[i] != block.running) make_ready(b.waiting[i]);
  }
}

// Most are the same literal.
bool same_text(const char *a, const char *b) { return a == b || strcmp(a, b) == 0; }

bool same_place(place a, place b) { return a.line == b.line && same_text(a.file, b.file); }

void check_same_barrier(const char *name, place at) {
  const barrier_state &b = block.barrier;
  if (same_place(b.at, at) && same_text(b.name, name)) return;
  const uint3 i = block.threads[b.waiting[0]].index;
  fail(at, "%s in divergent code: thread (%u,%u,%u) waits in %s at %s:%d", name, i.x, i.y, i.z,
       b.name, b.at.file, b.at.line);
}

// ---- warp operations ----

// Finds the operation of `mine` that other lanes have reached, or enters it.
warp_group &join(warp_state &warp, const warp_group &mine, uint32_t my_bit) {
  for (warp_group &g : warp.groups) {
    if (g.mask == mine.mask && g.work == mine.work && same_text(g.name, mine.name)) return g;
    if (g.mask & my_bit && g.arrived & mine.mask) {
      fail(mine.at,
           "%s with mask %08x, while a lane that it names waits in %s with mask %08x at %s:%d",
           mine.name, mine.mask, g.name, g.mask, g.at.file, g.at.line);
    }
  }
  warp.groups.push_back(mine);
  return warp.groups.back();
}

void check_mask(const warp_state &warp, const warp_group &mine, uint32_t my_bit) {
  if (!(mine.mask & my_bit)) {
    fail(mine.at, "%s by lane %d, which its mask %08x leaves out", mine.name, lane(), mine.mask);
  }
  if (mine.mask & warp.exited) {
    fail(mine.at, "the mask %08x of %s names lanes that have exited or do not exist (%08x)",
         mine.mask, mine.name, warp.exited);
  }
}

void complete(warp_state &warp, warp_group &group) {
  const warp_group done = group;
  group = warp.groups.back();
  warp.groups.pop_back();
  done.work(warp.arguments, done.mask);
  const int first = block.running - lane();
  const uint32_t others = done.mask & ~(1u << lane());
  for (uint32_t left = others; left != 0; left &= left - 1) {
    make_ready(first + __builtin_ctz(left));
  }
  if (others != 0) maybe_yield(done.name, done.at);
}

// ---- the life of a thread ----

void check_nobody_waits_for_me(const warp_state &warp, uint32_t my_bit) {
  for (const warp_group &g : warp.groups) {
    if (g.mask & my_bit) {
      fail(g.at, "exits, while lanes of its warp wait for it here in %s with mask %08x", g.name,
           g.mask);
    }
  }
}

void exit_thread() {
  warp_state &warp = warp_of(block.running);
  const uint32_t my_bit = 1u << lane();
  check_nobody_waits_for_me(warp, my_bit);
  warp.exited |= my_bit;
  block.num_live--;
  if (block.barrier.arrived > 0 && block.barrier.arrived == block.num_live) release_barrier();
}

// The code of every fiber: runs threads from their start as long as none of them has to wait. A
// thread that waits keeps the fiber; others then start on another one.
void run_threads() {
  fiber_arrived();
  for (;;) {
    fiber *const me = block.on;
    int thread = block.running;
    do {
      block.threads[thread].stack = me;
      become(thread);
      (*block.body)();
      exit_thread();
      thread = take_next();
    } while (thread != NONE && !block.threads[thread].stack);
    block.running = thread;
    block.idle.push_back(me);
    switch_fiber(thread == NONE ? &block.os_thread : block.threads[thread].stack);
  }
}

// ---- grids ----

template <class T>
void shuffle(T *values, size_t count) {
  for (size_t i = count; i > 1; i--) {
    std::swap(values[i - 1], values[chance.below(static_cast<uint32_t>(i))]);
  }
}

// The numbers 0 to count - 1 in the order of the options.
template <class T>
void fill_order(T *numbers, size_t count) {
  std::iota(numbers, numbers + count, T(0));
  if (order == SHIM_BACKWARD) {
    for (size_t i = 0; i < count / 2; i++) std::swap(numbers[i], numbers[count - 1 - i]);
  }
  if (order == SHIM_RANDOM) shuffle(numbers, count);
}

uint3 index_of(uint64_t number, dim3 size) {
  return {static_cast<unsigned>(number % size.x), static_cast<unsigned>(number / size.x % size.y),
          static_cast<unsigned>(number / size.x / size.y)};
}

void prepare_grid(const launch_shape &shape, const std::function<void()> &body) {
  block.shape = &shape;
  block.runner = pthread_self();
  block.body = &body;
  gridDim = shape.grid;
  blockDim = shape.block;
  block.num_threads = shape.block.x * shape.block.y * shape.block.z;
  for (int i = 0; i < block.num_threads; i++) block.threads[i].index = index_of(i, shape.block);
  fill_order(block.start_order, block.num_threads);
}

void prepare_block() {
  const int n = block.num_threads;
  block.num_live = n;
  block.num_started = block.ready_head = block.num_ready = 0;
  block.barrier.arrived = block.barrier.yes = 0;
  for (int w = 0; w * WARP < n; w++) {
    const int lanes = n - w * WARP;
    block.warps[w].exited = lanes < WARP ? ~0u << lanes : 0;
  }
  if (order == SHIM_RANDOM) shuffle(block.start_order, n);
  // Else no warp would be a whole operation ahead of another.
  block.newest_first = order == SHIM_RANDOM && chance.below(2) == 1;
  memset(shared_memory, 0xFF, block.shape->shared_bytes);
  memset(shared_memory + block.shape->shared_bytes, 0xC3, CANARY_BYTES);
  hopper_begin_block();
}

void check_canary() {
  const unsigned char *const canary = shared_memory + block.shape->shared_bytes;
  for (int i = 0; i < CANARY_BYTES; i++) {
    if (canary[i] == 0xC3) continue;
    print_block();
    fprintf(stderr, ": wrote %d bytes past the end of its %zu bytes of dynamic shared memory\n", i,
            block.shape->shared_bytes);
    abort();
  }
}

void run_block(uint64_t number) {
  blockIdx = index_of(number, block.shape->grid);
  prepare_block();
  block.on = &block.os_thread;
  block.running = take_next();
  switch_fiber(take_idle_fiber());
  hopper_end_block();
  check_canary();
}

}  // namespace

void park(const char *name, place at) { wait(name, at); }
void wake(int thread) { make_ready(thread); }
shim_order thread_order() { return order; }
uint32_t random_below(uint32_t limit) { return chance.below(limit); }
size_t dynamic_shared_bytes() { return block.shape->shared_bytes; }

void together(uint32_t mask, warp_work work, void *argument, const char *name, place at) {
  const uint32_t my_bit = 1u << lane();
  const warp_group mine = {work, name, at, mask, 0};
  warp_state &warp = warp_of(block.running);
  check_mask(warp, mine, my_bit);
  warp_group &group = join(warp, mine, my_bit);
  warp.arguments[lane()] = argument;
  group.arrived |= my_bit;
  if (group.arrived == mask) {
    complete(warp, group);
  } else {
    wait(name, at);
  }
}

votes barrier(bool predicate, const char *name, place at) {
  barrier_state &b = block.barrier;
  if (b.arrived == 0) {
    b.name = name;
    b.at = at;
  }
  check_same_barrier(name, at);
  b.waiting[b.arrived++] = block.running;
  b.yes += predicate;
  if (b.arrived < block.num_live) {
    wait(name, at);
    return b.result;
  }
  release_barrier();
  const votes result = b.result;
  maybe_yield(name, at);
  return result;
}

void run_grid(const launch_shape &shape, const std::function<void()> &body) {
  prepare_grid(shape, body);
  const uint64_t blocks = uint64_t{1} * shape.grid.x * shape.grid.y * shape.grid.z;
  std::vector<uint64_t> numbers(blocks);
  fill_order(numbers.data(), blocks);
  for (const uint64_t number : numbers) run_block(number);
  block.shape = nullptr;
}

}  // namespace shim
