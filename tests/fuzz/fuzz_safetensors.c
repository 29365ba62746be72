// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file. Mutations change its JSON and keep the length before it and the
// size of the data behind it consistent, which random bytes almost never are.
#include <string.h>

#include "base/text.h"
#include "checkpoint/safetensors_header.h"
#include "fuzz/fuzz.h"

enum { LENGTH_BYTES = 8, DATA_BYTES_MAX = 4096, WRITTEN_BYTES_MAX = 1 << 16 };

static void require_tiled(const ot_safetensors_header *header, int64_t file_bytes) {
  int64_t sum = 0;
  for (int i = 0; i < header->num_tensors; i++) {
    const ot_safetensors_tensor *const tensor = &header->tensors[i];
    sum += tensor->bytes;
    fuzz_require(tensor->offset >= LENGTH_BYTES && tensor->bytes >= 0 &&
                     tensor->offset <= file_bytes - tensor->bytes,
                 "a tensor lies inside its file");
    fuzz_require(i == 0 || ot_text_compare(tensor[-1].name, tensor->name) < 0,
                 "tensors are sorted by name");
  }
  fuzz_require(sum <= file_bytes, "tensors do not overlap");
}

static void require_same_again(const ot_safetensors_header *header, ot_arena *arena) {
  ot_safetensors_header_text text;
  ot_safetensors_header again;
  int *const order = ot_arena_array(arena, header->num_tensors, sizeof *order);
  ot_safetensors_header_print(arena, header->tensors, header->num_tensors, order, &text);
  fuzz_require(
      ot_safetensors_header_build(arena, "again", text.bytes, text.file_bytes, &again) == OT_OK &&
          again.num_tensors == header->num_tensors,
      "a header that is written is read again");
}

ot_status fuzz_one(const uint8_t *data, size_t size, ot_arena *arena) {
  ot_safetensors_header header;
  OT_TRY(ot_safetensors_header_build(arena, "input", data, (int64_t)size, &header));
  require_tiled(&header, (int64_t)size);
  if (size <= WRITTEN_BYTES_MAX) require_same_again(&header, arena);
  return OT_OK;
}

// The largest number of the text that may be a size of the data.
static size_t data_bytes(const uint8_t *text, size_t size) {
  size_t most = 0, number = 0;
  for (size_t i = 0; i < size; i++) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    number = digit && number <= DATA_BYTES_MAX ? 10 * number + (size_t)(text[i] - '0') : 0;
    if (number > most && number <= DATA_BYTES_MAX) most = number;
  }
  return most;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t capacity, unsigned seed) {
  if (seed % 16 == 0 || size < LENGTH_BYTES || capacity < LENGTH_BYTES + DATA_BYTES_MAX)
    return LLVMFuzzerMutate(data, size, capacity);
  uint64_t length = 0;
  for (int i = LENGTH_BYTES - 1; i >= 0; i--) length = length << 8 | data[i];
  if (length > size - LENGTH_BYTES) length = size - LENGTH_BYTES;
  uint8_t *const text = data + LENGTH_BYTES;
  length = LLVMFuzzerMutate(text, (size_t)length, capacity - LENGTH_BYTES - DATA_BYTES_MAX);
  for (int i = 0; i < LENGTH_BYTES; i++) data[i] = (uint8_t)(length >> 8 * i);
  const size_t behind = data_bytes(text, (size_t)length);
  memset(text + length, 0, behind);
  return LENGTH_BYTES + (size_t)length + behind;
}
