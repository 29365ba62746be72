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

bool ot_tensor_map_of_rows(ot_tensor_map_encode encode, void *data, const int64_t *dim,
                           int tile_rows, ot_tensor_map *map) {
  enum { RANK = 3, PLAIN = 0, NO_FILL = 0, BYTES = 2 };
  const uint64_t size[RANK] = {(uint64_t)dim[2], (uint64_t)dim[1], (uint64_t)dim[0]};
  const uint64_t stride[RANK - 1] = {size[0] * BYTES, size[0] * size[1] * BYTES};
  const uint32_t box[RANK] = {OT_TENSOR_MAP_COLUMNS, (uint32_t)tile_rows, 1};
  const uint32_t each[RANK] = {1, 1, 1};
  return encode(map, OT_TENSOR_MAP_BF16, RANK, data, size, stride, box, each, PLAIN,
                OT_TENSOR_MAP_SWIZZLE_128B, OT_TENSOR_MAP_PROMOTION_256B, NO_FILL) == 0;
}
