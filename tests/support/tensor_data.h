// SPDX-License-Identifier: Apache-2.0
// The bytes of tensors in files, for tests that compare them.
#pragma once

#include "checkpoint/safetensors.h"

// The bytes of tensor `index`, as in the file. Valid until the program ends.
const void *tensor_data(const ot_safetensors *set, int index);
