// SPDX-License-Identifier: Apache-2.0
// Elements of HF tensors as numbers. fp8 elements (e4m3: no infinities, exponent bias 7) are
// multiplied in fp32 by the scale of their block, as in DeepSeek-AI 2024 (arXiv 2412.19437), sec.
// 3.3, and in transformers.
#include <math.h>
#include <stdlib.h>

#include "checkpoint/elements.h"
#include "checkpoint/weights.h"

enum { BLOCK = 4096, E4M3_VALUES = 256 };  // elements

static float e4m3_to_float(int bits) {
  const int exponent = bits >> 3 & 15, fraction = bits & 7;
  const float sign = (bits & 128) != 0 ? -1.0f : 1.0f;
  if (exponent == 15 && fraction == 7) return NAN;
  if (exponent == 0) return sign * (float)fraction * 0x1p-9f;
  return sign * ldexpf((float)(8 + fraction), exponent - 10);
}

// An fp8 tensor and the scales of some rows of its blocks.
typedef struct scaled_tensor {
  int64_t cols, block_rows, block_cols;
  int64_t scale_row, scale_cols;  // the first row in `scales`, and the length of a row
  float *scales;
  float value[E4M3_VALUES];
} scaled_tensor;

static float scale_at(const scaled_tensor *t, int64_t row, int64_t col) {
  const int64_t scale_row = row / t->block_rows - t->scale_row;
  return t->scales[scale_row * t->scale_cols + col / t->block_cols];
}

// Elements [first, first + count), row by row and block by block.
static void scale_elements(const scaled_tensor *t, int64_t first, int64_t count,
                           const uint8_t *bits, float *out) {
  for (int64_t i = 0; i < count;) {
    const int64_t row = (first + i) / t->cols, col = (first + i) % t->cols;
    const int64_t block_end = (col / t->block_cols + 1) * t->block_cols;
    const int64_t row_end = block_end < t->cols ? block_end : t->cols;
    const int64_t end = i + row_end - col < count ? i + row_end - col : count;
    const float scale = scale_at(t, row, col);
    for (; i < end; i++) out[i] = t->value[bits[i]] * scale;
  }
}

// The scales of rows [row, end) of the tensor.
static ot_status read_scales(const ot_weight_reader *reading, scaled_tensor *t, int64_t row,
                             int64_t end) {
  const int index = reading->source.scales->index;
  t->scale_row = row / t->block_rows;
  const int64_t rows = (end - 1) / t->block_rows + 1 - t->scale_row;
  const ot_safetensors_range range = {index, t->scale_row * t->scale_cols, rows * t->scale_cols};
  t->scales = malloc((size_t)range.count * sizeof *t->scales);
  OT_CHECK(t->scales != NULL, OT_ENVIRONMENT, "out of memory for the scales of an fp8 tensor");
  return ot_checkpoint_fetch(reading->checkpoint, reading->set, range, OT_F32, t->scales);
}

static ot_status read_elements(const ot_weight_reader *reading, const scaled_tensor *t,
                               ot_safetensors_range range, ot_dtype dtype, void *out) {
  uint8_t bits[BLOCK];
  float values[BLOCK];
  for (int64_t done = 0; done < range.count;) {
    const int64_t count = range.count - done < BLOCK ? range.count - done : BLOCK;
    const ot_safetensors_range part = {range.tensor, range.first + done, count};
    OT_TRY(ot_checkpoint_fetch(reading->checkpoint, reading->set, part, OT_F8, bits));
    scale_elements(t, part.first, count, bits, values);
    ot_elements_convert(OT_F32, values, dtype, (char *)out + done * ot_dtype_bytes(dtype), count);
    done += count;
  }
  return OT_OK;
}

static ot_status read_scaled(const ot_weight_reader *reading, ot_safetensors_range range,
                             ot_dtype dtype, void *out) {
  const ot_safetensors *const tensors = ot_checkpoint_tensors(reading->checkpoint, reading->set);
  const ot_block_scales *const scales = reading->source.scales;
  scaled_tensor t = {.cols = ot_safetensors_tensor_at(tensors, range.tensor)->dim[1],
                     .block_rows = scales->rows,
                     .block_cols = scales->cols,
                     .scale_cols = ot_safetensors_tensor_at(tensors, scales->index)->dim[1]};
  if (range.count == 0) return OT_OK;
  for (int i = 0; i < E4M3_VALUES; i++) t.value[i] = e4m3_to_float(i);
  ot_status status =
      read_scales(reading, &t, range.first / t.cols, (range.first + range.count - 1) / t.cols + 1);
  if (status == OT_OK) status = read_elements(reading, &t, range, dtype, out);
  free(t.scales);
  return status;
}

ot_status ot_weight_read(const ot_weight_reader *reading, int64_t first, int64_t count,
                         ot_dtype dtype, void *out) {
  const ot_weight_source *const source = &reading->source;
  const ot_safetensors_range range = {source->index, source->first + first, count};
  OT_TRY(source->scales
             ? read_scaled(reading, range, dtype, out)
             : ot_checkpoint_fetch(reading->checkpoint, reading->set, range, dtype, out));
  if (reading->counted) {
    ot_checkpoint_skip_elements(reading->checkpoint, reading->set, range.tensor, count);
  }
  return OT_OK;
}
