// SPDX-License-Identifier: Apache-2.0
// Keeps every copy, so that tests need not release it.
#include "support/tensor_data.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct kept_copy {
  struct kept_copy *next;
  _Alignas(8) char bytes[];
} kept_copy;

static kept_copy *kept;

const void *tensor_data(const ot_safetensors *set, int index) {
  const ot_safetensors_tensor *const t = ot_safetensors_tensor_at(set, index);
  kept_copy *const copy = malloc(sizeof *copy + (size_t)t->bytes);
  if (copy == NULL ||
      ot_safetensors_read_bytes(set, t->file, t->offset, copy->bytes, t->bytes) != OT_OK) {
    fprintf(stderr, "cannot read tensor %s: %s\n", t->name, ot_fail_message());
    abort();
  }
  copy->next = kept;
  kept = copy;
  return copy->bytes;
}
