// SPDX-License-Identifier: Apache-2.0
#include "support/checkpoint_tensor.h"

ot_status checkpoint_read_tensor(ot_checkpoint *checkpoint, const char *name, ot_dtype dtype,
                                 int64_t elements, void *out) {
  for (int set = 0; set < OT_CHECKPOINT_SETS; set++) {
    const ot_safetensors *const tensors = ot_checkpoint_tensors(checkpoint, (ot_checkpoint_set)set);
    const int index = tensors ? ot_safetensors_find(tensors, name) : -1;
    if (index < 0) continue;
    OT_ASSERT(ot_safetensors_tensor_at(tensors, index)->elements == elements);
    const ot_safetensors_range whole = {index, 0, elements};
    return ot_checkpoint_read_range(checkpoint, (ot_checkpoint_set)set, whole, dtype, out);
  }
  OT_UNREACHABLE();
}
