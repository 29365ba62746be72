// SPDX-License-Identifier: Apache-2.0
// Products of warpgroups. The warps of a warpgroup need not meet: each computes its 16 rows of the
// product, as wgmma's .sync asks only the threads of a warp to be together.
#include <cmath>
#include <cstring>
#include <deque>
#include <vector>

#include "hopper.h"
#include "hopper_state.h"

namespace shim {

namespace {

enum { WARP = 32, WARPS = 32, GROUP_WARPS = 4, DEPTH = 16, ROWS = 16, A_REGISTERS = 4 };
enum { MOST_COLUMNS = 256 };
constexpr uint32_t poison = 0x7FC0DEADu;  // a NaN

// Sums under way: their values, and where the lanes keep them.
struct sums {
  int n, products;  // products: not yet waited for
  float *at[WARP];
  std::vector<float> values;  // [WARP, n / 2]
};

struct product {
  sums *to;
  bool add, b_transposed, done;
  const uint32_t *a[WARP];  // or null
  uint32_t a_copy[WARP][A_REGISTERS];
  uint64_t a_descriptor, b_descriptor;
  place at;
};

struct warp_products {
  bool fenced;
  int64_t issued;
  std::vector<product> open;
  std::deque<std::vector<product>> groups;
  std::deque<sums> live;
};

warp_products warps[WARPS];

warp_products &mine() { return warps[thread_number() / WARP]; }

// ---- operands in shared memory ----

struct layout {
  uint32_t start, leading, stride, row;  // bytes; row: of a row that is swizzled
};

float bf16_at(const layout &l, uint32_t offset, place at) {
  const uint32_t address = static_cast<uint32_t>(swizzled_address(l.start + offset, l.row));
  if (address + 2 > dynamic_shared_bytes()) {
    fail(at, "a descriptor of wgmma reaches byte %u of %zu bytes of shared memory", address,
         dynamic_shared_bytes());
  }
  uint16_t half;
  memcpy(&half, dynamic_shared() + address, sizeof half);
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// Bits 0-13 start, 16-29 leading and 32-45 stride byte offset, all in units of 16 bytes; 49-51 base
// offset; 62-63 swizzling, 1 for 128 bytes and 2 for 64.
layout layout_of(uint64_t descriptor, place at) {
  const uint64_t swizzling = descriptor >> 62;
  if (swizzling != 1 && swizzling != 2) {
    fail(at, "wgmma: only swizzling of 128 and of 64 bytes is emulated");
  }
  if (descriptor >> 49 & 7) fail(at, "wgmma: the base offset must be 0 for aligned tiles");
  const auto field = [=](int bit) {
    return static_cast<uint32_t>(descriptor >> bit & 0x3FFF) << 4;
  };
  return {field(0), field(16), field(32), swizzling == 1 ? 128u : 64u};
}

// Element (row, k) of an operand with k innermost: groups of 8 rows.
float k_major(const layout &l, int row, int k, place at) {
  const uint32_t r = static_cast<uint32_t>(row), byte = static_cast<uint32_t>(k) * 2;
  return bf16_at(l, r / 8 * l.stride + r % 8 * l.row + byte, at);
}

// Element (row, k) with rows innermost: as many as a swizzled row has, groups of 8 k.
float row_major(const layout &l, int row, int k, place at) {
  const uint32_t byte = static_cast<uint32_t>(row) * 2, depth = static_cast<uint32_t>(k);
  return bf16_at(
      l, byte / l.row * l.leading + depth / 8 * l.stride + depth % 8 * l.row + byte % l.row, at);
}

// ---- the product ----

float upper_or_lower(uint32_t pair, int index) {
  const uint32_t bits = (index & 1 ? pair >> 16 : pair & 0xFFFFu) << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// Element of the warp's rows of a, in registers as in mma.m16n8k16.
float register_of_a(const product &p, int row, int k) {
  return upper_or_lower(p.a_copy[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2], k);
}

void compute(product &p, int warp) {
  static float a[ROWS][DEPTH], b[DEPTH][MOST_COLUMNS];
  const int n = p.to->n;
  const layout from_b = layout_of(p.b_descriptor, p.at);
  for (int k = 0; k < DEPTH; k++) {
    for (int r = 0; r < ROWS; r++) {
      a[r][k] =
          p.a[0] ? register_of_a(p, r, k)
                 : k_major(layout_of(p.a_descriptor, p.at), warp % GROUP_WARPS * ROWS + r, k, p.at);
    }
    for (int c = 0; c < n; c++) {
      b[k][c] = p.b_transposed ? row_major(from_b, c, k, p.at) : k_major(from_b, c, k, p.at);
    }
  }
  for (int r = 0; r < ROWS; r++) {
    float row[MOST_COLUMNS] = {};
    for (int k = 0; k < DEPTH; k++) {
      for (int c = 0; c < n; c++) row[c] += a[r][k] * b[k][c];
    }
    for (int c = 0; c < n; c++) {
      const int lane = r % 8 * 4 + c % 8 / 2, i = c / 8 * 4 + r / 8 * 2 + c % 2;
      float &sum = p.to->values[static_cast<size_t>(lane * n / 2 + i)];
      sum = (p.add ? sum : 0) + row[c];
    }
  }
  p.done = true;
}

void compute_all(warp_products &w, int warp) {
  for (std::vector<product> &group : w.groups) {
    for (product &p : group) {
      if (!p.done) compute(p, warp);
    }
  }
  for (product &p : w.open) {
    if (!p.done) compute(p, warp);
  }
}

bool is_poison(float x) { return memcmp(&x, &poison, sizeof x) == 0; }

void check_untouched(const sums &s, place at) {
  for (int lane = 0; lane < WARP; lane++) {
    for (int i = 0; i < s.n / 2; i++) {
      if (!is_poison(s.at[lane][i])) fail(at, "wgmma: sums were written before the wait");
    }
  }
}

// The sums that the lanes pass: under way already, or taken from them.
sums &sums_of(warp_products &w, void *const *lanes, place at) {
  const auto &first = *static_cast<const warpgroup_product *>(lanes[0]);
  for (sums &s : w.live) {
    if (s.at[0] != first.d) continue;
    if (s.n != first.n) fail(at, "wgmma: sums of %d columns, under way with %d", first.n, s.n);
    check_untouched(s, at);
    return s;
  }
  w.live.push_back({first.n, 0, {}, {}});
  sums &s = w.live.back();
  s.values.resize(static_cast<size_t>(WARP * s.n / 2));
  for (int lane = 0; lane < WARP; lane++) {
    s.at[lane] = static_cast<const warpgroup_product *>(lanes[lane])->d;
    for (int i = 0; i < s.n / 2; i++) {
      s.values[static_cast<size_t>(lane * s.n / 2 + i)] = s.at[lane][i];
      memcpy(&s.at[lane][i], &poison, sizeof poison);
    }
  }
  return s;
}

struct issue {
  warpgroup_product call;
  place at;
};

void issue_product(void *const *lanes, uint32_t) {
  warp_products &w = mine();
  const place at = static_cast<issue *>(lanes[0])->at;
  if (!w.fenced) fail(at, "wgmma without a wgmma.fence after the last commit or wait");
  void *calls[WARP];
  for (int lane = 0; lane < WARP; lane++) calls[lane] = &static_cast<issue *>(lanes[lane])->call;
  const auto &first = *static_cast<const warpgroup_product *>(calls[0]);
  if (first.n % 8 != 0 || first.n < 8 || first.n > MOST_COLUMNS) fail(at, "wgmma: n %d", first.n);
  product p = {};
  p.to = &sums_of(w, calls, at);
  p.add = first.add;
  p.b_transposed = first.b_transposed;
  p.a_descriptor = first.a_descriptor;
  p.b_descriptor = first.b_descriptor;
  p.at = at;
  for (int lane = 0; lane < WARP; lane++) {
    const auto &call = *static_cast<const warpgroup_product *>(calls[lane]);
    if (call.b_descriptor != p.b_descriptor || call.a_descriptor != p.a_descriptor) {
      fail(at, "wgmma: the lanes of a warp pass different descriptors");
    }
    p.a[lane] = call.a;
    if (call.a) memcpy(p.a_copy[lane], call.a, sizeof p.a_copy[lane]);
  }
  p.to->products++;
  w.issued++;
  w.open.push_back(p);
  const bool now = thread_order() == SHIM_RANDOM && random_below(2) == 0;
  if (now || thread_order() == SHIM_BACKWARD) compute_all(w, thread_number() / WARP);
}

void finish(const product &p, place at) {
  for (int lane = 0; lane < WARP && p.a[lane]; lane++) {
    if (memcmp(p.a[lane], p.a_copy[lane], sizeof p.a_copy[lane]) == 0) continue;
    fail(at, "wgmma: registers of operand a were written before the wait");
  }
  if (--p.to->products > 0) return;
  check_untouched(*p.to, at);
  for (int lane = 0; lane < WARP; lane++) {
    memcpy(p.to->at[lane], &p.to->values[static_cast<size_t>(lane * p.to->n / 2)],
           sizeof(float) * static_cast<size_t>(p.to->n / 2));
  }
  p.to->at[0] = nullptr;  // no longer under way
}

struct wait_argument {
  int left;
  place at;
};

void commit_group(void *const *, uint32_t) {
  warp_products &w = mine();
  w.groups.push_back(std::move(w.open));
  w.open.clear();
  w.fenced = false;
}

void finish_groups(void *const *lanes, uint32_t) {
  warp_products &w = mine();
  const wait_argument wait = *static_cast<wait_argument *>(lanes[0]);
  while (static_cast<int>(w.groups.size()) > wait.left) {
    for (product &p : w.groups.front()) {
      if (!p.done) compute(p, thread_number() / WARP);
    }
    for (const product &p : w.groups.front()) finish(p, wait.at);
    w.groups.pop_front();
  }
  if (w.groups.empty() && w.open.empty()) w.live.clear();
  w.fenced = false;
}

void set_fenced(void *const *, uint32_t) { mine().fenced = true; }

}  // namespace

void wgmma(const warpgroup_product &product, place at) {
  issue mine = {product, at};
  together(~0u, issue_product, &mine, "wgmma", at);
}

void wgmma_fence(place at) { together(~0u, set_fenced, nullptr, "wgmma.fence", at); }

void wgmma_commit(place at) { together(~0u, commit_group, nullptr, "wgmma.commit_group", at); }

void wgmma_wait(int left, place at) {
  wait_argument mine = {left, at};
  together(~0u, finish_groups, &mine, "wgmma.wait_group", at);
}

void hopper_begin_block() {
  copies_begin_block();
  for (warp_products &w : warps) {
    w.fenced = false;
    w.issued = 0;
  }
}

void hopper_end_block() {
  copies_end_block();
  const place here = {__FILE__, __LINE__};
  for (int i = 0; i < WARPS; i++) {
    const warp_products &w = warps[i];
    if (!w.groups.empty() || !w.open.empty()) fail(here, "products are under way at the end");
    if (w.issued != warps[i / GROUP_WARPS * GROUP_WARPS].issued) {
      fail(here, "the warps of warpgroup %d have issued different numbers of products",
           i / GROUP_WARPS);
    }
  }
}

}  // namespace shim
