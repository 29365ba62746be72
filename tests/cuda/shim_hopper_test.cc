// SPDX-License-Identifier: Apache-2.0
// run: any machine. Hopper's operations on the emulated device: a product of two tiles against
// plain loops, in each order of threads, layout of operands and way of swizzling, tiles beyond the
// ends of a tensor, and what every misuse says. Prints what is wrong and exits with 1.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cuda/hopper.cuh"
#include "shim_expect.h"

namespace {

// c [64, 64] = a b with a [64, 64], and b [depth, columns] or, by depth, [columns, depth].
enum { SIDE = 64, TILE_BYTES = SIDE * SIDE * 2, THREADS = 128, SHARED_BYTES = 2 * TILE_BYTES };

enum variant {
  BY_DEPTH,
  BY_COLUMN,  // a in registers
  NO_INIT,
  NO_INIT_FENCE,
  INIT_TWICE,
  BARRIER_OVERWRITTEN,
  NO_WAIT_FOR_TILES,
  WRONG_PARITY,
  PARITY_TOO_LATE,
  TOO_MANY_BYTES,
  TOO_FEW_BYTES,
  MISALIGNED_TILE,
  TILE_OUTSIDE,
  NO_PRODUCT_FENCE,
  NO_PRODUCT_WAIT,
  SUMS_TOUCHED,
  OPERAND_TOUCHED,
  THREE_WARPS,
  OPERAND_OUTSIDE,
  NO_SWIZZLE,
  TILE_LEFT,
  OTHER_COUNT,
};

struct problem {
  variant kind;
  int row;      // of the tiles in their tensors
  int columns;  // of a panel
  float *c;
};

void start_tiles(const ot_tensor_map &a, const ot_tensor_map &b, const problem &p,
                 unsigned char *shared, uint64_t *barrier) {
  const int less = p.kind == TOO_FEW_BYTES ? 64 : p.kind == TOO_MANY_BYTES ? -64 : 0;
  const int offset = p.kind == MISALIGNED_TILE ? 512 : p.kind == TILE_OUTSIDE ? TILE_BYTES : 0;
  ot_barrier_expect(barrier, 2 * TILE_BYTES - less);
  for (int column = 0; column < SIDE; column += p.columns) {
    unsigned char *const panel = shared + column * SIDE * 2;
    ot_copy_tile(panel, a, column, p.row, 0, barrier);
    ot_copy_tile(panel + TILE_BYTES + offset, b, column, p.row, 0, barrier);
  }
  if (p.kind == TILE_LEFT) ot_copy_tile(shared, a, 0, 0, 0, barrier);
}

// The lane's registers of 16 columns of a, read as ordinary memory.
template <int COLUMNS>
void read_operand(const unsigned char *a, int k, uint32_t (&to)[4]) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  for (int i = 0; i < 4; i++) {
    const int row = warp * 16 + lane / 4 + i % 2 * 8, column = 16 * k + lane % 4 * 2 + i / 2 * 8;
    const int flip = COLUMNS == 64 ? row % 8 : row / 2 % 4, at = column % COLUMNS * 2 ^ flip << 4;
    const unsigned char *const panel = a + column / COLUMNS * COLUMNS * SIDE * 2;
    memcpy(&to[i], panel + row * COLUMNS * 2 + at, sizeof to[i]);
  }
}

template <int COLUMNS>
void multiply(const problem &p, const unsigned char *a, float (&d)[8][4]) {
  constexpr int PANEL = SIDE * COLUMNS * 2;
  const unsigned char *const b = a + TILE_BYTES;
  uint32_t registers[4][4] = {};
  for (int k = 0; k < 4; k++) read_operand<COLUMNS>(a, k, registers[k]);
  if (p.kind != NO_PRODUCT_FENCE) ot_products_begin();
  for (int k = 0; k < 4; k++) {
    if (p.kind == THREE_WARPS && threadIdx.x >= 96) break;
    const int depth = 16 * k / COLUMNS * PANEL + 16 * k % COLUMNS * 2;
    uint64_t by_depth = ot_operand_by_depth<COLUMNS>(b + depth);
    if (p.kind == NO_SWIZZLE) by_depth &= ~(uint64_t{3} << 62);
    if (p.kind == OPERAND_OUTSIDE) by_depth += TILE_BYTES / 16;
    if (p.kind == BY_COLUMN || p.kind == OPERAND_TOUCHED) {
      ot_multiply_add(d, registers[k],
                      ot_operand_by_column<COLUMNS>(b + 16 * k * COLUMNS * 2, PANEL));
    } else {
      ot_multiply(d, ot_operand_by_depth<COLUMNS>(a + depth), by_depth, k > 0);
    }
  }
  ot_products_end();
  if (p.kind == SUMS_TOUCHED) d[3][1] = 0;
  if (p.kind == OPERAND_TOUCHED) registers[2][1]++;
  if (p.kind != NO_PRODUCT_WAIT) ot_products_wait<0>();
}

void multiply_kernel(const ot_tensor_map a, const ot_tensor_map b, problem p) {
  __shared__ uint64_t barrier;
  OT_SWIZZLED_SHARED(shared);
  if (threadIdx.x == 0) {
    if (p.kind != NO_INIT) ot_barrier_init(&barrier, p.kind == PARITY_TOO_LATE ? 2 : 1);
    if (p.kind == INIT_TWICE) ot_barrier_init(&barrier, 1);
    if (p.kind != NO_INIT_FENCE) ot_barrier_fence();
    if (p.kind == PARITY_TOO_LATE) ot_barrier_arrive(&barrier);
    if (p.kind == BARRIER_OVERWRITTEN) barrier = 1;
  }
  __syncthreads();
  if (threadIdx.x == 0) start_tiles(a, b, p, shared, &barrier);
  if (p.kind == OTHER_COUNT) ot_named_barrier(1, threadIdx.x < 32 ? 64 : 96);
  if (p.kind != NO_WAIT_FOR_TILES) ot_barrier_wait(&barrier, p.kind == WRONG_PARITY);
  if (p.kind == PARITY_TOO_LATE) ot_barrier_wait(&barrier, 1);
  float d[8][4] = {};
  if (p.columns == 64) {
    multiply<64>(p, shared, d);
  } else {
    multiply<32>(p, shared, d);
  }
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  for (int i = 0; i < 32; i++) {
    const int row = warp * 16 + lane / 4 + i % 4 / 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    p.c[row * SIDE + column] = d[i / 4][i % 4];
  }
}

// ---- operands on the host ----

uint16_t bf16_of(int number) {
  const float x = static_cast<float>(number);
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return static_cast<uint16_t>(bits >> 16);
}

// Small whole numbers, exact in bf16 and in every order of sums.
int element(int tensor, int row, int column) {
  return (row * 7 + column * 3 + tensor * 5) % 11 - 5;
}

enum { ROWS = 100 };

std::vector<uint16_t> tensor(int number) {
  std::vector<uint16_t> x;
  for (int r = 0; r < ROWS; r++) {
    for (int c = 0; c < SIDE; c++) x.push_back(bf16_of(element(number, r, c)));
  }
  return x;
}

float expected(variant kind, int first, int row, int column) {
  int sum = 0;
  for (int k = 0; k < SIDE; k++) {
    const int b_row = first + (kind == BY_COLUMN ? k : column);
    const int b_column = kind == BY_COLUMN ? column : k;
    if (first + row >= ROWS || b_row >= ROWS) continue;  // beyond the end
    sum += element(1, first + row, k) * element(2, b_row, b_column);
  }
  return static_cast<float>(sum);
}

ot_tensor_map map_of(const device_array<uint16_t> &x, int columns) {
  const ot_tensor_map_encode encode = ot_tensor_map_encoder();
  const ot_tiled_rows rows = {x.get(), 1, ROWS, SIDE, SIDE, SIDE, columns};
  ot_tensor_map map;
  expect(encode && ot_tensor_map_of_rows(encode, &rows, &map), "no tensor map");
  return map;
}

std::vector<float> product(variant kind, int row, int columns = 64) {
  const device_array<uint16_t> a(tensor(1)), b(tensor(2));
  const device_array<float> c(SIDE * SIDE);
  OT_LAUNCH(multiply_kernel, 1, THREADS, SHARED_BYTES, nullptr, map_of(a, columns),
            map_of(b, columns), (problem{kind, row, columns, c.get()}));
  return c.read();
}

const shim_order orders[] = {SHIM_FORWARD, SHIM_BACKWARD, SHIM_RANDOM};

void products_are_those_of_plain_loops() {
  for (uint64_t seed = 0; seed < 18; seed++) {
    for (const variant kind : {BY_DEPTH, BY_COLUMN}) {
      const int first = seed % 9 < 3 ? 0 : 60, columns = seed < 9 ? 64 : 32;
      shim_set_order(orders[seed % 3], seed);
      const std::vector<float> c = product(kind, first, columns);
      int wrong = 0;
      for (int i = 0; i < SIDE * SIDE; i++) {
        wrong += c[static_cast<size_t>(i)] != expected(kind, first, i / SIDE, i % SIDE);
      }
      expect(wrong == 0, kind == BY_DEPTH ? "a product by depth" : "a product by column");
    }
  }
  shim_set_order(SHIM_FORWARD, 1);
}

void tiles_that_nobody_waits_for_are_named() {
  for (const variant kind : {NO_WAIT_FOR_TILES, WRONG_PARITY}) {
    const std::string words = last_words([&] {
      shim_set_order(SHIM_FORWARD, 1);
      product(kind, 0);
    });
    expect_words(words, "bytes expected and not landed");
  }
}

void misuses_are_named() {
  const struct {
    variant kind;
    shim_order order;
    const char *words;
  } cases[] = {
      {NO_INIT, SHIM_FORWARD, "of a barrier that was not initialised"},
      {NO_INIT_FENCE, SHIM_FORWARD, "of a barrier without a fence after its init"},
      {INIT_TWICE, SHIM_FORWARD, "mbarrier.init of a barrier that is in use"},
      {BARRIER_OVERWRITTEN, SHIM_FORWARD, "of a barrier that was overwritten"},
      {PARITY_TOO_LATE, SHIM_FORWARD, "waits in mbarrier.try_wait at"},
      {TOO_MANY_BYTES, SHIM_FORWARD, "deadlock, no thread can go on"},
      {TOO_FEW_BYTES, SHIM_RANDOM, "deadlock, no thread can go on"},
      {MISALIGNED_TILE, SHIM_FORWARD, "a tile is not 1024-byte aligned"},
      {TILE_OUTSIDE, SHIM_FORWARD, "is not in the 16384 bytes of shared memory"},
      {NO_PRODUCT_FENCE, SHIM_FORWARD, "wgmma without a wgmma.fence"},
      {NO_PRODUCT_WAIT, SHIM_BACKWARD, "products are under way at the end"},
      {SUMS_TOUCHED, SHIM_FORWARD, "sums were written before the wait"},
      {SUMS_TOUCHED, SHIM_BACKWARD, "sums were written before the wait"},
      {OPERAND_TOUCHED, SHIM_RANDOM, "registers of operand a were written before the wait"},
      {THREE_WARPS, SHIM_FORWARD, "have issued different numbers of products"},
      {OPERAND_OUTSIDE, SHIM_FORWARD, "a descriptor of wgmma reaches byte"},
      {NO_SWIZZLE, SHIM_FORWARD, "only swizzling of 128 and of 64 bytes is emulated"},
      {TILE_LEFT, SHIM_BACKWARD, "ends with -8192 bytes expected and not landed"},
      {OTHER_COUNT, SHIM_FORWARD, "bar.sync 1 with 64 threads, while others wait for 96"},
  };
  for (const auto &c : cases) {
    expect_words(last_words([&] {
                   shim_set_order(c.order, 1);
                   product(c.kind, 0);
                 }),
                 c.words);
  }
}

// What the driver refuses.
void tensor_maps_are_checked() {
  const device_array<uint16_t> x(4096);
  const ot_tensor_map_encode encode = ot_tensor_map_encoder();
  const auto is_refused = [&](const ot_tiled_rows &rows) {
    ot_tensor_map map;
    return !ot_tensor_map_of_rows(encode, &rows, &map);
  };
  expect(!is_refused({x.get(), 1, 8, 64, 64, 256, 64}), "a right map is refused");
  expect(!is_refused({x.get(), 1, 8, 64, 64, 256, 32}), "a right map of 32 columns is refused");
  expect(is_refused({x.get(), 1, 8, 64, 64, 257, 64}), "a box of 257 rows");
  expect(is_refused({x.get(), 1, 8, 64, 64, 64, 40}), "a box of 80 bytes in rows of 64");
  expect(is_refused({x.get(), 1, 8, 63, 63, 64, 64}), "rows of 126 bytes");
  expect(is_refused({x.get() + 1, 1, 8, 64, 64, 64, 64}), "an odd address");
}

}  // namespace

int main() {
  products_are_those_of_plain_loops();
  tiles_that_nobody_waits_for_are_named();
  misuses_are_named();
  tensor_maps_are_checked();
  must(cudaGetLastError());
  return num_wrong > 0;
}
