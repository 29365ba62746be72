// SPDX-License-Identifier: Apache-2.0
// run: compiled where CMake finds the driver's header. Types and enumerators of tensor_map.h are
// those of cuda.h.
#include <cuda.h>
#include <type_traits>

extern "C" {
#include "kernels/cuda/tensor_map.h"
}

static_assert(sizeof(ot_tensor_map) == sizeof(CUtensorMap), "");
static_assert(alignof(ot_tensor_map) == alignof(CUtensorMap), "");
static_assert(int{OT_TENSOR_MAP_BF16} == int{CU_TENSOR_MAP_DATA_TYPE_BFLOAT16}, "");
static_assert(int{OT_TENSOR_MAP_SWIZZLE_64B} == int{CU_TENSOR_MAP_SWIZZLE_64B}, "");
static_assert(int{OT_TENSOR_MAP_SWIZZLE_128B} == int{CU_TENSOR_MAP_SWIZZLE_128B}, "");
static_assert(int{OT_TENSOR_MAP_PROMOTION_256B} == int{CU_TENSOR_MAP_L2_PROMOTION_L2_256B}, "");
static_assert(int{CU_TENSOR_MAP_INTERLEAVE_NONE} == 0 &&
                  int{CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE} == 0,
              "");

// The driver's function with our map and whole numbers for enumerators.
template <class T>
using ours = std::conditional_t<std::is_enum_v<T>, int, T>;
template <class R, class... A>
constexpr bool is_encode(R (*)(CUtensorMap *, A...)) {
  return sizeof(R) == sizeof(int) &&
         std::is_same_v<int (*)(ot_tensor_map *, ours<A>...), ot_tensor_map_encode>;
}
static_assert(sizeof(CUtensorMapSwizzle) == sizeof(int), "");
static_assert(
    std::is_same_v<decltype(&cuTensorMapEncodeTiled),
                   CUresult (*)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                                const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                                const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill)>,
    "");
static_assert(is_encode(static_cast<decltype(&cuTensorMapEncodeTiled)>(nullptr)), "");
