// SPDX-License-Identifier: Apache-2.0
// Checks and owners of device memory, streams and events for the tests of the emulated device
// (C++17; each test is one source that includes this).
#pragma once

#include <cstdio>
#include <cuda_runtime_api.h>
#include <functional>
#include <shim_control.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

static int num_wrong = 0;  // checks that failed

static inline void expect(bool holds, const char *what, const char *file = __builtin_FILE(),
                          int line = __builtin_LINE()) {
  if (holds) return;
  fprintf(stderr, "%s:%d: %s\n", file, line, what);
  num_wrong++;
}

static inline void expect_error(cudaError_t got, cudaError_t wanted,
                                const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (got == wanted) return;
  fprintf(stderr, "%s:%d: %s instead of %s\n", file, line, cudaGetErrorName(got),
          cudaGetErrorName(wanted));
  num_wrong++;
}

static inline void must(cudaError_t error, const char *file = __builtin_FILE(),
                        int line = __builtin_LINE()) {
  expect_error(error, cudaSuccess, file, line);
}

// ---- device memory and streams that free themselves ----

template <class T>
class device_array {
 public:
  explicit device_array(int count) : count_(count) {
    must(cudaMalloc(reinterpret_cast<void **>(&data_), sizeof(T) * static_cast<size_t>(count)));
  }
  explicit device_array(const std::vector<T> &values)
      : device_array(static_cast<int>(values.size())) {
    must(cudaMemcpy(data_, values.data(), sizeof(T) * values.size(), cudaMemcpyHostToDevice));
    must(cudaDeviceSynchronize());
  }
  ~device_array() { must(cudaFree(data_)); }
  device_array(const device_array &) = delete;
  T *get() const { return data_; }
  // After all work of all streams.
  std::vector<T> read() const {
    must(cudaDeviceSynchronize());
    std::vector<T> values(static_cast<size_t>(count_));
    must(cudaMemcpy(values.data(), data_, sizeof(T) * values.size(), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  T *data_ = nullptr;
  int count_;
};

class test_stream {
 public:
  explicit test_stream(unsigned flags = cudaStreamNonBlocking) {
    must(cudaStreamCreateWithFlags(&stream_, flags));
  }
  ~test_stream() { must(cudaStreamDestroy(stream_)); }
  test_stream(const test_stream &) = delete;
  operator cudaStream_t() const { return stream_; }
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class test_event {
 public:
  explicit test_event(unsigned flags = cudaEventDisableTiming) {
    must(cudaEventCreateWithFlags(&event_, flags));
  }
  ~test_event() { must(cudaEventDestroy(event_)); }
  test_event(const test_event &) = delete;
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// What `action` prints to stderr in a process of its own, which must not survive it.
static inline std::string last_words(const std::function<void()> &action) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    action();
    _exit(0);
  }
  close(ends[1]);
  std::string words;
  char text[512];
  for (ssize_t n; (n = read(ends[0], text, sizeof text)) > 0;) words.append(text, text + n);
  close(ends[0]);
  int status;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "survived: " + words : words;
}

static inline void expect_words(const std::string &words, const std::string &wanted,
                                const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (words.compare(0, 8, "survived") != 0 && words.find(wanted) != std::string::npos) return;
  fprintf(stderr, "%s:%d: \"%s\" instead of \"%s\"\n", file, line, words.c_str(), wanted.c_str());
  num_wrong++;
}
