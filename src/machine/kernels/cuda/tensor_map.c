// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/tensor_map.h"

#include <cuda_runtime_api.h>
#include <stddef.h>

enum { HOPPER = 9, ENCODE_VERSION = 12000 };  // the CUDA version that has cuTensorMapEncodeTiled

static bool device_is_hopper(void) {
  int device = 0, major = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return false;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess) {
    return false;
  }
  return major == HOPPER;
}

ot_tensor_map_encode ot_tensor_map_encoder(void) {
  void *found = NULL;
  enum cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  if (!device_is_hopper()) return NULL;
  const cudaError_t error = cudaGetDriverEntryPointByVersion(
      "cuTensorMapEncodeTiled", &found, ENCODE_VERSION, cudaEnableDefault, &result);
  if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) return NULL;
  return (ot_tensor_map_encode)(uintptr_t)found;
}

bool ot_tensor_map_of_rows(ot_tensor_map_encode encode, const ot_tiled_rows *tensor,
                           ot_tensor_map *map) {
  enum { RANK = 3, PLAIN = 0, NO_FILL = 0, BYTES = 2, WIDEST = 64 };
  const uint64_t size[RANK] = {(uint64_t)tensor->columns, (uint64_t)tensor->rows,
                               (uint64_t)tensor->sequences};
  const uint64_t step = (uint64_t)tensor->step * BYTES;
  const uint64_t stride[RANK - 1] = {step, step * size[1]};
  const uint32_t box[RANK] = {(uint32_t)tensor->tile_columns, (uint32_t)tensor->tile_rows, 1};
  const uint32_t each[RANK] = {1, 1, 1};
  const int swizzle =
      tensor->tile_columns == WIDEST ? OT_TENSOR_MAP_SWIZZLE_128B : OT_TENSOR_MAP_SWIZZLE_64B;
  return encode(map, OT_TENSOR_MAP_BF16, RANK, (void *)(uintptr_t)tensor->data, size, stride, box,
                each, PLAIN, swizzle, OT_TENSOR_MAP_PROMOTION_256B, NO_FILL) == 0;
}
