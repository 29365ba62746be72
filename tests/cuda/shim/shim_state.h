// SPDX-License-Identifier: Apache-2.0
// The emulated devices behind the runtime API (C++17, private to the shim). One mutex guards all of
// them, including the grid that runs; every call of the API holds it but while a host function
// runs.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda_runtime_api.h"
#include "fibers.h"
#include "shim_control.h"

namespace shim {
using stream_pointer = std::shared_ptr<CUstream_st>;
using event_pointer = std::shared_ptr<CUevent_st>;

// A point in a stream: reached when `number` pieces of its work are done. An empty stream: the
// start.
struct position {
  stream_pointer stream;
  uint64_t number = 0;
  bool reached() const;
};

// What a piece of work waits for besides work of streams: other ranks.
class gate {
 public:
  virtual ~gate() = default;
  virtual bool is_open() const = 0;
  // The queued work for which it waits. Adds to `missing` what nobody has queued.
  virtual std::vector<position> after(std::string *missing) const = 0;
  virtual std::string name() const = 0;
};

enum class work_kind { OTHER, KERNEL, HOST_FUNCTION };

enum { EVERY_DEVICE = -1, NO_DEVICE = -2 };

// One piece of work of a stream.
struct work_item {
  work_kind kind = work_kind::OTHER;
  const char *name = "";              // for messages
  std::function<void()> run;          // empty: only waits
  std::vector<position> after;        // besides the items before it in its stream
  std::shared_ptr<const gate> opens;  // null: none
  bool reaches_all = false;           // the memory of all devices, not only its stream's
};
}  // namespace shim

// What a stream queues for a graph instead of running it.
struct stream_capture {
  bool on = false, broken = false;  // broken: something that no graph of this device can hold
  std::vector<shim::work_item> items;
};

struct CUstream_st {
  int device = 0;
  bool non_blocking = false, busy = false;  // busy: a host function runs
  uint64_t queued = 0, done = 0;            // pieces of work ever
  std::deque<shim::work_item> items;        // those not done
  stream_capture capture;
};

struct CUgraph_st {
  int device;
  std::vector<shim::work_item> items;
};

struct CUgraphExec_st {
  int device;
  std::vector<shim::work_item> items;
};

struct CUevent_st {
  int device = 0;
  bool has_time = false;
  shim::position last;   // the latest record
  uint64_t records = 0;  // ever
  double time_s = 0;     // of the latest record
};

namespace shim {

struct allocation {
  size_t bytes;
  bool on_device;        // else pinned memory of the host
  int device;            // that it is on, or that was current
  unsigned char *pages;  // what is mapped: the bytes and a guard zone on either side
  size_t mapped_bytes;
};

struct planned_failure {
  std::string call;
  int64_t calls_left;  // this many calls until it fails
  cudaError_t error;
};

// One of the devices.
struct context {
  cudaError_t ended = cudaSuccess;  // the error that ended it
  stream_pointer default_stream = std::make_shared<CUstream_st>();
  size_t used_bytes = 0;
};

struct device_state {
  std::mutex mutex;
  std::condition_variable changed;  // work is queued or done, or a host function has returned
  int waiting = 0;                  // threads that wait for that
  std::vector<context> contexts;    // of each device
  std::vector<planned_failure> failures;
  std::vector<stream_pointer> streams;    // created and not destroyed, and the default ones
  std::vector<stream_pointer> destroyed;  // with work left
  std::vector<event_pointer> events;
  std::vector<std::shared_ptr<CUgraph_st>> graphs;
  std::vector<std::shared_ptr<CUgraphExec_st>> executables;
  std::map<uintptr_t, allocation> allocations;  // by address
  std::map<const void *, size_t> shared_bytes;  // opted in, by kernel
  std::map<std::string, int64_t> runs;          // of kernels, by name
  size_t limit_bytes;                           // of each device
  int most_shared_bytes;                        // of a block
  int open_memory = NO_DEVICE;                  // the device whose memory the host could touch
  double speed;                                 // events are as much closer than by the clock
  double patience_s;                            // how long work may wait for what nobody has queued
  int64_t communicators = 0;                    // live ones of NCCL
  random_numbers chance{1};
  device_state();
};

using lock_held = std::unique_lock<std::mutex>;

device_state &device();

// The device of the calling thread.
int current_device();
context &current_context();
// Of the work that runs.
context &running_context();

// What every function of the API does: takes the lock, returns a planned failure or the error that
// ended the context instead of calling `body`, and keeps what went wrong for cudaGetLastError.
cudaError_t api_call(const char *name, const std::function<cudaError_t(lock_held &)> &body);
// Keeps an error that is reported by cudaGetLastError only.
void set_last_error(cudaError_t error);
// The error that a call of this name fails with on purpose, now, on a device.
cudaError_t take_planned_failure(const char *call, int device);
// Marks the thread as in a host function, which may not call the API.
void enter_host_function(bool enter);

// ---- streams ----

// Queues work and returns the position that is reached when it is done.
position enqueue(const stream_pointer &stream, work_item item);
// Runs queued work until `until` is reached. May release the lock meanwhile.
void run_until(lock_held &lock, const position &until);
void run_everything(lock_held &lock, int device);
// The stream of a handle; null if there is none.
stream_pointer find_stream(cudaStream_t stream);

// ---- graphs ----

// Whether this thread captures a stream and `call` may not be made then; the capture is broken.
bool capture_forbids(const char *call);
// Whether the stream is captured, by work that a graph cannot hold; the capture is broken.
bool break_capture(const stream_pointer &stream);
// Whether the stream is captured; then the item is part of the graph and is not to be queued.
bool capture_item(const stream_pointer &stream, const work_item &item);

// ---- memory ----

// Ends the process if something was written next to an allocation. `name`: what ran last.
void check_guards(const char *name);
// The memory of a device (or of every device) is accessible only while queued work runs.
void open_device_memory(int device);
void close_device_memory();
// Whether all bytes lie in one live allocation on `device`.
bool is_memory_of(int device, const void *memory, size_t bytes);
// From now on an access of memory that is not accessible ends the process with a message.
void explain_memory_faults();

}  // namespace shim
