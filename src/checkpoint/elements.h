// SPDX-License-Identifier: Apache-2.0
// Conversion of tensor elements between the types that files and memory hold. Each conversion
// rounds once, to nearest, ties to even; what is too large becomes infinity; NaN stays NaN.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"

// True when elements of `from` can become `to`: equal types, or both real.
bool ot_elements_convertible(ot_dtype from, ot_dtype to);

// Writes source [count] of `from` to `target` [count] of `to`. No overlap, unless the types are
// equal and the pointers too. Pure.
void ot_elements_convert(ot_dtype from, const void *source, ot_dtype to, void *target,
                         int64_t count);
