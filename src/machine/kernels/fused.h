// SPDX-License-Identifier: Apache-2.0
// a * b + c. Sources are compiled without contraction (CMakeLists.txt): a compiler that may fuse
// products and sums does so in some loops and not in others, by the processor that it tunes for,
// and then two paths that compute the same value differ in bits. So a kernel writes the fused
// operation where it means it. It rounds once where the target has the instruction; elsewhere it is
// a product and a sum, since a call of libm would be a hundred times slower. Which of the two
// depends on the target alone.
#pragma once

#include "kernels/real.h"

#if defined(__FMA__) || defined(__AVX512F__) || defined(__ARM_FEATURE_FMA)
static inline float ot_fused_f32(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline double ot_fused_f64(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
static inline float ot_fused_f32(float a, float b, float c) { return a * b + c; }
static inline double ot_fused_f64(double a, double b, double c) { return a * b + c; }
#endif

// The largest vectors of the target.
#if defined(__AVX512F__)
enum { OT_VECTOR_BYTES = 64 };
#elif defined(__AVX__)
enum { OT_VECTOR_BYTES = 32 };
#else
enum { OT_VECTOR_BYTES = 16 };
#endif

enum { OT_VECTOR_LANES = OT_VECTOR_BYTES / (int)sizeof(ot_real) };

typedef ot_real ot_vector __attribute__((vector_size(OT_VECTOR_BYTES)));

// ot_fused_f32 or ot_fused_f64 in every lane: intrinsics, since gcc 12 has no such operation on its
// own vectors.
#if defined(__AVX512F__) && OT_REAL_BITS == 64
#include <immintrin.h>
#define OT_VECTOR_FUSED _mm512_fmadd_pd
#elif defined(__AVX512F__)
#include <immintrin.h>
#define OT_VECTOR_FUSED _mm512_fmadd_ps
#elif defined(__FMA__) && OT_REAL_BITS == 64
#include <immintrin.h>
#define OT_VECTOR_FUSED _mm256_fmadd_pd
#elif defined(__FMA__)
#include <immintrin.h>
#define OT_VECTOR_FUSED _mm256_fmadd_ps
#elif defined(__ARM_FEATURE_FMA) && defined(__aarch64__) && OT_REAL_BITS == 64
#include <arm_neon.h>
#define OT_VECTOR_FUSED(a, b, c) \
  (ot_vector) vfmaq_f64((float64x2_t)(c), (float64x2_t)(a), (float64x2_t)(b))
#elif defined(__ARM_FEATURE_FMA) && defined(__aarch64__)
#include <arm_neon.h>
#define OT_VECTOR_FUSED(a, b, c) \
  (ot_vector) vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b))
#else
#define OT_VECTOR_FUSED(a, b, c) ((a) * (b) + (c))
#endif

static inline __attribute__((always_inline)) ot_vector ot_vector_fused(ot_vector a, ot_vector b,
                                                                       ot_vector c) {
  return OT_VECTOR_FUSED(a, b, c);
}

static inline __attribute__((always_inline)) ot_vector ot_vector_of(ot_real x) {
  return x - (ot_vector){0};
}
