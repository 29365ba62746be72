// SPDX-License-Identifier: Apache-2.0
// Tensor maps: what the tensor memory accelerator of a GPU (Hopper) needs to know of a tensor to
// copy tiles of it. The driver encodes them; its function is looked up at run time, so that the
// program needs no driver to start.
#pragma once

#include <stdbool.h>
#include <stdint.h>

// cuda.h's CUtensorMap: opaque, passed to kernels by value.
typedef struct ot_tensor_map {
  uint64_t words[16];
} __attribute__((aligned(128))) ot_tensor_map;

// cuTensorMapEncodeTiled with whole numbers for its enumerators; 0 on success.
typedef int (*ot_tensor_map_encode)(ot_tensor_map *map, int type, uint32_t rank, void *base,
                                    const uint64_t *dim, const uint64_t *stride,
                                    const uint32_t *box, const uint32_t *element_stride,
                                    int interleave, int swizzle, int promotion, int fill);

// cuda.h's values of those that are used.
enum {
  OT_TENSOR_MAP_BF16 = 9,
  OT_TENSOR_MAP_SWIZZLE_64B = 2,
  OT_TENSOR_MAP_SWIZZLE_128B = 3,
  OT_TENSOR_MAP_PROMOTION_256B = 3,
};

// The function of the driver, or null if the device has no tensor memory accelerator.
ot_tensor_map_encode ot_tensor_map_encoder(void);

// A bf16 tensor [sequences, rows, columns], and the tiles of one sequence that are copied.
typedef struct ot_tiled_rows {
  const void *data;  // 16-byte aligned
  int64_t sequences, rows, columns;
  int64_t step;      // elements from row to row, a multiple of 8
  int tile_rows;     // at most 256
  int tile_columns;  // 64, with 128-byte swizzling, or 32, with 64-byte swizzling
} ot_tiled_rows;

// Elements outside of a sequence are copied as zeros. False if the driver refuses.
bool ot_tensor_map_of_rows(ot_tensor_map_encode encode, const ot_tiled_rows *tensor,
                           ot_tensor_map *map);
