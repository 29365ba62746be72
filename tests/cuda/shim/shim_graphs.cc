// SPDX-License-Identifier: Apache-2.0
// Work of a stream, captured as a graph and queued as a whole.
#include <algorithm>
#include <cstring>

#include "cuda_runtime.h"
#include "shim_state.h"

namespace shim {

namespace {
thread_local stream_pointer own_capture;  // which this thread began

template <class Handle, class List>
auto find_in(const List &list, Handle handle) {
  return std::find_if(list.begin(), list.end(), [=](const auto &g) { return g.get() == handle; });
}

template <class Handle, class List>
cudaError_t forget(List *list, Handle handle) {
  const auto found = find_in(*list, handle);
  if (found == list->end()) return cudaErrorInvalidValue;
  list->erase(found);
  return cudaSuccess;
}

cudaError_t begin_capture(const stream_pointer &stream) {
  if (!stream || stream == current_context().default_stream) {
    return cudaErrorStreamCaptureUnsupported;
  }
  if (stream->capture.on || own_capture) return cudaErrorIllegalState;
  stream->capture = {};
  stream->capture.on = true;
  own_capture = stream;
  return cudaSuccess;
}

cudaError_t end_capture(const stream_pointer &stream, cudaGraph_t *graph) {
  *graph = nullptr;
  if (!stream || !stream->capture.on) return cudaErrorIllegalState;
  if (own_capture != stream) return cudaErrorStreamCaptureWrongThread;
  own_capture = nullptr;
  stream->capture.on = false;
  if (stream->capture.broken) return cudaErrorStreamCaptureInvalidated;
  device().graphs.push_back(std::make_shared<CUgraph_st>());
  device().graphs.back()->device = stream->device;
  device().graphs.back()->items = std::move(stream->capture.items);
  *graph = device().graphs.back().get();
  return cudaSuccess;
}
}  // namespace

bool capture_forbids(const char *call) {
  static const char *const calls[] = {"cudaMalloc", "cudaMallocHost", "cudaFree",
                                      "cudaFreeHost", "cudaMemcpy", "cudaMemset",
                                      "cudaDeviceSynchronize"};
  if (!own_capture) return false;
  const bool found = std::any_of(std::begin(calls), std::end(calls),
                                 [=](const char *c) { return strcmp(c, call) == 0; });
  own_capture->capture.broken |= found;
  return found;
}

bool break_capture(const stream_pointer &stream) {
  if (!stream || !stream->capture.on) return false;
  stream->capture.broken = true;
  return true;
}

bool capture_item(const stream_pointer &stream, const work_item &item) {
  if (!stream->capture.on) return false;
  stream->capture.items.push_back(item);
  return true;
}

}  // namespace shim

using namespace shim;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return api_call("cudaStreamBeginCapture", [=](lock_held &) {
    if (mode != cudaStreamCaptureModeThreadLocal) return cudaErrorNotSupported;
    return begin_capture(find_stream(stream));
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  return api_call("cudaStreamEndCapture",
                  [=](lock_held &) { return end_capture(find_stream(stream), graph); });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph,
                                 unsigned long long flags) {
  return api_call("cudaGraphInstantiate", [=](lock_held &) {
    const auto found = find_in(device().graphs, graph);
    if (found == device().graphs.end() || flags != 0) return cudaErrorInvalidValue;
    device().executables.push_back(std::make_shared<CUgraphExec_st>());
    device().executables.back()->device = (*found)->device;
    device().executables.back()->items = (*found)->items;
    *executable = device().executables.back().get();
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t handle) {
  return api_call("cudaGraphLaunch", [=](lock_held &) {
    const stream_pointer stream = find_stream(handle);
    const auto found = find_in(device().executables, executable);
    if (!stream || found == device().executables.end()) return cudaErrorInvalidResourceHandle;
    if (stream->device != (*found)->device) return cudaErrorInvalidValue;
    if (break_capture(stream)) return cudaErrorStreamCaptureUnsupported;
    for (const work_item &item : (*found)->items) enqueue(stream, item);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return api_call("cudaGraphDestroy",
                  [=](lock_held &) { return forget(&device().graphs, graph); });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return api_call("cudaGraphExecDestroy",
                  [=](lock_held &) { return forget(&device().executables, executable); });
}
