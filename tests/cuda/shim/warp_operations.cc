// SPDX-License-Identifier: Apache-2.0
#include "cuda_runtime.h"

namespace shim {

namespace {

struct exchange {
  uint64_t bits;
  int from;
  uint64_t result;
};

exchange &of(void *argument) { return *static_cast<exchange *>(argument); }

void move_bits(void *const *arguments, uint32_t mask) {
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    exchange &mine = of(arguments[__builtin_ctz(left)]);
    mine.result = of(arguments[mine.from]).bits;
  }
}

uint32_t lanes_that_say_yes(void *const *arguments, uint32_t mask) {
  uint32_t yes = 0;
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    yes |= static_cast<uint32_t>(of(arguments[lane]).bits) << lane;
  }
  return yes;
}

void count_votes(void *const *arguments, uint32_t mask) {
  const uint32_t yes = lanes_that_say_yes(arguments, mask);
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    of(arguments[__builtin_ctz(left)]).result = yes;
  }
}

}  // namespace

uint64_t shuffle_bits(uint32_t mask, uint64_t bits, int from, const char *name, place at) {
  if (from < 0 || from >= warpSize || !(mask >> from & 1)) {
    fail(at, "%s with mask %08x reads lane %d, which the mask leaves out", name, mask, from);
  }
  exchange mine = {bits, from, 0};
  together(mask, move_bits, &mine, name, at);
  return mine.result;
}

uint32_t ballot(uint32_t mask, bool predicate, const char *name, place at) {
  exchange mine = {predicate, 0, 0};
  together(mask, count_votes, &mine, name, at);
  return static_cast<uint32_t>(mine.result);
}

}  // namespace shim
