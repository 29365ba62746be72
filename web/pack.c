// SPDX-License-Identifier: Apache-2.0
// pack FILE PACKED: packs a file for the page (squeeze.h). The code section of a module, which may
// stand after a text, is modelled as instructions.
#include <stdio.h>
#include <string.h>

#include "squeeze.h"

enum { MOST_BYTES = 1 << 22 };

static uint8_t bytes[MOST_BYTES], packed[MOST_BYTES], again[MOST_BYTES];

// A number of up to 32 bits, seven in each byte.
static int64_t number_at(int64_t *at) {
  int64_t value = 0;
  for (int shift = 0; shift < 35; shift += 7) {
    const uint8_t byte = bytes[(*at)++];
    value |= (int64_t)(byte & 127) << shift;
    if (byte < 128) break;
  }
  return value;
}

// The bodies of the functions of a module.
static void find_code(ot_squeeze *of) {
  static const char magic[] = "\0asm";
  enum { HEAD = 8, CODE = 10 };
  const int64_t text = (int64_t)strlen((const char *)bytes);
  if (text + HEAD > of->size || memcmp(bytes + text, magic, 4) != 0) return;
  for (int64_t at = text + HEAD; at + 1 < of->size;) {
    const uint8_t section = bytes[at++];
    const int64_t length = number_at(&at), end = at + length;
    if (section == CODE && end <= of->size) {
      number_at(&at);  // of functions
      of->code_from = at;
      of->code_to = end;
    }
    at = end;
  }
}

static int fail(const char *what, const char *path) {
  fprintf(stderr, "pack: %s: %s\n", path, what);
  return 3;
}

int main(int argc, char **argv) {
  if (argc != 3) return fail("usage", "pack FILE PACKED");
  FILE *const in = fopen(argv[1], "rb");
  if (!in) return fail("cannot be read", argv[1]);
  ot_squeeze of = {.bytes = bytes, .size = (int64_t)fread(bytes, 1, sizeof bytes, in)};
  fclose(in);
  find_code(&of);
  const int64_t length = ot_squeeze_pack(&of, packed, sizeof packed);
  if (length < 0 || of.size == sizeof bytes) return fail("too large", argv[1]);
  ot_squeeze_unpack_begin(packed, length, again);
  while (ot_squeeze_unpack(of.size)) continue;
  if (memcmp(bytes, again, (size_t)of.size) != 0) return fail("does not unpack to itself", argv[1]);
  FILE *const out = fopen(argv[2], "wb");
  if (!out || fwrite(packed, 1, (size_t)length, out) != (size_t)length || fclose(out) != 0)
    return fail("cannot be written", argv[2]);
  return 0;
}
