// SPDX-License-Identifier: Apache-2.0
// Memory of the emulated device and pinned memory, with guard zones, and copies.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "shim_state.h"

namespace shim {

namespace {

enum { ALIGNMENT = 256, GUARD_BYTES = 256 };
// NaN as bf16, float and double, and never what poisoned memory holds.
const uint16_t guard_word = 0xFFF5;

unsigned char guard_byte(size_t offset) {
  return static_cast<unsigned char>(offset % 2 ? guard_word >> 8 : guard_word);
}

void fill_guard(unsigned char *guard) {
  for (size_t i = 0; i < GUARD_BYTES; i++) guard[i] = guard_byte(i);
}

// The offset of the first byte that changed; GUARD_BYTES if none did.
size_t first_change(const unsigned char *guard) {
  size_t i = 0;
  while (i < GUARD_BYTES && guard[i] == guard_byte(i)) i++;
  return i;
}

void check_guard(const allocation &a, const unsigned char *guard, const char *name) {
  const size_t at = first_change(guard);
  if (at == GUARD_BYTES) return;
  const long long offset = guard + at - (a.base + GUARD_BYTES);
  fprintf(stderr, "shim: %s wrote at byte %lld of an allocation of %zu bytes\n", name, offset,
          a.bytes);
  abort();
}

void check_allocation(const allocation &a, const char *name) {
  check_guard(a, a.base, name);
  check_guard(a, a.base + GUARD_BYTES + a.bytes, name);
}

cudaError_t allocate(void **memory, size_t bytes, bool on_device) {
  device_state &d = device();
  *memory = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (on_device && bytes > d.limit_bytes - d.used_bytes) return cudaErrorMemoryAllocation;
  const size_t all = (bytes + 2 * GUARD_BYTES + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  unsigned char *const base = static_cast<unsigned char *>(aligned_alloc(ALIGNMENT, all));
  if (!base) return cudaErrorMemoryAllocation;
  fill_guard(base);
  memset(base + GUARD_BYTES, 0xFF, bytes);
  fill_guard(base + GUARD_BYTES + bytes);
  *memory = base + GUARD_BYTES;
  d.allocations[reinterpret_cast<uintptr_t>(*memory)] = {bytes, on_device, base};
  d.used_bytes += on_device ? bytes : 0;
  return cudaSuccess;
}

cudaError_t release(lock_held &lock, void *memory, bool on_device) {
  device_state &d = device();
  if (!memory) return cudaSuccess;
  run_everything(lock);
  const auto found = d.allocations.find(reinterpret_cast<uintptr_t>(memory));
  if (found == d.allocations.end() || found->second.on_device != on_device) {
    return cudaErrorInvalidValue;
  }
  check_allocation(found->second, "something");
  d.used_bytes -= on_device ? found->second.bytes : 0;
  free(found->second.base);
  d.allocations.erase(found);
  return cudaSuccess;
}

// ---- copies ----

enum class area { PAGEABLE, PINNED, DEVICE, BROKEN };  // broken: reaches over an allocation's end

area area_of(const void *memory, size_t bytes) {
  const std::map<uintptr_t, allocation> &all = device().allocations;
  const uintptr_t at = reinterpret_cast<uintptr_t>(memory);
  auto next = all.upper_bound(at);
  if (next != all.end() && next->first < at + bytes) return area::BROKEN;
  if (next == all.begin()) return area::PAGEABLE;
  --next;
  const uintptr_t offset = at - next->first;
  if (offset >= next->second.bytes) return area::PAGEABLE;
  if (bytes > next->second.bytes - offset) return area::BROKEN;
  return next->second.on_device ? area::DEVICE : area::PINNED;
}

bool side_is(area place, bool device_wanted) {
  return place != area::BROKEN && (place == area::DEVICE) == device_wanted;
}

cudaError_t check_copy(area to, area from, cudaMemcpyKind kind) {
  if (to == area::BROKEN || from == area::BROKEN) return cudaErrorInvalidValue;
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
  const area to = area_of(c.to, c.bytes), from = area_of(c.from, c.bytes);
  const cudaError_t error = check_copy(to, from, c.kind);
  if (error != cudaSuccess || c.bytes == 0) return error;
  const stream_pointer stream = device().default_stream;
  const bool staged = to == area::DEVICE && from == area::PAGEABLE;
  if (staged) run_until(lock, enqueue(stream, work_item()));
  const position done = queue_copy(stream, c, staged);
  if (!staged && !(to == area::DEVICE && from == area::DEVICE)) run_until(lock, done);
  return cudaSuccess;
}

cudaError_t copy_on_stream(lock_held &lock, const copy_request &c, cudaStream_t handle) {
  const stream_pointer stream = find_stream(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  const area to = area_of(c.to, c.bytes), from = area_of(c.from, c.bytes);
  const cudaError_t error = check_copy(to, from, c.kind);
  if (error != cudaSuccess || c.bytes == 0) return error;
  const position done = queue_copy(stream, c, from == area::PAGEABLE);
  if (to == area::PAGEABLE) run_until(lock, done);
  return cudaSuccess;
}

cudaError_t fill(const stream_pointer &stream, void *memory, int byte, size_t bytes) {
  if (!stream) return cudaErrorInvalidResourceHandle;
  const area place = area_of(memory, bytes);
  if (place != area::DEVICE && place != area::PINNED) return cudaErrorInvalidValue;
  work_item item;
  item.name = "a fill";
  item.run = [=] { memset(memory, byte, bytes); };
  enqueue(stream, std::move(item));
  return cudaSuccess;
}

}  // namespace

void check_guards(const char *name) {
  for (const auto &a : device().allocations) check_allocation(a.second, name);
}

}  // namespace shim

using namespace shim;

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
  return api_call("cudaMemGetInfo", [=](lock_held &) {
    *total_bytes = device().limit_bytes;
    *free_bytes = device().limit_bytes - device().used_bytes;
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
    const stream_pointer stream = device().default_stream;
    const cudaError_t error = fill(stream, memory, byte, bytes);
    if (error == cudaSuccess && area_of(memory, bytes) == area::PINNED) {
      run_until(lock, {stream, stream->queued});
    }
    return error;
  });
}

cudaError_t cudaMemsetAsync(void *memory, int byte, size_t bytes, cudaStream_t stream) {
  return api_call("cudaMemsetAsync",
                  [=](lock_held &) { return fill(find_stream(stream), memory, byte, bytes); });
}
