// What float16 and bfloat16 share: 16 bits, computed with in float32 and rounded to nearest, which
// gives the bits of one rounding for +, -, *, / and sqrt since float32 is more than twice as precise.
#pragma once

#include "device.h"

namespace cuda_emulator {

float half_to_float(uint16_t bits);
uint16_t float_to_half(float x);
float bfloat_to_float(uint16_t bits);
uint16_t float_to_bfloat(float x);

struct HalfFormat {
  static float widen(uint16_t bits) { return half_to_float(bits); }
  static uint16_t round(float x) { return float_to_half(x); }
};

struct BfloatFormat {
  static float widen(uint16_t bits) { return bfloat_to_float(bits); }
  static uint16_t round(float x) { return float_to_bfloat(x); }
};

template <typename Format>
struct Small {
  uint16_t bits;

  Small() = default;
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
  __forceinline__ Small(T x) : bits(Format::round(static_cast<float>(x))) {}
  __forceinline__ operator float() const { return Format::widen(bits); }

  static __forceinline__ Small of_bits(uint16_t bits) {
    Small made;
    made.bits = bits;
    return made;
  }
  friend __forceinline__ Small operator+(Small a, Small b) { return float(a) + float(b); }
  friend __forceinline__ Small operator-(Small a, Small b) { return float(a) - float(b); }
  friend __forceinline__ Small operator*(Small a, Small b) { return float(a) * float(b); }
  friend __forceinline__ Small operator/(Small a, Small b) { return float(a) / float(b); }
  friend __forceinline__ Small operator-(Small a) { return of_bits(a.bits ^ 0x8000); }
  friend __forceinline__ bool operator<(Small a, Small b) { return float(a) < float(b); }
  friend __forceinline__ bool operator>(Small a, Small b) { return float(a) > float(b); }
  friend __forceinline__ bool operator<=(Small a, Small b) { return float(a) <= float(b); }
  friend __forceinline__ bool operator>=(Small a, Small b) { return float(a) >= float(b); }
  friend __forceinline__ bool operator==(Small a, Small b) { return float(a) == float(b); }
  friend __forceinline__ bool operator!=(Small a, Small b) { return float(a) != float(b); }
  __forceinline__ Small& operator+=(Small b) { return *this = *this + b; }
  __forceinline__ Small& operator-=(Small b) { return *this = *this - b; }
  __forceinline__ Small& operator*=(Small b) { return *this = *this * b; }
  __forceinline__ Small& operator/=(Small b) { return *this = *this / b; }
};

template <typename Format>
struct alignas(4) Small2 {
  Small<Format> x, y;

  Small2() = default;
  __forceinline__ Small2(Small<Format> x, Small<Format> y) : x(x), y(y) {}
  CUDA_EMULATOR_COPIED_WHOLE(Small2, 4)
  friend __forceinline__ Small2 operator+(Small2 a, Small2 b) { return {a.x + b.x, a.y + b.y}; }
  friend __forceinline__ Small2 operator-(Small2 a, Small2 b) { return {a.x - b.x, a.y - b.y}; }
  friend __forceinline__ Small2 operator*(Small2 a, Small2 b) { return {a.x * b.x, a.y * b.y}; }
  friend __forceinline__ Small2 operator/(Small2 a, Small2 b) { return {a.x / b.x, a.y / b.y}; }
};

}  // namespace cuda_emulator

// The functions that have one name for both types.
#define CUDA_EMULATOR_SMALL_UNARY(name, expression)                           \
  template <typename F>                                                       \
  __forceinline__ cuda_emulator::Small<F> name(cuda_emulator::Small<F> h) {   \
    const float x = h;                                                        \
    return expression;                                                        \
  }
CUDA_EMULATOR_SMALL_UNARY(hexp, expf(x))
CUDA_EMULATOR_SMALL_UNARY(hexp2, exp2f(x))
CUDA_EMULATOR_SMALL_UNARY(hlog, logf(x))
CUDA_EMULATOR_SMALL_UNARY(hlog2, log2f(x))
CUDA_EMULATOR_SMALL_UNARY(hsqrt, sqrtf(x))
CUDA_EMULATOR_SMALL_UNARY(hrsqrt, 1.0f / sqrtf(x))
CUDA_EMULATOR_SMALL_UNARY(hrcp, 1.0f / x)
CUDA_EMULATOR_SMALL_UNARY(hsin, sinf(x))
CUDA_EMULATOR_SMALL_UNARY(hcos, cosf(x))
CUDA_EMULATOR_SMALL_UNARY(htanh, tanhf(x))
CUDA_EMULATOR_SMALL_UNARY(hfloor, floorf(x))
CUDA_EMULATOR_SMALL_UNARY(hceil, ceilf(x))
CUDA_EMULATOR_SMALL_UNARY(hrint, rintf(x))
CUDA_EMULATOR_SMALL_UNARY(htrunc, truncf(x))
CUDA_EMULATOR_SMALL_UNARY(__habs, fabsf(x))
CUDA_EMULATOR_SMALL_UNARY(__hneg, -x)
#undef CUDA_EMULATOR_SMALL_UNARY

#define CUDA_EMULATOR_SMALL_BINARY(Result, name, expression)                                       \
  template <typename F>                                                                            \
  __forceinline__ Result name(cuda_emulator::Small<F> a, cuda_emulator::Small<F> b) {              \
    const float x = a, y = b;                                                                      \
    return expression;                                                                             \
  }
CUDA_EMULATOR_SMALL_BINARY(cuda_emulator::Small<F>, __hadd, x + y)
CUDA_EMULATOR_SMALL_BINARY(cuda_emulator::Small<F>, __hsub, x - y)
CUDA_EMULATOR_SMALL_BINARY(cuda_emulator::Small<F>, __hmul, x* y)
CUDA_EMULATOR_SMALL_BINARY(cuda_emulator::Small<F>, __hdiv, x / y)
CUDA_EMULATOR_SMALL_BINARY(cuda_emulator::Small<F>, __hmax, fmaxf(x, y))
CUDA_EMULATOR_SMALL_BINARY(cuda_emulator::Small<F>, __hmin, fminf(x, y))
CUDA_EMULATOR_SMALL_BINARY(bool, __hgt, x > y)
CUDA_EMULATOR_SMALL_BINARY(bool, __hge, x >= y)
CUDA_EMULATOR_SMALL_BINARY(bool, __hlt, x < y)
CUDA_EMULATOR_SMALL_BINARY(bool, __hle, x <= y)
CUDA_EMULATOR_SMALL_BINARY(bool, __heq, x == y)
CUDA_EMULATOR_SMALL_BINARY(bool, __hne, x != y)
#undef CUDA_EMULATOR_SMALL_BINARY

template <typename F>
__forceinline__ bool __hisnan(cuda_emulator::Small<F> x) {
  return isnan(float(x));
}
template <typename F>
__forceinline__ cuda_emulator::Small<F> __hfma(cuda_emulator::Small<F> a, cuda_emulator::Small<F> b,
                                               cuda_emulator::Small<F> c) {
  return fmaf(a, b, c);
}
template <typename F>
__forceinline__ cuda_emulator::Small2<F> __hadd2(cuda_emulator::Small2<F> a,
                                                 cuda_emulator::Small2<F> b) {
  return a + b;
}
template <typename F>
__forceinline__ cuda_emulator::Small2<F> __hmul2(cuda_emulator::Small2<F> a,
                                                 cuda_emulator::Small2<F> b) {
  return a * b;
}
template <typename F>
__forceinline__ cuda_emulator::Small2<F> __hfma2(cuda_emulator::Small2<F> a,
                                                 cuda_emulator::Small2<F> b,
                                                 cuda_emulator::Small2<F> c) {
  return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
template <typename F>
__forceinline__ float __low2float(cuda_emulator::Small2<F> a) {
  return a.x;
}
template <typename F>
__forceinline__ float __high2float(cuda_emulator::Small2<F> a) {
  return a.y;
}
