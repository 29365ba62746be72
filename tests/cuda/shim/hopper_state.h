// SPDX-License-Identifier: Apache-2.0
// What the two parts of hopper.h share (C++17, private to the shim).
#pragma once

#include <cstdint>

namespace shim {

// Where swizzling puts an address in rows of 128 or 64 bytes: its bits from 4 on, three or two, are
// exchanged by those from 7 on.
inline uint64_t swizzled_address(uint64_t address, uint32_t row) {
  return address ^ (address >> 7 & (row / 16 - 1)) << 4;
}

// At the start and at the end of a block.
void copies_begin_block();
void copies_end_block();

}  // namespace shim
