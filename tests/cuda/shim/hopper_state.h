// SPDX-License-Identifier: Apache-2.0
// What the two parts of hopper.h do at the start and end of a block (C++17, private to the shim).
#pragma once

namespace shim {

void copies_begin_block();
void copies_end_block();

}  // namespace shim
