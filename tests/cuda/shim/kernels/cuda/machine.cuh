// SPDX-License-Identifier: Apache-2.0
// The emulated device's version of src/machine/kernels/cuda/machine.cuh, which see.
#pragma once

#include <cuda_runtime.h>

#include <deque>
#include <tuple>
#include <vector>

namespace shim {

// As in CUDA, arguments are converted and copied when the kernel is queued.
template <class... Parameters, class... Arguments>
void launch_with(const char *name, const launch_shape &shape, void *stream,
                 void (*kernel)(Parameters...), Arguments... arguments) {
  const std::tuple<Parameters...> copies{static_cast<Parameters>(arguments)...};
  launch(name, kernel, shape.grid, shape.block, shape.shared_bytes, (cudaStream_t)stream,
         [=] { std::apply(kernel, copies); });
}

}  // namespace shim

#define OT_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                             \
  shim::launch_with(#kernel, {#kernel, (grid), (block), (size_t)(shared_bytes)}, (stream), \
                    (kernel), __VA_ARGS__)

#define OT_DYNAMIC_SHARED(type, name) type *const name = (type *)shim::dynamic_shared()

static inline uint16_t ot_round_to_bf16(float x) {
  const uint32_t bits = __float_as_uint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static inline uint32_t ot_pack_bf16(float low, float high) {
  return ot_round_to_bf16(low) | (uint32_t)ot_round_to_bf16(high) << 16;
}

static inline float ot_exp2(float x) { return x < -126 ? 0 : exp2f(x); }

static inline void ot_forget(int &) {}

namespace shim {

inline float upper_or_lower(uint32_t pair, int index) {
  return __uint_as_float((index & 1 ? pair >> 16 : pair & 0xffffu) << 16);
}

struct product_of_lane {
  float *c;
  const uint32_t *a, *b;
};

// The element of a [16, 16] or b [16, 8] in the registers of all lanes.
inline float element_of_a(void *const *lanes, int row, int k) {
  const auto &lane = *static_cast<product_of_lane *>(lanes[row % 8 * 4 + k % 8 / 2]);
  return upper_or_lower(lane.a[row / 8 + k / 8 * 2], k);
}
inline float element_of_b(void *const *lanes, int k, int column) {
  const auto &lane = *static_cast<product_of_lane *>(lanes[column * 4 + k % 8 / 2]);
  return upper_or_lower(lane.b[k / 8], k);
}

inline void multiply_matrices(void *const *lanes, uint32_t) {
  for (int row = 0; row < 16; row++) {
    for (int column = 0; column < 8; column++) {
      const auto &lane = *static_cast<product_of_lane *>(lanes[row % 8 * 4 + column / 2]);
      float sum = 0;
      for (int k = 0; k < 16; k++) {
        sum += element_of_a(lanes, row, k) * element_of_b(lanes, k, column);
      }
      lane.c[row / 8 * 2 + column % 2] += sum;
    }
  }
}

// Rows of matrices and copies at other addresses are errors on a GPU.
inline void check_aligned(const void *at, const char *name, place here) {
  if (reinterpret_cast<uintptr_t>(at) % 16 == 0) return;
  fail(here, "%s %p, which is not a multiple of 16", name, at);
}

struct load_of_lane {
  uint32_t *to;
  const void *row;
};

inline const uint16_t *matrix_row(void *const *lanes, int matrix, int row) {
  const auto &lane = *static_cast<load_of_lane *>(lanes[matrix * 8 + row]);
  return static_cast<const uint16_t *>(lane.row);
}

inline void load_matrices(void *const *lanes, uint32_t) {
  for (int lane = 0; lane < 32; lane++) {
    for (int m = 0; m < 4; m++) {
      const uint16_t *const row = matrix_row(lanes, m, lane / 4);
      static_cast<load_of_lane *>(lanes[lane])->to[m] =
          row[lane % 4 * 2] | (uint32_t)row[lane % 4 * 2 + 1] << 16;
    }
  }
}

inline void load_transposed(void *const *lanes, uint32_t) {
  for (int lane = 0; lane < 32; lane++) {
    for (int m = 0; m < 4; m++) {
      const uint16_t *const low = matrix_row(lanes, m, lane % 4 * 2);
      const uint16_t *const high = matrix_row(lanes, m, lane % 4 * 2 + 1);
      static_cast<load_of_lane *>(lanes[lane])->to[m] =
          low[lane / 4] | (uint32_t)high[lane / 4] << 16;
    }
  }
}

// Copies that have not been waited for have not happened.
struct copy_under_way {
  void *to;
  const void *from;
  bool given;
};

struct copies_of_thread {
  std::vector<copy_under_way> open;
  std::deque<std::vector<copy_under_way>> groups;
};

inline copies_of_thread &copies() {
  static copies_of_thread all[1024];
  return all[thread_number()];
}

inline void finish_copies(size_t left) {
  copies_of_thread &mine = copies();
  while (mine.groups.size() > left) {
    for (const copy_under_way &copy : mine.groups.front()) {
      if (copy.given) {
        memcpy(copy.to, copy.from, 16);
      } else {
        memset(copy.to, 0, 16);
      }
    }
    mine.groups.pop_front();
  }
}

}  // namespace shim

static inline void ot_mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                               SHIM_HERE) {
  const uint32_t b[] = {b0, b1};
  shim::product_of_lane mine = {c, a, b};
  shim::together(~0u, shim::multiply_matrices, &mine, "mma", {file, line});
}

static inline void ot_load_matrices(uint32_t (&to)[4], const void *row, SHIM_HERE) {
  shim::check_aligned(row, "ldmatrix", {file, line});
  shim::load_of_lane mine = {to, row};
  shim::together(~0u, shim::load_matrices, &mine, "ldmatrix", {file, line});
}

static inline void ot_load_transposed(uint32_t (&to)[4], const void *row, SHIM_HERE) {
  shim::check_aligned(row, "ldmatrix.trans", {file, line});
  shim::load_of_lane mine = {to, row};
  shim::together(~0u, shim::load_transposed, &mine, "ldmatrix.trans", {file, line});
}

static inline void ot_copy_async(void *shared, const void *from, bool given, SHIM_HERE) {
  shim::check_aligned(shared, "cp.async to", {file, line});
  shim::check_aligned(from, "cp.async from", {file, line});
  shim::copies().open.push_back({shared, from, given});
}

static inline void ot_copy_commit() {
  shim::copies_of_thread &mine = shim::copies();
  mine.groups.push_back(std::move(mine.open));
  mine.open.clear();
}

template <int N>
static inline void ot_copy_wait() {
  shim::finish_copies(N);
}
