// SPDX-License-Identifier: Apache-2.0
// exp, log, tanh and erf for kernels, without libm: straight-line code without branches or calls,
// so that loops are vectorised and every run gives the same bits. Named by type; OT_KERNEL(ot_exp)
// is the one for ot_real. Call them in plain loops (#pragma omp simd).
//
// Each reduces its argument to a short interval (Cody and Waite 1980) and evaluates a minimax
// polynomial there (tools/fit_vector_math.py). Largest errors seen by the tests, in ulp, with and
// without fused multiply-add:
//           exp    log    tanh   erf
//   float   1.05   0.85   2.5    1.2
//   double  1.05   0.85   2.5    1.6
// Special values: exp(-inf) = 0, exp(inf) = inf, log(0) = -inf, log(x < 0) = NaN, log(inf) = inf,
// NaN in, NaN out; denormals are read and written.
#pragma once

#include <stdint.h>
#include <string.h>

#include "kernels/fused.h"

static inline int32_t ot_bits_f32(float x) {
  int32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static inline float ot_from_bits_f32(int32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static inline int64_t ot_bits_f64(double x) {
  int64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static inline double ot_from_bits_f64(int64_t bits) {
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

// x = exponent * ln 2 + r with |r| <= ln 2 / 2; em1 = exp(r) - 1. |x| < 2^22 ln 2.
typedef struct ot_exp_parts_f32 {
  int32_t exponent;
  float em1;
} ot_exp_parts_f32;

typedef struct ot_exp_parts_f64 {
  int64_t exponent;
  double em1;
} ot_exp_parts_f64;

static inline ot_exp_parts_f32 ot_exp_reduce_f32(float x) {
  // Adding 1.5 * 2^23 rounds to an integer in the low bits.
  const float shift = 0x1.8p23f;
  const float shifted = ot_fused_f32(x, 0x1.715476p0f, shift);
  const float n = shifted - shift;
  // ln 2 in two parts; the first has few bits, so n * first is exact.
  const float r = ot_fused_f32(n, -0x1.7f7d1cp-20f, x - n * 0x1.62e4p-1f);
  float q = 0x1.6bec0ap-10f;
  q = ot_fused_f32(q, r, 0x1.122782p-7f);
  q = ot_fused_f32(q, r, 0x1.555674p-5f);
  q = ot_fused_f32(q, r, 0x1.5554bp-3f);
  q = ot_fused_f32(q, r, 0x1.fffffep-2f);
  return (ot_exp_parts_f32){.exponent = (int32_t)((uint32_t)ot_bits_f32(shifted) - 0x4b400000u),
                            .em1 = ot_fused_f32(r * r, q, r)};
}

static inline ot_exp_parts_f64 ot_exp_reduce_f64(double x) {
  const double shift = 0x1.8p52;
  const double shifted = ot_fused_f64(x, 0x1.71547652b82fep0, shift);
  const double n = shifted - shift;
  const double r = ot_fused_f64(n, -0x1.cf79abc9e3b3ap-40, x - n * 0x1.62e42fefap-1);
  double q = 0x1.ae6bb6962f6dfp-26;
  q = ot_fused_f64(q, r, 0x1.28a1e41a6f591p-22);
  q = ot_fused_f64(q, r, 0x1.71de8801ee104p-19);
  q = ot_fused_f64(q, r, 0x1.a019a76b3e798p-16);
  q = ot_fused_f64(q, r, 0x1.a01a017515258p-13);
  q = ot_fused_f64(q, r, 0x1.6c16c17edcf76p-10);
  q = ot_fused_f64(q, r, 0x1.1111111118fafp-7);
  q = ot_fused_f64(q, r, 0x1.55555555522b3p-5);
  q = ot_fused_f64(q, r, 0x1.5555555555539p-3);
  q = ot_fused_f64(q, r, 0x1.0000000000005p-1);
  return (ot_exp_parts_f64){
      .exponent = (int64_t)((uint64_t)ot_bits_f64(shifted) - 0x4338000000000000u),
      .em1 = ot_fused_f64(r * r, q, r)};
}

// 2^exponent for the exponents of normal numbers.
static inline float ot_power_of_two_f32(int32_t exponent) {
  return ot_from_bits_f32((int32_t)((uint32_t)(exponent + 127) << 23));
}

static inline double ot_power_of_two_f64(int64_t exponent) {
  return ot_from_bits_f64((int64_t)((uint64_t)(exponent + 1023) << 52));
}

// The comparisons propagate NaN. The power is applied in two halves, so that both are normal even
// where the result overflows or is denormal.
static inline float ot_exp_f32(float x) {
  const float above = x < -104.0f ? -104.0f : x;
  const ot_exp_parts_f32 parts = ot_exp_reduce_f32(above > 89.0f ? 89.0f : above);
  const int32_t half = parts.exponent >> 1;
  return (1.0f + parts.em1) * ot_power_of_two_f32(half) *
         ot_power_of_two_f32(parts.exponent - half);
}

static inline double ot_exp_f64(double x) {
  const double above = x < -746.0 ? -746.0 : x;
  const ot_exp_parts_f64 parts = ot_exp_reduce_f64(above > 710.0 ? 710.0 : above);
  // The upper bits of the exponent are invalid where 64-bit shifts are emulated; 32 bits suffice.
  const int64_t half = (int32_t)parts.exponent >> 1;
  return (1.0 + parts.em1) * ot_power_of_two_f64(half) *
         ot_power_of_two_f64((int32_t)parts.exponent - half);
}

// exp(x) for x <= 0, cheaper: results below the normal numbers are 0. Also correct up to x = 88
// (708); undefined above.
static inline float ot_exp_nonpositive_f32(float x) {
  const ot_exp_parts_f32 parts = ot_exp_reduce_f32(x);
  const uint32_t bits = (uint32_t)ot_bits_f32(1.0f + parts.em1);
  const float value = ot_from_bits_f32((int32_t)(bits + ((uint32_t)parts.exponent << 23)));
  return x < -87.0f ? 0.0f : value;
}

static inline double ot_exp_nonpositive_f64(double x) {
  const ot_exp_parts_f64 parts = ot_exp_reduce_f64(x);
  const uint64_t bits = (uint64_t)ot_bits_f64(1.0 + parts.em1);
  const double value = ot_from_bits_f64((int64_t)(bits + ((uint64_t)parts.exponent << 52)));
  return x < -708.0 ? 0.0 : value;
}

// tanh |x| = -e / (2 + e) with e = exp(-2 |x|) - 1; 2^n - 1 is exact.
static inline float ot_tanh_f32(float x) {
  const float size = __builtin_fabsf(x);
  const ot_exp_parts_f32 parts = ot_exp_reduce_f32(-2.0f * (size > 10.0f ? 10.0f : size));
  const float power = ot_power_of_two_f32(parts.exponent);
  const float e = ot_fused_f32(power, parts.em1, power - 1.0f);
  return __builtin_copysignf(-e / (2.0f + e), x);
}

static inline double ot_tanh_f64(double x) {
  const double size = __builtin_fabs(x);
  const ot_exp_parts_f64 parts = ot_exp_reduce_f64(-2.0 * (size > 20.0 ? 20.0 : size));
  const double power = ot_power_of_two_f64(parts.exponent);
  const double e = ot_fused_f64(power, parts.em1, power - 1.0);
  return __builtin_copysign(-e / (2.0 + e), x);
}

// 1 / (1 + exp(-x)); 0 below the range of exp.
static inline float ot_sigmoid_f32(float x) { return 1.0f / (1.0f + ot_exp_f32(-x)); }

static inline double ot_sigmoid_f64(double x) { return 1.0 / (1.0 + ot_exp_f64(-x)); }

// log x = exponent * ln 2 + log(1 + f), 1 + f in [sqrt(1/2), sqrt 2), with s = f / (2 + f):
// log(1 + f) = f - (f^2/2 - s * (f^2/2 + R(s^2)))   (Sun's fdlibm, e_log.c)
static inline float ot_log_f32(float x) {
  const int denormal = x < 0x1p-126f;
  const int32_t bits = ot_bits_f32(denormal ? x * 0x1p23f : x);
  const int32_t exponent = (int32_t)((uint32_t)bits - 0x3f3504f3u) >> 23;
  const float f = ot_from_bits_f32((int32_t)((uint32_t)bits - ((uint32_t)exponent << 23))) - 1.0f;
  const float n = (float)(exponent - (denormal ? 23 : 0));
  const float s = f / (2.0f + f);
  const float z = s * s;
  float r = ot_fused_f32(0x1.31e6bap-2f, z, 0x1.995e98p-2f);
  r = z * ot_fused_f32(r, z, 0x1.55557ap-1f);
  const float half_square = 0.5f * f * f;
  const float tail = ot_fused_f32(s, half_square + r, n * 0x1.7f7d1cp-20f);
  const float value = ot_fused_f32(n, 0x1.62e4p-1f, f - (half_square - tail));
  const float positive = x < __builtin_inff() ? value : x;
  const float ordered = x > 0.0f ? positive : (x - x) / 0.0f;
  return x == 0.0f ? -__builtin_inff() : ordered;
}

static inline double ot_log_f64(double x) {
  const int denormal = x < 0x1p-1022;
  const int64_t bits = ot_bits_f64(denormal ? x * 0x1p52 : x);
  // Uses only the upper word: few vector units have 64-bit arithmetic shifts.
  const int32_t exponent = (int32_t)((uint32_t)((uint64_t)bits >> 32) - 0x3fe6a09eu) >> 20;
  const double f =
      ot_from_bits_f64((int64_t)((uint64_t)bits - ((uint64_t)(int64_t)exponent << 52))) - 1.0;
  const double n = (double)(exponent - (denormal ? 52 : 0));
  const double s = f / (2.0 + f);
  const double z = s * s;
  double r = 0x1.2f0dce730f991p-3;
  r = ot_fused_f64(r, z, 0x1.39a0eee882b7ep-3);
  r = ot_fused_f64(r, z, 0x1.74664666bb94dp-3);
  r = ot_fused_f64(r, z, 0x1.c71c51e6e7019p-3);
  r = ot_fused_f64(r, z, 0x1.2492494218e3ap-2);
  r = ot_fused_f64(r, z, 0x1.999999997fb1bp-2);
  r = ot_fused_f64(r, z, 0x1.5555555555593p-1);
  const double half_square = 0.5 * f * f;
  const double tail = ot_fused_f64(s, ot_fused_f64(z, r, half_square), n * 0x1.cf79abc9e3b3ap-40);
  const double value = ot_fused_f64(n, 0x1.62e42fefap-1, f - (half_square - tail));
  const double positive = x < __builtin_inf() ? value : x;
  const double ordered = x > 0.0 ? positive : (x - x) / 0.0;
  return x == 0.0 ? -__builtin_inf() : ordered;
}

// Inlined, because a call would prevent vectorisation of the surrounding loop. |x| < 1: x + x *
// P(x^2). Above: 1 - exp(Q(|x|)), Q fitted to log erfc with erfc as its weight.
__attribute__((always_inline)) static inline float ot_erf_f32(float x) {
  const float size = __builtin_fabsf(x);
  const float z = x * x;
  float p = 0x1.496a3p-14f;
  p = ot_fused_f32(p, z, -0x1.a3f712p-11f);
  p = ot_fused_f32(p, z, 0x1.5405b8p-8f);
  p = ot_fused_f32(p, z, -0x1.b7f90ep-6f);
  p = ot_fused_f32(p, z, 0x1.ce2cf8p-4f);
  p = ot_fused_f32(p, z, -0x1.81273ep-2f);
  p = ot_fused_f32(p, z, 0x1.06eba8p-3f);
  const float near = ot_fused_f32(size, p, size);
  const float a = size > 4.0f ? 4.0f : size;
  float q = 0x1.85313ep-13f;
  q = ot_fused_f32(q, a, -0x1.814f54p-9f);
  q = ot_fused_f32(q, a, 0x1.654366p-6f);
  q = ot_fused_f32(q, a, -0x1.a60b3p-4f);
  q = ot_fused_f32(q, a, -0x1.46c56ap-1f);
  q = ot_fused_f32(q, a, -0x1.2085bap0f);
  q = ot_fused_f32(q, a, -0x1.72c7p-12f);
  const float far = 1.0f - ot_exp_f32(q);
  return __builtin_copysignf(size < 1.0f ? near : far, x);
}

__attribute__((always_inline)) static inline double ot_erf_f64(double x) {
  const double size = __builtin_fabs(x);
  const double z = x * x;
  double p = -0x1.abae463d9e062p-31;
  p = ot_fused_f64(p, z, 0x1.d71b14bf46ebep-27);
  p = ot_fused_f64(p, z, -0x1.5c0728e0bc24cp-23);
  p = ot_fused_f64(p, z, 0x1.b97fd4630d94ap-20);
  p = ot_fused_f64(p, z, -0x1.f4ca4d84375e7p-17);
  p = ot_fused_f64(p, z, 0x1.f9a2baaaf15e4p-14);
  p = ot_fused_f64(p, z, -0x1.c02db03df4339p-11);
  p = ot_fused_f64(p, z, 0x1.565bccf92c3eep-8);
  p = ot_fused_f64(p, z, -0x1.b82ce311fa9fbp-6);
  p = ot_fused_f64(p, z, 0x1.ce2f21a040d1ap-4);
  p = ot_fused_f64(p, z, -0x1.812746b0379bdp-2);
  p = ot_fused_f64(p, z, 0x1.06eba8214db68p-3);
  const double near = ot_fused_f64(size, p, size);
  const double a = size > 6.0 ? 6.0 : size;
  double q = 0x1.31e2d7d0db68bp-36;
  q = ot_fused_f64(q, a, -0x1.6020965a7671dp-31);
  q = ot_fused_f64(q, a, 0x1.703d98e1da9bbp-27);
  q = ot_fused_f64(q, a, -0x1.c8bc852a6d771p-24);
  q = ot_fused_f64(q, a, 0x1.6a40d715f2678p-21);
  q = ot_fused_f64(q, a, -0x1.5dfb2e796cf12p-19);
  q = ot_fused_f64(q, a, 0x1.c370a66ce07b8p-19);
  q = ot_fused_f64(q, a, 0x1.e1c4debcdcac3p-16);
  q = ot_fused_f64(q, a, -0x1.e7163a5ec1c75p-13);
  q = ot_fused_f64(q, a, 0x1.e3cb90b13b63dp-11);
  q = ot_fused_f64(q, a, -0x1.1397db6fe7f12p-9);
  q = ot_fused_f64(q, a, 0x1.3450b10668105p-11);
  q = ot_fused_f64(q, a, 0x1.3509f8d0ede10p-6);
  q = ot_fused_f64(q, a, -0x1.a4657d9d9c03dp-4);
  q = ot_fused_f64(q, a, -0x1.45f962ad3ddafp-1);
  q = ot_fused_f64(q, a, -0x1.20dcc2c1d02afp0);
  q = ot_fused_f64(q, a, -0x1.229839248febap-20);
  const double far = 1.0 - ot_exp_f64(q);
  return __builtin_copysign(size < 1.0 ? near : far, x);
}
