// SPDX-License-Identifier: Apache-2.0
// Code that runs before the constructors of shared libraries. The environment cannot be set so
// early.
#pragma once

// Calls `function`, of type void (void), before all constructors; where that is impossible, as one.
#if defined(__ELF__) && defined(__GLIBC__)
#define OT_BEFORE_LIBRARIES(function) \
  __attribute__((section(".preinit_array"), used)) static void (*const before_all)(void) = function
#else
#define OT_BEFORE_LIBRARIES(function) \
  __attribute__((constructor)) static void before_all(void) { function(); }
#endif
