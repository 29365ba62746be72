// SPDX-License-Identifier: Apache-2.0
// Barriers in memory, named barriers and copies of tiles.
#include <cstring>
#include <map>
#include <vector>

#include "hopper.h"
#include "hopper_state.h"

namespace shim {

namespace {

constexpr uint64_t barrier_cookie = 0x7265697272616221u, map_magic = 0x70616d726f736e65u;
enum { NAMED_BARRIERS = 16, SWIZZLE_ROWS = 8, CHUNK = 16 };

struct memory_barrier {
  int count, pending;
  int64_t bytes;  // expected and not landed
  uint64_t phase;
  bool fenced;
  std::vector<int> waiting;
};

struct tile_copy {
  unsigned char *to;
  tensor_map map;
  int64_t first[TENSOR_MAP_DIMS];
  uint64_t *barrier;
};

struct meeting {
  int threads;
  std::vector<int> waiting;
};

std::map<uint64_t *, memory_barrier> barriers;
std::vector<tile_copy> under_way;
meeting meetings[NAMED_BARRIERS];

memory_barrier &find_barrier(uint64_t *barrier, const char *name, place at) {
  const auto found = barriers.find(barrier);
  if (found == barriers.end()) fail(at, "%s of a barrier that was not initialised", name);
  if (*barrier != barrier_cookie) fail(at, "%s of a barrier that was overwritten", name);
  if (!found->second.fenced) fail(at, "%s of a barrier without a fence after its init", name);
  return found->second;
}

void end_phase_if_complete(memory_barrier &b) {
  if (b.pending > 0 || b.bytes != 0) return;
  b.phase++;
  b.pending = b.count;
  const std::vector<int> waiting = std::move(b.waiting);
  b.waiting.clear();
  for (const int thread : waiting) wake(thread);
}

int64_t box_bytes(const tensor_map &map) {
  int64_t bytes = 2;
  for (uint32_t i = 0; i < map.rank; i++) bytes *= map.box[i];
  return bytes;
}

// The address of 16 bytes in rows of `bytes`.
unsigned char *swizzled(unsigned char *to, uint32_t bytes) {
  const uint64_t address = static_cast<uint64_t>(to - dynamic_shared());
  return dynamic_shared() + swizzled_address(address, bytes);
}

// Copies the innermost run of a box; `place`: its coordinates.
void copy_run(const tile_copy &copy, const int64_t *place, int64_t at) {
  const tensor_map &map = copy.map;
  int64_t offset = 0;
  bool inside = true;
  for (uint32_t i = 1; i < map.rank; i++) {
    inside &= place[i] >= 0 && static_cast<uint64_t>(place[i]) < map.dim[i];
    offset += place[i] * static_cast<int64_t>(map.stride[i - 1]);
  }
  for (int k = 0; k < map.box[0]; k++) {
    const int64_t x = place[0] + k, byte = at + 2 * k;
    unsigned char *const chunk = copy.to + byte / CHUNK * CHUNK;
    unsigned char *const to =
        (map.swizzled ? swizzled(chunk, map.swizzled) : chunk) + byte % CHUNK;
    if (inside && x >= 0 && static_cast<uint64_t>(x) < map.dim[0]) {
      memcpy(to, map.base + offset + 2 * x, 2);
    } else {
      memset(to, 0, 2);
    }
  }
}

void land(const tile_copy &copy) {
  const tensor_map &map = copy.map;
  const int64_t run = 2 * map.box[0], runs = box_bytes(map) / run;
  for (int64_t r = 0; r < runs; r++) {
    int64_t place[TENSOR_MAP_DIMS] = {copy.first[0]}, rest = r;
    for (uint32_t i = 1; i < map.rank; i++) {
      place[i] = copy.first[i] + rest % map.box[i];
      rest /= map.box[i];
    }
    copy_run(copy, place, r * run);
  }
  memory_barrier &b = barriers[copy.barrier];
  b.bytes -= box_bytes(map);
  end_phase_if_complete(b);
}

void land_at(size_t i) {
  const tile_copy copy = under_way[i];
  under_way.erase(under_way.begin() + static_cast<long>(i));
  land(copy);
}

// In random order, tiles land at any time.
void maybe_land() {
  while (thread_order() == SHIM_RANDOM && !under_way.empty() && random_below(4) == 0) {
    land_at(random_below(static_cast<uint32_t>(under_way.size())));
  }
}

}  // namespace

// ---- barriers in memory ----

void mbarrier_init(uint64_t *barrier, int count, place at) {
  if (count < 1) fail(at, "mbarrier.init with count %d", count);
  if (barriers.count(barrier) > 0) fail(at, "mbarrier.init of a barrier that is in use");
  barriers[barrier] = {count, count, 0, 0, false, {}};
  *barrier = barrier_cookie;
}

void mbarrier_fence_init() {
  for (auto &b : barriers) b.second.fenced = true;
}

void mbarrier_arrive(uint64_t *barrier, place at) { mbarrier_expect(barrier, 0, at); }

void mbarrier_expect(uint64_t *barrier, int bytes, place at) {
  memory_barrier &b = find_barrier(barrier, "mbarrier.arrive", at);
  b.pending--;
  b.bytes += bytes;
  end_phase_if_complete(b);
  maybe_land();
}

void mbarrier_wait(uint64_t *barrier, int parity, place at) {
  maybe_land();
  memory_barrier &b = find_barrier(barrier, "mbarrier.try_wait", at);
  if (static_cast<int>(b.phase & 1) != parity) return;
  const uint64_t phase = b.phase;
  b.waiting.push_back(thread_number());
  park("mbarrier.try_wait", at);
  if (find_barrier(barrier, "mbarrier.try_wait", at).phase != phase + 1) {
    fail(at, "a barrier went on by two phases before this thread saw the first one end");
  }
}

void named_barrier(int number, int threads, place at) {
  if (number < 0 || number >= NAMED_BARRIERS || threads % warpSize != 0) {
    fail(at, "bar.sync %d, %d: numbers are below 16, counts whole warps", number, threads);
  }
  meeting &m = meetings[number];
  if (m.waiting.empty()) m.threads = threads;
  if (m.threads != threads) {
    fail(at, "bar.sync %d with %d threads, while others wait for %d", number, threads, m.threads);
  }
  if (static_cast<int>(m.waiting.size()) + 1 < threads) {
    m.waiting.push_back(thread_number());
    park("bar.sync", at);
    return;
  }
  const std::vector<int> waiting = std::move(m.waiting);
  m.waiting.clear();
  for (const int thread : waiting) wake(thread);
}

// ---- copies of tiles ----

namespace {

bool accepts_shape(uint32_t rank, const uint64_t *dim, const uint64_t *stride, const uint32_t *box,
                   const uint32_t *element_stride) {
  for (uint32_t i = 0; i < rank; i++) {
    if (dim[i] < 1 || dim[i] > uint64_t{1} << 32 || box[i] < 1 || box[i] > 256) return false;
    if (element_stride[i] != 1) return false;
    if (i > 0 && (stride[i - 1] % 16 != 0 || stride[i - 1] >= uint64_t{1} << 40)) return false;
  }
  return box[0] * 2 % 16 == 0;
}

}  // namespace

int encode_tensor_map(void *map, int type, uint32_t rank, void *base, const uint64_t *dim,
                      const uint64_t *stride, const uint32_t *box, const uint32_t *element_stride,
                      int interleave, int swizzle, int promotion, int fill) {
  enum { BF16 = 9, PLAIN = 0, SWIZZLE_64B = 2, SWIZZLE_128B = 3, PROMOTIONS = 4 };
  const bool known = type == BF16 && interleave == 0 && fill == 0 &&
                     (swizzle == PLAIN || swizzle == SWIZZLE_64B || swizzle == SWIZZLE_128B) &&
                     promotion >= 0 && promotion < PROMOTIONS;
  const bool aligned =
      reinterpret_cast<uint64_t>(map) % 64 == 0 && reinterpret_cast<uint64_t>(base) % 16 == 0;
  if (!known || !aligned || !base || rank < 1 || rank > TENSOR_MAP_DIMS) return 1;
  if (!accepts_shape(rank, dim, stride, box, element_stride)) return 1;
  const uint32_t row = swizzle == SWIZZLE_128B ? 128 : swizzle == SWIZZLE_64B ? 64 : 0;
  if (row > 0 && box[0] * 2 > row) return 1;
  tensor_map m = {map_magic, static_cast<unsigned char *>(base), rank, row, {}, {}, {}};
  for (uint32_t i = 0; i < rank; i++) {
    m.dim[i] = dim[i];
    m.box[i] = static_cast<uint16_t>(box[i]);
    if (i > 0) m.stride[i - 1] = stride[i - 1];
  }
  memset(map, 0, TENSOR_MAP_WORDS * sizeof(uint64_t));
  memcpy(map, &m, sizeof m);
  return 0;
}

void copy_tile(void *shared, const void *map, const int *first, int rank, uint64_t *barrier,
               place at) {
  tile_copy copy = {static_cast<unsigned char *>(shared), {}, {}, barrier};
  memcpy(&copy.map, map, sizeof copy.map);
  if (copy.map.magic != map_magic) fail(at, "cp.async.bulk.tensor with no tensor map");
  if (static_cast<int>(copy.map.rank) != rank) {
    fail(at, "cp.async.bulk.tensor of %d dimensions with a map of %u", rank, copy.map.rank);
  }
  const int64_t offset = copy.to - dynamic_shared(), bytes = box_bytes(copy.map);
  const int alignment =
      copy.map.swizzled ? static_cast<int>(copy.map.swizzled) * SWIZZLE_ROWS : 128;
  if (offset % alignment != 0) fail(at, "a tile is not %d-byte aligned", alignment);
  if (offset < 0 || offset + bytes > static_cast<int64_t>(dynamic_shared_bytes())) {
    fail(at, "a tile of %lld bytes at byte %lld is not in the %zu bytes of shared memory",
         static_cast<long long>(bytes), static_cast<long long>(offset), dynamic_shared_bytes());
  }
  find_barrier(barrier, "cp.async.bulk.tensor", at);
  for (int i = 0; i < rank; i++) copy.first[i] = first[i];
  memset(copy.to, 0xFF, static_cast<size_t>(bytes));
  under_way.push_back(copy);
  if (thread_order() == SHIM_BACKWARD) land_at(under_way.size() - 1);
  maybe_land();
}

// ---- blocks ----

bool hopper_land_one() {
  if (under_way.empty()) return false;
  land_at(0);
  return true;
}

void copies_begin_block() {
  barriers.clear();
  for (meeting &m : meetings) m.waiting.clear();
}

void copies_end_block() {
  for (const auto &b : barriers) {
    if (b.second.bytes == 0) continue;
    fail({__FILE__, __LINE__}, "a barrier ends with %lld bytes expected and not landed",
         static_cast<long long>(b.second.bytes));
  }
  if (!under_way.empty()) {
    fail({__FILE__, __LINE__}, "%zu tiles are under way when the block ends", under_way.size());
  }
}

}  // namespace shim
