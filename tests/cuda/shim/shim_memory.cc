// SPDX-License-Identifier: Apache-2.0
// Memory of the emulated device and pinned memory, with guard zones, and copies.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shim_state.h"

namespace shim {

namespace {

enum { GUARD_BYTES = 256, PAGE_BYTES = 4096, FENCE_BYTES = 64 << 10 };
constexpr size_t poison_bytes = 4 << 20;
// Bytes of guard zones: NaN as bf16, float and double, and never what poisoned memory holds.
struct guard_zone {
  unsigned char bytes[GUARD_BYTES];
  guard_zone() {
    for (int i = 0; i < GUARD_BYTES; i++) bytes[i] = i % 2 ? 0xFF : 0xF5;
  }
};
const guard_zone intact;

void fill_guard(unsigned char *guard) { memcpy(guard, intact.bytes, GUARD_BYTES); }

unsigned char *bytes_of(const allocation &a) { return a.pages + GUARD_BYTES; }

void check_guard(const allocation &a, const unsigned char *guard, const char *name) {
  if (memcmp(guard, intact.bytes, GUARD_BYTES) == 0) return;
  int at = 0;
  while (guard[at] == intact.bytes[at]) at++;
  const long long offset = guard + at - bytes_of(a);
  fprintf(stderr, "shim: %s wrote at byte %lld of an allocation of %zu bytes\n", name, offset,
          a.bytes);
  abort();
}

void check_allocation(const allocation &a, const char *name) {
  check_guard(a, a.pages, name);
  check_guard(a, bytes_of(a) + a.bytes, name);
}

// Reserves an allocation with its guard zones between pages that are never accessible.
bool reserve_pages(allocation *a) {
  const size_t all = a->bytes + 2 * GUARD_BYTES;
  a->mapped_bytes = (all + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
  void *const reserved = mmap(nullptr, a->mapped_bytes + 2 * FENCE_BYTES, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return false;
  a->pages = static_cast<unsigned char *>(reserved) + FENCE_BYTES;
  return true;
}

// A file of poison_bytes bytes 0xFF; -1: the system has none.
int poison_file() {
  static const int file = [] {
    const int made = memfd_create("poison", MFD_CLOEXEC);
    const std::vector<unsigned char> poison(poison_bytes, 0xFF);
    return write(made, poison.data(), poison_bytes) == ssize_t{poison_bytes} ? made : -1;
  }();
  return file;
}

// Maps pages of 0xFF, which need memory only where they are written.
bool poison_pages(const allocation &a) {
  bool mapped = true;
  for (size_t at = 0; at < a.mapped_bytes && mapped; at += poison_bytes) {
    const size_t bytes = std::min(a.mapped_bytes - at, poison_bytes);
    mapped = mmap(a.pages + at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED,
                  poison_file(), 0) != MAP_FAILED;
  }
  return mapped;
}

void set_access(const allocation &a, int protection) {
  if (mprotect(a.pages, a.mapped_bytes, protection) == 0) return;
  fprintf(stderr, "shim: mprotect failed\n");
  abort();
}

size_t free_bytes() {
  const size_t limit = device().limit_bytes, used = current_context().used_bytes;
  return limit > used ? limit - used : 0;
}

cudaError_t allocate(void **memory, size_t bytes, bool on_device) {
  device_state &d = device();
  *memory = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (on_device && bytes > free_bytes()) return cudaErrorMemoryAllocation;
  allocation a = {bytes, on_device, current_device(), nullptr, 0};
  if (!reserve_pages(&a) || !poison_pages(a)) return cudaErrorMemoryAllocation;
  *memory = bytes_of(a);
  fill_guard(a.pages);
  fill_guard(bytes_of(a) + bytes);
  if (on_device) set_access(a, PROT_NONE);
  d.allocations[reinterpret_cast<uintptr_t>(*memory)] = a;
  current_context().used_bytes += on_device ? bytes : 0;
  return cudaSuccess;
}

cudaError_t release(lock_held &lock, void *memory, bool on_device) {
  device_state &d = device();
  if (!memory) return cudaSuccess;
  const auto found = d.allocations.find(reinterpret_cast<uintptr_t>(memory));
  if (found == d.allocations.end() || found->second.on_device != on_device) {
    return cudaErrorInvalidValue;
  }
  run_everything(lock, found->second.device);
  const allocation a = found->second;
  if (on_device) set_access(a, PROT_READ | PROT_WRITE);
  check_allocation(a, "something");
  d.contexts[static_cast<size_t>(a.device)].used_bytes -= on_device ? a.bytes : 0;
  munmap(a.pages - FENCE_BYTES, a.mapped_bytes + 2 * FENCE_BYTES);
  d.allocations.erase(found);
  return cudaSuccess;
}

void set_device_access(int number, int protection) {
  for (const auto &a : device().allocations) {
    const bool chosen = number == EVERY_DEVICE || a.second.device == number;
    if (a.second.on_device && chosen) set_access(a.second, protection);
  }
}

// ---- faults ----

struct sigaction action_before;

void explain_address(uintptr_t at, bool in_kernel) {
  const auto next = device().allocations.upper_bound(at + GUARD_BYTES);
  if (next == device().allocations.begin()) return;
  const auto &found = *std::prev(next);
  fprintf(stderr, ", byte %lld of an allocation of %zu bytes",
          static_cast<long long>(at - found.first), found.second.bytes);
  if (found.second.on_device && !in_kernel) {
    fprintf(stderr, " on the device: the host may only copy it");
  }
  if (found.second.on_device && in_kernel && found.second.device != device().open_memory) {
    fprintf(stderr, " on device %d, the kernel runs on device %d", found.second.device,
            device().open_memory);
  }
}

// Says what the address is. Then the instruction faults again, under the action that stood before.
void explain_fault(int, siginfo_t *fault, void *) {
  const bool in_kernel = print_running_thread();
  fprintf(stderr, "%s no access to address %p", in_kernel ? ":" : "shim:", fault->si_addr);
  explain_address(reinterpret_cast<uintptr_t>(fault->si_addr), in_kernel);
  fputc('\n', stderr);
  // A handler that goes on would find the lock of the device held.
  struct sigaction end = {};
  end.sa_handler = SIG_DFL;
  sigaction(SIGSEGV, in_kernel ? &end : &action_before, nullptr);
}

// ---- copies ----

// Broken: reaches over an allocation's end. Elsewhere: on another device than the stream's.
enum class area { PAGEABLE, PINNED, DEVICE, BROKEN, ELSEWHERE };

area area_of(const void *memory, size_t bytes, int number) {
  const std::map<uintptr_t, allocation> &all = device().allocations;
  const uintptr_t at = reinterpret_cast<uintptr_t>(memory);
  auto next = all.upper_bound(at);
  if (next != all.end() && next->first < at + bytes) return area::BROKEN;
  if (next == all.begin()) return area::PAGEABLE;
  --next;
  const uintptr_t offset = at - next->first;
  if (offset >= next->second.bytes) return area::PAGEABLE;
  if (bytes > next->second.bytes - offset) return area::BROKEN;
  if (!next->second.on_device) return area::PINNED;
  return next->second.device == number ? area::DEVICE : area::ELSEWHERE;
}

bool side_is(area place, bool device_wanted) { return (place == area::DEVICE) == device_wanted; }

cudaError_t check_copy(area to, area from, cudaMemcpyKind kind) {
  for (const area place : {to, from}) {
    if (place == area::BROKEN || place == area::ELSEWHERE) return cudaErrorInvalidValue;
  }
  if (kind == cudaMemcpyDefault) return cudaSuccess;
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) {
    return cudaErrorInvalidMemcpyDirection;
  }
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  return side_is(to, to_device) && side_is(from, from_device) ? cudaSuccess : cudaErrorInvalidValue;
}

struct copy_request {
  void *to;
  const void *from;
  size_t bytes;
  cudaMemcpyKind kind;
};

// `reads_now`: into staging memory, when the copy is queued.
position queue_copy(const stream_pointer &stream, const copy_request &c, bool reads_now) {
  work_item item;
  item.name = "a copy";
  if (reads_now) {
    const char *const bytes = static_cast<const char *>(c.from);
    item.run = [c, staged = std::vector<char>(bytes, bytes + c.bytes)] {
      memcpy(c.to, staged.data(), c.bytes);
    };
  } else {
    item.run = [c] { memmove(c.to, c.from, c.bytes); };
  }
  return enqueue(stream, std::move(item));
}

cudaError_t copy_and_wait(lock_held &lock, const copy_request &c) {
  if (c.bytes == 0) return cudaSuccess;
  const stream_pointer stream = current_context().default_stream;
  const area to = area_of(c.to, c.bytes, stream->device);
  const area from = area_of(c.from, c.bytes, stream->device);
  const cudaError_t error = check_copy(to, from, c.kind);
  if (error != cudaSuccess) return error;
  const bool staged = to == area::DEVICE && from == area::PAGEABLE;
  if (staged) run_until(lock, enqueue(stream, work_item()));
  const position done = queue_copy(stream, c, staged);
  if (!staged && !(to == area::DEVICE && from == area::DEVICE)) run_until(lock, done);
  return cudaSuccess;
}

cudaError_t copy_on_stream(lock_held &lock, const copy_request &c, cudaStream_t handle) {
  const stream_pointer stream = find_stream(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (c.bytes == 0) return cudaSuccess;
  const area to = area_of(c.to, c.bytes, stream->device);
  const area from = area_of(c.from, c.bytes, stream->device);
  const cudaError_t error = check_copy(to, from, c.kind);
  if (error != cudaSuccess) return error;
  const bool pageable = to == area::PAGEABLE || from == area::PAGEABLE;
  if (pageable && break_capture(stream)) return cudaErrorStreamCaptureUnsupported;
  const position done = queue_copy(stream, c, to == area::DEVICE && from == area::PAGEABLE);
  const bool on_host = to != area::DEVICE && from != area::DEVICE;
  if (to == area::PAGEABLE || on_host) run_until(lock, done);
  return cudaSuccess;
}

cudaError_t fill(const stream_pointer &stream, void *memory, int byte, size_t bytes) {
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (bytes == 0) return cudaSuccess;
  const area place = area_of(memory, bytes, stream->device);
  if (place != area::DEVICE && place != area::PINNED) return cudaErrorInvalidValue;
  work_item item;
  item.name = "a fill";
  item.run = [=] { memset(memory, byte, bytes); };
  enqueue(stream, std::move(item));
  return cudaSuccess;
}

}  // namespace

void open_device_memory(int number) {
  if (device().open_memory == number) return;
  close_device_memory();
  set_device_access(number, PROT_READ | PROT_WRITE);
  device().open_memory = number;
}

void close_device_memory() {
  if (device().open_memory != NO_DEVICE) set_device_access(device().open_memory, PROT_NONE);
  device().open_memory = NO_DEVICE;
}

bool is_memory_of(int number, const void *memory, size_t bytes) {
  return area_of(memory, bytes, number) == area::DEVICE;
}

void explain_memory_faults() {
  struct sigaction action = {}, before;
  action.sa_sigaction = explain_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &before);
  if (before.sa_sigaction != explain_fault) action_before = before;
}

void check_guards(const char *name) {
  const int open = device().open_memory;
  for (const auto &a : device().allocations) {
    const bool can_be_written =
        !a.second.on_device || open == EVERY_DEVICE || open == a.second.device;
    if (can_be_written) check_allocation(a.second, name);
  }
}

}  // namespace shim

using namespace shim;

cudaError_t cudaMemGetInfo(size_t *unused_bytes, size_t *total_bytes) {
  return api_call("cudaMemGetInfo", [=](lock_held &) {
    *total_bytes = device().limit_bytes;
    *unused_bytes = free_bytes();
    return cudaSuccess;
  });
}

cudaError_t cudaMalloc(void **memory, size_t bytes) {
  return api_call("cudaMalloc", [=](lock_held &) { return allocate(memory, bytes, true); });
}

cudaError_t cudaMallocHost(void **memory, size_t bytes) {
  return api_call("cudaMallocHost", [=](lock_held &) { return allocate(memory, bytes, false); });
}

cudaError_t cudaFree(void *memory) {
  return api_call("cudaFree", [=](lock_held &lock) { return release(lock, memory, true); });
}

cudaError_t cudaFreeHost(void *memory) {
  return api_call("cudaFreeHost", [=](lock_held &lock) { return release(lock, memory, false); });
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
  return api_call("cudaMemcpy", [=](lock_held &lock) {
    return copy_and_wait(lock, {to, from, bytes, kind});
  });
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return api_call("cudaMemcpyAsync", [=](lock_held &lock) {
    return copy_on_stream(lock, {to, from, bytes, kind}, stream);
  });
}

cudaError_t cudaMemset(void *memory, int byte, size_t bytes) {
  return api_call("cudaMemset", [=](lock_held &lock) {
    const stream_pointer stream = current_context().default_stream;
    const cudaError_t error = fill(stream, memory, byte, bytes);
    const bool pinned = area_of(memory, bytes, stream->device) == area::PINNED;
    if (error == cudaSuccess && pinned) {
      run_until(lock, {stream, stream->queued});
    }
    return error;
  });
}

cudaError_t cudaMemsetAsync(void *memory, int byte, size_t bytes, cudaStream_t stream) {
  return api_call("cudaMemsetAsync",
                  [=](lock_held &) { return fill(find_stream(stream), memory, byte, bytes); });
}
