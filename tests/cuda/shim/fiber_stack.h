// SPDX-License-Identifier: Apache-2.0
// Fibers: stacks of their own that one OS thread switches between. A switch costs some ten
// instructions on x86-64 and a ucontext swap elsewhere. Sanitizers are told of every switch.
#pragma once

#include <cstddef>

namespace shim {

struct fiber {
  void *context = nullptr;  // registers of a fiber that does not run
  const void *bottom = nullptr;
  size_t bytes = 0;
  void *of_sanitizer = nullptr;  // AddressSanitizer's stack or ThreadSanitizer's fiber
};

// A fiber that will run `entry`, which must not return, when it is first switched to. The page
// below its stack is not accessible. `number` staggers the tops of stacks, so that they do not fall
// into the same sets of the cache. Fibers live until the process ends.
fiber *fiber_create(void (*entry)(), int number);

// Saves the running code in `from` and continues `to`. `from` may be an empty fiber that stands for
// the stack of the OS thread.
void fiber_switch(fiber *from, fiber *to);

// The first call in an `entry`.
void fiber_arrived();

}  // namespace shim
