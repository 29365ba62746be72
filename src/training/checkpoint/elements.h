// SPDX-License-Identifier: Apache-2.0
// Conversion of tensor elements between file and memory dtypes. Each conversion rounds once, to
// nearest, ties to even; overflow becomes infinity; NaN stays NaN.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"

// True if elements of `from` can be converted to `to`: equal dtypes, or both real.
bool ot_elements_convertible(ot_dtype from, ot_dtype to);

// Converts source [count] of `from` to target [count] of `to`. No overlap, unless dtypes and
// pointers are equal. Pure.
void ot_elements_convert(ot_dtype from, const void *source, ot_dtype to, void *target,
                         int64_t count);
