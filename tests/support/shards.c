// SPDX-License-Identifier: Apache-2.0
// Layouts as in Megatron-LM's indexed_dataset.py and llm.c's data files.
#include "support/shards.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/scratch.h"

typedef struct bytes {
  unsigned char data[1 << 16];
  int64_t length;
} bytes;

static void put(bytes *to, int64_t value, int size) {
  memcpy(to->data + to->length, &value, (size_t)size);
  to->length += size;
}

void shard_write(const char *directory, const char *name, const int32_t *lengths, int count,
                 int offset) {
  bytes *const bin = calloc(1, sizeof *bin);
  bytes *const idx = calloc(1, sizeof *idx);
  memcpy(idx->data, "MMIDIDX\0\0", 9);
  idx->length = 9;
  put(idx, 1, 8);
  put(idx, 8, 1);
  put(idx, count, 8);
  put(idx, count + 1, 8);
  int64_t start = 0;
  for (int i = 0; i < count; i++) put(idx, lengths[i], 4);
  for (int i = 0; i < count; i++) {
    put(idx, start, 8);
    for (int k = 0; k < lengths[i]; k++) put(bin, start / 2 + k + offset, 2);
    start += 2 * lengths[i];
  }
  for (int i = 0; i <= count; i++) put(idx, i, 8);
  char file[128];
  snprintf(file, sizeof file, "%s.bin", name);
  scratch_write(scratch_path(directory, file), bin->data, bin->length);
  snprintf(file, sizeof file, "%s.idx", name);
  scratch_write(scratch_path(directory, file), idx->data, idx->length);
  free(bin);
  free(idx);
}

void shard_write_llmc(const char *directory, const char *name, const int32_t *ids, int count,
                      int wide) {
  bytes *const bin = calloc(1, sizeof *bin);
  put(bin, wide ? 20240801 : 20240520, 4);
  put(bin, wide ? 7 : 1, 4);
  put(bin, count, 4);
  bin->length = 1024;
  for (int i = 0; i < count; i++) put(bin, ids[i], wide ? 4 : 2);
  scratch_write(scratch_path(directory, name), bin->data, bin->length);
  free(bin);
}
