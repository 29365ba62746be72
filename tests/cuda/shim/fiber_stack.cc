// SPDX-License-Identifier: Apache-2.0
#include "fiber_stack.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <sys/mman.h>

#ifdef __has_feature  // clang's way to say what gcc defines
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#elif __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#elif defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif
#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace shim {

namespace {
fiber *previous;  // the fiber that switched last
}

#if defined(__SANITIZE_ADDRESS__)
enum { STACK_BYTES = 512 << 10 };  // red zones make frames larger
static void announce_fiber(fiber *) {}
static void announce_switch(fiber *from, fiber *to) {
  __sanitizer_start_switch_fiber(&from->of_sanitizer, to->bottom, to->bytes);
}
// Also learns the bounds of the OS thread's stack, which only the sanitizer knows.
static void announce_arrival(fiber *here) {
  __sanitizer_finish_switch_fiber(here ? here->of_sanitizer : nullptr, &previous->bottom,
                                  &previous->bytes);
}
#elif defined(__SANITIZE_THREAD__)
enum { STACK_BYTES = 512 << 10 };
static void announce_fiber(fiber *f) { f->of_sanitizer = __tsan_create_fiber(0); }
// A switch orders what both fibers do, as they never run at the same time. Inline, so that it is left
// on the fiber on which it was entered.
static inline __attribute__((always_inline)) void announce_switch(fiber *from, fiber *to) {
  from->of_sanitizer = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(to->of_sanitizer, 0);
}
static void announce_arrival(fiber *) {}
#else
enum { STACK_BYTES = 128 << 10 };
static void announce_fiber(fiber *) {}
static void announce_switch(fiber *, fiber *) {}
static void announce_arrival(fiber *) {}
#endif

#ifdef __x86_64__

extern "C" void shim_swap_stacks(void **save, void *restore);
// The registers that a called function must preserve go onto the old stack and come from the new
// one.
asm(R"(
.text
.p2align 4
.globl shim_swap_stacks
.hidden shim_swap_stacks
.type shim_swap_stacks, @function
shim_swap_stacks:
  leaq -48(%rsp), %rsp
  movq %r15, (%rsp)
  movq %r14, 8(%rsp)
  movq %r13, 16(%rsp)
  movq %r12, 24(%rsp)
  movq %rbp, 32(%rsp)
  movq %rbx, 40(%rsp)
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  movq (%rsp), %r15
  movq 8(%rsp), %r14
  movq 16(%rsp), %r13
  movq 24(%rsp), %r12
  movq 32(%rsp), %rbp
  movq 40(%rsp), %rbx
  leaq 48(%rsp), %rsp
  ret
.size shim_swap_stacks, .-shim_swap_stacks
)");

// Below `top`: a return address of zero, where debuggers stop, `entry`, and six registers.
static void prepare(fiber *f, char *top, void (*entry)()) {
  void **const words = reinterpret_cast<void **>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t{63});
  for (int i = 1; i <= 8; i++) words[-i] = nullptr;
  words[-2] = reinterpret_cast<void *>(entry);
  f->context = words - 8;
}

static void swap_contexts(fiber *from, fiber *to) { shim_swap_stacks(&from->context, to->context); }

#else

static ucontext_t *context_of(fiber *f) {
  if (!f->context) f->context = new ucontext_t();
  return static_cast<ucontext_t *>(f->context);
}

static void prepare(fiber *f, char *top, void (*entry)()) {
  ucontext_t *const context = context_of(f);
  getcontext(context);
  context->uc_stack.ss_sp = const_cast<void *>(f->bottom);
  context->uc_stack.ss_size = top - static_cast<const char *>(f->bottom);
  makecontext(context, entry, 0);
}

static void swap_contexts(fiber *from, fiber *to) { swapcontext(context_of(from), context_of(to)); }

#endif

fiber *fiber_create(void (*entry)(), int number) {
  enum { GUARD_BYTES = 4096, STAGGER_BYTES = 192 };
  void *const memory = mmap(nullptr, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, GUARD_BYTES, PROT_NONE) != 0) {
    fprintf(stderr, "shim: no memory for the stack of a thread\n");
    abort();
  }
  char *const end = static_cast<char *>(memory) + GUARD_BYTES + STACK_BYTES;
  fiber *const f = new (end - sizeof(fiber)) fiber;
  f->bottom = static_cast<char *>(memory) + GUARD_BYTES;
  f->bytes = STACK_BYTES - sizeof(fiber);
  announce_fiber(f);
  prepare(f, end - sizeof(fiber) - number % 20 * STAGGER_BYTES, entry);
  return f;
}

void fiber_switch(fiber *from, fiber *to) {
  previous = from;
  announce_switch(from, to);
  swap_contexts(from, to);
  announce_arrival(from);
}

void fiber_arrived() { announce_arrival(nullptr); }

}  // namespace shim
