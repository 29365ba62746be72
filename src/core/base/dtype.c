// SPDX-License-Identifier: Apache-2.0
// The table of element types.
#include "base/dtype.h"

#include <assert.h>
#include <stddef.h>

#include "base/text.h"

typedef struct dtype_row {
  const char *name;
  const char *hf_name;
  int64_t bytes;
  bool real;
} dtype_row;

static const dtype_row rows[] = {
    [OT_F32] = {"fp32", "float32", 4, true},   [OT_F64] = {"fp64", "float64", 8, true},
    [OT_BF16] = {"bf16", "bfloat16", 2, true}, [OT_F16] = {"fp16", "float16", 2, true},
    [OT_I32] = {"int32", "int32", 4, false},   [OT_I64] = {"int64", "int64", 8, false},
    [OT_U8] = {"uint8", "uint8", 1, false},    [OT_F8] = {"fp8", "float8_e4m3fn", 1, false},
};
static_assert(sizeof rows / sizeof rows[0] == OT_DTYPE_COUNT, "one row for each dtype");

int64_t ot_dtype_bytes(ot_dtype dtype) { return rows[dtype].bytes; }

const char *ot_dtype_name(ot_dtype dtype) { return rows[dtype].name; }

bool ot_dtype_parse(const char *text, ot_dtype *dtype) {
  for (int i = 0; i < OT_DTYPE_COUNT; i++) {
    if (!ot_text_equal(text, rows[i].name) && !ot_text_equal(text, rows[i].hf_name)) continue;
    *dtype = (ot_dtype)i;
    return true;
  }
  return false;
}

bool ot_dtype_is_real(ot_dtype dtype) { return rows[dtype].real; }

double ot_dtype_roundoff(ot_dtype dtype) {
  return dtype == OT_BF16  ? 0x1p-9
         : dtype == OT_F16 ? 0x1p-12
         : dtype == OT_F64 ? 0x1p-53
                           : 0x1p-24;
}
