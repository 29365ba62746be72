// SPDX-License-Identifier: Apache-2.0
// Tensors of a checkpoint by their names.
#pragma once

#include "checkpoint/checkpoint.h"

// Reads tensor `name` of either set, which has `elements` elements. Errors as
// ot_checkpoint_read_range.
ot_status checkpoint_read_tensor(ot_checkpoint *checkpoint, const char *name, ot_dtype dtype,
                                 int64_t elements, void *out);
