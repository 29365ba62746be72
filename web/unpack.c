// SPDX-License-Identifier: Apache-2.0
// The WebAssembly program that unpacks the page's parts (squeeze.h): the caller writes the packed
// bytes to place(length, size), calls begin() for the address of the unpacked ones, and
// unpack_bytes(count) until it is 0.
#include "squeeze.h"

#define EXPORT(name) __attribute__((export_name(name)))

enum { WASM_PAGE = 65536 };

extern char __heap_base;

static int32_t packed_length;

// Room for `length` packed bytes, and `size` unpacked ones after them.
EXPORT("place") char *place(int32_t length, int32_t size) {
  const uintptr_t end = (uintptr_t)&__heap_base + (uintptr_t)length + (uintptr_t)size;
  const uintptr_t have = __builtin_wasm_memory_size(0) * WASM_PAGE;
  packed_length = length;
  if (end > have) __builtin_wasm_memory_grow(0, (end - have + WASM_PAGE - 1) / WASM_PAGE);
  return &__heap_base;
}

EXPORT("begin") char *begin(void) {
  char *const out = &__heap_base + packed_length;
  ot_squeeze_unpack_begin((const uint8_t *)&__heap_base, packed_length, (uint8_t *)out);
  return out;
}

EXPORT("unpack_bytes") int32_t unpack_bytes(int32_t count) { return ot_squeeze_unpack(count); }
