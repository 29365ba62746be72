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
  OT_TENSOR_MAP_SWIZZLE_128B = 3,
  OT_TENSOR_MAP_PROMOTION_256B = 3,
};

// Columns of bf16 in 128 bytes, the width of a copied tile.
enum { OT_TENSOR_MAP_COLUMNS = 64 };

// The function of the driver, or null if the device has no tensor memory accelerator.
ot_tensor_map_encode ot_tensor_map_encoder(void);

// The bf16 tensor [sequences, rows, width] at `data`, 16-byte aligned, copied in tiles of one
// sequence, `tile_rows` (at most 256) and 64 columns, with 128-byte swizzling; what lies outside
// of a sequence is zero. width: a multiple of 8. False if the driver refuses.
bool ot_tensor_map_of_rows(ot_tensor_map_encode encode, void *data, const int64_t *dim,
                           int tile_rows, ot_tensor_map *map);
