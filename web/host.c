// SPDX-License-Identifier: Apache-2.0
// The WebAssembly module: memory, mem*, and the exports of src/planner/web/web.h. It imports
// nothing. The caller writes a request of `length` bytes to page_request(), calls
// page_call(length), and reads page_length() bytes at the address that it returns.
//
// Blocks of arenas come from the end of the memory. Those of a call are used again by later calls;
// a new plan takes back all blocks.
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/status.h"
#include "graph/program_check.h"
#include "web/web.h"

#define EXPORT(name) __attribute__((export_name(name)))

enum { WASM_PAGE = 65536, ALIGNMENT = 64, MOST_BLOCKS = 1024, REQUEST_BYTES = 1 << 20 };

// ---- mem*: instructions of WebAssembly, but for the comparison ----

void *memcpy(void *restrict to, const void *restrict from, size_t bytes) {
  return __builtin_memcpy(to, from, bytes);
}

void *memmove(void *to, const void *from, size_t bytes) {
  return __builtin_memmove(to, from, bytes);
}

void *memset(void *to, int byte, size_t bytes) { return __builtin_memset(to, byte, bytes); }

int memcmp(const void *a, const void *b, size_t bytes) {
  const unsigned char *const x = a, *const y = b;
  for (size_t i = 0; i < bytes; i++) {
    if (x[i] != y[i]) return x[i] - y[i];
  }
  return 0;
}

// ---- the product of 128 bits, which compilers take from their library ----

__int128 __multi3(__int128 a, __int128 b);

static unsigned __int128 product(uint64_t a, uint64_t b) {
  const uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
  const uint64_t low = a0 * b0, middle = a1 * b0 + (low >> 32);
  const uint64_t cross = a0 * b1 + (uint32_t)middle;
  const uint64_t high = a1 * b1 + (middle >> 32) + (cross >> 32);
  return (unsigned __int128)high << 64 | (cross << 32 | (uint32_t)low);
}

__int128 __multi3(__int128 a, __int128 b) {
  const unsigned __int128 x = (unsigned __int128)a, y = (unsigned __int128)b;
  const uint64_t x0 = (uint64_t)x, x1 = (uint64_t)(x >> 64);
  const uint64_t y0 = (uint64_t)y, y1 = (uint64_t)(y >> 64);
  return (__int128)(product(x0, y0) + ((unsigned __int128)(x1 * y0 + x0 * y1) << 64));
}

// ---- bugs, without texts: the worker's answer says that the planner stopped ----

void ot_fail_trace(const char *function) { (void)function; }

void ot_fail_trace_clear(void) {}

_Noreturn void ot_panic(const char *file, int line, const char *text) {
  (void)file, (void)line, (void)text;
  __builtin_trap();
}

_Noreturn void ot_panic_memory(int64_t bytes) {
  (void)bytes;
  __builtin_trap();
}

// ---- a proof that the program makes of the same graphs ----

ot_status ot_program_check(const ot_program *program, ot_arena *scratch) {
  (void)program, (void)scratch;
  return OT_OK;
}

// ---- blocks ----

typedef struct block {
  char *start;
  int64_t bytes;
  bool used;
} block;

// The state of the module.
static struct {
  char *base, *top;  // blocks are in [base, top)
  block call[MOST_BLOCKS];
  int num_call;
  ot_web *web;
  ot_web_answer answer;
  char request[REQUEST_BYTES];
} page;

extern char __heap_base;

static void *take_block(void *context, int64_t bytes) {
  (void)context;
  char *const start = page.top;
  const int64_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  const int64_t end = (int64_t)(uintptr_t)start + rounded;
  const int64_t have = (int64_t)__builtin_wasm_memory_size(0) * WASM_PAGE;
  const int64_t missing = end > have ? (end - have + WASM_PAGE - 1) / WASM_PAGE : 0;
  if (end > INT32_MAX) return NULL;
  if (missing > 0 && __builtin_wasm_memory_grow(0, (size_t)missing) == (size_t)-1) return NULL;
  page.top = start + rounded;
  return start;
}

static void release_plan(void *context) {
  (void)context;
  page.top = page.base;
  page.num_call = 0;
}

static void *take_call_block(void *context, int64_t bytes) {
  for (int i = 0; i < page.num_call; i++) {
    if (page.call[i].used || page.call[i].bytes < bytes) continue;
    page.call[i].used = true;
    return page.call[i].start;
  }
  char *const start = take_block(context, bytes);
  if (start && page.num_call < MOST_BLOCKS)
    page.call[page.num_call++] = (block){start, bytes, true};
  return start;
}

static void release_call(void *context) {
  (void)context;
  for (int i = 0; i < page.num_call; i++) page.call[i].used = false;
}

// ---- exports ----

EXPORT("page_request") char *page_request(void) { return page.request; }

EXPORT("page_length") int32_t page_length(void) { return (int32_t)page.answer.length; }

EXPORT("page_call") const char *page_call(int32_t length) {
  if (!page.web) {
    page.top = &__heap_base;
    ot_arena own = ot_arena_from(take_block, NULL);
    page.web = ot_web_create(&own, (ot_web_memory){take_block, release_plan, NULL},
                             (ot_web_memory){take_call_block, release_call, NULL});
    page.base = page.top;
  }
  page.answer =
      ot_web_call(page.web, page.request, length < REQUEST_BYTES ? length : REQUEST_BYTES);
  return page.answer.text;
}
