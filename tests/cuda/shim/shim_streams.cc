// SPDX-License-Identifier: Apache-2.0
// Streams, events and launches of the emulated device.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "cuda_runtime.h"
#include "shim_state.h"

namespace shim {

bool position::reached() const { return !stream || stream->done >= number; }

namespace {

context &context_of(const CUstream_st &s) {
  return device().contexts[static_cast<size_t>(s.device)];
}

bool can_run(const CUstream_st &s) {
  if (s.busy || s.items.empty()) return false;
  const work_item &item = s.items.front();
  return std::all_of(item.after.begin(), item.after.end(),
                     [](const position &p) { return p.reached(); }) &&
         (!item.opens || item.opens->is_open() || context_of(s).ended != cudaSuccess);
}

std::vector<stream_pointer> streams_that_can_run() {
  std::vector<stream_pointer> able;
  for (const auto *list : {&device().streams, &device().destroyed}) {
    std::copy_if(list->begin(), list->end(), std::back_inserter(able),
                 [](const stream_pointer &s) { return can_run(*s); });
  }
  return able;
}

void run_host_function(lock_held &lock, CUstream_st &stream, const work_item &item) {
  stream.busy = true;
  close_device_memory();
  lock.unlock();
  enter_host_function(true);
  item.run();
  enter_host_function(false);
  lock.lock();
  stream.busy = false;
}

// An ended context runs nothing more; what waits for it goes on.
void run_item(lock_held &lock, CUstream_st &stream, const work_item &item) {
  if (!item.run || context_of(stream).ended != cudaSuccess) return;
  if (item.kind == work_kind::HOST_FUNCTION) {
    run_host_function(lock, stream, item);
    return;
  }
  const bool fails = item.kind == work_kind::KERNEL &&
                     take_planned_failure("kernel", stream.device) != cudaSuccess;
  open_device_memory(item.reaches_all ? EVERY_DEVICE : stream.device);
  if (item.kind == work_kind::KERNEL) device().runs[item.name]++;
  if (!fails) item.run();
  check_guards(item.name);
}

void forget_if_destroyed(const stream_pointer &stream) {
  if (!stream->items.empty()) return;
  std::vector<stream_pointer> &list = device().destroyed;
  list.erase(std::remove(list.begin(), list.end(), stream), list.end());
}

// Runs one piece of work of a stream drawn among those that can go on; false if there is none.
bool run_one(lock_held &lock) {
  const std::vector<stream_pointer> able = streams_that_can_run();
  if (able.empty()) return false;
  const stream_pointer stream = able[device().chance.below(static_cast<uint32_t>(able.size()))];
  const work_item item = std::move(stream->items.front());
  stream->items.pop_front();
  run_item(lock, *stream, item);
  stream->done++;
  forget_if_destroyed(stream);
  if (device().waiting > 0) device().changed.notify_all();
  return true;
}

bool is_busy() {
  const auto busy = [](const stream_pointer &s) { return s->busy; };
  const device_state &d = device();
  return std::any_of(d.streams.begin(), d.streams.end(), busy) ||
         std::any_of(d.destroyed.begin(), d.destroyed.end(), busy);
}

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

event_pointer find_event(cudaEvent_t event) {
  for (const event_pointer &e : device().events) {
    if (e.get() == event) return e;
  }
  return nullptr;
}

// The legacy default stream and the streams that do not ignore it wait for each other.
void wait_for_default_stream(const stream_pointer &stream, work_item *item) {
  device_state &d = device();
  const stream_pointer &first = context_of(*stream).default_stream;
  if (stream == first) {
    for (const auto *list : {&d.streams, &d.destroyed}) {
      for (const stream_pointer &s : *list) {
        const bool waits = !s->non_blocking && s != stream && s->device == stream->device;
        if (waits) item->after.push_back({s, s->queued});
      }
    }
  } else if (!stream->non_blocking) {
    item->after.push_back({first, first->queued});
  }
}

// ---- standstill ----

// The work for which the first one of a stream waits.
std::vector<position> blockers(const CUstream_st &s, std::string *missing) {
  std::vector<position> all;
  if (s.items.empty()) return all;
  const work_item &item = s.items.front();
  std::copy_if(item.after.begin(), item.after.end(), std::back_inserter(all),
               [](const position &p) { return !p.reached(); });
  if (!item.opens) return all;
  const std::vector<position> others = item.opens->after(missing);
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

std::string name_of(const CUstream_st &s) {
  const work_item &item = s.items.front();
  return item.opens ? item.opens->name() : item.name[0] ? item.name : "a wait for an event";
}

// Follows what the first work of `s` waits for. True, with the names, if it waits for itself.
bool is_in_circle(const stream_pointer &s, std::vector<stream_pointer> *path, std::string *names) {
  if (std::find(path->begin(), path->end(), s) != path->end()) return s == path->front();
  path->push_back(s);
  std::string missing;
  for (const position &p : blockers(*s, &missing)) {
    if (!is_in_circle(p.stream, path, names)) continue;
    *names = name_of(*s) + " waits for " + (names->empty() ? "itself" : *names);
    return true;
  }
  path->pop_back();
  return false;
}

std::vector<stream_pointer> all_streams() {
  std::vector<stream_pointer> all = device().streams;
  all.insert(all.end(), device().destroyed.begin(), device().destroyed.end());
  return all;
}

// Nothing can run. Ends the process if nothing ever can.
void end_if_in_circle() {
  for (const stream_pointer &s : all_streams()) {
    std::vector<stream_pointer> path;
    std::string names;
    if (!is_in_circle(s, &path, &names)) continue;
    fprintf(stderr, "shim: streams wait for each other: %s\n", names.c_str());
    abort();
  }
}

// Returns what work waits for that nobody has queued.
std::string find_missing() {
  std::string missing;
  for (const stream_pointer &s : all_streams()) blockers(*s, &missing);
  return missing;
}

// Waits until another thread queues or runs something. Ends the process when that takes too long.
void wait_for_others(lock_held &lock) {
  device_state &d = device();
  if (!is_busy()) end_if_in_circle();
  close_device_memory();
  d.waiting++;
  const auto limit = std::chrono::duration<double>(d.patience_s);
  const bool late = d.changed.wait_for(lock, limit) == std::cv_status::timeout;
  d.waiting--;
  if (!late || is_busy() || !streams_that_can_run().empty()) return;
  fprintf(stderr, "shim: nothing runs for %g s: %s\n", d.patience_s, find_missing().c_str());
  abort();
}

}  // namespace

position enqueue(const stream_pointer &stream, work_item item) {
  if (capture_item(stream, item)) return {};
  wait_for_default_stream(stream, &item);
  stream->items.push_back(std::move(item));
  if (device().waiting > 0) device().changed.notify_all();
  return {stream, ++stream->queued};
}

void run_until(lock_held &lock, const position &until) {
  while (!until.reached()) {
    if (!run_one(lock)) wait_for_others(lock);
  }
}

void run_everything(lock_held &lock, int number) {
  for (const stream_pointer &s : all_streams()) {
    if (s->device == number) run_until(lock, {s, s->queued});
  }
}

stream_pointer find_stream(cudaStream_t stream) {
  if (!stream) return current_context().default_stream;
  for (const stream_pointer &s : device().streams) {
    if (s.get() == stream) return s;
  }
  return nullptr;
}

// ---- launches ----

namespace {
enum { MAX_SHARED_BYTES = 227 << 10, MAX_SHARED_BYTES_UNASKED = 48 << 10 };

bool fits(dim3 size, uint64_t x, uint64_t y, uint64_t z) {
  return size.x >= 1 && size.x <= x && size.y >= 1 && size.y <= y && size.z >= 1 && size.z <= z;
}

cudaError_t check_shape(const launch_shape &s, size_t max_shared_bytes) {
  if (!fits(s.grid, 0x7FFFFFFF, 65535, 65535) || !fits(s.block, 1024, 1024, 64) ||
      s.block.x * s.block.y * s.block.z > 1024) {
    return cudaErrorInvalidConfiguration;
  }
  return s.shared_bytes > max_shared_bytes ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t queue_checked(const launch_shape &shape, size_t max_shared_bytes, cudaStream_t handle,
                          std::function<void()> body) {
  const stream_pointer stream = find_stream(handle);
  if (!stream || stream->device != current_device()) return cudaErrorInvalidResourceHandle;
  const cudaError_t error = check_shape(shape, max_shared_bytes);
  if (error != cudaSuccess) break_capture(stream);
  if (error != cudaSuccess) return error;
  work_item item;
  item.kind = work_kind::KERNEL;
  item.name = shape.kernel;
  item.run = [shape, body] { run_grid(shape, body); };
  enqueue(stream, std::move(item));
  return cudaSuccess;
}
}  // namespace

void queue_kernel(const launch_shape &shape, cudaStream_t stream, std::function<void()> body) {
  api_call("launch", [&](lock_held &) {
    return queue_checked(shape, MAX_SHARED_BYTES, stream, std::move(body));
  });
}

void queue_kernel_at(const void *function, const launch_shape &shape, cudaStream_t stream,
                     std::function<void()> body) {
  api_call("launch", [&](lock_held &) {
    const auto asked = device().shared_bytes.find(function);
    const size_t unasked = MAX_SHARED_BYTES_UNASKED;
    const bool known = asked != device().shared_bytes.end();
    return queue_checked(shape, known ? asked->second : unasked, stream, std::move(body));
  });
}

}  // namespace shim

using namespace shim;

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute attribute, int value) {
  return api_call("cudaFuncSetAttribute", [=](lock_held &) {
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        value > device().most_shared_bytes) {
      return cudaErrorInvalidValue;
    }
    device().shared_bytes[kernel] = static_cast<size_t>(value);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize(void) {
  return api_call("cudaDeviceSynchronize", [](lock_held &lock) {
    run_everything(lock, current_device());
    return cudaSuccess;
  });
}

// ---- streams ----

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
  return api_call("cudaStreamCreateWithFlags", [=](lock_held &) {
    if (flags > cudaStreamNonBlocking) return cudaErrorInvalidValue;
    device().streams.push_back(std::make_shared<CUstream_st>());
    device().streams.back()->device = current_device();
    device().streams.back()->non_blocking = flags == cudaStreamNonBlocking;
    *stream = device().streams.back().get();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return api_call("cudaStreamDestroy", [=](lock_held &) {
    const stream_pointer stream = handle ? find_stream(handle) : nullptr;
    if (!stream) return cudaErrorInvalidResourceHandle;
    std::vector<stream_pointer> &list = device().streams;
    list.erase(std::find(list.begin(), list.end(), stream));
    if (!stream->items.empty() || stream->busy) device().destroyed.push_back(stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return api_call("cudaStreamSynchronize", [=](lock_held &lock) {
    const stream_pointer stream = find_stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (break_capture(stream)) return cudaErrorStreamCaptureUnsupported;
    // Something to wait for: on the default stream it stands behind other streams' work.
    run_until(lock, enqueue(stream, work_item()));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return api_call("cudaStreamQuery", [=](lock_held &lock) {
    const stream_pointer stream = find_stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (break_capture(stream)) return cudaErrorStreamCaptureUnsupported;
    if (stream->done == stream->queued) return cudaSuccess;
    if (!run_one(lock) && !is_busy()) end_if_in_circle();
    return cudaErrorNotReady;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned) {
  return api_call("cudaStreamWaitEvent", [=](lock_held &) {
    const stream_pointer stream = find_stream(handle);
    const event_pointer event = find_event(event_handle);
    if (!stream || !event) return cudaErrorInvalidResourceHandle;
    if (break_capture(stream)) return cudaErrorStreamCaptureUnsupported;
    work_item item;
    item.after.push_back(event->last);
    enqueue(stream, std::move(item));
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, void (*function)(void *), void *argument) {
  return api_call("cudaLaunchHostFunc", [=](lock_held &) {
    const stream_pointer stream = find_stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (break_capture(stream)) return cudaErrorStreamCaptureUnsupported;
    work_item item;
    item.kind = work_kind::HOST_FUNCTION;
    item.name = "a host function";
    item.run = [=] { function(argument); };
    enqueue(stream, std::move(item));
    return cudaSuccess;
  });
}

// ---- events ----

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
  return api_call("cudaEventCreateWithFlags", [=](lock_held &) {
    if (flags & ~(cudaEventBlockingSync | cudaEventDisableTiming)) return cudaErrorInvalidValue;
    device().events.push_back(std::make_shared<CUevent_st>());
    device().events.back()->device = current_device();
    device().events.back()->has_time = !(flags & cudaEventDisableTiming);
    *event = device().events.back().get();
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  return api_call("cudaEventDestroy", [=](lock_held &) {
    const event_pointer event = find_event(handle);
    if (!event) return cudaErrorInvalidResourceHandle;
    std::vector<event_pointer> &list = device().events;
    list.erase(std::find(list.begin(), list.end(), event));
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event_handle, cudaStream_t handle) {
  return api_call("cudaEventRecord", [=](lock_held &) {
    const stream_pointer stream = find_stream(handle);
    const event_pointer event = find_event(event_handle);
    if (!stream || !event || stream->device != event->device) return cudaErrorInvalidResourceHandle;
    if (break_capture(stream)) return cudaErrorStreamCaptureUnsupported;
    work_item item;
    item.name = "cudaEventRecord";
    item.run = [event, record = ++event->records] {
      if (event->records == record) event->time_s = now_s();
    };
    event->last = enqueue(stream, std::move(item));
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  return api_call("cudaEventQuery", [=](lock_held &lock) {
    const event_pointer event = find_event(handle);
    if (!event) return cudaErrorInvalidResourceHandle;
    if (event->last.reached()) return cudaSuccess;
    if (!run_one(lock) && !is_busy()) end_if_in_circle();
    return cudaErrorNotReady;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  return api_call("cudaEventSynchronize", [=](lock_held &lock) {
    const event_pointer event = find_event(handle);
    if (!event) return cudaErrorInvalidResourceHandle;
    run_until(lock, position(event->last));
    return cudaSuccess;
  });
}

cudaError_t cudaEventElapsedTime(float *elapsed_ms, cudaEvent_t begin, cudaEvent_t end) {
  return api_call("cudaEventElapsedTime", [=](lock_held &) {
    const event_pointer a = find_event(begin), b = find_event(end);
    if (!a || !b || !a->has_time || !b->has_time || !a->last.stream || !b->last.stream) {
      return cudaErrorInvalidResourceHandle;
    }
    if (!a->last.reached() || !b->last.reached()) return cudaErrorNotReady;
    *elapsed_ms = static_cast<float>((b->time_s - a->time_s) * 1e3 / device().speed);
    return cudaSuccess;
  });
}
